package runtimes

import (
	"bytes"
	"encoding/binary"
	"sort"
)

// The stack pointer of compiled code moves in prologues and epilogues, and in what the compiler has made of some library functions, such as the comparison of
// strings, which keeps a register on the stack meanwhile. Where it is at an instruction follows from the code: all that leads there is followed from
// the method's entry on.

// depth is where the stack pointer is at an instruction: by how many bytes below the return address, and whether the caller's frame pointer lies
// right below that and not in its register. popped: the return address is in rdx, and no longer on the stack, as where an exception has left a
// method (generate_exception_blob, cpu/x86/runtime_x86_64.cpp; TailJumpNode, cpu/x86/x86_64.ad).
type depth struct {
	bytes         uint64
	saved, popped bool
}

// depths tells it of the instructions of a method.
type depths []depthFrom

// depthFrom is what holds from an instruction on. known is false where ways lead there on which it differs, or it depends on
// what is not known; led is false where nothing is known to lead there.
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

	aligned bool // the stack pointer above the return address is a multiple of 16, so that to make it one changes nothing
}

const conflicting, unled = -1, -2

func (d depth) pack() int32 {
	v := int32(d.bytes/8)<<2 | 1<<30
	if d.saved {
		v |= 1
	}
	if d.popped {
		v |= 2
	}
	return v
}

func unpack(v int32) depth { return depth{uint64(v&^(1<<30)>>2) * 8, v&1 != 0, v&2 != 0} }

// maxDepth bounds a frame, maxFollowed the code that is followed, in bytes.
const (
	maxDepth    = 1 << 20
	maxFollowed = 1 << 20
)

// newDepths follows code. Before the entry a method checks its receiver, without a frame; frame is the size of the whole frame, without the return
// address; 0: it has none. What nothing in the code leads to is entered with that: handlers of exceptions and of deoptimisation, and places in a table of
// jumps. That is not so for what is never run; where it contradicts the rest, nothing is known.
func newDepths(code []byte, entry, frame int) depths {
	if len(code) > maxFollowed {
		return depths{{}}
	}
	f := newFollow(code)
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
// first instruction if known tells that start holds there. Of what these do not lead to nothing is known.
func newStubDepths(code []byte, start depth, known bool) depths {
	if len(code) > maxFollowed {
		return depths{{}}
	}
	f := newFollow(code)
	f.aligned = start.popped // by the method that the exception has left
	for at := 0; at < len(code); at++ {
		if bytes.HasPrefix(code[at:], frameBuilt) {
			f.enterAs(at, depth{})
		}
	}
	if known {
		f.enterAs(0, start) // which may be data
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
		v, goes := x.moves(f.state[at], f.aligned)
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

// reach: a way leads to a place.
func (f *follow) reach(at int, v int32) {
	if at < 0 || at >= len(f.code) {
		return
	}
	switch old := f.state[at]; {
	case old == v, old == conflicting:
		return
	case old == 0:
		f.first[at], f.found = f.who, append(f.found, at)
	case f.first[at] != f.who:
		f.wrong = f.wrong || v != conflicting
		return
	default:
		v = conflicting
	}
	f.state[at] = v
	f.list = append(f.list, at)
}

// moves is what holds behind an instruction, by what holds at it. goes is false if that is taken from a register or from memory: it
// is what it was before, or elsewhere. aligned: see follow.
func (x *x86Insn) moves(v int32, aligned bool) (after int32, goes bool) {
	d := unpack(v)
	by := int64(0)
	toSP := x.direct() && x.rm() == regSPNumber
	switch op := x.op; {
	case op >= 0x50 && op < 0x58:
		if by = 8; v != conflicting && d.popped && op == 0x52 && x.rex&rexB == 0 { // push rdx
			return depth{}.pack(), true
		}
		d.saved = d.saved || op == 0x55 && x.rex&rexB == 0 && d.bytes == 0
	case op == 0x5c && x.rex&rexB == 0: // pop rsp
		return 0, false
	case op >= 0x58 && op < 0x60:
		if by = -8; d.bytes == 0 && !d.popped && op == 0x5a && x.rex&rexB == 0 { // pop rdx
			return depth{popped: true}.pack(), true
		}
	case op == 0x68, op == 0x6a, op == 0x9c, op == 0xff && x.digit() == 6, op == 0xe8 && x.imm == 0:
		by = 8
	case op == 0x9d, op == 0x8f:
		by = -8
	case op == 0xc9: // leave
		return depth{}.pack(), true
	case (op == 0x81 || op == 0x83) && toSP:
		switch x.digit() {
		case 0:
			by = -x.imm
		case 5:
			by = x.imm
		case 4:
			if !aligned || x.imm != -16 || d.bytes&15 != 8 || d.popped {
				return conflicting, true
			}
		case 7:
		default:
			return conflicting, true
		}
	case op == 0x8d && x.reg() == regSPNumber:
		if !x.plain {
			return conflicting, true
		}
		by = -x.disp
	case op == 0x8b && x.reg() == regSPNumber, op == 0x89 && toSP:
		return 0, false
	case op == 0x87 && (toSP || x.reg() == regSPNumber), op == 0x94 && x.rex&rexB == 0 && x.rex&rexW != 0,
		op < 0x38 && op&7 == 1 && toSP, op < 0x38 && op&7 == 3 && x.reg() == regSPNumber:
		return conflicting, true
	case op == 0x89 && x.plain && x.reg() == regBPNumber && uint64(x.disp)+8 == d.bytes: // mov [rsp+N],rbp
		d.saved = true
	}
	to := int64(d.bytes) + by
	if v == conflicting || to < 0 || to > maxDepth || to&7 != 0 || d.popped && by != 0 {
		return conflicting, true
	}
	return depth{uint64(to), d.saved && to > 0, d.popped}.pack(), true
}

// Numbers of registers in instructions.
const (
	regSPNumber = 4
	regBPNumber = 5
)
