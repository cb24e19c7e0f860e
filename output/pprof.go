package output

import (
	"cmp"
	"encoding/binary"
	"io"
	"slices"
	"time"

	"github.com/google/pprof/profile"
)

// maxCells bounds the samples of a pprof profile: distinct pairs of a stack and
// labels.
const maxCells = 1 << 18

// PProf writes a profile that go tool pprof reads (profile.proto, gzipped).
// Its values are the ticks ("samples"), CPU time ("cpu") and, in a wall-clock
// profile, wall time. Locations keep the addresses and mappings with their
// build-ids; functions that were inlined are further lines of their location.
//
// Each sample is labelled with the process's name and pid, the thread's name,
// the state and, if it was cut, the reason ("end"); a cut stack has
// "[truncated: REASON]" as its root as well.
type PProf struct {
	w    io.Writer
	opts Options

	functions map[functionKey]*profile.Function
	mappings  map[Mapping]*profile.Mapping
	locations []*profile.Location
	locIDs    table // of the keys that appendLocation makes, parallel to locations
	tree      tree  // frames are indexes of locations

	cells  map[cellKey]uint32
	values []cell
	cache  map[pprofKey]uint32 // index of values
	cached int
	buf    []byte
	group  []profile.Line

	first, last time.Time
}

type functionKey struct{ name, file string }

type cellLabels struct {
	process, thread, state, end string
	pid                         int
}

type cellKey struct {
	node   uint32
	labels cellLabels
}

type pprofKey struct {
	stack  *Stack
	labels cellLabels
}

type cell struct {
	key       cellKey
	ticks     int64
	cpu, wall time.Duration
}

// NewPProf returns a PProf that writes to w when it is closed.
func NewPProf(w io.Writer, o Options) *PProf {
	p := &PProf{
		w: w, opts: o,
		functions: make(map[functionKey]*profile.Function),
		mappings:  make(map[Mapping]*profile.Mapping),
		tree:      newTree(maxNodes),
		cells:     make(map[cellKey]uint32),
		cache:     make(map[pprofKey]uint32),
	}
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
	k := pprofKey{s.Stack, cellLabels{s.Process, s.Thread, s.State, "", s.PID}}
	i, ok := p.cache[k]
	if !ok {
		i = p.insert(k)
	}
	c := &p.values[i]
	c.ticks += s.Ticks
	c.cpu += s.CPU
	c.wall += s.Wall
	return nil
}

// insert finds or makes the cell of a stack with its labels, and remembers it
// for the stack's pointer.
func (p *PProf) insert(k pprofKey) uint32 {
	size := 1
	var n uint32
	if k.stack != nil {
		size += len(k.stack.Frames)
		n = p.walk(k.stack)
	}
	if p.cached+size > maxCached {
		clear(p.cache)
		p.cached = 0
	}
	p.cached += size
	i := p.cell(n, k)
	p.cache[k] = i
	return i
}

