package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Sizes of the picture, in pixels: a panel for each target, columns of them.
const (
	panelWidth  = 360
	panelHeight = 220
	columns     = 2
	margin      = 46
	legend      = 26 // a line's height
)

// colours tell tools apart, also for those who see few.
var colours = []string{"#7f7f7f", "#000000", "#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#882255", "#117733", "#44aa99"}

// drawing is a picture of panels, one for each target in rows, with a curve for each tool.
type drawing struct {
	title         string
	rows          []Row
	hired         []string // tools: each has a colour by its place
	columns       int
	width, height int // of a panel
}

// together draws the work that targets lose against the rate: medians of all targets, for tools that are for most of them.
func (r *Report) together() string {
	lost := map[Row][]float64{} // by tool and rate
	var rows []Row
	for _, x := range r.Rows {
		k := Row{Tool: x.Tool, Hz: x.Hz}
		if !slices.Contains(rows, k) {
			rows = append(rows, k)
		}
		if x.Turns > 0 {
			lost[k] = append(lost[k], x.Lost.Median)
		}
	}
	targets := 0
	for i, k := range rows {
		m := spread(lost[k]).Median
		targets = max(targets, len(lost[k]))
		rows[i].Turns, rows[i].CPU = len(lost[k]), Spread{m, m, m}
	}
	rows = slices.DeleteFunc(rows, func(x Row) bool { return x.CPU.Median > most || 2*x.Turns < targets })
	return (&drawing{fmt.Sprintf("work lost, per cent, against samples a second: medians of %d targets, up to %d; %s", targets, most, r.Machine), rows, r.hired(), 1, columns * panelWidth, 2 * panelHeight}).svg()
}

// most is the highest median that is shown of all targets together, in per cent.
const most = 25

// picture draws the CPU time that targets lose against the rate, a panel for each.
func (r *Report) picture() string {
	return (&drawing{"CPU time for a unit of work, per cent more than alone, against samples a second; " + r.Machine, r.Rows, r.hired(), columns, panelWidth, panelHeight}).svg()
}

// hired lists the tools.
func (r *Report) hired() (list []string) {
	for _, x := range r.Rows {
		if !slices.Contains(list, x.Tool) {
			list = append(list, x.Tool)
		}
	}
	return list
}

func (d *drawing) svg() string {
	var names []string
	for _, x := range d.rows {
		if !slices.Contains(names, x.Target) {
			names = append(names, x.Target)
		}
	}
	rows := (len(names) + d.columns - 1) / d.columns
	width, height := d.columns*d.width, rows*d.height+legend*(1+(len(d.hired)+3)/4)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="8" y="16">%s</text>`+"\n", d.title)
	told := 0
	for i, t := range d.hired {
		if slices.ContainsFunc(d.rows, func(x Row) bool { return x.Tool == t }) {
			fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">■ %s</text>`+"\n", 8+told%4*width/4, 16+legend*(1+told/4), colours[i%len(colours)], t)
			told++
		}
	}
	top := legend * (1 + (len(d.hired)+3)/4)
	for i, name := range names {
		d.panel(&b, name, i%d.columns*d.width, top+i/d.columns*d.height)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// panel draws a target's curves at x, y.
func (d *drawing) panel(b *strings.Builder, name string, x, y int) {
	var rows []Row
	lowest, highest := math.Inf(1), math.Inf(-1)
	from, to := -1.0, 5.0 // per cent that are always shown
	for _, row := range d.rows {
		if row.Target == name && row.Turns > 0 {
			rows = append(rows, row)
			lowest, highest = min(lowest, float64(row.Hz)), max(highest, float64(row.Hz))
			from, to = min(from, row.CPU.Low), max(to, row.CPU.High)
		}
	}
	left, right, bottom, up := float64(x+margin), float64(x+d.width-24), float64(y+d.height-28), float64(y+24)
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="bold">%s</text>`+"\n", x+margin, y+16, name)
	across := func(hz float64) float64 {
		if highest == lowest {
			return (left + right) / 2
		}
		return left + (right-left)*math.Log(hz/lowest)/math.Log(highest/lowest)
	}
	along := func(v float64) float64 { return bottom - (bottom-up)*(v-from)/(to-from) }
	for _, v := range []float64{from, 0, to} {
		fmt.Fprintf(b, `<path d="M%.0f %.1fH%.0f" stroke="#ccc"/><text x="%.0f" y="%.1f" text-anchor="end">%.0f</text>`+"\n", left, along(v), right, left-4, along(v)+4, v)
	}
	for i, t := range d.hired {
		var path strings.Builder
		for _, row := range rows {
			if row.Tool != t {
				continue
			}
			px, colour := across(float64(row.Hz)), colours[i%len(colours)]
			step := "L"
			if path.Len() == 0 {
				step = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", step, px, along(row.CPU.Median))
			fmt.Fprintf(b, `<path d="M%.1f %.1fV%.1f" stroke="%s"/><circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"><title>%s, %d Hz: %s</title></circle>`+"\n",
				px, along(row.CPU.Low), along(row.CPU.High), colour, px, along(row.CPU.Median), colour, t, row.Hz, row.CPU)
			if i == 0 {
				fmt.Fprintf(b, `<text x="%.1f" y="%.0f" text-anchor="middle">%d Hz</text>`+"\n", px, bottom+16, row.Hz)
			}
		}
		if path.Len() > 0 {
			fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", path.String(), colours[i%len(colours)])
		}
	}
}
