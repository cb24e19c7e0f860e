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
