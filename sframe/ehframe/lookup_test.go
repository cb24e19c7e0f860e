package ehframe_test

import (
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"sfsample/regs"
	"sfsample/sframe"
	"sfsample/sframe/ehframe"
)

// counter counts what is read from an image.
type counter struct {
	io.ReaderAt
	bytes, calls int
	fail         func(off int64) bool
	failed       int
}

func (c *counter) ReadAt(p []byte, off int64) (int, error) {
	c.calls++
	if c.fail != nil && c.fail(off) {
		c.failed++
		return 0, errors.New("unreadable")
	}
	n, err := c.ReaderAt.ReadAt(p, off)
	c.bytes += n
	return n, err
}

// loadELF returns a file's segments as memory, and where its tables lie.
func loadELF(t testing.TB, name string) (image, *regs.Arch, ehframe.Sections) {
	t.Helper()
	f, err := elf.Open(name)
	if err != nil {
		t.Skip("no " + name + " on this machine")
	}
	defer f.Close()
	arch, err := regs.ByELF(f.Machine, f.Class, f.Data)
	if err != nil {
		t.Skip(err)
	}
	img := make(image)
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD {
			b := make([]byte, p.Filesz)
			if _, err := p.ReadAt(b, 0); err != nil {
				t.Fatal(err)
			}
			img[p.Vaddr] = b
		}
	}
	return img, arch, ehframe.ELFSections(f)
}

// indexFiles are the fixtures and, where there is one, a real library.
func indexFiles(t *testing.T) []string {
	files, err := filepath.Glob("testdata/cfi/*[^g].elf") // not NAME-debug
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range systemFiles[:3] {
		if _, err := os.Stat(name); err == nil {
			files = append(files, name)
		}
	}
	return files
}

// TestDataBase: DT_PLTGOT is what data pointers are relative to, where a file has one.
func TestDataBase(t *testing.T) {
	for _, name := range indexFiles(t) {
		f, err := elf.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if v, err := f.DynValue(elf.DT_PLTGOT); err == nil && len(v) == 1 && ehframe.ELFSections(f).DataAddr != v[0] {
			t.Errorf("%s: got %#x, want %#x", name, ehframe.ELFSections(f).DataAddr, v[0])
		}
		f.Close()
	}
}

// TestIndexes: the answer is the same by the header's table, by an index of our
// own, and as for a live process, of which only the header is known.
func TestIndexes(t *testing.T) {
	for _, name := range indexFiles(t) {
		t.Run(filepath.Base(name), func(t *testing.T) {
			img, arch, s := loadELF(t, name)
			byHdr := open(t, img, arch, s)
			own := open(t, img, arch, ehframe.Sections{FrameAddr: s.FrameAddr, FrameSize: s.FrameSize})
			live := open(t, img, arch, ehframe.Sections{HdrAddr: s.HdrAddr, HdrSize: s.HdrSize})
			n := 0
			for fn, err := range own.Funcs() {
				if err != nil {
					t.Fatal(err)
				}
				for _, pc := range probes(fn) {
					n++
					want, wantErr := own.Find(pc)
					for i, tab := range []*ehframe.Table{byHdr, live} {
						if got, err := tab.Find(pc); err != wantErr || !reflect.DeepEqual(got, want) {
							t.Fatalf("%#x: table %d: %+v, %v, own index %+v, %v", pc, i, got, err, want, wantErr)
						}
					}
				}
			}
			t.Logf("%d addresses", n)
		})
	}
}

// probes are the ends of a function and of its rows, and what lies just outside.
func probes(fn ehframe.Func) []uint64 {
	out := []uint64{fn.Start - 1, fn.End}
	for _, e := range fn.Entries {
		out = append(out, e.Start, e.End-1)
	}
	return out
}

func open(t testing.TB, img io.ReaderAt, arch *regs.Arch, s ehframe.Sections) *ehframe.Table {
	t.Helper()
	tab, err := ehframe.Open(img, arch, s)
	if err != nil {
		t.Fatal(err)
	}
	return tab
}

// TestReadsLittle: a lookup reads a few blocks, never the section; a repeated one
// reads nothing.
func TestReadsLittle(t *testing.T) {
	img, arch, s := bigSection(t, 10000)
	c := &counter{ReaderAt: img}
	tab := open(t, c, arch, s)
	for _, i := range []uint64{5000, 17, 9999} {
		c.bytes, c.calls = 0, 0
		pc := bigStart + i*bigStep + 5
		if _, err := tab.Row(pc); err != nil {
			t.Fatal(err)
		}
		// 14 probes of the search table, of which the last few share a block;
		// then the entry and its CIE, each in one or two reads.
		if c.calls > 16 || c.bytes > 16<<10 {
			t.Errorf("cold lookup of function %d: %d bytes in %d reads", i, c.bytes, c.calls)
		}
		c.bytes, c.calls = 0, 0
		for off := range uint64(8) {
			if _, err := tab.Row(pc - 5 + off); err != nil {
				t.Fatal(err)
			}
		}
		if c.bytes > 4<<10 {
			t.Errorf("neighbours of function %d: %d bytes in %d reads", i, c.bytes, c.calls)
		}
		c.calls = 0
		if _, err := tab.Row(pc); err != nil || c.calls != 0 {
			t.Errorf("warm lookup of function %d: %d reads, %v", i, c.calls, err)
		}
	}
}

