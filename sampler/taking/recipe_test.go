package taking

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// heap is a kernel whose memory is a few areas. It counts what is read.
type heap struct {
	Kernel
	areas         map[uint64][]byte
	reads, gather int
	asked         []string
	missing       uint64 // number of the page that is not in memory
}

// Pread is of a pagemap.
func (h *heap) Pread(fd int, b []byte, off int64) (int, unix.Errno) {
	if fd != 5 {
		return 0, unix.EBADF
	}
	for i := 0; i+8 <= len(b); i += 8 {
		entry := uint64(pagePresent)
		if uint64(off/8)+uint64(i/8) == h.missing {
			entry = 0
		}
		binary.NativeEndian.PutUint64(b[i:], entry)
	}
	return len(b), 0
}

func (h *heap) Memory(_ int, addr uint64, b []byte) int {
	h.reads++
	h.asked = append(h.asked, fmt.Sprintf("%#x+%d", addr, len(b)))
	return h.copy(addr, b)
}

func (h *heap) copy(addr uint64, b []byte) int {
	for start, area := range h.areas {
		if off := addr - start; off < uint64(len(area)) {
			return copy(b, area[off:])
		}
	}
	return 0
}

func (h *heap) Gather(_ int, from []unix.RemoteIovec, b []byte) (n int) {
	h.gather++
	for _, f := range from {
		got := h.copy(uint64(f.Base), b[n:n+f.Len])
		if n += got; got < f.Len {
			break
		}
	}
	return n
}

// words are an area.
func words(list ...uint64) (b []byte) {
	for _, w := range list {
		b = binary.NativeEndian.AppendUint64(b, w)
	}
	return b
}

// first is a word of which these are the first bytes.
func first(b ...byte) []byte { return append(b, make([]byte, 8-len(b))...) }

// root is at 0x1000: whose it is, a chain of two elements that have parts, the newest of two chunks, and where that ends.
func newHeap() (*heap, *Recipe) {
	h := &heap{areas: map[uint64][]byte{
		0x1000: words(77, 0x2000, 0x3000, 0x3030, 0x6000),
		0x2000: words(0x2100, 0x4001), // next, part with a tag
		0x2100: words(0, 0x4100),
		0x3000: words(0x3100, 0, 0, 1, 2, 3), // previous, -, fill
		0x3100: words(0, 0, 2, 8, 9),
		0x4000: words(40),
		0x4100: words(41),
		0x6000: words(5, 0x2100),
	}}
	r := &Recipe{RootBytes: 40, Check: 0, Room: 4096}
	r.Roots[0] = Root{0x1000, 77}
	r.Steps[0] = Step{Bytes: 24, Head: 16, End: 24, Fill: 16, Most: 10}
	r.Steps[1] = Step{Bytes: 16, Head: 8, Most: 10, Part: Part{At: 8, Bytes: 8, Mask: 1}}
	r.Steps[2] = Step{Bytes: 16, Head: 32, Via: true, At: 8, Most: 10}
	return h, r
}

// pieces are the areas that were copied.
func pieces(b *Buffer) (list string) {
	at := 0
	for _, p := range b.Blocks[:b.NBlocks] {
		list += fmt.Sprintf("%#x+%d ", p.Addr, p.Len)
		at += p.Len
	}
	if at != b.Beyond.N {
		list += fmt.Sprintf("in %d bytes", b.Beyond.N)
	}
	return list
}

