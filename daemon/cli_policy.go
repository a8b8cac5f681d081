package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dunnage-project/dunnage/bpf"
	"github.com/dunnage-project/dunnage/policy"
)

// The `dunnage policy` commands work on files alone; no daemon is needed.

func policyCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Work on policy files; no daemon is needed"}
	cmd.AddCommand(policyCheck(), policyExplain(), policyTest(), policyDiff(), policyFmt(), policyConvert(), policyShow(), policySchema(), signCommand())
	return cmd
}

func filesArg(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError{fmt.Errorf("name a file: dunnage policy %s", cmd.Use)}
	}
	return nil
}

// finding is a diagnostic as JSON.
type finding struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Column   int    `json:"column"`
	Severity string `json:"severity"` // error or warning
	Message  string `json:"message"`
	Hint     string `json:"hint,omitempty"`
}

// checked is a policy that compiles.
type checked struct {
	Name      string `json:"name"`
	Container string `json:"container,omitempty"` // the pattern that its rules are for
	Rules     int    `json:"rules"`
	States    int    `json:"states"`
	Digest    string `json:"digest"`
}

func checkedAs(name string, part policy.Part, a *policy.Automaton) checked {
	c := checked{Name: name, Container: part.Container, States: len(a.Paths.States), Digest: fmt.Sprintf("%x", a.Digest[:6])}
	for _, p := range part.Layers {
		c.Rules += len(p.Rules)
	}
	return c
}

// String is a line of the summary.
func (c checked) String() string {
	who := c.Name
	if c.Container != "" {
		who += " for " + c.Container
	}
	return fmt.Sprintf("%s: %d rules, %d states, digest %s", who, c.Rules, c.States, c.Digest)
}

func policyCheck() *cobra.Command {
	cmd := &cobra.Command{Use: "check FILE…", Short: "Check policy files, and warn of what is probably not meant",
		Long: `Reads the files together, as the daemon would read a folder, and compiles each
policy. Warnings name rules that are never used, contradictions, paths that are
usually symbolic links in images. With --kernel they also name the rules that
the running kernel can't enforce. The exit status is 1 if there is an error.`,
		Example: "  dunnage policy check /etc/dunnage/policies.d/*.yaml\n  dunnage policy check --kernel -o json pg.yaml", Args: filesArg}
	output := outputFlag(cmd)
	kernel := cmd.Flags().Bool("kernel", false, "also name what the running kernel would not enforce")
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		var gaps []bpf.Gap
		if *kernel {
			gaps = bpf.Gaps()
		}
		set := policy.LoadFiles(files...)
		diags := slices.Clone(set.Problems())
		policies := []checked{}
		for _, name := range set.Names() {
			p, err := set.Lookup(name)
			if err != nil {
				return err
			}
			for _, one := range p.Parts() {
				for _, layer := range one.Layers {
					diags = append(diags, policy.Lint(layer)...)
					diags = append(diags, unenforced(layer, gaps)...)
				}
				a, err := policy.Compile(one.Layers)
				if err != nil {
					diags = append(diags, policy.Diagnostic{Pos: one.Layers[0].Pos, Message: err.Error()})
					continue
				}
				policies = append(policies, checkedAs(name, one, a))
			}
		}
		diags = once(diags) // a block that several policies include says it once
		if *output == "json" {
			if err := printJSON(cmd.OutOrStdout(), map[string]any{"policies": policies, "findings": findingsOf(diags)}); err != nil {
				return err
			}
		} else {
			for _, d := range diags {
				fmt.Fprintln(cmd.ErrOrStderr(), d)
			}
			for _, c := range policies {
				fmt.Fprintln(cmd.OutOrStdout(), c)
			}
		}
		if diags.Err() != nil {
			return fmt.Errorf("the files have errors")
		}
		return nil
	}
	return cmd
}

// once leaves out what was said before.
func once(diags policy.Diagnostics) policy.Diagnostics {
	seen := map[policy.Diagnostic]bool{}
	return slices.DeleteFunc(diags, func(d policy.Diagnostic) bool {
		before := seen[d]
		seen[d] = true
		return before
	})
}

