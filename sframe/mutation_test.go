package sframe

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// mutated are sections with all kinds of fields.
var mutated = []string{
	"03-v1-aarch64-pauth", "13-v2-amd64-plt", "17-v2-s390x", "30-v3-amd64-basic", "32-v3-amd64-plt",
	"35-v3-amd64-flex-drap", "37-v3-amd64-undef-signal", "43-v3-s390x-flex", "45-v3-hand-layout", "46-v3-hand-flex-words",
}

// answers are the rows at all addresses from the first to the last function.
func answers(data []byte, addr uint64, pcs []uint64) []string {
	s, err := Open(bytes.NewReader(data), addr, uint64(len(data)))
	if err != nil {
		return nil
	}
	all := make([]string, len(pcs))
	for i, pc := range pcs {
		row, err := s.Row(pc)
		if err != nil {
			all[i] = "no row"
		} else {
			all[i] = fmt.Sprint(rowRules(row))
		}
	}
	return all
}

// TestMutations changes each byte of good sections in turn, and then 10,000
// times some bytes at random. Each result either has faults that the check
// reports, or is a sound table: everything decodes, one answer for each address
// (checkSection). That some of these answer differently cannot be told from the
// table: a start, size, offset or register that is as good as the right one.
func TestMutations(t *testing.T) {
	reported, same, sound := 0, 0, 0
	mutate := func(v *vector, data []byte, pcs []uint64, good []string, what string) {
		faults, err := checkSection(data, v.addr)
		if err != nil {
			t.Errorf("%s, %s: %v", v.name, what, err)
		}
		switch {
		case faults > 0:
			reported++
		case slices.Equal(answers(data, v.addr, pcs), good):
			same++
		default:
			sound++
		}
	}
	var vectors []vector
	var allPCs [][]uint64
	for _, name := range mutated {
		v := readVector(t, "testdata/vectors/"+name)
		var pcs []uint64
		for f := range v.open(t).Funcs() {
			for pc := f.Start - 1; pc <= f.Start+uint64(f.Size); pc++ {
				pcs = append(pcs, pc)
			}
		}
		vectors, allPCs = append(vectors, v), append(allPCs, pcs)
		good := answers(v.data, v.addr, pcs)
		for off := range v.data {
			for _, b := range []byte{0, 1, 0x7f, 0x80, 0xff, v.data[off] + 1, v.data[off] - 1, v.data[off] ^ 0x10, v.data[off] ^ 0x80} {
				if b == v.data[off] {
					continue
				}
				data := bytes.Clone(v.data)
				data[off] = b
				mutate(&v, data, pcs, good, fmt.Sprintf("byte %#x = %#x", off, b))
			}
		}
	}
	t.Logf("each byte: %d reported, %d with the same answers, %d other sound tables", reported, same, sound)
	if sound > reported {
		t.Error("most damage goes unreported")
	}
	reported, same, sound = 0, 0, 0
	rnd := rand.New(rand.NewPCG(1, 4))
	for range 10_000 {
		i := rnd.IntN(len(vectors))
		v := &vectors[i]
		data := bytes.Clone(v.data)
		for range 1 + rnd.IntN(4) {
			data[rnd.IntN(len(data))] = byte(rnd.Uint32())
		}
		if chance(rnd, 5) {
			data = data[:rnd.IntN(len(data))]
		}
		mutate(v, data, allPCs[i], nil, fmt.Sprintf("%x", data))
	}
	t.Logf("10,000 at random: %d reported, %d other sound tables", reported, sound)
}

// TestReportedFields: damage to a field that has no other meaning is reported.
// The offsets are those of vector 30: header, two index entries of 16 bytes from
// 0x1c on, then for each function 5 bytes of attributes and its rows.
func TestReportedFields(t *testing.T) {
	v := readVector(t, "testdata/vectors/30-v3-amd64-basic")
	code := func(addr, size uint64) bool { return addr >= 0x401000 && size <= 25 && addr+size <= 0x401019 }
	for _, tt := range []struct {
		name string
		off  int
		val  byte
	}{
		{"row count of the header", 0x0c, 6},
		{"function count", 0x08, 3},
		{"length of rows", 0x10, 0x25},
		{"offset of the function table", 0x14, 1},
		{"offset of the rows", 0x18, 0x21},
		{"fixed RA offset", 0x06, 0xf0},
		{"fixed FP offset", 0x05, 0xf1},
		{"start outside of the code", 0x1d, 0x55},
		{"start before the predecessor", 0x2c, 0x01},
		{"size that overlaps", 0x24, 12},
		{"offset of the attributes", 0x28, 1},
		{"row count of a function", 0x3c, 5},
		{"row address type", 0x3e, 3},
		{"undefined function bits", 0x3e, 0x40},
		{"key on AMD64", 0x3e, 0x20},
		{"undefined function type", 0x3f, 2},
		{"undefined function type bits", 0x3f, 0x20},
		{"first row's start", 0x41, 1},
		{"second row's start", 0x44, 5},
		{"word count", 0x42, 0x07},
		{"word size", 0x42, 0x63},
		{"signed on AMD64", 0x42, 0x83},
		{"offset of FP", 0x47, 0xf1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			data := bytes.Clone(v.data)
			if data[tt.off] == tt.val {
				t.Fatal("nothing is changed")
			}
			data[tt.off] = tt.val
			s, err := Open(bytes.NewReader(data), v.addr, uint64(len(data)))
			if err != nil {
				return
			}
			for range s.Check(code) {
				return
			}
			t.Error("not reported")
		})
	}
}

