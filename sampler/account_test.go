package sampler

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"syscall"
	"testing"
	"time"

	"sfsample/internal/testprog"
	"sfsample/output"
	"sfsample/sampler/ledger"
	"sfsample/sampler/module"
)

// tally is a sink that counts.
type tally struct {
	interval        time.Duration
	samples, reused int64
	waited          int64 // ticks of waiting for a CPU
	cpu             time.Duration
}

// Add implements output.Sink.
func (c *tally) Add(s *output.Sample) error {
	c.cpu += s.CPU
	switch s.Taken {
	case "stop", "no stop":
		c.samples++
	case "reused":
		ticks := int64((s.Wall + c.interval/2) / c.interval)
		if s.State == "waiting" {
			c.waited += ticks
		} else {
			c.reused += ticks
		}
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
		Open: func(pid int) (Target, *Survivor, error) {
			live := module.NewLive(pid, nil)
			return module.NewSpace(live, cache, module.Options{Owner: live.Owner()}), nil, nil
		},
	})
}

// TestAccount samples processes whose threads are born and die all the time: each tick of each
// thread is in a class, the outputs got what was counted as samples, and their CPU time is the one that the
// kernel has charged to the process.
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
		{"throttled", []string{"storm"}, Options{Hz: 4999, Budget: Budget{MaxOverhead: 0.0001}}},
		{"over budget", []string{"storm"}, Options{Hz: 999, test: forTests{firstStride: 8}}},
		{"all, over budget", []string{"storm"}, Options{Hz: 999, All: true, test: forTests{firstStride: 8}}},
		{"exec", []string{"storm", "exec", "storm"}, Options{Hz: 999}},
		{"all, exec", []string{"storm", "exec", "storm"}, Options{Hz: 999, All: true}},
		{"exit stacks", []string{"storm"}, Options{Hz: 999, ExitStacks: true}},
		{"exit among births", []string{"bolt"}, Options{Hz: 9999, ExitStacks: true}},
		{"no run counts", []string{"storm"}, Options{Hz: 499, test: forTests{uncounted: true}}},
		{"all, no run counts", []string{"storm"}, Options{Hz: 499, All: true, WallWeight: true, test: forTests{uncounted: true}}},
		{"children", []string{"children"}, Options{Hz: 999, Follow: Follow{Children: true}, All: true}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sink := &tally{interval: tt.opt.interval()}
			r, used := accounted(t, tt.opt, sink, tt.target)
			if err := checkAccount(&r, sink); err != nil {
				t.Fatal(err)
			}
			if waited := r.Count[ledger.Waiting]; tt.opt.All && waited != sink.waited {
				t.Errorf("%d ticks of waiting for a CPU were counted, the output got %d", waited, sink.waited)
			}
			// With exit stacks nobody is there between the end of the last thread, which is reported, and that of the run; how
			// many ticks that is beside those of a life as short as the bolt's, the machine decides.
			if r.Expected < r.Ticks && !tt.opt.ExitStacks || r.Expected < r.Ticks*3/4 && tt.target[0] != "bolt" || r.Expected == 0 || r.Ticks == 0 {
				t.Errorf("%d thread ticks in %d ticks: the leader lives all the time", r.Expected, r.Ticks)
			}
			t.Logf("%d ticks, %d thread ticks = %v; CPU time %v of %v", r.Ticks, r.Expected, &r.Account, sink.cpu, used)
			part := time.Duration(20)
			if runtime.GOARCH == "s390x" {
				// There the times of a process that has ended are those of the virtual CPU alone (arch/s390/kernel/vtime.c), the
				// scheduler's, which samples tell, those of the guest with what its host has taken.
				part = 2
			}
			if d := sink.cpu - used; used > 0 && !tt.opt.WallWeight && !tt.opt.Follow.Children && (d > used/part+tt.opt.interval() || d < -used/part-20*time.Millisecond) {
				t.Errorf("the samples stand for %v of CPU time, the kernel says %v", sink.cpu, used)
			}
			for c := range ledger.NumClasses { // the check can fail
				broken := r
				broken.Count[c]++
				if checkAccount(&broken, sink) == nil {
					t.Errorf("one more %v was not noticed", c)
				}
			}
		})
	}
}

// byThread is a sink that adds up CPU time by thread.
type byThread map[int]time.Duration

func (b byThread) Add(s *output.Sample) error { b[s.TID] += s.CPU; return nil }
func (b byThread) Close() error               { return nil }

