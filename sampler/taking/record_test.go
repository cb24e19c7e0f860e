package taking

import (
	"encoding/binary"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/regs"
	"sfsample/sampler/capture"
)

// TestSame: two lead to a stack by the same words if all of these are the same; how much is copied, and where it is of use, tells nothing.
func TestSame(t *testing.T) {
	o := Other{Word: 1, Reg: 2, At: 3, Way: Way{4, 5, 6}}
	for name, tt := range map[string]struct {
		set  func(p *Other)
		want bool
	}{
		"itself":        {func(p *Other) {}, true},
		"another size":  {func(p *Other) { p.Bytes, p.Kept, p.Homes, p.Stack = 7, true, [2]Range{{1, 2}}, Extent{Low: 1} }, true},
		"another word":  {func(p *Other) { p.Word++ }, false},
		"a register":    {func(p *Other) { p.Reg++ }, false},
		"another place": {func(p *Other) { p.At++ }, false},
		"another way":   {func(p *Other) { p.Way.G++ }, false},
		"only the word": {func(p *Other) { *p = Other{Word: 1} }, false},
		"all but it":    {func(p *Other) { p.Word = 9 }, false},
	} {
		p := o
		if tt.set(&p); o.Same(&p) != tt.want || p.Same(&o) != tt.want {
			t.Errorf("%s: same %t, want %t", name, !tt.want, tt.want)
		}
	}
}

// TestRange: the first address is in it, the end is not.
func TestRange(t *testing.T) {
	r := &Range{10, 12}
	for addr, want := range map[uint64]bool{9: false, 10: true, 11: true, 12: false} {
		if r.holds(addr) != want {
			t.Errorf("%d is in it: %t", addr, !want)
		}
	}
}

// TestRoom: a buffer has the room of the capture that it is for, all of it, and always some for floating-point registers.
func TestRoom(t *testing.T) {
	for have, want := range map[int]int{0: 136, 135: 136, 136: 136, 200: 200} { // bytes of s390_fp_regs
		c := &capture.Capture{Regs: capture.Registers{Note: make([]byte, 1, 300), FP: make([]byte, 0, have)}, Stack: capture.Stack{Bytes: make([]byte, 2, 500)},
			Beyond: capture.Copies{Bytes: make([]byte, 3, 700)}}
		b := new(Buffer)
		if b.Use(c); len(b.Regs.Room) != 300 || len(b.FPRegs.Room) != want || len(b.Stack.Room) != 500 || len(b.Beyond.Room) != 700 {
			t.Errorf("room for %d, %d, %d and %d bytes", len(b.Regs.Room), len(b.FPRegs.Room), len(b.Stack.Room), len(b.Beyond.Room))
		}
		if have == want && &b.FPRegs.Room[0] != &c.Regs.FP[:1][0] {
			t.Error("there was room for floating-point registers, and other room is taken")
		}
	}
}

// TestSpan: how far pages are there, or are not, by a pagemap that cannot be read from some place on: what it does not tell is taken for there.
func TestSpan(t *testing.T) {
	const page = 4096
	before := pageBytes
	defer func() { pageBytes = before }()
	pageBytes = page
	all, none := func(uint64) bool { return true }, func(uint64) bool { return false }
	for _, tt := range []struct {
		name    string
		present func(uint64) bool
		fails   int // read
		there   bool
		want    int
	}{
		{"all are there", all, 0, true, 3*page - 8},
		{"none is", none, 0, true, 0},
		{"all are there, and none is missing", all, 0, false, 0},
		{"none is, and all are missing", none, 0, false, 3*page - 8},
		{"nothing is told", nil, 0, true, 3*page - 8},
		{"nothing is told, so none is missing", nil, 0, false, 0},
		{"two are told, which are there", all, 2, true, 3*page - 8},
		{"two are told, which are missing", none, 2, false, 2*page - 8},
	} {
		k := &machine{t: t, present: tt.present, fails: tt.fails, most: 16}
		if got := span(k, 0, 100*page+8, 3*page-8, tt.there, new(Buffer)); got != tt.want {
			t.Errorf("%s: %d bytes, want %d", tt.name, got, tt.want)
		}
	}
	if got := span(&machine{t: t}, -1, 100*page+8, page, false, new(Buffer)); got != 0 {
		t.Errorf("without a pagemap %d bytes are missing", got)
	}
}

