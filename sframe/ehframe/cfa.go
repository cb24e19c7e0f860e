package ehframe

import (
	"math"
	"sync"

	"sfsample/sframe"
)

// Call frame instructions: DWARF 5 section 7.24, and the vendor extensions that
// GCC, LLVM and GNU as emit for our architectures.
const (
	cfaAdvanceLoc = 0x40 // in the top two bits, operand below
	cfaOffset     = 0x80
	cfaRestore    = 0xc0

	cfaNop              = 0x00
	cfaSetLoc           = 0x01
	cfaAdvanceLoc1      = 0x02
	cfaAdvanceLoc2      = 0x03
	cfaAdvanceLoc4      = 0x04
	cfaOffsetExtended   = 0x05
	cfaRestoreExtended  = 0x06
	cfaUndefined        = 0x07
	cfaSameValue        = 0x08
	cfaRegister         = 0x09
	cfaRememberState    = 0x0a
	cfaRestoreState     = 0x0b
	cfaDefCFA           = 0x0c
	cfaDefCFARegister   = 0x0d
	cfaDefCFAOffset     = 0x0e
	cfaDefCFAExpression = 0x0f
	cfaExpression       = 0x10
	cfaOffsetExtendedSF = 0x11
	cfaDefCFASF         = 0x12
	cfaDefCFAOffsetSF   = 0x13
	cfaValOffset        = 0x14
	cfaValOffsetSF      = 0x15
	cfaValExpression    = 0x16

	cfaMIPSAdvanceLoc8 = 0x1d
	// "DWARF for the Arm 64-bit Architecture", section 4.4.1. Code 0x2d is
	// GNU_window_save on sparc, which is none of ours.
	cfaAArch64NegateRAStateWithPC = 0x2c
	cfaAArch64NegateRAState       = 0x2d
	cfaGNUArgsSize                = 0x2e
	cfaGNUNegativeOffsetExtended  = 0x2f
)

const (
	// numRegs is how many registers a state holds: those of regs.Set.
	numRegs = 32
	// raSlot holds the rule of a return address column above them.
	raSlot   = numRegs
	numSlots = numRegs + 1

	// raSignState is the arm64 pseudo-register that says whether the return
	// address is signed ("DWARF for the Arm 64-bit Architecture", section 4.1).
	raSignState = 34
)

// Bounds of one function. Compilers nest remember_state once, and the longest
// function of 770,000 in distribution programs has 894 rows.
const (
	maxStates = 64
	maxRows   = 4096
)

type ruleKind uint8

const (
	ruleUnset     ruleKind = iota // the tables say nothing
	ruleUndefined                 // the value is lost
	ruleSame                      // said to be unchanged
	ruleOffset                    // saved at CFA+off
	ruleValOffset                 // is CFA+off
	ruleRegister                  // is in register reg
	ruleExpr                      // saved at the value of expr
	ruleValExpr                   // is the value of expr
)

// rule is the rule of one register, or of the CFA: ruleUnset, ruleRegister with
// reg plus off, or ruleValExpr.
type rule struct {
	kind ruleKind
	reg  uint8 // noReg if it is none that a register set holds
	off  int32
	expr []byte
}

const noReg = math.MaxUint8

// state is a row in the making.
type state struct {
	cfa    rule
	set    uint64 // bit n: regs[n] is not ruleUnset
	signed bool   // arm64: return address is signed
	regs   [numSlots]rule
}

func (s *state) setReg(slot int, r rule) {
	if slot < 0 {
		return
	}
	s.regs[slot] = r
	s.set |= 1 << slot
	if r.kind == ruleUnset {
		s.set &^= 1 << slot
	}
}

// machine executes call frame instructions.
type machine struct {
	st    state
	stack []state
	sec   *section
	cie   *cie
	fde   *fde // nil while the CIE's own instructions run
	loc   uint64
	rows  int
}

// Tables do not keep a machine: a process has many tables, and two states are 2 KiB.
var machinePool = sync.Pool{New: func() any { return new(machine) }}

// newMachine returns a machine for the instructions of f, or of the CIE c itself
// if f is nil.
func newMachine(s *section, c *cie, f *fde) *machine {
	m := machinePool.Get().(*machine)
	m.sec, m.cie, m.fde = s, c, f
	if f != nil {
		m.st, m.loc = c.initial, f.start
	}
	return m
}

// release empties the machine, so that it holds on to nothing, and gives it back.
func (m *machine) release() {
	clear(m.stack)
	*m = machine{stack: m.stack[:0]}
	machinePool.Put(m)
}

