package sampler

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"sfsample/ptrace"
	"sfsample/sampler/clocks"
	"sfsample/sampler/taking"
)

// dozing is an engine at tick 5 whose processes are these, with their clocks as they are.
func dozing(t *testing.T, pids ...int) *engine {
	t.Helper()
	e := bareEngine(Options{})
	e.ticks.start = ptrace.Now() - 5*e.ticks.interval
	e.ticks.until = e.ticks.start + 1000*e.ticks.interval
	e.acct.book.Advance(5)
	for _, pid := range pids {
		p := &process{pid: pid, clock: cpuClock(pid)}
		p.readCPU()
		e.roster.procs[pid] = p
	}
	return e
}

// busy lets this process use CPU time until stop is called.
func busy() (stop func()) {
	var over atomic.Bool
	go func() {
		for !over.Load() {
			runtime.Gosched()
		}
	}()
	return func() { over.Store(true) }
}

// TestDoze: ticks pass in which no process runs, up to a bound; the first in which one has run, or is gone, is due.
func TestDoze(t *testing.T) {
	idle := park(t, "none", "deep", "b", "3").PID
	var e *engine
	var before int64
	for range 100 { // it may be on its way to its wait
		e, before = dozing(t, idle), ptrace.Now()
		if e.doze(); e.ticks.due != 6 {
			break
		}
	}
	if passed := ptrace.Now() - before; e.ticks.due != 25 || passed < int64(longestDoze)-e.ticks.interval {
		t.Errorf("tick %d is due after %v, want 25 after 200 ms", e.ticks.due, time.Duration(passed))
	}
	for name, e := range map[string]*engine{
		"one runs":    dozing(t, idle, os.Getpid()),
		"one is gone": dozing(t, idle, 1<<22+1), // more than there can be (PID_MAX_LIMIT)
	} {
		stop := busy()
		if e.doze(); e.ticks.due != 6 {
			t.Errorf("%s: tick %d is due, want 6", name, e.ticks.due)
		}
		stop()
	}
	e = dozing(t, idle)
	e.ticks.until = e.ticks.start + 8*e.ticks.interval
	if e.doze(); e.ticks.due > 8 {
		t.Errorf("tick %d is due in a run that ends with 8", e.ticks.due)
	}
	e = dozing(t)
	if e.doze(); e.ticks.due != 0 {
		t.Error("it dozes when nobody is left")
	}
	// With more threads a look costs more: one in seven ticks is due.
	running := dozing(t, os.Getpid())
	running.ticks.due = 12
	stop := busy()
	if running.doze(); running.ticks.due != 12 {
		t.Errorf("tick %d is due where every seventh is looked at, want 12", running.ticks.due)
	}
	stop()
	e = dozing(t, idle)
	e.listing.later = append(e.listing.later, func() bool { return false })
	if e.doze(); e.ticks.due != 0 {
		t.Error("it dozes while something is to be tried again")
	}
}

// runs is a kernel by which each process has a share of a CPU.
type runs struct {
	taking.Kernel
	share float64
	asked int
}

func (x *runs) Spent(int32) int64 {
	x.asked++
	return int64(x.share * float64(x.Now()))
}

