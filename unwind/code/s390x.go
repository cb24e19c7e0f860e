package code

// s390x. "z/Architecture Principles of Operation", chapter 7 and appendix B;
// s390x ELF ABI supplement for the roles of registers. General registers are
// DWARF 0 to 15; floating-point registers, in which leaf functions keep general
// ones, 16 to 31.

import (
	"encoding/binary"

	"sfsample/regs"
)

const (
	s390xRA = 14
	s390xSP = 15
)

// s390xFP are the DWARF numbers of f0 to f15 (ABI supplement, DWARF register
// mapping).
var s390xFP = [16]uint8{16, 20, 17, 21, 18, 22, 19, 23, 24, 28, 25, 29, 26, 30, 27, 31}

func stepS390X(b []byte, pc uint64, s *state) insn {
	if len(b) < 2 {
		return insn{}
	}
	i := insn{size: []int{2, 4, 4, 6}[b[0]>>6]}
	if len(b) < i.size {
		return insn{}
	}
	b = b[:i.size]
	r1, r2 := b[1]>>4, b[1]&15
	short := func() uint64 { return pc + uint64(int64(int16(binary.BigEndian.Uint16(b[2:])))*2) }
	long := func() uint64 { return pc + uint64(int64(int32(binary.BigEndian.Uint32(b[2:])))*2) }
	cond := func(target uint64) {
		switch i.target = target; r1 {
		case 0:
		case 15:
			i.flow = jump
		default:
			i.flow = branch
		}
	}
	counted := func(target uint64) {
		s.regs[r1] = value{}
		i.flow, i.target = branch, target
	}
	switch op := b[0]; {
	case op == 0: // none
		i.flow = stop
	case op == 0x07: // bcr
		s390xBranch(r1, r2, s, &i)
	case op == 0x0d && r2 == 0, op == 0x05 && r2 == 0:
		s.regs[r1] = value{}
	case op == 0x0d, op == 0x05, op == 0x4d, op == 0x45: // basr, balr, bas, bal
		i.flow = call
		s390xCall(s)
	case op == 0x06, op == 0x46, op == 0x86, op == 0x87, op == 0x47: // bctr, bct, bxh, bxle, bc
		i.flow = stop
	case op == 0x0a: // svc
		s.regs[2] = value{}
	case op == 0xa7 && r2 == 4: // brc
		cond(short())
	case op == 0xc0 && r2 == 4: // brcl
		cond(long())
	case op == 0xa7 && r2 == 5 && r1 != s390xRA: // bras over constants
		s.regs[r1] = value{}
		i.flow, i.target = jump, short()
	case op == 0xa7 && r2 == 5, op == 0xc0 && r2 == 5: // bras, brasl
		i.flow = call
		s390xCall(s)
	case op == 0xa7 && r2&14 == 6, op == 0x84, op == 0x85: // brct, brctg, brxh, brxle
		counted(short())
	case op == 0xcc && r2 == 6: // brcth
		counted(long())
	case op == 0xec && (b[5] == 0x44 || b[5] == 0x45): // brxhg, brxlg
		counted(short())
	case op == 0xec && (b[5]&0xee == 0x64 || b[5]&0xfc == 0x7c || b[5]&0xfe == 0x76): // compare and branch
		i.flow, i.target = branch, short()
	case op == 0xec && (b[5]&0xec == 0xe4 || b[5]&0xfc == 0xfc): // to an address in a register
		i.flow = stop
	default:
		s390xEffect(b, s)
	}
	return i
}

func s390xCall(s *state) {
	for r := range uint8(32) {
		if regs.S390X.CalleeSaved>>r&1 == 0 && r != s390xSP {
			s.regs[r] = value{}
		}
	}
}

