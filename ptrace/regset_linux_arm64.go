package ptrace

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// Offsets in NT_PRSTATUS (struct user_pt_regs, arch/arm64/include/uapi/asm/ptrace.h: x0–x30, sp, pc).
const (
	noteBytes = 272
	noteSP    = 248
	notePC    = 256
)

// StackPointer is the stack pointer in an NT_PRSTATUS note, 0 if the note has
// none.
//
//go:nosplit
//go:norace
func StackPointer(note []byte) uint64 {
	if len(note) != noteBytes {
		return 0
	}
	return binary.LittleEndian.Uint64(note[noteSP:])
}

// ProgramCounter is the program counter in an NT_PRSTATUS note, 0 if the note has
// none.
//
//go:nosplit
//go:norace
func ProgramCounter(note []byte) uint64 {
	if len(note) != noteBytes {
		return 0
	}
	return binary.LittleEndian.Uint64(note[notePC:])
}

// Reverts: [Revert] cannot take back EINTR on this architecture.
//
// At a stop the kernel has decided on the restart already and has forgotten
// the call, with its first argument (arch/arm64/kernel/signal.c, do_signal: it
// rewinds pc and restores x0 before get_signal, where tracees stop).
const Reverts = false

// svc is the instruction of a system call, svc #0.
const svc = 0xd4000001

// Restarts tells of thread tid, which has stopped, whether the call that it is in
// may go on by restart_syscall(2), which a seccomp filter may forbid. Nothing tells
// which restart it will be, but that the thread is before a system call that goes on
// so at times.
//
//go:nosplit
//go:norace
func Restarts(tid int, note []byte) bool {
	if len(note) != noteBytes {
		return false
	}
	switch register(note, 8) {
	case unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_FUTEX:
		_, ok := before(tid, note)
		return ok
	}
	return false
}

// CutShort tells of the note of a thread that has stopped whether the call that it is in may end with an
// error that [Revert] takes back: there is none.
//
//go:nosplit
//go:norace
func CutShort([]byte) bool { return false }

// Interrupted tells whether a system call was interrupted at whose end a thread has stopped: none is watched here ([LimitOf]).
func Interrupted([]byte) bool { return false }

// End has a note tell that the call has returned: that is for those that have a [LimitOf], none here.
func End([]byte, int64) {}

// Revert makes a call that may go on by restart_syscall begin anew, and reports
// whether it did; the caller then writes the note back before Cont. The kernel
// lets a thread go on by restart_syscall only if its pc is at the system call still
// (do_signal: "if a debugger has chosen to restart at a different PC"). So it
// is set to the instruction before, if that changes nothing. If it does not, or
// anew is not wanted, the thread is left as it is. A signal that is handled
// before the thread goes on does not end the call with EINTR.
//
//go:nosplit
//go:norace
func Revert(tid int, note []byte, anew bool) bool {
	if !anew || !Restarts(tid, note) {
		return false
	}
	insn, _ := before(tid, note)
	if !idle(tid, insn, note) {
		return false
	}
	binary.LittleEndian.PutUint64(note[notePC:], binary.LittleEndian.Uint64(note[notePC:])-4)
	return true
}

// AsStopped changes a note that [Revert] has changed, and that was written, so that it tells where the thread
// stopped.
//
//go:nosplit
//go:norace
func AsStopped(note []byte) {
	binary.LittleEndian.PutUint64(note[notePC:], binary.LittleEndian.Uint64(note[notePC:])+4)
}

// before reads the instruction before the system call that pc is at; false: pc is
// at no system call.
//
//go:nosplit
//go:norace
func before(tid int, note []byte) (insn uint32, ok bool) {
	var code [8]byte
	pc := binary.LittleEndian.Uint64(note[notePC:])
	if n, errno := RawMemory(tid, pc-4, code[:]); errno != 0 || n != len(code) {
		return 0, false
	}
	return binary.LittleEndian.Uint32(code[:]), binary.LittleEndian.Uint32(code[4:]) == svc
}

// idle tells whether an instruction changes nothing if thread tid executes it with
// these registers (Arm Architecture Reference Manual, C6.2: HINT, MOVZ, ORR (shifted
// register) as MOV, LDR (immediate) from the thread's own stack).
//
//go:nosplit
//go:norace
func idle(tid int, insn uint32, note []byte) bool {
	d, n := int(insn&31), int(insn>>16&31)
	switch {
	case insn&0xfffff01f == 0xd503201f: // hint: nop, bti
		return true
	case d == 31:
		return false
	case insn&0x7f800000 == 0x52800000: // movz
		v := uint64(insn>>5&0xffff) << (insn >> 21 & 3 * 16)
		return register(note, d) == v
	case insn&0x7fe0ffe0 == 0x2a0003e0 && n != 31: // mov
		v := register(note, n)
		if insn>>31 == 0 {
			v = uint64(uint32(v))
		}
		return register(note, d) == v
	case insn&0xffc003e0 == 0xf94003e0: // ldr, base sp
		var word [8]byte
		k, errno := RawMemory(tid, StackPointer(note)+uint64(insn>>10&0xfff)*8, word[:])
		return errno == 0 && k == len(word) && register(note, d) == binary.LittleEndian.Uint64(word[:])
	}
	return false
}

//go:nosplit
//go:norace
func register(note []byte, i int) uint64 { return binary.LittleEndian.Uint64(note[8*i:]) }

// WordBytes is the size of an address of the thread that an NT_PRSTATUS note is
// of. 32-bit programs are not sampled here.
//
//go:nosplit
//go:norace
func WordBytes(note []byte) int { return 8 }
