package clocks

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/sampler/taking"
)

// raiser has a clock let a thread go where it is. A thread that is woken is put on its CPU only if that is idle, else on another that is: its caches are
// cold there, which has cost up to 0.3 ms each time. A CPU that runs nothing but threads of SCHED_IDLE counts as idle (sched_idle_cpu and select_idle_sibling, kernel/sched/fair.c; Linux
// 5.4), so that is what the clock is when it lets go: the thread runs at once, and the clock some time when it does not. So a thread of real-time priority on that CPU gives the clock its own
// back soon; it sleeps but for that. The clock does so itself if it runs on.
type raiser struct {
	k     taking.Kernel
	place place
	timer int // when it wakes up
	clock int // the clock's thread

	low   atomic.Bool  // the clock has no real-time priority, for now
	began atomic.Int64 // when the raiser has given it back, 0: the clock has itself
	after int64        // for how long the clock is to stay without, nanoseconds
	tried bool         // threads of this program may have SCHED_IDLE and that priority again
	life  life
}

// raiseAfter is for how long a clock is to stay without its priority at first, and at least, in nanoseconds: usually the thread is on the CPU by then.
const raiseAfter = 50_000

// Tests have others.
var setPolicy, ring = ptrace.RawPolicy, ptrace.RawRing

// newRaiser makes that of a clock, whose thread calls it. Whether it works is known later. nil: there can be none.
func newRaiser(c *Clock) *raiser {
	timer, err := ptrace.NewTimer()
	if err != nil {
		return nil
	}
	r := &raiser{k: c.k, place: c.place, timer: timer, clock: unix.Gettid(), after: raiseAfter}
	r.life.ended = ptrace.OnThread(func() {
		r.life.thread.Store(int32(unix.Gettid()))
		if hasten(false) == nil {
			growStack()
			ptrace.Outside(r)
		}
	})
	return r
}

// Outside is the life of a raiser's thread: see [ptrace.Outside].
//
//go:nosplit
//go:norace
func (r *raiser) Outside() {
	if r.place.take(r.k) == 0 {
		r.life.active.Store(true)
		for !r.life.quit.Load() {
			ptrace.RawAwait(r.timer)
			now := r.k.Now()
			if r.low.CompareAndSwap(true, false) {
				r.began.Store(now)
				r.raise(r.clock)
			}
		}
		r.life.active.Store(false)
	}
	r.place.leave(r.k)
}

// works tells whether the clock, which calls it, can rely on the raiser. Back from SCHED_IDLE a thread may need more than to real-time priority (RLIMIT_NICE;
// user_check_sched_setscheduler, kernel/sched/syscalls.c): that is tried on the raiser, which does not run meanwhile.
//
//go:nosplit
//go:norace
func (r *raiser) works() bool {
	if r == nil {
		return false
	}
	if r.life.active.Load() && !r.tried {
		tid := int(r.life.thread.Load())
		r.tried = setPolicy(tid, unix.SCHED_IDLE) == 0 && setPolicy(tid, unix.SCHED_FIFO) == 0
		r.life.active.Store(r.tried)
	}
	return r.life.active.Load()
}

// raise gives the clock its priority back.
//
//go:nosplit
//go:norace
func (r *raiser) raise(tid int) {
	if setPolicy(tid, unix.SCHED_FIFO) != 0 {
		r.life.active.Store(false) // the limits are other ones since: not again
	}
}

// lower has the clock give up its priority, until back at most.
//
//go:nosplit
//go:norace
func (r *raiser) lower() {
	r.began.Store(0)
	r.low.Store(true)
	ring(r.timer, r.k.Now()+r.after)
	setPolicy(0, unix.SCHED_IDLE)
}

// back is called by the clock when it runs on. It returns when it was given its priority, 0: just now, by itself.
//
//go:nosplit
//go:norace
func (r *raiser) back() int64 {
	if r.low.CompareAndSwap(true, false) {
		r.raise(0)
		ring(r.timer, 0)
	}
	return r.began.Load()
}

// learn is told for how long the thread had run by the time at which the clock was given its priority back, 0: which has taken that itself. If that was too soon, it has longer
// from now on, an eighth of the interval of ticks at most.
//
//go:nosplit
//go:norace
func (r *raiser) learn(began, ran, interval int64) {
	if began != 0 && ran == 0 {
		r.after = max(raiseAfter, min(2*r.after, interval/8))
	} else {
		r.after = max(raiseAfter, r.after-r.after/64)
	}
}

// end has the raiser end, and waits for that. It is let go to any of these CPUs: on its own it may get no time, and this program could not end then. See [Board.Free].
func (r *raiser) end(cpus unix.CPUSet) {
	r.life.quit.Store(true)
	ring(r.timer, 1)
	for {
		select {
		case <-r.life.ended:
			unix.Close(r.timer)
			return
		case <-time.After(freeEvery): // and it may have bound itself only since
		}
		if tid := int(r.life.thread.Load()); tid != 0 {
			ptrace.RawPolicy(tid, unix.SCHED_NORMAL)
			unbind(tid, r.place.cpu, cpus)
		}
	}
}
