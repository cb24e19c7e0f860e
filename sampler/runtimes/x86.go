package runtimes

import "encoding/binary"

// x86Insn is an instruction of x86-64 (Intel SDM volume 2, chapter 2 and appendix A).
type x86Insn struct {
	size  int
	op    int // opcode, from 0x0f00 on that of the second map; vectorOp: one with a VEX or EVEX prefix, none of which moves the stack pointer
	rex   byte
	modRM byte // if it has one
	plain bool // the operand in memory is the stack pointer plus disp
	disp  int64
	imm   int64 // the last up to four bytes of an immediate operand, or a distance
}

const vectorOp = 0x10000

// Bits of a REX prefix.
const (
	rexB = 1
	rexX = 2
	rexR = 4
	rexW = 8
)

// reg and rm are the registers that the ModRM byte names.
func (x *x86Insn) reg() byte { return x.modRM>>3&7 | x.rex&rexR<<1 }
func (x *x86Insn) rm() byte  { return x.modRM&7 | x.rex&rexB<<3 }

// digit is what extends the opcode.
func (x *x86Insn) digit() byte { return x.modRM >> 3 & 7 }

// direct: the operand named by rm is a register.
func (x *x86Insn) direct() bool { return x.modRM>>6 == 3 }

// nop: it does nothing.
func (x *x86Insn) nop() bool { return x.op == 0x90 || x.op == 0x0f1f }

// x86Operands tells of an opcode of the first two maps whether a ModRM byte follows and how long the immediate operand is; immZ: 4 bytes, 2 with a
// prefix. ok is false if there is no such instruction in 64-bit mode, or user code has none.
func x86Operands(op int) (modRM bool, imm int, ok bool) {
	switch {
	case op < 0x40:
		imm = []int{0, 0, 0, 0, 1, immZ}[min(op&7, 5)]
		return op&7 < 4, imm, op&7 < 6
	case op < 0x60, op >= 0x6c && op < 0x70, op >= 0x90 && op < 0xa0 && op != 0x9a, op >= 0xa4 && op < 0xa8, op >= 0xaa && op < 0xb0:
		return false, 0, true
	case op == 0x63, op >= 0x84 && op < 0x90, op >= 0xd0 && op < 0xd4, op >= 0xd8 && op < 0xe0, op == 0xfe, op == 0xff, op == 0xf6, op == 0xf7:
		return true, 0, true
	case op == 0x68, op == 0xa9:
		return false, immZ, true
	case op == 0x69, op == 0x81, op == 0xc7:
		return true, immZ, true
	case op == 0x6b, op == 0x80, op == 0x83, op == 0xc0, op == 0xc1, op == 0xc6:
		return true, 1, true
	case op == 0x6a, op >= 0x70 && op < 0x80, op == 0xa8, op >= 0xb0 && op < 0xb8, op == 0xcd, op >= 0xe0 && op < 0xe4, op == 0xeb:
		return false, 1, true
	case op >= 0xb8 && op < 0xc0:
		return false, immZ, true // 8 bytes with REX.W
	case op == 0xc2:
		return false, 2, true
	case op == 0xe8, op == 0xe9, op >= 0x0f80 && op < 0x0f90:
		return false, 4, true
	case op == 0xc3, op == 0xc9, op == 0xcc, op == 0xf4, op >= 0xf8 && op < 0xfe, op == 0x0f05, op == 0x0f0b, op == 0x0f31, op == 0x0f77, op == 0x0fa2, op >= 0x0fc8 && op < 0x0fd0:
		return false, 0, true
	case op >= 0x0f70 && op < 0x0f74, op == 0x0fa4, op == 0x0fac, op == 0x0fba, op == 0x0fc2, op >= 0x0fc4 && op < 0x0fc7:
		return true, 1, true
	case op == 0x0f01, op == 0x0f0d, op >= 0x0f10 && op < 0x0f20, op >= 0x0f28 && op < 0x0f30, op >= 0x0f40 && op < 0x0f80, op >= 0x0f90 && op < 0x0fa0, op == 0x0fa3, op == 0x0fa5, op == 0x0fab,
		op >= 0x0fad && op < 0x0fc2, op == 0x0fc3, op == 0x0fc7, op >= 0x0fd0:
		return true, 0, true
	}
	return false, 0, false
}

