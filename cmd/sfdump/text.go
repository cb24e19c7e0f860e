package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"sfsample/sframe"
)

// notation spells rules in the columns of a row. It knows which DWARF registers
// are "sp" and "fp".
type notation struct{ sp, fp uint8 }

func (n notation) reg(r uint8) string {
	switch r {
	case n.sp:
		return "sp"
	case n.fp:
		return "fp"
	}
	return "r" + strconv.Itoa(int(r))
}

// cfa spells a rule of the CFA: "sp+16", "(fp-8)" for a load, "exp".
func (n notation) cfa(r sframe.Rule) string {
	switch r.Base {
	case sframe.FromReg:
		return brackets(r.Deref, fmt.Sprintf("%s%+d", n.reg(r.Reg), r.Offset))
	case sframe.FromExpr:
		return "exp"
	}
	return "-"
}

// saved spells a rule of FP or RA: "u" unchanged, "c-16" saved at CFA-16, "v-16"
// equal to CFA-16 (.eh_frame only), "r14" in a register, "(fp+8)" loaded from
// there.
func (n notation) saved(r sframe.Rule) string {
	switch {
	case r.Base == sframe.Same:
		return "u"
	case r.Base == sframe.FromCFA && r.Deref:
		return fmt.Sprintf("c%+d", r.Offset)
	case r.Base == sframe.FromCFA:
		return fmt.Sprintf("v%+d", r.Offset)
	case r.Base == sframe.FromReg && !r.Deref && r.Offset == 0:
		return n.reg(r.Reg)
	case r.Base == sframe.FromReg:
		return brackets(r.Deref, fmt.Sprintf("%s%+d", n.reg(r.Reg), r.Offset))
	case r.Base == sframe.FromExpr:
		return "exp"
	}
	return "undef"
}

func brackets(set bool, s string) string {
	if set {
		return "(" + s + ")"
	}
	return s
}

// columns are the rules of a row as text.
type columns struct {
	CFA string `json:"cfa"`
	FP  string `json:"fp"`
	RA  string `json:"ra"`
}

func (n notation) columns(r *sframe.Row) columns {
	if r.Outermost {
		return columns{"-", "-", "undef"}
	}
	c := columns{n.cfa(r.CFA), n.saved(r.FP), n.saved(r.RA)}
	if r.Signed {
		c.RA += "[s]"
	}
	return c
}

// ehColumns is columns for a row of .eh_frame. What its compiler could reduce to
// a register and an offset was an expression all the same, if DWARF has no other
// instruction for it; machines compare it with readelf, which says "exp".
func (n notation) ehColumns(r *sframe.Row) columns {
	c := n.columns(r)
	if r.Outermost {
		return c
	}
	if r.CFA.Deref {
		c.CFA = "exp"
	}
	expr := func(r sframe.Rule) bool { return r.Base == sframe.FromReg && (r.Deref || r.Offset != 0) }
	if expr(r.FP) {
		c.FP = "exp"
	}
	if expr(r.RA) {
		c.RA = "exp" + map[bool]string{true: "[s]"}[r.Signed]
	}
	return c
}

// attrs spells the attributes of a function: F flexible, S signal frame, M mask,
// B key.
func attrs(flexible, signal, mask, keyB bool) string {
	var b strings.Builder
	for _, a := range []struct {
		set    bool
		letter byte
	}{{flexible, 'F'}, {signal, 'S'}, {mask, 'M'}, {keyB, 'B'}} {
		if a.set {
			b.WriteByte(a.letter)
		}
	}
	if b.Len() == 0 {
		return "-"
	}
	return b.String()
}

// attrWords is attrs for people.
func attrWords(letters string, block uint32) string {
	var words []string
	for _, a := range letters {
		switch a {
		case 'F':
			words = append(words, "flexible")
		case 'S':
			words = append(words, "signal frame")
		case 'M':
			words = append(words, fmt.Sprintf("repeats every %d bytes", block))
		case 'B':
			words = append(words, "key B")
		}
	}
	if words == nil {
		return ""
	}
	return ", " + strings.Join(words, ", ")
}

// printable returns s without raw control characters: names and paths come
// from files that anybody may have made.
func printable(s string) string {
	clean := func(r rune) bool { return r != unicode.ReplacementChar && unicode.IsPrint(r) }
	if strings.IndexFunc(s, func(r rune) bool { return !clean(r) }) < 0 {
		return s
	}
	quoted := strconv.Quote(s)
	return quoted[1 : len(quoted)-1]
}
