package main

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ulikunitz/xz"
	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/ptrace/procfs"
)

// program is a program that blocks in a known stack, to be changed before it is
// run.
type program struct {
	t *testing.T
	b []byte
	f *elf.File
}

func deep(t *testing.T) *program {
	t.Helper()
	b, err := os.ReadFile(testprog.Committed(t, runtime.GOARCH, "ehframe", "deep"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	return &program{t, slices.Clone(b), f}
}

// section finds a section and its header in the file.
func (p *program) section(name string) (s *elf.Section, header []byte) {
	p.t.Helper()
	i := slices.IndexFunc(p.f.Sections, func(s *elf.Section) bool { return s.Name == name })
	if i < 0 {
		p.t.Fatalf("no section %s", name)
	}
	const size = 64 // Elf64_Shdr
	start := p.f.ByteOrder.Uint64(p.b[40:]) + uint64(i)*size
	return p.f.Sections[i], p.b[start : start+size]
}

// strip takes away the symbol table, and nothing else.
func (p *program) strip() *program {
	p.t.Helper()
	_, h := p.section(".symtab")
	p.f.ByteOrder.PutUint32(h[4:], uint32(elf.SHT_PROGBITS))
	return p
}

// rename gives functions other names.
func (p *program) rename(names map[string]string) *program {
	p.t.Helper()
	syms, err := p.f.Symbols()
	if err != nil {
		p.t.Fatal(err)
	}
	str, header := p.section(".strtab")
	table, err := str.Data()
	if err != nil {
		p.t.Fatal(err)
	}
	symtab, _ := p.section(".symtab")
	const size = 24 // Elf64_Sym
	for i, s := range syms {
		if name, ok := names[s.Name]; ok {
			entry := p.b[symtab.Offset+uint64(i+1)*size:] // Symbols leaves out the first
			p.f.ByteOrder.PutUint32(entry, uint32(len(table)))
			table = append(append(table, name...), 0)
		}
	}
	p.f.ByteOrder.PutUint64(header[24:], uint64(len(p.b)))
	p.f.ByteOrder.PutUint64(header[32:], uint64(len(table)))
	p.b = append(p.b, table...)
	return p
}

// miniDebug puts a .gnu_debugdata in the place of the symbol table.
func (p *program) miniDebug(data []byte) *program {
	p.t.Helper()
	names, _ := p.section(".shstrtab")
	list, err := names.Data()
	if err != nil {
		p.t.Fatal(err)
	}
	put := func(section string, b []byte) (header []byte) {
		at := len(p.b)
		p.b = append(p.b, b...)
		_, header = p.section(section)
		p.f.ByteOrder.PutUint64(header[24:], uint64(at))
		p.f.ByteOrder.PutUint64(header[32:], uint64(len(b)))
		return header
	}
	put(".shstrtab", append(slices.Clone(list), ".gnu_debugdata\x00"...))
	h := put(".symtab", data)
	p.f.ByteOrder.PutUint32(h, uint32(len(list)))
	p.f.ByteOrder.PutUint32(h[4:], uint32(elf.SHT_PROGBITS))
	return p
}

func (p *program) buildID() string {
	p.t.Helper()
	s, _ := p.section(".note.gnu.build-id")
	b, err := s.Data()
	if err != nil {
		p.t.Fatal(err)
	}
	return fmt.Sprintf("%x", b[16:])
}

// write puts the program at path, in place of what is there.
func (p *program) write(path string) {
	p.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path+".new", p.b, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		p.t.Fatal(err)
	}
}

var dumpFrame = regexp.MustCompile(`(?m)^#\d+ 0x[0-9a-f]+ (.*)\+0x[0-9a-f]+ \(`)

// dumped are the functions of processes' stacks, as dump tells them, once it has
// all n of them: a busy machine may let a thread stop too late for it.
func dumped(t *testing.T, n int, pids ...int) (functions []string, text string) {
	t.Helper()
	args := []string{"dump", "--group=false", "--stop", "always"}
	for _, pid := range pids {
		args = append(args, "-p", strconv.Itoa(pid))
	}
	eventually(t, fmt.Sprintf("a dump with %d frames", n), func() bool {
		o := sfsample(t, args...)
		o.want(t, exitDone)
		functions, text = nil, o.stdout
		for _, m := range dumpFrame.FindAllStringSubmatch(o.stdout, -1) {
			functions = append(functions, m[1])
		}
		return len(functions) == n
	})
	return functions, text
}

// wantStack fails the test if the process's stack is not the one that it told.
func wantStack(t *testing.T, p *testprog.Proc) {
	t.Helper()
	if got, text := dumped(t, len(p.Stack), p.PID); !slices.Equal(got, p.Stack) {
		t.Errorf("stack %q, want %q:\n%s", got, p.Stack, text)
	}
}

// TestDumpTellsOfBounds: that symbols were not expanded, as they are too large, is in the dump's text and JSON.
func TestDumpTellsOfBounds(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("an emulated processor does not expand 64 MB in the time that a dump has")
	}
	var bomb bytes.Buffer
	w, err := xz.WriterConfig{DictCap: 1 << 20}.NewWriter(&bomb)
	if err != nil {
		t.Fatal(err)
	}
	zeros := make([]byte, 1<<20)
	for range 65 {
		if _, err := w.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	const told = "compressed sections are not expanded to more than 64 MB in memory"
	path := filepath.Join(t.TempDir(), "deep")
	deep(t).miniDebug(bomb.Bytes()).write(path)
	p := testprog.Start(t, path)
	pid := strconv.Itoa(p.PID)
	o := sfsample(t, "dump", "--stop", "always", "-v", "-p", pid)
	if want := "not known: some names or lines are missing, as " + told; !strings.Contains(o.stdout, want) {
		t.Errorf("the text lacks %q:\n%s%s", want, o.stdout, o.stderr)
	}
	o = sfsample(t, "dump", "--stop", "always", "--json", "-p", pid)
	var d jsonDump
	if err := json.Unmarshal([]byte(o.stdout), &d); err != nil || len(d.Missing) != 1 || !strings.Contains(d.Missing[0], told) {
		t.Errorf("%v: missing %q, want %q", err, d.Missing, told)
	}
}

var decoy = map[string]string{"main": "decoy", "plain": "decoy", "wide": "decoy", "saver": "decoy", "flex": "decoy", "block": "decoy"}

// TestReplacedProgram: the names are those of the program that runs, whatever
// its path names by now.
func TestReplacedProgram(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep")
	start := func(t *testing.T) *testprog.Proc {
		deep(t).write(path)
		return testprog.Start(t, path, "b", "7")
	}
	t.Run("deleted", func(t *testing.T) {
		p := start(t)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		wantStack(t, p)
	})
	t.Run("replaced", func(t *testing.T) {
		p := start(t)
		deep(t).rename(decoy).write(path)
		wantStack(t, p)
		// The new one has names of its own.
		q := testprog.Start(t, path, "b", "7")
		if got, text := dumped(t, len(q.Stack), q.PID); !slices.Contains(got, "decoy") || slices.Contains(got, "plain") {
			t.Errorf("stack %q, want the new program's:\n%s", got, text)
		}
		wantStack(t, p)
	})
}

// pivotName is argv[0] of this program as one that enters a root of its own and
// becomes another program there.
const pivotName = "sfsample-pivot"

// privateMounts keeps what is mounted from now on to this mount namespace. In a
// chroot whose root is a plain folder mount(2) refuses that; nothing has to be
// done then if no mount is shared.
func privateMounts() error {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	if err == unix.EINVAL {
		if b, rerr := os.ReadFile("/proc/self/mountinfo"); rerr == nil && !strings.Contains(string(b), " shared:") {
			return nil
		}
	}
	return err
}

// pivot makes args[0] its root and becomes args[1].
func pivot(args []string) {
	check := func(what string, err error) {
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
			os.Exit(1)
		}
	}
	check("make mounts private", privateMounts())
	check("bind the root", unix.Mount(args[0], args[0], "", unix.MS_BIND, ""))
	check("change the folder", unix.Chdir(args[0]))
	switch err := unix.PivotRoot(".", "."); err {
	case nil:
		check("leave the old root", unix.Unmount(".", unix.MNT_DETACH))
	case unix.EINVAL: // pivot_root(2): ours is the initial ramfs, as in guests
		check("chroot", unix.Chroot("."))
	default:
		check("pivot_root", err)
	}
	check("execute", syscall.Exec(args[1], args[1:], nil))
}

