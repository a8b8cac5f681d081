package policy

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Convert prints a policy in the native form. Read again, it gives the same
// policy but for positions. Rules that came in by `include` are written out.
// Variants and second layers become documents of their own, each below a comment
// that says what it is for.
func Convert(p *Policy) []byte {
	var out []byte
	layers := func(p *Policy, comment string) {
		if p.And != nil {
			and := *p.And
			and.Name = derivedName(p.Name, "and")
			comment += fmt.Sprintf("# One of two layers: name both, %s,%s.\n", p.Name, and.Name)
			defer func() {
				out = append(out, fmt.Sprintf("---\n# The second layer of %s.\n", p.Name)...)
				out = append(out, convertOne(&and)...)
			}()
		}
		out = append(out, comment...)
		out = append(out, convertOne(p)...)
	}
	comment := ""
	if len(p.Variants) > 0 {
		comment = "# For the containers that no pattern below matches.\n"
	}
	layers(p, comment)
	for _, v := range p.Variants {
		one := *v.Policy
		one.Name = derivedName(p.Name, v.Container)
		out = append(out, "---\n"...)
		layers(&one, fmt.Sprintf("# For the containers %s (namespace:pod:container).\n", v.Container))
	}
	return out
}

// derivedName is a name for a part of a policy that no other one is likely to
// have, whatever else is written in the file and in whatever order.
func derivedName(name, part string) string {
	sum := sha256.Sum256([]byte(name + "\x00" + part))
	return fmt.Sprintf("%.119s-%x", name, sum[:4])
}

func convertOne(p *Policy) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: %s\nkind: Policy\nmetadata:\n  name: %s\nspec:\n", APIVersion, strconv.Quote(p.Name))
	if p.Audit {
		b.WriteString("  mode: audit\n")
	}
	if same := slices.Repeat([]bool{p.Default[0]}, NumKinds); slices.Equal(same, p.Default[:]) {
		fmt.Fprintf(&b, "  default: %s\n", allowWord(p.Default[0]))
	} else {
		b.WriteString("  default:\n")
		for k := range Kind(NumKinds) {
			fmt.Fprintf(&b, "    %s: %s\n", k, allowWord(p.Default[k]))
		}
	}
	if p.Mounts {
		b.WriteString("  mounts: allow\n")
	}
	if p.MemfdExec {
		b.WriteString("  memfdExec: allow\n")
	}
	if len(p.Include) > 0 {
		b.WriteString("  include:\n")
		for _, in := range p.Include {
			fmt.Fprintf(&b, "  - %s\n", strconv.Quote(in.Name))
		}
	}
	if len(p.Rules) > 0 {
		b.WriteString("  rules:\n")
	}
	for i := range p.Rules {
		r := &p.Rules[i]
		fmt.Fprintf(&b, "  - effect: %s\n    paths: [%s]\n    access: [%s]\n", effectWords[r.Effect], quoted(r.Paths), r.Access)
		if r.Listed {
			fmt.Fprintf(&b, "    executables: [%s]\n", quoted(r.Executables))
		}
		if r.Exact {
			b.WriteString("    exact: true\n")
		}
		if r.Inherit {
			b.WriteString("    inherit: true\n")
		}
	}
	return []byte(b.String())
}

func allowWord(allow bool) string {
	if allow {
		return "allow"
	}
	return "deny"
}

// quoted is the texts of patterns, each text once: braces gave it several.
func quoted(ps []Pattern) string {
	var out []string
	for _, p := range ps {
		text := p.Text
		if text == "" {
			text = "/"
		}
		if q := strconv.Quote(text); !slices.Contains(out, q) {
			out = append(out, q)
		}
	}
	return strings.Join(out, ", ")
}
