package taking

import "sfsample/ptrace"

// takeBack changes the registers of a thread at a stop so that the program
// does not learn of it. own: it is our own stop; noRestart: only what saves the thread from a filter is changed.
//
// A call that would go on by restart_syscall(2) begins anew if a seccomp filter may not know that call. At the stop for a
// signal that is so as well: one that is ignored would not have ended the wait of a thread that nobody
// traces (sig_ignored, kernel/signal.c); to any other the call ends with EINTR, as
// it would have.
//
//go:nosplit
//go:norace
func takeBack(k Kernel, tid int, note []byte, b *Buffer, own, noRestart bool) {
	if !own && !ptrace.Reverts {
		return // the kernel has decided already
	}
	if ptrace.Restarts(tid, note) {
		some, coming := filters(k, tid, b)
		b.Anew = some || own && coming
	}
	if (b.Anew || own && !noRestart) && ptrace.Revert(tid, note, b.Anew, 0) {
		k.SetRegs(tid, ptrace.NotePrstatus, note) // fails only if the thread was killed
		ptrace.AsStopped(note)
	}
}

// AtSignal does for a thread at the stop for a signal what [Take] does, where nothing is to be
// copied. b is room for its registers.
func AtSignal(k Kernel, tid int, b *Buffer) {
	if n, errno := k.Regs(tid, ptrace.NotePrstatus, b.Regs); errno == 0 {
		takeBack(k, tid, b.Regs[:n], b, false, true)
	}
}

// filters asks at the moment that counts for seccomp filters of a thread: one may come at any time, and none
// goes away. some: it has one, or cannot be asked. coming: it may get one before it goes on, from another thread
// (seccomp(2), SECCOMP_FILTER_FLAG_TSYNC).
//
//go:nosplit
//go:norace
func filters(k Kernel, tid int, b *Buffer) (some, coming bool) {
	n, errno := k.ReadFile(b.statusPath(tid), b.text[:])
	if errno != 0 {
		return true, true
	}
	threads, ok := field(b.text[:n], "\nThreads:\t")
	mode, ok2 := field(b.text[:n], "\nSeccomp:\t")
	if !ok2 { // a kernel without seccomp
		mode = 0
	}
	return mode != 0, !ok || threads > 1
}

// statusPath is /proc/TID/status, with a NUL.
//
//go:nosplit
//go:norace
func (b *Buffer) statusPath(tid int) []byte {
	const dir, name = "/proc/", "/status\x00"
	n := copy(b.path[:], dir)
	digits := 1
	for v := tid; v >= 10; v /= 10 {
		digits++
	}
	for i := n + digits - 1; i >= n; i-- {
		b.path[i] = byte('0' + tid%10)
		tid /= 10
	}
	n += digits
	n += copy(b.path[n:], name)
	return b.path[:n]
}

// field reads the number behind a key of a status file (proc_pid_status(5)).
//
//go:nosplit
//go:norace
func field(b []byte, key string) (v int, ok bool) {
	for i := 0; i+len(key) < len(b); i++ {
		if b[i] != key[0] || string(b[i:i+len(key)]) != key {
			continue
		}
		for i += len(key); i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
			v, ok = v*10+int(b[i]-'0'), true
		}
		return v, ok
	}
	return 0, false
}
