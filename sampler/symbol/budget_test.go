package symbol

import (
	"bytes"
	"debug/elf"
	"io"
	"testing"

	"github.com/ulikunitz/xz"
)

// withBudgets gives the test budgets of its own.
func withBudgets(t *testing.T, memory, disk int64) {
	t.Helper()
	m, d := inMemory, onDisk
	inMemory, onDisk = &budget{what: "%d MB in memory", limit: memory}, &budget{what: "%d MB in files", limit: disk}
	t.Cleanup(func() { inMemory, onDisk = m, d })
}

// bomb is an .xz stream of size zeros.
func bomb(t *testing.T, size int) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := xz.WriterConfig{DictCap: 1 << 20}.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestExpandMiniDebug: what .gnu_debugdata expands to is bounded, and what was taken
// for it is given back.
func TestExpandMiniDebug(t *testing.T) {
	const limit = 8 << 20
	for name, tt := range map[string]struct {
		size int
		ok   bool
	}{
		"small":    {3 << 20, true},
		"no piece": {4*pieceBytes + 5, true},
		"empty":    {0, true},
		"bomb":     {64 << 20, false},
	} {
		t.Run(name, func(t *testing.T) {
			withBudgets(t, limit, 0)
			x, err := unxz(nil, bomb(t, tt.size))
			if (err == nil) != tt.ok || (len(Refused()) == 0) != tt.ok {
				t.Fatalf("error %v, refused %q; want it expanded: %v", err, Refused(), tt.ok)
			}
			if err == nil {
				got, err := io.ReadAll(io.NewSectionReader(x, 0, x.Size()))
				if err != nil || !bytes.Equal(got, make([]byte, tt.size)) || inMemory.used != int64(tt.size) {
					t.Errorf("%d bytes, %v, %d of the budget; want %d", len(got), err, inMemory.used, tt.size)
				}
				x.free()
			}
			if inMemory.used != 0 {
				t.Errorf("%d bytes are not given back", inMemory.used)
			}
		})
	}
}

// TestExpandSections: all sections share one budget in memory and one on disk, from
// which a claim is refused before anything is expanded.
func TestExpandSections(t *testing.T) {
	withBudgets(t, 3*maxExpanded/2, 5*maxExpanded)
	small, large := make([]byte, maxExpanded), make([]byte, 2*maxExpanded)
	a, _ := compressedSection(t, elf.COMPRESS_ZLIB, small, maxExpanded)
	b, _ := compressedSection(t, elf.COMPRESS_ZSTD, small, maxExpanded)
	if s := a.debugSection("info"); len(s.mem) != maxExpanded {
		t.Fatalf("the first section has %d bytes in memory", len(s.mem))
	}
	if s := b.debugSection("info"); s.size != 0 || len(Refused()) != 1 {
		t.Errorf("the second has %d bytes, refused: %q; want it refused", s.size, Refused())
	}
	a.release()
	if s := b.debugSection("info"); len(s.mem) != maxExpanded {
		t.Errorf("with room again the second has %d bytes in memory", len(s.mem))
	}
	b.release()

	var open []*dwarfInfo
	for n := range 3 {
		im, _ := compressedSection(t, elf.COMPRESS_ZLIB, large, uint64(len(large)))
		d := newDWARF(im)
		if (d.sections.info.tmp != nil) != (n < 2) {
			t.Errorf("section %d expanded to a file: %v", n, d.sections.info.tmp != nil)
		}
		open = append(open, d)
	}
	im, _ := compressedSection(t, elf.COMPRESS_ZLIB, small, 1<<63+1)
	if s := im.debugSection("info"); s.size != 0 {
		t.Errorf("a claim of 2^63 bytes gives %d", s.size)
	}
	for _, d := range open {
		d.Close()
	}
	if inMemory.used != 0 || onDisk.used != 0 {
		t.Errorf("%d bytes in memory and %d on disk are not given back", inMemory.used, onDisk.used)
	}
}
