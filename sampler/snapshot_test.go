package sampler

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"sfsample/internal/testprog"
	"sfsample/output"
)

// flickers is a sink that checks the stacks of flicker, and ends the run when it
// has seen enough of them.
type flickers struct {
	want, seen, wrong int
	first             []output.Frame // the first one that is wrong
	enough            func()
}

// Add implements output.Sink.
func (f *flickers) Add(s *output.Sample) error {
	if s.Taken != "no stop" {
		return nil
	}
	var bits []bool // innermost first
	inside := false
	for _, frame := range s.Stack.Frames {
		switch frame.Func {
		case "b0", "b1":
			bits = append(bits, frame.Func == "b1")
		case "flicker":
			inside = true
		}
	}
	if !inside && len(bits) == 0 && s.Stack.End == "" {
		return nil // the main thread
	}
	if f.seen++; f.seen == f.want {
		f.enough()
	}
	if s.Stack.End == "" && inside && complements(bits) {
		return nil
	}
	if f.wrong++; f.first == nil {
		f.first = s.Stack.Frames
	}
	return nil
}

// complements tells whether the second half is the complement of the first.
func complements(bits []bool) bool {
	half := len(bits) / 2
	for i := range half {
		if bits[i] == bits[half+i] {
			return false
		}
	}
	return len(bits)%2 == 0 && len(bits) >= 8 && len(bits) <= 24
}

// Close implements output.Sink.
func (f *flickers) Close() error { return nil }

// TestSnapshots reads, without stops, threads whose stacks change at each wake-up:
// every stack that is accepted must be of one instant. SFSAMPLE_SNAPSHOTS is how
// many, for long runs.
func TestSnapshots(t *testing.T) {
	want := 2000
	if n, err := strconv.Atoi(os.Getenv("SFSAMPLE_SNAPSHOTS")); err == nil {
		want = n
	}
	cmd := exec.Command(testprog.Compile(t, []string{"-O1", "-fno-optimize-sibling-calls", "-pthread"}, "flicker.c"))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	p := testprog.StartCmd(t, cmd)
	ctx, cancel := context.WithTimeout(context.Background(), max(testprog.Patience, time.Duration(want)*time.Millisecond))
	defer cancel()
	sink := &flickers{want: want, enough: cancel}
	r, err := Run(ctx, Options{Hz: 2999, All: true, WallWeight: true, Stop: StopNever, PIDs: []int{p.PID}}, 0, testPipeline(sink), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d snapshots, %d thread ticks = %v", sink.seen, r.Expected, &r.Account)
	if sink.wrong > 0 {
		t.Errorf("%d of %d stacks are not of one instant, the first: %v", sink.wrong, sink.seen, sink.first)
	}
	if sink.seen < want {
		t.Errorf("%d stacks, want %d", sink.seen, want)
	}
}
