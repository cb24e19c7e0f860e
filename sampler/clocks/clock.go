package clocks

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/sampler/capture"
	"sfsample/sampler/taking"
)

// Sample is what a clock has taken of a thread.
type Sample struct {
	Buffer taking.Buffer

	Slot, TID, PID int
	Tick           int64
	At             Moments
	Asked, Stopped Usage  // of the thread, at the request and when it had stopped
	Status         uint32 // wait4's form of the stop
	Gone           bool   // it has ended, was killed while stopped, or runs another program (but see Became): nothing is known of it
	Moved          bool   // it may have run on between the tick and the stop
	Peeked         Peeked

	tracee tracee
	proof  proof

	state atomic.Int32 // free and so on, below
}

// Moments are those of a sample: CLOCK_MONOTONIC, nanoseconds.
type Moments struct {
	Wake     int64 // the clock's wake-up
	Asked    int64 // the request to stop
	Stopped  int64
	Released int64
	End      int64 // the clock has done all for it
}

// Usage is for how long a thread has run and waited for a CPU in all, in nanoseconds.
type Usage struct {
	Run, Wait int64
	runs      int64 // how often it was put on one, -1: nothing is known
}

// Peeked is what was read of a thread that had the CPU at the tick and has blocked since, before the clock got it. It was not stopped,
// but read in the call that it waits in; Count is its run count, as long as which stands it has not run.
type Peeked struct {
	Asleep bool // it is such a one
	Call   capture.Call
	Count  uint64
}

// tracee is what a sample's thread is to its clock.
type tracee struct {
	id    int   // the thread's for the kernel: by an exec it gets that of its process
	stays bool  // it is to be kept on its CPU when it is let go, by the clock's raiser
	ran   int64 // for how long it has run then, before the clock went on, in nanoseconds
	pages int   // what [Sample.Became] is, + 1
}

// Became is an open pagemap of the thread's memory at the stop, where that is not the memory which the board knows: it has called exec since. -1: it has not. It is
// closed by [Sample.Done].
func (m *Sample) Became() int { return m.tracee.pages - 1 }

// taken is what of [Toll.Taken] the clock sees, in nanoseconds: from its wake-up to its rest.
func (m *Sample) taken() int64 {
	ran := m.Stopped.Run - m.Asked.Run
	if ran < m.At.Stopped-m.At.Asked {
		return m.At.Asked - m.At.Wake + ran + m.At.End - m.At.Stopped - m.tracee.ran
	}
	return m.At.End - m.At.Wake - m.tracee.ran
}

// proof is what proves where a thread was at the tick.
type proof struct {
	waits bool // it met the request before it got back to its own code: it was in the queue of the clock's CPU then
	tick  met  // who had the CPU at the tick, by the kernel's word
}

const (
	free   = iota // the clock may use it
	ready         // the clock is about to use it, and has asked nobody yet
	asked         // waits for a stop
	filled        // the coordinator's
)

// Clock is the timer thread of one CPU. Its fields belong to that thread, but for
// those that say otherwise.
type Clock struct {
	who     int32
	board   *Board
	k       taking.Kernel
	place   place
	ticks   answered
	prompt  bool  // it has real-time priority
	apart   int64 // how long the last thread has taken to stop, nanoseconds
	up      wakeUp
	search  search
	tracees tracees
	text    [2048]byte // of files of /proc

	// For others to read.
	shown shown
	grip  grip
	life  life

	requests requests
}

// answered are the ticks that a clock answers: by number, phase nanoseconds after the board's, from born on to last.
type answered struct{ phase, born, last int64 }

// skip leaves out ticks that are not to be answered: as many as lie in a time of asleep at most, since what is to be answered may change meanwhile. They count for
// a pause in ticks.
//
//go:nosplit
//go:norace
//go:noinline
func (a *answered) skip(b *Board, pause *int64) {
	s := Stride(b.stride.Load())
	for end := a.last + asleep/b.Interval; a.last < end && s > 0 && !s.Answers(a.last+1); a.last++ {
		if *pause > 1 {
			*pause--
		}
	}
}

// asleep is for how long clocks sleep over ticks at once, in nanoseconds.
const asleep = 10_000_000

// search is what a clock finds threads with.
type search struct {
	self    int // its own /proc/thread-self/sched, 0: there is none
	witness witness
	last    int // slot that was met at the last tick
	picked  pick
	seen    seen
}

// tracees are those that a clock may have, and its samples: out of them wait for a stop.
type tracees struct {
	samples []Sample
	out     int
	seizes  seizer
	raiser  *raiser // nil: there is none
}

// shown is what a clock tells of its ticks.
type shown struct {
	missed atomic.Int64 // ticks that passed unseen
	late   atomic.Int64 // ticks that were answered more than half an interval late
	done   atomic.Int64 // the last tick that was handled
	rest   atomic.Int64 // it looks at no tick before this time, nanoseconds
	met    atomic.Int64 // the last tick at which a thread of the target was met
	looked atomic.Int64 // nanoseconds that looks have taken that found nobody
}

// grip tells whom a clock holds up.
type grip struct {
	since   atomic.Int64 // the clock asks for a stop, or waits for one, since then; 0: neither
	holds   atomic.Int64 // it holds a stopped thread since then; 0: none; negative: it hangs, see Hold
	holding atomic.Int32 // the id of that thread
}

// life is that of a clock's thread.
type life struct {
	ended  <-chan struct{} // closed with the thread
	thread atomic.Int32    // its id
	active atomic.Bool     // a tick is being answered
	quit   atomic.Bool
	barred atomic.Bool // it cannot be bound to its CPU, and has ended
}

// requests are those to stop a thread, for a clock that has no CPU of its own: slots, as [Clock.request] has them, with
// how many were made and how many taken.
type requests struct {
	list  [maxRequests]atomic.Int32
	made  atomic.Uint32
	begun atomic.Uint32
}

