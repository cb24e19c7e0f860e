package runtimes

import (
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"sfsample/regs"
	"sfsample/unwind"
)

// beamCode is code in hexadecimal digits, with blanks.
func beamCode(t *testing.T, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBeamFlow: where the return address is at each instruction, behind calls, and where nothing leads; and what contradicts itself.
func TestBeamFlow(t *testing.T) {
	leads := func(at int) beamPlace {
		switch at {
		case -0x100:
			return beamEntry
		case -0x200:
			return beamRaises
		}
		return beamElsewhere
	}
	type want struct {
		at             int
		caller, native bool
		words          int // -1: not known
	}
	for _, tt := range []struct {
		name, code string
		wrong      bool
		want       []want
	}{
		{name: "a frame, and a call", code: "4883ec10 e8f7000000 4883c410 49ffce c3", // sub rsp,16; call; add rsp,16; dec r14; ret
			want: []want{{0, false, false, 0}, {4, false, false, 2}, {9, true, false, 2}, {9, false, false, 2}, {13, false, false, 0}, {16, false, false, 0}, {0, false, true, -1}, {2, false, false, -1}}},
		{name: "on the scheduler's stack", code: "4883ec08 4889e5 488d6380 ff1500000000 4889ec 4883c408 c3", // mov rbp,rsp; lea rsp,[rbx-0x80]; call; mov rsp,rbp
			want: []want{{7, false, false, 1}, {11, false, true, 1}, {17, true, true, 1}, {17, false, true, 1}, {20, false, false, 1}, {17, true, false, -1}}},
		{name: "an exception in a frame, at the end", code: "4883ec08 7406 4883c408 c3 90 e8ecfdffff", // je; add rsp,8; ret; nop; call raise
			want: []want{{12, false, false, 1}, {17, true, false, 1}}},
		{name: "a handler that nothing leads to", code: "4883ec18 e800000000 eb02 9090 4883c418 c3 4883c410 4883c408 c3",
			want: []want{{18, false, false, 3}, {22, false, false, 1}, {9, true, false, 3}}},
		{name: "a tail call out of a frame", code: "4883ec08 4883c408 e9f3feffff 4883c408 e9eafeffff", // jmp to an entry
			want: []want{{4, false, false, 1}, {8, false, false, 0}, {13, false, false, 1}}},
		{name: "a tail call by an export", code: "4883ec08 eb05 4883c408 90 4883c408 42ff24e0", // jmp [rax+r12*8]
			want: []want{{11, false, false, 1}, {6, false, false, 2}}},
		{name: "returns in a frame", code: "4883ec08 c3", wrong: true, want: []want{{0, false, false, -1}, {4, false, false, -1}}},
		{name: "two ways that differ", code: "7404 4883ec08 90 90 ebfd", want: []want{{0, false, false, 0}, {6, false, false, -1}}},
		{name: "the stack pointer from elsewhere", code: "4889c4 c3", want: []want{{0, false, false, 0}, {3, false, false, -1}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newBeamFlow(beamCode(t, tt.code), leads)
			if f.wrong != tt.wrong {
				t.Errorf("wrong: %t", f.wrong)
			}
			for _, w := range tt.want {
				s, ok := f.at(w.at, w.caller, w.native)
				if ok != (w.words >= 0) || ok && s.words != w.words {
					t.Errorf("at %d (behind a call %t, on the scheduler's stack %t): %d words, %t; want %d", w.at, w.caller, w.native, s.words, ok, w.words)
				}
			}
		})
	}
}

// TestBeamFramedFlow: the same of code that keeps frame pointers; and code that is jumped to, as its instructions show.
func TestBeamFramedFlow(t *testing.T) {
	leads := func(at int) beamPlace {
		if at == -0x100 {
			return beamEntry
		}
		return beamElsewhere
	}
	const enter = "55 4889e5 " // push rbp; mov rbp,rsp
	one, any := beamState{words: 1, link: beamLinked}, beamState{words: beamAnyWords, link: beamLinked}
	native := func(s beamState) beamState { s.native = true; return s }
	unknown := beamState{words: -1}
	type want struct {
		at             int
		caller, native bool
		is             beamState
	}
	for _, tt := range []struct {
		name, code string
		starts     []beamState
		wrong      bool
		want       []want
	}{
		{name: "a frame, and a call", code: enter + "4883ec10 e8f7000000 c9 49ffce c3", // sub rsp,16; call; leave; dec r14; ret
			want: []want{{at: 0}, {at: 1, is: beamState{words: 1, link: beamSaved}}, {at: 4, is: one}, {13, true, false, beamState{words: 3, link: beamLinked}}, {at: 14}, {at: 17}}},
		{name: "on the scheduler's stack", code: enter + "488d6380 ff1500000000 4d8b6558 498b6558 498b6d60 c9 c3", // lea rsp,[rbx-0x80]; call; mov r12,[r13+0x58]; mov rsp,[r13+0x58]; mov rbp,[r13+0x60]
			want: []want{{8, false, true, native(one)}, {14, true, true, native(one)}, {at: 22, is: one}, {at: 26, is: one}}},
		{name: "a handler that nothing leads to", code: enter + "4883ec18 e800000000 eb03 4889d8 c9 c3", want: []want{{18, false, false, beamState{words: 4, link: beamLinked}}}},
		{name: "only a leave leads on", code: enter + "c9 c3 4889d8 c9 c3", want: []want{{6, false, false, any}, {9, false, false, any}}},
		{name: "behind a leave that nothing leads to", code: enter + "c9 c3 4889d8 c3", want: []want{{at: 6}}},
		{name: "a return in a frame", code: enter + "c3", wrong: true, want: []want{{4, false, false, unknown}}},
		{name: "a leave without a frame", code: "c9 c3", wrong: true, want: []want{{0, false, false, unknown}}},
		{name: "a tail call in a frame", code: enter + "e9f7feffff", wrong: true, want: []want{{4, false, false, unknown}}},
		{name: "two sizes", code: enter + "7404 4883ec08 90 c9 c3", want: []want{{6, false, false, one}, {10, false, false, any}, {at: 12}}},
		{name: "another frame pointer", code: enter + "4889c5 90 c9 c3", want: []want{{4, false, false, one}, {7, false, false, unknown}}},
		{name: "a frame that is not a function's first", code: "4883ec08 " + enter + "90 c9 c3", want: []want{{4, false, false, beamState{words: 1}}, {8, false, false, unknown}}},
		{name: "more is dropped than there is", code: enter + "4883c408 90", want: []want{{4, false, false, one}, {8, false, false, unknown}}},
		{name: "it is jumped to with a frame", code: "4889d8 c9 c3", starts: beamStarts, want: []want{{0, false, false, any}, {at: 4}}},
		{name: "it is gone back to from native code", code: "498b6558 c9 c3", starts: beamStarts, want: []want{{0, false, true, native(any)}, {4, false, false, any}}},
		{name: "it is called", code: "4889d8 c3", starts: beamStarts, want: []want{{at: 0}, {at: 3}}},
		{name: "nothing shows how it is reached", code: "4889d8 e900010000", starts: beamStarts, wrong: true, want: []want{{0, false, false, unknown}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.starts == nil {
				tt.starts = []beamState{{}}
			}
			f := newFramedFlow(beamCode(t, tt.code), leads, tt.starts...)
			if f.wrong != tt.wrong {
				t.Errorf("wrong: %t", f.wrong)
			}
			for _, w := range tt.want {
				s, ok := f.at(w.at, w.caller, w.native)
				if ok != (w.is != unknown) || ok && s != w.is {
					t.Errorf("at %d (behind a call %t, on the scheduler's stack %t): %+v, %t; want %+v", w.at, w.caller, w.native, s, ok, w.is)
				}
			}
		})
	}
	f := newFramedFlow(beamCode(t, enter+"ff1500000000 498b6558 498b6d60 c9 c3"), leads, beamState{})
	if reg, also, ok := f.restores(10); reg != regR13 || !also || !ok {
		t.Errorf("the frame pointer is not taken back: register %d, %t, %t", reg, also, ok)
	}
	f = newFramedFlow(beamCode(t, enter+"ff1500000000 7406 498b6558 c9 c3 498b6558 498b6d60 c9 c3"), leads, beamState{})
	if _, _, ok := f.restores(10); ok {
		t.Error("ways differ in what they take back")
	}
}

// TestBeamFrame: the caller of a frame, by the stack pointer and the frame pointer, which have to agree.
func TestBeamFrame(t *testing.T) {
	words := map[uint64]uint64{0x1000: 1, 0x1008: 2, 0x1010: 0x1100, 0x1018: 0x7777, 0x2058: 0x1008, 0x2060: 0x1010}
	load := func(addr uint64) (uint64, unwind.Reason) {
		if v, ok := words[addr]; ok {
			return v, 0
		}
		return 0, unwind.OutsideCopy
	}
	for _, tt := range []struct {
		name   string
		sp, fp uint64
		known  bool
		is     beamState
		ra, up uint64 // and the caller's frame pointer; 0: there is none
	}{
		{"both", 0x1000, 0x1010, true, beamState{words: 3, link: beamLinked}, 0x7777, 0x1100},
		{"the stack pointer alone", 0x1000, 0, false, beamState{words: 3, link: beamLinked}, 0x7777, 0x1100},
		{"the frame pointer alone", 0x1000, 0x1010, true, beamState{words: beamAnyWords, link: beamLinked}, 0x7777, 0x1100},
		{"neither", 0x1000, 0x1010, false, beamState{words: beamAnyWords, link: beamLinked}, 0, 0},
		{"they differ", 0x1000, 0x1008, true, beamState{words: 3, link: beamLinked}, 0, 0},
		{"it leads down", 0x1018, 0x1010 - 8, true, beamState{words: beamAnyWords, link: beamLinked}, 0, 0},
		{"it leads far", 0x1000, 0x1000 + 8*maxBeamFrame, true, beamState{words: beamAnyWords, link: beamLinked}, 0, 0},
		{"it leads between words", 0x1000, 0x100c, true, beamState{words: beamAnyWords, link: beamLinked}, 0, 0},
		{"saved", 0x1010, 0x1234, true, beamState{words: 1, link: beamSaved}, 0x7777, 0x1100},
		{"at the entry", 0x1018, 0x1234, true, beamState{}, 0x7777, 0x1234},
		{"not copied", 0x1020, 0x1234, true, beamState{}, 0, 0},
	} {
		w := beamFrame{sp: tt.sp, fp: tt.fp, known: tt.known, load: load}
		ra, _, r := w.caller(tt.is, true)
		if (r == 0) != (tt.ra != 0) || r == 0 && (ra != tt.ra || w.fp != tt.up || !w.known) {
			t.Errorf("%s: %#x, frame pointer %#x, %v", tt.name, ra, w.fp, r)
		}
	}
	w := beamFrame{process: 0x2000, load: load}
	if r, _ := w.back(regR13, true); r != 0 || w.sp != 0x1008 || w.fp != 0x1010 || !w.known {
		t.Errorf("back from native code: %+v, %v", w, r)
	}
	if r, _ := w.back(regR13, false); r != 0 || w.sp != 0x1008 {
		t.Errorf("back from native code: %+v, %v", w, r)
	}
	w.process = 0x3000
	if r, addr := w.back(regR13, true); r != unwind.Unreadable || addr != 0x3000+beamStop {
		t.Errorf("a process that is not copied: %v at %#x", r, addr)
	}
	w.known = false
	if r, _ := w.back(regRBP, false); r != unwind.UnknownRegister {
		t.Errorf("a register that is not known: %v", r)
	}
}

// beamTarget is memory of an emulator in which modules are loaded.
type beamTarget struct {
	areas map[uint64][]byte
	first uint64
	next  uint64 // free
}

// ReadAt implements io.ReaderAt.
func (m *beamTarget) ReadAt(b []byte, addr int64) (int, error) {
	for at, area := range m.areas {
		if off := uint64(addr) - at; off < uint64(len(area)) && uint64(len(area))-off >= uint64(len(b)) {
			return copy(b, area[off:]), nil
		}
	}
	return 0, fmt.Errorf("nothing at %#x", addr)
}

// loaded is a function of a module at an address, and its lines by place.
type loaded struct {
	name       string
	start, end uint32
	lines      [][2]uint32
}

// load tells of a module.
func (m *beamTarget) load(base uint64, size uint32, name string, list ...loaded) {
	o := binary.NativeEndian
	text := func(b []byte, s string) []byte { return append(append(b, s...), 0) }
	b := o.AppendUint32(nil, 1)
	b = o.AppendUint32(b, 0)
	b = o.AppendUint64(b, base)
	b = o.AppendUint32(b, uint32(len(list)))
	b = o.AppendUint32(b, size)
	b = o.AppendUint16(b, uint16(len(name)+1))
	b = append(text(b, name), 0, 0, 0, 0, 0, 0)
	for _, f := range list {
		b = o.AppendUint32(o.AppendUint32(o.AppendUint32(b, f.start), f.end), uint32(len(f.lines)))
		b = append(text(o.AppendUint16(b, uint16(len(f.name)+1)), f.name), 0, 0)
		for _, l := range f.lines {
			b = o.AppendUint32(o.AppendUint32(b, l[0]), l[1])
			b = append(text(o.AppendUint16(b, uint16(len("m.erl")+1)), "m.erl"), 0, 0)
		}
	}
	m.add(b)
}

// add adds an entry to the list.
func (m *beamTarget) add(b []byte) {
	m.addAt(m.next, m.next+64, b)
	m.next += 64 + uint64(len(b)+63)&^63
}

// addAt adds an entry that is at an address, and what it leads to at another.
func (m *beamTarget) addAt(entry, told uint64, b []byte) {
	e := make([]byte, 0, 32)
	for _, v := range []uint64{m.first, 0, told, uint64(len(b))} {
		e = binary.NativeEndian.AppendUint64(e, v)
	}
	m.areas[entry], m.areas[told] = e, b
	m.link(entry, m.first)
	m.link(0, entry)
}

// link makes an entry the one behind another; 0: there is none.
func (m *beamTarget) link(entry, next uint64) {
	if entry != 0 {
		binary.NativeEndian.PutUint64(m.areas[entry], next)
	} else {
		m.first, m.areas[beamTargetFirst] = next, binary.NativeEndian.AppendUint64(nil, next)
	}
	if b := m.areas[next]; b != nil {
		binary.NativeEndian.PutUint64(b[8:], entry)
	}
}

// remove takes an entry from the list, as release 27 does. Its memory is as it was.
func (m *beamTarget) remove(entry uint64) {
	b := m.areas[entry]
	m.link(word(b, 8), word(b, 0))
}

// is is what an entry is.
func (m *beamTarget) is(entry uint64) beamIs {
	is, _ := beamIsAt(entry, func(addr uint64) (uint64, bool) {
		b := read(m, addr, 8)
		if b == nil {
			return 0, false
		}
		return word(b, 0), true
	})
	return is
}

const beamTargetFirst = 0x100 // address of the pointer to the head of the list

func newBeamTarget() *beamTarget { return &beamTarget{areas: map[uint64][]byte{}, next: 1 << 20} }

// TestBeamModules: which function was where at a moment, as code was replaced since; what was never there; and lines.
func TestBeamModules(t *testing.T) {
	m := newBeamTarget()
	m.load(0x5000, 0x1000, "first", loaded{"first:a/1", 0, 0x100, [][2]uint32{{0, 3}, {0x20, 4}}}, loaded{"first:b/2", 0x100, 0x200, nil})
	m.load(0x7000, 0x800, "second", loaded{"second:c/0", 0x10, 0x800, nil})
	l := newBeamModules(m, beamTargetFirst)
	before, _ := l.at(m.is(m.first))
	m.load(0x5100, 0x1000, "third", loaded{"third:d/0", 0, 0x1000, nil})
	middle := m.is(m.first)
	m.load(0x7000, 0x200, "gone", loaded{"gone:x/0", 0, 0x200, nil})
	m.load(0x7000, 0x100, "fourth", loaded{"fourth:e/0", 0, 0x100, nil})
	after, ok := l.at(m.is(m.first))
	between, also := l.at(middle)
	if !ok || !also {
		t.Fatal("not read")
	}
	for _, tt := range []struct {
		pc   uint64
		when int
		want string
	}{
		{0x5000, before, "first:a/1"}, {0x50ff, before, "first:a/1"}, {0x5100, before, "first:b/2"}, {0x5200, before, ""}, {0x7010, before, "second:c/0"},
		{0x6000, before, ""}, {0x4fff, before, ""}, {0x7800, before, ""},
		{0x5100, between, "third:d/0"}, {0x5000, between, ""}, {0x7010, between, "second:c/0"},
		{0x7010, after, "fourth:e/0"}, {0x7200, after, ""}, {0x60ff, after, "third:d/0"},
	} {
		got := ""
		if f := l.find(tt.pc, tt.when); f != nil {
			got = f.name
		}
		if got != tt.want {
			t.Errorf("at %#x, when the newest was %d: %q, want %q", tt.pc, tt.when, got, tt.want)
		}
	}
	b := &beam{modules: l}
	f := Frame{Code: uint64(l.find(0x5000, before).of.number), At: 0x21}
	k, ok := b.Key(nil, m, &f)
	fn, also := b.Function(m, &f, k)
	if !ok || !also || fn.Name != "first:a/1" || fn.File != "m.erl" || fn.Line(0x1f) != 3 || fn.Line(0x20) != 4 {
		t.Errorf("%+v, %+v", k, fn)
	}
}

// TestBeamPurged: entries that are taken from the list, whose memory is used again by others, also by one that is as the one before.
func TestBeamPurged(t *testing.T) {
	m := newBeamTarget()
	one := func(name string) loaded { return loaded{name, 0, 0x100, nil} }
	m.load(0x1000, 0x100, "all", one("global::x"))
	m.load(0x5000, 0x100, "a", one("a:f/0"))
	a := m.is(m.first)
	told := m.areas[a.told]
	l := newBeamModules(m, beamTargetFirst)
	check := func(what string, head beamIs, pc uint64, want string) {
		t.Helper()
		got := ""
		if n, ok := l.at(head); ok {
			if f := l.find(pc, n); f != nil {
				got = f.name
			}
		}
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("as it is", a, 0x5000, "a:f/0")
	m.load(0x6000, 0x100, "b", one("b:f/0"))
	b := m.is(m.first)
	check("b is read, and none of its functions", b, 0x7000, "")
	m.remove(b.entry)
	check("what was purged before it was needed", b, 0x6000, "")
	check("its head is a again", a, 0x5000, "a:f/0")

	// In the place of a comes another one, whose entry lies where that of a lay.
	m.remove(a.entry)
	m.load(0x5000, 0x100, "c", one("c:f/0"))
	c := m.areas[m.is(m.first).told]
	m.remove(m.first)
	m.addAt(a.entry, a.told, c)
	check("a moment at which a was there", a, 0x5000, "a:f/0")
	check("one at which c is", m.is(m.first), 0x5000, "c:f/0")
	check("a moment at which a was there, which is not the newest any more", a, 0x5000, "")

	// c is purged too, and a comes back as it was, but d is there by now: code that was there before is not.
	m.remove(a.entry)
	m.load(0x6000, 0x100, "d", one("d:f/0"))
	check("one at which d is", m.is(m.first), 0x6000, "d:f/0")
	m.addAt(a.entry, a.told, told)
	if m.is(m.first) != a {
		t.Fatal("a is another one")
	}
	check("a moment at which d is there, behind a", a, 0x6000, "d:f/0")
	check("and a", a, 0x5000, "a:f/0")

	// An entry that is taken out while the list is read leads to others, or nowhere.
	m.load(0x8000, 0x100, "e", one("e:f/0"))
	e := m.first
	m.load(0x9000, 0x100, "f", one("f:f/0"))
	torn := m.is(m.first)
	binary.NativeEndian.PutUint64(m.areas[e][8:], 0x123456)
	check("a list that is torn", torn, 0x9000, "")
	binary.NativeEndian.PutUint64(m.areas[e][8:], m.first)
	check("the list once it is whole", torn, 0x8000, "e:f/0")
}

// TestBeamLoads: what is kept of a program that has loaded code 30,000 times is bounded, and known all the same; of what is long gone nothing is.
func TestBeamLoads(t *testing.T) {
	m := newBeamTarget()
	load := func(n int) {
		m.load(0x5000+uint64(n%3)*0x100, 0x180, "m", loaded{fmt.Sprintf("m:f%d/0", n), 0, 0x180, nil})
	}
	m.load(0x9000, 0x100, "old", loaded{"old:f/0", 0, 0x100, nil})
	load(0)
	old := m.is(m.first)
	l := newBeamModules(m, beamTargetFirst)
	b := &beam{modules: l}
	for n := 1; n < 30000; n++ {
		if load(n); n%7 == 0 {
			b.Begin()
			if _, ok := l.at(m.is(m.first)); !ok {
				t.Fatalf("load %d is not known", n)
			}
			// The memory of what is gone is not asked for again.
			for at := range m.areas {
				if at < m.first-128 && at != beamTargetFirst {
					delete(m.areas, at)
				}
			}
		}
	}
	n, ok := l.at(m.is(m.first))
	if f := l.find(0x5210, n); !ok || f == nil || f.name != "m:f29999/0" {
		t.Errorf("the newest is not known: %v", f)
	}
	if f := l.find(0x9000, n); f == nil || f.name != "old:f/0" {
		t.Errorf("the oldest is not known: %v", f)
	}
	if len(l.numbers) > 4*maxBeamRecent || len(l.past) > 4*maxBeamRecent || len(l.live) > 8 || len(l.recent) > 4*maxBeamRecent {
		t.Errorf("%d numbers, %d modules gone, %d live, %d recent", len(l.numbers), len(l.past), len(l.live), len(l.recent))
	}
	if _, ok := l.at(old); ok {
		t.Error("a head is known that is long gone")
	}
	// A list without end takes what there is of the budget, and no more.
	endless := &beamModules{mem: rubbish(binary.NativeEndian.AppendUint64(nil, 0x1000)), numbers: map[beamIs]int{}, next: 1, budget: 300}
	if _, ok := endless.at(beamIs{0x1000, 0x1000, 0x1000, [3]uint64{0x1000, 0x1000, 0x1000}}); ok || endless.budget != 0 {
		t.Errorf("a list without end is known, and there is %d of the budget", endless.budget)
	}
}

// TestBeamUnknown: releases and builds that are not known are told.
func TestBeamUnknown(t *testing.T) {
	syms := map[string]uint64{}
	for i, s := range beamSymbols {
		syms[s] = 0x1000 + 8*uint64(i)
	}
	for _, tt := range []struct {
		release      string
		jit, layout  byte
		machine      elf.Machine
		without, why string
	}{
		{"25", 1, 0, elf.EM_X86_64, "", ""}, {"27", 1, 0, elf.EM_X86_64, "", ""}, {"26", 1, 0, elf.EM_X86_64, "", `"26" is not known`}, {"25", 1, 0, elf.EM_AARCH64, "", "on x86-64 only"},
		{"25", 0, 0, elf.EM_X86_64, "", "without its just-in-time compiler"}, {"25", 1, 1, elf.EM_X86_64, "", ""}, {"25", 1, 2, elf.EM_X86_64, "", "with frames of another layout"},
		{"25", 1, 0, elf.EM_X86_64, "erts_no_schedulers", "does not export erts_no_schedulers"}, {"25", 1, 0, elf.EM_X86_64, "etp_otp_release", "does not export etp_otp_release"},
	} {
		page := make([]byte, 4096)
		copy(page, tt.release)
		page[8], page[16] = tt.jit, tt.layout
		if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
			page[8], page[11], page[16], page[19] = 0, tt.jit, 0, tt.layout
		}
		these := map[string]uint64{}
		for s, at := range syms {
			if s != tt.without {
				these[s] = at
			}
		}
		_, err := newBeam(Object{Path: "/x/beam.smp"}, tt.machine, these, &beamTarget{areas: map[uint64][]byte{0x1000: page}})
		if (err == nil) != (tt.why == "") || err != nil && !strings.Contains(err.Error(), tt.why) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
}

// FuzzBeam gives memory of any contents to what reads Erlang's: it ends, and what it answers is within bounds.
func FuzzBeam(f *testing.F) {
	m := newBeamTarget()
	m.load(0x1000, 0x1000, "m", loaded{"m:f/1-CodeInfoPrologue", 0, 0x30, nil}, loaded{"m:f/1", 0x30, 0x100, [][2]uint32{{0, 3}}})
	f.Add(m.areas[m.first+64])
	f.Add(beamCode2("4883ec08e8f7000000483c4084889e5488d6380ff15000000004889ecc3"))
	f.Add(beamCode2("554889e54883ec08e8f7000000488d6380ff1500000000498b6558498b6d60c9c34889d8c9c3"))
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 || len(b) > 1<<16 {
			return
		}
		if list, ok := beamTold(append(b, make([]byte, beamInfoBytes)...)); ok {
			for i := 1; i < len(list); i++ {
				if list[i].start < list[i-1].end {
					t.Fatalf("%v overlap", list)
				}
			}
		}
		flow := newBeamFlow(b, func(at int) beamPlace { return beamPlace(uint(at) % 3) })
		framed := newFramedFlow(b, flow.leads, beamStarts[:1+2*(len(b)%2)]...)
		for i := range b {
			for _, native := range []bool{false, true} {
				if s, ok := flow.at(i, i%2 == 0, native); ok && (s.words < 0 || s.words > maxBeamFrame || s.link != beamUnlinked) {
					t.Fatalf("%+v at %d", s, i)
				}
				if s, ok := framed.at(i, i%2 == 0, native); ok && (s.words < 0 || s.words > beamAnyWords || s.link > beamLinked || s.words == beamAnyWords && s.link != beamLinked) {
					t.Fatalf("%+v at %d", s, i)
				}
			}
			flow.restores(i)
			framed.restores(i)
		}
		mem := rubbish(b)
		r := &beam{mem: mem, origin: func(uint64) (bool, bool) { return true, false }, descriptor: 0x1000, schedulers: 0x1100, count: 0x1108, modules: newBeamModules(mem, 0x1010)}
		r.modules.root, r.modules.framed = 1, len(b)%2 == 0
		r.Roots(mem, Thread{TID: 1, Pointer: 8})
		page := make([]byte, 1<<12)
		mem.ReadAt(page, 0x1000)
		var set, to regs.Set
		for i := range uint8(16) {
			set.SetReg(i, 0x1000+uint64(b[int(i)%len(b)])&^7)
		}
		set.PC = 0x1000 + uint64(b[0])
		var um unwind.Memory
		um.Reset(0x1000, page, nil)
		r.Caller(&set, len(b)%2 == 0, &um, &to)
		var st Stack
		r.Identify([]unwind.Owned{{Set: set}}, Memory{{Addr: 0x1000, Bytes: page}}, &st)
		for i := range st.Frames {
			if k, ok := r.Key(nil, mem, &st.Frames[i]); ok {
				r.Function(mem, &st.Frames[i], k)
			}
		}
		r.Recipe(nil, &st)
	})
}

