package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/dunnage-project/dunnage/bpf"
	"github.com/dunnage-project/dunnage/policy"
)

// pins is where the bench's own kernel part lives.
const pins = "/sys/fs/bpf/bench"

// compile is a policy's table. Accesses that a rule doesn't name are denied.
func compile(mode, fallback string, rules []string) (*policy.Automaton, error) {
	text := "apiVersion: dunnage.io/v1\nkind: Policy\nmetadata: {name: bench}\nspec:\n  mode: " + mode +
		"\n  default: " + fallback + "\n  rules:\n" + strings.Join(rules, "")
	policies, problems := policy.ParseFile("bench.yaml", []byte(text))
	if len(policies) != 1 {
		return nil, fmt.Errorf("%v", problems)
	}
	return policy.Compile(policies)
}

// allow is one rule.
func allow(access string, paths ...string) string {
	return fmt.Sprintf("  - {effect: allow, paths: [%s], access: [%s]}\n", `"`+strings.Join(paths, `", "`)+`"`, access)
}

// confine puts a table on a waiting child: its next exec labels it.
func confine(e *bpf.Engine, p *process, a *policy.Automaton) (bpf.Instance, bpf.Table, error) {
	table, err := e.Install(a)
	if err != nil {
		return 0, 0, err
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", p.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	defer ns.Close()
	id, err := e.NamespaceID(int(ns.Fd()))
	if err != nil {
		return 0, 0, err
	}
	instance, err := e.Bind(bpf.Binding{Namespace: id, Init: p.cmd.Process.Pid, Table: table, State: bpf.Enforced})
	return instance, table, err
}

// emptyProgram attaches an LSM program that does nothing to file_open: the floor
// of everything that is built on BPF. It returns what takes it off.
func emptyProgram() (func() error, error) {
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "empty", Type: ebpf.LSM, AttachType: ebpf.AttachLSMMac, AttachTo: "file_open", License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		return nil, err
	}
	l, err := link.AttachLSM(link.LSMOptions{Program: program})
	if err != nil {
		return nil, err
	}
	return func() error {
		defer program.Close()
		return l.Close()
	}, nil
}
