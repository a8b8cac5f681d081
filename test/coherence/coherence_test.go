// Package coherence is the differential machine: random programs of file-system
// and namespace operations, by a confined process and by others around it, with
// every answer compared. The true path of a file is the kernel's own word
// (d_path, and where the mounts are), what must be answered is policy.Decide's;
// in the daemon's mode --check-cache the kernel part itself walks at each hit,
// too. A program that is answered wrong is shrunk and printed; regressions are
// kept in testdata. The tests run in the VM (test/tiers starts them there);
// anywhere else they skip. Nothing imports it.
package coherence

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) {
	roles := map[string]func() error{"init": initContainer, "actor": actor}
	if role := roles[os.Getenv(roleVariable)]; role != nil {
		if err := role(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if os.Getenv("DUNNAGE_VM") == "" {
		fmt.Println("SKIP: the differential machine needs a kernel that enforces: test/tiers runs it in the VM")
		return
	}
	err := makeHost()
	if err == nil {
		err = startDaemon()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// startDaemon starts the daemon that is tested, which walks at every hit, too,
// unless COHERENCE_DAEMON says other options.
func startDaemon() error {
	options, ok := os.LookupEnv("COHERENCE_DAEMON")
	if !ok {
		options = "--check-cache"
	}
	checking = strings.Contains(options, "--check-cache")
	log, err := os.Create("/run/dunnage.log")
	if err != nil {
		return err
	}
	defer log.Close()
	program := "dunnage"
	if other := os.Getenv("COHERENCE_DUNNAGE"); other != "" {
		program = other // a mutant
	}
	cmd := exec.Command(program, append([]string{"daemon"}, strings.Fields(options)...)...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	for range 600 {
		if exec.Command("dunnage", "ps").Run() == nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	text, _ := os.ReadFile(log.Name())
	return fmt.Errorf("the daemon does not become ready: %s", text)
}

// number is a setting of the environment.
func number(name string, fallback uint64) uint64 {
	if n, err := strconv.ParseUint(os.Getenv(name), 10, 64); err == nil {
		return n
	}
	return fallback
}

func reload() error {
	if out, err := exec.Command("dunnage", "reload").CombinedOutput(); err != nil {
		return fmt.Errorf("dunnage reload: %w: %s", err, out)
	}
	return nil
}

// installPolicies puts all policies, in their first version, in force.
func installPolicies(t *testing.T) {
	t.Helper()
	for i := range policyCount {
		if _, err := parsePolicy(policyText(i, 0)); err != nil {
			t.Fatal(err)
		}
		if err := writePolicy(i, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := reload(); err != nil {
		t.Fatal(err)
	}
}

// run runs a program on a fresh container. It returns what was answered wrong,
// and by which operation.
func run(p program) (t tally, ops int, at int, wrong string, err error) {
	c, err := startContainer(p.policy, nil)
	if err != nil {
		return t, 0, 0, "", err
	}
	defer c.stop()
	reloaded := false
	defer func() {
		if reloaded {
			if e := writePolicy(p.policy, 0); e == nil && err == nil {
				err = reload()
			}
		}
	}()
	for i := 0; i < len(p.ops); {
		j := i
		for j < len(p.ops) && (p.ops[j].who == 'c' || p.ops[j].who == 'u') {
			j++
		}
		if j > i {
			one, wrong, err := c.batch(p.ops[i:j])
			t.add(one)
			if err != nil {
				return t, j, i, "", err
			}
			if wrong != "" {
				n, what, _ := strings.Cut(wrong, ": ")
				k, _ := strconv.Atoi(n)
				return t, j, i + k, what, nil
			}
			i = j
			continue
		}
		c.moved = c.moved || moving[p.ops[i].verb]
		switch o := p.ops[i]; o.who {
		case 'h':
			c.host.do(func() { _ = c.host.hand.change(o) })
		case 'x':
			c.out2.do(func() { _ = c.out2.hand.change(o) })
		default:
			v, err := strconv.Atoi(o.args[0])
			if err != nil {
				return t, i, i, "", err
			}
			if err = writePolicy(p.policy, v); err == nil {
				err = reload()
			}
			if err == nil {
				err = c.tell(v)
			}
			if err != nil {
				return t, i, i, "", err
			}
			reloaded = true
		}
		i++
	}
	if checking {
		after, err := cache()
		if err == nil && after.Total.Disagreed > disagreed {
			wrong = fmt.Sprintf("%d hits of the cache were contradicted by a walk: %s", after.Total.Disagreed-disagreed, contradicted())
			disagreed = after.Total.Disagreed
		}
		return t, len(p.ops), len(p.ops) - 1, wrong, err
	}
	return t, len(p.ops), 0, "", nil
}

// contradicted is the last event of a hit that a walk contradicted.
func contradicted() string {
	out, err := exec.Command("dunnage", "events", "-o", "json").CombinedOutput()
	if err != nil {
		return fmt.Sprintf("dunnage events: %v %s", err, out)
	}
	last := "no event"
	for _, line := range strings.Split(string(out), "\n") {
		if strings.Contains(line, `"reason":"cache"`) {
			last = line
		}
	}
	return last
}

// checking: the kernel part walks at hits, too; disagreed is what it had found
// before the program.
var (
	checking  bool
	disagreed uint64
)

func (t *tally) add(o tally) {
	t.done += o.done
	t.allowed += o.allowed
	t.denied += o.denied
	t.foreign += o.foreign
	t.busy += o.busy
}

// cacheCounts is what the test looks at of `dunnage cache`.
type cacheCounts struct {
	Off   string
	Total struct {
		Hit, Fill, Evicted, Disagreed uint64
		Refused, Stale                map[string]uint64
	}
}

func cache() (c cacheCounts, err error) {
	out, err := exec.Command("dunnage", "cache", "-o", "json").CombinedOutput()
	if err == nil {
		err = json.Unmarshal(out, &c)
	}
	if err != nil {
		return c, fmt.Errorf("dunnage cache: %w %s", err, out)
	}
	return c, nil
}

// checkCache fails if the kernel part itself has found a hit to be wrong.
func checkCache(t *testing.T) {
	t.Helper()
	c, err := cache()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("cache: %+v", c)
	if c.Total.Disagreed > 0 {
		t.Errorf("%d hits of the cache were contradicted by a walk", c.Total.Disagreed)
	}
}

// COHERENCE_OPS operations, in programs of 3,000, the first one's seed is
// COHERENCE_SEED: at each quiet point, which is after each operation, the answer
// is the policy's.
func TestPrograms(t *testing.T) {
	installPolicies(t)
	seed, wanted := number("COHERENCE_SEED", 1), number("COHERENCE_OPS", 200_000)
	var all tally
	start := time.Now()
	for done := uint64(0); done < wanted; seed++ {
		p := generate(seed, int(min(3000, max(wanted, 200))), policyCount)
		one, n, at, wrong, err := run(p)
		all.add(one)
		if err != nil {
			t.Fatalf("seed %d, operation %d: %v", p.seed, at, err)
		}
		if wrong != "" {
			p.ops = p.ops[:at+1]
			small, what := shrink(p, wrong)
			t.Fatalf("seed %d, operation %d: %s\nshrunk, it is: %s\n%s", p.seed, at, wrong, what, small)
		}
		done += uint64(n)
		if done >= wanted {
			t.Logf("%d operations in %v, last seed %d, compared: %+v", done, time.Since(start).Round(time.Second), seed, all)
		}
	}
	if all.allowed < all.done/20 || all.denied < all.done/20 {
		t.Errorf("the programs are too uniform to say much: %+v", all)
	}
	checkCache(t)
}

// What was once answered wrong, in testdata.
func TestRegressions(t *testing.T) {
	installPolicies(t)
	files, err := filepath.Glob(testdata() + "/*.program")
	if err != nil || len(files) == 0 {
		t.Fatalf("no programs in %s: %v", testdata(), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			p, err := readProgram(file)
			if err == nil {
				err = writePolicy(p.policy, 0)
			}
			if err == nil {
				err = reload()
			}
			if err != nil {
				t.Fatal(err)
			}
			one, _, at, wrong, err := run(p)
			if err != nil || wrong != "" || one.done == 0 {
				t.Errorf("operation %d of %d: %s %v (%d compared)", at, len(p.ops), wrong, err, one.done)
			}
		})
	}
	checkCache(t)
}

// testdata is found from the repository, where the VM starts commands.
func testdata() string {
	if _, err := os.Stat("testdata"); err == nil {
		return "testdata"
	}
	return "test/coherence/testdata"
}
