package runtimes

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sort"
)

// The stack pointer of compiled code moves in prologues and epilogues, and in what the compiler has made of some library functions, such as the comparison of
// strings, which keeps a register on the stack meanwhile. Where it is at an instruction follows from the code: all that leads there is followed from
// the method's entry on.

// depth is where the stack pointer is at an instruction: by how many bytes below the return address, and whether the caller's frame pointer lies
// right below that and not in its register, or that is this frame's own and leads there (linked). popped is the DWARF number of the register that
// the return address was taken into, from the stack: where an exception has left a method (generate_exception_blob, cpu/x86/runtime_x86_64.cpp;
// generate_handle_exception, cpu/x86/c1_Runtime1_x86.cpp; TailJumpNode, cpu/x86/x86_64.ad).
type depth struct {
	bytes         uint64
	saved, linked bool
	popped        uint8
}

// depths tells it of the instructions of a method.
type depths []depthFrom

// depthFrom is what holds from an instruction on. known is false where ways lead there on which it differs, or it depends on
// what is not known; led is false where nothing is known to lead there. Where only linked is true of depth, that holds.
type depthFrom struct {
	at         uint32
	known, led bool
	depth
}

// at is what holds at a distance in the code.
func (d depths) at(off uint64) depthFrom {
	i := sort.Search(len(d), func(i int) bool { return uint64(d[i].at) > off })
	if i == 0 {
		return depthFrom{}
	}
	return d[i-1]
}

// follow is the work of making depths.
type follow struct {
	code  []byte
	sizes []uint8 // of the instruction at each place, 0 if none was found there
	state []int32 // at each: 0 if none has come, conflicting, unled, or packed
	first []int32 // at each, who came there first: all that the entry leads to, or one of what nothing leads to
	who   int32
	found []int // places that it came to first
	list  []int // places to go on from
	wrong bool  // what it began with contradicts what others have found

	links   bool   // frame pointers are followed, too
	aligned bool   // the stack pointer above the return address is a multiple of 16, so that to make it one changes nothing
	special uint64 // bytes of the frame that loadEntry goes to, with the return address; 0: that is not known
	below   bool   // more was taken from the stack than can have been there
}

// What holds at a place where the depth is not known. linkedOnly: the frame pointer is the frame's.
const conflicting, unled, linkedOnly = -1, -2, -3

// packedLinked is linked in what is packed.
const packedLinked = 8

func (d depth) pack() int32 {
	v := int32(d.bytes/8)<<4 | int32(d.popped)<<1 | 1<<30
	if d.saved {
		v |= 1
	}
	if d.linked {
		v |= packedLinked
	}
	return v
}

func unpack(v int32) depth {
	return depth{bytes: uint64(v&^(1<<30)>>4) * 8, saved: v&1 != 0, linked: linked(v), popped: uint8(v >> 1 & 3)}
}

func linked(v int32) bool { return v == linkedOnly || v > 0 && v&packedLinked != 0 }

// maxDepth bounds a frame, maxFollowed the code that is followed, in bytes.
const (
	maxDepth    = 1 << 20
	maxFollowed = 1 << 20
)

// newDepths follows code. Before the entry a method checks its receiver, without a frame; frame is the size of the whole frame, without the return
// address; 0: it has none. What nothing in the code leads to is entered with that: handlers of exceptions and of deoptimisation, and places in a table of
// jumps. That is not so for what is never run; where it contradicts the rest, nothing is known.
func newDepths(code []byte, entry, frame int, special uint64) depths {
	if len(code) > maxFollowed {
		return depths{{}}
	}
	f := newFollow(code)
	f.special = special
	whole := depth{bytes: uint64(frame), saved: frame > 0}
	f.code = unpatched(code, entry, frame)
	f.enter(0, depth{})
	f.enter(entry, depth{})
	for at, lost := 0, false; at < len(code); {
		if f.state[at] == 0 && !lost {
			skip := at
			for skip < len(code) && f.state[skip] == 0 {
				x := decodeX86(f.code[skip:])
				if x.size == 0 || !x.nop() {
					break
				}
				skip += x.size
			}
			if at = skip; at == len(code) {
				break
			}
			if f.state[at] == 0 {
				f.enterAs(at, f.from(at, whole))
			}
		}
		if f.sizes[at] == 0 { // no instruction that is known: where the next begins is not known either
			lost, f.sizes[at] = true, 1
			if f.state[at] == 0 {
				f.state[at] = conflicting
			}
		}
		at += int(f.sizes[at])
	}
	return f.depths()
}