func TestFollow(t *testing.T) {
	follow := func(h *heap, r *Recipe) *Buffer {
		b := &Buffer{Beyond: Copy{Room: make([]byte, r.Room)}}
		Follow(h, 7, r, b, -1)
		return b
	}
	h, r := newHeap()
	b := follow(h, r)
	const all = "0x1000+40 0x3000+48 0x3100+24 0x3100+40 0x2000+16 0x4000+8 0x2100+16 0x4100+8 0x6008+8 "
	if got := pieces(b); got != all || b.NRoots != 1 || b.Roots[0] != 0x1000 || h.gather != 0 {
		t.Errorf("copied %s, roots %v; want %s", got, b.Roots[:b.NRoots], all)
	}

	// What was foreseen is copied at once, the rest singly.
	h, r = newHeap()
	for _, p := range b.Blocks[:3] {
		r.Guess[r.Guesses] = unix.RemoteIovec{Base: uintptr(p.Addr), Len: p.Len}
		r.Guesses++
	}
	if b := follow(h, r); h.gather != 1 || h.reads != 6 || b.NRoots != 1 {
		t.Errorf("%d gathered reads, %d others: %v", h.gather, h.reads, h.asked)
	}

	// One that is not there any more ends the gathered read, and nothing else.
	h, r = newHeap()
	r.Guess[0], r.Guess[1], r.Guess[2], r.Guesses = unix.RemoteIovec{Base: 0x1000, Len: 40}, unix.RemoteIovec{Base: 0x9000, Len: 8}, unix.RemoteIovec{Base: 0x3000, Len: 48}, 3
	if b := follow(h, r); pieces(b) != all {
		t.Errorf("behind an area that is gone: %s", pieces(b))
	}

	// Nobody waits for a page that was not foreseen and is not in memory; one that was foreseen was there.
	h, r = newHeap()
	h.missing = 0x3000 / pageBytes
	b = &Buffer{Beyond: Copy{Room: make([]byte, r.Room)}}
	if Follow(h, 7, r, b, 5); b.NRoots != 1 || slices.ContainsFunc(h.asked, func(s string) bool { return strings.HasPrefix(s, "0x3") }) || !strings.Contains(pieces(b), "0x2000+16") {
		t.Errorf("with a page that is missing: %v was read, %s is there", h.asked, pieces(b))
	}
	r.Guess[0], r.Guesses = unix.RemoteIovec{Base: 0x3000, Len: 48}, 1
	b = &Buffer{Beyond: Copy{Room: make([]byte, r.Room)}}
	if Follow(h, 7, r, b, 5); !strings.Contains(pieces(b), "0x3000+48") || strings.Contains(pieces(b), "0x3100") {
		t.Errorf("with a page that is missing, and foreseen: %s", pieces(b))
	}

	// Another thread's state.
	h, r = newHeap()
	r.Roots[0].Is = 78
	if b := follow(h, r); b.NRoots != 0 || h.reads != 1 {
		t.Errorf("another thread's state: roots %v, %d reads", b.Roots[:b.NRoots], h.reads)
	}

	// No room.
	h, r = newHeap()
	r.Room = 100
	if b := follow(h, r); b.Beyond.N > 100 || b.NRoots != 1 {
		t.Errorf("%d bytes in room for 100", b.Beyond.N)
	}
}

