package taking

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/sampler/capture"
)

// empty is a buffer with that much room for what lies beyond a stack.
func empty(room int) *Buffer {
	b := &Buffer{Beyond: Copy{Room: make([]byte, room)}}
	b.pass.pages, b.pass.near.block = -1, len(b.Blocks)
	return b
}

// read are the areas that were asked for singly.
func (h *heap) read() string { return strings.Join(h.asked, " ") }

// element is one of a chain: next, and another word.
func element(next, other uint64) []byte { return words(next, other) }

// chained is a chain of n elements one behind another, of which those that are in others have another word.
func chained(at uint64, n int, others map[int]uint64) (b []byte) {
	for i := range n {
		at += 16
		next := at
		if i == n-1 {
			next = 0
		}
		b = append(b, element(next, others[i])...)
	}
	return b
}

// TestFollowAgain: a buffer that has followed one recipe to its bounds follows the next as a new one.
func TestFollowAgain(t *testing.T) {
	h := &heap{areas: map[uint64][]byte{
		0x1000:  words(77, 0x10000, 0x20000),
		0x4000:  words(0x5000),
		0x5000:  words(5),
		0x10000: chained(0x10000, 600, map[int]uint64{0: 0x4000}),
	}}
	want := "0x1000+24 0x4000+8 0x5000+8"
	for i := range uint64(20) { // each is read singly
		h.areas[0x20000+0x100*i] = words((0x20000 + 0x100*(i+1)) * (1 - i/19))
		want += fmt.Sprintf(" %#x+8", 0x20000+0x100*i)
	}
	r := &Recipe{RootBytes: 24, Guesses: 1}
	r.Roots[0] = Root{0x1000, 77}
	r.Guess[0] = unix.RemoteIovec{Base: 0x10000, Len: 9600}
	r.Steps[0] = Step{Bytes: 16, Head: 8, Most: 600, Part: Part{At: 8, Bytes: 8}, Sub: Sub{Bytes: 8}}
	r.Steps[1] = Step{Bytes: 8, Head: 16, Most: 30}
	b := empty(1 << 14)
	for i := range 3 {
		h.asked, b.NBlocks, b.NRoots, b.Beyond.N = nil, 0, 0, 0
		if Follow(h, 7, r, b, -1); h.read() != want {
			t.Errorf("pass %d: read %s, want %s", i+1, h.read(), want)
		}
	}
	// The part that was the last one is the first now.
	r.Steps[0].Most = 1
	r.Steps[1] = Step{}
	for range 2 {
		h.asked, b.NBlocks, b.NRoots, b.Beyond.N = nil, 0, 0, 0
		if Follow(h, 7, r, b, -1); h.read() != "0x1000+24 0x4000+8 0x5000+8" {
			t.Errorf("read %s", h.read())
		}
	}
	// The block that was used last lies elsewhere now.
	b, r = empty(1<<14), &Recipe{RootBytes: 24}
	r.Roots[0] = Root{0x1000, 77}
	r.Steps[0] = Step{Bytes: 16, Head: 8, Most: 1}
	Follow(h, 7, r, b, -1)
	r.Guess[0], r.Guess[1], r.Guesses = unix.RemoteIovec{Base: 0x4000, Len: 8}, unix.RemoteIovec{Base: 0x1000, Len: 24}, 2
	b.NBlocks, b.NRoots, b.Beyond.N = 0, 0, 0
	if Follow(h, 7, r, b, -1); b.NRoots != 1 {
		t.Error("a root that was foreseen is not found")
	}
}

