package output

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
)

// TestSpeedscopeAgreesWithFolded reads the profile by speedscope's file format
// (file-format-schema.json: every profile has as many weights as samples, and they add up
// to its length) and holds it against the folded output.
func TestSpeedscopeAgreesWithFolded(t *testing.T) {
	b := write(t, func(b *bytes.Buffer) *Speedscope { return NewSpeedscope(b, Options{Hz: 100}) }, testRun())
	var doc struct {
		Shared struct {
			Frames []struct {
				Name, File string
				Line       int
			}
		}
		Profiles []struct {
			Type, Name, Unit     string
			StartValue, EndValue int64
			Samples              [][]int
			Weights              []int64
		}
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, p := range doc.Profiles {
		if p.Type != "sampled" || p.Unit != "nanoseconds" || len(p.Samples) != len(p.Weights) {
			t.Errorf("profile %q: type %s, unit %s, %d samples, %d weights", p.Name, p.Type, p.Unit, len(p.Samples), len(p.Weights))
		}
		sum := p.StartValue
		process, _, _ := strings.Cut(p.Name, "00/") // of the pid
		for i, s := range p.Samples {
			sum += p.Weights[i]
			path := process[:len(process)-2]
			for _, f := range s {
				path += ";" + doc.Shared.Frames[f].Name
			}
			got[path] += p.Weights[i] / 1000
		}
		if sum != p.EndValue {
			t.Errorf("profile %q ends at %d, its weights at %d", p.Name, p.EndValue, sum)
		}
	}
	own := map[string]int64{}
	for l := range strings.Lines(string(write(t, folded(Options{Micros: true}), testRun()))) {
		i := strings.LastIndexByte(l, ' ')
		own[l[:i]], _ = strconv.ParseInt(strings.TrimSpace(l[i:]), 10, 64)
	}
	for path, n := range got {
		if strings.HasPrefix(path, "e;v") { // what is special in folded lines only
			path = `e:v\x07il_3;main;a:b<script>"'&\x1b[31m\x0a\x09\xff\u202e\ end_12`
		}
		if own[path] != n {
			t.Errorf("%s has weight %d, want %d", path, n, own[path])
		}
	}
	if len(got) != 6 {
		t.Errorf("%d stacks, want 6: %v", len(got), got)
	}
}

// TestSpeedscopeMergesAddresses: samples at two addresses of a function are one frame, as speedscope adds up by frame.
func TestSpeedscopeMergesAddresses(t *testing.T) {
	var samples []*Sample
	for i := range 2 {
		pc := uint64(0x1000 + 4*i)
		samples = append(samples, &Sample{Process: "app", PID: 1, TID: 1, Time: start, CPU: tick, Stack: &Stack{Frames: []Frame{
			{Func: "f", Module: "app", PC: pc, Offset: pc - 0x1000, Mapping: &Mapping{Path: "/bin/app", Image: 0x800}}}}})
	}
	b := write(t, func(b *bytes.Buffer) *Speedscope { return NewSpeedscope(b, Options{Hz: 100}) }, samples)
	if n := strings.Count(string(b), `"name":"f"`); n != 1 {
		t.Errorf("f is %d frames", n)
	}
}
