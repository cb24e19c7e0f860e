package sframe

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
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
	r := &counting{r: bytes.NewReader(append(bytes.Clone(data), data...)), pages: map[int64]bool{}}
	s := &Section{r: r, size: uint64(len(data))}
	w := s.window()
	defer w.release()
	for _, tt := range []struct {
		off      uint64
		n, ahead int
		reads    int // bytes
		bad      bool
	}{
		{0, 1, 0, 1, false},
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
	w.r, w.n = &faulty{r: bytes.NewReader(nil), hi: 1}, 0
	for range 2 { // what was not read is not there
		if b, err := w.at(0, 1, 0); !errors.Is(err, errFault) {
			t.Errorf("unreadable: %v, %v", b, err)
		}
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
	told := 0
	for f, err := range s.Funcs() {
		if told++; !errors.Is(err, errFault) || f.img != nil {
			t.Errorf("unreadable: %+v, %v", f, err)
		}
	}
	if got := faults(s, nil); len(got) != 1 || told != 1 || r.hits != 3 {
		t.Errorf("unreadable: %q, told %d times, %d tries", got, told, r.hits)
	}
	r.hi = 0
	if images, err := s.Images(); len(images) != 2 || err != nil {
		t.Errorf("readable again: %v, %v", images, err)
	}
}

// TestJoined: tables of all lengths, each padded to 8 bytes, and as many of them as are read.
func TestJoined(t *testing.T) {
	for aux := range 9 {
		one := (&sframetest.Section{Version: 3, ABI: sframetest.AArch64LE, Aux: make([]byte, aux)}).Bytes()
		data := append(bytes.Clone(one), make([]byte, -len(one)&7)...)
		next := uint64(len(data))
		images, err := openBytes(t, append(data, one...), 0x1000).Images()
		if err != nil || len(images) != 2 || images[1].SecOff != next {
			t.Errorf("%d bytes: %d images, %v", len(one), len(images), err)
		}
	}
	one := (&sframetest.Section{Version: 3, ABI: sframetest.AArch64LE, Aux: make([]byte, 4)}).Bytes() // 32 bytes
	for n, want := range map[int]string{65_536: "", 65_537: "offset 0x200000: more joined tables than are read (0x10000)"} {
		images, err := openBytes(t, bytes.Repeat(one, n), 0x1000).Images()
		if len(images) != 65_536 || (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%d tables: %d images, %v", n, len(images), err)
		}
	}
}

// TestManyRows: 2^18 rows in a function, and one more.
func TestManyRows(t *testing.T) {
	for n, good := range map[int]bool{1 << 18: true, 1<<18 + 1: false} {
		section := sframetest.Section{Version: 2, ABI: sframetest.AMD64, FixedRA: -8, Addr: 0x1000}
		section.Funcs = []sframetest.Func{{Start: 0x2000, Size: 16, Width: 1, Rows: make([]sframetest.Row, n)}}
		if row, err := openBytes(t, section.Bytes(), 0x1000).Row(0x2000); (err == nil) != good || isFormat(err) == good || good && !row.Outermost {
			t.Errorf("%d rows: %v, %v", n, row, err)
		}
	}
}

// TestCheckJoined: each of several tables is checked by itself: its count of rows, and its order.
func TestCheckJoined(t *testing.T) {
	var data []byte
	for i := range uint64(3) {
		section := sframetest.Section{Version: 3, Flags: sframetest.Sorted, ABI: sframetest.AMD64, FixedRA: -8, Addr: 0x1000 + uint64(len(data))}
		section.Funcs = []sframetest.Func{{Start: 0x9000 - 0x1000*i, Size: 16, Width: 1, Rows: []sframetest.Row{{Words: []int64{8}}}}}
		b := section.Bytes() // 28 bytes of header, 16, 5, 3
		b[12] = byte(7 + i)
		data = append(append(data, b...), 0, 0, 0, 0)
	}
	want := []string{}
	for i := range 3 {
		want = append(want, fmt.Sprintf("%d header counts other rows than the functions, which have 1 %#x", 56*i+12, 7+i))
	}
	if got := faults(openBytes(t, data, 0x1000), nil); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestStops: a check can be left at each kind of fault, in each of two tables. (The language sees to it that nothing is
// yielded afterwards.)
func TestStops(t *testing.T) {
	table := func(addr uint64) []byte {
		row := func(off uint32) sframetest.Row { return sframetest.Row{Off: off, SP: true, Words: []int64{8}} }
		section := sframetest.Section{Version: 3, Flags: sframetest.Sorted, ABI: sframetest.AMD64, FixedRA: -9, Addr: addr, Funcs: []sframetest.Func{
			{Start: 0x3000, Size: 16, Width: 1, Rows: []sframetest.Row{row(1), row(17)}},
			{Start: 0x2000, Size: 0x1001, Width: 1, Mask: true, Rows: []sframetest.Row{row(0)}},
			{Start: 0x2000, Size: 0x1002, Width: 1, KeyB: true, Rows: []sframetest.Row{row(0)}},
		}}
		b := section.Bytes()
		b[12]++ // rows
		return append(b, make([]byte, -len(b)&7)...)
	}
	data := table(0x1000)
	data = append(data, table(0x1000+uint64(len(data)))...)
	data = append(data, data[:28]...) // a third one, cut
	s := openBytes(t, data, 0x1000)
	all := faults(s, nil)
	for n := range all {
		i := 0
		for range s.Check(nil) {
			if i++; i > n {
				break
			}
		}
		if i != n+1 {
			t.Errorf("%d faults of %d", i, n+1)
		}
	}
	var full []string
	for err := range s.Check(nil) {
		full = append(full, err.Error())
	}
	for _, want := range []string{
		"function 0x3000, row 0: offset 0x51: first row does not start with the function (0x1)",
		"function 0x3000, row 1: offset 0x54: row starts past the end of the function (0x11)",
		"function 0x2000: offset 0x2c: starts before its predecessor in a table that claims to be sorted (0x3000)",
	} {
		if !slices.Contains(full, want) {
			t.Errorf("%q is not among %q", want, full)
		}
	}
	kinds := map[string]int{}
	for _, f := range all {
		text := strings.Fields(f)
		kinds[strings.Join(text[1:len(text)-1], " ")]++
	}
	// Each in both tables; what overlaps, of all functions together.
	for kind, want := range map[string]int{
		"rows start past the section": 1, "return address is not where AMD64's call instruction puts it": 2, "fixed offset is not a multiple of 8": 2,
		"first row does not start with the function": 2, "row starts past the end of the function": 2, "repeating rows without a block size": 2,
		"starts before its predecessor in a table that claims to be sorted": 2, "undefined function info bits": 2,
		"header counts other rows than the functions, which have 4": 2, "overlaps the function": 2,
		"saved at an offset from the CFA that is not a multiple of 8": 4,
	} {
		if kinds[kind] != want {
			t.Errorf("%s: %d times, want %d", kind, kinds[kind], want)
		}
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
		{"one that ends with it", [][2]uint64{{0x2000, 64}, {0x2020, 32}, {0x2030, 8}}, [][2]uint64{{0x2020, 0x2000}, {0x2030, 0x2000}}},
		{"out of order", [][2]uint64{{0x2010, 16}, {0x2000, 17}}, [][2]uint64{{0x2010, 0x2000}}},
		{"up to the last address", [][2]uint64{{1<<64 - 16, 16}, {1<<64 - 8, 8}}, [][2]uint64{{1<<64 - 8, 1<<64 - 16}}},
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
	code := func(addr, size uint64) bool {
		return addr >= 0x2000 && size <= 0x1000 && addr+size <= 0x3000 && addr < 0x3000
	}
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
		{"the least number", 4, 2, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{{WordBytes: 4, Words: []int64{0, -1<<31 | 1}}}}, []string{"54 no such register 0xc0000000"}},
		{"no words, V1", 3, 1, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{{}}}, []string{"46 number of words does not fit the row 0x0"}},
		{"no words, V2", 3, 2, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{{}}}, nil},
		{"four words", 2, 3, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{sp(0, 16, -8, -16, 0)}}, []string{"50 number of words does not fit the row 0x4"}},
		{"FP in the last register", 4, 2, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{sp(0, 0, 0, 31<<1|1)}}, nil},
		{"FP in the first register", 4, 2, sframetest.Func{Start: 0x2000, Size: 16, Rows: []sframetest.Row{sp(0, 0, 0, 1)}}, nil},
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