// unenforced is a warning for each part of a policy that meets a gap.
func unenforced(p *policy.Policy, gaps []bpf.Gap) (out policy.Diagnostics) {
	for _, n := range p.Needs() {
		for _, g := range gaps {
			if both, ok := n.Meet(g.Need); ok {
				out = append(out, policy.Diagnostic{Warning: true, Pos: n.Pos, Hint: g.Remedy,
					Message: fmt.Sprintf("not enforced here (%s): %s", both, g.Detail)})
			}
		}
	}
	return out
}

func findingsOf(diags policy.Diagnostics) []finding {
	out := []finding{}
	for _, d := range diags {
		severity := "error"
		if d.Warning {
			severity = "warning"
		}
		out = append(out, finding{d.Pos.File, d.Pos.Line, d.Pos.Column, severity, d.Message, d.Hint})
	}
	return out
}

// installed is where the daemon reads policies by default.
const installed = "/etc/dunnage/policies.d"

// only is the one policy of a file, or the installed one of that name; what a
// file includes is looked for beside it.
func only(file string) (*policy.Policy, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) && policy.ValidName(file) {
		set, err := policy.LoadDir(installed)
		if err != nil {
			return nil, err
		}
		p, err := set.Lookup(file)
		if err != nil {
			return nil, withHint(fmt.Errorf("%s is no file, and in %s: %w", file, installed, err), "name a policy file, or an installed policy")
		}
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	here, diags := policy.ParseFile(file, data)
	if err := diags.Err(); err != nil {
		return nil, err
	}
	if len(here) != 1 {
		return nil, fmt.Errorf("%s has %d policies: this command takes one", file, len(here))
	}
	set := policy.LoadFiles(file)
	if len(here[0].Include) > 0 {
		if set, err = policy.LoadDir(filepath.Dir(file)); err != nil {
			return nil, err
		}
	}
	return set.Lookup(here[0].Name)
}

func containerFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("container", "", "namespace:pod:container, to choose among rules for some containers only (`container =`)")
}

// layersOf is the layers that a policy is for a container.
func layersOf(file, container string) ([]*policy.Policy, error) {
	where, err := policy.ParseContainer(container)
	if err != nil {
		return nil, usageError{err}
	}
	p, err := only(file)
	if err != nil {
		return nil, err
	}
	return p.For(where), nil
}

func compiled(file, container string) (*policy.Automaton, error) {
	layers, err := layersOf(file, container)
	if err != nil {
		return nil, err
	}
	return policy.Compile(layers)
}

// junit is the part of the JUnit format that test runners read.
type junit struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
}

func policyTest() *cobra.Command {
	cmd := &cobra.Command{Use: "test FILE…", Short: "Run the tests that are written beside policies",
		Long: `Reads policies and documents of kind PolicyTest from the files, asks each case
and compares the answer. The exit status is 1 if one differs.`,
		Example: "  dunnage policy test policies/*.yaml\n  dunnage policy test --junit report.xml policies/*.yaml", Args: filesArg}
	container := containerFlag(cmd)
	report := cmd.Flags().String("junit", "", "also write a JUnit report to this file")
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		where, err := policy.ParseContainer(*container)
		if err != nil {
			return usageError{err}
		}
		set := policy.LoadFiles(files...)
		if err := set.Problems().Err(); err != nil {
			return err
		}
		suite := junit{Name: "dunnage policy test"}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			tests, diags := policy.ParseTests(file, data)
			if err := diags.Err(); err != nil {
				return err
			}
			for _, t := range tests {
				if t.Container == (policy.Container{}) {
					t.Container = where
				}
				results, err := t.Run(set)
				if err != nil {
					return err
				}
				for _, r := range results {
					one := junitCase{Name: fmt.Sprintf("%s %s %s", r.Case.Pos, r.Case.Access, r.Case.Path)}
					if r.Err != nil {
						one.Failure = &junitFailure{r.Err.Error()}
						suite.Failures++
						fmt.Fprintln(cmd.ErrOrStderr(), r.Err)
					}
					suite.Cases = append(suite.Cases, one)
				}
			}
		}
		suite.Tests = len(suite.Cases)
		if *report != "" {
			out, err := xml.MarshalIndent(suite, "", "  ")
			if err == nil {
				err = os.WriteFile(*report, append([]byte(xml.Header), append(out, '\n')...), 0o644)
			}
			if err != nil {
				return fmt.Errorf("writing the report: %w", err)
			}
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%d passed, %d failed\n", suite.Tests-suite.Failures, suite.Failures)
		switch {
		case suite.Tests == 0:
			return withHint(fmt.Errorf("the files have no tests"), "write a document of kind PolicyTest; see the language reference")
		case suite.Failures > 0:
			return fmt.Errorf("%d of %d cases failed", suite.Failures, suite.Tests)
		}
		return nil
	}
	return cmd
}

