package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// work NAME does one workload inside a container and prints the processor time
// that it and its children took, in nanoseconds: instructions, under -icount.
func work(args []string) error {
	if len(args) != 1 || workloads[args[0]] == nil {
		return fmt.Errorf("work: no workload %q", args)
	}
	debug.SetGCPercent(-1)
	before, err := used()
	if err != nil {
		return err
	}
	if err := workloads[args[0]](); err != nil {
		return err
	}
	after, err := used()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(after - before)
}

func used() (int64, error) {
	var self, children unix.Rusage
	err := errors.Join(unix.Getrusage(unix.RUSAGE_SELF, &self), unix.Getrusage(unix.RUSAGE_CHILDREN, &children))
	return self.Utime.Nano() + self.Stime.Nano() + children.Utime.Nano() + children.Stime.Nano(), err
}

// workloads are what `work` can do; loads.go makes what they need.
var workloads = map[string]func() error{
	"one file": func() error {
		for range 200_000 {
			if err := openClose("/work/tree/d7/f7"); err != nil {
				return err
			}
		}
		return nil
	},
	"new files":     func() error { return openAll("/work/new") },
	"hardlink farm": func() error { return openAll("/work/farm") },
	"renames beside": func() error {
		for range 5 {
			if err := openAll("/work/new"); err != nil {
				return err
			}
		}
		return nil
	},
	"git status": func() error { return quiet("/usr/bin/git", "-C", "/work/tree", "status", "--porcelain") },
	"grep -r":    func() error { return quiet("/usr/bin/grep", "-rc", "hay", "/work/tree") },
	"C build": func() error {
		return quiet("/bin/sh", "-c", "cd /work/c && for f in *.c; do gcc -O1 -c $f || exit 1; done && gcc -o prog *.o")
	},
	"pgbench": pgbench,
}

const (
	dirs    = 200
	perDir  = 100
	sources = 15
	pgData  = "/var/lib/postgresql/15/main"
	pgBin   = "/usr/lib/postgresql/15/bin/"
)

func openClose(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return unix.Close(fd)
}

// openAll opens each file of a tree once.
func openAll(top string) error {
	for d := range dirs {
		for f := range perDir {
			if err := openClose(top + "/d" + strconv.Itoa(d) + "/f" + strconv.Itoa(f)); err != nil {
				return err
			}
		}
	}
	return nil
}

func quiet(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %.2000s", name, err, out)
	}
	return nil
}

// pgbench starts the server, runs the select-only transactions with a new
// connection for each, as web applications without a pool have it, and then its
// standard ones, and stops the server.
func pgbench() error {
	server := exec.Command(pgBin+"postgres", "-D", pgData, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "autovacuum=off", "-c", "unix_socket_directories=/tmp")
	log, err := os.Create("/tmp/postgres.log")
	if err != nil {
		return err
	}
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		return err
	}
	failed := func() error {
		for range 300 {
			if quiet(pgBin+"pg_isready", "-q", "-h", "/tmp") == nil {
				break
			}
			time.Sleep(200 * time.Millisecond)
		}
		for _, args := range [][]string{{"-i", "-q", "-s", "1"}, {"-n", "-S", "-C", "-t", "100"}, {"-n", "-t", "1000"}} {
			if err := quiet(pgBin+"pgbench", append(args, "-h", "/tmp", "postgres")...); err != nil {
				return err
			}
		}
		return nil
	}()
	if err := server.Process.Signal(unix.SIGINT); err != nil {
		return err
	}
	if err := server.Wait(); err != nil || failed != nil {
		text, _ := os.ReadFile(log.Name())
		return fmt.Errorf("%w %w: %.3000s", err, failed, text)
	}
	return nil
}

// makeWork makes what the workloads work on, below root.
func makeWork(root string) error {
	for d := range dirs {
		for _, top := range []string{"new", "farm", "tree"} {
			if err := os.MkdirAll(fmt.Sprintf("%s/work/%s/d%d", root, top, d), 0o755); err != nil {
				return err
			}
		}
		for f := range perDir {
			name := fmt.Sprintf("d%d/f%d", d, f)
			if err := os.WriteFile(root+"/work/new/"+name, nil, 0o644); err != nil {
				return err
			}
			// The farm has the same hundred files in each directory.
			first := fmt.Sprintf("%s/work/farm/d0/f%d", root, f)
			var err error
			if d == 0 {
				err = os.WriteFile(first, nil, 0o644)
			} else {
				err = os.Link(first, root+"/work/farm/"+name)
			}
			if err != nil {
				return err
			}
			if f < perDir/4 {
				if err := os.WriteFile(root+"/work/tree/"+name, []byte("hay "+name+"\n"), 0o644); err != nil {
					return err
				}
			}
		}
	}
	if err := os.MkdirAll(root+"/work/c", 0o755); err != nil {
		return err
	}
	for i := range sources {
		text := fmt.Sprintf("#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n#include <errno.h>\n#include <unistd.h>\n"+
			"int f%d(const char *s) { return printf(\"%%s %%zu\\n\", s, strlen(s)) + errno; }\n", i)
		if i == 0 {
			text += "int main(void) { return f0(\"x\") == 0; }\n"
		}
		if err := os.WriteFile(filepath.Join(root, "work/c", fmt.Sprintf("s%d.c", i)), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