// newStubDepths follows code of many pieces, with data between them: from each place at which a frame with a frame pointer begins, and from the
// first instruction, where the first of starts holds that the code does not disprove. Of what these do not lead to nothing is known.
func newStubDepths(code []byte, starts ...depth) depths {
	if len(code) > maxFollowed {
		return depths{{}}
	}
	f := newFollow(code)
	f.links = true
	for at := len(code) - 1; at >= 0; at-- { // the last first: one may go over into the next
		if bytes.HasPrefix(code[at:], frameBuilt) {
			f.enterAs(at, depth{})
		}
	}
	for _, d := range starts {
		sizes, state, first := slices.Clone(f.sizes), slices.Clone(f.state), slices.Clone(f.first)
		f.aligned, f.below = d.popped != 0, false // aligned by the method that the exception has left
		f.enterAs(0, d)                           // which may be data
		if !f.below {
			break
		}
		f.sizes, f.state, f.first = sizes, state, first
	}
	for at := 0; at < len(code); at += int(f.sizes[at]) {
		if f.sizes[at] == 0 {
			f.sizes[at], f.state[at] = 1, unled
		}
	}
	return f.depths()
}

func newFollow(code []byte) follow {
	return follow{code: code, sizes: make([]uint8, len(code)), state: make([]int32, len(code)), first: make([]int32, len(code))}
}

// enterAs is enter for a place that others do not lead to. Where that contradicts what they have found, nothing is known.
func (f *follow) enterAs(at int, d depth) {
	f.who, f.wrong, f.found = f.who+1, false, f.found[:0]
	if f.enter(at, d); f.wrong {
		for _, i := range f.found {
			f.state[i] = conflicting
		}
	}
}

// depths is what was found.
func (f *follow) depths() (list depths) {
	last := int32(0)
	for at, v := range f.state {
		if f.sizes[at] == 0 && v == 0 || v == last {
			continue
		}
		x := depthFrom{at: uint32(at), known: v > 0, led: v != unled}
		if last = v; v > 0 {
			x.depth = unpack(v)
		}
		x.linked = linked(v)
		list = append(list, x)
	}
	return list
}

// unpatched is code as it was before the entry of a method was closed, which puts a jump over its first instruction. That has 7
// bytes, to make room: a look at the stack below, or the one that makes room for the frame.
func unpatched(code []byte, entry, frame int) []byte {
	if entry+12 > len(code) || code[entry] != 0xe9 {
		return code
	}
	first := []byte{0x89, 0x84, 0x24, 0, 0, 0, 0} // mov [rsp-N],eax
	if code[entry+7] != 0x55 {
		first = binary.LittleEndian.AppendUint32([]byte{0x48, 0x81, 0xec}, uint32(frame)) // sub rsp,N
	}
	code = bytes.Clone(code)
	copy(code[entry:], first)
	return code
}

// from is what holds at a place that nothing in the code leads to.
func (f *follow) from(at int, whole depth) depth {
	code := f.code[at:]
	switch {
	case len(code) > 7 && bytes.HasPrefix(code, []byte{0x89, 0x84, 0x24}) && code[7] == 0x55:
		return depth{} // mov [rsp-N],eax; push rbp: entered in a loop
	case len(code) > 10 && bytes.HasPrefix(code, []byte{0x48, 0xbb}) && code[10] == 0xe9:
		return depth{bytes: whole.bytes + 8, saved: true} // mov rbx,N; jmp: called by the method itself, on the way to the interpreter
	}
	return whole
}

