package coherence

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// In a noisy round unconfined movers change trees while confined probers open
// files in them. Each tree has a sequence in memory that both share, odd while
// its mover is at work: between two equal even readings the tree is quiet, and
// the answer must be the policy's. Across a single rename it must be the
// policy's for the path before or the one after: never allowed if neither is.

// shared is the page that movers and probers have in common.
type shared struct {
	seq [8]struct {
		n atomic.Uint32
		_ [60]byte
	}
	stop atomic.Uint32
}

func mapShared(fd int) (*shared, error) {
	b, err := unix.Mmap(fd, 0, int(unsafe.Sizeof(shared{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*shared)(unsafe.Pointer(&b[0])), nil
}

// noise is how one noisy round goes.
type noise struct {
	seed     uint64
	probers  int  // tree 0: two files that change places; the others: random changes
	mounts   bool // the movers mount, too
	realtime int  // 1: the probers interrupt the movers, 2: the other way round
}

const noiseTrees = 3 // the first is tops[0]/twins

var noiseTops = []string{"/w/q", "/t", "/o"}

// interrupting makes the calling thread one that runs as soon as it wants to.
func interrupting() error {
	type schedParam struct{ priority int32 }
	p := schedParam{10}
	if _, _, errno := unix.Syscall(unix.SYS_SCHED_SETSCHEDULER, 0, unix.SCHED_FIFO, uintptr(unsafe.Pointer(&p))); errno != 0 {
		return errno
	}
	return nil
}

// pause lets others run: always, for who interrupts, else now and then.
func pause(r *rand.Rand, always bool) {
	if always || r.IntN(8) == 0 {
		_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(r.IntN(400_000))}, nil)
	}
}

// mover changes tree k until it is told to stop; returns how many changes it made.
func mover(h *hand, s *shared, k int, n noise) (changes uint64, err error) {
	r := rand.New(rand.NewPCG(n.seed, uint64(k)))
	if n.realtime == 2 {
		if err := interrupting(); err != nil {
			return 0, err
		}
	}
	top := noiseTops[k]
	seq := &s.seq[k].n
	for s.stop.Load() == 0 {
		var o op
		switch {
		case k == 0: // the two names of one file, and directories around it
			o = op{'h', "exchange", []string{"/w/q/a/x", "/w/q/b/y"}}
			if r.IntN(4) == 0 {
				o.args = []string{"/w/q/a", "/w/q/b"}
			}
		case n.mounts && r.IntN(4) == 0:
			o = op{'h', pick(r, []string{"bind", "umount"}), []string{below(r, top), below(r, top)}}
		case r.IntN(6) == 0:
			o = op{'h', pick(r, []string{"mkdir", "rmdir", "mk"}), []string{below(r, top)}}
		case r.IntN(6) == 0:
			o = op{'h', "rename", []string{below(r, top), below(r, top)}}
		default:
			o = op{'h', "exchange", []string{below(r, top), below(r, top)}}
		}
		seq.Add(1)
		err := h.change(o)
		seq.Add(1)
		if err == nil {
			changes++
		}
		pause(r, n.realtime == 2)
	}
	return changes, nil
}

// prober opens files of tree k until it is told to stop.
func prober(h *hand, s *shared, k int, n noise, j *judge) string {
	r := rand.New(rand.NewPCG(n.seed, uint64(100+k)))
	if n.realtime == 1 {
		if err := interrupting(); err != nil {
			return fmt.Sprintf("real-time priority: %v", err)
		}
	}
	for s.stop.Load() == 0 {
		path := filePath(r, noiseTops[k])
		if k == 0 {
			path = pick(r, []string{"/w/q/a/x", "/w/q/b/y"})
		}
		fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			pause(r, true)
			continue
		}
		wrong := h.probeNoisy(r, fd, &s.seq[k].n, n, j)
		unix.Close(fd)
		if wrong != "" {
			return fmt.Sprintf("tree %d: %s", k, wrong)
		}
	}
	return ""
}

// patience is how often a quiet tree may be denied in a row because others did
// not leave the locks alone.
const patience = 200

// probeNoisy opens one held file a number of times.
func (h *hand) probeNoisy(r *rand.Rand, fd int, seq *atomic.Uint32, n noise, j *judge) string {
	magic := fmt.Sprintf("/proc/thread-self/fd/%d", fd)
	refused := 0
	for range 40 + r.IntN(200) {
		before := seq.Load()
		from, reachable, err := h.truePath(fd, !n.mounts)
		if err != nil {
			return err.Error()
		}
		if n.mounts {
			h.moved = true
		}
		for range 12 { // the path is asked for again only when it may have changed
			start := seq.Load()
			err = closing(unix.Open(magic, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0))
			allowed := err == nil
			after := seq.Load()
			if err != nil && err != unix.EACCES {
				break
			}
			j.done++
			if start == before && after == before && before&1 == 0 {
				may := reachable && j.may(from, 0)
				switch {
				case allowed && !may:
					return fmt.Sprintf("read of %s (reachable: %v): is allowed, must be denied", from, reachable)
				case !allowed && may:
					j.busy++
					if refused++; refused > patience {
						return fmt.Sprintf("read of %s: is denied, must be allowed", from)
					}
				case allowed:
					j.allowed++
					refused = 0
				default:
					j.denied++
				}
				pause(r, n.realtime == 1)
				continue
			}
			if allowed && !n.mounts && after-before <= 2-before&1 {
				to, _, err := h.truePath(fd, true)
				if err == nil && seq.Load() == after && !j.may(from, 0) && !j.may(to, 0) {
					return fmt.Sprintf("read of what was %s and then %s: is allowed, and neither may be read", from, to)
				}
			}
			break
		}
		pause(r, n.realtime == 1)
	}
	return ""
}

