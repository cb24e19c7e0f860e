package taking

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/regs"
	"sfsample/sampler/capture"
)

// machine is a kernel with one stopped thread, number 7. What it does not have is not to be called.
type machine struct {
	Kernel
	t       *testing.T
	note    []byte     // registers
	errno   unix.Errno // of reading them
	refuses bool       // to write them
	written [][]byte
	status  string // status file; empty: cannot be read
	now     int64
	low     uint64 // memory from low to high is there
	high    uint64
	words   map[uint64]string // of memory, in place of what Memory has there
	asked   [][2]uint64       // addresses and lengths of memory that was read
	present func(uint64) bool // pages by number; nil: no pagemap can be read
	marked  bool              // those that are not have a marker
	most    int               // entries that one read gives, 0: all
	preads  int
	fails   int // from this read of the pagemap on it cannot be read, 0: it can
	files   int // reads of the status file
}

func noPagemap() (int, func()) { return -1, func() {} }

func (k *machine) thread(tid int) {
	if tid != 7 {
		k.t.Errorf("thread %d is asked for, want 7", tid)
	}
}

func (k *machine) Regs(tid, note int, b []byte) (int, unix.Errno) {
	k.thread(tid)
	if note != ptrace.NotePrstatus { // others: see takeExtra
		return 0, unix.EINVAL
	}
	return copy(b, k.note), k.errno
}

func (k *machine) SetRegs(tid, note int, b []byte) unix.Errno {
	k.thread(tid)
	if note != ptrace.NotePrstatus {
		k.t.Errorf("registers %#x are written", note)
	}
	k.written = append(k.written, slices.Clone(b))
	if k.refuses {
		return unix.EIO
	}
	return 0
}

func (k *machine) ReadFile(path, buf []byte) (int, unix.Errno) {
	k.files++
	text := k.status
	switch string(path) {
	case "/proc/7/status\x00":
	default:
		k.t.Errorf("file %q is read", path)
	}
	if text == "" {
		return 0, unix.ENOENT
	}
	return copy(buf, text), 0
}

func (k *machine) Now() int64 { return k.now }

// Memory has the low byte of each address there.
func (k *machine) Memory(tid int, addr uint64, b []byte) int {
	k.thread(tid)
	if text, ok := k.words[addr]; ok {
		return copy(b, text)
	}
	k.asked = append(k.asked, [2]uint64{addr, uint64(len(b))})
	if addr < k.low || addr >= k.high {
		return 0
	}
	n := int(min(uint64(len(b)), k.high-addr))
	for i := range n {
		b[i] = byte(addr) + byte(i)
	}
	return n
}

// Gather has each area as Memory has it.
func (k *machine) Gather(tid int, from []unix.RemoteIovec, b []byte) (n int) {
	if len(from) == 0 {
		k.t.Error("nothing at all is gathered")
	}
	for _, f := range from {
		got := k.Memory(tid, uint64(f.Base), b[n:n+f.Len])
		if n += got; got < f.Len {
			break
		}
	}
	return n
}

func (k *machine) Pread(fd int, b []byte, off int64) (int, unix.Errno) {
	if fd != 0 || off%8 != 0 || len(b)%8 != 0 {
		k.t.Errorf("%d bytes of file %d are read at %d", len(b), fd, off)
	}
	k.preads++
	if k.present == nil || k.fails > 0 && k.preads >= k.fails {
		return 8, unix.EIO
	}
	if k.most > 0 {
		b = b[:min(len(b), k.most)]
	}
	for i := 0; i+8 <= len(b); i += 8 {
		page := uint64(off+int64(i)) / 8
		entry := uint64(1<<62 - 1) // all but present and swapped is set (Documentation/admin-guide/mm/pagemap.rst)
		if k.marked {
			entry = 1<<62 | 1<<57
		}
		if k.present(page) {
			entry = 1 << (62 + page%2) // swapped or present
		}
		binary.NativeEndian.PutUint64(b[i:], entry)
	}
	return len(b), 0
}

func TestExtent(t *testing.T) {
	x := &Extent{Low: 100, High: 200, Top: 150}
	for _, tt := range []struct {
		x      *Extent
		base   uint64
		room   int
		n      int
		inside bool
	}{
		{x, 99, 1000, 0, false},
		{x, 100, 1000, 50, true},
		{x, 149, 1000, 1, true},
		{x, 150, 1000, 50, true}, // beyond the outermost frame
		{x, 199, 1000, 1, true},
		{x, 200, 1000, 0, false},
		{x, 100, 49, 49, true},
		{x, 150, 49, 49, true},
		{new(Extent), 0, 1000, 0, false},
		{&Extent{Low: 100, High: 200}, 100, 1000, 100, true},
	} {
		if n, ok := tt.x.Bytes(tt.base, tt.room); n != tt.n || ok != tt.inside {
			t.Errorf("%+v from %d, room %d: %d, %t; want %d, %t", *tt.x, tt.base, tt.room, n, ok, tt.n, tt.inside)
		}
	}
}

