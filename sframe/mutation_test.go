package sframe

import (
	"bytes"
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
