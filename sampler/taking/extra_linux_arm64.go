package taking

import (
	"encoding/binary"

	"sfsample/ptrace"
)

// takeExtra reads the mask of the bits by which return addresses are authenticated: data, then code.
//
//go:nosplit
//go:norace
func takeExtra(k Kernel, tid int, b *Buffer) {
	const bytes = 16
	if n, errno := k.Regs(tid, ptrace.NoteARMPACMask, b.scratch.text[:bytes]); errno == 0 && n == bytes {
		b.PACMask = binary.LittleEndian.Uint64(b.scratch.text[8:])
	}
}
