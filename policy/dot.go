package policy

import (
	"fmt"
	"io"
	"strings"
)

// Dot writes the path automaton as a Graphviz digraph, for the curious: a node
// per state with the number of its row, doubled if final; solid edges for
// literal names, dashed for globs (with a shortest name that takes it), dotted
// for any other name. The rows that the numbers stand for come as comments.
func (a *Automaton) Dot(w io.Writer) error {
	var b strings.Builder
	b.WriteString("digraph paths {\n\trankdir=LR\n\tnode [shape=circle]\n")
	for i := range a.Rows {
		fmt.Fprintf(&b, "\t// row %d: %s\n", i, a.Rows[i])
	}
	d := &a.Paths
	for i := range d.States {
		s := &d.States[i]
		shape := ""
		if s.Final {
			shape = ", shape=doublecircle"
		}
		fmt.Fprintf(&b, "\ts%d [label=\"row %d\"%s]\n", i, s.Out, shape)
		if s.Final {
			continue
		}
		for _, e := range s.Edges {
			fmt.Fprintf(&b, "\ts%d -> s%d [label=%s]\n", i, e.Next, dotQuote(e.Name))
		}
		for _, name := range otherNames(globOf(d, s), globOf(d, &State{Glob: -1}), nil) {
			if s.Glob >= 0 {
				if c := d.Globs[s.Glob].Run(name); c >= 0 {
					fmt.Fprintf(&b, "\ts%d -> s%d [label=%s, style=dashed]\n", i, s.GlobNext[c], dotQuote("such as "+name))
				}
			}
		}
		fmt.Fprintf(&b, "\ts%d -> s%d [style=dotted]\n", i, s.Default)
	}
	fmt.Fprintf(&b, "\tstart [shape=point]\n\tstart -> s%d [label=\"/\"]\n}\n", d.Start)
	_, err := io.WriteString(w, b.String())
	if err != nil {
		return fmt.Errorf("writing the automaton: %w", err)
	}
	return nil
}

// dotQuote is a Graphviz string that shows any bytes: Go's escapes, with their
// backslashes kept from being Graphviz's own.
func dotQuote(s string) string {
	quoted := fmt.Sprintf("%q", s)
	inner := strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	inner = strings.ReplaceAll(inner, `\`, `\\`)
	return `"` + strings.ReplaceAll(inner, `"`, `\"`) + `"`
}

// String lists the kinds that are not open to everybody, with the groups.
func (r Row) String() string {
	var out []string
	for k := range r {
		right := &r[k]
		var parts []string
		if isNobody(right.Deny) {
			parts = append(parts, "nobody")
		} else if len(right.Deny) > 0 {
			parts = append(parts, "not "+right.Deny.String())
		}
		for _, g := range right.Grant {
			parts = append(parts, "one of "+g.String())
		}
		if len(right.AuditDeny) > 0 || len(right.AuditGrant) > 0 {
			parts = append(parts, "some reported")
		}
		if parts != nil {
			out = append(out, fmt.Sprintf("%s: %s", Kind(k), strings.Join(parts, " and ")))
		}
	}
	if out == nil {
		return "open"
	}
	return strings.Join(out, "; ")
}

// String is the groups of the mask.
func (m Mask) String() string {
	var groups []string
	for g := range 64 * len(m) {
		if m[g/64]&(1<<(g%64)) != 0 {
			groups = append(groups, fmt.Sprint(g))
		}
	}
	return "{" + strings.Join(groups, " ") + "}"
}
