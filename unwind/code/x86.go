package code

// x86-64 and i386. Intel SDM volume 2; chapters 2.3 (VEX) and 2.7 (EVEX) for
// what the decoder does not know.

import (
	"bytes"

	"golang.org/x/arch/x86/x86asm"

	"sfsample/regs"
)

// x86Numbers are the DWARF numbers of the general registers in the order of
// their encoding, which is the DWARF order on i386.
var x86Numbers = [16]uint8{0, 2, 1, 3, 7, 6, 4, 5, 8, 9, 10, 11, 12, 13, 14, 15}

// x86 follows the instructions of x86-64 or i386.
type x86 struct {
	arch *regs.Arch
	wide bool // 64-bit
}

// reg returns the DWARF number of the general register that r is or is part
// of, and whether it is the whole of it.
func (m *x86) reg(r x86asm.Reg) (n uint8, whole, ok bool) {
	var i x86asm.Reg
	switch {
	case x86asm.AL <= r && r <= x86asm.BL:
		i = r - x86asm.AL
	case x86asm.AH <= r && r <= x86asm.BH:
		i = r - x86asm.AH
	case x86asm.SPB <= r && r <= x86asm.R15B:
		i = r - x86asm.SPB + 4
	case x86asm.AX <= r && r <= x86asm.R15W:
		i = r - x86asm.AX
	case x86asm.EAX <= r && r <= x86asm.R15L:
		i, whole = r-x86asm.EAX, !m.wide
	case x86asm.RAX <= r && r <= x86asm.R15:
		i, whole = r-x86asm.RAX, true
	default:
		return 0, false, false
	}
	if m.wide {
		return x86Numbers[i], whole, true
	}
	return uint8(i), whole, i < 8
}

// word is the size of a word of the stack, in bytes.
func (m *x86) word() int64 { return int64(m.arch.WordBytes) }

// address is the address of a memory operand.
func (m *x86) address(s *state, mem x86asm.Mem) value {
	if mem.Index != 0 || mem.Segment == x86asm.FS || mem.Segment == x86asm.GS {
		return value{}
	}
	r, whole, ok := m.reg(mem.Base)
	if !ok || !whole {
		return value{}
	}
	return s.regs[r].plus(int64(int32(mem.Disp)))
}

// get is the value of an operand.
func (m *x86) get(s *state, arg x86asm.Arg, bytes int) value {
	switch arg := arg.(type) {
	case x86asm.Reg:
		if r, whole, ok := m.reg(arg); ok && whole {
			return s.regs[r]
		}
	case x86asm.Mem:
		if bytes == m.arch.WordBytes {
			return s.load(m.address(s, arg), m.word())
		}
	}
	return value{}
}

// set gives an operand a value. bytes is the size of one in memory.
func (m *x86) set(s *state, arg x86asm.Arg, v value, bytes int) {
	switch arg := arg.(type) {
	case x86asm.Reg:
		if r, whole, ok := m.reg(arg); ok {
			if !whole {
				v = value{}
			}
			s.regs[r] = v
		}
	case x86asm.Mem:
		at := m.address(s, arg)
		if bytes == m.arch.WordBytes {
			s.store(at, v, m.word())
			return
		}
		if bytes == 0 {
			bytes = 64 // the largest register
		}
		s.spoil(at, int64(bytes), m.word())
	}
}

// push and pop move the stack pointer by a word.
func (m *x86) push(s *state, v value) {
	sp := m.arch.SP
	s.regs[sp] = s.regs[sp].plus(-m.word())
	s.store(s.regs[sp], v, m.word())
}

func (m *x86) pop(s *state) value {
	sp := m.arch.SP
	v := s.load(s.regs[sp], m.word())
	s.regs[sp] = s.regs[sp].plus(m.word())
	return v
}

// clobber forgets the registers that a called function need not keep.
func (m *x86) clobber(s *state) {
	for r := range uint8(16) {
		if m.arch.CalleeSaved>>r&1 == 0 && r != m.arch.SP {
			s.regs[r] = value{}
		}
	}
}