// TestCopyStack: from the red zone on, or from the stack pointer where that cannot be read.
func TestCopyStack(t *testing.T) {
	const page = 4096
	before := pageBytes
	defer func() { pageBytes = before }()
	pageBytes = page
	const low, high = 16 * page, 20 * page
	mapping := Extent{Low: low, High: high}
	zeros := Extent{Low: low, High: high, Zeros: true}
	grows := Extent{Low: low, High: high, Below: low - 0x3000}
	for _, tt := range []struct {
		name  string
		sp    uint64
		x     Extent
		pages int
		there func(uint64) bool
		want  uint64
		n     int
		asked string
		looks int // at the pagemap
	}{
		{"nothing known", low + 0x205, Extent{}, -1, nil, low + 0x180, 0x1000, "[[65920 4096]]", 0},
		{"to the end of the mapping", high - 0x205, mapping, -1, nil, high - 0x288, 0x288, "[[81272 648]]", 0},
		{"red zone in a guard page", low + 0x10, mapping, -1, nil, low + 0x10, 0x1000, "[[65424 4096] [65552 4096]]", 0},
		{"no memory", high + 0x1000, mapping, -1, nil, high + 0x1000, 0, "[[85888 4096] [86016 4096]]", 0},
		{"all in memory", low + 0x200, mapping, 0, func(uint64) bool { return true }, low + 0x180, 0x1000, "[[65920 4096]]", 1},
		{"a page is not", low + 0x200, mapping, 0, func(p uint64) bool { return p == 16 }, low + 0x180, page - 0x180, "[[65920 3712]]", 1},
		{"one that was never written", low + 0x200, zeros, 0, func(p uint64) bool { return p == 16 }, low + 0x180, 0x1000, "[[65920 3712]]", 2},
		{"one that was never written, and the one before is there", low + 0x200, zeros, 0, func(p uint64) bool { return p == 15 || p == 16 }, low + 0x180, 0x1000, "[[65920 3712]]", 2},
		{"the first was never written", low + 0x200, zeros, 0, func(p uint64) bool { return p == 17 }, low + 0x180, 0x1000, "[[65920 0] [69632 384]]", 3},
		{"never written, without a pagemap", low + 0x200, zeros, -1, nil, low + 0x180, 0x1000, "[[65920 4096]]", 0},
		{"outside of what is known", high - 0x80, Extent{Low: low, High: low + page, Zeros: true}, 0, func(p uint64) bool { return p == 19 }, high - 0x100, 0x100, "[[81664 256]]", 1},
		{"red zone not in memory", low + page + 0x10, mapping, 0, func(p uint64) bool { return p >= 17 }, low + page + 0x10, 0x1000, "[[69520 0] [69648 4096]]", 2},
		{"below what is mapped of it so far", low - 0x2000, grows, -1, nil, low, 0x1000, "[[57216 4096] [57344 4096] [65536 4096]]", 0},
		{"the same, with a page that is not in memory", low - 0x2000, grows, 0, func(p uint64) bool { return p == 16 }, low, 0x1000, "[[57216 0] [57344 0] [65536 4096]]", 3},
		{"too far below", low - 0x3008, grows, -1, nil, low - 0x3008, 0, "[[53112 4096] [53240 4096]]", 0},
		{"it has grown since", low + 0x200, Extent{Low: low + page, High: high, Below: low}, -1, nil, low + 0x180, 0x1000, "[[65920 4096]]", 0},
		{"pagemap unreadable", low + 0x200, mapping, 0, nil, low + 0x180, 0x1000, "[[65920 4096]]", 1},
	} {
		k := &machine{t: t, low: low, high: high, present: tt.there}
		room := bytes.Repeat([]byte{0xee}, 0x1000) // of an earlier copy
		addr, n := copyStack(k, 7, tt.sp, room, &tt.x, tt.pages, new(Buffer))
		if addr != tt.want || n != tt.n || k.preads != tt.looks || fmt.Sprint(k.asked) != tt.asked {
			t.Errorf("%s: %#x bytes at %#x by %v, %d looks at the pagemap; want %#x at %#x", tt.name, n, addr, k.asked, k.preads, tt.n, tt.want)
		}
		for i, b := range room[:n] {
			here := addr + uint64(i)
			want := byte(addr) + byte(i)
			if tt.there != nil && !tt.there(here/page) {
				want = 0
			}
			if b != want {
				t.Fatalf("%s: %#x is copied as %d, want %d", tt.name, here, b, want)
			}
		}
		c := &capture.Capture{Stack: capture.Stack{Bytes: make([]byte, 3, 0x1000)}}
		Peek(k, 7, tt.sp, &Advice{Stack: tt.x}, c, tt.pages, new(Buffer))
		if c.Stack.Addr != tt.want || len(c.Stack.Bytes) != tt.n || string(c.Stack.Bytes) != string(room[:n]) {
			t.Errorf("%s: a peek gives %#x bytes at %#x", tt.name, len(c.Stack.Bytes), c.Stack.Addr)
		}
	}
}

