package output

import (
	"encoding/binary"
	"time"
)

// Bounds of what cells hold beside their call tree.
const (
	maxCells  = 1 << 17 // pairs of a stack and labels, about 60 bytes each
	maxLabels = 1 << 15 // distinct sets of labels, about 200 bytes each
)

// cells counts samples by call path, in addresses, and labels: what [PProf] and [OTLP] are made of.
type cells struct {
	opts   Options
	code   locations
	tree   tree                // frames are indexes of code.list
	labels index[sampleLabels] // the first is empty: of what has no room, too
	index  index[cellKey]
	times  []cellTimes               // parallel to index.keys
	cache  stackCache[labelledStack] // numbers are of index
}

type sampleLabels struct {
	process, thread, state, wait, gil, end string
	pid                                    int
}

type labelledStack struct {
	stack  *Stack
	labels sampleLabels // without end, which the stack has
}

// cellKey tells which samples are one sample of a profile.
type cellKey struct{ node, labels uint32 }

type cellTimes struct{ cpu, wall time.Duration }

func newCells(o Options) cells {
	c := cells{opts: o, code: newLocations(), tree: newTree(maxNodes)}
	c.labels.limit, c.index.limit = maxLabels, maxCells
	c.labels.add(sampleLabels{})
	return c
}

// add counts one sample.
func (c *cells) add(s *Sample) {
	k := labelledStack{s.Stack, sampleLabels{s.Process, s.Thread, s.State, s.Wait, s.GIL, "", s.PID}}
	i, ok := c.cache.ids[k]
	if !ok {
		i = c.cell(k)
		c.cache.keep(k, s.Stack, i)
	}
	t := &c.times[i]
	t.cpu += s.CPU
	t.wall += s.Wall
}

// cell finds or makes the cell of a stack with its labels; when there is no room for it, that of all for which there
// was none.
func (c *cells) cell(k labelledStack) uint32 {
	var key cellKey
	if k.stack != nil {
		key.node = c.walk(k.stack)
		k.labels.end = k.stack.End
	}
	key.labels, _ = c.labels.id(k.labels)
	i, ok := c.index.id(key)
	if !ok {
		i = c.index.add(cellKey{node: c.tree.more(0)})
	}
	if int(i) == len(c.times) {
		c.times = append(c.times, cellTimes{})
	}
	return i
}

// labelsOf are the labels of cell i.
func (c *cells) labelsOf(i uint32) *sampleLabels { return &c.labels.keys[c.index.keys[i].labels] }

// walk follows a stack from the root to its node.
func (c *cells) walk(s *Stack) uint32 {
	var n uint32
	ok := true
	if cut := s.truncated(); cut != "" {
		loc := c.code.marker(cut)
		n, ok = c.tree.step(n, loc, loc != overflowName)
	}
	for end := len(s.Frames); ok && end > 0; {
		// A physical frame is the outermost of its group: those inlined into it
		// stand before it.
		start := end - 1
		for start > 0 && s.Frames[start-1].Inlined {
			start--
		}
		loc := c.code.location(s.Frames[start:end])
		n, ok = c.tree.step(n, loc, loc != overflowName)
		end = start
	}
	if !ok && len(s.Frames) > 0 {
		end := 1
		for s.Frames[end-1].Inlined && end < len(s.Frames) {
			end++
		}
		loc := c.code.location(s.Frames[:end])
		n = c.tree.leaf(n, loc, loc != overflowName)
	}
	return n
}

// weigh returns the weight of each cell, in nanoseconds, and whole ticks: as they are dealt to the lines of [Folded], and in each line to its
// cells.
func (c *cells) weigh() (weights, ticks []int64) {
	weights, ticks = make([]int64, len(c.times)), make([]int64, len(c.times))
	lines, sums := c.foldedLines()
	for i, t := range c.times {
		weights[i] = int64(t.cpu)
		if c.opts.Wall {
			weights[i] = int64(t.wall)
		}
	}
	for l, cells := range lines {
		for _, i := range cells {
			sums[l] += weights[i]
		}
	}
	unit := int64(c.opts.tick())
	whole, _ := deal(sums, unit)
	for l, cells := range lines {
		own := make([]int64, len(cells))
		for k, i := range cells {
			own[k] = weights[i]
		}
		own, _ = dealOut(own, unit, whole[l])
		for k, i := range cells {
			ticks[i] = own[k]
		}
	}
	return weights, ticks
}

// foldedLines lists for each line of a folded file the cells that are one there, in the order of appearance, and has room for a sum of each.
func (c *cells) foldedLines() (lines [][]int, sums []int64) {
	byPath := map[string]int{}
	var key []byte
	for i, cell := range c.index.keys {
		l := &c.labels.keys[cell.labels]
		key = append(append(key[:0], l.process...), 0)
		switch c.opts.By {
		case ByPID:
			key = binary.AppendVarint(key, int64(l.pid))
		case ByThread:
			key = append(key, l.thread...)
		case ByState:
			key = append(key, l.state...)
		}
		key = append(key, 0)
		for n := cell.node; n != 0; n = c.tree.nodes[n].parent {
			for _, line := range c.code.linesOf(&c.code.list[c.tree.nodes[n].frame]) {
				function := c.code.functions.keys[line.function]
				key = binary.LittleEndian.AppendUint32(key, function.name)
				if c.opts.Lines {
					key = binary.LittleEndian.AppendUint32(key, function.file)
					key = binary.AppendUvarint(key, uint64(line.line))
				}
			}
		}
		line, ok := byPath[string(key)]
		if !ok {
			line = len(lines)
			byPath[string(key)] = line
			lines = append(lines, nil)
		}
		lines[line] = append(lines[line], i)
	}
	return lines, make([]int64, len(lines))
}
