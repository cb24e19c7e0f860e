package sampler

import (
	"context"
	"testing"
	"time"

	"sfsample/internal/testprog"
	"sfsample/output"
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

// TestKeptExecs holds a process whose threads call exec one after the other, often while one is asked to stop: none
// of these requests is left over, whose samples nobody could use again.
func TestKeptExecs(t *testing.T) {
	path := threadsProg(t, "execs.c")
	forkAside(t)
	p := testprog.Start(t, path, "4")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	var r Result
	go func() {
		var err error
		r, err = Run(ctx, Options{Hz: 999, ExitStacks: true, PIDs: []int{p.PID}}, 0, testPipeline(new(byFunction)), nil, nil)
		ended <- err
	}()
	for range 60 {
		p.Line(t)
	}
	cancel()
	if err := within(t, ended, "the run does not end"); err != nil {
		t.Error(err)
	}
	if r.Stops.Waits != 0 {
		t.Errorf("%d stops had not come at the end, want none", r.Stops.Waits)
	}
}

// TestExitsOfOne: of a process of whose threads one was asked for, whose ends are held, the others' exits are nobody's samples.
func TestExitsOfOne(t *testing.T) {
	cmd := targetCmd("storm")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := testprog.StartCmd(t, cmd)
	sink := new(tally)
	pipe := testPipeline(sink)
	ended := make(chan error, 1)
	var r Result
	go func() {
		var err error
		r, err = Run(context.Background(), Options{Hz: 99, ExitStacks: true, PIDs: []int{p.PID}, TIDs: []int{p.PID}}, 0, pipe, func() { in.Write([]byte("go\n")) }, nil)
		ended <- err
	}()
	for p.Line(t) != "done" {
	}
	if err := within(t, ended, "the run does not end"); err != nil {
		t.Fatal(err)
	}
	if err := checkAccount(&r, sink); err != nil {
		t.Error(err)
	}
	if want := (Exits{Threads: 1, Taken: 1}); r.Exits != want {
		t.Errorf("%+v, want the leader's alone", r.Exits)
	}
	if pipe.pool.used != 0 || pipe.pool.out != 0 {
		t.Errorf("%d bytes of %d captures were not given back", pipe.pool.used, pipe.pool.out)
	}
}
