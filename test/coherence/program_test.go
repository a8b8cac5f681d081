package coherence

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
)

// op is one operation of a program: who does it, what, and to what. A program is
// a text with one operation a line, so that it can be kept, read and shrunk.
//
// Who: c is the confined task; u is a confined thread in a mount namespace that
// it made itself; h is unconfined in c's namespace; x is on the host, outside;
// d is the driver (reloads).
type op struct {
	who  byte
	verb string
	args []string
}

func (o op) String() string {
	return strings.TrimSpace(fmt.Sprintf("%c %s %s", o.who, o.verb, strings.Join(o.args, " ")))
}

func parseOp(line string) (op, error) {
	f := strings.Fields(line)
	if len(f) < 2 || len(f[0]) != 1 || needs[f[1]] > len(f)-2 {
		return op{}, fmt.Errorf("%q is no operation", line)
	}
	return op{f[0][0], f[1], f[2:]}, nil
}

// needs is how many arguments each verb takes.
var needs = map[string]int{
	"mkdir": 1, "mk": 1, "write": 1, "unlink": 1, "rmdir": 1, "chmod": 1, "plant": 1, "deep": 1, "clear": 1,
	"rename": 2, "exchange": 2, "reuse": 2, "link": 2, "symlink": 2,
	"bind": 2, "move": 2, "tmpfs": 1, "overlay": 2, "umount": 1, "calm": 0, "unshare": 0, "pivot": 0,
	"hold": 2, "chdir": 1, "read": 2, "modify": 2, "drop": 0, "snapshot": 2, "unsnapshot": 1, "reload": 1,
}

// program is the operations on one container, with the policy that it starts with.
type program struct {
	seed   uint64
	policy int
	ops    []op
}

// String is the text that readProgram reads: the policy's lines after bars, then
// the operations.
func (p program) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# seed %d\n", p.seed)
	text := strings.ReplaceAll(policyText(p.policy, 0), policyName(p.policy), policyName(keptPolicy))
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		fmt.Fprintf(&b, "| %s\n", line)
	}
	for _, o := range p.ops {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}

// readProgram reads a kept program; its policy is keptPolicy from then on.
func readProgram(file string) (program, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return program{}, err
	}
	p := program{policy: keptPolicy}
	keptText = ""
	for _, line := range strings.Split(string(data), "\n") {
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "| "):
			keptText += line[2:] + "\n"
		default:
			o, err := parseOp(line)
			if err != nil {
				return p, fmt.Errorf("%s: %w", file, err)
			}
			p.ops = append(p.ops, o)
		}
	}
	return p, nil
}

// The trees: a directory of the container's own ext4, a tmpfs, an overlay, a btrfs.
var tops = []string{"/w", "/t", "/o", "/b"}