// TestRegisters: which registers a flexible CFA may start from (DWARF numbers of the psABIs): on AMD64 16 is the return
// address, 17 to 32 are vector registers.
func TestRegisters(t *testing.T) {
	for abi, good := range map[ABI]func(n int) bool{
		AMD64: func(n int) bool { return n <= 15 || n >= 33 }, S390X: func(n int) bool { return n <= 31 },
		AArch64LE: func(n int) bool { return n <= 31 }, AArch64BE: func(n int) bool { return n <= 31 }, 5: func(int) bool { return false },
	} {
		for n := range 256 {
			if got := abi.address(uint8(n)); got != good(n) {
				t.Errorf("%s: register %d: %v", abi, n, got)
			}
		}
	}
}

// TestFlexWords: data words of a flexible row (control word: register above three bits, 2 loads, 1 is the register instead
// of the CFA), and the rules or the fault: place, text and value. Words have 2 bytes; the first one is at 51.
func TestFlexWords(t *testing.T) {
	const sp, fp, onFP, atCFA = 7<<3 | 1, 6<<3 | 1, 6<<3 | 3, 2
	for _, tt := range []struct {
		words []int64
		want  string
	}{
		{[]int64{sp, 16}, "CFA=r7+16 RA=*(cfa-8) FP=same"},
		{[]int64{onFP, -16}, "CFA=*(r6-16) RA=*(cfa-8) FP=same"},
		{[]int64{sp, 16, 0}, "CFA=r7+16 RA=*(cfa-8) FP=same"},
		{[]int64{sp, 16, atCFA, -24}, "CFA=r7+16 RA=*(cfa-24) FP=same"},
		{[]int64{sp, 16, 0, 0}, "CFA=r7+16 RA=*(cfa-8) FP=same"},
		{[]int64{sp, 16, 0, atCFA, -16}, "CFA=r7+16 RA=*(cfa-8) FP=*(cfa-16)"},
		{[]int64{sp, 16, 0, 0, 0}, "CFA=r7+16 RA=*(cfa-8) FP=same"},
		{[]int64{sp, 16, atCFA, -24, fp, 0}, "CFA=r7+16 RA=*(cfa-24) FP=r6+0"},
		{[]int64{sp, 16, atCFA, -24, 0, 0}, "CFA=r7+16 RA=*(cfa-24) FP=same"},
		{[]int64{255<<3 | 1, 16}, "CFA=r255+16 RA=*(cfa-8) FP=same"},
		{[]int64{256<<3 | 1, 16}, "51 no such register 0x100"},
		{[]int64{sp, 16, 0, 256<<3 | 1, 0}, "57 no such register 0x100"},
		{[]int64{16<<3 | 1, 16}, "51 register cannot hold an address 0x10"},
		{[]int64{atCFA, 16}, "51 CFA defined by itself 0x2"},
		{[]int64{0, 16}, "51 CFA defined by itself 0x0"},
		{[]int64{sp, 16, atCFA}, "55 control word without an offset 0x2"},
		{[]int64{sp, 16, 0, fp}, "57 control word without an offset 0x31"},
		{[]int64{sp, 16, atCFA, -24, fp}, "59 control word without an offset 0x31"},
		{[]int64{sp, 16, 0, atCFA, -16, 9}, "61 word left over 0x9"},
		{[]int64{sp, 16, 0, 0, 0, 9}, "61 word left over 0x9"},
		{[]int64{sp}, "50 number of words does not fit the row 0x1"},
		{[]int64{sp, 16, 0, 0, 0, 0, 0}, "50 number of words does not fit the row 0x7"},
	} {
		section := sframetest.Section{Version: 3, ABI: sframetest.AMD64, FixedRA: -8, Addr: 0x1000, Funcs: []sframetest.Func{
			{Start: 0x2000, Size: 16, Width: 1, Flex: true, Rows: []sframetest.Row{{WordBytes: 2, Words: tt.words}}},
		}}
		s := openBytes(t, section.Bytes(), 0x1000)
		f, err := s.Func(0x2000)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if row, err := s.Row(0x2008); err == nil {
			got = vectorRow(&f, row)
		} else if list := faults(s, nil); len(list) == 1 {
			got = list[0]
		}
		if got != tt.want {
			t.Errorf("%x: %s, want %s", tt.words, got, tt.want)
		}
	}
}

