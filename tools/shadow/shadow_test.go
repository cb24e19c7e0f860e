package main

import (
	"slices"
	"testing"

	"sfsample/unwind"
)

// oneStack puts every address on the same stack, but those below 0x1000 on
// another.
func oneStack(addr uint64) uint64 {
	if addr < 0x1000 {
		return 1
	}
	return 2
}

func newShadow(link bool) *shadow {
	s := &shadow{link: link, wordLen: 8, stack: 2}
	s.sameStack = func(a, b uint64) bool { return oneStack(a) == oneStack(b) }
	return s
}

// move is one executed instruction.
type move struct {
	k        kind
	from, to point
	len      uint64
}

func TestShadow(t *testing.T) {
	const sp = 0x8000
	for _, tt := range []struct {
		name  string
		link  bool
		moves []move
		want  []uint64 // return addresses, innermost last
	}{
		{"call", false, []move{
			{call, point{0x10, sp}, point{0x100, sp - 8}, 5},
		}, []uint64{0x15}},
		{"call and return", false, []move{
			{call, point{0x10, sp}, point{0x100, sp - 8}, 5},
			{ret, point{0x100, sp - 8}, point{0x15, sp}, 1},
		}, nil},
		{"ret that drops arguments", false, []move{
			{call, point{0x10, sp}, point{0x100, sp - 8}, 5},
			{ret, point{0x100, sp - 8}, point{0x15, sp + 16}, 3},
		}, nil},
		{"call of the next instruction", false, []move{
			{call, point{0x10, sp}, point{0x15, sp - 8}, 5},
		}, nil},
		{"tail call keeps the caller", false, []move{
			{call, point{0x10, sp}, point{0x100, sp - 8}, 5},
			{other, point{0x104, sp - 8}, point{0x200, sp - 8}, 5},
		}, []uint64{0x15}},
		{"longjmp over two frames", false, []move{
			{call, point{0x10, sp}, point{0x100, sp - 8}, 5},
			{call, point{0x110, sp - 32}, point{0x200, sp - 40}, 5},
			{call, point{0x210, sp - 64}, point{0x300, sp - 72}, 5},
			{other, point{0x310, sp - 100}, point{0x311, sp - 24}, 3},
		}, []uint64{0x15}},
		{"pop of the return address, and push", false, []move{
			{call, point{0x10, sp}, point{0x100, sp - 8}, 5},
			{other, point{0x100, sp - 8}, point{0x101, sp}, 0},
			{syscallInsn, point{0x106, sp}, point{0x108, sp}, 0},
			{other, point{0x108, sp}, point{0x109, sp - 8}, 0},
		}, []uint64{0x15}},
		{"pop of the return address, and jump there", false, []move{
			{call, point{0x10, sp}, point{0x100, sp - 8}, 5},
			{other, point{0x100, sp - 8}, point{0x101, sp}, 0},
			{other, point{0x101, sp}, point{0x15, sp}, 0},
		}, nil},
		{"leaf returns by register", true, []move{
			{call, point{0x10, sp}, point{0x100, sp}, 4},
			{ret, point{0x100, sp}, point{0x14, sp}, 4},
		}, nil},
		{"frame of a callee does not end its caller", true, []move{
			{call, point{0x10, sp}, point{0x100, sp}, 4},
			{other, point{0x100, sp}, point{0x104, sp - 32}, 4},
			{call, point{0x104, sp - 32}, point{0x200, sp - 32}, 4},
			{ret, point{0x200, sp - 32}, point{0x108, sp - 32}, 4},
			{other, point{0x108, sp - 32}, point{0x10c, sp}, 4},
		}, []uint64{0x14}},
		{"longjmp to the frame that called setjmp", true, []move{
			{call, point{0x10, sp}, point{0x100, sp}, 4},
			{other, point{0x100, sp}, point{0x104, sp - 32}, 4},
			{call, point{0x104, sp - 32}, point{0x200, sp - 32}, 4},
			{other, point{0x200, sp - 32}, point{0x204, sp - 64}, 4},
			{ret, point{0x300, sp - 32}, point{0x120, sp - 32}, 4},
		}, []uint64{0x14}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newShadow(tt.link)
			for _, m := range tt.moves {
				s.step(m.k, m.from, m.to, m.len, oneStack)
			}
			var got []uint64
			for _, e := range s.entries {
				got = append(got, e.ret)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("return addresses %#x, want %#x", got, tt.want)
			}
		})
	}
}

