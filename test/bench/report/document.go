package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
)

// document writes the tables into a document, between the lines that name them.
func document(r Results, path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(data)
	for name, table := range map[string]string{
		"kernels": kernels(r), "depth": axis(r.Micro[0], "depth", func(p Point) (int, bool) { return p.Depth, p.Rules <= 10 && p.Containers <= 1 }),
		"rules":      axis(r.Micro[0], "rules", func(p Point) (int, bool) { return p.Rules, p.Depth == 5 && p.Rules >= 10 && p.Containers <= 1 }),
		"containers": axis(r.Micro[0], "containers", func(p Point) (int, bool) { return p.Containers, p.Depth == 5 && p.Rules == 10 && p.Containers > 0 }),
		"loads":      loads(r), "scaling": scaling(r), "profile": profile(r), "claim": claim(r),
	} {
		begin, end := "<!-- bench: "+name+" -->\n", "<!-- end -->\n"
		i := strings.Index(text, begin)
		if i < 0 {
			return fmt.Errorf("%s: no line %q", path, strings.TrimSpace(begin))
		}
		i += len(begin)
		j := strings.Index(text[i:], end)
		if j < 0 {
			return fmt.Errorf("%s: no line %q after %q", path, strings.TrimSpace(end), strings.TrimSpace(begin))
		}
		text = text[:i] + table + text[i+j:]
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// table is a table of Markdown.
func table(head []string, rows [][]string) string {
	var s strings.Builder
	line := func(cells []string) { fmt.Fprintf(&s, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	rule := make([]string, len(head))
	for i := range rule {
		rule[i] = "---:"
	}
	rule[0] = "---"
	line(rule)
	for _, r := range rows {
		line(r)
	}
	return s.String()
}

// series are the series of a run, in order.
func series(m Micro) []string {
	var out []string
	for _, p := range m.Points {
		if p.Series != "nothing" && !slices.Contains(out, p.Series) {
			out = append(out, p.Series)
		}
	}
	return out
}

func added(f float64) string { return fmt.Sprintf("%+.0f", f) }

// kernels is the cost at depth 5, ten rules, one container, by kernel.
func kernels(r Results) string {
	head := []string{"an open and close at depth 5"}
	for _, m := range r.Micro {
		head = append(head, m.Kernel)
	}
	row := []string{"nothing: the instructions it takes"}
	for _, m := range r.Micro {
		if p, ok := at5(m, "nothing"); ok {
			row = append(row, fmt.Sprintf("%.0f", p.Total))
		} else {
			row = append(row, "")
		}
	}
	rows := [][]string{row}
	for _, s := range series(r.Micro[0]) {
		row := []string{s}
		for _, m := range r.Micro {
			if p, ok := at5(m, s); ok {
				row = append(row, added(p.Added))
			} else {
				row = append(row, "")
			}
		}
		rows = append(rows, row)
	}
	return table(head, rows)
}

func at5(m Micro, s string) (Point, bool) {
	for _, p := range m.Points {
		if p.Series == s && p.Depth == 5 && p.Rules <= 10 && p.Containers <= 1 {
			return p, true
		}
	}
	return Point{}, false
}

// axis is every series that was measured at more than one place of an axis.
func axis(m Micro, name string, at func(Point) (int, bool)) string {
	values := []int{}
	cells := map[string]map[int]string{}
	for _, p := range m.Points {
		x, ok := at(p)
		if !ok {
			continue
		}
		if cells[p.Series] == nil {
			cells[p.Series] = map[int]string{}
		}
		if cells[p.Series][x] == "" { // the first has the fewest rules
			cells[p.Series][x] = added(p.Added)
		}
		if !slices.Contains(values, x) {
			values = append(values, x)
		}
	}
	slices.Sort(values)
	head := []string{name}
	for _, v := range values {
		head = append(head, fmt.Sprint(v))
	}
	var rows [][]string
	for _, s := range series(m) {
		if len(cells[s]) < 2 {
			continue
		}
		row := []string{s}
		for _, v := range values {
			row = append(row, cells[s][v])
		}
		rows = append(rows, row)
	}
	return table(head, rows)
}

func loads(r Results) string {
	var rows [][]string
	for _, l := range r.Loads {
		rows = append(rows, []string{l.Name, fmt.Sprintf("%.1f", l.Off), fmt.Sprintf("%+.2f %%", 100*(l.Cached/l.Off-1)),
			fmt.Sprintf("%+.2f %%", 100*(l.Walked/l.Off-1)), fmt.Sprint(l.Hits), fmt.Sprintf("%.2f %%", 100*l.HitRate)})
	}
	return table([]string{"workload", "million instructions", "with a policy", "without the cache", "hits", "hit rate"}, rows)
}

// claim is the first workload: what the cache saves of what enforcing takes.
func claim(r Results) string {
	const opens = 0.2 // millions
	for _, l := range r.Loads {
		if l.Name == "one file" {
			row := func(what string, all float64) []string {
				return []string{what, fmt.Sprintf("%.0f million", all), added((all - l.Off) / opens)}
			}
			return table([]string{"200,000 opens of one file", "instructions", "added to an open"}, [][]string{
				row("nothing of ours in the kernel", l.Off), row("a policy, cache off", l.Walked), row("a policy, cache on", l.Cached),
			})
		}
	}
	return ""
}

// profile is where the instructions go that are not there without anything of
// ours.
func profile(r Results) string {
	base, cached, walked := r.Profile["nothing"], r.Profile["cached"], r.Profile["walked"]
	var names []string
	for _, m := range r.Profile {
		for name := range m {
			if !slices.Contains(names, name) && (math.Abs(cached[name]-base[name]) >= 1 || math.Abs(walked[name]-base[name]) >= 1) {
				names = append(names, name)
			}
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(walked[b]-base[b], walked[a]-base[a]), cmp.Compare(a, b))
	})
	var rows [][]string
	var sumWalked, sumCached float64
	for _, name := range names {
		w, c := walked[name]-base[name], cached[name]-base[name]
		sumWalked, sumCached = sumWalked+w, sumCached+c
		rows = append(rows, []string{"`" + name + "`", added(w), added(c)})
	}
	rows = append(rows, []string{"sum", added(sumWalked), added(sumCached)})
	return table([]string{"function", "cache off", "cache on"}, rows)
}

func scaling(r Results) string {
	if r.Scaling == nil {
		return ""
	}
	return table([]string{"two processors against one, wall time", "times as many opens"}, [][]string{
		{"nothing", fmt.Sprintf("%.2f", r.Scaling.Nothing)}, {"cached", fmt.Sprintf("%.2f", r.Scaling.Cached)},
	})
}
