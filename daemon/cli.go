package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// daemonOf is the client for the daemon that a command is to ask.
func daemonOf(cmd *cobra.Command) *client {
	dir, _ := cmd.Flags().GetString("run-dir")
	return newClient(dir)
}

func outputFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("output", "o", "text", "text or json")
}

// printJSON writes v as indented JSON.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func psCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "ps", Short: "List the confined containers", Example: "  dunnage ps\n  dunnage ps -o json", Args: exactArgs(0)}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var lines []psLine
		if err := daemonOf(cmd).call("GET", "/v1/ps", nil, &lines); err != nil {
			return err
		}
		if *output == "json" {
			return printJSON(cmd.OutOrStdout(), lines)
		}
		w := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 8, 2, ' ', 0)
		fmt.Fprintln(w, "CONTAINER\tNAME\tPOLICY\tMODE\tSTATE\tPID\tTASKS\tEVENTS")
		for _, l := range lines {
			fmt.Fprintf(w, "%.12s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\n", visible(l.ID), visible(l.Name), strings.Join(l.Policies, ","), l.Mode, l.State, l.PID, l.Tasks, l.Events+l.Muted)
		}
		return w.Flush()
	}
	return cmd
}

func eventsCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "events", Short: "Show what was denied, and what audit policies would deny",
		Example: "  dunnage events\n  dunnage events --follow -o json", Args: exactArgs(0)}
	output := outputFlag(cmd)
	follow := cmd.Flags().BoolP("follow", "f", false, "go on as events come")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		resp, err := daemonOf(cmd).open("GET", fmt.Sprintf("/v1/events?follow=%v", *follow), nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if *output == "json" {
			_, err := io.Copy(cmd.OutOrStdout(), resp.Body)
			return err
		}
		for dec := json.NewDecoder(resp.Body); ; {
			var r report
			if err := dec.Decode(&r); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			fmt.Fprintln(cmd.OutOrStdout(), r.line())
		}
	}
	return cmd
}

// line is an event for reading.
func (r report) line() string {
	who := r.Name
	if who == "" {
		who = fmt.Sprintf("%.12s", r.Container)
	}
	if r.Verdict == verdictUnconfined {
		return visible(fmt.Sprintf("%s %s %s[%d]: it should have policies and has none (%s)", r.Time.Local().Format(time.TimeOnly), r.Verdict, who, r.PID, strings.TrimSuffix(r.Reason+": "+r.Rule, ": ")))
	}
	exe := r.Executable
	if exe == "" {
		exe = "(exec into the container)"
	}
	why := r.Reason
	if r.Rule != "" {
		why = fmt.Sprintf("%s: %s", r.Policy, r.Rule)
	}
	return visible(fmt.Sprintf("%s #%d %s %s: %s[%d] %s %q (%s)", r.Time.Local().Format(time.TimeOnly), r.ID, r.Verdict, who, exe, r.PID, r.Access, r.Path, why))
}

func reloadCommand() *cobra.Command {
	return &cobra.Command{Use: "reload", Short: "Read the policies anew, also for running containers",
		Long: `Reads the policies anew. Every task of a running container has the new policy's
rights at once. A container whose policy has an error keeps the old one, and
the command says so.`,
		Example: "  dunnage reload", Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return daemonOf(cmd).call("POST", "/v1/reload", nil, nil) }}
}

func stopCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "stop", Short: "End the daemon; with --release, take enforcement off",
		Example: "  dunnage stop\n  dunnage stop --release", Args: exactArgs(0)}
	release := cmd.Flags().Bool("release", false, "take enforcement off too: running containers are no longer confined")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return daemonOf(cmd).call("POST", fmt.Sprintf("/v1/stop?release=%v", *release), nil, nil)
	}
	return cmd
}
