package taking

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
)

// Offsets in struct user_regs_struct (arch/x86/include/asm/user_64.h), and restart codes (include/linux/errno.h).
const (
	offRAX, offOrigRAX, offRSP = 80, 120, 152

	eintr         = 4
	erestartNoInt = 513
	noHand        = 514
	restartBlock  = 516
)

// inCall is a register note of a thread in a system call with this result.
func inCall(call, result int64) []byte {
	note := make([]byte, 216)
	binary.LittleEndian.PutUint64(note[offRAX:], uint64(result))
	binary.LittleEndian.PutUint64(note[offOrigRAX:], uint64(call))
	binary.LittleEndian.PutUint64(note[offRSP:], 0x5000)
	return note
}

// TestTakeBack: which calls a stop takes back, by what the thread has stopped for.
func TestTakeBack(t *testing.T) {
	const (
		signals = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000800\nSigCgt:\t0000000008000000\n" // SIGUSR2; SIGWINCH
		alone   = "Name:\tx\nThreads:\t1\n" + signals + "Seccomp:\t0\n"
		threads = "Name:\tx\nThreads:\t2\n" + signals + "Seccomp:\t0\n"
		filter  = "Name:\tx\nThreads:\t1\n" + signals + "Seccomp:\t2\n"

		usr1, usr2  = int(unix.SIGUSR1), int(unix.SIGUSR2)
		chld, winch = int(unix.SIGCHLD), int(unix.SIGWINCH)
	)
	for _, tt := range []struct {
		name          string
		call, result  int64
		status        string
		by            int
		noRestart     bool
		written, anew bool
	}{
		{"read", unix.SYS_READ, -eintr, alone, OwnStop, false, true, false},
		{"read, nothing is to be written", unix.SYS_READ, -eintr, alone, OwnStop, true, false, false},
		{"read, at something else", unix.SYS_READ, -eintr, alone, OtherStop, false, false, false},
		{"read, at a signal that ends the program", unix.SYS_READ, -eintr, alone, usr1, false, false, false},
		{"read, at a signal that is handled", unix.SYS_READ, -eintr, alone, winch, false, false, false},
		{"read, at a signal that is ignored", unix.SYS_READ, -eintr, alone, usr2, false, true, false},
		{"read, at one that is ignored by default", unix.SYS_READ, -eintr, alone, chld, false, true, false},
		{"the same, nothing is to be written", unix.SYS_READ, -eintr, alone, chld, true, false, false},
		{"nobody knows whether it is ignored", unix.SYS_READ, -eintr, "", usr2, false, false, false},
		{"nor by default", unix.SYS_READ, -eintr, "", chld, false, false, false},
		{"the status is longer than there is room for", unix.SYS_READ, -eintr, alone + strings.Repeat("x", 4096), chld, false, false, false},
		{"it is just not", unix.SYS_READ, -eintr, alone + strings.Repeat("x", 4095-len(alone)), chld, false, true, false},
		{"the signal of the highest number", unix.SYS_READ, -eintr, "\nSigIgn:\t8000000000000000\n", 64, false, true, false},
		{"of the lowest", unix.SYS_READ, -eintr, "\nSigIgn:\t0000000000000001\n", 1, false, true, false},
		{"all but it", unix.SYS_READ, -eintr, "\nSigIgn:\tfffffffffffffffe\n", 1, false, false, false},
		{"read, with a filter", unix.SYS_READ, -eintr, filter, OwnStop, true, false, false},
		{"close", unix.SYS_CLOSE, -eintr, alone, OwnStop, false, false, false},
		{"close, at a signal that is ignored", unix.SYS_CLOSE, -eintr, alone, chld, false, false, false},
		{"sleep", unix.SYS_NANOSLEEP, -restartBlock, alone, OwnStop, false, false, false},
		{"sleep with a filter", unix.SYS_NANOSLEEP, -restartBlock, filter, OwnStop, false, true, true},
		{"sleep with a filter, nothing else is to be written", unix.SYS_NANOSLEEP, -restartBlock, filter, OwnStop, true, true, true},
		{"sleep with a filter, at a signal", unix.SYS_NANOSLEEP, -restartBlock, filter, usr1, true, false, false},
		{"sleep with a filter, at a signal that is ignored", unix.SYS_NANOSLEEP, -restartBlock, filter, chld, true, true, true},
		{"sleep with a filter, the process is stopped", unix.SYS_NANOSLEEP, -restartBlock, filter, OtherStop, false, false, false},
		{"sleep with a filter, at one that is ignored", unix.SYS_NANOSLEEP, -restartBlock, filter, chld, true, true, true},
		{"sleep, others may bring a filter", unix.SYS_NANOSLEEP, -restartBlock, threads, OwnStop, true, true, true},
		{"sleep at a signal, others may bring a filter", unix.SYS_NANOSLEEP, -restartBlock, threads, usr1, false, false, false},
		{"sleep at one that is ignored, others may bring a filter", unix.SYS_NANOSLEEP, -restartBlock, threads, chld, false, false, false},
		{"sleep, nobody knows", unix.SYS_NANOSLEEP, -restartBlock, "", OwnStop, false, true, true},
		{"sleep, nobody knows what the signal does", unix.SYS_NANOSLEEP, -restartBlock, "", usr1, false, true, true},
		{"nor what the first one does", unix.SYS_NANOSLEEP, -restartBlock, "", 1, false, true, true},
		{"sleep, nobody knows, the process is stopped", unix.SYS_NANOSLEEP, -restartBlock, "", OtherStop, false, false, false},
		{"wait", unix.SYS_WAIT4, -erestartNoInt, filter, OwnStop, false, false, false},
		{"no call", -1, -eintr, filter, OwnStop, false, false, false},
		{"done", unix.SYS_READ, 12, filter, OwnStop, false, false, false},
	} {
		for _, refuses := range []bool{false, true} {
			k := &machine{t: t, note: inCall(tt.call, tt.result), status: tt.status, refuses: refuses, low: 0x4000, high: 0x6000}
			b := &Buffer{Regs: Copy{Room: make([]byte, 512)}, Stack: Copy{Room: make([]byte, 64)}}
			if errno := Take(k, 7, new(Advice), b, -1, tt.by, tt.noRestart); errno != 0 {
				t.Fatal(errno)
			}
			if b.Call.Anew != tt.anew || b.Call.Met != tt.written || b.Call.Unwritten != (tt.written && refuses) || (len(k.written) == 1) != tt.written || len(k.written) > 1 {
				t.Errorf("%s: written %d times, begins anew %t, met %t, unwritten %t", tt.name, len(k.written), b.Call.Anew, b.Call.Met, b.Call.Unwritten)
				continue
			}
			if b.Stack.N != 64 || b.StackAddr != 0x5000-RedZone {
				t.Errorf("%s: %d bytes of stack at %#x", tt.name, b.Stack.N, b.StackAddr)
			}
			if tt.written {
				if got := int64(binary.LittleEndian.Uint64(k.written[0][offRAX:])); got != -noHand || len(k.written[0]) != 216 {
					t.Errorf("%s: %d bytes with the result %d are written, want -514", tt.name, len(k.written[0]), got)
				}
			}
			k.written, b.Call.Anew = nil, true // of another thread
			AtStop(k, 7, tt.by, tt.noRestart, nil, b, noPagemap)
			if (len(k.written) == 1) != tt.written || b.Call.Anew != tt.anew {
				t.Errorf("%s: written %d times, where nothing is copied", tt.name, len(k.written))
			}
			k.errno, k.written = unix.ESRCH, nil
			if AtStop(k, 7, tt.by, tt.noRestart, nil, b, noPagemap); k.written != nil {
				t.Errorf("%s: registers are written that could not be read", tt.name)
			}
		}
	}
}

