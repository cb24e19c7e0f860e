package runtimes

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"sfsample/unwind"
)

// perlMemory is an interpreter of Perl 5.36 in memory of 0x2000 bytes at 0x1000: the program sorts by a sub, in which an eval of a block runs,
// whose JMPENV is on the native stack at 0x2e00.
func perlMemory() []byte {
	b := make([]byte, 0x2000)
	put := func(at int, list ...uint64) {
		for i, v := range list {
			binary.NativeEndian.PutUint64(b[at-0x1000+8*i:], v)
		}
	}
	put(0x1000+192, 0x1f00, 0, 0x1900, 0x1f40, 0x1880) // defstash, curcop, curstack, curstackinfo
	put(0x1000+760, 0x2e00)                            // top_env
	put(0x2e00, 0x2f80)                                // JMPENVs: of the eval, and of perl_run
	put(0x2f80, 0x1300)                                // in the interpreter
	put(0x1880, 0x1f40, 0x1a00, 0x18c0, 0, 1)          // the stack of the sort: its contexts, the one before, two of them
	put(0x1880+40, perlSort<<32)
	put(0x18c0, 0x1f40, 0x1b00, 0, 0, ^uint64(0)) // the main one has none
	put(0x1a00, perlSub, 0, 0x1940)
	put(0x1a00+perlCV, 0x1c00)
	put(0x1a00+perlContext, perlEval, 0, 0x1980)
	put(0x1a00+perlContext+perlTopEnv, 0x2e00)
	for i, cop := range []int{0x1900, 0x1940, 0x1980} { // statements
		put(cop, 0, 0, 0, 0, 195|uint64(7+i)<<32, 0, 0x1e00, uint64(100+i)<<32)
	}
	put(0x1c00, 0x1c20, perlPVCV<<32) // CV
	put(0x1c20+perlStart, 0x77)
	put(0x1c20+perlGV, 0x1d00)
	put(0x1d00, 0x1d20, perlPVGV<<32) // GV
	put(0x1d20+perlName, 0x1e40, 0x1d80)
	put(0x1d80, 0x1da0, (perlPVHV|perlAux)<<32) // stash
	put(0x1da0+perlNames, 0x1e60)
	copy(b[0xe00:], "a.pl")
	put(0x1e40, 2<<32)
	copy(b[0xe48:], "by\x00\x00")
	put(0x1e60, 3<<32)
	copy(b[0xe68:], "\xe9tc\x00\x00") // in Latin-1
	return b
}

// perlNative is native frames of that: in the eval the loop, docatch, another loop, sort, and a loop of perl_run.
var perlNative = []unwind.Frame{{SP: 0x2d00}, {SP: 0x2d10}, {SP: 0x2d80}, {SP: 0x2e80}, {SP: 0x2e90}, {SP: 0x2ea0}, {SP: 0x2f00}, {SP: 0x2f40}, {SP: 0x2ff0}}

// perlIn has the loop at some of these, and perl_run at the last but one.
func perlIn(loops ...int) func(i int, entry uint64) bool {
	return func(i int, entry uint64) bool { return entry == 0 && slices.Contains(loops, i) || entry == 2 && i == 7 }
}

