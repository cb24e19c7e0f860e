package sframe

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
)

// Check goes through the whole section and yields every fault with its place:
// errors that wrap a *[FormatError]. An error of another kind, from the reader,
// ends the check.
//
// It reports all that a look-up would refuse, and besides what a look-up does
// not see: counts that do not add up, functions out of order or overlapping,
// undefined bits that are set, addresses without a row, offsets that no ABI
// allows. If executable is not nil, it tells whether size bytes from addr on are
// code, and functions elsewhere are faults.
//
// A hostile section could make a check report, or go through shared rows, nearly
// for ever: it ends after 10,000 faults, and when functions have far more rows
// than the section has bytes for.
//
// What a sound table says may still be wrong: a different start, size or offset
// that is as good as the right one cannot be told from it without the code.
func (s *Section) Check(executable func(addr, size uint64) bool) iter.Seq[error] {
	return func(yield func(error) bool) {
		c := checker{s: s, executable: executable}
		faults := 0
		c.yield = func(err error) bool {
			if faults++; faults > maxFaults {
				yield(badWhole(0, "too many faults, the check ends", maxFaults))
				return false
			}
			return yield(err)
		}
		c.section()
	}
}

// maxFaults ends a check.
const maxFaults = 10_000

// checker collects what spans several functions. Its methods return false when
// the check is over.
type checker struct {
	s          *Section
	executable func(addr, size uint64) bool
	yield      func(error) bool

	prev  Func // the function before in the same image
	rows  uint64
	spans []span // of all functions, up to maxIndex
}

type span struct {
	start, size uint64
	secOff      uint64
}

func (c *checker) section() {
	l, err := c.s.chain()
	if err != nil {
		c.yield(err)
		return
	}
	if l.tail != nil && !c.yield(l.tail) {
		return
	}
	for _, img := range l.images {
		if !c.header(img) {
			return
		}
	}
	num := -1
	for f, err := range c.s.Funcs() {
		if f.img != nil && f.Image != num {
			if num >= 0 && !c.count(l.images[num]) {
				return
			}
			num, c.rows, c.prev = f.Image, 0, Func{}
		}
		if err != nil && !isFormat(err) {
			c.yield(err)
			return
		}
		if !c.function(&f, err) {
			return
		}
		c.prev = f
	}
	if num >= 0 && !c.count(l.images[num]) {
		return
	}
	c.overlaps()
}

// header reports what a look-up does not mind.
func (c *checker) header(img *image) bool {
	if img.header.ABI == AMD64 && img.header.FixedRA != -8 {
		if !c.yield(bad(img.secOff+6, "return address is not where AMD64's call instruction puts it", uint64(uint8(img.header.FixedRA)))) {
			return false
		}
	}
	if img.header.FixedFP%8 != 0 || img.header.FixedRA%8 != 0 {
		if !c.yield(bad(img.secOff+5, "fixed offset is not a multiple of 8", uint64(uint8(img.header.FixedFP)))) {
			return false
		}
	}
	if img.end != img.limit {
		return c.yield(bad(img.secOff+16, "rows run past the section", uint64(img.header.FRELen)))
	}
	return true
}

// count compares the header's row count with the sum over an image's functions.
func (c *checker) count(img *image) bool {
	if c.rows == uint64(img.header.NumFREs) {
		return true
	}
	return c.yield(bad(img.secOff+12, fmt.Sprintf("header counts other rows than the functions, which have %d", c.rows), uint64(img.header.NumFREs)))
}

// report yields a fault of f.
func (c *checker) report(f *Func, err error) bool {
	return c.yield(fmt.Errorf("function %#x: %w", f.Start, err))
}

// function reports the faults of f; err is that of its decoding.
func (c *checker) function(f *Func, err error) bool {
	c.rows += uint64(f.NumRows)
	if len(c.spans) < maxIndex {
		c.spans = append(c.spans, span{f.Start, uint64(f.Size), f.SecOff})
	}
	if c.rows > uint64(f.img.header.NumFDEs)+2*uint64(f.img.header.FRELen) {
		c.yield(badWhole(f.SecOff, "functions share more rows than are checked", c.rows))
		return false
	}
	if err != nil && !c.report(f, err) {
		return false
	}
	for _, fault := range c.funcFaults(f) {
		if !c.report(f, fault) {
			return false
		}
	}
	return c.funcRows(f)
}

