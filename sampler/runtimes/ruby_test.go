package runtimes

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"testing"

	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// ruby31Memory is a thread of Ruby 3.1 at 0x1000, in memory of 0x1000 bytes: a method's frame, that of a native one, and the dummy.
func ruby31Memory() []byte {
	b := make([]byte, 0x1000)
	put := func(at int, list ...uint64) {
		for i, v := range list {
			binary.NativeEndian.PutUint64(b[at-0x1000+8*i:], v)
		}
	}
	put(0x1000, 0x1000, 0x1000, 0, 0, 0x1100, 0x1200)         // thread: a ring of one, vm, ec
	put(0x1050, 0x7000, 77)                                   // pthread_self, tid
	put(0x1100+rubyMainRactor, 0x1f00, 0x1000)                // vm
	put(0x1200, 0x1300, 0x100/8, 0x1340, 0, 0, 0, 0x1000)     // ec: its stack ends at 0x1400
	put(0x1340, 0x1a10, 0x1338, 0x1500, 0, 0x1310)            // a method, at its third instruction
	put(0x1380, 0, 0, 0, 0, 0x1328)                           // native
	put(0x13c0, 0x1a08, 0, 0x1500, 0, 0x1700)                 // dummy
	put(0x1300, 0x1600, 0, 0x11110000|1|rubyLocal|rubyFinish) // environments
	put(0x1318, 0x1600, 0, rubyCFunc|rubyLocal|rubyNative)
	put(0x16f0, 0, 0, rubyDummy|rubyLocal)
	put(0x1500, rubyIMemo|7<<12, 0, 0x1800)            // iseq
	put(0x1600, rubyIMemo|6<<12, 0, 0x1640, 0, 0x1680) // method entry: its definition, class
	put(0x1640, 1, 0x4444, 0, 0, '+')                  // definition
	put(0x1680, 2, 0, 0, 0x16c0)                       // class without variables
	put(0x1800, rubyMethod|4<<32, 0x1a00)              // body: four instructions
	put(0x1800+rubyPath, 0x1b00, 0x1b40, 0x1b40, 6<<1|1)
	put(0x1800+120, 0x1c00, 0, 2, 0x1c40, 0, 0, 0x1500) // lines
	put(0x1b00, rubyString|4<<14, 0, 0x62722e61)        // a.rb
	put(0x1b40, rubyString|2<<14, 0, 0x6f67)            // go
	binary.NativeEndian.PutUint32(b[0xc00:], 7)
	binary.NativeEndian.PutUint32(b[0xc0c:], 8)
	put(0x1c40, 1|1<<7|2<<14|2<<21) // the third and fourth are on line 8
	return b
}