// TestFollowBounds: how much is copied at most.
func TestFollowBounds(t *testing.T) {
	const far = 0x100000
	for _, tt := range []struct {
		name string
		set  func(h *heap, r *Recipe)
		want func(asked []string) bool
	}{
		{"48 single reads", func(h *heap, r *Recipe) {
			for i := range uint64(60) {
				h.areas[far+0x100*i] = element(far+0x100*(i+1), 0)
			}
			r.Steps[0] = Step{Bytes: 16, Head: 8, Most: 1 << 20}
		}, func(asked []string) bool { return len(asked) == 48 && asked[47] == "0x102e00+16" }},
		{"1024 elements", func(h *heap, r *Recipe) {
			h.areas[far] = chained(far, 1100, map[int]uint64{0: 0x4000, 1022: 0x4100, 1023: 0x4200, 1024: 0x4300})
			r.Guess[0], r.Guesses = unix.RemoteIovec{Base: far, Len: 1100 * 16}, 1
			r.Steps[0] = Step{Bytes: 16, Head: 8, Most: 1 << 20, Part: Part{At: 8, Bytes: 8}}
		}, func(asked []string) bool {
			return slices.Equal(asked, []string{"0x1000+16", "0x4000+8", "0x4100+8", "0x4200+8"})
		}},
		{"as many elements as the step has", func(h *heap, r *Recipe) {
			for i := range uint64(9) {
				h.areas[far+0x100*i] = element(far+0x100*(i+1), 0)
			}
			r.Steps[0] = Step{Bytes: 16, Head: 8, Most: 3}
		}, func(asked []string) bool { return len(asked) == 4 }},
		{"8 further chains", func(h *heap, r *Recipe) {
			all := words(far+24, 0x9000, 1) // the first has none
			for i := range uint64(10) {
				all = append(all, words(far+24*(i+2), 0x20000+0x100*i, 0)...)
				h.areas[0x20000+0x100*i] = words(0x30000)
			}
			h.areas[far] = all
			r.Guess[0], r.Guesses = unix.RemoteIovec{Base: far, Len: len(all)}, 1
			r.Steps[0] = Step{Bytes: 24, Head: 8, Most: 11, Kin: Kin{Has: true, At: 8, If: 16}}
			r.Steps[1] = Step{Kin: Kin{Is: true}, Bytes: 8, Most: 1}
		}, func(asked []string) bool {
			return len(asked) == 9 && asked[1] == "0x20000+8" && asked[8] == "0x20700+8"
		}},
		{"elements that are longer by words", func(h *heap, r *Recipe) {
			h.areas[0x1000] = words(77, far, far+24)
			h.areas[far] = words(far+0x100, 9, 9)
			r.RootBytes, r.Steps[0] = 24, Step{Bytes: 16, Head: 8, End: 16, Fill: 8, Most: 9}
			h.areas[far+0x200] = append(words(0, 1<<15-2), make([]byte, 1<<18-16)...)
			h.areas[far+0x100] = words(far+0x200, 3, 4, 5, 6)
		}, func(asked []string) bool {
			return slices.Equal(asked, []string{"0x1000+24", "0x100000+24", "0x100100+16", "0x100100+40", "0x100200+16", "0x100200+262144"})
		}},
		{"the same, and the count lies between words", func(h *heap, r *Recipe) {
			h.areas[0x1000] = words(77, far, far+24)
			h.areas[far] = words(0, 0, 0)
			r.RootBytes, r.Steps[0] = 24, Step{Bytes: 16, Head: 8, End: 16, Fill: 1, Most: 9}
		}, func(asked []string) bool { return slices.Equal(asked, []string{"0x1000+24", "0x100000+24"}) }},
		{"a step behind one of no use", func(h *heap, r *Recipe) {
			h.areas[far] = words(0, 0)
			r.Steps[0], r.Steps[1] = Step{Bytes: 1, Next: Behind, Most: 1}, Step{Bytes: 16, Head: 8, Most: 1}
		}, func(asked []string) bool { return slices.Equal(asked, []string{"0x1000+16", "0x100000+16"}) }},
		{"an element of 256 KiB", func(h *heap, r *Recipe) {
			h.areas[0x1000] = words(77, far, far+256<<10)
			h.areas[far] = make([]byte, 256<<10+8)
			r.RootBytes, r.Steps[0] = 24, Step{Bytes: 8, Head: 8, End: 16, Ends: true, Most: 1}
		}, func(asked []string) bool { return len(asked) == 2 && asked[1] == "0x100000+262144" }},
		{"no longer one", func(h *heap, r *Recipe) {
			h.areas[0x1000] = words(77, far, far+256<<10+8)
			h.areas[far] = make([]byte, 256<<10+8)
			r.RootBytes, r.Steps[0] = 24, Step{Bytes: 8, Head: 8, End: 16, Ends: true, Most: 1}
		}, func(asked []string) bool { return len(asked) == 1 }},
		{"none that ends before it begins", func(h *heap, r *Recipe) {
			h.areas[0x1000] = words(77, far, far-8)
			h.areas[far] = make([]byte, 64)
			r.RootBytes, r.Steps[0] = 24, Step{Bytes: 8, Head: 8, End: 16, Ends: true, Most: 1}
		}, func(asked []string) bool { return len(asked) == 1 }},
		{"no part again that cannot be read", func(h *heap, r *Recipe) {
			parts := map[int]uint64{40: 0x4000}
			for i := range 40 {
				parts[i] = 0x9999000
			}
			h.areas[far] = chained(far, 41, parts)
			r.Guess[0], r.Guesses = unix.RemoteIovec{Base: far, Len: 41 * 16}, 1
			r.Steps[0] = Step{Bytes: 16, Head: 8, Most: 41, Part: Part{At: 8, Bytes: 8}}
		}, func(asked []string) bool {
			return slices.Equal(asked, []string{"0x1000+16", "0x9999000+8", "0x4000+8"})
		}},
	} {
		h := &heap{areas: map[uint64][]byte{0x1000: words(77, far), 0x4000: words(40), 0x4100: words(41), 0x4200: words(42), 0x4300: words(43)}}
		r := &Recipe{RootBytes: 16}
		r.Roots[0] = Root{0x1000, 77}
		tt.set(h, r)
		if Follow(h, 7, r, empty(1<<19), -1); !tt.want(h.asked) {
			t.Errorf("%s: read %s", tt.name, h.read())
		}
	}
	if Behind >= 0 {
		t.Errorf("%d could be an offset", Behind)
	}
	if MostRoom < 2*256<<10 || MostRoom >= 1<<20 {
		t.Errorf("%d bytes are no room for two of the longest elements, or too many for one stop", MostRoom)
	}
}

// TestManyRoots: all roots that a recipe has room for, and states that hand control on, are eight at most.
func TestManyRoots(t *testing.T) {
	h, r := &heap{areas: map[uint64][]byte{}}, &Recipe{RootBytes: 8}
	for i := range 8 {
		r.Roots[i] = Root{0x1000 * uint64(i+1), 7}
		h.areas[r.Roots[i].Addr] = words(7)
	}
	b := empty(4096)
	if Follow(h, 7, r, b, -1); b.NRoots != 8 || b.Roots[7] != 0x8000 || h.reads != 8 {
		t.Errorf("roots %#x by %d reads", b.Roots[:b.NRoots], h.reads)
	}
	r.Roots[3].Addr = 0 // there is no more
	b = empty(4096)
	if Follow(h, 7, r, b, -1); b.NRoots != 3 {
		t.Errorf("%d roots before the end of the list, want 3", b.NRoots)
	}
	// Each hands control on to the next.
	state := binary.NativeEndian.Uint64([]byte{8, 7: 0})
	h = &heap{areas: map[uint64][]byte{0x100000: nil}}
	r = &Recipe{RootBytes: 16, Hop: Hop{Head: 8, Bytes: 8, Slots: 32, State: 8}}
	r.Roots[0] = Root{0x100000, 7}
	var all []byte
	for i := range uint64(12) {
		at := 0x100000 + 56*i
		all = slices.Concat(all, words(7, at+16), words(at+24), words(0, 0, at+56, state))
	}
	h.areas[0x100000] = all
	r.Guess[0], r.Guesses = unix.RemoteIovec{Base: 0x100000, Len: len(all)}, 1
	b = empty(4096)
	if Follow(h, 7, r, b, -1); b.NRoots != 8 || b.Roots[7] != 0x100000+7*56 {
		t.Errorf("roots %#x", b.Roots[:b.NRoots])
	}
}

