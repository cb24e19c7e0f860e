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

// Revert takes back what a stop does to a system call. It does nothing here: on
// this architecture no call was tried yet.
func Revert(note []byte, seccomp bool) bool { return false }
