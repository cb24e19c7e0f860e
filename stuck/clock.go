package stuck

import (
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// clock is the scheduler's clock, as our own thread has shown it at a time; 0: the kernel does not show it.
type clock struct {
	fs  procfs.FS
	now time.Duration
	at  time.Time
}

// read reads the scheduler's clock off our own thread, which runs: giving up the
// CPU brings its time up to date (yield_task_fair, kernel/sched/fair.c).
func (c *clock) read() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	if now, ok := c.fs.Task(os.Getpid(), unix.Gettid()).LastRan(); ok {
		c.now, c.at = now, time.Now()
	}
}

// idle fills in since when a thread has not run.
func (c *clock) idle(t *Thread) {
	if t.Between.Motion != Blocked || t.stopped || c.now == 0 {
		return
	}
	last, ok := c.fs.Task(t.PID, t.TID).LastRan()
	now := c.now + t.second.at.Sub(c.at)
	if ok && last > 0 && now > last {
		t.Between.Idle = max(now-last, t.Between.IdleAtLeast)
	}
}

// left is what is left of a time that began when the thread went to sleep.
func (c *clock) left(t *Thread, whole time.Duration) time.Duration {
	last, ok := c.fs.Task(t.PID, t.TID).LastRan()
	if !ok || c.now == 0 || t.stopped {
		return -1
	}
	return max(whole-(c.now+time.Since(c.at)-last), 0)
}

// until is the time from now to a point on a clock, negative if it is not known. (In a
// time namespace of their own the clocks differ: then it may be far off, and is left
// out if it is past.)
func until(clock int32, at time.Duration) time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(clock, &now); err != nil {
		return -1
	}
	return max(at-time.Duration(now.Nano()), -1)
}