// cell returns the index of the cell for node n with the labels of k. When
// there is no room for a new one it is that of all that found none.
func (p *PProf) cell(n uint32, k pprofKey) uint32 {
	key := cellKey{n, k.labels}
	if k.stack != nil {
		key.labels.end = k.stack.End
	}
	i, ok := p.cells[key]
	if !ok && len(p.values) >= maxCells {
		key = cellKey{node: p.tree.grow(0, overflowName)}
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
	if s.End != "" {
		n, ok = p.step(n, p.marker(truncated(s.End)))
	}
	for end := len(s.Frames); ok && end > 0; {
		// A physical frame is the outermost of its group: those inlined into it
		// stand before it.
		start := end - 1
		for start > 0 && s.Frames[start-1].Inlined {
			start--
		}
		n, ok = p.step(n, p.location(s.Frames[start:end]))
		end = start
	}
	return n
}

func (p *PProf) step(n, loc uint32) (uint32, bool) {
	if loc != overflowName {
		if c, ok := p.tree.child(n, loc); ok {
			return c, true
		}
	}
	return p.tree.grow(n, overflowName), false
}

// marker returns the location of a frame that is no code.
func (p *PProf) marker(name string) uint32 {
	return p.intern(0, nil, append(p.group[:0], profile.Line{Function: p.function(name, "")}))
}

// location returns the location of a physical frame, the last of frames, with
// what was inlined into it, innermost first.
func (p *PProf) location(frames []Frame) uint32 {
	f := &frames[len(frames)-1]
	lines := p.group[:0]
	for i := range frames {
		in := &frames[i]
		p.buf = appendName(p.buf[:0], in)
		lines = append(lines, profile.Line{Function: p.function(string(p.buf), in.File), Line: int64(in.Line)})
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

// intern returns the number of a location; overflowName when there is no room.
func (p *PProf) intern(addr uint64, m *profile.Mapping, lines []profile.Line) uint32 {
	p.group = lines
	key := binary.LittleEndian.AppendUint64(p.buf[:0], addr)
	if m != nil {
		key = binary.AppendUvarint(key, m.ID)
	} else {
		key = append(key, 0)
	}
	for _, l := range lines {
		key = binary.AppendUvarint(key, l.Function.ID)
		key = binary.AppendVarint(key, l.Line)
	}
	p.buf = key
	id, ok := p.locIDs.id(key)
	if !ok {
		return overflowName
	}
	if int(id) == len(p.locations) {
		p.locations = append(p.locations, &profile.Location{
			ID: uint64(id) + 1, Mapping: m, Address: addr, Line: slices.Clone(lines),
		})
	}
	return id
}

func (p *PProf) function(name, file string) *profile.Function {
	k := functionKey{name, clean(file)}
	f := p.functions[k]
	if f == nil {
		f = &profile.Function{ID: uint64(len(p.functions)) + 1, Name: k.name, SystemName: k.name, Filename: k.file}
		p.functions[k] = f
	}
	return f
}

func (p *PProf) mapping(m *Mapping) *profile.Mapping {
	if m == nil {
		return nil
	}
	pm := p.mappings[*m]
	if pm == nil {
		pm = &profile.Mapping{
			ID: uint64(len(p.mappings)) + 1, Start: m.Start, Limit: m.End, Offset: m.FileOff,
			File: clean(m.Path), BuildID: clean(m.BuildID),
			// Otherwise pprof looks for the files to name functions by itself.
			HasFunctions: true, HasFilenames: p.opts.Lines, HasLineNumbers: p.opts.Lines,
		}
		p.mappings[*m] = pm
	}
	return pm
}

// Close writes the profile.
func (p *PProf) Close() error { return p.write(p.w) }

func (p *PProf) write(w io.Writer) error { return p.profile().Write(w) }

func (p *PProf) profile() *profile.Profile {
	period := int64(0)
	if p.opts.Hz > 0 {
		period = int64(float64(time.Second) / p.opts.Hz)
	}
	prof := &profile.Profile{
		SampleType:        []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
		DefaultSampleType: "cpu",
		PeriodType:        &profile.ValueType{Type: "cpu", Unit: "nanoseconds"},
		Period:            period,
		Location:          p.locations,
	}
	if p.opts.Wall {
		prof.SampleType = append(prof.SampleType, &profile.ValueType{Type: "wall", Unit: "nanoseconds"})
		prof.DefaultSampleType = "wall"
		prof.PeriodType = &profile.ValueType{Type: "wall", Unit: "nanoseconds"}
	}
	if !p.first.IsZero() {
		prof.TimeNanos = p.first.UnixNano()
		prof.DurationNanos = int64(p.last.Sub(p.first)) + period
	}
	prof.Function = make([]*profile.Function, len(p.functions))
	for _, f := range p.functions {
		prof.Function[f.ID-1] = f
	}
	for _, m := range p.mappings {
		prof.Mapping = append(prof.Mapping, m)
	}
	// pprof takes the first mapping for the program itself, which lies below
	// its libraries.
	slices.SortFunc(prof.Mapping, func(a, b *profile.Mapping) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.ID, b.ID))
	})
	for i := range p.values {
		if s := p.sample(&p.values[i]); s != nil {
			prof.Sample = append(prof.Sample, s)
		}
	}
	return prof
}

// sample is a cell in pprof's form, nil if it has no weight.
func (p *PProf) sample(c *cell) *profile.Sample {
	if c.ticks == 0 && c.cpu == 0 && c.wall == 0 {
		return nil
	}
	s := &profile.Sample{Value: []int64{c.ticks, int64(c.cpu)}, Label: make(map[string][]string)}
	if p.opts.Wall {
		s.Value = append(s.Value, int64(c.wall))
	}
	for n := c.key.node; n != 0; n = p.tree.nodes[n].parent {
		s.Location = append(s.Location, p.locations[p.tree.nodes[n].frame])
	}
	l := &c.key.labels
	for _, kv := range [...]struct{ key, value string }{
		{"process", l.process}, {"thread", l.thread}, {"state", l.state}, {"end", l.end},
	} {
		if kv.value != "" {
			s.Label[kv.key] = []string{clean(kv.value)}
		}
	}
	if l.pid != 0 {
		s.NumLabel = map[string][]int64{"pid": {int64(l.pid)}}
	}
	return s
}
