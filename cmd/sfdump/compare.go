package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"sfsample/regs"
	"sfsample/sframe"
	"sfsample/sframe/ehframe"
)

// piece is a range of addresses with one row.
type piece struct {
	span
	row  sframe.Row
	fn   uint64 // start of its function
	sign bool   // signal frames are expressed by this table
}

// side is one of the two tables to compare.
type side struct {
	name   string
	pieces []piece // ascending, without overlaps
	funcs  []sideFunc
	err    error // why there is no table
}

// sideFunc is a function of one table; why says what is special about it.
type sideFunc struct {
	span
	why string
}

// Bounds on what one table may take: repeating rows are laid out maxBlocks
// times; a piece has 150 bytes. The largest programs have some 5 million rows.
const (
	maxBlocks = 1 << 20
	maxPieces = 1 << 24
)

var errPieces = fmt.Errorf("more than %d rows are not compared", maxPieces)

// sframeSide collects all rows of the object's SFrame tables.
func (d *dumper) sframeSide(o *object) side {
	s := side{name: ".sframe"}
	for _, sec := range o.sframes {
		for f, err := range sec.Funcs() {
			if f.Size == 0 && err == nil {
				continue
			}
			if err != nil {
				d.complain(fmt.Errorf("%s: .sframe: function %#x: %w", o.path, f.Start, err))
				continue
			}
			err = s.addSFrame(sec, &f)
			if err == nil && len(s.pieces) > maxPieces {
				err = errPieces
			}
			if err != nil {
				d.complain(fmt.Errorf("%s: .sframe: function %#x: %w", o.path, f.Start, err))
			}
			if err == errPieces {
				break
			}
		}
	}
	s.finish()
	return s
}

func (s *side) addSFrame(sec *sframe.Section, f *sframe.Func) error {
	why := ""
	if f.Mask {
		why = "made by the linker for the PLT"
	}
	s.funcs = append(s.funcs, sideFunc{span{f.Start, uint64(f.Size)}, why})
	if f.NumRows == 0 {
		e, err := sec.Find(f.Start)
		if err == nil {
			s.add(f.Start, uint64(f.Size), &e.Row, f.Start, true)
		}
		return nil
	}
	var rows []sframe.FuncRow
	for r, err := range sec.Rows(f) {
		if err != nil {
			return err
		}
		rows = append(rows, r)
	}
	block := f.Size
	if f.Mask {
		block = f.Block
	}
	if f.Size/block > maxBlocks {
		return fmt.Errorf("%d blocks of %d bytes", f.Size/block, block)
	}
	for base := uint64(0); base < uint64(f.Size); base += uint64(block) {
		for i := range rows {
			end := uint64(block)
			if i+1 < len(rows) {
				end = min(end, uint64(rows[i+1].Off))
			}
			end = min(base+end, uint64(f.Size))
			if at := base + uint64(rows[i].Off); at < end {
				s.add(f.Start+at, end-at, &rows[i].Row, f.Start, sec.Version() == 3)
			}
		}
	}
	return nil
}

func (s *side) add(start, size uint64, row *sframe.Row, fn uint64, sign bool) {
	s.pieces = append(s.pieces, piece{span{start, size}, *row, fn, sign})
}

// finish sorts the pieces and cuts overlaps: of two rows for an address that of
// the later function stays, as in a look-up.
func (s *side) finish() {
	slices.SortStableFunc(s.pieces, func(a, b piece) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.fn, b.fn))
	})
	out := s.pieces[:0]
	for _, p := range s.pieces {
		for len(out) > 0 && out[len(out)-1].end() > p.start {
			last := &out[len(out)-1]
			last.size = p.start - last.start
			if last.size > 0 {
				break
			}
			out = out[:len(out)-1]
		}
		out = append(out, p)
	}
	s.pieces = out
}

