package sampler

import (
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"sfsample/ptrace"
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