// TestShadowSignal: a handler on another stack, its return, and a jump out of it.
func TestShadowSignal(t *testing.T) {
	const sp, alt = 0x8000, 0x800
	enter := func() *shadow {
		s := newShadow(false)
		s.step(call, point{0x10, sp}, point{0x100, sp - 8}, 5, oneStack)
		s.signal(point{0x104, sp - 8}, point{0x500, alt}, 0x600, oneStack)
		s.step(call, point{0x510, alt - 16}, point{0x700, alt - 24}, 5, oneStack)
		return s
	}
	t.Run("in the handler", func(t *testing.T) {
		s := enter()
		frames := []unwind.Frame{{PC: 0x700}, {PC: 0x515, Caller: true}, {PC: 0x600}, {PC: 0x104, How: unwind.Signal}, {PC: 0x15, Caller: true}}
		if v, at := s.judge(frames, true); v != right {
			t.Errorf("%v at %d, want right", verdictNames[v], at)
		}
	})
	t.Run("return", func(t *testing.T) {
		s := enter()
		s.step(ret, point{0x700, alt - 24}, point{0x515, alt - 16}, 1, oneStack)
		s.step(ret, point{0x520, alt}, point{0x600, alt + 8}, 1, oneStack)
		s.step(syscallInsn, point{0x607, alt + 8}, point{0x104, sp - 8}, 2, oneStack)
		if len(s.entries) != 1 || s.entries[0].ret != 0x15 || s.switches != 0 {
			t.Errorf("entries %+v, %d switches; want the one of the first call, 0", s.entries, s.switches)
		}
	})
	t.Run("longjmp", func(t *testing.T) {
		s := enter()
		s.step(other, point{0x704, alt - 24}, point{0x12, sp}, 2, oneStack)
		if len(s.entries) != 0 || s.switches != 0 {
			t.Errorf("entries %+v, %d switches; want none, 0", s.entries, s.switches)
		}
	})
}

func TestShadowCoroutine(t *testing.T) {
	s := newShadow(false)
	s.step(call, point{0x10, 0x8000}, point{0x100, 0x7ff8}, 5, oneStack)
	s.step(other, point{0x100, 0x7ff8}, point{0x104, 0x800}, 4, oneStack)
	if !s.needBase || !s.arriving || len(s.entries) != 0 {
		t.Fatalf("on a new stack: %+v", s)
	}
	s.step(ret, point{0x104, 0x800}, point{0x900, 0x808}, 1, oneStack)
	if s.arriving {
		t.Fatal("still arriving behind a return")
	}
	s.needBase = false
	s.step(other, point{0x910, 0x700}, point{0x104, 0x7ff8}, 4, oneStack)
	if len(s.entries) != 1 || s.entries[0].ret != 0x15 {
		t.Errorf("back on the first stack: %+v", s.entries)
	}
	// The other goes on behind its call, as glibc's swapcontext has it: the stack
	// pointer first, then the return address.
	s.step(ret, point{0x104, 0x7ff8}, point{0x15, 0x8000}, 1, oneStack)
	s.step(call, point{0x15, 0x8000}, point{0x100, 0x7ff8}, 5, oneStack)
	s.step(other, point{0x104, 0x7ff8}, point{0x108, 0x700}, 4, oneStack)
	s.step(call, point{0x950, 0x700}, point{0x100, 0x6f8}, 5, oneStack)
	s.step(other, point{0x104, 0x6f8}, point{0x108, 0x8000}, 4, oneStack)
	s.step(other, point{0x108, 0x8000}, point{0x110, 0x8000}, 8, oneStack)
	s.step(other, point{0x110, 0x8000}, point{0x111, 0x7ff8}, 1, oneStack)
	if n := len(s.entries); n != 1 || s.entries[0].ret != 0x1a || s.entries[0].moved {
		t.Errorf("before the return on the first stack: %+v", s.entries)
	}
	s.step(ret, point{0x111, 0x7ff8}, point{0x1a, 0x8000}, 1, oneStack)
	if len(s.entries) != 0 {
		t.Errorf("behind the return on the first stack: %+v", s.entries)
	}
}

// TestShadowBase: a return proves or refutes what the first walk found; a
// longjmp past it does neither.
func TestShadowBase(t *testing.T) {
	for _, tt := range []struct {
		name string
		k    kind
		to   uint64
		bad  int
	}{
		{"proved", ret, 0x15, 0}, {"refuted", ret, 0x25, 1}, {"left by longjmp", leave, 0x25, 0},
	} {
		s := newShadow(true)
		s.entries = []entry{{ret: 0x15, sp: 0x8000, base: true}}
		s.step(tt.k, point{0x104, 0x8000}, point{tt.to, 0x8000}, 4, oneStack)
		if len(s.badBase) != tt.bad || len(s.entries) != 0 {
			t.Errorf("%s: refuted %#x, left %+v; want %d, none", tt.name, s.badBase, s.entries, tt.bad)
		}
	}
}

