package module

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
	"sfsample/sframe"
	"sfsample/unwind"
)

// TestMain turns the test program into the target of a test if it is told to.
func TestMain(m *testing.M) {
	switch os.Getenv("MODULE_TARGET") {
	case "":
		os.Exit(m.Run())
	case "wait":
		say("waiting")
	case "exec":
		say("before exec")
		os.Setenv("MODULE_TARGET", "wait")
		err := syscall.Exec("/proc/self/exe", []string{"other"}, os.Environ())
		fmt.Println(err)
	case "leader-exits":
		runtime.LockOSThread() // to the first thread: TestMain runs there
		go say("leader gone")
		syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
	}
}

// say prints a line and waits for one, or for the end of the input.
func say(line string) {
	fmt.Println(line)
	bufio.NewReader(os.Stdin).ReadString('\n')
}

func init() {
	if os.Getenv("MODULE_TARGET") == "leader-exits" {
		runtime.LockOSThread()
	}
}

// target is a child process that does what it is told.
type target struct {
	pid int
	in  io.WriteCloser
	out *bufio.Reader
}

// start starts program path with the environment variable MODULE_TARGET, and
// waits for its first line.
func start(t *testing.T, path, mode string, args ...string) *target {
	t.Helper()
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "MODULE_TARGET="+mode)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	tg := &target{cmd.Process.Pid, in, bufio.NewReader(out)}
	tg.line(t)
	return tg
}

func (tg *target) line(t *testing.T) string {
	t.Helper()
	s, err := tg.out.ReadString('\n')
	if err != nil {
		t.Fatalf("target said %q, %v", s, err)
	}
	return strings.TrimSpace(s)
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// liveSpace is a Space of a process with a cache of its own.
func liveSpace(t *testing.T, pid int) *Space {
	t.Helper()
	l := NewLive(pid, nil)
	s := NewSpace(l, NewCache(0), Options{Owner: l.Owner()})
	t.Cleanup(s.Close)
	return s
}

// TestOwnCode finds the test program among the modules of its own process.
func TestOwnCode(t *testing.T) {
	s := liveSpace(t, os.Getpid())
	pc := uint64(reflect.ValueOf(TestOwnCode).Pointer())
	if !s.Executable(pc) {
		t.Fatalf("%#x is not executable", pc)
	}
	m, vaddr, ok := s.Module(pc)
	if !ok {
		t.Fatalf("%#x is in no module", pc)
	}
	if m.Path != self(t) || m.Bias+vaddr != pc || m.VDSO() {
		t.Errorf("module %q, bias %#x, address %#x; want %q and a sum of %#x", m.Path, m.Bias, vaddr, self(t), pc)
	}
	if data := uint64(reflect.ValueOf(new(int)).Pointer()); s.Executable(data) {
		t.Errorf("heap at %#x is executable", data)
	}
	// Go's entry point, and what begins there.
	entry := m.obj.mem.hdr.entry + m.Bias
	if !s.Entry(entry) || s.Entry(pc) {
		t.Errorf("Entry(%#x) = %v, Entry(%#x) = %v; want true, false", entry, s.Entry(entry), pc, s.Entry(pc))
	}
	var code, want [16]byte
	if n := s.Code(pc, code[:]); n != len(code) {
		t.Errorf("Code(%#x) = %d bytes, want %d", pc, n, len(code))
	}
	if _, err := s.access.src.ReadAt(want[:], int64(pc)); err != nil || code != want {
		t.Errorf("Code(%#x) = % x, memory has % x (%v)", pc, code, want, err)
	}
}

// TestVDSO asks for rows of every address of the vDSO's functions: they come
// from memory, no file has them. Its image is a whole ELF file.
func TestVDSO(t *testing.T) {
	s := liveSpace(t, os.Getpid())
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Modules() {
		if !m.VDSO() {
			continue
		}
		f, err := m.OpenFile()
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := elf.NewFile(f); err != nil {
			t.Errorf("image of the vDSO: %v", err)
		}
		if m.obj.mem.hdr.ehHdr.size == 0 {
			t.Skip("the vDSO of this kernel has no .eh_frame")
		}
		rows := 0
		for pc := m.Maps[0].Start; pc < m.Maps[0].End; pc++ {
			if _, err := s.Row(pc, unwind.EHFrame); err == nil {
				rows++
			}
		}
		if rows == 0 || !s.VDSO(m.Maps[0].Start) {
			t.Errorf("%d rows in the vDSO", rows)
		}
		return
	}
	t.Skip("no vDSO in this process")
}

// place is a piece of this process's address space in which images are mapped
// as a dynamic linker would.
type place struct {
	t    *testing.T
	addr uintptr
}

func newPlace(t *testing.T) *place {
	t.Helper()
	p, err := unix.MmapPtr(-1, 0, nil, imgEnd, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.MunmapPtr(p, imgEnd) })
	return &place{t, uintptr(p)}
}

