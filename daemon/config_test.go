package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dunnage-project/dunnage/policy"
)

const configHead = "apiVersion: dunnage.io/v1\nkind: NodeConfig\n"

// Every mistake is an error with its place; what is said is what is read.
func TestConfigMistakes(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"kind: NodeConfig\n", "c.yaml:1:1: error: apiVersion is missing"},
		{"apiVersion: dunnage.io/v1\nkind: Policy\n", "c.yaml:2:7: error: kind is"},
		{configHead + "baselin: [a]\n", "c.yaml:3:1: error: unknown key \"baselin\""},
		{configHead + "baseline: a\n", "c.yaml:3:11: error: baseline is the value"},
		{configHead + "baseline: [A B]\n", "c.yaml:3:12: error: \"A B\" can't be"},
		{configHead + "baseline: [a]\nbaseline: [b]\n", "c.yaml:4:1: error: key \"baseline\" is given twice"},
		{configHead + "rules:\n- {value: x}\n", "c.yaml:4:3: error: a rule needs"},
		{configHead + "rules:\n- {annotation: io.dunnage.policy, policies: [a]}\n", "c.yaml:4:3: error: io.dunnage.policy names"},
		{configHead + "exemptions:\n- {}\n", "c.yaml:4:3: error: the exemption names nothing"},
		{configHead + "exemptions:\n- {namespaces: ['[']}\n", "c.yaml:4:17: error: \"[\" is not a pattern"},
		{configHead + "exemptions:\n- {images: [nginx]}\n", "c.yaml:4:13: error: \"nginx\" is not a pattern of repositories"},
		{configHead + "exemptions:\n- {images: ['quay.io/a:1']}\n", "not a pattern of repositories"},
		{configHead + "failOpen: ['*']\n", "c.yaml:3:12: error: \"*\" does not name one container"},
		{configHead + "annotations: {inline: maybe}\n", "c.yaml:3:23: error: inline is"},
		{configHead + "images: {inline: signd}\n", "hint: did you mean `signed`?"},
		{configHead + "images: {inline: signed}\n", "c.yaml:3:18: error: inline: signed needs keys"},
		{configHead + "images: {keys: [none.pub]}\n", "c.yaml:3:17: error: key \"none.pub\""},
		{configHead + "images: {repositories: []}\n", "c.yaml:3:24: error: the list is empty"},
		{configHead + "images: {storage: [x]}\n", "c.yaml:3:20: error: \"x\" is not an absolute path"},
		{configHead + "---\n" + configHead, "a second document"},
		{configHead + "baseline: &x [a]\ndefault: *x\n", "aliases are not read"},
		{configHead + "\tx\n", "not YAML"},
	} {
		_, diags := parseConfig("c.yaml", []byte(c.text))
		if err := diags.Err(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.text, err, c.want)
		}
	}
}

// writeKey makes a key pair and the file of its public half.
func writeKey(t *testing.T, dir string) ed25519.PrivateKey {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "key.pub"), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	return private
}

func TestConfigWhole(t *testing.T) {
	dir := t.TempDir()
	private := writeKey(t, dir)
	file := filepath.Join(dir, "config.yaml")
	if c, err := loadConfig(file); err != nil || c.everyContainer() {
		t.Errorf("a missing file: %+v, %v", c, err)
	}
	text := configHead + `baseline: [one]
default: [two]
rules: [{annotation: app, value: "pg*", policies: [two]}, {annotation: app, policies: [one]}]
exemptions: [{namespaces: [kube-system], images: ["registry.k8s.io/**"]}]
failOpen: [kube-system/cilium-agent, proxy]
annotations: {policies: ["web-*"], inline: true}
images: {annotations: true, repositories: ["quay.io/team/*"], inline: signed, keys: [key.pub], storage: [/x]}
watchPolicies: true
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := loadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Images.Keys) != 1 || !c.Images.Keys[0].Equal(private.Public()) || c.Images.Inline != inlineSigned || !c.Annotations.Limited || !c.WatchPolicies {
		t.Errorf("%+v", c)
	}
	h := c.forHook("/s")
	if !h.Baseline || len(h.FailOpen) != 2 || len(h.Annotations) != 1 || h.Annotations[0] != "app" || h.Socket != "/s" {
		t.Errorf("what the hook is told: %+v", h)
	}
	set := newFixture(t).policies
	if err := c.check(set); err != nil {
		t.Error(err)
	}
	c.Default = append(c.Default, named{"tow", policy.Position{File: "f", Line: 3, Column: 4}})
	if err := c.check(set); err == nil || !strings.Contains(err.Error(), `f:3:4: error: unknown policy "tow": did you mean "two"?`) {
		t.Errorf("an unknown policy: %v", err)
	}
}

// What the manual and the Kubernetes recipe show is valid.
func TestConfigExamples(t *testing.T) {
	manual, err := os.ReadFile("../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(manual), "```yaml\n")
	example, _, _ = strings.Cut(example, "```")
	recipe, err := os.ReadFile("../packaging/kubernetes/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeKey(t, dir)
	for name, text := range map[string]string{"manual": strings.ReplaceAll(example, "build.pub", "key.pub"), "recipe": string(recipe)} {
		if _, diags := parseConfig(filepath.Join(dir, name), []byte(text)); text == "" || diags.Err() != nil {
			t.Errorf("%s: %v", name, diags.Err())
		}
	}
}
