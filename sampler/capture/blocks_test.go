package capture

import (
	"fmt"
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
