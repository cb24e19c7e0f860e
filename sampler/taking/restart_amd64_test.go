package taking

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
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
		{"wait", unix.SYS_WAIT4, -erestartNoInt, filter, OwnStop, false, false, false},
		{"no call", -1, -eintr, filter, OwnStop, false, false, false},
		{"done", unix.SYS_READ, 12, filter, OwnStop, false, false, false},
	} {
		for _, refuses := range []bool{false, true} {
			k := &machine{t: t, note: inCall(tt.call, tt.result), status: tt.status, refuses: refuses, low: 0x4000, high: 0x6000}
			b := &Buffer{Regs: make([]byte, 512), Stack: make([]byte, 64)}
			if errno := Take(k, 7, new(Advice), b, -1, tt.by, tt.noRestart); errno != 0 {
				t.Fatal(errno)
			}
			if b.Anew != tt.anew || b.Met != tt.written || b.Unwritten != (tt.written && refuses) || (len(k.written) == 1) != tt.written || len(k.written) > 1 {
				t.Errorf("%s: written %d times, begins anew %t, met %t, unwritten %t", tt.name, len(k.written), b.Anew, b.Met, b.Unwritten)
				continue
			}
			if b.NStack != 64 || b.StackAddr != 0x5000-RedZone {
				t.Errorf("%s: %d bytes of stack at %#x", tt.name, b.NStack, b.StackAddr)
			}
			if tt.written {
				if got := int64(binary.LittleEndian.Uint64(k.written[0][offRAX:])); got != -noHand || len(k.written[0]) != 216 {
					t.Errorf("%s: %d bytes with the result %d are written, want -514", tt.name, len(k.written[0]), got)
				}
			}
			k.written, b.Anew = nil, true // of another thread
			AtStop(k, 7, tt.by, tt.noRestart, nil, b, noPagemap)
			if (len(k.written) == 1) != tt.written || b.Anew != tt.anew {
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

// TestMark: a wait that is stopped again and again ends at the first stop behind its limit, counted from the first stop: the time that
// the thread has slept counts, if it has slept once at most between two stops. No register but the result is written.
func TestMark(t *testing.T) {
	const rdx, r10, rbx = 96, 56, 40
	type stop struct {
		after    int64 // the one before, in microseconds
		ran      int64 // of that, and what it has waited for a CPU
		switches int
		set      int   // a register that is another's since
		over     bool  // the wait ends
		stops    int64 // in between, for other reasons
	}
	const sleeps = 2 // with the stop
	for _, tt := range []struct {
		name         string
		call, result int64
		at           int // of the limit
		limit        uint64
		filter       string
		stops        []stop
	}{
		{"epoll_wait", unix.SYS_EPOLL_WAIT, -eintr, r10, 1000, "0", []stop{{}, {400_000, 0, sleeps, 0, false, 0}, {599_999, 0, sleeps, 0, false, 0}, {1, 0, sleeps, 0, true, 0}, {300_000, 0, sleeps, 0, false, 0}}},
		{"epoll_pwait", unix.SYS_EPOLL_PWAIT, -eintr, r10, 1000, "0", []stop{{}, {1_400_000, 0, sleeps, 0, true, 0}}},
		{"poll", unix.SYS_POLL, -restartBlock, rdx, 1000, "2", []stop{{}, {400_000, 0, sleeps, 0, false, 0}, {700_000, 0, sleeps, 0, true, 0}}},
		{"it was stopped before it slept", unix.SYS_POLL, -restartBlock, rdx, 1000, "2", []stop{{}, {1_000_000, 0, 1, 0, true, 0}}},
		{"it has slept twice", unix.SYS_POLL, -restartBlock, rdx, 1000, "2", []stop{{}, {1_400_000, 0, 3, 0, false, 0}, {900_000, 0, sleeps, 0, false, 0}, {100_000, 0, sleeps, 0, true, 0}}},
		{"it was stopped twice", unix.SYS_POLL, -restartBlock, rdx, 1000, "2", []stop{{}, {1_400_000, 0, 3, 0, true, 1}}},
		{"it was stopped twice and has slept twice", unix.SYS_POLL, -restartBlock, rdx, 1000, "2", []stop{{}, {1_400_000, 0, 4, 0, false, 1}}},
		{"it has run", unix.SYS_POLL, -restartBlock, rdx, 1000, "2", []stop{{}, {1_200_000, 300_000, sleeps, 0, false, 0}, {100_000, 0, sleeps, 0, true, 0}}},
		{"it has run longer than the clock says", unix.SYS_POLL, -restartBlock, rdx, 1000, "2", []stop{{}, {400_000, 500_000, sleeps, 0, false, 0}}},
		{"another wait", unix.SYS_POLL, -restartBlock, rdx, 1000, "2", []stop{{}, {1_400_000, 0, sleeps, rbx, false, 0}, {999_000, 0, sleeps, 0, false, 0}, {1000, 0, sleeps, 0, true, 0}}},
		{"no limit", unix.SYS_POLL, -restartBlock, rdx, 1<<32 - 1, "2", []stop{{}, {1 << 51, 0, sleeps, 0, false, 0}}},
		{"for weeks", unix.SYS_POLL, -restartBlock, rdx, 1<<31 - 1, "2", []stop{{}, {1<<31*1000 - 1001, 0, sleeps, 0, false, 0}, {1 << 50, 0, sleeps, 0, true, 0}}},
	} {
		k := &machine{t: t, now: 5e9}
		run, switches, m := int64(3e9), 17, new(Mark)
		b := &Buffer{Regs: make([]byte, 512)}
		k.note = inCall(tt.call, tt.result)
		binary.LittleEndian.PutUint64(k.note[tt.at:], tt.limit)
		for i, s := range tt.stops {
			k.now, run, switches = k.now+1000*s.after, run+1000*s.ran, switches+s.switches
			k.status = fmt.Sprintf("Threads:\t2\nx:\nThreads:\t2\nSigIgn:\t0\nSigCgt:\t0\nSeccomp:\t%s\nvoluntary_ctxt_switches:\t%d\nnonvoluntary_ctxt_switches:\t9\n", tt.filter, switches)
			k.sched = fmt.Sprintf("%d %d 12\n", run-1e9, 1_000_000_000)
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
			m.Stops += 1 + s.stops
			if AtStop(k, 7, int(unix.SIGCHLD), false, m, b, noPagemap); len(k.written) != 1 || !bytes.Equal(k.written[0], want) {
				t.Errorf("%s: stop %d: written %x, want %x", tt.name, i, k.written, want)
			}
		}
	}
	// poll(2) without a filter goes on to its old limit.
	k := &machine{t: t, now: 5e9, note: inCall(unix.SYS_POLL, -restartBlock)}
	m, b := new(Mark), &Buffer{Regs: make([]byte, 512)}
	for range 3 {
		k.now += 1e12
		k.status, k.sched = "Threads:\t1\nSigIgn:\t0\nSigCgt:\t0\nSeccomp:\t0\nvoluntary_ctxt_switches:\t5\n", "1 1 1\n"
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
		m, b := new(Mark), &Buffer{Regs: make([]byte, 512)}
		for i, after := range []int64{0, max(tt.limit, 1) - 1, 1} {
			k.now += after
			k.status = fmt.Sprintf("Threads:\t1\nSigIgn:\t0\nSigCgt:\t0\nSeccomp:\t%s\nvoluntary_ctxt_switches:\t%d\n", tt.filter, 5+2*i)
			k.sched, k.written = "1 1 1\n", nil
			m.Stops++
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

// TestMarkUnknown: a wait begins anew with all of its limit if nothing tells how long it has lasted.
func TestMarkUnknown(t *testing.T) {
	const r10 = 56
	const status = "Threads:\t1\nSigIgn:\t0\nSigCgt:\t0\nSeccomp:\t0\n"
	const switches = "voluntary_ctxt_switches:\t5\n"
	for _, tt := range []struct {
		name, status, sched string
		want                int64
	}{
		{"known", status + switches, "1 1 1\n", 0},
		{"no count of switches", status, "1 1 1\n", -noHand},
		{"no schedstat", status + switches, "", -noHand},
		{"an empty one", status + switches, "\n", -noHand},
		{"half of it", status + switches, "1 ", -noHand},
	} {
		k := &machine{t: t, now: 5e9, note: inCall(unix.SYS_EPOLL_WAIT, -eintr)}
		binary.LittleEndian.PutUint64(k.note[r10:], 1000)
		b, m := &Buffer{Regs: make([]byte, 512)}, new(Mark)
		for range 2 {
			k.status, k.sched = tt.status, tt.sched
			m.Stops++
			AtStop(k, 7, int(unix.SIGCHLD), false, m, b, noPagemap)
			k.now += 1400e6
		}
		if len(k.written) != 2 {
			t.Fatalf("%s: written %d times", tt.name, len(k.written))
		}
		if got := int64(binary.LittleEndian.Uint64(k.written[1][offRAX:])); got != tt.want {
			t.Errorf("%s: result %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestOther32: a word of a 32-bit thread has 4 bytes.
func TestOther32(t *testing.T) {
	const word, stack = 0x40_0000, 0x80_0000
	b := &Buffer{Regs: make([]byte, 216), NRegs: 68, Stack: make([]byte, 8), NStack: 4, StackAddr: word, Beyond: make([]byte, 1000)}
	binary.LittleEndian.PutUint32(b.Stack, stack)
	binary.LittleEndian.PutUint32(b.Stack[4:], 99) // not of the address
	k := &machine{t: t, low: stack - 0x1000, high: stack + 0x1000}
	if o := (&Other{Word: word, Bytes: 100}); !takeOther(k, 7, o, b, -1) || b.Blocks[0].Addr != stack-RedZone {
		t.Errorf("block at %#x", b.Blocks[0].Addr)
	}
}
