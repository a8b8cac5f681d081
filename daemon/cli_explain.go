package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/dunnage-project/dunnage/policy"
)

// `dunnage explain` asks the daemon about a live container, `dunnage policy
// explain` a file; both give the same answer in the same words.

// question is what is asked of the daemon.
type question struct {
	Container string   `json:"container"`
	Programs  []string `json:"programs"`
	Inherited []string `json:"inherited,omitempty"`
	Access    string   `json:"access"`
	Path      string   `json:"path"`
}

// explanation is the answer.
type explanation struct {
	Event   *report   `json:"event,omitempty"` // what is explained, with --event
	Verdict string    `json:"verdict"`         // allowed, audit or denied
	Reason  string    `json:"reason"`
	Policy  string    `json:"policy,omitempty"`
	Rule    string    `json:"rule,omitempty"` // effect and place, or "default"
	Near    []nearOne `json:"near,omitempty"` // rules that nearly counted
}

type nearOne struct {
	Policy string `json:"policy"`
	Rule   string `json:"rule"`
	Why    string `json:"why"`
}

func explain(layers []*policy.Policy, s policy.Subject, path string, k policy.Kind) explanation {
	v := policy.Decide(layers, s, path, k)
	e := explanation{Verdict: "denied", Reason: v.Reason.String(), Policy: layers[v.Layer].Name, Rule: ruleName(v)}
	switch {
	case v.Audited:
		e.Verdict = "audit"
	case v.Allowed:
		e.Verdict = "allowed"
	}
	for _, p := range layers {
		for _, near := range policy.NearMisses(p, s, path, k) {
			e.Near = append(e.Near, nearOne{p.Name, fmt.Sprintf("%s %s", near.Rule.Effect, near.Rule.Pos), near.Why})
		}
	}
	return e
}

// print writes the explanation for reading.
func (e explanation) print(w io.Writer) {
	if e.Event != nil {
		fmt.Fprintln(w, e.Event.line())
	}
	if e.Rule == "" {
		fmt.Fprintf(w, "%s: by reason %q, whatever the rules say\n", e.Verdict, e.Reason)
		return
	}
	fmt.Fprintf(w, "%s: %s by %s\n", e.Policy, e.Verdict, e.Rule)
	for _, n := range e.Near {
		fmt.Fprintf(w, "  near: %s: %s\n", n.Rule, n.Why)
	}
}

func (r *registry) explain(q question) (explanation, error) {
	c, err := r.find(q.Container)
	if err != nil {
		return explanation{}, err
	}
	kind, err := policy.KindOf(q.Access)
	if err != nil {
		return explanation{}, err
	}
	if len(c.Layers) == 0 {
		return explanation{}, errors.New("the container's policy text is lost: it was adopted without its file")
	}
	return explain(c.Layers, policy.Subject{Programs: q.Programs, Inherited: q.Inherited}, q.Path, kind), nil
}

// asking is the flags that both commands have.
type asking struct {
	exe, inherited *[]string
	access, output *string
}

func askingFlags(cmd *cobra.Command) asking {
	return asking{
		exe:       cmd.Flags().StringArray("exe", nil, "program that acts (again for a script and its interpreter; none: an exec into the container)"),
		inherited: cmd.Flags().StringArray("inherited", nil, "program whose `inherit` rights the task has kept"),
		access:    cmd.Flags().String("access", "read", "read, modify, create, delete, attr or exec"),
		output:    outputFlag(cmd),
	}
}

func (a asking) show(w io.Writer, e explanation) error {
	if *a.output == "json" {
		return printJSON(w, e)
	}
	e.print(w)
	return nil
}

func explainCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "explain CONTAINER PATH", Short: "Say what a container's policy answers, by which rule, and which rules nearly counted",
		Example: "  dunnage explain pg --exe /usr/bin/cat --access read /var/lib/postgresql/15/main/PG_VERSION\n  dunnage explain --event 17 -o json",
		Args:    cobra.RangeArgs(0, 2)}
	ask := askingFlags(cmd)
	event := cmd.Flags().Int64("event", -1, "explain this event instead")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		q := question{Programs: *ask.exe, Inherited: *ask.inherited, Access: *ask.access}
		var r *report
		switch {
		case *event >= 0 && len(args) == 0:
			found, err := findEvent(daemonOf(cmd), uint64(*event))
			if err != nil {
				return err
			}
			r = &found
			q = question{Container: r.Container, Programs: r.Programs, Inherited: r.Inherited, Access: r.Access, Path: r.Path}
			if r.Reason != policy.ReasonRule.String() && r.Reason != policy.ReasonDefault.String() {
				return ask.show(cmd.OutOrStdout(), explanation{Event: r, Verdict: r.Verdict, Reason: r.Reason})
			}
		case len(args) == 2:
			q.Container, q.Path = args[0], args[1]
		default:
			return usageError{fmt.Errorf("write `dunnage explain CONTAINER PATH` or `dunnage explain --event ID`")}
		}
		var e explanation
		if err := daemonOf(cmd).call("POST", "/v1/explain", q, &e); err != nil {
			return err
		}
		e.Event = r
		return ask.show(cmd.OutOrStdout(), e)
	}
	return cmd
}

func findEvent(c *client, id uint64) (report, error) {
	resp, err := c.open("GET", "/v1/events", nil)
	if err != nil {
		return report{}, err
	}
	defer resp.Body.Close()
	for dec := json.NewDecoder(resp.Body); ; {
		var r report
		if err := dec.Decode(&r); err != nil {
			return report{}, fmt.Errorf("no event %d in the log", id)
		}
		if r.ID == id {
			return r, nil
		}
	}
}

func policyExplain() *cobra.Command {
	cmd := &cobra.Command{Use: "explain FILE|NAME PATH", Short: "Say what a policy answers, by which rule, and which rules nearly counted",
		Example: "  dunnage policy explain pg.yaml --exe /usr/bin/cat --access read /var/lib/postgresql", Args: exactArgs(2)}
	ask := askingFlags(cmd)
	container := containerFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		kind, err := policy.KindOf(*ask.access)
		if err != nil {
			return usageError{err}
		}
		layers, err := layersOf(args[0], *container)
		if err != nil {
			return err
		}
		return ask.show(cmd.OutOrStdout(), explain(layers, policy.Subject{Programs: *ask.exe, Inherited: *ask.inherited}, args[1], kind))
	}
	return cmd
}
