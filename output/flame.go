package output

import (
	"slices"
	"strconv"
	"strings"
)

// flame is a call tree laid out for a flame graph: its nodes root first, each
// followed by what is below it, neighbours sorted by name. Nodes without weight
// are left out.
type flame struct {
	bars  []bar
	total int64
	depth int // of the deepest bar, plus one
}

// bar is one call path in a flame graph.
type bar struct {
	name  uint32 // index of paths.names
	node  uint32 // of the tree
	depth int
	left  int64 // weight of all that stands left of it
	total int64 // its own weight and that of all below it
	self  int64
}

// layout lays p out. Its root frame stands for all processes.
func (p *paths) layout() *flame {
	totals := make([]int64, len(p.tree.nodes))
	// A node is made after its parent, so that from the last to the first each
	// total is whole when it is added to the parent's.
	for i := len(totals) - 1; i >= 0; i-- {
		n := &p.tree.nodes[i]
		totals[i] += n.self
		if i > 0 {
			totals[n.parent] += totals[i]
		}
	}
	list, first := p.tree.children()
	fl := &flame{bars: make([]bar, 0, len(list)), total: totals[0]}
	var below func(n uint32, depth int, left int64)
	below = func(n uint32, depth int, left int64) {
		children := list[first[n]:first[n+1]]
		slices.SortFunc(children, func(a, b uint32) int { return strings.Compare(p.name(a), p.name(b)) })
		for _, c := range children {
			if totals[c] <= 0 {
				continue
			}
			node := &p.tree.nodes[c]
			fl.bars = append(fl.bars, bar{node.frame, c, depth, left, totals[c], node.self})
			fl.depth = max(fl.depth, depth+1)
			below(c, depth+1, left)
			left += totals[c]
		}
	}
	below(0, 0, 0)
	return fl
}

// unit is what a flame graph's weights count.
func (o Options) unit() string {
	if o.Wall {
		return "wall-clock time"
	}
	return "CPU time"
}

// appendTime appends a weight in nanoseconds for people, to three digits: 1.83 s,
// 12.3 ms, 450 µs.
func appendTime(b []byte, ns int64) []byte {
	v, unit := float64(ns)/1e3, " µs"
	switch {
	case ns >= 1e9:
		v, unit = float64(ns)/1e9, " s"
	case ns >= 1e6:
		v, unit = float64(ns)/1e6, " ms"
	}
	digits := 2
	for limit := 10.0; digits > 0 && v >= limit; limit *= 10 {
		digits--
	}
	return append(strconv.AppendFloat(b, v, 'f', digits, 64), unit...)
}
