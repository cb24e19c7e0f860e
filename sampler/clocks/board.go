package clocks

import (
	"errors"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/sampler/taking"
)

// maxClocks bounds the clocks of a run.
const maxClocks = 4096

var errTooMany = errors.New("there are too many clocks")

// Board is where clocks find the threads that may run, and learn whether they are to
// tick. One goroutine, the coordinator, puts threads on it and takes them off.
type Board struct {
	Start    int64 // CLOCK_MONOTONIC of tick 0
	Interval int64 // nanoseconds
	Spread   int64 // for how long clocks' phases are apart at most, nanoseconds

	NoRestart bool // no register of a target is ever written

	keeper atomic.Int32 // thread id of the keeper of all threads, 0: there is none
	kept   copied
	clocks [maxClocks]atomic.Pointer[Clock] // by number, for the keeper
	homes  [maxClocks]atomic.Bool           // CPUs that have a clock
	stride atomic.Int64                     // a Stride; 0: no tick is answered
	index  index
	slots  []Slot
	most   int         // numbers of clocks lie below it
	cpus   unix.CPUSet // that this program may be on
	early  early
	execs  longExecs
}

// copied is the thread that the keeper copies.
type copied struct {
	tid   atomic.Int32
	since atomic.Int64 // 0: none; negative: it hangs, see Hold
}

// early is what is read shortly before ticks.
type early struct {
	groups  [maxGroups]group
	grouped int          // groups lie below it
	told    atomic.Int64 // CLOCK_MONOTONIC at which all had been read, 0: they are not, or are being read
	bell    uint32       // how often the coordinator was called; atomic
	met     atomic.Int64 // how often a clock has met a thread that runs
}

// maxGroups bounds the processes that are read shortly before ticks.
const maxGroups = 256

// group is the threads of one process. Who has run since before it was read shows in its CPU clock.
type group struct {
	clock  int32        // CPU clock of the process; 0: the group is free
	before atomic.Int64 // what that told, nanoseconds; -1: nothing
	ran    int64        // how much more than the time before, nanoseconds; -1: it is not known
	spare  atomic.Int32 // slot for a thread of it that is not known yet, + 1; 0: none
}

// Ran is for how long a group has run between the last two times that groups were told of, in nanoseconds. -1: it is not known.
//
//go:nosplit
//go:norace
func (b *Board) Ran(group int) int64 { return b.early.groups[group].ran }

// Group makes a group of a process by its CPU clock. -1: there is no room.
func (b *Board) Group(clock int32) int {
	for i := range b.early.groups {
		if g := &b.early.groups[i]; g.clock == 0 {
			g.clock = clock
			g.before.Store(-1)
			b.early.grouped = max(b.early.grouped, i+1)
			return i
		}
	}
	return -1
}

// Ungroup gives a group back.
func (b *Board) Ungroup(i int) {
	if i >= 0 {
		b.early.told.Store(0)
		b.early.groups[i].clock = 0
		b.early.groups[i].spare.Store(0)
	}
}

// Tell reads the groups, and returns how often clocks have met a thread that runs so far. If clocks rely on it they need not look at those who have
// not run between that and their tick: it is called shortly before a tick then.
//
//go:nosplit
//go:norace
func (b *Board) Tell(k taking.Kernel, rely bool) (met int64) {
	b.early.told.Store(0)
	for i := range b.early.grouped {
		if g := &b.early.groups[i]; g.clock != 0 {
			spent, before := k.Spent(g.clock), g.before.Load()
			if g.ran = -1; spent >= before && before >= 0 {
				g.ran = spent - before
			}
			g.before.Store(spent)
		}
	}
	if rely {
		b.early.told.Store(k.Now())
	}
	return b.early.met.Load()
}

// group is the one of a process, nil if it has none.
//
//go:nosplit
//go:norace
func (b *Board) group(pid int) *group {
	for i := range b.early.grouped {
		if g := &b.early.groups[i]; int(^(g.clock >> 3)) == pid { // include/linux/posix-timers.h
			return g
		}
	}
	return nil
}