// TestStackBytes: a stack is copied to its end where a register tells that, and as much as is wanted elsewhere.
func TestStackBytes(t *testing.T) {
	const sp, want, room = 0x50_0000, 400, 1000
	to := func(low, high uint64) string {
		return string(binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, low), high))
	}
	home := Advice{Want: want, Bounds: 8}
	home.Others[1] = Other{Bytes: 1, Homes: [2]Range{{1, 2}, {sp - 8, sp + 8}}}
	elsewhere := home
	home.Others[0].Bytes = 1
	last := Advice{Want: want, Bounds: 8}
	for i := range last.Others {
		last.Others[i].Bytes = 1
	}
	away := last
	last.Others[MaxOthers-1].Homes[0] = Range{sp, sp + 1}
	away.Others[MaxOthers-1].Homes[1] = Range{sp + 1, sp + 2}
	for _, tt := range []struct {
		name   string
		a      Advice
		bounds string
		n      int
	}{
		{"nothing is known", Advice{Bounds: 8}, to(sp-8, sp+100), room},
		{"no register", Advice{Want: want}, to(sp-8, sp+100), room},
		{"a short stack", Advice{Want: want, Bounds: 8}, to(sp-8, sp+100), 100 + RedZone},
		{"a deep one", Advice{Want: want, Bounds: 8}, to(sp, sp+800), 800 + RedZone},
		{"deeper than there is room for", Advice{Want: want, Bounds: 8}, to(sp, sp+900), room},
		{"without an end", Advice{Want: want, Bounds: 8}, to(sp, ^uint64(0)), room},
		{"another one, below", Advice{Want: want, Bounds: 8}, to(sp-8, sp), want},
		{"another one, above", Advice{Want: want, Bounds: 8}, to(sp+1, sp+100), want},
		{"one word", Advice{Want: want, Bounds: 8}, to(sp, sp+800)[:15], want},
		{"no memory", Advice{Want: want, Bounds: 8}, "", want},
		{"the last register", Advice{Want: want, Bounds: len(note(sp)) - 8}, to(sp, sp+800), 800 + RedZone},
		{"behind the registers", Advice{Want: want, Bounds: len(note(sp)) - 7}, to(sp, sp+800), want},
		{"of which one byte was wanted", Advice{Want: 1, Bounds: 8}, to(sp-8, sp+100), 100 + RedZone},
		{"between the registers", Advice{Want: want, Bounds: 1}, to(sp-8, sp+100), 100 + RedZone},
		{"at home", home, to(sp, sp+800), want},
		{"at home by the last of the advice", last, to(sp, sp+800), want},
		{"not at home", away, to(sp, sp+800), 800 + RedZone},
		{"what is no advice has no home", elsewhere, to(sp, sp+800), 800 + RedZone},
	} {
		b := &Buffer{Regs: Copy{Room: note(sp), N: len(note(sp))}, Stack: Copy{Room: make([]byte, room)}}
		k := &machine{t: t, words: map[uint64]string{sp: tt.bounds, binary.NativeEndian.Uint64(note(sp)[1:]): tt.bounds}}
		if n := stackBytes(k, 7, sp, &tt.a, b, -1); n != tt.n {
			t.Errorf("%s: %d bytes, want %d", tt.name, n, tt.n)
		}
	}
	for _, tt := range []struct{ want, bounds, room int }{{0, 8, 0}, {want, 0, want}, {want, 8, 32 << 10}, {1, 8, 32 << 10}, {want, 1, 32 << 10}, {32<<10 + 1, 8, 32<<10 + 1}} {
		if a := (Advice{Want: tt.want, Bounds: tt.bounds}); a.Room() != tt.room {
			t.Errorf("%d bytes wanted, bounds at %d: room for %d, want %d", tt.want, tt.bounds, a.Room(), tt.room)
		}
	}
}

