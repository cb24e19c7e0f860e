package symbol

import (
	"debug/elf"
	"math/rand/v2"
	"strings"
	"testing"
)

func fn(name string, value, size uint64) testSym {
	return testSym{name: name, value: value, size: size, bind: elf.STB_GLOBAL, typ: elf.STT_FUNC}
}

func (s testSym) as(bind elf.SymBind, typ elf.SymType) testSym {
	s.bind, s.typ = bind, typ
	return s
}

func TestLookup(t *testing.T) {
	tests := []struct {
		name string
		syms []testSym
		addr uint64
		want string // empty: no name
		at   uint64 // where the function starts
	}{
		{"first byte", []testSym{fn("f", 0x1100, 0x10)}, 0x1100, "f", 0x1100},
		{"last byte", []testSym{fn("f", 0x1100, 0x10)}, 0x110f, "f", 0x1100},
		{"padding has no name", []testSym{fn("f", 0x1100, 0x10), fn("g", 0x1120, 0x10)}, 0x1110, "", 0},
		{"before the first", []testSym{fn("f", 0x1100, 0x10)}, 0x10ff, "", 0},
		{"inner wins inside", []testSym{fn("outer", 0x1100, 0x100), fn("inner", 0x1110, 0x10)}, 0x1115, "inner", 0x1110},
		{"outer goes on after inner", []testSym{fn("outer", 0x1100, 0x100), fn("inner", 0x1110, 0x10)}, 0x1120, "outer", 0x1100},
		{"overlap: the later start wins", []testSym{fn("a", 0x1100, 0x20), fn("b", 0x1110, 0x20)}, 0x1118, "b", 0x1110},
		{"overlap: nothing comes back", []testSym{fn("a", 0x1100, 0x20), fn("b", 0x1110, 0x20)}, 0x1130, "", 0},

		{"without size: up to the next", []testSym{fn("f", 0x1100, 0), fn("g", 0x1200, 0x10)}, 0x11ff, "f", 0x1100},
		{"without size: to the section's end", []testSym{fn("f", 0x1f00, 0)}, 0x1fff, "f", 0x1f00},
		{"without size: not beyond it", []testSym{fn("f", 0x1f00, 0)}, 0x3000, "", 0},
		{"without size after a function", []testSym{fn("f", 0x1100, 0x10), fn("g", 0x1110, 0)}, 0x1118, "g", 0x1110},
		{"label inside a function", []testSym{fn("f", 0x1100, 0x40), fn("label", 0x1110, 0).as(elf.STB_LOCAL, elf.STT_NOTYPE)}, 0x1118, "f", 0x1100},
		{"sized wins over one without size", []testSym{fn("a", 0x1100, 0), fn("b", 0x1100, 0x10)}, 0x1105, "b", 0x1100},
		{"size runs past the section", []testSym{fn("f", 0x1f00, 1<<31)}, 0x3100, "", 0},

		{"function before label", []testSym{fn("label", 0x1100, 0x10).as(elf.STB_GLOBAL, elf.STT_NOTYPE), fn("_func", 0x1100, 0x10).as(elf.STB_LOCAL, elf.STT_FUNC)}, 0x1100, "_func", 0x1100},
		{"global before local", []testSym{fn("local", 0x1100, 0x10).as(elf.STB_LOCAL, elf.STT_FUNC), fn("_global", 0x1100, 0x10)}, 0x1100, "_global", 0x1100},
		{"weak before local", []testSym{fn("local", 0x1100, 0x10).as(elf.STB_LOCAL, elf.STT_FUNC), fn("_weak", 0x1100, 0x10).as(elf.STB_WEAK, elf.STT_FUNC)}, 0x1100, "_weak", 0x1100},
		{"glibc's public name", []testSym{fn("_IO_fflush", 0x1100, 0x10), fn("fflush", 0x1100, 0x10).as(elf.STB_WEAK, elf.STT_FUNC)}, 0x1100, "fflush", 0x1100},
		{"glibc's hidden alias", []testSym{fn("__GI_x", 0x1100, 0x10).as(elf.STB_LOCAL, elf.STT_FUNC), fn("____x", 0x1100, 0x10).as(elf.STB_LOCAL, elf.STT_FUNC)}, 0x1100, "____x", 0x1100},
		{"shorter name", []testSym{fn("readdir64", 0x1100, 0x10), fn("readdir", 0x1100, 0x10)}, 0x1100, "readdir", 0x1100},
		{"equally long names", []testSym{fn("memcpy1", 0x1100, 0x10), fn("memmove", 0x1100, 0x10)}, 0x1100, "memmove", 0x1100},
		{"alias with a smaller size", []testSym{fn("long_name", 0x1100, 0x40), fn("short", 0x1100, 0x10)}, 0x1120, "long_name", 0x1100},

		{"data has no say", []testSym{fn("table", 0x1100, 0x10).as(elf.STB_GLOBAL, elf.STT_OBJECT)}, 0x1104, "", 0},
		{"section symbols have no say", []testSym{fn("s", 0x1000, 0).as(elf.STB_LOCAL, elf.STT_SECTION)}, 0x1104, "", 0},
		{"undefined symbols have no say", []testSym{{name: "u", value: 0x1100, size: 0x10, bind: elf.STB_GLOBAL, typ: elf.STT_FUNC, undef: true}}, 0x1104, "", 0},
		{"outside of code", []testSym{fn("f", 0x5000, 0x10)}, 0x5001, "", 0},
		{"end of the section", []testSym{fn("etext", 0x2000, 0).as(elf.STB_GLOBAL, elf.STT_NOTYPE)}, 0x2000, "", 0},
		{"indirect function", []testSym{fn("memcpy", 0x1100, 0x10).as(elf.STB_GLOBAL, sttGNUIFunc)}, 0x1104, "memcpy", 0x1100},
		{"version", []testSym{fn("foo@@GLIBC_2.2.5", 0x1100, 0x10)}, 0x1104, "foo", 0x1100},
		{"old version", []testSym{fn("foo@GLIBC_2.0", 0x1100, 0x10)}, 0x1104, "foo", 0x1100},
		{"hostile name stays as it is", []testSym{fn("a;b\x1b[31m\n", 0x1100, 0x10)}, 0x1104, "a;b\x1b[31m\n", 0x1100},
	}
	for _, k := range kinds {
		for _, tt := range tests {
			t.Run(k.name+"/"+tt.name, func(t *testing.T) {
				e := testELF{class: k.class, order: k.order, machine: k.machine, syms: tt.syms,
					text: []span{{0x1000, 0x2000}, {0x3000, 0x3800}}}
				got, ok := e.open(Options{}).Lookup(tt.addr)
				if got.Name != tt.want || got.Start != tt.at || ok != (tt.want != "") {
					t.Errorf("Lookup(%#x) = %q at %#x, %v; want %q at %#x", tt.addr, got.Name, got.Start, ok, tt.want, tt.at)
				}
			})
		}
	}
}