func beamCode2(text string) []byte {
	b, _ := hex.DecodeString(text)
	return b
}

// manyModules is memory in which each address tells of a module there, as its entry in the list has it.
type manyModules struct{}

func (manyModules) ReadAt(b []byte, addr int64) (int, error) {
	if len(b) == beamInfoBytes {
		binary.NativeEndian.PutUint32(b, 1)
		binary.NativeEndian.PutUint64(b[beamBase:], uint64(addr))
		binary.NativeEndian.PutUint32(b[beamSize:], 0x100)
	}
	return len(b), nil
}

// TestBeamLive: of modules that have places of their own the newest are remembered.
func TestBeamLive(t *testing.T) {
	l := newBeamModules(manyModules{}, beamTargetFirst)
	const n = maxBeamEntries + 1<<10
	for i := range n {
		l.add(&beamModule{is: beamIs{entry: uint64(i), told: 0x100000 + 0x100*uint64(i)}})
		l.known[i] = l.live[len(l.live)-1]
		if len(l.live) > maxBeamEntries || len(l.known) > maxBeamEntries+1 {
			t.Fatalf("%d modules are live, of %d something is known", len(l.live), len(l.known))
		}
	}
	if l.moduleAt(0x100000+0x100*(n-1), n) == nil || l.moduleAt(0x100000+0x100*(n-maxBeamEntries/2), n) == nil {
		t.Error("a new module is not known")
	}
}

