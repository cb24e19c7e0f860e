package unwind

import (
	"bytes"
	"testing"

	"sfsample/regs"
)

func TestExpressions(t *testing.T) {
	for _, tt := range []struct {
		name string
		code []byte
		want uint64
		err  Reason
	}{
		{"literals", []byte{0x30, 0x4f, 0x22}, 31, 0},
		{"const1u", []byte{0x08, 0xff}, 0xff, 0},
		{"const1s", []byte{0x09, 0xff}, ^uint64(0), 0},
		{"const2u", []byte{0x0a, 0x34, 0x12}, 0x1234, 0},
		{"const2s", []byte{0x0b, 0xfe, 0xff}, ^uint64(1), 0},
		{"const4u", []byte{0x0c, 0xff, 0xff, 0xff, 0xff}, 0xffffffff, 0},
		{"const4s", []byte{0x0d, 0xff, 0xff, 0xff, 0xff}, ^uint64(0), 0},
		{"const8u", []byte{0x0e, 1, 2, 3, 4, 5, 6, 7, 8}, 0x0807060504030201, 0},
		{"addr", []byte{0x03, 1, 2, 3, 4, 5, 6, 7, 8}, 0x0807060504030201, 0},
		{"constu", []byte{0x10, 0xe5, 0x8e, 0x26}, 624485, 0}, // DWARF 5 table 7.7
		{"consts", []byte{0x11, 0x80, 0x7f}, ^uint64(127), 0}, // -128, DWARF 5 table 7.8
		{"leb of ten bytes", []byte{0x11, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f}, 1 << 63, 0},
		{"leb padded", []byte{0x10, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0}, 1, 0},
		{"leb of 65 bits", []byte{0x10, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2}, 0, BadRule},
		{"bregx of 65 bits", []byte{0x92, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2}, 0, BadRule},
		{"leb cut off", []byte{0x10, 0x80}, 0, BadRule},
		{"operand cut off", []byte{0x0c, 1, 2}, 0, BadRule},
		{"breg", []byte{0x77, 0x78}, sp - 8, 0},  // rsp-8
		{"bregx", []byte{0x92, 7, 8}, sp + 8, 0}, // rsp+8
		{"first breg", []byte{0x70, 4}, 9, 0},    // rax+4
		{"last breg", []byte{0x8f, 4}, 10, 0},
		{"bregx, the last", []byte{0x92, 31, 4}, 10, 0},
		{"bregx out of range by one", []byte{0x92, 32, 4}, 0, BadRule},
		{"deref_size 8", []byte{0x77, 8, 0x94, 8}, 0x1122334455667788, 0},
		{"const8s", []byte{0x0f, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, ^uint64(1), 0},
		{"abs of what is positive", []byte{0x37, 0x19}, 7, 0},
		{"over too deep", []byte{0x33, 0x14}, 0, BadRule},
		{"breg of the pc", []byte{0x80, 4}, 0x401004, 0},             // rip+4
		{"breg unknown", []byte{0x73, 0}, 0, UnknownRegister},        // rbx
		{"bregx out of range", []byte{0x92, 0x80, 2, 0}, 0, BadRule}, // register 256
		{"deref", []byte{0x77, 8, 0x06}, 0x1122334455667788, 0},
		{"deref_size 1", []byte{0x77, 8, 0x94, 1}, 0x88, 0},
		{"deref_size 4", []byte{0x77, 8, 0x94, 4}, 0x55667788, 0},
		{"deref_size 9", []byte{0x77, 8, 0x94, 9}, 0, BadRule},
		{"deref_size 0", []byte{0x77, 8, 0x94, 0}, 0, BadRule},
		{"deref outside", []byte{0x30, 0x06}, 0, OutsideCopy},
		{"dup", []byte{0x33, 0x12, 0x22}, 6, 0},
		{"drop", []byte{0x33, 0x34, 0x13}, 3, 0},
		{"over", []byte{0x33, 0x34, 0x14}, 3, 0},
		{"pick 2", []byte{0x33, 0x34, 0x35, 0x15, 2}, 3, 0},
		{"pick too deep", []byte{0x33, 0x15, 1}, 0, BadRule},
		{"swap", []byte{0x33, 0x35, 0x16, 0x1c}, 2, 0},                     // 5-3
		{"rot brings the second up", []byte{0x33, 0x34, 0x35, 0x17}, 4, 0}, // 3 4 5 -> 5 3 4
		{"rot puts the top third", []byte{0x33, 0x34, 0x35, 0x17, 0x13, 0x13}, 5, 0},
		{"abs", []byte{0x09, 0xf9, 0x19}, 7, 0},
		{"neg", []byte{0x37, 0x1f}, ^uint64(6), 0},
		{"not", []byte{0x30, 0x20}, ^uint64(0), 0},
		{"plus_uconst", []byte{0x31, 0x23, 0x80, 1}, 129, 0},
		{"minus", []byte{0x33, 0x35, 0x1c}, ^uint64(1), 0},
		{"mul", []byte{0x33, 0x35, 0x1e}, 15, 0},
		{"div is signed", []byte{0x09, 0xf9, 0x32, 0x1b}, ^uint64(2), 0}, // -7/2 = -3
		{"div by 0", []byte{0x35, 0x31, 0x30, 0x1b}, 0, BadRule},
		{"mod is unsigned", []byte{0x09, 0xff, 0x3a, 0x1d}, 5, 0}, // (2^64-1) mod 10
		{"mod by 0", []byte{0x35, 0x31, 0x30, 0x1d}, 0, BadRule},
		{"and or xor", []byte{0x3c, 0x3a, 0x1a, 0x31, 0x21, 0x3f, 0x27}, 6, 0}, // ((12&10)|1)^15
		{"shl", []byte{0x31, 0x43, 0x24}, 1 << 19, 0},
		{"shl by 64", []byte{0x31, 0x08, 64, 0x24}, 0, 0},
		{"shr is logical", []byte{0x09, 0x80, 0x08, 60, 0x25}, 15, 0},
		{"shra keeps the sign", []byte{0x09, 0x80, 0x33, 0x26}, ^uint64(15), 0},
		{"eq", []byte{0x33, 0x33, 0x29}, 1, 0},
		{"ne", []byte{0x33, 0x33, 0x2e}, 0, 0},
		{"lt is signed", []byte{0x09, 0xff, 0x31, 0x2d}, 1, 0},
		{"gt is signed", []byte{0x09, 0xff, 0x31, 0x2b}, 0, 0},
		{"lt of the same", []byte{0x33, 0x33, 0x2d}, 0, 0},
		{"gt", []byte{0x34, 0x33, 0x2b}, 1, 0},
		{"gt of the same", []byte{0x33, 0x33, 0x2b}, 0, 0},
		{"le", []byte{0x31, 0x32, 0x2c}, 1, 0},
		{"le of the same", []byte{0x31, 0x31, 0x2c}, 1, 0},
		{"le not", []byte{0x32, 0x31, 0x2c}, 0, 0},
		{"ge", []byte{0x32, 0x31, 0x2a}, 1, 0},
		{"ge of the same", []byte{0x31, 0x31, 0x2a}, 1, 0},
		{"ge not", []byte{0x31, 0x32, 0x2a}, 0, 0},
		{"eq not", []byte{0x33, 0x34, 0x29}, 0, 0},
		{"ne", []byte{0x33, 0x34, 0x2e}, 1, 0},
		{"skip", []byte{0x31, 0x2f, 1, 0, 0x32, 0x33, 0x22}, 4, 0}, // 1, skip lit2, 3, plus
		{"bra taken", []byte{0x31, 0x31, 0x28, 1, 0, 0x32, 0x12, 0x22}, 2, 0},
		{"bra not taken", []byte{0x31, 0x30, 0x28, 1, 0, 0x32, 0x22}, 3, 0},
		{"jump to the end", []byte{0x31, 0x2f, 1, 0, 0x32}, 1, 0},
		{"bra over the end, not taken", []byte{0x31, 0x30, 0x28, 1, 0}, 1, 0},
		{"jump out", []byte{0x31, 0x2f, 1, 0}, 0, BadRule},
		{"jump before the start", []byte{0x31, 0x2f, 0xf0, 0xff}, 0, BadRule},
		{"endless", []byte{0x2f, 0xfd, 0xff}, 0, BadRule},
		{"nop", []byte{0x96, 0x31, 0x96}, 1, 0},
		{"empty", nil, 0, BadRule},
		{"underflow", []byte{0x31, 0x22}, 0, BadRule},
		{"as deep as may be", bytes.Repeat([]byte{0x31}, 32), 1, 0},
		{"too deep", bytes.Repeat([]byte{0x31}, 33), 0, BadRule},
		{"as long as may be", append(bytes.Repeat([]byte{0x96}, 1022), 0x31), 1, 0},
		{"too long", append(bytes.Repeat([]byte{0x96}, 1023), 0x31), 0, BadRule},
		{"overflow", []byte{0x31, 0x12, 0x2f, 0xfc, 0xff}, 0, BadRule}, // dup for ever
		{"xderef", []byte{0x31, 0x31, 0x18}, 0, BadRule},
		{"call_frame_cfa", []byte{0x9c}, 0, BadRule},
		{"unknown operation", []byte{0xff}, 0, BadRule},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := machine{arch: regs.AMD64, set: set(0x401000, 7, sp, 0, 5, 31, 6), code: tt.code}
			got, err := m.run(words(regs.AMD64, sp, 1, 0x1122334455667788))
			if got != tt.want || err != tt.err {
				t.Errorf("% x = %#x, %v; want %#x, %v", tt.code, got, err, tt.want, tt.err)
			}
		})
	}
}