// inRoot starts a program in mount and pid namespaces of its own, with root as
// its root.
func inRoot(t *testing.T, root string, args ...string) *testprog.Proc {
	t.Helper()
	cmd := &exec.Cmd{Path: self, Args: append([]string{pivotName, root}, args...)}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	return testprog.StartCmd(t, cmd)
}

// needNamespaces skips a test where no root can be made for a process.
func needNamespaces(t *testing.T) {
	t.Helper()
	cmd := &exec.Cmd{Path: self, Args: []string{targetName, "exit"}}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	if err := cmd.Run(); err != nil {
		t.Skip("no namespaces can be made here")
	}
}

func debugPath(root, id string) string {
	return filepath.Join(root, "usr/lib/debug/.build-id", id[:2], id[2:]+".debug")
}

// TestOwnRoot samples processes that have other files than we: the names come
// from theirs.
func TestOwnRoot(t *testing.T) {
	needNamespaces(t)
	t.Run("symbols", func(t *testing.T) {
		root := t.TempDir()
		deep(t).write(filepath.Join(root, "bin/deep"))
		wantStack(t, inRoot(t, root, "/bin/deep", "b", "7"))
	})
	t.Run("replaced", func(t *testing.T) {
		root := t.TempDir()
		path := filepath.Join(root, "bin/deep")
		deep(t).write(path)
		p := inRoot(t, root, "/bin/deep", "b", "7")
		deep(t).rename(decoy).write(path)
		wantStack(t, p)
	})
	t.Run("debug file", func(t *testing.T) {
		root := t.TempDir()
		stripped := deep(t).strip()
		stripped.write(filepath.Join(root, "bin/deep"))
		deep(t).write(debugPath(root, stripped.buildID()))
		wantStack(t, inRoot(t, root, "/bin/deep", "b", "7"))
	})
	t.Run("each its own", func(t *testing.T) {
		// Two containers with the same program; one has put a debug file there
		// that lies.
		var roots [2]string
		for i := range roots {
			roots[i] = t.TempDir()
			stripped := deep(t).strip()
			stripped.write(filepath.Join(roots[i], "bin/deep"))
			debug := deep(t)
			if i == 0 {
				debug.rename(decoy)
			}
			debug.write(debugPath(roots[i], stripped.buildID()))
		}
		// The same inode, so that nothing but the root tells them apart.
		if err := os.Remove(filepath.Join(roots[0], "bin/deep")); err != nil {
			t.Fatal(err)
		}
		if err := os.Link(filepath.Join(roots[1], "bin/deep"), filepath.Join(roots[0], "bin/deep")); err != nil {
			t.Fatal(err)
		}
		liar, p := inRoot(t, roots[0], "/bin/deep", "b", "7"), inRoot(t, roots[1], "/bin/deep", "b", "7")
		got, text := dumped(t, len(liar.Stack)+len(p.Stack), liar.PID, p.PID)
		lies := len(liar.Stack) - 1 // all but _start
		if n := strings.Count(text, " decoy+"); n != lies || !slices.Equal(got[len(liar.Stack):], p.Stack) {
			t.Errorf("%d frames are named by the debug file of the first process, want %d:\n%s", n, lies, text)
		}
	})
	t.Run("broken debug file", func(t *testing.T) {
		whole := deep(t)
		for name, b := range map[string][]byte{
			"empty": nil, "text": []byte("no ELF file at all, but long enough to hold the header of one, and more than that"),
			"cut": whole.b[:len(whole.b)/2], "headers": append(slices.Clone(whole.b[:64]), bytes.Repeat([]byte{0xff}, len(whole.b))...),
		} {
			t.Run(name, func(t *testing.T) {
				root := t.TempDir()
				stripped := deep(t).strip()
				stripped.write(filepath.Join(root, "bin/deep"))
				broken := program{t: t, b: b}
				broken.write(debugPath(root, stripped.buildID()))
				p := inRoot(t, root, "/bin/deep", "b", "7")
				if got, text := dumped(t, len(p.Stack), p.PID); slices.Contains(got, "plain") {
					t.Errorf("stack %q, want frames without names:\n%s", got, text)
				}
			})
		}
	})
}