func (m *x86) step(b []byte, pc uint64, s *state) insn {
	mode := 32
	if m.wide {
		mode = 64
	}
	if n, f, ok := m.odd(b, s); ok {
		return insn{size: n, flow: f}
	}
	in, err := x86asm.Decode(b[:min(len(b), 15)], mode)
	if err != nil || in.Len == 0 {
		return insn{}
	}
	i := insn{size: in.Len}
	after := pc + uint64(in.Len)
	relative := func() (uint64, bool) {
		rel, ok := in.Args[0].(x86asm.Rel)
		to := after + uint64(int64(rel))
		if !m.wide {
			to = uint64(uint32(to))
		}
		return to, ok
	}
	switch in.Op {
	case x86asm.RET:
		i.flow = ret
		if imm, ok := in.Args[0].(x86asm.Imm); ok {
			i.pops = int32(uint16(imm))
		}
		i.to = s.load(s.regs[m.arch.SP], m.word())
		return i
	case x86asm.CALL:
		return m.call(s, i, after, relative)
	case x86asm.JMP:
		to, ok := relative()
		if v := m.get(s, in.Args[0], 0); v.kind == fixed && !ok {
			to, ok = uint64(v.off), true
		}
		switch {
		case ok:
			i.flow, i.target = jump, to
		case m.slot(in.Args[0]):
			// Another function, which returns in place of this one.
			i.flow, i.to = ret, s.load(s.regs[m.arch.SP], m.word())
		default:
			i.flow = stop
		}
		return i
	case x86asm.HLT, x86asm.UD1, x86asm.UD2, x86asm.IRET, x86asm.IRETD, x86asm.IRETQ, x86asm.LRET, x86asm.LJMP,
		x86asm.SYSRET, x86asm.SYSEXIT, x86asm.INTO, x86asm.RSM, x86asm.LCALL:
		i.flow = stop
		return i
	case x86asm.INT:
		if imm, ok := in.Args[0].(x86asm.Imm); !ok || imm != 0x80 {
			i.flow = stop // int3: what is behind it is no code, or padding
			return i
		}
		m.kernel(s)
		return i
	}
	if to, ok := relative(); ok { // conditional: jcc, jrcxz, loop
		i.flow, i.target = branch, to
		return i
	}
	m.effect(&in, after, s)
	return i
}

// call passes a call.
func (m *x86) call(s *state, i insn, after uint64, relative func() (uint64, bool)) insn {
	if to, ok := relative(); ok && to == after {
		m.push(s, value{}) // a way to learn the PC
		return i
	}
	i.flow = call
	m.clobber(s)
	if !m.wide {
		// Functions of i386 may take their arguments from the stack themselves
		// (stdcall, and those that return a structure): the psABI, section 2.2.
		s.regs[m.arch.SP] = value{}
	}
	return i
}

// slot: an operand of jmp that is a slot of the GOT, as in a PLT or a tail call
// to another object. Jump tables have an index.
func (m *x86) slot(arg x86asm.Arg) bool {
	mem, ok := arg.(x86asm.Mem)
	if !ok || mem.Index != 0 || mem.Segment != 0 {
		return false
	}
	return m.wide && mem.Base == x86asm.RIP || !m.wide && (mem.Base == 0 || mem.Base == x86asm.EBX)
}

// kernel: a system call (syscall(2)) leaves all registers but rax, rcx, r11.
func (m *x86) kernel(s *state) {
	s.regs[0] = value{}
	if m.wide {
		s.regs[2], s.regs[11] = value{}, value{}
	}
}

