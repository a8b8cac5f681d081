package main

import (
	"fmt"
	"os"

	"github.com/dunnage-project/dunnage/bpf"
)

// profile runs a loop for so long that test/bench/profile, on the host, can log
// each instruction of some of it. The names of the kernel's functions, with the
// programs loaded, are left in a file of results. The loop says on standard error
// when it has begun (see loop).
func profile(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("profile: want ever, nothing, cached or walked")
	}
	if err := makeTree(axesOf([]string{"short"})); err != nil {
		return err
	}
	o := orders{Argv: []string{"/bench", "loop", file(5), "200", "1500"}}
	run := func(prepare func(*process) error) error {
		p, err := startChild(root, false)
		if err != nil {
			return err
		}
		if prepare != nil {
			if err := prepare(p); err != nil {
				return err
			}
		}
		names, err := os.ReadFile("/proc/kallsyms")
		if err != nil {
			return err
		}
		if err := os.WriteFile("/vm/results/kallsyms", names, 0o644); err != nil {
			return err
		}
		fmt.Fprintln(os.Stderr, "profile: begins")
		out, err := p.run(o)
		if err != nil {
			return err
		}
		_, err = quantile(out, 1, 4, false)
		return err
	}
	if args[0] == "ever" { // see none()
		return run(nil)
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
	if args[0] == "nothing" {
		return run(nil)
	}
	a, err := compile("enforce", "deny", spread(10, allow("read, exec", "/bench"), allow("read", dir(5))))
	if err != nil {
		return err
	}
	return with(bpf.Options{NoCache: args[0] == "walked"}, func(e *bpf.Engine) error {
		return run(func(p *process) error {
			_, _, err := confine(e, p, a)
			return err
		})
	})
}