// Renew makes a slot to spare ready again. false: a clock holds it; try again later.
func (b *Board) Renew(slot int) bool {
	s := &b.slots[slot]
	if !s.take(coordinator) {
		return false
	}
	s.fresh(0)
	s.TID = 0
	s.give()
	return true
}

// Bell is how often clocks have called the coordinator: for a thread of a group that had a CPU and is not on the board, or a clock that waits.
//
//go:nosplit
//go:norace
func (b *Board) Bell() uint32 { return atomic.LoadUint32(&b.early.bell) }

// Sleep sleeps to a CLOCK_MONOTONIC time, unless clocks call, or have called more often than so. It may end early.
//
//go:nosplit
//go:norace
func (b *Board) Sleep(k taking.Kernel, heard uint32, until int64) {
	k.Park(&b.early.bell, heard, until)
}

// Call wakes the coordinator from [Board.Sleep].
//
//go:nosplit
//go:noinline
//go:norace
func (b *Board) Call() {
	atomic.AddUint32(&b.early.bell, 1)
	ptrace.RawUnpark(&b.early.bell)
}

// longExecs are processes that are in an execve(2) for which a seize would wait: of a file whose server does not answer. They are left alone
// for a while. Each is a word: the id in pidBits, and until when, in milliseconds of CLOCK_MONOTONIC.
type longExecs [16]atomic.Int64

const (
	pidBits = 22 // PID_MAX_LIMIT (include/linux/threads.h)
	// execPause is for how long a process is left alone, in milliseconds.
	execPause = 100
)

// has tells whether a process is to be left alone at a CLOCK_MONOTONIC time, in nanoseconds.
//
//go:nosplit
//go:norace
func (e *longExecs) has(pid int, now int64) bool {
	for i := range e {
		if w := e[i].Load(); int(w&(1<<pidBits-1)) == pid && now/1e6 < w>>pidBits {
			return true
		}
	}
	return false
}

// put has a process left alone from now on. If there are too many, one of the others is not any more.
//
//go:nosplit
//go:norace
func (e *longExecs) put(pid int, now int64) {
	first := 0
	for i := range e {
		if e[i].Load()>>pidBits < e[first].Load()>>pidBits {
			first = i
		}
	}
	e[first].Store((now/1e6+execPause)<<pidBits | int64(pid))
}

// Slot is one thread on the board.
type Slot struct {
	// holder is 0 while nobody uses the fields below it, else whose number (a clock's, or
	// the coordinator's) does.
	holder atomic.Int32
	used   bool
	TID    int
	PID    int
	open   files
	kin    kin
	pages  int // open pagemap of its process
	Advice taking.Advice

	wait wait

	// request is for the keeper: a clock's number and sample, see askKeeper; 0: none.
	request atomic.Int64

	last    lastRead
	let     let
	sampled atomic.Int64 // last tick at which a clock asked for it
	vain    atomic.Int64 // last tick at which it was met in vain, and why: see vain
}

// lastRead is what was read last of a thread.
type lastRead struct {
	run   atomic.Int64 // run time
	runs  atomic.Int64 // how often it had been put on a CPU
	stood atomic.Int64 // CPU time of its process before that
	wait  int64        // for how long it had waited for a CPU; for who holds the slot
}

// let is how a thread was let go last.
type let struct {
	by   int32 // the clock's number
	keep int32 // how many times more it is to be kept on its CPU
	last int32 // and how many in all, the last time
}

// For so many samples at first, twice as many each time and at most, a thread is kept on its CPU that has gone to another. Then it is tried whether it goes.
const keepFirst, keepMost = 16, 1024

