package ptrace

import (
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// AlarmSignal wakes a tracing thread out of a wait, once [Interruptible] was called. Go's runtime ignores
// real-time signals that nobody asked for, and libc uses none above 34.
const AlarmSignal = 41

// realarm is how soon an alarm rings again while nobody has set a new one. A
// ring that falls between the look at the clock and wait4 would otherwise be
// lost.
const realarm = 200 * time.Microsecond

// Alarm makes blocking calls of one OS thread return EINTR at a set time, also [Seize].
type Alarm struct{ id int32 }

// sigevent as timer_create takes it (include/uapi/asm-generic/siginfo.h, 64 bytes).
type sigevent struct {
	value  uint64
	signo  int32
	notify int32
	tid    int32
	_      [44]byte
}

type itimerspec struct{ interval, value unix.Timespec }

const sigevThreadID = 4 // SIGEV_THREAD_ID, include/uapi/asm-generic/siginfo.h

// NewAlarm makes an alarm for the calling OS thread, to which the goroutine must
// be locked.
func NewAlarm() (*Alarm, error) {
	if err := Interruptible(); err != nil {
		return nil, err
	}
	a := new(Alarm)
	ev := sigevent{signo: AlarmSignal, notify: sigevThreadID, tid: int32(unix.Gettid())}
	_, _, errno := unix.RawSyscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC,
		uintptr(unsafe.Pointer(&ev)), uintptr(unsafe.Pointer(&a.id)))
	runtime.KeepAlive(&ev)
	if errno != 0 {
		return nil, fmt.Errorf("create the sampling timer: %w (try: raise the limit of pending signals, ulimit -i)", errno)
	}
	return a, nil
}

// Set lets the alarm ring at the CLOCK_MONOTONIC time at, in nanoseconds, and
// again every 200 µs until it is set anew. A time in the past rings at once.
func (a *Alarm) Set(at int64) { RawAlarm(a, max(at, 1)) }

// Close deletes the timer.
func (a *Alarm) Close() {
	unix.RawSyscall(unix.SYS_TIMER_DELETE, uintptr(a.id), 0, 0)
}

// NewTimer makes one for [RawRing] and [RawAwait] (timerfd_create(2)). There is none where nobody may wait for long (see [Outside]).
func NewTimer() (fd int, err error) {
	if inside {
		return -1, unix.ENOSYS
	}
	return unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
}

// kernelSigaction is struct sigaction of the kernel on 64-bit machines
// (include/uapi/asm-generic/signal.h; arch/s390 has the same layout).
type kernelSigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

const saRestart = 0x10000000 // SA_RESTART

// Interruptible gives the alarm signal a handler by which calls return EINTR, also those of [Seize],
// and turns SIGCHLD off: the kernel would
// send one for each stop of each tracee, and the tracing thread would run a
// handler for it in the middle of every pause.
var Interruptible = sync.OnceValue(func() error {
	var act kernelSigaction
	if err := sigaction(AlarmSignal, nil, &act); err != nil {
		return err
	}
	act.flags &^= saRestart
	act.handler = alarmHandler()
	if err := sigaction(AlarmSignal, &act, nil); err != nil {
		return err
	}
	return sigaction(unix.SIGCHLD, &kernelSigaction{}, nil)
})

func sigaction(sig unix.Signal, act, old *kernelSigaction) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig),
		uintptr(unsafe.Pointer(act)), uintptr(unsafe.Pointer(old)), unsafe.Sizeof(act.mask), 0, 0)
	runtime.KeepAlive(act)
	runtime.KeepAlive(old)
	if errno != 0 {
		return fmt.Errorf("set the action of signal %d: %w", sig, errno)
	}
	return nil
}

// Now is the CLOCK_MONOTONIC time in nanoseconds.
func Now() int64 { return RawNow() }

// SchedulerTick is the time between two ticks of the kernel's scheduler (1/CONFIG_HZ): the resolution of its coarse
// clocks (posix_get_coarse_res, kernel/time/posix-timers.c).
func SchedulerTick() time.Duration {
	var res unix.Timespec
	_, _, errno := unix.RawSyscall(unix.SYS_CLOCK_GETRES, unix.CLOCK_MONOTONIC_COARSE, uintptr(unsafe.Pointer(&res)), 0)
	if d := time.Duration(res.Nano()); errno == 0 && d > 0 {
		return min(d, longestTick)
	}
	return longestTick
}

// longestTick is that of the lowest rate that kernels are built for, 100 Hz.
const longestTick = 10 * time.Millisecond
