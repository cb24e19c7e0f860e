package symbol

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"sfsample/internal/late"
	"sfsample/sampler/symbol/rootfs"
)

// mapFile makes a perf map in a folder of its own, which stands for the
// target's root.
func mapFile(t testing.TB, text string) (m *PerfMap, name string) {
	t.Helper()
	dir := t.TempDir()
	name = filepath.Join(dir, "perf-1.map")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	root, err := rootfs.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	m = NewPerfMap(root, "/perf-1.map", uint32(os.Getuid()))
	t.Cleanup(func() { m.Close(); root.Close() })
	return m, name
}

func appendTo(t testing.TB, name, text string) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

// perfLines are n lines of functions of 16 bytes from number first on.
func perfLines(first, n int) string {
	var b strings.Builder
	for i := first; i < first+n; i++ {
		fmt.Fprintf(&b, "%x 10 f%d\n", 0x10000+16*i, i)
	}
	return b.String()
}

// looks is a context that is done after so many looks at it.
type looks struct {
	context.Context
	left int
}

func (l *looks) Err() error {
	if l.left--; l.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestPerfMapUntil: whenever the time ends, in reading or sorting, little more of a long map is taken, and what
// was known before stays. There is a look at the time for each mapRun lines, in every step.
func TestPerfMapUntil(t *testing.T) {
	const before, lines = 1000, 3 * mapRun
	more := perfLines(before, lines)
	for n := 0; ; n++ {
		m, name := mapFile(t, perfLines(0, before))
		if sym, ok := m.Lookup(0x10000 + 16*(before-1)); !ok || sym.Name != "f999" {
			t.Fatalf("with time: %v, %v", sym, ok)
		}
		appendTo(t, name, more)
		m.Until = late.New(&looks{context.Background(), n})
		sym, ok := m.Lookup(0x10000 + 16*lines)
		if ok {
			// Reading, sorting (4 runs), two rounds of making one of two, segments.
			if want := len(more)/(256<<10) + 4 + 2 + 3; n < want || sym.Name != fmt.Sprint("f", lines) || m.Problem() != "" {
				t.Errorf("%d looks at the time, want %d: %v, problem %q", n, want, sym, m.Problem())
			}
			break
		}
		if len(m.entries) > before+maxMapTail || m.Problem() == "" {
			t.Errorf("time ends at look %d: %d lines kept, problem %q", n, len(m.entries), m.Problem())
		}
		if sym, ok := m.Lookup(0x10000 + 16*500); !ok || sym.Name != "f500" {
			t.Errorf("time ends at look %d: what was read before: %v, %v", n, sym, ok)
		}
	}
}

// TestPerfMapIsBounded: of more functions than fit the first are kept, and it is told.
func TestPerfMapIsBounded(t *testing.T) {
	m, _ := mapFile(t, perfLines(0, maxMapEntries+1000))
	if sym, ok := m.Lookup(0x10000 + 16*(maxMapEntries-1)); !ok || sym.Name != fmt.Sprint("f", maxMapEntries-1) {
		t.Errorf("the last one kept: %v, %v", sym, ok)
	}
	if len(m.entries) != maxMapEntries || !strings.Contains(m.Problem(), "the rest is not read") {
		t.Errorf("%d functions kept, problem %q", len(m.entries), m.Problem())
	}
}

// TestPerfMapIsSortedSeldom: a long map that grows is not sorted anew for each few lines.
func TestPerfMapIsSortedSeldom(t *testing.T) {
	const first, step = 100_000, maxMapTail + 100
	m, name := mapFile(t, perfLines(0, first))
	m.Refresh()
	sorted := 0
	for n := range 20 {
		before := m.merged
		appendTo(t, name, perfLines(first+n*step, step))
		last := first + (n+1)*step - 1
		if sym, ok := m.Lookup(uint64(0x10000 + 16*last)); !ok || sym.Name != fmt.Sprint("f", last) {
			t.Fatalf("the last line: %v, %v; want f%d", sym, ok, last)
		}
		if m.merged != before {
			sorted++
		}
	}
	if want := 20*step*mapTailShare/first + 1; sorted > want {
		t.Errorf("sorted %d times for %d lines more, want up to %d", sorted, 20*step, want)
	}
}

// TestPerfMapIsExchanged: a file that is another one each time is read for no more than a share of the time, and told of.
func TestPerfMapIsExchanged(t *testing.T) {
	const lines = 100_000
	m, name := mapFile(t, perfLines(0, lines))
	begun := time.Now()
	m.Refresh()
	if took := time.Since(begun); m.took <= 0 || m.took > took {
		t.Fatalf("reading has taken %v of %v", m.took, took)
	}
	m.took = time.Hour / mapRest
	exchange := func() {
		t.Helper()
		other := name + ".other"
		if err := os.WriteFile(other, []byte(perfLines(lines, 10)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(other, name); err != nil {
			t.Fatal(err)
		}
	}
	const known, new = 0x10000, 0x10000 + 16*lines
	exchange()
	for range 2 {
		if sym, ok := m.Lookup(new); ok || !strings.Contains(m.Problem(), "exchanged") {
			t.Errorf("at once: %v, %v, problem %q", sym, ok, m.Problem())
		}
	}
	if sym, ok := m.Lookup(known); !ok || sym.Name != "f0" {
		t.Errorf("what was read before: %v, %v", sym, ok)
	}
	m.last = time.Now().Add(-time.Hour)
	if sym, ok := m.Lookup(new); !ok || sym.Name != fmt.Sprint("f", lines) || m.took > time.Minute {
		t.Errorf("later: %v, %v; taken %v", sym, ok, m.took)
	}
}

func TestPerfMapLines(t *testing.T) {
	tests := []struct {
		name, text string
		addr       uint64
		want       string
	}{
		{"plain", "1000 20 foo\n", 0x101f, "foo"},
		{"end is excluded", "1000 20 foo\n", 0x1020, ""},
		{"name with blanks", "7f00deadbeef 10 LazyCompile:~f /a b.js:1\n", 0x7f00deadbef0, "LazyCompile:~f /a b.js:1"},
		{"0x before numbers", "0x1000 0x20 foo\n", 0x1000, "foo"},
		{"python", "7fb1 10 py::main:/x/y.py\n", 0x7fb2, "py::main:/x/y.py"},
		{"control characters are kept", "1000 20 a\x1b[31m;b\n", 0x1000, "a\x1b[31m;b"},
		{"newest wins", "1000 20 old\n1000 20 new\n", 0x1001, "new"},
		{"newer part wins", "1000 100 old\n1010 10 new\n", 0x1015, "new"},
		{"old goes on after it", "1000 100 old\n1010 10 new\n", 0x1025, "old"},
		{"newer around wins", "1010 10 old\n1000 100 new\n", 0x1015, "new"},
		{"no name", "1000 20 \n", 0x1000, ""},
		{"no size", "1000 foo\n", 0x1000, ""},
		{"not hex", "xyz 20 foo\n1000 20 bar\n", 0x1000, "bar"},
		{"size 0", "1000 0 foo\n", 0x1000, ""},
		{"wraps", "ffffffffffffff00 200 foo\n", 0xffffffffffffff10, ""},
		{"unbelievable size", "1000 ffffffffff foo\n", 0x1000, ""},
		{"last line unfinished", "1000 20 foo\n2000 20 b", 0x2000, ""},
		{"empty lines", "\n\n1000 20 foo\n", 0x1000, "foo"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, _ := mapFile(t, tt.text)
			got, ok := m.Lookup(tt.addr)
			if got.Name != tt.want || ok != (tt.want != "") {
				t.Fatalf("Lookup(%#x) in %q = %q, %v; want %q", tt.addr, tt.text, got.Name, ok, tt.want)
			}
			m.merge()
			if got, _ := m.Lookup(tt.addr); got.Name != tt.want {
				t.Errorf("after merge: Lookup(%#x) = %q, want %q", tt.addr, got.Name, tt.want)
			}
		})
	}
}

func TestPerfMapGrows(t *testing.T) {
	m, name := mapFile(t, "1000 20 a\n2000 20 b")
	if _, ok := m.Lookup(0x2000); ok {
		t.Fatal("an unfinished line was used")
	}
	appendTo(t, name, "cd\n3000 20 e\n")
	for addr, want := range map[uint64]string{0x1000: "a", 0x2000: "bcd", 0x3000: "e"} {
		if got, _ := m.Lookup(addr); got.Name != want {
			t.Errorf("Lookup(%#x) = %q, want %q", addr, got.Name, want)
		}
	}
	// Another file under the name, as after an exec.
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte("3000 20 other\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.took = 0 // long ago
	m.Refresh()
	if got, _ := m.Lookup(0x3000); got.Name != "other" {
		t.Errorf("after replacement: Lookup = %q, want other", got.Name)
	}
	if got, ok := m.Lookup(0x1000); ok {
		t.Errorf("after replacement: Lookup = %q, want nothing", got.Name)
	}
}

// The segments give what a search through all lines gives.
func TestPerfMapMerge(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	var text strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&text, "%x %x f%d\n", rnd.Uint64N(5000), 1+rnd.Uint64N(60), i)
	}
	m, _ := mapFile(t, text.String())
	m.Refresh()
	if m.merged == 0 {
		t.Fatal("nothing was merged")
	}
	for addr := range uint64(5100) {
		want := int32(none)
		for i := range m.entries {
			if e := &m.entries[i]; addr >= e.start && addr < e.end() {
				want = int32(i)
			}
		}
		if got := m.find(addr); got != want {
			t.Fatalf("find(%#x) = %d, want %d", addr, got, want)
		}
	}
}

// Runs that are sorted one by one come together in order.
func TestPerfMapSorted(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	m := &PerfMap{}
	for range 5*mapRun + 7 {
		m.entries = append(m.entries, mapEntry{start: rnd.Uint64N(2 * mapRun)})
	}
	want := make([]int32, len(m.entries))
	for i := range want {
		want[i] = int32(i)
	}
	slices.SortStableFunc(want, func(a, b int32) int { return cmp.Compare(m.entries[a].start, m.entries[b].start) })
	if got := m.sorted(); !slices.Equal(got, want) {
		t.Error("not in order")
	}
}

func TestPerfMapHostile(t *testing.T) {
	t.Run("fifo", func(t *testing.T) {
		m, name := mapFile(t, "")
		os.Remove(name)
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, ok := m.Lookup(0x1000); ok || m.Problem() == "" {
			t.Errorf("FIFO: found %v, problem %q; want a problem", ok, m.Problem())
		}
	})
	t.Run("name of 1 MB", func(t *testing.T) {
		m, _ := mapFile(t, "1000 20 "+strings.Repeat("x", 1<<20)+"\n2000 20 next\n")
		got, ok := m.Lookup(0x1000)
		if !ok || len(got.Name) > MaxName {
			t.Errorf("name has %d bytes, found %v; want at most %d", len(got.Name), ok, MaxName)
		}
		if got, _ := m.Lookup(0x2000); got.Name != "next" {
			t.Errorf("line after it = %q, want next", got.Name)
		}
	})
	t.Run("1 GB without a newline", func(t *testing.T) {
		m, name := mapFile(t, "")
		if err := os.Truncate(name, 1<<30); err != nil {
			t.Fatal(err)
		}
		if _, ok := m.Lookup(0x1000); ok || m.Problem() == "" {
			t.Errorf("found %v, problem %q; want a problem", ok, m.Problem())
		}
	})
	t.Run("link out of the root", func(t *testing.T) {
		m, name := mapFile(t, "")
		outside := filepath.Join(t.TempDir(), "map")
		if err := os.WriteFile(outside, []byte("1000 20 secret\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		os.Remove(name)
		if err := os.Symlink(outside, name); err != nil {
			t.Fatal(err)
		}
		if got, ok := m.Lookup(0x1000); ok {
			t.Errorf("found %q outside the root", got.Name)
		}
	})
	t.Run("file of another user", func(t *testing.T) {
		if os.Getuid() == 0 {
			m, name := mapFile(t, "1000 20 foo\n")
			if err := os.Chown(name, 12345, 12345); err != nil {
				t.Fatal(err)
			}
			if got, ok := m.Lookup(0x1000); ok || m.Problem() == "" {
				t.Errorf("found %q, problem %q", got.Name, m.Problem())
			}
			return
		}
		m, _ := mapFile(t, "1000 20 foo\n")
		m.uid++
		if got, ok := m.Lookup(0x1000); ok || m.Problem() == "" {
			t.Errorf("found %q, problem %q", got.Name, m.Problem())
		}
	})
	t.Run("file removed", func(t *testing.T) {
		m, name := mapFile(t, "1000 20 foo\n")
		m.Refresh()
		os.Remove(name)
		if got, _ := m.Lookup(0x1000); got.Name != "foo" {
			t.Errorf("Lookup = %q, want foo: what was read stays", got.Name)
		}
		if _, ok := m.Lookup(0x5000); ok {
			t.Error("found what was never there")
		}
	})
}