// stays tells whether the thread is to be kept on its CPU, the one of a clock: it was met on another lately.
//
//go:nosplit
//go:norace
func (s *Slot) stays(clock int32) bool {
	l := &s.let
	if l.by != 0 && l.by != clock {
		l.last = min(max(2*l.last, keepFirst), keepMost)
		l.keep = l.last
	} else if l.keep > 0 {
		l.keep--
	}
	l.by = clock
	return l.keep > 0
}

// note is told what was read.
//
//go:nosplit
//go:norace
func (r *lastRead) note(run, runs, stood int64) {
	r.run.Store(run)
	r.runs.Store(runs)
	r.stood.Store(stood)
}

// files are the open files of a thread in /proc: schedstat, stat, sched, syscall and stack. -1: not to be had.
type files struct{ sched, stat, debug, call, stack int }

// kin is what is read of all threads of a process at once.
type kin struct {
	clock int32         // its CPU clock
	group int           // -1: none
	crowd *atomic.Int32 // how many they are
}

// coordinator is the number of the holder that no clock has.
const coordinator = -1

// NewBoard returns a board with room for n threads.
func NewBoard(n int, start, interval int64) *Board {
	b := &Board{Start: start, Interval: interval, Spread: interval / 2, slots: make([]Slot, n)}
	b.SetStride(Every)
	_ = unix.SchedGetaffinity(0, &b.cpus) // else clocks cannot be bound either
	return b
}

//go:nosplit
//go:norace
func (s *Slot) take(who int32) bool { return s.holder.CompareAndSwap(0, who) }

//go:nosplit
//go:norace
func (s *Slot) give() { s.holder.Store(0) }

// Thread is what the board must know of one.
type Thread struct {
	TID, PID           int
	Sched, Stat, Debug int           // open schedstat, stat and sched; -1: not to be had
	Call, Stack        int           // open syscall and stack, -1: not to be had
	Clock              int32         // CPU clock of its process; 0: not to be asked
	Group              int           // of its process, -1: none
	Crowd              *atomic.Int32 // how many threads it has, nil: a few
	Pages              int           // open pagemap of the process, -1: not to be had
	Advice             taking.Advice
	Run                int64 // run time as far as it is known, nanoseconds
}

// Put adds a thread. -1: there is no room. One of id 0 stands for any of its group that is not on the board: a clock that meets one samples it from there, its sample has
// that one's id, and the slot is used up until [Board.Renew].
func (b *Board) Put(t Thread) int {
	n := int(b.index.n.Load())
	for i := range min(n+1, len(b.slots)) {
		if s := &b.slots[i]; !s.used && s.take(coordinator) {
			b.fill(s, &t)
			if t.TID != 0 {
				b.index.put(t.TID, i)
			} else {
				b.early.groups[t.Group].spare.Store(int32(i + 1))
			}
			b.index.n.Store(int32(max(n, i+1)))
			return i
		}
	}
	return -1
}

func (b *Board) fill(s *Slot, t *Thread) {
	s.TID, s.PID, s.open, s.kin.clock, s.kin.crowd, s.pages, s.kin.group, s.Advice = t.TID, t.PID, files{t.Sched, t.Stat, t.Debug, t.Call, t.Stack}, t.Clock, t.Crowd, t.Pages, t.Group, t.Advice
	s.fresh(t.Run)
	s.used = true
	s.give()
}

// fresh is a slot of whose thread nothing is known but its run time.
func (s *Slot) fresh(run int64) {
	s.wait.kept, s.let = 0, let{}
	s.last.run.Store(run)
	s.last.wait = 0
	s.last.stood.Store(-1)
	s.sampled.Store(-1)
	s.vain.Store(-1)
}

// index is the slots in use. They lie below n, and are found by their threads' ids in leaves, which are made when they are needed, of slots + 1.
type index struct {
	n      atomic.Int32
	leaves [1 << (pidBits - leafBits)]atomic.Pointer[[1 << leafBits]atomic.Int32]
}

// leafBits is how many bits of a thread's id a leaf is for.
const leafBits = 12

