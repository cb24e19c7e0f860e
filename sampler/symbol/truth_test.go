package symbol

import (
	"bufio"
	"bytes"
	"debug/elf"
	"fmt"
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

// euSymbols asks eu-addr2line for the symbol of each address.
func euSymbols(t testing.TB, name string, addrs []uint64) []string {
	t.Helper()
	var in bytes.Buffer
	for _, a := range addrs {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	cmd := exec.Command("eu-addr2line", "-S", "-e", name)
	cmd.Stdin = &in
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("eu-addr2line: %v", err)
	}
	var names []string
	sc := bufio.NewScanner(bytes.NewReader(out))
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
	file, err := NewFile(f)
	if err != nil {
		t.Fatal(err)
	}
	real, err := filepath.EvalSymlinks(name)
	if err != nil {
		t.Fatal(err)
	}
	o := Open(file, real, opt)
	t.Cleanup(func() { o.Close(); f.Close() })
	return o
}

func TestTruth(t *testing.T) {
	for _, name := range strings.Fields(os.Getenv("TRUTH")) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			addrs := randomText(t, name, 1000)
			o := openFile(t, name, Options{Demangle: Off, Roots: ownRoot(t)})
			o.Lookup(0)
			files := []string{name}
			if id := o.BuildID(); id != "" {
				files = append(files, buildIDPath(id, ".debug"))
			}
			same := aliases(t, files...)
			t.Logf("missing %q tables %d go %v", o.Missing(), len(o.tables), o.goTab != nil)
			for tool, ask := range map[string]func(testing.TB, string, []uint64) []string{"eu": euSymbols, "gdb": gdbSymbols} {
				want := ask(t, name, addrs)
				eq, alias, both, onlyUs, onlyThem, differ := 0, 0, 0, 0, 0, 0
				for i, a := range addrs {
					s, ok := o.Lookup(a)
					switch {
					case !ok && want[i] == "":
						both++
					case s.Name == want[i]:
						eq++
					case !ok:
						onlyThem++
						if onlyThem < 6 {
							t.Logf("%s only them: %#x %q", tool, a, want[i])
						}
					case want[i] == "":
						onlyUs++
						if onlyUs < 6 {
							t.Logf("%s only us: %#x %v", tool, a, s)
						}
					case same(s.Name, want[i]):
						alias++
						if alias < 6 {
							t.Logf("%s alias: %#x %v %v", tool, a, s, want[i])
						}
					default:
						differ++
						if differ < 12 {
							t.Logf("%s differ: %#x %v %v", tool, a, s, want[i])
						}
					}
				}
				t.Logf("%s: equal %d alias %d both unknown %d only us %d only them %d differ %d", tool, eq, alias, both, onlyUs, onlyThem, differ)
			}
		})
	}
}

// euInlines asks eu-addr2line for functions and lines, inlined ones first.
func euInlines(t testing.TB, name string, addrs []uint64) [][]string {
	t.Helper()
	var in bytes.Buffer
	for _, a := range addrs {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	cmd := exec.Command("eu-addr2line", "-a", "-i", "-f", "-e", name)
	cmd.Stdin = &in
	out, err := cmd.Output()
	if err != nil {
		t.Logf("eu-addr2line: %v", err)
	}
	var all [][]string
	fn := ""
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "0x"):
			all = append(all, nil)
			fn = ""
		case fn == "":
			fn = line
			if i := strings.Index(fn, " inlined at "); i >= 0 {
				fn = fn[:i]
			}
		default:
			n := len(all) - 1
			if f := strings.Split(line, ":"); len(f) > 2 { // file:line:column
				line = f[0] + ":" + f[1]
			}
			line = strings.TrimSuffix(line, " (discriminator")
			all[n] = append(all[n], fn+" "+line)
			fn = ""
		}
	}
	if len(all) != len(addrs) {
		t.Logf("eu-addr2line answers %d of %d addresses", len(all), len(addrs))
		return make([][]string, len(addrs))
	}
	return all
}

func llvmInlines(t testing.TB, name string, addrs []uint64) [][]string {
	t.Helper()
	var in bytes.Buffer
	for _, a := range addrs {
		fmt.Fprintf(&in, "%#x\n", a)
	}
	args := []string{"--no-demangle", "--inlines", "--functions=linkage", "--obj=" + name}
	cmd := exec.Command("llvm-symbolizer", args...)
	cmd.Stdin = &in
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("llvm-symbolizer: %v", err)
	}
	var all [][]string
	for block := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n\n") {
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

func TestTruthLines(t *testing.T) {
	for _, name := range strings.Fields(os.Getenv("TRUTHLINES")) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			addrs := randomText(t, name, 1000)
			o := openFile(t, name, Options{Demangle: Off, Roots: ownRoot(t), Inlines: true, Lines: true})
			o.Frames(0)
			t.Logf("no lines: %q", o.NoLines())
			if o.dwarf != nil {
				t.Logf("units %d ranges %d", len(o.dwarf.units), len(o.dwarf.ranges))
			}
			for tool, ask := range map[string]func(testing.TB, string, []uint64) [][]string{"eu": euInlines, "llvm": llvmInlines} {
				want := ask(t, name, addrs)
				eq, differ, inl, none, onlyLine := 0, 0, 0, 0, 0
				for i, a := range addrs {
					var got []string
					frames := o.Frames(a)
					for j, f := range frames {
						n, fl := f.Name, f.File
						if n == "" || j == len(frames)-1 {
							n = "*"
						}
						if fl == "" {
							fl = "??"
						}
						got = append(got, fmt.Sprintf("%s %s:%d", n, fl, f.Line))
					}
					if got == nil {
						got = []string{"* ??:0"}
					}
					if len(got) > 1 {
						inl++
					}
					w := want[i]
					for j := range w { // "fn dir/file:line": the folder without ".."
						if k := strings.LastIndexByte(w[j], ' '); strings.Contains(w[j][k+1:], "/") {
							w[j] = w[j][:k+1] + filepath.Clean(w[j][k+1:])
						}
					}
					if n := len(w); n > 0 {
						last := w[n-1]
						w[n-1] = "*" + last[strings.LastIndexByte(last, ' '):]
					}
					if got[len(got)-1] == "* ??:0" && (len(w) == 0 || w[0] == "* ??:0" || !strings.Contains(w[0], "/")) {
						none++
						continue
					}
					if fmt.Sprint(got) == fmt.Sprint(w) {
						eq++
						continue
					}
					if len(got) == len(w) && fmt.Sprint(got[1:]) == fmt.Sprint(w[1:]) {
						onlyLine++
					}
					if differ++; differ < 12 {
						t.Logf("%s differ %#x\n got %q\nwant %q", tool, a, got, want[i])
					}
				}
				t.Logf("%s: equal %d differ %d (innermost line only %d) none %d inlined %d", tool, eq, differ, onlyLine, none, inl)
			}
		})
	}
}
