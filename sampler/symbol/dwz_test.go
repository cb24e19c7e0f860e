package symbol

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// What dwz moves to a supplementary file is found there: strings alone, as of
// small programs, or entries too.
func TestSupplementaryFile(t *testing.T) {
	need(t, "dwz", "g++", "gcc")
	dir := t.TempDir()
	source := func(name, text string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	one := source("one.c", smallProgram)
	other := source("other.c", strings.ReplaceAll(smallProgram, "stays", "is_different"))
	for _, tt := range []struct {
		name, compiler string
		sources        [2]string
		strings        bool
	}{
		{"strings", "gcc", [2]string{one, other}, true},
		{"entries", "g++", [2]string{"testdata/inlines.cc", "testdata/inlines.cc"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			whole := build(t, tt.compiler, tt.sources[0])
			var names []string
			for i, name := range []string{"a", "b"} { // dwz moves what two files have
				name = filepath.Join(dir, name)
				b, err := os.ReadFile(build(t, tt.compiler, tt.sources[i]))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(name, b, 0o700); err != nil {
					t.Fatal(err)
				}
				names = append(names, name)
			}
			common := filepath.Join(dir, "common")
			run(t, "dwz", "-m", common, "-M", common, names[0], names[1])
			opt := allNames
			opt.Roots = ownRoot(t)
			a, b := openFile(t, whole, allNames), openFile(t, names[0], opt)
			inlined := 0
			addrs := randomText(t, whole, 500)
			for _, addr := range addrs {
				want := a.Frames(addr)
				if got := b.Frames(addr); !reflect.DeepEqual(got, want) {
					t.Fatalf("%#x: %+v, want %+v, as before dwz", addr, got, want)
				}
				if len(want) > 1 && want[0].Name != "" {
					inlined++
				}
			}
			if inlined == 0 {
				t.Error("no address has inlined functions")
			}
			if b.lines.dwarf.alt == nil {
				t.Fatal("nothing was moved")
			}
			if got := b.lines.dwarf.alt.sections.info.size == 0; got != tt.strings {
				t.Logf("strings alone were moved: %v, not %v as by dwz 0.15", got, tt.strings)
			}
			if err := os.Remove(common); err != nil {
				t.Fatal(err)
			}
			c := openFile(t, names[0], opt)
			same := 0
			for _, addr := range addrs {
				if reflect.DeepEqual(c.Frames(addr), a.Frames(addr)) {
					same++
				}
			}
			if same == len(addrs) {
				t.Error("without the supplementary file everything is the same")
			}
		})
	}
}

// smallProgram is a small program with an inlined function.
const smallProgram = `
static inline int a_helper_that_is_inlined(int x) { for (int i = 0; i < 50; i++) x ^= x * 33 + i; return x; }
__attribute__((noinline)) static int a_function_that_stays(int n) {
	int s = 0;
	for (int i = 0; i < 1000; i++) s += a_helper_that_is_inlined(n + i);
	return s;
}
int main(int argc, char **argv) { return a_function_that_stays(argc); }
`
