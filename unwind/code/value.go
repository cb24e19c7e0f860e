package code

import (
	"slices"

	"sfsample/regs"
)

// value is what is known of a register or a word of the stack, in terms of the
// registers at the address where the walk began ("then").
type value struct {
	kind kind
	reg  uint8 // DWARF number
	off  int64
}

type kind uint8

const (
	unknown kind = iota
	sum          // register reg then, plus off
	loaded       // the word at (register reg then, plus off)
	fixed        // off itself: an address of code
)

func (v value) plus(off int64) value {
	if n := v.off + off; v.kind == sum && -maxFrame < n && n < maxFrame && -maxFrame < off && off < maxFrame {
		return value{sum, v.reg, n}
	}
	return value{}
}

// maxFrame bounds offsets from a register: the stacks of threads are smaller.
const maxFrame = 1 << 28

// slot is a word of the stack that was written since, with what is known.
type slot struct {
	at  value // of kind sum
	val value
}

// span is a part of the stack that was written since, in bytes from register reg.
type span struct {
	reg    uint8
	lo, hi int64
}

const (
	// maxSlots bounds the words that are remembered: functions keep fewer
	// registers.
	maxSlots = 20
	// maxSpans bounds the registers through which the stack may be written.
	maxSpans = 8
)

// state is what is known at one instruction.
type state struct {
	regs   [regs.NumRegs]value
	slots  [maxSlots]slot
	spans  [maxSpans]span
	nSlots uint8
	nSpans uint8
	lost   uint32 // registers for which there was no span: what lies where they point is not known
}

// store notes that v was written to the word at address at.
func (s *state) store(at, v value, word int64) {
	s.spoil(at, word, word)
	if at.kind != sum || v.kind == unknown {
		return
	}
	if s.nSlots == maxSlots {
		return // not remembered, and in the span
	}
	s.slots[s.nSlots] = slot{at, v}
	s.nSlots++
}

// spoil notes that size bytes at address at were written. An address that is not
// known is taken not to be where registers are kept.
func (s *state) spoil(at value, size, word int64) {
	if at.kind != sum {
		return
	}
	n := s.nSlots
	s.nSlots = 0
	for _, old := range s.slots[:n] {
		if old.at.reg == at.reg && old.at.off < at.off+size && at.off < old.at.off+word {
			continue
		}
		s.slots[s.nSlots] = old
		s.nSlots++
	}
	s.widen(span{at.reg, at.off, at.off + size})
}

func (s *state) widen(w span) {
	for i := range s.spans[:s.nSpans] {
		if o := &s.spans[i]; o.reg == w.reg {
			o.lo, o.hi = min(o.lo, w.lo), max(o.hi, w.hi)
			return
		}
	}
	if s.nSpans == maxSpans {
		s.lost |= 1 << w.reg
		return
	}
	s.spans[s.nSpans] = w
	s.nSpans++
}

// load is the word at address at.
func (s *state) load(at value, word int64) value {
	if at.kind != sum || s.lost>>at.reg&1 != 0 {
		return value{}
	}
	for i := range s.slots[:s.nSlots] {
		if o := &s.slots[i]; o.at == at {
			return o.val
		}
	}
	for _, w := range s.spans[:s.nSpans] {
		if w.reg == at.reg && w.lo < at.off+word && at.off < w.hi {
			return value{}
		}
	}
	return value{loaded, at.reg, at.off}
}

// join makes s what holds on both ways to an instruction, s and t, and tells
// whether that changed it.
func (s *state) join(t *state) (changed bool) {
	for r := range s.regs {
		if s.regs[r] != t.regs[r] && s.regs[r].kind != unknown {
			s.regs[r] = value{}
			changed = true
		}
	}
	n := s.nSlots
	s.nSlots = 0
	for _, o := range s.slots[:n] {
		if slices.Contains(t.slots[:t.nSlots], o) {
			s.slots[s.nSlots] = o
			s.nSlots++
		}
	}
	spans, k, lost := s.spans, s.nSpans, s.lost
	for _, w := range t.spans[:t.nSpans] {
		s.widen(w)
	}
	s.lost |= t.lost
	return changed || n != s.nSlots || k != s.nSpans || spans != s.spans || lost != s.lost
}