// ehSide collects all rows of the object's .eh_frame.
func (d *dumper) ehSide(o *object) side {
	s := side{name: ".eh_frame"}
	var t *ehframe.Table
	if t, s.err = o.openEH(); s.err != nil {
		return s
	}
	version := uint8(3)
	if len(o.sframes) > 0 {
		version = o.sframes[0].Version()
	}
	for f, err := range t.Funcs() {
		if err != nil {
			d.complain(fmt.Errorf("%s: .eh_frame: function %#x: %w", o.path, f.Start, err))
			continue
		}
		if f.End == f.Start {
			continue
		}
		s.funcs = append(s.funcs, sideFunc{span{f.Start + o.bias, f.End - f.Start}, inexpressible(o, f.Entries, version)})
		for i := range f.Entries {
			e := &f.Entries[i]
			s.add(e.Start+o.bias, e.End-e.Start, &e.Row, f.Start+o.bias, true)
		}
	}
	s.finish()
	return s
}

// inexpressible says which rule of a function SFrame of that version has no
// form for: what makes GNU as leave it out. Empty if there is none.
func inexpressible(o *object, entries []sframe.Entry, version uint8) string {
	arm := o.arch.Name == regs.ARM64.Name || o.arch.Name == regs.ARM64BE.Name
	flexible := version == 3 && !arm // GNU as writes no flexible rows for AArch64
	for i := range entries {
		r := &entries[i].Row
		if r.Outermost {
			continue
		}
		why := ""
		base := r.CFA.Reg == o.arch.SP || r.CFA.Reg == o.arch.FP
		switch {
		case r.CFA.Base == sframe.FromExpr:
			why = "the CFA is an expression"
		case (!base || r.CFA.Deref) && !flexible:
			why = "the CFA is " + o.note.cfa(r.CFA)
		case r.FP.Base == sframe.FromExpr || r.RA.Base == sframe.FromExpr:
			why = "FP or RA is an expression"
		case r.FP.Base == sframe.Undefined:
			why = "FP is undefined"
		case r.FP.Base == sframe.FromCFA && !r.FP.Deref || r.RA.Base == sframe.FromCFA && !r.RA.Deref:
			why = "FP or RA is an offset from the CFA itself"
		case r.FP.Base == sframe.FromReg && !flexible && o.arch.Name != regs.S390X.Name:
			why = "FP is in a register"
		case o.arch.Name == regs.AMD64.Name && version < 3 && r.RA != atCFA(-8):
			why = "RA is not at CFA-8"
		case arm && r.FP.Base == sframe.FromCFA && r.RA.Base == sframe.Same:
			why = "FP is saved and RA is not"
		}
		if why != "" {
			return fmt.Sprintf("%s at %#x", why, entries[i].Start+o.bias)
		}
	}
	return ""
}

func atCFA(off int32) sframe.Rule {
	return sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: off}
}

// difference is a range for which the two tables have different rules.
type difference struct {
	span
	fn   uint64
	a, b columns
}

// tally is the outcome of a comparison, in bytes of code.
type tally struct {
	text, sframe, eh, both, same uint64
	diffs                        []difference
}

// clip is the part of s below code, in bytes.
func clip(s span, code []span) (n uint64) {
	for _, c := range code {
		lo, hi := max(s.start, c.start), min(s.end(), c.end())
		if lo < hi {
			n += hi - lo
		}
	}
	return n
}

// compareSides walks both tables at once.
func (o *object) compareSides(a, b *side) *tally {
	t := &tally{}
	for _, c := range o.code {
		t.text += c.size
	}
	for _, p := range a.pieces {
		t.sframe += clip(p.span, o.code)
	}
	for _, p := range b.pieces {
		t.eh += clip(p.span, o.code)
	}
	for i, j := 0, 0; i < len(a.pieces) && j < len(b.pieces); {
		p, q := &a.pieces[i], &b.pieces[j]
		lo, hi := max(p.start, q.start), min(p.end(), q.end())
		if lo < hi {
			t.both += clip(span{lo, hi - lo}, o.code)
			o.compareRows(t, p, q, lo, hi)
		}
		if p.end() <= q.end() {
			i++
		} else {
			j++
		}
	}
	return t
}

