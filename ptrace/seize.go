package ptrace

import (
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// Seize makes thread tid a tracee of the calling OS thread without stopping it.
// It waits for as long as a thread of the process is in execve(2)
// (cred_guard_mutex: ptrace_attach, kernel/ptrace.c), and for good if that waits
// for the end of a tracee which only the caller could take: see [SeizeIn]. Errors
// are plain errnos: ESRCH (gone), EPERM (not permitted, a zombie, or traced
// already), EINTR (an [Alarm] of the caller has rung, and nothing is seized).
//
//go:nosplit
//go:norace
func Seize(tid, options int) error {
	entersyscall()
	errno := seize(uintptr(tid), uintptr(options))
	exitsyscall()
	if errno != 0 {
		return unix.Errno(errno)
	}
	return nil
}

//go:linkname entersyscall runtime.entersyscall
func entersyscall()

//go:linkname exitsyscall runtime.exitsyscall
func exitsyscall()

const (
	// seizeAtMost is how long a seize may take before ends are taken for it. An
	// exec takes less, if its files are at hand.
	seizeAtMost = 5 * time.Millisecond
	// reapEvery is how far apart the first two looks for ends are. Each next one is
	// twice as far, up to reapAtMost.
	reapEvery  = time.Millisecond
	reapAtMost = 64 * time.Millisecond
)

// SeizeIn is [Seize] for a thread of process pid of which other threads may be
// tracees of the caller. Those that end while it waits for an exec are reaped,
// since that exec waits for them: ended are their reports, which no wait tells of
// any more.
//
// A tracee that is at the stop before its exit ([OptExit]) can be let go by the
// caller alone, which waits, and so nobody goes on until an [Alarm] of the caller rings.
func SeizeIn(pid, tid, options int) (ended []Status, err error) {
	r := reaper{pid: pid, quit: make(chan struct{}), done: make(chan struct{})}
	timer := time.AfterFunc(seizeAtMost, r.run)
	err = Seize(tid, options)
	if !timer.Stop() {
		close(r.quit)
		<-r.done
	}
	return r.ended, err
}

// reaper takes the ends of a process's threads for a tracing thread that is held
// up. Any thread of this process may (wait(2), __WNOTHREAD).
type reaper struct {
	pid        int
	ended      []Status
	quit, done chan struct{}
}

// run reaps until it is told to stop.
func (r *reaper) run() {
	defer close(r.done)
	for wait := reapEvery; ; wait = min(2*wait, reapAtMost) {
		ids, _ := (procfs.FS{}).TaskIDs(r.pid)
		for _, tid := range ids {
			if tid != r.pid { // the leader's is that of the process
				r.reap(tid)
			}
		}
		select {
		case <-r.quit:
			return
		case <-time.After(wait):
		}
	}
}

// reap takes the end of a tracee; its stops are left alone.
func (r *reaper) reap(tid int) {
	var info siginfo
	_, _, errno := unix.RawSyscall6(unix.SYS_WAITID, pPID, uintptr(tid), uintptr(unsafe.Pointer(&info)),
		unix.WEXITED|unix.WNOWAIT|unix.WALL|unix.WNOHANG, 0, 0)
	if errno != 0 || info.pid == 0 || info.code == cldTrapped {
		return
	}
	if s, ok := take(tid, unix.WALL|unix.WNOHANG); ok {
		r.ended = append(r.ended, s)
	}
}
