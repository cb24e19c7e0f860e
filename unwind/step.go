package unwind

import (
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

// next is a caller that was computed and not yet entered: find fills it
// without touching the registers, so that a caller of find can still refuse.
type next struct {
	limit   uint64 // highest stack pointer allowed: the end of the mapping
	cfa     uint64
	pc      uint64
	sp      uint64
	fp      uint64
	spKnown bool   // sp is exact; otherwise it is a lower bound of it
	fpKnown bool   // fp holds a value
	fault   uint64 // what a failure is about
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

func (n *next) findCFA(a *regs.Arch, set *regs.Set, row *sframe.Row, mem *Memory) Reason {
	rule := &row.CFA
	switch rule.Base {
	case sframe.FromReg:
		v, ok := set.Reg(rule.Reg)
		if !ok {
			n.fault = set.PC
			return UnknownRegister
		}
		if rule.Reg == a.FP && v < set.R[a.SP] && !row.Signal {
			// kernel/unwind/user.c refuses a frame pointer below the stack
			// pointer: it points into a dead frame, or is no frame pointer.
			n.fault = v
			return NoProgress
		}
		v = wrap(a, v+uint64(int64(rule.Offset)))
		if rule.Deref {
			var r Reason
			if v, r = n.load(a, mem, v); r != 0 {
				return r
			}
		}
		n.cfa = v
		return 0
	case sframe.FromExpr:
		v, r := n.expr(a, set, row, rule, mem, 0, false)
		n.cfa = v
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
		break
	}
	if row.Signal {
		// The interrupted code may have been on another stack, and may have
		// had any stack pointer.
		return 0
	}
	// A call pushes, so a caller's stack pointer is above. The innermost frame
	// of arm64 and s390x may not have pushed anything.
	if old := set.R[a.SP]; n.sp < old || n.sp == old && !top {
		n.fault = n.sp
		return NoProgress
	}
	if n.sp&uint64(a.WordBytes-1) != 0 {
		n.fault = n.sp
		return Misaligned
	}
	if n.sp > n.limit {
		n.fault = n.sp
		return StackSwitch
	}
	return 0
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
	if rule.Base == sframe.FromCFA && rule.Deref {
		v, r := n.load(a, mem, wrap(a, n.cfa+uint64(int64(rule.Offset))))
		n.fp, n.fpKnown = v, true
		return r
	}
	v, ok, r := n.value(a, set, row, rule, a.FP, mem)
	n.fp, n.fpKnown = v, ok
	return r
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
	m := machine{arch: a, set: set, mem: mem, code: row.Exprs[rule.Offset]}
	if push {
		m.push(cfa)
	}
	v, r := m.run()
	if r == 0 && rule.Deref {
		return n.load(a, mem, v)
	}
	if n.fault = m.fault; n.fault == 0 {
		n.fault = set.PC
	}
	return v, r
}

func (n *next) load(a *regs.Arch, mem *Memory, addr uint64) (uint64, Reason) {
	v, r := mem.word(a, addr)
	if r != 0 {
		n.fault = addr
	}
	return v, r
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
	known := set.Known & row.Keep
	if len(row.Saved) > 0 {
		known = n.restore(a, set, row, known, mem)
	}
	sp, fp := uint32(1)<<(a.SP&31), uint32(1)<<(a.FP&31)
	known &^= sp | fp
	if n.spKnown {
		known |= sp
	}
	if n.fpKnown {
		known |= fp
	}
	set.PC = n.pc
	set.R[a.SP&31] = n.sp // also when it is only a bound: the next step's checks want it
	set.R[a.FP&31] = n.fp
	set.Known = known
}

// restore applies the rules of further registers and returns known with the
// bits of those that have a value now.
func (n *next) restore(a *regs.Arch, set *regs.Set, row *sframe.Row, known uint32, mem *Memory) uint32 {
	old := set
	for i := range row.Saved {
		if b := row.Saved[i].Rule.Base; b == sframe.FromReg || b == sframe.FromExpr {
			// Rules mean the registers of the frame, which the loop below
			// overwrites one by one.
			c := *set
			old = &c
			break
		}
	}
	for i := range row.Saved {
		s := &row.Saved[i]
		if s.Reg == a.SP || s.Reg == a.FP || s.Reg >= regs.NumRegs {
			continue
		}
		v, ok, r := n.value(a, old, row, &s.Rule, s.Reg, mem)
		if !ok || r != 0 {
			known &^= 1 << s.Reg
			continue
		}
		set.R[s.Reg] = v
		known |= 1 << s.Reg
	}
	return known
}