// TestEmptyNeighbours: functions of no size stand in the way of a search, by their start and in any order; the one that
// covers the address is found.
func TestEmptyNeighbours(t *testing.T) {
	for before := range 3 {
		for behind := range 3 {
			section := sframetest.Section{Version: 3, Flags: sframetest.Sorted, ABI: sframetest.AMD64, FixedRA: -8, Addr: 0x1000}
			add := func(start uint64, size uint32) {
				section.Funcs = append(section.Funcs, sframetest.Func{Start: start, Size: size, Width: 1, Rows: []sframetest.Row{{SP: true, Words: []int64{int64(size)}}}})
			}
			add(0x2000, 1)
			for range before {
				add(0x3000, 0)
			}
			add(0x3000, 8)
			for range behind {
				add(0x3000, 0)
			}
			add(0x3004, 0)
			add(0x3010, 1)
			for _, sorted := range []uint8{sframetest.Sorted, 0} {
				section.Flags = sorted
				s := openBytes(t, section.Bytes(), 0x1000)
				for pc, want := range map[uint64]uint64{0x2000: 0x2000, 0x3000: 0x3000, 0x3004: 0x3000, 0x3007: 0x3000, 0x3010: 0x3010} {
					if e, err := s.Find(pc); err != nil || e.FuncStart != want {
						t.Errorf("%d before, %d behind: %#x: got %+v, %v", before, behind, pc, e, err)
					}
				}
				for _, pc := range []uint64{0x1fff, 0x2001, 0x2fff, 0x3008, 0x300f, 0x3011} {
					if e, err := s.Find(pc); err != ErrNoRow {
						t.Errorf("%d before, %d behind: %#x: got %+v, %v", before, behind, pc, e, err)
					}
				}
			}
		}
	}
}