// load maps the loadable segments of the file at path, an image like im.
func (p *place) load(im image, path string) {
	p.t.Helper()
	f, err := os.Open(path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	p.unload()
	for _, s := range im.progs() {
		if s.typ != elf.PT_LOAD {
			continue
		}
		prot := unix.PROT_READ
		if s.flags&elf.PF_X != 0 {
			prot |= unix.PROT_EXEC
		}
		at := p.pointer(uintptr(s.off))
		if _, err := unix.MmapPtr(int(f.Fd()), int64(s.off), at, uintptr(s.size+0xfff)&^0xfff, prot, unix.MAP_PRIVATE|unix.MAP_FIXED); err != nil {
			p.t.Skipf("cannot map code of a file here: %v", err) // noexec
		}
	}
}

// unload takes the mappings away, the place stays reserved.
func (p *place) unload() {
	p.t.Helper()
	if _, err := unix.MmapPtr(-1, 0, p.pointer(0), imgEnd, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) pointer(off uintptr) unsafe.Pointer {
	addr := p.addr + off
	return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) // memory that Go does not manage
}

func (p *place) code() uint64 { return uint64(p.addr) + imgText + 0x10 }

func needPages(t *testing.T) {
	t.Helper()
	if os.Getpagesize() > imgText {
		t.Skip("images of this test are laid out for pages of 4 KiB")
	}
}

func write(t *testing.T, path string, im image) {
	t.Helper()
	if err := os.WriteFile(path, im.bytes(), 0o755); err != nil {
		t.Fatal(err)
	}
}

// TestLiveReload: a library is loaded, deleted, unloaded, and another takes its
// place, in this very process.
func TestLiveReload(t *testing.T) {
	needPages(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "plugin.so")
	old := image{buildID: "11111111", cfa: 8, sframe: 3, noSFPhdr: true, sections: true}
	next := image{buildID: "22222222", cfa: 16, sframe: 3, sections: true}
	s, p := liveSpace(t, os.Getpid()), newPlace(t)
	check := func(when string, im image) {
		t.Helper()
		a, b := cfaOf(s.Row(p.code(), unwind.SFrame)), cfaOf(s.Row(p.code(), unwind.EHFrame))
		if a != fmt.Sprint(int(im.cfa)+100) || b != fmt.Sprint(im.cfa) {
			t.Errorf("%s: rows %s, %s; want %d, %d", when, a, b, int(im.cfa)+100, im.cfa)
		}
	}
	write(t, path, old)
	p.load(old, path)
	check("loaded", old)
	m, _, _ := s.Module(p.code())
	f, err := m.OpenFile()
	if err != nil {
		t.Fatal(err)
	}
	f.Close()

	// The name goes to another file while the old one is mapped: rows and
	// symbols stay those of the old one.
	write(t, path+".new", next)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	check("replaced on disk", old)
	m, _, _ = s.Module(p.code())
	if !m.Maps[0].Deleted || m.Path != path {
		t.Errorf("module %q, deleted %v; want %q, true", m.Path, m.Maps[0].Deleted, path)
	}
	// Without the right to use map_files the file cannot be had; the wrong one
	// must not come instead.
	f, err = m.OpenFile()
	if err == nil {
		if id, _ := m.obj.mem.hdr.buildID(f, true); id != m.BuildID {
			t.Errorf("opened the file with build-id %s, want %s", id, m.BuildID)
		}
		f.Close()
	} else if os.Geteuid() == 0 && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, unix.EPERM) {
		t.Logf("not opened: %v", err)
	}

	p.unload()
	p.load(next, path)
	if changed, err := s.Verify(); !changed || err != nil {
		t.Errorf("Verify = %v, %v after another took its place", changed, err)
	}
	check("another in its place", next)

	p.unload()
	if changed, err := s.Verify(); !changed || err != nil || s.Executable(p.code()) {
		t.Errorf("Verify = %v, %v; Executable = %v after unloading", changed, err, s.Executable(p.code()))
	}
}

