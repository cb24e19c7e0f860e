package code

// arm64. "Arm Architecture Reference Manual for A-profile", C4.1: the encoding
// index. Instructions are little-endian words. DWARF numbers are the registers'
// own, and 31 is the stack pointer; in most encodings 31 is the zero register.

import (
	"encoding/binary"

	"sfsample/regs"
)

const arm64SP = 31

// arm64Imm is the signed field of width bits from bit low on.
func arm64Imm(w uint32, low, width int) int64 {
	return int64(w) << (64 - low - width) >> (64 - width)
}

func stepARM64(b []byte, pc uint64, s *state) insn {
	if len(b) < 4 {
		return insn{}
	}
	w := binary.LittleEndian.Uint32(b)
	i := insn{size: 4}
	to := func(low, width int) uint64 { return pc + uint64(arm64Imm(w, low, width)*4) }
	switch {
	case w>>26 == 0x05: // b
		i.flow, i.target = jump, to(0, 26)
	case w>>26 == 0x25: // bl
		i.flow = call
		arm64Call(s)
	case w>>24 == 0x54, w>>25&0x3f == 0x1a: // b.cond, bc.cond; cbz, cbnz
		i.flow, i.target = branch, to(5, 19)
	case w>>25&0x3f == 0x1b: // tbz, tbnz
		i.flow, i.target = branch, to(5, 14)
	case w>>25 == 0x6b: // branches to a register
		arm64Register(w, s, &i)
	case w>>24 == 0xd4: // exceptions
		if w&0xffe0001f != 0xd4000001 { // svc
			i.flow = stop
		}
		s.regs[0] = value{}
	case w>>16 == 0: // udf
		i.flow = stop
	default:
		arm64Effect(w, s)
	}
	return i
}

func arm64Call(s *state) {
	for r := range uint8(31) {
		if regs.ARM64.CalleeSaved>>r&1 == 0 {
			s.regs[r] = value{}
		}
	}
}

// arm64Register: ret and blr, with or without authentication; br leads nobody
// knows where.
func arm64Register(w uint32, s *state, i *insn) {
	switch w >> 21 & 15 {
	case 2: // ret, retaa, retab
		i.flow, i.to = ret, s.regs[w>>5&31]
		if w>>10&3 != 0 {
			i.to = s.regs[30]
		}
	case 1, 9: // blr, blraa
		i.flow = call
		arm64Call(s)
	default:
		i.flow = stop
	}
}

// arm64Effect is what an instruction that goes on does to registers and the stack.
func arm64Effect(w uint32, s *state) {
	rd, rn := uint8(w&31), uint8(w>>5&31)
	set := func(r uint8, v value) {
		if r != arm64SP { // else the zero register
			s.regs[r] = v
		}
	}
	switch {
	case w>>24&0x1f == 0x11: // add, sub immediate
		imm := int64(w >> 10 & 0xfff)
		if w>>22&1 != 0 {
			imm <<= 12
		}
		if w>>30&1 != 0 {
			imm = -imm
		}
		v := s.regs[rn].plus(imm)
		if w>>31 == 0 {
			v = value{}
		}
		if w>>29&1 == 0 || rd != arm64SP { // with flags, 31 is no register
			s.regs[rd] = v
		}
	case w&0xffe0ffe0 == 0xaa0003e0: // mov Xd, Xm
		v := value{}
		if rm := uint8(w >> 16 & 31); rm != arm64SP {
			v = s.regs[rm]
		}
		set(rd, v)
	case w&0x3a000000 == 0x28000000:
		arm64Pair(w, s)
	case w&0x3a000000 == 0x38000000:
		arm64Single(w, s)
	case w&0x0a000000 == 0x08000000: // other loads and stores: exclusive, ordered, literals, structures, tags
		arm64OtherMemory(w, s)
	case w>>22 == 0x354: // system: hints, barriers, mrs
		if w>>20&3 == 3 {
			set(rd, value{})
		}
	case w>>25&15 == 0x7, w>>25&15 == 0xf: // vectors; those that write a general register
		if w&0x5f200c00 == 0x1e200000 || w&0xbfe0dc00 == 0x0e000c00 {
			set(rd, value{})
		}
	case w>>23&0x3f == 0x24 && w>>29&3 != 3, w&0x1fe00000 == 0x0b200000 && w>>29&1 == 0, w>>25&15 == 2:
		// Logical immediate, add and sub of an extended register, SVE: 31 may
		// be the stack pointer.
		s.regs[rd] = value{}
	default:
		set(rd, value{})
	}
}

