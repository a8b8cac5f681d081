package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/bpf"
)

// Point is the cost of one open and close in one setting.
type Point struct {
	Series     string  `json:"series"`
	Depth      int     `json:"depth"`      // components of the path, the file's name among them
	Rules      int     `json:"rules"`      // of the policy, beside the two that it needs
	Containers int     `json:"containers"` // bound
	Total      float64 `json:"total"`      // instructions of one open and close
	Added      float64 `json:"added"`      // to what they are without anything of ours
}

// Micro is the answer of `bench micro`.
type Micro struct {
	Kernel string  `json:"kernel"`
	Points []Point `json:"points"`
	// Drift is the difference between the first and the last count without
	// anything of ours.
	Drift float64 `json:"drift"`
}

const (
	rounds = 200
	blocks = 31
	root   = "/run/bench" // of the containers: a tmpfs
	away   = 512          // directories that the `miss` loop goes through
)

// axes are the settings that are measured.
type axes struct {
	depths, rules, containers []int
}

func axesOf(args []string) axes {
	if slices.Contains(args, "short") || slices.Contains(args, "check") {
		return axes{depths: []int{5, 16}, rules: []int{10}, containers: []int{1}}
	}
	return axes{depths: []int{2, 5, 8, 16, 32, 64}, rules: []int{10, 100, 1000, 10000}, containers: []int{1, 10, 100, 1000}}
}

// bench is one run of the micro-benchmark.
type bench struct {
	Micro
	axes
	base map[string]float64
}

