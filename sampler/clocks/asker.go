package clocks

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/sampler/taking"
)

// Asker asks one thread for its stop, unless that would cut short the system call that it is in the midst of. It does so from the CPU that
// the thread runs on: while the asker has that, the thread does not go on, so that what it does is known when its stop is asked for.
//
// Who asks must trace nobody: a thread of a higher real-time priority may keep it from that CPU, until another one calls Free.
type Asker struct {
	Avoid CPUs // that it is not to be bound to

	k          taking.Kernel
	tid        int
	seizes     seizer
	files      struct{ stat, stack, sched int } // open, of the thread
	urgent     bool                             // it has real-time priority: nobody of ours preempts it
	back, mask CPUs
	text       [4096]byte // of files of /proc
	answer     Answer

	cpu   atomic.Int32 // that it is, or is about to be, bound to, and one more
	freed atomic.Bool

	mu  sync.Mutex
	was was
}

// was is what a thread was like that asks.
type was struct {
	tid   int // 0: it is so again, or still
	since int64
	cpus  unix.CPUSet
	attr  *unix.SchedAttr
}

// CPUs is a set of them, a bit each, as large as [unix.CPUSet].
type CPUs [16]uint64

// Answer is what has come of asking.
type Answer int

const (
	NotSeen   Answer = iota // the thread has a CPU that the asker has not got: look again
	InMidst                 // it is in the midst of a call that a stop would cut short
	NoLook                  // nobody can look at it
	NotSeized               // it cannot be seized, or is gone
	Requested               // it is seized, and its stop is asked for
)

// Ask asks thread tid of a process. alarm is the calling thread's.
func (a *Asker) Ask(pid, tid int, alarm *ptrace.Alarm, nice bool) Answer {
	if theirs, err := unix.SchedGetAttr(tid, 0); err == nil {
		a.urgent = theirs.Priority > 0 || theirs.Policy == unix.SCHED_DEADLINE
	}
	path := fmt.Sprintf("/proc/%d/task/%d/", pid, tid)
	for name, fd := range map[string]*int{"stat": &a.files.stat, "stack": &a.files.stack, "schedstat": &a.files.sched} {
		f, err := unix.Open(path+name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return NoLook
		}
		defer unix.Close(f)
		*fd = f
	}
	a.k, a.tid, a.seizes.alarm = new(taking.Live), tid, alarm
	w, err := was{tid: unix.Gettid(), since: ptrace.Now()}, error(nil)
	if w.attr, err = unix.SchedGetAttr(w.tid, 0); err != nil || unix.SchedGetaffinity(w.tid, &w.cpus) != nil {
		return NoLook
	}
	a.back = *(*CPUs)(unsafe.Pointer(&w.cpus))
	a.mu.Lock()
	a.was = w
	a.mu.Unlock()
	hasten(nice)
	a.mu.Lock()
	a.was.since = ptrace.Now() // before, it may have waited for a CPU
	a.mu.Unlock()
	growStack()
	ptrace.Outside(a)
	a.Free(0)
	return a.answer
}

// Free gives the thread that asks its CPUs and its priority back, if it has asked for so long: it may not get the CPU that it has bound
// itself to. It returns which CPU that is, -1: none.
func (a *Asker) Free(after time.Duration) (cpu int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w := &a.was
	if w.tid == 0 || ptrace.Now()-w.since < int64(after) {
		return -1
	}
	a.freed.Store(true)
	cpu = int(a.cpu.Load()) - 1
	if after > 0 {
		unbind(w.tid, cpu, w.cpus)
	} else {
		unix.SchedSetaffinity(w.tid, &w.cpus)
	}
	giveBack(w.tid, w.attr)
	w.tid = 0
	return cpu
}

// Add puts a CPU into the set.
func (c *CPUs) Add(cpu int) {
	if cpu >= 0 && cpu < 64*len(c) {
		c[cpu/64] |= 1 << (cpu % 64)
	}
}

// Outside looks and asks: see [ptrace.Outside].
//
//go:nosplit
//go:norace
func (a *Asker) Outside() {
	if a.answer = a.look(); a.answer == Requested {
		switch a.seizes.seize(a.k, a.tid, &a.freed, 0) {
		case 0:
			a.k.Interrupt(a.tid) // if it is gone its end is to be taken
		case unix.EINTR:
			a.answer = NoLook
		default:
			a.answer = NotSeized
		}
	}
	a.k.Bind(a.back[:], false)
}

// followTries bounds how often a thread is followed that goes to another CPU meanwhile.
const followTries = 4

// look tells whether the thread may be asked. One that has no CPU shows its stack to everybody, and is not followed to where others may
// have taken its CPU for good; one that has a CPU is preempted first.
//
//go:nosplit
//go:norace
func (a *Asker) look() Answer {
	for range followTries {
		runs := a.runs()
		if call := look(a.k, a.files.stack, a.text[:]); call != elsewhere && a.runs() == runs {
			return answer(call)
		}
		got, _ := a.k.Pread(a.files.stat, a.text[:], 0)
		_, cpu, ok := stat(a.text[:got])
		if !ok || cpu >= 64*len(a.mask) {
			return NoLook
		}
		if a.urgent || a.Avoid[cpu/64]>>(cpu%64)&1 != 0 {
			return NotSeen
		}
		a.cpu.Store(int32(cpu) + 1)
		a.mask = CPUs{}
		a.mask[cpu/64] = 1 << (cpu % 64)
		if a.k.Bind(a.mask[:], false) != 0 || a.freed.Load() {
			return NoLook
		}
	}
	return NotSeen
}

// runs is how often the thread was put on a CPU.
//
//go:nosplit
//go:norace
func (a *Asker) runs() int64 {
	got, _ := a.k.Pread(a.files.sched, a.text[:], 0)
	_, _, count, _ := schedstat(a.text[:got])
	return count
}

// answer is what a thread's stack in the kernel says to asking it.
//
//go:nosplit
//go:norace
func answer(call inCall) Answer {
	switch call {
	case unknown:
		return NoLook
	case transfer, waiting:
		return InMidst
	}
	return Requested
}
