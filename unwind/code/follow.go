package code

import (
	"bytes"
	"encoding/binary"
	"errors"

	"sfsample/regs"
	"sfsample/sframe"
)

// Why there is no row. They are values that callers may tell apart; each means
// that the next method is to be tried.
var (
	ErrNoReturn  = errors.New("no return is reached from there")
	ErrDisagree  = errors.New("returns that are reached do not agree")
	ErrTooFar    = errors.New("too many instructions to the function's returns")
	ErrNoDecoder = errors.New("instructions of this architecture are not followed")
)

// maxInsns bounds the instructions that are followed, each counted as often as
// something new was known there. It takes about a microsecond for each.
const maxInsns = 3000

// Place is where to begin.
type Place struct {
	PC uint64
	// Caller: PC is a return address. A call is behind it that may not have
	// been meant to return.
	Caller bool
	// Ends tells whether a function is known to end where an address is: no call
	// in front of it returns. It may be nil.
	Ends func(addr uint64) bool
}

// flow says where an instruction goes on.
type flow uint8

const (
	next      flow = iota
	jump           // to the target
	branch         // to the target or the next instruction
	call           // to the next instruction, if what was called returns
	ret            // to the caller
	mayReturn      // to the caller or the next instruction
	stop           // nowhere, or nobody knows where
)

// insn is an instruction that was followed.
type insn struct {
	size   int
	flow   flow
	target uint64
	to     value // of ret: where it returns to
	pops   int32 // of ret: what it takes from the stack besides the return address, in bytes
}

// machine is what differs between architectures.
type machine struct {
	// step applies the instruction at pc, which begins b, to s. A size of 0
	// means that it is not understood.
	step func(b []byte, pc uint64, s *state) insn
	// cold: no way leads to b, at pc, from the call in front of it: it is what
	// compilers put between functions, or how functions begin.
	cold func(b []byte, pc uint64) bool
	arch *regs.Arch
	wide bool // x86-64
}

var machines = map[string]*machine{
	regs.AMD64.Name: x86Machine(&x86{arch: regs.AMD64, wide: true}),
	regs.I386.Name:  x86Machine(&x86{arch: regs.I386}),
	regs.ARM64.Name: {step: stepARM64, cold: coldARM64, arch: regs.ARM64},
	regs.S390X.Name: {step: stepS390X, cold: coldS390X, arch: regs.S390X},
}

func x86Machine(m *x86) *machine {
	return &machine{step: m.step, cold: coldX86, arch: m.arch, wide: m.wide}
}

// Follow returns the row for the code at p. read copies code at an address to b
// and returns how many bytes there were. a is the architecture; nothing but its
// name matters. The error is one of those above.
func Follow(a *regs.Arch, p Place, read func(addr uint64, b []byte) int) (*sframe.Row, error) {
	m := machines[a.Name]
	if m == nil {
		return nil, ErrNoDecoder
	}
	row, _, err := follow(m, p, maxInsns, read)
	if err != nil && !p.Caller && m.wide {
		if kept, ok := inStub(m, p.PC, read); ok {
			return &sframe.Row{CFA: sframe.Rule{Base: sframe.FromReg, Reg: a.SP, Offset: int32(a.WordBytes)},
				RA: sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: -int32(a.WordBytes)}, Keep: kept & a.CalleeSaved &^ (1 << a.FP)}, nil
		}
	}
	return row, err
}

// follow is Follow for at most so many instructions, twice. It returns how many it was.
func follow(m *machine, p Place, most int, read func(addr uint64, b []byte) int) (row *sframe.Row, insns int, err error) {
	// What is reached without a call is sure, also behind the one that p tells of. Only then calls are passed:
	// one that does not return leads into another function.
	for _, pass := range []bool{false, true} {
		w := walk{m: m, place: p, read: read, passCalls: pass, left: most}
		row, err = w.run()
		if insns += most - w.left; err == nil {
			break
		}
	}
	return row, insns, err
}

