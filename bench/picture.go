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
var colours = []string{"#7f7f7f", "#000000", "#0072b2", "#56b4e9", "#009e73", "#e69f00", "#d55e00", "#cc79a7", "#882255", "#117733"}

// picture draws the CPU time that targets lose against the rate: a panel for each target, a curve for each tool.
func (r *Report) picture() string {
	var names, hired []string
	for _, x := range r.Rows {
		if !slices.Contains(names, x.Target) {
			names = append(names, x.Target)
		}
		if !slices.Contains(hired, x.Tool) {
			hired = append(hired, x.Tool)
		}
	}
	rows := (len(names) + columns - 1) / columns
	width, height := columns*panelWidth, rows*panelHeight+legend*(1+(len(hired)+3)/4)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="8" y="16">CPU time for a unit of work, per cent more than alone, against samples a second; %s</text>`+"\n", r.Machine)
	for i, t := range hired {
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">■ %s</text>`+"\n", 8+i%4*width/4, 16+legend*(1+i/4), colours[i%len(colours)], t)
	}
	top := legend * (1 + (len(hired)+3)/4)
	for i, name := range names {
		r.panel(&b, name, hired, i%columns*panelWidth, top+i/columns*panelHeight)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// panel draws a target's curves at x, y.
func (r *Report) panel(b *strings.Builder, name string, hired []string, x, y int) {
	var rows []Row
	lowest, highest := math.Inf(1), math.Inf(-1)
	from, to := -1.0, 5.0 // per cent that are always shown
	for _, row := range r.Rows {
		if row.Target == name && row.Turns > 0 {
			rows = append(rows, row)
			lowest, highest = min(lowest, float64(row.Hz)), max(highest, float64(row.Hz))
			from, to = min(from, row.CPU.Low), max(to, row.CPU.High)
		}
	}
	left, right, bottom, up := float64(x+margin), float64(x+panelWidth-12), float64(y+panelHeight-28), float64(y+24)
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
	for i, t := range hired {
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
