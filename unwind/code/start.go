package code

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"golang.org/x/arch/x86/x86asm"

	"sfsample/regs"
	"sfsample/sframe"
)

const (
	// maxStartInsns bounds the instructions that are followed for one start, maxTryInsns those for one place.
	maxStartInsns, maxTryInsns = 12000, 6000
	// tryInsns are as many as a try costs besides.
	tryInsns = 30
	// maxCases bounds the entries of a table of jumps, maxCode how far from the start it leads, in bytes.
	maxCases, maxCode = 512, 64 << 10
	// settled is how many bytes it takes until what is decoded from the midst of an instruction are instructions again.
	settled = 128
)

// startSpans are how far in front of an address its function is looked for, in bytes, one after the other.
var startSpans = []uint64{1 << 10, 8 << 10, 32 << 10}

// Start returns where the function of x86-64 begins that pc lies in, or a part of it: a place that nothing leads to from in front of it,
// and from where the code leads to pc and on to the return that a call of that place would take, passing all places between where
// another function might begin. Jumps that find the stack as a call leaves it are not taken, since they may lead to another function.
// ok is false if there is none, or none is found.
func Start(a *regs.Arch, pc uint64, read func(addr uint64, b []byte) int) (start uint64, ok bool) {
	m := machines[a.Name]
	if m == nil || !m.wide {
		return 0, false
	}
	left := maxStartInsns
	tried := uint64(math.MaxUint64)
	var row *sframe.Row
	for _, size := range startSpans {
		list, at := starts(m, pc, min(size, pc), read)
		if row == nil {
			var err error
			if row, _, err = follow(m, Place{PC: at}, maxTryInsns, read); err != nil || row.CFA.Base != sframe.FromReg {
				return 0, false
			}
		}
		var first, then []int // what is likely first saves time, and finds the start itself before a part
		for i := len(list) - 1; i >= 0; i-- {
			switch {
			case list[i] >= tried:
			case pushes(m, list[i], read):
				first = append(first, i)
			default:
				then = append(then, i)
			}
		}
		for _, i := range append(first, then...) {
			most := min(left, maxTryInsns)
			w := walk{m: m, place: Place{PC: list[i]}, read: read, passCalls: true, goal: at, left: most}
			w.in = newFunction(list[i+1:])
			if w.in.leads(&w, row) {
				return list[i], true
			}
			if left -= most - w.left + tryInsns; left <= 0 {
				return 0, false
			}
		}
		if len(list) > 0 {
			tried = list[0]
		}
	}
	return 0, false
}

// starts decodes the size bytes in front of pc. It returns where functions may begin in them: where no instruction leads, or a call that
// may not return does, and the instruction that holds pc.
func starts(m *machine, pc, size uint64, read func(addr uint64, b []byte) int) (list []uint64, at uint64) {
	for size > 0 && read(pc-size, make([]byte, 1)) < 1 {
		size /= 2 // what is in front of the code may be no memory
	}
	code := make([]byte, size+16)
	code = code[:max(0, min(read(pc-size, code), len(code)))]
	var s state
	from := call // how the instruction in front goes on; padding: as the one in front of it
	for at = pc - size; len(code) > 0; {
		pad := x86Padding(code)
		if code[0] == 0 && from != next && from != call {
			pad = 1 // of fewer zeros: no code begins so
		}
		if pad == 0 && pc-at+settled <= size && (from != call || at%startAlign == 0 || bytes.HasPrefix(code, x86Endbr[0])) && from != next {
			list = append(list, at)
		}
		n := pad
		switch in := m.step(code, at, &s); {
		case pad > 0 && from == call:
			from = stop
		case pad > 0:
		case in.size == 0:
			n, from = 1, stop
		case in.flow == branch || in.flow == mayReturn:
			n, from = in.size, next
		default:
			n, from = in.size, in.flow
		}
		if at+uint64(n) > pc {
			return list, at
		}
		at += uint64(n)
		code = code[min(n, len(code)):]
	}
	return nil, pc
}

// x86Padding is the size of an instruction that does nothing, or never runs, 0 if b begins with another.
func x86Padding(b []byte) int {
	if zeros := len(b) - len(bytes.TrimLeft(b, "\x00")); b[0] == 0xcc || zeros >= fewer {
		return max(zeros, 1)
	}
	if b[0] == 0x90 || b[0] == 0x66 || b[0] == 0x2e || b[0] == 0x0f {
		if in, err := x86asm.Decode(b[:min(len(b), 15)], 64); err == nil && in.Op == x86asm.NOP {
			return in.Len
		}
	}
	return 0
}