// Called returns the row for the code at p if a call of the function at start
// leads there, jumps to other functions included: then it tells how far the
// stack pointer has moved since. It serves where no return is reached. The error
// is ErrNoReturn, if the way was not found, or another one of those above.
func Called(a *regs.Arch, start uint64, p Place, read func(addr uint64, b []byte) int) (*sframe.Row, error) {
	m := machines[a.Name]
	if m == nil {
		return nil, ErrNoDecoder
	}
	w := walk{m: m, place: Place{PC: start, Ends: p.Ends}, read: read, passCalls: true, goal: p.PC, left: maxInsns}
	switch err := w.explore(); {
	case w.found:
		return w.since()
	case err != nil:
		return nil, err
	}
	return nil, ErrNoReturn
}

// Target returns where the direct call goes that ends at ra; ok is false if there
// is none.
func Target(a *regs.Arch, ra uint64, read func(addr uint64, b []byte) int) (addr uint64, ok bool) {
	var b [6]byte
	size := map[string]uint64{regs.AMD64.Name: 5, regs.I386.Name: 5, regs.ARM64.Name: 4, regs.S390X.Name: 6}[a.Name]
	if size == 0 || read(ra-size, b[:size]) < int(size) {
		return 0, false
	}
	switch {
	case size == 5 && b[0] == 0xe8: // call rel32
		return ra + uint64(int64(int32(binary.LittleEndian.Uint32(b[1:])))), true
	case size == 4 && b[3]>>2 == 0x25: // bl
		return ra - 4 + uint64(arm64Imm(binary.LittleEndian.Uint32(b[:]), 0, 26)*4), true
	case size == 6 && b[0] == 0xc0 && b[1] == s390xRA<<4|5: // brasl %r14
		return ra - 6 + uint64(int64(int32(binary.BigEndian.Uint32(b[2:])))*2), true
	}
	return 0, false
}

// since makes the row of what has happened between the function's start and w.at.
func (w *walk) since() (*sframe.Row, error) {
	a := w.m.arch
	sp := w.at.regs[a.SP]
	if sp.kind != sum || sp.reg != a.SP || sp.off > 0 {
		return nil, ErrNoReturn
	}
	cfa := int64(cfaOffset(a)) // from the stack pointer at the start
	row := &sframe.Row{CFA: sframe.Rule{Base: sframe.FromReg, Reg: a.SP, Offset: int32(cfa - sp.off)}}
	kept := func(r uint8) sframe.Rule {
		if w.at.regs[r] == (value{sum, r, 0}) {
			return sframe.Rule{}
		}
		for _, o := range w.at.slots[:w.at.nSlots] {
			if o.at.kind == sum && o.at.reg == a.SP && o.val == (value{sum, r, 0}) {
				return sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: int32(o.at.off - cfa)}
			}
		}
		return sframe.Rule{Base: sframe.Undefined}
	}
	row.FP = kept(a.FP)
	row.RA = sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: -int32(a.WordBytes)}
	if a.Link {
		if row.RA = kept(a.RA); row.RA.Base != sframe.FromCFA {
			return nil, ErrNoReturn // not on the stack: nothing has found it there
		}
	}
	for r := range uint8(regs.NumRegs) {
		k := kept(r)
		switch {
		case r == a.FP || a.CalleeSaved>>r&1 == 0:
		case k == sframe.Rule{}:
			row.Keep |= 1 << r
		case k.Base == sframe.FromCFA:
			row.Saved = append(row.Saved, sframe.SavedRule{Reg: r, Rule: k})
		}
	}
	return row, nil
}

// maxStraight bounds how far [Straight] looks, in bytes.
const maxStraight = 128

// Straight tells whether the code of x86-64 from start on leads to the instruction that holds pc by itself: nothing before it returns, jumps
// away or stops, and there is no padding.
func Straight(a *regs.Arch, start, pc uint64, read func(addr uint64, b []byte) int) bool {
	m := machines[a.Name]
	if m == nil || !m.wide || pc-start > maxStraight {
		return false
	}
	var buf [maxStraight + 16]byte
	b := buf[:max(0, min(read(start, buf[:]), len(buf)))]
	for s, at := (state{}), 0; at < len(b); {
		in := m.step(b[at:], start+uint64(at), &s)
		if in.size == 0 || bytes.HasPrefix(b[at:], x86Zeros) {
			return false
		}
		if at += in.size; start+uint64(at) > pc {
			return true
		}
		if in.flow != next && in.flow != call && in.flow != branch {
			return false
		}
	}
	return false
}

