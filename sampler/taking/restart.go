package taking

import (
	"encoding/binary"
	"hash/fnv"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
)

// What a thread has stopped for, if not for a signal, whose number is positive.
const (
	OwnStop   = 0  // our own interrupt
	OtherStop = -1 // what would have stopped it, or ended its wait, in any case
)

// StoppedFor tells that of the status of a stop (ptrace(2), "Stopped states").
//
//go:nosplit
//go:norace
func StoppedFor(status uint32) int {
	switch status >> 16 {
	case 0:
		return int(status >> 8 & 0xff)
	case unix.PTRACE_EVENT_STOP:
		if status>>8&0xff == uint32(unix.SIGTRAP) {
			return OwnStop
		}
	}
	return OtherStop
}

// revert changes the note of a thread at a stop so that the program does not learn of it, which write has to follow. noRestart: only what
// saves the thread from a filter is changed. status is the thread's status file, if that was read; wanted: it is.
//
// A signal that the program ignores would not even have woken a thread that nobody traces (sig_ignored,
// kernel/signal.c): its stop is as one of our own. To any other the call ends with EINTR, as it would have.
//
// A call that would go on by restart_syscall(2) begins anew if a seccomp filter may not know that call; at the stop for a
// signal, which may come again and again, only if the thread has a filter already.
//
//go:nosplit
//go:norace
func revert(k Kernel, tid int, note []byte, b *Buffer, by int, noRestart, wanted bool) (status []byte, ok bool) {
	b.Anew = false
	restarts := ptrace.Restarts(tid, note)
	if !restarts && (by == OtherStop || !ptrace.CutShort(note)) {
		return nil, false
	}
	if restarts || by != OwnStop || wanted {
		if n, errno := k.ReadFile(b.procPath(tid, "/status\x00"), b.text[:]); errno == 0 && n < len(b.text) { // else it may go on
			status = b.text[:n]
		}
	}
	ours := by == OwnStop || by > 0 && ignored(status, by)
	if restarts && (ours || by > 0 && len(status) == 0) { // else the kernel would have had the thread stopped as well
		some, coming := filters(status)
		b.Anew = some || by == OwnStop && coming
	}
	return status, (b.Anew || ours && !noRestart) && ptrace.Revert(tid, note, b.Anew)
}

// write writes a note that was changed.
//
//go:nosplit
//go:norace
func write(k Kernel, tid int, note []byte, b *Buffer) {
	b.Met = true
	b.Unwritten = k.SetRegs(tid, ptrace.NotePrstatus, note) != 0
	ptrace.AsStopped(note)
}

// AtStop does for a thread that has stopped what [Take] does, where nothing is to be
// copied. b is room for its registers, and m what is known of its waits, or nil. pagemap opens that of the thread, and returns what closes
// it: it is asked for where a time limit has to be read.
func AtStop(k Kernel, tid, by int, noRestart bool, m *Mark, b *Buffer, pagemap func() (fd int, done func())) {
	n, errno := k.Regs(tid, ptrace.NotePrstatus, b.Regs)
	if errno != 0 {
		return
	}
	note := b.Regs[:n]
	status, ok := revert(k, tid, note, b, by, noRestart, m != nil)
	if !ok {
		return
	}
	if m != nil {
		if l := ptrace.LimitOf(tid, note); m.over(k, tid, note, status, limit(k, tid, &l, b, pagemap), b) {
			ptrace.End(note, l.Result)
		}
	}
	write(k, tid, note, b)
}

// limit reads a time limit, in nanoseconds. 0: there is none, or it cannot be read.
func limit(k Kernel, tid int, l *ptrace.Limit, b *Buffer, pagemap func() (fd int, done func())) int64 {
	if l.Addr == 0 {
		return l.NS
	}
	pages, done := pagemap()
	defer done()
	addr := l.Addr
	if l.Ring {
		word, ok := readWords(k, tid, addr, 8, pages, b)
		if addr = binary.NativeEndian.Uint64(word); !ok || addr == 0 {
			return 0
		}
	}
	text, ok := readWords(k, tid, addr, 2*l.Word, pages, b)
	if !ok {
		return 0
	}
	s, ns := int64(0), int64(0)
	if l.Word == 4 {
		s, ns = int64(int32(binary.NativeEndian.Uint32(text))), int64(int32(binary.NativeEndian.Uint32(text[4:])))
	} else {
		s, ns = int64(binary.NativeEndian.Uint64(text)), int64(binary.NativeEndian.Uint64(text[8:]))
	}
	if s < 0 || s > maxLimit || ns < 0 || ns >= 1e9 {
		return 0
	}
	return s*1e9 + ns
}

