package module

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/arch/x86/x86asm"
	"sfsample/ptrace/procfs"

	"sfsample/regs"
	"sfsample/sframe"
	"sfsample/sframe/ehframe"
	"sfsample/unwind"
)

// goPrograms builds Go programs with .debug_frame, by architecture.
func goPrograms(t *testing.T) map[string]string {
	t.Helper()
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("no go command on this machine")
	}
	dir := t.TempDir()
	src := filepath.Join(dir, "main.go")
	if err := os.WriteFile(src, []byte("package main\n\nfunc main() { println() }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	list := map[string]string{}
	for _, arch := range []string{"amd64", "arm64", "s390x"} {
		list[arch] = filepath.Join(dir, arch)
		cmd := exec.Command("go", "build", "-o", list[arch], src)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOARCH="+arch, "GOFLAGS=", "GO111MODULE=off", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go build for %s: %v\n%s", arch, err, out)
		}
	}
	return list
}

// fromELF is a process that has the file at path mapped.
func fromELF(t *testing.T, path string) (*process, *elf.File) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	p := &process{files: map[uint64][]byte{5: b}}
	for _, s := range f.Progs {
		if s.Type == elf.PT_LOAD {
			perms := procfs.Read
			if s.Flags&elf.PF_W != 0 {
				perms |= procfs.Write
			}
			if s.Flags&elf.PF_X != 0 {
				perms |= procfs.Exec
			}
			skew := s.Vaddr % pageBytes
			size := min((s.Filesz+skew+pageBytes-1)&^(pageBytes-1), uint64(len(b))-(s.Off-skew))
			p.mapAt(s.Vaddr-skew, perms, b, s.Off-skew, size, 5, path)
		}
	}
	return p, f
}

// TestGoRows holds the rows made of Go's table of functions against those that
// Go's linker wrote to .debug_frame, for each instruction of each function.
func TestGoRows(t *testing.T) {
	step := map[string]uint64{"amd64": 1, "arm64": 4, "s390x": 2}
	for arch, path := range goPrograms(t) {
		t.Run(arch, func(t *testing.T) {
			p, f := fromELF(t, path)
			truth, err := ehframe.OpenDebugFrame(f)
			if err != nil {
				t.Fatal(err)
			}
			syms, err := f.Symbols()
			if err != nil {
				t.Fatal(err)
			}
			s := NewSpace(p, NewCache(0), Options{})
			a := map[string]*regs.Arch{"amd64": regs.AMD64, "arm64": regs.ARM64, "s390x": regs.S390X}[arch]
			rows, seen := 0, map[string]bool{}
			for _, sym := range syms {
				if elf.ST_TYPE(sym.Info) != elf.STT_FUNC || sym.Size == 0 {
					continue
				}
				for pc := sym.Value; pc < sym.Value+sym.Size-1; pc += step[arch] {
					e, err := truth.Find(pc)
					if err != nil {
						break // C code
					}
					row, err := s.Row(pc, unwind.EHFrame)
					if errors.Is(err, errSwitch) || row == &lost || err == nil && row.Outermost && !e.Row.Outermost {
						seen[sym.Name] = true
						break
					}
					if err != nil {
						t.Fatalf("%#x in %s: %v", pc, sym.Name, err)
					}
					rows++
					if e.Row.Outermost != row.Outermost && sym.Name == goSignalEntry+string(abi0) {
						continue
					}
					if e.Row.Outermost != row.Outermost || !row.Outermost && (row.CFA != e.Row.CFA || row.RA != e.Row.RA || spOf(a, row) != spOf(a, &e.Row)) {
						t.Fatalf("%#x in %s: row %+v, the linker's %+v", pc, sym.Name, *row, e.Row)
					}
				}
			}
			if problems := problemsOf(s); len(problems) > 0 {
				t.Error(problems)
			}
			if rows < 100_000 {
				t.Errorf("%d addresses compared, want more", rows)
			}
			for _, name := range []string{"runtime.mcall", "runtime.systemstack.abi0", "runtime.morestack.abi0"} {
				if !seen[name] {
					t.Errorf("%s has a row, though it changes stacks", name)
				}
			}
			t.Logf("%d addresses, no rows in %d functions: %s", rows, len(seen), slices.Sorted(maps.Keys(seen)))
		})
	}
}