// node is an instruction that was reached, with what is known before it.
type node struct {
	state  state
	queued bool
}

// walk is one pass over the code.
type walk struct {
	m         *machine
	place     Place
	read      func(addr uint64, b []byte) int
	passCalls bool
	goal      uint64    // if not 0: ends there, with found and at
	in        *function // if not nil: stays in it, and ends when all of it is reached

	nodes map[uint64]*node
	queue []uint64
	left  int // instructions
	err   error

	found bool
	at    state // at the returns, joined
	ra    value
	pops  int32

	buf piece
}

// piece is code from pc on.
type piece struct {
	code [256]byte
	pc   uint64
	len  int
}

// run is Follow.
func (w *walk) run() (*sframe.Row, error) {
	if w.place.Caller && w.ends(w.place.PC) {
		return nil, ErrNoReturn
	}
	if err := w.explore(); err != nil {
		return nil, err
	}
	if !w.found {
		return nil, ErrNoReturn
	}
	return w.row()
}

// explore follows the code until all is seen that can be reached, or the goal.
func (w *walk) explore() error {
	w.nodes = map[uint64]*node{}
	var s state
	for r := range s.regs {
		s.regs[r] = value{sum, uint8(r), 0}
	}
	w.reach(w.place.PC, &s)
	for len(w.queue) > 0 && w.err == nil {
		pc := w.queue[len(w.queue)-1]
		w.queue = w.queue[:len(w.queue)-1]
		w.follow(pc)
	}
	return w.err
}

// ends tells whether a call in front of pc is the end of its function.
func (w *walk) ends(pc uint64) bool {
	return w.place.Ends != nil && w.place.Ends(pc) || w.m.cold(w.code(pc), pc)
}

// code returns what there is of the code at pc, 32 bytes at least if there are.
func (w *walk) code(pc uint64) []byte {
	const enough = 32
	p := &w.buf
	if pc < p.pc || pc-p.pc > uint64(p.len) || uint64(p.len)-(pc-p.pc) < enough {
		p.pc, p.len = pc, max(0, min(w.read(pc, p.code[:]), len(p.code)))
	}
	return p.code[pc-p.pc : p.len]
}

// reach notes that the instruction at pc is reached with s.
func (w *walk) reach(pc uint64, s *state) {
	n := w.nodes[pc]
	sp := w.m.arch.SP
	switch {
	case n == nil:
		n = &node{state: *s}
		w.nodes[pc] = n
	case n.state.regs[sp] != s.regs[sp] && n.state.regs[sp].kind != unknown && s.regs[sp].kind != unknown:
		w.err = ErrDisagree
		return
	case !n.state.join(s):
		return
	}
	if !n.queued {
		n.queued = true
		w.queue = append(w.queue, pc)
	}
}

// follow goes on from the instruction at pc to where it first branches.
func (w *walk) follow(pc uint64) {
	w.nodes[pc].queued = false
	s := w.nodes[pc].state
	padded := false // the instruction in front is padding
	for {
		if w.left--; w.left < 0 {
			w.err = ErrTooFar
			return
		}
		switch {
		case w.in != nil && w.in.leaves(w, pc, &s, padded):
			return
		case w.in != nil && w.in.arrives(w, pc, &s):
			w.queue = nil
			return
		case w.in == nil && pc == w.goal:
			w.found, w.at, w.queue = true, s, nil
			return
		}
		b := w.code(pc)
		if len(b) == 0 {
			return
		}
		in := w.m.step(b, pc, &s)
		after := pc + uint64(in.size)
		if in.size == 0 {
			return
		}
		if w.in != nil {
			padded = x86Padding(b) > 0
			in = w.in.goesOn(w, &s, in)
		}
		switch in.flow {
		case ret, mayReturn:
			if w.goal == 0 {
				w.returns(&s, in)
			}
			if in.flow == ret {
				return
			}
		case stop:
			return
		case jump:
			w.reach(in.target, &s)
			return
		case branch:
			w.reach(in.target, &s)
		case call:
			if after == w.goal && w.in == nil {
				break // whether it returns or not
			}
			if !w.passCalls || w.ends(after) {
				return
			}
		}
		if w.err != nil {
			return
		}
		if in.flow == branch || w.nodes[after] != nil {
			w.reach(after, &s)
			return
		}
		pc = after
	}
}

