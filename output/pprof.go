package output

import (
	"cmp"
	"encoding/binary"
	"io"
	"slices"
	"time"
)

// Bounds of what a PProf holds beside its call tree.
const (
	maxCells  = 1 << 17 // pairs of a stack and labels, about 60 bytes each
	maxLabels = 1 << 15 // distinct sets of labels, about 200 bytes each
)

// PProf writes a profile that go tool pprof reads (profile.proto, gzipped).
// Its values are the weight in ticks ("samples", dealt as in [Folded]), CPU time
// ("cpu") and, in a wall-clock profile, wall time. Locations keep the addresses and mappings with their
// build-ids; functions that were inlined are further lines of their location.
//
// Each sample is labelled with the process's name and pid, the thread's name,
// the state and, if it was cut, the reason ("end"); a cut stack has
// "[truncated: REASON]" as its root as well.
type PProf struct {
	w    io.Writer
	opts Options

	strings   table // of the profile; the first is ""
	functions table // keys are pprofFunction, encoded
	mappings  []Mapping
	byMapping map[Mapping]uint32 // number, from 1 in the order of appearance
	locations []pprofLocation
	lines     []pprofLine // of all locations
	byAddr    table       // keys are as intern makes them, parallel to locations
	tree      tree        // frames are indexes of locations

	labels   []pprofLabels
	byLabels map[pprofLabels]uint32
	cells    map[cellKey]uint32
	values   []cell
	cache    stackCache[pprofKey] // index of values
	buf      []byte
	group    []pprofLine

	first, last time.Time

	maxCells, maxLabels int
}

// pprofLocation is an address; its functions are n of PProf.lines from first,
// innermost first.
type pprofLocation struct {
	addr           uint64
	mapping        uint32 // 0: none
	first, numLine uint32
}

type pprofLine struct {
	function uint32 // index of functions
	line     uint32
}

type pprofLabels struct {
	process, thread, state, wait, end string
	pid                               int
}

type cellKey struct{ node, labels uint32 }

type pprofKey struct {
	stack  *Stack
	labels pprofLabels // without end, which the stack has
}

// cell is one sample of the profile.
type cell struct {
	key       cellKey
	cpu, wall time.Duration
}

// NewPProf returns a PProf that writes to w when it is closed.
func NewPProf(w io.Writer, o Options) *PProf {
	p := &PProf{
		w: w, opts: o,
		byMapping: make(map[Mapping]uint32),
		byLabels:  make(map[pprofLabels]uint32),
		tree:      newTree(maxNodes),
		cells:     make(map[cellKey]uint32),
		maxCells:  maxCells, maxLabels: maxLabels,
	}
	p.strings.add("")
	p.label(pprofLabels{})
	p.marker(overflow) // location overflowName
	return p
}

// Add counts one sample; it never fails.
func (p *PProf) Add(s *Sample) error {
	if p.first.IsZero() || s.Time.Before(p.first) {
		p.first = s.Time
	}
	if s.Time.After(p.last) {
		p.last = s.Time
	}
	k := pprofKey{s.Stack, pprofLabels{s.Process, s.Thread, s.State, s.Wait, "", s.PID}}
	i, ok := p.cache.ids[k]
	if !ok {
		i = p.insert(k)
		p.cache.keep(k, s.Stack, i)
	}
	c := &p.values[i]
	c.cpu += s.CPU
	c.wall += s.Wall
	return nil
}

// insert finds or makes the cell of a stack with its labels.
func (p *PProf) insert(k pprofKey) uint32 {
	if k.stack == nil {
		return p.cell(cellKey{0, p.label(k.labels)})
	}
	k.labels.end = k.stack.End
	n := p.walk(k.stack)
	return p.cell(cellKey{n, p.label(k.labels)})
}

// label returns the number of a set of labels; when there is no room for it,
// that of the set without any.
func (p *PProf) label(l pprofLabels) uint32 {
	i, ok := p.byLabels[l]
	if !ok && len(p.labels) < p.maxLabels {
		i = uint32(len(p.labels))
		p.byLabels[l] = i
		p.labels = append(p.labels, l)
	}
	return i
}

// cell returns the index of a cell; when there is no room for it, that of all
// for which there was none.
func (p *PProf) cell(key cellKey) uint32 {
	i, ok := p.cells[key]
	if !ok && len(p.values) >= p.maxCells {
		key = cellKey{node: p.tree.more(0)}
		i, ok = p.cells[key]
	}
	if !ok {
		i = uint32(len(p.values))
		p.cells[key] = i
		p.values = append(p.values, cell{key: key})
	}
	return i
}

