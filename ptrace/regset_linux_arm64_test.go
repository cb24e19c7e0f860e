package ptrace

import (
	"encoding/binary"
	"os"
	"testing"
	"unsafe"
)

// idleStack is what the thread's stack pointer points to.
var idleStack = [2]uint64{5, 7}

// TestIdle: the encodings are those of the GNU assembler.
func TestIdle(t *testing.T) {
	note := make([]byte, noteBytes)
	for i, v := range map[int]uint64{0: 1, 1: 1, 2: 0x1_0000_0001, 5: 7, 8: 115, 9: 115 << 16} {
		binary.LittleEndian.PutUint64(note[8*i:], v)
	}
	binary.LittleEndian.PutUint64(note[noteSP:], uint64(uintptr(unsafe.Pointer(&idleStack))))
	for _, c := range []struct {
		text string
		insn uint32
		want bool
	}{
		{"nop", 0xd503201f, true},
		{"bti c", 0xd503245f, true},
		{"mov x8, #115", 0xd2800e68, true},
		{"mov w8, #115", 0x52800e68, true},
		{"mov x8, #116", 0xd2800e88, false},
		{"movz x9, #115, lsl #16", 0xd2a00e69, true},
		{"movk x8, #115", 0xf2800e68, false},
		{"mov x0, x1", 0xaa0103e0, true},
		{"mov x0, x2", 0xaa0203e0, false},
		{"mov w0, w2", 0x2a0203e0, true},
		{"mov x2, x0", 0xaa0003e2, false},
		{"ldr x5, [sp, #8]", 0xf94007e5, true},
		{"ldr x5, [sp]", 0xf94003e5, false},
		{"ldr x5, [x0, #8]", 0xf9400405, false},
		{"str x5, [sp, #8]", 0xf90007e5, false},
		{"svc #0", svc, false},
		{"ret", 0xd65f03c0, false},
	} {
		if got := idle(os.Getpid(), c.insn, note); got != c.want {
			t.Errorf("%s: %v, want %v", c.text, got, c.want)
		}
	}
}