// s390xBranch: a branch to a register is a return if it is r14, or the register
// was loaded from where the ABI has r14 saved: 112 bytes above the stack pointer
// that the function was entered with, one word below that of r15.
func s390xBranch(mask, r uint8, s *state, i *insn) {
	v, sp := s.regs[r], s.regs[s390xSP]
	saved := v.kind == loaded && (sp.kind == sum && v.reg == sp.reg && v.off-sp.off == 112 ||
		sp.kind == loaded && v.reg == sp.reg && v.off == sp.off-8)
	switch {
	case mask == 0 || r == 0: // nothing, or serialization
	case r != s390xRA && !saved:
		i.flow = stop
	case mask == 15:
		i.flow, i.to = ret, v
	default:
		i.flow, i.to = mayReturn, v
	}
}

// s390xAddress is base plus displacement, with the index register x.
func s390xAddress(s *state, x, base uint8, disp int64) value {
	if x != 0 && base != 0 || x == 0 && base == 0 {
		return value{}
	}
	return s.regs[x|base].plus(disp)
}

// s390xEffect is what an instruction that goes on does to registers and the stack.
func s390xEffect(b []byte, s *state) {
	op, r1, r2 := b[0], b[1]>>4, b[1]&15
	base, disp := uint8(0), int64(0)
	if len(b) > 2 {
		base, disp = b[2]>>4, int64(b[2]&15)<<8|int64(b[3])
	}
	if len(b) == 6 && (op == 0xe3 || op == 0xeb || op == 0xed && (b[5] == 0x65 || b[5] == 0x67)) {
		disp |= int64(int8(b[4])) << 12 // 20 bits, signed
	}
	switch {
	case op == 0xa7 && r2 == 0xb: // aghi
		s.regs[r1] = s.regs[r1].plus(int64(int16(binary.BigEndian.Uint16(b[2:]))))
	case op == 0xc2 && (r2 == 8 || r2 == 10): // agfi, algfi
		s.regs[r1] = s.regs[r1].plus(int64(int32(binary.BigEndian.Uint32(b[2:]))))
	case op == 0xc2 && r2 == 4: // slgfi
		s.regs[r1] = s.regs[r1].plus(-int64(binary.BigEndian.Uint32(b[2:])))
	case op == 0x41, op == 0xe3 && b[5] == 0x71: // la, lay
		s.regs[r1] = s390xAddress(s, r2, base, disp)
	case op == 0xb9 && b[1] == 0x04: // lgr
		s.regs[b[3]>>4] = s.regs[b[3]&15]
	case op == 0xb3 && b[1] == 0xc1: // ldgr
		s.regs[s390xFP[b[3]>>4]] = s.regs[b[3]&15]
	case op == 0xb3 && b[1] == 0xcd: // lgdr
		s.regs[b[3]>>4] = s.regs[s390xFP[b[3]&15]]
	case op == 0xe3 && b[5] == 0x04: // lg
		s.regs[r1] = s.load(s390xAddress(s, r2, base, disp), 8)
	case op == 0xe3 && b[5] == 0x24: // stg
		s.store(s390xAddress(s, r2, base, disp), s.regs[r1], 8)
	case op == 0x68, op == 0xed && b[5] == 0x65: // ld, ldy
		s.regs[s390xFP[r1]] = s.load(s390xAddress(s, r2, base, disp), 8)
	case op == 0x60, op == 0xed && b[5] == 0x67: // std, stdy
		s.store(s390xAddress(s, r2, base, disp), s.regs[s390xFP[r1]], 8)
	case op == 0xeb && (b[5] == 0x04 || b[5] == 0x24): // lmg, stmg
		s390xMultiple(s, r1, r2, s390xAddress(s, 0, base, disp), b[5] == 0x04)
	default:
		s390xOther(b, s, base, disp)
	}
}

// s390xMultiple loads or stores the registers first to last, from at on.
func s390xMultiple(s *state, first, last uint8, at value, isLoad bool) {
	n := (last-first)&15 + 1
	old := *s
	for k := range n {
		r := (first + k) & 15
		if isLoad {
			s.regs[r] = old.load(at.plus(int64(k)*8), 8)
		} else {
			s.store(at.plus(int64(k)*8), s.regs[r], 8)
		}
	}
}

