package sframe

import "math"

// Row info bits (specification, "The SFrame FRE info bits").
const (
	rowSPBase = 0x01 // default rows: the CFA starts from SP, else from FP
	rowSigned = 0x80 // AArch64: the return address is signed
)

// rowHead is a row without its words decoded: all that a search needs.
type rowHead struct {
	secOff uint64
	start  uint32 // offset from the function's (with Mask: the block's) start
	info   byte
	count  int // of words
	width  int // bytes of each
}

// wordsOff is the offset of the words in the section.
func (h *rowHead) wordsOff(f *Func) uint64 { return h.secOff + uint64(f.width) + 1 }

// rowScan walks the rows of a function. They have no index: each tells only
// its own length.
type rowScan struct {
	f    *Func
	off  uint64 // of the next row
	left uint32
	last uint32 // start of the last row
}

// scan starts at the first row. A damaged function has none.
func (f *Func) scan() rowScan {
	if !f.valid {
		return rowScan{f: f}
	}
	return rowScan{f: f, off: f.rows, left: f.NumRows}
}

// next reads the head of one row and checks all of it that does not need the
// words. ok is false at the end. After an error it is not called again: where
// the next row begins is not known then.
func (c *rowScan) next(w *window, ahead int) (h rowHead, ok bool, err error) {
	if c.left == 0 {
		return h, false, nil
	}
	f := c.f
	n := f.width + 1
	if c.off+uint64(n) > f.img.limit {
		return h, false, bad(c.off, "row runs past the rows of the section", uint64(n))
	}
	b, err := w.at(c.off, n, ahead)
	if err != nil {
		return h, false, err
	}
	info := b[n-1]
	h = rowHead{
		secOff: c.off, start: f.img.order.unsigned(b, f.width), info: info,
		count: int(info >> 1 & 15), width: 1 << (info >> 5 & 3),
	}
	next := c.off + uint64(n+h.count*h.width)
	if err := c.check(&h, next); err != nil {
		return h, false, err
	}
	c.off, c.last = next, h.start
	c.left--
	return h, true, nil
}

// check refuses a row that cannot be meant (the specification's and the
// kernel's rules). Equal starts and a start at the function's very end occur in
// real tables and cover nothing.
func (c *rowScan) check(h *rowHead, next uint64) error {
	f := c.f
	switch {
	case h.width == 8:
		return bad(h.secOff+uint64(f.width), "undefined word size", uint64(h.info))
	case next > f.img.limit:
		return bad(h.secOff, "row runs past the rows of the section", uint64(h.count*h.width))
	case h.start < c.last:
		return bad(h.secOff, "row starts before its predecessor", uint64(h.start))
	case h.start > f.Size:
		return bad(h.secOff, "row starts past the end of the function", uint64(h.start))
	case !f.countAllowed(h.count):
		return bad(h.secOff+uint64(f.width), "number of words does not fit the row", uint64(h.count))
	}
	return nil
}

// countAllowed: default rows have a CFA word, an RA word unless the header
// fixes RA, an FP word. Flexible ones have one to three pairs, of which RA's
// may be a single padding word. None means that RA is undefined, which V1 could
// not say.
func (f *Func) countAllowed(n int) bool {
	switch {
	case n == 0:
		return f.img.header.Version > 1
	case f.Flexible:
		return n >= 2 && n <= 6
	case f.img.header.FixedRA != 0:
		return n <= 2
	}
	return n <= 3
}

// decode reads the words of row h and gives its rules.
func (f *Func) decode(w *window, h *rowHead) (Row, error) {
	row := Row{Signal: f.Signal}
	if h.count == 0 {
		row.Outermost = true
		return row, nil
	}
	off := h.wordsOff(f)
	b, err := w.at(off, h.count*h.width, 0)
	if err != nil {
		return Row{}, err
	}
	row.Signed = f.img.header.ABI.aarch64() && h.info&rowSigned != 0
	v := words{b: b, secOff: off, count: h.count, width: h.width, order: f.img.order}
	if f.Flexible {
		err = f.flexRules(&row, v)
	} else {
		err = f.defaultRules(&row, v, h.info)
	}
	if err != nil {
		return Row{}, err
	}
	return row, nil
}

// words are the data words of one row.
type words struct {
	b            []byte
	secOff       uint64
	count, width int
	order
}

func (v *words) int(i int) int32   { return v.signed(v.b[i*v.width:], v.width) }
func (v *words) uint(i int) uint32 { return v.unsigned(v.b[i*v.width:], v.width) }
func (v *words) at(i int) uint64   { return v.secOff + uint64(i*v.width) }

// atCFA is the rule of a register saved on the stack.
func atCFA(off int32) Rule { return Rule{Base: FromCFA, Deref: true, Offset: off} }

