package output

import (
	"bytes"
	"io"
	"strconv"
	"time"
)

// Perf writes what perf script prints, for the many tools that read it
// (stackcollapse-perf.pl, inferno, speedscope, the Firefox Profiler):
//
//	comm PID/TID SECONDS.MICROSECONDS: PERIOD EVENT:
//	<tab>ADDRESS SYMBOL+0xOFFSET (FILE)
//
// The period is the weight of the sample, in nanoseconds, so that they add up to
// that of the run. Some readers count records and pass over it. So a sample that
// weighs several ticks is written once for each, at the time of that tick, each
// time with its part of the weight; one that weighs nothing is left out.
//
// Blanks in the thread's name and in FILE become '_', since those tools find
// the ends of both by blanks. Inlined frames have "(inlined)" for their file,
// as perf shows them.
type Perf struct {
	stream
	opts   Options
	tick   time.Duration
	event  string
	buf    []byte
	frames []byte
	last   map[int]time.Time // of the records of a thread, which readers want in order
}

// NewPerf returns a Perf that writes to w.
func NewPerf(w io.Writer, o Options) *Perf {
	p := &Perf{stream: newStream(w), opts: o, tick: o.tick(), event: "cpu-clock", last: make(map[int]time.Time)}
	if o.Wall {
		p.event = "wall-clock"
	}
	return p
}

// Add writes one sample.
func (p *Perf) Add(s *Sample) error {
	weight := p.opts.weight(s)
	if weight <= 0 {
		return nil
	}
	p.frames = p.frames[:0]
	if s.Stack != nil {
		for i := range s.Stack.Frames {
			p.frames = appendPerfFrame(p.frames, &s.Stack.Frames[i])
		}
		if cut := s.Stack.truncated(); cut != "" {
			p.frames = append(p.frames, "\t               0 "...)
			p.frames = append(appendClean(p.frames, cut), " ([truncated])\n"...)
		}
	}
	p.frames = append(p.frames, '\n')
	times := max(1, (weight+p.tick/2)/p.tick)
	if s.Taken == "none" { // nobody knows when it was
		times = 1
	}
	for ; times > 0; times-- {
		part := weight / times
		weight -= part
		at := s.Time.Add(-(times - 1) * p.tick)
		if last := p.last[s.TID]; at.Before(last) {
			at = last
		}
		if len(p.last) >= maxThreads {
			clear(p.last)
		}
		p.last[s.TID] = at
		p.buf = p.appendHead(p.buf[:0], s, at, part)
		p.buf = append(p.buf, p.frames...)
		if err := p.write(p.buf, s.Time); err != nil {
			return err
		}
	}
	return nil
}

func (p *Perf) appendHead(b []byte, s *Sample, at time.Time, period time.Duration) []byte {
	start := len(b)
	b = unblank(appendClean(b, s.Thread), start)
	if len(b) == start { // perf's own name for a thread that has none
		b = strconv.AppendInt(append(b, ':'), int64(s.TID), 10)
	}
	b = strconv.AppendInt(append(b, ' '), int64(s.PID), 10)
	b = strconv.AppendInt(append(b, '/'), int64(s.TID), 10)
	us := max(at.UnixMicro(), 0)
	b = strconv.AppendInt(append(b, ' '), us/1e6, 10)
	b = append(b, '.')
	for unit := int64(1e5); unit > 0; unit /= 10 {
		b = append(b, '0'+byte(us/unit%10))
	}
	b = strconv.AppendInt(append(b, ": "...), int64(period), 10)
	b = append(append(b, ' '), p.event...)
	return append(b, ": \n"...)
}

func appendPerfFrame(b []byte, f *Frame) []byte {
	start := len(b)
	b = strconv.AppendUint(b, f.PC, 16)
	digits := len(b) - start
	b = append(b, "                 "[:17-digits]...) // make room for a tab and blanks before the digits
	copy(b[start+17-digits:], b[start:start+digits])
	b[start] = '\t'
	for i := start + 1; i < start+17-digits; i++ {
		b[i] = ' '
	}
	b = append(b, ' ')
	switch {
	case f.Func == "":
		b = append(b, unknownName...)
	case f.Inlined, f.Script, f.marker():
		b = appendClean(b, f.Func)
	default:
		b = append(appendClean(b, f.Func), "+0x"...)
		b = strconv.AppendUint(b, f.Offset, 16)
	}
	b = append(b, " ("...)
	start = len(b)
	switch {
	case f.Inlined:
		b = append(b, "inlined"...)
	case f.Kernel:
		b = append(b, "[kernel.kallsyms]"...)
	case f.Mapping != nil && f.Mapping.Path != "":
		b = appendClean(b, f.Mapping.Path)
	case f.Module != "":
		b = appendClean(b, f.Module)
	default:
		b = append(b, unknownName...)
	}
	return append(unblank(b, start), ")\n"...)
}

// unblank makes the blanks in b[start:] underscores, but drops those at its
// ends.
func unblank(b []byte, start int) []byte {
	s := bytes.TrimSpace(b[start:])
	b = append(b[:start], s...)
	for i := start; i < len(b); i++ {
		if b[i] == ' ' {
			b[i] = '_'
		}
	}
	return b
}
