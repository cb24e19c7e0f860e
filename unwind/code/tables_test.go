package code

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"sfsample/regs"
	"sfsample/sframe"
	"sfsample/sframe/ehframe"
)

// program is a file whose code is read by link-time address.
type program struct {
	arch  *regs.Arch
	table *ehframe.Table
	text  []*elf.Prog
	data  [][]byte
}

// openProgram opens a file, nil if it has no .eh_frame or is not there.
func openProgram(t testing.TB, path string) *program {
	t.Helper()
	f, err := elf.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	p := &program{}
	if p.arch, err = regs.ByELF(f.Machine, f.Class, f.Data); err != nil {
		t.Fatal(err)
	}
	if p.table, err = ehframe.OpenELF(f); err != nil {
		return nil
	}
	for _, s := range f.Progs {
		if s.Type == elf.PT_LOAD && s.Flags&elf.PF_X != 0 {
			b := make([]byte, s.Filesz)
			if _, err := s.ReadAt(b, 0); err != nil {
				t.Fatal(err)
			}
			p.text, p.data = append(p.text, s), append(p.data, b)
		}
	}
	return p
}

func (p *program) read(addr uint64, b []byte) int {
	for i, s := range p.text {
		if addr >= s.Vaddr && addr < s.Vaddr+s.Filesz {
			return copy(b, p.data[i][addr-s.Vaddr:])
		}
	}
	return 0
}

func (p *program) ends(addr uint64) bool {
	e, err := p.table.Find(addr - 1)
	return err == nil && e.FuncEnd == addr
}

// verdicts counts answers.
type verdicts struct {
	same, other, none, wrong int
	why                      map[string]int
}

// judge compares an answer with the row of the table.
func (p *program) judge(v *verdicts, place Place, want *sframe.Row) string {
	got, err := Follow(p.arch, place, p.read)
	if err != nil {
		v.none++
		for _, e := range []error{ErrNoReturn, ErrDisagree, ErrTooFar} {
			if errors.Is(err, e) {
				v.why[e.Error()]++
			}
		}
		return ""
	}
	if got.CFA.Base == sframe.FromExpr && want.CFA.Base == sframe.FromReg {
		// s390x: r15 is loaded from where the ABI has it saved.
		if slices.Equal(got.Exprs[0], loadPlus(value{loaded, p.arch.SP, int64(want.CFA.Offset) - 40}, 160)) {
			got = &sframe.Row{CFA: want.CFA, RA: want.RA}
		}
	}
	if got.CFA.Base != sframe.FromReg || got.CFA.Reg != want.CFA.Reg || want.CFA.Base != sframe.FromReg {
		v.other++ // one by the frame pointer, the other by the stack pointer
		return ""
	}
	// The register may have been loaded again already, of which the table need
	// not tell.
	inRegister := p.arch.Link && got.RA == sframe.Rule{} && !place.Caller
	if got.CFA != want.CFA || got.RA != want.RA && !inRegister {
		v.wrong++
		return fmt.Sprintf("%#x: cfa %+v ra %+v, the table has %+v, %+v", place.PC, got.CFA, got.RA, want.CFA, want.RA)
	}
	v.same++
	return ""
}

// sweep asks for every instruction of every stride-th function, both as one that
// is executed and, behind calls, as the place of return. bad tells of the first
// that are wrong.
func (p *program) sweep(stride int) (v verdicts, bad []string) {
	v.why = map[string]int{}
	n := 0
	note := func(s string) {
		if s != "" && len(bad) < 20 {
			bad = append(bad, s)
		}
	}
	m := machines[p.arch.Name]
	for fn, err := range p.table.Funcs() {
		if n++; err != nil || n%stride != 0 {
			continue
		}
		if last, err := p.table.Row(fn.End - 1); err == nil && last.CFA.Base == sframe.FromExpr {
			continue // a PLT: behind its first push, only the resolver knows the way
		}
		var b [32]byte
		padding := false // nothing comes here
		for pc := fn.Start; pc < fn.End; {
			k := p.read(pc, b[:])
			var s state
			in := m.step(b[:k], pc, &s)
			if in.size == 0 {
				break
			}
			padding = padding && isNop(p.arch, b[:k])
			if want, err := p.table.Row(pc); err == nil && !want.Outermost && !want.Signal && !padding {
				note(p.judge(&v, Place{PC: pc, Ends: p.ends}, want))
			}
			if next := pc + uint64(in.size); in.flow == call && next < fn.End {
				if want, err := p.table.Row(next); err == nil && !want.Outermost && !want.Signal {
					note(p.judge(&v, Place{PC: next, Caller: true, Ends: p.ends}, want))
				}
			}
			pc += uint64(in.size)
			padding = padding || in.flow == ret || in.flow == jump || in.flow == stop
		}
	}
	return v, bad
}

// isNop tells instructions that compilers fill gaps with, by their first byte or
// two: nop, data16 nopw, xchg %ax,%ax; nop; bcr 0,0.
func isNop(a *regs.Arch, b []byte) bool {
	switch a {
	case regs.ARM64:
		return len(b) >= 4 && a.Order.Uint32(b) == 0xd503201f
	case regs.S390X:
		return b[0] == 0x07 && b[1]>>4 == 0
	}
	// lea 0(%esi,%eiz,1),%esi and lea 0(%esi),%esi
	if a == regs.I386 && b[0] == 0x8d && (b[1] == 0x74 || b[1] == 0xb4 || b[1] == 0x76 || b[1] == 0xb6) {
		return true
	}
	return b[0] == 0x90 || b[0] == 0x66 || b[0] == 0x2e || b[0] == 0x0f && b[1] == 0x1f
}

func (v verdicts) String() string {
	var why []string
	for w, n := range v.why {
		why = append(why, fmt.Sprintf("%d %s", n, w))
	}
	sort.Strings(why)
	return fmt.Sprintf("%d the same, %d by another register, %d none (%s), %d wrong", v.same, v.other, v.none, strings.Join(why, ", "), v.wrong)
}

// TestTables holds what the code says against what compilers wrote to .eh_frame,
// for the test programs of all architectures and for every 50th function of the
// machine's C library, in which some hand-written functions have wrong tables.
func TestTables(t *testing.T) {
	ours, err := filepath.Glob("../../testdata/bin/*/*/*")
	if err != nil || len(ours) == 0 {
		t.Fatal("no test programs", err)
	}
	same := map[string]int{}
	for _, f := range ours {
		t.Run(strings.TrimPrefix(f, "../../testdata/bin/"), func(t *testing.T) {
			p := openProgram(t, f)
			if p == nil {
				return
			}
			v, list := p.sweep(1)
			for _, bad := range list {
				t.Error(bad)
			}
			t.Log(v)
			same[p.arch.Name] += v.same
		})
	}
	for _, a := range machines {
		if same[a.arch.Name] < 200 {
			t.Errorf("%s: %d answers were compared, want 200 at least", a.arch.Name, same[a.arch.Name])
		}
	}
	for _, f := range []string{"/usr/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/aarch64-linux-gnu/libc.so.6",
		"/usr/lib/s390x-linux-gnu/libc.so.6", "/usr/lib32/libc.so.6"} {
		p := openProgram(t, f)
		if p == nil {
			continue
		}
		t.Run(f, func(t *testing.T) {
			v, list := p.sweep(50)
			t.Log(v)
			if v.same < 1000 || 200*v.wrong > v.same {
				t.Errorf("%v: %v", v, list)
			}
		})
	}
}
