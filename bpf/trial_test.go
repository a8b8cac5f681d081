package bpf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/dunnage-project/dunnage/policy"
	"github.com/dunnage-project/dunnage/policy/policytest"
)

// Offsets in struct trial of c/trial.bpf.c.
const (
	trialAccess  = 4
	trialLen     = 8
	trialResult  = 12
	trialMask    = 16
	trialPath    = trialMask + 8*maskWords
	trialBytes   = trialPath + 4096 + 8
	trialsAtOnce = 256
	trialHeap    = 1 << 16 // cells
)

// trialKernel is the C walk and judgement, test-run in whatever kernel is here.
type trialKernel struct {
	coll         *ebpf.Collection
	heap, trials memory
	states       int // of the path automaton that is loaded
}

func newTrialKernel(t testing.TB) *trialKernel {
	t.Helper()
	spec, err := loadTrial()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := btf.LoadKernelSpec(); err != nil {
		t.Skipf("no BTF: %v: runs in the VM tier", err)
	}
	spec.Maps["heap"].MaxEntries = trialHeap
	coll, err := ebpf.NewCollection(spec)
	if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, os.ErrPermission) {
		t.Skipf("%v: runs in the VM tier", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	k := &trialKernel{coll: coll}
	t.Cleanup(coll.Close)
	if k.heap, err = mapMemory(coll.Maps["heap"]); err != nil {
		t.Fatal(err)
	}
	if k.trials, err = mapMemory(coll.Maps["trials"]); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.heap.close(); k.trials.close() })
	return k
}

// load puts an automaton at cell 1.
func (k *trialKernel) load(a *policy.Automaton) error {
	cells, err := layTable(a, 1)
	if err != nil {
		return err
	}
	if len(cells) >= trialHeap {
		return fmt.Errorf("%d cells", len(cells))
	}
	for i := range cells {
		copy(k.heap[(1+i)*cellBytes:], cells[i][:])
	}
	return nil
}

// set fills in trial i; access 0 asks for the groups of a program.
func (k *trialKernel) set(i int, path string, access policy.AccessSet, mask policy.Mask) {
	b := k.trials[i*trialBytes : (i+1)*trialBytes]
	binary.LittleEndian.PutUint32(b, 1)
	binary.LittleEndian.PutUint32(b[trialAccess:], uint32(access))
	binary.LittleEndian.PutUint32(b[trialLen:], uint32(len(path)))
	for w := range maskWords {
		v := uint64(0)
		if w < len(mask) {
			v = mask[w]
		}
		binary.LittleEndian.PutUint64(b[trialMask+8*w:], v)
	}
	copy(b[trialPath:trialPath+4096], path)
}

func (k *trialKernel) run(t testing.TB, n int) {
	t.Helper()
	ret, err := k.coll.Programs["run_trials"].Run(&ebpf.RunOptions{Context: uint32(n)})
	if err != nil || ret != 0 {
		t.Fatalf("running %d trials: %d, %v", n, ret, err)
	}
}

func (k *trialKernel) result(i int) uint32 {
	return binary.LittleEndian.Uint32(k.trials[i*trialBytes+trialResult:])
}

func (k *trialKernel) mask(i, words int) policy.Mask {
	m := make(policy.Mask, words)
	for w := range m {
		m[w] = binary.LittleEndian.Uint64(k.trials[i*trialBytes+trialMask+8*w:])
	}
	return m
}

// The C walk agrees with Decide: half a million random questions, subjects
// worked out by the C as well.
func TestKernelAgreesWithDecide(t *testing.T) {
	k := newTrialKernel(t)
	questions := 500_000
	if testing.Short() {
		questions = 50_000
	}
	g := policytest.New(7)
	asked, denied := 0, 0
	for asked < questions {
		layers := g.Layers()
		a, err := policy.Compile(layers)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.load(a); err != nil {
			t.Fatal(err)
		}
		var batch []policytest.Question
		for range trialsAtOnce {
			q := g.Question()
			batch = append(batch, q)
			k.set(len(batch)-1, q.Path, 1<<q.Kind, a.SubjectMask(q.Subject))
		}
		k.run(t, len(batch))
		for i, q := range batch {
			want := policy.Decide(layers, q.Subject, q.Path, q.Kind)
			r := k.result(i)
			if allowed, audited := r&0xff != 1, r&0xff == 2; allowed != want.Allowed || audited != want.Audited {
				t.Fatalf("%+v: Decide says %v/%v (rule %v), the kernel %#x", q, want.Allowed, want.Audited, want.Rule, r)
			}
			if !want.Allowed {
				denied++
			}
		}
		asked += len(batch)
		// The groups of programs, too.
		programs := []string{"/bin/a", "/usr/bin/python3", "/usr/lib/x/bin/postgres", "/b", "/nowhere"}
		for i, p := range programs {
			k.set(i, p, 0, nil)
		}
		k.run(t, len(programs))
		for i, p := range programs {
			want := a.SubjectMask(policy.Subject{Programs: []string{p}})
			got := k.mask(i, a.Words)
			got[0] |= 1
			for w := range want {
				if got[w] != want[w] {
					t.Fatalf("program %s: groups %x, want %x", p, got, want)
				}
			}
		}
	}
	t.Logf("%d questions, %d denied", asked, denied)
	if denied < asked/20 {
		t.Errorf("only %d of %d were denied", denied, asked)
	}
}

// A broken layout is caught: one slot, one target, one mask bit.
func TestBrokenTablesAreCaught(t *testing.T) {
	k := newTrialKernel(t)
	g := policytest.New(8)
	for _, m := range []struct {
		name  string
		spoil func()
	}{
		{"all literal edges lost", func() { k.eachState(func(c []byte) { c[0] &^= stateEdges }) }},
		{"all globs lost", func() { k.eachState(func(c []byte) { c[0] &^= stateGlob }) }},
		{"final too early", func() { k.eachState(func(c []byte) { put32(c, 8, binary.LittleEndian.Uint32(k.heap[cellBytes+40:])) }) }},
	} {
		caught := false
		for range 40 {
			layers := g.Layers()
			a, err := policy.Compile(layers)
			if err != nil {
				t.Fatal(err)
			}
			if err := k.load(a); err != nil {
				t.Fatal(err)
			}
			k.states = len(a.Paths.States)
			m.spoil()
			var batch []policytest.Question
			for i := range trialsAtOnce {
				q := g.Question()
				batch = append(batch, q)
				k.set(i, q.Path, 1<<q.Kind, a.SubjectMask(q.Subject))
			}
			k.run(t, len(batch))
			for i, q := range batch {
				want := policy.Decide(layers, q.Subject, q.Path, q.Kind)
				caught = caught || (k.result(i)&0xff != 1) != want.Allowed
			}
		}
		if !caught {
			t.Errorf("not caught: %s", m.name)
		}
	}
}

// eachState calls f with each state cell of the path automaton.
func (k *trialKernel) eachState(f func([]byte)) {
	first := int(binary.LittleEndian.Uint32(k.heap[cellBytes+40:]))
	for i := range k.states {
		f(k.heap[(first+i)*cellBytes : (first+i+1)*cellBytes])
	}
}
