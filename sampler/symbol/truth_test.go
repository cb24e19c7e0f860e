package symbol

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sfsample/sampler/symbol/rootfs"
)

// randomText returns n addresses in the executable sections of a file, the same
// ones each time.
func randomText(t testing.TB, name string, n int) []uint64 {
	t.Helper()
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var text []*elf.Section
	total := uint64(0)
	for _, s := range f.Sections {
		if s.Flags&elf.SHF_EXECINSTR != 0 && s.Type == elf.SHT_PROGBITS {
			text = append(text, s)
			total += s.Size
		}
	}
	if total == 0 {
		t.Fatalf("%s has no executable sections", name)
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	addrs := make([]uint64, n)
	for i := range addrs {
		at := rnd.Uint64N(total)
		for _, s := range text {
			if at < s.Size {
				addrs[i] = s.Addr + at
				break
			}
			at -= s.Size
		}
	}
	return addrs
}

// aliases returns all names that start where name starts, from the symbol
// tables of the given files.
func aliases(t testing.TB, files ...string) func(a, b string) bool {
	t.Helper()
	at := map[string][]uint64{}
	for _, name := range files {
		f, err := elf.Open(name)
		if err != nil {
			continue
		}
		syms, _ := f.Symbols()
		dyn, _ := f.DynamicSymbols()
		for _, s := range append(syms, dyn...) {
			at[s.Name] = append(at[s.Name], s.Value)
		}
		f.Close()
	}
	return func(a, b string) bool {
		for _, x := range at[a] {
			for _, y := range at[b] {
				if x == y {
					return true
				}
			}
		}
		return false
	}
}

// ask runs a tool that reads addresses, one a line, and returns what it says.
func ask(t testing.TB, addrs []uint64, tool string, args ...string) string {
	t.Helper()
	var in bytes.Buffer
	for _, a := range addrs {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	cmd := exec.Command(tool, args...)
	cmd.Stdin = &in
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	return string(out)
}

// euSymbols asks eu-addr2line for the symbol of each address.
func euSymbols(t testing.TB, name string, addrs []uint64) []string {
	t.Helper()
	var names []string
	sc := bufio.NewScanner(strings.NewReader(ask(t, addrs, "eu-addr2line", "-S", "-e", name)))
	for i := 0; sc.Scan(); i++ {
		if i%2 == 0 {
			s, _, _ := strings.Cut(sc.Text(), "+0x")
			s, _, _ = strings.Cut(s, " (")
			if strings.HasPrefix(s, "(") || strings.HasPrefix(s, "??") { // "(.text)+0x…": only the section is known
				s = ""
			}
			names = append(names, unversioned(s))
		}
	}
	if len(names) != len(addrs) {
		t.Fatalf("eu-addr2line answers %d of %d addresses", len(names), len(addrs))
	}
	return names
}

// gdbSymbols asks gdb's "info symbol".
func gdbSymbols(t testing.TB, name string, addrs []uint64) []string {
	t.Helper()
	script := filepath.Join(t.TempDir(), "script")
	var in bytes.Buffer
	fmt.Fprint(&in, "set print asm-demangle off\nset print demangle off\nset print max-symbolic-offset unlimited\n")
	for _, a := range addrs {
		fmt.Fprintf(&in, "info symbol %#x\n", a)
	}
	if err := os.WriteFile(script, in.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("gdb", "-nx", "-batch", "-x", script, name).CombinedOutput()
	if err != nil {
		t.Fatalf("gdb: %v\n%s", err, out)
	}
	var names []string
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "warning: "): // of scripts in the file
		case strings.HasPrefix(line, "No symbol matches"):
			names = append(names, "")
		case strings.Contains(line, " in section "):
			s, _, _ := strings.Cut(line, " in section ")
			s, _, _ = strings.Cut(s, " + ")
			names = append(names, unversioned2(s))
		}
	}
	if len(names) != len(addrs) {
		t.Fatalf("gdb answers %d of %d addresses", len(names), len(addrs))
	}
	return names
}

func unversioned2(s string) string {
	if strings.HasSuffix(s, "@plt") {
		return s
	}
	return unversioned(s)
}

func ownRoot(t testing.TB) []*rootfs.Root {
	t.Helper()
	r, err := rootfs.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return []*rootfs.Root{r}
}