// TestSearchReads: of 4096 functions seven halvings leave 32, which are read at once with two neighbours on either side: all
// that the rest of the search, and the look around where it misses, need. A hit reads attributes and rows besides.
func TestSearchReads(t *testing.T) {
	for _, version := range []uint8{2, 3} {
		section := sframetest.Section{Version: version, Flags: sframetest.Sorted, ABI: sframetest.AMD64, FixedRA: -8, Addr: 0x1000}
		for i := range uint64(4096) {
			section.Funcs = append(section.Funcs, sframetest.Func{Start: 0x100000 + 64*i, Size: 32, Width: 1, Rows: []sframetest.Row{{Words: []int64{8}}}})
		}
		data, n := section.Bytes(), section.EntryBytes()
		r := &counting{r: bytes.NewReader(data), pages: map[int64]bool{}}
		s, err := Open(r, 0x1000, uint64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for i := range uint64(4096) {
			r.calls, r.bytes = 0, 0
			if _, err := s.Find(0x100000 + 64*i); err != nil || r.calls > 7+1+1 || r.bytes > 7*n+36*n+256 {
				t.Errorf("V%d, function %d: %v, %d bytes in %d reads", version, i, err, r.bytes, r.calls)
			}
			r.calls, r.bytes = 0, 0
			if _, err := s.Find(0x100000 + 64*i - 1); err != ErrNoRow || r.calls > 7+1 || r.bytes > 7*n+36*n {
				t.Errorf("V%d, in front of function %d: %v, %d bytes in %d reads", version, i, err, r.bytes, r.calls)
			}
		}
	}
}

// TestSwapped: tables of up to twelve functions that claim to be sorted, of which any two have changed places: each function
// is found by who asks for it first.
func TestSwapped(t *testing.T) {
	for n := 2; n <= 12; n++ {
		for i := range n {
			for j := range i {
				section := bigSection(3, n, 1)
				fs := section.Funcs
				fs[i], fs[j] = fs[j], fs[i]
				data := section.Bytes()
				for k := range fs {
					if e, err := openBytes(t, data, section.Addr).Find(fs[k].Start + uint64(fs[k].Size)/2); err != nil || e.FuncStart != fs[k].Start {
						t.Errorf("%d functions, %d and %d swapped: place %d: got %+v, %v", n, j, i, k, e, err)
					}
				}
			}
		}
	}
}

// TestManyEmpty: 255 of them are stepped over, not more.
func TestManyEmpty(t *testing.T) {
	for n, want := range map[int]error{255: nil, 256: ErrNoRow} {
		section := sframetest.Section{Version: 3, Flags: sframetest.Sorted, ABI: sframetest.AMD64, FixedRA: -8, Addr: 0x1000}
		section.Funcs = append(make([]sframetest.Func, 0), sframetest.Func{Start: 0x2000, Size: 16, Width: 1})
		for range n {
			section.Funcs = append(section.Funcs, sframetest.Func{Start: 0x2000, Width: 1})
		}
		if e, err := openBytes(t, section.Bytes(), 0x1000).Find(0x2008); err != want {
			t.Errorf("%d empty functions: %+v, %v", n, e, err)
		}
	}
}

// TestEntries: addresses that a row covers, and its function; in a function that repeats its rows, those of one block; in a
// function without rows, all of it.
func TestEntries(t *testing.T) {
	rows := []sframetest.Row{{SP: true, Words: []int64{8}}, {Off: 5, SP: true, Words: []int64{16}}, {Off: 5, SP: true, Words: []int64{24}}, {Off: 9, SP: true, Words: []int64{32}}}
	section := sframetest.Section{Version: 3, Flags: sframetest.Sorted, ABI: sframetest.AMD64, FixedRA: -8, Addr: 0x1000, Funcs: []sframetest.Func{
		{Start: 0x2000, Size: 16, Width: 1, Rows: rows},
		{Start: 0x3000, Size: 40, Width: 1, Mask: true, Rep: 16, Rows: rows},
		{Start: 0x4000, Size: 16, Width: 1},
		{Start: 0x5000, Size: 16, Width: 1, Rows: rows[1:]},
		{Start: 0x6000, Size: 40, Width: 1, Mask: true, Rep: 16},
	}}
	s := openBytes(t, section.Bytes(), 0x1000)
	for pc, want := range map[uint64][3]uint64{ // start, end, offset of the CFA
		0x2000: {0x2000, 0x2005, 8}, 0x2004: {0x2000, 0x2005, 8}, 0x2005: {0x2005, 0x2009, 24}, 0x2009: {0x2009, 0x2010, 32}, 0x200f: {0x2009, 0x2010, 32},
		0x3000: {0x3000, 0x3005, 8}, 0x300f: {0x3009, 0x3010, 32}, 0x3010: {0x3010, 0x3015, 8}, 0x301a: {0x3019, 0x3020, 32},
		0x3024: {0x3020, 0x3025, 8}, 0x3027: {0x3025, 0x3028, 24}, 0x4003: {0x4000, 0x4010, 0}, 0x5005: {0x5005, 0x5009, 24},
		0x6013: {0x6000, 0x6028, 0},
	} {
		e, err := s.Find(pc)
		if got := [3]uint64{e.Start, e.End, uint64(e.Row.CFA.Offset)}; err != nil || got != want || e.FuncStart != pc&^0xfff || e.Row.Outermost != (want[2] == 0) {
			t.Errorf("%#x: got %#x, %v, want %#x", pc, got, err, want)
		}
	}
	if e, err := s.Find(0x5004); err != ErrNoRow {
		t.Errorf("in front of the first row: %+v, %v", e, err)
	}
}

// TestInner: where functions overlap, the one that starts last answers for its own addresses; those behind it in the other
// have no row, as in libsframe, which looks at one function.
func TestInner(t *testing.T) {
	section := sframetest.Section{Version: 3, Flags: sframetest.Sorted, ABI: sframetest.AMD64, FixedRA: -8, Addr: 0x1000}
	for _, f := range [][2]uint64{{0x2000, 0x100}, {0x2010, 8}, {0x3000, 8}, {0x4000, 64}, {0x4000, 8}} {
		section.Funcs = append(section.Funcs, sframetest.Func{Start: f[0], Size: uint32(f[1]), Width: 1, Rows: []sframetest.Row{{Words: []int64{8}}}})
	}
	s := openBytes(t, section.Bytes(), 0x1000)
	for pc, want := range map[uint64]uint64{0x200f: 0x2000, 0x2010: 0x2010, 0x2017: 0x2010, 0x2018: 0, 0x20ff: 0, 0x4007: 0x4000, 0x4008: 0x4000, 0x403f: 0x4000} {
		if e, err := s.Find(pc); e.FuncStart != want || (err == ErrNoRow) != (want == 0) {
			t.Errorf("%#x: got %#x, %v, want %#x", pc, e.FuncStart, err, want)
		}
	}
}

// TestLongFunction: 8000 rows of 6 bytes. All are found; damage counts that is up to 16 KiB behind the start of the rows, or
// in front of the row that was asked for. (The rows right behind it are read too: one of them is its end.)
func TestLongFunction(t *testing.T) {
	section := sframetest.Section{Version: 3, Flags: sframetest.Sorted, ABI: sframetest.AMD64, FixedRA: -8, Addr: 0x1000}
	f := sframetest.Func{Start: 0x2000, Size: 8000, Width: 4}
	for i := range uint32(8000) {
		f.Rows = append(f.Rows, sframetest.Row{Off: i, Words: []int64{int64(i % 15 * 8)}})
	}
	section.Funcs = []sframetest.Func{f}
	rows := headerBytes + 16 + attrBytes
	for _, tt := range []struct{ damaged, row, bad int }{
		{-1, 0, 0}, {-1, 1000, 0}, {-1, 2730, 0}, {-1, 2731, 0}, {-1, 5000, 0}, {-1, 7999, 0},
		{1, 0, 1}, {2000, 0, 1}, {2730, 5, 1}, {2731, 5, 0}, {4000, 0, 0}, {4000, 3997, 0}, {4000, 4000, 1}, {4000, 7999, 1}, {7999, 7996, 0},
	} {
		data := section.Bytes()
		if tt.damaged >= 0 {
			data[rows+6*tt.damaged+4] |= 0x60 // an undefined word size
		}
		s := openBytes(t, data, 0x1000)
		e, err := s.Find(0x2000 + uint64(tt.row))
		if isFormat(err) != (tt.bad == 1) || err == nil && (e.Start != 0x2000+uint64(tt.row) || e.End != e.Start+1 || int(e.Row.CFA.Offset) != tt.row%15*8) {
			t.Errorf("row %d with row %d damaged: got %+v, %v", tt.row, tt.damaged, e, err)
		}
	}
	// The first 256 bytes of rows are read at once, then 2048 each time.
	data := section.Bytes()
	r := &counting{r: bytes.NewReader(data), pages: map[int64]bool{}}
	s, err := Open(r, 0x1000, uint64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Find(0x2000 + 7999); err != nil || r.calls > 30 {
		t.Errorf("%v, %d reads", err, r.calls)
	}
}

// TestCutRows: a section that is cut in its last row, or in front of it, costs the function that has it. A function without
// rows needs none, wherever they are said to be.
func TestCutRows(t *testing.T) {
	for _, version := range []uint8{1, 2, 3} {
		for rows := range 3 {
			section := sframetest.Section{Version: version, Flags: sframetest.Sorted, ABI: sframetest.AMD64, FixedRA: -8, Addr: 0x1000}
			section.Funcs = []sframetest.Func{
				{Start: 0x2000, Size: 16, Width: 1, Rows: []sframetest.Row{{Words: []int64{8}}}}, {Start: 0x3000, Size: 16, Width: 1},
			}
			for i := range rows {
				section.Funcs[1].Rows = append(section.Funcs[1].Rows, sframetest.Row{Off: uint32(i), Words: []int64{8}})
			}
			whole := section.Bytes()
			for cut := range 3*rows + 1 {
				s := openBytes(t, whole[:len(whole)-cut], 0x1000)
				if _, err := s.Row(0x2000); err != nil {
					t.Errorf("V%d, %d rows, %d bytes cut: the other function: %v", version, rows, cut, err)
				}
				_, err := s.Row(0x3008)
				if none := version < 3 && rows == 0; none != (err == ErrNoRow) || (cut > 0) != isFormat(err) {
					t.Errorf("V%d, %d rows, %d bytes cut: %v", version, rows, cut, err)
				}
				// Bytes that are missing altogether are told by the number of rows, others by the row.
				text := "rows of the function run past the rows of the section"
				if cut < 3 && 2*rows <= 3*rows-cut {
					text = "row runs past the rows of the section"
				}
				var fe *FormatError
				if errors.As(err, &fe) && fe.Text != text {
					t.Errorf("V%d, %d rows, %d bytes cut: %v, want %s", version, rows, cut, err, text)
				}
			}
			if rows == 0 && version < 3 {
				whole[headerBytes+section.EntryBytes()+8+1] = 1 // its rows would be 256 bytes on
				if _, err := openBytes(t, whole, 0x1000).Row(0x3008); err != ErrNoRow {
					t.Errorf("V%d: no rows, far away: %v", version, err)
				}
			}
		}
	}
}

// TestIterators: what cannot be read ends them, with the reader's error; what they were told to end is over.
func TestIterators(t *testing.T) {
	section := bigSection(3, 3000, 3)
	data := section.Bytes()
	rows := int64(headerBytes + 16*3000)
	for _, tt := range []struct {
		name  string
		lo    int64
		funcs int // that are there
	}{
		{"an entry of the table", headerBytes + 16*1000, 1000},
		{"attributes", rows + 25*1000, 1000},
		{"nothing", -100, 3000},
	} {
		r := &faulty{r: bytes.NewReader(data), lo: tt.lo, hi: tt.lo + 1}
		s, err := Open(r, section.Addr, uint64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		n, fails := 0, 0
		for f, err := range s.Funcs() {
			switch {
			case err == nil && fails == 0 && f.Start == section.Funcs[n].Start:
				n++
			case errors.Is(err, errFault):
				fails++
			default:
				t.Fatalf("%s: %+v, %v", tt.name, f, err)
			}
		}
		if want := min(3000-tt.funcs, 1); n != tt.funcs || fails != want {
			t.Errorf("%s: %d functions, %d faults, want %d, %d", tt.name, n, fails, tt.funcs, want)
		}
		if got := faults(s, nil); len(got) != fails {
			t.Errorf("%s: %q", tt.name, got)
		}
		for range s.Funcs() {
			break
		}
	}
	// Rows of the first function: 5 of 4 bytes behind 5 bytes of attributes.
	for lo, want := range map[int64]int{rows + 5: 0, rows + 5 + 8: 2, rows + 5 + 4 + 3: 1} {
		r := &faulty{r: bytes.NewReader(data)}
		s, err := Open(r, section.Addr, uint64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		f, err := s.Func(section.Funcs[0].Start)
		if err != nil {
			t.Fatal(err)
		}
		r.lo, r.hi = lo, lo+1
		n, fails := 0, 0
		for row, err := range s.Rows(&f) {
			switch {
			case err == nil && row.Off == uint32(12*n) && row.SecOff == uint64(rows+5+4*int64(n)):
				n++
			case errors.Is(err, errFault) && fails == 0:
				fails++
			default:
				t.Fatalf("%+v, %v", row, err)
			}
		}
		if n != want || fails != 1 {
			t.Errorf("rows up to %d: %d, %d faults, want %d", lo, n, fails, want)
		}
		if got := faults(s, nil); len(got) != 1 {
			t.Errorf("%q", got)
		}
		for range s.Rows(&f) {
			break
		}
	}
}

// TestOrdered: a table that claims to be sorted and is not costs nothing but its index: what was kept before is dropped,
// since where functions overlap answers may be others. A table that makes no claim is indexed without that.
func TestOrdered(t *testing.T) {
	for _, sorted := range []bool{true, false} {
		section := bigSection(3, 9, 1)
		section.Funcs[4].Start, section.Funcs[5].Start = section.Funcs[5].Start, section.Funcs[4].Start
		if !sorted {
			section.Flags &^= sframetest.Sorted
		}
		s := openBytes(t, section.Bytes(), section.Addr)
		first := section.Funcs[0].Start
		if _, err := s.Row(first); err != nil {
			t.Fatal(err)
		}
		if l := s.layout.Load(); (l.index == nil) != sorted || s.cache.table.Load().find(first) == nil {
			t.Errorf("sorted %v: index of %d, kept %v", sorted, len(l.index), s.cache.table.Load().find(first))
		}
		if _, err := s.Row(section.Funcs[5].Start + 1); err != nil {
			t.Error(err)
		}
		l := s.layout.Load()
		if kept := s.cache.table.Load().find(first) != nil; l.len() != 9 || len(l.index) != 9 || kept == sorted {
			t.Errorf("sorted %v: index of %d, kept %v", sorted, len(l.index), kept)
		}
		if _, err := s.Row(first - 1); err != ErrNoRow || s.layout.Load() != l {
			t.Errorf("sorted %v: %v, or another index", sorted, err)
		}
	}
}

// TestCacheSizes: slots and answers double when they are half and wholly full, up to their bounds; what the cache says that
// it takes is what a count finds.
func TestCacheSizes(t *testing.T) {
	s := &Section{addr: 0x400000}
	c := &s.cache
	c.begin(s.addr)
	check := func(slots, used, answers int) {
		t.Helper()
		tab, kept := c.table.Load(), 0
		for i := range tab.slots {
			if tab.slots[i].Load() != 0 {
				kept++
			}
		}
		if len(tab.slots) != slots || kept != used || c.used != used || len(tab.answers) != answers {
			t.Fatalf("%d slots, %d used, counted %d, %d answers, want %d, %d, %d", len(tab.slots), kept, c.used, len(tab.answers), slots, used, answers)
		}
		if want := slots*slotBytes + answers*answerBytes + c.answers*keptBytes; s.CacheBytes() != want {
			t.Fatalf("%d bytes, want %d", s.CacheBytes(), want)
		}
	}
	put := func(pc uint64, off int32) {
		t.Helper()
		want := &Row{CFA: Rule{Base: FromReg, Reg: 7, Offset: off}}
		row, err := c.store(c.table.Load().epoch, pc, want, nil)
		a := c.table.Load().find(pc)
		if err != nil || row.CFA != want.CFA || a == nil || a.row != row {
			t.Fatalf("%#x: %v, %v, kept %v", pc, row, err, a)
		}
	}
	check(64, 0, 32)
	for i := range uint64(32) {
		put(s.addr+i, 8)
	}
	check(64, 32, 32)
	for range 3 { // what is there takes no other slot
		put(s.addr+7, 8)
	}
	if c.used != 32 || len(c.rows) != 1 {
		t.Errorf("%d slots for 32 addresses, %d rows", c.used, len(c.rows))
	}
	put(s.addr+32, 8)
	check(128, 33, 32)
	for i := range int32(30) { // with the unused one and the row from before, 32
		put(s.addr+100, 16+8*i)
	}
	check(128, 34, 32)
	put(s.addr+100, 8000)
	check(128, 34, 64)
	// Errors are answers too, one for each kind.
	for range 2 {
		for i, err := range []error{ErrNoRow, bad(1, "a", 2), bad(1, "b", 2)} {
			if row, got := c.store(0, s.addr+200+uint64(i), &Row{}, err); row != nil || got.Error() != err.Error() || c.table.Load().find(s.addr+200+uint64(i)).err != got {
				t.Errorf("%v: %v, %v", err, row, got)
			}
		}
	}
	check(128, 37, 64)
	if c.answers != 1+32+3 {
		t.Errorf("%d answers", c.answers)
	}
	for i := int32(0); c.answers < maxAnswers; i++ {
		put(s.addr+300, 1<<20+8*i)
	}
	check(128, 38, maxAnswers)
	c.store(0, s.addr+300, &Row{}, nil) // one too many: all is dropped
	if tab := c.table.Load(); tab.epoch != 1 || len(tab.slots) != 64 || len(tab.answers) != 32 || c.answers != 2 {
		t.Errorf("%d slots, %d answers after the bound", len(tab.slots), len(tab.answers))
	}
	// An answer from before is not kept, however often the cache is emptied.
	for range 3 {
		c.reset()
		if c.store(0, s.addr, &Row{}, nil); c.table.Load().find(s.addr) != nil {
			t.Errorf("epoch %d: an answer of the first one is kept", c.table.Load().epoch)
		}
	}
	// The ends of what is kept: 48 bits of distance.
	for pc, want := range map[uint64]bool{s.addr - 1<<47: true, s.addr + 1<<47 - 1: true, s.addr - 1<<47 - 1: false, s.addr + 1<<47: false} {
		if c.store(c.table.Load().epoch, pc, &Row{}, nil); (c.table.Load().find(pc) != nil) != want {
			t.Errorf("%#x: kept %v", pc, !want)
		}
	}
}

// TestCachePlaces: neighbours spread over the slots; an address of which all places are taken takes another's, each time the
// next one's.
func TestCachePlaces(t *testing.T) {
	for n := minSlots; n <= maxSlots; n *= 2 {
		tab, most := &table{shift: shift(n)}, uint64(0)
		for off := range uint64(1000) {
			most = max(most, tab.slot(off))
		}
		if most >= uint64(n) || most < uint64(n)*9/10 {
			t.Errorf("of %d slots the last that is used is %d", n, most)
		}
	}
	var c cache
	c.begin(1 << 47)
	tab := c.table.Load()
	starts := map[uint64]bool{}
	for off := range uint64(64) {
		starts[tab.slot(off)] = true
	}
	for at := range starts {
		if at >= 64 {
			t.Fatalf("place %d of 64", at)
		}
	}
	if len(starts) < 40 {
		t.Errorf("64 neighbours begin at %d places", len(starts))
	}
	// Addresses that begin at one place.
	var same []uint64
	for off := uint64(1); len(same) < 3*probes; off++ {
		if tab.slot(off) == 60 {
			same = append(same, off)
		}
	}
	for i, off := range same {
		c.put(tab, off<<16|1)
		c.table.Store(&table{tab.base, 0, tab.shift, tab.slots, make([]answer, 2)})
		if c.table.Load().find(tab.base+off) == nil || c.used != min(i+1, probes) {
			t.Fatalf("address %d: not kept, or %d slots in use", i, c.used)
		}
	}
	for i, off := range same { // the last ones are there
		if kept := c.table.Load().find(tab.base+off) != nil; kept != (i >= 2*probes) {
			t.Errorf("address %d: kept %v", i, kept)
		}
	}
}