// fixed is the rule of a register without a word: saved where the header says,
// or, with 0 there, not saved.
func fixed(off int8) Rule {
	if off != 0 {
		return atCFA(int32(off))
	}
	return Rule{}
}

// defaultRules: CFA, then RA unless the header fixes it, then FP.
func (f *Func) defaultRules(row *Row, v words, info byte) error {
	sp, fp := f.img.header.ABI.Registers()
	row.CFA = Rule{Base: FromReg, Reg: fp}
	if info&rowSPBase != 0 {
		row.CFA.Reg = sp
	}
	var err error
	if row.CFA.Offset, err = f.cfaOffset(v, 0); err != nil {
		return err
	}
	row.RA, row.FP = fixed(f.img.header.FixedRA), fixed(f.img.header.FixedFP)
	next := 1
	if f.img.header.FixedRA == 0 {
		if v.count > next && (f.img.header.ABI != S390X || v.int(next) != 0) {
			// s390x: 0 pads, RA is still in r14.
			if row.RA, err = f.savedRule(v, next); err != nil {
				return err
			}
		}
		next++
	}
	if v.count > next && f.img.header.FixedFP == 0 {
		row.FP, err = f.savedRule(v, next)
	}
	return err
}

// savedRule is where word i of a default row says that RA or FP is: at an
// offset from the CFA or, in V2 of s390x and if its lowest bit is set, in a
// register.
func (f *Func) savedRule(v words, i int) (Rule, error) {
	n := v.int(i)
	if f.img.header.ABI != S390X || f.img.header.Version != 2 || n&1 == 0 {
		return atCFA(n), nil
	}
	if n>>1 < 0 || n>>1 > 31 {
		return Rule{}, bad(v.at(i), "no such register", uint64(uint32(n>>1)))
	}
	return Rule{Base: FromReg, Reg: uint8(n >> 1)}, nil
}

// cfaOffset decodes the CFA offset in word i. s390x stores it less the 160
// bytes that every frame has, in units of 8.
func (f *Func) cfaOffset(v words, i int) (int32, error) {
	n := int64(v.int(i))
	if f.img.header.ABI == S390X {
		n = n*8 + 160
	}
	if n != int64(int32(n)) {
		return 0, bad(v.at(i), "CFA offset does not fit 32 bits", uint64(n))
	}
	return int32(n), nil
}

// Control word of a flexible rule: register number above three bits.
const (
	ctlReg   = 1 // the base is the register, else the CFA
	ctlDeref = 2 // load from the sum
	ctlShift = 3
)

// flexRules: pairs of control word and offset for CFA, RA and FP. A control
// word 0 stands alone: no rule, but the default one.
func (f *Func) flexRules(row *Row, v words) error {
	var err error
	if row.CFA, err = f.flexRule(v, 0, true); err != nil {
		return err
	}
	row.RA, row.FP = fixed(f.img.header.FixedRA), fixed(f.img.header.FixedFP)
	next := 2
	for _, rule := range []*Rule{&row.RA, &row.FP} {
		if next >= v.count {
			return nil
		}
		if v.uint(next) == 0 {
			next++
			continue
		}
		if next+1 >= v.count {
			return bad(v.at(next), "control word without an offset", uint64(v.uint(next)))
		}
		if *rule, err = f.flexRule(v, next, false); err != nil {
			return err
		}
		next += 2
	}
	for ; next < v.count; next++ {
		if v.uint(next) != 0 {
			return bad(v.at(next), "word left over", uint64(v.uint(next)))
		}
	}
	return nil
}

// flexRule decodes the pair at word i.
func (f *Func) flexRule(v words, i int, cfa bool) (Rule, error) {
	ctl := v.uint(i)
	reg := ctl >> ctlShift
	rule := Rule{Base: FromCFA, Deref: ctl&ctlDeref != 0, Offset: v.int(i + 1)}
	if ctl&ctlReg != 0 {
		if reg > math.MaxUint8 {
			return Rule{}, bad(v.at(i), "no such register", uint64(reg))
		}
		rule.Base, rule.Reg = FromReg, uint8(reg)
	}
	if !cfa {
		return rule, nil
	}
	if rule.Base != FromReg {
		return Rule{}, bad(v.at(i), "CFA defined by itself", uint64(ctl))
	}
	if !f.img.header.ABI.address(rule.Reg) {
		return Rule{}, bad(v.at(i), "register cannot hold an address", uint64(reg))
	}
	var err error
	rule.Offset, err = f.cfaOffset(v, i+1)
	return rule, err
}

// address reports whether DWARF register n may hold an address. Known not to:
// AMD64's return address column and vector registers (System V ABI AMD64
// supplement, figure 3.36). Larger numbers are let through, a step refuses
// what it has no value for.
func (a ABI) address(n uint8) bool {
	switch {
	case a == AMD64:
		return n < 16 || n > 32
	case a.aarch64(), a == S390X:
		return n < 32
	}
	return false
}
