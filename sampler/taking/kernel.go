package taking

import (
	"golang.org/x/sys/unix"

	"sfsample/ptrace"
)

// Kernel is what is asked of the kernel to take a sample: ptrace(2) with waitid(2), process_vm_readv(2), files
// of /proc that are open, and time. [Live] is the real one; tests have a script.
// Everything of [Live] is go:nosplit: see [ptrace.Outside].
type Kernel interface {
	Now() int64              // CLOCK_MONOTONIC, nanoseconds
	Spent(clock int32) int64 // the CPU time that a clock of a process tells, nanoseconds; -1: the process is gone
	// Bind binds the calling thread to CPUs (sched_setaffinity(2)), if there are any; slack: then it has the usual policy from now on.
	Bind(cpus []uint64, slack bool) unix.Errno
	Sleep(until int64)                          // CLOCK_MONOTONIC; or until a signal is handled
	Park(addr *uint32, val uint32, until int64) // see ptrace.RawPark
	Seize(tid int) unix.Errno                   // EINTR: an alarm has rung before
	Alarm(a *ptrace.Alarm, at int64)            // of the calling thread: it rings at that CLOCK_MONOTONIC time, 0: not at all
	Interrupt(tid int) unix.Errno
	Wait(tid int, block bool) (who int, status uint32, errno unix.Errno)
	Reap(tid int) bool
	Regs(tid, note int, buf []byte) (int, unix.Errno)
	SetRegs(tid, note int, buf []byte) unix.Errno
	Memory(tid int, addr uint64, buf []byte) int
	Gather(tid int, from []unix.RemoteIovec, buf []byte) int // bytes read, up to the first area that is not there
	Pread(fd int, buf []byte, off int64) (int, unix.Errno)
	ReadFile(path, buf []byte) (int, unix.Errno) // path ends in NUL; a long status file from the end of its groups on
	Detach(tid, sig int) unix.Errno
	Cont(tid, sig int) unix.Errno // see ptrace.ToCall
	Listen(tid int) unix.Errno
	Signal(tid int) // wakes a thread of ours out of a wait
	Yield()         // the CPU to another thread of ours
}

// Live is this machine's kernel. Its methods have pointer receivers: through an interface those are called directly,
// others by wrappers of the compiler, which may grow the stack.
type Live struct{}

//go:nosplit
//go:norace
func (*Live) Now() int64 { return ptrace.RawNow() }

//go:nosplit
//go:norace
func (*Live) Spent(clock int32) int64 {
	if t, errno := ptrace.RawClock(clock); errno == 0 {
		return t
	}
	return -1
}

//go:nosplit
//go:norace
func (*Live) Bind(cpus []uint64, slack bool) (errno unix.Errno) {
	if len(cpus) > 0 {
		errno = ptrace.RawBind(cpus)
	}
	if slack {
		ptrace.RawPolicy(0, unix.SCHED_NORMAL)
	}
	return errno
}

//go:nosplit
//go:norace
func (*Live) Sleep(until int64) { ptrace.RawSleep(until) }

//go:nosplit
//go:norace
func (*Live) Park(addr *uint32, val uint32, until int64) { ptrace.RawPark(addr, val, until) }

//go:nosplit
//go:norace
func (*Live) Seize(tid int) unix.Errno { return ptrace.RawSeize(tid) }

//go:nosplit
//go:norace
func (*Live) Alarm(a *ptrace.Alarm, at int64) { ptrace.RawAlarm(a, at) }

//go:nosplit
//go:norace
func (*Live) Interrupt(tid int) unix.Errno { return ptrace.RawInterrupt(tid) }

//go:nosplit
//go:norace
func (*Live) Wait(tid int, block bool) (int, uint32, unix.Errno) { return ptrace.RawWait(tid, block) }

//go:nosplit
//go:norace
func (*Live) Reap(tid int) bool { return ptrace.RawReap(tid) }

//go:nosplit
//go:norace
func (*Live) Regs(tid, note int, buf []byte) (int, unix.Errno) { return ptrace.RawRegs(tid, note, buf) }

//go:nosplit
//go:norace
func (*Live) SetRegs(tid, note int, buf []byte) unix.Errno {
	return ptrace.RawSetRegs(tid, note, buf)
}

//go:nosplit
//go:norace
func (*Live) Memory(tid int, addr uint64, buf []byte) int {
	n, _ := ptrace.RawMemory(tid, addr, buf)
	return n
}

//go:nosplit
//go:norace
func (*Live) Gather(tid int, from []unix.RemoteIovec, buf []byte) int {
	n, _ := ptrace.RawGather(tid, from, buf)
	return n
}

//go:nosplit
//go:norace
func (*Live) Pread(fd int, buf []byte, off int64) (int, unix.Errno) {
	return ptrace.RawPread(fd, buf, off)
}

//go:nosplit
//go:norace
func (*Live) Detach(tid, sig int) unix.Errno { return ptrace.RawDetach(tid, sig) }

//go:nosplit
//go:norace
func (*Live) Cont(tid, sig int) unix.Errno { return ptrace.RawCont(tid, sig) }

//go:nosplit
//go:norace
func (*Live) Listen(tid int) unix.Errno { return ptrace.RawListen(tid) }

//go:nosplit
//go:norace
func (*Live) Signal(tid int) { ptrace.RawSignal(tid) }

//go:nosplit
//go:norace
func (*Live) Yield() { ptrace.RawYield() }

//go:nosplit
//go:norace
func (*Live) ReadFile(path, buf []byte) (int, unix.Errno) { return ptrace.RawReadFile(path, buf) }

// Report, SeizeIn, AtExit and Message are for who traces threads for long, within Go's scheduler. Report is
// [ptrace.Wait].
func (*Live) Report() (s ptrace.Status, ok bool, err error) { return ptrace.Wait() }

// SeizeIn is [ptrace.SeizeIn].
func (*Live) SeizeIn(pid, tid, options int) ([]ptrace.Status, error) {
	return ptrace.SeizeIn(pid, tid, options)
}

// AtExit is [ptrace.AtExit].
func (*Live) AtExit(tid int) bool { return ptrace.AtExit(tid) }

// Message is [ptrace.Status.EventMsg].
func (*Live) Message(s ptrace.Status) (uint64, error) { return s.EventMsg() }
