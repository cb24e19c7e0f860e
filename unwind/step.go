package unwind

import (
	"slices"

	"sfsample/regs"
	"sfsample/sframe"
)

// Step replaces the registers of a frame by those of its caller, by the rules
// of row. top says that the frame is the innermost one or was interrupted by a
// signal: all its registers are live, and its call may have pushed nothing.
//
// The error is a [Reason]; set is unchanged then. Outermost means that there is
// no caller. A register without a rule becomes unknown unless row.Keep has it.
// The link register becomes unknown, except that a signal frame restores it.
// Step does not know what is mapped: whether the new PC is code is for the
// caller to check.
func Step(a *regs.Arch, set *regs.Set, row *sframe.Row, top bool, mem *Memory) error {
	n := next{limit: ^uint64(0)}
	if r := n.find(a, set, row, top, mem); r != 0 {
		return r
	}
	n.commit(a, set, row, mem)
	return nil
}

// plain is the short form of a row that takes the CFA from SP or FP and
// everything saved from the stack at a distance from it, as nearly all rows do.
// It goes a shorter way through the same checks, which costs a third.
type plain struct {
	cfaOff       int32
	raOff, fpOff int16
	cfaReg       uint8
	fpSaved      bool // at CFA+fpOff; otherwise fp is unchanged
}

// compile returns the short form of row, and whether it has one.
func compile(a *regs.Arch, row *sframe.Row) (plain, bool) {
	stored := func(r *sframe.Rule) bool {
		return r.Base == sframe.FromCFA && r.Deref && int32(int16(r.Offset)) == r.Offset
	}
	if row.Outermost || row.Signal || row.Switch || a.WordBytes != 8 ||
		row.CFA.Base != sframe.FromReg || row.CFA.Deref || row.CFA.Reg != a.SP && row.CFA.Reg != a.FP ||
		!stored(&row.RA) || row.FP.Base != sframe.Same && !stored(&row.FP) {
		return plain{}, false
	}
	for i := range row.Saved {
		s := &row.Saved[i]
		if s.Reg == a.SP || s.Reg == a.FP || s.Reg >= regs.NumRegs || !stored(&s.Rule) {
			return plain{}, false
		}
	}
	return plain{
		cfaReg: row.CFA.Reg, cfaOff: row.CFA.Offset, raOff: int16(row.RA.Offset),
		fpOff: int16(row.FP.Offset), fpSaved: row.FP.Base != sframe.Same,
	}, true
}

// next is a caller that was computed and not yet entered: find fills it
// without touching the registers, so that a caller of find can still refuse.
type next struct {
	limit    uint64 // highest stack pointer allowed: the end of the mapping
	anywhere bool   // for find: the caller may be on another stack
	over     bool   // it is
	jumped   bool   // pc is in generated code, behind no call: to be proved
	cfa      uint64
	pc       uint64
	sp       uint64
	fp       uint64
	spKnown  bool   // sp is exact; otherwise it is a lower bound of it
	fpKnown  bool   // fp holds a value
	stale    bool   // what the row has saved relative to fp is back in the registers
	fault    uint64 // what a failure is about
	base     uint64 // what the CFA was computed from: a register, or the word at savedSP
	savedSP  uint64 // where the CFA was loaded from, if it was: in a signal frame the stack pointer
}

// find computes the caller's pc, sp and fp and makes every check that needs no
// knowledge of the process's mappings.
func (n *next) find(a *regs.Arch, set *regs.Set, row *sframe.Row, top bool, mem *Memory) Reason {
	if row.Outermost {
		// Before the CFA: such a row has no other rule.
		return Outermost
	}
	if r := n.findCFA(a, set, row, mem); r != 0 {
		return r
	}
	if r := n.findSP(a, set, row, top, mem); r != 0 {
		return r
	}
	if r := n.findPC(a, set, row, top, mem); r != 0 {
		return r
	}
	return n.findFP(a, set, row, mem)
}

