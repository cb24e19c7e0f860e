package taking

import (
	"encoding/binary"

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
func revert(k Kernel, tid int, note []byte, b *Buffer, by int, noRestart bool) (ok bool) {
	b.Call.Anew = false
	restarts := ptrace.Restarts(tid, note)
	if !restarts && (by == OtherStop || !ptrace.CutShort(note)) {
		return false
	}
	var status []byte
	if restarts || by != OwnStop {
		if n, errno := k.ReadFile(b.ProcPath(tid, "/status\x00"), b.scratch.text[:]); errno == 0 && n < len(b.scratch.text) { // else it may go on
			status = b.scratch.text[:n]
		}
	}
	ours := by == OwnStop || by > 0 && ignored(status, by)
	if restarts && (ours || by > 0 && len(status) == 0) { // else the kernel would have had the thread stopped as well
		some, coming := filters(status)
		b.Call.Anew = some || by == OwnStop && coming
	}
	return (b.Call.Anew || ours && !noRestart) && ptrace.Revert(tid, note, b.Call.Anew)
}

// write writes a note that was changed.
//
//go:nosplit
//go:norace
func write(k Kernel, tid int, note []byte, b *Buffer) {
	b.Call.Met = true
	b.Call.Unwritten = k.SetRegs(tid, ptrace.NotePrstatus, note) != 0
	ptrace.AsStopped(note)
}

// AtStop does for a thread that has stopped what [Take] does, where nothing is to be
// copied. b is room for its registers, and m what is known of its waits, or nil. pagemap opens that of the thread, and returns what closes
// it: it is asked for where a time limit has to be read.
func AtStop(k Kernel, tid, by int, noRestart bool, m *Mark, b *Buffer, pagemap func() (fd int, done func())) {
	n, errno := k.Regs(tid, ptrace.NotePrstatus, b.Regs.Room)
	if errno != 0 {
		return
	}
	note := b.Regs.Room[:n]
	if !revert(k, tid, note, b, by, noRestart) {
		if m != nil && !m.again(k, tid, note, by, b) {
			m.Leave()
		}
		return
	}
	if m != nil {
		if l := ptrace.LimitOf(tid, note); m.over(k.Now(), note, limit(k, tid, &l, b, pagemap)) {
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
	var s, ns int64
	if l.Word == 4 {
		s, ns = int64(int32(binary.NativeEndian.Uint32(text))), int64(int32(binary.NativeEndian.Uint32(text[4:])))
	} else {
		s, ns = int64(binary.NativeEndian.Uint64(text)), int64(binary.NativeEndian.Uint64(text[8:]))
	}
	if l.Padded {
		ns &= 1<<32 - 1
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
	text = b.scratch.pages[:n]
	return text, Present(k, pages, addr, n, b) == n && k.Memory(tid, addr, text) == n
}

// Mark is what the next stop is to know of a wait that has begun anew with all of its limit. It is of one thread that is traced all the time,
// and that is watched from then on until it leaves the call: registers alone do not tell one wait from the next.
type Mark struct {
	note  [markBytes]byte // the registers that it has begun with
	n     int             // bytes of them, 0: there is no such wait
	begun int64           // when it was first stopped, CLOCK_MONOTONIC
	Due   int64           // when its limit is over, counted from then; 0: there is no such wait
	place place
	Heard bool // it has stopped for a signal
}

// place is how far a thread is with a wait that begins anew.
type place uint8

const (
	before place = iota // the call
	within
	past // interrupted: a stop follows
)

// Watched tells whether a thread is to stop at the next beginning or end of a system call ([Mark.AtCall]).
func (m *Mark) Watched() bool { return m.n > 0 && m.place != past }

// Waits tells whether the thread is in the call that has begun anew.
func (m *Mark) Waits() bool { return m.n > 0 && m.place == within }

// Interrupted tells whether the thread was taken out of that call, and is about to stop.
func (m *Mark) Interrupted() bool { return m.n > 0 && m.place == past }

// Leave notes that the thread is in no such wait any more.
func (m *Mark) Leave() { m.n, m.Due, m.place = 0, 0, before }

// AtCall takes note that a watched thread has stopped at the beginning or end of a system call. cut: that was interrupted, and what it was
// interrupted for, which this stop may have put off, is to be asked for again.
func (m *Mark) AtCall(k Kernel, tid int, b *Buffer) (cut bool) {
	if m.n > 0 && m.place == before { // nothing comes between
		m.place = within
		return false
	}
	n, errno := k.Regs(tid, ptrace.NotePrstatus, b.Regs.Room)
	if cut = errno == 0 && ptrace.Interrupted(b.Regs.Room[:n]); cut {
		m.place = past
	} else {
		m.Leave()
	}
	return cut
}

// again tells whether a thread has stopped once more before it could go on with its wait, for us or for a signal that has no effect.
func (m *Mark) again(k Kernel, tid int, note []byte, by int, b *Buffer) bool {
	if m.place != before || by < OwnStop || string(m.note[:m.n]) != string(note) {
		return false
	}
	if by == OwnStop {
		return true
	}
	n, errno := k.ReadFile(b.ProcPath(tid, "/status\x00"), b.scratch.text[:])
	return errno == 0 && n < len(b.scratch.text) && ignored(b.scratch.text[:n], by)
}

// markBytes is the size of NT_PRSTATUS where a call may have a limit, see [ptrace.LimitOf].
const markBytes = 216

// over tells whether the limit of a wait that has begun anew, in nanoseconds, is over by now: then it ends, as it would have. Nothing but
// its result is written: an argument that were changed would stay so in its register (System V ABI, "Calling Conventions"
// of Linux), and with it the limit of later waits. A wait that was not stopped before counts from now on.
func (m *Mark) over(now int64, note []byte, limit int64) bool {
	begun := now
	if m.place == past && string(m.note[:m.n]) == string(note) {
		begun = m.begun
	}
	m.Leave()
	if limit <= 0 {
		return false
	}
	if now-begun >= limit {
		return true
	}
	m.n, m.begun, m.Due = copy(m.note[:], note), begun, begun+limit
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
	mode, _ := field(status, "\nSeccomp:\t") // 0: a kernel without seccomp
	return mode != 0, !ok || threads > 1
}

// ProcPath is the path of a thread's file in /proc, with a NUL, which name ends in.
//
//go:nosplit
//go:norace
func (b *Buffer) ProcPath(tid int, name string) []byte {
	const dir = "/proc/"
	n := copy(b.scratch.path[:], dir)
	digits := 1
	for v := tid; v >= 10; v /= 10 {
		digits++
	}
	for i := n + digits - 1; i >= n; i-- {
		b.scratch.path[i] = byte('0' + tid%10)
		tid /= 10
	}
	n += digits
	n += copy(b.scratch.path[n:], name)
	return b.scratch.path[:n]
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
	for i := range len(b) - len(key) {
		if b[i] == key[0] && string(b[i:i+len(key)]) == key {
			return i + len(key)
		}
	}
	return len(b)
}
