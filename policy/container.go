package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
)

// Container is what an orchestrator calls a container. Parts that it does not
// say are empty.
type Container struct {
	Namespace string `json:"namespace,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Name      string `json:"name,omitempty"`
}

// Variant is the policy in place of another one for the containers that its
// pattern matches: namespace:pod:container, each a pattern of path.Match.
type Variant struct {
	Container string
	Policy    *Policy
}

// For is the layers for a container: those of the first variant that matches, or
// the policy's own. Variants are not merged. A container that no orchestrator
// names is matched by none, not even by `*:*:*`.
func (p *Policy) For(c Container) []*Policy {
	for _, v := range p.Variants {
		if c.matches(v.Container) {
			return v.Policy.layers()
		}
	}
	return p.layers()
}

// Part is what a policy is for some containers.
type Part struct {
	Container string // the pattern; "" for those that no pattern matches
	Layers    []*Policy
}

// Parts is all that For can give.
func (p *Policy) Parts() []Part {
	out := []Part{{"", p.layers()}}
	for _, v := range p.Variants {
		out = append(out, Part{v.Container, v.Policy.layers()})
	}
	return out
}

func (p *Policy) layers() []*Policy {
	if p.And == nil {
		return []*Policy{p}
	}
	return []*Policy{p, p.And}
}

func (c Container) matches(pattern string) bool {
	parts := strings.Split(pattern, ":")
	if len(parts) != 3 {
		return false
	}
	for i, name := range []string{c.Namespace, c.Pod, c.Name} {
		if ok, err := path.Match(parts[i], name); name == "" || !ok || err != nil {
			return false
		}
	}
	return true
}

// ParseContainer reads namespace:pod:container. An empty text is a container
// that no orchestrator names.
func ParseContainer(text string) (Container, error) {
	if text == "" {
		return Container{}, nil
	}
	parts := strings.Split(text, ":")
	if len(parts) != 3 || slices.Contains(parts, "") {
		return Container{}, fmt.Errorf("container %q: write namespace:pod:container", text)
	}
	return Container{parts[0], parts[1], parts[2]}, nil
}

// validContainer reports whether a pattern has three parts that can match.
func validContainer(pattern string) bool {
	parts := strings.Split(pattern, ":")
	for _, part := range parts {
		if _, err := path.Match(part, ""); err != nil || part == "" || strings.ContainsFunc(part, unicode.IsControl) {
			return false
		}
	}
	return len(parts) == 3
}