// TestPresent: holes in a range of pages that one read of the pagemap does not cover.
func TestPresent(t *testing.T) {
	const page = 4096
	before := pageBytes
	defer func() { pageBytes = before }()
	pageBytes = page
	for _, tt := range []struct {
		hole   uint64 // page that is not there
		addr   uint64
		n      int
		most   int // bytes that one read gives
		want   int
		preads int
	}{
		{1000, 100 * page, 200 * page, 0, 200 * page, 4}, // 64 entries a read
		{230, 100 * page, 200 * page, 0, 130 * page, 3},
		{164, 100 * page, 200 * page, 0, 64 * page, 2},
		{163, 100 * page, 200 * page, 0, 63 * page, 1},
		{100, 100*page + 8, 200 * page, 0, 0, 1},
		{101, 100*page + 8, 200 * page, 0, page - 8, 1},
		{101, 100*page + 8, page - 8, 0, page - 8, 1}, // behind the range
		{101, 100*page + 8, page - 7, 0, page - 8, 1},
		{101, 100 * page, 0, 0, 0, 0},
		{101, 100 * page, page - 1, 0, page - 1, 1},
		{101, 100 * page, page, 0, page, 1},
		{103, 100 * page, 10 * page, 16, 3 * page, 2},
		{1000, 100 * page, 10 * page, 16, 10 * page, 5},
		{1000, 100 * page, 10 * page, 23, 10 * page, 5}, // the rest of an entry counts for nothing
		{101, 100 * page, 10 * page, 7, 10 * page, 1},   // less than an entry
		{101, 100 * page, 10 * page, 8, page, 2},
	} {
		k := &machine{t: t, present: func(p uint64) bool { return p != tt.hole }, most: tt.most}
		if got := Present(k, 0, tt.addr, tt.n, new(Buffer)); got != tt.want || k.preads != tt.preads {
			t.Errorf("hole at %d, %d bytes from %#x: %d by %d reads, want %d by %d", tt.hole, tt.n, tt.addr, got, k.preads, tt.want, tt.preads)
		}
	}
	k := &machine{t: t, present: func(p uint64) bool { return p != 101 }, marked: true}
	if got := Present(k, 0, 100*page, 3*page, new(Buffer)); got != page {
		t.Errorf("%d bytes are there before a marker, want %d", got, page)
	}
	if got := span(k, 0, 101*page, page, false, new(Buffer)); got != 0 {
		t.Errorf("%d bytes of a marker were never written", got)
	}
	if got := Present(&machine{t: t}, -1, 5, 77, new(Buffer)); got != 77 {
		t.Errorf("without a pagemap %d bytes of 77", got)
	}
}

func TestProcPath(t *testing.T) {
	b := new(Buffer)
	for _, tid := range []int{4194304, 1, 9, 10, 99, 100, 101, 1234567, 2147483647} {
		if got, want := string(b.ProcPath(tid, "/status\x00")), fmt.Sprintf("/proc/%d/status\x00", tid); got != want {
			t.Errorf("path %q, want %q", got, want)
		}
	}
}

func TestField(t *testing.T) {
	const key = "\nThreads:\t"
	for _, tt := range []struct {
		text string
		v    int64
		ok   bool
	}{
		{"Name:\tx\nThreads:\t12\nSeccomp:\t0\n", 12, true},
		{"\nThreads:\t0", 0, true},
		{"\nThreads:\t9", 9, true},
		{"\nThreads:\t10:", 10, true},
		{"\nThreads:\t10/", 10, true},
		{"\nThreads:\t\n", 0, false},
		{"\nThreads:\tx5", 0, false},
		{"\nThreads:\t", 0, false},
		{"Threads:\t5\n", 0, false},
		{"\n\nThreads:\t5", 5, true},
		{"\nThread", 0, false},
		{"", 0, false},
	} {
		if v, ok := field([]byte(tt.text), key); v != tt.v || ok != tt.ok {
			t.Errorf("%q: %d, %t; want %d, %t", tt.text, v, ok, tt.v, tt.ok)
		}
	}
}