// add adds one for the thread in a slot. false: there are too many.
func (r *requests) add(slot int) bool {
	i := r.made.Load()
	if i-r.begun.Load() >= maxRequests {
		return false
	}
	r.list[i%maxRequests].Store(int32(slot))
	r.made.Store(i + 1)
	return true
}

// waiting tells whether some are not taken yet.
//
//go:nosplit
//go:norace
func (r *requests) waiting() bool { return r.begun.Load() != r.made.Load() }

// Anywhere is the CPU of a clock that is bound to none: it has no ticks, and stops the threads that
// it is asked for.
const Anywhere = -1

// place is the CPU where a clock is bound to be, and its set; all are the CPUs that this program may be on, away those but its own. For one without
// a CPU that is [Anywhere], and the sets are empty.
type place struct {
	cpu       int
	own       []uint64
	all, away CPUs
}

// take binds the clock. Neither is inlined: their calls would take room on the stack of all that a clock does.
//
//go:nosplit
//go:norace
//go:noinline
func (p *place) take(k taking.Kernel) unix.Errno { return k.Bind(p.own, false) }

// leave gives up the CPU and the priority of a clock that ends. If it lost that CPU to a thread of the same priority later, it would have to wait for ever:
// Go's runtime for it where it has a processor (P), and in the midst of its end whoever waits for this program's, as both clear /proc of it
// (release_task, kernel/exit.c; shrink_dcache_parent, fs/dcache.c).
//
//go:nosplit
//go:norace
//go:noinline
func (p *place) leave(k taking.Kernel) {
	if p.own == nil {
		k.Bind(nil, true)
		return
	}
	k.Bind(p.away[:], false) // at once; then it may stay there
	k.Bind(p.all[:], true)
}

// wakeUp is when a clock is to wake up, and what is known of the last time.
type wakeUp struct {
	due   int64 // for the next tick, or once more for the last
	again int64 // when to try a tick again
	tries int   // how often that was done
	least int64 // the least that a wake-up was late
	// doubt: the clock has got its CPU late and maybe by something else than its timer, see tardy. behind: later than it takes
	// whom the tick has met in a call to block there.
	doubt, behind bool
}

// seizer seizes threads.
type seizer struct {
	alarm *ptrace.Alarm // nil: there is none
	any   bool          // there may be tracees
}

// seen is what a clock has read of groups, at the wake-up at of each: the CPU time, -1 if nobody of it has run since before the tick.
type seen struct{ at, ran [maxGroups]int64 }

// maxRequests bounds the requests under way.
const maxRequests = 1024

// pick is the thread that the clock's wake-up has preempted.
type pick struct {
	slot      int
	run, wait int64
	count     uint64
	ran       int64 // nanoseconds since it was last looked at
	times     int64 // and how often it was put on a CPU since
	asleep    bool  // it has blocked
	between   bool  // the clock has got the CPU from somebody else: it may have been woken since the tick
	tick      met   // by the kernel's word; of who was preempted in code of its own nothing else is read
}

// Outside is the life of a clock's thread: see [ptrace.Outside].
//
//go:nosplit
//go:norace
func (c *Clock) Outside() {
	if c.place.cpu == Anywhere {
		c.rove()
		return
	}
	if c.life.quit.Load() || c.place.take(c.k) != 0 {
		c.life.barred.Store(true)
		c.place.leave(c.k)
		return
	}
	b := c.board
	for !c.life.quit.Load() {
		if c.tracees.seizes.any && c.tracees.out == 0 {
			c.clear()
		}
		w := &c.search.witness
		c.ticks.skip(b, &w.pause)
		tick := b.Start + (c.ticks.last+1)*b.Interval + c.ticks.phase
		if w.ring != nil && !w.set.Load() && c.tracees.out == 0 {
			if w.begin(c.k, tick, c.shown.rest.Load(), b.Interval); c.life.quit.Load() {
				break // it was woken from that
			}
		}
		c.up.due = max(tick, c.shown.rest.Load(), c.up.again) + w.later
		if c.tracees.out > 0 {
			c.await(c.up.due)
		} else {
			c.k.Sleep(c.up.due)
		}
		wake := c.k.Now()
		if wake < c.up.due || c.up.tardy(wake, c.prompt) && c.up.retry(wake, b.Interval) {
			continue
		}
		n := (wake - b.Start - c.ticks.phase) / b.Interval
		c.shown.missed.Add(n - c.ticks.last - 1)
		if wake-(b.Start+n*b.Interval+c.ticks.phase) > b.Interval/2 {
			c.shown.late.Add(1)
		}
		c.ticks.last, c.apart = n, 0
		c.life.active.Store(true)
		if Stride(b.stride.Load()).Answers(n) {
			if c.answer(n, wake) {
				c.shown.met.Store(n)
			} else {
				c.shown.looked.Add(c.k.Now() - wake)
			}
		} else {
			w.pass(b.Interval)
		}
		c.life.active.Store(false)
		now := c.k.Now()
		c.shown.rest.Store(now + share*(now-wake-c.apart))
		if c.up.again > wake { // the tick is still to be answered
			c.ticks.last--
			continue
		}
		c.up.tries = 0
		c.shown.done.Store(n)
		if b.nextWaits(c.who, wake-b.Interval) {
			b.Call()
		}
	}
	c.place.leave(c.k)
}

const (
	// Within slack and twice the least time that it has taken, but usual at most, the timer's wake-up gets a CPU that it
	// preempts, in nanoseconds.
	slack, usual = 20_000, 50_000
	// entry is for how long at most a thread goes on in a call before it blocks there, in nanoseconds: usually 1 to 3 us.
	entry = 5_000
	// grid is how much later a clock tries again that has got it later, and retries how often for one tick.
	grid    = 250_000
	retries = 4
)