// TestVigil: an agent looks at nobody for some ticks, unless a thread is born or ends, up to the end of a round or of the run.
func TestVigil(t *testing.T) {
	idle := park(t, "none", "deep", "b", "3").PID
	keep := func(set func(e *engine, p *process)) int64 {
		t.Helper()
		e := bareEngine(Options{Hz: 19, Budget: Budget{Seldom: true}, Every: time.Hour})
		if !e.opt.Budget.Seldom {
			t.Fatal("an agent of 19 Hz looks at every tick")
		}
		e.ticks.start = ptrace.Now() - 5*e.ticks.interval
		e.ticks.until = e.ticks.start + 1000*e.ticks.interval
		e.rounds.begin(ptrace.Now())
		e.acct.book.Advance(5)
		p := e.news.addProcess(idle)
		defer e.news.closeProcess(p)
		p.threads.Store(1)
		e.board.Tell(new(taking.Live), true)
		if set != nil {
			set(e, p)
		}
		e.vigil()
		return e.ticks.due
	}
	var due int64
	for range 100 { // it may be on its way to its wait
		if due = keep(nil); due != 6 {
			break
		}
	}
	if due != 16 {
		t.Errorf("tick %d is due, want 16: 600 ms later", due)
	}
	// Where clocks have witnesses nobody tells who has run, and births are looked for in all processes.
	for _, tells := range []bool{true, false} {
		b := clocks.NewBoard(1, 0, 1e6)
		k := new(taking.Live)
		g := b.Group(cpuClock(idle))
		b.Tell(k, true)
		tasks, err := os.Open(fmt.Sprintf("/proc/%d/task", idle))
		if err != nil {
			t.Fatal(err)
		}
		v := vigil{tells: tells, board: b, kernel: k, interval: 1e6, last: 2, families: []family{{int(tasks.Fd()), g, 99}}}
		if v.Outside(); (v.tick == 2) != tells {
			t.Errorf("who has run is told %t: it ends at tick %d", tells, v.tick)
		}
		tasks.Close()
	}
	// Where it can, it sleeps until clocks call; that of an agent not to the tick that comes next but one: who calls at each tick is not heard at each.
	for _, least := range []int64{0, 1} {
		for calls, want := range map[bool]int64{false: 40, true: least} {
			k := new(taking.Live)
			b := clocks.NewBoard(1, k.Now(), 20e6)
			v := vigil{sleeps: true, heard: b.Bell(), board: b, kernel: k, start: b.Start, interval: b.Interval, last: 40, ends: b.Start + 40*b.Interval, least: b.Start + least*b.Interval}
			if calls {
				b.Call()
			}
			v.Outside()
			if now := k.Now(); v.tick < want || v.tick > 40 || calls && v.tick == 40 || now < v.least {
				t.Errorf("called %t: it ends %v after the start, at tick %d", calls, time.Duration(now-b.Start), v.tick)
			}
		}
	}
	// Where some CPU has no clock it ends when processes have run for longer than clocks have met anybody.
	for _, sleeps := range []bool{true, false} {
		for share, want := range map[float64][2]int64{0: {20, 20}, 0.05: {20, 20}, 1: {2, 8}} {
			k := &runs{Kernel: new(taking.Live), share: share}
			b := clocks.NewBoard(1, k.Now(), 4e6)
			b.Group(-8)
			b.Tell(k, true)
			v := vigil{sleeps: sleeps, seeks: true, heard: b.Bell(), board: b, kernel: k, start: b.Start, interval: b.Interval, last: 20, ends: b.Start + 20*b.Interval, least: b.Start + b.Interval,
				unmet: unmet{clocks: 1}, families: []family{{-1, 0, 3}}}
			if v.Outside(); v.tick < want[0] || v.tick > want[1] && k.asked > 5 {
				t.Errorf("sleeps %t, %g of a CPU: it ends at tick %d, want %v", sleeps, share, v.tick, want)
			}
		}
	}
	for name, x := range map[string]struct {
		due int64
		set func(e *engine, p *process)
	}{
		"a thread was born, or has ended": {6, func(e *engine, p *process) { p.threads.Store(2); p.group = -1 }},
		"nobody has run":                  {16, func(e *engine, p *process) { p.threads.Store(2) }},
		"listings have to wait":           {16, func(e *engine, p *process) { p.threads.Store(2); p.group, p.census.next = -1, 7 }},
		"the round ends":                  {8, func(e *engine, p *process) { e.rounds.now.until = e.ticks.start + 7*e.ticks.interval }},
		"the run ends":                    {9, func(e *engine, p *process) { e.ticks.until = e.ticks.start + 8*e.ticks.interval }},
		"the rate was lowered":            {30, func(e *engine, p *process) { e.ticks.due = 30 }},
		"files are to be closed":          {0, func(e *engine, p *process) { e.listing.later = append(e.listing.later, nil) }},
	} {
		if got := keep(x.set); got != x.due {
			t.Errorf("%s: tick %d is due, want %d", name, got, x.due)
		}
	}
	for name, opt := range map[string]Options{
		"often": {Hz: 99, Budget: Budget{Seldom: true}}, "no agent": {Hz: 19}, "waits are sampled": {Hz: 19, Budget: Budget{Seldom: true}, All: true}, "children are": {Hz: 19, Budget: Budget{Seldom: true}, Follow: Follow{Children: true}},
	} {
		if bareEngine(opt).opt.Budget.Seldom {
			t.Errorf("%s: ticks are left to the clocks", name)
		}
	}
	for name, x := range map[string]struct {
		opt  Options
		want time.Duration
	}{
		"99 Hz": {Options{Hz: 99}, briefVigil}, "an agent": {Options{Hz: 19, Budget: Budget{Seldom: true}}, longestVigil}, "an agent of 99 Hz": {Options{Hz: 99, Budget: Budget{Seldom: true}}, briefVigil},
		"ticks are seldom anyway": {Options{Hz: 19}, 0}, "ticks come fast": {Options{Hz: 999}, 0}, "blocked threads": {Options{Hz: 99, All: true}, 0},
		"children": {Options{Hz: 99, Follow: Follow{Children: true}}, 0}, "exits": {Options{Hz: 99, ExitStacks: true}, 0}, "stops": {Options{Hz: 99, Stop: StopAlways}, 0},
	} {
		if got := bareEngine(x.opt).resting.longest; got != x.want {
			t.Errorf("%s: nobody is looked at for %v, want %v", name, got, x.want)
		}
	}
}
