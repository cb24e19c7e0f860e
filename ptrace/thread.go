package ptrace

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// OnThread runs f on an OS thread of its own, which ends when f returns: the
// kernel then lets go of every tracee that f left. The returned channel is
// closed once that thread has ended. The thread has no children, so that what it can wait
// for are its tracees: of a child it would be shown the stops that another thread of this program
// makes as well (wait_consider_task, kernel/exit.c).
func OnThread(f func()) <-chan struct{} {
	done := make(chan struct{})
	tid := make(chan int)
	go onThread(f, tid)
	go func() {
		defer close(done)
		awaitEnd(<-tid)
	}()
	return done
}

// onThread sends the id of its thread when f has returned.
func onThread(f func(), tid chan<- int) {
	runtime.LockOSThread() // never unlocked: the thread must end with the goroutine
	if unix.Gettid() == unix.Getpid() || parental() {
		// The runtime never ends the main thread, and any of its threads may have begun a command. Hold it until
		// the work has found another one.
		started := make(chan struct{})
		go onThread(func() { close(started); f() }, tid)
		<-started
		runtime.UnlockOSThread()
		return
	}
	defer func() { tid <- unix.Gettid() }()
	f()
}

// parental tells whether the calling thread has children.
func parental() bool {
	_, _, errno := RawWait(0, false)
	return errno != unix.ECHILD
}

// awaitEnd waits until a thread of this process has ended. The runtime tells
// nobody; it takes microseconds.
func awaitEnd(tid int) {
	for unix.Tgkill(unix.Getpid(), tid, 0) == nil {
		time.Sleep(20 * time.Microsecond)
	}
}
