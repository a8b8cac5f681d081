package policy

import (
	"slices"
	"sync"
)

// byteOrder is every byte of a name, the ones that read well first.
var byteOrder = sync.OnceValue(func() []byte {
	var out []byte
	for _, wanted := range []func(b byte) bool{
		func(b byte) bool { return b >= 'a' && b <= 'z' },
		func(b byte) bool {
			return b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b == '_' || b == '-' || b == '.'
		},
		func(b byte) bool { return b > ' ' && b < 127 && b != '/' },
		func(b byte) bool { return b != 0 && b != '/' },
	} {
		for b := 1; b < 256; b++ {
			if wanted(byte(b)) && !slices.Contains(out, byte(b)) {
				out = append(out, byte(b))
			}
		}
	}
	return out
})

// tellingNames is names such that every step that any name can take from the
// states sa of a and sb of b, together, is taken by one of them: all literal
// edges, and a shortest name that is none for each pair of glob classes.
func tellingNames(a *DFA, sa StateID, b *DFA, sb StateID) []string {
	x, y := &a.States[sa], &b.States[sb]
	var names []string
	for _, e := range x.Edges {
		names = append(names, e.Name)
	}
	for _, e := range y.Edges {
		names = append(names, e.Name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	return append(names, otherNames(globOf(a, x), globOf(b, y), names)...)
}

// globOf is a state's glob; one without a class if it has none.
func globOf(d *DFA, s *State) *Glob {
	if s.Glob >= 0 {
		return &d.Globs[s.Glob]
	}
	return &Glob{Classes: 1, Next: []uint16{0}, Class: []int32{-1}}
}

// otherNames is a shortest name that is not among the literals, sorted, for each
// pair of classes of two globs: a search over the product of both with the
// literals that a name can still become.
func otherNames(x, y *Glob, literals []string) []string {
	type node struct {
		x, y   uint16
		lo, hi int // the literals that begin so
		length int // while there are any; 0 when there are none
	}
	type class struct{ x, y int32 }
	order := byteOrder()
	seen := map[node]bool{}
	found := map[class]bool{}
	queue, names := []node{{0, 0, 0, len(literals), 0}}, [][]byte{nil}
	var out []string
	for i := 0; i < len(queue); i++ {
		n, name := queue[i], names[i]
		literal := n.lo < n.hi && literals[n.lo] == string(name)
		c := class{x.Class[n.x], y.Class[n.y]}
		if len(name) > 0 && !literal && !found[c] {
			found[c] = true
			out = append(out, string(name))
		}
		if len(name) == MaxName {
			continue
		}
		for _, by := range order {
			next := node{
				x: x.Next[int(n.x)*x.Classes+int(x.ByteClass[by])],
				y: y.Next[int(n.y)*y.Classes+int(y.ByteClass[by])],
			}
			if n.lo < n.hi {
				next.lo, next.hi = narrow(literals, n.lo, n.hi, len(name), by)
			}
			if next.lo < next.hi {
				next.length = len(name) + 1
			} else {
				next.lo, next.hi = 0, 0
			}
			if !seen[next] {
				seen[next] = true
				queue = append(queue, next)
				names = append(names, append(slices.Clone(name), by))
			}
		}
	}
	return out
}

// narrow is those of the literals lo to hi, which agree up to at, that have b there.
func narrow(literals []string, lo, hi, at int, b byte) (int, int) {
	from := func(want int) int {
		i, _ := slices.BinarySearchFunc(literals[lo:hi], want, func(s string, want int) int {
			got := -1
			if at < len(s) {
				got = int(s[at])
			}
			return got - want
		})
		return lo + i
	}
	return from(int(b)), from(int(b) + 1)
}