func openFile(t testing.TB, name string, opt Options) *Object {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		t.Fatal(err)
	}
	o := Open(contents(t, f), real, opt)
	t.Cleanup(func() { o.Close(); f.Close() })
	return o
}

// contents are those of an open file.
func contents(t testing.TB, f *os.File) File {
	t.Helper()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return io.NewSectionReader(f, 0, st.Size())
}

// need skips the test where a program that it compares with is not installed.
func need(t testing.TB, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("no %s on this machine", p)
		}
	}
}

// run runs a program and fails the test if it fails.
func run(t testing.TB, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// installed returns the programs and libraries of the machine that names are
// compared on; the order is by kind.
func installed(t testing.TB) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{
		"/lib/*-linux-gnu/libc.so.6", "/usr/lib/*-linux-gnu/libstdc++.so.6", "/usr/bin/sqlite3",
		"/usr/bin/redis-server", "/usr/bin/python3.*[0-9]",
	} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, names...)
	}
	if len(found) == 0 {
		t.Skip("no programs to compare names on")
	}
	return found
}

// Names of random addresses are those that eu-addr2line and gdb give. What may
// differ: which alias is taken; linkage table entries, which eu-addr2line does
// not name; data between functions, which they name and we do not.
func TestNamesAgainstTools(t *testing.T) {
	for tool, tell := range nameTools {
		t.Run(tool, func(t *testing.T) {
			need(t, tool)
			for _, name := range installed(t) {
				t.Run(filepath.Base(name), func(t *testing.T) {
					compareNames(t, tool, name, tell, 1000)
				})
			}
		})
	}
}

// nameTools are the tools that names are compared with.
var nameTools = map[string]func(testing.TB, string, []uint64) []string{"eu-addr2line": euSymbols, "gdb": gdbSymbols}

func compareNames(t *testing.T, tool, name string, tell func(testing.TB, string, []uint64) []string, n int) {
	t.Helper()
	addrs := randomText(t, name, n)
	o := openFile(t, name, Options{Demangle: Off, Roots: ownRoot(t)})
	files := []string{name}
	if id := o.BuildID(); id != "" {
		files = append(files, buildIDPath(id, ".debug"))
	}
	if link, _, ok := o.im.debugLink(); ok {
		files = append(files, filepath.Join(filepath.Dir(name), link))
	}
	same := aliases(t, files...)
	want := tell(t, name, addrs)
	equal, other, named := 0, 0, 0
	for i, a := range addrs {
		got, ok := o.Lookup(a)
		if ok {
			named++
		}
		switch {
		case got.Name == want[i]:
			equal++
		case ok && want[i] != "" && same(got.Name, want[i]):
			other++
		case got.Source == "plt" && (tool == "eu-addr2line" || strings.HasPrefix(want[i], "*ABS*")):
		default:
			t.Errorf("%#x: %q from %s, %s says %q", a, got.Name, got.Source, tool, want[i])
		}
	}
	t.Logf("%d of %d named, %d equal, %d by another alias", named, len(addrs), equal, other)
}

// llvmInlines asks llvm-symbolizer for functions and lines, inlined ones first.
func llvmInlines(t testing.TB, name string, addrs []uint64) [][]string {
	t.Helper()
	out := ask(t, addrs, "llvm-symbolizer", "--no-demangle", "--inlines", "--functions=linkage", "--obj="+name)
	var all [][]string
	for block := range strings.SplitSeq(strings.TrimSpace(out), "\n\n") {
		lines := strings.Split(block, "\n")
		var list []string
		for i := 0; i+1 < len(lines); i += 2 {
			loc := lines[i+1]
			if j := strings.LastIndexByte(loc, ':'); j > 0 {
				loc = loc[:j]
			}
			list = append(list, lines[i]+" "+loc)
		}
		all = append(all, list)
	}
	if len(all) != len(addrs) {
		t.Fatalf("llvm-symbolizer answers %d of %d addresses", len(all), len(addrs))
	}
	return all
}

