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
	"time"

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
			b := write(t, pprof(o), stream())
			p, err := profile.Parse(bytes.NewReader(b))
			if err != nil {
				t.Fatal(err)
			}
			if err := p.CheckValid(); err != nil {
				t.Error(err)
			}
			var want, got [3]int64
			for _, s := range stream() {
				want[0] += s.Ticks
				want[1] += int64(s.CPU)
				if o.Wall {
					want[2] += int64(s.Wall)
				}
			}
			for _, s := range p.Sample {
				for i, v := range s.Value {
					got[i] += v
				}
			}
			if got != want {
				t.Errorf("values add up to %v, want %v", got, want)
			}
			golden(t, "pprof-"+name+".txt", []byte(p.String()))
			if again := write(t, pprof(o), stream()); !bytes.Equal(b, again) {
				t.Error("the same stream gave other bytes")
			}
		})
	}
}

func TestPProfInlinesShareALocation(t *testing.T) {
	p := NewPProf(io.Discard, Options{Hz: 100}).with(stream()[:1]).profile()
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

func (p *PProf) with(samples []*Sample) *PProf {
	for _, s := range samples {
		p.Add(s)
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
	if err := os.WriteFile(file, write(t, pprof(Options{Hz: 100}), stream()), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tool, "tool", "pprof", "-top", "-unit=ms", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	// 10+30 ms of CPU time have scan as their leaf, 62 ms were used in all.
	for _, want := range []string{"File: app\n", "Type: cpu\n", "of 62ms total", "40ms 64.52% 64.52%       40ms 64.52%  scan (inline)"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("go tool pprof -top does not say %q:\n%s", want, out)
		}
	}
}

func TestPProfBounded(t *testing.T) {
	p := NewPProf(io.Discard, Options{Hz: 100})
	p.tree.limit = 100
	for i := range 1000 {
		f := frMain
		f.PC += uint64(i)
		p.Add(&Sample{Ticks: 1, CPU: time.Second, Stack: &Stack{Frames: []Frame{f, frMain}}})
	}
	if n := len(p.tree.nodes); n > 200 {
		t.Errorf("%d nodes with a limit of 100", n)
	}
	var total int64
	for _, s := range p.profile().Sample {
		total += s.Value[0]
	}
	if total != 1000 {
		t.Errorf("%d ticks, want 1000", total)
	}
}

func BenchmarkPProfAdd(b *testing.B) {
	p := NewPProf(io.Discard, Options{Hz: 100})
	samples := stream()
	p.with(samples)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p.Add(samples[i%len(samples)])
	}
}
