package main

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dunnage-project/dunnage/hook/wire"
)

// The names and texts are as buildah 1.28 and podman 4.3 write them.
const (
	imageID = "34f42cc09c80a458e9724c456db1f88e609a46ca606aeb4223e38d31281495ea"
	ofImage = "overlay-images/" + imageID + "/"
)

func stored(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	for path, text := range map[string]string{
		"overlay-containers/containers.json":          `[{"id":"c0","names":["built"],"image":""},{"id":"c1","names":["web"],"image":"` + imageID + `"},{"id":"c3","image":"gone"}]`,
		"overlay-containers/volatile-containers.json": `[{"id":"c2","names":["once"],"image":"` + imageID + `"}]`,
		"overlay-images/images.json":                  `[{"id":"other"},{"id":"` + imageID + `","names":["localhost/x:1"]}]`,
		ofImage + "manifest":                          `{"config":{"digest":"sha256:` + imageID + `"},"annotations":{"io.dunnage.policy":"weak","else":"x"}}`,
		ofImage + "=c2hhMjU2OjM0ZjQyY2MwOWM4MGE0NThlOTcyNGM0NTZkYjFmODhlNjA5YTQ2Y2E2MDZhZWI0MjIzZTM4ZDMxMjgxNDk1ZWE=": `{"config":{"Labels":{"io.dunnage.policy":"l1"}}}`,
	} {
		write(t, filepath.Join(root, path), text)
	}
	return root
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestStorage(t *testing.T) {
	s := storage{[]string{t.TempDir(), stored(t)}}
	for _, id := range []string{"c1", "c2"} {
		i, err := s.imageOf(id)
		if err != nil || i == nil {
			t.Fatalf("%s: %v, %v", id, i, err)
		}
		if i.Annotations[wire.Annotation] != "weak" || len(i.Annotations) != 1 || i.Labels[wire.Annotation] != "l1" || !i.from([]string{"localhost/x"}) {
			t.Errorf("%s: %+v", id, i)
		}
	}
	if s.name("c2") != "once" || s.name("c9") != "" {
		t.Errorf("names %q and %q", s.name("c2"), s.name("c9"))
	}
	for _, id := range []string{"c0", "c9"} { // built from nothing; another runtime's
		if i, err := s.imageOf(id); i != nil || err != nil {
			t.Errorf("%s: %v, %v", id, i, err)
		}
	}
}

// An image that can't be read is an error, never an image that says nothing.
func TestStorageDamaged(t *testing.T) {
	for _, path := range []string{"overlay-images/images.json", ofImage + "manifest", "overlay-containers/containers.json"} {
		root := stored(t)
		write(t, filepath.Join(root, path), `{"half`)
		if i, err := (storage{[]string{root}}).imageOf("c1"); err == nil {
			t.Errorf("%s damaged: %+v", path, i)
		}
	}
	root := stored(t)
	if err := os.Remove(filepath.Join(root, ofImage+"manifest")); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"c1", "c3"} { // without a manifest; with an image that is not there
		if i, err := (storage{[]string{root}}).imageOf(id); err == nil {
			t.Errorf("%s: %+v", id, i)
		}
	}
}

// What `dunnage policy sign` prints is what a node with the key accepts.
func TestSignCommand(t *testing.T) {
	dir := t.TempDir()
	key := writeKey(t, dir)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "key.pem"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})))
	write(t, filepath.Join(dir, "p.yaml"), inlineText)
	write(t, filepath.Join(dir, "config.yaml"), configHead+"images: {annotations: true, inline: signed, keys: [key.pub]}\n")
	conf, err := loadConfig(filepath.Join(dir, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	root := rootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{"policy", "sign", "--key", filepath.Join(dir, "key.pem"), filepath.Join(dir, "p.yaml")})
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	name, signature, _ := strings.Cut(strings.TrimSpace(out.String()), "=")
	var got choice
	err = conf.hear(&image{Annotations: notes(wire.AnnotationInline, strings.TrimSpace(inlineText), name, signature)}, &got)
	if err != nil || len(got.inline) != 1 {
		t.Errorf("%s: %v", out.String(), err)
	}
}
