package main

import (
	"fmt"
	"io"
	"math"
	"slices"
)

// figure is one thing that was measured in a run.
type figure struct {
	name  string
	value float64
	// count: of interest is the sum, and more with sfsample than without is
	// harm; else a rate, of which the difference in per cent is of interest.
	count bool
}

// result is what one run has shown. All runs of a load have the same figures in
// the same order.
type result []figure

// comparison collects pairs of results.
type comparison struct{ without, with []result }

func (c *comparison) add(without, with result) {
	c.without, c.with = append(c.without, without), append(c.with, with)
}

// print writes a line for each figure. harmed: a count was larger with
// sfsample.
func (c *comparison) print(w io.Writer) (harmed bool) {
	for i, f := range c.without[0] {
		a, b := column(c.without, i), column(c.with, i)
		if f.count {
			fmt.Fprintf(w, "  %-34s without %.0f, with %.0f\n", f.name, sum(a), sum(b))
			harmed = harmed || sum(b) > sum(a)
			continue
		}
		d := differences(a, b)
		if len(d) == 0 {
			fmt.Fprintf(w, "  %-34s without %.5g, with %.5g\n", f.name, median(a), median(b))
			continue
		}
		fmt.Fprintf(w, "  %-34s without %.5g, with %.5g: median %+.2f %%, mean %+.2f ± %.2f (%+.2f … %+.2f)\n",
			f.name, median(a), median(b), median(d), mean(d), standardError(d), slices.Min(d), slices.Max(d))
	}
	return harmed
}

func column(list []result, i int) []float64 {
	var v []float64
	for _, r := range list {
		v = append(v, r[i].value)
	}
	return v
}

// differences are those of each pair, in per cent of the first; of 0 there is none.
func differences(a, b []float64) (d []float64) {
	for i := range a {
		if a[i] != 0 {
			d = append(d, 100*(b[i]-a[i])/a[i])
		}
	}
	return d
}

func sum(v []float64) (s float64) {
	for _, x := range v {
		s += x
	}
	return s
}

func mean(v []float64) float64 { return sum(v) / float64(len(v)) }

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// standardError is that of the mean of v.
func standardError(v []float64) float64 {
	m, s := mean(v), 0.0
	for _, x := range v {
		s += (x - m) * (x - m)
	}
	n := float64(len(v))
	return math.Sqrt(s / (n - 1) / n)
}