// TestPlaces: a damaged field of a header is named by its place, its value, and what it costs; in the second of two
// sections that a linker has joined, too. The fields' offsets are those of the format's text, section 3.2.
func TestPlaces(t *testing.T) {
	v := readVector(t, "testdata/vectors/30-v3-amd64-basic")
	size := len(v.data) // 28 bytes of header, 2 entries of 16, 0x21 bytes of rows
	set := func(off, n int, val uint32) func([]byte) {
		return func(b []byte) {
			for i := range n {
				b[off+i] = byte(val >> (8 * i))
			}
		}
	}
	for _, tt := range []struct {
		name   string
		damage func([]byte)
		at     uint64
		value  uint64
		whole  bool
	}{
		{"magic", set(0, 2, 0x1234), 0, 0x1234, true},
		{"half a magic", set(0, 1, 0), 0, 0xde00, true},
		{"the other half", set(1, 1, 0), 0, 0xe2, true},
		{"version 4", set(2, 1, 4), 2, 4, true},
		{"version 0", set(2, 1, 0), 2, 0, true},
		{"flags", set(3, 1, 0x80), 3, 0x80, true},
		{"ABI", set(4, 1, 9), 4, 9, true},
		{"ABI 0", set(4, 1, 0), 4, 0, true},
		{"ABI of the other byte order", set(4, 1, 1), 4, 1, true},
		{"no fixed RA", set(6, 1, 0), 6, 0, true},
		{"auxiliary header past the end", set(7, 1, uint32(size-28+1)), 7, uint64(size - 28 + 1), true},
		{"auxiliary header up to the end", set(7, 1, uint32(size-28)), 24, 0x20, true},
		{"too many functions", set(8, 4, 3), 8, 3, true},
		{"no room for functions", set(20, 4, 0x20), 8, 2, true},
		{"function table behind the rows", set(20, 4, 0x21), 20, 0x21, true},
		{"rows past the end", set(24, 4, uint32(size-28+1)), 24, uint64(size - 28 + 1), true},
		{"rows one byte past the end", set(16, 4, 0x22), 16, 0x22, false},
		{"a row past the end", set(16, 4, 0x21+65), 16, 0x21 + 65, false},
		{"more than a row past the end", set(16, 4, 0x21+66), 16, 0x21 + 66, true},
		{"fixed RA elsewhere", set(6, 1, 0xf0), 6, 0xf0, false},
		{"fixed FP not aligned", set(5, 1, 0xf1), 5, 0xf1, false},
		{"fixed RA not aligned", set(6, 1, 0xf9), 6, 0xf9, false},
		{"row count", set(12, 4, 6), 12, 6, false},
	} {
		for base, before := range map[uint64][]byte{0: nil, 96: append(bytes.Clone(v.data), 0, 0, 0)} {
			if base > 0 && tt.at == 0 {
				continue // what has no magic there is not SFrame's
			}
			data := append(bytes.Clone(before), v.data...)
			tt.damage(data[base:])
			var got *FormatError
			s, err := Open(bytes.NewReader(data), v.addr, uint64(len(data)))
			if err == nil {
				for fault := range s.Check(nil) {
					if err = fault; err != nil {
						break
					}
				}
			}
			if base > 0 && tt.whole && errors.As(err, &got) {
				got.Whole = true // of it, not of the one before
			}
			if !errors.As(err, &got) || got.SecOff != base+tt.at || got.Value != tt.value || got.Whole != tt.whole {
				t.Errorf("%s, at %d: %#v, want offset %d, value %#x, whole %v", tt.name, base, got, base+tt.at, tt.value, tt.whole)
			}
		}
	}
}