// run executes the instructions that c holds. Each time the location advances it
// calls emit for the range that the state covered; the last range, to the end of
// the function, is left to the caller. Defects are left in c.err.
func (m *machine) run(c *cursor, emit func(start, end uint64)) {
	for c.err == nil && c.left() > 0 {
		op := c.u8()
		switch low := uint64(op & 0x3f); op & 0xc0 {
		case cfaAdvanceLoc:
			m.advance(c, low, emit)
		case cfaOffset:
			m.setOffset(c, low, ruleOffset, m.factored(c, c.uleb()))
		case cfaRestore:
			m.restore(low)
		default:
			m.extended(c, op, emit)
		}
	}
}

// extended executes an instruction whose top two bits are zero.
func (m *machine) extended(c *cursor, op uint8, emit func(start, end uint64)) {
	switch op {
	case cfaNop:
	case cfaSetLoc:
		m.setLoc(c, emit)
	case cfaAdvanceLoc1:
		m.advance(c, c.uint(1), emit)
	case cfaAdvanceLoc2:
		m.advance(c, c.uint(2), emit)
	case cfaAdvanceLoc4:
		m.advance(c, c.uint(4), emit)
	case cfaMIPSAdvanceLoc8:
		m.advance(c, c.uint(8), emit)
	case cfaOffsetExtended:
		r := c.uleb()
		m.setOffset(c, r, ruleOffset, m.factored(c, c.uleb()))
	case cfaOffsetExtendedSF:
		r := c.uleb()
		m.setOffset(c, r, ruleOffset, m.factoredSigned(c, c.sleb()))
	case cfaGNUNegativeOffsetExtended:
		r := c.uleb()
		m.setOffset(c, r, ruleOffset, -m.factored(c, c.uleb()))
	case cfaValOffset:
		r := c.uleb()
		m.setOffset(c, r, ruleValOffset, m.factored(c, c.uleb()))
	case cfaValOffsetSF:
		r := c.uleb()
		m.setOffset(c, r, ruleValOffset, m.factoredSigned(c, c.sleb()))
	case cfaRestoreExtended:
		m.restore(c.uleb())
	case cfaUndefined:
		m.st.setReg(m.slot(c.uleb()), rule{kind: ruleUndefined})
	case cfaSameValue:
		m.st.setReg(m.slot(c.uleb()), rule{kind: ruleSame})
	case cfaRegister:
		r := c.uleb()
		m.st.setReg(m.slot(r), rule{kind: ruleRegister, reg: regNumber(c.uleb())})
	case cfaExpression:
		r := c.uleb()
		m.st.setReg(m.slot(r), rule{kind: ruleExpr, expr: m.expression(c)})
	case cfaValExpression:
		m.valExpression(c)
	case cfaRememberState:
		m.remember(c)
	case cfaRestoreState:
		m.restoreState(c)
	case cfaDefCFA:
		r := regNumber(c.uleb())
		m.defCFA(r, unsigned(c, c.uleb()))
	case cfaDefCFASF:
		r := regNumber(c.uleb())
		m.defCFA(r, m.factoredSigned(c, c.sleb()))
	case cfaDefCFARegister:
		m.needCFA(c)
		m.st.cfa.kind, m.st.cfa.reg = ruleRegister, regNumber(c.uleb())
	case cfaDefCFAOffset:
		m.needCFA(c)
		m.st.cfa.off = int32(unsigned(c, c.uleb()))
	case cfaDefCFAOffsetSF:
		m.needCFA(c)
		m.st.cfa.off = int32(m.factoredSigned(c, c.sleb()))
	case cfaDefCFAExpression:
		m.st.cfa.kind, m.st.cfa.expr = ruleValExpr, m.expression(c)
		if len(m.st.cfa.expr) == 0 {
			c.fail("CFA expression is empty", 0)
		}
	case cfaGNUArgsSize:
		c.uleb() // matters only to who lands in an exception handler
	case cfaAArch64NegateRAState, cfaAArch64NegateRAStateWithPC:
		if !m.sec.arm64 {
			c.pos--
			c.fail("call frame instruction of another machine", uint64(op))
		}
		m.st.signed = !m.st.signed
	default:
		c.pos--
		c.fail("unknown call frame instruction", uint64(op))
	}
}

// slot is where the rule of DWARF register r is kept, -1 for the vector and
// special registers that a register set does not hold.
func (m *machine) slot(r uint64) int {
	switch {
	case r == m.cie.raColumn:
		return m.cie.raSlot
	case r < numRegs:
		return int(r)
	}
	return -1
}

func regNumber(r uint64) uint8 {
	if r < numRegs {
		return uint8(r)
	}
	return noReg
}

// factored multiplies an operand by the data alignment factor. What does not fit
// an offset is a defect: no stack frame has 2 GiB.
func (m *machine) factored(c *cursor, n uint64) int64 {
	return m.factoredSigned(c, unsigned(c, n))
}

