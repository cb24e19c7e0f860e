package safeelf

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sfsample/internal/testprog"
)

// open opens a copy of a static program of an architecture that has further sections, or claims to have more headers.
func open(t *testing.T, arch string, headers uint64, list ...testprog.Section) *os.File {
	t.Helper()
	f, err := os.OpenFile(testprog.Sparse(t, testprog.Committed(t, arch, "ehframe", "deep"), headers, list...), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// patch overwrites a 64-bit field of the section header that the names of sections have.
func patch(t *testing.T, f *os.File, off int64, v uint64) {
	t.Helper()
	e, err := elf.NewFile(f)
	if err != nil {
		t.Fatal(err)
	}
	var b [64]byte
	if _, err := f.ReadAt(b[:], 0); err != nil {
		t.Fatal(err)
	}
	at := int64(e.ByteOrder.Uint64(b[40:])) + int64(e.ByteOrder.Uint16(b[62:]))*64 // e_shoff, e_shstrndx
	e.ByteOrder.PutUint64(b[:], v)
	if _, err := f.WriteAt(b[:8], at+off); err != nil {
		t.Fatal(err)
	}
}

// Both byte orders.
var arches = []string{"amd64", "s390x"}

func TestNewFile(t *testing.T) {
	for _, arch := range arches {
		t.Run(arch, func(t *testing.T) {
			extra := testprog.Section{Name: ".extra", Type: elf.SHT_PROGBITS, Size: 1 << 40}
			f, err := NewFile(open(t, arch, 0, extra))
			if err != nil {
				t.Fatal(err)
			}
			if s := f.Section(".extra"); s == nil || s.Size != 1<<40 {
				t.Errorf("section .extra: %+v", s)
			}
			if _, err := Data(f.Section(".extra"), 1<<20); err == nil {
				t.Error("a section of 1 TB is read")
			}
			extra.Count = 70000
			many := open(t, arch, 0, extra)
			long := open(t, arch, 0, testprog.Section{Name: strings.Repeat("x", 1<<20), Type: elf.SHT_PROGBITS, Count: 100})
			large, packed := open(t, arch, 0), open(t, arch, 0)
			patch(t, large, 32, 1<<30)                      // sh_size
			patch(t, packed, 8, uint64(elf.SHF_COMPRESSED)) // sh_flags
			for what, f := range map[string]*os.File{
				"headers of nothing": open(t, arch, 1<<17), "many headers": many, "long names": long, "a large table of names": large, "a compressed one": packed,
			} {
				if _, err := NewFile(f); !errors.As(err, new(*Error)) {
					t.Errorf("%s: error %v", what, err)
				}
			}
		})
	}
}

func TestNoELF(t *testing.T) {
	if f, err := NewFile(strings.NewReader(strings.Repeat("no ELF file ", 10))); err == nil {
		t.Errorf("text is opened: %+v", f)
	}
}

// TestDataCompressed: of what a few bytes expand to nothing is read.
func TestDataCompressed(t *testing.T) {
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	w.Write(make([]byte, 64<<20))
	w.Close()
	old := append([]byte("ZLIB\x00\x00\x00\x00\x04\x00\x00\x00"), z.Bytes()...)
	chdr := binary.LittleEndian.AppendUint64([]byte{1, 0, 0, 0, 0, 0, 0, 0}, 64<<20) // ch_type, ch_reserved, ch_size
	chdr = append(append(chdr, 1, 0, 0, 0, 0, 0, 0, 0), z.Bytes()...)
	f, err := NewFile(open(t, "amd64", 0,
		testprog.Section{Name: ".zdebug_x", Type: elf.SHT_PROGBITS, Data: old},
		testprog.Section{Name: ".new", Type: elf.SHT_PROGBITS, Flags: elf.SHF_COMPRESSED, Data: chdr}))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".zdebug_x", ".new"} {
		for _, limit := range []uint64{1 << 20, 65 << 20} {
			if b, err := Data(f.Section(name), limit); !errors.As(err, new(*Error)) {
				t.Errorf("%s, with a limit of %d MB: %d bytes, %v", name, limit>>20, len(b), err)
			}
		}
	}
}

// symbols makes the tables of dynamic symbols with the names given.
func symbols(o binary.ByteOrder, names ...string) (syms, strs []byte) {
	syms, strs = make([]byte, 24), []byte{0}
	for i, n := range names {
		b := make([]byte, 24)
		o.PutUint32(b, uint32(len(strs)))
		b[4] = elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC)
		o.PutUint16(b[6:], 1)
		o.PutUint64(b[8:], uint64(0x1000*(i+1)))
		o.PutUint64(b[16:], 8)
		syms, strs = append(syms, b...), append(append(strs, n...), 0)
	}
	return syms, strs
}

func TestSymbols(t *testing.T) {
	for _, arch := range arches {
		t.Run(arch, func(t *testing.T) { allSymbols(t, arch) })
	}
}

func allSymbols(t *testing.T, arch string) {
	plain, err := NewFile(open(t, arch, 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := Symbols(plain, elf.SHT_DYNSYM, nil); err == nil {
		t.Error("a static program has dynamic symbols")
	}
	syms, strs := symbols(plain.ByteOrder, "one", strings.Repeat("long", 1000), "three")
	for name, tt := range map[string]struct {
		size, strSize uint64 // of the tables; 0: of what is in them
		want          string
	}{
		"usual":        {0, 0, "one  three"}, // the name between is too long
		"many symbols": {1 << 36, 0, ""},
		"many names":   {0, 1 << 36, ""},
	} {
		f, err := NewFile(open(t, arch, 0,
			testprog.Section{Name: ".dynsym", Type: elf.SHT_DYNSYM, Data: syms, Size: tt.size, Ent: 24, Link: 2},
			testprog.Section{Name: ".dynstr", Type: elf.SHT_STRTAB, Data: strs, Size: tt.strSize}))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		err = Symbols(f, elf.SHT_DYNSYM, func(s elf.Symbol) { got = append(got, s.Name) })
		if (err == nil) != (tt.want != "") || strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, %v, want %q", name, got, err, tt.want)
		}
	}
}

// TestSymbolsMemory: a million symbols of one long name take the table of names, and are not held.
func TestSymbolsMemory(t *testing.T) {
	syms, strs := symbols(binary.LittleEndian, "none")
	f, err := NewFile(open(t, "amd64", 0,
		testprog.Section{Name: ".dynsym", Type: elf.SHT_DYNSYM, Data: syms, Size: maxSymbols * 24, Ent: 24, Link: 2},
		testprog.Section{Name: ".dynstr", Type: elf.SHT_STRTAB, Data: strs}))
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	n := 0
	err = Symbols(f, elf.SHT_DYNSYM, func(elf.Symbol) { n++ })
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err != nil || n != maxSymbols-1 || took > 1<<20 {
		t.Errorf("%d symbols, %v: %d bytes, want 1 MB at most", n, err, took)
	}
}

// TestSymbols32: the symbols of a 32-bit file are those that debug/elf has.
func TestSymbols32(t *testing.T) {
	f, err := os.Open(testprog.Committed(t, "386", "ehframe", "deep"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	e, err := NewFile(f)
	if err != nil {
		t.Fatal(err)
	}
	want, err := e.Symbols()
	var got []elf.Symbol
	if err := Symbols(e, elf.SHT_SYMTAB, func(s elf.Symbol) { got = append(got, s) }); err != nil {
		t.Fatal(err)
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d symbols, want %d (%v)", len(got), len(want), err)
	}
}