// compareRows compares the rows for the addresses from lo to hi. That of the
// PLT in .eh_frame depends on the address.
func (o *object) compareRows(t *tally, p, q *piece, lo, hi uint64) {
	step := hi - lo
	plt, isPLT := o.pltRule(&q.row)
	if isPLT {
		step = 1
	}
	for pc := lo; pc < hi; pc += step {
		row := q.row
		if isPLT {
			row.CFA = plt.at(pc)
		}
		if o.sameRow(&p.row, &row, p.sign) {
			t.same += clip(span{pc, step}, o.code)
			continue
		}
		diff := difference{span{pc, step}, p.fn, o.note.columns(&p.row), o.note.columns(&row)}
		if n := len(t.diffs); n > 0 {
			last := &t.diffs[n-1]
			if last.end() == pc && last.fn == diff.fn && last.a == diff.a && last.b == diff.b {
				last.size += step
				continue
			}
		}
		t.diffs = append(t.diffs, diff)
	}
}

// sameRow: both rows lead to the same caller, as far as SFrame can tell.
func (o *object) sameRow(a, b *sframe.Row, sign bool) bool {
	if a.CFA.Base == sframe.Undefined && a.Signal {
		return b.Signal // SFrame only says that it is a trampoline
	}
	if a.Outermost || b.Outermost {
		return a.Outermost == b.Outermost
	}
	return a.CFA == b.CFA && a.FP == b.FP && a.RA == b.RA && a.Signed == b.Signed && (a.Signal == b.Signal || !sign)
}

// pltRule is the CFA that x86-64 linkers describe for all PLT entries at once:
// SP+base, and 8 more from byte edge of each 16-byte entry on (binutils
// bfd/elfxx-x86.c, elf_x86_64_eh_frame_plt; LLD the same).
type pltRule struct {
	base int32
	edge uint64
}

func (r pltRule) at(pc uint64) sframe.Rule {
	rule := sframe.Rule{Base: sframe.FromReg, Reg: regs.AMD64.SP, Offset: r.base}
	if pc&15 >= r.edge {
		rule.Offset += 8
	}
	return rule
}

// pltRule recognises DW_OP_breg7 base, breg16 0, lit15, and, lit(edge), ge,
// lit3, shl, plus.
func (o *object) pltRule(row *sframe.Row) (pltRule, bool) {
	if o.arch.Name != regs.AMD64.Name || row.CFA.Base != sframe.FromExpr || int(row.CFA.Offset) >= len(row.Exprs) || row.CFA.Offset < 0 {
		return pltRule{}, false
	}
	e := row.Exprs[row.CFA.Offset]
	if len(e) != 11 || e[0] != 0x77 || e[1] >= 0x40 || e[6] < 0x30 || e[6] > 0x3f {
		return pltRule{}, false
	}
	want := []byte{0x77, e[1], 0x80, 0, 0x3f, 0x1a, e[6], 0x2a, 0x33, 0x24, 0x22}
	if string(e) != string(want) {
		return pltRule{}, false
	}
	return pltRule{int32(e[1]), uint64(e[6] - 0x30)}, true
}

// lacks returns the functions of s that other does not cover at all.
func (s *side) lacks(other *side) []sideFunc {
	var only []sideFunc
	for _, f := range s.funcs {
		i, _ := slices.BinarySearchFunc(other.pieces, f.start, func(p piece, addr uint64) int {
			if p.end() <= addr {
				return -1
			}
			return 1
		})
		if i == len(other.pieces) || other.pieces[i].start >= f.end() {
			only = append(only, f)
		}
	}
	slices.SortStableFunc(only, func(a, b sideFunc) int { return cmp.Compare(a.start, b.start) })
	return only
}

// jsonOnly is a function that only one table has, jsonDiff a range where they
// differ, jsonTally the sum.
type jsonOnly struct {
	File  string  `json:"file"`
	Only  string  `json:"only"`
	Start hexAddr `json:"start"`
	Bytes uint64  `json:"size_bytes"`
	Name  string  `json:"name,omitempty"`
	Why   string  `json:"why"`
}

