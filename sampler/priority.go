package sampler

import (
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// realtimeAtMost bounds how long the tracing thread keeps real-time priority
// for stops that do not come.
const realtimeAtMost = 50 * time.Millisecond

// priority raises the tracing thread to real-time priority while stops are
// outstanding: with more runnable threads than CPUs, it would otherwise wait its
// turn behind the very threads that it has to let go.
type priority struct {
	off    bool // not allowed, or not wanted
	denied error
	raised bool
	giveUp int64 // CLOCK_MONOTONIC
}

// schedParam is struct sched_param (include/uapi/linux/sched/types.h).
type schedParam struct{ priority int32 }

const (
	schedOther       = 0
	schedFIFO        = 1
	schedResetOnFork = 0x40000000
)

func setScheduler(policy int, prio int32) error {
	p := schedParam{prio}
	_, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, uintptr(policy), uintptr(unsafe.Pointer(&p)))
	runtime.KeepAlive(&p)
	if errno != 0 {
		return errno
	}
	return nil
}

func (p *priority) raise(now int64) {
	if p.off {
		return
	}
	p.giveUp = now + int64(realtimeAtMost)
	if p.raised {
		return
	}
	if err := setScheduler(schedFIFO|schedResetOnFork, 1); err != nil {
		p.off, p.denied = true, err
		return
	}
	p.raised = true
}

func (p *priority) lower() {
	if p.raised {
		p.raised = false
		setScheduler(schedOther|schedResetOnFork, 0)
	}
}

// check lowers the priority when stops have been outstanding for too long.
func (p *priority) check(now int64) {
	if p.raised && now >= p.giveUp {
		p.lower()
	}
}