// tardy tells whether the clock has got its CPU at wake by something else than its timer: without
// real-time priority a wake-up need not preempt (wakeup_preempt_fair, kernel/sched/fair.c), and who then looks at the CPU's queue
// from another one, as a reader of CPU times does, has the thread there give way at the end of a call. So it tries
// again, at a time that has nothing to do with that.
//
//go:nosplit
//go:norace
func (u *wakeUp) tardy(wake int64, prompt bool) bool {
	late := wake - u.due
	u.least = min(u.least, late)
	u.doubt, u.behind = !prompt && late > 2*u.least+slack, !prompt && late > u.least+entry
	return u.doubt
}

// retry has the clock wake up once more for the tick of its last wake-up. false: it has done so often enough.
//
//go:nosplit
//go:norace
func (u *wakeUp) retry(wake, interval int64) bool {
	if u.tries == retries {
		return false
	}
	u.tries++
	step := min(grid, interval)
	u.again = u.due + ((wake-u.due)/step+1)*step
	return true
}

// share is for how many times as long as it has worked a clock leaves its CPU to others at least: with its priority it
// would else keep it from all others at a rate at which the next tick has come whenever one is answered.
const share = 3

// rove is the life of a clock that is bound to no CPU.
//
//go:nosplit
//go:norace
func (c *Clock) rove() {
	for !c.life.quit.Load() {
		for c.requests.waiting() {
			c.life.active.Store(true)
			i := c.requests.begun.Add(1) - 1
			c.request(int(c.requests.list[i%maxRequests].Load()))
			c.life.active.Store(false)
		}
		if c.tracees.out == 0 {
			c.k.Park((*uint32)(unsafe.Pointer(&c.requests.made)), c.requests.begun.Load(), 0)
			continue
		}
		c.grip.since.Store(c.k.Now())
		who, status, errno := c.k.Wait(0, true)
		if errno == unix.EINTR {
			continue // there are more requests
		}
		c.report(who, status, errno)
	}
	c.place.leave(c.k)
}

// report finds the sample that a report is of, or all that are asked for if there is nothing to wait for. Whom nobody has
// asked for goes on at once.
//
//go:nosplit
//go:norace
func (c *Clock) report(who int, status uint32, errno unix.Errno) {
	last := -1 // of its process
	for i := range c.tracees.samples {
		m := &c.tracees.samples[i]
		if m.state.Load() != asked {
			continue
		}
		if m.tracee.id == who || errno != 0 {
			c.stopped(m, status, errno)
			if errno == 0 {
				return
			}
		} else if m.PID == who {
			last = i
		}
	}
	if last >= 0 { // it has called exec
		c.tracees.samples[last].tracee.id = who
		c.stopped(&c.tracees.samples[last], status, 0)
	} else if errno == 0 && who != 0 {
		release(c.k, who, status)
	}
}

// clear lets go who is a tracee and was not asked for: what a tracee makes with CLONE_PTRACE has its tracer, and stops at
// once (ptrace_init_task, include/linux/ptrace.h).
//
//go:nosplit
//go:norace
func (c *Clock) clear() {
	for {
		who, status, errno := c.k.Wait(0, false)
		if errno != unix.EINTR {
			c.tracees.seizes.any = errno == 0
		}
		if who == 0 {
			return
		}
		release(c.k, who, status)
	}
}

// release lets a tracee go that has reported status. false: it was killed meanwhile, and its end is to be taken.
//
//go:nosplit
//go:norace
func release(k taking.Kernel, id int, status uint32) bool {
	ws, sig := unix.WaitStatus(status), 0
	if !ws.Stopped() {
		k.Reap(id)
		return true
	}
	if status>>16 == 0 {
		sig = int(ws.StopSignal())
	}
	return k.Detach(id, sig) == 0
}

// request asks the thread of a slot to stop; of slot ^i, if i is negative, unless it is asleep by now: a stop would wake it, and may cut its call short.
//
//go:nosplit
//go:norace
func (c *Clock) request(i int) {
	running := i < 0
	if running {
		i = ^i
	}
	s := &c.board.slots[i]
	if !s.take(c.who) {
		return
	}
	if !s.used {
		s.give()
		return
	}
	got, _ := c.k.Pread(s.open.sched, c.text[:], 0)
	p := &c.search.picked
	*p = pick{slot: i}
	p.run, p.wait, _, _ = schedstat(c.text[:got])
	if running {
		got, _ = c.k.Pread(s.open.stat, c.text[:], 0)
		if state, _, ok := stat(c.text[:got]); ok && state != 'R' {
			s.give()
			return
		}
	}
	now := c.k.Now()
	c.ask(s, p, (now-c.board.Start)/c.board.Interval, now)
}

// answer samples the thread that the clock's wake-up has preempted. false: it was none of
// ours.
//
//go:nosplit
//go:norace
func (c *Clock) answer(n, wake int64) bool {
	p := &c.search.picked
	if !findPick(c, n, wake) {
		return false
	}
	s := &c.board.slots[p.slot]
	c.search.last = p.slot
	if !s.take(c.who) {
		return false
	}
	if !s.used || s.sampled.Load() >= n || p.tick.pc != 0 && s.TID != p.tick.id {
		s.give()
		return false
	}
	if p.tick.pc != 0 {
		c.board.early.met.Add(1)
		c.ask(s, p, n, wake)
		return true
	}
	// A clock that did not preempt a thread gets the CPU when that blocks: then it is no sign of where it was at the tick.
	if p.between || p.asleep && c.up.behind {
		if c.up.doubt = true; c.up.retry(wake, c.board.Interval) {
			s.give()
			return false
		}
	}
	if p.asleep {
		return c.peek(s, p, n, wake)
	}
	call := look(c.k, s.open.stack, c.text[:])
	in := call == transfer || call == waiting
	if call == elsewhere {
		s.give() // that CPU's clock may see it
		return false
	}
	c.board.early.met.Add(1)
	if (in || p.vain() && call == unknown) && s.wait.kept != 0 && c.peek(s, p, n, wake) {
		return true
	}
	if in {
		s.vain.Store(vain(n, InCall))
		s.give()
		return true
	}
	c.ask(s, p, n, wake)
	return true
}

