package ptrace

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// theEnd is that of a process that this one has started. Whoever of us reaps a tracee may
// reap it, so that its end is kept here.
var theEnd struct {
	pid    atomic.Int64
	status atomic.Int64 // of its end, plus 1; 0: it is not reaped
}

// KeepEnd has the end of a child of this process kept, for [ChildEnd].
func KeepEnd(pid int) {
	theEnd.status.Store(0)
	theEnd.pid.Store(int64(pid))
}

// ChildEnd is how the child of [KeepEnd] has ended; false if it was not reaped.
func ChildEnd() (unix.WaitStatus, bool) {
	status := theEnd.status.Load()
	return unix.WaitStatus(status - 1), status != 0
}

// keepEnd is told what was reaped. Stops have 0x7f in their low byte
// (include/uapi/linux/wait.h, ptrace(2)).
//
//go:nosplit
//go:norace
func keepEnd(tid int, status uint32) {
	if int64(tid) == theEnd.pid.Load() && status&0xff != 0x7f {
		theEnd.status.Store(int64(status) + 1)
	}
}