// TestStoppedFor: the statuses of ptrace(2), "Stopped states".
func TestStoppedFor(t *testing.T) {
	for status, want := range map[uint32]int{
		0x80_05_7f: OwnStop, 0x80_13_7f: OtherStop, 0x05_7f: 5, 0x11_7f: 17, 0x40_7f: 64, 0x06_05_7f: OtherStop, 0x03_05_7f: OtherStop,
	} {
		if got := StoppedFor(status); got != want {
			t.Errorf("status %#x: %d, want %d", status, got, want)
		}
	}
}

// goesOn has a watched thread enter its call again, and leave it with that result.
func goesOn(k *machine, m *Mark, b *Buffer, result int64) (cut bool) {
	if m.AtCall(k, 7, b) || !m.Watched() || !m.Waits() {
		return false
	}
	before := binary.LittleEndian.Uint64(k.note[offRAX:])
	binary.LittleEndian.PutUint64(k.note[offRAX:], uint64(result))
	cut = m.AtCall(k, 7, b)
	binary.LittleEndian.PutUint64(k.note[offRAX:], before)
	return cut
}

// TestMark: a wait that is stopped again and again ends at the first stop behind its limit, counted from the first stop, unless
// the thread has left the call in between. No register but the result is written.
func TestMark(t *testing.T) {
	const rdx, r10, rbx = 96, 56, 40
	type stop struct {
		after int64 // the one before, in microseconds
		left  bool  // the call has returned in between
		set   int   // a register that is another's since
		over  bool  // the wait ends
	}
	for _, tt := range []struct {
		name         string
		call, result int64
		at           int // of the limit
		limit        uint64
		filter       string
		stops        []stop
	}{
		{"epoll_wait", unix.SYS_EPOLL_WAIT, -eintr, r10, 1000, "0", []stop{{}, {400_000, false, 0, false}, {599_999, false, 0, false}, {1, false, 0, true}, {300_000, false, 0, false}}},
		{"epoll_pwait", unix.SYS_EPOLL_PWAIT, -eintr, r10, 1000, "0", []stop{{}, {1_400_000, false, 0, true}}},
		{"poll", unix.SYS_POLL, -restartBlock, rdx, 1000, "2", []stop{{}, {400_000, false, 0, false}, {700_000, false, 0, true}}},
		{"it has returned", unix.SYS_POLL, -restartBlock, rdx, 1000, "2", []stop{{}, {1_400_000, true, 0, false}, {900_000, false, 0, false}, {100_000, false, 0, true}}},
		{"another wait", unix.SYS_POLL, -restartBlock, rdx, 1000, "2", []stop{{}, {1_400_000, false, rbx, false}, {999_000, false, 0, false}, {1000, false, 0, true}}},
		{"no limit", unix.SYS_POLL, -restartBlock, rdx, 1<<32 - 1, "2", []stop{{}, {1 << 51, false, 0, false}}},
		{"for weeks", unix.SYS_POLL, -restartBlock, rdx, 1<<31 - 1, "2", []stop{{}, {1<<31*1000 - 1001, false, 0, false}, {1 << 50, false, 0, true}}},
	} {
		k := &machine{t: t, now: 5e9}
		m, b := new(Mark), &Buffer{Regs: Copy{Room: make([]byte, 512)}}
		k.note = inCall(tt.call, tt.result)
		binary.LittleEndian.PutUint64(k.note[tt.at:], tt.limit)
		k.status = fmt.Sprintf("Threads:\t2\nx:\nThreads:\t2\nSigIgn:\t0\nSigCgt:\t0\nSeccomp:\t%s\n", tt.filter)
		for i, s := range tt.stops {
			k.now += 1000 * s.after
			if i > 0 && m.Watched() {
				result := tt.result
				if s.left {
					result = 1
				}
				if cut := goesOn(k, m, b, result); cut == s.left || m.Watched() {
					t.Errorf("%s: stop %d: interrupted %t", tt.name, i, cut)
				}
			}
			if s.set != 0 {
				binary.LittleEndian.PutUint64(k.note[s.set:], 77)
			}
			want := bytes.Clone(k.note)
			result := int64(-noHand)
			if s.over {
				result = 0
			}
			binary.LittleEndian.PutUint64(want[offRAX:], uint64(result))
			k.written = nil
			if AtStop(k, 7, int(unix.SIGCHLD), false, m, b, noPagemap); len(k.written) != 1 || !bytes.Equal(k.written[0], want) {
				t.Errorf("%s: stop %d: written %x, want %x", tt.name, i, k.written, want)
			}
			if limited := int32(tt.limit) > 0 && !s.over; m.Watched() != limited || (m.Due != 0) != limited || m.Waits() {
				t.Errorf("%s: stop %d: watched %t, due %d", tt.name, i, m.Watched(), m.Due)
			}
		}
	}
	// A stop more for us or a signal without effect, before it goes on, changes nothing; one with a handler does.
	for by, stays := range map[int]bool{int(unix.SIGURG): true, OwnStop: true, int(unix.SIGUSR1): false, OtherStop: false} {
		k := &machine{t: t, now: 5e9, note: inCall(unix.SYS_EPOLL_WAIT, -eintr), status: "Threads:\t1\nSigIgn:\t0\nSigCgt:\t200\nSeccomp:\t0\n"}
		binary.LittleEndian.PutUint64(k.note[r10:], 1000)
		m, b := new(Mark), &Buffer{Regs: Copy{Room: make([]byte, 512)}}
		AtStop(k, 7, OwnStop, false, m, b, noPagemap)
		k.note = k.written[0]
		if AtStop(k, 7, by, false, m, b, noPagemap); m.Watched() != stays || len(k.written) != 1 {
			t.Errorf("stop for %d: watched %t, written %d times", by, m.Watched(), len(k.written))
		}
	}
	// poll(2) without a filter goes on to its old limit.
	k := &machine{t: t, now: 5e9, note: inCall(unix.SYS_POLL, -restartBlock)}
	m, b := new(Mark), &Buffer{Regs: Copy{Room: make([]byte, 512)}}
	for range 3 {
		k.now += 1e12
		k.status = "Threads:\t1\nSigIgn:\t0\nSigCgt:\t0\nSeccomp:\t0\n"
		if AtStop(k, 7, int(unix.SIGCHLD), false, m, b, noPagemap); len(k.written) != 0 {
			t.Errorf("written %x", k.written)
		}
	}
}

