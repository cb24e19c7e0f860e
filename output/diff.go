package output

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/google/pprof/profile"
)

// Sides of a comparison.
const (
	After  = 0
	Before = 1
)

// Bounds of the files of a comparison: some bytes of one can be, or become, a thousand times as much.
const (
	maxProfile  = 1 << 30   // bytes
	maxExpanded = 128 << 20 // bytes of a profile of pprof, expanded
	maxMessages = 4 << 20   // of a profile of pprof; one of two bytes takes 130 in memory
	maxFrames   = 1 << 16   // of a stack
)

// Diff is an [HTML] page that compares two profiles: frames that have a larger share after
// are red, those with a smaller one blue. Frames are compared by name, and each side is scaled
// to the same total.
type Diff struct{ page *HTML }

// OpenDiff opens the file of a comparison, whose sides bear these names.
func OpenDiff(spec Spec, before, after string) (*Outputs, *Diff, error) {
	if spec.Format != "html" {
		return nil, nil, fmt.Errorf("output %s: a comparison is a page (try: -o diff.html)", spec.File)
	}
	f, err := openFile(spec.File, false)
	if err != nil {
		return nil, nil, err
	}
	format, _ := formatByName("html")
	h := NewHTML(f, Options{})
	h.kinds = false
	h.pages = []string{clean(before), clean(after)}
	return &Outputs{list: []*sinkFile{{format: format, file: f, sink: h}}}, &Diff{h}, nil
}

// side counts samples on one side of a comparison.
type side struct {
	page  *HTML
	which int
	wall  bool
}

// Add implements Sink.
func (s *side) Add(x *Sample) error {
	weight := x.CPU
	if s.wall {
		weight = x.Wall
	}
	s.page.count(pageCell{node: s.page.find(x)}, s.which, int64(weight))
	return nil
}

// Close implements Sink.
func (s *side) Close() error { return nil }

// Side is a sink of samples for one side; wall: they weigh wall-clock time.
func (d *Diff) Side(which int, wall bool) Sink { return &side{d.page, which, wall} }

// Read reads a profile for one side: one of pprof (profile.proto, gzipped or not) or folded lines.
// Its error is of a damaged or an empty one.
func (d *Diff) Read(r io.Reader, which int) error {
	b, err := io.ReadAll(io.LimitReader(r, maxProfile+1))
	switch {
	case err != nil:
		return err
	case len(b) > maxProfile:
		return fmt.Errorf("it is larger than %d bytes", maxProfile)
	case len(b) == 0:
		return errors.New("it is empty")
	}
	to := &side{d.page, which, false}
	if !bytes.HasPrefix(b, []byte("\x1f\x8b")) {
		err := readFolded(b, to)
		if err == nil {
			return nil
		}
		if p, perr := profileOf(b); perr == nil {
			return readPProf(p, to)
		}
		return err
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err == nil {
		b, err = io.ReadAll(io.LimitReader(z, maxExpanded+1))
	}
	var p *profile.Profile
	if err == nil {
		p, err = profileOf(b)
	}
	if err != nil {
		return fmt.Errorf("it is no profile of pprof: %w", err)
	}
	return readPProf(p, to)
}

// profileOf parses an expanded profile.
func profileOf(b []byte) (*profile.Profile, error) {
	if len(b) > maxExpanded {
		return nil, fmt.Errorf("expanded it is larger than %d bytes", maxExpanded)
	}
	if messages(b) > maxMessages {
		return nil, fmt.Errorf("it has more than %d samples, locations and names", maxMessages)
	}
	p, err := profile.ParseUncompressed(b)
	if err == nil {
		err = p.CheckValid()
	}
	return p, err
}

// messages counts the fields of a protocol buffer message that have a length, and stops at what is none.
func messages(b []byte) (n int) {
	for {
		key, k := binary.Uvarint(b)
		v, size := binary.Uvarint(b[max(k, 0):])
		if k <= 0 || size <= 0 {
			return n
		}
		b = b[k:]
		skip := uint64(size)
		switch key & 7 {
		case 0:
		case 1:
			skip = 8
		case 2:
			n++
			skip += v
		case 5:
			skip = 4
		default:
			return n
		}
		if skip < v && key&7 == 2 || skip > uint64(len(b)) {
			return n
		}
		b = b[skip:]
	}
}

// readFolded reads folded lines: frames with ';' between them, a blank, a count.
func readFolded(b []byte, to Sink) error {
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, 64<<20)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		weight, err := strconv.ParseFloat(line[i+1:], 64)
		if i < 0 || err != nil || !(weight >= 0 && weight <= 1e15) {
			return fmt.Errorf("line %d is no folded stack: no frames and a count", n)
		}
		if strings.Count(line, ";") >= maxFrames {
			return fmt.Errorf("line %d has more than %d frames", n, maxFrames)
		}
		names := strings.Split(line[:i], ";")
		if err := to.Add(named(names, weight)); err != nil {
			return err
		}
	}
	return lines.Err()
}

// named is a sample of these frames, root first, the first of which is the process.
func named(names []string, weight float64) *Sample {
	s := &Sample{Process: names[0], CPU: time.Duration(weight * 1000), Stack: &Stack{}}
	for i := len(names) - 1; i > 0; i-- {
		s.Stack.Frames = append(s.Stack.Frames, Frame{Func: names[i]})
	}
	return s
}

// readPProf takes the values of the default type, or else of the last.
func readPProf(p *profile.Profile, to Sink) error {
	value := len(p.SampleType) - 1
	for i, t := range p.SampleType {
		if t.Type == p.DefaultSampleType {
			value = i
		}
	}
	for _, s := range p.Sample {
		names := []string{"profile"}
		if process := s.Label["process"]; len(process) > 0 {
			names[0] = process[0]
		}
		for i := len(s.Location) - 1; i >= 0; i-- {
			if len(names)+len(s.Location[i].Line) > maxFrames {
				return fmt.Errorf("a stack has more than %d frames", maxFrames)
			}
			lines := s.Location[i].Line
			if len(lines) == 0 {
				names = append(names, fmt.Sprintf("%#x", s.Location[i].Address))
			}
			for k := len(lines) - 1; k >= 0; k-- {
				names = append(names, lines[k].Function.Name)
			}
		}
		if value >= 0 && value < len(s.Value) && s.Value[value] > 0 {
			if err := to.Add(named(names, float64(s.Value[value]))); err != nil {
				return err
			}
		}
	}
	return nil
}
