package sampler

import (
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bounds of real-time priority: what share of a CPU the thread may use while it
// has it. Waiting costs nothing, so that a larger share means that something is
// wrong.
const (
	realtimeShare = 0.7
	shareWindow   = 200 * time.Millisecond
)

// priority holds the tracing thread at real-time priority while it samples: with
// more runnable threads than CPUs it would otherwise be late for its ticks, and
// wait its turn behind the very threads that it has to let go. Between ticks
// these are the ones that have got a signal.
type priority struct {
	off    bool // not allowed, or not wanted
	denied error
	raised bool
	// Start of the window of the watchdog: CLOCK_MONOTONIC, and the CPU time of
	// this thread then.
	since, used int64
}

// begin gives the calling thread, which may have been started by one that yields
// to others, the usual policy. One that the user has chosen stays.
func (p *priority) begin() {
	policy, _, errno := unix.RawSyscall(unix.SYS_SCHED_GETSCHEDULER, 0, 0, 0)
	switch {
	case errno != 0:
	case policy == schedOther || policy == schedBatch:
		setScheduler(0, schedOther, 0)
	default:
		p.off = true
	}
}

// schedParam is struct sched_param (include/uapi/linux/sched/types.h).
type schedParam struct{ priority int32 }

const (
	schedOther       = 0
	schedFIFO        = 1
	schedBatch       = 3
	schedResetOnFork = 0x40000000
)

// setScheduler sets the policy of a thread, 0: of the calling one.
func setScheduler(tid, policy int, prio int32) error {
	p := schedParam{prio}
	_, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, uintptr(tid), uintptr(policy), uintptr(unsafe.Pointer(&p)))
	runtime.KeepAlive(&p)
	if errno != 0 {
		return errno
	}
	return nil
}

func (p *priority) raise(now int64) {
	if p.off || p.raised {
		return
	}
	if err := setScheduler(0, schedFIFO|schedResetOnFork, 1); err != nil {
		p.off, p.denied = true, err
		return
	}
	p.raised = true
	p.since, p.used = now, threadCPU()
}

// threadCPU is the CPU time of the calling OS thread, in nanoseconds.
func threadCPU() int64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
	return ts.Nano()
}

func (p *priority) lower() {
	if p.raised {
		p.raised = false
		setScheduler(0, schedOther|schedResetOnFork, 0)
	}
}

// check is the watchdog: it lowers the priority for good when the thread uses
// more of the CPU than it could need.
func (p *priority) check(now int64) {
	wall := now - p.since
	if !p.raised || wall <= int64(shareWindow) {
		return
	}
	used := threadCPU()
	if float64(used-p.used) > realtimeShare*float64(wall) {
		p.lower()
		p.off = true
	}
	p.since, p.used = now, used
}