// effect is what any other instruction does to registers and the stack.
func (m *x86) effect(in *x86asm.Inst, after uint64, s *state) {
	sp := m.arch.SP
	size := in.MemBytes
	switch in.Op {
	case x86asm.PUSH:
		if in.DataSize == 16 {
			s.regs[sp] = value{}
			return
		}
		m.push(s, m.get(s, in.Args[0], m.arch.WordBytes))
	case x86asm.POP:
		if in.DataSize == 16 {
			s.regs[sp] = value{}
			return
		}
		m.set(s, in.Args[0], m.pop(s), m.arch.WordBytes)
	case x86asm.PUSHF, x86asm.PUSHFD, x86asm.PUSHFQ:
		m.push(s, value{})
	case x86asm.POPF, x86asm.POPFD, x86asm.POPFQ:
		m.pop(s)
	case x86asm.PUSHA, x86asm.PUSHAD, x86asm.POPA, x86asm.POPAD, x86asm.ENTER:
		s.regs[sp] = value{}
	case x86asm.LEAVE:
		s.regs[sp] = s.regs[m.arch.FP]
		s.regs[m.arch.FP] = m.pop(s)
	case x86asm.MOV:
		if imm, ok := in.Args[1].(x86asm.Imm); ok && in.DataSize >= 32 {
			if dst, ok := in.Args[0].(x86asm.Reg); ok {
				if r, _, ok := m.reg(dst); ok {
					s.regs[r] = value{kind: fixed, off: int64(imm)}
					return
				}
			}
		}
		m.set(s, in.Args[0], m.get(s, in.Args[1], size), size)
	case x86asm.LEA:
		v := value{}
		if mem, ok := in.Args[1].(x86asm.Mem); ok {
			v = m.address(s, mem)
			if mem.Base == x86asm.RIP && mem.Index == 0 {
				v = value{kind: fixed, off: int64(after) + int64(int32(mem.Disp))} // the decoder does not extend the sign
			}
		}
		m.set(s, in.Args[0], v, 0)
	case x86asm.ADD, x86asm.SUB, x86asm.INC, x86asm.DEC:
		m.set(s, in.Args[0], m.sum(in, s), size)
	case x86asm.CMP, x86asm.TEST, x86asm.BT, x86asm.NOP, x86asm.PREFETCHNTA, x86asm.PREFETCHT0, x86asm.PREFETCHT1,
		x86asm.PREFETCHT2, x86asm.PREFETCHW, x86asm.COMISD, x86asm.COMISS, x86asm.UCOMISD, x86asm.UCOMISS, x86asm.PTEST,
		x86asm.FLD, x86asm.FILD, x86asm.FLDCW, x86asm.LDMXCSR:
	case x86asm.XCHG, x86asm.XADD:
		m.set(s, in.Args[0], value{}, size)
		m.set(s, in.Args[1], value{}, size)
	case x86asm.SYSCALL, x86asm.SYSENTER:
		m.kernel(s)
	case x86asm.CPUID:
		m.clobber(s)
		s.regs[3] = value{} // rbx
	case x86asm.IMUL, x86asm.MUL, x86asm.DIV, x86asm.IDIV, x86asm.CMPXCHG, x86asm.CMPXCHG8B, x86asm.CMPXCHG16B,
		x86asm.RDTSC, x86asm.RDTSCP, x86asm.XGETBV, x86asm.CDQ, x86asm.CQO, x86asm.CWDE, x86asm.CDQE, x86asm.CBW, x86asm.CWD,
		x86asm.LAHF:
		m.clobber(s) // rax and rdx, which are among them
		m.set(s, in.Args[0], value{}, size)
	case x86asm.MOVSB, x86asm.MOVSW, x86asm.MOVSQ, x86asm.STOSB, x86asm.STOSW, x86asm.STOSD, x86asm.STOSQ,
		x86asm.LODSB, x86asm.LODSW, x86asm.LODSD, x86asm.LODSQ, x86asm.SCASB, x86asm.SCASW, x86asm.SCASD, x86asm.SCASQ,
		x86asm.CMPSB, x86asm.CMPSW, x86asm.CMPSD, x86asm.CMPSQ, x86asm.MOVSD:
		// rsi, rdi, rcx; the operands are not of the stack.
		m.clobber(s)
		if !m.wide {
			s.regs[6], s.regs[7] = value{}, value{}
		}
	default:
		if in.Args[0] != nil {
			m.set(s, in.Args[0], value{}, size)
		}
	}
}

// sum is the first operand after an addition of a constant.
func (m *x86) sum(in *x86asm.Inst, s *state) value {
	n := int64(1)
	switch imm := in.Args[1].(type) {
	case nil: // inc, dec
	case x86asm.Imm:
		n = int64(imm)
	default:
		return value{}
	}
	if in.Op == x86asm.SUB || in.Op == x86asm.DEC {
		n = -n
	}
	if _, ok := in.Args[0].(x86asm.Reg); !ok {
		return value{}
	}
	return m.get(s, in.Args[0], 0).plus(n)
}