// TestFilters: what a status file tells of seccomp filters, and what is assumed where it does not.
func TestFilters(t *testing.T) {
	for _, tt := range []struct {
		status       string
		some, coming bool
	}{
		{"Name:\tx\nThreads:\t1\nSeccomp:\t0\n", false, false},
		{"Name:\tx\nThreads:\t2\nSeccomp:\t0\n", false, true},
		{"Name:\tx\nThreads:\t1\nSeccomp:\t1\n", true, false},
		{"Name:\tx\nThreads:\t1\nSeccomp:\t2\n", true, false},
		{"Name:\tx\nThreads:\t9\nSeccomp:\t2\n", true, true},
		{"Name:\tx\nThreads:\t1\n", false, false}, // a kernel without seccomp
		{"Name:\tx\nSeccomp:\t0\n", false, true},
		{"", true, true},
	} {
		if some, coming := filters([]byte(tt.status)); some != tt.some || coming != tt.coming {
			t.Errorf("%q: a filter %t, one may come %t", tt.status, some, coming)
		}
	}
}

// note is a register note of which every word is v.
func note(v uint64) []byte {
	note := make([]byte, regs.PrstatusMaxBytes)
	for i := 0; i+8 <= len(note); i += 8 {
		binary.NativeEndian.PutUint64(note[i:], v)
	}
	for len(note) > 0 && ptrace.StackPointer(note) == 0 { // it has another size here
		note = note[:len(note)-8]
	}
	return note
}

// TestTakeFails: nothing is left of what was taken before, and nothing is read of a thread that has no
// registers.
func TestTakeFails(t *testing.T) {
	dirty := func() *Buffer {
		b := &Buffer{Regs: Copy{Room: make([]byte, regs.PrstatusMaxBytes)}, FPRegs: Copy{Room: make([]byte, FPRegsBytes)}, Stack: Copy{Room: make([]byte, 64)}, Beyond: Copy{Room: make([]byte, 64)}}
		b.Regs.N, b.FPRegs.N, b.Stack.N, b.Beyond.N, b.NBlocks, b.NRoots, b.Call.Anew, b.Call.Met, b.Call.Unwritten = 1, 2, 3, 4, 5, 6, true, true, true
		return b
	}
	k := &machine{t: t, note: note(0x5000), errno: unix.ESRCH, low: 0x4000, high: 0x6000}
	b := dirty()
	if errno := Take(k, 7, new(Advice), b, -1, OwnStop, false); errno != unix.ESRCH || len(k.asked)+len(k.written) != 0 {
		t.Errorf("error %d, memory read %v", errno, k.asked)
	}
	if b.Regs.N != 0 || b.FPRegs.N != 0 || b.Stack.N != 0 || b.Beyond.N != 0 || b.NBlocks != 0 || b.NRoots != 0 || b.Call.Anew || b.Call.Met || b.Call.Unwritten {
		t.Errorf("left: %d, %d, %d, %d, %d, %t, %t, %t", b.Regs.N, b.FPRegs.N, b.Stack.N, b.Beyond.N, b.NBlocks, b.Call.Anew, b.Call.Met, b.Call.Unwritten)
	}
	AtStop(k, 7, int(unix.SIGTERM), false, nil, b, noPagemap)
	k.errno = 0
	b = dirty()
	if errno := Take(k, 7, new(Advice), b, -1, OwnStop, false); errno != 0 || b.Regs.N != len(k.note) || b.StackAddr != 0x5000-RedZone || b.Stack.N != 64 || b.Beyond.N != 0 || b.Call.Anew || b.Call.Unwritten {
		t.Errorf("error %d, %d bytes of registers, %d of the stack at %#x, %d beyond", errno, b.Regs.N, b.Stack.N, b.StackAddr, b.Beyond.N)
	}
}

// TestTakeRecipe: what a recipe says is copied with the stack, if its words are those of the thread.
func TestTakeRecipe(t *testing.T) {
	k := &machine{t: t, note: note(0x5000), low: 0x4000, high: 0x6000, words: map[uint64]string{0x4800: string(words(77))}}
	r := &Recipe{RootBytes: 8, Room: 64}
	r.Roots[0] = Root{Addr: 0x4800, Is: 77}
	b := &Buffer{Regs: Copy{Room: make([]byte, regs.PrstatusMaxBytes)}, FPRegs: Copy{Room: make([]byte, FPRegsBytes)}, Stack: Copy{Room: make([]byte, 64)}, Beyond: Copy{Room: make([]byte, 64)}}
	if errno := Take(k, 7, &Advice{Recipe: r}, b, -1, OwnStop, false); errno != 0 || b.NRoots != 1 || b.NBlocks != 1 || b.Blocks[0] != (capture.Block{Addr: 0x4800, Len: 8}) {
		t.Errorf("error %d, %d roots, %v copied", errno, b.NRoots, b.Blocks[:b.NBlocks])
	}
}

