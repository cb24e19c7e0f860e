package runtimes

import "slices"

// Compiled Erlang has frames of a size that its code alone tells: what was in a frame's place before, return addresses among it, stays there until the
// function writes it. Where the return address is at an instruction follows from the function's entry, where the stack pointer is at it, and, where
// nothing in the code leads (handlers of exceptions, places that a table of jumps or a failing instruction of a shared fragment leads to), from the
// returns ahead.
//
// An emulator that keeps frame pointers (+JPperf true) has each function push the caller's and make its own of the stack pointer: the return address then
// follows from both, and where the code leads to a leave alone, from that.

// beamState is what holds at an instruction: by how many words the process's stack pointer is below the return address, whether the stack pointer
// is that of the scheduler's own stack meanwhile, and where the caller's frame pointer is.
type beamState struct {
	words  int // beamAnyWords: not known
	native bool
	link   beamLink
}

// beamLink is where the caller's frame pointer is.
type beamLink uint8

const (
	beamUnlinked beamLink = iota // in its register; or there are none
	beamSaved                    // right below the return address, and the function's own is not made yet
	beamLinked                   // there, and the register leads there
)

// maxBeamFrame bounds a frame, in words: a function has 1024 registers Y at most, and what it passes on.
const maxBeamFrame = 2048

// beamAnyWords are those of a frame to which the frame pointer alone leads.
const beamAnyWords = maxBeamFrame + 1

// Packed states. Those that are known are 2 and more.
const (
	beamUnreached = 0
	beamDiffers   = 1 // ways lead there on which it differs
)

func (s beamState) pack() uint16 {
	v := uint16(s.words)*8 + uint16(s.link)*2 + 2
	if s.native {
		v++
	}
	return v
}

func unpackBeam(v uint16) beamState {
	v -= 2
	return beamState{int(v / 8), v&1 != 0, beamLink(v / 2 & 3)}
}

// both is what holds where ways lead with v and w.
func both(v, w uint16) uint16 {
	if v < 2 || w < 2 {
		return beamDiffers
	}
	x, y := unpackBeam(v), unpackBeam(w)
	if x.link != beamLinked || y.link != beamLinked || x.native != y.native {
		return beamDiffers
	}
	x.words = beamAnyWords
	return x.pack()
}

// beamFlow is a function's code as far as its stack pointer goes.
type beamFlow struct {
	code   []byte
	states []uint16       // by place, as its entry leads there
	behind map[int]uint16 // what holds at a call, by the place behind it, which may be where other code begins
	late   map[int]uint16 // what ahead has found
	wrong  bool           // it returns with something on its stack: it is no such function
	framed bool           // the emulator keeps frame pointers
	proven bool           // with them: an instruction shows that what it begins with is so
	// leads tells what is at a place outside the code.
	leads func(at int) beamPlace
	work  *int // what may be looked at yet, which ahead takes from; nil: all
}

// beamPlace is what code leads to.
type beamPlace uint8

const (
	beamElsewhere beamPlace = iota
	beamEntry               // of a function
	beamRaises              // a fragment that does not return
)

// newBeamFlow follows code from its entry, its first instruction.
func newBeamFlow(code []byte, leads func(at int) beamPlace) *beamFlow {
	f := &beamFlow{code: code, leads: leads}
	f.follow(beamState{})
	return f
}

// beamStarts is what may hold at the entry of code that functions have in common: others call it, jump there with their frame, or come back there from native code.
var beamStarts = []beamState{{}, {words: beamAnyWords, link: beamLinked}, {words: beamAnyWords, native: true, link: beamLinked}}

// newFramedFlow is newBeamFlow where there are frame pointers. Of the starts that one holds which its instructions prove; where they cannot, the only one.
func newFramedFlow(code []byte, leads func(at int) beamPlace, starts ...beamState) *beamFlow {
	f := &beamFlow{code: code, framed: true, leads: leads}
	for _, s := range starts {
		if f.follow(s); f.proven && !f.wrong {
			return f
		}
	}
	f.wrong = f.wrong || len(starts) != 1
	return f
}

// follow follows the code, with s at its entry.
func (f *beamFlow) follow(s beamState) {
	f.states, f.behind, f.late, f.wrong, f.proven = make([]uint16, len(f.code)), map[int]uint16{}, map[int]uint16{}, false, false
	list := []int{0}
	f.states[0] = s.pack()
	for len(list) > 0 {
		at := list[len(list)-1]
		list = list[:len(list)-1]
		if f.states[at] == beamDiffers {
			continue
		}
		s := unpackBeam(f.states[at])
		x, ok := f.step(at, s)
		if x.returns && s != (beamState{}) || x.leaves && s.link != beamLinked {
			f.wrong = true
			return
		}
		f.proven = f.proven || x.returns || x.leaves || x.links && ok
		if x.behind > 0 {
			f.behind[x.behind] = f.states[at]
		}
		for _, to := range x.to {
			if f.outside(to) {
				continue
			}
			v := uint16(beamDiffers)
			if ok {
				v = x.after.pack()
			}
			old := f.states[to]
			if old != beamUnreached && old != v {
				v = both(old, v)
			}
			if v != old {
				f.states[to] = v
				list = append(list, to)
			}
		}
	}
}