// put notes the slot of a thread, or none, -1.
func (x *index) put(id, slot int) {
	if uint(id)>>pidBits != 0 {
		return
	}
	leaf := &x.leaves[id>>leafBits]
	if leaf.Load() == nil {
		leaf.Store(new([1 << leafBits]atomic.Int32))
	}
	leaf.Load()[id&(1<<leafBits-1)].Store(int32(slot + 1))
}

// find is the slot of a thread, -1: none.
//
//go:nosplit
//go:norace
func (b *Board) find(id int) int {
	if id <= 0 || uint(id)>>pidBits != 0 {
		return -1
	}
	leaf := b.index.leaves[id>>leafBits].Load()
	if leaf == nil {
		return -1
	}
	return int(leaf[id&(1<<leafBits-1)].Load()) - 1
}

// Remove takes a thread off. false: a clock holds it; try again later.
func (b *Board) Remove(i int) bool {
	s := &b.slots[i]
	if !s.take(coordinator) {
		return false
	}
	s.used = false
	if b.find(s.TID) == i {
		b.index.put(s.TID, -1)
	}
	if g := s.kin.group; g >= 0 {
		b.early.groups[g].spare.CompareAndSwap(int32(i+1), 0)
	}
	s.give()
	n := int(b.index.n.Load())
	for n > 0 && !b.slots[n-1].used && b.slots[n-1].holder.Load() == 0 {
		n--
	}
	b.index.n.Store(int32(n))
	return true
}

// Advise changes what is known of a thread's stack. false: a clock holds it.
func (b *Board) Advise(i int, a taking.Advice) bool {
	s := &b.slots[i]
	if !s.take(coordinator) {
		return false
	}
	s.Advice = a
	s.give()
	return true
}

// Met tells what clocks did with a thread at tick n.
func (b *Board) Met(i int, n int64) Meeting {
	s := &b.slots[i]
	if s.sampled.Load() == n {
		return Sampled
	}
	if v := s.vain.Load(); v>>meetingBits == n {
		return Meeting(v & (1<<meetingBits - 1))
	}
	return NotMet
}

// meetingBits is how many bits a Meeting takes.
const meetingBits = 3

// vain is a tick at which a thread was met in vain, and why, in one word.
//
//go:nosplit
//go:norace
func vain(n int64, why Meeting) int64 { return n<<meetingBits | int64(why) }

// Meeting is what becomes of a thread at a tick.
type Meeting int

const (
	NotMet  Meeting = iota
	Sampled         // a clock has asked it to stop, or has read it
	Lost            // there was no buffer
	Refused         // it may not be traced
	Execs           // its process was in an execve(2) that does not end, so that nobody can stop its threads
	InCall          // it was in the midst of a system call that a stop would cut short
)

// Holds tells whether a clock may have stopped a thread at tick n: it has it now, or has had it.
func (b *Board) Holds(i int, n int64) bool {
	s := &b.slots[i]
	return s.holder.Load() != 0 || s.sampled.Load() >= n // in this order: what is given back was noted
}

// Waits tells whether a clock has waited for a stop since before the CLOCK_MONOTONIC time t.
//
//go:nosplit
//go:norace
func (b *Board) Waits(t int64) bool {
	for i := range b.most {
		if c := b.clocks[i].Load(); c != nil {
			if since := c.grip.since.Load(); since != 0 && since < t {
				return true
			}
		}
	}
	return false
}

// nextWaits is Waits of the clock whose number follows this one, and of those in between that have no ticks.
//
//go:nosplit
//go:norace
func (b *Board) nextWaits(who int32, t int64) bool {
	for i := range b.most {
		c := b.clocks[(int(who)+1+i)%b.most].Load()
		if c == nil {
			continue
		}
		if since := c.grip.since.Load(); c.who != who && since != 0 && since < t {
			return true
		}
		if c.place.cpu != Anywhere && !c.life.quit.Load() { // others see nothing
			break
		}
	}
	return false
}