// hostile names are function names that a target may have.
var hostile = map[string]string{
	"plain": "\x1b[31mred\x1b]0;title\x07",
	"wide":  "two\nlines;and;frames 17",
	"saver": strings.Repeat("x", 1<<20),
	"flex":  "\xff\xfe\u202e\u009b1m<script>",
}

// control are characters that a terminal or a reader of lines could obey.
var control = regexp.MustCompile("[\x00-\x09\x0b-\x1f\x7f\u0080-\u009f]")

// TestHostileNames: whatever names a target has, the output keeps its form and
// its size.
func TestHostileNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "deep")
	deep(t).rename(hostile).write(path)
	p := testprog.Start(t, path, "b", "7")
	if _, text := dumped(t, len(p.Stack), p.PID); control.MatchString(text) || len(text) > 64<<10 {
		t.Errorf("%d bytes, control characters %q:\n%.4000q", len(text), control.FindString(text), text)
	}
	dir := t.TempDir()
	out := func(format string) string { return filepath.Join(dir, format) }
	args := []string{"-p", strconv.Itoa(p.PID), "--threads", "all", "--stop", "always", "-d", "300ms"}
	formats := []string{"folded", "perf", "json", "svg", "firefox"}
	for _, f := range formats {
		args = append(args, "-o", f+"="+out(f))
	}
	want := len(p.Stack) + 1 // and the process
	eventually(t, "whole stacks", func() bool {
		o := sfsample(t, args...)
		o.want(t, exitDone)
		b, err := os.ReadFile(out("folded"))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		return slices.ContainsFunc(lines, func(l string) bool { return strings.Count(l, ";")+1 == want })
	})
	for _, f := range formats {
		b, err := os.ReadFile(out(f))
		if err != nil {
			t.Fatal(err)
		}
		// Tabs are our own: perf's before each frame, svg's in its script. No name
		// has any here.
		if m := control.Find(bytes.ReplaceAll(b, []byte("\t"), nil)); m != nil {
			t.Errorf("%s has the control character %q", f, m)
		}
		if len(b) == 0 || len(b) > 1<<20 {
			t.Errorf("%s has %d bytes", f, len(b))
		}
		if f == "svg" && bytes.Contains(b, []byte("<script>two")) {
			t.Errorf("%s has markup of the target", f)
		}
	}
	b, err := os.ReadFile(out("folded"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		line = strings.Replace(line, ";[waiting for a CPU] ", " ", 1)
		if n := strings.Count(line, ";") + 1; n > want {
			t.Errorf("a line with %d frames, want at most %d: %.1000q", n, want, line)
		}
		if _, weight, ok := strings.Cut(line[strings.LastIndexByte(line, ';')+1:], " "); !ok || strings.Trim(weight, "0123456789\n") != "" {
			t.Errorf("a line that does not end in a number: %.1000q", line)
		}
	}
}