var x86Endbr = [][]byte{{0xf3, 0x0f, 0x1e, 0xfa}, {0xf3, 0x0f, 0x1e, 0xfb}}

// odd passes what the decoder does not know: endbr, and instructions with VEX
// and EVEX prefixes, which use vector registers but for a few.
func (m *x86) odd(b []byte, s *state) (size int, f flow, ok bool) {
	for _, e := range x86Endbr {
		if bytes.HasPrefix(b, e) {
			return len(e), next, true
		}
	}
	var v vex
	switch {
	case len(b) < 6:
		return 0, 0, false
	case b[0] == 0xc5 && (m.wide || b[1] >= 0xc0):
		v = vex{size: 2, table: 1, r: b[1]&0x80 == 0, v: b[1] >> 3 & 15, prefix: b[1] & 3, bytes: 16 << (b[1] >> 2 & 1)}
	case b[0] == 0xc4 && (m.wide || b[1] >= 0xc0):
		v = vex{size: 3, table: b[1] & 31, r: b[1]&0x80 == 0, x: b[1]&0x40 == 0, b: b[1]&0x20 == 0, v: b[2] >> 3 & 15, prefix: b[2] & 3, bytes: 16 << (b[2] >> 2 & 1)}
	case b[0] == 0x62 && (m.wide || b[1] >= 0xc0):
		v = vex{size: 4, table: b[1] & 7, r: b[1]&0x80 == 0, x: b[1]&0x40 == 0, b: b[1]&0x20 == 0, v: b[2] >> 3 & 15, prefix: b[2] & 3, bytes: 16 << (b[3] >> 5 & 3), evex: true}
	default:
		return 0, 0, false
	}
	size = m.vexEffect(&v, b, s)
	return size, next, size > 0
}

// vex is a VEX or EVEX prefix (Intel SDM volume 2, sections 2.3.5 and 2.7.1): its size, which opcode table follows, the
// register bits and the old prefix that it holds, and the bytes of its vectors.
type vex struct {
	size    int
	table   uint8
	r, x, b bool
	v       uint8 // inverted
	prefix  uint8 // 0: none, 1: 66, 2: f3, 3: f2
	bytes   int64
	evex    bool
}

// vexEffect applies an instruction with a VEX prefix and returns its size, 0 if
// the code ends before it does.
func (m *x86) vexEffect(v *vex, b []byte, s *state) int {
	op := b[v.size]
	size := v.size + 1
	if v.table == 1 && op == 0x77 && !v.evex { // vzeroupper, vzeroall
		return size
	}
	if v.table == 0 || v.table > 7 || v.table == 4 || v.table == 7 {
		return 0
	}
	rm := b[size:]
	n := modRMBytes(rm)
	if n == 0 {
		return 0
	}
	size += n
	if v.table == 3 || v.table == 1 && (op >= 0x70 && op <= 0x73 || op == 0xc2 || op >= 0xc4 && op <= 0xc6) {
		size++ // an immediate byte
	}
	if size > len(b) {
		return 0
	}
	inReg, inV, inBase := vexWrites(v, op)
	if inReg {
		m.vexClobber(rm[0]>>3&7, v.r, s)
	}
	if inV {
		m.vexClobber(^v.v&7, v.v&8 == 0, s)
	}
	if inBase && rm[0] >= 0xc0 {
		m.vexClobber(rm[0]&7, v.b, s)
	}
	if rm[0] < 0xc0 {
		if n := vexStores(v, op); n > 0 {
			s.spoil(m.vexAddress(v, rm, s), n, m.word())
		}
	}
	return size
}

// vexClobber forgets a general register, by its number in the instruction.
func (m *x86) vexClobber(r uint8, high bool, s *state) {
	if high && m.wide {
		r += 8
	}
	if m.wide {
		r = x86Numbers[r]
	}
	s.regs[r] = value{}
}