// TestKinOfRoots: each root has further chains of its own.
func TestKinOfRoots(t *testing.T) {
	h, r := &heap{areas: map[uint64][]byte{}}, &Recipe{RootBytes: 16, Guesses: 2}
	for i := range uint64(2) {
		at := 0x100000 * (i + 1)
		h.areas[0x1000*(i+1)] = words(7, at)
		r.Roots[i] = Root{0x1000 * (i + 1), 7}
		var all []byte
		for j := range uint64(5) {
			all = append(all, words(at+24*(j+1), at+0x1000*(j+1), 0)...)
			h.areas[at+0x1000*(j+1)] = words(0)
		}
		h.areas[at] = all
		r.Guess[i] = unix.RemoteIovec{Base: uintptr(at), Len: len(all)}
	}
	r.Steps[0] = Step{Bytes: 24, Head: 8, Most: 5, Kin: Kin{Has: true, At: 8, If: 16}}
	r.Steps[1] = Step{Kin: Kin{Is: true}, Bytes: 8, Most: 1}
	if Follow(h, 7, r, empty(1024), -1); len(h.asked) != 12 || h.asked[5] != "0x105000+8" || h.asked[11] != "0x205000+8" {
		t.Errorf("read %s", h.read())
	}
}

// TestOnStack: a root is the thread's if its word is an address in the copy of the stack.
func TestOnStack(t *testing.T) {
	for word, want := range map[uint64]int{0x5000: 1, 0x503f: 1, 0x5040: 0, 0x4fff: 0, 0: 0} {
		h := &heap{areas: map[uint64][]byte{0x1000: words(7, word)}}
		b, r := empty(64), &Recipe{RootBytes: 16, OnStack: 8}
		b.StackAddr, b.Stack = 0x5000, Copy{Room: make([]byte, 64), N: 64}
		r.Roots[0] = Root{0x1000, 7}
		if Follow(h, 7, r, b, -1); b.NRoots != want {
			t.Errorf("with the word %#x there are %d roots, want %d", word, b.NRoots, want)
		}
	}
}

// TestHop: which state has been handed control to.
func TestHop(t *testing.T) {
	tag := func(kind byte) uint64 { return binary.NativeEndian.Uint64([]byte{kind, 7: 0xff}) }
	const state, closure, other = 8, 6, 5
	kept := words(0, 0x7777, tag(state))
	for _, tt := range []struct {
		name    string
		values  []byte // nil: they cannot be read
		closure []byte
		want    uint64
	}{
		{"the second value is a state", words(0, tag(other), 0x6666, tag(state)), nil, 0x6666},
		{"the second one, before what the first has kept", words(0x4000, tag(closure), 0x6666, tag(state)), kept, 0x6666},
		{"the first one has kept it", words(0x4000, tag(closure), 0, tag(other)), kept, 0x7777},
		{"the first one is nothing that keeps any", words(0x4000, tag(other), 0, tag(other)), kept, 0},
		{"what is kept is no state", words(0x4000, tag(closure), 0, tag(other)), words(0, 0x7777, tag(other)), 0},
		{"it cannot be read", words(0x4000, tag(closure), 0, tag(other)), nil, 0},
		{"no values", nil, kept, 0},
	} {
		h := &heap{areas: map[uint64][]byte{0x2000: words(0x3000), 0x3000: tt.values, 0x4000: tt.closure}}
		hops := &Hop{Head: 8, Bytes: 8, Slots: 32, State: state, Closure: closure, Kept: 8}
		if got := hop(empty(256), h, 7, hops, words(0, 0x2000)); got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.name, got, tt.want)
		}
		if got := hop(empty(256), h, 7, hops, words(0, 0x2008)); got != 0 {
			t.Errorf("%s: %#x of an element that cannot be read", tt.name, got)
		}
		hops.Bytes, h.reads = 0, 0
		if got := hop(empty(256), h, 7, hops, words(0, 0x2000)); got != 0 || h.reads != 0 {
			t.Errorf("%s: %#x, and %d reads, where no state does that", tt.name, got, h.reads)
		}
	}
}