// maxLimit is the longest time limit that is looked at, in seconds: a year.
const maxLimit = 365 * 24 * 3600

// readWords reads n bytes of a thread's memory, at most 16, if their pages are in memory.
func readWords(k Kernel, tid int, addr uint64, n, pages int, b *Buffer) (text []byte, ok bool) {
	text = b.pages[:n]
	return text, Present(k, pages, addr, n, b) == n && k.Memory(tid, addr, text) == n
}

// Mark is what the next stop is to know of a wait that has begun anew with all of its limit. It is of one thread
// that is traced all the time.
type Mark struct {
	note     [markBytes]byte // the registers that it has begun with
	n        int             // bytes of them, 0: there was no such wait
	since    int64           // when it was first seen, in nanoseconds of CLOCK_MONOTONIC less the times on a CPU and waiting for one
	switches int64           // off a CPU of its own will, at the stop
	Stops    int64           // since then, this one included: each is such a switch
	Heard    bool            // it has stopped for a signal
	Due      int64           // when its limit is over if it sleeps until then, CLOCK_MONOTONIC; 0: there is no such wait
	sleep    sleep
}

// sleep is what was last seen of a thread that sleeps in a system call.
type sleep struct {
	call  uint64 // a sum of the call, its arguments and where it was made; 0: it ran
	count int64  // how often it had been put on a CPU
	since int64  // when it was first seen so, as Mark.since
}

// Look notes whether a thread sleeps: the next signal finds it in a wait that has lasted so long at least.
func (m *Mark) Look(k Kernel, tid int, b *Buffer) {
	n, errno := k.ReadFile(b.procPath(tid, "/syscall\x00"), b.text[:])
	call := uint64(0)
	if errno == 0 && n > 0 && b.text[0] != 'r' { // "running" (proc_pid_syscall, fs/proc/base.c)
		sum := fnv.New64a()
		sum.Write(b.text[:n])
		call = sum.Sum64()
	}
	asleep, count, ok := slept(k, tid, b)
	if call == 0 || !ok {
		m.sleep = sleep{}
	} else if call != m.sleep.call || count != m.sleep.count {
		m.sleep = sleep{call, count, asleep}
	}
}

// Waits tells whether a thread is still in the wait that has begun anew at its last stop: it sleeps, and has slept once since then.
func (m *Mark) Waits(k Kernel, tid int, b *Buffer) bool {
	n, errno := k.ReadFile(b.procPath(tid, "/status\x00"), b.text[:])
	if errno != 0 || n == len(b.text) {
		return false
	}
	status := b.text[:n]
	state := behind(status, "\nState:\t")
	switches, ok := field(status, "\nvoluntary_ctxt_switches:\t")
	return m.n > 0 && ok && state < n && status[state] == 'S' && switches-m.switches-m.Stops == 1
}

// slept is how long a thread has neither run nor waited for a CPU, in nanoseconds from any time on, and how often it was put on one.
func slept(k Kernel, tid int, b *Buffer) (asleep, count int64, ok bool) {
	n, errno := k.ReadFile(b.procPath(tid, "/schedstat\x00"), b.text[:])
	run, next := number(b.text[:n], 0)
	wait, end := number(b.text[:n], next+1)
	count, last := number(b.text[:n], end+1)
	return k.Now() - run - wait, count, errno == 0 && end > next+1 && last > end+1
}

// markBytes is the size of NT_PRSTATUS where a call may have a limit, see [ptrace.LimitOf].
const markBytes = 216

