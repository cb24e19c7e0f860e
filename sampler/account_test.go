package sampler

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"sfsample/internal/testprog"
	"sfsample/output"
	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/module"
)

// event is one line of the log of births and deaths: what the kernel reported
// of a tracee, when tick was the last one that had been handled.
type event struct {
	kind ptrace.Kind
	tid  int
	tick int64
}

// threadTicks recomputes ticks times threads from the log, knowing nothing of
// the engine's lists. before are the threads that lived when the run began, pid
// is the process, ticks is how many there were.
func threadTicks(pid int, before []int, log []event, ticks int64) (sum int64) {
	born := map[int]int64{}    // by thread: the tick before its first
	forked := map[int]bool{}   // processes of their own
	reported := map[int]bool{} // births that were reported both ways
	for _, tid := range before {
		born[tid], reported[tid] = -1, true
	}
	die := func(tid int, tick int64) {
		if from, ok := born[tid]; ok {
			sum += tick - from
			delete(born, tid)
		}
	}
	for _, e := range log {
		switch e.kind {
		case ptrace.KindClone, ptrace.KindFork, ptrace.KindVfork, ptrace.KindInterrupt:
			// A new thread's first stop may come before its parent's report.
			if !reported[e.tid] {
				born[e.tid], reported[e.tid] = e.tick, true
			}
			if e.kind == ptrace.KindFork || e.kind == ptrace.KindVfork {
				forked[e.tid] = true
			}
		case ptrace.KindGone:
			die(e.tid, e.tick)
		case ptrace.KindExec:
			for tid := range born {
				if e.tid == pid && tid != pid && !forked[tid] {
					die(tid, e.tick)
				}
			}
		}
	}
	for tid := range born {
		die(tid, ticks-1)
	}
	return sum
}

// checkAccount compares an account with the log, and with what the outputs got.
func checkAccount(a *Account, recomputed int64, got *tally) error {
	switch {
	case a.Expected != recomputed:
		return fmt.Errorf("%d thread ticks were counted, the log of births and deaths has %d", a.Expected, recomputed)
	case a.Sum() != recomputed:
		return fmt.Errorf("the classes (%v) sum up to %d, the log of births and deaths has %d thread ticks", a, a.Sum(), recomputed)
	case a.Count[Sampled] != got.samples:
		return fmt.Errorf("%d samples were counted, the output got %d", a.Count[Sampled], got.samples)
	case a.Count[Reused] != got.reused:
		return fmt.Errorf("%d reused ticks were counted, the output got %d", a.Count[Reused], got.reused)
	}
	return nil
}

// tally is a sink that counts.
type tally struct {
	interval        time.Duration
	samples, reused int64
}

// Add implements output.Sink.
func (c *tally) Add(s *output.Sample) error {
	switch s.Taken {
	case "stop", "no stop":
		c.samples++
	case "reused":
		c.reused += int64((s.Wall + c.interval/2) / c.interval)
	}
	return nil
}

// Close implements output.Sink.
func (c *tally) Close() error { return nil }

// testPipeline is a pipeline for live processes.
func testPipeline(sink output.Sink) *Pipeline {
	cache := module.NewCache(0)
	return NewPipeline(PipelineConfig{
		Host: runtime.GOARCH, Start: time.Now(), Sink: sink, Names: NewNames(NameOptions{}), Live: true,
		Open: func(pid int) (Target, error) {
			live := module.NewLive(pid)
			return module.NewSpace(live, cache, module.Options{Owner: live.Owner()}), nil
		},
	})
}