// TestOwnIndexReadsOnce: without a header the section is read once.
func TestOwnIndexReadsOnce(t *testing.T) {
	img, arch, s := bigSection(t, 10000)
	s.HdrSize = 0
	c := &counter{ReaderAt: img}
	tab := open(t, c, arch, s)
	if c.calls != 0 {
		t.Errorf("Open read %d times", c.calls)
	}
	if _, err := tab.Row(bigStart); err != nil {
		t.Fatal(err)
	}
	if c.bytes < int(s.FrameSize) || c.bytes > 2*int(s.FrameSize) {
		t.Errorf("index of %d bytes read %d", s.FrameSize, c.bytes)
	}
	c.bytes = 0
	if _, err := tab.Row(bigStart + 7777*bigStep); err != nil || c.bytes > 4<<10 {
		t.Errorf("second lookup read %d bytes, %v", c.bytes, err)
	}
}

// TestUnreadable: a read that fails is reported as what it is, costs nothing else
// and is tried again.
func TestUnreadable(t *testing.T) {
	for _, withHdr := range []bool{true, false} {
		img, arch, s := bigSection(t, 1000)
		if !withHdr {
			s.HdrSize = 0
		}
		last := s.FrameAddr + s.FrameSize - 64 // the last functions
		c := &counter{ReaderAt: img}
		tab := open(t, c, arch, s)
		c.fail = func(off int64) bool { return uint64(off)+1024 > last && uint64(off) < s.FrameAddr+s.FrameSize }
		pc := uint64(bigStart + 999*bigStep)
		if _, err := tab.Row(pc); err == nil || damaged(err) || errors.Is(err, sframe.ErrNoRow) || c.failed == 0 {
			t.Errorf("header %t: got %v after %d failed reads, want the reader's error", withHdr, err, c.failed)
		}
		if _, err := tab.Row(bigStart); (err == nil) != withHdr {
			t.Errorf("header %t: a function elsewhere: %v", withHdr, err)
		}
		c.fail = nil
		if _, err := tab.Row(pc); err != nil {
			t.Errorf("header %t: readable again: %v", withHdr, err)
		}
		// Parts of the header that the search comes to.
		if tab = open(t, c, arch, s); withHdr {
			for pc, part := range map[uint64]int64{pc: bigHdr + 7<<10, bigStart: bigHdr + 1<<10} {
				c.fail = func(off int64) bool { return off >= part && off < part+1<<10 }
				if _, err := tab.Row(pc); err == nil || damaged(err) || errors.Is(err, sframe.ErrNoRow) {
					t.Errorf("%#x by an unreadable header: %v", pc, err)
				}
				c.fail = nil
				if _, err := tab.Row(pc); err != nil {
					t.Errorf("%#x by a readable header: %v", pc, err)
				}
			}
		}
	}
}

// The functions of bigSection.
const (
	bigStart = 0x1000000
	bigStep  = 64
)

// bigSection is an .eh_frame of n functions with 8 rows each, as a compiler makes
// them, with header.
func bigSection(t testing.TB, n int) (image, *regs.Arch, ehframe.Sections) {
	b := &builder{arch: regs.AMD64}
	cie := b.cie(1, "", nil, cfaSP8...)
	h := &builder{arch: b.arch, b: []byte{1, 0x1b, 0x03, 0x3b}}
	back := int64(frameAddr) - (bigHdr + 4)
	h.word(uint64(back), 4)
	h.word(uint64(n), 4)
	for i := range n {
		start := uint64(bigStart + i*bigStep)
		frame := byte(16 + i%14*8) // its size differs, so that rows do
		at := b.fde(cie, b.abs(start, bigStep), nil,
			0x41, 0x0e, 16, 0x86, 2, 0x43, 0x0d, 6, 0x42, 0x8c, 3, 0x42, 0x83, 4,
			0x42, 0x0c, 7, frame, 0, 0x42, 0x0a, 0xc3, 0x42, 0x0e, 8, 0x42, 0x0b)
		h.word(start-bigHdr, 4)
		h.word(uint64(frameAddr+at)-bigHdr, 4)
	}
	return image{frameAddr: b.b, bigHdr: h.b}, b.arch, ehframe.Sections{
		FrameAddr: frameAddr, FrameSize: uint64(len(b.b)),
		HdrAddr: bigHdr, HdrSize: uint64(len(h.b)),
	}
}

const bigHdr = 0x800000

// TestCacheIsBounded looks up more than the caches hold, again and again.
func TestCacheIsBounded(t *testing.T) {
	img, arch, s := bigSection(t, 30000)
	tab := open(t, img, arch, s)
	row, err := tab.Row(bigStart)
	if err != nil {
		t.Fatal(err)
	}
	before := *row
	most := 0
	for round := range 2 {
		for i := range uint64(30000) {
			for _, off := range []uint64{0, 5, 40} {
				if _, err := tab.Row(bigStart + i*bigStep + off); err != nil {
					t.Fatal(round, i, err)
				}
			}
			most = max(most, tab.CacheBytes())
		}
	}
	if limit := 5 << 20; most > limit {
		t.Errorf("caches grew to %d bytes, more than %d", most, limit)
	}
	again, err := tab.Row(bigStart)
	if err != nil || again == row || !sameRow(again, &before) || !sameRow(row, &before) {
		t.Errorf("after caches were emptied: %+v, %v, handed out before: %+v, want %+v", again, err, row, before)
	}
}

// TestWarmRowDoesNotAllocate, nor does an address without row.
func TestWarmRowDoesNotAllocate(t *testing.T) {
	img, arch, s := bigSection(t, 100)
	tab := open(t, img, arch, s)
	for _, pc := range []uint64{bigStart + 9, 0x10} {
		if n := testing.AllocsPerRun(100, func() { _, _ = tab.Row(pc) }); n != 0 {
			t.Errorf("Row(%#x): %v allocations", pc, n)
		}
	}
}