// TestRubyFrames decodes a stack that was made by hand.
func TestRubyFrames(t *testing.T) {
	littleEndian(t)
	b := ruby31Memory()
	r := &ruby{low: 0x100000, high: 0x200000, data: Span{0x1f80, 8}, at: rubyLayouts["3.1"]}
	r.at.heap.bytes = 0x1000 // all of it is one page, which is described where the thread is
	mem := Memory{unwind.Region{Addr: 0x1000, Bytes: b}}
	var st Stack
	r.Frames(mem, offset{b, 0x1000}, []uint64{0x1000}, &st)
	if want := []Segment{{N: 1}, {N: 1, Entry: 0x4444}}; st.Short || len(st.Frames) != 2 || !slices.Equal(st.Segments, want) {
		t.Fatalf("%+v", st)
	}
	f := &st.Frames[0]
	k, ok := r.Key(mem, offset{b, 0x1000}, f)
	fn, named := r.Function(offset{b, 0x1000}, f, k)
	// The instruction that was begun last is the second.
	if !ok || !named || fn.Name != "go" || fn.File != "a.rb" || fn.First != 6 || fn.Line(f.At) != 7 || fn.Line(f.At+8) != 8 || fn.Line(f.At+1<<20) != 0 {
		t.Errorf("%+v %v, function %+v %v", k, ok, fn, named)
	}
	b[r.at.heap.flags] = 1 // there is yet to be swept, and nothing is marked
	if _, named := r.Function(offset{b, 0x1000}, f, k); named {
		t.Error("a name that is garbage")
	}
	b[r.at.heap.marks+0x500/rubySlot/8] |= 1 << (0x500 / rubySlot % 8)
	b[r.at.heap.marks+0x600/rubySlot/8] |= 1 << (0x600 / rubySlot % 8)
	if _, named := r.Function(offset{b, 0x1000}, f, k); !named {
		t.Error("what is marked is not garbage")
	}
	b[0xb40+16]++ // another name, of the same addresses
	if _, named := r.Function(offset{b, 0x1000}, f, k); named {
		t.Error("a name that has changed")
	}
	f.At = 0x1a28 // behind the code: it is that of other code by now
	if k, ok := r.Key(mem, offset{b, 0x1000}, f); ok {
		t.Errorf("key %+v of an instruction that is not in the code", k)
	}
	// A stack whose end is not that of a frame, and one of another thread.
	for at, v := range map[int]uint64{0x208: 0xf0 / 8, 0x230: 0x1100} {
		bad := slices.Clone(ruby31Memory())
		binary.NativeEndian.PutUint64(bad[at:], v)
		if r.Frames(Memory{{Addr: 0x1000, Bytes: bad}}, offset{bad, 0x1000}, []uint64{0x1000}, &st); len(st.Frames) > 0 {
			t.Errorf("%+v of a state that is none", st)
		}
	}
}

// TestRubyRoots: the list of a ractor's threads is found by the ractor in the ring, the thread by what tells whose it is.
func TestRubyRoots(t *testing.T) {
	littleEndian(t)
	b := append(ruby31Memory(), make([]byte, 0x1000)...)
	put := func(at int, v uint64) { binary.NativeEndian.PutUint64(b[at-0x1000:], v) }
	put(0x1f80, 0x1100)                // what leads to the machine
	put(0x1100+rubyMainRactor, 0x2000) // a ractor, in which
	put(0x1000, 0x2080)                // the ring goes on at 0x80
	put(0x2080, 0x1000)
	put(0x1108, 0x2100) // ring of ractors
	put(0x2100, 0x1108)
	for _, tt := range []struct {
		th   Thread
		want []taking.Root
	}{
		{Thread{TID: 77}, []taking.Root{{Addr: 0x1000, Is: 0x7000}}},
		{Thread{TID: 1, Pointer: 0x7000}, []taking.Root{{Addr: 0x1000, Is: 0x7000}}},
		{Thread{TID: 78}, nil},
		{Thread{TID: 77, Pointer: 0x7001}, nil},
	} {
		r := &ruby{low: 0x100000, high: 0x200000, data: Span{0x1f80, 8}, at: rubyLayouts["3.1"]}
		if got := r.Roots(offset{b, 0x1000}, tt.th); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: roots %+v, want %+v", tt.th, got, tt.want)
		}
	}
}

// TestUnknownRuby: what is not known is told and not guessed.
func TestUnknownRuby(t *testing.T) {
	for version, want := range map[string]string{
		"3.1.2": "",
		"3.3.8": "",
		"3.2.1": "",
		"3.5.0": `ruby of version "3.5.0" is not known, its scripts are not shown (known: 3.0 to 3.4)`,
		"2.7.4": `ruby of version "2.7.4" is not known, its scripts are not shown (known: 3.0 to 3.4)`,
		"":      `ruby of version "" is not known, its scripts are not shown (known: 3.0 to 3.4)`,
	} {
		rt, err := newRuby(&elf.File{FileHeader: elf.FileHeader{Machine: elf.EM_X86_64}}, 0, 0x1000, offset{append([]byte(version), 0, 0, 0, 0, 0, 0), 0x1000})
		if got := fmt.Sprint(err); (err != nil || want != "") && got != want {
			t.Errorf("%q: %v, want %s", version, err, want)
		}
		if (rt != nil) != (want == "") {
			t.Errorf("%q: runtime %v", version, rt)
		}
	}
	if rt, err := newRuby(&elf.File{FileHeader: elf.FileHeader{Machine: elf.EM_S390}}, 0, 0x1000, offset{[]byte("3.1.2\x00"), 0x1000}); rt != nil || err == nil {
		t.Errorf("on s390x: %v, %v", rt, err)
	}
}