type jsonDiff struct {
	File   string  `json:"file"`
	Start  hexAddr `json:"start"`
	Bytes  uint64  `json:"size_bytes"`
	Name   string  `json:"name,omitempty"`
	SFrame columns `json:"sframe"`
	EH     columns `json:"eh_frame"`
}

type jsonTally struct {
	File   string `json:"file"`
	Text   uint64 `json:"text_bytes"`
	SFrame uint64 `json:"sframe_bytes"`
	EH     uint64 `json:"eh_frame_bytes"`
	Both   uint64 `json:"both_bytes"`
	Same   uint64 `json:"same_bytes"`
	Places int    `json:"differences"`
}

// compare prints where the two tables of an object differ.
func (d *dumper) compare(o *object) error {
	a, b := d.sframeSide(o), d.ehSide(o)
	if b.err != nil {
		return fmt.Errorf("%s: .eh_frame: %w", o.path, b.err)
	}
	if len(o.sframes) == 0 && len(b.funcs) == 0 {
		return fmt.Errorf("%s: %w", o.path, errors.New("neither table has a function"))
	}
	t := o.compareSides(&a, &b)
	if len(t.diffs) > 0 {
		d.failed = true
	}
	d.only(o, &a, &b, ".eh_frame has no entry for it")
	if len(o.sframes) > 0 {
		d.only(o, &b, &a, "its rules can be expressed: its object was assembled without SFrame, or a directive that leaves no rule excluded it")
	}
	for _, diff := range t.diffs {
		name, _ := o.name(diff.start)
		if d.json {
			d.emit(jsonDiff{o.path, hexAddr(diff.start), diff.size, name, diff.a, diff.b})
			continue
		}
		fmt.Fprintf(d.out, "differ %#x-%#x %s: .sframe cfa %s fp %s ra %s; .eh_frame cfa %s fp %s ra %s\n",
			diff.start, diff.end(), named(name), diff.a.CFA, diff.a.FP, diff.a.RA, diff.b.CFA, diff.b.FP, diff.b.RA)
	}
	d.tally(o, t, len(a.funcs), len(b.funcs))
	return nil
}

func named(name string) string {
	if name == "" {
		return "?"
	}
	return printable(name)
}

// only lists the functions of one table that the other does not cover.
func (d *dumper) only(o *object, s, other *side, why string) {
	for _, f := range s.lacks(other) {
		reason := f.why
		if reason == "" {
			reason = why
		}
		name, _ := o.name(f.start)
		if d.json {
			d.emit(jsonOnly{o.path, s.name, hexAddr(f.start), f.size, name, reason})
			continue
		}
		fmt.Fprintf(d.out, "only %s %#x-%#x %s: %s\n", s.name, f.start, f.end(), named(name), reason)
	}
}

func (d *dumper) tally(o *object, t *tally, funcs, ehFuncs int) {
	if d.json {
		d.emit(jsonTally{o.path, t.text, t.sframe, t.eh, t.both, t.same, len(t.diffs)})
		return
	}
	percent := func(n, of uint64) string {
		if of == 0 {
			return "-"
		}
		return fmt.Sprintf("%.2f %%", 100*float64(n)/float64(of))
	}
	fmt.Fprintf(d.out, "%s: %d bytes of text\n", printable(o.path), t.text)
	fmt.Fprintf(d.out, "  .sframe    covers %d bytes (%s), %d functions\n", t.sframe, percent(t.sframe, t.text), funcs)
	fmt.Fprintf(d.out, "  .eh_frame  covers %d bytes (%s), %d functions\n", t.eh, percent(t.eh, t.text), ehFuncs)
	fmt.Fprintf(d.out, "  both       cover %d bytes, the same rules for %d (%s); %d differences\n", t.both, t.same, percent(t.same, t.both), len(t.diffs))
}
