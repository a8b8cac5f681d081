// Command dunnage-hook is the OCI runtime hook: `dunnage-hook STAGE`, with the
// container's State on standard input. It decides nothing: it tells the daemon
// that a container is about to start and waits until the kernel holds its
// policy. For a container with a policy, anything else than "ok" is a non-zero
// exit, and the container does not start. It runs no children, reads nothing of
// its environment, and imports only the standard library, x/sys/unix, the
// runtime-spec's types and hook/wire.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/dunnage-project/dunnage/hook/wire"
)

// deadline bounds the whole hook; the `timeout` of the hooks.d file is only a
// second net.
const deadline = 2 * time.Second

const usage = `usage: dunnage-hook createRuntime|prestart|poststop < STATE

An OCI runtime runs it; see dunnage(1). It is not meant to be run by hand.`

func main() { os.Exit(run(os.Args[1:], os.Stdin, os.Stderr, time.Now().Add(deadline))) }

// run is the hook; it returns the exit status.
func run(args []string, stdin io.Reader, stderr io.Writer, until time.Time) int {
	if len(args) != 1 {
		fmt.Fprintln(stderr, usage)
		return exitUsage
	}
	id, err := handle(args[0], stdin, until)
	if args[0] == stagePoststop {
		return 0 // a hint only: never an obstacle
	}
	if err == nil {
		return 0
	}
	report(stderr, id, err)
	return exitOf(err)
}

// The stages that the hook knows.
const (
	stageCreate   = "createRuntime"
	stagePrestart = "prestart" // for runtimes from before createRuntime
	stagePoststop = "poststop"
)

func handle(stage string, stdin io.Reader, until time.Time) (id string, err error) {
	if stage != stageCreate && stage != stagePrestart && stage != stagePoststop {
		return "", failure{exitUsage, fmt.Sprintf("stage %q: the hook is for createRuntime, prestart and poststop", stage)}
	}
	conf, confErr := readConfig(configPath)
	state, err := readState(stdin, until)
	if err != nil {
		return "", failure{exitState, fmt.Sprintf("the State on standard input: %v", err)}
	}
	annotated := wire.Asks(state.Annotations)
	switch {
	case confErr != nil:
		return state.ID, failure{exitConfig, fmt.Sprintf("%v: mend or remove the file", confErr)}
	case !annotated && !conf.Baseline:
		return state.ID, nil
	}
	if stage == stagePoststop {
		return state.ID, tell(conf.Socket, state, until)
	}
	err = bind(conf.Socket, state, until, conf.Annotations...)
	if status := exitOf(err); (status == exitUnavailable || status == exitTimeout) && conf.failOpen(state.Annotations) {
		report(os.Stderr, state.ID, fmt.Errorf("starting UNCONFINED, as %s says: %w", configPath, err))
		tellLater(unconfinedPath, state, err)
		return state.ID, nil
	}
	return state.ID, err
}

// maxState is the size of the largest State that is read, in bytes.
const maxState = 8 << 20

// readState reads the State; a runtime that does not close its end is given up.
func readState(r io.Reader, until time.Time) (*specs.State, error) {
	type result struct {
		data []byte
		err  error
	}
	c := make(chan result, 1)
	go func() {
		data, err := io.ReadAll(io.LimitReader(r, maxState+1))
		c <- result{data, err}
	}()
	var got result
	select {
	case got = <-c:
	case <-time.After(time.Until(until)):
		return nil, errors.New("it does not end")
	}
	if got.err != nil {
		return nil, got.err
	}
	if len(got.data) > maxState {
		return nil, fmt.Errorf("more than %d bytes", maxState)
	}
	return parseState(got.data)
}