// TestScanFrame: what a frame on the stack has to look like, and what is copied for it.
func TestScanFrame(t *testing.T) {
	const stack, size = 0x10000, 256
	const object, script, source, also, plain = 0x20001, 0x21001, 0x22001, 0x23001, 0x40001
	const both = "0x20000+16 0x21000+24 0x22000+8"
	for _, tt := range []struct {
		name                      string
		at                        int
		up, function, context, xx uint64
		shared                    uint64 // what the object has of the script
		want                      string
	}{
		{"a frame", 104, stack + 200, object, plain, 0, script, both},
		{"and another pointer", 104, stack + 200, object, plain, also, script, both + " 0x23000+8"},
		{"that is none", 104, stack + 200, object, plain, also + 1, script, both},
		{"nor this", 104, stack + 200, object, plain, also + 2, script, both},
		{"the first place", 64, stack + 72, object, plain, 0, script, both},
		{"before it", 56, stack + 72, object, plain, 0, script, ""},
		{"the last place", size - 16, stack + size - 8, object, plain, 0, script, both},
		{"behind it", size - 8, stack + size - 1, object, plain, 0, script, ""},
		{"it leads to itself", 104, stack + 104, object, plain, 0, script, ""},
		{"to the next word", 104, stack + 112, object, plain, 0, script, both},
		{"down", 104, stack + 96, object, plain, 0, script, ""},
		{"off the stack", 104, stack + size, object, plain, 0, script, ""},
		{"between words", 104, stack + 196, object, plain, 0, script, ""},
		{"the object is a number", 104, stack + 200, object - 1, plain, 0, script, ""},
		{"or anything", 104, stack + 200, object + 2, plain, 0, script, ""},
		{"the context is a number", 104, stack + 200, object, plain + 3, 0, script, ""},
		{"the object has no script", 104, stack + 200, object, plain, 0, script + 1, "0x20000+16"},
		{"one that cannot be read", 104, stack + 200, object, plain, also, 0x90001, "0x20000+16 0x90000+24 0x23000+8"},
		{"no object there", 104, stack + 200, 0x90001, plain, also, script, "0x90000+16 0x23000+8"},
	} {
		h := &heap{areas: map[uint64][]byte{0x20000: words(0, tt.shared), 0x21000: words(0, 0, source), 0x22000: words(1), 0x23000: words(2)}}
		b := empty(256)
		b.StackAddr, b.Stack = stack, Copy{Room: make([]byte, size), N: size}
		for off, v := range map[int]uint64{0: tt.up, -16: tt.function, -8: tt.context, -24: tt.xx} {
			binary.NativeEndian.PutUint64(b.Stack.Room[tt.at+off:], v)
		}
		s := &Scan{Bytes: 16, Function: -16, Context: -8, Also: -24, AlsoBytes: 8, Chain: [2]Link{{8, 24}, {16, 8}}}
		if scan(b, h, 7, s); h.read() != tt.want {
			t.Errorf("%s: read %q, want %q", tt.name, h.read(), tt.want)
		}
		if tt.at == size-16 { // and a byte of it is missing
			h.asked, b.NBlocks, b.Beyond.N, b.Stack.N = nil, 0, 0, size-1
			if scan(b, h, 7, s); h.read() != "" {
				t.Errorf("%s, cut off: read %q", tt.name, h.read())
			}
			b.Stack.N = size
		}
		h.areas = nil // nothing can be read any more
		for _, bytes := range []int{1, 0} {
			h.asked, b.NBlocks, b.Beyond.N, s.Bytes = nil, 0, 0, bytes
			Follow(h, 7, &Recipe{Scan: *s}, b, -1)
			if want := min(bytes, len(tt.want)); min(1, len(h.asked)) != want || b.NBlocks != 0 {
				t.Errorf("%s: read %q where objects have %d bytes", tt.name, h.read(), bytes)
			}
		}
	}
}

// TestGuess: as much of what is foreseen is copied as there is room for, by one read.
func TestGuess(t *testing.T) {
	most := len(new(Buffer).Blocks)
	for _, tt := range []struct {
		name           string
		guesses        int
		used, blocks   int
		gone           int // its area is not there any more; -1: none
		blocksMore, at int // and the bytes of them
	}{
		{"all", 3, 0, 0, -1, 3, 40},
		{"it just fits", 3, 1024 - 40, 0, -1, 3, 40},
		{"one byte too little", 3, 1024 - 39, 0, -1, 2, 24},
		{"room for two", 3, 1024 - 24, 0, -1, 2, 24},
		{"for one", 3, 1024 - 23, 0, -1, 1, 16},
		{"for none", 3, 1024 - 15, 0, -1, 0, 0},
		{"three blocks", 3, 0, most - 3, -1, 3, 40},
		{"two blocks", 3, 0, most - 2, -1, 2, 24},
		{"no block", 3, 0, most, -1, 0, 0},
		{"nothing is foreseen", 0, 0, 0, -1, 0, 0},
		{"less than there is", 2, 0, 0, -1, 2, 24},
		{"the first is gone", 3, 0, 0, 0, 0, 0},
		{"the second", 3, 0, 0, 1, 1, 16},
		{"the last", 3, 0, 0, 2, 2, 24},
		{"48 areas", 48, 0, 0, -1, 48, 40 + 45*8},
	} {
		h, r := &heap{areas: map[uint64][]byte{}}, &Recipe{Guesses: tt.guesses}
		for i := range r.Guess {
			r.Guess[i] = unix.RemoteIovec{Base: uintptr(0x1000 * (i + 1)), Len: 8}
			h.areas[uint64(r.Guess[i].Base)] = words(uint64(i), uint64(i))
		}
		r.Guess[0].Len, r.Guess[2].Len = 16, 16
		delete(h.areas, uint64(0x1000*(tt.gone+1)))
		b := empty(1024)
		b.Beyond.N, b.NBlocks = tt.used, tt.blocks
		b.guess(h, 7, r)
		reads := min(1, tt.blocksMore)
		if tt.gone >= 0 {
			reads = 1
		}
		if b.NBlocks-tt.blocks != tt.blocksMore || b.Beyond.N-tt.used != tt.at || h.gather != reads {
			t.Errorf("%s: %d blocks of %d bytes by %d reads, want %d of %d by %d", tt.name, b.NBlocks-tt.blocks, b.Beyond.N-tt.used, h.gather, tt.blocksMore, tt.at, reads)
			continue
		}
		at := tt.used
		for i, m := range b.Blocks[tt.blocks:b.NBlocks] {
			if want := (capture.Block{Addr: uint64(r.Guess[i].Base), Len: r.Guess[i].Len}); m != want || binary.NativeEndian.Uint64(b.Beyond.Room[at:]) != uint64(i) {
				t.Errorf("%s: block %d is %+v, want %+v", tt.name, i, m, want)
			}
			at += m.Len
		}
	}
}

