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
	in := func(i int, entry uint64) bool { return entry == 0 && i%2 == 1 || entry == uint64(i)+1000 }
	for _, tt := range []struct {
		name     string
		segments []Segment
		short    bool
		cut      bool
		want     string // n: native, a letter: script frame
		placed   int
	}{
		{"by address", []Segment{{N: 2, Anchor: 0x118}, {N: 1, Anchor: 0x138}, {N: 1, Anchor: 0x150}}, false, false, "n0 a b n2 c n4 d n6", 4},
		{"a loop without script", []Segment{{N: 2, Anchor: 0x138}, {N: 1, Anchor: 0x150}}, false, false, "n0 n1 n2 a b n4 c n6", 3},
		{"beyond what was unwound", []Segment{{N: 1, Anchor: 0x118}, {N: 2, Anchor: 0x1000}}, false, true, "n0 a n2 n3 n4 n5 n6 b c", 1},
		{"below the stack", []Segment{{N: 1, Anchor: 0x90}, {N: 1, Anchor: 0x138}}, false, false, "a n0 n1 n2 b n4 n5 n6", 1},
		{"two states that take turns", []Segment{{N: 1, Anchor: 0x118}, {N: 1, Anchor: 0x150}, {N: 1, Anchor: 0x138}}, false, false, "n0 a n2 c n4 b n6", 3},
		{"one each", []Segment{{N: 1}, {N: 1}, {N: 1}}, false, false, "n0 a n2 b n4 c n6", 3},
		{"one each, a loop begins", []Segment{{N: 1}, {N: 1}}, false, false, "n0 n1 n2 a n4 b n6", 2},
		{"one each, a frame too many", []Segment{{N: 1}, {N: 1}, {N: 1}, {N: 1}}, false, false, "a n0 b n2 c n4 d n6", 3},
		{"one each, cut", []Segment{{N: 1}, {N: 1}, {N: 1}, {N: 1}}, false, true, "n0 a n2 b n4 c n6 d", 3},
		{"not all copied", []Segment{{N: 1, Anchor: 0x118}, {N: 2, Anchor: ^uint64(0)}}, true, false, "n0 a n2 b c", 3},
		{"not all copied, nothing runs the last", []Segment{{N: 1, Anchor: 0x150}, {N: 2, Anchor: ^uint64(0)}}, true, false, "n0 n1 n2 n3 n4 a b c", 1},
		{"not all copied, below the stack, nothing runs the last", []Segment{{N: 1, Anchor: 0x90}, {N: 1, Anchor: 0x150}, {N: 1, Anchor: ^uint64(0)}}, true, false, "a n0 n1 n2 n3 n4 b c", 1},
		{"beside a native function", []Segment{{N: 1}, {N: 1, Entry: 1002}, {N: 2}, {N: 1}}, false, false, "n0 a n2 b c d n4 e n6", 5},
		{"two beside one after the other", []Segment{{N: 1, Entry: 1000}, {N: 1, Entry: 1002}, {N: 1}}, false, false, "n0 a n1 n2 b n3 n4 c n6", 3},
		{"beside none", []Segment{{N: 1, Entry: 1}, {N: 1}, {N: 1, Entry: 1006}, {N: 1}}, false, false, "n0 n1 n2 a b n4 c d n6", 4},
		{"beside one that is not between", []Segment{{N: 1}, {N: 1, Entry: 1000}, {N: 1}, {N: 1}}, false, false, "n0 a n2 b c n4 d n6", 4},
		{"beside one, not all copied", []Segment{{N: 1}, {N: 1, Entry: 1002}}, true, false, "n0 a n2 b", 2},
		{"on another stack", []Segment{{N: 1}, {N: 1, Entry: 1002}, {N: 1}, {N: 1}, {N: 1, Elsewhere: true, Entry: 1004}, {N: 2, Elsewhere: true}}, false, false, "n0 a n2 b c n4 d n6 e f g", 7},
		{"none", nil, false, false, "n0 n1 n2 n3 n4 n5 n6", 0},
	} {
		st := &Stack{Segments: tt.segments, Short: tt.short}
		got, placed := Merge(nil, native, !tt.cut, st, in)
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
		0x031000f0: "python of version 3.16.0 is not known, its scripts are not shown (known: 3.8 to 3.15)",
		0x040000f0: "python of version 4 is not known, its scripts are not shown (known: 3.8 to 3.15)",
		0x030d05f0: "python 3.13.5 does not tell its offsets, its scripts are not shown",
	} {
		mem := rubbish(binary.NativeEndian.AppendUint32(nil, version))
		if _, err := newPython("/usr/bin/python3", syms, mem); err == nil || err.Error() != want {
			t.Errorf("version %#x: %v, want %s", version, err, want)
		}
	}
}

// growing is memory in which a dict's names move once its keys were read.
type growing struct {
	bytes [0x1000]byte
	moved bool
}

func (g *growing) ReadAt(b []byte, addr int64) (int, error) {
	n := copy(b, g.bytes[min(addr, int64(len(g.bytes))):])
	if !g.moved && addr == 0x800 {
		g.moved = true
		g.put(0x100+32, 0x900)
	}
	return n, nil
}

func (g *growing) put(addr int, v uint64) { binary.NativeEndian.PutUint64(g.bytes[addr:], v) }

// TestGrowingModule: the name of a module is found although its dict grows while it is read.
func TestGrowingModule(t *testing.T) {
	o := pyObjects{minor: 11, text: 1, dict: 2}
	g := new(growing)
	for addr, text := range map[int]string{0x500: "__name__", 0x600: "app"} {
		g.put(addr, 1)
		g.put(addr+8, o.text)
		g.put(addr+16, uint64(len(text)))
		binary.NativeEndian.PutUint32(g.bytes[addr+32:], 1<<2|1<<5|1<<6)
		copy(g.bytes[addr+48:], text)
	}
	g.put(0x108, o.dict)
	g.put(0x100+32, 0x800) // keys that have no entries
	g.bytes[0x909], g.bytes[0x90a] = 3, 1
	g.put(0x900+40, 0x500)
	g.put(0x900+48, 0x600)
	if got := o.module(g, 0x100); got != "app" || !g.moved {
		t.Errorf("module %q", got)
	}
}
