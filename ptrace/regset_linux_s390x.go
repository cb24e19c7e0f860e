package ptrace

import "encoding/binary"

// Offset of the stack pointer in NT_PRSTATUS (s390_regs, arch/s390/include/uapi/asm/ptrace.h: PSW, r0–r15, of which r15).
const (
	noteBytes = 216
	noteSP    = 136
)

// StackPointer is the stack pointer in an NT_PRSTATUS note, 0 if the note has
// none.
func StackPointer(note []byte) uint64 {
	if len(note) != noteBytes {
		return 0
	}
	return binary.BigEndian.Uint64(note[noteSP:])
}

// Revert takes back what a stop does to a system call. It does nothing here: on
// this architecture no call was tried yet.
func Revert(note []byte, seccomp bool) bool { return false }
