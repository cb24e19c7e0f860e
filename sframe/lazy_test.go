package sframe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"sfsample/internal/sframetest"
)

// counting counts what is read of a section: bytes, and bytes in pages, since
// memory of a process is best read by page.
type counting struct {
	r     io.ReaderAt
	bytes int
	calls int
	pages map[int64]bool
}

func (c *counting) ReadAt(p []byte, off int64) (int, error) {
	n, err := c.r.ReadAt(p, off)
	c.bytes += n
	c.calls++
	for page := off / 4096; page <= (off+int64(n)-1)/4096; page++ {
		c.pages[page] = true
	}
	return n, err
}

// bigSection is a sorted section of the functions of a large program: n
// functions of 64 bytes with 5 rows each, and one in the middle with many rows.
func bigSection(version uint8, n, rows int) *sframetest.Section {
	s := &sframetest.Section{Version: version, Flags: sframetest.Sorted, ABI: sframetest.AMD64, FixedRA: -8, Addr: 0x400000}
	if version == 3 {
		s.Flags |= sframetest.PCRel
	}
	start := s.Addr + 0x10000000
	for i := range n {
		f := sframetest.Func{Start: start, Size: 64, Width: 1}
		for j := range uint32(5) {
			f.Rows = append(f.Rows, sframetest.Row{Off: 12 * j, SP: true, WordBytes: 1, Words: []int64{int64(8 + 8*j), -16}})
		}
		if i == n/2 {
			f.Rows, f.Width, f.Size = nil, 4, uint32(8*rows)
			for j := range rows {
				f.Rows = append(f.Rows, sframetest.Row{Off: uint32(8 * j), SP: true, WordBytes: 2, Words: []int64{int64(8 * j % 30000), -16}})
			}
		}
		s.Funcs = append(s.Funcs, f)
		start += uint64(f.Size)
	}
	return s
}

// TestColdBytes: a cold look-up in a section of 10 MB, from the opening on,
// reads at most 64 KiB of it, even if every read is of whole pages.
func TestColdBytes(t *testing.T) {
	for _, version := range []uint8{1, 2, 3} {
		section := bigSection(version, 280_000, 1000)
		data := section.Bytes()
		if len(data) < 10_000_000 {
			t.Fatalf("section has only %d bytes", len(data))
		}
		rnd := rand.New(rand.NewPCG(1, 5))
		most, mostPages := 0, 0
		for i := range 2000 {
			f := &section.Funcs[rnd.IntN(len(section.Funcs))]
			if i == 0 {
				f = &section.Funcs[len(section.Funcs)/2] // the long one, at its end
			}
			pc := f.Start + uint64(f.Size) - 1
			r := &counting{r: bytes.NewReader(data), pages: map[int64]bool{}}
			s, err := Open(r, section.Addr, uint64(len(data)))
			if err != nil {
				t.Fatal(err)
			}
			if r.bytes != headerBytes {
				t.Fatalf("V%d: Open reads %d bytes, want the header's %d", version, r.bytes, headerBytes)
			}
			row, err := s.Row(pc)
			if want := f.Rows[len(f.Rows)-1].Words[0]; err != nil || int64(row.CFA.Offset) != want {
				t.Fatalf("V%d: %#x: got %v, %v, want offset %d", version, pc, row, err, want)
			}
			most, mostPages = max(most, r.bytes), max(mostPages, len(r.pages))
			before := r.bytes
			if _, err := s.Row(pc); err != nil || r.bytes != before {
				t.Fatalf("V%d: a warm look-up reads %d bytes (%v)", version, r.bytes-before, err)
			}
		}
		t.Logf("V%d: %d bytes: at most %d bytes in %d pages", version, len(data), most, mostPages)
		if most > 64<<10 || mostPages*4096 > 64<<10 {
			t.Errorf("V%d: %d bytes in %d pages, want at most 64 KiB", version, most, mostPages)
		}
	}
}