// micro measures along all axes; at one place of each, if args say short; there
// and only what `make test` checks, if they say check.
func micro(args []string) (*Micro, error) {
	b := &bench{axes: axesOf(args), base: map[string]float64{}}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	b.Kernel = unix.ByteSliceToString(u.Release[:])
	if err := makeTree(b.axes); err != nil {
		return nil, err
	}
	steps := []func() error{b.none, b.empty, b.landlock, b.apparmor, b.dunnage, b.drift}
	if slices.Contains(args, "check") {
		steps = []func() error{b.none, b.cached}
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return &b.Micro, nil
}

// dir is the directory of the file at a depth; "" is the root.
func dir(depth int) string {
	var s strings.Builder
	for i := 1; i < depth; i++ {
		fmt.Fprintf(&s, "/d%d", i)
	}
	return s.String()
}

// makeTree makes the containers' root: the program, a file at every depth, and
// the directories that other rules and the `miss` loop name.
func makeTree(a axes) error {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("bench", root, "tmpfs", 0, "size=1G,nr_inodes=0"); err != nil {
		return err
	}
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return err
	}
	if err := os.WriteFile(root+"/bench", self, 0o755); err != nil {
		return err
	}
	files := []string{}
	for _, depth := range a.depths {
		files = append(files, dir(depth)+"/file")
	}
	for i := range away {
		files = append(files, fmt.Sprintf("%s/m%d/file", dir(4), i))
	}
	for _, f := range files {
		if err := os.MkdirAll(root+filepath.Dir(f), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(root+f, []byte("x\n"), 0o644); err != nil {
			return err
		}
	}
	for _, s := range siblings(5, slices.Max(a.rules)) {
		if err := os.Mkdir(root+s, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// siblings are n paths in the directory of the file: what a policy's further
// rules name, so that they are where the name is looked for.
func siblings(depth, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("%s/s%d", dir(depth), i)
	}
	return out
}

// count runs the loop in a container or on the host, prepared by prepare. Half
// the blocks are equal to a hundredth of an instruction, the others have a timer
// or a slab's turn in them: the lower quartile is of the first half.
func count(host bool, path string, o orders, prepare func(*process) error) (float64, error) {
	p, err := startChild(root, host)
	if err != nil {
		return 0, err
	}
	if prepare != nil {
		if err := prepare(p); err != nil {
			p.orders.Close()
			_ = p.cmd.Wait()
			return 0, err
		}
	}
	// A block is shorter than the time between two ticks of the timer.
	n := min(rounds, 8*rounds/strings.Count(path, "/"))
	if strings.Contains(path, "%d") {
		n = away
	}
	o.Argv = []string{"/bench", "loop", path, fmt.Sprint(n), fmt.Sprint(blocks)}
	out, err := p.run(o)
	if err != nil {
		return 0, err
	}
	return quantile(out, 1, 4, o.Denied)
}

// quantile reads what a loop printed, makes sure that every open was answered as
// it should be, and returns the n-th of d parts of its times.
func quantile(out []byte, n, d int, denied bool) (float64, error) {
	var l looped
	if err := json.Unmarshal(out, &l); err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	if (l.Failed > 0) != denied {
		return 0, fmt.Errorf("%d opens failed", l.Failed)
	}
	slices.Sort(l.Times)
	return l.Times[len(l.Times)*n/d], nil
}

// add counts one setting and notes it.
func (b *bench) add(series string, depth, rules, containers int, host bool, path string, o orders, prepare func(*process) error) error {
	total, err := count(host, path, o, prepare)
	if err != nil {
		return fmt.Errorf("%s, depth %d, %d rules, %d containers: %w", series, depth, rules, containers, err)
	}
	key := fmt.Sprint(host, path)
	if series == "nothing" {
		b.base[key] = total
	}
	base, ok := b.base[key]
	if !ok {
		return fmt.Errorf("%s: nothing to compare %s with", series, path)
	}
	p := Point{series, depth, rules, containers, round(total), round(total - base)}
	b.Points = append(b.Points, p)
	fmt.Fprintf(os.Stderr, "%-28s depth %2d  rules %5d  containers %4d  %8.1f  %+8.1f\n", p.Series, p.Depth, p.Rules, p.Containers, p.Total, p.Added)
	return nil
}

func round(f float64) float64 { return math.Round(f*10) / 10 }

func file(depth int) string { return dir(depth) + "/file" }

const missPath = "/d1/d2/d3/m%d/file"

// none is what everything is compared with. The first BPF program that anybody
// attaches to file_open and that is used leaves an open about 60 instructions
// dearer on 6.12, also after it is gone: that is counted once, as "nothing,
// ever", and is in the base of all, ours and the neighbours alike.
func (b *bench) none() error {
	before, err := count(false, file(5), orders{}, nil)
	if err != nil {
		return err
	}
	off, err := emptyProgram()
	if err != nil {
		return err
	}
	if _, err := count(false, file(5), orders{}, nil); err != nil {
		return err
	}
	if err := off(); err != nil {
		return err
	}
	defer func() {
		base := b.base[fmt.Sprint(false, file(5))]
		b.Points = append(b.Points, Point{"nothing, ever", 5, 0, 0, round(before), round(before - base)})
	}()
	for _, depth := range b.depths {
		if err := b.add("nothing", depth, 0, 0, false, file(depth), orders{}, nil); err != nil {
			return err
		}
	}
	if err := b.add("nothing", 5, 0, 0, false, missPath, orders{}, nil); err != nil {
		return err
	}
	return b.add("nothing", 5, 0, 0, true, file(5), orders{}, nil)
}

func (b *bench) drift() error {
	total, err := count(false, file(5), orders{}, nil)
	b.Drift = round(total - b.base[fmt.Sprint(false, file(5))])
	return err
}

func (b *bench) empty() error {
	off, err := emptyProgram()
	if err != nil {
		return err
	}
	for _, depth := range b.depths {
		if err := b.add("empty LSM program", depth, 0, 0, false, file(depth), orders{}, nil); err != nil {
			return err
		}
	}
	return off()
}

// landlock measures with a rule on the file's directory and with one on /, and
// with further rules beside the file.
func (b *bench) landlock() error {
	for _, depth := range b.depths {
		if err := b.add("Landlock, rule on directory", depth, 0, 0, false, file(depth), orders{Landlock: []string{dir(depth)}}, nil); err != nil {
			return err
		}
		if err := b.add("Landlock, rule on /", depth, 0, 0, false, file(depth), orders{Landlock: []string{"/"}}, nil); err != nil {
			return err
		}
	}
	for _, rules := range b.rules {
		if err := b.add("Landlock, rule on directory", 5, rules, 0, false, file(5), orders{Landlock: append(siblings(5, rules), dir(5))}, nil); err != nil {
			return err
		}
	}
	return nil
}

// apparmor measures with a profile that lets the file be read, and with further
// rules beside it.
func (b *bench) apparmor() error {
	if state, err := os.ReadFile("/sys/module/apparmor/parameters/enabled"); err != nil || string(state) != "Y\n" {
		return fmt.Errorf("AppArmor is not on in this kernel: %s %w", state, err)
	}
	parser := os.Getenv("DUNNAGE_APPARMOR_PARSER")
	one := func(depth, rules int) error {
		name := fmt.Sprintf("bench-%d-%d", depth, rules)
		text := "profile " + name + " {\n  /bench rmix,\n  " + file(depth) + " r,\n"
		for _, s := range siblings(depth, rules) {
			text += "  " + s + " r,\n"
		}
		cmd := exec.Command(parser, "--replace", "--skip-cache", "--base", "/run")
		cmd.Stdin = strings.NewReader(text + "}\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", parser, err, out)
		}
		return b.add("AppArmor", depth, rules, 0, false, file(depth), orders{AppArmor: name}, nil)
	}
	for _, depth := range b.depths {
		if err := one(depth, 0); err != nil {
			return err
		}
	}
	for _, rules := range b.rules {
		if err := one(5, rules); err != nil {
			return err
		}
	}
	return nil
}

// with loads the kernel part, measures, and takes it off again.
func with(o bpf.Options, f func(*bpf.Engine) error) error {
	o.PinDir = pins
	o.EventBudget = 1 << 30 // each one is reported
	o.EventBytes = 16 << 20 // nobody reads: room for all
	e, err := bpf.Load(o)
	if err != nil {
		return err
	}
	if err := f(e); err != nil {
		_ = e.Release()
		return err
	}
	return e.Release()
}

// confined measures one setting under a policy, with further containers bound.
func (b *bench) confined(e *bpf.Engine, series string, depth, rules, containers int, path, mode string, list []string) error {
	a, err := compile(mode, "deny", append([]string{allow("read, exec", "/bench")}, list...))
	if err != nil {
		return err
	}
	denied := strings.Contains(series, "denied")
	var made []bpf.Instance
	var tables []bpf.Table
	err = b.add(series, depth, rules, containers, false, path, orders{Denied: denied}, func(p *process) error {
		i, t, err := confine(e, p, a)
		made, tables = append(made, i), append(tables, t)
		for n := 1; err == nil && n < containers; n++ {
			// An id that no namespace has: a neighbour that does nothing.
			i, err = e.Bind(bpf.Binding{Namespace: bpf.NamespaceID(1<<40 + n), Init: 1, Table: t, State: bpf.Enforced})
			made = append(made, i)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, i := range made {
		if err := e.Remove(i); err != nil {
			return err
		}
	}
	return e.Uninstall(tables[0])
}