// s390xOther forgets what any other instruction may write. The operands of most
// are where two or four formats have them; one that is none loses what could be
// known.
func s390xOther(b []byte, s *state, base uint8, disp int64) {
	op, r1, r2 := b[0], b[1]>>4, b[1]&15
	at := s390xAddress(s, 0, base, disp)
	forget := func(list ...uint8) {
		for _, r := range list {
			s.regs[r&15], s.regs[s390xFP[r&15]] = value{}, value{}
		}
	}
	last := b[len(b)-1]
	switch {
	case op >= 0x91 && op <= 0x97, op == 0xe5: // storage and an immediate
		s.spoil(at, 8, 8)
	case op >= 0xd0 && op <= 0xdf: // storage to storage
		s.spoil(at, int64(b[1])+1, 8)
	case op == 0x50, op == 0x40, op == 0x42, op == 0x70, op == 0x90, // st, sth, stc, ste, stm
		op == 0xe3 && (last == 0x50 || last == 0x70 || last == 0x72 || last == 0x2f || last == 0x3e || last == 0x3f),
		op == 0xeb && (last == 0x90 || last == 0x26 || last == 0x2c || last == 0x52 || last == 0x6a || last == 0x7a):
		s.spoil(s390xAddress(s, r2, base, disp), 64, 8)
	case op == 0x15, op == 0x19, op == 0x55, op == 0x59, op == 0x95, // compares
		op == 0xb9 && (b[1] == 0x20 || b[1] == 0x21 || b[1] == 0x30 || b[1] == 0x31),
		op == 0xa7 && (r2 < 4 || r2 >= 14), op == 0xc2 && r2 >= 12, op == 0xc6 && r2 >= 4,
		op == 0xe3 && (last == 0x20 || last == 0x21 || last == 0x30 || last == 0x31 || last == 0x34 || last == 0x55 || last == 0x59 || last == 0x79 || last == 0x36),
		op == 0xb2 && b[1] == 0x4f: // ear: see below
		if op == 0xb2 {
			forget(b[3] >> 4)
		}
	case op == 0xc4 && r2&8 != 0, op == 0xc4 && r2 == 7: // loads relative, stores
		if r2 != 7 && r2 != 11 && r2 != 15 {
			forget(r1)
		}
	case op == 0xb2, op == 0xb3, op == 0xb9:
		// Two registers in the last byte; pairs, and a third in the byte before.
		forget(b[3]>>4, b[3]>>4+1, b[2]>>4)
		if op == 0xb9 || op == 0xb2 {
			forget(b[3]&15, b[3]&15+1)
		}
	case op == 0xe7: // vectors, of which the first 16 hold the floating-point registers
		s.regs[s390xFP[r1]] = value{}
		if last == 0x21 || last == 0x2d { // vlgv
			s.regs[r1] = value{}
		}
		s.spoil(s390xAddress(s, r2, base, disp), 64, 8)
	default:
		forget(r1, r1+1)
		if op == 0xeb || op == 0x0e || op == 0x0f || op >= 0x88 && op <= 0xaf && op != 0xa7 && op != 0xa5 {
			forget(r2, r2+1)
		}
	}
}

// coldS390X: what follows a call that does not return is padding (bcr 0 and zero
// bytes), or how a function begins: by saving registers where its caller has
// left room for it.
func coldS390X(b []byte, pc uint64) bool {
	if len(b) < 2 {
		return false
	}
	return b[0] == 0x07 && b[1]>>4 == 0 || b[0] == 0 ||
		len(b) >= 6 && b[0] == 0xeb && b[5] == 0x24 && b[1]&15 == s390xSP && b[2]>>4 == s390xSP
}