// returns notes a return with s.
func (w *walk) returns(s *state, in insn) {
	sp := w.m.arch.SP
	if s.regs[sp].kind == unknown || in.to.kind == unknown {
		return // not a return, or one that tells nothing
	}
	if !w.found {
		w.found, w.at, w.ra, w.pops = true, *s, in.to, in.pops
		return
	}
	if w.at.regs[sp] != s.regs[sp] || w.ra != in.to || w.pops != in.pops {
		w.err = ErrDisagree
		return
	}
	w.at.join(s)
}

// row makes the row of what was found at the returns.
func (w *walk) row() (*sframe.Row, error) {
	a := w.m.arch
	sp := w.at.regs[a.SP]
	row := &sframe.Row{}
	switch {
	case sp.kind == sum && sp.reg == a.SP && sp.off < 0:
		return nil, ErrNoReturn // what has been given back holds no return address
	case sp.kind == sum && (a.Link || w.ra == value{loaded, sp.reg, sp.off}):
		row.CFA = sframe.Rule{Base: sframe.FromReg, Reg: sp.reg, Offset: int32(sp.off) + cfaOffset(a)}
	case sp.kind == loaded && a.Link:
		row.CFA = sframe.Rule{Base: sframe.FromExpr}
		row.Exprs = [][]byte{loadPlus(sp, cfaOffset(a))}
	default:
		return nil, ErrNoReturn // jumps by a return
	}
	row.RA = rule(row, w.ra)
	if a.Link && w.ra == (value{sum, a.RA, 0}) {
		if w.place.Caller {
			return nil, ErrNoReturn
		}
		row.RA = sframe.Rule{}
	} else if w.ra.kind != loaded {
		return nil, ErrNoReturn
	}
	if w.pops != 0 {
		row.Saved = append(row.Saved, sframe.SavedRule{Reg: a.SP, Rule: sframe.Rule{Base: sframe.FromCFA, Offset: w.pops}})
	}
	for r := range uint8(regs.NumRegs) {
		setRule(a, row, r, w.at.regs[r])
	}
	return row, nil
}

// cfaOffset is how far the CFA is from the stack pointer that a return leaves
// (arm64, s390x) or finds (x86).
func cfaOffset(a *regs.Arch) int32 {
	if a.Link {
		return int32(-a.SPOffset)
	}
	return int32(a.WordBytes)
}

// rule is the rule for a value.
func rule(row *sframe.Row, v value) sframe.Rule {
	switch {
	case v.kind != sum && v.kind != loaded:
		return sframe.Rule{Base: sframe.Undefined}
	case v.kind == loaded && row.CFA.Base == sframe.FromReg && v.reg == row.CFA.Reg:
		return sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: int32(v.off) - row.CFA.Offset}
	}
	return sframe.Rule{Base: sframe.FromReg, Reg: v.reg, Deref: v.kind == loaded, Offset: int32(v.off)}
}

// setRule has row say that the caller's register r is v, if functions keep it.
func setRule(a *regs.Arch, row *sframe.Row, r uint8, v value) {
	same := v == value{sum, r, 0}
	switch {
	case r == a.FP:
		if !same {
			row.FP = rule(row, v)
		}
	case a.CalleeSaved>>r&1 == 0:
	case same:
		row.Keep |= 1 << r
	case v.kind == sum || v.kind == loaded:
		row.Saved = append(row.Saved, sframe.SavedRule{Reg: r, Rule: rule(row, v)})
	}
}

// loadPlus is the DWARF expression for the word at v plus off (DWARF 5, section
// 2.5.1): DW_OP_breg, DW_OP_deref, DW_OP_plus_uconst.
func loadPlus(v value, off int32) []byte {
	const breg0, deref, plusUconst = 0x70, 0x06, 0x23
	b := append(sleb([]byte{breg0 + v.reg}, int32(v.off)), deref)
	return uleb(append(b, plusUconst), uint32(off))
}

func sleb(b []byte, v int32) []byte {
	for ; v < -64 || v > 63; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v)&0x7f)
}

func uleb(b []byte, v uint32) []byte {
	for ; v > 0x7f; v >>= 7 {
		b = append(b, byte(v)|0x80)
	}
	return append(b, byte(v))
}