// findPlain is find for a row in its short form. It leaves to find to say why there is no caller.
func (n *next) findPlain(a *regs.Arch, set *regs.Set, p *plain, top bool, mem *Memory) bool {
	const mask = regs.NumRegs - 1
	old := set.R[a.SP&mask]
	base := set.R[p.cfaReg&mask]
	if set.Known>>(p.cfaReg&mask)&1 == 0 || p.cfaReg == a.FP && base < old {
		return false
	}
	cfa := base + uint64(int64(p.cfaOff))
	n.cfa, n.sp, n.spKnown = cfa, cfa+uint64(a.SPOffset), true
	if n.sp <= old && (n.sp < old || !top) || n.sp&7 != 0 || n.sp > n.limit {
		return false
	}
	ra, ok := mem.word8(a, cfa+uint64(int64(p.raOff)))
	if !ok {
		var r Reason
		if ra, r = mem.word(a, cfa+uint64(int64(p.raOff))); r != 0 {
			return false
		}
	}
	n.pc = ra &^ a.PACMask
	if !p.fpSaved {
		n.fp, n.fpKnown = set.R[a.FP&mask], set.Known>>(a.FP&mask)&1 != 0
		return true
	}
	n.fpKnown = true
	if n.fp, ok = mem.word8(a, cfa+uint64(int64(p.fpOff))); !ok {
		var r Reason
		n.fp, r = mem.word(a, cfa+uint64(int64(p.fpOff)))
		return r == 0
	}
	return true
}

// checkSP compares the caller's stack pointer with this frame's, old.
func (n *next) checkSP(a *regs.Arch, old uint64, top bool) Reason {
	var r Reason
	switch {
	// A call pushes, so a caller's stack pointer is above. The innermost frame
	// of arm64 and s390x may not have pushed anything.
	case (n.sp < old || n.sp == old && !top) && !n.anywhere:
		r = NoProgress
	case n.sp&uint64(a.WordBytes-1) != 0:
		r = Misaligned
	case n.sp > n.limit && !n.anywhere:
		r = StackSwitch
	default:
		return 0
	}
	n.fault = n.sp
	return r
}

func (n *next) findCFA(a *regs.Arch, set *regs.Set, row *sframe.Row, mem *Memory) Reason {
	rule := &row.CFA
	switch rule.Base {
	case sframe.FromReg:
		v, ok := set.Reg(rule.Reg)
		if !ok {
			n.fault = set.PC
			return UnknownRegister
		}
		if rule.Reg == a.FP && v < set.R[a.SP&(regs.NumRegs-1)] && !row.Signal && !n.anywhere {
			// kernel/unwind/user.c refuses a frame pointer below the stack
			// pointer: it points into a dead frame, or is no frame pointer.
			n.fault = v
			return NoProgress
		}
		n.base, n.savedSP = v, 0
		v = wrap(a, v+uint64(int64(rule.Offset)))
		if rule.Deref {
			n.savedSP = v
			var r Reason
			if v, r = n.load(a, mem, v); r != 0 {
				return r
			}
			n.base = v
		}
		n.cfa = v
		return 0
	case sframe.FromExpr:
		v, r := n.expr(a, set, row, rule, mem, 0, false)
		n.cfa, n.base, n.savedSP = v, v, 0
		return r
	}
	n.fault = set.PC
	return BadRule
}

// findSP sets the caller's stack pointer: the CFA plus the architecture's
// constant, unless the row has a rule for it (signal frames, back chains, some
// hand-written .eh_frame).
func (n *next) findSP(a *regs.Arch, set *regs.Set, row *sframe.Row, top bool, mem *Memory) Reason {
	n.sp, n.spKnown = wrap(a, n.cfa+uint64(a.SPOffset)), true
	explicit := false // SP is in a register
	for i := range row.Saved {
		s := &row.Saved[i]
		if s.Reg != a.SP {
			continue
		}
		if s.Rule.Base == sframe.Undefined {
			// Only a lower bound: a frame record of arm64 tells where the
			// frame is, not how far it reaches.
			n.spKnown = false
			break
		}
		v, ok, r := n.value(a, set, row, &s.Rule, a.SP, mem)
		if r != 0 {
			return r
		}
		if !ok {
			n.fault = set.PC
			return UnknownRegister
		}
		n.sp = v
		explicit = s.Rule.Base == sframe.FromReg && !s.Rule.Deref
		break
	}
	if row.Signal {
		// The interrupted code may have been on another stack, and may have
		// had any stack pointer.
		return 0
	}
	if top && explicit && row.RA.Base == sframe.FromReg && !row.RA.Deref {
		// Both SP and PC of the caller are in registers: glibc's longjmp is
		// described so, as the frame that it will jump to. It may go to
		// another stack, out of a handler on an alternate one.
		return 0
	}
	return n.checkSP(a, set.R[a.SP&(regs.NumRegs-1)], top)
}

