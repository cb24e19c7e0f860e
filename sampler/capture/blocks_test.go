package capture

import (
	"bytes"
	"fmt"
	"math"
	"testing"
)

// TestBlocks: the lengths of further blocks are of the bytes that there are; recordings of before end behind any of the
// last fields.
func TestBlocks(t *testing.T) {
	ten := make([]byte, 10)
	for _, tt := range []struct {
		name   string
		beyond []byte
		blocks []Block
		want   string // blocks, or empty: damaged
	}{
		{"none", nil, nil, "[]"},
		{"one byte", ten[:1], []Block{{5, 1}}, "[{5 1}]"},
		{"one", ten, []Block{{5, 10}}, "[{5 10}]"},
		{"two", ten, []Block{{5, 4}, {6, 6}}, "[{5 4} {6 6}]"},
		{"three", ten, []Block{{5, 4}, {6, 5}, {7, 1}}, "[{5 4} {6 5} {7 1}]"},
		{"nothing for the first", ten, []Block{{5, 0}, {6, 10}}, "[{5 0} {6 10}]"},
		{"more than there is", ten, []Block{{5, 0}, {6, 11}}, ""},
		{"more than is left", ten, []Block{{5, 0}, {6, 9}, {7, 2}}, ""},
		{"nothing in the second", ten, []Block{{5, 10}, {6, 0}}, ""},
		{"a second of none", nil, []Block{{5, 0}, {6, 1}}, ""},
		{"an empty second of none", nil, []Block{{5, 0}, {6, 0}}, ""},
	} {
		var e encoder
		(&Capture{Beyond: Copies{tt.blocks, tt.beyond}, Doubt: Range{1, 2}}).encode(&e)
		d, c := decoder{b: e.b}, Capture{}
		c.decode(&d)
		if tt.want == "" {
			if d.err == nil {
				t.Errorf("%s: %v, want an error", tt.name, c.Beyond.Blocks)
			}
			continue
		}
		if d.err != nil || fmt.Sprint(c.Beyond.Blocks) != tt.want || len(c.Beyond.Bytes) != len(tt.beyond) || c.Doubt != (Range{1, 2}) {
			t.Errorf("%s: %v and %d bytes, doubt %v, %v; want %s", tt.name, c.Beyond.Blocks, len(c.Beyond.Bytes), c.Doubt, d.err, tt.want)
		}
	}
}

// TestCopies: copies come back with their addresses, in the order in which they were added, and by address; a loop over them may end early.
func TestCopies(t *testing.T) {
	var c Copies
	for range 2 { // the room is used again
		c.Add(0x1000, []byte{1, 2, 3})
		c.Add(0x3000, []byte{4})
		c.Add(0x2000, []byte{5, 6})
		var got []string
		for addr, b := range c.All() {
			got = append(got, fmt.Sprintf("%#x: %v", addr, b))
		}
		if s := fmt.Sprint(got); s != "[0x1000: [1 2 3] 0x3000: [4] 0x2000: [5 6]]" {
			t.Errorf("copies %s", s)
		}
		for addr := range c.All() {
			if addr == 0x3000 {
				break
			}
		}
		for addr, want := range map[uint64]string{0x1000: "[1 2 3] true", 0x3000: "[4] true", 0x2000: "[5 6] true", 0x1001: "[] false", 0: "[] false"} {
			b, ok := c.At(addr)
			if got := fmt.Sprint(b, ok); got != want {
				t.Errorf("at %#x: %s, want %s", addr, got, want)
			}
		}
		if c.Reset(); len(c.Blocks) != 0 || len(c.Bytes) != 0 || cap(c.Blocks) == 0 || cap(c.Bytes) == 0 {
			t.Errorf("%v, room for %d and %d bytes after a reset", c, cap(c.Blocks), cap(c.Bytes))
		}
	}
	if (Range{0, math.MaxUint64}) != Unwalked {
		t.Error("there is doubt about a part of an address space, where there was no time for any")
	}
}

// TestDates: of each mapping whose file is known by its size or time both are kept, and nothing is written of mappings that have none.
func TestDates(t *testing.T) {
	m := Maps{PID: 7, VDSO: []byte{1, 2}, Regions: []Region{{BuildID: "a"}, {BuildID: "b", Size: 5}, {BuildID: "c", Modified: 9}, {BuildID: "d", Size: 1, Modified: 1}}}
	for n, want := range map[int]string{1: "", 2: "\x01\x01\x0a\x00", 4: "\x03\x01\x0a\x00\x02\x00\x12\x03\x02\x02"} {
		part := Maps{PID: m.PID, VDSO: m.VDSO, Regions: m.Regions[:n]}
		var e encoder
		part.encode(&e)
		if dates := e.b[bytes.LastIndex(e.b, []byte("\x02\x01\x02"))+3:]; string(dates) != want {
			t.Errorf("%d mappings: %q is written of them, want %q", n, dates, want)
		}
		var got Maps
		d := decoder{b: e.b}
		if got.decode(&d); d.err != nil || fmt.Sprint(got) != fmt.Sprint(part) {
			t.Errorf("%d mappings: %v, want %v; %v", n, got, part, d.err)
		}
	}
}