// TestLatePart: parts that can be read later too leave the single reads to the elements of a chain, but those that were copied already are there.
func TestLatePart(t *testing.T) {
	for _, late := range []bool{false, true} {
		h := &heap{areas: map[uint64][]byte{0x1000: words(77, 0x20000)}}
		for i := range uint64(60) {
			at := 0x20000 + 0x1000*i
			h.areas[at], h.areas[at+0x800] = words(at+0x1000, at+0x800), words(i)
		}
		r := &Recipe{RootBytes: 16}
		r.Roots[0] = Root{0x1000, 77}
		r.Steps[0] = Step{Bytes: 16, Head: 8, Most: 60, Part: Part{At: 8, Bytes: 8, Late: late}}
		b := empty(1 << 14)
		Follow(h, 7, r, b, -1)
		elements, parts := 0, 0
		for i := range uint64(60) {
			at := 0x20000 + 0x1000*i
			if b.found(at, 16) != nil {
				elements++
			}
			if b.found(at+0x800, 8) != nil {
				parts++
			}
		}
		// One of the 48 reads is of the root; each other one of the first 16 is of an element, and then all are.
		if want := map[bool][2]int{false: {24, 23}, true: {40, 7}}[late]; [2]int{elements, parts} != want {
			t.Errorf("late %v: %d elements and %d parts, want %v", late, elements, parts, want)
		}
	}
}

// TestFound: bytes are of what was copied if all of them lie in one copy, wherever the last ones were.
func TestFound(t *testing.T) {
	b := &Buffer{Stack: Copy{Room: []byte("abcdefgh"), N: 6}, StackAddr: 100, Beyond: Copy{Room: []byte("ijklmnop"), N: 7}, NBlocks: 2}
	b.Blocks[0] = capture.Block{Addr: 200, Len: 4}
	b.Blocks[1] = capture.Block{Addr: 50, Len: 3}
	b.Blocks[2] = capture.Block{Addr: 300, Len: 3} // of an earlier one
	for _, tt := range []struct {
		addr uint64
		n    int
		want string
	}{
		{100, 6, "abcdef"}, {100, 7, ""}, {105, 1, "f"}, {105, 2, ""}, {106, 1, ""}, {106, 0, ""}, {99, 1, ""}, {103, 2, "de"},
		{200, 4, "ijkl"}, {200, 5, ""}, {203, 1, "l"}, {204, 1, ""}, {204, 0, ""}, {199, 1, ""}, {201, 2, "jk"},
		{50, 3, "mno"}, {51, 2, "no"}, {51, 3, ""}, {53, 1, ""}, {53, 0, ""}, {49, 1, ""}, {52, 1, "o"},
		{300, 1, ""}, {0, 1, ""},
	} {
		for near, at := range map[int]int{0: 0, 1: 4, 2: 7, len(b.Blocks): 0} {
			b.pass.near.block, b.pass.near.at = near, at
			if got := b.found(tt.addr, tt.n); string(got) != tt.want || (got != nil) != (tt.want != "") {
				t.Errorf("%d bytes at %d are %q, want %q; near block %d", tt.n, tt.addr, got, tt.want, near)
			}
			if got := b.found(201, 3); string(got) != "jkl" {
				t.Errorf("behind %d bytes at %d: %q", tt.n, tt.addr, got)
			}
		}
	}
}

// TestHave: what is not copied yet is copied if it is at hand and there is room for it, a block and a read.
func TestHave(t *testing.T) {
	for _, tt := range []struct {
		name  string
		set   func(h *heap, b *Buffer)
		n     int
		ok    bool
		reads int
	}{
		{"as it is", func(h *heap, b *Buffer) {}, 16, true, 1},
		{"it fits", func(h *heap, b *Buffer) { b.Beyond.N = 1024 - 16 }, 16, true, 1},
		{"a byte more", func(h *heap, b *Buffer) { b.Beyond.N = 1024 - 16 + 1 }, 16, false, 0},
		{"the last block", func(h *heap, b *Buffer) { b.NBlocks = len(b.Blocks) - 1 }, 16, true, 1},
		{"no block", func(h *heap, b *Buffer) { b.NBlocks = len(b.Blocks) }, 16, false, 0},
		{"the last read", func(h *heap, b *Buffer) { b.pass.singles = 47 }, 16, true, 1},
		{"no read", func(h *heap, b *Buffer) { b.pass.singles = 48 }, 16, false, 0},
		{"half of it is there", func(h *heap, b *Buffer) {}, 48, false, 1},
		{"it is not in memory", func(h *heap, b *Buffer) { h.missing, b.pass.pages = 0x40000/pageBytes, 5 }, 16, false, 0},
		{"another page is not", func(h *heap, b *Buffer) { h.missing, b.pass.pages = 0x40000/pageBytes+1, 5 }, 16, true, 1},
		{"the stack has it", func(h *heap, b *Buffer) { b.StackAddr, b.Stack = 0x40000, Copy{words(1, 2), 16} }, 16, true, 0},
		{"the stack has half of it", func(h *heap, b *Buffer) { b.StackAddr, b.Stack = 0x40000, Copy{words(1, 2), 8} }, 16, true, 1},
	} {
		h, b := &heap{areas: map[uint64][]byte{0x40000: words(1, 2, 3, 4)}}, empty(1024)
		tt.set(h, b)
		blocks, had := b.NBlocks, b.Beyond.N
		got := b.have(h, 7, 0x40000, tt.n)
		if (got != nil) != tt.ok || h.reads != tt.reads || tt.ok && string(got) != string(words(1, 2)) {
			t.Errorf("%s: %x by %d reads", tt.name, got, h.reads)
		}
		if more := tt.ok && tt.reads > 0; (b.NBlocks > blocks) != more || (b.Beyond.N == had+16) != more || more && b.Blocks[blocks] != (capture.Block{Addr: 0x40000, Len: 16}) {
			t.Errorf("%s: %d blocks more, %d bytes", tt.name, b.NBlocks-blocks, b.Beyond.N-had)
		}
		if again := b.have(h, 7, 0x40000, tt.n); tt.ok && (string(again) != string(got) || h.reads != tt.reads) {
			t.Errorf("%s: asked again, %x by %d reads", tt.name, again, h.reads)
		}
	}
	// A read that fails counts, too.
	h, b := &heap{}, empty(1024)
	for range 60 {
		b.have(h, 7, 0x40000, 8)
	}
	if h.reads != 48 || b.NBlocks != 0 || b.Beyond.N != 0 {
		t.Errorf("%d reads of nothing, %d blocks", h.reads, b.NBlocks)
	}
}

