package clocks

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/regs"
	"sfsample/sampler/taking"
)

// Options say how a clock is to be.
type Options struct {
	Phase   int64         // of its ticks after the board's, nanoseconds
	Samples int           // how many may be under way
	Nice    bool          // stay at normal priority
	First   int           // bytes of stack that the first few have room for
	Deep    int           // how many these are, if more than usual: as many as come until they are fetched
	Stay    time.Duration // how long a clock stays that meets nobody, if longer than usual
}

// Room for stacks that clocks begin with, in bytes.
const (
	// first samples of a clock have firstRoom, if there is so much: for threads of which nothing is known yet.
	first      = 4
	firstRoom  = 256 << 10
	commonRoom = 16 << 10
	// maxRoom bounds what all samples of all clocks have room for beyond commonRoom each.
	maxRoom = 24 << 20
)

func (o *Options) deep() int { return max(o.Deep, first) }

// fill gives a sample that nobody uses room for so many bytes of stack, and of the stack beyond a signal
// handler's.
func (m *Sample) fill(stack, beyond int) {
	m.Buffer.Regs.Room, m.Buffer.FPRegs.Room = make([]byte, regs.PrstatusMaxBytes), make([]byte, taking.FPRegsBytes)
	m.Buffer.Stack.Room, m.Buffer.Beyond.Room = make([]byte, stack), make([]byte, beyond)
}

// large is how much room a sample has beyond commonRoom.
func (m *Sample) large() int {
	return max(0, len(m.Buffer.Stack.Room)+len(m.Buffer.Beyond.Room)-commonRoom)
}

// Start makes the clock of a CPU: a thread that binds itself to it, at real-time priority where that
// is allowed. number tells clocks apart, from 1 on. denied tells why it has no real-time priority. Whether it can be bound
// is known later: on that CPU it may have to wait for ever, and nobody waits for it.
func Start(k taking.Kernel, b *Board, cpu, number int, o Options) (c *Clock, denied, err error) {
	c = &Clock{who: int32(number), board: b, k: k, place: place{cpu: cpu}, ticks: answered{phase: o.Phase}, search: search{last: -1}, tracees: tracees{samples: make([]Sample, o.Samples)}}
	for i := range c.tracees.samples {
		stack := commonRoom
		if i < o.deep() {
			stack = o.First
		}
		c.tracees.samples[i].fill(stack, 0)
	}
	b.clocks[number].Store(c)
	ready := make(chan struct{})
	c.life.ended = ptrace.OnThread(func() {
		denied, err = c.prepare(o.Nice)
		close(ready)
		if err == nil {
			growStack()
			ptrace.Outside(c)
		}
		c.search.close()
		if c.tracees.raiser != nil {
			c.tracees.raiser.end(b.cpus)
		}
		if c.tracees.seizes.alarm != nil {
			c.tracees.seizes.alarm.Close()
		}
	})
	<-ready
	if err != nil {
		b.clocks[number].Store(nil)
	}
	return c, denied, err
}

// prepare does for the calling thread what is to be done before it is bound.
func (c *Clock) prepare(nice bool) (denied, err error) {
	if err := ptrace.Interruptible(); err != nil {
		return nil, err
	}
	c.tracees.seizes.alarm, _ = ptrace.NewAlarm() // without one (ulimit -i) clocks of CPUs are nudged
	if c.place.cpu != Anywhere {
		p := &c.place
		p.own = make([]uint64, c.place.cpu/64+1)
		p.own[c.place.cpu/64] = 1 << (c.place.cpu % 64)
		p.all = *(*CPUs)(unsafe.Pointer(&c.board.cpus))
		if p.away = p.all; c.place.cpu < 64*len(p.away) {
			p.away[c.place.cpu/64] &^= p.own[c.place.cpu/64]
		}
	}
	unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	denied = hasten(nice)
	c.prompt, c.up.least = denied == nil && !nice, usual
	c.ticks.last = max(-1, (c.k.Now()-c.board.Start-c.ticks.phase+c.board.Interval)/c.board.Interval-1) // the last that is over
	c.ticks.born = c.ticks.last + 1
	c.shown.done.Store(c.ticks.last)
	c.shown.met.Store(c.ticks.last)
	c.life.thread.Store(int32(unix.Gettid()))
	if c.place.cpu != Anywhere {
		c.search.open(c)
	}
	if c.prompt && c.place.cpu != Anywhere && c.board.Interval >= leastInterval {
		c.tracees.raiser = newRaiser(c)
	}
	return denied, nil
}