// walk follows a stack from the root to its node.
func (p *PProf) walk(s *Stack) uint32 {
	var n uint32
	ok := true
	if cut := s.truncated(); cut != "" {
		loc := p.marker(cut)
		n, ok = p.tree.step(n, loc, loc != overflowName)
	}
	for end := len(s.Frames); ok && end > 0; {
		// A physical frame is the outermost of its group: those inlined into it
		// stand before it.
		start := end - 1
		for start > 0 && s.Frames[start-1].Inlined {
			start--
		}
		loc := p.location(s.Frames[start:end])
		n, ok = p.tree.step(n, loc, loc != overflowName)
		end = start
	}
	return n
}

// marker returns the location of a frame that is no code.
func (p *PProf) marker(name string) uint32 {
	p.buf = appendClean(p.buf[:0], name)
	fn, ok := p.function(p.buf, "")
	if !ok {
		return overflowName
	}
	return p.intern(0, 0, append(p.group[:0], pprofLine{function: fn}))
}

// location returns the location of a physical frame, the last of frames, with
// what was inlined into it, innermost first.
func (p *PProf) location(frames []Frame) uint32 {
	f := &frames[len(frames)-1]
	lines := p.group[:0]
	for i := range frames {
		in := &frames[i]
		p.buf = appendName(p.buf[:0], in)
		fn, ok := p.function(p.buf, in.File)
		if !ok {
			return overflowName
		}
		lines = append(lines, pprofLine{fn, uint32(max(in.Line, 0))})
	}
	return p.intern(lookupPC(f), p.mapping(f.Mapping), lines)
}

// lookupPC is the address in the instruction that frame f executes. In a caller
// that is the call, which ends where it returns to: profile.proto wants an
// address in the call for a location that is no leaf.
func lookupPC(f *Frame) uint64 {
	if f.How == "regs" || f.How == "signal" || f.Kernel || f.PC == 0 {
		return f.PC
	}
	return f.PC - 1
}

// function returns the index of a function of this (clean) name; false when
// there is no room for it.
func (p *PProf) function(name []byte, file string) (uint32, bool) {
	nameID, ok := p.strings.id(name)
	if !ok {
		return 0, false
	}
	fileID := uint32(0)
	if file != "" {
		if fileID, ok = p.strings.id(appendClean(nil, file)); !ok {
			return 0, false
		}
	}
	var key [8]byte
	binary.LittleEndian.PutUint32(key[:], nameID)
	binary.LittleEndian.PutUint32(key[4:], fileID)
	return p.functions.id(key[:])
}

// mapping returns the number of m, 0 if there is none or no room for it.
func (p *PProf) mapping(m *Mapping) uint32 {
	if m == nil {
		return 0
	}
	n, ok := p.byMapping[*m]
	if !ok && len(p.mappings) < p.maxLabels {
		p.mappings = append(p.mappings, *m)
		n = uint32(len(p.mappings))
		p.byMapping[*m] = n
	}
	return n
}

// intern returns the number of a location; overflowName when there is no room
// for it.
func (p *PProf) intern(addr uint64, mapping uint32, lines []pprofLine) uint32 {
	p.group = lines
	key := binary.LittleEndian.AppendUint64(p.buf[:0], addr)
	key = binary.AppendUvarint(key, uint64(mapping))
	for _, l := range lines {
		key = binary.AppendUvarint(key, uint64(l.function))
		key = binary.AppendUvarint(key, uint64(l.line))
	}
	p.buf = key
	id, ok := p.byAddr.id(key)
	if !ok {
		return overflowName
	}
	if int(id) == len(p.locations) {
		p.locations = append(p.locations, pprofLocation{addr, mapping, uint32(len(p.lines)), uint32(len(lines))})
		p.lines = append(p.lines, lines...)
	}
	return id
}

// Notes says of the result what a reader should know.
func (p *PProf) Notes() []string { return p.tree.notes() }

// Close writes the profile.
func (p *PProf) Close() error { return p.write(p.w) }

// write writes the messages one by one: a profile of many deep stacks is much
// larger than the tree that it is made of.
func (p *PProf) write(w io.Writer) error {
	e := newProtoWriter(w)
	text := func(s string) uint64 { return uint64(p.strings.add(s)) } // of the profile's frame: few, and bounded like the rest
	kind := func(field int, name, unit string) {
		e.uint(1, text(name))
		e.uint(2, text(unit))
		e.end(field)
	}
	kind(profileSampleType, "samples", "count")
	kind(profileSampleType, "cpu", "nanoseconds")
	weight := "cpu"
	if p.opts.Wall {
		weight = "wall"
		kind(profileSampleType, weight, "nanoseconds")
	}
	kind(profilePeriodType, weight, "nanoseconds")
	e.top(profileDefaultSampleType, text(weight))
	var period uint64
	if p.opts.Hz > 0 {
		period = uint64(float64(time.Second) / p.opts.Hz)
	}
	e.top(profilePeriod, period)
	if !p.first.IsZero() {
		e.top(profileTimeNanos, uint64(p.first.UnixNano()))
		e.top(profileDurationNanos, uint64(p.last.Sub(p.first))+period)
	}
	p.writeMappings(e, text)
	p.writeLocations(e)
	p.writeSamples(e, text)
	for _, s := range p.strings.keys {
		e.string(profileStringTable, s)
	}
	return e.close()
}