// TestThreadTimes: no thread is given CPU time that is not its own, also where no sample stands for it.
func TestThreadTimes(t *testing.T) {
	cmd := targetCmd("bursts")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := testprog.StartCmd(t, cmd)
	if _, err := io.WriteString(in, "go\n"); err != nil {
		t.Fatal(err)
	}
	for p.Line(t) != "at work" {
	}
	times := func() map[int]time.Duration {
		list := map[int]time.Duration{}
		ids, err := proc.TaskIDs(p.PID)
		if err != nil {
			t.Fatal(err)
		}
		for _, tid := range ids {
			if s, err := proc.Task(p.PID, tid).Schedstat(); err == nil {
				list[tid] = s.Run
			}
		}
		return list
	}
	before, got := times(), byThread{}
	if _, err := Run(context.Background(), Options{PIDs: []int{p.PID}, Hz: 99}, 700*time.Millisecond, testPipeline(got), nil, nil); err != nil {
		t.Fatal(err)
	}
	after, sum, all := times(), time.Duration(0), time.Duration(0)
	for tid, cpu := range got {
		sum += cpu
		if ran := after[tid] - before[tid]; tid != 0 && cpu > ran {
			t.Errorf("thread %d has %v in the output, and has run for %v", tid, cpu, ran)
		}
	}
	for tid, run := range after {
		all += run - before[tid]
	}
	if sum < all/3 || sum > all {
		t.Errorf("%v in the output, threads have run for %v", sum, all)
	}
	t.Logf("%v", got)
}

// TestSleepersTold: of threads that have not run at all no tick is doubtful, from the first on.
func TestSleepersTold(t *testing.T) {
	for _, all := range []bool{false, true} {
		cmd := targetCmd("sleepers")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		p := testprog.StartCmd(t, cmd)
		if _, err := io.WriteString(in, "go\n"); err != nil {
			t.Fatal(err)
		}
		for p.Line(t) != "asleep" {
		}
		counts := func() map[int]uint64 {
			list := map[int]uint64{}
			ids, err := proc.TaskIDs(p.PID)
			if err != nil {
				t.Fatal(err)
			}
			for _, tid := range ids {
				if s, err := proc.Task(p.PID, tid).Schedstat(); err == nil {
					list[tid] = s.Count
				}
			}
			return list
		}
		for before := map[int]uint64(nil); ; time.Sleep(20 * time.Millisecond) { // until they sleep
			after, moved := counts(), 0
			for tid, count := range after {
				if before[tid] != count {
					moved++
				}
			}
			if before = after; len(after) > 200 && moved < 5 { // Go's own threads wake now and then
				break
			}
		}
		opt := Options{PIDs: []int{p.PID}, Hz: 99, All: all}
		before, sink := counts(), &tally{interval: opt.interval()}
		r, err := Run(context.Background(), opt, 500*time.Millisecond, testPipeline(sink), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := checkAccount(&r, sink); err != nil {
			t.Error(err)
		}
		ran := int64(0)
		for tid, count := range counts() {
			if before[tid] != count {
				ran++
			}
		}
		told := r.Count[ledger.Sampled] + r.Count[ledger.Reused] + r.Count[ledger.Idle]
		if doubt := r.Expected - told; doubt > ran*r.Ticks || r.Expected < 200*r.Ticks || all && r.Count[ledger.Sampled] < 200 {
			t.Errorf("all %t: %d ticks of threads are doubtful, though %d threads have run in %d ticks: %v", all, doubt, ran, r.Ticks, &r.Account)
		}
	}
}

// checkAccount compares an account with what the outputs got.
func checkAccount(r *Result, got *tally) error {
	switch {
	case r.Sum() != r.Expected:
		return fmt.Errorf("the classes (%v) sum up to %d, there were %d thread ticks", &r.Account, r.Sum(), r.Expected)
	case r.Count[ledger.Sampled] != got.samples:
		return fmt.Errorf("%d samples were counted, the output got %d", r.Count[ledger.Sampled], got.samples)
	case r.Count[ledger.Reused] != got.reused:
		return fmt.Errorf("%d reused ticks were counted, the output got %d", r.Count[ledger.Reused], got.reused)
	}
	return nil
}

// accounted runs the engine on a target until it ends. used is the CPU time of the target while it was
// sampled, as the kernel tells.
func accounted(t *testing.T, opt Options, sink output.Sink, target []string) (r Result, used time.Duration) {
	t.Helper()
	cmd := targetCmd(target...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := testprog.StartCmd(t, cmd)
	opt.PIDs = []int{p.PID}
	var before time.Duration
	ready := func() {
		q := process{clock: cpuClock(p.PID)}
		before, _ = q.cpuTime()
		if _, err := io.WriteString(in, "go\n"); err != nil {
			t.Error(err)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r, err = Run(context.Background(), opt, 0, testPipeline(sink), ready, nil)
	}()
	for p.Line(t) != "done" {
	}
	<-ended
	if err != nil {
		t.Fatal(err)
	}
	if cmd.Wait(); cmd.ProcessState == nil { // who traced it has taken its end
		return r, 0
	}
	ru := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	return r, time.Duration(ru.Utime.Nano()+ru.Stime.Nano()) - before
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
