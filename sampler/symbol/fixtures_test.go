package symbol

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The fixtures stand for what a machine without compilers can be tested on.
// Addresses are from readelf -s and objdump -d of each, lines from
// llvm-symbolizer.
func TestFixtures(t *testing.T) {
	amd64 := map[uint64]string{
		0x290: "", // the entry that calls the resolver
		0x2a0: "exported@plt:0",
		0x2b6: "imported@plt:0",
		0x2c0: "exported:4",
		0x2c4: "exported:4",
		0x2c5: ":4", // padding: no function, but the line table covers it
		0x2d4: "caller:5",
	}
	tests := map[string]map[uint64]string{
		"tiny-amd64-dwarf2.so":  amd64,
		"tiny-amd64-dwarf4z.so": amd64,
		"tiny-amd64-dwarf5.so":  amd64,
		"tiny-arm64-dwarf5.so": {
			0x290: "",
			0x29c: "",
			0x2b4: "exported@plt:0",
			0x2c0: "imported@plt:0",
			0x2d0: "twice:2 exported:4",
			0x2e4: "caller:5",
		},
		"tiny-s390x-dwarf5.so": {
			0x290: "",
			0x2b6: "exported@plt:0",
			0x2d0: "imported@plt:0",
			0x2f0: "twice:2 exported:4",
			0x2fe: ":4",
			0x304: "caller:5",
		},
	}
	for file, want := range tests {
		t.Run(file, func(t *testing.T) {
			o := openFixture(t, file)
			for addr, w := range want {
				var got []string
				for _, f := range o.Frames(addr) {
					got = append(got, fmt.Sprintf("%s:%d", f.Name, f.Line))
					if f.Line != 0 && f.File != "/src/tiny.c" {
						t.Errorf("%#x: file %q, want /src/tiny.c", addr, f.File)
					}
				}
				if g := strings.Join(got, " "); g != w {
					t.Errorf("Frames(%#x) = %q, want %q", addr, g, w)
				}
			}
			if o.NoLines() != "" || o.Missing() != "" || len(o.BuildID()) != 40 {
				t.Errorf("lines %q, missing %q, build-id %q", o.NoLines(), o.Missing(), o.BuildID())
			}
		})
	}
}

func openFixture(t testing.TB, file string) *Object {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	o := Open(bytes.NewReader(data), "/"+file, Options{Inlines: true, Lines: true})
	t.Cleanup(func() { o.Close() })
	return o
}

// Without section headers the dynamic segment still leads to the symbols.
func TestNoSectionHeaders(t *testing.T) {
	for _, file := range []string{"tiny-amd64-dwarf5.so", "tiny-arm64-dwarf5.so", "tiny-s390x-dwarf5.so"} {
		t.Run(file, func(t *testing.T) {
			data, err := os.ReadFile(filepath.Join("testdata", file))
			if err != nil {
				t.Fatal(err)
			}
			full := Open(bytes.NewReader(data), "/a", Options{})
			clear(data[0x28:0x30]) // e_shoff
			clear(data[0x3c:0x40]) // e_shnum, e_shstrndx
			o := Open(bytes.NewReader(data), "/a", Options{})
			for addr := uint64(0x2c0); addr < 0x330; addr++ {
				want, ok := full.Lookup(addr)
				if !ok || want.Source != ".symtab" {
					continue
				}
				got, _ := o.Lookup(addr)
				if got.Name != want.Name || got.Start != want.Start || got.Source != "dynamic" {
					t.Fatalf("Lookup(%#x) = %+v, want %s from the dynamic segment", addr, got, want.Name)
				}
			}
			if o.BuildID() != full.BuildID() {
				t.Errorf("build-id %q, want %q", o.BuildID(), full.BuildID())
			}
		})
	}
}

// check asks an object, whatever it was made of, and holds what must be true of
// any answer.
func check(t *testing.T, o *Object, addr uint64) {
	t.Helper()
	sym, ok := o.Lookup(addr)
	if ok != (sym.Name != "") || len(sym.Name) > MaxName {
		t.Fatalf("Lookup(%#x) = name of %d bytes, %v", addr, len(sym.Name), ok)
	}
	if ok && sym.Start > addr {
		t.Fatalf("Lookup(%#x) = %+v, which begins later", addr, sym)
	}
	if again, okAgain := o.Lookup(addr); again != sym || okAgain != ok {
		t.Fatalf("Lookup(%#x) = %+v, then %+v", addr, sym, again)
	}
	frames := o.Frames(addr)
	if ok && len(frames) == 0 {
		t.Fatalf("Frames(%#x) is empty, Lookup gives %q", addr, sym.Name)
	}
	for i, f := range frames {
		last := i == len(frames)-1
		if len(f.Name) > MaxName || len(f.File) > MaxName || f.Inlined == last {
			t.Fatalf("Frames(%#x)[%d] = %+v", addr, i, f)
		}
		if last && ok && f.Name != sym.Name {
			t.Fatalf("Frames(%#x) end in %q, Lookup gives %q", addr, f.Name, sym.Name)
		}
	}
}

// FuzzObject reads damaged files: there is an answer or none, the same each
// time, within the bounds.
func FuzzObject(f *testing.F) {
	files, err := filepath.Glob("testdata/tiny-*.so")
	if err != nil || len(files) == 0 {
		f.Fatalf("no fixtures: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, uint64(0x2d0))
	}
	for _, k := range kinds {
		e := testELF{class: k.class, order: k.order, machine: k.machine, text: []span{{0x1000, 0x2000}},
			syms: []testSym{fn("f", 0x1100, 0x10), fn("g", 0x1200, 0)}, dynsyms: []testSym{fn("h", 0x1300, 8)}}
		f.Add(e.bytes(), uint64(0x1104))
	}
	f.Fuzz(func(t *testing.T, data []byte, addr uint64) {
		o := Open(bytes.NewReader(data), "/fuzz", Options{Inlines: true, Lines: true})
		defer o.Close()
		check(t, o, addr)
		for a := uint64(0x280); a < 0x330; a += 7 {
			check(t, o, a)
		}
		for _, tab := range o.sources.tables {
			for _, a := range tab.segs.start[:min(len(tab.segs.start), 16)] {
				check(t, o, a)
			}
		}
	})
}

// FuzzPerfMap reads damaged maps: the answer is that of a search through all
// lines.
func FuzzPerfMap(f *testing.F) {
	f.Add([]byte("1000 20 foo\n1010 8 bar\n0x2000 0x10 baz qux\n"), uint64(0x1012))
	f.Add([]byte("\x00\xff 1 2\nffffffffffffffff 1 x\n0 1 y\n"), uint64(0))
	f.Fuzz(func(t *testing.T, text []byte, addr uint64) {
		m, _ := mapFile(t, string(text))
		m.Refresh()
		want := int32(none)
		for i := range m.entries {
			if e := &m.entries[i]; addr >= e.start && addr < e.end() {
				want = int32(i)
			}
		}
		for _, when := range []string{"before", "after"} {
			got, ok := m.Lookup(addr)
			switch {
			case ok != (want != none):
				t.Fatalf("%s merge: Lookup(%#x) in %q = %v, want entry %d", when, addr, text, ok, want)
			case ok && (got.Start != m.entries[want].start || len(got.Name) > MaxName || got.Name == ""):
				t.Fatalf("%s merge: Lookup(%#x) in %q = %+v, want entry %d", when, addr, text, got, want)
			}
			m.merge()
		}
	})
}