// TestRuby30Roots: 3.0 keeps no number of the kernel's, so that a thread without registers is known by where its native stack begins.
func TestRuby30Roots(t *testing.T) {
	littleEndian(t)
	b := append(ruby31Memory(), make([]byte, 0x1000)...)
	put := func(at int, v uint64) { binary.NativeEndian.PutUint64(b[at-0x1000:], v) }
	put(0x1238, 0x1000)                // owner
	put(0x1200+rubyStackStart, 0x9000) // of its native stack
	put(0x1100+rubyMainRactor, 0x2000)
	put(0x1000, 0x2080)
	put(0x2080, 0x1000)
	for _, tt := range []struct {
		th   Thread
		want int
	}{{Thread{SP: 0x8000, StackEnd: 0xa000}, 1}, {Thread{SP: 0x9008, StackEnd: 0xa000}, 0}, {Thread{SP: 0x8000, StackEnd: 0x9000}, 0}, {Thread{Pointer: 0x7000}, 1}, {Thread{Pointer: 0x7008, SP: 0x8000, StackEnd: 0xa000}, 0}} {
		r := &ruby{low: 0x100000, high: 0x200000, at: rubyLayouts["3.0"]}
		r.vm.Store(0x1100)
		if got := r.Roots(offset{b, 0x1000}, tt.th); len(got) != tt.want {
			t.Errorf("%+v: roots %+v", tt.th, got)
		}
	}
}

// TestRubyShapes: a class of 3.2 has its variables where its shape and those that this comes from say.
func TestRubyShapes(t *testing.T) {
	littleEndian(t)
	b := make([]byte, 0x2000)
	put := func(at int, list ...uint64) {
		for i, v := range list {
			binary.NativeEndian.PutUint64(b[at-0x1000+8*i:], v)
		}
	}
	put(0x1008, 0x1100)                        // the table of symbols
	put(0x1100, rubyArray|rubyMark, 0, 0x1140) // is one array
	put(0x1140, rubyArray, 0, 0, 0, 0x1200)    // of pairs
	put(0x1200+16*'a', 0x1900, 0, 0x1940)      // of which these are two
	put(0x1900, rubyString, 0, 1, 'a')         // with their texts
	put(0x1940, rubyString, 0, 1, 'b')
	put(0x2000+376, 0x2200, 0, 3)         // of the machine: three shapes
	put(0x2200, 0, 0, 0, 0xffffffff<<32)  // the root
	put(0x2220, 0, 'a', 1, 1)             // a variable
	put(0x2240, 0, 'b', 2, 1|1<<32)       // another, after that
	put(0x2400, 2|2<<32, 0, 0, 0, 0x2480) // a class
	put(0x2480, 0xaa, 0xbb)
	r := &ruby{low: 0x100000, high: 0x200000, at: rubyLayouts["3.2"]}
	r.vm.Store(0x2000)
	r.symbols.Store(0x1008)
	check := func(what string, want ...uint64) {
		t.Helper()
		for i, name := range []string{"a", "b", "c"} {
			if got := (rubyReader{r, offset{b, 0x1000}}).variable(0x2400, name); got != want[i] {
				t.Errorf("%s: %q is %#x, want %#x", what, name, got, want[i])
			}
		}
	}
	check("two variables", 0xaa, 0xbb, 0)
	put(0x2240, 0, 'b', 2, 2|1<<32) // a change of another kind
	check("one variable", 0xaa, 0, 0)
	put(0x2240, 0, 'b', 2, 1|2<<32)
	check("a shape that comes from itself", 0, 0xbb, 0)
	put(0x2000+376+16, 2)
	check("a shape that is not there", 0, 0, 0)
}