// TestSub: what a part leads to, step by step.
func TestSub(t *testing.T) {
	trail := [2]Link{{8, 24}, {16, 16}}
	for _, tt := range []struct {
		name string
		sub  Sub
		part []byte
		want string
	}{
		{"one step", Sub{At: 8, Bytes: 16}, words(0, 0x2000), "0x2000+16"},
		{"nothing", Sub{At: 8, Trail: trail}, words(0, 0x2000), ""},
		{"no part", Sub{At: 8, Bytes: 16}, nil, "0x1000+8"},
		{"a bit that must not be", Sub{At: 8, Bytes: 16, UnlessAt: 1, Unless: 4}, append(first(1, 5), words(0x2000)...), ""},
		{"another bit", Sub{At: 8, Bytes: 16, UnlessAt: 1, Unless: 4}, append(first(5, 1), words(0x2000)...), "0x2000+16"},
		{"a pointer to nothing", Sub{At: 8, Bytes: 16}, words(0x2000, 0), ""},
		{"one of the bits", Sub{At: 8, Bytes: 16, If: 6}, append(first(4), words(0x2000)...), "0x2000+16"},
		{"none of them", Sub{At: 8, Bytes: 16, If: 6}, append(first(1), words(0x2000)...), ""},
		{"the tag", Sub{At: 8, Bytes: 16, TagAt: 1, Tag: 5}, append(first(1, 5), words(0x2000)...), "0x2000+16"},
		{"another tag", Sub{At: 8, Bytes: 16, TagAt: 1, Tag: 5}, append(first(5, 1), words(0x2000)...), ""},
		{"the lowest bit, which is not set", Sub{At: 8, Bytes: 16, If: 1}, append(first(4), words(0x2000)...), ""},
		{"the tag 1, which it is not", Sub{At: 8, Bytes: 16, TagAt: 1, Tag: 1}, append(first(5, 5), words(0x2000)...), ""},
		{"the bits alone", Sub{At: 8, Bytes: 16, If: 6, TagAt: 1, Tag: 5}, append(first(6, 1), words(0x2000)...), ""},
		{"the tag alone", Sub{At: 8, Bytes: 16, If: 6, TagAt: 1, Tag: 5}, append(first(1, 5), words(0x2000)...), ""},
		{"both", Sub{At: 8, Bytes: 16, If: 6, TagAt: 1, Tag: 5}, append(first(2, 5), words(0x2000)...), "0x2000+16"},
		{"a trail", Sub{Bytes: 16, Trail: trail}, words(0x2000), "0x2000+16 0x3000+24 0x4000+16"},
		{"a short trail", Sub{Bytes: 16, Trail: [2]Link{{8, 24}}}, words(0x2000), "0x2000+16 0x3000+24"},
		{"and a twig", Sub{Bytes: 16, Trail: trail, Twig: Link{8, 8}}, words(0x2000), "0x2000+16 0x3000+24 0x5000+8 0x4000+16"},
		{"no twig", Sub{Bytes: 16, Trail: trail, Twig: Link{8, 0}}, words(0x2000), "0x2000+16 0x3000+24 0x4000+16"},
		{"a twig to nothing", Sub{Bytes: 16, Trail: trail, Twig: Link{0, 8}}, words(0x2000), "0x2000+16 0x3000+24 0x4000+16"},
		{"the trail ends", Sub{Bytes: 16, Trail: [2]Link{{0, 24}, {16, 16}}}, words(0x2000), "0x2000+16"},
		{"it cannot be read", Sub{Bytes: 16, Trail: trail}, words(0x9000), "0x9000+16"},
		{"nor further on", Sub{Bytes: 16, Trail: [2]Link{{8, 32}, {16, 16}}, Twig: Link{8, 8}}, words(0x2000), "0x2000+16 0x3000+32"},
	} {
		h := &heap{areas: map[uint64][]byte{0x2000: words(0, 0x3000), 0x3000: words(0, 0x5000, 0x4000), 0x4000: words(4, 4), 0x5000: words(5)}}
		b := empty(256)
		copy(b.Beyond.left(), tt.part)
		b.add(0x1000, len(tt.part))
		b.pass.part = 0x1000
		if b.sub(h, 7, &tt.sub, max(len(tt.part), 8)); h.read() != tt.want {
			t.Errorf("%s: read %q, want %q", tt.name, h.read(), tt.want)
		}
	}
}

// TestHead: where a chain begins.
func TestHead(t *testing.T) {
	root := words(0, 0x2003)
	for _, tt := range []struct {
		step Step
		want uint64
	}{
		{Step{Head: 8, Mask: 3}, 0x2000},
		{Step{Head: 8}, 0x2003},
		{Step{Head: 8, Mask: 3, Via: true, At: 8}, 0x3004},
		{Step{Head: 8, Mask: 3, Via: true, At: 16}, 0}, // it is not there
	} {
		h := &heap{areas: map[uint64][]byte{0x2000: words(1, 0x3007)}}
		if got := empty(64).head(h, 7, &tt.step, root); got != tt.want {
			t.Errorf("%+v: %#x, want %#x", tt.step, got, tt.want)
		}
	}
}