// TestMask: sets of signals as the kernel writes them.
func TestMask(t *testing.T) {
	for text, want := range map[string]uint64{"\nSigIgn:\t00000000000a9f00\n": 0xa9f00, "\nSigIgn:\tffffffffffffffff": 1<<64 - 1, "\nSigIgn:\t0g": 0} {
		if set, ok := mask([]byte(text), "\nSigIgn:\t"); set != want || !ok {
			t.Errorf("%q: %#x, %t; want %#x", text, set, ok, want)
		}
	}
	if _, ok := mask([]byte("\nSigIgn:\t\n"), "\nSigIgn:\t"); ok {
		t.Error("nothing is read as a set")
	}
}

// TestAgain: only a wait that was stopped before it could go on is the one that has begun anew.
func TestAgain(t *testing.T) {
	for p, want := range map[place]bool{before: true, within: false, past: false} {
		m := &Mark{place: p}
		m.n = copy(m.note[:], "registers")
		if got := m.again(nil, 7, []byte("registers"), OwnStop, nil); got != want {
			t.Errorf("at %d: %t", p, got)
		}
	}
}

// TestCopied: what is known of an address by what was copied.
func TestCopied(t *testing.T) {
	b := &Buffer{Stack: Copy{Room: []byte("abcdefgh"), N: 6}, StackAddr: 100, Beyond: Copy{Room: []byte("ijklmnop"), N: 7}, NBlocks: 2}
	b.Blocks[0] = capture.Block{Addr: 200, Len: 4}
	b.Blocks[1] = capture.Block{Addr: 50, Len: 3}
	b.Blocks[2] = capture.Block{Addr: 300, Len: 3} // of an earlier one
	for addr, want := range map[uint64]string{99: "", 100: "abcdef", 105: "f", 106: "", 199: "", 200: "ijkl", 203: "l", 204: "", 49: "", 50: "mno", 52: "o", 53: "", 300: "", 0: ""} {
		if got := string(b.copied(addr)); got != want {
			t.Errorf("at %d there is %q, want %q", addr, got, want)
		}
	}
}

// TestCopiedSideBySide: copies that lie one behind another.
func TestCopiedSideBySide(t *testing.T) {
	b := &Buffer{Stack: Copy{Room: []byte("abcdefgh"), N: 6}, StackAddr: 100, Beyond: Copy{Room: []byte("ijklmnop"), N: 7}, NBlocks: 2}
	b.Blocks[0], b.Blocks[1] = capture.Block{Addr: 106, Len: 4}, capture.Block{Addr: 110, Len: 3}
	for addr, want := range map[uint64]string{105: "f", 106: "ijkl", 109: "l", 110: "mno", 112: "o", 113: ""} {
		if got := string(b.copied(addr)); got != want {
			t.Errorf("at %d there is %q, want %q", addr, got, want)
		}
		if got := string(b.found(addr, len(want))); got != want {
			t.Errorf("at %d %q is found, want %q", addr, got, want)
		}
	}
}