// beamStep is what an instruction leads to.
type beamStep struct {
	after   beamState
	to      []int // places, also outside the code
	returns bool  // it leaves the function: nothing of that is on the stack
	behind  int   // of a call: the place behind it
	restore uint8 // the register in which it finds the process's stack pointer, or that of the process which has it
	leaves  bool  // it drops the frame to which the frame pointer leads
	links   bool  // it makes the stack pointer the frame pointer
}

// step is what the instruction at a place does, with s before it. ok is false if what it makes of the stack pointer is not known.
func (f *beamFlow) step(at int, s beamState) (x beamStep, ok bool) {
	i := decodeX86(f.code[at:])
	if i.size == 0 {
		return x, false
	}
	next := at + i.size
	x.after, x.to = s, []int{next}
	by := 0 // words pushed
	toSP := i.direct() && i.rm() == regSPNumber
	if f.framed && i.setsFP() {
		return f.stepFrame(&i, x)
	}
	switch op := i.op; {
	case op == 0xe9, op == 0xeb:
		x.to[0] = next + int(i.imm)
		x.returns = f.outside(x.to[0]) && f.leads(x.to[0]) == beamEntry
	case op == 0xe8:
		if x.behind = next; f.outside(next+int(i.imm)) && f.leads(next+int(i.imm)) == beamRaises {
			x.to = nil
		}
	case op == 0xff && i.digit() == 2:
		x.behind = next
	case op >= 0x70 && op < 0x80, op >= 0x0f80 && op < 0x0f90:
		x.to = append(x.to, next+int(i.imm))
	case op == 0xc3:
		x.to, x.returns = nil, true
	case op == 0xff && i.digit() == 4:
		// The address is one of an export's or a function's, by the index of the active code in r12; or anything.
		x.to, x.returns = nil, i.rex&rexX != 0 && f.code[next-1]>>3 == 7<<2 && i.modRM == 0x24
	case op == 0x0f0b, op == 0xcc, op == 0xf4, op == 0xc2, op == 0xff && i.digit() == 5:
		x.to = nil
	case op == 0xff && i.digit() == 6, op >= 0x50 && op < 0x58, op == 0x68, op == 0x6a:
		if by = 1; f.framed && op == 0x55 && i.rex&rexB == 0 && s == (beamState{}) {
			x.after.link = beamSaved
		}
	case op == 0x5c && i.rex&rexB == 0:
		return x, false
	case op >= 0x58 && op < 0x60, op == 0x8f:
		by = -1
	case (op == 0x81 || op == 0x83) && toSP && i.digit() != 7:
		if i.rex&rexW == 0 || i.imm%8 != 0 || i.digit() != 0 && i.digit() != 5 {
			return x, false
		}
		if by = int(i.imm / 8); i.digit() == 0 {
			by = -by
		}
	case op == 0x8d && i.reg() == regSPNumber: // lea rsp,[rbx+N]
		if s.native || i.rm() != regRBX || i.rex&rexW == 0 {
			return x, false
		}
		x.after.native = true
		return x, true
	case op == 0x8b && i.reg() == regSPNumber && !i.direct() && i.rm() == regR13 && i.disp == beamStop,
		op == 0x8b && i.reg() == regSPNumber && i.direct() && i.rm() == regBPNumber, op == 0x89 && toSP && i.reg() == regBPNumber:
		x.restore = regRBP
		if !i.direct() {
			x.restore = regR13
		}
		x.after.native = false
		return x, s.native
	case op == 0x8b && i.reg() == regSPNumber, op == 0x89 && toSP, op == 0x87 && (toSP || i.reg() == regSPNumber), op == 0xc9,
		op < 0x38 && op&7 == 1 && toSP, op < 0x38 && op&7 == 3 && i.reg() == regSPNumber:
		return x, false
	}
	if by == 0 {
		return x, true
	}
	if x.after.link == beamSaved && s.link == beamSaved {
		return x, false
	}
	if s.words != beamAnyWords {
		x.after.words += by
	}
	least := 0
	if s.link == beamLinked {
		least = 1
	}
	return x, !s.native && x.after.words >= least && (x.after.words <= maxBeamFrame || s.words == beamAnyWords)
}