const immZ = -1

// decodeX86 decodes the instruction that b begins with. Its size is 0 if that is not known.
func decodeX86(b []byte) (x x86Insn) {
	i, short := 0, false
	for ; i < len(b) && i < 14; i++ {
		if c := b[i]; c == 0x66 {
			short = true
		} else if c != 0xf2 && c != 0xf3 && c != 0xf0 && c != 0x64 && c != 0x65 && c != 0x2e && c != 0x36 && c != 0x3e && c != 0x26 && c != 0x67 {
			break
		}
	}
	if i < len(b) && b[i]>>4 == 4 {
		x.rex = b[i]
		i++
	}
	at := func(i int) byte {
		if i < len(b) {
			return b[i]
		}
		return 0
	}
	modRM, imm, ok := true, 0, true
	space := 1 // of a vector instruction: the map that its opcode is in
	switch x.op = int(at(i)); x.op {
	case 0xc5:
		x.op, i = vectorOp|int(at(i+2)), i+3
	case 0xc4:
		space, x.op, i = int(at(i+1)&31), vectorOp|int(at(i+3)), i+4
	case 0x62:
		space, x.op, i = int(at(i+1)&7), vectorOp|int(at(i+4)), i+5
	case 0x0f:
		switch at(i + 1) {
		case 0x38:
			x.op, i = 0x0f38, i+3
		case 0x3a:
			x.op, i, imm = 0x0f3a, i+3, 1
		default:
			x.op, i = 0x0f00|int(at(i+1)), i+2
			modRM, imm, ok = x86Operands(x.op)
		}
	default:
		i++
		modRM, imm, ok = x86Operands(x.op)
	}
	if x.op >= vectorOp {
		op := x.op & 0xff
		modRM = space != 1 || op != 0x77 // vzeroupper
		if space == 3 || space == 1 && (op >= 0x70 && op < 0x74 || op == 0xc2 || op >= 0xc4 && op < 0xc7) {
			imm = 1
		}
		ok = space >= 1 && space <= 6
	}
	if !ok {
		return x86Insn{}
	}
	if modRM {
		x.modRM = at(i)
		base := x.modRM & 7
		mod := x.modRM >> 6
		i++
		if mod != 3 && base == 4 {
			x.plain = at(i) == 0x24 && x.rex&(rexB|rexX) == 0
			base = at(i) & 7
			i++
		}
		switch {
		case mod == 1:
			x.disp = int64(int8(at(i)))
			i++
		case mod == 2, mod == 0 && base == 5:
			if i+4 <= len(b) {
				x.disp = int64(int32(binary.LittleEndian.Uint32(b[i:])))
			}
			i += 4
		}
		if x.op == 0xf6 && x.digit() < 2 {
			imm = 1
		} else if x.op == 0xf7 && x.digit() < 2 {
			imm = immZ
		}
	}
	switch {
	case x.op >= 0xb8 && x.op < 0xc0 && x.rex&rexW != 0:
		imm = 8
	case imm == immZ && short && x.rex&rexW == 0:
		imm = 2
	case imm == immZ:
		imm = 4
	}
	if x.size = i + imm; x.size > len(b) || x.size > 15 {
		return x86Insn{}
	}
	switch imm {
	case 1:
		x.imm = int64(int8(b[i]))
	case 2:
		x.imm = int64(int16(binary.LittleEndian.Uint16(b[i:])))
	case 4:
		x.imm = int64(int32(binary.LittleEndian.Uint32(b[i:])))
	}
	return x
}
