// Command bench counts, inside a VM, what an open costs: with nothing of ours in
// the kernel, with the kernel's other ways to confine files, and with Dunnage.
// `make bench` (test/bench/run) starts it there; anywhere else it refuses. It
// prints JSON, which test/bench/report turns into tables. Nothing imports it.
package main

import (
	"encoding/json"
	"fmt"
	"os"
)

func main() {
	args := os.Args[1:]
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "usage: bench micro [short|check] | loads [NAME…] | scaling\nrun it by make bench")
		os.Exit(2)
	}
	var result any
	var err error
	switch args[0] {
	case "child": // these two run in the containers that bench makes
		err = child(args[1:])
	case "loop":
		result, err = loop(args[1:])
	case "work":
		err = work(args[1:])
	default:
		if os.Getenv("DUNNAGE_VM") == "" {
			fmt.Fprintln(os.Stderr, "error: bench changes the kernel it runs on: start it in the VM, by make bench")
			os.Exit(2)
		}
		switch args[0] {
		case "micro":
			result, err = micro(args[1:])
		case "loads":
			result, err = loads(args[1:])
		case "profile":
			err = profile(args[1:])
		case "scaling":
			result, err = scaling()
		default:
			err = fmt.Errorf("no benchmark %q", args[0])
		}
	}
	if err == nil && result != nil {
		err = json.NewEncoder(os.Stdout).Encode(result)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}
