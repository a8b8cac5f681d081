package main

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/dunnage-project/dunnage/hook/wire"
	"github.com/dunnage-project/dunnage/policy"
)

// defaultConfig is what the node's administrator writes.
const defaultConfig = "/etc/dunnage/config.yaml"

// nodeConfig is the node's configuration: which policies a container gets
// besides the ones that it asks for, and what it may ask for. It is immutable
// after loading; docs/config.md explains it.
type nodeConfig struct {
	Baseline      []named          // a layer of every container
	Default       []named          // for a container that asks for none itself
	Rules         []annotationRule // for a container with an annotation
	Exemptions    []exemption      // from the three above
	FailOpen      []string         // start even without the daemon
	Annotations   askRules         // what annotations may carry
	Images        imageRules       // what images may say
	WatchPolicies bool             // reload when a file of the policy folder changes
}

// named is the name of a policy where the configuration names it.
type named struct {
	Name string
	Pos  policy.Position
}

// annotationRule gives policies to the containers with an annotation.
type annotationRule struct {
	Key      string
	Value    string // pattern of path.Match
	Policies []named
}

// exemption frees a container from baseline, default and rules. All that it
// names must match.
type exemption struct {
	Namespaces []string // patterns of path.Match
	Images     []string // patterns of repositories
}

// askRules is what an annotation may carry.
type askRules struct {
	Limited  bool
	Policies []string // patterns of names, if Limited
	Inline   bool     // whole policies, too
}

// How an image's inline policy is taken.
const (
	inlineDeny = iota
	inlineSigned
	inlineAllow
)

var inlineWords = []string{"deny", "signed", "allow"}

// imageRules is what the node hears of images.
type imageRules struct {
	Heard        bool
	Repositories []string // patterns; none: every image
	Inline       int
	Keys         []ed25519.PublicKey
	Storage      []string // roots of containers/storage
}

// defaultStorage is where podman and CRI-O keep images.
const defaultStorage = "/var/lib/containers/storage"

func emptyConfig() *nodeConfig {
	return &nodeConfig{Images: imageRules{Storage: []string{defaultStorage}}}
}

// loadConfig reads the configuration. A file that does not exist is an empty
// one; anything that is not understood is an error with its place.
func loadConfig(file string) (*nodeConfig, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return emptyConfig(), nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	c, diags := parseConfig(file, data)
	return c, diags.Err()
}

// parseConfig reads the text of a configuration. Key files are read, too.
func parseConfig(file string, data []byte) (*nodeConfig, policy.Diagnostics) {
	c, documents := emptyConfig(), 0
	diags := policy.ReadYAML(file, data, func(r *policy.Reader, n *yaml.Node) {
		if documents++; documents > 1 {
			r.Fail(n, "keep one", "a second document")
			return
		}
		configReader{r, filepath.Dir(file)}.config(n, c)
	})
	return c, diags
}

type configReader struct {
	*policy.Reader
	dir string // of the file: key files are relative to it
}

func (r configReader) config(n *yaml.Node, c *nodeConfig) {
	seen := map[string]bool{}
	ok := r.Fields(n, "the configuration", []string{"apiVersion", "kind", "baseline", "default", "rules", "exemptions", "failOpen", "annotations", "images", "watchPolicies"},
		func(key string, v *yaml.Node) {
			seen[key] = true
			switch key {
			case "apiVersion":
				r.Word(v, "apiVersion", policy.APIVersion)
			case "kind":
				r.Word(v, "kind", "NodeConfig")
			case "baseline":
				c.Baseline = r.policies(v, key)
			case "default":
				c.Default = r.policies(v, key)
			case "rules":
				r.Items(v, key, func(item *yaml.Node) { c.Rules = append(c.Rules, r.rule(item)) })
			case "exemptions":
				r.Items(v, key, func(item *yaml.Node) { c.Exemptions = append(c.Exemptions, r.exemption(item)) })
			case "failOpen":
				c.FailOpen = r.texts(v, key, r.systemName)
			case "annotations":
				r.asks(v, &c.Annotations)
			case "images":
				r.images(v, &c.Images)
			case "watchPolicies":
				c.WatchPolicies = r.Truth(v, key)
			}
		})
	for _, key := range []string{"apiVersion", "kind"} {
		if ok && !seen[key] {
			r.Fail(n, "start the file with `apiVersion: "+policy.APIVersion+"` and `kind: NodeConfig`", "%s is missing", key)
		}
	}
}

// texts reads a list of strings, each accepted by check.
func (r configReader) texts(n *yaml.Node, what string, check func(*yaml.Node, string)) []string {
	out := []string{}
	r.Items(n, what, func(item *yaml.Node) {
		text := r.Text(item, "an item of "+what)
		if item.Kind != yaml.ScalarNode {
			return
		}
		check(item, text)
		out = append(out, text)
	})
	return out
}

func (r configReader) policies(n *yaml.Node, what string) []named {
	var out []named
	r.texts(n, what, func(item *yaml.Node, name string) {
		if !policy.ValidName(name) {
			r.Fail(item, "write the metadata.name of a policy", "%q can't be a policy's name", name)
		}
		out = append(out, named{name, r.At(item)})
	})
	return out
}

func (r configReader) pattern(n *yaml.Node, text string) {
	if _, err := path.Match(text, ""); err != nil || text == "" {
		r.Fail(n, "write words with *, ? and […]", "%q is not a pattern", text)
	}
}