// TestRecorded: a record tells of a stack if its stack pointer lies in that, and the thread is on another.
func TestRecorded(t *testing.T) {
	const record, now = 0x8000, 0x5000
	of := func(low, end uint64, at int, sp uint64) string {
		b := make([]byte, 64)
		binary.NativeEndian.PutUint64(b, low)
		binary.NativeEndian.PutUint64(b[8:], end)
		binary.NativeEndian.PutUint64(b[at:], sp)
		return string(b)
	}
	for _, tt := range []struct {
		name    string
		memory  string
		at      int
		sp, end uint64
	}{
		{"in the middle", of(0x9000, 0xa000, 16, 0x9800), 16, 0x9800, 0xa000},
		{"at the last place of a record", of(0x9000, 0xa000, 56, 0x9800), 56, 0x9800, 0xa000},
		{"at its first place", of(0x9000, 0xa000, 16, 0x9800), 0, 0x9000, 0xa000},
		{"behind it", of(0x6000, 1<<62, 56, 0x980000), 57, 0, 0}, // where seven bytes of a record are one of its stack
		{"before it", of(0x9000, 0xa000, 56, 0x9800), -1, 0, 0},
		{"at its begin", of(0x9000, 0xa000, 16, 0x9000), 16, 0x9000, 0xa000},
		{"below", of(0x9000, 0xa000, 16, 0x8fff), 16, 0, 0},
		{"at its end", of(0x9000, 0xa000, 16, 0xa000), 16, 0, 0},
		{"just in it", of(0x9000, 0xa000, 16, 0x9fff), 16, 0x9fff, 0xa000},
		{"the thread is on it", of(0x4000, 0x6000, 16, 0x5800), 16, 0, 0},
		{"at its begin", of(now, 0x6000, 16, 0x5800), 16, 0, 0},
		{"it is right above", of(now+1, 0x6000, 16, 0x5800), 16, 0x5800, 0x6000},
		{"it is right below", of(0x4000, now, 16, 0x4800), 16, 0x4800, now},
		{"a record of less than 64 bytes", of(0x9000, 0xa000, 16, 0x9800)[:63], 16, 0, 0},
		{"of more", of(0x9000, 0xa000, 16, 0x9800) + "more", 16, 0x9800, 0xa000},
	} {
		for name, via := range map[string]bool{"": false, "by way of a word: ": true} {
			o := &Other{Word: record, At: tt.at, Via: via, Bytes: 1}
			k := &machine{t: t, words: map[uint64]string{record: tt.memory}}
			if via {
				o.Word = 0x7000
				k.words[o.Word] = string(words(record))
			}
			b := &Buffer{Regs: Copy{Room: note(now), N: len(note(now))}}
			if sp, end := recorded(k, 7, o, b, -1); sp != tt.sp || end != tt.end {
				t.Errorf("%s%s: %#x to %#x, want %#x to %#x", name, tt.name, sp, end, tt.sp, tt.end)
			}
			k.present = func(page uint64) bool { return page != o.Word/pageBytes }
			if sp, end := recorded(k, 7, o, b, 0); sp != 0 || end != 0 {
				t.Errorf("%s%s: %#x, where its page is not in memory", name, tt.name, sp)
			}
		}
	}
}