func TestJudge(t *testing.T) {
	s := newShadow(false)
	s.entries = []entry{{ret: 3, sp: 30}, {ret: 2, sp: 20, exact: true}, {ret: 1, sp: 10}}
	f := func(pcs ...uint64) (frames []unwind.Frame) {
		for i, pc := range pcs {
			frames = append(frames, unwind.Frame{PC: pc, Caller: i > 0 && pc != 2})
		}
		return frames
	}
	gap := unwind.Frame{How: unwind.Gap}
	root := func(pc uint64) unwind.Frame { return unwind.Frame{PC: pc, Caller: true, How: unwind.Gap} }
	for _, tt := range []struct {
		name     string
		frames   []unwind.Frame
		complete bool
		partial  bool
		want     verdict
		at       int
	}{
		{"whole", f(0, 1, 2, 3), true, false, right, 0},
		{"whole but said to be cut", f(0, 1, 2, 3), false, false, cut, 3},
		{"cut", f(0, 1, 2), false, false, cut, 2},
		{"cut but said to be whole", f(0, 1, 2), true, false, wrong, 2},
		{"wrong frame", f(0, 1, 5, 3), true, false, wrong, 1},
		{"wrong frame, then cut", f(0, 7), false, false, wrong, 0},
		{"frame too many", f(0, 1, 2, 3, 4), true, false, wrong, 3},
		{"beyond what is known", f(0, 1, 2, 3, 4), true, true, right, 0},
		{"cut at what is known", f(0, 1, 2, 3), false, true, right, 0},
		{"a gap, and the root", append(f(0, 1), gap, root(3)), false, false, cut, 1},
		{"a gap where nothing is missing", append(f(0, 1), gap, root(2), root(3)), false, false, cut, 1},
		{"a gap, and another root", append(f(0, 1), gap, root(2)), false, false, wrong, 2},
		{"a gap, and more than there is", append(f(0, 1), gap, root(1), root(2), root(3)), false, false, wrong, 2},
		{"a wrong frame before a gap", append(f(0, 7), gap, root(3)), false, false, wrong, 0},
		{"a gap, and the root is not known", append(f(0, 1), gap, root(2)), false, true, cut, 1},
		{"a gap, and a root that is none of those known", append(f(0, 1), gap, root(5)), false, true, wrong, 2},
		{"interrupted frame taken for a caller", []unwind.Frame{{}, {PC: 1, Caller: true}, {PC: 2, Caller: true}}, false, false, wrong, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.partial = tt.partial
			if v, at := s.judge(tt.frames, tt.complete); v != tt.want || at != tt.at {
				t.Errorf("%s at %d, want %s at %d", verdictNames[v], at, verdictNames[tt.want], tt.at)
			}
		})
	}
}

func TestDecode(t *testing.T) {
	for _, tt := range []struct {
		arch string
		code []byte
		want kind
		len  uint64
	}{
		{"amd64", []byte{0xe8, 0, 0, 0, 0}, call, 0},
		{"amd64", []byte{0xf2, 0xe8, 0, 0, 0, 0}, call, 0},
		{"amd64", []byte{0xff, 0xd0, 0, 0}, call, 0},
		{"amd64", []byte{0x41, 0xff, 0x14, 0x24}, call, 0},
		{"amd64", []byte{0xff, 0xe0, 0, 0}, other, 0}, // jmp *%rax
		{"amd64", []byte{0xc3, 0x90, 0x90}, ret, 0},
		{"amd64", []byte{0xf3, 0xc3, 0x90}, ret, 0},
		{"amd64", []byte{0xc2, 8, 0}, ret, 0},
		{"amd64", []byte{0x0f, 0x05, 0}, syscallInsn, 0},
		{"amd64", []byte{0x5f, 0x90, 0x90}, other, 0},
		{"arm64", []byte{0, 0, 0, 0x94}, call, 4},
		{"arm64", []byte{0xc0, 0x03, 0x5f, 0xd6}, ret, 4},
		{"arm64", []byte{0x01, 0, 0, 0xd4}, syscallInsn, 4},
		{"arm64", []byte{0, 0x01, 0x1f, 0xd6}, other, 4}, // br x8
		{"s390x", []byte{0xc0, 0xe5, 0, 0, 0, 1}, call, 6},
		{"s390x", []byte{0x0d, 0xe1, 0, 0, 0, 0}, call, 2},
		{"s390x", []byte{0x07, 0xfe, 0, 0, 0, 0}, ret, 2},
		{"s390x", []byte{0x0a, 0xad, 0, 0, 0, 0}, syscallInsn, 2},
	} {
		if k, n := decoders[tt.arch](tt.code); k != tt.want || n != tt.len {
			t.Errorf("%s % x: kind %d, length %d; want %d, %d", tt.arch, tt.code, k, n, tt.want, tt.len)
		}
	}
}