// TestArea: from where to where an area is copied.
func TestArea(t *testing.T) {
	e := func(list ...uint64) []byte { return words(list...) }
	index := func(n int32) uint64 { // it is the first four bytes of a word
		return binary.NativeEndian.Uint64(append(binary.NativeEndian.AppendUint32(nil, uint32(n)), 9, 9, 9, 9))
	}
	for _, tt := range []struct {
		name   string
		area   Area
		e      []byte
		want   string
		leafed capture.Block
	}{
		{"between two words", Area{From: 0, To: 8}, e(0x2000, 0x2018), "0x2000+24", capture.Block{}},
		{"one byte", Area{From: 0, To: 8}, e(0x2000, 0x2001), "0x2000+1", capture.Block{}},
		{"none", Area{From: 0, To: 8}, e(0x2000, 0x2000), "", capture.Block{}},
		{"less", Area{From: 0, To: 8}, e(0x2000, 0x1fff), "", capture.Block{}},
		{"of 1 TiB the first", Area{From: 0, To: 8}, e(0x2000, 0x2000+1<<40), "0x2000+262144", capture.Block{}},
		{"or the last", Area{From: 0, To: 8, Last: true}, e(0x2000, 0x2000+1<<40), "0xfffffc2000+262144", capture.Block{}}, // 1<<40 + 0x2000 - 0x40000
		{"no more", Area{From: 0, To: 8}, e(0x2000, 0x2001+1<<40), "", capture.Block{}},
		{"just as long as may be", Area{From: 0, To: 8, Last: true}, e(0x2000, 0x42000), "0x2000+262144", capture.Block{}},
		{"further up", Area{From: 0, To: 8, Words: 16}, e(0x2000, 0x2008, 3), "0x2000+32", capture.Block{}},
		{"by way of another word", Area{From: 0, To: 8, Via: true, At: 16}, e(0x2000, 0x2ff0), "0x3000+8 0x2000+32", capture.Block{}},
		{"that is not there", Area{From: 0, To: 8, Via: true, At: 16}, e(0x2000, 0x8ff0), "0x9000+8", capture.Block{}},
		{"with what is in front", Area{From: 0, To: 8, Before: 16}, e(0x2010, 0x2018), "0x2000+24", capture.Block{}},
		{"which is not there", Area{From: 0, To: 8, Before: 16}, e(0x2000, 0x2018), "0x1ff0+40 0x2000+24", capture.Block{}},
		{"elements", Area{From: 0, Index: 8, Each: 24}, e(0x2000, index(1)), "0x2000+48", capture.Block{Addr: 0x2000, Len: 48}},
		{"one", Area{From: 0, Index: 8, Each: 24}, e(0x2000, index(0)), "0x2000+24", capture.Block{Addr: 0x2000, Len: 24}},
		{"of a byte", Area{From: 0, Index: 8, Each: 1}, e(0x2000, index(1)), "0x2000+2", capture.Block{Addr: 0x2000, Len: 2}},
		{"no element", Area{From: 0, Index: 8, Each: 24}, e(0x2000, index(-1)), "", capture.Block{}},
	} {
		h := &heap{areas: map[uint64][]byte{0x2000: make([]byte, 0x400), 0x3000: words(0x2020)}}
		b := empty(1 << 19)
		if area(b, h, 7, &tt.area, tt.e); h.read() != tt.want || b.pass.leafed.list[0] != tt.leafed || (b.pass.leafed.n == 1) != (tt.leafed.Len > 0) {
			t.Errorf("%s: read %q, want %q; leaves of %+v", tt.name, h.read(), tt.want, b.pass.leafed.list[:b.pass.leafed.n])
		}
	}
	// An element whose areas have no addresses has none, whatever else they say.
	h, r := &heap{areas: map[uint64][]byte{0x1000: words(7, 0x2000), 0x2000: words(0x3000, 0x3000), 0x3000: make([]byte, 64)}}, &Recipe{RootBytes: 16}
	r.Roots[0] = Root{0x1000, 7}
	r.Steps[0] = Step{Bytes: 16, Head: 8, Most: 1, Areas: [2]Area{{Each: 16}, {Via: true}}}
	if Follow(h, 7, r, empty(256), -1); h.read() != "0x1000+16 0x2000+16" {
		t.Errorf("read %s", h.read())
	}
}

// TestOddPlaces: offsets need not be those of words, nor lengths more than a byte.
func TestOddPlaces(t *testing.T) {
	const far = 0x100000
	odd := func(list ...uint64) []byte { return append([]byte{7}, words(list...)...) }
	for _, tt := range []struct {
		name string
		step Step
		e    []byte
		want string
	}{
		{"a part", Step{Part: Part{At: 9, Bytes: 1}}, odd(0, 0x4000), "0x4000+1"},
		{"a part that is none", Step{Part: Part{At: 9, Bytes: 8, Before: 16}}, odd(0, 0), ""},
		{"a part that would begin at address 0", Step{Part: Part{At: 9, Bytes: 8, Before: 16}}, odd(0, 16), ""},
		{"what a part leads to", Step{Part: Part{At: 9, Bytes: 16}, Sub: Sub{Bytes: 1}}, odd(0, 0x4000), "0x4000+16 0x5000+1"},
		{"a trail and a twig", Step{Part: Part{At: 9, Bytes: 16}, Sub: Sub{Bytes: 8, Trail: [2]Link{{0, 8}, {0, 1}}, Twig: Link{0, 1}}}, odd(0, 0x4000), "0x4000+16 0x5000+8 0x6000+8 0x7000+1"},
		{"an area", Step{Areas: [2]Area{{From: 9, To: 17, Words: 25}}}, odd(0, 0x4000, 0x4000, 1), "0x4000+8"},
		{"its words", Step{Areas: [2]Area{{From: 9, To: 17, Words: 1}}}, odd(1, 0x4000, 0x4001, 0), "0x4000+9"},
		{"its elements", Step{Areas: [2]Area{{From: 9, Index: 17, Each: 1}}}, odd(0, 0x4000, 0, 1), "0x4000+1"},
	} {
		h := &heap{areas: map[uint64][]byte{0x1000: words(7, far), far: tt.e, 0x4000: words(0x5000, 0), 0x5000: words(0x6000), 0x6000: words(0x7000), 0x7000: words(0)}}
		r := &Recipe{RootBytes: 16}
		r.Roots[0] = Root{0x1000, 7}
		r.Steps[0] = tt.step
		r.Steps[0].Head, r.Steps[0].Bytes, r.Steps[0].Next, r.Steps[0].Most = 8, len(tt.e), 1, 1
		Follow(h, 7, r, empty(1024), -1)
		if got := strings.TrimSpace(strings.TrimPrefix(h.read(), fmt.Sprintf("0x1000+16 0x100000+%d", len(tt.e)))); got != tt.want {
			t.Errorf("%s: read %q, want %q", tt.name, got, tt.want)
		}
	}
	h := &heap{areas: map[uint64][]byte{0x1000: append(words(7)[:8], 1, 2, 3, 4, 5, 6, 7, 8)}}
	b, r := empty(64), &Recipe{RootBytes: 16, OnStack: 1, Check: 0}
	b.StackAddr, b.Stack = 0x5000, Copy{Room: make([]byte, 64), N: 64}
	r.Roots[0] = Root{0x1000, 7}
	if Follow(h, 7, r, b, -1); b.NRoots != 0 {
		t.Error("a root is the thread's whose odd word lies on no stack")
	}
}