// endless is machine code that jumps to itself.
var endless = map[string][]byte{
	"amd64": {0xeb, 0xfe},
	"arm64": {0, 0, 0, 0x14},
	"s390x": {0xa7, 0xf4, 0, 0},
}

// jit is a target that runs code that no file holds, and says so in its perf
// map, which is of the given kind.
func jit(kind string) {
	check := func(what string, err error) {
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
			os.Exit(1)
		}
	}
	check("make mounts private", privateMounts())
	check("mount", unix.Mount("none", "/tmp", "tmpfs", 0, ""))
	code, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	check("map", err)
	copy(code, endless[runtime.GOARCH])
	check("protect", unix.Mprotect(code, unix.PROT_READ|unix.PROT_EXEC))
	start := codeAddr(code)
	name := fmt.Sprintf("/tmp/perf-%d.map", os.Getpid())
	line := fmt.Sprintf("%x %x made by a compiler\n", start, len(code))
	switch kind {
	case "fifo":
		check("make a FIFO", unix.Mkfifo(name, 0o666))
	case "link":
		// Out of the root, if it is followed in ours; there is no such file in
		// the target's.
		check("link", os.Symlink("/proc/"+strconv.Itoa(os.Getppid())+"/status", name))
	case "names":
		line = fmt.Sprintf("%x %x \x1b[31m;%s\n", start, len(code), strings.Repeat("y", 1<<20))
		fallthrough
	case "plain":
		check("write the map", os.WriteFile(name, []byte(line), 0o666))
	case "sparse":
		f, err := os.Create(name)
		check("create the map", err)
		check("make the map large", f.Truncate(1<<30))
		_, err = f.WriteAt([]byte("\n"+line), 1<<20)
		check("write the map", err)
		check("close the map", f.Close())
	}
	fmt.Println("ready")
	runCode(start)
}

// TestPerfMap samples a process with code of a JIT compiler, in a pid and a mount
// namespace: its map bears the number that it has there.
func TestPerfMap(t *testing.T) {
	needNamespaces(t)
	for kind, want := range map[string]string{
		"plain": "made by a compiler", "names": `\x1b[31m:yyyyyyyyyyyy`, "fifo": "[anon]+0x", "link": "[anon]+0x", "sparse": "made by a compiler",
	} {
		t.Run(kind, func(t *testing.T) {
			if kind == "sparse" && long() == 1 {
				t.Skip("a map of 1 GB is read in long runs only")
			}
			cmd := &exec.Cmd{Path: self, Args: []string{targetName, "jit", kind}}
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
			p := startProc(t, cmd)
			s, err := (procfs.FS{}).Status(p.pid)
			if err != nil || len(s.NSpid) != 2 || s.NSpid[1] != 1 {
				t.Fatalf("ids %v in the namespaces, want two, the second 1 (%v)", s.NSpid, err)
			}
			// A busy machine may let it run late.
			eventually(t, "the code is seen", func() bool {
				r := begin(t, tool("-p", strconv.Itoa(p.pid), "-d", "300ms"))
				o := r.end(t)
				o.want(t, exitDone)
				if control.MatchString(o.stdout) || len(o.stdout) > 1<<20 {
					t.Fatalf("control characters or %d bytes: %.1000q", len(o.stdout), o.stdout)
				}
				if rss := r.cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss; rss > 256<<10 && !raceEnabled {
					t.Fatalf("%d KiB of memory", rss)
				} else if strings.Contains(o.stdout, want) {
					t.Logf("%d KiB of memory", rss)
				}
				return strings.Contains(o.stdout, want)
			})
		})
	}
}