// noiseProbers is the confined process's part of a noisy round.
func noiseProbers(args string, j *judge) string {
	var n noise
	if _, err := fmt.Sscanf(args, "%d %d %t %d", &n.seed, &n.probers, &n.mounts, &n.realtime); err != nil {
		return err.Error()
	}
	s, err := mapShared(3)
	if err != nil {
		return err.Error()
	}
	results := make(chan string)
	judges := make([]judge, n.probers)
	for i := range n.probers {
		judges[i].policy = j.policy
		t, err := newThread(nil)
		if err != nil {
			return err.Error()
		}
		go func() {
			t.do(func() { results <- prober(t.hand, s, i%noiseTrees, n, &judges[i]) })
			t.end()
		}()
	}
	var wrong []string
	for range n.probers {
		if what := <-results; what != "" {
			wrong = append(wrong, what)
			s.stop.Store(1)
		}
	}
	for i := range judges {
		j.add(judges[i].tally)
	}
	return fmt.Sprintf("%d %d %d %d|%s", j.done, j.allowed, j.denied, j.busy, strings.Join(wrong, "; "))
}

// noisePolicy is what the noisy rounds are judged by: the two files' names are
// forbidden, and allowed once the parent of one meets the name of the other.
const noisePolicy = `apiVersion: dunnage.io/v1
kind: Policy
metadata: {name: coherence-noise}
spec:
  default: deny
  mounts: allow
  rules:
  - {effect: allow, paths: ["/bin/**", "/proc/**", "/sys/**", "/*/q/a/y", "/*/q/b/x", "/t/a/**", "/o/b/**", "/t/b/*/x", "/o/a/*/y"], access: [all]}
`

// COHERENCE_SECONDS of noisy rounds, on the processors there are.
func TestNoise(t *testing.T) {
	if err := os.WriteFile(policiesDir+"/coherence-noise.yaml", []byte(noisePolicy), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := reload(); err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(time.Duration(number("COHERENCE_SECONDS", 15)) * time.Second)
	var all tally
	var changes uint64
	for seed := number("COHERENCE_SEED", 1); time.Now().Before(until) && !t.Failed(); seed++ {
		n := noise{seed: seed, probers: noiseTrees, mounts: seed%4 == 3, realtime: int(seed % 3)}
		one, made, wrong, err := noisyRound(n, 3*time.Second)
		all.add(one)
		changes += made
		if err != nil || wrong != "" {
			t.Errorf("round %+v: %s %v", n, wrong, err)
		}
	}
	t.Logf("%d changes, compared: %+v", changes, all)
	if all.denied == 0 || all.allowed == 0 || changes == 0 {
		t.Error("nothing was tested")
	}
	checkCache(t)
}

func noisyRound(n noise, long time.Duration) (one tally, changes uint64, wrong string, err error) {
	fd, err := unix.MemfdCreate("shared", unix.MFD_CLOEXEC)
	if err != nil {
		return one, 0, "", err
	}
	memory := os.NewFile(uintptr(fd), "shared")
	defer memory.Close()
	if err := memory.Truncate(4096); err != nil {
		return one, 0, "", err
	}
	s, err := mapShared(fd)
	if err != nil {
		return one, 0, "", err
	}
	c, err := startContainer(noisePolicyIndex, memory)
	if err != nil {
		return one, 0, "", err
	}
	defer c.stop()
	c.host.do(func() {
		for _, top := range noiseTops {
			_ = plant(top)
		}
	})
	type result struct {
		changes uint64
		err     error
	}
	results := make(chan result)
	for k := range noiseTrees {
		m, err := c.join()
		if err != nil {
			return one, 0, "", err
		}
		go func() {
			m.do(func() {
				changes, err := mover(m.hand, s, k, n)
				results <- result{changes, err}
			})
			m.end()
		}()
	}
	time.AfterFunc(long, func() { s.stop.Store(1) })
	line := ""
	if _, err = fmt.Fprintf(c.in, "noise %d %d %t %d\n", n.seed, n.probers, n.mounts, n.realtime); err == nil {
		line, err = c.out.ReadString('\n')
	}
	s.stop.Store(1)
	for range noiseTrees {
		got := <-results
		changes += got.changes
		if got.err != nil {
			err = got.err
		}
	}
	if err != nil {
		return one, changes, "", fmt.Errorf("%w %s", err, c.stderr.String())
	}
	var text string
	if _, err := fmt.Sscanf(line, "%q", &text); err != nil {
		return one, changes, "", err
	}
	counts, wrong, _ := strings.Cut(text, "|")
	_, err = fmt.Sscanf(counts, "%d %d %d %d", &one.done, &one.allowed, &one.denied, &one.busy)
	if err != nil {
		wrong = text
	}
	return one, changes, wrong, nil
}