func (n *next) findPC(a *regs.Arch, set *regs.Set, row *sframe.Row, top bool, mem *Memory) Reason {
	rule := &row.RA
	var v uint64
	switch rule.Base {
	case sframe.Same:
		// Still in the link register. Below the innermost frame that would be
		// the frame's own return address again.
		if !top || !a.Link {
			n.fault = set.PC
			return BadRule
		}
		var ok bool
		if v, ok = set.Reg(a.RA); !ok {
			n.fault = set.PC
			return UnknownRegister
		}
	case sframe.FromCFA:
		if !rule.Deref {
			n.fault = set.PC
			return BadRule // a stack address is no return address
		}
		var r Reason
		if v, r = n.load(a, mem, wrap(a, n.cfa+uint64(int64(rule.Offset)))); r != 0 {
			return r
		}
	case sframe.FromReg, sframe.FromExpr:
		var ok bool
		var r Reason
		if v, ok, r = n.value(a, set, row, rule, a.RA, mem); r != 0 {
			return r
		}
		if !ok {
			n.fault = set.PC
			return UnknownRegister
		}
	default:
		n.fault = set.PC
		return BadRule
	}
	n.pc = v &^ a.PACMask
	return 0
}

func (n *next) findFP(a *regs.Arch, set *regs.Set, row *sframe.Row, mem *Memory) Reason {
	rule := &row.FP
	n.stale = false
	if rule.Base == sframe.FromCFA && rule.Deref {
		v, r := n.load(a, mem, wrap(a, n.cfa+uint64(int64(rule.Offset))))
		n.fp, n.fpKnown = v, true
		return r
	}
	if n.stale = n.fpLeft(a, set, row); n.stale {
		n.fp, n.fpKnown = set.R[a.FP&(regs.NumRegs-1)], true
		return 0
	}
	v, ok, r := n.value(a, set, row, rule, a.FP, mem)
	n.fp, n.fpKnown = v, ok
	return r
}

// fpLeft: the row has the caller's frame pointer saved where the frame pointer
// points, which is not into this frame. Functions that gcc realigns the stack of
// have such a rule, by an expression, and keep it to their end, where rbp has
// been restored already and the CFA is in r10 again (seen with gcc 12 to 15):
// everything saved relative to it is back in its register.
func (n *next) fpLeft(a *regs.Arch, set *regs.Set, row *sframe.Row) bool {
	if row.Signal || !row.FP.Deref || row.FP.Base != sframe.FromReg || row.FP.Reg != a.FP ||
		row.CFA.Base != sframe.FromReg || row.CFA.Reg == a.FP {
		return false
	}
	fp, ok := set.Reg(a.FP)
	return ok && (fp < set.R[a.SP&(regs.NumRegs-1)] || fp >= n.cfa)
}

// value computes the rule of register reg from the registers of the frame and
// the CFA. ok is false when the value is unknown, which is no failure.
func (n *next) value(a *regs.Arch, set *regs.Set, row *sframe.Row, rule *sframe.Rule, reg uint8, mem *Memory) (v uint64, ok bool, _ Reason) {
	switch rule.Base {
	case sframe.Same:
		v, ok = set.Reg(reg)
		return v, ok, 0
	case sframe.FromCFA:
		v = n.cfa
	case sframe.FromReg:
		if rule.Reg == a.RA && !a.Link {
			v = set.PC // x86: the column of the return address is the PC itself
		} else if v, ok = set.Reg(rule.Reg); !ok {
			return 0, false, 0
		}
	case sframe.FromExpr:
		v, r := n.expr(a, set, row, rule, mem, n.cfa, true)
		if r == UnknownRegister {
			return 0, false, 0
		}
		return v, r == 0, r
	default:
		return 0, false, 0
	}
	v = wrap(a, v+uint64(int64(rule.Offset)))
	if rule.Deref {
		var r Reason
		if v, r = n.load(a, mem, v); r != 0 {
			return 0, false, r
		}
	}
	return v, true, 0
}