// frameStrings writes frames as the tools do, but with the outermost name left
// out: the symbol table decides there, for us, and the DWARF for them.
func frameStrings(frames []Frame) []string {
	var list []string
	for i, f := range frames {
		name, file := f.Name, f.File
		if i == len(frames)-1 {
			name = "*"
		}
		if file == "" {
			file = "??"
		}
		list = append(list, fmt.Sprintf("%s %s:%d", name, file, f.Line))
	}
	if list == nil {
		list = []string{"* ??:0"}
	}
	return list
}

// plainFrames brings a tool's frames into the form of frameStrings: paths
// without "..".
func plainFrames(list []string) []string {
	for i, l := range list {
		k := strings.LastIndexByte(l, ' ')
		fn, pos := l[:k], l[k+1:]
		if strings.Contains(pos, "/") {
			pos = filepath.Clean(pos)
		}
		if i == len(list)-1 {
			fn = "*"
			if strings.HasSuffix(pos, ":0") && !strings.Contains(pos, "/") {
				pos = "??:0" // the name of the unit, for want of a better one
			}
		}
		list[i] = fn + " " + pos
	}
	return list
}

// compareInlines compares inlined functions and lines with llvm-symbolizer's.
func compareInlines(t *testing.T, name string, o *Object, addrs []uint64) {
	t.Helper()
	want := llvmInlines(t, name, addrs)
	equal, inlined, differ := 0, 0, 0
	for i, a := range addrs {
		got := frameStrings(o.Frames(a))
		w := plainFrames(want[i])
		if len(got) > 1 {
			inlined++
		}
		// Without lines llvm-symbolizer gives the file's own name for what
		// assembled files and the start files define.
		if got[0] == "* ??:0" && len(w) == 1 && !strings.Contains(w[0], "/") {
			continue
		}
		if strings.Join(got, "\n") == strings.Join(w, "\n") {
			equal++
			continue
		}
		if differ++; differ <= 5 {
			t.Errorf("%#x:\n got %q\nwant %q", a, got, w)
		}
	}
	if equal == 0 {
		t.Errorf("nothing could be compared: %s", o.NoLines())
	}
	t.Logf("%d of %d equal, %d with inlined functions, %d differ", equal, len(addrs), inlined, differ)
}

// Functions, inlined functions and lines are those that llvm-symbolizer gives,
// for each DWARF version and compression that the compilers of the machine
// make.
func TestInlinesAgainstLLVM(t *testing.T) {
	need(t, "llvm-symbolizer", "g++")
	source, err := filepath.Abs("testdata/inlines.cc")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct{ name, flags string }{
		{"dwarf5", "-gdwarf-5"},
		{"dwarf4", "-gdwarf-4"},
		{"dwarf3", "-gdwarf-3 -gstrict-dwarf"},
		{"dwarf2", "-gdwarf-2 -gstrict-dwarf"},
		{"zlib", "-g -gz=zlib"},
		{"zlib-gnu", "-g -gz=zlib-gnu"},
		{"sections", "-g -ffunction-sections -Wl,--gc-sections"},
		{"types", "-g -fdebug-types-section"},
		{"lto", "-g -flto"},
		{"dwarf64", "-gdwarf-5 -gdwarf64"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			need(t, "g++")
			name := filepath.Join(t.TempDir(), "a")
			args := append([]string{"-O2", "-o", name, source}, strings.Fields(tt.flags)...)
			if out, err := exec.Command("g++", args...).CombinedOutput(); err != nil {
				t.Skipf("g++ does not do %s: %s", tt.flags, out)
			}
			o := openFile(t, name, Options{Demangle: Off, Inlines: true, Lines: true})
			compareInlines(t, name, o, randomText(t, name, 500))
		})
	}
	t.Run("rust", func(t *testing.T) {
		need(t, "rustc")
		name := filepath.Join(t.TempDir(), "a")
		run(t, "rustc", "-O", "-g", "-o", name, "testdata/inlines.rs")
		o := openFile(t, name, Options{Demangle: Off, Inlines: true, Lines: true})
		compareInlines(t, name, o, randomText(t, name, 500))
	})
	t.Run("debug files of libc", func(t *testing.T) {
		name := installed(t)[0]
		o := openFile(t, name, Options{Demangle: Off, Inlines: true, Lines: true, Roots: ownRoot(t)})
		if o.Frames(0); o.NoLines() != "" {
			t.Skip("no debug file of libc on this machine")
		}
		compareInlines(t, name, o, randomText(t, name, 500))
	})
}