// Asked is the last tick at which a clock has asked a thread to stop.
func (b *Board) Asked(i int) int64 { return b.slots[i].sampled.Load() }

// number is one that no clock has, 0 if there is none.
func (b *Board) number() int {
	for n := 1; n < maxClocks; n++ {
		if b.clocks[n].Load() == nil {
			b.most = max(b.most, n+1)
			return n
		}
	}
	return 0
}

// Hold is a stopped thread of a target with the thread of ours that holds it: a clock's, or the keeper's.
type Hold struct {
	By, TID int
	Since   int64 // CLOCK_MONOTONIC, nanoseconds

	since *atomic.Int64
}

// Held appends to list the threads that are held now, and not given up. Any goroutine may ask.
func (b *Board) Held(list []Hold) []Hold {
	if since := b.kept.since.Load(); since > 0 {
		list = append(list, Hold{int(b.keeper.Load()), int(b.kept.tid.Load()), since, &b.kept.since})
	}
	for n := range b.clocks {
		if c := b.clocks[n].Load(); c != nil {
			if since := c.grip.holds.Load(); since > 0 {
				list = append(list, Hold{int(c.life.thread.Load()), int(c.grip.holding.Load()), since, &c.grip.holds})
			}
		}
	}
	return list
}

// GiveUp notes that who holds the thread hangs: nobody waits for that any more. It is over if it lets go after all.
func (h *Hold) GiveUp() { h.since.CompareAndSwap(h.Since, -h.Since) }

// Free lets the clock with this thread id, or all clocks if it is 0, go to any CPU without real-time priority, and has them end, but for one that is bound to no CPU and was named. On a CPU
// that others of higher priority in real time have taken for good they could not let go whom they hold, and this program could not end; there the kernel
// leaves 5 % to threads of the usual policy alone (sched(7), sched_rt_runtime_us). Any goroutine may call it.
func (b *Board) Free(tid int) {
	for n := range b.clocks {
		c := b.clocks[n].Load()
		if c == nil || tid != 0 && int(c.life.thread.Load()) != tid {
			continue
		}
		select {
		case <-c.life.ended:
			continue // its id may be another's
		default:
		}
		ptrace.RawPolicy(int(c.life.thread.Load()), unix.SCHED_NORMAL)
		if tid == 0 || c.place.cpu != Anywhere { // that one goes on, as nobody would make another
			c.life.quit.Store(true)
			c.life.barred.Store(true)
		}
		if c.place.cpu != Anywhere {
			unbind(int(c.life.thread.Load()), c.place.cpu, b.cpus)
		}
	}
}

// unbind lets a thread go to any of these CPUs. It may stay where it is, and goes only if it must not.
func unbind(tid, from int, to unix.CPUSet) {
	away := to
	if away.Clear(from); away.Count() > 0 {
		unix.SchedSetaffinity(tid, &away)
	}
	unix.SchedSetaffinity(tid, &to)
}

// home notes whether a CPU has a clock.
func (b *Board) home(cpu int, has bool) {
	if cpu < len(b.homes) {
		b.homes[cpu].Store(has)
	}
}

// Stride is how many ticks there are for each that clocks answer, times [Every].
type Stride int64

// Every is the stride of which each tick is answered.
const Every Stride = 8

// Answers tells whether a tick is one that is answered, as evenly as that goes.
//
//go:nosplit
//go:norace
func (s Stride) Answers(n int64) bool {
	return s > 0 && n*int64(Every)%int64(s) < int64(Every)
}

// Ticks is how many ticks there are for each that is answered.
func (s Stride) Ticks() float64 { return float64(s) / float64(Every) }

// SetStride lets clocks answer only some ticks.
func (b *Board) SetStride(stride Stride) { b.stride.Store(int64(stride)) }

// Rest has no tick answered any more.
func (b *Board) Rest() { b.stride.Store(0) }
