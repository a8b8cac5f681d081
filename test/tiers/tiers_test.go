// Package tiers runs the tests that need a kernel which enforces: it starts the
// VM of test/vm once for each kernel and runs the compiled tests in it. Nothing
// imports it.
package tiers

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// budget is the time that one kernel's tier may take, VM and all.
const budget = 20 * time.Minute

// earned are the reasons for which a test in the VM may skip.
var earned = []string{
	"TestPackages",   // under systemd: make test-packages
	"TestContainerd", // with a containerd that is built for it: make test-containerd
}

// machine is the share of test/coherence on each kernel: 200,000 operations on
// one, enough to see that it works on the others. make release runs millions.
var machine = map[string][]string{
	"6.12": {"env", "COHERENCE_OPS=200000", "COHERENCE_SECONDS=15", "bin/coherence.test", "-test.v", "-test.timeout", "19m"},
	"6.1":  {"env", "COHERENCE_OPS=15000", "COHERENCE_SECONDS=9", "bin/coherence.test", "-test.v", "-test.timeout", "19m"},
	"new":  {"env", "COHERENCE_OPS=15000", "COHERENCE_SECONDS=9", "bin/coherence.test", "-test.v", "-test.timeout", "19m"},
}

func TestKernels(t *testing.T) {
	if os.Getenv("DUNNAGE_TIERS") == "" {
		t.Skip("starts VMs: `make test` runs it")
	}
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	kernels := strings.Fields(os.Getenv("DUNNAGE_KERNELS"))
	if len(kernels) == 0 {
		kernels = []string{"6.12", "6.1"}
	}
	for _, kernel := range kernels {
		preempt := "preempt=full" // races that voluntary preemption hides show there
		if kernel == "6.1" {
			preempt = "preempt=voluntary" // the other is refused there
		}
		t.Run(kernel, func(t *testing.T) {
			t.Parallel() // one processor each; the machines have two
			for _, part := range []struct {
				name string
				args []string
			}{
				{"kernel part", []string{"--", "bin/bpf.test", "-test.v", "-test.short"}},
				{"differential machine", append([]string{"--append", preempt, "--"}, machine[kernel]...)},
				{"whole line", []string{"--daemon", "--", "bin/e2e.test", "-test.v", "-test.timeout", "19m"}},
			} {
				t.Run(part.name, func(t *testing.T) { tier(t, repo, kernel, part.args) })
			}
		})
	}
}

// tier runs one compiled test in a VM, shows its lines as they come and judges
// what it skipped.
func tier(t *testing.T, repo, kernel string, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), budget)
	defer cancel()
	all := append([]string{"--no-build", "--kernel", kernel, "--timeout", fmt.Sprint(int(budget.Seconds()) - 10)}, args...)
	cmd := exec.CommandContext(ctx, filepath.Join(repo, "test/vm/run"), all...)
	cmd.Dir = repo
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	r, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, w
	done := make(chan struct{})
	go func() {
		defer close(done)
		for lines := bufio.NewScanner(io.TeeReader(r, &out)); lines.Scan(); {
			if line := lines.Text(); !strings.HasPrefix(line, "=== ") {
				fmt.Printf("    [%s] %s\n", kernel, line)
			}
		}
	}()
	start := time.Now()
	err := cmd.Run()
	w.Close()
	<-done
	if err != nil {
		t.Errorf("%s: %v", strings.Join(all, " "), err)
	}
	passed := strings.Count(out.String(), "--- PASS")
	if passed == 0 {
		t.Errorf("no test passed: nothing was tested")
	}
	for _, line := range strings.Split(out.String(), "\n") {
		if strings.Contains(line, "--- SKIP") && !allowed(line) {
			t.Errorf("not earned: %s", line)
		}
	}
	t.Logf("%d tests passed in %v", passed, time.Since(start).Round(time.Second))
}

func allowed(line string) bool {
	for _, reason := range earned {
		if strings.Contains(line, reason) {
			return true
		}
	}
	return false
}