// TestExpressionJumpsToItsStart: 3, counted down to 0, behind which is 5.
func TestExpressionJumpsToItsStart(t *testing.T) {
	m := machine{arch: regs.AMD64, code: []byte{0x31, 0x1c, 0x12, 0x28, 0xfa, 0xff, 0x35}} // lit1; minus; dup; bra to the start; lit5
	m.push(3)
	if v, r := m.run(nil); v != 5 || r != 0 || m.depth != 1 || m.stack[0] != 0 {
		t.Errorf("%d, %v, above %d of %d", v, r, m.stack[0], m.depth)
	}
}

// TestExpressionsByArchitecture: byte order and width.
func TestExpressionsByArchitecture(t *testing.T) {
	for _, tt := range []struct {
		name string
		arch *regs.Arch
		code []byte
		want uint64
	}{
		{"s390x constants are big-endian", regs.S390X, []byte{0x0a, 0x12, 0x34}, 0x1234},
		{"s390x loads are big-endian", regs.S390X, []byte{0x7f, 8, 0x94, 2}, 0x1122},
		{"386 wraps", regs.I386, []byte{0x0c, 0xff, 0xff, 0xff, 0xff, 0x31, 0x22}, 0},
		{"386 compares 32 bits", regs.I386, []byte{0x0c, 0xff, 0xff, 0xff, 0xff, 0x31, 0x2d}, 1},
		{"386 shifts 32 bits", regs.I386, []byte{0x0c, 0, 0, 0, 0x80, 0x4f, 0x25}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := machine{arch: tt.arch, set: set(0x401000, uint64(tt.arch.SP), sp), code: tt.code}
			got, err := m.run(words(tt.arch, sp, 1, 0x1122334455667788))
			if got != tt.want || err != 0 {
				t.Errorf("% x = %#x, %v; want %#x", tt.code, got, err, tt.want)
			}
		})
	}
}