// TestWay: a record is found by way of the thread pointer and two words, wherever they lie.
func TestWay(t *testing.T) {
	record := slices.Concat(words(0x9000, 0xa000, 0x9800), make([]byte, 40))
	for _, way := range []Way{{1, 8, 16}, {-1, -8, -16}, {8, 0, 1}} {
		last := len(note(0x5000)) - 8
		for _, at := range []int{0, last} {
			b := &Buffer{Regs: Copy{Room: note(0x5000), N: last + 8}}
			binary.NativeEndian.PutUint64(b.Regs.Room[at:], 0x1000)
			k := &machine{t: t, words: map[uint64]string{
				0x1000 + uint64(way.TLS): string(words(0x2000)), 0x2000 + uint64(way.M): string(words(0x3000)), 0x3000 + uint64(way.G): string(words(0x4000)),
				0x4000: string(record),
			}}
			o := &Other{Reg: at, At: 16, Way: way, Bytes: 1}
			if sp, end := recorded(k, 7, o, b, -1); sp != 0x9800 || end != 0xa000 {
				t.Errorf("way %v, register at %d: %#x to %#x", way, at, sp, end)
			}
			for _, o.Reg = range []int{last + 1, -1} {
				if sp, end := recorded(k, 7, o, b, -1); sp != 0 || end != 0 {
					t.Errorf("register at %d: %#x", o.Reg, sp)
				}
			}
		}
	}
}

// asks is a machine that notes which registers are asked for. Each that is not general has bytes of which the number is its place.
type asks struct {
	machine
	notes []int
	bytes int
}

func (k *asks) Regs(tid, note int, b []byte) (int, unix.Errno) {
	k.notes = append(k.notes, note)
	if note == ptrace.NotePrstatus {
		return k.machine.Regs(tid, note, b)
	}
	b = b[:min(len(b), k.bytes)]
	for i := range b {
		b[i] = byte(i)
	}
	return len(b), 0
}

// TestTakeAll: all that is copied of a thread comes with it, from what was asked for once; what a recipe copies as well.
func TestTakeAll(t *testing.T) {
	k := &asks{machine: machine{t: t, note: note(0x5000), low: 0x4000, high: 0x6000, words: map[uint64]string{0x4800: string(words(77))}}, bytes: 16}
	r := &Recipe{RootBytes: 8, Room: 64}
	r.Roots[0] = Root{Addr: 0x4800, Is: 77}
	marks := &Marks{N: 1}
	marks.Areas[0] = unix.RemoteIovec{Base: 0x4100, Len: 4}
	advice := &Advice{Recipe: r, Marks: marks}
	room := func() *capture.Capture {
		return &capture.Capture{Stack: capture.Stack{Bytes: make([]byte, 0, 64)}, Beyond: capture.Copies{Bytes: make([]byte, 0, 64)}}
	}
	c := room()
	c.Regs.Note = make([]byte, 0, regs.PrstatusMaxBytes)
	b := new(Buffer)
	b.Use(c)
	if errno := Take(k, 7, advice, b, -1, OwnStop, false); errno != 0 {
		t.Fatal(errno)
	}
	want, fp, mask := []int{ptrace.NotePrstatus}, 0, uint64(0)
	switch runtime.GOARCH {
	case "arm64": // the mask of code is the second one (user_pac_mask, arch/arm64/include/uapi/asm/ptrace.h)
		want, mask = append(want, ptrace.NoteARMPACMask), 0x0f0e0d0c0b0a0908
	case "s390x":
		want, fp = append(want, ptrace.NotePrfpreg), 16
	}
	if b.Fill(c); !slices.Equal(k.notes, want) || len(c.Regs.FP) != fp || c.Regs.PACMask != mask {
		t.Errorf("registers %#x are asked for, want %#x; %d bytes, mask %#x", k.notes, want, len(c.Regs.FP), c.Regs.PACMask)
	}
	if !slices.Equal(c.Regs.Note, k.note) || len(c.Stack.Bytes) != 64 || !slices.Equal(c.Roots, []uint64{0x4800}) || !slices.Equal(c.Beyond.Bytes, words(77)) {
		t.Errorf("%d bytes of registers, %d of stack, roots %#x, beyond %x", len(c.Regs.Note), len(c.Stack.Bytes), c.Roots, c.Beyond.Bytes)
	}
	if text, asked := c.Marks.At(0x4100); !asked || len(text) != 4 {
		t.Errorf("mark %x", text)
	}
	// A blocked thread's, without registers.
	peeked := room()
	Peek(k, 7, 0x5000, advice, peeked, -1, b)
	if len(k.notes) != len(want) || peeked.Stack.Addr != c.Stack.Addr || !slices.Equal(peeked.Stack.Bytes, c.Stack.Bytes) || !slices.Equal(peeked.Beyond.Bytes, c.Beyond.Bytes) ||
		!slices.Equal(peeked.Beyond.Blocks, c.Beyond.Blocks) || !slices.Equal(peeked.Roots, c.Roots) || len(peeked.Marks.Blocks) != 1 {
		t.Errorf("a peek gives %+v, want %+v", peeked, c)
	}
	if b.Stack.Room != nil || b.Beyond.Room != nil || b.Stack.N+b.Beyond.N != 0 {
		t.Error("the room of a peek's capture is still in use")
	}
}