// funcFaults are those of the FDE itself.
func (c *checker) funcFaults(f *Func) []error {
	var faults []error
	fault := func(cond bool, off uint64, text string, value uint64) {
		if cond {
			faults = append(faults, bad(off, text, value))
		}
	}
	img := f.img
	fault(img.header.Flags&FlagSorted != 0 && c.prev.img != nil && f.Start < c.prev.Start,
		f.SecOff, "starts before its predecessor in a table that claims to be sorted", c.prev.Start)
	fault(f.Start+uint64(f.Size) < f.Start && f.Start+uint64(f.Size) != 0, f.SecOff, "runs past the end of the address space", uint64(f.Size))
	fault(c.executable != nil && f.Size > 0 && !c.executable(f.Start, uint64(f.Size)), f.SecOff, "is not in executable memory", f.Start)

	undefined := byte(0x40)
	if img.header.Version < 3 {
		undefined |= infoSignal
	}
	if !img.header.ABI.aarch64() {
		undefined |= infoKeyB
	}
	fault(f.attr.info&undefined != 0, f.SecOff, "undefined function info bits", uint64(f.attr.info))
	fault(f.attr.info2&^info2Type != 0, f.SecOff, "undefined function type bits", uint64(f.attr.info2))
	fault(f.attr.pad != 0, f.SecOff+18, "padding is not zero", uint64(f.attr.pad))
	return faults
}

// funcRows reports the faults of the rows of f.
func (c *checker) funcRows(f *Func) bool {
	n := 0
	w := c.s.window()
	defer w.release()
	for r, err := range c.s.Rows(f) {
		if err != nil && !isFormat(err) {
			c.yield(err)
			return false
		}
		faults := c.rowFaults(w, f, &r, n)
		if err != nil {
			faults = []error{err}
		}
		for _, fault := range faults {
			if !c.yield(fmt.Errorf("function %#x, row %d: %w", f.Start, n, fault)) {
				return false
			}
		}
		n++
	}
	return true
}

// rowFaults are those of a row that decodes, number n of f.
func (c *checker) rowFaults(w *window, f *Func, r *FuncRow, n int) []error {
	var faults []error
	fault := func(cond bool, text string, value uint64) {
		if cond {
			faults = append(faults, bad(r.SecOff, text, value))
		}
	}
	fault(n == 0 && r.Off != 0, "first row does not start with the function", uint64(r.Off))
	fault(f.Mask && r.Off > f.Block, "row starts past the end of the block", uint64(r.Off))
	if info, err := w.at(r.SecOff+uint64(f.width), 1, 0); err == nil {
		fault(info[0]&rowSigned != 0 && !f.img.header.ABI.aarch64(), "undefined row info bits", uint64(info[0]))
	}
	if r.Row.Outermost {
		return faults
	}
	for _, rule := range []Rule{r.Row.RA, r.Row.FP} {
		fault(rule.Base == FromCFA && rule.Deref && rule.Offset%8 != 0, "saved at an offset from the CFA that is not a multiple of 8", uint64(uint32(rule.Offset)))
	}
	fault(f.img.header.ABI != AMD64 && r.Row.CFA.Offset%8 != 0, "CFA offset is not a multiple of 8", uint64(uint32(r.Row.CFA.Offset)))
	return faults
}

// overlaps reports addresses that two functions cover. Two that cover the same
// are no fault: linkers fold identical functions.
func (c *checker) overlaps() {
	slices.SortFunc(c.spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.size, b.size), cmp.Compare(a.secOff, b.secOff))
	})
	var last span // the one that reaches furthest
	for _, s := range c.spans {
		if s.size == 0 {
			continue
		}
		same := s.start == last.start && s.size == last.size
		if s.start-last.start < last.size && !same {
			if !c.yield(fmt.Errorf("function %#x: %w", s.start, bad(s.secOff, "overlaps the function", last.start))) {
				return
			}
		}
		if last.size == 0 || s.start+s.size > last.start+last.size {
			last = s
		}
	}
}