// TestLiveLoadStorm: an address that is used by one library after another; no
// row is ever that of one before.
func TestLiveLoadStorm(t *testing.T) {
	needPages(t)
	dir := t.TempDir()
	var images []image
	for i := range 8 {
		im := image{cfa: int8(i), sframe: 2 + i%2}
		if i%3 > 0 {
			im.buildID = fmt.Sprintf("%08d", i)
		}
		images = append(images, im)
		write(t, filepath.Join(dir, fmt.Sprint(i)), im)
	}
	s, p := liveSpace(t, os.Getpid()), newPlace(t)
	for n := range 200 {
		i := n * 5 % len(images)
		p.load(images[i], filepath.Join(dir, fmt.Sprint(i)))
		if changed, err := s.Verify(); err != nil || n > 0 && !changed {
			t.Fatalf("Verify = %v, %v", changed, err)
		}
		if got := cfaOf(s.Row(p.code(), unwind.SFrame)); got != fmt.Sprint(100+i) {
			t.Fatalf("load %d: row %s, want %d", n, got, 100+i)
		}
	}
	if n := s.cache.Bytes(); n > 1<<20 {
		t.Errorf("the cache holds %d bytes", n)
	}
}

// TestExec: another program in the same process, the same file here. A space is of one
// program: it stays what it was, and another one shows what there is now.
func TestExec(t *testing.T) {
	tg := start(t, self(t), "exec")
	s := liveSpace(t, tg.pid)
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	before := s.Mappings()
	fmt.Fprintln(tg.in)
	tg.line(t)
	if err := s.Refresh(); !errors.Is(err, unix.ESRCH) {
		t.Errorf("Refresh after exec: %v, want that there is no such process", err)
	}
	if _, err := s.access.src.ReadAt(make([]byte, 8), int64(s.Modules()[0].Bias)); !errors.Is(err, unix.ESRCH) {
		t.Errorf("a read after exec: %v, want that there is no such process", err)
	}
	if !reflect.DeepEqual(before, s.Mappings()) {
		t.Error("the mappings have changed with the exec")
	}
	next := liveSpace(t, tg.pid)
	if err := next.Refresh(); err != nil {
		t.Fatal(err)
	}
	if reflect.DeepEqual(before, next.Mappings()) {
		t.Error("the mappings are as before exec")
	}
	for _, m := range next.Modules() {
		if !m.VDSO() && m.Path != self(t) {
			continue
		}
		f, err := m.OpenFile()
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		f.Close()
	}
}

// TestLeaderExits: the process is read through a thread that lives.
func TestLeaderExits(t *testing.T) {
	tg := start(t, self(t), "leader-exits")
	for { // the exit of the first thread is not told to anybody
		st, err := procfs.FS{}.Stat(tg.pid)
		if err != nil {
			t.Fatal(err)
		}
		if st.State == 'Z' {
			break
		}
		runtime.Gosched()
	}
	s := liveSpace(t, tg.pid)
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Modules() {
		if m.Path != self(t) {
			continue
		}
		if _, err := s.Row(m.Bias+m.obj.mem.hdr.entry, unwind.EHFrame); err != nil && !errors.Is(err, sframe.ErrNoRow) {
			t.Errorf("row: %v", err)
		}
		f, err := m.OpenFile()
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		return
	}
	t.Errorf("%s is not among the modules", self(t))
}

