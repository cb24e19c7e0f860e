package ehframe

import (
	"errors"
	"io"
	"testing"

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

// image has bytes from low on, up to high, each the lowest of its address, and counts reads.
type image struct {
	low, high int64
	reads     int
}

func (m *image) ReadAt(b []byte, at int64) (int, error) {
	m.reads++
	if at < m.low || at >= m.high {
		return 0, errors.New("nothing there")
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
	read(1, maxReadBytes+1, false)
	for _, addr := range []uint64{1<<63 - 1, 1 << 63, 1<<64 - 1, 1<<63 - 8} {
		before := img.reads
		read(addr, 16, false)
		if img.reads != before {
			t.Errorf("%#x, which no ReaderAt can have, was asked for", addr)
		}
	}
	// A block that cannot be read leaves nothing behind.
	m = memory{img: &image{low: blockBytes, high: 2 * blockBytes}}
	read(0, 4, false)
	read(blockBytes, 4, true)
	read(0, 4, false)
	read(blockBytes+4, 4, true)
	// One that can be read from its middle only is read past the cache.
	m = memory{img: &image{low: 10, high: blockBytes}}
	read(10, 8, true)
	read(9, 8, false)
}