func TestMappingSymbols(t *testing.T) {
	syms := []testSym{
		fn("$x", 0x1100, 0).as(elf.STB_LOCAL, elf.STT_NOTYPE),
		fn("$d.12", 0x1200, 0).as(elf.STB_LOCAL, elf.STT_NOTYPE),
		fn("asm_entry", 0x1300, 0).as(elf.STB_LOCAL, elf.STT_NOTYPE),
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			e := testELF{class: k.class, order: k.order, machine: k.machine, syms: syms, text: []span{{0x1000, 0x2000}}}
			o := e.open(Options{})
			want := "$x"
			if k.machine == elf.EM_AARCH64 {
				want = ""
			}
			if got, _ := o.Lookup(0x1104); got.Name != want {
				t.Errorf("Lookup = %q, want %q", got.Name, want)
			}
			if got, _ := o.Lookup(0x1304); got.Name != "asm_entry" {
				t.Errorf("Lookup = %q, want asm_entry", got.Name)
			}
		})
	}
}

func TestSourcesInOrder(t *testing.T) {
	e := testELF{class: elf.ELFCLASS64, order: kinds[0].order, machine: elf.EM_X86_64, text: []span{{0x1000, 0x2000}},
		syms:    []testSym{fn("static", 0x1100, 0x10), fn("loose", 0x1200, 0)},
		dynsyms: []testSym{fn("exported", 0x1300, 0x10)}}
	o := e.open(Options{})
	for addr, want := range map[uint64]Sym{
		0x1104: {"static", 0x1100, 0x10, ".symtab"},
		0x1208: {"loose", 0x1200, 0, ".symtab"},
		0x1308: {"exported", 0x1300, 0x10, ".dynsym"}, // though "loose" reaches here
	} {
		if got, ok := o.Lookup(addr); got != want || !ok {
			t.Errorf("Lookup(%#x) = %v, %v; want %v", addr, got, ok, want)
		}
	}
	if o.Missing() != "" {
		t.Errorf("Missing = %q, want nothing missing", o.Missing())
	}
	e.syms = nil
	if o := e.open(Options{}); o.Missing() == "" {
		t.Error("Missing is empty for a stripped file")
	}
}