// TestOthersOnce: a stack of which less is there than is wanted is copied once, and a record that tells nothing is read once.
func TestOthersOnce(t *testing.T) {
	k := &machine{t: t, note: note(0x5f00), low: 0x4000, high: 0x6000}
	a := new(Advice)
	a.Others[0], a.Others[1], a.Others[2] = Other{Word: 0x3000, At: 16, Bytes: 4096}, Other{Reg: 0, Bytes: 4096}, Other{Reg: 8, Bytes: 8192}
	b := &Buffer{Regs: Copy{Room: make([]byte, regs.PrstatusMaxBytes)}, FPRegs: Copy{Room: make([]byte, FPRegsBytes)}, Beyond: Copy{Room: make([]byte, 4096)}}
	Take(k, 7, a, b, -1, OwnStop, false)
	records := 0
	for _, q := range k.asked {
		if q[0] == 0x3000 {
			records++
		}
	}
	if records != 1 || b.NBlocks != 2 || b.Beyond.N != 2*(0x100+RedZone) {
		t.Errorf("the record is read %d times; %d blocks of %d bytes", records, b.NBlocks, b.Beyond.N)
	}
	b.Beyond.Room, k.asked = b.Beyond.Room[:b.Beyond.N], nil
	if takeOther(k, 7, &a.Others[0], b, -1) || len(k.asked) != 0 {
		t.Errorf("%#x is read without room for what it leads to", k.asked)
	}
}

// TestMarksFit: marks that just fit are read, and one byte more is not.
func TestMarksFit(t *testing.T) {
	for more, want := range map[int]int{0: 2, 1: 1} {
		marks := &Marks{N: 2}
		marks.Areas[0] = unix.RemoteIovec{Base: 0x4000, Len: 1000}
		marks.Areas[1] = unix.RemoteIovec{Base: 0x6000, Len: MarkBytes - 1000 + more}
		b, read := new(Buffer), 0
		mark(&machine{t: t, low: 0x4000, high: 0x100000}, 7, marks, b, -1)
		for _, a := range b.marks.areas[:b.marks.n] {
			if a.Len > 0 {
				read++
			}
		}
		if read != want || b.marks.n != 2 {
			t.Errorf("%d marks of %d bytes more than fit: %d are read", b.marks.n, more, read)
		}
	}
}

// TestCopyToMarker: a page that is not there ends a copy, even of a stack whose pages may be known, unless it was never written.
func TestCopyToMarker(t *testing.T) {
	const low = 0x100000
	k := &machine{t: t, low: low, high: low + 4*pageBytes, present: func(page uint64) bool { return page == low/pageBytes }, marked: true}
	x := &Extent{Low: low, High: low + 4*pageBytes, Zeros: true}
	room := make([]byte, 2*pageBytes)
	if addr, n := copyStack(k, 7, low+0x200, room, x, 0, new(Buffer)); addr != low+0x200-RedZone || n != int(pageBytes)-0x200+RedZone {
		t.Errorf("%d bytes at %#x", n, addr)
	}
}
