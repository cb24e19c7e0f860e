package symbol

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// What dwz moves to a supplementary file is found there: strings alone, as of
// small programs, or entries too.
func TestSupplementaryFile(t *testing.T) {
	need(t, "dwz", "g++", "gcc")
	small := filepath.Join(t.TempDir(), "small.c")
	if err := os.WriteFile(small, []byte(smallProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ name, compiler, source string }{
		{"strings", "gcc", small},
		{"entries", "g++", "testdata/inlines.cc"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			whole := build(t, tt.compiler, tt.source)
			dir := t.TempDir()
			var names []string
			for _, name := range []string{"a", "b"} { // dwz moves what two files have
				name = filepath.Join(dir, name)
				b, err := os.ReadFile(whole)
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
			if b.dwarf.alt == nil {
				t.Error("nothing was moved")
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
