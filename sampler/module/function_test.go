package module

import (
	"debug/elf"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sfsample/internal/testprog"
	"sfsample/regs"
)

// compiled is the space of a program of C, and what its symbols are.
func compiled(t *testing.T, flags []string, source string) (*Space, []elf.Symbol) {
	t.Helper()
	p, f := fromELF(t, testprog.Compile(t, flags, source))
	s := NewSpace(p, NewCache(0), Options{})
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	return s, syms
}

// TestFunctionsAreTheSymbols: the tables of a program, without its symbols, tell
// the same functions as the symbols do, and whose piece .cold code is.
func TestFunctionsAreTheSymbols(t *testing.T) {
	s, syms := compiled(t, []string{"-O2"}, "pieces.c")
	places := map[string]uint64{}
	for _, sym := range syms {
		places[sym.Name] = sym.Value
	}
	functions, pieces := 0, 0
	for _, sym := range syms {
		if elf.ST_TYPE(sym.Info) != elf.STT_FUNC || sym.Size == 0 || sym.Section == elf.SHN_UNDEF {
			continue
		}
		want := Function{sym.Value, sym.Value}
		if of, cold := strings.CutSuffix(sym.Name, ".cold"); cold {
			want.Start = places[of]
			pieces++
		}
		for _, pc := range []uint64{sym.Value, sym.Value + sym.Size/2, sym.Value + sym.Size - 1} {
			if got, ok := s.Function(pc); !ok || got != want {
				t.Errorf("%s: Function(%#x) = %#x, %v, want %#x", sym.Name, pc, got, ok, want)
			}
		}
		functions++
	}
	if functions < 6 || pieces < 3 {
		t.Errorf("%d functions and %d pieces were looked at, want 6 and 3 at least", functions, pieces)
	}
	if got, ok := s.Function(places["_init"]); ok {
		t.Errorf("Function of _init, which no table covers, is %#x", got)
	}
}

// TestBeginsAreTheSymbols: the code of programs without tables tells where functions begin, or nothing, for most of their addresses, and
// never one that is not the symbols'.
func TestBeginsAreTheSymbols(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the code is x86-64")
	}
	found, asked := 0, 0
	for _, source := range []string{"pieces.c", "crowd.c", "pool.c", "ends.c", "stuck.c", "unfilled.c"} {
		for _, flag := range []string{"-O2", "-Os"} {
			s, syms := compiled(t, []string{flag, "-pthread", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"}, source)
			for _, sym := range syms {
				if elf.ST_TYPE(sym.Info) != elf.STT_FUNC || sym.Size == 0 || strings.HasSuffix(sym.Name, ".cold") {
					continue
				}
				m, bias, ok := s.Module(sym.Value)
				if !ok || bias != sym.Value {
					t.Fatalf("%s: no module, or at another address", sym.Name)
				}
				for pc := sym.Value; pc < sym.Value+sym.Size; pc += 32 {
					if _, covered := s.Function(pc); covered {
						continue // of the C library
					}
					asked++
					if got, ok := Begins(m, pc); ok && got == sym.Value {
						found++
					} else if ok && got-sym.Value >= sym.Size {
						t.Errorf("%s, %s: %s: Begins(%#x) = %#x, want %#x", source, flag, sym.Name, pc, got, sym.Value)
					}
				}
			}
		}
	}
	t.Logf("%d of %d found", found, asked)
	if asked < 100 || found*3 < asked {
		t.Errorf("%d of %d addresses have their function's start, want a third of 100 at least: those that never return have none", found, asked)
	}
}

// TestHopeless: code that has not told any of the first addresses is not asked for ever.
func TestHopeless(t *testing.T) {
	for _, tt := range []struct {
		asked, told int
		want        bool
	}{{0, 0, false}, {31, 0, false}, {32, 0, true}, {32, 3, true}, {32, 4, false}, {1000, 124, true}, {1000, 125, false}} {
		if k := (&knownStarts{asked: tt.asked, told: tt.told}); k.hopeless() != tt.want {
			t.Errorf("%d of %d: hopeless is %t", tt.told, tt.asked, !tt.want)
		}
	}
}

// TestJumpsTo asks code at 0x1000 for jumps to 0x1008 from elsewhere. What it holds is told as
// objdump does.
func TestJumpsTo(t *testing.T) {
	tests := map[string]struct {
		arch *regs.Arch
		code []byte
		want []jump
	}{
		// jmp near; nop; jcc near: je, jg; the target is 0x1008.
		"x86-64": {regs.AMD64, []byte{
			0xe9, 0x03, 0, 0, 0, 0x90, 0x90, 0x90,
			0x0f, 0x84, 0xfa, 0xff, 0xff, 0xff,
			0x0f, 0x8f, 0xf4, 0xff, 0xff, 0xff,
			0xe8, 0xef, 0xff, 0xff, 0xff, // call 0x1008: no jump
			0xe9, 0, 0, 0, 0, // elsewhere
		}, []jump{{0x1000, 0x1008}, {0x100e, 0x1008}}},
		// b 0x1008; b.eq 0x1008; nop; cbz x0, 0x1008; tbnz w1, #3, 0x1008; bl 0x1008; b 0x1018
		"arm64": {regs.ARM64, []byte{
			0x02, 0, 0, 0x14, 0x20, 0, 0, 0x54, 0x1f, 0x20, 0x03, 0xd5,
			0xe0, 0xff, 0xff, 0xb4, 0xc1, 0xff, 0x1f, 0x37, 0xfd, 0xff, 0xff, 0x97, 0, 0, 0, 0x14,
		}, []jump{{0x1000, 0x1008}, {0x1004, 0x1008}, {0x100c, 0x1008}, {0x1010, 0x1008}}},
		// j 0x1008; jne 0x1008; jg 0x1008; jghe 0x1008; brasl %r14,0x1008; j 0x101a
		"s390x": {regs.S390X, []byte{
			0xa7, 0xf4, 0, 4, 0xa7, 0x74, 0, 2, 0xc0, 0xf4, 0, 0, 0, 0,
			0xc0, 0xa4, 0xff, 0xff, 0xff, 0xfd, 0xc0, 0xe5, 0xff, 0xff, 0xff, 0xfa, 0xa7, 0xf4, 0, 0,
		}, []jump{{0x1000, 0x1008}, {0x1004, 0x1008}, {0x100e, 0x1008}}},
	}
	for name, test := range tests {
		if got := jumpsTo(test.arch, test.code, 0x1000, 0x1008, 0x1009); !slices.Equal(got, test.want) {
			t.Errorf("%s: %#x, want %#x", name, got, test.want)
		}
	}
}
