package sampler

import (
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// TestWanted: which pieces of memory walks wanted that went from stack to stack. Stacks that lie near are one
// piece, and what is missing of one enlarges no other.
func TestWanted(t *testing.T) {
	const a, b, c = 0x10_0000, 0x80_0000, 0x90_0000
	at := func(sps ...uint64) (frames []unwind.Frame) {
		for _, sp := range sps {
			frames = append(frames, unwind.Frame{SP: sp})
		}
		return frames
	}
	tests := []struct {
		name   string
		frames []unwind.Frame
		over   []unwind.Stack
		short  bool
		want   []block
	}{
		{"one", at(a+128, a+256), nil, false, []block{{a, a + 256, -1, false}}},
		{"one-short", at(a+128, a+256), nil, true, []block{{a, a + 256, -1, true}}},
		{"two", at(a+128, a+256, b+16, b+64), []unwind.Stack{{Frame: 2, Base: b}}, false, []block{{a, a + 256, -1, false}, {b, b + 64, 0, false}}},
		{"second-missing", at(a+128, a+256), []unwind.Stack{{Frame: 2, Base: b}}, true, []block{{a, a + 256, -1, false}, {b, b, 0, true}}},
		{"there-and-back", at(a+128, b+16, a+512, b+256, a+1024), []unwind.Stack{{Frame: 1, Base: b}, {Frame: 2, Base: a + 500}, {Frame: 3, Base: b + 250}, {Frame: 4, Base: a + 1000}},
			true, []block{{a, a + 1024, -1, true}, {b, b + 256, 0, false}}},
		{"near", at(a+128, a+nearStack+64), []unwind.Stack{{Frame: 1, Base: a + nearStack}}, false, []block{{a, a + nearStack + 64, -1, false}}},
		{"below", at(a+128, a-64), []unwind.Stack{{Frame: 1, Base: a - 128}}, false, []block{{a, a + 128, -1, false}, {a - 128, a - 64, 0, false}}},
		{"three", at(a+128, b+16, c+16), []unwind.Stack{{Frame: 1, Base: b}, {Frame: 2, Base: c}}, true,
			[]block{{a, a + 128, -1, false}, {b, b + 16, 0, false}, {c, c + 16, 1, true}}},
	}
	for _, tt := range tests {
		if got := wanted(nil, a, tt.frames, tt.over, tt.short); fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// goThreadMemory is memory of a Go thread: words by address, the rest is 0.
type goThreadMemory map[uint64]uint64

func (m goThreadMemory) ReadAt(b []byte, addr int64) (int, error) {
	if addr < 0x1000 {
		return 0, io.EOF
	}
	clear(b)
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], m[uint64(addr)+uint64(i)])
	}
	return len(b), nil
}

// TestGoOther: where the stack pointers of a Go thread's two stacks are kept is found from its thread pointer, and known from then on, as long as it
// is so. What only looks like that leads nowhere.
func TestGoOther(t *testing.T) {
	const tp, m, g0, g, signal, other = 0x7000, 0x10000, 0x20000, 0x30000, 0x40000, 0x50000
	const own, stack, elsewhere = 0x7f00_0000, 0xc000_0000, 0xd000_0000
	whole := func() goThreadMemory {
		k := goThreadMemory{tp - 40: g, m: g0, m + 80: signal, m + 192: g}
		for at, low := range map[uint64]uint64{g0: own, g: stack, signal: 0x9000_0000, other: elsewhere} {
			k[at], k[at+8], k[at+48] = low, low+0x8000, m
		}
		k[other+48] = 0x60000
		return k
	}
	first, second := taking.Other{Word: g0 + 56, Apart: true}, taking.Other{Word: m + 192, Apart: true, Into: 56}
	for _, tt := range []struct {
		name    string
		change  func(k goThreadMemory)
		known   []taking.Other
		low, sp uint64
		o, also taking.Other
	}{
		{"C has called back", nil, nil, own + 8, stack + 8, first, second},
		{"C is called", nil, nil, stack + 8, own + 8, second, first},
		{"C is called, where g is g0", func(k goThreadMemory) { k[tp-40] = g0 }, nil, stack + 8, own + 8, second, first},
		{"the ends of a stack", nil, nil, own, stack + 0x7fff, first, second},
		{"below it", nil, nil, own - 1, stack, taking.Other{}, first},
		{"behind it", nil, nil, stack + 0x8000, own, taking.Other{}, first},
		{"it has gone on by now", nil, nil, elsewhere + 8, own + 8, taking.Other{}, first},
		{"known", func(k goThreadMemory) { delete(k, tp-40) }, []taking.Other{second, first}, own + 8, stack + 8, first, taking.Other{}},
		{"known, another goroutine", func(k goThreadMemory) { k[m+192], k[other+48] = other, m }, []taking.Other{first, second}, elsewhere + 8, own, second, taking.Other{}},
		{"known no more", func(k goThreadMemory) { k[m+192] = 0 }, []taking.Other{second}, own + 8, stack + 8, first, taking.Other{}},
		{"known of no Go", nil, []taking.Other{{Word: g0 + 56}}, own + 8, stack + 8, first, second},
		{"no g", func(k goThreadMemory) { k[tp-40] = 0 }, nil, own + 8, stack + 8, taking.Other{}, taking.Other{}},
		{"no address", func(k goThreadMemory) { k[tp-40] = g + 4 }, nil, own + 8, stack + 8, taking.Other{}, taking.Other{}},
		{"g0 of another m", func(k goThreadMemory) { k[g0+48] = m + 8 }, nil, own + 8, stack + 8, taking.Other{}, taking.Other{}},
		{"the signals' stack is not that of the goroutine", nil, nil, 0x9000_0008, own + 8, taking.Other{}, first},
	} {
		k := whole()
		if tt.change != nil {
			tt.change(k)
		}
		var known [taking.MaxOthers]taking.Other
		copy(known[:], tt.known)
		o, also, ok := goOther(k, tp, &known, tt.low, tt.sp)
		if ok != (tt.o != taking.Other{}) || o != tt.o || also != tt.also {
			t.Errorf("%s: %+v, also %+v, %t; want %+v, also %+v", tt.name, o, also, ok, tt.o, tt.also)
		}
	}
	if _, _, ok := goOther(whole(), 0, new([taking.MaxOthers]taking.Other), own+8, stack+8); ok {
		t.Error("a thread without a thread pointer has one")
	}
}
