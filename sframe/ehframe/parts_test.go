package ehframe

import (
	"debug/elf"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"

	"sfsample/regs"
	"sfsample/sframe"
)

// TestEqualRows: rows that differ in one thing are not taken for the same, and seldom have one hash.
func TestEqualRows(t *testing.T) {
	row := func(change func(*sframe.Row)) *sframe.Row {
		r := &sframe.Row{
			CFA: sframe.Rule{Base: sframe.FromReg, Reg: 7, Offset: 16}, RA: sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: -8},
			FP: sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: -16}, Keep: 0xf000,
			Saved: []sframe.SavedRule{{Reg: 3, Rule: sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: -24}}}, Exprs: [][]byte{{1, 2}},
		}
		change(r)
		return r
	}
	a := row(func(*sframe.Row) {})
	if b := row(func(*sframe.Row) {}); !equalRows(a, b) || hashRow(a) != hashRow(b) {
		t.Error("the same rows are not equal")
	}
	for name, change := range map[string]func(*sframe.Row){
		"CFA": func(r *sframe.Row) { r.CFA.Offset++ }, "CFA's base": func(r *sframe.Row) { r.CFA.Base = sframe.FromCFA }, "CFA's register": func(r *sframe.Row) { r.CFA.Reg = 6 },
		"CFA's load": func(r *sframe.Row) { r.CFA.Deref = true }, "RA": func(r *sframe.Row) { r.RA.Offset++ }, "RA's load": func(r *sframe.Row) { r.RA.Deref = false },
		"FP": func(r *sframe.Row) { r.FP.Offset++ }, "Keep": func(r *sframe.Row) { r.Keep = 0x7000 }, "Outermost": func(r *sframe.Row) { r.Outermost = true },
		"Signal": func(r *sframe.Row) { r.Signal = true }, "Signed": func(r *sframe.Row) { r.Signed = true },
		"saved register": func(r *sframe.Row) { r.Saved[0].Reg = 12 }, "place of it": func(r *sframe.Row) { r.Saved[0].Rule.Offset = -32 }, "none saved": func(r *sframe.Row) { r.Saved = nil },
		"expression": func(r *sframe.Row) { r.Exprs[0] = []byte{1, 3} }, "shorter": func(r *sframe.Row) { r.Exprs[0] = []byte{1} }, "none": func(r *sframe.Row) { r.Exprs = nil },
	} {
		b := row(change)
		if equalRows(a, b) || equalRows(b, a) {
			t.Errorf("rows with another %s are equal", name)
		}
		if hashRow(a) == hashRow(b) {
			t.Errorf("rows with another %s have one hash", name)
		}
	}
	// Registers that lie apart as much as their places: one sum, another row.
	x := row(func(r *sframe.Row) { r.Saved = []sframe.SavedRule{{Reg: 3}, {Reg: 5}} })
	y := row(func(r *sframe.Row) { r.Saved = []sframe.SavedRule{{Reg: 5}, {Reg: 3}} })
	if hashRow(x) == hashRow(y) {
		t.Error("the order of saved registers is not in the hash")
	}
}

// TestFunctions: what was put is found, and counted.
func TestFunctions(t *testing.T) {
	var c cache
	if c.function(5) != nil {
		t.Error("a function in an empty cache")
	}
	f := &function{offs: make([]uint32, 3, 9), rows: make([]rowID, 3, 9)}
	c.putFunction(5, f)
	if c.function(5) != f || c.function(6) != nil || cap(f.offs) != 3 || cap(f.rows) != 3 {
		t.Errorf("got %v, with room for %d", c.function(5), cap(f.rows))
	}
	if c.bytes != funcBytes+3*rowRefBytes {
		t.Errorf("%d bytes", c.bytes)
	}
	if c.putFunction(6, new(function)); c.bytes != 2*funcBytes+3*rowRefBytes || c.function(5) != f {
		t.Errorf("%d bytes with another", c.bytes)
	}
}

// TestConstBytes: sizes of the operands of DW_OP_const1u to const8s (DWARF 5, section 7.7.1: 0x08 to 0x0f).
func TestConstBytes(t *testing.T) {
	for i, want := range []uint64{1, 1, 2, 2, 4, 4, 8, 8} {
		if got := constBytes(0x08 + uint8(i)); got != want {
			t.Errorf("%#x: %d bytes, want %d", 0x08+i, got, want)
		}
	}
}