// look reads what the thread, which waits for the clock's CPU, is in the midst of, by its stack in the kernel, which is for who has
// CAP_SYS_ADMIN (proc_pid_stack, fs/proc/base.c). It costs 5 to 7 us, and 30 where the CPU has done other things for 10 ms.
//
//go:nosplit
//go:norace
func look(k taking.Kernel, stack int, text []byte) inCall {
	if stack <= 0 {
		return unknown
	}
	got, errno := k.Pread(stack, text, 0)
	if errno != 0 {
		return unknown
	}
	return callOf(text[:got])
}

// atOnce is how much earlier than the clock got the CPU the thread may have left it that the clock has preempted, or that has
// blocked, in nanoseconds: the scheduler notes the same time for both (put_prev_entity, kernel/sched/fair.c; set_next_task_rt,
// kernel/sched/rt.c). If it has left it to nobody, or to somebody else, the tick has not met it, also if it has been woken since.
const atOnce = 1_000

// handover is that for a thread that waits for the CPU, where the clock has no real-time priority: others may have been in between, or
// it has been woken since. So the tick is tried again.
const handover = 10_000

// prompting is how much later than twice its least time a clock may have got the CPU from a thread that it takes to be where the tick has met it, in nanoseconds.
const prompting = 15_000

// perRead is how many threads a process has for whose CPU clock the kernel takes as long (thread_group_cputime,
// kernel/sched/cputime.c: it goes through them all) as for one schedstat.
const perRead = 8

// find finds the thread of the board that had this CPU until the clock got it, and makes it the picked one: of those that
// have run since they were last looked at, and were on this CPU last, the last that was on it. false: it was none of them. Where the clock has a witness, no other
// than the one that this tells of is looked at, and that only if the tick has met it in the kernel, or the clock has got the CPU late: else it was preempted, and is where it was.
//
// A kernel that does not preempt itself gives the clock the CPU when the thread leaves the kernel, or blocks: then it
// is asleep. One of real-time priority is not preempted, but at the end of its slice (SCHED_RR). Where the scheduler does not tell when threads were on a CPU, a thread may be found that waits for it,
// and none that has blocked.
//
//go:nosplit
//go:norace
func (c *Clock) find(n, wake int64) bool {
	count := int(c.board.index.n.Load())
	m, told := c.told(n, wake)
	if !told {
		found := c.seek(n, wake, count, count)
		c.search.witness.looked(found, c.board.Interval)
		return found
	}
	i := c.board.find(m.id)
	known := i >= 0 && i < count
	stands := m.pc != 0 && wake-m.at <= 2*c.up.least+prompting
	if !known {
		if i = c.stranger(&m, stands); i < 0 {
			return false
		}
	}
	// Who is of real-time priority may have blocked since, and so may somebody who has lent that from one who waits for it: the clock comes late then.
	if stands && (!known || c.board.slots[i].open.sched > 0) && !realTimeOf(m.id) {
		p := &c.search.picked
		*p = pick{slot: i}
		p.tick = m
		return true
	}
	if !known {
		return false
	}
	c.search.last = i
	return c.seek(n, wake, 0, count)
}

// stranger is the slot to spare of a thread's process, which is the thread's then, where that is not on the board and stands where the tick has met it. -1: there is none. The
// coordinator is called, which knows the thread from then on.
//
//go:nosplit
//go:norace
func (c *Clock) stranger(m *met, stands bool) int {
	if m.id <= 0 || m.pc == 0 { // threads of the kernel's that a process may have are never on the board
		return -1
	}
	g := c.board.group(m.of)
	if g == nil {
		return -1
	}
	c.board.Call()
	i := int(g.spare.Load()) - 1
	if i < 0 || !stands {
		return -1
	}
	s := &c.board.slots[i]
	if !s.take(c.who) {
		return -1
	}
	free := s.used && s.TID == 0 && s.PID == m.of // it may be another one's by now
	if free {
		s.TID = m.id
	}
	if s.give(); !free {
		return -1
	}
	return i
}

// told is the witness's word on a wake-up.
//
//go:nosplit
//go:norace
func (c *Clock) told(n, wake int64) (met, bool) {
	x := wakes{int(c.life.thread.Load()), c.place.cpu, c.board.Start + n*c.board.Interval + c.ticks.phase, c.up.due, wake, c.up.tries == 0}
	return c.search.witness.tell(&x, c.board.Interval)
}

// seek is find by what /proc tells, of the thread that was found last and of those in the slots below end.
//
//go:nosplit
//go:norace
func (c *Clock) seek(n, wake int64, end, count int) bool {
	b, p := c.board, &c.search.picked
	early := b.early.told.Load()
	own, told, last := int64(0), false, int64(-1)
	clock, spent, left := int32(0), int64(-1), 0
	for j := -1; j < end; j++ {
		i := j
		if j < 0 {
			i = c.search.last // usually this one
		} else if j == c.search.last {
			continue
		}
		if i < 0 || i >= count || !b.slots[i].used {
			continue
		}
		s := &b.slots[i]
		if s.open.sched < 0 {
			continue
		}
		if g := s.kin.group; g >= 0 && early != 0 && early <= wake {
			clock, spent, left = s.kin.clock, c.search.seen.since(b, c.k, g, wake, early), -1
			if spent < 0 {
				continue
			}
		}
		if s.kin.clock != clock {
			clock, spent, left = s.kin.clock, -1, 0
			if s.kin.crowd != nil {
				left = int(s.kin.crowd.Load()) / perRead
			}
		}
		if j >= 0 || c.shown.met.Load() != c.shown.done.Load() { // who was met at the last tick has run, most likely
			if left == 0 && clock != 0 {
				spent = c.k.Spent(clock) // that costs no more than the reads that there have been
			}
			left--
		}
		if spent >= 0 && s.last.stood.Load() == spent {
			continue // nobody of its process has run since
		}
		got, errno := c.k.Pread(s.open.sched, c.text[:], 0)
		run, wait, runs, ok := schedstat(c.text[:got])
		if errno != 0 || !ok {
			continue
		}
		ran, times := run-s.last.run.Load(), runs-s.last.runs.Load()
		if ran == 0 || s.sampled.Load() >= n {
			s.last.note(run, runs, spent)
			continue
		}
		got, _ = c.k.Pread(s.open.stat, c.text[:], 0)
		state, cpu, ok := stat(c.text[:got])
		if ok && cpu != c.place.cpu && uint(cpu) < maxClocks && b.homes[cpu].Load() {
			continue // that CPU's clock has still to see that it has run
		}
		s.last.note(run, runs, spent)
		if realTime(c.text[:got]) {
			continue // the clock has got the CPU when that had left it
		}
		asleep := state == 'S'
		if !ok || cpu != c.place.cpu || !asleep && state != 'R' {
			continue
		}
		if !told && c.search.self > 0 {
			got, _ = c.k.Pread(c.search.self, c.text[:], 0)
			own, told = execStart(c.text[:got])
		}
		got, _ = c.k.Pread(s.open.debug, c.text[:], 0)
		at, ok := execStart(c.text[:got])
		known := told && ok
		between := known && at < own-atOnce
		if known && at < own-handover || between && (asleep || c.prompt) || asleep && !known || at <= last {
			continue
		}
		*p = pick{slot: i, run: run, wait: wait, count: uint64(runs), ran: ran, times: times, asleep: asleep, between: between}
		if last = at; told && at >= own {
			break
		}
	}
	return last >= 0
}

