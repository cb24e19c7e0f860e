package symbol

import (
	"context"
	"debug/elf"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"sfsample/internal/late"
)

var allNames = Options{Demangle: Off, Inlines: true, Lines: true}

// build compiles a source with a compiler of the machine.
func build(t *testing.T, compiler, source string, flags ...string) string {
	t.Helper()
	need(t, compiler)
	name := filepath.Join(t.TempDir(), "a")
	run(t, compiler, append([]string{"-O2", "-g", "-o", name, source}, flags...)...)
	return name
}

// Where the pieces end in which entries are read makes no difference.
func TestEntryPieces(t *testing.T) {
	name := build(t, "g++", "testdata/inlines.cc")
	addrs := randomText(t, name, 300)
	a := openFile(t, name, allNames)
	inlined := 0
	for _, piece := range []int{1, 7, 100, 4096} {
		b := openFile(t, name, allNames)
		b.Frames(0) // opens it
		b.lines.dwarf.piece = piece
		for _, addr := range addrs {
			want := a.Frames(addr)
			if got := b.Frames(addr); !reflect.DeepEqual(got, want) {
				t.Fatalf("pieces of %d bytes, %#x: %+v, want %+v", piece, addr, got, want)
			}
			if len(want) > 1 {
				inlined++
			}
		}
	}
	if inlined == 0 {
		t.Error("no address had inlined functions")
	}
}

// nested has a function inside another one, which GNU C allows, and in it a call
// that is inlined.
const nested = `
static inline int helper(int x) { for (int i = 0; i < 9; i++) x ^= x << i; return x; }
__attribute__((noinline)) static int apply(int (*f)(int), int n) { int s = 0; for (int i = 0; i < n; i++) s += f(i); return s; }
__attribute__((noinline)) static int outer(int n) {
	int inner(int k) { return helper(k * n) + n; }
	return apply(inner, n) + n;
}
int main(int argc, char **argv) { return outer(argc); }
`

// symbolRange finds a function by the beginning of its name.
func symbolRange(t *testing.T, name, prefix string) span {
	t.Helper()
	f, err := elf.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	syms, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(syms, func(s elf.Symbol) bool {
		return elf.ST_TYPE(s.Info) == elf.STT_FUNC && len(s.Name) >= len(prefix) && s.Name[:len(prefix)] == prefix
	})
	if i < 0 {
		t.Fatalf("the compiler has made no function %s", prefix)
	}
	return span{syms[i].Value, syms[i].Value + syms[i].Size}
}

// A function whose entry is inside another function's is found, although entries
// of functions are stepped over at first.
func TestNestedFunction(t *testing.T) {
	need(t, "gcc", "llvm-symbolizer")
	source := filepath.Join(t.TempDir(), "nested.c")
	if err := os.WriteFile(source, []byte(nested), 0o600); err != nil {
		t.Fatal(err)
	}
	name := build(t, "gcc", source)
	r := symbolRange(t, name, "inner")
	o := openFile(t, name, allNames)
	inlined := 0
	var addrs []uint64
	for addr := r.start; addr < r.end; addr++ {
		addrs = append(addrs, addr)
		if len(o.Frames(addr)) == 2 {
			inlined++
		}
	}
	if inlined == 0 {
		t.Error("helper is nowhere inlined in inner")
	}
	compareInlines(t, name, o, addrs)
}

// Once time is up, what is in memory is told and nothing else is read.
func TestUntil(t *testing.T) {
	name := build(t, "g++", "testdata/inlines.cc")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opt := allNames
	opt.Until = late.New(ctx)
	o, all := openFile(t, name, opt), openFile(t, name, allNames)
	// Two addresses in different functions, both with inlined functions.
	var addrs []uint64
	last := ""
	for _, a := range randomText(t, name, 500) {
		if list := all.Frames(a); len(list) > 1 && list[len(list)-1].Name != last && len(addrs) < 2 {
			addrs, last = append(addrs, a), list[len(list)-1].Name
		}
	}
	if len(addrs) < 2 {
		t.Fatal("no two functions have inlined ones")
	}
	want := o.Frames(addrs[0])
	if len(want) < 2 {
		t.Fatalf("before the end of time: %+v", want)
	}
	cancel()
	if got := o.Frames(addrs[0]); !reflect.DeepEqual(got, want) {
		t.Errorf("an address that was asked for before: %+v, want %+v", got, want)
	}
	if _, lines := o.Unread(); lines != 0 {
		t.Errorf("%d unread before anything was left out", lines)
	}
	sym, _ := o.Lookup(addrs[1])
	if got := o.Frames(addrs[1]); len(got) != 1 || got[0].Name != sym.Name || got[0].File != "" {
		t.Errorf("another address: %+v, want %s alone", got, sym.Name)
	}
	if _, lines := o.Unread(); lines != 1 {
		t.Errorf("%d unread, want 1", lines)
	}
	never := openFile(t, name, opt)
	got := never.Frames(addrs[0])
	if _, lines := never.Unread(); len(got) != 1 || lines != 1 || never.NoLines() != late.ErrNoTime.Error() {
		t.Errorf("opened too late: %+v, %d unread, %q", got, lines, never.NoLines())
	}
}
