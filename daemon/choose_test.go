package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/dunnage-project/dunnage/hook/wire"
	"github.com/dunnage-project/dunnage/policy"
)

const inlineText = "apiVersion: dunnage.io/v1\nkind: Policy\nmetadata: {name: own}\nspec: {default: allow}\n"

func testConfig(t *testing.T, text string) *nodeConfig {
	t.Helper()
	c, diags := parseConfig(t.TempDir()+"/c.yaml", []byte(configHead+text))
	if err := diags.Err(); err != nil {
		t.Fatal(err)
	}
	return c
}

func notes(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

// Which policies a container gets, for every source of them.
func TestChoose(t *testing.T) {
	says := func(pairs ...string) *image {
		return &image{ID: "0123456789abcdef", Names: []string{"quay.io/team/app:1"}, Annotations: notes(pairs...)}
	}
	heard := "images: {annotations: true}\n"
	system := policy.Container{Namespace: "kube-system", Name: "dns"}
	for _, c := range []struct {
		name, config string
		asked        asked
		want         string // names and inline's origins; or part of the error
	}{
		{"nothing", "", asked{}, ""},
		{"baseline", "baseline: [b]\n", asked{}, "b"},
		{"baseline is not replaced", "baseline: [b]\n", asked{Annotations: notes(wire.Annotation, "a,b")}, "b a"},
		{"default", "default: [d]\n", asked{}, "d"},
		{"default is for who asks for none", "default: [d]\n", asked{Annotations: notes(wire.Annotation, "a")}, "a"},
		{"one of a pod", "", asked{Annotations: notes(wire.Annotation, "p", wire.Annotation+"/web", "w", wire.Annotation+"/db", "d"), Where: policy.Container{Name: "web"}}, "p w"},
		{"one of a pod, by the runtime's name", "", asked{Annotations: notes(wire.Annotation+"/pod-web", "w"), Container: "pod-web"}, "w"},
		{"another one of a pod", "", asked{Annotations: notes(wire.Annotation+"/db", "d"), Where: policy.Container{Name: "web"}}, ""},
		{"empty annotation", "", asked{Annotations: notes(wire.Annotation, "")}, "error: no policy is named"},
		{"rule", "rules: [{annotation: app, value: 'pg*', policies: [r]}]\n", asked{Annotations: notes("app", "pg15")}, "r"},
		{"rule of another value", "rules: [{annotation: app, value: 'pg*', policies: [r]}]\n", asked{Annotations: notes("app", "web")}, ""},
		{"limited", "annotations: {policies: ['web-*']}\n", asked{Annotations: notes(wire.Annotation, "web-1")}, "web-1"},
		{"over the limit", "annotations: {policies: ['web-*']}\n", asked{Annotations: notes(wire.Annotation, "open")}, "error: the annotation io.dunnage.policy may not"},
		{"by hand is not limited", "annotations: {policies: []}\n", asked{Names: []string{"x"}}, "x"},
		{"inline is not taken", "baseline: [b]\n", asked{Annotations: notes(wire.AnnotationInline, inlineText)}, "error: the annotation io.dunnage.policy.inline carries"},
		{"inline", "baseline: [b]\ndefault: [d]\nannotations: {inline: true}\n", asked{Annotations: notes(wire.AnnotationInline, inlineText)}, "b annotation"},

		{"exempt namespace", "baseline: [b]\nexemptions: [{namespaces: [kube-*]}]\n", asked{Where: system}, ""},
		{"exempt, but asks", "baseline: [b]\nexemptions: [{namespaces: [kube-*]}]\n", asked{Where: system, Annotations: notes(wire.Annotation, "a")}, "a"},
		{"exempt for others", "baseline: [b]\nexemptions: [{namespaces: [kube-*]}]\n", asked{Where: system, UID: 1000}, "b"},
		{"no namespace is not exempt", "baseline: [b]\nexemptions: [{namespaces: ['*']}]\n", asked{}, "b"},
		{"exempt image", "baseline: [b]\nexemptions: [{images: ['quay.io/**']}]\n", asked{Image: says()}, ""},
		{"image below only", "baseline: [b]\nexemptions: [{images: ['quay.io/*']}]\n", asked{Image: says()}, "b"},
		{"image that begins alike", "baseline: [b]\nexemptions: [{images: ['quay.io/te/**', 'quay.io/team/ap', 'uay.io/team/app']}]\n", asked{Image: says()}, "b"},
		{"image not known", "baseline: [b]\nexemptions: [{images: ['quay.io/**']}]\n", asked{}, "b"},
		{"both must match", "baseline: [b]\nexemptions: [{namespaces: [x], images: ['quay.io/**']}]\n", asked{Image: says(), Where: system}, "b"},

		{"image not heard", "baseline: [b]\n", asked{Image: says(wire.Annotation, "i")}, "b"},
		{"image", "baseline: [b]\ndefault: [d]\n" + heard, asked{Image: says(wire.Annotation, "i")}, "b d i"},
		{"label", heard, asked{Image: &image{Labels: notes(wire.Annotation, "l")}}, "l"},
		{"both, and the user", heard, asked{Annotations: notes(wire.Annotation, "u"), Image: &image{Annotations: notes(wire.Annotation, "i"), Labels: notes(wire.Annotation, "l")}}, "u i l"},
		{"of an exempt container", "baseline: [b]\nexemptions: [{namespaces: [kube-*]}]\n" + heard, asked{Where: system, Image: says(wire.Annotation, "i")}, "i"},
		{"of another repository", "images: {annotations: true, repositories: ['docker.io/**']}\n", asked{Image: says(wire.Annotation, "i")}, ""},
		{"of the repository", "images: {annotations: true, repositories: ['quay.io/team/*']}\n", asked{Image: says(wire.Annotation, "i")}, "i"},
		{"that podman 4 made an annotation", "default: [d]\nannotations: {policies: []}\n", asked{Annotations: notes(wire.Annotation, "i"), Image: says(wire.Annotation, "i")}, "d i"},
		{"inline that podman 4 made an annotation", "default: [d]\n", asked{Annotations: notes(wire.AnnotationInline, "x"), Image: says(wire.AnnotationInline, "x")}, "d"},
		{"image inline denied", heard, asked{Image: says(wire.AnnotationInline, inlineText)}, "error: image 0123456789ab carries a policy"},
		{"image inline", "images: {annotations: true, inline: allow}\n", asked{Image: says(wire.AnnotationInline, inlineText)}, "image"},
	} {
		got, err := testConfig(t, c.config).choose(c.asked)
		text := strings.Join(got.names, " ")
		for _, in := range got.inline {
			text = strings.TrimSpace(text + " " + in.from)
		}
		if err != nil {
			text = "error: " + err.Error()
		}
		if text != c.want && !(strings.HasPrefix(c.want, "error: ") && strings.HasPrefix(text, c.want)) {
			t.Errorf("%s: %q, want %q", c.name, text, c.want)
		}
	}
}

// A signature counts only for the very text, by a key of the node.
func TestSignature(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	sign := func(k ed25519.PrivateKey, text []byte) string {
		return base64.StdEncoding.EncodeToString(ed25519.Sign(k, text))
	}
	conf := emptyConfig()
	conf.Images = imageRules{Heard: true, Inline: inlineSigned, Keys: []ed25519.PublicKey{key.Public().(ed25519.PublicKey)}}
	for _, c := range []struct {
		name, signature string
		ok              bool
	}{
		{"good", sign(key, signedText(inlineText)), true},
		{"by another key", sign(other, signedText(inlineText)), false},
		{"of another text", sign(key, signedText(inlineText+" ")), false},
		{"made for something else", sign(key, []byte(inlineText)), false},
		{"none", "", false},
		{"not base64", "***", false},
		{"cut", sign(key, signedText(inlineText))[:40], false},
	} {
		var out choice
		err := conf.hear(&image{Labels: notes(wire.AnnotationInline, inlineText, wire.AnnotationSignature, c.signature)}, &out)
		if (err == nil) != c.ok || c.ok != (len(out.inline) == 1) {
			t.Errorf("%s: %v, %d policies", c.name, err, len(out.inline))
		}
		if err != nil && codeOf(err) != wire.Refused {
			t.Errorf("%s: code %s", c.name, codeOf(err))
		}
	}
}

// An inline policy is one, and complete in itself.
func TestInlinePolicy(t *testing.T) {
	p, err := inlinePolicy{"image", inlineText}.parse()
	if err != nil || p.Name != "image:own" {
		t.Errorf("%v, %v", p, err)
	}
	for name, text := range map[string]string{
		"not YAML": "\t", "two": inlineText + "---\n" + strings.ReplaceAll(inlineText, "own", "other"), "a mistake": inlineText + "x: y\n",
		"an include": strings.ReplaceAll(inlineText, "default: allow", "default: allow, include: [base-system]"), "empty": "",
		"variants": "policies:\n- {executable: 'filepath = /a | container = a:b:c', can_access_dirs: ['/d:read']}\n",
	} {
		if p, err := (inlinePolicy{"image", text}).parse(); codeOf(err) != wire.InvalidPolicy {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
}

// Who writes an annotation of the orchestrator's is not believed.
func TestWhereOfContradicts(t *testing.T) {
	where, err := whereOf(notes("io.kubernetes.cri.sandbox-namespace", "shop", "io.kubernetes.pod.namespace", "shop", "io.kubernetes.pod.name", "p"))
	if err != nil || where.Namespace != "shop" || where.Pod != "p" {
		t.Errorf("%v, %v", where, err)
	}
	if where, err := whereOf(notes("io.kubernetes.cri.sandbox-namespace", "kube-system", "io.kubernetes.pod.namespace", "shop")); codeOf(err) != wire.Refused {
		t.Errorf("%v, %v", where, err)
	}
}

// A reload follows the configuration, also for a container that asks for
// nothing; a baseline that is taken away loosens, and one that comes holds.
func TestReconfigure(t *testing.T) {
	f := newFixture(t)
	f.config = testConfig(t, "baseline: [one]\n")
	q := ask("c1", 1)
	q.Annotations = map[string]string{}
	c, err := f.bind(q)
	if err != nil || !slices.Equal(c.Policies, []string{"one"}) {
		t.Fatalf("%+v, %v", c, err)
	}
	next := f.open(t)
	if err := next.adopt(); err != nil {
		t.Fatal(err)
	}
	c = next.get(c.Instance)
	for _, step := range []struct{ config, want string }{{"baseline: [one, two]\n", "one two"}, {"", "none"}, {"baseline: [two]\n", "two"}} {
		if err := next.reconfigure(f.set(t), testConfig(t, step.config)); err != nil || strings.Join(c.Policies, " ") != step.want {
			t.Errorf("%q: %v, %v", step.config, c.Policies, err)
		}
	}
	if len(f.kernel.tables) != 1 {
		t.Errorf("tables are left: %v", f.kernel.tables)
	}
	q = ask("c2", 2)
	q.Annotations = map[string]string{}
	if err := next.reconfigure(f.set(t), emptyConfig()); err != nil {
		t.Fatal(err)
	}
	if c, err := next.bind(q); c != nil || err != nil {
		t.Errorf("no policy applies: %v, %v", c, err)
	}
}
