package runtimes

import (
	"encoding/binary"
	"fmt"
	"testing"

	"sfsample/unwind"
)

// TestMerge: native frames have their stack pointers 0x10 apart, from 0x100 on, and those at 1, 3 and 5 are loops.
func TestMerge(t *testing.T) {
	native := make([]unwind.Frame, 7)
	for i := range native {
		native[i].SP = 0x100 + 0x10*uint64(i)
	}
	isLoop := func(i int) bool { return i%2 == 1 }
	for _, tt := range []struct {
		name     string
		segments []Segment
		short    bool
		cut      bool
		want     string // n: native, a letter: script frame
		placed   int
	}{
		{"by address", []Segment{{2, 0x118}, {1, 0x138}, {1, 0x150}}, false, false, "n0 a b n2 c n4 d n6", 4},
		{"a loop without script", []Segment{{2, 0x138}, {1, 0x150}}, false, false, "n0 n1 n2 a b n4 c n6", 3},
		{"beyond what was unwound", []Segment{{1, 0x118}, {2, 0x1000}}, false, true, "n0 a n2 n3 n4 n5 n6 b c", 1},
		{"below the stack", []Segment{{1, 0x90}, {1, 0x138}}, false, false, "a n0 n1 n2 b n4 n5 n6", 1},
		{"two states that take turns", []Segment{{1, 0x118}, {1, 0x150}, {1, 0x138}}, false, false, "n0 a n2 c n4 b n6", 3},
		{"one each", []Segment{{1, 0}, {1, 0}, {1, 0}}, false, false, "n0 a n2 b n4 c n6", 3},
		{"one each, a loop begins", []Segment{{1, 0}, {1, 0}}, false, false, "n0 n1 n2 a n4 b n6", 2},
		{"one each, a frame too many", []Segment{{1, 0}, {1, 0}, {1, 0}, {1, 0}}, false, false, "a n0 b n2 c n4 d n6", 3},
		{"one each, cut", []Segment{{1, 0}, {1, 0}, {1, 0}, {1, 0}}, false, true, "n0 a n2 b n4 c n6 d", 3},
		{"not all copied", []Segment{{1, 0x118}, {2, ^uint64(0)}}, true, false, "n0 a n2 b c", 3},
		{"none", nil, false, false, "n0 n1 n2 n3 n4 n5 n6", 0},
	} {
		st := &Stack{Segments: tt.segments, Short: tt.short}
		got, placed := Merge(nil, native, !tt.cut, st, isLoop)
		text := ""
		for _, p := range got {
			if text != "" {
				text += " "
			}
			if p.Script >= 0 {
				text += string(rune('a' + p.Script))
			} else {
				text += fmt.Sprint("n", p.Native)
			}
		}
		if text != tt.want || placed != tt.placed {
			t.Errorf("%s: %s, %d placed; want %s, %d", tt.name, text, placed, tt.want, tt.placed)
		}
	}
}

// TestUnknownVersion: what is not known is told and not guessed.
func TestUnknownVersion(t *testing.T) {
	syms := map[string]uint64{"_PyRuntime": 0x1000, "PyCode_Type": 1, "PyUnicode_Type": 2, "PyBytes_Type": 3, "PyDict_Type": 4, "Py_Version": 0x2000}
	for version, want := range map[uint32]string{
		0x030f00f0: "python of version 3.15.0 is not known, its scripts are not shown (known: 3.8 to 3.14)",
		0x040000f0: "python of version 4 is not known, its scripts are not shown (known: 3.8 to 3.14)",
		0x030d05f0: "python 3.13.5 does not tell its offsets, its scripts are not shown",
	} {
		mem := rubbish(binary.NativeEndian.AppendUint32(nil, version))
		if _, err := newPython("/usr/bin/python3", syms, mem); err == nil || err.Error() != want {
			t.Errorf("version %#x: %v, want %s", version, err, want)
		}
	}
}