// open opens what a clock looks for threads with. Without the scheduler's notes of itself (a kernel without CONFIG_SCHED_DEBUG) a thread is
// taken that waits for the CPU, when none of ours was on it.
func (s *search) open(c *Clock) {
	if fd, err := unix.Open("/proc/thread-self/sched", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		s.self = fd
	}
	if c.prompt {
		s.witness.open(c.place.cpu, c.board.Interval)
	}
}

func (s *search) close() {
	if s.self > 0 {
		unix.Close(s.self)
	}
	s.witness.close()
}

// shortSlice is what a thread of the usual policy asks for as its slice of a CPU, in nanoseconds: the less,
// the sooner it gets one when it wakes (sched_attr, sched_setattr(2); from Linux 6.12 on).
const shortSlice = 100_000

// hasten is hastenThread; tests have others.
var hasten = hastenThread

// hastenThread gives the calling thread real-time priority or, where that is denied or not wanted, a
// short slice.
func hastenThread(nice bool) (denied error) {
	fifo := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1, Flags: unix.SCHED_FLAG_RESET_ON_FORK}
	if !nice {
		denied = unix.SchedSetAttr(unix.Gettid(), &fifo, 0)
	}
	if nice || denied != nil {
		short := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Runtime: shortSlice}
		if now, err := unix.SchedGetAttr(0, 0); err == nil {
			short.Nice = now.Nice // to have another may be denied
		}
		unix.SchedSetAttr(unix.Gettid(), &short, 0)
	}
	return denied
}

// Hasten gives the calling thread a clock's priority until back is called.
func Hasten(nice bool) (back func()) {
	tid := unix.Gettid()
	now, err := unix.SchedGetAttr(tid, 0)
	if err != nil {
		return func() {}
	}
	hasten(nice)
	return func() { giveBack(tid, now) }
}

// giveBack gives a thread of ours the priority that it had before [hasten]; without CAP_SYS_NICE that keeps it from its children as well (sched(7)).
func giveBack(tid int, attr *unix.SchedAttr) {
	if unix.SchedSetAttr(tid, attr, 0) == unix.EPERM {
		attr.Flags |= unix.SCHED_FLAG_RESET_ON_FORK
		unix.SchedSetAttr(tid, attr, 0)
	}
}

// drain appends the samples that are there to list.
func (c *Clock) drain(list []*Sample) []*Sample {
	for i := range c.tracees.samples {
		if m := &c.tracees.samples[i]; m.state.Load() == filled {
			list = append(list, m)
		}
	}
	return list
}

// Done gives a sample back, after it was given room for the next.
func (m *Sample) Done() {
	if m.tracee.pages > 0 {
		unix.Close(m.Became())
		m.tracee.pages = 0
	}
	m.state.Store(free)
}

// wake lets a clock look for requests, or for what else it is to do. The signal ends any of its waits, but does not come where the user has
// as many under way as may be (RLIMIT_SIGPENDING).
func (c *Clock) wake() {
	ptrace.RawUnpark((*uint32)(unsafe.Pointer(&c.requests.made)))
	unix.Tgkill(unix.Getpid(), int(c.life.thread.Load()), ptrace.AlarmSignal)
}

// nudge makes a clock go on that has waited for a stop since before the CLOCK_MONOTONIC time t.
func (c *Clock) nudge(t int64) {
	if since := c.grip.since.Load(); since != 0 && since < t && c.place.cpu != Anywhere {
		unix.Tgkill(unix.Getpid(), int(c.life.thread.Load()), ptrace.AlarmSignal)
	}
}

// stop ends a clock.
func (c *Clock) stop() {
	c.life.quit.Store(true)
	c.wake()
}

// reap takes the ends of threads that the clock has asked to stop, while it is held up. Any thread
// of this process may (wait(2), __WNOTHREAD).
func (c *Clock) reap() {
	for i := range c.tracees.samples {
		if m := &c.tracees.samples[i]; m.state.Load() == asked {
			ptrace.ReapEnd(m.TID)
		}
	}
}