// TestOperations: all that an expression may begin with, and the operands (DWARF 5, table 7.9): l is a LEB128 number, a
// digit a number of bytes, - is what call frame information may not have (section 6.4.2; addresses and what leads on to
// other objects or address spaces).
func TestOperations(t *testing.T) {
	operands := map[byte]string{
		0x06: "", 0x08: "1", 0x09: "1", 0x0a: "2", 0x0b: "2", 0x0c: "4", 0x0d: "4", 0x0e: "8", 0x0f: "8", 0x10: "l", 0x11: "l",
		0x12: "", 0x13: "", 0x14: "", 0x15: "1", 0x16: "", 0x17: "", 0x19: "", 0x1a: "", 0x1b: "", 0x1c: "", 0x1d: "", 0x1e: "",
		0x1f: "", 0x20: "", 0x21: "", 0x22: "", 0x23: "l", 0x24: "", 0x25: "", 0x26: "", 0x27: "", 0x28: "2", 0x29: "", 0x2a: "",
		0x2b: "", 0x2c: "", 0x2d: "", 0x2e: "", 0x2f: "2", 0x92: "ll", 0x94: "1", 0x96: "",
	}
	for op := range 0x20 {
		operands[0x30+byte(op)] = ""  // lit0 to lit31
		operands[0x70+byte(op)] = "l" // breg0 to breg31
	}
	check := func(e []byte) string {
		where := &cursor{}
		checkExpr(e, 0x100, where)
		if where.err == nil {
			return ""
		}
		return where.err.Error()
	}
	for op := range 256 {
		e := []byte{byte(op)}
		want, ok := operands[byte(op)]
		if !ok {
			if got := check(append(e, make([]byte, 16)...)); !strings.HasPrefix(got, "offset 0x101: operation is not allowed") {
				t.Errorf("%#x: %q", op, got)
			}
			continue
		}
		for _, kind := range want {
			if kind == 'l' {
				e = append(e, 0xff, 0) // no operation either
			} else {
				e = append(append(e, 1), make([]byte, kind-'1')...)
			}
		}
		if op == 0x28 || op == 0x2f {
			e[1] = 0xfd // back to the operation itself
			e[2] = 0xff
		}
		if got := check(e); got != "" {
			t.Errorf("%x: %s", e, got)
		}
		if got := check(append(e, 0xff)); !strings.Contains(got, "not allowed") {
			t.Errorf("%x and another: %q", e, got)
		}
		if len(e) > 1 {
			if got := check(e[:len(e)-1]); !strings.Contains(got, "past the end") {
				t.Errorf("%x: %q", e[:len(e)-1], got)
			}
		}
	}
}

// TestLinear: expressions that are a register or the CFA plus an offset, and what is not.
func TestLinear(t *testing.T) {
	const max4, min4 = math.MaxInt32, math.MinInt32
	on := func(reg uint8, off int32, deref bool) *sframe.Rule {
		return &sframe.Rule{Base: sframe.FromReg, Reg: reg, Offset: off, Deref: deref}
	}
	cfa := func(off int32, deref bool) *sframe.Rule {
		return &sframe.Rule{Base: sframe.FromCFA, Offset: off, Deref: deref}
	}
	for _, tt := range []struct {
		name         string
		e            []byte
		onCFA, deref bool
		want         *sframe.Rule
	}{
		{"nothing", nil, false, false, nil},
		{"the CFA", nil, true, false, cfa(0, false)},
		{"at the CFA", nil, true, true, cfa(0, true)},
		{"no register", []byte{0x23, 8}, false, false, nil},
		{"breg0", []byte{0x70, 1}, false, false, on(0, 1, false)},
		{"breg15", []byte{0x7f, 0x7f}, true, true, on(15, -1, true)},
		{"breg16, which amd64 has not", []byte{0x80, 1}, false, false, nil},
		{"breg31", []byte{0x8f, 1}, false, false, nil},
		{"bregx 3", []byte{0x92, 3, 4}, false, false, on(3, 4, false)},
		{"bregx 16", []byte{0x92, 16, 4}, false, false, nil},
		{"bregx 32", []byte{0x92, 32, 4}, false, false, nil},
		{"bregx 300", []byte{0x92, 0xac, 2, 4}, false, false, nil},
		{"loaded", []byte{0x77, 8, 0x06}, false, false, on(7, 8, true)},
		{"loaded by its size", []byte{0x77, 8, 0x94, 8}, false, false, on(7, 8, true)},
		{"loaded by another", []byte{0x77, 8, 0x94, 4}, false, false, nil},
		{"loaded twice", []byte{0x77, 8, 0x06, 0x06}, false, false, nil},
		{"loaded and saved there", []byte{0x77, 8, 0x06}, false, true, nil},
		{"loaded, then more", []byte{0x77, 8, 0x06, 0x23, 8}, false, false, nil},
		{"loaded, then nothing", []byte{0x77, 8, 0x06, 0x96}, false, false, nil},
		{"sum", []byte{0x77, 0x78, 0x23, 16, 0x96, 0x23, 1}, false, false, on(7, 9, false)},
		{"sum of 2 GiB less 1", []byte{0x77, 0, 0x23, 0xff, 0xff, 0xff, 0xff, 7}, false, false, on(7, max4, false)},
		{"sum of 2 GiB", []byte{0x77, 1, 0x23, 0xff, 0xff, 0xff, 0xff, 7}, false, false, nil},
		{"2 GiB, and back", []byte{0x77, 0x7f, 0x23, 0x80, 0x80, 0x80, 0x80, 8}, false, false, nil},
		{"-2 GiB", []byte{0x77, 0x80, 0x80, 0x80, 0x80, 0x78}, false, false, on(7, min4, false)},
		{"less", []byte{0x77, 0xff, 0xff, 0xff, 0xff, 0x77}, false, false, nil},
		{"less, and back", []byte{0x77, 0xff, 0xff, 0xff, 0xff, 0x77, 0x23, 8}, false, false, nil},
		{"another operation", []byte{0x77, 8, 0x20}, false, false, nil},
		{"cut", []byte{0x77, 8, 0x23, 0x80}, false, false, nil},
	} {
		got, ok := linear(tt.e, tt.onCFA, tt.deref, general(regs.AMD64), 8)
		if ok != (tt.want != nil) || ok && got != *tt.want {
			t.Errorf("%s: got %+v, %v, want %+v", tt.name, got, ok, tt.want)
		}
	}
}