// TestGoEnds: what nothing returns through ends a stack, wherever its table says that
// the caller is. A goroutine returns to the second instruction of runtime.goexit
// (runtime/proc.go, newproc1).
func TestGoEnds(t *testing.T) {
	for arch, path := range goPrograms(t) {
		t.Run(arch, func(t *testing.T) {
			p, f := fromELF(t, path)
			list, err := f.Symbols()
			if err != nil {
				t.Fatal(err)
			}
			syms := map[string]elf.Symbol{}
			for _, s := range list {
				syms[strings.TrimSuffix(s.Name, string(abi0))] = s
			}
			code := func(pc uint64) []byte {
				b := make([]byte, 16)
				p.ReadAt(b, int64(pc))
				return b
			}
			s := NewSpace(p, NewCache(0), Options{})
			check := func(what string, pc uint64, want bool) {
				t.Helper()
				row, err := s.Row(pc, unwind.EHFrame)
				if got := err == nil && row.Outermost; got != want || s.Entry(pc) != want {
					t.Errorf("%s at %#x: outermost %v (%v), an entry %v, want %v", what, pc, got, err, s.Entry(pc), want)
				}
			}
			check("goexit", syms["runtime.goexit"].Value+map[string]uint64{"amd64": 1, "arm64": 4, "s390x": 2}[arch]-1, true)
			for caller, callee := range map[string]string{
				"runtime.goexit": "runtime.goexit1", "runtime.morestack": "runtime.newstack",
			} {
				from, to := syms[caller], syms[callee].Value
				next := uint64(0)
				for pc := from.Value; pc < from.Value+from.Size && next == 0; pc++ {
					next = afterCallTo(arch, code(pc), pc, to)
				}
				if next == 0 {
					t.Fatalf("no call of %s in %s", callee, caller)
				}
				check(caller, next-1, true)
			}
			check("morestack, as it is called", syms["runtime.morestack"].Value, false)
			for _, name := range []string{"runtime.mcall", "runtime.morestack"} {
				if arch == "amd64" {
					for pc, over := syms[name].Value, false; ; {
						insn, err := x86asm.Decode(code(pc), 64)
						if err != nil {
							t.Fatalf("%s at %#x: %v", name, pc, err)
						}
						if check(name, pc, over); insn.Op == x86asm.CALL && over {
							break
						}
						if to := x86asm.RSP; insn.Op == x86asm.MOV && insn.Args[0] == to {
							over = true
						}
						pc += uint64(insn.Len)
					}
				}
			}
		})
	}
}

// afterCallTo is where a call at pc with code b comes back to, 0 unless it is one of
// the function at to: call rel32 (Intel SDM), bl (Arm ARM C6.2), brasl %r14
// (z/Architecture Principles of Operation).
func afterCallTo(arch string, b []byte, pc, to uint64) uint64 {
	size, target := uint64(0), uint64(0)
	switch {
	case arch == "amd64" && b[0] == 0xe8:
		size = 5
		target = pc + size + uint64(int32(binary.LittleEndian.Uint32(b[1:])))
	case arch == "arm64" && pc%4 == 0 && b[3]>>2 == 0x25:
		size = 4
		target = pc + uint64(int32(binary.LittleEndian.Uint32(b)<<6)>>4)
	case arch == "s390x" && pc%2 == 0 && b[0] == 0xc0 && b[1] == 0xe5:
		size = 6
		target = pc + 2*uint64(int32(binary.BigEndian.Uint32(b[2:])))
	}
	if size == 0 || target != to {
		return 0
	}
	return pc + size
}

// spOf is the rule of the caller's stack pointer.
func spOf(a *regs.Arch, row *sframe.Row) sframe.Rule {
	for _, s := range row.Saved {
		if s.Reg == a.SP {
			return s.Rule
		}
	}
	return sframe.Rule{Base: sframe.FromCFA, Offset: int32(a.SPOffset)}
}

// TestGoInjected: behind functions that a signal handler lets look as if they were called lies what the signal has interrupted, on x86-64.
func TestGoInjected(t *testing.T) {
	for arch, path := range goPrograms(t) {
		p, f := fromELF(t, path)
		syms, err := f.Symbols()
		if err != nil {
			t.Fatal(err)
		}
		s, seen := NewSpace(p, NewCache(0), Options{}), 0
		for _, sym := range syms {
			if elf.ST_TYPE(sym.Info) != elf.STT_FUNC || sym.Size == 0 {
				continue
			}
			is := arch == "amd64" && slices.Contains(injected, strings.TrimSuffix(sym.Name, string(abi0)))
			row, err := s.Row(sym.Value, unwind.EHFrame)
			if is {
				seen++
			}
			if err == nil && row.Signal != is || err != nil && is {
				t.Errorf("%s %s: row %+v, %v; want one behind which a frame was interrupted: %t", arch, sym.Name, row, err, is)
			}
		}
		if arch == "amd64" && seen < 2 {
			t.Errorf("only %d such functions", seen)
		}
	}
}
