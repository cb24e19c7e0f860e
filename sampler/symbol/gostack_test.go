package symbol

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"testing"
)

// goValues is a table whose one function has b as its pc-value pairs.
func goValues(b []byte) *GoTable {
	const pcOff = 16
	mem := append(make([]byte, pcOff), b...)
	return &GoTable{mem: bytes.NewReader(mem), t: &goTable{
		order: binary.LittleEndian, quantum: 4, size: int64(len(mem)), parts: goParts{pc: pcOff},
		entry: []uint64{0x1000, 0x1100}, fn: []uint32{0},
	}}
}

// TestGoValues decodes pairs as runtime/symtab.go does: value differences in
// zigzag, from -1 on, then lengths in units of instructions.
func TestGoValues(t *testing.T) {
	f := GoFunc{Start: 0x1000, End: 0x1100, Name: "f", pcsp: 0}
	// 0 for 2 instructions, 48 for 3, 0 for 1; the function goes on without.
	pairs := []byte{2, 2, 96, 3, 95, 1, 0}
	for _, tt := range []struct {
		name  string
		pairs []byte
		pc    uint64
		want  int32
		bad   bool
	}{
		{name: "first", pairs: pairs, pc: 0x1000, want: 0},
		{name: "end of the first", pairs: pairs, pc: 0x1007, want: 0},
		{name: "second", pairs: pairs, pc: 0x1008, want: 48},
		{name: "end of the second", pairs: pairs, pc: 0x1013, want: 48},
		{name: "third", pairs: pairs, pc: 0x1014, want: 0},
		{name: "behind them", pairs: pairs, pc: 0x1018, bad: true},
		{name: "beyond the function", pairs: []byte{2, 0x41}, pc: 0x1000, bad: true},
		{name: "no progress", pairs: []byte{2, 0, 2, 0}, pc: 0x1000, bad: true},
		{name: "cut", pairs: []byte{2}, pc: 0x1000, bad: true},
		{name: "number without end", pairs: bytes.Repeat([]byte{0x80}, 600), pc: 0x1000, bad: true},
		{name: "number too large", pairs: []byte{2, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, pc: 0x1000, bad: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := goValues(tt.pairs).value(f, f.pcsp, tt.pc)
			_, bad := errors.AsType[*FormatError](err)
			if bad != tt.bad || !bad && (err != nil || got != tt.want) {
				t.Errorf("got %d, %v; want %d, defect: %v", got, err, tt.want, tt.bad)
			}
		})
	}
}

// TestGoValuesDamaged: whatever the bytes, the answer comes soon and is a value or
// an error.
func TestGoValuesDamaged(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	good := 0
	for range 20000 {
		b := make([]byte, rnd.IntN(64))
		for i := range b {
			b[i] = byte(rnd.Uint32()) & 0x8f
		}
		g := goValues(b)
		f := GoFunc{Start: 0x1000, End: 0x1100, Name: "f", pcsp: uint32(rnd.IntN(80))}
		if _, err := g.value(f, f.pcsp, 0x1000+uint64(rnd.IntN(256))); err == nil {
			good++
		}
	}
	if good == 0 {
		t.Error("no table was good, so nothing was tested")
	}
}

// TestGoTableDamaged asks a program's table of which bytes are damaged: errors
// and wrong answers are fine, everything comes to an end.
func TestGoTableDamaged(t *testing.T) {
	_, path := buildGo(t, "s390x")
	f := openFile(t, path, Options{}).f
	im, err := openImage(f, nil)
	if err != nil {
		t.Fatal(err)
	}
	sec := im.sections.named(".gopclntab")
	whole := make([]byte, sec.size)
	if err := readFull(f, whole, sec.off); err != nil {
		t.Fatal(err)
	}
	mem := &offsetReader{whole, sec.addr}
	g, err := OpenGoTable(f, mem, nil)
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	entries, values := 0, 0
	for range 3000 {
		mem.b = bytes.Clone(whole)
		i := rnd.IntN(len(g.t.fn))
		rec := g.t.parts.fn + int64(g.t.fn[i])
		for range 4 {
			mem.b[rec+int64(rnd.IntN(goRecordBytes))] = byte(rnd.Uint32())
		}
		fn, ok, err := g.Func(g.t.entry[i])
		if !ok || err != nil {
			continue
		}
		entries++
		if _, err := g.StackSize(fn, fn.Start+uint64(rnd.Int64N(int64(fn.End-fn.Start)+1))); err == nil {
			values++
		}
	}
	if entries == 0 || values == 0 {
		t.Errorf("%d functions and %d values read, want some of each", entries, values)
	}
}

// TestGoTableReleases: what the headers of a program take of the memory for what is compressed is given back.
func TestGoTableReleases(t *testing.T) {
	_, path := buildGo(t, "s390x")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	order := binary.BigEndian
	header := b[order.Uint64(b[0x28:])+uint64(order.Uint16(b[0x3a:]))*uint64(order.Uint16(b[0x3e:])):] // that of the names (elf(5))
	off, size := order.Uint64(header[24:]), order.Uint64(header[32:])
	var c bytes.Buffer
	c.Write(order.AppendUint64(order.AppendUint64(order.AppendUint64(nil, uint64(elf.COMPRESS_ZLIB)<<32), size), 1))
	w := zlib.NewWriter(&c)
	w.Write(b[off : off+size])
	w.Close()
	order.PutUint64(header[8:], order.Uint64(header[8:])|uint64(elf.SHF_COMPRESSED))
	order.PutUint64(header[24:], uint64(len(b)))
	order.PutUint64(header[32:], uint64(c.Len()))
	f := bytes.NewReader(append(b, c.Bytes()...))
	withBudgets(t, 64<<20, 64<<20)
	if _, err := OpenGoTable(f, f, nil); err != nil {
		t.Fatal(err)
	}
	if inMemory.used != 0 {
		t.Errorf("%d bytes are not given back", inMemory.used)
	}
}

// offsetReader is memory whose first byte is at addr.
type offsetReader struct {
	b    []byte
	addr uint64
}

func (r *offsetReader) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(r.b).ReadAt(p, off-int64(r.addr))
}
