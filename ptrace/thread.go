package ptrace

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// OnThread runs f on an OS thread of its own, which ends when f returns: the
// kernel then lets go of every tracee that f left. The returned channel is
// closed when f has returned.
func OnThread(f func()) <-chan struct{} {
	done := make(chan struct{})
	go onThread(f, done)
	return done
}

func onThread(f func(), done chan struct{}) {
	runtime.LockOSThread() // never unlocked: the thread must end with the goroutine
	if unix.Gettid() == unix.Getpid() {
		// The runtime never ends the main thread. Hold it until the work has
		// found another one.
		started := make(chan struct{})
		go onThread(func() { close(started); f() }, done)
		<-started
		runtime.UnlockOSThread()
		return
	}
	defer close(done)
	f()
}
