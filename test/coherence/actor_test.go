package coherence

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// The confined process is this test's own binary, as /bin/actor in the container.
// It reads batches of lines: "policy TEXT" (quoted), "moved" when somebody else may
// have changed mounts, operations, and "." to end one; it answers a batch with one line: the tally and what is wrong, quoted.

const roleVariable = "COHERENCE_ROLE"

// thread is a goroutine that keeps an operating system's thread with a root and
// a working directory of its own, and does what it is given.
type thread struct {
	hand *hand
	tid  int
	work chan func()
	done chan struct{}
}

func newThread(prepare func() error) (*thread, error) {
	t := &thread{hand: newHand(), work: make(chan func()), done: make(chan struct{})}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_FS)
		if err == nil && prepare != nil {
			err = prepare()
		}
		t.tid = unix.Gettid()
		ready <- err
		if err != nil {
			return
		}
		for f := range t.work {
			f()
			t.done <- struct{}{}
		}
	}()
	return t, <-ready
}

// do runs f on the thread and waits for its end.
func (t *thread) do(f func()) {
	t.work <- f
	<-t.done
}

func (t *thread) end() { close(t.work) }

// actor is the confined process.
func actor() error {
	c, err := newThread(nil)
	if err != nil {
		return err
	}
	u, err := newThread(nil)
	if err != nil {
		return err
	}
	var j judge
	in, out := bufio.NewScanner(os.Stdin), bufio.NewWriter(os.Stdout)
	in.Buffer(nil, 1<<20)
	var batch []op
	for in.Scan() {
		line := in.Text()
		if text, ok := strings.CutPrefix(line, "policy "); ok {
			if text, err = strconv.Unquote(text); err != nil {
				return err
			}
			if j.policy, err = parsePolicy(text); err != nil {
				return err
			}
			continue
		}
		if args, ok := strings.CutPrefix(line, "noise "); ok {
			fmt.Fprintf(out, "%q\n", noiseProbers(args, &j))
			if err := out.Flush(); err != nil {
				return err
			}
			continue
		}
		if line == "moved" {
			c.hand.moved, u.hand.moved = true, true // by somebody else
			continue
		}
		if line != "." {
			o, err := parseOp(line)
			if err != nil {
				return err
			}
			batch = append(batch, o)
			continue
		}
		j.tally = tally{}
		wrong := runBatch(batch, &j, c, u)
		batch = batch[:0]
		fmt.Fprintf(out, "%d %d %d %d %q\n", j.done, j.allowed, j.denied, j.foreign, wrong)
		if err := out.Flush(); err != nil {
			return err
		}
	}
	if in.Err() != nil && in.Err() != io.EOF {
		return in.Err()
	}
	return nil
}

// runBatch does operations until one is answered wrong: "number in the batch: what".
func runBatch(batch []op, j *judge, c, u *thread) (wrong string) {
	for i := 0; i < len(batch) && wrong == ""; {
		t, who := c, batch[i].who
		if who == 'u' {
			t = u
		}
		t.do(func() {
			t.hand.others = nil
			if t == u {
				t.hand.others = []string{fmt.Sprintf("self/task/%d", c.tid)}
			}
			for ; i < len(batch) && batch[i].who == who && wrong == ""; i++ {
				var what string
				if o := batch[i]; o.verb == "read" || o.verb == "modify" {
					what = t.hand.probe(o, j)
				} else {
					what = t.hand.attempt(o, j)
				}
				if what != "" {
					wrong = fmt.Sprintf("%d: %s", i, what)
				}
			}
		})
		if t.hand.moved { // mounts are propagated
			c.hand.moved, u.hand.moved = true, true
		}
	}
	return wrong
}