// TestPerlFrames decodes a stack that was made by hand, and places it.
func TestPerlFrames(t *testing.T) {
	littleEndian(t)
	p := &perl{perlLayout: perlLayouts[36], syms: perlSyms{runops: 1, run: 2, callSV: 3, amagic: 4, leaveScope: 5}}
	b := perlMemory()
	mem := Memory{unwind.Region{Addr: 0x2d00, Bytes: b[0x1d00:]}, unwind.Region{Addr: 0x1000, Bytes: b[:0x1d00]}}
	for _, tt := range []struct {
		loops    []int
		complete bool
		want     []Segment
		first    uint64
	}{
		{[]int{1, 3, 6}, true, []Segment{{N: 1, Anchor: 0x2d10}, {N: 1, Anchor: 0x2e80}, {N: 1, Anchor: 0x2f00}}, perlString},
		{[]int{3, 6}, true, []Segment{{N: 2, Anchor: 0x2e80}, {N: 1, Anchor: 0x2f00}}, perlString}, // the eval has no loop of its own
		{[]int{6}, true, []Segment{{N: 1, Anchor: 0x2f00}}, perlProgram},                           // the sort is between two comparisons
		{[]int{0, 1, 3, 4, 5, 6}, true, nil, 0},                                                    // more than there can be
		{[]int{1, 3, 6}, false, nil, 0},
	} {
		var st Stack
		p.Frames(mem, rubbish(nil), []uint64{0x1000}, &st)
		if st.Short || len(st.Frames) != 3 || !slices.Equal(st.jumps, []uint64{0x2e00, 0x2f80}) {
			t.Fatalf("%+v", st)
		}
		p.Anchor(perlNative, tt.complete, perlIn(tt.loops...), nil, &st)
		if !slices.Equal(st.Segments, tt.want) || len(tt.want) > 0 && st.Frames[0].At != tt.first || len(tt.want) == 0 && len(st.Frames) > 0 {
			t.Errorf("%v: %+v", tt.loops, st)
		}
	}
	var st Stack
	// What goes on where nothing was copied has no frames, but the next copy has more.
	p.Frames(Memory{mem[0], {Addr: 0x1000, Bytes: b[:0xa00+perlContext]}}, rubbish(nil), []uint64{0x1000}, &st)
	if p.Anchor(perlNative, true, perlIn(6), nil, &st); !st.Short || len(st.Frames) > 0 || !slices.Contains(st.Spans, Span{0x1a00, 2 * perlContext}) {
		t.Errorf("%+v of contexts of which a part was copied", st)
	}
	p.Frames(mem, rubbish(nil), []uint64{0x1000}, &st)
	for i, want := range []string{"(eval) a.pl:7", "étc::by a.pl:9", "main program a.pl:8"} {
		f := &st.Frames[i]
		k, ok := p.Key(mem, offset{b, 0x1000}, f)
		fn, named := p.Function(offset{b, 0x1000}, f, k)
		if !ok || !named {
			t.Fatalf("frame %d: %+v %v, function %+v %v", i, k, ok, fn, named)
		}
		if got := fmt.Sprintf("%s %s:%d", fn.Name, fn.File, fn.Line(f.At)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	k, _ := p.Key(mem, offset{b, 0x1000}, &st.Frames[1])
	b[0x980+perlSeq]++ // another statement is there by now
	if fn, named := p.Function(offset{b, 0x1000}, &st.Frames[1], k); named {
		t.Errorf("with another statement in the place of its own: %+v", fn)
	}
	b[0x980+perlSeq]--
	b[0xc20+perlStart]++ // another sub
	if _, named := p.Function(offset{b, 0x1000}, &st.Frames[1], k); named {
		t.Error("the name of another sub")
	}
	if roots := p.Roots(offset{b, 0x1000}, Thread{StackAddr: 0x2d00, Stack: append(make([]byte, 64), b[0x1d40:]...)}); len(roots) != 0 {
		t.Errorf("roots %+v of a stack that has no interpreter", roots)
	}
	stack := slices.Clone(b[0x1d00:])
	binary.NativeEndian.PutUint64(stack[16:], 0x1000)
	if roots := p.Roots(offset{b, 0x1000}, Thread{StackAddr: 0x2d00, Stack: stack}); len(roots) != 0 {
		t.Errorf("roots %+v at an address that nothing has", roots)
	}
}

// TestPerlTorn: of a context that may be just being filled in, what stood there before is not told as the caller's line.
func TestPerlTorn(t *testing.T) {
	littleEndian(t)
	const sub, require, other = 0x7000, 0x7010, 0x7020
	p := &perl{perlLayout: perlLayouts[36], syms: perlSyms{enters: [4]uint64{sub, require}}}
	for what, tt := range map[string]struct {
		op, cop uint64
		sub     bool   // it is the context of a sub that has none yet
		want    uint64 // the statement of the second frame; of the first, if sub
	}{
		"require":           {require, 0x1900, false, 0},
		"require compiles":  {require, 0x1000 + 1936, false, 0x1980},
		"require is filled": {require, 0x1980, false, 0x1980},
		"another operation": {other, 0x1900, false, 0x1980},
		"a call in an eval": {sub, 0x1900, false, 0x1980},
		"a call":            {sub, 0x1900, true, 0x1900},
		"a return":          {other, 0x1900, true, 0x1980},
	} {
		b := perlMemory()
		put := func(at int, v uint64) { binary.NativeEndian.PutUint64(b[at-0x1000:], v) }
		put(0x1000+perlOp, 0x1f80)
		put(0x1f80+perlDoes, tt.op)
		put(0x1000+192+perlCurcop, tt.cop)
		i := 1
		if tt.sub {
			put(0x1a00+perlContext, perlSub)
			put(0x1a00+perlContext+perlCV, 0)
			i = 0
		}
		var st Stack
		p.Frames(Memory{{Addr: 0x1000, Bytes: b}}, rubbish(nil), []uint64{0x1000}, &st)
		if len(st.Frames) <= i || st.Frames[i].Globals != tt.want {
			t.Errorf("%s: %+v, want the statement %#x in frame %d", what, st.Frames, tt.want, i)
		}
	}
}

// TestPerlClosure names an anonymous sub that is gone when its name is read, as long as the statement that it ran is there, and the GV is of its
// package.
func TestPerlClosure(t *testing.T) {
	littleEndian(t)
	p := &perl{perlLayout: perlLayouts[36]}
	b := perlMemory()
	binary.NativeEndian.PutUint32(b[0xc20+perlCVFlags:], perlAnon)
	binary.NativeEndian.PutUint64(b[0xc20+perlStash:], 0x1d80)
	binary.NativeEndian.PutUint64(b[0xe40:], 8<<32) // over the name of the package, which goes elsewhere
	copy(b[0xe48:], "__ANON__\x00\x00")
	f := &Frame{Addr: 0x1a00, Code: 0x1c00, Globals: 0x1980, At: perlSub}
	mem := Memory{{Addr: 0x1000, Bytes: slices.Clone(b)}}
	for what, tt := range map[string]struct {
		change func(b []byte)
		want   string
	}{
		"it is gone":            {func(b []byte) { clear(b[0xc00:0xc20]) }, "étc::__ANON__ a.pl:9"},
		"another sub is there":  {func(b []byte) { b[0xc20+perlStart]++ }, "étc::__ANON__ a.pl:9"},
		"its statement is gone": {func(b []byte) { clear(b[0xc00:0xc20]); b[0x980+perlType] = 0xff; b[0x980+perlType+1] = 1 }, ""},
		"another statement":     {func(b []byte) { clear(b[0xc00:0xc20]); b[0x980+perlSeq]++ }, ""},
		"another package":       {func(b []byte) { clear(b[0xc00:0xc20]); binary.NativeEndian.PutUint64(b[0xd20+perlOwner:], 0x1d90) }, ""},
		"another name":          {func(b []byte) { clear(b[0xc00:0xc20]); b[0xe48] = 'x' }, ""},
	} {
		late := slices.Clone(b)
		tt.change(late)
		k, ok := p.Key(mem, offset{late, 0x1000}, f)
		if !ok {
			t.Fatal(what)
		}
		got := ""
		if fn, named := p.Function(offset{late, 0x1000}, f, k); named {
			got = fmt.Sprintf("%s %s:%d", fn.Name, fn.File, fn.Line(f.At))
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q", what, got, tt.want)
		}
	}
	// What was not copied proves nothing.
	clear(b[0xc00:0xc20])
	if k, ok := p.Key(Memory{{Addr: 0x1c00, Bytes: mem[0].Bytes[0xc00:0xd00]}}, offset{b, 0x1000}, f); ok && k.Count&perlWitness != 0 {
		t.Errorf("%+v of a statement that was not copied", k)
	}
}

// TestPerlUnbegun names a sub of which no statement is known only if it is of a file: of text the next one may have all its addresses. The name holds for the
// one frame, as that of a closure that was given another name does.
func TestPerlUnbegun(t *testing.T) {
	littleEndian(t)
	p := &perl{perlLayout: perlLayouts[36]}
	for what, tt := range map[string]struct {
		change  func(b []byte)
		cop     uint64
		want    string
		passing bool
	}{
		"of a file":           {func(b []byte) {}, 0, "étc::by :0", true},
		"of text":             {func(b []byte) { copy(b[0xe00:], "(eval 7)\x00") }, 0, "", false},
		"its file is gone":    {func(b []byte) { binary.NativeEndian.PutUint64(b[0x980+perlFile:], 0x9000) }, 0, "", false},
		"no statement":        {func(b []byte) { b[0x980+perlType] = 7 }, 0, "", false},
		"nothing":             {func(b []byte) { binary.NativeEndian.PutUint64(b[0xc20+perlStart:], 0x9000) }, 0, "", false},
		"its statement":       {func(b []byte) {}, 0x1980, "étc::by a.pl:9", false},
		"was given the name":  {func(b []byte) { binary.NativeEndian.PutUint32(b[0xc20+perlCVFlags:], 0x400) }, 0x1980, "étc::by a.pl:9", true},
		"is still anonymous":  {func(b []byte) { binary.NativeEndian.PutUint32(b[0xc20+perlCVFlags:], 0x480) }, 0x1980, "étc::by a.pl:9", false},
		"its statement, text": {func(b []byte) { copy(b[0xe00:], "(eval 7)\x00") }, 0x1980, "étc::by (eval 7):9", true},
	} {
		b := perlMemory()
		binary.NativeEndian.PutUint64(b[0xc20+perlStart:], 0x1980)
		tt.change(b)
		f := &Frame{Addr: 0x1a00, Code: 0x1c00, Globals: tt.cop, At: perlSub}
		k, ok := p.Key(Memory{{Addr: 0x1000, Bytes: b}}, offset{b, 0x1000}, f)
		fn, named := p.Function(offset{b, 0x1000}, f, k)
		got := ""
		if named {
			got = fmt.Sprintf("%s %s:%d", fn.Name, fn.File, fn.Line(f.At))
		}
		if !ok || got != tt.want || named && fn.Passing != tt.passing {
			t.Errorf("%s: key %v, %q, %+v; want %q, passing: %v", what, ok, got, fn, tt.want, tt.passing)
		}
	}
}

// TestPerlRenamed: closures that one after the other are given different names, at the same addresses, have none any more.
func TestPerlRenamed(t *testing.T) {
	littleEndian(t)
	p := &perl{perlLayout: perlLayouts[36]}
	b := perlMemory()
	binary.NativeEndian.PutUint32(b[0xc20+perlCVFlags:], perlHolds)
	f := &Frame{Addr: 0x1a00, Code: 0x1c00, Globals: 0x1980, At: perlSub}
	for i, tt := range []struct{ name, want string }{{"by", "étc::by"}, {"by", "étc::by"}, {"to", ""}, {"to", ""}, {"by", ""}} {
		copy(b[0xe48:], tt.name)
		k, _ := p.Key(Memory{{Addr: 0x1000, Bytes: b}}, offset{b, 0x1000}, f)
		fn, named := p.Function(offset{b, 0x1000}, f, k)
		if named != (tt.want != "") || named && fn.Name != tt.want {
			t.Errorf("%d: %+v, want %q", i, fn, tt.want)
		}
	}
}

// TestUnknownPerl: what is not known is told and not guessed.
func TestUnknownPerl(t *testing.T) {
	syms := func(less string) map[string]uint64 {
		m := map[string]uint64{"PL_revision": 0x1000, "PL_version": 0x1001, "PL_subversion": 0x1002, "PL_thr_key": 1}
		for i, s := range perlNeeded {
			m[s] = uint64(0x2000 + i)
		}
		delete(m, less)
		return m
	}
	for _, tt := range []struct {
		minor   byte
		less    string
		machine elf.Machine
		want    string
	}{
		{36, "", elf.EM_X86_64, "<nil>"},
		{41, "", elf.EM_X86_64, "perl: Perl 5.41.3 is not known, its scripts are not shown (known: 5.32 to 5.44, even)"},
		{36, "PL_version", elf.EM_X86_64, "perl: Perl 5.0.3 is not known, its scripts are not shown (known: 5.32 to 5.44, even)"},
		{36, "PL_thr_key", elf.EM_X86_64, "perl: Perl without threads is not known, its scripts are not shown"},
		{36, "perl_run", elf.EM_X86_64, "perl: this Perl does not export perl_run, its scripts are not shown"},
		{36, "", elf.EM_AARCH64, "perl: Perl is known on x86-64 only, its scripts are not shown"},
	} {
		_, err := newPerl("/usr/bin/perl", tt.machine, syms(tt.less), offset{[]byte{5, tt.minor, 3}, 0x1000})
		if got := fmt.Sprint(err); got != tt.want {
			t.Errorf("%s, want %s", got, tt.want)
		}
	}
}
