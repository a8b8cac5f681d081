package main

import (
	"cmp"
	"fmt"
	"image/color"
	"os"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// shown are the series of the plot, each with its colour.
var shown = []struct {
	series, label string
	colour        color.RGBA
}{
	{"Landlock, rule on /", "Landlock, rule on /", color.RGBA{0xd6, 0x27, 0x28, 255}},
	{"AppArmor", "AppArmor", color.RGBA{0xff, 0x7f, 0x0e, 255}},
	{"walked, name", "Dunnage, not cached", color.RGBA{0x7f, 0x7f, 0x7f, 255}},
	{"Landlock, rule on directory", "Landlock, rule on the directory", color.RGBA{0x94, 0x67, 0xbd, 255}},
	{"cached, name", "Dunnage, cached, a name to look at", color.RGBA{0x17, 0xbe, 0xcf, 255}},
	{"cached, directory", "Dunnage, cached", color.RGBA{0x1f, 0x77, 0xb4, 255}},
	{"empty LSM program", "an empty BPF program", color.RGBA{0x2c, 0xa0, 0x2c, 255}},
}

// draw makes the picture: cost against depth and against rules.
func draw(m Micro, path string) error {
	depth, err := panel(m, "By depth of the path", "components", true, func(p Point) (int, bool) {
		return p.Depth, p.Rules <= 10 && p.Containers <= 1
	})
	if err != nil {
		return err
	}
	rules, err := panel(m, "By rules in the policy", "rules", false, func(p Point) (int, bool) {
		return p.Rules, p.Depth == 5 && p.Rules >= 10 && p.Containers <= 1
	})
	if err != nil {
		return err
	}
	depth.Y.Label.Text = "instructions added to an open and close"
	c := vgsvg.New(26*vg.Centimeter, 12*vg.Centimeter)
	tiles := vgdraw.Tiles{Rows: 1, Cols: 2, PadX: vg.Centimeter, PadTop: vg.Millimeter, PadBottom: vg.Millimeter, PadRight: vg.Centimeter}
	plots := [][]*plot.Plot{{depth, rules}}
	for i, canvas := range plot.Align(plots, tiles, vgdraw.New(c))[0] {
		plots[0][i].Draw(canvas)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := c.WriteTo(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}

// panel is one half: a line for each series, along what at picks.
func panel(m Micro, title, axis string, legend bool, at func(Point) (int, bool)) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = title, axis
	p.BackgroundColor = color.White
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Y.Tick.Marker = ticks{100, 200, 500, 1000, 2000, 5000, 10000, 20000}
	p.Y.Min, p.Y.Max = 100, 30_000
	p.Legend.Top, p.Legend.Left = true, true
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{220}, color.Gray{240}
	p.Add(grid)
	var marks ticks
	for _, s := range shown {
		var xys plotter.XYs
		for _, q := range m.Points {
			x, ok := at(q)
			again := slices.ContainsFunc(xys, func(xy plotter.XY) bool { return xy.X == float64(x) })
			if ok && !again && q.Series == s.series {
				xys = append(xys, plotter.XY{X: float64(x), Y: q.Added})
			}
		}
		if len(xys) == 0 { // such as a program without rules
			continue
		}
		slices.SortFunc(xys, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
		line, points, err := plotter.NewLinePoints(xys)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.series, err)
		}
		line.Color, points.Color, line.Width = s.colour, s.colour, vg.Points(1.5)
		points.Shape, points.Radius = vgdraw.CircleGlyph{}, vg.Points(2)
		p.Add(line, points)
		if legend {
			p.Legend.Add(s.label, line)
		}
		for _, xy := range xys {
			if !slices.Contains(marks, xy.X) {
				marks = append(marks, xy.X)
			}
		}
	}
	p.X.Tick.Marker = marks
	return p, nil
}

// ticks marks an axis at exactly these values.
type ticks []float64

func (t ticks) Ticks(lowest, highest float64) []plot.Tick {
	var out []plot.Tick
	for _, v := range t {
		if v >= lowest && v <= highest {
			out = append(out, plot.Tick{Value: v, Label: fmt.Sprintf("%g", v)})
		}
	}
	return out
}