// vexWrites tells which operands are general registers that are written: ModRM's reg, VEX's vvvv, ModRM's r/m if it is a
// register (Intel SDM volume 2, the instructions' pages). In table 1 from f0 on there are sums and shifts of vectors.
func vexWrites(v *vex, op uint8) (reg, vvvv, base bool) {
	switch {
	case v.table == 1 && (op == 0x50 || op == 0x93 || op == 0xc5 || op == 0xd7), // movmsk, kmov, pextrw, pmovmskb
		(v.table == 1 || v.table == 5) && v.prefix >= 2 && (op == 0x2c || op == 0x2d || op == 0x78 || op == 0x79), // conversions
		v.table == 3 && op >= 0xf0: // rorx
		return true, false, false
	case v.table == 2 && op >= 0xe0: // compare and add, BMI: blsr and its like write vvvv, mulx both
		return op != 0xf3, op == 0xf3 || op == 0xf6, false
	case (v.table == 1 || v.table == 5) && op == 0x7e && v.prefix == 1, v.table == 3 && op >= 0x14 && op <= 0x17: // movd, pextr
		return false, false, true
	}
	return false, false, false
}

// vexStores tells how many bytes an operation with a memory operand may write there, at most.
func vexStores(v *vex, op uint8) int64 {
	switch {
	case v.table == 1 && (op == 0x13 || op == 0x17 || op == 0xd6 || op == 0x7e && v.prefix == 1 || op == 0x11 && v.prefix >= 2),
		v.table == 1 && op == 0x91, // kmov
		v.table == 3 && op >= 0x14 && op <= 0x17:
		return 8
	case v.table == 1 && bytes.IndexByte([]byte{0x11, 0x29, 0x2b, 0x7f, 0xe7}, op) >= 0: // moves
		return v.bytes
	case v.table == 2 && (op >= 0x10 && op <= 0x35 || op == 0x63 || op >= 0x8a && op <= 0x8f || op >= 0xa0 && op <= 0xa3):
		return v.bytes // masked, narrowed, compressed and scattered
	case v.table == 2 && op >= 0xe0 && op <= 0xef: // compare and add
		return 8
	case v.table == 3 && (op >= 0x18 && op <= 0x1d || op == 0x39 || op == 0x3b): // extracted
		return 32
	case v.table > 3:
		return v.bytes
	}
	return 0
}

// vexAddress is the address of a memory operand, as far as it is the stack.
func (m *x86) vexAddress(v *vex, rm []byte, s *state) value {
	mod, base, at := rm[0]>>6, rm[0]&7, 1
	if base == 4 {
		if rm[1]>>3&7 != 4 || v.x { // an index
			return value{}
		}
		base, at = rm[1]&7, 2
	}
	if mod == 0 && base == 5 {
		return value{}
	}
	if v.b {
		base += 8
	}
	disp := int64(0)
	switch mod {
	case 1:
		disp = int64(int8(rm[at]))
		if v.evex { // the displacement counts units of up to 64 bytes
			return value{}
		}
	case 2:
		disp = int64(int32(uint32(rm[at]) | uint32(rm[at+1])<<8 | uint32(rm[at+2])<<16 | uint32(rm[at+3])<<24))
	}
	if !m.wide {
		return s.regs[base&7].plus(disp)
	}
	return s.regs[x86Numbers[base]].plus(disp)
}

// modRMBytes is the length of a ModRM byte with its SIB byte and displacement,
// 32- and 64-bit addressing (Intel SDM volume 2, section 2.1.5); 0 if the code
// ends before it does.
func modRMBytes(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	mod, base, n := b[0]>>6, b[0]&7, 1
	if mod == 3 {
		return n
	}
	if base == 4 {
		base, n = b[1]&7, 2
	}
	switch {
	case mod == 1:
		n++
	case mod == 2, mod == 0 && base == 5:
		n += 4
	}
	if n > len(b) {
		return 0
	}
	return n
}

const (
	// maxStub bounds how far behind its start pc may lie in a stub, in bytes.
	maxStub = 48
	// maxPadded bounds how far from pc a start is looked for, in bytes.
	maxPadded = 4 << 10
	// padding is how many bytes of it tell that a function begins behind them, at a multiple of startAlign; fewer, behind a ret: more
	// zeros than the constant of an instruction has behind such a byte.
	padding, fewer, startAlign = 8, 4, 16
)

