package policy

import (
	"path"
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

// For is the policy for a container: the first variant that matches, or the
// policy itself. Variants are not merged.
func (p *Policy) For(c Container) *Policy {
	for _, v := range p.Variants {
		parts := strings.Split(v.Container, ":")
		matched := len(parts) == 3
		for i, name := range []string{c.Namespace, c.Pod, c.Name} {
			if matched {
				ok, err := path.Match(parts[i], name)
				matched = ok && err == nil
			}
		}
		if matched {
			return v.Policy
		}
	}
	return p
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
