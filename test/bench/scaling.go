package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"

	"github.com/dunnage-project/dunnage/bpf"
)

// Scaling is how much more two processors open than one, in wall time: 2 is
// perfect. The machine's noise is in it, so it is the median of several turns.
type Scaling struct {
	Nothing float64 `json:"nothing"` // without anything of ours
	Cached  float64 `json:"cached"`
}

const turns = 7

// scaling compares one and two processors. Each opens a file of its own, in a
// directory of its own; both are in the same container's policy.
func scaling() (*Scaling, error) {
	if runtime.NumCPU() < 2 {
		return nil, errors.New("want two processors: start the VM with --smp 2")
	}
	if err := makeTree(axesOf([]string{"short"})); err != nil {
		return nil, err
	}
	nothing, err := scale(nil)
	if err != nil {
		return nil, err
	}
	a, err := compile("enforce", "deny", []string{allow("read, exec", "/bench"), allow("read", "/d1")})
	if err != nil {
		return nil, err
	}
	out := &Scaling{Nothing: nothing}
	err = with(bpf.Options{}, func(e *bpf.Engine) error {
		out.Cached, err = scale(func(p *process) error {
			_, _, err := confine(e, p, a)
			return err
		})
		return err
	})
	return out, err
}

// scale returns the median over the turns of 2 × alone ÷ together.
func scale(prepare func(*process) error) (float64, error) {
	var ratios []float64
	for range turns {
		alone, err := together(1, prepare)
		if err != nil {
			return 0, err
		}
		both, err := together(2, prepare)
		if err != nil {
			return 0, err
		}
		ratios = append(ratios, 2*alone/both)
		fmt.Fprintf(os.Stderr, "alone %.0f ns, together %.0f ns: %.2f\n", alone, both, 2*alone/both)
	}
	slices.Sort(ratios)
	return ratios[turns/2], nil
}

// together runs the loop on n processors at once and returns the nanoseconds of
// one open and close, the mean of the processors' medians.
func together(n int, prepare func(*process) error) (float64, error) {
	type answer struct {
		ns  float64
		err error
	}
	answers := make(chan answer)
	var ready []*process
	for range n {
		p, err := startChild(root, false)
		if err != nil {
			return 0, err
		}
		if prepare != nil {
			if err := prepare(p); err != nil {
				return 0, err
			}
		}
		ready = append(ready, p)
	}
	for cpu, p := range ready {
		go func() {
			path := fmt.Sprintf("%s/m%d/file", dir(4), 100*cpu)
			out, err := p.run(orders{Argv: []string{"/bench", "loop", path, "2000", "41"}, CPU: cpu + 1})
			var ns float64
			if err == nil {
				ns, err = quantile(out, 1, 2, false)
			}
			answers <- answer{ns, err}
		}()
	}
	var sum float64
	var errs []error
	for range n {
		a := <-answers
		sum, errs = sum+a.ns, append(errs, a.err)
	}
	return sum / float64(n), errors.Join(errs...)
}