func pick[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

// dir is a directory's path, up to three below a top; file is a name below one.
func dirPath(r *rand.Rand, top string) string {
	if r.IntN(12) == 0 { // one deep chain in each tree, deeper than the kernel part walks without a call
		return top + strings.Repeat("/a/b", 2+r.IntN(6))
	}
	for n := r.IntN(4); n > 0; n-- {
		top += "/" + pick(r, []string{"a", "b"})
	}
	return top
}

func filePath(r *rand.Rand, top string) string {
	return dirPath(r, top) + "/" + pick(r, []string{"x", "y"})
}

// below is a directory that is not the top.
func below(r *rand.Rand, top string) string {
	return dirPath(r, top) + "/" + pick(r, []string{"a", "b"})
}

// leaf is a directory whose parent is there at most times.
func leaf(r *rand.Rand, top string) string {
	for range 2 {
		top += "/" + pick(r, []string{"a", "b"})
	}
	return top
}

// A program leaves kinds of changes out, at random: each invalidates the cache
// in its own way and would hide that another one does not.
type taste struct{ renames, mounts, removals, reloads, unshared bool }

// generate makes a random program of n operations.
func generate(seed uint64, n, policies int) program {
	r := rand.New(rand.NewPCG(seed, 5))
	t := taste{r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(3) > 0, r.IntN(4) == 0, r.IntN(2) == 0}
	p := program{seed: seed, policy: r.IntN(policies)}
	add := func(who byte, verb string, args ...string) { p.ops = append(p.ops, op{who, verb, args}) }
	for _, top := range tops {
		add('h', "plant", top)
	}
	add('h', "deep", pick(r, tops)+strings.Repeat("/a/b", 8))
	if t.unshared {
		add('u', "unshare")
	}
	confined := func() byte {
		if t.unshared && r.IntN(3) == 0 {
			return 'u'
		}
		return 'c'
	}
	anyone := func() byte { return pick(r, []byte{confined(), 'h', 'h', 'x'}) }
	for len(p.ops) < n {
		top := pick(r, tops)
		other := top
		if r.IntN(3) == 0 {
			other = pick(r, tops)
		}
		switch r.IntN(60) {
		case 0:
			if t.renames {
				add(anyone(), "rename", below(r, top), below(r, top))
			}
		case 1:
			if t.renames {
				add(anyone(), "exchange", below(r, top), pick(r, []string{below(r, top), filePath(r, top)}))
			}
		case 2:
			if t.mounts {
				add(pick(r, []byte{confined(), 'h'}), "bind", dirPath(r, other), below(r, top))
			}
		case 3:
			if t.mounts {
				add(pick(r, []byte{confined(), 'h'}), "bind", filePath(r, other), filePath(r, top))
			}
		case 4:
			if t.mounts {
				add(pick(r, []byte{confined(), 'h'}), "umount", pick(r, []string{below(r, top), filePath(r, top), top}))
			}
		case 5:
			if t.mounts {
				switch at := below(r, top); r.IntN(4) {
				case 0:
					add(pick(r, []byte{confined(), 'h'}), "tmpfs", at)
					add('h', "plant", at)
				case 1:
					add(pick(r, []byte{confined(), 'h'}), "overlay", dirPath(r, other), at)
				case 2:
					add(pick(r, []byte{confined(), 'h'}), "move", pick(r, []string{at, top}), below(r, other))
				default:
					add('h', "calm")
				}
			}
		case 6, 7:
			if t.removals { // a directory goes, and another may get its number and memory
				add(pick(r, []byte{'h', 'x'}), "clear", below(r, top))
				add(pick(r, []byte{'h', 'x'}), "plant", dirPath(r, top))
			}
		case 8:
			if t.removals && r.IntN(2) == 0 {
				from, to := leaf(r, top), leaf(r, top)
				add('h', "clear", to)
				add('h', "clear", from)
				add('h', "mkdir", from)
				add('h', "mk", from+"/x")
				add(confined(), "read", "abs", from+"/x")
				add('h', "reuse", from, to)
				add(confined(), "read", "abs", to+"/x")
				add(confined(), "modify", "abs", to+"/y")
			} else if t.removals {
				add(anyone(), "rmdir", below(r, top))
				add(anyone(), "mkdir", below(r, top))
			}
		case 9:
			add(anyone(), "mkdir", below(r, top))
		case 10:
			if r.IntN(4) == 0 {
				add('h', "deep", top+strings.Repeat("/a/b", 8))
			} else {
				add(anyone(), "plant", dirPath(r, top))
			}
		case 11, 12:
			add(anyone(), "mk", filePath(r, top))
		case 13:
			add(anyone(), "write", filePath(r, top))
		case 14:
			add(anyone(), "unlink", filePath(r, top))
		case 15, 16:
			add(anyone(), "rename", filePath(r, top), filePath(r, top))
		case 17:
			add(anyone(), "link", filePath(r, top), filePath(r, top))
		case 18:
			add(anyone(), "symlink", pick(r, []string{filePath(r, other), dirPath(r, other)}), filePath(r, top))
		case 19:
			add(anyone(), "chmod", pick(r, []string{filePath(r, top), below(r, top)}))
		case 20, 21:
			add(confined(), "hold", fmt.Sprint(r.IntN(4)), pick(r, []string{filePath(r, top), dirPath(r, top), dirPath(r, top)}))
		case 22:
			add(confined(), "chdir", dirPath(r, top))
		case 23:
			rare(r, t, add)
		default:
			probes(r, confined(), top, add)
		}
	}
	return p
}

// rare are the operations that take long, or change much.
func rare(r *rand.Rand, t taste, add func(byte, string, ...string)) {
	switch r.IntN(16) {
	case 0:
		if t.reloads {
			add('d', "reload", fmt.Sprint(r.IntN(4)))
		}
	case 1:
		add('x', "drop")
	case 2, 3:
		if t.removals {
			add('x', "snapshot", "/b/s", pick(r, []string{"/b/a/a", "/b/b/b", "/b/b/a"}))
		}
	case 4, 5:
		if t.removals {
			add('x', "unsnapshot", pick(r, []string{"/b/a/a", "/b/b/b", "/b/b/a"}))
		}
	case 6, 7:
		if t.unshared && t.mounts {
			add('u', "pivot")
		}
	case 8, 9:
		if t.unshared {
			add('u', "unshare")
		}
	}
}

// probes are opens of all forms by one task.
func probes(r *rand.Rand, who byte, top string, add func(byte, string, ...string)) {
	for range 3 {
		add(who, pick(r, []string{"read", "read", "read", "modify"}), "abs", filePath(r, top))
		rel := pick(r, []string{"x", "y", "a/x", "a/y", "b/x", "b/y", "a/b/x", "a"})
		add(who, pick(r, []string{"read", "read", "modify"}), pick(r, []string{"cwd", "0", "1", "2", "3"}), rel)
		add(who, "read", fmt.Sprint("p", r.IntN(4)), ".")
	}
}
