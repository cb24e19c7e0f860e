package output

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/pprof/profile"
)

// TestDealtAlike: a profile's ticks, added up by names, are the lines of the folded file, though a line is of many addresses,
// threads and states whose times are parts of a tick.
func TestDealtAlike(t *testing.T) {
	for _, by := range []By{ByProcess, ByThread, ByState, ByPID} {
		var folded, packed bytes.Buffer
		opt := Options{Hz: 100, By: by}
		f, p := NewFolded(&folded, opt), NewPProf(&packed, opt)
		r := rand.New(rand.NewPCG(1, 2))
		for range 500 {
			n := r.IntN(4)
			s := &Sample{PID: 1 + n, TID: 1 + n, Process: fmt.Sprint("p", n%2), Thread: fmt.Sprint("t", n), State: fmt.Sprint("s", r.IntN(2)), CPU: time.Duration(r.IntN(20_000_000)), Stack: new(Stack)}
			for range 1 + r.IntN(3) {
				name := r.IntN(3)
				s.Stack.Frames = append(s.Stack.Frames, Frame{Func: fmt.Sprint("f", name), PC: uint64(0x1000*name + r.IntN(50)), How: "frame pointer"})
			}
			if r.IntN(4) == 0 {
				s.Stack.End = "stack does not grow"
			}
			if f.Add(s) != nil || p.Add(s) != nil {
				t.Fatal("a sample is not taken")
			}
		}
		if f.Close() != nil || p.Close() != nil {
			t.Fatal("what is closed is not written")
		}
		want, got := map[string]int64{}, map[string]int64{}
		for line := range strings.Lines(folded.String()) {
			at := strings.LastIndexByte(line, ' ')
			n, err := strconv.ParseInt(strings.TrimSpace(line[at:]), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			want[line[:at]] = n
		}
		x, err := profile.Parse(&packed)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range x.Sample {
			label := func(key string) string { return strings.Join(s.Label[key], "") }
			names := []string{label("process")}
			switch by {
			case ByPID:
				names[0] += fmt.Sprint("-", s.NumLabel["pid"][0])
			case ByThread:
				names = append(names, label("thread"))
			case ByState:
				names = append(names, label("state"))
			}
			for _, l := range slices.Backward(s.Location) {
				names = append(names, l.Line[0].Function.Name)
			}
			if s.Value[0] > 0 {
				got[strings.Join(names, ";")] += s.Value[0]
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || len(want) < 50 {
			t.Errorf("by %v, %d lines: -folded +pprof:\n%s", by, len(want), diff)
		}
	}
}