// arm64Pair: load and store of two registers.
func arm64Pair(w uint32, s *state) {
	opc, vector, mode, isLoad := w>>30, w>>26&1 != 0, w>>23&3, w>>22&1 != 0
	size := int64(4) << opc
	if !vector {
		size = 4
		if opc == 2 {
			size = 8
		}
	}
	base := uint8(w >> 5 & 31)
	imm := arm64Imm(w, 15, 7) * size
	at := s.regs[base]
	if mode != 1 { // else the base is changed behind it
		at = at.plus(imm)
	}
	for k, r := range []uint8{uint8(w & 31), uint8(w >> 10 & 31)} {
		arm64Move(s, r, at.plus(int64(k)*size), size, vector, isLoad)
	}
	if mode == 1 || mode == 3 {
		s.regs[base] = s.regs[base].plus(imm)
	}
}

// arm64Move loads or stores one register.
func arm64Move(s *state, r uint8, at value, size int64, vector, isLoad bool) {
	switch {
	case isLoad && vector, isLoad && r == arm64SP:
	case isLoad && size == 8:
		s.regs[r] = s.load(at, 8)
	case isLoad:
		s.regs[r] = value{}
	case vector || size != 8 || r == arm64SP:
		s.spoil(at, size, 8)
	default:
		s.store(at, s.regs[r], 8)
	}
}

// arm64Single: load and store of one register.
func arm64Single(w uint32, s *state) {
	vector, opc := w>>26&1 != 0, w>>22&3
	size := int64(1) << (w >> 30)
	isLoad := opc != 0
	if vector {
		isLoad = opc&1 != 0
		if opc >= 2 {
			size = 16
		}
	}
	r, base := uint8(w&31), uint8(w>>5&31)
	if size == 8 && opc >= 2 && !vector { // prefetch
		return
	}
	width := size
	if opc >= 2 && !vector {
		width = 4 // signed: no word of the stack
	}
	switch {
	case w>>24&1 != 0: // scaled
		arm64Move(s, r, s.regs[base].plus(int64(w>>10&0xfff)*size), width, vector, isLoad)
	case w>>21&1 != 0: // register offset, atomics
		arm64Move(s, r, value{}, width, vector, isLoad || w>>10&3 == 0)
	default:
		imm := arm64Imm(w, 12, 9)
		at := s.regs[base]
		if w>>10&3 != 1 {
			at = at.plus(imm)
		}
		arm64Move(s, r, at, width, vector, isLoad)
		if w>>10&1 != 0 { // before or behind, the base is changed
			s.regs[base] = s.regs[base].plus(imm)
		}
	}
}

// arm64OtherMemory forgets all registers that such an instruction may write.
func arm64OtherMemory(w uint32, s *state) {
	base := uint8(w >> 5 & 31)
	if w&0xbe000000 == 0x0c000000 { // structures of vectors
		s.spoil(s.regs[base], 64, 8)
		if w>>23&1 != 0 {
			s.regs[base] = value{}
		}
		return
	}
	list := []uint8{uint8(w & 31), uint8(w >> 10 & 31), uint8(w >> 16 & 31)}
	switch w >> 24 & 0x3f {
	case 0x18, 0x1c, 0x19, 0x1d: // literal; ordered with an offset, tags
		list = list[:1]
		if w>>24&0x3f == 0x19 && w>>10&1 != 0 {
			list = append(list, base)
			if base == arm64SP {
				s.regs[base] = value{}
			}
		}
	}
	s.spoil(s.regs[base], 16, 8)
	for _, r := range list {
		if r != arm64SP {
			s.regs[r] = value{}
		}
	}
}

// coldARM64: what follows a call that does not return is padding up to a multiple
// of 16, or how a function begins where control flow is protected.
func coldARM64(b []byte, pc uint64) bool {
	const nop, btiC, paciasp, pacibsp = 0xd503201f, 0xd503245f, 0xd503233f, 0xd503237f
	for size := 0; len(b) >= size+4; size += 4 {
		w := binary.LittleEndian.Uint32(b[size:])
		switch {
		case w == btiC || w == paciasp || w == pacibsp || w>>16 == 0:
			return true
		case size > 0 && (pc+uint64(size))%16 == 0:
			return true
		case w != nop:
			return false
		}
	}
	return false
}