func policyDiff() *cobra.Command {
	cmd := &cobra.Command{Use: "diff OLD NEW", Short: "Say what becomes allowed or denied between two policies",
		Long: `Compares what two policies answer, not their texts: the difference of the two
automata, over all paths, for nobody and for each kind of program. Paths are examples.`,
		Example: "  dunnage policy diff pg.yaml pg-new.yaml", Args: exactArgs(2)}
	container := containerFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		before, err := compiled(args[0], *container)
		if err != nil {
			return err
		}
		after, err := compiled(args[1], *container)
		if err != nil {
			return err
		}
		d, err := policy.Diff(before, after)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		for _, c := range d.Changes {
			fmt.Fprintf(out, "%s → %s: %s, %s: %v\n", c.Old, c.New, c.Kind, whoOf(c), c.Paths)
		}
		if d.OldMounts != d.NewMounts {
			fmt.Fprintf(out, "%s → %s: mounts\n", d.OldMounts, d.NewMounts)
		}
		if d.OldMemfdExec != d.NewMemfdExec {
			fmt.Fprintf(out, "%s → %s: memfdExec\n", d.OldMemfdExec, d.NewMemfdExec)
		}
		return nil
	}
	return cmd
}

// whoOf names those whom a change concerns.
func whoOf(c policy.Change) string {
	who := slices.Clone(c.Subject.Programs)
	for _, p := range c.Subject.Inherited {
		who = append(who, "what "+p+" started")
	}
	switch {
	case c.Anybody:
		return "anybody"
	case len(who) == 0:
		return "an exec into the container"
	}
	return strings.Join(who, " with ")
}

func policyFmt() *cobra.Command {
	cmd := &cobra.Command{Use: "fmt FILE…", Short: "Format policy files", Example: "  dunnage policy fmt -w policies/*.yaml", Args: filesArg}
	write := cmd.Flags().BoolP("write", "w", false, "write the files instead of printing them")
	cmd.RunE = func(cmd *cobra.Command, files []string) error {
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			out, diags := policy.Format(file, data)
			if err := diags.Err(); err != nil {
				return err
			}
			switch {
			case !*write:
				_, err = cmd.OutOrStdout().Write(out)
			case !bytes.Equal(out, data):
				err = writeFile(file, out)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

func policyConvert() *cobra.Command {
	return &cobra.Command{Use: "convert FILE", Short: "Print a Bomfather file, or one with includes, in the native form",
		Example: "  dunnage policy convert bomfather.yaml > pg.yaml", Args: exactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := only(args[0])
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(policy.Convert(p))
			return err
		}}
}

func policyShow() *cobra.Command {
	cmd := &cobra.Command{Use: "show FILE|NAME", Short: "Show what a policy compiles to", Example: "  dunnage policy show --automaton pg.yaml | dot -Tsvg", Args: exactArgs(1)}
	dot := cmd.Flags().Bool("automaton", false, "as a graph for Graphviz")
	container := containerFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a, err := compiled(args[0], *container)
		if err != nil {
			return err
		}
		if *dot {
			return a.Dot(cmd.OutOrStdout())
		}
		fmt.Fprintf(cmd.OutOrStdout(), "digest %x\n%d states, %d rows, %d subject groups, %d globs; %d states for programs\n",
			a.Digest, len(a.Paths.States), len(a.Rows), a.Groups, len(a.Paths.Globs), len(a.Programs.States))
		return nil
	}
	return cmd
}

func policySchema() *cobra.Command {
	return &cobra.Command{Use: "schema", Short: "Print the JSON Schema of policies and their tests, for editors",
		Example: "  dunnage policy schema > dunnage.schema.json   # then: # yaml-language-server: $schema=dunnage.schema.json", Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := io.WriteString(cmd.OutOrStdout(), policy.Schema())
			return err
		}}
}
