package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/dunnage-project/dunnage/bpf"
)

// cacheReply is what `dunnage cache` shows.
type cacheReply struct {
	Off        string           `json:"off,omitempty"` // why there is no cache
	Entries    int              `json:"entries"`       // directories that it can hold
	Total      bpf.CacheCounts  `json:"total"`         // since the daemon began, ended containers included
	Containers []containerCache `json:"containers"`
}

type containerCache struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	bpf.CacheCounts
}

func (r *registry) cache() cacheReply {
	reply := cacheReply{Off: r.kernel.CacheOff(), Entries: r.kernel.CacheEntries(), Total: r.kernel.CacheTotals(), Containers: []containerCache{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.containers {
		if counts, err := r.kernel.CacheCounts(c.Instance); err == nil {
			reply.Containers = append(reply.Containers, containerCache{c.ID, c.Name, counts})
		}
	}
	return reply
}

func cacheCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "cache", Short: "Show what the cache answers, and why it does not",
		Long: `Shows the cache's counts. A path is answered from the cache (hit), or walked and
its directory stored (fill), or walked and not stored (refused, by reason). An
entry is stale when something moved since it was stored, and evicted when
another directory took its place. Hits are counted in bundles of 64 a task.`,
		Example: "  dunnage cache\n  dunnage cache -o json", Args: exactArgs(0)}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var reply cacheReply
		if err := daemonOf(cmd).call("GET", "/v1/cache", nil, &reply); err != nil {
			return err
		}
		if *output == "json" {
			return printJSON(cmd.OutOrStdout(), reply)
		}
		return reply.print(cmd.OutOrStdout())
	}
	return cmd
}

func (r cacheReply) print(out io.Writer) error {
	if r.Off != "" {
		fmt.Fprintf(out, "off: %s\n", r.Off)
		return nil
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	head, row := "CONTAINER\tHIT\tFILL\tEVICTED", func(who string, c bpf.CacheCounts) string {
		return fmt.Sprintf("%.12s\t%d\t%d\t%d", who, c.Hit, c.Fill, c.Evicted)
	}
	reasons := func(kind string, of func(bpf.CacheCounts) map[string]uint64) {
		for _, name := range slices.Sorted(maps.Keys(of(r.Total))) {
			inner := row
			head += fmt.Sprintf("\t%s: %s", kind, name)
			row = func(who string, c bpf.CacheCounts) string { return inner(who, c) + fmt.Sprintf("\t%d", of(c)[name]) }
		}
	}
	reasons("refused", func(c bpf.CacheCounts) map[string]uint64 { return c.Refused })
	reasons("stale", func(c bpf.CacheCounts) map[string]uint64 { return c.Stale })
	fmt.Fprintln(w, head)
	for _, c := range r.Containers {
		who := c.Name
		if who == "" {
			who = c.ID
		}
		fmt.Fprintln(w, row(who, c.CacheCounts))
	}
	fmt.Fprintln(w, row("all", r.Total))
	return w.Flush()
}
