package sframe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"sfsample/internal/sframetest"
)

// openBytes opens a section that has to be one.
func openBytes(t testing.TB, data []byte, addr uint64) *Section {
	t.Helper()
	s, err := Open(bytes.NewReader(data), addr, uint64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// faults are what the check says, each as "offset text value".
func faults(s *Section, code func(addr, size uint64) bool) []string {
	var all []string
	for err := range s.Check(code) {
		var fe *FormatError
		if !errors.As(err, &fe) {
			return append(all, err.Error())
		}
		all = append(all, fmt.Sprintf("%d %s %#x", fe.SecOff, fe.Text, fe.Value))
	}
	return all
}

// TestWindow: what is in the buffer is not read again, what is behind the section not at all.
func TestWindow(t *testing.T) {
	data := make([]byte, 5000)
	for i := range data {
		data[i] = byte(i % 251)
	}
	r := &counting{r: bytes.NewReader(data), pages: map[int64]bool{}}
	s := &Section{r: r, size: uint64(len(data))}
	w := s.window()
	defer w.release()
	for _, tt := range []struct {
		off      uint64
		n, ahead int
		reads    int // bytes
		bad      bool
	}{
		{0, 28, 0, 28, false},
		{0, 28, 0, 0, false},
		{4, 24, 0, 0, false},
		{4, 25, 0, 25, false},
		{100, 4, 64, 64, false},
		{160, 4, 0, 0, false},
		{99, 4, 0, 4, false},
		{200, 4, 9999, 4096, false},
		{4292, 4, 0, 0, false},
		{4990, 4, 64, 10, false},
		{4996, 4, 0, 0, false},
		{4996, 5, 0, 0, true},
		{5000, 0, 0, 0, false},
		{5001, 0, 0, 0, true},
		{5000, 1, 0, 0, true},
		{1<<64 - 1, 4, 0, 0, true},
	} {
		before := r.bytes
		b, err := w.at(tt.off, tt.n, tt.ahead)
		if r.bytes-before != tt.reads || isFormat(err) != tt.bad || (err != nil) != tt.bad || err == nil && !bytes.Equal(b, data[tt.off:][:tt.n]) {
			t.Errorf("%d bytes at %d, %d ahead: %v, %v, %d bytes read", tt.n, tt.off, tt.ahead, b, err, r.bytes-before)
		}
	}
	// A reader that gives less than there is, without a word.
	w.r, w.n = short{}, 0
	if _, err := w.at(0, 4, 8); !errors.Is(err, io.ErrUnexpectedEOF) || isFormat(err) {
		t.Errorf("3 bytes of 4: %v", err)
	}
	if b, err := w.at(0, 3, 8); err != nil || len(b) != 3 {
		t.Errorf("3 bytes of 3: %v, %v", b, err)
	}
}

// short gives three bytes, whatever is asked for.
type short struct{}

func (short) ReadAt([]byte, int64) (int, error) { return 3, nil }

// TestBehind: what may follow the first table of a section, in its padding to 8 bytes: zeros, other data, or another table.
func TestBehind(t *testing.T) {
	v := readVector(t, "testdata/vectors/30-v3-amd64-basic") // 93 bytes
	first := append(bytes.Clone(v.data), 0, 0, 0)
	with := func(off int, val byte) []byte {
		b := bytes.Clone(v.data)
		b[off] = val
		return b
	}
	arm := (&sframetest.Section{Version: 3, ABI: sframetest.AArch64LE}).Bytes()
	for _, tt := range []struct {
		name   string
		behind []byte
		images int
		tail   string // place, text and value
	}{
		{"nothing", nil, 1, ""},
		{"fewer zeros than a header has", make([]byte, 27), 1, ""},
		{"zeros", make([]byte, 64), 1, ""},
		{"a table behind zeros", append(make([]byte, 32), v.data...), 1, ""},
		{"other data", bytes.Repeat([]byte{7}, 64), 1, ""},
		{"a header that is cut", v.data[:27], 1, ""},
		{"a header alone", v.data[:28], 1, "offset 0x78: rows start past the section (0x20)"},
		{"another version", with(2, 4), 1, "offset 0x62: unknown version (0x4)"},
		{"another ABI", arm, 1, "offset 0x64: ABI is not that of the first table (0x2)"},
		{"a table", v.data, 2, ""},
		{"two", append(first, v.data...), 3, ""},
	} {
		data := append(bytes.Clone(first), tt.behind...)
		s := openBytes(t, data, v.addr)
		images, err := s.Images()
		got := ""
		if err != nil {
			got = err.Error()
		}
		if len(images) != tt.images || got != tt.tail {
			t.Errorf("%s: %d images, %q, want %d, %q", tt.name, len(images), got, tt.images, tt.tail)
		}
		for i, img := range images {
			if img.SecOff != uint64(96*i) || img.Header != s.Header() {
				t.Errorf("%s: image %d is at %d: %+v", tt.name, i, img.SecOff, img.Header)
			}
		}
		// The first table's rows are there, whatever follows; a gap tells of what is damaged behind.
		if _, err := s.Row(0x401000); err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		if _, err := s.Row(0x500000); errors.Is(err, ErrNoRow) != (tt.tail == "") || err == nil {
			t.Errorf("%s: an address of no function: %v", tt.name, err)
		}
	}
	// What cannot be read is asked for again.
	r := &faulty{r: bytes.NewReader(append(first, v.data...)), lo: 96, hi: 97}
	s, err := Open(r, v.addr, 96+93)
	if err != nil {
		t.Fatal(err)
	}
	if images, err := s.Images(); len(images) != 0 || !errors.Is(err, errFault) {
		t.Errorf("unreadable: %v, %v", images, err)
	}
	r.hi = 0
	if images, err := s.Images(); len(images) != 2 || err != nil {
		t.Errorf("readable again: %v, %v", images, err)
	}
}

// TestOpenSizes: sections that are none.
func TestOpenSizes(t *testing.T) {
	v := readVector(t, "testdata/vectors/30-v3-amd64-basic")
	for _, tt := range []struct {
		data []byte
		want string
	}{
		{nil, ErrEmpty.Error()},
		{v.data[:1], "offset 0x0: shorter than a header (0x1)"},
		{v.data[:27], "offset 0x0: shorter than a header (0x1b)"},
		{make([]byte, 28), ErrEmpty.Error()},
		{append(make([]byte, 27), 1), "offset 0x0: no SFrame magic (0x0)"},
		{v.data[:28], "offset 0x18: rows start past the section (0x20)"},
	} {
		if _, err := Open(bytes.NewReader(tt.data), v.addr, uint64(len(tt.data))); err == nil || err.Error() != tt.want {
			t.Errorf("%d bytes: %v, want %s", len(tt.data), err, tt.want)
		}
	}
}

// TestOverlaps: functions by start and size, and which the check calls an overlap of which.
func TestOverlaps(t *testing.T) {
	for _, tt := range []struct {
		name  string
		funcs [][2]uint64
		want  [][2]uint64 // start of a function, and of the one that it overlaps
	}{
		{"neighbours", [][2]uint64{{0x2000, 16}, {0x2010, 16}}, nil},
		{"by a byte", [][2]uint64{{0x2000, 17}, {0x2010, 16}}, [][2]uint64{{0x2010, 0x2000}}},
		{"of one byte each", [][2]uint64{{0x2000, 1}, {0x2001, 1}}, nil},
		{"in one of one byte", [][2]uint64{{0x2000, 1}, {0x2000, 2}}, [][2]uint64{{0x2000, 0x2000}}},
		{"the same", [][2]uint64{{0x2000, 16}, {0x2000, 16}}, nil},
		{"the same start", [][2]uint64{{0x2000, 16}, {0x2000, 32}}, [][2]uint64{{0x2000, 0x2000}}},
		{"the same size", [][2]uint64{{0x2000, 16}, {0x2008, 16}}, [][2]uint64{{0x2008, 0x2000}}},
		{"an empty one inside", [][2]uint64{{0x2000, 16}, {0x2008, 0}, {0x2010, 16}}, nil},
		{"several in one", [][2]uint64{{0x2000, 64}, {0x2008, 8}, {0x2020, 8}, {0x2040, 8}}, [][2]uint64{{0x2008, 0x2000}, {0x2020, 0x2000}}},
		{"one that reaches further", [][2]uint64{{0x2000, 64}, {0x2020, 64}, {0x2050, 8}}, [][2]uint64{{0x2020, 0x2000}, {0x2050, 0x2020}}},
		{"out of order", [][2]uint64{{0x2010, 16}, {0x2000, 17}}, [][2]uint64{{0x2010, 0x2000}}},
		{"up to the last address", [][2]uint64{{1<<64 - 16, 16}}, nil},
	} {
		section := sframetest.Section{Version: 3, ABI: sframetest.AMD64, FixedRA: -8, Addr: 0x1000}
		for _, f := range tt.funcs {
			section.Funcs = append(section.Funcs, sframetest.Func{Start: f[0], Size: uint32(f[1]), Width: 1})
		}
		var want []string
		for _, w := range tt.want {
			// The latter of two entries that start together.
			n := len(tt.funcs) - 1
			for tt.funcs[n][0] != w[0] {
				n--
			}
			want = append(want, fmt.Sprintf("%d overlaps the function %#x", headerBytes+16*n, w[1]))
		}
		if got := faults(openBytes(t, section.Bytes(), 0x1000), nil); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", tt.name, got, want)
		}
	}
}

// TestCheckFunctions: what the check says of single functions, in sections that are sound but for it.
func TestCheckFunctions(t *testing.T) {
	sp := func(off uint32, words ...int64) sframetest.Row {
		return sframetest.Row{Off: off, SP: true, WordBytes: 2, Words: words}
	}
	code := func(addr, size uint64) bool { return addr >= 0x2000 && size <= 0x1000 && addr+size <= 0x3000 && addr < 0x3000 }
	for _, tt := range []struct {
		name    string
		abi     uint8
		version uint8
		f       sframetest.Func
		want    []string
	}{
		{"sound", 3, 3, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{sp(0, 8)}}, nil},
		{"no code", 3, 3, sframetest.Func{Start: 0x3000, Size: 1}, []string{"28 is not in executable memory 0x3000"}},
		{"empty and no code", 3, 3, sframetest.Func{Start: 0x3000}, nil},
		{"past the last address", 3, 3, sframetest.Func{Start: 1<<64 - 16, Size: 17}, []string{"28 runs past the end of the address space 0x11", "28 is not in executable memory 0xfffffffffffffff0"}},
		{"no row at its start", 3, 3, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{sp(1, 8)}}, []string{"49 first row does not start with the function 0x1"}},
		{"empty, the same", 3, 3, sframetest.Func{Start: 0x2000, Size: 0, Rows: []sframetest.Row{sp(0, 8)}}, nil},
		{"second row later", 3, 3, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{sp(0, 8), sp(3, 16)}}, nil},
		{"row at the end of its block", 3, 3, sframetest.Func{Start: 0x2000, Size: 32, Mask: true, Rep: 8, Rows: []sframetest.Row{sp(0, 8), sp(8, 16)}}, nil},
		{"row past its block", 3, 3, sframetest.Func{Start: 0x2000, Size: 32, Mask: true, Rep: 8, Rows: []sframetest.Row{sp(0, 8), sp(9, 16)}}, []string{"53 row starts past the end of the block 0x9"}},
		{"the same in a function", 3, 3, sframetest.Func{Start: 0x2000, Size: 32, Rep: 8, Rows: []sframetest.Row{sp(0, 8), sp(9, 16)}}, nil},
		{"CFA at 12, AMD64", 3, 3, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{sp(0, 12)}}, nil},
		{"CFA at 12, AArch64", 2, 3, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{sp(0, 12)}}, []string{"49 CFA offset is not a multiple of 8 0xc"}},
		{"RA at -12", 2, 3, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{sp(0, 16, -12)}}, []string{"49 saved at an offset from the CFA that is not a multiple of 8 0xfffffff4"}},
		{"FP at -12", 2, 3, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{sp(0, 16, -8, -12)}}, []string{"49 saved at an offset from the CFA that is not a multiple of 8 0xfffffff4"}},
		{"signed, AArch64", 2, 3, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{{Signed: true, Words: []int64{16}}}}, nil},
		{"signed, s390x", 4, 3, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{{Signed: true, Words: []int64{0}}}}, []string{"49 undefined row info bits 0x82"}},
		{"key B, AArch64", 1, 2, sframetest.Func{Start: 0x2000, Size: 16, KeyB: true}, nil},
		{"key B, s390x", 4, 2, sframetest.Func{Start: 0x2000, Size: 16, KeyB: true}, []string{"28 undefined function info bits 0x20"}},
		{"no register, s390x V2", 4, 2, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{sp(0, 0, 32<<1|1)}}, []string{"52 no such register 0x20"}},
		{"a negative one", 4, 2, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{sp(0, 0, -1)}}, []string{"52 no such register 0xffffffff"}},
		{"FP in the last register", 4, 2, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{sp(0, 0, 0, 31<<1|1)}}, nil},
		{"the same, V3", 4, 3, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{sp(0, 0, 0, 31<<1|1)}}, []string{"49 saved at an offset from the CFA that is not a multiple of 8 0x3f"}},
		{"CFA of 2 GiB, s390x", 4, 3, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{{WordBytes: 4, Words: []int64{1<<28 - 20}}}}, []string{"51 CFA offset does not fit 32 bits 0x80000000"}},
		{"8 bytes less", 4, 3, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{{WordBytes: 4, Words: []int64{1<<28 - 21}}}}, nil},
	} {
		tt.f.Width = 1
		section := sframetest.Section{Version: tt.version, ABI: tt.abi, Addr: 0x1000, Funcs: []sframetest.Func{tt.f}}
		if tt.abi == sframetest.AMD64 {
			section.FixedRA = -8
		}
		if got := faults(openBytes(t, section.Bytes(), 0x1000), code); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
