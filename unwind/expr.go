package unwind

import (
	"sfsample/internal/leb128"
	"sfsample/regs"
)

// The operations of DWARF expressions that call frame information may use
// (DWARF 5 section 2.5.1 and, for the exclusions, 6.4.2), less those on object
// addresses and types that no compiler writes there.
const (
	opAddr       = 0x03
	opDeref      = 0x06
	opConst1u    = 0x08
	opConst1s    = 0x09
	opConst2u    = 0x0a
	opConst2s    = 0x0b
	opConst4u    = 0x0c
	opConst4s    = 0x0d
	opConst8u    = 0x0e
	opConst8s    = 0x0f
	opConstu     = 0x10
	opConsts     = 0x11
	opDup        = 0x12
	opDrop       = 0x13
	opOver       = 0x14
	opPick       = 0x15
	opSwap       = 0x16
	opRot        = 0x17
	opAbs        = 0x19
	opAnd        = 0x1a
	opDiv        = 0x1b
	opMinus      = 0x1c
	opMod        = 0x1d
	opMul        = 0x1e
	opNeg        = 0x1f
	opNot        = 0x20
	opOr         = 0x21
	opPlus       = 0x22
	opPlusUconst = 0x23
	opShl        = 0x24
	opShr        = 0x25
	opShra       = 0x26
	opXor        = 0x27
	opBra        = 0x28
	opEq         = 0x29
	opGe         = 0x2a
	opGt         = 0x2b
	opLe         = 0x2c
	opLt         = 0x2d
	opNe         = 0x2e
	opSkip       = 0x2f
	opLit0       = 0x30
	opLit31      = 0x4f
	opBreg0      = 0x70
	opBreg31     = 0x8f
	opBregx      = 0x92
	opDerefSize  = 0x94
	opNop        = 0x96
)

// An expression may jump backwards; real ones take a dozen steps at most.
const (
	maxExprSteps = 1024
	maxExprStack = 32
)

// machine evaluates one DWARF expression.
type machine struct {
	arch  *regs.Arch
	set   *regs.Set
	code  []byte
	pos   int
	stack [maxExprStack]uint64
	depth int
	bad   bool   // an operand is missing, or the stack ran over or under
	fault uint64 // address that could not be read
}

// run executes the expression and returns the top of its stack.
func (m *machine) run(mem *Memory) (uint64, Reason) {
	for range maxExprSteps {
		if m.pos >= len(m.code) {
			v := m.pop()
			if m.bad {
				return 0, BadRule
			}
			return wrap(m.arch, v), 0
		}
		if r := m.step(m.u8(), mem); r != 0 {
			return 0, r
		}
		if m.bad {
			return 0, BadRule
		}
	}
	return 0, BadRule
}

func (m *machine) step(op byte, mem *Memory) Reason {
	switch {
	case op >= opLit0 && op <= opLit31:
		m.push(uint64(op - opLit0))
	case op >= opBreg0 && op <= opBreg31:
		return m.breg(uint64(op-opBreg0), m.sleb())
	case op == opBregx:
		reg := m.uleb()
		return m.breg(reg, m.sleb())
	case op == opDeref:
		return m.deref(m.arch.WordBytes, mem)
	case op == opDerefSize:
		size := int(m.u8())
		if size < 1 || size > m.arch.WordBytes {
			return BadRule
		}
		return m.deref(size, mem)
	case op >= opConst1u && op <= opConsts || op == opAddr:
		m.push(m.constant(op))
	case op >= opDup && op <= opRot:
		m.shuffle(op)
	case op == opAbs, op == opNeg, op == opNot, op == opPlusUconst:
		m.unary(op)
	case op >= opAnd && op <= opXor, op >= opEq && op <= opNe:
		m.binary(op)
	case op == opSkip, op == opBra:
		m.jump(op)
	case op == opNop:
	default:
		return BadRule
	}
	return 0
}

// breg pushes register plus offset. On x86 the number of the return address
// column means the PC: the expression of PLT entries takes it modulo 16.
func (m *machine) breg(reg, off uint64) Reason {
	if reg == uint64(m.arch.RA) && !m.arch.Link {
		m.push(m.set.PC + off)
		return 0
	}
	if reg >= regs.NumRegs {
		return BadRule
	}
	v, ok := m.set.Reg(uint8(reg))
	if !ok {
		return UnknownRegister
	}
	m.push(v + off)
	return 0
}

func (m *machine) deref(size int, mem *Memory) Reason {
	addr := wrap(m.arch, m.pop())
	b, r := mem.bytes(addr, size)
	if r != 0 {
		m.fault = addr
		return r
	}
	m.push(m.assemble(b))
	return 0
}