// TestFaults: what the check says of one damaged byte in a function or row, all of it. In vector 30 functions are named by
// their index entries (0x1c, 0x2c), the first one's attributes lie at 0x3c, its rows at 0x41, 0x44, 0x48, 0x4c, the last
// row of the second at 0x5a. In vector 13 (V2) the entries are at 28, 48 and 68, the rows of the second, which repeat every
// 16 bytes, at 103 and 106, up to the end at 109.
func TestFaults(t *testing.T) {
	const v2, v3 = "13-v2-amd64-plt", "30-v3-amd64-basic"
	code := func(addr, size uint64) bool {
		return addr >= 0x401000 && size <= 25 && addr+size <= 0x401019 || addr >= 0x1000 && addr+size <= 0x1043
	}
	for _, tt := range []struct {
		vector, name string
		off          int
		val          byte
		want         []string // offset, text and value
	}{
		{v3, "nothing", 0, 0xe2, nil},
		{v3, "start outside of the code", 0x1d, 0x55, []string{"28 is not in executable memory 0x405800", "44 starts before its predecessor in a table that claims to be sorted 0x405800"}},
		{v3, "start before the predecessor", 0x2c, 0x01, []string{"44 starts before its predecessor in a table that claims to be sorted 0x401000", "44 is not in executable memory 0x400f2d"}},
		{v3, "size that overlaps", 0x24, 12, []string{"44 overlaps the function 0x401000"}},
		{v3, "size past the code", 0x34, 15, []string{"44 is not in executable memory 0x40100b"}},
		{v3, "size past the code by much", 0x37, 1, []string{"44 is not in executable memory 0x40100b"}},
		{v3, "no size", 0x34, 0, []string{"87 row starts past the end of the function 0x4"}},
		{v3, "attributes past the end", 0x38, 29, []string{"56 attribute block is past the rows 0x1d", "12 header counts other rows than the functions, which have 4 0x7"}},
		{v3, "row count", 0x4f, 8, []string{"44 rows of the function run past the rows of the section 0x8", "12 header counts other rows than the functions, which have 12 0x7"}},
		{v3, "undefined row type", 0x3e, 3, []string{"62 undefined row address type 0x3"}},
		{v3, "undefined function bits", 0x3e, 0x40, []string{"28 undefined function info bits 0x40"}},
		{v3, "key on AMD64", 0x3e, 0x20, []string{"28 undefined function info bits 0x20"}},
		{v3, "repeating without a size", 0x3e, 0x10, []string{"63 repeating rows without a block size 0x0"}},
		{v3, "undefined function type", 0x3f, 2, []string{"63 undefined function type 0x2"}},
		{v3, "the last of them", 0x3f, 0x1f, []string{"63 undefined function type 0x1f"}},
		{v3, "undefined function type bits", 0x3f, 0x20, []string{"28 undefined function type bits 0x20"}},
		{v3, "size of a block, which this function has not", 0x40, 1, nil},
		{v3, "first row's start", 0x41, 1, []string{"65 first row does not start with the function 0x1"}},
		{v3, "signed on AMD64", 0x42, 0x83, []string{"65 undefined row info bits 0x83"}},
		{v3, "undefined word size", 0x42, 0x63, []string{"66 undefined word size 0x63"}},
		{v3, "a word for RA, which is fixed", 0x42, 0x07, []string{"66 number of words does not fit the row 0x3"}},
		{v3, "start before that of the row before", 0x48, 0, []string{"72 row starts before its predecessor 0x0"}},
		{v3, "start with the row before", 0x48, 1, nil},
		{v3, "start at the end", 0x4c, 11, nil},
		{v3, "start behind the end", 0x4c, 12, []string{"76 row starts past the end of the function 0xc"}},
		{v3, "a word past the end", 0x5b, 0x05, []string{"90 row runs past the rows of the section 0x2"}},
		{v3, "two words past the end", 0x5b, 0x23, []string{"90 row runs past the rows of the section 0x2"}},
		{v3, "offset of FP", 0x47, 0xf1, []string{"68 saved at an offset from the CFA that is not a multiple of 8 0xfffffff1"}},
		{v3, "CFA offset", 0x43, 9, nil},
		{v2, "padding", 66, 7, []string{"66 padding is not zero 0x7"}},
		{v2, "padding's other byte", 67, 1, []string{"66 padding is not zero 0x100"}},
		{v2, "signal, which V3 has", 64, 0x90, []string{"48 undefined function info bits 0x90"}},
		{v2, "repeating without a size", 65, 0, []string{"65 repeating rows without a block size 0x0"}},
		{v2, "a block up to the second row", 65, 11, nil},
		{v2, "a block before it", 65, 10, []string{"106 row starts past the end of the block 0xb"}},
		{v2, "undefined row type", 64, 0x13, []string{"64 undefined row address type 0x3"}},
		{v2, "a row too many", 60, 3, []string{"109 row runs past the rows of the section 0x2", "12 header counts other rows than the functions, which have 8 0x7"}},
		{v2, "two", 60, 4, []string{"48 rows of the function run past the rows of the section 0x4", "12 header counts other rows than the functions, which have 9 0x7"}},
		{v2, "as many rows as a check goes through", 60, 40, []string{"48 rows of the function run past the rows of the section 0x28", "12 header counts other rows than the functions, which have 45 0x7"}},
		{v2, "more: entries and twice the bytes of rows", 60, 41, []string{"48 rows of the function run past the rows of the section 0x29", "68 functions share more rows than are checked 0x2e"}},
		{v2, "more than any function has", 62, 4, []string{"48 functions share more rows than are checked 0x40004"}},
	} {
		v := readVector(t, "testdata/vectors/"+tt.vector)
		data := bytes.Clone(v.data)
		data[tt.off] = tt.val
		if got := faults(openBytes(t, data, v.addr), code); !slices.Equal(got, tt.want) {
			t.Errorf("%s, %s: %q, want %q", tt.vector, tt.name, got, tt.want)
		}
	}
}