// TestAddresses: each address is found when it was put, until the cache is full and begins anew.
func TestAddresses(t *testing.T) {
	var c cache
	if c.row(5) != idNone {
		t.Error("an address in an empty cache")
	}
	c.put(1<<48|5, idFirst)
	if c.row(5) != idNone || c.row(1<<48|5) != idNone || c.used != 0 {
		t.Error("an address of 49 bits is kept")
	}
	id := func(i int) rowID { return idNoRow + rowID(i%1000) }
	most := 0
	for i := range 3 * maxSlots {
		pc := uint64(i) * 7
		if i%2 == 1 {
			pc = 1<<48 - pc
		}
		c.put(pc, id(i))
		if c.row(pc) != id(i) || c.row(pc+1) != idNone {
			t.Fatalf("%#x: got %d and %d, want %d and none", pc, c.row(pc), c.row(pc+1), id(i))
		}
		if i == 47 && len(c.slots) != 64 || i == 48 && len(c.slots) != 128 { // three quarters
			t.Errorf("%d slots for %d addresses", len(c.slots), i+1)
		}
		if i < maxSlots/2 && c.row(0) != id(0) {
			t.Fatalf("the first of %d addresses is gone", i)
		}
		kept := 0
		if n := len(c.slots); i%512 == 0 || n != most {
			for _, s := range c.slots {
				if s != 0 {
					kept++
				}
			}
			if n < most || n > maxSlots || n > minSlots && n > 4*i || kept != c.used || kept > n/4*3 || c.bytes != 8*n {
				t.Fatalf("%d slots for %d addresses, %d kept, %d counted, %d bytes", n, i, kept, c.used, c.bytes)
			}
			most = n
		}
	}
	// Neighbours spread: of 100, most begin at a slot of their own.
	starts := map[uint64]bool{}
	for pc := range uint64(100) {
		starts[c.hashPC(0x400000+pc)] = true
	}
	for at := range starts {
		if at >= uint64(len(c.slots)) {
			t.Fatalf("%d begins beyond %d slots", at, len(c.slots))
		}
	}
	if len(starts) < 90 {
		t.Errorf("100 neighbours begin at %d places", len(starts))
	}
}

// TestTrim: all is dropped at the bounds, not before; what one look-up may add behind them still has a number.
func TestTrim(t *testing.T) {
	if last := maxList + maxOverlap*(maxRows+1); last > math.MaxUint16 || last < math.MaxUint16-maxRows {
		t.Errorf("the list may have %d rows", last)
	}
	for _, tt := range []struct {
		bytes, rows int
		kept        bool
	}{{0, 0, true}, {maxCacheBytes - 1, 0, true}, {maxCacheBytes, 0, false}, {0, maxList, true}, {0, maxList + 1, false}} {
		c := cache{bytes: tt.bytes, list: make([]*sframe.Row, tt.rows), used: 7}
		if c.trim(); (c.used == 7) != tt.kept || !tt.kept && (c.bytes != 0 || c.list != nil) {
			t.Errorf("%d bytes, %d rows: kept %v", tt.bytes, tt.rows, c.used == 7)
		}
	}
}

// TestCursor: numbers in both byte orders, and that nothing is read behind a failure.
func TestCursor(t *testing.T) {
	b := []byte{1, 2, 3, 4, 5, 6, 7, 8}
	for n, want := range map[int][2]uint64{1: {1, 1}, 2: {0x0201, 0x0102}, 4: {0x04030201, 0x01020304}, 8: {0x0807060504030201, 0x0102030405060708}} {
		little, big := cursor{b: b}, cursor{b: b, big: true}
		if got := [2]uint64{little.uint(n), big.uint(n)}; got != want || little.left() != 8-n {
			t.Errorf("%d bytes: got %#x, want %#x", n, got, want)
		}
	}
	c := cursor{b: []byte{0x81, 0, 0xff, 0x7f, 'z', 'R', 0, 9}, addr: 0x1000, sec: 0xff0}
	if u, s, z := c.uleb(), c.sleb(), c.cstring(); u != 1 || s != -1 || z != "zR" || c.at() != 0x1007 || c.err != nil {
		t.Errorf("got %d, %d, %q, at %#x, %v", u, s, z, c.at(), c.err)
	}
	if s := c.cstring(); s != "" || c.error().Error() != "offset 0x17: augmentation string has no end (0x1)" {
		t.Errorf("got %q, %v", s, c.err)
	}
	first := c.err
	if c.uleb() != 0 || c.sleb() != 0 || c.u8() != 0 || c.uint(1) != 0 || c.take(0) != nil || c.pos != 7 || c.err != first {
		t.Errorf("read on to %d, %v", c.pos, c.err)
	}
	for name, read := range map[string]func(c *cursor) uint64{
		"uleb": (*cursor).uleb, "sleb": func(c *cursor) uint64 { return uint64(c.sleb()) }, "u8": func(c *cursor) uint64 { c.take(1); c.take(1); return uint64(c.u8()) },
		"unsigned": func(c *cursor) uint64 { return uint64(unsigned(c, 1<<31)) },
	} {
		c := cursor{b: []byte{0x80, 0x80}}
		if v := read(&c); v != 0 || c.error() == nil {
			t.Errorf("%s: got %d, %v", name, v, c.err)
		}
	}
	if (&cursor{}).error() != nil {
		t.Error("an error without a failure")
	}
}