func (r configReader) repository(n *yaml.Node, text string) {
	if _, err := path.Match(text, ""); err != nil || !strings.Contains(text, "/") || strings.HasPrefix(text, "/") || strings.ContainsAny(text[strings.LastIndex(text, "/"):], ":@") {
		r.Fail(n, "write host/name without a tag, such as registry.example.com/team/**", "%q is not a pattern of repositories", text)
	}
}

func (r configReader) systemName(n *yaml.Node, text string) {
	if parts := strings.Split(text, "/"); len(parts) > 2 || slices.Contains(parts, "") || strings.ContainsAny(text, "*?[ ") {
		r.Fail(n, "write namespace/container, or the container's name where there are no namespaces", "%q does not name one container", text)
	}
}

func (r configReader) rule(n *yaml.Node) annotationRule {
	var out annotationRule
	ok := r.Fields(n, "a rule", []string{"annotation", "value", "policies"}, func(key string, v *yaml.Node) {
		switch key {
		case "annotation":
			out.Key = r.Text(v, key)
		case "value":
			out.Value = r.Text(v, key)
			r.pattern(v, out.Value)
		case "policies":
			out.Policies = r.policies(v, key)
		}
	})
	switch {
	case !ok:
	case out.Key == "" || len(out.Policies) == 0:
		r.Fail(n, "write {annotation: KEY, value: PATTERN, policies: [NAME]}", "a rule needs annotation and policies")
	case strings.HasPrefix(out.Key, wire.Annotation):
		r.Fail(n, "use baseline, default or another key", "%s names policies already", out.Key)
	}
	return out
}

func (r configReader) exemption(n *yaml.Node) exemption {
	var out exemption
	ok := r.Fields(n, "an exemption", []string{"namespaces", "images"}, func(key string, v *yaml.Node) {
		switch key {
		case "namespaces":
			out.Namespaces = r.texts(v, key, r.pattern)
		case "images":
			out.Images = r.texts(v, key, r.repository)
		}
	})
	if ok && len(out.Namespaces)+len(out.Images) == 0 {
		r.Fail(n, "write {namespaces: [kube-system]} or {images: [registry.k8s.io/pause]}", "the exemption names nothing")
	}
	return out
}

func (r configReader) asks(n *yaml.Node, out *askRules) {
	r.Fields(n, "annotations", []string{"policies", "inline"}, func(key string, v *yaml.Node) {
		switch key {
		case "policies":
			out.Limited, out.Policies = true, r.texts(v, key, r.pattern)
		case "inline":
			out.Inline = r.Truth(v, key)
		}
	})
}

func (r configReader) images(n *yaml.Node, out *imageRules) {
	var inlineAt *yaml.Node
	r.Fields(n, "images", []string{"annotations", "repositories", "inline", "keys", "storage"}, func(key string, v *yaml.Node) {
		switch key {
		case "annotations":
			out.Heard = r.Truth(v, key)
		case "repositories":
			out.Repositories = r.texts(v, key, r.repository)
			if len(out.Repositories) == 0 {
				r.Fail(v, "leave the key out to hear every image, or write annotations: false to hear none", "the list is empty")
			}
		case "inline":
			out.Inline, inlineAt = max(0, r.Word(v, key, inlineWords...)), v
		case "keys":
			r.texts(v, key, func(item *yaml.Node, text string) {
				k, err := r.key(text)
				if err != nil {
					r.Fail(item, "write the file of an ed25519 public key: `openssl pkey -in KEY -pubout -out FILE`", "key %q: %v", text, err)
					return
				}
				out.Keys = append(out.Keys, k)
			})
		case "storage":
			out.Storage = r.texts(v, key, func(item *yaml.Node, text string) {
				if !path.IsAbs(text) {
					r.Fail(item, "write the graphroot of storage.conf", "%q is not an absolute path", text)
				}
			})
		}
	})
	if out.Inline == inlineSigned && len(out.Keys) == 0 {
		r.Fail(inlineAt, "add keys: [FILE]", "inline: signed needs keys")
	}
}

// key reads a public key.
func (r configReader) key(file string) (ed25519.PublicKey, error) {
	if !filepath.IsAbs(file) {
		file = filepath.Join(r.dir, file)
	}
	data, err := readBounded(file, 64<<10)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, errors.New("no PEM block PUBLIC KEY")
	}
	any, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	if k, ok := any.(ed25519.PublicKey); ok {
		return k, nil
	}
	return nil, fmt.Errorf("it is %T, not an ed25519 key", any)
}

// check makes sure that the policies which the configuration names exist.
func (c *nodeConfig) check(set *policy.Set) error {
	all := slices.Concat(c.Baseline, c.Default)
	for _, rule := range c.Rules {
		all = append(all, rule.Policies...)
	}
	var diags policy.Diagnostics
	for _, n := range all {
		if _, err := set.Lookup(n.Name); err != nil {
			diags = append(diags, policy.Diagnostic{Pos: n.Pos, Message: err.Error(), Hint: "`dunnage policy check` says what is in the policy folder"})
		}
	}
	return diags.Err()
}

// everyContainer reports whether a container that asks for nothing may get
// policies all the same.
func (c *nodeConfig) everyContainer() bool {
	return len(c.Baseline)+len(c.Default)+len(c.Rules) > 0 || c.Images.Heard
}

// forHook is what the hook must know without the daemon.
func (c *nodeConfig) forHook(socket string) wire.Config {
	out := wire.Config{Socket: socket, Baseline: c.everyContainer(), FailOpen: c.FailOpen, WrittenBy: "dunnage daemon"}
	for _, rule := range c.Rules {
		if !slices.Contains(out.Annotations, rule.Key) {
			out.Annotations = append(out.Annotations, rule.Key)
		}
	}
	return out
}