// enter follows all that a place leads to.
func (f *follow) enter(at int, d depth) {
	f.reach(at, d.pack())
	for len(f.list) > 0 {
		at := f.list[len(f.list)-1]
		f.list = f.list[:len(f.list)-1]
		x := decodeX86(f.code[at:])
		if f.sizes[at] = uint8(x.size); x.size == 0 {
			continue
		}
		v, goes := f.moves(&x, f.state[at])
		next := at + x.size
		switch {
		case x.op == 0xe9, x.op == 0xeb:
			f.reach(next+int(x.imm), v)
			goes = false
		case x.op >= 0x70 && x.op < 0x80, x.op >= 0x0f80 && x.op < 0x0f90, x.op >= 0xe0 && x.op < 0xe4:
			f.reach(next+int(x.imm), v)
		case x.op == 0xc3, x.op == 0xc2, x.op == 0xcc, x.op == 0xf4, x.op == 0x0f0b, x.op == 0xff && (x.digit() == 4 || x.digit() == 5):
			goes = false
		}
		if goes {
			f.reach(next, v)
		}
	}
}

// reach: a way leads to a place, and to holds there.
func (f *follow) reach(at int, to int32) {
	v := to
	if at < 0 || at >= len(f.code) {
		return
	}
	switch old := f.state[at]; {
	case old == v, old == conflicting:
		return
	case old == 0:
		f.first[at], f.found = f.who, append(f.found, at)
	case old > 0 && v > 0 && old|packedLinked == v|packedLinked:
		if v = old &^ packedLinked; v == old {
			return
		}
	case old == linkedOnly:
		if v = conflicting; linked(to) {
			return
		}
	case f.first[at] != f.who:
		f.wrong = f.wrong || v > 0
		return
	case linked(old) && linked(v):
		v = linkedOnly
	default:
		v = conflicting
	}
	f.state[at] = v
	f.list = append(f.list, at)
}

// moves is what holds behind an instruction, by what holds at it. goes is false if that is not known.
func (f *follow) moves(x *x86Insn, v int32) (after int32, goes bool) {
	if f.special > 0 && x.loadsEntry() {
		return depth{bytes: f.special - 8, saved: true}.pack(), true
	}
	to, after, goes := x.moves(v, f.aligned)
	f.below = f.below || v > 0 && to < -8 // 8: the return address is dropped
	if !f.links {
		return after, goes
	}
	was := linked(v)
	d := unpack(v)
	whole := v > 0 && d.bytes == 8 && d.saved
	is := was && !x.setsFP() || x.framesFP() && whole
	switch {
	case x.op == 0xc9 && !was && !whole: // leave: of another frame
		return conflicting, true
	case was && x.setsReturn():
		return conflicting, true
	case x.op == 0xc9:
	case !is && !goes:
		return conflicting, true
	case is && (!goes || after == conflicting):
		return linkedOnly, true
	case is:
		after |= packedLinked
	}
	return after, goes
}

// moves is to where an instruction moves the stack pointer, in bytes below the return address, and what holds behind it, by what holds at it. goes
// is false if that is taken from a register or from memory: it is what it was before, or elsewhere. aligned: see follow.
func (x *x86Insn) moves(v int32, aligned bool) (to int64, after int32, goes bool) {
	d := unpack(v)
	by := int64(0)
	toSP := x.direct() && x.rm() == regSPNumber
	low := x.rex&rexB == 0
	switch op := x.op; {
	case op >= 0x50 && op < 0x58:
		if by = 8; v > 0 && d.popped != 0 && op == pushOf(d.popped) && low {
			return 0, depth{}.pack(), true
		}
		d.saved = d.saved || op == 0x55 && low && d.bytes == 0
	case op == 0x5c && low: // pop rsp
		return 0, 0, false
	case op >= 0x58 && op < 0x60:
		if by = -8; v > 0 && d.bytes == 0 && d.popped == 0 && low {
			for _, r := range []uint8{regRCX, regRDX} {
				if op == pushOf(r)+8 {
					return 0, depth{popped: r}.pack(), true
				}
			}
		}
	case op == 0x68, op == 0x6a, op == 0x9c, op == 0xff && x.digit() == 6, op == 0xe8 && x.imm == 0:
		by = 8
	case op == 0x9d, op == 0x8f:
		by = -8
	case op == 0xc9: // leave
		return 0, depth{}.pack(), true
	case (op == 0x81 || op == 0x83) && toSP:
		switch x.digit() {
		case 0:
			by = -x.imm
		case 5:
			by = x.imm
		case 4:
			if !aligned || x.imm != -16 || d.bytes&15 != 8 || d.popped != 0 {
				return 0, conflicting, true
			}
		case 7:
		default:
			return 0, conflicting, true
		}
	case op == 0x8d && x.reg() == regSPNumber:
		if !x.plain {
			return 0, conflicting, true
		}
		by = -x.disp
	case op == 0x8b && x.reg() == regSPNumber, op == 0x89 && toSP:
		return 0, 0, false
	case op == 0x87 && (toSP || x.reg() == regSPNumber), op == 0x94 && low && x.rex&rexW != 0,
		op < 0x38 && op&7 == 1 && toSP, op < 0x38 && op&7 == 3 && x.reg() == regSPNumber:
		return 0, conflicting, true
	case op == 0x89 && x.plain && x.reg() == regBPNumber && uint64(x.disp)+8 == d.bytes: // mov [rsp+N],rbp
		d.saved = true
	}
	to = int64(d.bytes) + by
	if v < 0 || to < 0 || to > maxDepth || to&7 != 0 || d.popped != 0 && by != 0 {
		return to, conflicting, true
	}
	return to, depth{bytes: uint64(to), saved: d.saved && to > 0, popped: d.popped}.pack(), true
}