// since is the CPU time of a group at a wake-up. -1: it is what it was when groups were told of at this time, before the clock's wake-up, so
// that nobody of them was on its CPU then: who is preempted, or blocks, has its time brought up to date.
//
//go:nosplit
//go:norace
func (v *seen) since(b *Board, k taking.Kernel, group int, wake, told int64) int64 {
	if v.at[group] == wake {
		return v.ran[group]
	}
	x := &b.early.groups[group]
	before := x.before.Load()
	spent := k.Spent(x.clock)
	if spent >= 0 && spent == before && b.early.told.Load() == told {
		spent = -1
	} else {
		spent = max(spent, 0)
	}
	v.at[group], v.ran[group] = wake, spent
	return spent
}

// peek reads a thread that has blocked, or was woken in the midst of a wait, without a stop. false: it has run since, or is in
// that wait no more.
//
//go:nosplit
//go:norace
func (c *Clock) peek(s *Slot, p *pick, n, wake int64) bool {
	i := c.room(&s.Advice)
	if i < 0 {
		s.vain.Store(vain(n, Lost))
		s.give()
		return true
	}
	m := &c.tracees.samples[i]
	still := !p.asleep
	if still {
		m.Peeked.Call = s.wait.call
	} else {
		got, errno := c.k.Pread(s.open.call, c.text[:], 0)
		still = errno == 0 && readCall(&m.Peeked.Call, c.text[:got]) && m.Peeked.Call.NR >= 0
	}
	var at int64
	if still {
		read(&m.Buffer, c.k, s.TID, m.Peeked.Call.SP, &s.Advice, s.pages)
		at = c.k.Now()
		still = m.read(c.k, s, c.text[:]) && uint64(m.Stopped.runs) == p.count
	}
	if !p.asleep && !(still && s.wait.same(m)) {
		m.state.Store(free)
		return false
	}
	if !still {
		m.state.Store(free)
		s.give()
		return false
	}
	if p.asleep {
		s.wait.note(m)
	}
	m.begin(c.k, s, p, n, wake)
	s.sampled.Store(n)
	m.Peeked.Asleep, m.Peeked.Count, m.Moved = true, p.count, c.up.doubt
	m.At.Asked, m.At.Stopped, m.At.Released = at, at, at
	m.judge(c.k, c.board, c.text[:], c.place.cpu)
	return true
}

// wait is what is known of the waits with a time limit that a thread was read in last, all at one place. What the thread waits for may wake it
// in vain, any number of times: a stop in the midst of that would cut the call short, and what has passed of its limit would be lost.
type wait struct {
	call  capture.Call // the last
	stack [waitWords]uint64
	kept  uint32 // the words that were the same in all of them; 0: no such wait is known
}

const (
	// inVain is for how long at most a thread runs that is woken in vain, in nanoseconds: 1 to 2 us were seen (epoll_wait, poll, recv).
	inVain = 10_000
	// waitWords is how much of the stack tells a wait from what a thread does behind it. In it is the address to which the function
	// returns that waits: whoever has returned and calls another has another one there.
	waitWords = 16
)

// note keeps the wait that m has read the thread in, if it may have a limit.
//
//go:nosplit
//go:norace
func (w *wait) note(m *Sample) {
	at, ok := waitAt(m, m.Peeked.Call.SP)
	if !ok || !ptrace.Timed(m.Peeked.Call.NR, &m.Peeked.Call.Args, m.Peeked.Call.SP>>32 == 0) {
		return
	}
	if w.kept == 0 || w.call.SP != m.Peeked.Call.SP || w.call.PC != m.Peeked.Call.PC {
		w.kept = 1<<waitWords - 1
		for i := range w.stack {
			w.stack[i] = word(m, at, i)
		}
	}
	w.call = m.Peeked.Call
	w.kept &= w.equal(m, at)
}

// met learns from a stop in the midst of such a wait.
//
//go:nosplit
//go:norace
func (w *wait) met(m *Sample) {
	if at, ok := waitAt(m, w.call.SP); ok && ptrace.StackPointer(m.Buffer.Regs.Used()) == w.call.SP {
		w.kept &= w.equal(m, at)
	}
}

// equal tells which words of the stack are those of the wait, in a copy where it begins at this place.
//
//go:nosplit
//go:norace
func (w *wait) equal(m *Sample, at int) (set uint32) {
	for i := range w.stack {
		if word(m, at, i) == w.stack[i] {
			set |= 1 << i
		}
	}
	return set
}