// image has bytes from low on, up to high, each the lowest of its address, and counts reads.
type image struct {
	low, high int64
	reads     int
	wild      bool // it was asked for what no offset has
}

var errNothing = errors.New("nothing there")

func (m *image) ReadAt(b []byte, at int64) (int, error) {
	m.reads++
	m.wild = m.wild || at < 0 || at > math.MaxInt64-int64(len(b))
	if at < m.low || at >= m.high {
		clear(b) // what it leaves there means nothing
		return 0, errNothing
	}
	n := int(min(int64(len(b)), m.high-at))
	for i := range n {
		b[i] = byte(at + int64(i))
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// TestMemory: reads in a block, over its end, up to the end of what is there, and out of it.
func TestMemory(t *testing.T) {
	img := &image{low: 0, high: 4*blockBytes + 100}
	m := memory{img: img}
	read := func(addr uint64, n int, want bool) {
		t.Helper()
		b, err := m.bytes(addr, n)
		if (err == nil) != want || want && len(b) != n {
			t.Errorf("%d bytes at %#x: %d, %v", n, addr, len(b), err)
			return
		}
		for i := range b {
			if want && b[i] != byte(addr+uint64(i)) {
				t.Fatalf("%d bytes at %#x: byte %d is %#x", n, addr, i, b[i])
			}
		}
	}
	read(8, 16, true)
	read(0, blockBytes, true)
	read(blockBytes-1, 1, true)
	if img.reads != 1 {
		t.Errorf("one block was read %d times", img.reads)
	}
	read(blockBytes-1, 2, true)
	read(8, 16, true)
	if img.reads != 2 {
		t.Errorf("%d reads with one over the block's end", img.reads)
	}
	read(4*blockBytes, 100, true)
	read(4*blockBytes, 101, false)
	read(4*blockBytes+99, 1, true)
	read(5*blockBytes, 1, false)
	read(8, 16, true) // still there
	read(3, 0, true)
	read(3, -1, false)
	read(0, maxReadBytes, false)
	img.high = 4 << 20
	read(1, maxReadBytes, true)
	read(0, 2*blockBytes, true)
	read(1, maxReadBytes+1, false)
	for _, addr := range []uint64{1<<63 - 1, 1 << 63, 1<<64 - 1, 1<<63 - 8} {
		before := img.reads
		read(addr, 16, false)
		if img.reads != before {
			t.Errorf("%#x, which no ReaderAt can have, was asked for", addr)
		}
	}
	read(1<<63-blockBytes, 16, false)
	read(1<<63-blockBytes-1, 16, false)
	if img.wild {
		t.Error("an offset of 2^63 or more was asked for")
	}
	for addr, want := range map[uint64]error{4<<20 - 8: io.ErrUnexpectedEOF, 4 << 20: errNothing} {
		if _, err := m.bytes(addr, 16); !errors.Is(err, want) {
			t.Errorf("%#x: %v, want %v", addr, err, want)
		}
	}
	// A block that cannot be read leaves nothing behind.
	m = memory{img: &image{low: blockBytes, high: 2 * blockBytes}}
	read(0, 4, false)
	read(blockBytes, 4, true)
	read(0, 4, false)
	read(blockBytes+4, 4, true)
	// Nor does it keep those from the cache that can be read later; one byte is enough for a block.
	for _, high := range []int64{blockBytes, 1} {
		img := &image{}
		m = memory{img: img}
		read(0, 1, false)
		img.high = high
		before := img.reads
		read(0, 1, true)
		read(0, 1, true)
		if img.reads != before+1 {
			t.Errorf("%d bytes: %d reads", high, img.reads-before)
		}
	}
	// One that can be read from its middle only is read past the cache.
	m = memory{img: &image{low: 10, high: blockBytes}}
	read(10, 8, true)
	read(9, 8, false)
}

// TestBlocks: the block that gives way is the first one that was not used since the clock's hand has passed it.
func TestBlocks(t *testing.T) {
	img := &image{high: 1 << 20}
	m := memory{img: img}
	use := func(i uint64) { m.bytes(i*blockBytes, 1) }
	kept := func(from, to uint64) {
		t.Helper()
		for i := from; i < to; i++ {
			before := img.reads
			if use(i); img.reads != before {
				t.Errorf("block %d was read again", i)
			}
		}
	}
	for i := range uint64(maxBlocks) {
		use(i)
	}
	kept(0, maxBlocks)
	use(maxBlocks)     // in the place of 0, all others lose their mark
	use(maxBlocks + 1) // of 1
	use(2)
	use(maxBlocks + 2) // of 3, as 2 was used
	if len(m.blocks) != maxBlocks || img.reads != maxBlocks+3 {
		t.Errorf("%d blocks, %d reads", len(m.blocks), img.reads)
	}
	kept(2, 3)
	kept(4, maxBlocks+3)
	before := img.reads
	if use(3); img.reads != before+1 {
		t.Error("block 3 is still there")
	}
}

// TestLostBlock: a block that was to be replaced, and was not, is not what it was.
func TestLostBlock(t *testing.T) {
	m := memory{img: &image{high: maxBlocks * blockBytes}}
	for i := range uint64(maxBlocks) {
		m.bytes(i*blockBytes, 1)
	}
	if _, err := m.bytes(maxBlocks*blockBytes, 1); !errors.Is(err, errNothing) {
		t.Error(err)
	}
	for i := range uint64(maxBlocks) {
		if b, err := m.bytes(i*blockBytes+7, 1); err != nil || b[0] != 7 {
			t.Errorf("block %d: %v, %v", i, b, err)
		}
	}
}

// tiny is a section of amd64 by hand: a CIE, and functions of 0x20 bytes at 0x5000, at 0x6000 (its instructions are
// damaged) and at 0x7000 (its augmentation data is).
var tiny = []byte{
	0x10, 0, 0, 0, 0, 0, 0, 0, 1, 'z', 0, 1, 0x78, 16, 0, 0x0c, 7, 8, 0x90, 1, // CFA rsp+8, RA at CFA-8
	0x20, 0, 0, 0, 0x18, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0,
	0, 0x44, 0x0e, 16, 0x83, 2, 0x16, 12, 3, 0x76, 0x78, 0x20, // CFA rsp+16, rbx at CFA-16, r12 by an expression
	0x1c, 0, 0, 0, 0x3c, 0, 0, 0, 0, 0x60, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0x44, 0x3f, 0, 0, 0, 0, 0,
	0x1c, 0, 0, 0, 0x5c, 0, 0, 0, 0, 0x70, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0,
}

// TestCut: a section that ends early has the functions in front of its end, and one defect, of the entry that is cut.
func TestCut(t *testing.T) {
	entries := []int{0, 20, 56, 88, 120} // and the end
	if len(tiny) != entries[4] {
		t.Fatal(len(tiny))
	}
	for size := 1; size <= len(tiny); size++ {
		tab, err := Open(strings.NewReader(string(tiny)), regs.AMD64, Sections{FrameSize: uint64(size)})
		if err != nil {
			t.Fatal(err)
		}
		whole := 0
		for entries[whole+1] <= size && whole < 3 {
			whole++
		}
		if size == len(tiny) {
			whole = 4
		}
		n := 0
		for fn, err := range tab.Funcs() {
			var bad *sframe.FormatError
			if n++; n < whole {
				if fn.SecOff != uint64(entries[n]) || fn.End != fn.Start+0x20 {
					t.Errorf("%d bytes: function %d: %+v, %v", size, n, fn, err)
				}
			} else if !errors.As(err, &bad) || bad.SecOff != uint64(entries[whole]) || fn.End != 0 {
				t.Errorf("%d bytes: %+v, %v, want a defect at %d", size, fn, err, entries[whole])
			}
		}
		want := max(whole-1, 0)
		if entries[whole] != size {
			want++
		}
		if n != want {
			t.Errorf("%d bytes: %d functions and defects, want %d", size, n, want)
		}
	}
}

// TestKept: what a look-up leaves behind: the row of its address, or that there is none; the function, damaged or not, with
// its range; and that CacheBytes is the sum of it all.
func TestKept(t *testing.T) {
	tab, err := Open(strings.NewReader(string(tiny)), regs.AMD64, Sections{FrameSize: uint64(len(tiny))})
	if err != nil || tab.CacheBytes() != 0 {
		t.Fatal(err, tab.CacheBytes())
	}
	for pc, want := range map[uint64]rowID{0x5000: idFirst, 0x5004: idFirst, 0x4fff: idNoRow, 0x5020: idNoRow, 0x6020: idNoRow, 0x7020: idNoRow, 0x6000: idNone, 0x7000: idNone} {
		row, err := tab.Row(pc)
		if got := min(tab.cache.row(pc), idFirst); got != want || damaged(err) != (want == idNone) || (row == nil) == (want == idFirst) {
			t.Errorf("%#x: %d kept, want %d; %v, %v", pc, got, want, row, err)
		}
	}
	for addr, start := range map[uint64]uint64{20: 0x5000, 56: 0x6000, 88: 0x7000} {
		f := tab.cache.function(addr)
		if f == nil || f.start != start || f.end != start+0x20 || (f.err != nil) != (start != 0x5000) || (len(f.rows) == 2) != (start == 0x5000) {
			t.Errorf("the function of the entry at %d: %+v", addr, f)
		}
	}
	if n := testing.AllocsPerRun(100, func() { tab.Find(0x5010) }); n != 0 {
		t.Errorf("a function that is known costs %v allocations", n)
	}
	want := 8*len(tab.cache.slots) + 3*funcBytes + 2*rowRefBytes + 2*rowBytes + 2*savedBytes + exprBytes + 3 +
		cieBytes + len(tab.sec.mem.blocks)*blockBytes + cap(tab.sec.fdeBuf) + cap(tab.sec.mem.buf) + 16*cap(tab.index.own)
	if got := tab.CacheBytes(); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
}

// TestGeneral: the registers of a set, by DWARF number (System V ABI: amd64's general ones are 0 to 15, i386's 0 to 7).
func TestGeneral(t *testing.T) {
	for arch, want := range map[*regs.Arch]uint32{regs.AMD64: 1<<16 - 1, regs.I386: 1<<8 - 1, regs.ARM64: 1<<32 - 1, regs.ARM64BE: 1<<32 - 1, regs.S390X: 1<<32 - 1} {
		if got := general(arch); got != want {
			t.Errorf("%s: %#x, want %#x", arch.Name, got, want)
		}
	}
}

// TestBounds: how far a section reaches.
func TestBounds(t *testing.T) {
	for _, tt := range []struct {
		name string
		arch *regs.Arch
		s    Sections
		end  uint64
		bad  string // text of the defect
	}{
		{"size", regs.AMD64, Sections{FrameAddr: 0x1000, FrameSize: 0x20, Limit: 0x1010}, 0x1020, ""},
		{"size up to the last address", regs.AMD64, Sections{FrameAddr: 0x1000, FrameSize: 1<<64 - 0x1001}, 1<<64 - 1, ""},
		{"a byte more", regs.AMD64, Sections{FrameAddr: 0x1000, FrameSize: 1<<64 - 0x1000}, 0, "section runs past the end of the address space"},
		{"the same with 32 bits", regs.I386, Sections{FrameAddr: 0x1000, FrameSize: 1<<32 - 0x1001}, 1<<32 - 1, ""},
		{"a byte more than those", regs.I386, Sections{FrameAddr: 0x1000, FrameSize: 1<<32 - 0x1000}, 0, "section runs past the end of the address space"},
		{"limit", regs.AMD64, Sections{FrameAddr: 0x1000, Limit: 0x1234}, 0x1234, ""},
		{"limit past 32 bits", regs.I386, Sections{FrameAddr: 0x1000, Limit: 1 << 40}, 1<<32 - 1, ""},
		{"limit at the start", regs.AMD64, Sections{FrameAddr: 0x1000, Limit: 0x1000}, 0, "section lies outside its segment"},
		{"limit before it", regs.AMD64, Sections{FrameAddr: 0x1000, Limit: 1}, 0, "section lies outside its segment"},
		{"nothing known", regs.AMD64, Sections{FrameAddr: 0x1000}, 0x100001000, ""},
		{"nothing known, near the end", regs.AMD64, Sections{FrameAddr: 1<<64 - 8}, 1<<64 - 1, ""},
	} {
		sec := section{arch: tt.arch, start: tt.s.FrameAddr}
		err := sec.setBounds(tt.s)
		var bad *sframe.FormatError
		if sec.end != tt.end || (err != nil) != (tt.bad != "") || errors.As(err, &bad) && (bad.Text != tt.bad || !bad.Whole) {
			t.Errorf("%s: up to %#x, %v, want %#x, %q", tt.name, sec.end, err, tt.end, tt.bad)
		}
		if err == nil && sec.sized != (tt.s.FrameSize != 0) {
			t.Errorf("%s: sized: %v", tt.name, sec.sized)
		}
	}
}

// TestHdrFields: where the header's table begins, how many pairs it has and of which size, for the widths of the fields
// before it; and when there is none.
func TestHdrFields(t *testing.T) {
	word := func(n, width int) string { return string([]byte{byte(n), byte(n >> 8), 0, 0, 0, 0, 0, 0}[:width]) }
	for _, tt := range []struct {
		name                    string
		ptr, count, table       byte // encodings
		ptrBytes, countBytes, n int
		bytes                   int // of a value of the table; 0: there is none
	}{
		{"words", 0x00, 0x00, 0x00, 8, 8, 1, 8},
		{"8 bytes", 0x04, 0x04, 0x04, 8, 8, 2, 8},
		{"4 bytes", 0x03, 0x03, 0x03, 4, 4, 3, 4},
		{"2 bytes, signed", 0x0a, 0x0a, 0x0a, 2, 2, 3, 2},
		{"relative to the header", 0x03, 0x03, 0x3b, 4, 4, 1, 4},
		{"relative to the value", 0x03, 0x03, 0x1b, 4, 4, 1, 4},
		{"LEB128", 0x01, 0x01, 0x01, 1, 1, 1, 0},
		{"relative to the text", 0x03, 0x03, 0x2b, 4, 4, 1, 0},
		{"indirect", 0x03, 0x03, 0x83, 4, 4, 1, 0},
		{"no such form", 0x03, 0x03, 0x05, 4, 4, 1, 0},
		{"aligned", 0x03, 0x03, 0x50, 4, 4, 1, 0},
	} {
		hdr := string([]byte{1, tt.ptr, tt.count, tt.table}) + word(0, tt.ptrBytes) + word(tt.n, tt.countBytes)
		at := len(hdr)
		for range tt.n {
			hdr += word(0x5000, max(tt.bytes, 1)) + word(20, max(tt.bytes, 1))
		}
		const addr = 0x2000
		img := strings.NewReader(string(tiny) + strings.Repeat("\x00", addr-len(tiny)) + hdr)
		for cut := range 2 { // then it has not all of its pairs
			tab, err := Open(img, regs.AMD64, Sections{FrameSize: uint64(len(tiny)), HdrAddr: addr, HdrSize: uint64(len(hdr) - cut)})
			if err != nil {
				t.Fatal(err)
			}
			want := hdrIndex{addr, addr + uint64(at), tt.n, tt.table, tt.bytes}
			if tt.bytes == 0 || cut > 0 {
				want = hdrIndex{}
			}
			if tab.index.hdr != want {
				t.Errorf("%s, less %d: %+v, want %+v", tt.name, cut, tab.index.hdr, want)
			}
			if _, err := tab.Row(0x5000); tt.table < 0x10 && err != nil {
				t.Errorf("%s, less %d: %v", tt.name, cut, err)
			}
		}
	}
}

// TestBrokenAtZero: .debug_frame lies at 0; a length that is broken there ends what goes through its entries.
func TestBrokenAtZero(t *testing.T) {
	tab, err := Open(strings.NewReader("\x70\x00\x00\x00"), regs.AMD64, Sections{FrameSize: 4, DebugFrame: true})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range tab.Funcs() {
		if n++; n > 1 || !damaged(err) {
			t.Fatalf("%d: %v", n, err)
		}
	}
}

// TestHdrOfAnother: a header tells where the section is only if nothing else does, and its table is not used for another.
func TestHdrOfAnother(t *testing.T) {
	hdr := "\x01\x03\x03\x03\x34\x12\x00\x00\x01\x00\x00\x00\x00\x50\x00\x00\x14\x00\x00\x00" // of 0x1234, a pair
	img := strings.NewReader(strings.Repeat("\x00", 0x2000) + hdr)
	for _, tt := range []struct {
		s    Sections
		want uint64
		n    int
	}{
		{Sections{}, 0x1234, 1}, {Sections{FrameAddr: 0x1234}, 0x1234, 1}, {Sections{FrameAddr: 0x1234, FrameSize: 9}, 0x1234, 1},
		{Sections{FrameSize: 0x100}, 0, 0}, {Sections{FrameAddr: 0x100}, 0x100, 0}, {Sections{FrameAddr: 0x100, FrameSize: 9}, 0x100, 0},
	} {
		tt.s.HdrAddr, tt.s.HdrSize = 0x2000, uint64(len(hdr))
		if tab, err := Open(img, regs.AMD64, tt.s); err != nil || tab.sec.start != tt.want || tab.index.hdr.n != tt.n {
			t.Errorf("%+v: at %#x, %d pairs, %v, want %#x, %d", tt.s, tab.sec.start, tab.index.hdr.n, err, tt.want, tt.n)
		}
	}
}

func damaged(err error) bool {
	var bad *sframe.FormatError
	return errors.As(err, &bad)
}

// TestSections: what a file's headers say of its tables.
func TestSections(t *testing.T) {
	sec := func(name string, typ elf.SectionType, flags elf.SectionFlag, addr uint64) *elf.Section {
		return &elf.Section{SectionHeader: elf.SectionHeader{Name: name, Type: typ, Flags: flags, Addr: addr, Size: addr + 1}}
	}
	all := []*elf.Section{
		sec(".eh_frame_hdr", elf.SHT_PROGBITS, elf.SHF_ALLOC, 0x10), sec(".eh_frame", elf.SHT_PROGBITS, elf.SHF_ALLOC, 0x20),
		sec(".text", elf.SHT_PROGBITS, elf.SHF_ALLOC, 0x30), sec(".got", elf.SHT_PROGBITS, elf.SHF_ALLOC, 0x40),
	}
	segment := &elf.Prog{ProgHeader: elf.ProgHeader{Type: elf.PT_GNU_EH_FRAME, Vaddr: 0x50, Filesz: 0x60}}
	for name, tt := range map[string]struct {
		file elf.File
		want Sections
	}{
		"sections":      {elf.File{Sections: all}, Sections{HdrAddr: 0x10, HdrSize: 0x11, FrameAddr: 0x20, FrameSize: 0x21, TextAddr: 0x30, DataAddr: 0x40}},
		"segment first": {elf.File{Sections: all, Progs: []*elf.Prog{segment}}, Sections{HdrAddr: 0x50, HdrSize: 0x60, FrameAddr: 0x20, FrameSize: 0x21, TextAddr: 0x30, DataAddr: 0x40}},
		"segment alone": {elf.File{Progs: []*elf.Prog{segment}}, Sections{HdrAddr: 0x50, HdrSize: 0x60}},
		"debug file":    {elf.File{Sections: []*elf.Section{sec(".eh_frame", elf.SHT_NOBITS, elf.SHF_ALLOC, 0x20), sec(".text", elf.SHT_NOBITS, elf.SHF_ALLOC, 0x30)}}, Sections{}},
		"not loaded":    {elf.File{Sections: []*elf.Section{sec(".eh_frame", elf.SHT_PROGBITS, 0, 0x20)}}, Sections{}},
	} {
		if got := ELFSections(&tt.file); !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
	amd64 := elf.FileHeader{Class: elf.ELFCLASS64, Data: elf.ELFDATA2LSB, Machine: elf.EM_X86_64}
	for name, f := range map[string]*elf.File{
		"another machine": {FileHeader: elf.FileHeader{Class: elf.ELFCLASS64, Data: elf.ELFDATA2LSB, Machine: elf.EM_AVR}, Sections: all},
		"nothing":         {FileHeader: amd64},
		"no content":      {FileHeader: amd64, Sections: []*elf.Section{sec(".eh_frame", elf.SHT_NOBITS, elf.SHF_ALLOC, 0x20), sec(".debug_frame", elf.SHT_NOBITS, 0, 0x20)}},
		"no bytes":        {FileHeader: amd64, Sections: []*elf.Section{{SectionHeader: elf.SectionHeader{Name: ".debug_frame", Type: elf.SHT_PROGBITS}}}},
		"too much":        {FileHeader: amd64, Sections: []*elf.Section{sec(".debug_frame", elf.SHT_PROGBITS, elf.SHF_COMPRESSED, maxDebugFrameBytes)}},
	} {
		if tab, err := OpenDebugFrame(f); tab != nil || err == nil {
			t.Errorf("%s: .debug_frame: %v", name, err)
		}
		if name == "another machine" || name == "nothing" || name == "no content" {
			if tab, err := OpenELF(f); tab != nil || err == nil {
				t.Errorf("%s: .eh_frame: %v", name, err)
			}
		}
	}
	plain := sec(".debug_frame", elf.SHT_PROGBITS, 0, 0x20)
	plain.ReaderAt = strings.NewReader("") // nothing of it is read when it is opened
	if tab, err := OpenDebugFrame(&elf.File{FileHeader: amd64, Sections: []*elf.Section{plain}}); err != nil || tab.sec.end != 0x21 || !tab.sec.debugFrame {
		t.Errorf(".debug_frame: %v", err)
	}
	load := &elf.Prog{ProgHeader: elf.ProgHeader{Type: elf.PT_LOAD, Filesz: 0x60}, ReaderAt: strings.NewReader(strings.Repeat("\x00", 0x50) + "\x01\x03\xff\xff\x34\x12\x00\x00")}
	if tab, err := OpenELF(&elf.File{FileHeader: amd64, Progs: []*elf.Prog{{ProgHeader: elf.ProgHeader{Type: elf.PT_GNU_EH_FRAME, Vaddr: 0x50, Filesz: 8}}, load}}); err != nil || tab.sec.start != 0x1234 {
		t.Errorf("header without sections: %v", err)
	}
	if tab, err := OpenELF(&elf.File{FileHeader: amd64, Sections: all[1:]}); err != nil || tab.sec.end != 0x41 {
		t.Errorf(".eh_frame without header: %v", err)
	}
}

// TestSegments: addresses of a file's segments, at their ends.
func TestSegments(t *testing.T) {
	load := func(addr uint64, text string) *elf.Prog {
		return &elf.Prog{ProgHeader: elf.ProgHeader{Type: elf.PT_LOAD, Vaddr: addr, Filesz: uint64(len(text)), Memsz: 0x100}, ReaderAt: strings.NewReader(text)}
	}
	note := load(0x100, "note")
	note.Type = elf.PT_NOTE
	s := segments{note, load(0x100, "first"), load(0x200, "second"), load(1<<63, "far")}
	for addr, want := range map[int64]string{0xff: "", 0x100: "first", 0x104: "t", 0x105: "", 0x1ff: "", 0x200: "second", 0x205: "d", 0x206: "", -1 << 63: "", -1: "", 0: ""} {
		b := make([]byte, 8)
		n, err := s.ReadAt(b, addr)
		if string(b[:n]) != want || (err == io.EOF) != (want != "") || err == nil {
			t.Errorf("%#x: %q, %v, want %q", addr, b[:n], err, want)
		}
	}
}
