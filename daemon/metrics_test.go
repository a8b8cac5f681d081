package main

import (
	"errors"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dunnage-project/dunnage/bpf"
	"github.com/dunnage-project/dunnage/policy"
)

// What is served is what docs/metrics.md lists, name by name, with its type and
// labels.
func TestMetricsAreDocumented(t *testing.T) {
	r := newFixture(t).registry
	log, err := openEventLog(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r.handle(bpf.Event{Denied: true, Reason: policy.ReasonForeign}, log)
	r.count.reloaded(errors.New("no"))
	answer := httptest.NewRecorder()
	r.metricsHandler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
	body := answer.Body.String()
	if answer.Code != 200 {
		t.Fatalf("%d %s", answer.Code, body)
	}
	for _, line := range []string{
		`dunnage_events_total{reason="foreign",verdict="denied"} 1`,
		`dunnage_reloads_total{result="error"} 1`, `dunnage_reloads_total{result="ok"} 0`,
		`dunnage_rows_max 4096`, `dunnage_cache_refused_total{reason="path"} 3`, `dunnage_containers{state="enforced"} 0`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("not served: %s", line)
		}
	}

	var served []string
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (dunnage_\w+) (\w+)$`).FindAllStringSubmatch(body, -1) {
		var labels []string
		if sample := regexp.MustCompile(`(?m)^` + m[1] + `\{([^}]*)\}`).FindStringSubmatch(body); sample != nil {
			for _, l := range regexp.MustCompile(`(\w+)="`).FindAllStringSubmatch(sample[1], -1) {
				labels = append(labels, l[1])
			}
		}
		served = append(served, strings.Join([]string{m[1], m[2], strings.Join(labels, ", ")}, " | "))
	}
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, m := range regexp.MustCompile("(?m)^\\| `(dunnage_\\w+)` \\| (\\w+) \\| ([^|]*?) ?\\| .+ \\|$").FindAllStringSubmatch(string(text), -1) {
		documented = append(documented, strings.Join([]string{m[1], m[2], m[3]}, " | "))
	}
	slices.Sort(served)
	slices.Sort(documented)
	if !slices.Equal(served, documented) {
		t.Errorf("served:\n%s\ndocumented:\n%s", strings.Join(served, "\n"), strings.Join(documented, "\n"))
	}
}