// TestAccount samples processes whose threads are born and die all the time.
// What became of each tick of each thread must sum up to what a log of births
// and deaths says, which is kept apart.
func TestAccount(t *testing.T) {
	tests := []struct {
		name   string
		target []string
		opt    Options
	}{
		{"running", []string{"storm"}, Options{Hz: 999}},
		{"all", []string{"storm"}, Options{Hz: 999, All: true, WallWeight: true}},
		{"always stopped", []string{"storm"}, Options{Hz: 29, All: true, Stop: StopAlways}},
		{"slow", []string{"storm"}, Options{Hz: 99}},
		{"too fast", []string{"storm"}, Options{Hz: 20_000}},
		{"throttled", []string{"storm"}, Options{Hz: 4999, MaxOverhead: 0.0001}},
		{"exec", []string{"storm", "exec", "storm"}, Options{Hz: 999}},
		{"spared", []string{"storm"}, Options{Hz: 999, few: 1}},
		{"spared, all, exec", []string{"storm", "exec", "storm"}, Options{Hz: 999, All: true, few: 1}},
		{"exit stacks", []string{"storm"}, Options{Hz: 999, ExitStacks: true}},
		{"exit among births", []string{"bolt"}, Options{Hz: 9999, ExitStacks: true}},
		{"children", []string{"children"}, Options{Hz: 999, Children: true, All: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			opt := tt.opt
			sink := &tally{interval: opt.interval()}
			r, log, before, tids := accounted(t, opt, sink, tt.target)
			pid := before[0]
			recomputed := threadTicks(pid, before, log, r.Ticks)
			if err := checkAccount(&r.Account, recomputed, sink); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d ticks, %d events, %d thread ticks = %v", r.Ticks, len(log), r.Expected, &r.Account)
			if opt.few == 0 { // nobody tells of what a spared thread makes and ends between two ticks
				checkLog(t, before, log, tids)
			}
			checkBroken(t, &r.Account, pid, before, log, sink)
		})
	}
}

// accounted runs the engine on a target until it ends. before are the threads
// at the beginning, the leader first, and tids those that the target made.
func accounted(t *testing.T, opt Options, sink output.Sink, target []string) (r Result, log []event, before, tids []int) {
	t.Helper()
	cmd := targetCmd(target...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := testprog.StartCmd(t, cmd)
	opt.PIDs = []int{p.PID}
	opt.journal = func(k ptrace.Kind, tid int, tick int64) { log = append(log, event{k, tid, tick}) }
	ready := func() {
		var err error
		// The process waits in a read; all that its runtime starts for that is there.
		if before, err = (procfs.FS{}).TaskIDs(p.PID); err != nil {
			t.Error(err)
		}
		if _, err := io.WriteString(in, "go\n"); err != nil {
			t.Error(err)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r, err = Run(context.Background(), opt, 0, testPipeline(sink), ready, nil)
	}()
	for line := p.Line(t); line != "done"; line = p.Line(t) {
		tid, err := strconv.Atoi(strings.TrimPrefix(line, "tid "))
		if err != nil {
			t.Fatal(err)
		}
		tids = append(tids, tid)
	}
	// Nobody here waits for the child before: the wait would take the report
	// of its exit from the engine.
	<-ended
	if err != nil {
		t.Fatal(err)
	}
	return r, log, before, tids
}

// checkLog fails the test if a thread that the target made is not in the log.
func checkLog(t *testing.T, before []int, log []event, tids []int) {
	t.Helper()
	seen := map[int]bool{}
	for _, tid := range before {
		seen[tid] = true
	}
	for _, e := range log {
		seen[e.tid] = true
	}
	for _, tid := range tids {
		if !seen[tid] {
			t.Errorf("thread %d lived, but the log of %d births and deaths lacks it", tid, len(log))
		}
	}
}

// checkBroken breaks each count, and the log, on purpose: the check must see it.
func checkBroken(t *testing.T, a *Account, pid int, before []int, log []event, sink *tally) {
	t.Helper()
	recomputed := threadTicks(pid, before, log, a.Ticks)
	for c := range numClasses {
		for _, by := range []int64{-1, 1} {
			broken := *a
			broken.Count[c] += by
			if checkAccount(&broken, recomputed, sink) == nil {
				t.Errorf("%+d %v was not noticed", by, c)
			}
		}
	}
	broken := *a
	broken.Count[Sampled]--
	broken.Count[Missed]++
	if checkAccount(&broken, recomputed, sink) == nil {
		t.Error("a sample that was counted as missed was not noticed")
	}
	if a.Ticks > 2 && threadTicks(pid, before[1:], log, a.Ticks) == recomputed {
		t.Error("a log that lacks a thread makes no difference")
	}
}

// TestStolenExit waits for the process that is sampled elsewhere in this
// program, as parents do. The engine then gets no report of its exit.
func TestStolenExit(t *testing.T) {
	cmd := targetCmd("storm")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := testprog.StartCmd(t, cmd)
	opt := Options{Hz: 99, PIDs: []int{p.PID}}
	ready := func() { in.Close() }
	ended := make(chan error)
	go func() {
		_, err := Run(context.Background(), opt, 0, testPipeline(&tally{interval: opt.interval()}), ready, nil)
		ended <- err
	}()
	for p.Line(t) != "done" {
	}
	p.Kill() // it waits
	if err := within(t, ended, "the run goes on without its process"); err != nil {
		t.Error(err)
	}
}
