package taking

import (
	"encoding/binary"
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

// TestTakeBack: which calls a stop takes back, by whom it was asked for.
func TestTakeBack(t *testing.T) {
	const alone, threads, filter = "Name:\tx\nThreads:\t1\nSeccomp:\t0\n", "Name:\tx\nThreads:\t2\nSeccomp:\t0\n", "Name:\tx\nThreads:\t1\nSeccomp:\t2\n"
	for _, tt := range []struct {
		name                     string
		call, result             int64
		status                   string
		own, noRestart           bool
		written, anew, signalToo bool // signalToo: also by AtSignal
	}{
		{"read", unix.SYS_READ, -eintr, alone, true, false, true, false, false},
		{"read, nothing is to be written", unix.SYS_READ, -eintr, alone, true, true, false, false, false},
		{"read, at a signal", unix.SYS_READ, -eintr, alone, false, false, false, false, false},
		{"read, with a filter", unix.SYS_READ, -eintr, filter, true, true, false, false, false},
		{"close", unix.SYS_CLOSE, -eintr, alone, true, false, false, false, false},
		{"sleep", unix.SYS_NANOSLEEP, -restartBlock, alone, true, false, false, false, false},
		{"sleep with a filter", unix.SYS_NANOSLEEP, -restartBlock, filter, true, false, true, true, true},
		{"sleep with a filter, nothing else is to be written", unix.SYS_NANOSLEEP, -restartBlock, filter, true, true, true, true, true},
		{"sleep with a filter, at a signal", unix.SYS_NANOSLEEP, -restartBlock, filter, false, true, true, true, true},
		{"sleep, others may bring a filter", unix.SYS_NANOSLEEP, -restartBlock, threads, true, true, true, true, false},
		{"sleep at a signal, others may bring a filter", unix.SYS_NANOSLEEP, -restartBlock, threads, false, false, false, false, false},
		{"sleep, nobody knows", unix.SYS_NANOSLEEP, -restartBlock, "", false, false, true, true, true},
		{"wait", unix.SYS_WAIT4, -erestartNoInt, filter, true, false, false, false, false},
		{"no call", -1, -eintr, filter, true, false, false, false, false},
		{"done", unix.SYS_READ, 12, filter, true, false, false, false, false},
	} {
		for _, refuses := range []bool{false, true} {
			k := &machine{t: t, note: inCall(tt.call, tt.result), status: tt.status, refuses: refuses, low: 0x4000, high: 0x6000}
			b := &Buffer{Regs: make([]byte, 512), Stack: make([]byte, 64)}
			if errno := Take(k, 7, new(Advice), b, -1, tt.own, tt.noRestart); errno != 0 {
				t.Fatal(errno)
			}
			if b.Anew != tt.anew || b.Unwritten != (tt.written && refuses) || (len(k.written) == 1) != tt.written || len(k.written) > 1 {
				t.Errorf("%s: written %d times, begins anew %t, unwritten %t", tt.name, len(k.written), b.Anew, b.Unwritten)
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
			k.written = nil
			AtSignal(k, 7, b)
			if (len(k.written) == 1) != tt.signalToo {
				t.Errorf("%s: written %d times at a signal", tt.name, len(k.written))
			}
			k.errno, k.written = unix.ESRCH, nil
			if AtSignal(k, 7, b); k.written != nil {
				t.Errorf("%s: registers are written that could not be read", tt.name)
			}
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
