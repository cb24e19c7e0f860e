package output

import (
	"cmp"
	"io"
	"slices"
	"time"
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
	w           io.Writer
	cells       cells
	first, last time.Time     // of samples
	start       time.Time     // of the run; zero: it is not known
	took        time.Duration // by the run
}

// NewPProf returns a PProf that writes to w when it is closed.
func NewPProf(w io.Writer, o Options) *PProf { return &PProf{w: w, cells: newCells(o)} }

// Add counts one sample; it never fails.
func (p *PProf) Add(s *Sample) error {
	if p.first.IsZero() || s.Time.Before(p.first) {
		p.first = s.Time
	}
	if s.Time.After(p.last) {
		p.last = s.Time
	}
	p.cells.add(s)
	return nil
}

// During tells when the run began and for how long it went on, which is not known by its samples.
func (p *PProf) During(start time.Time, took time.Duration) { p.start, p.took = start, took }

func (p *PProf) describe(r Run) { p.During(r.Start, r.Duration) }

// Notes says of the result what a reader should know.
func (p *PProf) Notes() []string { return p.cells.tree.notes() }

// Close writes the profile.
func (p *PProf) Close() error { return p.write(p.w) }

// write writes the messages one by one: a profile of many deep stacks is much
// larger than the tree that it is made of.
func (p *PProf) write(w io.Writer) error {
	e := newProtoWriter(w)
	text := func(s string) uint64 { return uint64(p.cells.code.strings.add(s)) } // of the profile's frame: few, and bounded like the rest
	kind := func(field int, name, unit string) {
		e.uint(1, text(name))
		e.uint(2, text(unit))
		e.end(field)
	}
	kind(profileSampleType, "samples", "count")
	kind(profileSampleType, "cpu", "nanoseconds")
	weight := "cpu"
	if p.cells.opts.Wall {
		weight = "wall"
		kind(profileSampleType, weight, "nanoseconds")
	}
	kind(profilePeriodType, weight, "nanoseconds")
	e.top(profileDefaultSampleType, text(weight))
	var period uint64
	if p.cells.opts.Hz > 0 {
		period = uint64(float64(time.Second) / p.cells.opts.Hz)
	}
	e.top(profilePeriod, period)
	if !p.start.IsZero() {
		e.top(profileTimeNanos, uint64(p.start.UnixNano()))
		e.top(profileDurationNanos, uint64(p.took))
	} else if !p.first.IsZero() {
		e.top(profileTimeNanos, uint64(p.first.UnixNano()))
		e.top(profileDurationNanos, uint64(p.last.Sub(p.first))+period)
	}
	p.writeMappings(e, text)
	p.writeLocations(e)
	p.writeSamples(e, text)
	for _, s := range p.cells.code.strings.keys {
		e.string(profileStringTable, s)
	}
	return e.close()
}

func (p *PProf) writeMappings(e *protoWriter, text func(string) uint64) {
	// pprof takes the first mapping for the program itself, which lies below
	// its libraries.
	mappings := p.cells.code.mappings.keys
	order := make([]uint32, len(mappings))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortStableFunc(order, func(a, b uint32) int { return cmp.Compare(mappings[a].Start, mappings[b].Start) })
	for _, i := range order {
		m := &mappings[i]
		e.uint(1, uint64(i)+1)
		e.uint(2, m.Start)
		e.uint(3, m.End)
		e.uint(4, m.FileOff)
		e.uint(5, text(clean(m.Path)))
		e.uint(6, text(clean(m.BuildID)))
		e.uint(7, 1) // has_functions: otherwise pprof looks for the files to name them itself
		if p.cells.opts.Lines {
			e.uint(8, 1) // has_filenames
			e.uint(9, 1) // has_line_numbers
		}
		e.end(profileMapping)
	}
}

func (p *PProf) writeLocations(e *protoWriter) {
	code := &p.cells.code
	for i, l := range code.list {
		e.uint(1, uint64(i)+1)
		e.uint(2, uint64(l.mapping))
		e.uint(3, l.addr)
		for _, line := range code.linesOf(&l) {
			e.begin()
			e.uint(1, uint64(line.function)+1)
			e.uint(2, uint64(line.line))
			e.nested(4)
		}
		e.end(profileLocation)
	}
	for i, f := range code.functions.keys {
		e.uint(1, uint64(i)+1)
		e.uint(2, uint64(f.name))
		e.uint(3, uint64(f.name)) // system_name
		e.uint(4, uint64(f.file))
		e.end(profileFunction)
	}
}

func (p *PProf) writeSamples(e *protoWriter, text func(string) uint64) {
	weights, ticks := p.cells.weigh()
	for i, key := range p.cells.index.keys {
		c := &p.cells.times[i]
		if weights[i] == 0 && c.cpu == 0 {
			continue
		}
		e.begin()
		for n := key.node; n != 0; n = p.cells.tree.nodes[n].parent {
			e.varint(uint64(p.cells.tree.nodes[n].frame) + 1)
		}
		e.nested(1)
		e.begin()
		e.varint(uint64(ticks[i]))
		e.varint(uint64(c.cpu))
		if p.cells.opts.Wall {
			e.varint(uint64(c.wall))
		}
		e.nested(2)
		l := &p.cells.labels.keys[key.labels]
		for _, kv := range [...]struct{ key, value string }{
			{"process", l.process}, {"thread", l.thread}, {"state", l.state}, {"wait", l.wait}, {"gil", l.gil}, {"end", l.end},
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
