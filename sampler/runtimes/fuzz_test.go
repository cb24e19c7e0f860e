package runtimes

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"testing"

	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// rubbish is memory in which every address reads as some of its bytes.
type rubbish []byte

func (r rubbish) ReadAt(b []byte, addr int64) (int, error) {
	if len(r) == 0 {
		return 0, io.EOF
	}
	for i := range b {
		b[i] = r[(uint64(addr)+uint64(i))%uint64(len(r))]
	}
	return len(b), nil
}

// FuzzRuntimes gives memory of any contents to all that decodes it: it ends, keeps to its bounds, and what it finds is consistent.
func FuzzRuntimes(f *testing.F) {
	circle := make([]byte, 64) // every word leads back to it
	for i := 0; i < len(circle); i += 8 {
		binary.NativeEndian.PutUint64(circle[i:], 0x1000)
	}
	long := make([]byte, 512)
	for i := 0; i < len(long); i += 8 {
		binary.NativeEndian.PutUint64(long[i:], 1<<60)
	}
	for minor := 8; minor <= 14; minor++ {
		f.Add(byte(minor), circle)
		f.Add(byte(minor), long)
		f.Add(byte(minor), []byte("xdebugpy\x00\x00\x0d\x03"))
	}
	f.Add(byte(7), php82Memory())
	f.Add(byte(15), php82Memory())
	f.Fuzz(checkRubbish)
}

// php82Memory is a stack of PHP in memory of 0x1000 bytes: a generator that delegates to another one, and what calls it.
func php82Memory() []byte {
	b := make([]byte, 0x1000)
	put := func(at int, list ...uint64) {
		for i, v := range list {
			binary.NativeEndian.PutUint64(b[at+8*i:], v)
		}
	}
	put32 := func(at int, v uint32) { binary.NativeEndian.PutUint32(b[at:], v) }
	put(0, 0x1000)                                   // symtable_cache_limit
	put(phpStackTop-phpRoot, 0x1800, 0x1900, 0x1400) // vm_stack_top, vm_stack_end, vm_stack
	put(phpCurrent-phpRoot, 0x1500)                  // current_execute_data
	put(0x500, 0x1a00, 0, 0, 0x1b00, 0, 0, 0x1600)   // the one that runs
	put32(0x500+phpInfo, phpTop)
	put(0x600, 0, 0, 0, 0, 0x1900, 0, 0x1500) // a placeholder, and back
	put32(0x600+phpInfo, phpObject)
	put(0x900+phpGenFrame, 0x1500)  // the outer one
	put(0x900+phpGenParent, 0x1800) // whose parent has none
	put(0xb00, 0, 0x1c00, 0)        // function
	b[0xb00] = phpEval
	put(0xb00+80, 0, 0x1a00)
	put32(0xb00+80, 1) // one instruction, on line 7
	put32(0xa00+phpLineno, 7)
	put(0xb00+152, 0x1c00)                                  // file
	put(0xc00, 0, 1<<63|(5381*33*33+uint64('a')*33+'b'), 2) // its name
	put32(0xc00, 1)
	put32(0xc04, 6)
	copy(b[0xc18:], "ab")
	return b
}

// TestRubbish does as FuzzRuntimes does with memory by chance.
func TestRubbish(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 300 {
		b := make([]byte, 8*(1+r.IntN(200)))
		for j := 0; j < len(b); j += 8 {
			// Words that are small, addresses of what was copied, and any.
			binary.NativeEndian.PutUint64(b[j:], []uint64{r.Uint64N(9), 0x1000 + 8*r.Uint64N(1<<10), r.Uint64()}[r.IntN(3)])
		}
		checkRubbish(t, byte(i), b)
	}
}

func checkRubbish(t *testing.T, minor byte, b []byte) {
	if len(b) == 0 || len(b) > 1<<16 {
		return
	}
	mem := rubbish(b)
	if minor%8 == 7 {
		checkDecoding(t, &php{root: 0x1000, loop: 0x1000, phpLayout: phpLayouts[2+2*int(minor/8%2)]}, minor, b)
		return
	}
	p := &python{minor: 8 + int(minor)%7, head: 0x100}
	if l, ok := pythonLayouts[p.minor]; ok {
		p.pythonLayout = l
	} else if p.describe(mem, 0x1000) != nil {
		return
	}
	checkDecoding(t, p, minor, b)
	for _, l := range []lineTable{lnotab(b), linetable310(b), locations{0x1000, b}} {
		l.line(0x1000+uint64(minor), 1)
		l.line(^uint64(0), 1)
	}
}

// checkDecoding has a runtime decode b, which is memory at 0x1000.
func checkDecoding(t *testing.T, p Interpreter, minor byte, b []byte) {
	mem := rubbish(b)
	page := make([]byte, 1<<16)
	mem.ReadAt(page, 0x1000)
	copied := Memory{unwind.Region{Addr: 0x1000, Bytes: page}}
	if len(p.Roots(mem, Thread{TID: 1, Pointer: uint64(minor)})) > taking.MaxRoots {
		t.Error("too many roots")
	}
	var st Stack
	p.Frames(copied, mem, []uint64{0x1000, 0x1008}, &st)
	n := 0
	for _, s := range st.Segments {
		n += s.N
	}
	if n != len(st.Frames) || n > maxScript {
		t.Errorf("%d frames in segments, %d in all", n, len(st.Frames))
	}
	r := p.Recipe([]taking.Root{{Addr: 0x1000}}, &st)
	sum := 0
	for _, g := range r.Guess[:r.Guesses] {
		if g.Len <= 0 {
			t.Errorf("an area of %d bytes", g.Len)
		}
		sum += g.Len
	}
	if sum > r.Room || r.Room > mostRoom {
		t.Errorf("%d bytes are foreseen, room is for %d", sum, r.Room)
	}
	native := []unwind.Frame{{SP: 0x1000}, {SP: 0x1100}, {SP: 0x2000}}
	places, _ := Merge(nil, native, true, &st, func(i int, entry uint64) bool { return i == 1 && entry == 0 })
	seen := 0
	for _, pl := range places {
		if pl.Script >= 0 {
			if pl.Script != seen && len(st.Segments) < 2 {
				t.Errorf("frame %d at the place of %d", pl.Script, seen)
			}
			seen++
		}
	}
	if seen != n {
		t.Errorf("%d of %d frames in the merged stack", seen, n)
	}
	for i := range st.Frames[:min(len(st.Frames), 4)] {
		fr := &st.Frames[i]
		if k, ok := p.Key(copied, mem, fr); ok {
			if fn, ok := p.Function(mem, fr, k); ok {
				if len(fn.Name) > 16*maxText {
					t.Errorf("a name of %d bytes", len(fn.Name))
				}
				fn.Line(fr.At)
			}
		}
	}
}