// TestGone: a process that has ended.
func TestGone(t *testing.T) {
	tg := start(t, self(t), "wait")
	s := liveSpace(t, tg.pid)
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	pc := s.mapped.code.list[0].start
	if err := syscall.Kill(tg.pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(tg.out); err != nil { // its end closes the pipe
		t.Fatal(err)
	}
	for s.Refresh() == nil {
		runtime.Gosched()
	}
	if n := s.Code(pc, make([]byte, 8)); n != 0 {
		t.Errorf("%d bytes of code of a process that has ended", n)
	}
	s.Row(pc, unwind.EHFrame)
	if len(problemsOf(s)) != 0 {
		t.Errorf("problems: %v", problemsOf(s))
	}
}

// TestPython looks at a large program of the distribution: every object with
// code is found, and each has rows for nearly all of its code.
func TestPython(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 on this machine")
	}
	tg := start(t, python, "", "-c", "import ctypes, sys; print(1, flush=True); sys.stdin.read()")
	s := liveSpace(t, tg.pid)
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, m := range s.Modules() {
		found[m.Path] = true
		f, err := m.OpenFile()
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		defer f.Close()
		if m.VDSO() {
			continue
		}
		e, err := elf.NewFile(f)
		if err != nil {
			t.Errorf("%s: %v", m.Path, err)
			continue
		}
		checkRows(t, s, m, e)
	}
	for _, r := range s.Mappings() {
		if r.Perms&procfs.Exec != 0 && r.File() && !found[r.Path] {
			t.Errorf("%v is of no module", r)
		}
	}
	if len(problemsOf(s)) != 0 {
		t.Errorf("problems: %v", problemsOf(s))
	}
}

// checkRows compares memory with the file's sections, and counts rows in .text.
func checkRows(t *testing.T, s *Space, m *Module, e *elf.File) {
	t.Helper()
	text := e.Section(".text")
	if text == nil || text.Size < 64 {
		return
	}
	want, got := make([]byte, 64), make([]byte, 64)
	if _, err := text.ReadAt(want, int64(text.Size/2)); err != nil {
		t.Fatal(err)
	}
	mid := m.Bias + text.Addr + text.Size/2
	if n := s.Code(mid, got); n != 64 || !bytes.Equal(got, want) {
		t.Errorf("%s: code at %#x is % x, the file has % x", m.Path, mid, got[:n], want)
	}
	if frame := e.Section(".eh_frame"); frame == nil || frame.Size < 1000 {
		return
	}
	rows, asked := 0, 0
	for off := uint64(0); off < text.Size; off += 997 {
		asked++
		if _, err := s.Row(m.Bias+text.Addr+off, unwind.EHFrame); err == nil {
			rows++
		}
	}
	if rows*10 < asked*8 {
		t.Errorf("%s: %d rows at %d addresses of .text", m.Path, rows, asked)
	}
}

// BenchmarkLive is what a look at this process costs: reading its mappings
// anew, and Verify of the objects in use.
func BenchmarkLive(b *testing.B) {
	s := NewSpace(NewLive(os.Getpid(), nil), NewCache(0), Options{})
	if err := s.Refresh(); err != nil {
		b.Fatal(err)
	}
	for _, m := range s.Modules() {
		s.Row(m.Bias+m.obj.mem.hdr.entry, unwind.EHFrame)
	}
	b.Run("refresh", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Refresh()
		}
	})
	b.Run(fmt.Sprintf("verify/modules=%d", len(s.Modules())), func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s.Verify()
		}
	})
}
