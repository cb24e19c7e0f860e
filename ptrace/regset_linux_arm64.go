package ptrace

import "encoding/binary"

// Offset of the stack pointer in NT_PRSTATUS (struct user_pt_regs, arch/arm64/include/uapi/asm/ptrace.h: x0–x30, sp).
const (
	noteBytes = 272
	noteSP    = 248
)

// StackPointer is the stack pointer in an NT_PRSTATUS note, 0 if the note has
// none.
func StackPointer(note []byte) uint64 {
	if len(note) != noteBytes {
		return 0
	}
	return binary.LittleEndian.Uint64(note[noteSP:])
}

// Reverts: [Revert] cannot take back EINTR on this architecture.
const Reverts = false

// Revert takes back what a stop does to a system call; here it does nothing.
// At a stop the kernel has decided on the restart already and has forgotten
// the call, with its first argument (arch/arm64/kernel/signal.c, do_signal: it
// rewinds pc and restores x0 before get_signal, where tracees stop).
func Revert(tid int, note []byte, seccomp bool) bool { return false }

// WordBytes is the size of an address of the thread that an NT_PRSTATUS note is
// of. 32-bit programs are not sampled here.
func WordBytes(note []byte) int { return 8 }
