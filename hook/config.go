package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/hook/wire"
)

// configPath is the one file that the hook believes.
const configPath = "/etc/dunnage/hook.json"

// config is what the file says. A missing file is the zero value with the
// default socket.
type config struct{ wire.Config }

// readConfig reads the file, which only root may be able to write. One that
// can't be read or trusted is an error: then nothing starts.
func readConfig(path string) (config, error) {
	c := config{wire.Config{Socket: wire.Socket}}
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if errors.Is(err, unix.ENOENT) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("opening %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return c, fmt.Errorf("looking at %s: %w", path, err)
	}
	// Root of a user namespace sees the host's root as the overflow user.
	if st.Uid != 0 && st.Uid != overflowID || st.Mode&0o022 != 0 || st.Mode&unix.S_IFMT != unix.S_IFREG {
		return c, fmt.Errorf("%s must be a file of root that nobody else can write", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, wire.MaxMessage))
	if err != nil {
		return c, fmt.Errorf("reading %s: %w", path, err)
	}
	if err := wire.Decode(data, &c.Config); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	if c.Socket == "" || c.Socket[0] != '/' {
		return c, fmt.Errorf("%s: socket %q is not an absolute path", path, c.Socket)
	}
	return c, nil
}

// overflowID is the kernel's default for ids that a user namespace lacks.
const overflowID = 65534

// failOpen reports whether the container is one of those that may start
// unconfined when the daemon can't be reached. Annotations may be chosen by who
// starts the container, but the orchestrator's own are always there: so all that
// say its namespace, and all that say its name, must say the same, and an entry
// without a namespace is for containers without one.
func (c config) failOpen(annotations map[string]string) bool {
	namespace, ok := one(annotations, wire.NamespaceKeys())
	name, okName := one(annotations, wire.NameKeys())
	if !ok || !okName || name == "" {
		return false
	}
	if namespace != "" {
		name = namespace + "/" + name
	}
	return slices.Contains(c.FailOpen, name)
}

// one is what several keys say, if they agree.
func one(annotations map[string]string, keys []string) (value string, agree bool) {
	for _, key := range keys {
		if v := annotations[key]; v != "" {
			if value != "" && v != value {
				return "", false
			}
			value = v
		}
	}
	return value, true
}
