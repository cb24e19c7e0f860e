package main

import (
	"testing"
	"time"

	"sfsample/output"
	"sfsample/sampler"
)

// goList makes goroutines with these times that they have waited.
func goList(reason string, waits ...time.Duration) (list []*sampler.Goroutine) {
	state := &sampler.GoState{Status: "waiting", Reason: reason}
	for i, w := range waits {
		list = append(list, &sampler.Goroutine{GoState: state, ID: uint64(i + 1), Waits: w})
	}
	return list
}

// TestGoLines: the lines that begin goroutines.
func TestGoLines(t *testing.T) {
	p := &sampler.GoProcess{PID: 12, Process: "a\x1bb"}
	for _, tt := range []struct {
		list []*sampler.Goroutine
		want string
	}{
		{goList("select", 0), `goroutine 1 of pid 12 "a\\x1bb": select`},
		{goList("", 0), `goroutine 1 of pid 12 "a\\x1bb": waiting`},
		{goList("sleep", 123*time.Second), `goroutine 1 of pid 12 "a\\x1bb": sleep, not run for 2m3s at least`},
		{goList("sleep", 3*time.Second, 3*time.Second), `2 goroutines of pid 12 "a\\x1bb": sleep, not run for 3s at least: goroutine 1-2`},
		{goList("sleep", 3*time.Second, 0, 5*time.Second), `3 goroutines of pid 12 "a\\x1bb": sleep, 2 of them not run for 3s at least: goroutine 1-3`},
		{goList("sleep", 3*time.Second, 5*time.Second), `2 goroutines of pid 12 "a\\x1bb": sleep, not run for 3s to 5s at least: goroutine 1-2`},
	} {
		if got := goLine(p, tt.list); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

// TestGoPlace: the function that is told is the innermost one not of a package that waits.
func TestGoPlace(t *testing.T) {
	for _, tt := range []struct {
		frames []string
		want   string
	}{
		{[]string{"runtime.gopark", "sync.(*Mutex).Lock", "main.work", "runtime.goexit"}, " in main.work"},
		{[]string{"runtime.gopark", "internal/poll.runtime_pollWait", "net.(*conn).Read", "main.work"}, " in net.(*conn).Read"},
		{[]string{"runtime.gopark", "a.org/x/runtime.Wait", "main.work"}, " in a.org/x/runtime.Wait"},
		{[]string{"runtime.gopark", "runtime/internal/x.y", "", "b\x1b.c"}, ` in b\x1b.c`},
		{[]string{"runtime.gopark", "runtime.goexit"}, ""},
		{nil, ""},
	} {
		st := &output.Stack{}
		for _, f := range tt.frames {
			st.Frames = append(st.Frames, output.Frame{Func: f})
		}
		if got := goPlace(st); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.frames, got, tt.want)
		}
	}
}

// TestGoMarks: with --watch those are marked that have run since, or were not there.
func TestGoMarks(t *testing.T) {
	old := goList("sleep", 1, 1, 1, 1)
	last := &view{goroutines: []*sampler.GoProcess{{PID: 12, Goroutines: old}}}
	now := goList("sleep", 2, 2, 2, 2, 2)
	now[1].Runs, now[2].SP = 7, 8
	before := (&view{last: last}).goBefore(12)
	for i, want := range []string{"", " [changed]", " [changed]", "", " [changed]"} {
		if got := goMark(before, now[i]); got != want {
			t.Errorf("goroutine %d: %q, want %q", i+1, got, want)
		}
	}
	if got := goMark((&view{}).goBefore(12), now[1]); got != "" {
		t.Errorf("without --watch: %q", got)
	}
}

// TestGoSummary counts, and tells what most wait for; the runtime's own stand apart.
func TestGoSummary(t *testing.T) {
	st := &output.Stack{Frames: []output.Frame{{Func: "runtime.gopark"}, {Func: "main.worker"}}}
	list := append(goList("chan receive", 0, 0, 0), goList("select", 0)...)
	list[0].Stack = st
	own := goList("GC worker (idle)", 0, 0, 0, 0, 0)
	own[0].Runtime = true
	p := &sampler.GoProcess{PID: 12, Process: "prog", Goroutines: append(list, own...), Counts: sampler.GoCounts{Running: 1, InCall: 2}}
	want := `7 goroutines of pid 12 "prog": 4 waiting, 2 in a system call, 1 running, and 5 of the runtime; 3 wait: chan receive in main.worker`
	if got := goSummary(p); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := goMissing(&sampler.GoProcess{PID: 12, Counts: sampler.GoCounts{Changed: 2, Beyond: 3}, Stackless: 4}); len(got) != 3 {
		t.Errorf("%q", got)
	}
}