func (m *machine) constant(op byte) uint64 {
	switch op {
	case opAddr:
		return m.assemble(m.take(m.arch.WordBytes))
	case opConst1u:
		return m.assemble(m.take(1))
	case opConst1s:
		return uint64(int8(m.assemble(m.take(1))))
	case opConst2u:
		return m.assemble(m.take(2))
	case opConst2s:
		return uint64(int16(m.assemble(m.take(2))))
	case opConst4u:
		return m.assemble(m.take(4))
	case opConst4s:
		return uint64(int32(m.assemble(m.take(4))))
	case opConst8u, opConst8s:
		return m.assemble(m.take(8))
	case opConstu:
		return m.uleb()
	}
	return m.sleb() // opConsts
}

func (m *machine) shuffle(op byte) {
	switch op {
	case opDup:
		m.push(m.peek(0))
	case opDrop:
		m.pop()
	case opOver:
		m.push(m.peek(1))
	case opPick:
		m.push(m.peek(int(m.u8())))
	case opSwap:
		a, b := m.pop(), m.pop()
		m.push(a)
		m.push(b)
	case opRot:
		a, b, c := m.pop(), m.pop(), m.pop()
		m.push(a)
		m.push(c)
		m.push(b)
	}
}

func (m *machine) unary(op byte) {
	v := m.signed(m.pop())
	switch op {
	case opAbs:
		v = max(v, -v)
	case opNeg:
		v = -v
	case opNot:
		v = ^v
	case opPlusUconst:
		v += int64(m.uleb())
	}
	m.push(uint64(v))
}

// binary computes second-from-top OP top. Division is signed, modulo
// unsigned, comparisons are signed (DWARF 5 section 2.5.1.4 and 2.5.1.5).
func (m *machine) binary(op byte) {
	b, a := m.pop(), m.pop()
	sa, sb := m.signed(a), m.signed(b)
	ua, ub := wrap(m.arch, a), wrap(m.arch, b)
	switch op {
	case opAnd:
		a &= b
	case opOr:
		a |= b
	case opXor:
		a ^= b
	case opPlus:
		a += b
	case opMinus:
		a -= b
	case opMul:
		a *= b
	case opDiv:
		if sb == 0 {
			m.bad = true
			return
		}
		a = uint64(sa / sb)
	case opMod:
		if ub == 0 {
			m.bad = true
			return
		}
		a = ua % ub
	case opShl:
		a = ua << ub
	case opShr:
		a = ua >> ub
	case opShra:
		a = uint64(sa >> ub)
	case opEq:
		a = truth(sa == sb)
	case opGe:
		a = truth(sa >= sb)
	case opGt:
		a = truth(sa > sb)
	case opLe:
		a = truth(sa <= sb)
	case opLt:
		a = truth(sa < sb)
	case opNe:
		a = truth(sa != sb)
	}
	m.push(a)
}

// jump does skip and bra: a 2-byte signed distance from the end of the
// operand, to an operation or just past the last one.
func (m *machine) jump(op byte) {
	d := int(int16(m.assemble(m.take(2))))
	if op == opBra && wrap(m.arch, m.pop()) == 0 {
		return
	}
	if to := m.pos + d; to < 0 || to > len(m.code) {
		m.bad = true
	} else {
		m.pos = to
	}
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// signed gives the value as a signed number of the architecture's width.
func (m *machine) signed(v uint64) int64 {
	if m.arch.WordBytes == 4 {
		return int64(int32(v))
	}
	return int64(v)
}

func (m *machine) push(v uint64) {
	if m.depth == maxExprStack {
		m.bad = true
		return
	}
	m.stack[m.depth] = v
	m.depth++
}

func (m *machine) pop() uint64 {
	if m.depth == 0 {
		m.bad = true
		return 0
	}
	m.depth--
	return m.stack[m.depth]
}

// peek returns the entry n below the top.
func (m *machine) peek(n int) uint64 {
	if n >= m.depth {
		m.bad = true
		return 0
	}
	return m.stack[m.depth-1-n]
}

// take returns the next n bytes of the expression, or none if there are fewer.
func (m *machine) take(n int) []byte {
	if len(m.code)-m.pos < n {
		m.bad = true
		return nil
	}
	m.pos += n
	return m.code[m.pos-n : m.pos]
}

func (m *machine) u8() byte {
	if b := m.take(1); b != nil {
		return b[0]
	}
	return 0
}

// assemble puts up to 8 bytes together in the architecture's byte order.
func (m *machine) assemble(b []byte) (v uint64) {
	for i := range b {
		if m.arch.BigEndian {
			v = v<<8 | uint64(b[i])
		} else {
			v |= uint64(b[i]) << (8 * i)
		}
	}
	return v
}

// uleb and sleb read LEB128 numbers of 64 bits.
func (m *machine) uleb() uint64 {
	v, n := leb128.Unsigned(m.code[m.pos:])
	m.pass(n)
	return v
}

func (m *machine) sleb() uint64 {
	v, n := leb128.Signed(m.code[m.pos:])
	m.pass(n)
	return uint64(v)
}

func (m *machine) pass(n int) {
	if n <= 0 {
		m.bad = true
		n = 0
	}
	m.pos += n
}
