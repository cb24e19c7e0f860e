package clocks

import (
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/sampler/taking"
)

// Toll is for how long a clock that wakes up keeps the thread from its CPU that it meets there, beyond the time that it sees itself: that of interrupts,
// of the scheduler's way there and back, and of setting timers, which in a virtual machine is the host's work.
type Toll struct{ each atomic.Int64 }

// NewToll begins to find it out: a thread of this program is met some times, which takes two milliseconds. Until then it counts as none, and for good
// where it is not to be had, as on CPUs that others have all the time.
func NewToll(k taking.Kernel, nice bool) *Toll {
	t := new(Toll)
	ptrace.OnThread(func() { t.each.Store(toll(k, nice)) })
	return t
}

// toll finds it out, in nanoseconds.
func toll(k taking.Kernel, nice bool) (each int64) {
	for try := range tollTries {
		time.Sleep(time.Duration(try*tollTries) * time.Millisecond)
		if each = meet(k, nice, tollEvery<<min(try, 3)); each > 0 {
			break
		}
	}
	return each
}

// Taken is for how long a sample has kept its thread from its CPU. What others had of the CPU before the thread could stop is left out.
func (t *Toll) Taken(m *Sample) time.Duration {
	n := int64(1)
	switch {
	case m.Peeked.Asleep: // it had left the CPU
		n = 0
	case m.tracee.ran > 0: // it was preempted once more, for the clock to do the rest
		n = 2
	}
	return time.Duration(m.taken() + n*t.each.Load())
}

const (
	// tolls is how often the thread is met, tollEvery how far apart, in nanoseconds: timers are set anew meanwhile, and a toll is less.
	tolls, tollEvery = 12, 150_000
	// tollTries is how often that is tried, the later ones further apart.
	tollTries = 10
	// gap is more than a thread that runs on takes to read the time twice, in nanoseconds.
	gap = 1_000
)

// span is from one CLOCK_MONOTONIC time to another, nanoseconds.
type span struct{ from, to int64 }

// meet has the calling thread met at such intervals, in nanoseconds, and returns the toll, 0 if it is not to be had.
func meet(k taking.Kernel, nice bool, every int64) int64 {
	cpu := ptrace.RawCPU()
	if cpu < 0 {
		return 0
	}
	var all unix.CPUSet
	if unix.SchedGetaffinity(0, &all) != nil {
		return 0
	}
	w := waker{k: k, every: every, there: make([]uint64, cpu/64+1)}
	w.there[cpu/64] = 1 << (cpu % 64)
	begun := make(chan struct{})
	ended := ptrace.OnThread(func() {
		unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
		hasten(nice)
		w.tid = unix.Gettid()
		close(begun)
		growStack()
		ptrace.Outside(&w)
	})
	<-begun
	lost := make([]span, 0, 4*tolls)
	last := k.Now()
	for end := last + 3*tolls*every; !w.over.Load() && last < end && len(lost) < cap(lost); {
		now := k.Now()
		if now-last > gap {
			lost = append(lost, span{last, now})
		}
		last = now
	}
	w.over.Store(true)
	for {
		select {
		case <-ended:
			return w.toll(lost)
		case <-time.After(freeEvery): // others may have taken that CPU for good
			unbind(w.tid, cpu, all)
		}
	}
}

// waker is a thread that does what a clock does where it meets nobody. It is bound to the CPU of who measures, which is not: who is on a CPU that others take for good
// keeps a processor of Go's.
type waker struct {
	k     taking.Kernel
	every int64 // how far apart it wakes up
	there []uint64
	tid   int
	over  atomic.Bool
	seen  [tolls]span // when it woke up, and slept again
	n     int
}

// Outside is the life of a waker's thread: see [ptrace.Outside].
//
//go:nosplit
//go:norace
func (w *waker) Outside() {
	w.k.Bind(w.there, false)
	for due := w.k.Now(); w.n < tolls && !w.over.Load(); w.n++ {
		due += w.every
		w.k.Sleep(due)
		w.seen[w.n].from = w.k.Now()
		w.seen[w.n].to = w.k.Now()
	}
	w.over.Store(true)
}

// toll is the median of what was lost around each time that it was awake, less that time.
func (w *waker) toll(lost []span) int64 {
	var each []int64
	for _, s := range w.seen[:w.n] {
		for _, g := range lost {
			if g.from <= s.from && s.to <= g.to && g.to-g.from < w.every {
				each = append(each, g.to-g.from-(s.to-s.from))
			}
		}
	}
	if len(each) < tolls/2 {
		return 0
	}
	slices.Sort(each)
	return each[len(each)/2]
}