// pushes tells whether the code at start takes room on the stack soon, as most functions do.
func pushes(m *machine, start uint64, read func(addr uint64, b []byte) int) bool {
	const soon = 10 // instructions
	var buf [5 * soon]byte
	b := buf[:max(0, min(read(start, buf[:]), len(buf)))]
	sp := m.arch.SP
	s := state{}
	s.regs[sp] = value{sum, sp, 0}
	for range soon {
		in := m.step(b, start, &s)
		if in.size == 0 || s.regs[sp].off != 0 {
			break
		}
		b, start = b[in.size:], start+uint64(in.size)
	}
	return s.regs[sp].off < 0
}

// function is what a walk within one function knows of it.
type function struct {
	others  []uint64 // where another may begin in front of the goal, ascending
	reached []bool   // of others
	missing int      // of others
}

func newFunction(others []uint64) *function {
	return &function{others, make([]bool, len(others)), len(others)}
}

// leads tells whether w reaches its goal, in the same function, where the stack is left as row says, and the others.
func (f *function) leads(w *walk, row *sframe.Row) bool {
	a := w.m.arch
	if w.explore(); !w.found {
		return false
	}
	if v := w.at.regs[row.CFA.Reg]; v.kind != sum || v.reg != a.SP || v.off+int64(row.CFA.Offset) != int64(cfaOffset(a)) {
		return false // another function's, behind a call that does not return
	}
	for i, o := range f.others {
		if f.reached[i] {
			continue
		}
		row, insns, err := follow(w.m, Place{PC: o}, min(w.left, maxInsns), w.read)
		if w.left -= insns; err != nil || row.CFA == (sframe.Rule{Base: sframe.FromReg, Reg: a.SP, Offset: cfaOffset(a)}) {
			return false
		}
	}
	return true
}

// arrives notes that the instruction at pc is reached with s, and tells whether all is that was to be.
func (f *function) arrives(w *walk, pc uint64, s *state) bool {
	if pc == w.goal && !w.found {
		w.found, w.at = true, *s
	}
	if i, ok := slices.BinarySearch(f.others, pc); ok && !f.reached[i] {
		f.reached[i] = true
		f.missing--
	}
	return w.found && f.missing == 0
}

// atStart tells whether the stack is as a call of the function has left it.
func atStart(w *walk, s *state) bool { return s.regs[w.m.arch.SP] == value{sum, w.m.arch.SP, 0} }

// leaves tells whether the code at pc, reached from the instruction in front of it, may be another function, or the last of this one: what
// is behind padding at the function's level of the stack, the first multiple of 16 behind what may have been data, a late push, and a
// system call that may not return, as exit and exit_group (unistd_64.h) do not.
func (f *function) leaves(w *walk, pc uint64, s *state, padded bool) bool {
	if pc == w.place.PC || !atStart(w, s) {
		return false
	}
	if rax := s.regs[0]; bytes.HasPrefix(w.code(pc), []byte{0x0f, 0x05}) && (rax.kind != fixed || rax.off == 60 || rax.off == 231) {
		return true
	}
	if w.place.PC%startAlign != 0 && pc-w.place.PC > lateBytes && saves(w.code(pc)) {
		return true
	}
	return pc%startAlign == 0 && (padded || pc-w.place.PC < startAlign)
}

// lateBytes is how far from its start a function, or a piece of one that gcc has left without an end, does not begin to save registers.
const lateBytes = 64

// saves tells whether b begins with a push of a register that calls preserve.
func saves(b []byte) bool {
	return len(b) > 1 && (b[0] == 0x53 || b[0] == 0x55 || b[0] == 0x41 && b[1] >= 0x54 && b[1] <= 0x57)
}

// goesOn applies what holds within a function to in: returns find the stack as the call has left it, calls have it aligned (psABI, section
// 3.2.2), and jumps to other functions are not followed.
func (f *function) goesOn(w *walk, s *state, in insn) insn {
	sp := s.regs[w.m.arch.SP]
	known := sp.kind == sum && sp.reg == w.m.arch.SP
	switch {
	case in.flow == ret && known && sp.off != 0, in.flow == call && known && sp.off&15 != 8:
		w.err = ErrDisagree
	case in.flow == jump && atStart(w, s):
		in.flow = stop
	case in.flow == branch && atStart(w, s):
		in.flow = next
	case in.flow == stop && !atStart(w, s):
		for _, r := range s.regs {
			if r.kind == fixed {
				f.cases(w, uint64(r.off), s)
			}
		}
	}
	return in
}

// cases goes on where a table of jumps leads, if there is one at addr: of distances from there (gcc and clang, -fpic), to others.
func (f *function) cases(w *walk, addr uint64, s *state) {
	var b [4 * maxCases]byte
	n := min(w.read(addr, b[:]), len(b))
	w.left -= tryInsns
	for i := 0; i+4 <= n; i += 4 {
		to := addr + uint64(int64(int32(binary.LittleEndian.Uint32(b[i:]))))
		if to-w.place.PC >= maxCode {
			break
		}
		if _, ok := slices.BinarySearch(f.others, to); ok {
			w.reach(to, s)
		}
	}
}
