package output

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
)

// maxSpeedscope is how many samples a Speedscope holds: each is written with its whole
// stack.
const maxSpeedscope = 1 << 17

// Speedscope writes a profile that speedscope opens: its own file format, in which every
// thread is a profile of its own, with its samples in the order of time, their weights in
// nanoseconds.
//
// The number of samples held is bounded as in [Firefox].
type Speedscope struct {
	w        io.Writer
	timeline timeline
}

// NewSpeedscope returns a Speedscope that writes to w when it is closed.
func NewSpeedscope(w io.Writer, o Options) *Speedscope {
	return &Speedscope{w, newTimeline(o, maxSpeedscope)}
}

// Add keeps one sample; it never fails.
func (s *Speedscope) Add(x *Sample) error {
	s.timeline.add(x)
	return nil
}

// Notes says of the result what a reader should know.
func (s *Speedscope) Notes() []string { return s.timeline.shared.tree.notes() }

// Close writes the profile.
func (s *Speedscope) Close() error { return s.write(s.w) }

func (s *Speedscope) write(w io.Writer) error {
	j := jsonWriter{out: bufio.NewWriterSize(w, 1<<16)}
	j.open('{')
	j.text("$schema", "https://www.speedscope.app/file-format-schema.json")
	j.text("exporter", "sfsample")
	j.name("shared")
	j.open('{')
	j.name("frames")
	j.open('[')
	// speedscope counts frames apart that are listed apart: one for each function and line.
	type line struct{ function, line uint32 }
	var lines index[line]
	shared := &s.timeline.shared
	shown := make([]uint32, len(shared.frames.keys)) // numbers of our frames in the file
	for i, f := range shared.frames.keys {
		shown[i], _ = lines.id(line{f.function, f.line})
	}
	for _, f := range lines.keys {
		fn := shared.functions.keys[f.function]
		j.open('{')
		j.text("name", shared.strings.keys[fn.name])
		if fn.file >= 0 {
			j.text("file", shared.strings.keys[fn.file])
		} else if fn.lib >= 0 {
			j.text("file", clean(shared.libs.keys[fn.lib].Path))
		}
		if f.line > 0 {
			j.field("line", int64(f.line))
		}
		j.close('}')
	}
	j.close(']')
	j.close('}')
	j.name("profiles")
	j.open('[')
	for _, t := range s.timeline.threads {
		s.writeProfile(&j, t, shown)
	}
	j.close(']')
	j.close('}')
	j.out.WriteByte('\n')
	return j.out.Flush()
}

func (s *Speedscope) writeProfile(j *jsonWriter, t *timedThread, shown []uint32) {
	j.open('{')
	j.text("type", "sampled")
	j.text("name", fmt.Sprintf("%s %d/%d %s", cmp.Or(clean(t.key.process), unknownName), t.key.pid, t.key.tid, cmp.Or(clean(t.name), unknownName)))
	j.text("unit", "nanoseconds")
	j.field("startValue", 0)
	var sum int64
	for _, x := range t.samples {
		sum += int64(x.weight)
	}
	j.field("endValue", sum)
	j.name("samples")
	j.open('[')
	nodes := s.timeline.shared.tree.nodes
	var stack []uint32
	for _, x := range t.samples {
		stack = stack[:0]
		for n := x.stack; n != 0; n = nodes[n].parent {
			stack = append(stack, shown[nodes[n].frame])
		}
		slices.Reverse(stack)
		j.open('[')
		for _, f := range stack {
			j.int(int64(f))
		}
		j.close(']')
	}
	j.close(']')
	j.name("weights")
	j.open('[')
	for _, x := range t.samples {
		j.int(int64(x.weight))
	}
	j.close(']')
	j.close('}')
}
