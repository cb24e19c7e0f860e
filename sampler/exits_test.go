package sampler

import (
	"context"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/output"
	"sfsample/ptrace"
	"sfsample/sampler/capture"
)

// startWaiting starts a process that waits for a line.
func startWaiting(t *testing.T) *testprog.Proc {
	t.Helper()
	cmd := targetCmd()
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	return testprog.StartCmd(t, cmd)
}

// TestKilledInStop kills a process when the stop of one of its threads was
// reported, and not answered yet: the thread stops once more, at its exit, and
// shows its stack there as all others do.
func TestKilledInStop(t *testing.T) {
	p := startWaiting(t)
	opt := Options{Hz: 99, PIDs: []int{p.PID}, All: true, Stop: StopAlways, ExitStacks: true}
	killed := false
	opt.journal = func(k ptrace.Kind, tid int, tick int64) {
		if k != ptrace.KindInterrupt || killed {
			return
		}
		killed = true
		if err := unix.Kill(p.PID, unix.SIGKILL); err != nil {
			t.Error(err)
		}
		for end := time.Now().Add(testprog.Patience); !ptrace.AtExit(tid); {
			if time.Now().After(end) {
				t.Errorf("thread %d does not come to its exit", tid)
				return
			}
		}
	}
	sink := new(exitSink)
	r, err := Run(context.Background(), opt, 0, testPipeline(sink), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !killed {
		t.Fatal("no stop was reported")
	}
	if r.Exits.Taken != r.Exits.Threads || r.Exits.Taken != sink.exits || r.Exits.Threads == 0 || r.Exits.NoRoom != 0 {
		t.Errorf("%+v, and the output got the stacks of %d exits", r.Exits, sink.exits)
	}
}

// exitSink counts stacks at exits.
type exitSink struct{ exits int64 }

// Add implements output.Sink.
func (s *exitSink) Add(x *output.Sample) error {
	if x.Taken == "exit" {
		s.exits++
	}
	return nil
}

// Close implements output.Sink.
func (s *exitSink) Close() error { return nil }

// TestPoolLast takes captures until there is no more room: threads at their exit
// get some all the same, up to a bound.
func TestPoolLast(t *testing.T) {
	for _, size := range []int{minCopy, newCopy} {
		p := new(pool)
		var out []*capture.Capture
		for c := p.get(size, 0); c != nil; c = p.get(size, 0) {
			out = append(out, c)
		}
		n := len(out)
		for c := p.last(size, size); c != nil; c = p.last(size, size) {
			out = append(out, c)
		}
		if more := len(out) - n; more < 64 || p.used > poolBytes+moreBytes || p.out > maxOut+moreOut {
			t.Errorf("%d captures, and %d of threads at their exit: %d bytes", n, more, p.used)
		}
		for _, c := range out {
			p.put(c)
		}
		if p.used != 0 || p.out != 0 {
			t.Errorf("when all are back, %d captures of %d bytes are out", p.out, p.used)
		}
	}
}

// TestRunCloses: a run that ends while its process lives leaves none of the files
// open that the engine reads: two of each thread, and two of the process.
func TestRunCloses(t *testing.T) {
	p := startWaiting(t)
	sink := new(exitSink)
	run := func() {
		if _, err := Run(context.Background(), Options{Hz: 99, PIDs: []int{p.PID}, All: true}, 50*time.Millisecond, testPipeline(sink), nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	const runs = 5 // names keep a root open for each; tests before this may close some yet
	run()
	before := openFiles(t)
	for range runs {
		run()
	}
	if more := openFiles(t) - before; more > 2*runs {
		t.Errorf("%d files more are open than before %d runs", more, runs)
	}
}