func (m *machine) factoredSigned(c *cursor, n int64) int64 {
	if d := m.cie.dataAlign; n != int64(int32(n)) || d != int64(int32(d)) || n*d != int64(int32(n*d)) {
		c.fail("offset is out of range", uint64(n))
		return 0
	}
	return n * m.cie.dataAlign
}

func unsigned(c *cursor, n uint64) int64 {
	if n > math.MaxInt32 {
		c.fail("offset is out of range", n)
		return 0
	}
	return int64(n)
}

func (m *machine) setOffset(c *cursor, r uint64, kind ruleKind, off int64) {
	if off != int64(int32(off)) { // the negation of -1<<31
		c.fail("offset is out of range", uint64(off))
	}
	m.st.setReg(m.slot(r), rule{kind: kind, off: int32(off)})
}

func (m *machine) defCFA(reg uint8, off int64) {
	m.st.cfa = rule{kind: ruleRegister, reg: reg, off: int32(off)}
}

// needCFA fails if there is no CFA yet of which an instruction could change a
// part. DWARF allows that only while the CFA is a register plus an offset (section
// 6.4.2.2), but libgcrypt's assembly goes back from an expression by
// def_cfa_register and means the offset from before, which is what GCC's unwinder
// makes of it. So an expression leaves register and offset in place, and
// def_cfa_offset does not end it.
func (m *machine) needCFA(c *cursor) {
	if m.st.cfa.kind == ruleUnset {
		c.fail("there is no CFA to change", 0)
	}
}

// restore brings back the rule that the CIE gives.
func (m *machine) restore(r uint64) {
	if s := m.slot(r); s >= 0 {
		m.st.setReg(s, m.cie.initial.regs[s])
	}
}

func (m *machine) remember(c *cursor) {
	if len(m.stack) >= maxStates {
		c.fail("states are remembered too deep", uint64(len(m.stack)))
		return
	}
	m.stack = append(m.stack, m.st)
}

// restoreState brings back the whole state, the CFA included: DWARF speaks of
// rules for registers only, but compilers emit what GCC's unwinder does.
func (m *machine) restoreState(c *cursor) {
	if len(m.stack) == 0 {
		c.fail("no state was remembered", 0)
		return
	}
	m.st = m.stack[len(m.stack)-1]
	m.stack = m.stack[:len(m.stack)-1]
}

// expression reads a DWARF expression, checked as far as that is possible
// without running it.
func (m *machine) expression(c *cursor) []byte {
	n := c.uleb()
	if n > maxExprBytes {
		c.fail("expression is too long", n)
	}
	at := c.at()
	b := c.take(n)
	if c.err == nil {
		checkExpr(b, at, c)
	}
	return b
}

func (m *machine) valExpression(c *cursor) {
	r := c.uleb()
	e := m.expression(c)
	switch {
	case !m.sec.arm64 || r != raSignState:
		m.st.setReg(m.slot(r), rule{kind: ruleValExpr, expr: e})
	case len(e) == 1 && (e[0] == opLit0 || e[0] == opLit0+1):
		// How signing was told before negate_ra_state existed: DW_OP_lit0 or lit1.
		m.st.signed = e[0] != opLit0
	default:
		c.fail("return address signing state is not constant", uint64(len(e)))
	}
}

// advance moves the location by delta code units.
func (m *machine) advance(c *cursor, delta uint64, emit func(start, end uint64)) {
	if a := m.cie.codeAlign; a > math.MaxUint32 || delta > math.MaxUint32 {
		c.fail("location advances too far", delta)
	}
	m.moveTo(c, m.loc+delta*m.cie.codeAlign, emit)
}

func (m *machine) setLoc(c *cursor, emit func(start, end uint64)) {
	loc := m.sec.pointer(c, m.cie.pcEnc, m.sec.bases)
	if loc < m.loc {
		c.fail("location goes back", loc)
	}
	m.moveTo(c, loc, emit)
}

// moveTo ends the current row at loc.
func (m *machine) moveTo(c *cursor, loc uint64, emit func(start, end uint64)) {
	switch {
	case c.err != nil || loc == m.loc:
	case m.fde == nil:
		c.fail("location in the instructions of a CIE", loc)
	case loc < m.loc:
		c.fail("location wraps around", loc)
	case m.rows >= maxRows:
		c.fail("function has too many rows", uint64(m.rows))
	default:
		m.rows++
		emit(m.loc, loc)
		m.loc = loc
	}
}

// row turns the state into a row. Saved and Exprs are appended to saved and
// exprs, expressions are not copied.
func (m *machine) row(saved []sframe.SavedRule, exprs [][]byte) sframe.Row {
	l := lowering{m: m, row: sframe.Row{
		Saved: saved, Exprs: exprs,
		Signal: m.cie.signal, Signed: m.st.signed,
	}}
	return l.lower()
}
