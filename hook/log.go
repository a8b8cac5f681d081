package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/dunnage-project/dunnage/hook/wire"
)

// logPath and journalSocket are where the one line of an error goes besides
// standard error, which crun throws away.
const (
	logPath       = "/run/dunnage/hook.log"
	journalSocket = "/run/systemd/journal/socket"
)

// report writes one line to standard error, to the log and to the journal. It
// never blocks and never fails.
func report(stderr io.Writer, id string, err error) {
	line := strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, fmt.Sprintf("dunnage-hook: container %s: %v", id, err))
	fmt.Fprintln(stderr, line)
	appendLine(logPath, fmt.Sprintf("%s %s\n", time.Now().UTC().Format(time.RFC3339), line))
	journal(line)
}

// unconfinedPath is where the daemon finds what started without it.
const unconfinedPath = wire.UnconfinedLog

// tellLater writes down a container that starts without the daemon, for the
// daemon to report as soon as it can.
func tellLater(path string, state *specs.State, why error) {
	name, _ := one(state.Annotations, wire.NameKeys())
	namespace, _ := one(state.Annotations, wire.NamespaceKeys())
	line, err := json.Marshal(wire.Unconfined{Time: time.Now().UTC(), ID: state.ID, Namespace: namespace, Name: name, PID: state.Pid, Why: why.Error()})
	if err == nil {
		appendLine(path, string(line)+"\n")
	}
}

func appendLine(path, line string) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o640)
	if err != nil {
		return
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	_, _ = f.WriteString(line)
}

// journal sends one entry in the journal's own datagram format. Priority 3 is
// "error".
func journal(line string) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	entry := "SYSLOG_IDENTIFIER=dunnage-hook\nPRIORITY=3\nMESSAGE=" + line + "\n"
	_ = unix.Sendto(fd, []byte(entry), unix.MSG_NOSIGNAL, &unix.SockaddrUnix{Name: journalSocket})
}