// vain tells whether the thread may have done nothing since it was last looked at but to be woken in vain.
//
//go:nosplit
//go:norace
func (p *pick) vain() bool { return p.times > 0 && p.ran <= inVain*p.times }

// same tells whether the stack that m has read is that of such a wait.
//
//go:nosplit
//go:norace
func (w *wait) same(m *Sample) bool {
	at, ok := waitAt(m, w.call.SP)
	return ok && w.equal(m, at)&w.kept == w.kept
}

// waitAt is where the stack begins in its copy of a thread whose stack pointer is sp in a wait. false: there is too little of it.
//
//go:nosplit
//go:norace
func waitAt(m *Sample, sp uint64) (at int, ok bool) {
	return int(sp - m.Buffer.StackAddr), sp-m.Buffer.StackAddr <= taking.RedZone && int(sp-m.Buffer.StackAddr)+8*waitWords <= m.Buffer.Stack.N
}

// word is a word of the copy of the stack.
//
//go:nosplit
//go:norace
func word(m *Sample, at, i int) uint64 {
	return binary.NativeEndian.Uint64(m.Buffer.Stack.Room[at+8*i:])
}

// room takes a sample that is free and makes it ready, with as much room as the advice asks for, if there is such a
// one, or at least as much of the thread's own stack, or for further ones. -1: there is none at all.
//
//go:nosplit
//go:norace
func (c *Clock) room(a *taking.Advice) int {
	best, want := -1, a.Room()
	if want == 0 {
		want = firstRoom
	}
	for i := range c.tracees.samples {
		m := &c.tracees.samples[i]
		if m.state.Load() != free {
			continue
		}
		if len(m.Buffer.Stack.Room) >= want && len(m.Buffer.Beyond.Room) >= a.Beyond && m.state.CompareAndSwap(free, ready) {
			return i
		}
		if best >= 0 {
			old := &c.tracees.samples[best]
			fits, did := len(m.Buffer.Stack.Room) >= want, len(old.Buffer.Stack.Room) >= want
			has, had := min(len(m.Buffer.Beyond.Room), a.Beyond), min(len(old.Buffer.Beyond.Room), a.Beyond)
			if !fits && did || fits == did && (has < had || has == had && len(m.Buffer.Stack.Room) <= len(old.Buffer.Stack.Room)) {
				continue
			}
		}
		best = i
	}
	if best >= 0 && !c.tracees.samples[best].state.CompareAndSwap(free, ready) {
		return -1 // the coordinator gives it more room
	}
	return best
}

// seizeAtMost is for how long a seize may wait for an exec, in nanoseconds. An exec takes less, if its files are at hand; meanwhile the
// clock answers nobody.
const seizeAtMost = 10_000_000

// seize seizes a thread. The alarm rings from the time then on, if that is not 0, or from seizeAtMost from now on. It is set once, and to be seldom the next of the
// CPU's timers: to have that ring at another time costs 6 us in a virtual machine. EINTR: the thread's process is in an exec that does not end, or the clock is to.
//
//go:nosplit
//go:norace
func (z *seizer) seize(k taking.Kernel, id int, quit *atomic.Bool, then int64) unix.Errno {
	end := k.Now() + seizeAtMost
	if z.alarm != nil && then != 0 {
		k.Alarm(z.alarm, min(then, end))
	} else if z.alarm != nil {
		k.Alarm(z.alarm, end)
	}
	errno := k.Seize(id)
	for errno == unix.EINTR && k.Now() < end && !quit.Load() { // it was only nudged
		errno = k.Seize(id)
	}
	if then == 0 {
		z.hush(k)
	}
	z.any = z.any || errno == 0
	return errno
}

// hush keeps the alarm from ringing.
//
//go:nosplit
//go:norace
func (z *seizer) hush(k taking.Kernel) {
	if z.alarm != nil {
		k.Alarm(z.alarm, 0)
	}
}

// keeps tells whether the thread in slot s is to be kept on its CPU, which is that clock's, when it is let go.
//
//go:nosplit
//go:norace
//go:noinline
func (t *tracees) keeps(s *Slot, clock int32) bool {
	return s.stays(clock) && t.out == 0 && t.raiser.works()
}

// ask seizes a thread at tick n for a clock, and has the alarm ring when its stop is late, unless it has longer, as it is not the next to get the CPU.
//
//go:nosplit
//go:norace
//go:noinline
func (z *seizer) ask(c *Clock, id int, n int64) unix.Errno {
	late := int64(0)
	if c.prompt && c.place.cpu != Anywhere {
		patience := soonest
		if c.tracees.out > 0 {
			patience = lateEvery
		}
		late = min(c.k.Now()+patience, c.board.Start+(n+1)*c.board.Interval+c.ticks.phase+c.search.witness.later)
	}
	return z.seize(c.k, id, &c.life.quit, late)
}

// soonest is after how long the scheduler's own timer of a busy CPU has rung, in nanoseconds.
var soonest = int64(ptrace.SchedulerTick())

