package tiers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// dearer is how much a cost may grow before somebody must have meant it, and few
// the instructions that a count is exact to.
const dearer, few = 0.03, 3

// checked are the costs that must not grow: everybody pays them at every open.
var checked = []string{"host", "container without policy", "cached, directory", "cached, name"}

type costs struct {
	Kernel string
	Points []struct {
		Series            string
		Depth, Containers int
		Rules             int
		Added             float64
	}
}

// at5 is the cost of a series at a depth of five, with the fewest rules.
func (c costs) at5(series string) (float64, bool) {
	for _, p := range c.Points {
		if p.Series == series && p.Depth == 5 && p.Rules <= 10 && p.Containers <= 1 {
			return p.Added, true
		}
	}
	return 0, false
}

// Counted in one boot: what an open costs is what test/bench/results.json says,
// or less. Counts are deterministic: this can't fail by chance.
func TestCost(t *testing.T) {
	if os.Getenv("DUNNAGE_TIERS") == "" {
		t.Skip("starts VMs: `make test` runs it")
	}
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	var committed struct{ Micro []costs }
	data, err := os.ReadFile(filepath.Join(repo, "test/bench/results.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &committed); err != nil || len(committed.Micro) == 0 {
		t.Fatalf("results.json: %v", err)
	}
	start := time.Now()
	cmd := exec.Command(filepath.Join(repo, "test/vm/run"), "--no-build", "--icount", "--append", "nokaslr", "--timeout", "240", "--", "bin/bench", "micro", "check")
	cmd.Dir = repo
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.Bytes())
	}
	var now costs
	if err := json.Unmarshal(out, &now); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if was := committed.Micro[0].Kernel; was != now.Kernel {
		t.Logf("the committed costs are of %s, this kernel is %s: if a cost differs, look there first", was, now.Kernel)
	}
	for _, series := range checked {
		old, ok := committed.Micro[0].at5(series)
		cost, ok2 := now.at5(series)
		switch {
		case !ok || !ok2:
			t.Errorf("%s: not counted", series)
		case cost > old*(1+dearer) && cost > old+few:
			t.Errorf("%s: %.1f instructions an open, results.json says %.1f\nhint: see docs/performance.md; if it is meant, run make bench and commit the result", series, cost, old)
		default:
			fmt.Printf("    [cost] %s: %.1f, committed %.1f\n", series, cost, old)
		}
	}
	t.Logf("counted in %v", time.Since(start).Round(time.Second))
}