// TestRubyLabels: what is evaluated, and clauses, are named by what they are in; a class has a name only while that is permanent.
func TestRubyLabels(t *testing.T) {
	littleEndian(t)
	b := make([]byte, 0x1000)
	put := func(at int, list ...uint64) {
		for i, v := range list {
			binary.NativeEndian.PutUint64(b[at-0x1000+8*i:], v)
		}
	}
	r := &ruby{low: 0x100000, high: 0x200000, at: rubyLayouts["3.4"]}
	w := rubyWalk{r: r, late: offset{b, 0x1000}}
	parent := r.at.insns + rubyParent
	for i, kind := range []uint64{rubyEval, rubyRescue, rubyMethod} { // each within the next
		put(0x1100+0x40*i, rubyIMemo|7<<12, 0, uint64(0x1400+0x100*i))
		put(0x1400+0x100*i, kind)
		put(0x1400+0x100*i+parent, uint64(0x1140+0x40*i))
		put(0x1400+0x100*i+rubyLabel, uint64(0x1200+0x40*(i/2)))
	}
	put(0x1200, rubyString, 0, 8, binary.NativeEndian.Uint64([]byte("compiled")))
	put(0x1240, rubyString, 0, 2, 'g'|'o'<<8)
	for i, want := range []string{"rescue in go", "rescue in go", "go"} {
		if got, ok := w.within(b[0x400+0x100*i:]); got != want || !ok {
			t.Errorf("label %q %v, want %q", got, ok, want)
		}
	}
	put(0x1500+parent, 0x1140) // within itself
	if got, ok := w.within(b[0x400:]); ok {
		t.Errorf("label %q of code within itself", got)
	}
	put(0x1500+parent, 0)
	if got, _ := w.within(b[0x500:]); got != "compiled" {
		t.Errorf("label %q of code within nothing", got)
	}
	put(0x1800, 2)
	put(0x1800+r.at.classPath, 0x1240)
	if got := w.reader().qualified(0x1800, "x"); got != "x" {
		t.Errorf("%q of a class with a passing name", got)
	}
	b[0x800+r.at.classPath+rubyPermanent] = 1
	if got := w.reader().qualified(0x1800, "x"); got != "go#x" {
		t.Errorf("%q of a class with a name", got)
	}
	put(0x1900, 2|r.at.single)
	put(0x1900+r.at.classPath+rubyAttached, 0x1800)
	if got := w.reader().qualified(0x1900, "x"); got != "go.x" {
		t.Errorf("%q of the class of a class", got)
	}
}

// countedReads is memory that counts how often it is read.
type countedReads struct {
	io.ReaderAt
	n int
}

func (c *countedReads) ReadAt(b []byte, addr int64) (int, error) {
	c.n++
	return c.ReaderAt.ReadAt(b, addr)
}

// TestRubyHostile: of a Ruby whose data may all lead to its machine, or to its symbols, some is tried, and what is not found is looked for seldom.
func TestRubyHostile(t *testing.T) {
	b := make([]byte, 16)
	binary.NativeEndian.PutUint64(b, 0x10000)
	binary.NativeEndian.PutUint64(b[8:], 0x20000)
	mem := &countedReads{ReaderAt: rubbish(b)}
	r := &ruby{low: 1 << 40, high: 1<<40 + 1<<20, data: Span{1 << 40, 1 << 20}, at: rubyLayouts["3.1"]}
	if vm := r.machine(mem); vm != 0 || mem.n < maxMachines || mem.n > 4*maxMachines {
		t.Errorf("a machine at %#x after %d reads", vm, mem.n)
	}
	mem.n = 0
	const looks = 1000
	for range looks {
		if _, ok := (rubyReader{r, mem}).symbol('+'); ok {
			t.Fatal("a symbol is known")
		}
	}
	if mem.n < 16*maxTables || mem.n > 16*maxTables*4 {
		t.Errorf("%d reads at %d looks", mem.n, looks)
	}
}
