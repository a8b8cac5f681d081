// Command report makes one file of numbers, the tables of docs/performance.md
// and the plot of docs/cost.svg from what the bench in the VMs printed. `make
// bench` runs it. It fails if two runs of the same kernel do not agree.
package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// Point is one setting; see the bench's own Point for what the words mean.
type Point struct {
	Series     string  `json:"series"`
	Depth      int     `json:"depth"`
	Rules      int     `json:"rules"`
	Containers int     `json:"containers"`
	Total      float64 `json:"total"`
	Added      float64 `json:"added"`
}

// Micro is one kernel's cost of an open and close.
type Micro struct {
	Kernel string  `json:"kernel"`
	Points []Point `json:"points"`
	Drift  float64 `json:"drift"`
}

// Load is one workload.
type Load struct {
	Name    string            `json:"name"`
	Off     float64           `json:"off"`
	Cached  float64           `json:"cached"`
	Walked  float64           `json:"walked"`
	Hits    uint64            `json:"hits"`
	Fills   uint64            `json:"fills"`
	Refused map[string]uint64 `json:"refused"`
	HitRate float64           `json:"hitRate"`
}

// Scaling is two processors against one.
type Scaling struct {
	Nothing float64 `json:"nothing"`
	Cached  float64 `json:"cached"`
}

// Results is test/bench/results.json.
type Results struct {
	Commit  string   `json:"commit"`
	Micro   []Micro  `json:"micro"`   // by kernel, 6.12 first
	Apart   float64  `json:"apart"`   // two runs on 6.12: the most that an added count differs, in parts of it
	Loads   []Load   `json:"loads"`   // on 6.12, in millions of instructions
	Scaling *Scaling `json:"scaling"` // on 6.12, wall time
	// Profile is the instructions of an open and close on 6.12, by setting and
	// function.
	Profile map[string]map[string]float64 `json:"profile"`
}

// agreement is how far two runs may be apart, as a part of the count; neighbours
// is the same for what isn't ours and not deterministic (Landlock sorts its rules by
// address); few is for small counts, in instructions.
const agreement, neighbours, few = 0.01, 0.03, 3

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: report DIR COMMIT, of %q", args)
	}
	r := Results{Commit: args[1]}
	for _, kernel := range []string{"6.12", "6.1", "new"} {
		var m Micro
		if ok, err := read(args[0], "micro-"+kernel, &m); err != nil || kernel == "6.12" && !ok {
			return fmt.Errorf("%s: %w", kernel, err)
		} else if ok {
			r.Micro = append(r.Micro, m)
		}
	}
	var again Micro
	if ok, err := read(args[0], "again-6.12", &again); err != nil {
		return err
	} else if ok {
		if r.Apart, err = compare(r.Micro[0], again); err != nil {
			return err
		}
	}
	if _, err := read(args[0], "loads", &r.Loads); err != nil {
		return err
	}
	if _, err := read(args[0], "scaling", &r.Scaling); err != nil {
		return err
	}
	if _, err := read(args[0], "profile", &r.Profile); err != nil {
		return err
	}
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile("test/bench/results.json", append(data, '\n'), 0o644); err != nil {
		return err
	}
	if err := draw(r.Micro[0], "docs/cost.svg"); err != nil {
		return err
	}
	return document(r, "docs/performance.md")
}

func read(dir, name string, into any) (bool, error) {
	data, err := os.ReadFile(filepath.Join(dir, name+".json"))
	if os.IsNotExist(err) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return false, fmt.Errorf("%s: %w", name, err)
	}
	return true, nil
}

// compare returns how far two runs are apart.
func compare(a, b Micro) (float64, error) {
	if len(a.Points) != len(b.Points) {
		return 0, fmt.Errorf("one run has %d points, the other %d", len(a.Points), len(b.Points))
	}
	widest := 0.0
	for i, p := range a.Points {
		q := b.Points[i]
		apart, most := math.Abs(p.Added-q.Added), agreement
		if strings.HasPrefix(p.Series, "Landlock") || strings.HasPrefix(p.Series, "AppArmor") {
			most = neighbours
		}
		if apart > few && apart > most*math.Abs(p.Added) {
			return 0, fmt.Errorf("two runs do not agree: %+v and %+v", p, q)
		}
		if apart > few {
			widest = max(widest, apart/math.Abs(p.Added))
		}
	}
	return widest, nil
}
