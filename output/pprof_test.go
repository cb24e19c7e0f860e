package output

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

func pprof(o Options) func(*bytes.Buffer) *PProf {
	return func(b *bytes.Buffer) *PProf { return NewPProf(b, o) }
}

// TestPProfRoundTrip reads the profile back with pprof's own package.
func TestPProfRoundTrip(t *testing.T) {
	for name, o := range map[string]Options{
		"cpu":  {Hz: 100},
		"wall": {Hz: 100, Wall: true, Lines: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := write(t, pprof(o), testRun())
			p := parsePProf(t, b)
			if err := p.CheckValid(); err != nil {
				t.Error(err)
			}
			var want, got [3]int64
			for _, s := range testRun() {
				want[1] += int64(s.CPU)
				if o.Wall {
					want[2] += int64(s.Wall)
				}
			}
			want[0] = (max(want[1], want[2]) + int64(tick)/2) / int64(tick)
			for _, s := range p.Sample {
				for i, v := range s.Value {
					got[i] += v
				}
			}
			if got != want {
				t.Errorf("values add up to %v, want %v", got, want)
			}
			golden(t, "pprof-"+name+".txt", []byte(p.String()))
			if again := write(t, pprof(o), testRun()); !bytes.Equal(b, again) {
				t.Error("the same stream gave other bytes")
			}
		})
	}
}

func TestPProfInlinesShareALocation(t *testing.T) {
	p := parsePProf(t, write(t, pprof(Options{Hz: 100}), testRun()[:1]))
	if n := len(p.Sample[0].Location); n != 2 {
		t.Fatalf("%d locations, want 2: parse with scan in it, and main", n)
	}
	leaf := p.Sample[0].Location[0]
	if leaf.Address != frParse.PC-1 {
		t.Errorf("address %#x, want %#x, in the call", leaf.Address, frParse.PC-1)
	}
	var names []string
	for _, l := range leaf.Line {
		names = append(names, fmt.Sprint(l.Function.Name, " ", l.Function.Filename, ":", l.Line))
	}
	if got, want := strings.Join(names, ", "), "scan /src/scan.h:7, parse /src/parse.c:33"; got != want {
		t.Errorf("lines are %s, want %s", got, want)
	}
}

func parsePProf(t *testing.T, b []byte) *profile.Profile {
	t.Helper()
	p, err := profile.Parse(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestPProfTool has go tool pprof read the file.
func TestPProfTool(t *testing.T) {
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go command on this machine")
	}
	file := filepath.Join(t.TempDir(), "app.pb.gz")
	if err := os.WriteFile(file, write(t, pprof(Options{Hz: 100}), testRun()), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tool, "tool", "pprof", "-top", "-unit=ms", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// 10+30 ms of CPU time have scan as their leaf, 93 ms were used in all.
	for _, want := range []string{"File: app\n", "Type: cpu\n", "of 93ms total", "40ms 43.01% 43.01%       63ms 67.74%  scan (inline)"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("go tool pprof -top does not say %q:\n%s", want, out)
		}
	}
}

// TestPProfBounded feeds more than each of the bounds allows, one after the
// other: no tick is lost, and what did not fit is marked.
func TestPProfBounded(t *testing.T) {
	for _, tc := range []struct {
		name string
		n    int
		make func(i int) *Sample
	}{
		{"paths", 3000, func(i int) *Sample {
			f := frMain
			f.PC += uint64(i)
			return &Sample{Stack: &Stack{Frames: []Frame{frRead, frParse, f, frMain}}}
		}},
		{"locations", 3000, func(i int) *Sample {
			return &Sample{Stack: &Stack{Frames: []Frame{{Func: "f", PC: uint64(i + 1), How: "regs"}}}}
		}},
		{"labels", 3000, func(i int) *Sample {
			return &Sample{Thread: fmt.Sprint(i), Stack: &Stack{Frames: []Frame{frMain}}}
		}},
		{"cells", 3000, func(i int) *Sample {
			return &Sample{Thread: fmt.Sprint(i % 100), Stack: &Stack{Frames: []Frame{{Func: "f", PC: uint64(i/100 + 1), How: "regs"}}}}
		}},
		{"mappings", 3000, func(i int) *Sample {
			f := frMain
			f.Mapping = &Mapping{Start: uint64(i) << 12, End: uint64(i+1) << 12}
			return &Sample{Stack: &Stack{Frames: []Frame{f}}}
		}},
		{"names", 3 * maxTextBytes / 4000, func(i int) *Sample {
			return &Sample{Stack: &Stack{Frames: []Frame{{Func: fmt.Sprint(i, strings.Repeat("x", 4000)), PC: 1}}}}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var b bytes.Buffer
			p := NewPProf(&b, Options{Hz: 100})
			c := &p.cells
			c.tree.limit, c.code.byAddr.limit, c.index.limit, c.labels.limit, c.code.mappings.limit = 1500, 1400, 1000, 200, 200
			for i := range tc.n {
				s := tc.make(i)
				s.CPU = tick
				p.Add(s)
			}
			for what, over := range map[string]bool{
				"nodes":     len(c.tree.nodes) > 2*c.tree.limit,
				"locations": len(c.code.list) > c.code.byAddr.limit,
				"labels":    len(c.labels.keys) > c.labels.limit,
				"cells":     len(c.times) > c.index.limit+1,
				"mappings":  len(c.code.mappings.keys) > c.code.mappings.limit,
				"strings":   c.code.strings.bytes > maxTextBytes,
			} {
				if over {
					t.Errorf("too many %s", what)
				}
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			var total int64
			got := parsePProf(t, b.Bytes())
			for _, s := range got.Sample {
				total += s.Value[0]
				for i, l := range s.Location {
					if i > 1 && l.Line[0].Function.Name == overflow {
						t.Fatalf("frame %d of %d says that there was more", i, len(s.Location))
					}
				}
			}
			if total != int64(tc.n) {
				t.Errorf("%d ticks, want %d", total, tc.n)
			}
		})
	}
}

func BenchmarkPProfAdd(b *testing.B) {
	p := NewPProf(io.Discard, Options{Hz: 100})
	samples := testRun()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p.Add(samples[i%len(samples)])
	}
}

// BenchmarkPProfClose writes 10,000 stacks of 50 frames, each with a leaf of
// its own.
func BenchmarkPProfClose(b *testing.B) {
	p := NewPProf(io.Discard, Options{Hz: 100})
	for i := range 10_000 {
		frames := make([]Frame, 50)
		for d := range frames {
			frames[d] = Frame{Func: fmt.Sprint("f", d), PC: uint64(d + 1), How: "fp"}
		}
		frames[0].PC = uint64(1000 + i)
		p.Add(&Sample{CPU: tick, Stack: &Stack{Frames: frames}})
	}
	b.ReportAllocs()
	for b.Loop() {
		if err := p.write(io.Discard); err != nil {
			b.Fatal(err)
		}
	}
}