// expr evaluates the DWARF expression that rule names. For a register the CFA
// is on the stack at first, for the CFA itself it is empty (DWARF 5 section
// 6.4.2).
func (n *next) expr(a *regs.Arch, set *regs.Set, row *sframe.Row, rule *sframe.Rule, mem *Memory, cfa uint64, push bool) (uint64, Reason) {
	if rule.Offset < 0 || int(rule.Offset) >= len(row.Exprs) {
		n.fault = set.PC
		return 0, BadRule
	}
	m := machine{arch: a, set: set, code: row.Exprs[rule.Offset]}
	if push {
		m.push(cfa)
	}
	v, r := m.run(mem)
	if r == 0 && rule.Deref {
		return n.load(a, mem, v)
	}
	if n.fault = m.fault; n.fault == 0 {
		n.fault = set.PC
	}
	return v, r
}

func (n *next) load(a *regs.Arch, mem *Memory, addr uint64) (uint64, Reason) {
	n.fault = addr
	return mem.word(a, addr)
}

// wrap cuts an address to the architecture's width.
func wrap(a *regs.Arch, v uint64) uint64 {
	if a.WordBytes == 4 {
		return uint64(uint32(v))
	}
	return v
}

// commit enters the caller that find computed. It cannot fail: a further
// register that cannot be computed becomes unknown, and only a rule that needs
// it fails later.
func (n *next) commit(a *regs.Arch, set *regs.Set, row *sframe.Row, mem *Memory) {
	n.enter(a, set, n.restore(a, set, row, mem))
}

// restorePlain applies what a row with a short form says of registers other
// than SP and FP, and returns which of them are known then.
func restorePlain(a *regs.Arch, set *regs.Set, row *sframe.Row, cfa uint64, mem *Memory) uint32 {
	known := set.Known & row.Keep
	for i := range row.Saved {
		s := &row.Saved[i]
		reg := s.Reg & (regs.NumRegs - 1)
		v, r := mem.word(a, cfa+uint64(int64(s.Rule.Offset)))
		if r != 0 {
			known &^= 1 << reg
			continue
		}
		known |= 1 << reg
		set.R[reg] = v
	}
	return known
}

// enter sets the registers that every frame has; known are the others.
func (n *next) enter(a *regs.Arch, set *regs.Set, known uint32) {
	const mask = regs.NumRegs - 1
	sp, fp := uint32(1)<<(a.SP&mask), uint32(1)<<(a.FP&mask)
	known &^= sp | fp
	if n.spKnown {
		known |= sp
	}
	if n.fpKnown {
		known |= fp
	}
	set.PC = n.pc
	set.R[a.SP&mask] = n.sp // also when it is only a bound: the next step's checks want it
	set.R[a.FP&mask] = n.fp
	set.Known = known
}

// restore applies the rules of further registers and returns which are known
// then. What it makes of SP and FP, enter overwrites.
func (n *next) restore(a *regs.Arch, set *regs.Set, row *sframe.Row, mem *Memory) uint32 {
	known, old := set.Known&row.Keep, set
	if slices.ContainsFunc(row.Saved, func(s sframe.SavedRule) bool { return s.Rule.Base == sframe.FromReg || s.Rule.Base == sframe.FromExpr }) {
		// Rules mean the registers of the frame, which the loop below
		// overwrites one by one.
		mem.scratch = *set
		old = &mem.scratch
	}
	for i := range row.Saved {
		s := &row.Saved[i]
		if s.Reg >= regs.NumRegs {
			continue
		}
		rule := &s.Rule
		if n.stale && rule.Base == sframe.FromReg && rule.Reg == a.FP {
			rule = &sframe.Rule{} // as it is
		}
		v, ok, _ := n.value(a, old, row, rule, s.Reg, mem)
		if !ok {
			known &^= 1 << s.Reg
			continue
		}
		set.R[s.Reg] = v
		known |= 1 << s.Reg
	}
	return known
}
