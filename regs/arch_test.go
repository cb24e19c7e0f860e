package regs

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/go-delve/delve/pkg/dwarf/regnum"
)

// TestRegNames holds the names against those of Delve, and for s390x, which it
// does not know, against the table of the s390x ELF ABI supplement (DWARF
// register number mapping; binutils/dwarf.c, dwarf_regnames_s390, agrees).
func TestRegNames(t *testing.T) {
	s390x := strings.Fields("r0 r1 r2 r3 r4 r5 r6 r7 r8 r9 r10 r11 r12 r13 r14 r15 " +
		"f0 f2 f4 f6 f1 f3 f5 f7 f8 f10 f12 f14 f9 f11 f13 f15")
	for _, tt := range []struct {
		arch *Arch
		n    int // numbers with a name
		name func(uint64) string
	}{
		{AMD64, 16, regnum.AMD64ToName},
		{I386, 8, regnum.I386ToName},
		{ARM64, 32, regnum.ARM64ToName},
		{ARM64BE, 32, regnum.ARM64ToName},
		{S390X, 32, func(n uint64) string { return s390x[n] }},
	} {
		for n := range tt.n {
			if got, want := tt.arch.RegName(uint8(n)), strings.ToLower(tt.name(uint64(n))); got != want {
				t.Errorf("%s: register %d is %q, want %q", tt.arch.Name, n, got, want)
			}
		}
		if got := tt.arch.RegName(uint8(tt.n)); got != fmt.Sprintf("r%d", tt.n) {
			t.Errorf("%s: number %d, which is none, is %q", tt.arch.Name, tt.n, got)
		}
	}
}

// TestArch holds each architecture against its ABI (named in arch.go), by the
// names of registers.
func TestArch(t *testing.T) {
	for _, tt := range []struct {
		arch       *Arch
		sp, fp, ra string
		saved      string // registers that a called function leaves as they were
		args       string // of a system call: syscall(2), the table of conventions
		word       int
		big, link  bool
		spOffset   int64
	}{
		{arch: AMD64, sp: "rsp", fp: "rbp", ra: "r16",
			saved: "rbx rbp r12 r13 r14 r15", args: "rdi rsi rdx r10 r8 r9", word: 8},
		{arch: I386, sp: "esp", fp: "ebp", ra: "r8",
			saved: "ebx ebp esi edi", args: "ebx ecx edx esi edi ebp", word: 4},
		{arch: ARM64, sp: "sp", fp: "x29", ra: "x30", link: true,
			saved: "x19 x20 x21 x22 x23 x24 x25 x26 x27 x28 x29", args: "x0 x1 x2 x3 x4 x5", word: 8},
		{arch: ARM64BE, sp: "sp", fp: "x29", ra: "x30", link: true, big: true,
			saved: "x19 x20 x21 x22 x23 x24 x25 x26 x27 x28 x29", args: "x0 x1 x2 x3 x4 x5", word: 8},
		{arch: S390X, sp: "r15", fp: "r11", ra: "r14", link: true, big: true, spOffset: -160,
			saved: "r6 r7 r8 r9 r10 r11 r12 r13 f8 f9 f10 f11 f12 f13 f14 f15", args: "r2 r3 r4 r5 r6 r7", word: 8},
	} {
		t.Run(tt.arch.Name, func(t *testing.T) {
			a := tt.arch
			if sp, fp, ra := a.RegName(a.SP), a.RegName(a.FP), a.RegName(a.RA); sp != tt.sp || fp != tt.fp || ra != tt.ra {
				t.Errorf("sp, fp, ra are %s, %s, %s; want %s, %s, %s", sp, fp, ra, tt.sp, tt.fp, tt.ra)
			}
			var saved, args []string
			for n := range uint8(NumRegs) {
				if a.CalleeSaved>>n&1 != 0 {
					saved = append(saved, a.RegName(n))
				}
			}
			want := strings.Fields(tt.saved)
			slices.Sort(saved)
			slices.Sort(want)
			if !slices.Equal(saved, want) {
				t.Errorf("callee-saved: %v, want %v", saved, want)
			}
			for _, n := range a.CallArgs {
				args = append(args, a.RegName(n))
			}
			if got := strings.Join(args, " "); got != tt.args {
				t.Errorf("arguments of a system call: %s, want %s", got, tt.args)
			}
			if a.WordBytes != tt.word || a.BigEndian != tt.big || (a.Order == binary.BigEndian) != tt.big ||
				a.Link != tt.link || a.SPOffset != tt.spOffset || a.PACMask != 0 {
				t.Errorf("got %+v, want %+v", a, tt)
			}
		})
	}
}

