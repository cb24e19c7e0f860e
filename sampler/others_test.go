package sampler

import (
	"fmt"
	"testing"

	"sfsample/unwind"
)

// TestWanted: which pieces of memory walks wanted that went from stack to stack. Stacks that lie near are one
// piece, and what is missing of one enlarges no other.
func TestWanted(t *testing.T) {
	const a, b, c = 0x10_0000, 0x80_0000, 0x90_0000
	at := func(sps ...uint64) (frames []unwind.Frame) {
		for _, sp := range sps {
			frames = append(frames, unwind.Frame{SP: sp})
		}
		return frames
	}
	tests := []struct {
		name   string
		frames []unwind.Frame
		over   []unwind.Stack
		short  bool
		want   []block
	}{
		{"one", at(a+128, a+256), nil, false, []block{{a, a + 256, -1, false}}},
		{"one-short", at(a+128, a+256), nil, true, []block{{a, a + 256, -1, true}}},
		{"two", at(a+128, a+256, b+16, b+64), []unwind.Stack{{Frame: 2, Base: b}}, false, []block{{a, a + 256, -1, false}, {b, b + 64, 0, false}}},
		{"second-missing", at(a+128, a+256), []unwind.Stack{{Frame: 2, Base: b}}, true, []block{{a, a + 256, -1, false}, {b, b, 0, true}}},
		{"there-and-back", at(a+128, b+16, a+512, b+256, a+1024), []unwind.Stack{{Frame: 1, Base: b}, {Frame: 2, Base: a + 500}, {Frame: 3, Base: b + 250}, {Frame: 4, Base: a + 1000}},
			true, []block{{a, a + 1024, -1, true}, {b, b + 256, 0, false}}},
		{"near", at(a+128, a+nearStack+64), []unwind.Stack{{Frame: 1, Base: a + nearStack}}, false, []block{{a, a + nearStack + 64, -1, false}}},
		{"below", at(a+128, a-64), []unwind.Stack{{Frame: 1, Base: a - 128}}, false, []block{{a, a + 128, -1, false}, {a - 128, a - 64, 0, false}}},
		{"three", at(a+128, b+16, c+16), []unwind.Stack{{Frame: 1, Base: b}, {Frame: 2, Base: c}}, true,
			[]block{{a, a + 128, -1, false}, {b, b + 16, 0, false}, {c, c + 16, 1, true}}},
	}
	for _, tt := range tests {
		if got := wanted(nil, a, tt.frames, tt.over, tt.short); fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", tt.want) {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
