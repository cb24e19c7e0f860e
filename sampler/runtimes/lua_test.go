package runtimes

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"sfsample/regs"
	"sfsample/unwind"
)

// luaMemory is a state of 5.4 in memory of 0x1000 bytes at 0x1000: a function that C has called, and a C function that it calls.
func luaMemory() []byte {
	b := make([]byte, 0x1000)
	put := func(at int, list ...uint64) {
		for i, v := range list {
			binary.NativeEndian.PutUint64(b[at+8*i:], v)
		}
	}
	put(0, 0, luaThread, 0, 0x1ff0, 0x1200)
	put(luaJump, 0x1fc0)                  // on the stack, which is there too
	put(0x200, 0x1400, 0, 0x1280, 0)      // the C function
	put(0x200+56, 2<<48)                  // callstatus
	put(0x280, 0x1440, 0, 0x1060, 0x1200) // the one that has called it; what is behind is base_ci
	put(0x280+32, 0x1908)                 // savedpc: of the second instruction
	put(0x280+56, 4<<48)                  // CIST_FRESH
	put(0x440, 0x1500, luaLClosure|luaCollected)
	put(0x500, 0, luaLClosure, 0, 0x1600)
	put(0x600, 0, 10)
	binary.NativeEndian.PutUint32(b[0x600+luaCount:], 3)
	binary.NativeEndian.PutUint32(b[0x600+28:], 3) // deltas of lines
	binary.NativeEndian.PutUint32(b[0x600+luaAbs:], 1)
	binary.NativeEndian.PutUint32(b[0x600+44:], 7) // linedefined
	put(0x600+64, 0x1900)
	put(0x600+88, 0x1a00, 0x1b00)
	put(0x600+112, 0x1700)
	put(0x700, 0, luaShort|3<<24)
	copy(b[0x700+luaText:], "@ab")
	copy(b[0xa00:], []byte{1, 0x80, 0xff})
	put(0xb00, 1|70<<32)
	return b
}

// TestLuaFrames decodes a stack that was made by hand, and places it.
func TestLuaFrames(t *testing.T) {
	littleEndian(t)
	l, b := &lua{luaLayout: luaLayouts[4]}, luaMemory()
	mem := Memory{unwind.Region{Addr: 0x1fc0, Bytes: b[0xfc0:]}, unwind.Region{Addr: 0x1000, Bytes: b}}
	native := []unwind.Frame{{PC: 1, SP: 0x1fd0}, {PC: 2, SP: 0x1fe0}, {PC: 3, SP: 0x1ff0}}
	inLoop := func(i int, _ uint64) bool { return i == 1 }
	holds := func(v uint64) func(int) regs.Set {
		return func(int) (s regs.Set) { s.SetReg(6, v); return s }
	}
	decode := func() (st Stack) {
		l.Frames(mem, rubbish(nil), []uint64{0x1000}, &st)
		return st
	}
	st := decode()
	if want := []Segment{{N: 1}}; st.Short || len(st.Frames) != 1 || !slices.Equal(st.Segments, want) {
		t.Fatalf("%+v", st)
	}
	l.Anchor(native, true, inLoop, holds(0x1280), &st)
	if len(st.Segments) != 1 || st.Segments[0].Anchor != 0x1fe0 {
		t.Errorf("%+v", st)
	}
	for _, other := range []uint64{0, 0x1440} { // no frame's
		st := decode()
		if l.Anchor(native, true, inLoop, holds(other), &st); len(st.Frames) > 0 || len(st.Segments) > 0 {
			t.Errorf("%#x: %+v", other, st)
		}
	}
	k, ok := l.Key(mem, rubbish(nil), &st.Frames[0])
	fn, named := l.Function(offset{b, 0x1000}, &st.Frames[0], k)
	if !ok || !named || fn.Name != "function <ab:7>" || fn.File != "ab" {
		t.Fatalf("%+v %v, function %+v %v", k, ok, fn, named)
	}
	for at, want := range map[uint64]int{0x18fc: 0, 0x1900: 7, 0x1904: 8, 0x1908: 70, 0x190c: 69, 0x1910: 0, 0x1906: 0} {
		if got := fn.Line(at); got != want {
			t.Errorf("line at %#x: %d, want %d", at, got, want)
		}
	}
	b[0xa00]++ // what was freed
	if _, named := l.Function(offset{b, 0x1000}, &st.Frames[0], k); named {
		t.Error("lines that are not what was copied")
	}
	b[0xa00]--
	b[0xb00]++ // its marks are freed first
	if _, named := l.Function(offset{b, 0x1000}, &st.Frames[0], k); named {
		t.Error("lines without their marks")
	}
	b[0xb00]--
	b[0x600+luaTag] = 0xe0 // all of it was freed, before it was looked at
	if _, ok := l.Key(mem, rubbish(nil), &st.Frames[0]); ok {
		t.Error("what malloc has there is taken for a function")
	}
	b[0x600+luaTag] = 10
	b[luaJump+1] = 0x10 // it runs on another stack
	if st := decode(); len(st.Frames) > 0 {
		t.Errorf("of another stack: %+v", st)
	}
}

// TestLuaChunk: names of sources, as luaO_chunkid has them.
func TestLuaChunk(t *testing.T) {
	for source, want := range map[string]string{"@a/b.lua": "a/b.lua", "=x": "x", "f()": `[string "f()"]`, "f()\ng()": `[string "f()..."]`, "": `[string ""]`} {
		if got := luaChunk(source); got != want {
			t.Errorf("%q: %s, want %s", source, got, want)
		}
	}
}

// TestUnknownLua: what is not known is told and not guessed.
func TestUnknownLua(t *testing.T) {
	for _, tt := range []struct {
		ident   string
		machine elf.Machine
		want    string
	}{
		{"LuaJIT 2.1", elf.EM_X86_64, "<nil>"},
		{"$LuaVersion: Lua 5.4.2  Copyright", elf.EM_X86_64, "x: Lua 5.4.2 is not known, its scripts are not shown (known: 5.3.3, 5.3.6, 5.4.4 and 5.4.7)"},
		{"$Lua: Lua 5.1.5 Copyright", elf.EM_X86_64, "x: Lua 5.1.5 is not known, its scripts are not shown (known: 5.3.3, 5.3.6, 5.4.4 and 5.4.7)"},
		{"$LuaVersion: Lua 5.4.4  Copyright", elf.EM_AARCH64, "x: Lua is known on x86-64 only, its scripts are not shown"},
		{"$LuaVersion: Lua 5.4.4  Copyright", elf.EM_X86_64, "x: this Lua has no table of its functions, its scripts are not shown"},
	} {
		rt, err := newLua("/x", &elf.File{FileHeader: elf.FileHeader{Machine: tt.machine}}, []byte(tt.ident), 0, 0, 0)
		if got := fmt.Sprint(err); got != tt.want || rt != nil {
			t.Errorf("%q: %v, %s, want %s", tt.ident, rt, got, tt.want)
		}
	}
}