// TestWord: bytes 1 to 8 in each order and width, with more behind them.
func TestWord(t *testing.T) {
	b := []byte{1, 2, 3, 4, 5, 6, 7, 8, 9}
	for a, want := range map[*Arch]uint64{
		AMD64: 0x0807060504030201, ARM64: 0x0807060504030201, I386: 0x04030201,
		S390X: 0x0102030405060708, ARM64BE: 0x0102030405060708,
	} {
		if got := a.Word(b); got != want {
			t.Errorf("%s: %#x, want %#x", a.Name, got, want)
		}
	}
}

func TestByELF(t *testing.T) {
	type header struct {
		machine elf.Machine
		class   elf.Class
		data    elf.Data
	}
	known := map[header]*Arch{
		{elf.EM_X86_64, elf.ELFCLASS64, elf.ELFDATA2LSB}:  AMD64,
		{elf.EM_386, elf.ELFCLASS32, elf.ELFDATA2LSB}:     I386,
		{elf.EM_AARCH64, elf.ELFCLASS64, elf.ELFDATA2LSB}: ARM64,
		{elf.EM_AARCH64, elf.ELFCLASS64, elf.ELFDATA2MSB}: ARM64BE,
		{elf.EM_S390, elf.ELFCLASS64, elf.ELFDATA2MSB}:    S390X,
	}
	for _, m := range []elf.Machine{elf.EM_X86_64, elf.EM_386, elf.EM_AARCH64, elf.EM_S390, elf.EM_RISCV, elf.EM_ARM} {
		for _, c := range []elf.Class{elf.ELFCLASSNONE, elf.ELFCLASS32, elf.ELFCLASS64} {
			for _, d := range []elf.Data{elf.ELFDATANONE, elf.ELFDATA2LSB, elf.ELFDATA2MSB} {
				got, err := ByELF(m, c, d)
				want := known[header{m, c, d}]
				if got != want || (err == nil) != (want != nil) {
					t.Errorf("%v %v %v: %v, %v; want %v", m, c, d, got, err, want)
				}
				if err != nil && !strings.Contains(err.Error(), m.String()) {
					t.Errorf("the error does not name %v: %v", m, err)
				}
			}
		}
	}
}

func TestByName(t *testing.T) {
	for name, want := range map[string]*Arch{
		"amd64": AMD64, "386": I386, "arm64": ARM64, "s390x": S390X, "riscv64": nil, "": nil,
	} {
		if got := ByName(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}

func TestWithPAC(t *testing.T) {
	a := ARM64.WithPAC(0x7f << 48)
	if a.PACMask != 0x7f<<48 || a.Name != "arm64" || ARM64.PACMask != 0 {
		t.Errorf("the copy has %#x, the original %#x", a.PACMask, ARM64.PACMask)
	}
}

// TestSet: a register is known once it is set, and numbers without room are
// ignored.
func TestSet(t *testing.T) {
	var s Set
	for _, n := range []uint8{0, 1, 31} {
		if v, ok := s.Reg(n); v != 0 || ok {
			t.Errorf("register %d of an empty set: %d, %v", n, v, ok)
		}
		s.SetReg(n, 100+uint64(n))
		if v, ok := s.Reg(n); v != 100+uint64(n) || !ok {
			t.Errorf("register %d: %d, %v", n, v, ok)
		}
	}
	if s.Known != 1<<31|3 {
		t.Errorf("known %#x", s.Known)
	}
	before := s
	for _, n := range []uint8{32, 33, 255} {
		s.SetReg(n, 1)
		if _, ok := s.Reg(n); ok || s != before {
			t.Errorf("number %d has room", n)
		}
	}
	s.R[7] = 5
	if v, ok := s.Reg(7); v != 0 || ok {
		t.Errorf("what an unknown register holds is told: %d, %v", v, ok)
	}
}