// TestFollowKin: chunks that tell where they end, what parts lead to, and chains that elements lead to.
func TestFollowKin(t *testing.T) {
	part := func(kind byte, sub uint64) []byte { return append([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, words(sub)...) }
	h := &heap{areas: map[uint64][]byte{
		0x1000: words(77, 0x2000, 0x3000, 0x3030),
		0x2000: words(0x2100, 0x4000, 9),          // next, part, what is 0 where kin is
		0x2100: words(0x2200, 0x4100, 0),          // its part is the kin too
		0x2200: words(0, 0x4200, 9),               //
		0x3000: words(0x3030, 0x3100, 0, 1, 2, 3), // end, previous
		0x3100: words(0x3118, 0, 8),
		0x4000: part(2, 0x5000),
		0x4100: part(1, 0x5100), // of another kind
		0x4200: part(4, 0x5200),
		0x5000: words(50), 0x5100: words(51), 0x5200: words(52),
	}}
	r := &Recipe{RootBytes: 32, Room: 4096}
	r.Roots[0] = Root{0x1000, 77}
	r.Steps[0] = Step{Bytes: 16, Head: 16, End: 24, Ends: true, Next: 8, Most: 10}
	r.Steps[1] = Step{Bytes: 24, Head: 8, Most: 10, Part: Part{At: 8, Bytes: 16}, Sub: Sub{At: 8, Bytes: 8, If: 6}, Kin: Kin{Has: true, At: 8, If: 16}}
	r.Steps[2] = Step{Kin: Kin{Is: true}, Bytes: 8, Most: 1, Next: 0, Part: Part{At: 0, Bytes: 0}}
	follow := func(h *heap) *Buffer {
		b := &Buffer{Beyond: Copy{Room: make([]byte, r.Room)}}
		Follow(h, 7, r, b, -1)
		return b
	}
	const all = "0x1000+32 0x3000+48 0x3100+16 0x3100+24 0x2000+24 0x4000+16 0x5000+8 0x2100+24 0x4100+16 0x2200+24 0x4200+16 0x5200+8 "
	if got := pieces(follow(h)); got != all {
		t.Errorf("copied %s, want %s", got, all)
	}
	r.Steps[2].Bytes = 24 // the part of the second element is longer as a kin
	h.areas[0x4100] = append(part(0, 0x5100), words(8)...)
	if got := pieces(follow(h)); !strings.Contains(got, "0x4100+24 ") {
		t.Errorf("kin: %s", got)
	}
	for i := range uint64(40) { // more kin than are followed, each a circle
		h.areas[0x2000+0x100*i] = words(0x2000+0x100*((i+1)%40), 0x9000+0x100*i, 0)
		h.areas[0x9000+0x100*i] = words(0x9000 + 0x100*i)
	}
	r.Steps[2].Most = 1 << 30
	if b := follow(h); h.reads > 3*maxSingle || b.pass.links > maxLinks || b.pass.kin.n > maxKin {
		t.Errorf("%d reads, %d links, %d kin", h.reads, b.pass.links, b.pass.kin.n)
	}
}

// TestFollowHop: a state whose control another one has, and what parts lead to step by step. One whose stack is elsewhere is left out.
func TestFollowHop(t *testing.T) {
	tag := func(kind byte) uint64 { return binary.NativeEndian.Uint64([]byte{kind, 7: 0}) } // the byte with the lowest address
	slots := func(first uint64, kind byte, second uint64, other byte) []byte {
		return words(first, tag(kind), second, tag(other))
	}
	h := &heap{areas: map[uint64][]byte{
		0x1000: words(77, 0x2000, 0x48), // errors are handled on the stack at 0x48
		0x1100: words(77, 0x2100, 0x48),
		0x1200: words(77, 0x2200, 0x48),
		0x1300: words(77, 0x2200, 0x90), // not on this stack
		0x2000: words(0x3000, 0),        // values, next
		0x2100: words(0x3100, 0),
		0x2200: words(0x3200, 0),
		0x3000: slots(0x4000, 5, 0x1100, 8), // the second one is a state
		0x3100: slots(0x4100, 6, 0, 0),      // the first one keeps one
		0x3200: slots(0x4200, 5, 0x1300, 8),
		0x4000: words(0x5000), 0x4100: words(0, 0x1200, tag(8)), 0x4200: words(0),
		0x5000: words(0x6000, 0x7000), 0x6000: words(0x8000), 0x7000: words(2), 0x8000: words(3),
	}}
	r := &Recipe{RootBytes: 24, OnStack: 16, Hop: Hop{Head: 8, Bytes: 16, Slots: 32, State: 8, Closure: 6, Kept: 8}, Room: 4096}
	r.Roots[0], r.Roots[1], r.Roots[2] = Root{0x1300, 77}, Root{0x1000, 77}, Root{0x1100, 77}
	r.Steps[0] = Step{Bytes: 16, Head: 8, Next: 8, Most: 4, Part: Part{Bytes: 32}, Sub: Sub{Bytes: 8, TagAt: 8, Tag: 5,
		Trail: [2]Link{{0, 16}, {0, 8}}, Twig: Link{8, 8}}}
	follow := func() *Buffer {
		b := &Buffer{Beyond: Copy{Room: make([]byte, r.Room)}, StackAddr: 0x10, Stack: Copy{Room: make([]byte, 0x40), N: 0x40}}
		Follow(h, 7, r, b, -1)
		return b
	}
	const want = "0x1300+24 0x1000+24 0x2000+16 0x3000+32 0x4000+8 0x5000+16 0x7000+8 0x6000+8 0x1100+24 0x2100+16 0x3100+32 0x4100+24 0x1200+24 0x2200+16 0x3200+32 0x4200+8 "
	b := follow()
	if got := pieces(b); got != want || !slices.Equal(b.Roots[:b.NRoots], []uint64{0x1000, 0x1100, 0x1200}) {
		t.Errorf("copied %s, roots %#x; want %s", got, b.Roots[:b.NRoots], want)
	}
	h.areas[0x4100] = words(0, 0x1000, tag(8)) // a circle
	if b := follow(); b.NRoots != 2 {
		t.Errorf("roots of a circle: %#x", b.Roots[:b.NRoots])
	}
}

// TestFollowHostile: chains that go round, lengths that cannot be, and pointers to nowhere end within the bounds.
func TestFollowHostile(t *testing.T) {
	for name, change := range map[string]func(h *heap){
		"circle":       func(h *heap) { h.areas[0x2100] = words(0x2000, 0x4000) },
		"own circle":   func(h *heap) { h.areas[0x2000] = words(0x2000, 0x4000) },
		"chunk circle": func(h *heap) { h.areas[0x3100] = words(0x3100, 0, 2, 0, 0) },
		"long chunk":   func(h *heap) { h.areas[0x1000] = words(77, 0x2000, 0x3000, 1<<60, 0x6000) },
		"end before":   func(h *heap) { h.areas[0x1000] = words(77, 0x2000, 0x3000, 0x10, 0x6000) },
		"fill":         func(h *heap) { h.areas[0x3100] = words(0, 0, 1<<60+3, 0, 0) },
		"nowhere":      func(h *heap) { h.areas[0x1000] = words(77, ^uint64(0), ^uint64(0)-7, ^uint64(0), ^uint64(0)-8) },
		"many parts": func(h *heap) {
			for i := range uint64(2000) {
				h.areas[0x100000+64*i] = words(0x100000+64*(i+1), 0x800000+64*i)
				h.areas[0x800000+64*i] = words(1)
			}
			h.areas[0x2000] = words(0x100000, 0)
		},
	} {
		h, r := newHeap()
		change(h)
		for i := range r.Steps {
			r.Steps[i].Most = 1 << 30
		}
		b := &Buffer{Beyond: Copy{Room: make([]byte, 8192)}}
		Follow(h, 7, r, b, -1)
		if h.reads > maxSingle || b.NBlocks > len(b.Blocks) || b.Beyond.N > len(b.Beyond.Room) || b.pass.links > maxLinks {
			t.Errorf("%s: %d reads, %d blocks, %d bytes, %d links", name, h.reads, b.NBlocks, b.Beyond.N, b.pass.links)
		}
	}
}

// TestAreas: what lies between two addresses of an element is copied, and elements that lie in it one behind another lead to their parts.
func TestAreas(t *testing.T) {
	h := &heap{areas: map[uint64][]byte{
		0x1000: words(77, 0x2000),
		0x2000: words(0x3000, 6, 0x3010),                     // a stack, its words, where its frames begin
		0x3000: words(1, 2, 0x4010, 0x3008, 0x4030, 0, 9, 9), // values; two frames, of which the first leads to the end of the values; others'
		0x4000: words(10, 11, 12, 13, 14, 15, 16),
	}}
	r := &Recipe{RootBytes: 16, Room: 4096}
	r.Roots[0] = Root{Addr: 0x1000, Is: 77}
	r.Steps[0] = Step{Bytes: 24, Head: 8, Most: 1, Areas: [2]Area{{From: 16, Words: 8}, {To: 16, Via: true, At: 8, Last: true}}}
	r.Steps[1] = Step{Bytes: 16, Head: 8, Via: true, At: 16, Next: Behind, Most: 9, Part: Part{Bytes: 24, Before: 16}}
	b := &Buffer{Beyond: Copy{Room: make([]byte, 4096)}}
	Follow(h, 1, r, b, -1)
	if want := "0x1000+16 0x2000+24 0x3010+32 0x3000+8 0x4000+24 0x4020+24"; strings.Join(h.asked, " ") != want {
		t.Errorf("read %v, want %s", h.asked, want)
	}
	// Ends that are before their begin, or far away, are none.
	for _, end := range []uint64{0, 0x3000, 1 << 60} {
		h.asked = nil
		h.areas[0x3000] = words(1, 2, 0x4010, end, 0x4030, 0, 9, 9)
		b.NBlocks, b.Beyond.N, b.NRoots = 0, 0, 0
		Follow(h, 1, r, b, -1)
		if slices.ContainsFunc(h.asked, func(s string) bool { return strings.HasPrefix(s, "0x3000+") }) {
			t.Errorf("end %#x: read %v", end, h.asked)
		}
	}
}

// TestLongArea: of an area that is too long the first bytes are copied, or the last.
func TestLongArea(t *testing.T) {
	for last, want := range map[bool]string{false: fmt.Sprintf("0x3000+%d", maxElement), true: fmt.Sprintf("%#x+%d", 0x3000+16, maxElement)} {
		h := &heap{areas: map[uint64][]byte{0x1000: words(77, 0x2000), 0x2000: words(0x3000, 0x3000+maxElement+16), 0x3000: make([]byte, maxElement+16)}}
		r := &Recipe{RootBytes: 16, Room: 2 * maxElement}
		r.Roots[0] = Root{Addr: 0x1000, Is: 77}
		r.Steps[0] = Step{Bytes: 16, Head: 8, Most: 1, Areas: [2]Area{{To: 8, Last: last}}}
		b := &Buffer{Beyond: Copy{Room: make([]byte, r.Room)}}
		Follow(h, 1, r, b, -1)
		if got := strings.Join(h.asked, " "); got != "0x1000+16 0x2000+16 "+want {
			t.Errorf("last %t: read %s, want %s", last, got, want)
		}
	}
}

// TestAreaBefore: what lies in front of an area is copied too, unless it cannot be.
func TestAreaBefore(t *testing.T) {
	for before, want := range map[uint64]string{0: "0x1000+16 0x2000+16 0x3010+16", 16: "0x1000+16 0x2000+16 0x3000+32", 32: "0x1000+16 0x2000+16 0x2ff0+48 0x3010+16"} {
		h := &heap{areas: map[uint64][]byte{0x1000: words(77, 0x2000), 0x2000: words(0x3010, 0x3020), 0x3000: words(1, 2, 3, 4)}}
		r := &Recipe{RootBytes: 16, Room: 4096}
		r.Roots[0] = Root{Addr: 0x1000, Is: 77}
		r.Steps[0] = Step{Bytes: 16, Head: 8, Most: 1, Areas: [2]Area{{To: 8, Before: before}}}
		b := &Buffer{Beyond: Copy{Room: make([]byte, 4096)}}
		Follow(h, 1, r, b, -1)
		if got := strings.Join(h.asked, " "); got != want {
			t.Errorf("before %d: read %s, want %s", before, got, want)
		}
	}
}

// TestLeaves: of an area of elements those are copied that there are, and what the last ones lead to, by their tags.
func TestLeaves(t *testing.T) {
	for last, want := range map[int32]string{
		1:       "0x1000+16 0x2000+24 0x3000+32 0x5100+8 0x5000+8 0x7000+8",
		0:       "0x1000+16 0x2000+24 0x3000+16 0x5000+8",
		-1:      "0x1000+16 0x2000+24",
		-2:      "0x1000+16 0x2000+24",
		1 << 30: "0x1000+16 0x2000+24", // more than there is room for
	} {
		h := &heap{areas: map[uint64][]byte{
			0x1000: words(77, 0x2000),
			0x2000: slices.Concat(words(0x3000), first(binary.NativeEndian.AppendUint32(nil, uint32(last))...), words(0)),
			0x3000: slices.Concat(first(1|0xf0), words(0x5000), first(2), words(0x5100)),
			0x5000: words(1), 0x5100: words(0x7000), 0x7000: words(9),
		}}
		r := &Recipe{RootBytes: 16, Room: 4096}
		r.Roots[0] = Root{Addr: 0x1000, Is: 77}
		r.Steps[0] = Step{Bytes: 24, Head: 8, Most: 1, Areas: [2]Area{{Index: 8, Each: 16, To: 8, Leaves: [2]Leaf{
			{Link: Link{At: 8, Bytes: 8}, Tags: 1<<1 | 1<<2}, {Link: Link{At: 8, Bytes: 8}, Tags: 1 << 2, Then: Link{Bytes: 8}}}}}}
		b := &Buffer{Beyond: Copy{Room: make([]byte, 1<<12)}}
		Follow(h, 1, r, b, -1)
		if got := strings.Join(h.asked, " "); got != want {
			t.Errorf("last %d: read %s, want %s", last, got, want)
		}
	}
}

// TestScan: objects of frames on the stack, and what they lead to, are copied; words that only look like frames are not followed.
func TestScan(t *testing.T) {
	const stack, object, next = 0x10000, 0x20000, 0x30000
	b := &Buffer{Stack: Copy{Room: make([]byte, 512), N: 512}, StackAddr: stack, Beyond: Copy{Room: make([]byte, 1<<12)}}
	frame := func(at int, up, function, context uint64) {
		binary.NativeEndian.PutUint64(b.Stack.Room[at:], up)
		binary.NativeEndian.PutUint64(b.Stack.Room[at-16:], function)
		binary.NativeEndian.PutUint64(b.Stack.Room[at-8:], context)
	}
	frame(104, stack+200, object+1, 0x40001)
	frame(200, stack+100, object+0x101, 0x40001) // leads back
	frame(264, stack+400, object+0x201, 0x40000) // no context
	frame(400, stack+500, object+0x302, 0x40001) // no object
	k := &machine{t: t, low: object, high: next + 0x100}
	r := &Recipe{Room: 1 << 12, Scan: Scan{Function: -16, Context: -8, Also: -32, Bytes: 32, AlsoBytes: 8, Chain: [2]Link{{At: 8, Bytes: 16}}}}
	Follow(k, 7, r, b, -1)
	if len(k.asked) != 1 || k.asked[0] != [2]uint64{object, 32} || b.NBlocks != 1 || b.Blocks[0].Addr != object || b.Blocks[0].Len != 32 {
		t.Errorf("%#x is read, %+v copied", k.asked, b.Blocks[:b.NBlocks])
	}
	k.asked, b.NBlocks, b.Beyond.N = nil, 0, 0
	if Follow(k, 7, &Recipe{Room: 1 << 12}, b, -1); len(k.asked) != 0 {
		t.Errorf("without a scan %#x is read", k.asked)
	}
	// As many frames as are looked at, and one more.
	const most = 64
	b.Stack = Copy{Room: make([]byte, 64+24*most+64)}
	b.Stack.N = len(b.Stack.Room)
	for i := range uint64(most + 1) {
		frame(int(64+24*i), stack+64+24*i+8, object+1+i/most*0x40, 0x40001)
	}
	r.Scan.Also = 0
	if Follow(k, 7, r, b, -1); len(k.asked) != 1 || k.asked[0] != [2]uint64{object, 32} {
		t.Errorf("of %d frames %#x is read", most+1, k.asked)
	}
}