// TestTakeOtherBounds: a further stack is copied if it is not there already, but for a quarter; where there is room,
// and its address is whole.
func TestTakeOtherBounds(t *testing.T) {
	for _, sp := range []uint64{math.MaxUint64, math.MaxUint64 - 1} { // no stack lies there
		k := &machine{t: t, low: 0x4000, high: 0x6000}
		b := &Buffer{Regs: Copy{Room: words(sp), N: 8}, Beyond: Copy{Room: make([]byte, 400)}}
		if takeOther(k, 7, &Other{Bytes: 400}, b, -1) || (sp == math.MaxUint64) != (len(k.asked) == 0) {
			t.Errorf("a stack at %#x is taken, or asked for: %#x", sp, k.asked)
		}
	}
	const word = 0x40_0000
	const stack = 0x7f00_0080_0000 // more than 32 bits
	for _, tt := range []struct {
		name  string
		other Other
		set   func(b *Buffer)
		want  int // bytes
	}{
		{"as it is", Other{Word: word, Bytes: 400}, func(b *Buffer) {}, 400},
		{"the word is cut", Other{Word: word + 1, Bytes: 400}, func(b *Buffer) {}, 0},
		{"all but a quarter is there", Other{Word: word, Bytes: 400}, func(b *Buffer) {
			b.Blocks[0], b.NBlocks, b.Beyond.N = capture.Block{Addr: stack, Len: 300}, 1, 300
		}, 0},
		{"a little more than that is missing", Other{Word: word, Bytes: 400}, func(b *Buffer) {
			b.Blocks[0], b.NBlocks, b.Beyond.N = capture.Block{Addr: stack, Len: 299}, 1, 299
		}, 400},
		{"one byte", Other{Word: word, Bytes: 1}, func(b *Buffer) {}, 1},
		{"little room", Other{Word: word, Bytes: 400}, func(b *Buffer) { b.Beyond.N = 999 }, 1},
		{"no room", Other{Word: word, Bytes: 400}, func(b *Buffer) { b.Beyond.N = 1000 }, 0},
		{"no block", Other{Word: word, Bytes: 400}, func(b *Buffer) { b.NBlocks = MaxOthers }, 0},
		{"the last block", Other{Word: word, Bytes: 400}, func(b *Buffer) { b.NBlocks = MaxOthers - 1 }, 400},
		{"no address", Other{Word: word, Bytes: 400}, func(b *Buffer) { clear(b.Stack.Room) }, 0},
		{"a register is not asked where there is a word", Other{Word: word + 0x1000, Reg: 8, Bytes: 400}, func(b *Buffer) {}, 0},
		{"the first register", Other{Reg: 0, Bytes: 400}, func(b *Buffer) {}, 400},
		{"the last register", Other{Reg: len(note(1)) - 8, Bytes: 400}, func(b *Buffer) {}, 400},
		{"behind the registers", Other{Reg: len(note(1)), Bytes: 400}, func(b *Buffer) {}, 0},
		{"further behind", Other{Reg: len(note(1)) + 8, Bytes: 400}, func(b *Buffer) {}, 0},
		{"half a register", Other{Reg: len(note(1)) - 4, Bytes: 400}, func(b *Buffer) {}, 0},
		{"before the registers", Other{Reg: -1, Bytes: 400}, func(b *Buffer) {}, 0},
	} {
		b := &Buffer{Regs: Copy{Room: append(note(stack), make([]byte, 8)...), N: len(note(1))}, Stack: Copy{Room: make([]byte, 64), N: 8}, StackAddr: word, Beyond: Copy{Room: make([]byte, 1000)}}
		binary.NativeEndian.PutUint64(b.Stack.Room, stack)
		tt.set(b)
		had, blocks := b.Beyond.N, b.NBlocks
		k := &machine{t: t, low: stack - 0x1000, high: stack + 0x1000}
		ok := takeOther(k, 7, &tt.other, b, -1)
		if got := b.Beyond.N - had; got != tt.want || ok != (tt.want > 0) || (b.NBlocks > blocks) != ok {
			t.Errorf("%s: %d bytes, want %d; %t, %d blocks more", tt.name, got, tt.want, ok, b.NBlocks-blocks)
			continue
		}
		if ok {
			if got := b.Blocks[blocks]; got.Addr != stack-RedZone || got.Len != tt.want || b.Beyond.Room[had] != byte((stack-RedZone)&0xff) {
				t.Errorf("%s: block %+v", tt.name, got)
			}
		}
	}
}

// TestManyOthers: no more stacks are copied than the bound, each once; and none after the end of the list.
func TestManyOthers(t *testing.T) {
	k := &machine{t: t, note: note(0x5000), low: 0x4000, high: 0x6000}
	var a Advice
	for i := range a.Others {
		a.Others[i] = Other{Reg: 8 * (i % 2), Bytes: 16, Stack: Extent{}}
	}
	b := &Buffer{Regs: Copy{Room: make([]byte, regs.PrstatusMaxBytes)}, FPRegs: Copy{Room: make([]byte, FPRegsBytes)}, Beyond: Copy{Room: make([]byte, 4096)}}
	Take(k, 7, &a, b, -1, OwnStop, false)
	if b.NBlocks != 12 || b.Beyond.N != 12*16 {
		t.Errorf("%d blocks of %d bytes, want 12 of 16", b.NBlocks, b.Beyond.N)
	}
	a.Others[0].Bytes = 1
	if Take(k, 7, &a, b, -1, OwnStop, false); b.NBlocks != 12 {
		t.Errorf("%d blocks, want 12 where the first is to have one byte", b.NBlocks)
	}
	a.Others[3].Bytes = 0
	Take(k, 7, &a, b, -1, OwnStop, false)
	if b.NBlocks != 3 {
		t.Errorf("%d blocks, want the 3 before the one of no bytes", b.NBlocks)
	}
	if FPRegsBytes != 4+4+16*8 { // fpc, pad and fprs of s390_fp_regs
		t.Errorf("%d bytes of floating-point registers", FPRegsBytes)
	}
	c := new(capture.Capture)
	b.PACMask, b.FPRegs.N = 5, 16
	b.Fill(c)
	if len(c.Regs.Note) != b.Regs.N || len(c.Regs.FP) != 16 || c.Stack.Addr != b.StackAddr || len(c.Stack.Bytes) != b.Stack.N || len(c.Beyond.Bytes) != b.Beyond.N || len(c.Beyond.Blocks) != 3 || c.Regs.PACMask != 5 {
		t.Errorf("a capture of %d + %d bytes of registers, %d of stack, %d beyond in %d blocks", len(c.Regs.Note), len(c.Regs.FP), len(c.Stack.Bytes), len(c.Beyond.Bytes), len(c.Beyond.Blocks))
	}
}