// TestMarkMemory: a limit that is in memory, and what the call returns when it is over.
func TestMarkMemory(t *testing.T) {
	const rdx, r10, rdi, r8, rsi = 96, 56, 112, 72, 104
	const at, sec, filter = 0x7000, 1e9, "2"
	spec := func(words ...uint64) string {
		b, _ := binary.Append(nil, binary.LittleEndian, words)
		return string(b)
	}
	for _, tt := range []struct {
		name         string
		call, result int64
		args         map[int]uint64
		memory       map[uint64]string
		filter       string
		limit        int64 // -1: none is known
		want         int64
	}{
		{"epoll_pwait2", unix.SYS_EPOLL_PWAIT2, -eintr, map[int]uint64{r10: at}, map[uint64]string{at: spec(1, 5e8)}, "0", 1.5 * sec, 0},
		{"semtimedop", unix.SYS_SEMTIMEDOP, -eintr, map[int]uint64{r10: at}, map[uint64]string{at: spec(1, 0)}, "0", sec, -int64(unix.EAGAIN)},
		{"sigtimedwait", unix.SYS_RT_SIGTIMEDWAIT, -eintr, map[int]uint64{rdx: at}, map[uint64]string{at: spec(0, 999_999_999)}, "0", sec - 1, -int64(unix.EAGAIN)},
		{"io_getevents", unix.SYS_IO_GETEVENTS, -eintr, map[int]uint64{r8: at}, map[uint64]string{at: spec(2, 0)}, "0", 2 * sec, 0},
		{"io_uring_enter", unix.SYS_IO_URING_ENTER, -eintr, map[int]uint64{r10: 9, r8: at}, map[uint64]string{at + 16: spec(at + 64), at + 64: spec(1, 0)}, "0", sec, -int64(unix.ETIME)},
		{"nanosleep behind a filter", unix.SYS_NANOSLEEP, -restartBlock, map[int]uint64{rdi: at}, map[uint64]string{at: spec(1, 0)}, filter, sec, 0},
		{"futex behind a filter", unix.SYS_FUTEX, -restartBlock, map[int]uint64{rsi: 128, r10: at}, map[uint64]string{at: spec(1, 0)}, filter, sec, -int64(unix.ETIMEDOUT)},
		{"for ever", unix.SYS_SEMTIMEDOP, -eintr, nil, nil, "0", -1, 0},
		{"it cannot be read", unix.SYS_SEMTIMEDOP, -eintr, map[int]uint64{r10: at}, map[uint64]string{at: ""}, "0", -1, 0},
		{"half of it", unix.SYS_SEMTIMEDOP, -eintr, map[int]uint64{r10: at}, map[uint64]string{at: spec(1)}, "0", -1, 0},
		{"the ring's cannot be read", unix.SYS_IO_URING_ENTER, -eintr, map[int]uint64{r10: 9, r8: at}, map[uint64]string{at + 16: ""}, "0", -1, 0},
		{"no time", unix.SYS_SEMTIMEDOP, -eintr, map[int]uint64{r10: at}, map[uint64]string{at: spec(0, 1e9)}, "0", -1, 0},
		{"before now", unix.SYS_SEMTIMEDOP, -eintr, map[int]uint64{r10: at}, map[uint64]string{at: spec(1<<64-1, 5)}, "0", -1, 0},
		{"longer than there are nanoseconds", unix.SYS_SEMTIMEDOP, -eintr, map[int]uint64{r10: at}, map[uint64]string{at: spec(1<<63-1, 5)}, "0", -1, 0},
	} {
		k := &machine{t: t, now: 5e9, note: inCall(tt.call, tt.result), words: tt.memory}
		for reg, v := range tt.args {
			binary.LittleEndian.PutUint64(k.note[reg:], v)
		}
		m, b := new(Mark), &Buffer{Regs: Copy{Room: make([]byte, 512)}}
		for i, after := range []int64{0, max(tt.limit, 1) - 1, 1} {
			k.now += after
			k.status, k.written = fmt.Sprintf("Threads:\t1\nSigIgn:\t0\nSigCgt:\t0\nSeccomp:\t%s\n", tt.filter), nil
			if i > 0 && m.Watched() {
				goesOn(k, m, b, tt.result)
			}
			AtStop(k, 7, int(unix.SIGCHLD), false, m, b, noPagemap)
			want := int64(-noHand)
			if i == 2 && tt.limit >= 0 {
				want = tt.want
			}
			if len(k.written) != 1 || int64(binary.LittleEndian.Uint64(k.written[0][offRAX:])) != want {
				t.Errorf("%s: stop %d: written %x, want the result %d", tt.name, i, k.written, want)
			}
		}
	}
}

