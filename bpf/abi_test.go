package bpf

import (
	"testing"

	"github.com/cilium/ebpf/btf"
)

// The offsets in abi.go are those of the compiled object.
func TestOffsets(t *testing.T) {
	spec, err := loadKernel()
	if err != nil {
		t.Fatal(err)
	}
	at := func(record, member string) int {
		t.Helper()
		var s *btf.Struct
		if err := spec.Types.TypeByName(record, &s); err != nil {
			t.Fatal(err)
		}
		for _, m := range s.Members {
			if m.Name == member {
				return int(m.Offset.Bytes())
			}
		}
		t.Fatalf("%s has no %s", record, member)
		return 0
	}
	for _, c := range []struct {
		record, member string
		want           int
	}{
		{"container", "instance", rowInstance}, {"container", "table", rowTable}, {"container", "ns", rowNS},
		{"container", "state", rowState}, {"container", "init", rowInit}, {"container", "births", rowBirths},
		{"container", "events", rowEvents}, {"container", "muted", rowMuted},
		{"node", "lost", nodeLost}, {"node", "answer", nodeAnswer}, {"node", "sweep", nodeSweep},
		{"node", "seed", nodeSeed}, {"node", "instances", nodeInstances}, {"node", "tables", nodeTables}, {"node", "loads", nodeLoads},
		{"event", "programs", eventPrograms}, {"event", "inherited", eventInherited}, {"event", "path", eventPathLen},
		{"event", "access", 40}, {"event", "op", 41}, {"event", "reason", 42}, {"event", "denied", 43},
		{"event", "partial", 44}, {"event", "programs_n", 45}, {"event", "inherited_n", 46}, {"event", "comm", 48},
		{"table", "digest", 8}, {"table", "paths", 40}, {"table", "programs", 44}, {"table", "inherit", 48},
		{"table", "cells", 52}, {"table", "flags", 56}, {"table", "words", 60},
		{"state", "out", 4}, {"state", "other", 8}, {"state", "edges", 12}, {"state", "edge_mask", 16},
		{"state", "seed", 20}, {"state", "glob", 24}, {"state", "glob_next", 28},
		{"tally", "hit", 8 * tallyHit}, {"tally", "fill", 8 * tallyFill}, {"tally", "refused", 8 * tallyRefused},
		{"tally", "stale", 8 * tallyStale}, {"tally", "evicted", 8 * tallyEvicted}, {"tally", "disagreed", 8 * tallyDisagreed},
		{"state", "other_out", 32}, {"edge", "out", 12}, {"edge", "next", 0}, {"edge", "len", 4}, {"edge", "more", 8}, {"edge", "name", 16},
		{"glob", "bytes", 0}, {"glob", "next", 4}, {"glob", "accept", 8}, {"glob", "classes", 12}, {"glob", "dead", 16},
	} {
		if got := at(c.record, c.member); got != c.want {
			t.Errorf("%s.%s is at %d in C, at %d in Go", c.record, c.member, got, c.want)
		}
	}
}

// Names are at most 15 bytes, so that bpftool shows them whole.
func TestNames(t *testing.T) {
	spec, err := loadKernel()
	if err != nil {
		t.Fatal(err)
	}
	for name := range spec.Programs {
		if len(name) > 15 {
			t.Errorf("program %s", name)
		}
	}
	for name := range spec.Maps {
		if len(name) > 15 {
			t.Errorf("map %s", name)
		}
	}
}