func (p *PProf) writeMappings(e *protoWriter, text func(string) uint64) {
	// pprof takes the first mapping for the program itself, which lies below
	// its libraries.
	order := make([]uint32, len(p.mappings))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return cmp.Compare(p.mappings[a].Start, p.mappings[b].Start) })
	for _, i := range order {
		m := &p.mappings[i]
		e.uint(1, uint64(i)+1)
		e.uint(2, m.Start)
		e.uint(3, m.End)
		e.uint(4, m.FileOff)
		e.uint(5, text(clean(m.Path)))
		e.uint(6, text(clean(m.BuildID)))
		e.uint(7, 1) // has_functions: otherwise pprof looks for the files to name them itself
		if p.opts.Lines {
			e.uint(8, 1) // has_filenames
			e.uint(9, 1) // has_line_numbers
		}
		e.end(profileMapping)
	}
}

func (p *PProf) writeLocations(e *protoWriter) {
	for i, l := range p.locations {
		e.uint(1, uint64(i)+1)
		e.uint(2, uint64(l.mapping))
		e.uint(3, l.addr)
		for _, line := range p.lines[l.first : l.first+l.numLine] {
			e.begin()
			e.uint(1, uint64(line.function)+1)
			e.uint(2, uint64(line.line))
			e.nested(4)
		}
		e.end(profileLocation)
	}
	for i, key := range p.functions.keys {
		name := uint64(binary.LittleEndian.Uint32([]byte(key)))
		e.uint(1, uint64(i)+1)
		e.uint(2, name)
		e.uint(3, name) // system_name
		e.uint(4, uint64(binary.LittleEndian.Uint32([]byte(key[4:]))))
		e.end(profileFunction)
	}
}

// weigh returns the weight of each cell, in nanoseconds, and whole ticks: as they are dealt to the lines of [Folded], and in each line to its
// cells.
func (p *PProf) weigh() (weights, ticks []int64) {
	weights, ticks = make([]int64, len(p.values)), make([]int64, len(p.values))
	lines, sums := foldedLines(p)
	for i, c := range p.values {
		weights[i] = int64(c.cpu)
		if p.opts.Wall {
			weights[i] = int64(c.wall)
		}
	}
	for l, cells := range lines {
		for _, i := range cells {
			sums[l] += weights[i]
		}
	}
	unit := int64(p.opts.tick())
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
func foldedLines(p *PProf) (lines [][]int, sums []int64) {
	byPath := map[string]int{}
	var key []byte
	for i, c := range p.values {
		l := &p.labels[c.key.labels]
		key = append(append(key[:0], l.process...), 0)
		switch p.opts.By {
		case ByPID:
			key = binary.AppendVarint(key, int64(l.pid))
		case ByThread:
			key = append(key, l.thread...)
		case ByState:
			key = append(key, l.state...)
		}
		key = append(key, 0)
		for n := c.key.node; n != 0; n = p.tree.nodes[n].parent {
			at := p.locations[p.tree.nodes[n].frame]
			for _, line := range p.lines[at.first : at.first+at.numLine] {
				function := p.functions.keys[line.function]
				if !p.opts.Lines {
					key = append(key, function[:4]...) // the name
					continue
				}
				key = binary.AppendUvarint(append(key, function...), uint64(line.line))
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

func (p *PProf) writeSamples(e *protoWriter, text func(string) uint64) {
	weights, ticks := p.weigh()
	for i := range p.values {
		c := &p.values[i]
		if weights[i] == 0 && c.cpu == 0 {
			continue
		}
		e.begin()
		for n := c.key.node; n != 0; n = p.tree.nodes[n].parent {
			e.varint(uint64(p.tree.nodes[n].frame) + 1)
		}
		e.nested(1)
		e.begin()
		e.varint(uint64(ticks[i]))
		e.varint(uint64(c.cpu))
		if p.opts.Wall {
			e.varint(uint64(c.wall))
		}
		e.nested(2)
		l := &p.labels[c.key.labels]
		for _, kv := range [...]struct{ key, value string }{
			{"process", l.process}, {"thread", l.thread}, {"state", l.state}, {"wait", l.wait}, {"end", l.end},
		} {
			if kv.value != "" {
				e.begin()
				e.uint(1, text(kv.key))
				e.uint(2, text(clean(kv.value)))
				e.nested(3)
			}
		}
		if l.pid != 0 {
			e.begin()
			e.uint(1, text("pid"))
			e.uint(3, uint64(l.pid))
			e.nested(3)
		}
		e.end(profileSample)
	}
}
