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
	b = text(append(b, 0, 0, 0, 0, 0, 0), name)
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
	e := make([]byte, 0, 32)
	for _, v := range []uint64{m.first, 0, m.next + 64, uint64(len(b))} {
		e = binary.NativeEndian.AppendUint64(e, v)
	}
	m.areas[m.next], m.areas[m.next+64] = e, b
	m.first = m.next
	m.next += 64 + uint64(len(b)+63)&^63
}

func newBeamTarget() *beamTarget { return &beamTarget{areas: map[uint64][]byte{}, next: 1 << 20} }

// TestBeamModules: which function was where at a moment, as code was replaced since; what was never there; and lines.
func TestBeamModules(t *testing.T) {
	m := newBeamTarget()
	m.load(0x5000, 0x1000, "first", loaded{"first:a/1", 0, 0x100, [][2]uint32{{0, 3}, {0x20, 4}}}, loaded{"first:b/2", 0x100, 0x200, nil})
	m.load(0x7000, 0x800, "second", loaded{"second:c/0", 0x10, 0x800, nil})
	l := newBeamModules(m)
	before, _ := l.at(m.first)
	m.load(0x5100, 0x1000, "third", loaded{"third:d/0", 0, 0x1000, nil})
	middle := m.first
	m.load(0x7000, 0x200, "gone", loaded{"gone:x/0", 0, 0x200, nil})
	m.load(0x7000, 0x100, "fourth", loaded{"fourth:e/0", 0, 0x100, nil})
	after, ok := l.at(m.first)
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
	f := Frame{Code: l.find(0x5000, before).of.entry, At: 0x21}
	k, ok := b.Key(nil, m, &f)
	fn, also := b.Function(m, &f, k)
	if !ok || !also || fn.Name != "first:a/1" || fn.File != "m.erl" || fn.Line(0x1f) != 3 || fn.Line(0x20) != 4 {
		t.Errorf("%+v, %+v", k, fn)
	}
}

// TestBeamLoads: what is kept of a program that has loaded code 30,000 times is bounded, and known all the same; of what is long gone nothing is.
func TestBeamLoads(t *testing.T) {
	m := newBeamTarget()
	load := func(n int) {
		m.load(0x5000+uint64(n%3)*0x100, 0x180, "m", loaded{fmt.Sprintf("m:f%d/0", n), 0, 0x180, nil})
	}
	m.load(0x9000, 0x100, "old", loaded{"old:f/0", 0, 0x100, nil})
	load(0)
	old := m.first
	l := newBeamModules(m)
	b := &beam{modules: l}
	for n := 1; n < 30000; n++ {
		if load(n); n%7 == 0 {
			b.Begin()
			if _, ok := l.at(m.first); !ok {
				t.Fatalf("load %d is not known", n)
			}
			// The memory of what is gone is not asked for again.
			clear(m.areas)
		}
	}
	n, ok := l.at(m.first)
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
	endless := &beamModules{mem: rubbish(binary.NativeEndian.AppendUint64(nil, 0x1000)), numbers: map[uint64]int{}, next: 1, budget: 300}
	if _, ok := endless.at(0x1000); ok || endless.budget != 0 {
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
		{"25", 1, 0, elf.EM_X86_64, "", ""}, {"26", 1, 0, elf.EM_X86_64, "", `"26" is not known`}, {"25", 1, 0, elf.EM_AARCH64, "", "on x86-64 only"},
		{"25", 0, 0, elf.EM_X86_64, "", "without its just-in-time compiler"}, {"25", 1, 1, elf.EM_X86_64, "", "with frame pointers"},
		{"25", 1, 0, elf.EM_X86_64, "erts_no_schedulers", "does not export erts_no_schedulers"}, {"25", 1, 0, elf.EM_X86_64, "etp_otp_release", `"" is not known`},
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
		for i := range b {
			for _, native := range []bool{false, true} {
				if s, ok := flow.at(i, i%2 == 0, native); ok && (s.words < 0 || s.words > maxBeamFrame) {
					t.Fatalf("%d words at %d", s.words, i)
				}
			}
			flow.restores(i)
		}
		mem := rubbish(b)
		r := &beam{mem: mem, origin: func(uint64) (bool, bool) { return true, false }, descriptor: 0x1000, schedulers: 0x1100, count: 0x1108, modules: newBeamModules(mem)}
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
