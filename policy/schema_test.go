package policy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/dunnage-project/dunnage/policy"
)

const postgresTest = `apiVersion: dunnage.io/v1
kind: PolicyTest
spec:
  policy: postgres
  cases:
  - {exe: /bin/cat, path: /etc/shadow, access: read, want: deny}
`

// Parser and schema accept the same structure.
func TestSchemaAgrees(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(policy.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("policy.json", doc); err != nil {
		t.Fatal(err)
	}
	schema := c.MustCompile("policy.json")
	corpus := []string{postgres}
	for _, edit := range [][2]string{
		{"effect: only", "efect: only"}, {"[read, exec]", "[reed]"}, {"[read, exec]", "[]"}, {"[read, exec]", "read"},
		{`"/etc/shadow"`, `"etc/shadow"`}, {`paths: ["/etc/shadow"]`, "paths: []"}, {`paths: ["/etc/shadow"], `, ""},
		{`, executables: ["/usr/lib/postgresql/*/bin/*"]`, ""}, {"default: deny", "default: no"},
		{"default: deny", "default: {all: deny}"}, {"default: deny", "default: {reed: deny}"}, {"  default: deny\n", ""},
		{"kind: Policy", "kind: Polcy"}, {"name: postgres", "name: Post gres"}, {"name: postgres", "name: 5"},
		{"name: postgres", "name: p, description: text"}, {"default: deny", "default: deny\n  mode: audit\n  mounts: allow\n  memfdExec: deny\n  include: [x]"},
		{"default: deny", "default: deny\n  mode: off"}, {"default: deny", "default: deny\n  mounts: yes"},
		{"effect: deny,", "effect: deny, inherit: true,"}, {"effect: deny,", "effect: deny, exact: true,"},
		{"effect: deny,", "effect: deny, exact: 1,"}, {"effect: only,", "effect: only, inherit: true,"}, {"metadata: {name: postgres}\n", ""},
	} {
		text := strings.Replace(postgres, edit[0], edit[1], 1)
		if text == postgres {
			t.Fatalf("%q is not in the text", edit[0])
		}
		corpus = append(corpus, text)
	}
	corpus = append(corpus, postgresTest)
	for _, edit := range [][2]string{
		{"policy: postgres", "policy: postgres\n  layers: [a, b]"}, {"policy: postgres", "layers: [a, b]"}, {"policy: postgres", "layers: []"},
		{"  policy: postgres\n", ""}, {"policy: postgres", "polcy: postgres"}, {"policy: postgres", "policy: 5"},
		{"policy: postgres", "policy: postgres\n  container: shop:web:nginx"}, {"policy: postgres", "policy: postgres\n  container: shop"},
		{"policy: postgres", "policy: postgres\n  container: 1"}, {"kind: PolicyTest", "kind: PolicyTest\nmetadata: {name: t}"},
		{"kind: PolicyTest", "kind: PolicyTest\nmetadata: {}"}, {"kind: PolicyTest", "kind: PolicyTests"},
		{"access: read", "access: [read, exec]"}, {"access: read", "access: reed"}, {"access: read", "access: []"}, {"access: read", "access: [reed]"},
		{"want: deny", "want: refuse"}, {", want: deny", ""}, {"path: /etc/shadow, ", ""}, {"path: /etc/shadow", "path: etc/shadow"},
		{"exe: /bin/cat", "exe: [/bin/a, /bin/b]"}, {"exe: /bin/cat", "exe: bin/cat"}, {"exe: /bin/cat", "exe: []"}, {"exe: /bin/cat", "inherited: /bin/cat"},
		{"exe: /bin/cat", "exec: /bin/cat"}, {"apiVersion: dunnage.io/v1\n", ""}, {"\n  - {exe: /bin/cat, path: /etc/shadow, access: read, want: deny}", " []"},
	} {
		text := strings.Replace(postgresTest, edit[0], edit[1], 1)
		if text == postgresTest {
			t.Fatalf("%q is not in the text", edit[0])
		}
		corpus = append(corpus, text)
	}
	files, err := filepath.Glob(blocks + "/[^b]*.yaml")
	if err != nil || len(files) < 7 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		corpus = append(corpus, string(data))
	}
	for _, text := range corpus {
		var value any
		if err := yaml.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		_, diags := policy.ParseFile("t.yaml", []byte(text))
		_, more := policy.ParseTests("t.yaml", []byte(text))
		diags = append(diags, more...)
		byParser, bySchema := diags.Err(), schema.Validate(value)
		if (byParser == nil) != (bySchema == nil) {
			t.Errorf("the parser says %v, the schema %v of\n%s", byParser, bySchema, text)
		}
	}
}
