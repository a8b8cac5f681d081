// Command dunnage is the node's one process and its command line: `dunnage
// daemon` answers the hook, is the only writer of kernel state, and reports
// events; every other command asks it over the control socket or works alone on
// files. Nothing imports this package.
//
//	main.go      commands              hooksock.go  the hook's requests
//	daemon.go    start, reload, stop   caller.go    who asks, for which namespace
//	registry.go  what is bound         reap.go      what has ended
//	config.go    the node's own rules  choose.go    which policies a container gets
//	images.go    what images say       hookfiles.go what the hook must know
//	state.go     /run/dunnage          events.go    what the kernel reports
//	control.go   the control socket    cli_*.go     the commands
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
)

// version is set at build time.
var version = "devel"

func main() { os.Exit(run(os.Args[1:])) }

// hinted is an error with a remedy.
type hinted struct {
	error
	hint string
}

func (h hinted) Unwrap() error { return h.error }

func withHint(err error, hint string) error { return hinted{err, hint} }

// run executes the command line and returns the exit status: 0, 1 for a
// failure, 2 for wrong usage.
func run(args []string) int {
	root := rootCommand()
	root.SetArgs(args)
	err := root.Execute()
	if err == nil {
		return 0
	}
	fmt.Fprintf(os.Stderr, "error: %v\n", err)
	var h hinted
	if errors.As(err, &h) {
		fmt.Fprintf(os.Stderr, "hint: %s\n", h.hint)
	}
	var u usageError
	if errors.As(err, &u) {
		return 2
	}
	return 1
}

type usageError struct{ error }

// extraCommands are those of files with build tags.
var extraCommands []*cobra.Command

func rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "dunnage",
		Short: "A file-access policy on a container, before its first instruction",
		Long: `Dunnage puts a file-access policy on a container before its first instruction
runs, and the kernel enforces it.

A container asks for policies with the annotation io.dunnage.policy=NAME[,NAME…].`,
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.PersistentFlags().String("run-dir", defaultRunDir, "where the daemon's sockets and files are")
	root.AddCommand(daemonCommand(), checkCommand(), psCommand(), cacheCommand(), metricsCommand(), eventsCommand(), attachCommand(), detachCommand(),
		reloadCommand(), stopCommand(), configCommand(), explainCommand(), policyCommand())
	root.AddCommand(extraCommands...)
	return root
}

func exactArgs(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cobra.ExactArgs(n)(cmd, args); err != nil {
			return usageError{fmt.Errorf("%w: dunnage %s", err, cmd.Use)}
		}
		return nil
	}
}