// TestPadded: where only 4 of the 8 bytes of nanoseconds count, the others may be anything.
func TestPadded(t *testing.T) {
	spec, _ := binary.Append(nil, binary.LittleEndian, []uint64{1, 0xdeadbeef<<32 | 5})
	k, b := &machine{t: t, words: map[uint64]string{0x7000: string(spec)}}, new(Buffer)
	for padded, want := range map[bool]int64{true: 1e9 + 5, false: 0} {
		if got := limit(k, 7, &ptrace.Limit{Addr: 0x7000, Word: 8, Padded: padded}, b, noPagemap); got != want {
			t.Errorf("padded %t: %d, want %d", padded, got, want)
		}
	}
}

// TestOther32: a word of a 32-bit thread has 4 bytes.
func TestOther32(t *testing.T) {
	const word, stack = 0x40_0000, 0x80_0000
	b := &Buffer{Regs: Copy{Room: make([]byte, 216), N: 68}, Stack: Copy{Room: make([]byte, 8), N: 4}, StackAddr: word, Beyond: Copy{Room: make([]byte, 1000)}}
	binary.LittleEndian.PutUint32(b.Stack.Room, stack)
	binary.LittleEndian.PutUint32(b.Stack.Room[4:], 99) // not of the address
	k := &machine{t: t, low: stack - 0x1000, high: stack + 0x1000}
	if o := (&Other{Word: word, Bytes: 100}); !takeOther(k, 7, o, b, -1) || b.Blocks[0].Addr != stack-RedZone {
		t.Errorf("block at %#x", b.Blocks[0].Addr)
	}
}

