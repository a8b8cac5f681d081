package main

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/dunnage-project/dunnage/hook/wire"
	"github.com/dunnage-project/dunnage/policy"
)

// asked is what is known of a container when its policies are chosen. It is kept
// for reloads.
type asked struct {
	Annotations map[string]string `json:"annotations"`     // nil only if Names were given
	Names       []string          `json:"names,omitempty"` // given by hand: `dunnage attach`
	Where       policy.Container  `json:"where"`
	Container   string            `json:"container,omitempty"` // its name by the runtime, for io.dunnage.policy/NAME
	Image       *image            `json:"image,omitempty"`     // nil: not known, or a user's own
	UID         uint32            `json:"uid,omitempty"`       // who starts it
}

// choice is the policies of a container: names, each once, and whole texts.
type choice struct {
	names  []string
	inline []inlinePolicy
}

type inlinePolicy struct{ from, text string }

func (c *choice) add(names ...named) {
	for _, n := range names {
		c.addName(n.Name)
	}
}

func (c *choice) addName(name string) {
	if !slices.Contains(c.names, name) {
		c.names = append(c.names, name)
	}
}

// choose says which policies a container gets. All are layers, so nothing that
// a container or its image asks for makes the node's part looser. An empty
// choice without an error: the container is to run without a policy.
func (c *nodeConfig) choose(a asked) (choice, error) {
	var out choice
	own, err := c.ownNames(a)
	if err != nil {
		return out, err
	}
	text, hasText := a.Annotations[wire.AnnotationInline]
	ofImage := a.Image != nil && text == a.Image.Annotations[wire.AnnotationInline]
	if hasText && !c.Annotations.Inline && !ofImage {
		return out, refuse(wire.Refused, "the annotation %s carries a policy, which this node does not take: name an installed one in %s, or set annotations.inline in the configuration", wire.AnnotationInline, wire.Annotation)
	}
	if !c.exempt(a) {
		out.add(c.Baseline...)
		for _, rule := range c.Rules {
			if value, ok := a.Annotations[rule.Key]; ok && rule.matches(value) {
				out.add(rule.Policies...)
			}
		}
		if len(own) == 0 && (!hasText || ofImage) {
			out.add(c.Default...)
		}
	}
	for _, name := range own {
		out.addName(name)
	}
	for _, name := range c.imageNames(a) { // podman ≤ 4.5.0 made them annotations
		out.addName(name)
	}
	if hasText && c.Annotations.Inline {
		out.inline = append(out.inline, inlinePolicy{"annotation", text})
	}
	if err := c.hear(a.Image, &out); err != nil {
		return out, err
	}
	if _, named := a.Annotations[wire.Annotation]; named && len(out.names)+len(out.inline) == 0 {
		return out, refuse(wire.UnknownPolicy, "no policy is named: write the name of one in the annotation %s", wire.Annotation)
	}
	return out, nil
}

// ownNames is the names that the container's starter wrote: for all containers
// of a pod, and for this one. Names that only came along from the image are not
// among them.
func (c *nodeConfig) ownNames(a asked) ([]string, error) {
	var out []string
	fromImage := c.imageNames(a)
	for _, key := range []string{wire.Annotation, wire.Annotation + "/" + a.Where.Name, wire.Annotation + "/" + a.Container} {
		for _, name := range policiesOf(a.Annotations[key]) {
			if slices.Contains(out, name) || slices.Contains(fromImage, name) {
				continue
			}
			if c.Annotations.Limited && !slices.ContainsFunc(c.Annotations.Policies, func(p string) bool { return matches(p, name) }) {
				return nil, refuse(wire.Refused, "the annotation %s may not ask for policy %q: annotations.policies in the configuration lists what it may", key, name)
			}
			out = append(out, name)
		}
	}
	return append(out, a.Names...), nil
}

// imageNames is the names in the container's annotation that are the image's.
func (c *nodeConfig) imageNames(a asked) []string {
	if a.Image == nil || a.Annotations[wire.Annotation] == "" || a.Annotations[wire.Annotation] != a.Image.Annotations[wire.Annotation] {
		return nil
	}
	return policiesOf(a.Annotations[wire.Annotation])
}

// exempt reports whether the node's part does not apply. Only root's containers
// can be: other callers' annotations and images are their own.
func (c *nodeConfig) exempt(a asked) bool {
	return a.UID == 0 && slices.ContainsFunc(c.Exemptions, func(e exemption) bool {
		inNamespace := len(e.Namespaces) == 0 || a.Where.Namespace != "" &&
			slices.ContainsFunc(e.Namespaces, func(p string) bool { return matches(p, a.Where.Namespace) })
		return inNamespace && (len(e.Images) == 0 || a.Image != nil && a.Image.from(e.Images))
	})
}

// needsImage reports whether the choice depends on the container's image.
func (c *nodeConfig) needsImage(a asked) bool {
	_, text := a.Annotations[wire.AnnotationInline]
	return text || c.Images.Heard || len(c.Default) > 0 || slices.ContainsFunc(c.Exemptions, func(e exemption) bool { return len(e.Images) > 0 })
}

func (r annotationRule) matches(value string) bool {
	return r.Value == "" || matches(r.Value, value)
}

// matches: the patterns were checked when they were read.
func matches(pattern, text string) bool {
	ok, _ := path.Match(pattern, text)
	return ok
}

// parse reads an inline policy: one, and complete in itself.
func (p inlinePolicy) parse() (*policy.Policy, error) {
	policies, diags := policy.ParseFile(p.from, []byte(p.text))
	if err := diags.Err(); err != nil {
		return nil, refusal{wire.InvalidPolicy, fmt.Errorf("the inline policy: %w", err)}
	}
	if len(policies) != 1 || len(policies[0].Include)+len(policies[0].Variants) > 0 {
		return nil, refuse(wire.InvalidPolicy, "the inline policy of the %s: write one policy, without include", p.from)
	}
	policies[0].Name = p.from + ":" + policies[0].Name
	return policies[0], nil
}

// whereOf is what the orchestrator calls the container, by annotations or labels.
// Its own are always there; another one that says something else was written by
// somebody who would like to be another container.
func whereOf(sources ...map[string]string) (policy.Container, error) {
	var out policy.Container
	for _, part := range []struct {
		to   *string
		keys []string
	}{{&out.Namespace, wire.NamespaceKeys()}, {&out.Pod, wire.PodKeys()}, {&out.Name, wire.NameKeys()}} {
		for _, annotations := range sources {
			for _, key := range part.keys {
				value := annotations[key]
				if value != "" && *part.to != "" && *part.to != value {
					return out, refuse(wire.Refused, "annotations contradict one another: %s says %q, another one %q", strings.Join(part.keys, " or "), value, *part.to)
				}
				if value != "" {
					*part.to = value
				}
			}
		}
	}
	return out, nil
}