// x86Zeros are of padding: no compiler makes code of them.
var x86Zeros = make([]byte, fewer)

// Padded returns where the function of x86-64 begins, most likely, that pc lies in: behind the nearest padding of zeros or int3, which no
// way leads through. ok is false if there is none near.
func Padded(pc uint64, read func(addr uint64, b []byte) int) (start uint64, ok bool) {
	return padded(pc, maxPadded, read)
}

func padded(pc, most uint64, read func(addr uint64, b []byte) int) (start uint64, ok bool) {
	for start = pc &^ (startAlign - 1); pc-start <= most && start >= startAlign; start -= startAlign {
		var b [padding + 1]byte
		if read(start-padding, b[:]) < len(b) {
			return 0, false
		}
		pad := b[padding-1]
		n := padding - len(bytes.TrimRight(b[:padding], string([]byte{pad})))
		if (pad == 0 || pad == 0xcc) && b[padding] != pad && (n == padding || n >= fewer && b[padding-1-n] == 0xc3) {
			return start, true
		}
	}
	return 0, false
}

// ThroughMemory tells whether the call of x86-64 that ends at ra goes to an address in memory (Intel SDM volume 2, CALL).
func ThroughMemory(ra uint64, read func(addr uint64, b []byte) int) bool {
	var b [7]byte
	if read(ra-uint64(len(b)), b[:]) < len(b) {
		return false
	}
	for size := 2; size <= len(b); size++ {
		c := b[len(b)-size:]
		if c[0] == 0xff && c[1]>>3&7 == 2 && c[1] < 0xc0 && 1+modRMBytes(append(c[1:len(c):len(c)], 0)) == size {
			return true
		}
	}
	return false
}

// inStub tells whether pc lies in a function that leaves the stack and the frame pointer alone and goes on at an address in memory, or in
// a register, which are not known: Mono calls delegates through such. No way branches off: so far, it is as it was called. kept are the
// registers that it has not written before pc.
func inStub(m *machine, pc uint64, read func(addr uint64, b []byte) int) (kept uint32, ok bool) {
	start, ok := padded(pc, maxStub, read)
	if !ok {
		return 0, false
	}
	var buf [2 * maxStub]byte
	b := buf[:max(0, min(read(start, buf[:]), len(buf)))]
	s := state{}
	for r := range s.regs {
		s.regs[r] = value{kind: sum, reg: uint8(r)}
	}
	entry, met := s, false
	for at := 0; at < len(b); {
		if start+uint64(at) == pc {
			met = true
			for r := range s.regs {
				if s.regs[r] == entry.regs[r] {
					kept |= 1 << r
				}
			}
		}
		in := m.step(b[at:], start+uint64(at), &s)
		same := s.regs[m.arch.SP] == entry.regs[m.arch.SP] && s.regs[m.arch.FP] == entry.regs[m.arch.FP] && s.nSpans == 0
		switch {
		case same && in.flow == stop:
			return kept, met && jumpsAway(b[at:])
		case !same, in.flow != next, in.size == 0:
			return 0, false
		}
		at += in.size
	}
	return 0, false
}

// jumpsAway: b is a jump to an address in a register or in memory, but not by an index there (Intel SDM volume 2, JMP).
func jumpsAway(b []byte) bool {
	if len(b) > 2 && b[0]&0xf0 == 0x40 {
		b = b[1:]
	}
	return len(b) > 1 && b[0] == 0xff && b[1]>>3&7 == 4 && (b[1]>>6 == 3 || b[1]&7 != 4)
}

// coldX86: functions begin with endbr or, at addresses that are multiples of 16,
// behind nops, int3 or zeros.
func coldX86(b []byte, pc uint64) bool {
	for _, e := range x86Endbr {
		if bytes.HasPrefix(b, e) {
			return true
		}
	}
	if len(b) > 0 && b[0] == 0xcc || bytes.HasPrefix(b, x86Zeros) {
		return true
	}
	size := 0
	for size < 15 && (pc+uint64(size))%16 != 0 {
		in, err := x86asm.Decode(b[min(size, len(b)):], 64)
		if err != nil || in.Op != x86asm.NOP {
			return false
		}
		size += in.Len
	}
	return size > 0
}
