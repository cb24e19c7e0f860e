package runtimes

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"sfsample/internal/testprog"
)

// counted counts the bytes that are read of a file.
type counted struct {
	*os.File
	read int
}

func (c *counted) ReadAt(b []byte, off int64) (int, error) {
	c.read += len(b)
	return c.File.ReadAt(b, off)
}

// TestRecogniseHostile: a program that claims to have very many sections, or symbols, is no interpreter, and is not read for long.
func TestRecogniseHostile(t *testing.T) {
	for name, tt := range map[string]struct {
		headers  uint64
		sections []testprog.Section
	}{
		"headers": {1 << 17, nil},
		"symbols": {0, []testprog.Section{
			{Name: ".dynsym", Type: elf.SHT_DYNSYM, Size: 100 << 20, Ent: 24, Link: 2},
			{Name: ".dynstr", Type: elf.SHT_STRTAB, Size: 100 << 20}}},
		"versions": {0, []testprog.Section{
			{Name: ".dynsym", Type: elf.SHT_DYNSYM, Size: 24, Ent: 24, Link: 2},
			{Name: ".dynstr", Type: elf.SHT_STRTAB, Size: 100},
			{Name: ".gnu.version", Type: elf.SHT_GNU_VERSYM, Size: 100 << 20},
			{Name: ".gnu.version_r", Type: elf.SHT_GNU_VERNEED, Size: 100 << 20, Link: 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open(testprog.Sparse(t, testprog.Committed(t, "amd64", "ehframe", "deep"), tt.headers, tt.sections...))
			if err != nil {
				t.Fatal(err)
			}
			c := &counted{File: f}
			rt, err := Recognise(Object{Path: "/deep", Open: func() (File, error) { return c, nil }}, bytes.NewReader(nil))
			if rt != nil || err != nil || c.read > 1<<20 {
				t.Errorf("%v, %v; %d bytes read, want 1 MB at most", rt, err, c.read)
			}
		})
	}
}

// TestRecogniseMemory: of a million names that a Python may have few are kept.
func TestRecogniseMemory(t *testing.T) {
	const n = 1 << 20
	syms, strs := make([]byte, 0, 24*n), []byte{0}
	for i := range n {
		b := make([]byte, 24) // Elf64_Sym: st_name, st_shndx
		binary.LittleEndian.PutUint32(b, uint32(len(strs)))
		b[6] = 1
		syms, strs = append(syms, b...), append(fmt.Appendf(strs, "Py%x", i), 0)
	}
	f, err := os.Open(testprog.Sparse(t, testprog.Committed(t, "amd64", "ehframe", "deep"), 0,
		testprog.Section{Name: ".dynsym", Type: elf.SHT_DYNSYM, Data: syms, Ent: 24, Link: 2},
		testprog.Section{Name: ".dynstr", Type: elf.SHT_STRTAB, Data: strs}))
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	rt, err := Recognise(Object{Path: "/deep", Open: func() (File, error) { return f, nil }}, bytes.NewReader(nil))
	runtime.ReadMemStats(&after)
	// The table of names, in steps that are read, and each name once.
	if took := after.TotalAlloc - before.TotalAlloc; rt != nil || err != nil || took > 64<<20 {
		t.Errorf("%v, %v: %d MB, want 64 at most", rt, err, took>>20)
	}
}

// TestPythonLies: an interpreter that tells offsets that are not in what they belong to is refused, or read as nothing.
func TestPythonLies(t *testing.T) {
	littleEndian(t)
	for minor := range pythonDebugOffsets {
		for lie := 3; lie < 64; lie++ {
			for _, at := range []uint64{0, 248, 4080} {
				b := make([]byte, 1<<12)
				copy(b, "xdebugpy")
				// An interpreter and a state of a thread, which lead to each other.
				for at, to := range map[int]uint64{0x800: 0x1900, 0x980: 0x1a00, 0xa80: 0x1900, 0x908: 0x1000} {
					binary.NativeEndian.PutUint64(b[at:], to)
				}
				binary.NativeEndian.PutUint64(b[8:], uint64(3<<24|minor<<16))
				for i := 3; i < 64; i++ {
					binary.NativeEndian.PutUint64(b[8*i:], 128)
				}
				binary.NativeEndian.PutUint64(b[8*lie:], at)
				p := &python{objects: pyObjects{minor: minor, code: 0x1000}, head: 0x1800}
				if p.describe(rubbish(b), 0x1000) == nil {
					p.Roots(rubbish(b), Thread{TID: 1, Pointer: 0x1000})
					p.Key(nil, rubbish(b), &Frame{Code: 0x1900})
				}
			}
		}
	}
}

// TestFunctionBytes: what a function takes counts, and lines that many share once.
func TestFunctionBytes(t *testing.T) {
	for _, lines := range []lineTable{lnotab(make([]byte, 1<<16)), linetable310(make([]byte, 1<<16)), locations{table: make([]byte, 1<<16)}, rubyLines{info: make([]byte, 1<<15), ranks: make([]byte, 1<<15)},
		luaLines{table: make([]byte, 1<<15), marks: make([]byte, 1<<15)}, phpLines{table: make([]uint32, 1<<14)}, make(javaLines, 1<<12), make(beamLines, 1<<12), &v8Lines{ends: make([]int32, 1<<14)}} {
		f := &Function{Name: "a name", File: "a file", lines: lines}
		if n := f.Bytes(); n < 1<<16 || n > 1<<17 {
			t.Errorf("%T: %d bytes", lines, n)
		}
		if _, shared := lines.(*v8Lines); shared && f.Bytes() > 1<<10 {
			t.Errorf("%T: %d bytes more", lines, f.Bytes())
		}
	}
	if n := (&Function{Name: strings.Repeat("x", 1<<16), lines: perlLines{}}).Bytes(); n < 1<<16 || n > 1<<17 {
		t.Errorf("a name: %d bytes", n)
	}
}

// TestHotSpotTables: tables whose entries are said to have fields outside of them are not read.
func TestHotSpotTables(t *testing.T) {
	const bytes, good, bad, table = 0x1000, 0x1008, 0x1010, 0x1018
	syms := map[string]uint64{}
	var offsets []string
	for what, fields := range map[string][]string{"Struct": {"TypeName", "FieldName", "TypeString", "IsStatic", "Offset", "Address"}, "Type": {"TypeName", "Size"}, "IntConstant": {"Name", "Value"}} {
		syms["gHotSpotVM"+what+"s"], syms["gHotSpotVM"+what+"EntryArrayStride"] = table, bytes
		for _, f := range fields {
			name := "gHotSpotVM" + what + "Entry" + f + "Offset"
			offsets, syms[name] = append(offsets, name), good
		}
	}
	for _, name := range offsets {
		syms[name] = bad
		for _, tt := range []struct {
			bytes, at uint64
			ok        bool
		}{{64, 0, true}, {64, 56, true}, {64, 57, false}, {64, 64, false}, {64, ^uint64(0) - 7, false}, {64, ^uint64(0), false}, {7, 0, false}} {
			var b []byte
			for _, v := range []uint64{tt.bytes, 0, tt.at, 0x2000} {
				b = binary.NativeEndian.AppendUint64(b, v)
			}
			if _, err := readVMStructs(rubbish(b), syms); (err == nil) != tt.ok {
				t.Errorf("%s at %d of %d bytes: %v", name, int64(tt.at), tt.bytes, err)
			}
		}
		syms[name] = good
	}
}

// TestLocksLies: a lock stack that is said to have its end far away is read to there, or not at all.
func TestLocksLies(t *testing.T) {
	for top, want := range map[int]int{0: 1, 4000: 1, maxVMOffset - 8: 0} {
		l := hotspotLocks(1)
		l.threads.top = top
		// Every word is the address of all else, every number is 8.
		waits, err := l.Read(rubbish(binary.NativeEndian.AppendUint64(nil, 8<<32|8)), func(int) bool { return true })
		if len(waits) != want || (err == nil) != (want > 0) {
			t.Errorf("the end is told at %d: %v, %v", top, waits, err)
		}
	}
}