func TestDemangle(t *testing.T) {
	tests := []struct{ in, full, short string }{
		{"main", "main", "main"},
		{"_ZN3app3BoxIiE3getEv", "app::Box<int>::get()", "app::Box::get"},
		{"_ZNSt6vectorIiSaIiEE9push_backEOi", "std::vector<int, std::allocator<int> >::push_back(int&&)", "std::vector::push_back"},
		{"_RNvC6_123foo3bar", "123foo::bar", "123foo::bar"},
		{"_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write", "core::fmt::write"},
		{"_Zbroken", "_Zbroken", "_Zbroken"},
		{"_start", "_start", "_start"},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			if got := Full.Name(tt.in); got != tt.full {
				t.Errorf("Full = %q, want %q", got, tt.full)
			}
			if got := Short.Name(tt.in); got != tt.short {
				t.Errorf("Short = %q, want %q", got, tt.short)
			}
			if got := Off.Name(tt.in); got != tt.in {
				t.Errorf("Off = %q, want %q", got, tt.in)
			}
		})
	}
}

// Names that expand by references to themselves, and long ones, stay bounded.
func TestNamesAreBounded(t *testing.T) {
	bomb := "_Z1fI" + strings.Repeat("1aI", 200) + "i" + strings.Repeat("E", 200)
	for range 12 {
		bomb += "S_"
	}
	for name, in := range map[string]string{
		"1 MB":      strings.Repeat("x", 1<<20),
		"multibyte": strings.Repeat("ä", MaxName),
		"mangled":   "_Z" + strings.Repeat("9", 1<<20),
		"bomb":      bomb,
		"rust bomb": "_RNvMC" + strings.Repeat("B_", 3000),
	} {
		t.Run(name, func(t *testing.T) {
			e := testELF{class: elf.ELFCLASS64, order: kinds[0].order, machine: elf.EM_X86_64,
				text: []span{{0x1000, 0x2000}}, syms: []testSym{fn(in, 0x1100, 0x10)}}
			got, ok := e.open(Options{}).Lookup(0x1104)
			if !ok || len(got.Name) > MaxName || got.Name == "" {
				t.Errorf("name of %d bytes, %v; want 1 to %d", len(got.Name), ok, MaxName)
			}
			if strings.HasSuffix(strings.TrimSuffix(got.Name, "…"), "\xc3") {
				t.Error("cut inside a character")
			}
		})
	}
}

// Segments give at each address the range that began last and has not ended.
func TestSegments(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		type r struct{ start, end uint64 }
		var list []r
		start := uint64(0)
		for range 30 {
			start += rnd.Uint64N(10)
			list = append(list, r{start, start + 1 + rnd.Uint64N(60)})
		}
		var s segments
		for i, x := range list {
			s.begin(x.start, x.end, int32(i))
		}
		s.finish()
		for addr := range uint64(400) {
			want := int32(none)
			for i, x := range list {
				if addr >= x.start && addr < x.end {
					want = int32(i)
				}
			}
			got := int32(none)
			for i, a := range s.start {
				if a <= addr {
					got = s.id[i]
				}
			}
			if got != want {
				t.Fatalf("at %d of %v: range %d, want %d", addr, list, got, want)
			}
		}
	}
}

// The buckets lead to the segment that a search through all of them finds.
func TestFindThroughBuckets(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	for range 50 {
		var tab table
		addr := rnd.Uint64N(1 << 40)
		for i := range 1 + rnd.IntN(300) {
			tab.syms = append(tab.syms, entry{start: addr, size: 1})
			tab.segs.piece(addr, int32(i))
			addr += 1 + rnd.Uint64N(2)<<rnd.IntN(30)
			if rnd.IntN(4) == 0 {
				addr += rnd.Uint64N(1 << 32)
			}
		}
		tab.index()
		for range 500 {
			at := tab.base + rnd.Uint64N(addr-tab.base+100)
			want := int32(none)
			for i, a := range tab.segs.start {
				if a <= at {
					want = tab.segs.id[i]
				}
			}
			if got, _ := tab.find(at); got != want {
				t.Fatalf("find(%#x) = %d, want %d", at, got, want)
			}
		}
	}
}
