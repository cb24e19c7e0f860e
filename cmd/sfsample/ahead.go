package main

import (
	"os"
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// better is by how much the nice value of this program is lower until no thread of a target is held any more: where a hundred threads want each CPU it gets a
// tenth of one then. It had to wait for seconds to begin, to end sampling, and to look after threads that are stopped. What is left then, naming and writing, has no
// claim to that.
const better = 10

// leastNice is the lowest nice value: setpriority(2) makes it of any below.
const leastNice = -20

// began is the nice value that this program began with.
var began = niceOf(os.Getpid())

// ahead tells that the nice value is better now.
var ahead atomic.Bool

// goAhead gives all threads of this program a better nice value, where that is allowed (setpriority(2): CAP_SYS_NICE, or
// RLIMIT_NICE) and wanted. Threads that they start have it too (sched(7)).
func (c *config) goAhead() {
	if c.pace.nice || c.agent.on { // an agent is there all the time
		return
	}
	nice := max(leastNice, began-better)
	if unix.Setpriority(unix.PRIO_PROCESS, os.Getpid(), nice) == nil {
		ahead.Store(true)
		setNice(nice)
	}
}

// goBack takes that back.
func goBack() {
	if ahead.Swap(false) {
		setNice(began)
	}
}

// fallBack gives the calling thread the nice value that this program began with, for the process that it starts then, and returns
// what takes that back.
func fallBack() (back func()) {
	runtime.LockOSThread()
	tid := unix.Gettid()
	now := niceOf(tid)
	unix.Setpriority(unix.PRIO_PROCESS, tid, began)
	return func() {
		unix.Setpriority(unix.PRIO_PROCESS, tid, now)
		runtime.UnlockOSThread()
	}
}

// niceOf is the nice value of a thread that lives.
func niceOf(tid int) int {
	n, _ := unix.Getpriority(unix.PRIO_PROCESS, tid)
	return 20 - n // the system call has no negative result (getpriority(2), C library/kernel differences)
}

// tries bounds how often threads are listed that others start meanwhile.
const tries = 100

// setNice gives all threads a nice value, also those that others have started meanwhile.
func setNice(nice int) {
	for again, try := true, 0; again && try < tries; try++ {
		again = false
		ids, _ := (procfs.FS{}).TaskIDs(os.Getpid())
		for _, tid := range ids {
			if niceOf(tid) != nice && unix.Setpriority(unix.PRIO_PROCESS, tid, nice) == nil {
				again = true
			}
		}
	}
}
