package main

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"
)

// Metrics are served in Prometheus' form on RUN-DIR/metrics.sock, for root.
// What the kernel part counts is read when somebody asks, so that nothing is
// added to what it does; docs/metrics.md lists all of them.

// counters is what the daemon itself counts.
type counters struct {
	requests, events, reloads *prometheus.CounterVec
}

func newCounters() counters {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	c := counters{
		requests: vec("dunnage_hook_requests_total", "Requests of hooks, by the code of the answer.", "code"),
		events:   vec("dunnage_events_total", "Events that were written, by verdict and reason.", "verdict", "reason"),
		reloads:  vec("dunnage_reloads_total", "Reloads of policies and configuration, by result: ok, or error (nothing changed).", "result"),
	}
	c.requests.WithLabelValues("ok")
	c.reloads.WithLabelValues("ok")
	c.reloads.WithLabelValues("error")
	return c
}

func (c counters) reloaded(err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	c.reloads.WithLabelValues(result).Inc()
}

// gauge describes one number that is read when asked for.
type gauge struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func reading(kind prometheus.ValueType, name, help string, labels ...string) gauge {
	return gauge{prometheus.NewDesc(name, help, labels, nil), kind}
}

var (
	gContainers   = reading(prometheus.GaugeValue, "dunnage_containers", "Containers with policies, by state.", "state")
	gRows         = reading(prometheus.GaugeValue, "dunnage_rows", "Rows for containers in use.")
	gRowsMax      = reading(prometheus.GaugeValue, "dunnage_rows_max", "Rows for containers that there are: one more container is refused.")
	gTables       = reading(prometheus.GaugeValue, "dunnage_table_bytes", "Memory for tables in use.")
	gTablesMax    = reading(prometheus.GaugeValue, "dunnage_table_bytes_max", "Memory for tables that there is.")
	gPrograms     = reading(prometheus.GaugeValue, "dunnage_programs", "Paths of programs kept for labels.")
	gProgramsMax  = reading(prometheus.GaugeValue, "dunnage_programs_max", "Paths of programs that can be kept: over it an exec is denied.")
	gMuted        = reading(prometheus.CounterValue, "dunnage_events_muted_total", "Judgements that were counted and not written: over a container's budget, or the ring was full.")
	gLost         = reading(prometheus.CounterValue, "dunnage_events_lost_total", "Those of them that found the ring full, since the kernel part was first loaded.")
	gCacheEntries = reading(prometheus.GaugeValue, "dunnage_cache_entries", "Directories that the cache can hold; 0: it is off.")
	gCacheHits    = reading(prometheus.CounterValue, "dunnage_cache_hits_total", "Paths answered from the cache, counted in bundles of 64 a task.")
	gCacheFills   = reading(prometheus.CounterValue, "dunnage_cache_fills_total", "Walks that were stored.")
	gCacheRefused = reading(prometheus.CounterValue, "dunnage_cache_refused_total", "Walks that were not stored, by reason.", "reason")
	gCacheStale   = reading(prometheus.CounterValue, "dunnage_cache_stale_total", "Entries found dead when stored anew, by what had changed.", "reason")
	gCacheEvicted = reading(prometheus.CounterValue, "dunnage_cache_evicted_total", "Entries written over by another directory's.")

	gauges = []gauge{gContainers, gRows, gRowsMax, gTables, gTablesMax, gPrograms, gProgramsMax, gMuted, gLost,
		gCacheEntries, gCacheHits, gCacheFills, gCacheRefused, gCacheStale, gCacheEvicted}
)

// Describe and Collect make the registry a prometheus.Collector.
func (r *registry) Describe(out chan<- *prometheus.Desc) {
	for _, g := range gauges {
		out <- g.desc
	}
}

func (r *registry) Collect(out chan<- prometheus.Metric) {
	say := func(g gauge, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(g.desc, g.kind, value, labels...)
	}
	t, err := r.kernel.Totals()
	if err != nil {
		out <- prometheus.NewInvalidMetric(gRows.desc, err)
		return
	}
	say(gRows, float64(t.Rows))
	say(gRowsMax, float64(t.RowsMax))
	say(gTables, float64(t.HeapBytes))
	say(gTablesMax, float64(t.HeapBytesMax))
	say(gPrograms, float64(t.Programs))
	say(gProgramsMax, float64(t.ProgramsMax))
	say(gMuted, float64(t.Muted))
	say(gLost, float64(t.Lost))
	c := r.kernel.CacheTotals()
	say(gCacheEntries, float64(r.kernel.CacheEntries()))
	say(gCacheHits, float64(c.Hit))
	say(gCacheFills, float64(c.Fill))
	say(gCacheEvicted, float64(c.Evicted))
	for reason, n := range c.Refused {
		say(gCacheRefused, float64(n), reason)
	}
	for reason, n := range c.Stale {
		say(gCacheStale, float64(n), reason)
	}
	states := map[string]int{"armed": 0, "enforced": 0, "partial": 0, "detached": 0, "ended": 0}
	r.mu.Lock()
	for _, c := range r.containers {
		states[c.word()]++
	}
	r.mu.Unlock()
	for state, n := range states {
		say(gContainers, float64(n), state)
	}
}

func (r *registry) metricsHandler() http.Handler {
	all := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "dunnage_info", Help: "1, with the daemon's release.", ConstLabels: prometheus.Labels{"version": version}})
	info.Set(1)
	all.MustRegister(r, info, r.count.requests, r.count.events, r.count.reloads,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(all, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

func metricsCommand() *cobra.Command {
	return &cobra.Command{Use: "metrics", Short: "Print the daemon's metrics in Prometheus' form",
		Long: `Prints what RUN-DIR/metrics.sock answers: how many containers are confined, how
full the kernel part is, events and what was lost of them, the cache.`,
		Example: "  dunnage metrics\n  curl --unix-socket /run/dunnage/metrics.sock http://dunnage/metrics", Args: exactArgs(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, _ := cmd.Flags().GetString("run-dir")
			resp, err := clientAt(filepath.Join(dir, "metrics.sock")).open("GET", "/metrics", nil)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if _, err := io.Copy(cmd.OutOrStdout(), resp.Body); err != nil {
				return fmt.Errorf("reading the metrics: %w", err)
			}
			return nil
		}}
}