// TestManyAreas: elements of the first eight areas lead on.
func TestManyAreas(t *testing.T) {
	h, r := &heap{areas: map[uint64][]byte{}}, &Recipe{RootBytes: 16}
	r.Roots[0] = Root{0x1000, 7}
	h.areas[0x1000] = words(7, 0x2000)
	var chain, areas []byte
	for i := range uint64(10) {
		next := 0x2000 + 24*(i+1)
		if i == 9 {
			next = 0
		}
		chain = append(chain, words(next, 0x10000+16*i, 0)...) // of one element, the one with number 0
		areas = append(areas, words(1, 0x20000+0x100*i)...)
		h.areas[0x20000+0x100*i] = words(i)
	}
	h.areas[0x2000], h.areas[0x10000] = chain, areas
	r.Guess[0], r.Guess[1], r.Guesses = unix.RemoteIovec{Base: 0x2000, Len: 240}, unix.RemoteIovec{Base: 0x10000, Len: 160}, 2
	r.Steps[0] = Step{Bytes: 24, Head: 8, Most: 10, Areas: [2]Area{{From: 8, Index: 16, Each: 16, Leaves: [2]Leaf{{Link: Link{8, 8}, Tags: 1<<16 - 1}, {Link: Link{8, 16}, Tags: 1<<16 - 1}}}}}
	r.Steps[1] = Step{Kin: Kin{Is: true}, Bytes: 8} // has no elements that lead on
	if Follow(h, 7, r, empty(1024), -1); len(h.asked) != 17 || h.asked[1] != "0x20000+8" || h.asked[8] != "0x20700+8" || h.asked[9] != "0x20000+16" {
		t.Errorf("read %s", h.read())
	}
}

// TestLeavesOf: what the last elements of an area lead to, the last one first.
func TestLeavesOf(t *testing.T) {
	h := &heap{areas: map[uint64][]byte{}}
	var all []byte
	var want []string
	for i := range uint64(14) {
		all = slices.Concat(all, first(0x13), words(0x1000*(i+1)))
		h.areas[0x1000*(i+1)] = words(i)
		if i >= 2 { // the last 12
			want = slices.Insert(want, 0, fmt.Sprintf("%#x+8", 0x1000*(i+1)))
		}
	}
	a := &Area{Each: 16}
	if leaves(empty(1024), h, 7, a, &Leaf{Link: Link{8, 8}, Tags: 1 << 3}, all); !slices.Equal(h.asked, want) {
		t.Errorf("read %v, want %v", h.asked, want)
	}
	for _, tt := range []struct {
		name string
		leaf Leaf
		e    []byte
		want string
	}{
		{"by the tag's lowest bits", Leaf{Link: Link{8, 8}, Tags: 1 << 15}, append(first(0x1f), words(0x1000)...), "0x1000+8"},
		{"another tag", Leaf{Link: Link{8, 8}, Tags: 1 << 14}, append(first(0x1f), words(0x1000)...), ""},
		{"any but this", Leaf{Link: Link{8, 8}, Tags: 1<<15 - 1}, append(first(0x1f), words(0x1000)...), ""},
		{"a pointer to nothing, then one", Leaf{Link: Link{8, 8}, Tags: 1}, words(0, 0x1000, 0, 0), "0x1000+8"},
		{"one of no such tag, then one", Leaf{Link: Link{8, 8}, Tags: 1}, slices.Concat(words(0, 0x1000), first(1), words(0x2000)), "0x1000+8"},
		{"less than an element", Leaf{Link: Link{8, 8}, Tags: 1}, words(0), ""},
		{"what is left of one", Leaf{Link: Link{8, 8}, Tags: 1}, words(0x2000, 0, 0x1000), "0x1000+8"},
		{"further on", Leaf{Link: Link{8, 16}, Tags: 1, Then: Link{8, 8}}, words(0, 0x8000), "0x8000+16 0x9000+8"},
		{"a byte further on", Leaf{Link: Link{8, 16}, Tags: 1, Then: Link{8, 1}}, words(0, 0x8000), "0x8000+16 0x9000+1"},
		{"further on from nothing", Leaf{Link: Link{8, 16}, Tags: 1, Then: Link{8, 8}}, words(0, 0x8008), "0x8008+16"},
	} {
		h := &heap{areas: map[uint64][]byte{0x1000: words(1), 0x2000: words(1), 0x8000: words(0, 0x9000), 0x9000: words(0)}}
		if leaves(empty(1024), h, 7, a, &tt.leaf, tt.e); h.read() != tt.want {
			t.Errorf("%s: read %q, want %q", tt.name, h.read(), tt.want)
		}
	}
}
