package ptrace

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The requests of this file are for a thread that Go's scheduler does not know to
// be running (see [Outside]): one system call each, no allocation, no growth of the
// stack. Errors are plain errnos, so that nothing is converted to an interface.

// Outside calls r.Outside as if it were one long system call: the calling goroutine's thread
// has no processor (P) meanwhile, no collection of garbage waits for it, and it waits
// for none. That is how the runtime runs C code. That method, and all that it calls, must be
// nosplit, must not allocate and must store no pointer to the heap; what it uses
// must be kept reachable by others.
//
//go:nosplit
//go:norace
func Outside(r interface{ Outside() }) {
	leave()
	r.Outside()
	enter()
}

//go:linkname nanotime runtime.nanotime
func nanotime() int64

// RawNow is the CLOCK_MONOTONIC time in nanoseconds.
//
//go:nosplit
//go:norace
func RawNow() int64 { return nanotime() }

// RawClock reads a clock, in nanoseconds. It is for CPU clocks, which never wait: Go's runtime does not learn
// of the call, and its monitor sleeps on.
//
//go:nosplit
//go:norace
func RawClock(clock int32) (int64, unix.Errno) {
	var ts unix.Timespec
	_, errno := raw(unix.SYS_CLOCK_GETTIME, uintptr(clock), uintptr(unsafe.Pointer(&ts)), 0, 0, 0, 0)
	return ts.Nano(), errno
}

// RawCPU is the CPU that the calling thread is on, -1 if that is not known (getcpu(2)).
//
//go:nosplit
//go:norace
func RawCPU() int {
	var cpu uint32
	if _, errno := raw(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0, 0, 0, 0); errno != 0 {
		return -1
	}
	return int(cpu)
}

// RawRealTime tells whether a thread has the policy of real time, or a deadline (sched_getscheduler(2)).
//
//go:nosplit
//go:norace
func RawRealTime(tid int) bool {
	policy, errno := raw(unix.SYS_SCHED_GETSCHEDULER, uintptr(tid), 0, 0, 0, 0, 0)
	switch policy &^ unix.SCHED_RESET_ON_FORK {
	case unix.SCHED_FIFO, unix.SCHED_RR, unix.SCHED_DEADLINE:
		return errno == 0
	}
	return false
}

// RawPeriod has the timer of a perf event expire every so many nanoseconds from now on (PERF_EVENT_IOC_PERIOD).
//
//go:nosplit
//go:norace
func RawPeriod(event int, every int64) unix.Errno {
	period := uint64(every)
	_, errno := raw(unix.SYS_IOCTL, uintptr(event), unix.PERF_EVENT_IOC_PERIOD, uintptr(unsafe.Pointer(&period)), 0, 0, 0)
	return errno
}

//go:nosplit
//go:norace
func raw(trap, a, b, c, d, e, f uintptr) (uintptr, unix.Errno) {
	r, _, errno := unix.RawSyscall6(trap, a, b, c, d, e, f)
	return r, errno
}

// RawSeize is [Seize] with no options.
//
//go:nosplit
//go:norace
func RawSeize(tid int) unix.Errno { return unix.Errno(seize(uintptr(tid), 0)) }

// RawInterrupt is [Interrupt].
//
//go:nosplit
//go:norace
func RawInterrupt(tid int) unix.Errno {
	_, errno := raw(unix.SYS_PTRACE, unix.PTRACE_INTERRUPT, uintptr(tid), 0, 0, 0, 0)
	return errno
}

// RawDetach is [Detach].
//
//go:nosplit
//go:norace
func RawDetach(tid int, sig int) unix.Errno {
	_, errno := raw(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(tid), 0, uintptr(sig), 0, 0)
	return errno
}

// ToCall, added to the signal of [RawCont], is to the next beginning or end of a system call: the tracee stops there ([KindSyscall]).
const ToCall = 1 << 8

// RawCont is [Cont].
//
//go:nosplit
//go:norace
func RawCont(tid int, sig int) unix.Errno {
	request := uintptr(unix.PTRACE_CONT)
	if sig&ToCall != 0 {
		request = unix.PTRACE_SYSCALL
	}
	_, errno := raw(unix.SYS_PTRACE, request, uintptr(tid), 0, uintptr(sig&^ToCall), 0, 0)
	return errno
}