// ask requests the stop of the thread in slot s, which c holds, and takes it.
//
//go:nosplit
//go:norace
func (c *Clock) ask(s *Slot, p *pick, n, wake int64) {
	if c.board.execs.has(s.PID, wake) {
		s.vain.Store(vain(n, Execs))
		s.give()
		return
	}
	i := c.room(&s.Advice)
	if i < 0 {
		s.vain.Store(vain(n, Lost))
		s.give()
		return
	}
	m := &c.tracees.samples[i]
	m.Stopped.runs = -1
	if c.board.keeper.Load() != 0 {
		c.askKeeper(s, m, i, p, n, wake)
		return
	}
	c.grip.since.Store(wake)
	id := s.TID
	errno := c.tracees.seizes.ask(c, id, n)
	if errno == 0 {
		if errno = c.k.Interrupt(id); errno == unix.ESRCH {
			// It was calling exec: the kernel has had us wait for that (cred_guard_mutex: ptrace_attach, kernel/ptrace.c).
			id = s.PID
			errno = c.k.Interrupt(id)
		}
	}
	if errno != 0 {
		c.tracees.seizes.hush(c.k)
		switch errno {
		case unix.EPERM:
			s.vain.Store(vain(n, Refused))
		case unix.EINTR:
			s.vain.Store(vain(n, Execs))
			c.board.execs.put(s.PID, c.k.Now())
			c.apart = c.k.Now() - wake // that was no work
		}
		c.grip.since.Store(0)
		m.state.Store(free)
		s.give()
		return
	}
	m.begin(c.k, s, p, n, wake)
	s.sampled.Store(n)
	m.tracee.id = id
	m.tracee.stays = c.tracees.keeps(s, c.who)
	c.tracees.out++
	if c.place.cpu == Anywhere {
		return
	}
	m.Moved = c.up.doubt
	if p.tick.pc == 0 {
		m.queued(c, s, p, wake)
	}
	_, status, errno := c.k.Wait(id, true)
	if errno == unix.EINTR {
		m.tracee.stays = false // others run on that CPU
		c.tracees.seizes.hush(c.k)
		c.grip.since.Store(0)
		c.apart = c.k.Now() - m.At.Asked
		return // it stops late, or the coordinator wants the clock to go on
	}
	c.stopped(m, status, errno)
	c.tracees.seizes.hush(c.k)
}

// queued proves that the thread is in the queue of the clock's CPU, and has not left it since the wake-up.
//
//go:nosplit
//go:norace
func (m *Sample) queued(c *Clock, s *Slot, p *pick, wake int64) {
	if m.At.Asked-wake > blocked {
		got, _ := c.k.Pread(s.open.sched, c.text[:], 0)
		run, _, _, ok := schedstat(c.text[:got])
		m.Moved = m.Moved || !ok || run != p.run
	}
	got, _ := c.k.Pread(s.open.stat, c.text[:], 0)
	_, at, ok := stat(c.text[:got])
	m.proof.waits = ok && at == c.place.cpu
}

// blocked is for how long after its wake-up a clock has had its CPU for certain, in nanoseconds: a seize may wait for an exec
// (cred_guard_mutex), and without real-time priority another thread may get the CPU. The thread may have run on then.
const blocked = 50_000

// begin notes what is known at the request.
//
//go:nosplit
//go:norace
func (m *Sample) begin(k taking.Kernel, s *Slot, p *pick, n, wake int64) {
	m.Slot, m.TID, m.PID, m.Tick, m.At.Wake = p.slot, s.TID, s.PID, n, wake
	m.At.Asked, m.Asked = k.Now(), Usage{p.run, p.wait, int64(p.count)}
	if p.tick.pc != 0 {
		m.Asked = Usage{Run: s.last.run.Load(), Wait: s.last.wait} // it has run since: judge knows more
	}
	m.Moved, m.Gone, m.Peeked.Asleep, m.tracee, m.proof = false, false, false, tracee{id: s.TID}, proof{tick: p.tick}
	m.state.Store(asked)
}

// stopped takes a sample of a thread that reports, and lets it go. It stays asked for if it has called exec, and
// stops under the id that it has since; and if it was killed while it was stopped: whoever traces it has
// to take its end, or another thread's exec and the parent of its process wait for that (de_thread, fs/exec.c;
// exit_notify, kernel/exit.c).
//
//go:nosplit
//go:norace
func (c *Clock) stopped(m *Sample, status uint32, errno unix.Errno) {
	if errno != 0 && m.tracee.id != m.PID && c.k.Interrupt(m.PID) == 0 {
		m.tracee.id = m.PID
		c.grip.since.Store(0)
		return
	}
	c.grip.holding.Store(int32(m.TID))
	c.grip.holds.Store(c.k.Now())
	left := takeSample(m, c.k, c.board, c.text[:], status, errno, false)
	became := m.tracee.pages > 0
	c.grip.holds.Store(0)
	c.grip.since.Store(0)
	c.apart = m.At.Stopped - m.At.Asked + m.tracee.ran
	if !left {
		return
	}
	if m.Buffer.Call.Met {
		c.board.slots[m.Slot].wait.met(m)
	}
	m.judge(c.k, c.board, c.text[:], c.place.cpu)
	c.tracees.out--
	if became {
		callBoard(c.board) // it may become another any time
	}
}

// take copies what the sample is to have of a thread that has reported status, or is known to be gone by
// errno, and lets it go, unless it is kept. left: it is no tracee any more, or not for good.
//
//go:nosplit
//go:norace
func (m *Sample) take(k taking.Kernel, b *Board, text []byte, status uint32, errno unix.Errno, kept bool) (left bool) {
	s := &b.slots[m.Slot]
	left = true
	m.At.Stopped, m.Status = k.Now(), status
	ws := unix.WaitStatus(status)
	switch {
	case errno != 0: // somebody else has taken its end
		m.Gone = true
	case !ws.Stopped():
		k.Reap(m.tracee.id)
		m.Gone = true
	default:
		by := taking.StoppedFor(status)
		m.Gone = take(k, m.tracee.id, &s.Advice, &m.Buffer, s.pages, by, b.NoRestart) != 0 || m.tracee.id != m.TID
		m.Buffer.Lived = m.Buffer.Lived && !kept // only a release tells that it was not killed, and is another's by now
		m.read(k, s, text)                       // here, where they stand still
		m.known(k, s.pages, text)
		if !kept {
			return m.letGo(k, b, text)
		}
	}
	m.At.Released = k.Now()
	return left
}

// known opens the pagemap of a thread that stands still, if that of its process which the board knows is of memory that is gone.
//
//go:nosplit
//go:norace
//go:noinline
func (m *Sample) known(k taking.Kernel, pages int, text []byte) {
	if pages < 0 || m.Buffer.Lived || m.Gone {
		return
	}
	// The pagemap of memory that is gone reads as empty (pagemap_read, fs/proc/task_mmu.c).
	if got, errno := k.Pread(pages, text[:8], 0); errno != 0 || got != 0 {
		return
	}
	fd, errno := openFile(m.Buffer.ProcPath(m.tracee.id, "/pagemap\x00"))
	if m.Gone = errno != 0; !m.Gone {
		m.tracee.pages = 1 + fd
	}
}

