package coherence

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/policy"
)

// judge knows what must be answered: the policy in force, and who acts.
type judge struct {
	policy *policy.Policy
	tally
}

// tally counts what was compared.
type tally struct{ done, allowed, denied, foreign, busy uint64 }

var subject = policy.Subject{Programs: []string{"/bin/actor"}}

func (j *judge) may(path string, k policy.Kind) bool {
	return policy.Decide([]*policy.Policy{j.policy}, subject, path, k).Allowed
}

// readMounts are the mounts of a namespace by id, each with the place where it is.
func readMounts(file string) (map[int]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	mounts := map[int]string{}
	for text := string(data); text != ""; {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		first, rest, _ := strings.Cut(line, " ")
		id, err := strconv.Atoi(first)
		if err != nil {
			return nil, err
		}
		for range 3 { // parent, device, root
			_, rest, _ = strings.Cut(rest, " ")
		}
		mounts[id], _, _ = strings.Cut(rest, " ")
	}
	return mounts, nil
}

// truePath is the path of a descriptor, as the kernel itself gives it; reachable
// says whether it leads to the root of the namespace, or has been cut off from
// it: its mount is detached, or it was moved out of what is mounted. It is not
// asked for if trusted: what was just found from the root leads there.
func (h *hand) truePath(fd int, trusted bool) (path string, reachable bool, err error) {
	var buf [4096]byte
	n, err := unix.Readlink(h.base+"/proc/thread-self/fd/"+strconv.Itoa(fd), buf[:])
	if err != nil {
		return "", false, err
	}
	path = strings.TrimSuffix(string(buf[:n]), " (deleted)")
	if trusted {
		return path, true, nil
	}
	if h.moved {
		h.mounts = map[int]string{}
		for _, task := range append([]string{"thread-self"}, h.others...) {
			more, err := readMounts(h.base + "/proc/" + task + "/mountinfo")
			if err != nil {
				return "", false, err
			}
			for id, at := range more {
				h.mounts[id] = at
			}
		}
		h.moved = false
	}
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return "", false, err
	}
	at, ok := h.mounts[int(st.Mnt_id)]
	return path, ok && (at == "/" || path == at || strings.HasPrefix(path, at+"/")), nil
}

// probe opens a path and compares the answer with the policy's for the true path.
// It returns what is wrong, or "".
func (h *hand) probe(o op, j *judge) string {
	kind, flags := policy.Read, unix.O_RDONLY
	if o.verb == "modify" {
		kind, flags = policy.Modify, unix.O_WRONLY
	}
	dir, path := unix.AT_FDCWD, o.args[1]
	switch form := o.args[0]; {
	case form == "abs":
		path = h.at(path)
	case form == "cwd":
	default:
		slot := h.slots[form[len(form)-1]-'0']
		if slot < 0 {
			return ""
		}
		if dir = slot; form[0] == 'p' {
			dir, path = unix.AT_FDCWD, h.base+"/proc/thread-self/fd/"+strconv.Itoa(slot)
		}
	}
	fd, err := unix.Openat(dir, path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd)
	truth, reachable, err := h.truePath(fd, o.args[0] == "abs")
	if err != nil {
		return fmt.Sprintf("the true path: %v", err)
	}
	err = closing(unix.Openat(dir, path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0))
	if err != nil && err != unix.EACCES {
		return "" // not the policy's word: a directory opened for writing, too many links
	}
	return j.compare(truth, reachable, kind, err == nil)
}

// compare is what is wrong with an answer, or "".
func (j *judge) compare(path string, reachable bool, kind policy.Kind, allowed bool) string {
	want := reachable && j.may(path, kind)
	j.done++
	switch {
	case !reachable:
		j.foreign++
	case want:
		j.allowed++
	default:
		j.denied++
	}
	if want == allowed {
		return ""
	}
	word := map[bool]string{true: "allowed", false: "denied"}
	where := path
	if !reachable {
		where += " (cut off from the root)"
	}
	return fmt.Sprintf("%v of %s: is %s, must be %s", kind, where, word[allowed], word[want])
}

// attempt does a change as a confined task and compares what can be said of it.
func (h *hand) attempt(o op, j *judge) string {
	type question struct {
		at   string
		kind policy.Kind
	}
	var asks []question
	exact := true // a refusal must be the policy's, too
	switch o.verb {
	case "mkdir", "mk":
		asks = []question{{o.args[0], policy.Create}}
	case "unlink", "rmdir":
		asks = []question{{o.args[0], policy.Delete}}
	case "rename", "exchange":
		asks, exact = []question{{o.args[0], policy.Delete}, {o.args[1], policy.Create}}, false
	case "link":
		asks, exact = []question{{o.args[1], policy.Create}}, false
	case "symlink":
		asks = []question{{o.args[1], policy.Create}}
	}
	may, reachable := true, true
	var truth string
	var kind policy.Kind
	for _, q := range asks {
		at := h.at(q.at)
		dir, err := unix.Open(filepath.Dir(at), unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			asks = nil
			break
		}
		up, ok, err := h.truePath(dir, true)
		unix.Close(dir)
		if err != nil {
			return fmt.Sprintf("the true path: %v", err)
		}
		path := strings.TrimSuffix(up, "/") + "/" + filepath.Base(at)
		if !ok || !j.may(path, q.kind) || truth == "" {
			truth, kind, reachable = path, q.kind, ok
		}
		may = may && ok && j.may(path, q.kind)
	}
	err := h.change(o)
	switch {
	case mounting[o.verb] && !j.policy.Mounts && err == nil:
		return fmt.Sprintf("%s is allowed, and the policy freezes mounts", o.verb)
	case len(asks) == 0 || err != nil && err != unix.EACCES:
		return ""
	case !exact && (err != nil || may):
		return ""
	}
	return j.compare(truth, reachable, kind, err == nil)
}

// mounting are the verbs that a policy without `mounts: allow` forbids.
var mounting = map[string]bool{"bind": true, "move": true, "tmpfs": true, "overlay": true, "umount": true}