// pushOf is the opcode that pushes rcx or rdx, by its DWARF number; that of the other direction is 8 more.
func pushOf(r uint8) int {
	if r == regRCX {
		return 0x51
	}
	return 0x52
}

// framesFP: mov rbp,rsp.
func (x *x86Insn) framesFP() bool {
	return x.rex&rexW != 0 && x.direct() &&
		(x.op == 0x8b && x.reg() == regBPNumber && x.rm() == regSPNumber || x.op == 0x89 && x.rm() == regBPNumber && x.reg() == regSPNumber)
}

// loadsEntry: see loadEntry.
func (x *x86Insn) loadsEntry() bool {
	return x.op == 0x8b && x.rex == rexW|rexB && x.modRM == loadEntry[2]
}

// setsReturn: mov [rbp+8],rax puts the address of an exception's handler in the place of the return address (generate_handle_exception,
// cpu/x86/c1_Runtime1_x86.cpp), which is no call's.
func (x *x86Insn) setsReturn() bool {
	return x.op == 0x89 && x.rex == 0x48 && x.modRM == 0x45 && x.disp == 8
}

// setsFP tells whether an instruction may change the frame pointer.
func (x *x86Insn) setsFP() bool {
	low := x.rex&rexB == 0
	reg, rm := x.reg() == regBPNumber, x.direct() && x.rm() == regBPNumber
	switch op := x.op; {
	case op >= vectorOp, op >= 0x38 && op < 0x40, op == 0x84, op == 0x85:
		return false
	case op < 0x38:
		return op&7 < 2 && rm || op&7 > 1 && op&7 < 4 && reg
	case op == 0xc9:
		return true
	case op == 0x5d, op == 0x95, op == 0xbd, op == 0x0fcd:
		return low
	case op == 0x86, op == 0x87, op == 0x0fb0, op == 0x0fb1, op == 0x0fc0, op == 0x0fc1, op == 0x0f38, op == 0x0f3a:
		return reg || rm
	case op == 0x63, op == 0x69, op == 0x6b, op == 0x8a, op == 0x8b, op == 0x8d, op >= 0x0f40 && op < 0x0f50, op == 0x0faf, op >= 0x0fb6 && op < 0x0fb9,
		op >= 0x0fbc && op < 0x0fc0, op == 0x0f2c, op == 0x0f2d, op == 0x0f50, op == 0x0fc5, op == 0x0fd7:
		return reg
	case op >= 0x80 && op < 0x84:
		return rm && x.digit() != 7
	case op == 0xf6, op == 0xf7:
		return rm && (x.digit() == 2 || x.digit() == 3)
	case op == 0xfe, op == 0xff:
		return rm && x.digit() < 2
	case op == 0x88, op == 0x89, op == 0x8c, op == 0x8f, op == 0xc0, op == 0xc1, op == 0xc6, op == 0xc7, op >= 0xd0 && op < 0xd4,
		op == 0x0f7e, op >= 0x0f90 && op < 0x0fa0, op >= 0x0fa3 && op < 0x0faf, op == 0x0fb3, op == 0x0fba, op == 0x0fbb, op == 0x0fc7:
		return rm
	}
	return false
}

// Numbers of registers in instructions.
const (
	regSPNumber = 4
	regBPNumber = 5
)
