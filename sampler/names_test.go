package sampler

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"sfsample/internal/testprog"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/module"
)

// fileSource is a process that has mapped one program and nothing else.
type fileSource struct {
	path string
	maps []procfs.Mapping
}

func newFileSource(t testing.TB, path string) *fileSource {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := &fileSource{path: path}
	const page = 0x1000
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || p.Filesz == 0 {
			continue
		}
		m := procfs.Mapping{
			Start: p.Vaddr &^ (page - 1), End: (p.Vaddr + p.Filesz + page - 1) &^ (page - 1), Offset: p.Off &^ (page - 1),
			Perms: procfs.Read, Dev: procfs.Dev{Major: 8}, Inode: 1, Path: path,
		}
		if p.Flags&elf.PF_X != 0 {
			m.Perms |= procfs.Exec
		}
		if p.Flags&elf.PF_W != 0 {
			m.Perms |= procfs.Write
		}
		s.maps = append(s.maps, m)
	}
	return s
}

func (s *fileSource) Maps() ([]procfs.Mapping, error) { return s.maps, nil }

func (s *fileSource) ReadAt(p []byte, addr int64) (int, error) {
	f, err := os.Open(s.path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for _, m := range s.maps {
		if uint64(addr) >= m.Start && uint64(addr) < m.End {
			return readTail(f, p, int64(m.Offset+uint64(addr)-m.Start))
		}
	}
	return 0, errors.New("not mapped")
}

func (s *fileSource) OpenFile(procfs.Mapping) (module.File, error) { return openRegular(s.path) }

// symbolAddr is the address of a function of a program.
func symbolAddr(t testing.TB, path, name string) uint64 {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(syms, func(s elf.Symbol) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("%s has no function %s", path, name)
	}
	return syms[i].Value
}

// oneFrame is a stack of process p in the innermost instruction at addr.
func oneFrame(t testing.TB, p *processNames, path string, addr uint64) *stack {
	t.Helper()
	space := module.NewSpace(newFileSource(t, path), module.NewCache(0), module.Options{})
	if err := space.Refresh(); err != nil {
		t.Fatal(err)
	}
	m, vaddr, ok := space.Module(addr)
	if !ok {
		t.Fatalf("no module of %s at %#x", path, addr)
	}
	return &stack{process: p, frames: []*rawFrame{{frameKey: frameKey{pc: addr}, lookup: addr, module: m, vaddr: vaddr}}}
}

// spinnersProg is a program with one function for each of its threads.
func spinnersProg(t testing.TB) string {
	t.Helper()
	return testprog.Committed(t, runtime.GOARCH, "ehframe", "spinners")
}

// TestForgedBuildID names frames of two files with one build-id: the second must
// not be named by the first, whoever was seen first.
func TestForgedBuildID(t *testing.T) {
	path := spinnersProg(t)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	forged := filepath.Join(t.TempDir(), "spinners")
	if err := os.WriteFile(forged, bytes.ReplaceAll(b, []byte("spin_7\x00"), []byte("evil_7\x00")), 0o700); err != nil {
		t.Fatal(err)
	}
	addr := symbolAddr(t, path, "spin_7")
	files := map[string]string{path: "spin_7", forged: "evil_7"}
	for _, order := range [][]string{{path, forged}, {forged, path}} {
		n := NewNames(NameOptions{})
		p, q := n.process(os.Getpid()), n.process(os.Getpid())
		for i, file := range order {
			s := oneFrame(t, []*processNames{p, q}[i], file, addr+1)
			if id := s.frames[0].module.BuildID; id == "" {
				t.Fatalf("%s has no build-id", file)
			}
			if got := n.stack(s).Frames[0].Func; got != files[file] {
				t.Errorf("file %d: function %q, want %q", i, got, files[file])
			}
		}
	}
	// The same under one path, as when a program is replaced while it runs.
	n := NewNames(NameOptions{})
	same := filepath.Join(t.TempDir(), "spinners")
	for _, file := range []string{path, forged} {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(same+".new", b, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(same+".new", same); err != nil {
			t.Fatal(err)
		}
		if got := n.stack(oneFrame(t, n.process(os.Getpid()), same, addr)).Frames[0].Func; got != files[file] {
			t.Errorf("replaced: function %q, want %q", got, files[file])
		}
	}
}

// withoutSymbols is a copy of a 64-bit program whose symbol table is taken for
// something else.
func withoutSymbols(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	const shoff, shentsize, shType = 40, 64, 4 // Elf64_Ehdr, Elf64_Shdr
	for i, s := range f.Sections {
		if s.Type == elf.SHT_SYMTAB {
			f.ByteOrder.PutUint32(b[f.ByteOrder.Uint64(b[shoff:])+uint64(i)*shentsize+shType:], uint32(elf.SHT_PROGBITS))
		}
	}
	out := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(out, b, 0o700); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestNameless: what has no symbol is named by where its function begins, all of
// its addresses alike.
func TestNameless(t *testing.T) {
	path := spinnersProg(t)
	stripped := withoutSymbols(t, path)
	start := symbolAddr(t, path, "spin_7")
	want := fmt.Sprintf("spinners:fn_%08x", start)
	n := NewNames(NameOptions{})
	p := n.process(os.Getpid())
	space := module.NewSpace(newFileSource(t, stripped), module.NewCache(0), module.Options{})
	if err := space.Refresh(); err != nil {
		t.Fatal(err)
	}
	tg := &target{space: space, names: p, met: newMet()}
	for _, pc := range []uint64{start, start + 8} {
		f := n.frames(p, tg.frame(n, frameKey{pc: pc}))[0]
		if f.Func != want || f.Offset != pc-start || f.Module != "spinners" || f.PC != pc {
			t.Errorf("%#x: %+v, want function %q", pc, f, want)
		}
	}
	if got := n.Nameless(); len(got) != 1 || got[stripped] != 2 {
		t.Errorf("named so were %v, want 2 of %s", got, stripped)
	}
	// No table covers the ELF header.
	if f := n.frames(p, tg.frame(n, frameKey{pc: space.Mappings()[0].Start}))[0]; f.Func != "" {
		t.Errorf("outside of all functions: function %q", f.Func)
	}
}

// TestNamelessByCode: what has neither a symbol nor a table is named so too, if its code tells where it begins.
func TestNamelessByCode(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the code is x86-64")
	}
	path := testprog.Compile(t, []string{"-O2", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"}, "pieces.c")
	start := symbolAddr(t, path, "first")
	n := NewNames(NameOptions{})
	p := n.process(os.Getpid())
	space := module.NewSpace(newFileSource(t, withoutSymbols(t, path)), module.NewCache(0), module.Options{})
	if err := space.Refresh(); err != nil {
		t.Fatal(err)
	}
	tg := &target{space: space, names: p, met: newMet()}
	want := fmt.Sprintf("%s:fn_%08x", filepath.Base(path), start)
	if f := n.frames(p, tg.frame(n, frameKey{pc: start}))[0]; f.Func != want {
		t.Errorf("%+v, want function %q", f, want)
	}
}

// TestNamesAreShared: what many processes map is opened and kept once, and
// closed when they are gone and others were seen since.
func TestNamesAreShared(t *testing.T) {
	path := spinnersProg(t)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	addr := symbolAddr(t, path, "spin_7")
	n := NewNames(NameOptions{})
	var list []*processNames
	for range 10 {
		p := n.process(os.Getpid())
		list = append(list, p)
		if got := n.stack(oneFrame(t, p, path, addr)).Frames[0].Func; got != "spin_7" {
			t.Fatalf("function %q, want spin_7", got)
		}
	}
	if k := n.used.order.Len(); k != 1 {
		t.Errorf("%d objects for one file in 10 processes, want 1", k)
	}
	for _, p := range list {
		n.forget(p)
	}
	dir := t.TempDir()
	before := openFiles(t)
	for i := range 3 * maxIdleObjects {
		file := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(file, b, 0o700); err != nil {
			t.Fatal(err)
		}
		p := n.process(os.Getpid())
		if got := n.stack(oneFrame(t, p, file, addr)).Frames[0].Func; got != "spin_7" {
			t.Fatalf("function %q, want spin_7", got)
		}
		n.forget(p)
	}
	if k := n.used.order.Len(); k > maxIdleObjects {
		t.Errorf("%d objects that nobody maps are open, want at most %d", k, maxIdleObjects)
	}
	if more := openFiles(t) - before; more > maxIdleObjects+8 {
		t.Errorf("%d files more are open than before, want at most %d", more, maxIdleObjects)
	}
	if len(n.views) != 0 {
		t.Errorf("%d roots of processes that are gone are open", len(n.views))
	}
}

func openFiles(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestManyObjects: one process may map any number of files; those that were not
// used for longest are closed and, asked for again, opened again.
func TestManyObjects(t *testing.T) {
	path := spinnersProg(t)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	addr := symbolAddr(t, path, "spin_7")
	n := NewNames(NameOptions{})
	p := n.process(os.Getpid())
	dir := t.TempDir()
	var first *stack
	for i := range maxObjects + 10 {
		file := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(file, b, 0o700); err != nil {
			t.Fatal(err)
		}
		s := oneFrame(t, p, file, addr)
		if i == 0 {
			first = s
		}
		if got := n.stack(s).Frames[0].Func; got != "spin_7" {
			t.Fatalf("function %q of object %d, want spin_7", got, i)
		}
	}
	if k := n.used.order.Len(); k != maxObjects {
		t.Errorf("%d objects are open, want %d", k, maxObjects)
	}
	first.named = nil
	if got := n.stack(first).Frames[0].Func; got != "spin_7" {
		t.Errorf("function %q of an object that was closed, want spin_7", got)
	}
}

// TestRecordedNames: a recorded process is not the one that has its number now.
func TestRecordedNames(t *testing.T) {
	n := NewNames(NameOptions{Recorded: true})
	p := n.process(os.Getpid())
	if p.view != n.own || len(n.views) > 0 {
		t.Error("a process of a recording was looked at")
	}
	if missing := strings.Join(n.Missing(), "\n"); missing != "" {
		t.Errorf("modules without names: %s", missing)
	}
}

// TestOwnStop: a stop of ours is not shown as work of the target.
func TestOwnStop(t *testing.T) {
	for text, want := range map[string]bool{
		"[<0>] ptrace_stop.part.0+0x1a2/0x2e0\n[<0>] ptrace_do_notify+0x98/0xc0\n[<0>] get_signal+0x4fb/0x930\n": true,
		"[<0>] ptrace_stop+0x1a2/0x2e0\n[<0>] ptrace_do_notify+0x98/0xc0\n":                                      true,
		"[<0>] hrtimer_nanosleep+0xc7/0x1b0\n":                                                                   false,
		"clock_nanosleep":                                                                                        false, "": false,
	} {
		if got := ownStop([]byte(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestVDSOUnread: the vDSO of a process that has ended before it was looked into is one name, wherever it lay.
func TestVDSOUnread(t *testing.T) {
	f := (*processNames)(nil).jitFrame(&rawFrame{frameKey: frameKey{pc: 0x7f010}, region: "[vdso]", regionStart: 0x7f000})
	if f.Func != "[vdso]" || f.Offset != 0x10 {
		t.Errorf("%+v", f)
	}
	if f := (*processNames)(nil).jitFrame(&rawFrame{frameKey: frameKey{pc: 0x7f010}, region: "[anon]", regionStart: 0x7f000}); f.Func != "" || f.Offset != 0x7f000 {
		t.Errorf("%+v", f)
	}
}