// TestWarmAllocations: a warm look-up allocates nothing, whatever the answer.
func TestWarmAllocations(t *testing.T) {
	section := bigSection(3, 100, 10)
	data := section.Bytes()
	data[len(data)-1-5*4-3] = 3 // damage the last function's row address type
	s, err := Open(bytes.NewReader(data), section.Addr, uint64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	last := section.Funcs[len(section.Funcs)-1].Start
	for name, pc := range map[string]uint64{"row": section.Funcs[3].Start + 20, "no row": 1, "damage": last} {
		_, err := s.Row(pc)
		if (err == nil) != (name == "row") || errors.Is(err, ErrNoRow) != (name == "no row") {
			t.Errorf("%s: got %v", name, err)
		}
		if n := testing.AllocsPerRun(100, func() { s.Row(pc) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestCacheBound: the cache stays within its bounds, and answers stay right,
// whatever is asked.
func TestCacheBound(t *testing.T) {
	section := bigSection(2, 3000, 10)
	data := section.Bytes()
	s, err := Open(bytes.NewReader(data), section.Addr, uint64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range section.Funcs {
		f := &section.Funcs[i]
		for off := range uint64(f.Size) {
			row, err := s.Row(f.Start + off)
			want := f.Rows[0]
			for _, r := range f.Rows {
				if uint64(r.Off) <= off {
					want = r
				}
			}
			if err != nil || int64(row.CFA.Offset) != want.Words[0] {
				t.Fatalf("%#x: got %v, %v, want offset %d", f.Start+off, row, err, want.Words[0])
			}
		}
	}
	table, kept := s.cache.table.Load(), 0
	for i := range table.slots {
		if table.slots[i].Load() != 0 {
			kept++
		}
	}
	if len(table.slots) != maxSlots || kept < maxSlots/2 || kept != s.cache.used {
		t.Errorf("%d slots, %d in use, want %d", len(table.slots), kept, maxSlots)
	}
	if n := s.CacheBytes(); n > 1.1e6 {
		t.Errorf("the cache has %d bytes", n)
	}
}

// TestCacheAnswers: answers stay right and bounded while there are more different
// ones than are kept, and for addresses that are too far away to be.
func TestCacheAnswers(t *testing.T) {
	section := bigSection(3, 3*maxAnswers, 1)
	for i := range section.Funcs {
		section.Funcs[i].Rows[0] = sframetest.Row{SP: true, WordBytes: 4, Words: []int64{int64(8 * i)}}
	}
	data := section.Bytes()
	s, err := Open(bytes.NewReader(data), section.Addr, uint64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for i := range section.Funcs {
			pc := section.Funcs[i].Start
			for range 2 {
				if row, err := s.Row(pc); err != nil || int(row.CFA.Offset) != 8*i {
					t.Fatalf("%#x: got %v, %v, want offset %d", pc, row, err, 8*i)
				}
			}
			if n := len(s.cache.table.Load().answers); n > maxAnswers {
				t.Fatalf("%d answers kept", n)
			}
		}
		pc := section.Funcs[5].Start
		for _, far := range []uint64{pc + 1<<47, pc - 1<<47, pc + 1<<48, pc | 1<<63, 0, ^uint64(0)} {
			if row, err := s.Row(far); !errors.Is(err, ErrNoRow) {
				t.Fatalf("%#x: got %v, %v", far, row, err)
			}
		}
	}
	if n := s.CacheBytes(); n > 1.1e6 {
		t.Errorf("the cache has %d bytes", n)
	}
}

// TestCacheStale: an answer that was found before the cache was emptied is not
// kept after it.
func TestCacheStale(t *testing.T) {
	section := bigSection(3, 10, 1)
	data := section.Bytes()
	s, err := Open(bytes.NewReader(data), section.Addr, uint64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	pc := section.Funcs[3].Start
	old := s.cache.table.Load()
	s.cache.reset()
	row, err := s.coldRow(old, pc)
	if err != nil || s.cache.table.Load().find(pc) != nil {
		t.Errorf("kept: %v, %v", row, err)
	}
	if again, err := s.Row(pc); err != nil || again != row || s.cache.table.Load().find(pc) == nil {
		t.Errorf("not kept: %v, %v", row, err)
	}
}

// faulty fails in a range of offsets until it is mended.
type faulty struct {
	r      io.ReaderAt
	lo, hi int64
	hits   int
}

var errFault = errors.New("fault")

func (f *faulty) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) <= f.lo || off >= f.hi {
		return f.r.ReadAt(p, off)
	}
	f.hits++
	n := max(f.lo-off, 0)
	f.r.ReadAt(p[:n], off)
	return int(n), errFault
}

// TestReadFault: an unreadable part costs the look-ups that need it, and only
// for as long as it is unreadable.
func TestReadFault(t *testing.T) {
	section := bigSection(3, 1000, 10)
	data := section.Bytes()
	table := int64(headerBytes + 16*len(section.Funcs))
	r := &faulty{r: bytes.NewReader(data), lo: 0, hi: 8}
	if _, err := Open(r, section.Addr, uint64(len(data))); !errors.Is(err, errFault) || r.hits != 1 {
		t.Errorf("header unreadable: got %v after %d faults", err, r.hits)
	}
	for name, span := range map[string][2]int64{
		"the first entry probed": {headerBytes + 16*500, headerBytes + 16*501},
		"an entry":               {headerBytes + 16*7, headerBytes + 16*8},
		"rows":                   {table + 7*25, table + 8*25},
		"a row's words":          {table + 7*25 + 5 + 2, table + 7*25 + 5 + 4},
	} {
		t.Run(name, func(t *testing.T) {
			r := &faulty{r: bytes.NewReader(data), lo: span[0], hi: span[1]}
			s, err := Open(r, section.Addr, uint64(len(data)))
			if err != nil {
				t.Fatal(err)
			}
			pc := section.Funcs[7].Start
			if row, err := s.Row(pc); !errors.Is(err, errFault) || row != nil || r.hits == 0 {
				t.Errorf("got %v, %v after %d faults", row, err, r.hits)
			}
			r.lo, r.hi = 0, 0
			if _, err := s.Row(pc); err != nil {
				t.Errorf("mended: %v", err)
			}
		})
	}
	// A fault behind what is needed is none.
	end := table + 8*25
	r = &faulty{r: bytes.NewReader(data), lo: end, hi: end + 100000}
	s, err := Open(r, section.Addr, uint64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Row(section.Funcs[7].Start); err != nil || r.hits == 0 {
		t.Errorf("fault behind the rows: %v after %d faults", err, r.hits)
	}
}

// TestDisorder: a table that claims to be sorted and is not is searched all the
// same: one function out of place, a few, all.
func TestDisorder(t *testing.T) {
	for _, swaps := range []int{1, 5, 1000} {
		rnd := rand.New(rand.NewPCG(uint64(swaps), 6))
		section := bigSection(3, 300, 10)
		for range swaps {
			i, j := rnd.IntN(300), rnd.IntN(300)
			section.Funcs[i], section.Funcs[j] = section.Funcs[j], section.Funcs[i]
		}
		data := section.Bytes()
		for i := range section.Funcs {
			// Anew for each, so that no look-up profits from another's.
			s, err := Open(bytes.NewReader(data), section.Addr, uint64(len(data)))
			if err != nil {
				t.Fatal(err)
			}
			f := &section.Funcs[i]
			e, err := s.Find(f.Start + 1)
			if err != nil || e.FuncStart != f.Start {
				t.Errorf("%d swaps, function %d: got %#x, %v, want %#x", swaps, i, e.FuncStart, err, f.Start)
			}
		}
	}
}

// zeros is a section that claims what its header says, and is zero behind it.
type zeros struct {
	header []byte
	reads  int
}

func (z *zeros) ReadAt(p []byte, off int64) (int, error) {
	z.reads += len(p)
	clear(p)
	if off < int64(len(z.header)) {
		copy(p, z.header[off:])
	}
	return len(p), nil
}

// TestHostileSizes: counts and lengths near 2^32 cost neither memory nor time.
func TestHostileSizes(t *testing.T) {
	const huge = 1<<32 - 1
	for _, tt := range []struct {
		name                               string
		flags                              byte
		fdes, fres, freLen, fdeOff, freOff uint32
		size                               uint64
		open, find                         bool // an error is wanted
		maxReads                           int
	}{
		{"counts of 2^32", 5, huge, huge, huge, 0, huge, 1 << 40, true, false, 100},
		{"268 million sorted functions", 5, 1 << 28, huge, huge - 28, 0, 1<<32 - 16, 1 << 40, true, false, 100},
		{"functions up to the rows", 5, 1<<28 - 1, huge, huge, 0, huge - 15, 1 << 40, false, true, 200_000},
		{"the same, not sorted", 4, 1<<28 - 1, huge, huge, 0, huge - 15, 1 << 40, false, true, 1000},
		{"index at its bound", 4, maxIndex + 1, 0, huge, 0, 1 << 30, 1 << 40, false, true, 1000},
		{"section of 2^64 bytes", 5, 0, 0, huge, huge, huge, 1<<64 - 1, false, true, 1000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := []byte{0xe2, 0xde, 3, tt.flags, 3, 0, 0xf8, 0}
			for _, n := range []uint32{tt.fdes, tt.fres, tt.freLen, tt.fdeOff, tt.freOff} {
				h = binary.LittleEndian.AppendUint32(h, n)
			}
			z := &zeros{header: h}
			s, err := Open(z, 0x400000, tt.size)
			if (err != nil) != tt.open {
				t.Fatalf("Open: got %v", err)
			}
			if err == nil {
				_, err := s.Row(0x12345678)
				if (err != nil) != tt.find {
					t.Errorf("Row: got %v", err)
				}
				const many = "offset 0x8: table is not sorted and has more than 1048576 functions (0x"
				if tt.flags == 4 && !strings.HasPrefix(err.Error(), many) {
					t.Errorf("Row: got %v, want %s…", err, many)
				}
			}
			if z.reads > tt.maxReads {
				t.Errorf("%d bytes read, want at most %d", z.reads, tt.maxReads)
			}
		})
	}
}

// TestCheckEnds: a check of a hostile section ends: when it has reported enough,
// or when functions share rows without end.
func TestCheckEnds(t *testing.T) {
	section := bigSection(3, 20_000, 5)
	for i := range section.Funcs {
		section.Funcs[i].Rows[0].Off = 1
	}
	shared := &sframetest.Section{Version: 3, Flags: sframetest.Sorted, ABI: sframetest.AMD64, FixedRA: -8, Addr: 0x400000}
	for i := range 5000 {
		f := sframetest.Func{Start: 0x500000 + uint64(i)*16, Size: 16, Width: 1}
		if i == 0 {
			for range 60_000 {
				f.Rows = append(f.Rows, sframetest.Row{SP: true, Words: []int64{8}})
			}
		} else {
			f.Share = 1
		}
		shared.Funcs = append(shared.Funcs, f)
	}
	for _, s := range []*sframetest.Section{section, shared} {
		data := s.Bytes()
		open, err := Open(bytes.NewReader(data), s.Addr, uint64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		var last error
		n := 0
		for err := range open.Check(nil) {
			last = err
			n++
		}
		var fe *FormatError
		want, text := 10_001, "offset 0x0: too many faults, the check ends (0x2710)"
		if s == shared {
			// Each function has 60,000 rows of 3 bytes; those of the seventh are more than 5000 + 2 for each byte.
			want, text = 1, "offset 0x7c: functions share more rows than are checked (0x668a0)"
		}
		if n != want || !errors.As(last, &fe) || !fe.Whole || fe.Error() != text {
			t.Errorf("%d faults, the last is %v, want %d, %s", n, last, want, text)
		}
	}
}