// stepFrame is step for an instruction that changes the frame pointer.
func (f *beamFlow) stepFrame(i *x86Insn, x beamStep) (beamStep, bool) {
	s := &x.after
	switch {
	case i.op == 0xc9:
		x.leaves = true
		ok := s.link == beamLinked && !s.native
		*s = beamState{}
		return x, ok
	case i.framesFP():
		x.links = true
		ok := s.link == beamSaved && s.words == 1 && !s.native
		s.link = beamLinked
		return x, ok
	case i.restoresFP():
		return x, true
	}
	return x, false
}

// restoresFP: it takes back the frame pointer of the process, which what was called may have moved.
func (x *x86Insn) restoresFP() bool {
	return x.op == 0x8b && x.rex&rexW != 0 && x.reg() == regBPNumber && !x.direct() && x.rm() == regR13 && x.disp == beamFramePointer
}

func (f *beamFlow) outside(at int) bool { return at < 0 || at >= len(f.code) }

// at is what holds at a place, or, caller, at the call before it. ok is false if that is not known.
func (f *beamFlow) at(place int, caller, native bool) (s beamState, ok bool) {
	if f.wrong || place < 0 || place > len(f.code) || !caller && place == len(f.code) {
		return s, false
	}
	v := uint16(beamUnreached)
	if caller {
		v = f.behind[place]
	} else {
		v = f.states[place]
	}
	if v == beamUnreached && place < len(f.code) {
		if v, ok = f.late[place]; !ok {
			if f.work != nil && *f.work < 0 {
				return s, false
			}
			v = beamDiffers
			if f.framed {
				v = f.ahead(place, beamState{native: native, link: beamLinked})
			}
			if v == beamDiffers {
				v = f.ahead(place, beamState{native: native})
			}
			f.late[place] = v
		}
	}
	if v < 2 {
		return s, false
	}
	s = unpackBeam(v)
	return s, s.native == native
}

// ahead is what holds at a place to which the entry does not lead, by the returns ahead and the places to which the entry leads too. as is what is tried,
// but for its words; nothing holds that they do not show.
func (f *beamFlow) ahead(place int, as beamState) uint16 {
	const from = maxBeamFrame / 2 // the words at the place, until they are known
	as.words = from
	seen := map[int]beamState{place: as}
	list := []int{place}
	found, left := -1, false
	is := func(words int) bool {
		if found < 0 {
			found = words
		}
		return words >= 0 && found == words
	}
	for len(list) > 0 {
		at := list[len(list)-1]
		list = list[:len(list)-1]
		if f.work != nil {
			*f.work -= 16
		}
		s := seen[at]
		x, ok := f.step(at, s)
		if x.leaves && ok {
			left = true
			continue
		}
		if x.returns && (s.native || s.link != beamUnlinked || !is(from-s.words)) || !ok && len(x.to) > 0 {
			return beamDiffers
		}
		for _, to := range x.to {
			if f.outside(to) {
				continue
			}
			if v := f.states[to]; v >= 2 {
				known := unpackBeam(v)
				if known.native != x.after.native || known.link != x.after.link {
					return beamDiffers
				}
				if known.words == beamAnyWords {
					left = true
				} else if !is(known.words - x.after.words + from) {
					return beamDiffers
				}
				continue
			}
			old, was := seen[to]
			if was && old != x.after {
				return beamDiffers
			}
			if !was {
				seen[to] = x.after
				list = append(list, to)
			}
		}
	}
	switch {
	case found >= 0:
		as.words = found
	case left:
		as.words = beamAnyWords
	default:
		return beamDiffers
	}
	return as.pack()
}

// maxBeamRestore bounds the instructions that are looked at.
const maxBeamRestore = 256

// restores is the register from which the code at a place takes the process's stack pointer back: regRBP, or regR13 for that of the process; also: it takes
// the frame pointer from there too. ok is false if it does not, or ways differ.
func (f *beamFlow) restores(place int) (reg uint8, also, ok bool) {
	seen, list := []int{place}, []int{place}
	for len(list) > 0 {
		at := list[len(list)-1]
		list = list[:len(list)-1]
		if f.outside(at) || len(seen) > maxBeamRestore {
			return 0, false, false
		}
		x, good := f.step(at, beamState{native: true, link: beamLinked})
		too := false
		if x.restore != 0 && f.framed && !f.outside(x.to[0]) {
			i := decodeX86(f.code[x.to[0]:])
			too = i.size > 0 && i.restoresFP()
		}
		switch {
		case !good:
			return 0, false, false
		case x.restore == 0:
			for _, to := range x.to {
				if !slices.Contains(seen, to) {
					seen, list = append(seen, to), append(list, to)
				}
			}
		case reg != 0 && (reg != x.restore || also != too):
			return 0, false, false
		default:
			reg, also = x.restore, too
		}
	}
	return reg, also, reg != 0
}
