package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/dunnage-project/dunnage/bpf"
	"github.com/dunnage-project/dunnage/hook/wire"
)

// A user can't take all connections: not with one uid, and not with many.
func TestCallersAreBounded(t *testing.T) {
	var c callers
	taken := 0
	for uid := uint32(1000); uid < 2000; uid++ {
		for range 2 * connectionsOfOne {
			if c.admit(uid) {
				taken++
			}
		}
		if uid == 1000 && taken != connectionsOfOne {
			t.Errorf("one uid took %d connections", taken)
		}
	}
	if taken != connectionsOfOthers || taken >= maxConnections {
		t.Errorf("%d connections taken, of %d", taken, maxConnections)
	}
	if !c.admit(0) {
		t.Error("root is turned away")
	}
	c.leave(0)
	for range connectionsOfOne {
		c.leave(1000)
	}
	if !c.admit(1000) || c.admit(1001) {
		t.Error("what was given back is not there, or too much of it")
	}
}

// Nor all container rows: root's containers and other users' still start.
func TestContainersAreBounded(t *testing.T) {
	f := newFixture(t)
	f.kernel.rows = 4 * containersOfOne
	refused := func(err error) bool { var r refusal; return errors.As(err, &r) && r.code == wire.Full }
	ns := 0
	start := func(uid uint32) error {
		ns++
		q := ask(fmt.Sprintf("c%d", ns), ns, "one")
		q.UID, q.pidfd = uid, -1
		_, err := f.bind(q)
		return err
	}
	for i := range containersOfOne {
		if err := start(1000); err != nil {
			t.Fatalf("container %d: %v", i, err)
		}
	}
	if err := start(1000); !refused(err) {
		t.Errorf("one more than one user may have: %v", err)
	}
	for i := range containersOfOne {
		if err := start(2000 + uint32(i)); err != nil {
			t.Fatalf("other user's container %d: %v", i, err)
		}
	}
	if err := start(5000); !refused(err) {
		t.Errorf("one more than all users may have: %v", err)
	}
	if err := start(0); err != nil {
		t.Errorf("root's: %v", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.containers {
		if c.Asked.UID == 1000 {
			f.forget(c)
			break
		}
	}
	if len(f.containers) != 2*containersOfOne || f.mayHold(1000) != nil {
		t.Errorf("%d containers, %v: what has ended still counts", len(f.containers), f.mayHold(1000))
	}
}

var _ kernel = (*bpf.Engine)(nil)