// over tells whether a wait that has begun anew has slept for its whole limit, in nanoseconds, by now: then it ends, as it would have. Nothing but
// its result is written: an argument that were changed would stay so in its register (System V ABI, "Calling Conventions"
// of Linux), and with it the limit of later waits.
//
// It is the wait of the stop before if the registers are the same, and the thread has slept once at most since then, but for stops.
// What it slept before the first stop is known if it was seen asleep, see [Mark.Look].
func (m *Mark) over(k Kernel, tid int, note, status []byte, limit int64, b *Buffer) bool {
	same := string(m.note[:m.n]) == string(note)
	m.n, m.Due = 0, 0
	if limit <= 0 {
		return false
	}
	switches, ok := field(status, "\nvoluntary_ctxt_switches:\t")
	asleep, count, known := slept(k, tid, b)
	if !ok || !known {
		return false
	}
	if !same || switches-m.switches-m.Stops > 1 {
		if m.since = asleep; m.sleep.call != 0 && count-m.sleep.count == 1 {
			m.since = m.sleep.since
		}
	}
	left := limit - (asleep - m.since)
	if left <= 0 {
		return true
	}
	m.n, m.switches, m.Stops, m.Due = copy(m.note[:], note), switches, 0, k.Now()+left
	return false
}

// ignored tells by a thread's status file whether a signal that is about to be delivered has no effect: it is ignored, or is
// so where there is no handler (sig_kernel_ignore, include/linux/signal.h).
//
//go:nosplit
//go:norace
func ignored(status []byte, sig int) bool {
	switch unix.Signal(sig) {
	case unix.SIGCONT, unix.SIGCHLD, unix.SIGWINCH, unix.SIGURG:
		if set, ok := mask(status, "\nSigCgt:\t"); ok && set>>(sig-1)&1 == 0 {
			return true
		}
	}
	set, _ := mask(status, "\nSigIgn:\t")
	return set>>(sig-1)&1 != 0
}

// filters tells by the status file of a thread, read at the moment that counts, of seccomp filters: one may come at any time, and none
// goes away. some: it has one, or cannot be asked. coming: it may get one before it goes on, from another thread
// (seccomp(2), SECCOMP_FILTER_FLAG_TSYNC).
//
//go:nosplit
//go:norace
func filters(status []byte) (some, coming bool) {
	if len(status) == 0 {
		return true, true
	}
	threads, ok := field(status, "\nThreads:\t")
	mode, ok2 := field(status, "\nSeccomp:\t")
	if !ok2 { // a kernel without seccomp
		mode = 0
	}
	return mode != 0, !ok || threads > 1
}

// procPath is the path of a thread's file in /proc, with a NUL, which name ends in.
//
//go:nosplit
//go:norace
func (b *Buffer) procPath(tid int, name string) []byte {
	const dir = "/proc/"
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

// number reads a decimal number of b from i on. next is behind it: i if there is none.
//
//go:nosplit
//go:norace
func number(b []byte, i int) (v int64, next int) {
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		v = v*10 + int64(b[i]-'0')
	}
	return v, i
}

// field reads the number behind a key of a status file (proc_pid_status(5)).
//
//go:nosplit
//go:norace
func field(b []byte, key string) (v int64, ok bool) {
	at := behind(b, key)
	v, next := number(b, at)
	return v, next > at
}

// mask reads the set of signals behind a key of a status file.
//
//go:nosplit
//go:norace
func mask(b []byte, key string) (set uint64, ok bool) {
	for i := behind(b, key); i < len(b); i++ {
		switch d := b[i]; {
		case d >= '0' && d <= '9':
			set = set<<4 | uint64(d-'0')
		case d >= 'a' && d <= 'f':
			set = set<<4 | uint64(d-'a'+10)
		default:
			return set, ok
		}
		ok = true
	}
	return set, ok
}

// behind is where the text behind a key begins: the end of b if the key is not there.
//
//go:nosplit
//go:norace
func behind(b []byte, key string) int {
	for i := 0; i+len(key) <= len(b); i++ {
		if b[i] == key[0] && string(b[i:i+len(key)]) == key {
			return i + len(key)
		}
	}
	return len(b)
}
