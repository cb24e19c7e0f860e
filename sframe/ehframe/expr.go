package ehframe

import (
	"math"

	"sfsample/sframe"
)

// DWARF expression operations that call frame information may use (DWARF 5
// sections 2.5.1 and 6.4.2, codes from 7.7.1).
const (
	opDeref      = 0x06
	opConst1u    = 0x08
	opConst8s    = 0x0f
	opConstu     = 0x10
	opConsts     = 0x11
	opPick       = 0x15
	opXderef     = 0x18
	opPlusUconst = 0x23
	opBra        = 0x28
	opSkip       = 0x2f
	opLit0       = 0x30
	opLit31      = 0x4f
	opBreg0      = 0x70
	opBreg31     = 0x8f
	opBregx      = 0x92
	opDerefSize  = 0x94
	opNop        = 0x96
)

// maxExprBytes bounds an expression. The longest known one, glibc's for the
// vector registers of a signal frame, has under 30 bytes.
const maxExprBytes = 255

// checkExpr checks that e, which lies at addr, consists of whole operations that
// are allowed in call frame information and that branches stay inside. Register
// locations, calls and DW_OP_addr are refused, the last because a row does not
// know where the file is loaded. A defect is left in where, which has none yet.
func checkExpr(e []byte, addr uint64, where *cursor) {
	c := cursor{b: e, addr: addr, sec: where.sec, big: where.big}
	for c.err == nil && c.left() > 0 {
		op := c.u8()
		switch {
		case op == opDeref, op > opConsts && op < opPick, op > opPick && op < opXderef,
			op > opXderef && op < opPlusUconst, op > opPlusUconst && op < opBra,
			op > opBra && op < opSkip, op >= opLit0 && op <= opLit31, op == opNop:
		case op >= opConst1u && op <= opConst8s:
			c.take(constBytes(op))
		case op == opConstu, op == opPlusUconst:
			c.uleb()
		case op == opConsts, op >= opBreg0 && op <= opBreg31:
			c.sleb()
		case op == opPick:
			c.u8()
		case op == opDerefSize:
			if n := c.u8(); n == 0 || n > 8 {
				c.fail("load of a size that no word has", uint64(n))
			}
		case op == opBregx:
			c.uleb()
			c.sleb()
		case op == opBra, op == opSkip:
			by := int(int16(c.uint(2)))
			if to := c.pos + by; to < 0 || to > len(e) {
				c.fail("branch leaves the expression", uint64(by))
			}
		default:
			c.fail("operation is not allowed in call frame information", uint64(op))
		}
	}
	where.err = c.err
}

// constBytes is the operand size of DW_OP_const1u to DW_OP_const8s, which come in
// pairs of unsigned and signed.
func constBytes(op uint8) uint64 { return 1 << ((op - opConst1u) / 2) }

// linear recognises an expression that only adds constants to a register of
// general (or to the CFA, if that is on the stack at the start) and then loads at
// most once. deref asks for one further load. Most expressions are of this kind:
// realigned frames, and all of glibc's signal frame.
func linear(e []byte, onCFA, deref bool, general uint32, word int) (sframe.Rule, bool) {
	var out sframe.Rule
	var sum int64
	c := cursor{b: e}
	if onCFA {
		out.Base = sframe.FromCFA
	}
	if len(e) > 0 && e[0] >= opBreg0 && e[0] <= opBreg31 {
		out.Base, out.Reg = sframe.FromReg, c.u8()-opBreg0
		sum = c.sleb()
	} else if len(e) > 0 && e[0] == opBregx {
		c.u8()
		out.Base, out.Reg = sframe.FromReg, regNumber(c.uleb())
		sum = c.sleb()
	}
	if out.Base == sframe.Same || out.Base == sframe.FromReg && (out.Reg == noReg || general&(1<<out.Reg) == 0) {
		return out, false
	}
	loads := 0
	for c.left() > 0 {
		if loads > 0 || sum != int64(int32(sum)) {
			return out, false
		}
		switch op := c.u8(); {
		case op == opNop:
		case op == opDeref, op == opDerefSize && int(c.u8()) == word:
			loads++
		case op == opPlusUconst:
			n := c.uleb()
			if n > math.MaxInt32 {
				return out, false
			}
			sum += int64(n)
		default:
			return out, false
		}
	}
	if deref {
		loads++
	}
	if loads > 1 || sum != int64(int32(sum)) || c.err != nil {
		return out, false
	}
	out.Deref, out.Offset = loads == 1, int32(sum)
	return out, true
}