// TestMarks reads marks in pages 1 to 4, of which some are not in memory, or cannot be read.
func TestMarks(t *testing.T) {
	marks := &Marks{N: 4}
	for i := range marks.N {
		page := pageBytes * uint64(i+1)
		marks.Areas[i] = unix.RemoteIovec{Base: uintptr(page + 8*uint64(i)), Len: 16 + i}
	}
	for _, tt := range []struct {
		name  string
		there string // pages that are in memory
		high  uint64 // end of what can be read, in pages
		want  string
	}{
		{"all", "1234", 9, "1234"},
		{"none", "", 9, ""},
		{"not the first", "234", 9, "234"},
		{"not the last", "123", 9, "123"},
		{"every other", "24", 9, "24"},
		{"gone before it was read", "1234", 3, "12"},
	} {
		k := &machine{t: t, low: pageBytes, high: tt.high * pageBytes, present: func(page uint64) bool { return strings.Contains(tt.there, fmt.Sprint(page)) }}
		b := new(Buffer)
		mark(k, 7, marks, b, 0)
		got, c := "", new(capture.Capture)
		b.marks.fill(&c.Marks)
		for i, a := range marks.Areas[:marks.N] {
			text, asked := c.Marks.At(uint64(a.Base))
			if !asked {
				t.Errorf("%s: nobody has asked for mark %d", tt.name, i+1)
			}
			if len(text) == a.Len && text[0] == byte(a.Base) && text[a.Len-1] == byte(a.Base)+byte(a.Len-1) {
				got += fmt.Sprint(i + 1)
			} else if len(text) > 0 {
				t.Errorf("%s: mark %d is %x", tt.name, i+1, text)
			}
		}
		if got != tt.want {
			t.Errorf("%s: marks %q were read, want %q", tt.name, got, tt.want)
		}
		if mark(k, 7, nil, b, 0); b.marks.n != 0 {
			t.Errorf("%s: %d marks of the copy before", tt.name, b.marks.n)
		}
	}
	// More than there is room for is not read, and not written behind it.
	for i := range marks.Areas {
		marks.Areas[i] = unix.RemoteIovec{Base: uintptr(pageBytes + uint64(1500*i)), Len: 1500}
	}
	marks.N = len(marks.Areas)
	b := new(Buffer)
	mark(&machine{t: t, low: pageBytes, high: 9 * pageBytes}, 7, marks, b, -1)
	c := new(capture.Capture)
	b.marks.fill(&c.Marks)
	for i, a := range marks.Areas {
		if text, _ := c.Marks.At(uint64(a.Base)); (len(text) == 1500) != (i < 10) { // in 16 KiB
			t.Errorf("mark %d of 1500 bytes: %d were read", i, len(text))
		}
	}
}

// TestLived: that memory is there the last read of its pagemap tells; one of memory that is gone is empty.
func TestLived(t *testing.T) {
	before := pageBytes
	defer func() { pageBytes = before }()
	pageBytes = 4096
	there := func(uint64) bool { return true }
	for _, tt := range []struct {
		name  string
		k     *machine
		pages int
		want  bool
	}{
		{"there", &machine{present: there}, 0, true},
		{"not in memory, but known", &machine{present: func(uint64) bool { return false }}, 0, true},
		{"gone", &machine{present: there, most: 7}, 0, false},
		{"went between two reads", &machine{present: there, fails: 2, most: 8}, 0, false},
		{"cannot be read", &machine{}, 0, false},
		{"no registers", &machine{present: there, errno: unix.ESRCH}, 0, false},
		{"without a pagemap", &machine{present: there}, -1, false},
	} {
		tt.k.t, tt.k.note, tt.k.low, tt.k.high = t, note(0x10800), 0x10000, 0x20000
		b := &Buffer{Lived: true}
		b.Regs.Room, b.Stack.Room = make([]byte, regs.PrstatusMaxBytes), make([]byte, 0x2000)
		if Take(tt.k, 7, &Advice{Stack: Extent{Low: 0x10000, High: 0x20000}}, b, tt.pages, OwnStop, true); b.Lived != tt.want {
			t.Errorf("%s: lived %t", tt.name, b.Lived)
		}
	}
}