// openFile is another one in tests.
var openFile = ptrace.RawOpen

// letGo lets the thread go, on its CPU if it is to be kept there: then it runs before the clock does. left is as [Sample.take] has it.
//
//go:nosplit
//go:norace
func (m *Sample) letGo(k taking.Kernel, b *Board, text []byte) (left bool) {
	if !m.tracee.stays {
		left = release(k, m.tracee.id, m.Status)
		m.At.Released = k.Now()
		return left
	}
	s := &b.slots[m.Slot]
	r := b.clocks[s.holder.Load()].Load().tracees.raiser
	r.lower()
	before := k.Now()
	left = release(k, m.tracee.id, m.Status)
	began := r.back()
	until := began
	if until == 0 {
		until = k.Now()
	}
	got, _ := k.Pread(s.open.sched, text, 0)
	if run, _, _, ok := schedstat(text[:got]); ok && m.Stopped.runs >= 0 {
		m.tracee.ran = min(max(run-m.Stopped.Run, 0), until-before)
		r.learn(began, m.tracee.ran, b.Interval)
	}
	m.At.Released = until - m.tracee.ran
	return left
}

// read reads the thread's times. false: they are not to be had.
//
//go:nosplit
//go:norace
func (m *Sample) read(k taking.Kernel, s *Slot, text []byte) bool {
	got := 0
	if s.open.sched < 0 && m.proof.tick.pc != 0 { // nobody has known it
		got, _ = k.ReadFile(m.Buffer.ProcPath(s.TID, "/schedstat\x00"), text)
	} else {
		got, _ = k.Pread(s.open.sched, text, 0)
	}
	run, wait, runs, ok := schedstat(text[:max(got, 0)])
	if m.Stopped.runs = -1; ok {
		m.Stopped = Usage{run, wait, runs}
	}
	return ok
}

// settled is the run time between the request and the stop of a thread that was not on a CPU then,
// in nanoseconds: the kernel's own way.
const settled = 3_000

// judge finds out whether the thread may have run code of its own between the tick and the
// stop. It has not if it was on no CPU at the request: a thread that was preempted meets the
// request before it gets back to its code. That is so if it was still in the queue of the clock's CPU after the request, if it
// has hardly run, or has not left this CPU; and if the tick has met it at the instruction at which it has stopped, which alone counts where that is
// known. Then the sample is the coordinator's.
//
//go:nosplit
//go:norace
func (m *Sample) judge(k taking.Kernel, b *Board, text []byte, cpu int) {
	s := &b.slots[m.Slot]
	known := m.Stopped.runs >= 0
	if !known {
		m.Stopped = m.Asked
		m.Gone = m.Gone || m.proof.tick.pc != 0 // it is another thread that has this one's id
	}
	if s.pages >= 0 && !m.Buffer.Lived && m.tracee.pages == 0 {
		// Nobody knows of which program the copy is.
		got, errno := k.Pread(s.pages, text[:8], 0)
		m.Gone = m.Gone || errno == 0 && got == 0
	}
	if known && m.proof.tick.pc != 0 {
		m.Asked = Usage{m.Stopped.Run, m.Stopped.Wait - max(0, m.At.Stopped-m.At.Wake), m.Stopped.runs} // it has waited since
	}
	if !m.Gone {
		if known {
			s.last.runs.Store(m.Stopped.runs)
			s.last.wait = m.Stopped.Wait
		}
		s.last.run.Store(m.Stopped.Run)
		if m.proof.tick.pc != 0 {
			m.Moved = ptrace.ProgramCounter(m.Buffer.Regs.Used()) != m.proof.tick.pc
		} else if !m.proof.waits && m.Stopped.Run-m.Asked.Run > settled {
			got, _ := k.Pread(s.open.stat, text, 0)
			_, at, ok := stat(text[:got])
			m.Moved = m.Moved || !ok || at != cpu
		}
	}
	m.At.End = k.Now()
	m.state.Store(filled)
	s.give()
}

// await waits for threads that have not stopped at once, until the next tick.
//
//go:nosplit
//go:norace
func (c *Clock) await(next int64) {
	alarm := c.tracees.seizes.alarm
	if alarm != nil {
		c.k.Alarm(alarm, next)
	}
	for c.k.Now() < next && c.tracees.out > 0 {
		if c.reported() {
			continue
		}
		if alarm == nil {
			c.k.Sleep(min(next, c.k.Now()+lateEvery))
		} else if who, status, errno := c.k.Wait(0, true); errno != unix.EINTR {
			c.report(who, status, errno)
		}
	}
	c.tracees.seizes.hush(c.k)
}

// reported takes the samples of those that report by now, or whose end somebody else has taken.
//
//go:nosplit
//go:norace
func (c *Clock) reported() (any bool) {
	for i := range c.tracees.samples {
		m := &c.tracees.samples[i]
		if m.state.Load() != asked {
			continue
		}
		who, status, errno := c.k.Wait(m.tracee.id, false)
		if who != 0 || errno != 0 && errno != unix.EINTR {
			c.stopped(m, status, errno)
			any = true
		}
	}
	return any
}

// lateEvery is for how long a stop is expected to come at once while others are late, and how often a clock without an alarm looks for those, in nanoseconds.
const lateEvery = 500_000

// These are called by value, since the linker counts the stack of calls by name against what a
// nosplit chain may use (cmd/link, stack check). There is more: see growStack.
var (
	take = taking.Take
	read = (*taking.Buffer).Peek

	findPick   = (*Clock).find
	takeSample = (*Sample).take
	callBoard  = (*Board).Call
)

// growStack makes room for what must not grow the stack.
//
//go:noinline
func growStack() byte {
	var room [32 << 10]byte
	return room[ptrace.RawNow()&1]
}