// TestBeamWork: how much code is looked at, for a walk and in all that is kept, is bounded; other walks go on from there.
func TestBeamWork(t *testing.T) {
	const size, functions = 1 << 18, 40
	l := newBeamModules(rubbish(binary.NativeEndian.AppendUint64(nil, 0x1000)), beamTargetFirst)
	b := &beam{modules: l}
	m := &beamModule{is: beamIs{0x1000, 0x1000, 0x1000, [3]uint64{0x1000, 0x1000, 0x1000}}, base: 1 << 20, flows: map[uint32]*beamFlow{}}
	for i := range uint32(functions) {
		m.ranges = append(m.ranges, beamRange{start: i * size, end: (i + 1) * size, name: "m:f/0"})
	}
	l.known[0] = m
	flow := func(i int) *beamFlow {
		return l.flow(&beamFunction{beamRange: &m.ranges[i], of: m, entry: m.base + uint64(m.ranges[i].start)})
	}
	n := 0
	for n < functions && flow(n) != nil {
		n++
	}
	if n == 0 || n > maxBeamWork/(4*size)+1 {
		t.Fatalf("%d functions are looked at for one walk", n)
	}
	var w *beamFlow
	for ; n < functions; n++ {
		b.Begin()
		if w = flow(n); w == nil || len(m.flows) > maxBeamHeld/(12*size) {
			t.Fatalf("function %d is %v, %d are kept", n, w, len(m.flows))
		}
	}
	for b.Begin(); l.flows.work < 0; b.Begin() {
	}
	for place := range 10 { // what nothing leads to
		w.at(2*place+1, false, false)
	}
	if len(w.late) == 0 || len(w.late) == 10 {
		t.Errorf("%d places are looked at for one walk", len(w.late))
	}

	mem := newBeamTarget()
	mem.load(0x5000, 0x100, "a", loaded{"a:f/0", 0, 0x100, nil})
	l = newBeamModules(mem, beamTargetFirst)
	l.flows.work = -maxBeamMore
	head, ok := l.at(mem.is(mem.first))
	if !ok || l.find(0x5000, head) != nil {
		t.Errorf("functions are read, and nothing may be looked at; %t", ok)
	}
	if (&beam{modules: l}).Begin(); l.find(0x5000, head) == nil {
		t.Error("functions are not read for the next walk")
	}
}
