package bpf

import (
	"fmt"
	"testing"

	"github.com/dunnage-project/dunnage/policy"
)

// 10,000 literal paths fit into 16 MB of tables, spread over folders or all in one.
func TestTableSize(t *testing.T) {
	for name, text := range map[string]func(int) string{
		"spread": func(i int) string { return fmt.Sprintf("/srv/d%d/e%d/file%d", i%100, i%1000, i) },
		"one folder": func(i int) string {
			return fmt.Sprintf("/srv/file-with-quite-a-long-name-that-needs-more-than-one-cell-%d", i)
		},
	} {
		p := &policy.Policy{Name: "many"}
		for i := range 10_000 {
			ps, err := policy.ParsePattern(text(i), policy.Position{})
			if err != nil {
				t.Fatal(err)
			}
			p.Rules = append(p.Rules, policy.Rule{Paths: ps, Access: policy.AccessSet(1 + i%63)})
		}
		a, err := policy.Compile([]*policy.Policy{p})
		if err != nil {
			t.Fatal(err)
		}
		cells, err := layTable(a, 1)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes", name, len(cells)*cellBytes)
		if len(cells)*cellBytes > 16<<20 {
			t.Errorf("%s: %d bytes", name, len(cells)*cellBytes)
		}
	}
}

// Runs of cells come back whole: neighbours are joined, none is given twice.
func TestSpace(t *testing.T) {
	s := newSpace(100, []span{{10, 5}})
	var got []span
	for {
		g, err := s.take(7)
		if err != nil {
			break
		}
		got = append(got, g)
	}
	seen := map[uint32]bool{0: true, 10: true, 11: true, 12: true, 13: true, 14: true}
	for _, g := range got {
		for c := g.first; c < g.first+g.cells; c++ {
			if seen[c] || c >= 100 {
				t.Fatalf("cell %d is given twice, or is not there", c)
			}
			seen[c] = true
		}
	}
	for _, g := range got {
		s.give(g)
	}
	if s.bytesFree() != (99-5)*cellBytes || len(s.free) != 2 {
		t.Errorf("after all came back: %v", s.free)
	}
}