// TestAtCall: a watched thread goes to its call, and comes out of it, interrupted or not.
func TestAtCall(t *testing.T) {
	for _, tt := range []struct {
		name   string
		mark   *Mark
		result int64
		errno  unix.Errno
		cut    bool
		place  place
		left   bool
		reads  int
	}{
		{"it begins", marked("r", before, 1, 2), -eintr, 0, false, within, false, 0},
		{"interrupted", marked("r", within, 1, 2), -eintr, 0, true, past, false, 1},
		{"to be restarted", marked("r", within, 1, 2), -restartBlock, 0, true, past, false, 1},
		{"it has returned", marked("r", within, 1, 2), 5, 0, false, before, true, 1},
		{"with another error", marked("r", within, 1, 2), -int64(unix.EAGAIN), 0, false, before, true, 1},
		{"it is gone", marked("r", within, 1, 2), -eintr, unix.ESRCH, false, before, true, 1},
		{"it was past that", marked("r", past, 1, 2), 5, 0, false, before, true, 1},
		{"interrupted in no wait", new(Mark), -eintr, 0, true, past, true, 1},
		{"in no wait", new(Mark), 5, 0, false, before, true, 1},
	} {
		k := &asks{machine: machine{t: t, note: inCall(unix.SYS_POLL, tt.result), errno: tt.errno}}
		b := &Buffer{Regs: Copy{Room: make([]byte, 512)}}
		if cut := tt.mark.AtCall(k, 7, b); cut != tt.cut || tt.mark.place != tt.place || len(k.notes) != tt.reads {
			t.Errorf("%s: interrupted %t, at %d, by %d reads", tt.name, cut, tt.mark.place, len(k.notes))
		}
		if left := !tt.mark.Watched() && !tt.mark.Interrupted(); left != tt.left || left != (tt.mark.Due == 0) {
			t.Errorf("%s: left %t, due at %d", tt.name, left, tt.mark.Due)
		}
	}
}

// TestStatusReads: a status file is read only where it matters.
func TestStatusReads(t *testing.T) {
	for _, tt := range []struct {
		name   string
		result int64
		by     int
		reads  int
	}{
		{"cut short for us", -eintr, OwnStop, 0},
		{"cut short for something else", -eintr, OtherStop, 0},
		{"cut short for a signal", -eintr, int(unix.SIGUSR1), 1},
		{"done", 5, int(unix.SIGUSR1), 0},
		{"done, for us", 5, OwnStop, 0},
		{"to be restarted, for us", -restartBlock, OwnStop, 1},
		{"to be restarted, for something else", -restartBlock, OtherStop, 1},
	} {
		k := &machine{t: t, note: inCall(unix.SYS_POLL, tt.result), status: "\nThreads:\t1\nSigIgn:\t0\nSigCgt:\t0\nSeccomp:\t0\n"}
		b := new(Buffer)
		if revert(k, 7, k.note, b, tt.by, false); k.files != tt.reads {
			t.Errorf("%s: read %d times, want %d", tt.name, k.files, tt.reads)
		}
	}
}
