// Command profile says where the instructions of an open go: it starts the bench
// in the VM, has QEMU log every instruction for a while, and counts them by
// function. `make bench` runs it.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"time"
)

// logged is how many bytes of log are taken: some 100 opens.
const logged = 120 << 20

func main() {
	out := map[string]map[string]float64{}
	for _, setting := range []string{"ever", "nothing", "cached", "walked"} {
		counts, err := profile(setting)
		if err != nil {
			fmt.Fprintf(os.Stderr, "error: %s: %v\n", setting, err)
			os.Exit(1)
		}
		out[setting] = counts
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// profile returns the instructions of one open and close, by function.
func profile(setting string) (map[string]float64, error) {
	dir, err := os.MkdirTemp("", "dunnage-profile-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	monitor, log := filepath.Join(dir, "monitor"), filepath.Join(dir, "log")
	cmd := exec.Command("test/vm/run", "--no-build", "--icount", "--append", "nokaslr", "--monitor", monitor,
		"--results", dir, "--timeout", "300", "--", "bin/bench", "profile", setting)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	began := false
	var said []string
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		said = append(said, lines.Text())
		if lines.Text() == "profile: begins" {
			began = true
			if err := watch(monitor, log); err != nil {
				return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
			}
		}
	}
	if err := cmd.Wait(); err != nil || !began {
		return nil, fmt.Errorf("the VM: %w: %s", err, strings.Join(said, "\n"))
	}
	names, err := readNames(filepath.Join(dir, "kallsyms"))
	if err != nil {
		return nil, err
	}
	return count(log, names)
}

// watch has QEMU log one line an instruction until there are enough.
func watch(monitor, log string) error {
	c, err := net.Dial("unix", monitor)
	if err != nil {
		return err
	}
	defer c.Close()
	say := func(lines ...string) error {
		for _, line := range lines {
			if _, err := fmt.Fprintln(c, line); err != nil {
				return err
			}
			time.Sleep(200 * time.Millisecond) // the monitor has read it
		}
		return nil
	}
	time.Sleep(time.Second) // the loop has warmed up
	if err := say("stop", "logfile "+log, "singlestep on", "log exec,nochain", "cont"); err != nil {
		return err
	}
	for range 600 {
		if st, err := os.Stat(log); err == nil && st.Size() > logged {
			return say("stop", "log none", "singlestep off", "cont")
		}
		time.Sleep(100 * time.Millisecond)
	}
	return errors.New("QEMU logs nothing")
}

type name struct {
	at   uint64
	text string
}

func readNames(path string) ([]name, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var out []name
	for _, line := range strings.Split(string(data), "\n") {
		f := strings.Fields(line)
		if len(f) < 3 || !strings.Contains("tTwW", f[1]) {
			continue
		}
		at, err := strconv.ParseUint(f[0], 16, 64)
		if err != nil {
			return nil, err
		}
		text := f[2]
		if strings.HasPrefix(text, "bpf_prog_") { // bpf_prog_TAG_NAME
			if parts := strings.SplitN(text, "_", 4); len(parts) == 4 {
				text = "BPF " + parts[3]
			}
		}
		if strings.HasPrefix(text, "bpf_trampoline_") {
			text = "BPF trampoline"
		}
		out = append(out, name{at, text})
	}
	sort.SliceStable(out, func(i, j int) bool { return out[i].at < out[j].at })
	if len(out) == 0 || out[len(out)-1].at == 0 {
		return nil, errors.New("the kernel shows no addresses")
	}
	return out, nil
}

// count splits the log into rounds of two system calls, takes those of the most
// frequent length, which nothing interrupted, and counts by function.
func count(log string, names []name) (map[string]float64, error) {
	f, err := os.Open(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	find := func(pc uint64) string {
		if pc < 1<<47 {
			return "(the program)"
		}
		i := sort.Search(len(names), func(i int) bool { return names[i].at > pc })
		if i == 0 {
			return "(unknown)"
		}
		return names[i-1].text
	}
	var entry uint64
	for _, n := range names {
		if n.text == "entry_SYSCALL_64" {
			entry = n.at
		}
	}
	var rounds [][]uint64
	var now []uint64
	calls := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		i, j := strings.IndexByte(line, '['), strings.IndexByte(line, ']')
		if !strings.HasPrefix(line, "Trace") || i < 0 || j < i {
			continue
		}
		parts := strings.Split(line[i+1:j], "/")
		if len(parts) < 2 {
			continue
		}
		pc, err := strconv.ParseUint(parts[1], 16, 64)
		if err != nil {
			return nil, err
		}
		if pc == entry {
			if calls++; calls%2 == 0 {
				rounds, now = append(rounds, now), nil
			}
		}
		now = append(now, pc)
	}
	lengths := map[int]int{}
	for _, r := range rounds[min(1, len(rounds)):] { // the first began anywhere
		lengths[len(r)]++
	}
	usual := 0
	for n, times := range lengths {
		if times > lengths[usual] || times == lengths[usual] && n < usual {
			usual = n
		}
	}
	if lengths[usual] < 10 {
		return nil, fmt.Errorf("only %d rounds of %d are alike", lengths[usual], len(rounds))
	}
	out := map[string]float64{}
	for _, r := range rounds[1:] {
		if len(r) != usual {
			continue
		}
		for _, pc := range r {
			out[find(pc)]++
		}
	}
	for k := range out {
		out[k] /= float64(lengths[usual])
	}
	fmt.Fprintf(os.Stderr, "%d instructions a round, %d of %d rounds\n", usual, lengths[usual], len(rounds))
	return out, nil
}