// RawListen is [Listen].
//
//go:nosplit
//go:norace
func RawListen(tid int) unix.Errno {
	_, errno := raw(unix.SYS_PTRACE, unix.PTRACE_LISTEN, uintptr(tid), 0, 0, 0, 0)
	return errno
}

// RawAlarm is [Alarm.Set]; at 0 it does not ring.
//
//go:nosplit
//go:norace
func RawAlarm(a *Alarm, at int64) {
	const abstime = 1 // TIMER_ABSTIME
	spec := itimerspec{value: unix.Timespec{Sec: at / 1e9, Nsec: at % 1e9}}
	if at != 0 {
		spec.interval.Nsec = int64(realarm)
	}
	raw(unix.SYS_TIMER_SETTIME, uintptr(a.id), abstime, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
}

var ownPID = os.Getpid()

// RawSignal wakes a thread of this program out of a wait: see [Interruptible].
//
//go:nosplit
//go:norace
func RawSignal(tid int) {
	raw(unix.SYS_TGKILL, uintptr(ownPID), uintptr(tid), AlarmSignal, 0, 0, 0)
}

// RawYield lets another thread of the same real-time priority have the CPU (sched_yield(2)).
//
//go:nosplit
//go:norace
func RawYield() { raw(unix.SYS_SCHED_YIELD, 0, 0, 0, 0, 0, 0) }

// RawRegs is [ReadRegs].
//
//go:nosplit
//go:norace
func RawRegs(tid, note int, buf []byte) (int, unix.Errno) {
	iov := unix.Iovec{Base: unsafe.SliceData(buf), Len: uint64(len(buf))}
	_, errno := raw(unix.SYS_PTRACE, unix.PTRACE_GETREGSET, uintptr(tid), uintptr(note), uintptr(unsafe.Pointer(&iov)), 0, 0)
	return int(iov.Len), errno
}

// RawSetRegs sets the register note of a stopped tracee (PTRACE_SETREGSET).
//
//go:nosplit
//go:norace
func RawSetRegs(tid, note int, buf []byte) unix.Errno {
	iov := unix.Iovec{Base: unsafe.SliceData(buf), Len: uint64(len(buf))}
	_, errno := raw(unix.SYS_PTRACE, unix.PTRACE_SETREGSET, uintptr(tid), uintptr(note), uintptr(unsafe.Pointer(&iov)), 0, 0)
	return errno
}

// RawMemory is [ReadMemory].
//
//go:nosplit
//go:norace
func RawMemory(tid int, addr uint64, buf []byte) (int, unix.Errno) {
	if len(buf) == 0 {
		return 0, 0
	}
	local := unix.Iovec{Base: unsafe.SliceData(buf), Len: uint64(len(buf))}
	remote := unix.RemoteIovec{Base: uintptr(addr), Len: len(buf)}
	n, errno := raw(unix.SYS_PROCESS_VM_READV, uintptr(tid), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// RawGather reads several areas of memory to buf, one behind another, with one call. It ends at the first that is not there.
//
//go:nosplit
//go:norace
func RawGather(tid int, from []unix.RemoteIovec, buf []byte) (int, unix.Errno) {
	if len(buf) == 0 || len(from) == 0 {
		return 0, 0
	}
	local := unix.Iovec{Base: unsafe.SliceData(buf), Len: uint64(len(buf))}
	n, errno := raw(unix.SYS_PROCESS_VM_READV, uintptr(tid), uintptr(unsafe.Pointer(&local)), 1,
		uintptr(unsafe.Pointer(unsafe.SliceData(from))), uintptr(len(from)), 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// RawPread reads from an open file. The count is 0 where that fails.
//
//go:nosplit
//go:norace
func RawPread(fd int, buf []byte, off int64) (int, unix.Errno) {
	n, errno := raw(unix.SYS_PREAD64, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(buf))), uintptr(len(buf)), uintptr(off), 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), 0
}

// RawLinks is how many links the open file fd has (fstat(2)).
//
//go:nosplit
//go:norace
func RawLinks(fd int) (int64, unix.Errno) {
	var st unix.Stat_t
	_, errno := raw(unix.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(&st)), 0, 0, 0, 0)
	return int64(st.Nlink), errno
}

// RawBind binds the calling thread to CPUs, a bit each (sched_setaffinity(2)). EINVAL: none of them is there, or may be used.
//
//go:nosplit
//go:norace
func RawBind(cpus []uint64) unix.Errno {
	_, errno := raw(unix.SYS_SCHED_SETAFFINITY, 0, uintptr(8*len(cpus)), uintptr(unsafe.Pointer(unsafe.SliceData(cpus))), 0, 0, 0)
	return errno
}

// RawPolicy gives a thread of ours, 0 for the calling one, a scheduling policy, SCHED_FIFO with the least priority, and leaves its nice value
// (sched_setscheduler(2)). Without CAP_SYS_NICE a thread may not lose the flag that keeps a priority in real time from children (sched(7)): all have it.
//
//go:nosplit
//go:norace
func RawPolicy(tid, policy int) unix.Errno {
	priority := int32(0) // struct sched_param
	if policy == unix.SCHED_FIFO {
		priority = 1
	}
	_, errno := raw(unix.SYS_SCHED_SETSCHEDULER, uintptr(tid), uintptr(policy|unix.SCHED_RESET_ON_FORK), uintptr(unsafe.Pointer(&priority)), 0, 0, 0)
	return errno
}

// RawRing sets when a timer rings (timerfd_settime(2)): at a CLOCK_MONOTONIC time, 0: never.
//
//go:nosplit
//go:norace
func RawRing(timer int, at int64) {
	spec := itimerspec{value: unix.Timespec{Sec: at / 1e9, Nsec: at % 1e9}}
	raw(unix.SYS_TIMERFD_SETTIME, uintptr(timer), unix.TFD_TIMER_ABSTIME, uintptr(unsafe.Pointer(&spec)), 0, 0, 0)
}

// RawAwait sleeps until a timer rings, or a signal is handled.
//
//go:nosplit
//go:norace
func RawAwait(timer int) {
	var rings uint64
	raw(unix.SYS_READ, uintptr(timer), uintptr(unsafe.Pointer(&rings)), unsafe.Sizeof(rings), 0, 0, 0)
}

// RawSleep sleeps to a CLOCK_MONOTONIC time, or until a signal is handled.
//
//go:nosplit
//go:norace
func RawSleep(until int64) {
	const abstime = 1 // TIMER_ABSTIME
	ts := unix.Timespec{Sec: until / 1e9, Nsec: until % 1e9}
	raw(unix.SYS_CLOCK_NANOSLEEP, unix.CLOCK_MONOTONIC, abstime, uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
}

// RawPark sleeps while the word at addr is val, to a CLOCK_MONOTONIC time, 0 being none, or until a signal is handled.
//
//go:nosplit
//go:norace
func RawPark(addr *uint32, val uint32, until int64) {
	const (
		waitPrivate = 9 | 128 // FUTEX_WAIT_BITSET, whose time is no length, | FUTEX_PRIVATE_FLAG, include/uapi/linux/futex.h
		anyBit      = 1<<32 - 1
	)
	if inside {
		RawSleep(RawNow() + shortWait)
		return
	}
	ts := unix.Timespec{Sec: until / 1e9, Nsec: until % 1e9}
	at := &ts
	if until == 0 {
		at = nil
	}
	raw(unix.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), waitPrivate, uintptr(val), uintptr(unsafe.Pointer(at)), 0, anyBit)
}

// RawUnpark wakes who sleeps in [RawPark] for the word at addr, which was changed before.
//
//go:nosplit
//go:norace
func RawUnpark(addr *uint32) {
	const wakePrivate = 1 | 128 // FUTEX_WAKE | FUTEX_PRIVATE_FLAG
	raw(unix.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), wakePrivate, 1, 0, 0, 0)
}

// RawWait looks for a report of tracee tid, or of any with tid 0, and waits for one
// if block is set: until there is one, or a signal is handled (EINTR). The
// report stays with the kernel, so that a signal that it tells of is not lost if we
// are killed: see [Poll]. It returns who reports, 0 for none, and wait4's form of
// what. ECHILD: there is nothing to wait for.
//
//go:nosplit
//go:norace
func RawWait(tid int, block bool) (who int, status uint32, errno unix.Errno) {
	var info siginfo
	kind, flags := uintptr(pPID), uintptr(lookFlags)
	if tid == 0 {
		kind = pAll
	}
	if !block || inside {
		flags |= unix.WNOHANG
	}
	_, errno = raw(unix.SYS_WAITID, kind, uintptr(tid), uintptr(unsafe.Pointer(&info)), flags, 0, 0)
	if inside && block && errno == 0 && info.pid == 0 {
		RawSleep(RawNow() + shortWait)
		return 0, 0, unix.EINTR
	}
	if errno != 0 || info.pid == 0 {
		return 0, 0, errno
	}
	if info.code == cldTrapped || info.code == cldStopped {
		return int(info.pid), info.stopped(), 0
	}
	return int(info.pid), uint32(info.status) & 0x7f, 0 // an end, whatever way
}

// RawReap takes the end of tid from the kernel.
//
//go:nosplit
//go:norace
func RawReap(tid int) bool {
	var status uint32
	n, errno := raw(unix.SYS_WAIT4, uintptr(tid), uintptr(unsafe.Pointer(&status)), unix.WALL|unix.WNOHANG, 0, 0, 0)
	if errno != 0 || n == 0 {
		return false
	}
	keepEnd(tid, status)
	return true
}

// ReapEnd takes the end of thread tid from the kernel, if it has ended and is a tracee of some
// thread of this process. Its stops are left alone.
func ReapEnd(tid int) {
	var info siginfo
	_, errno := raw(unix.SYS_WAITID, pPID, uintptr(tid), uintptr(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT|unix.WALL|unix.WNOHANG, 0, 0)
	if errno == 0 && info.pid != 0 && info.code != cldTrapped && info.code != cldStopped {
		RawReap(tid)
	}
}

// RawOpen opens the file of a path that ends in NUL, to be read.
//
//go:nosplit
//go:norace
func RawOpen(path []byte) (fd int, errno unix.Errno) {
	at := unix.AT_FDCWD
	n, errno := raw(unix.SYS_OPENAT, uintptr(at), uintptr(unsafe.Pointer(unsafe.SliceData(path))), unix.O_RDONLY|unix.O_CLOEXEC, 0, 0, 0)
	return int(n), errno
}

// RawReadFile reads the beginning of the file of a path that ends in NUL. Of a status file of /proc that is longer than buf
// it is what begins with the end of the line of groups, of which there are up to 65,536 (NGROUPS_MAX; proc_pid_status(5)).
//
//go:nosplit
//go:norace
func RawReadFile(path, buf []byte) (int, unix.Errno) {
	fd, errno := RawOpen(path)
	if errno != 0 {
		return 0, errno
	}
	n, errno := RawPread(fd, buf, 0)
	if n == len(buf) {
		n, errno = readBehind(fd, "\nGroups:", buf)
	}
	raw(unix.SYS_CLOSE, uintptr(fd), 0, 0, 0, 0, 0)
	return n, errno
}

// mostGroupBytes is more than a line of 65,536 groups of ten digits each.
const mostGroupBytes = 1 << 20

// readBehind reads a file from the end of a line on that begins in buf. If there is none buf stays as it is.
//
//go:nosplit
//go:norace
func readBehind(fd int, line string, buf []byte) (int, unix.Errno) {
	i := 0
	for i+len(line) <= len(buf) && string(buf[i:i+len(line)]) != line {
		i++
	}
	if i+len(line) > len(buf) {
		return len(buf), 0
	}
	i++
	n := len(buf)
	for off := int64(0); off < mostGroupBytes; {
		for ; i < n; i++ {
			if buf[i] == '\n' {
				return RawPread(fd, buf, off+int64(i))
			}
		}
		off += int64(n)
		var errno unix.Errno
		if n, errno = RawPread(fd, buf, off); n == 0 {
			return 0, errno
		}
		i = 0
	}
	return 0, unix.EFBIG
}
