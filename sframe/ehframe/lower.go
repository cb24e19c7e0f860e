package ehframe

import (
	"math/bits"

	"sfsample/sframe"
)

// lowering turns a state of the machine into a row.
type lowering struct {
	m   *machine
	row sframe.Row
}

func (l *lowering) lower() sframe.Row {
	m, a := l.m, l.m.sec.arch
	st := &m.st
	ra := st.regs[m.cie.raSlot]
	if ra.kind == ruleUndefined {
		// The mark of the first frame of a stack (System V ABI AMD64, section
		// 6.2.4; DWARF 5 section 6.4.4).
		l.row.Outermost = true
	}
	l.row.CFA = l.cfa()
	if !l.row.Outermost {
		l.row.RA = l.ra(ra)
	}
	l.row.FP, _ = l.rule(st.regs[a.FP])
	keep := a.CalleeSaved &^ (1 << a.FP)
	for rest := st.set & uint64(m.sec.general); rest != 0; rest &= rest - 1 {
		n := uint8(bits.TrailingZeros64(rest))
		if n == a.FP || int(n) == m.cie.raSlot {
			continue
		}
		r, ok := l.rule(st.regs[n])
		switch {
		case !ok:
			keep &^= 1 << n
		case r.Base != sframe.Same:
			keep &^= 1 << n
			l.row.Saved = append(l.row.Saved, sframe.SavedRule{Reg: n, Rule: r})
		case n == a.SP:
			// Said to be the caller's already, which CFA + SPOffset need not be.
			l.row.Saved = append(l.row.Saved, sframe.SavedRule{Reg: n, Rule: r})
		default:
			keep |= 1 << n
		}
	}
	l.row.Keep = keep
	return l.row
}

func (l *lowering) cfa() sframe.Rule {
	switch r := l.m.st.cfa; r.kind {
	case ruleRegister:
		return sframe.Rule{Base: sframe.FromReg, Reg: r.reg, Offset: r.off}
	case ruleValExpr:
		return l.expr(r.expr, false, false)
	}
	return sframe.Rule{Base: sframe.Undefined} // the tables never defined it
}

// ra is the rule of the return address column.
func (l *lowering) ra(r rule) sframe.Rule {
	a, c := l.m.sec.arch, l.m.cie
	switch {
	case r.kind == ruleRegister:
		if a.Link && r.reg == a.RA {
			return sframe.Rule{Base: sframe.Same}
		}
		return sframe.Rule{Base: sframe.FromReg, Reg: r.reg}
	case r.kind == ruleUnset || r.kind == ruleSame:
		if c.raColumn != uint64(a.RA) {
			// A column of its own that was not saved: the register of that number.
			return sframe.Rule{Base: sframe.FromReg, Reg: regNumber(c.raColumn)}
		}
		return sframe.Rule{Base: sframe.Same}
	}
	out, _ := l.rule(r)
	return out
}

// rule turns the rule of a register into one of a row. ok is false if the value
// is lost: undefined, or in a register that nobody keeps.
func (l *lowering) rule(r rule) (out sframe.Rule, ok bool) {
	switch r.kind {
	case ruleUnset, ruleSame:
		return sframe.Rule{Base: sframe.Same}, true
	case ruleOffset:
		return sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: r.off}, true
	case ruleValOffset:
		return sframe.Rule{Base: sframe.FromCFA, Offset: r.off}, true
	case ruleRegister:
		if r.reg != noReg && l.m.sec.general&(1<<r.reg) != 0 {
			return sframe.Rule{Base: sframe.FromReg, Reg: r.reg}, true
		}
	case ruleExpr:
		return l.expr(r.expr, true, true), true
	case ruleValExpr:
		return l.expr(r.expr, true, false), true
	}
	return sframe.Rule{Base: sframe.Undefined}, false
}

// expr turns an expression into a plain rule if it is only a base plus an offset,
// loaded from or not; else the row carries it. onCFA: it starts with the CFA on
// the stack, as those of registers do. deref: its value is where the register is
// saved.
func (l *lowering) expr(e []byte, onCFA, deref bool) sframe.Rule {
	if r, ok := linear(e, onCFA, deref, l.m.sec.general, l.m.sec.arch.WordBytes); ok {
		return r
	}
	for i, have := range l.row.Exprs {
		if string(have) == string(e) {
			return sframe.Rule{Base: sframe.FromExpr, Deref: deref, Offset: int32(i)}
		}
	}
	l.row.Exprs = append(l.row.Exprs, e)
	return sframe.Rule{Base: sframe.FromExpr, Deref: deref, Offset: int32(len(l.row.Exprs) - 1)}
}
