package runtimes

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"sfsample/regs"
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
	f.Add(byte(6), circle)
	f.Add(byte(30), long)
	f.Add(byte(14), ruby31Memory())
	f.Add(byte(38), circle)
	f.Add(byte(22), luaMemory())
	f.Add(byte(46), luaMemory())
	f.Add(byte(30), perlMemory())
	f.Add(byte(62), perlMemory())
	// Of 61 bytes, as the places are apart that are tried, each has the one at 9.
	for i, code := range [][]byte{loadEntry, makeRoom, goToFrame, append(slices.Clone(makeRoom), goToFrame...)} {
		b := make([]byte, 61)
		copy(b[9-i:], code)
		f.Add(byte(6), b)
		f.Add(byte(38), b)
	}
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
	put(0, 0x1000) // symtable_cache_limit
	l := phpLayouts[2]
	put(l.top(), 0x1800, 0x1900, 0x1400)           // vm_stack_top, vm_stack_end, vm_stack
	put(l.top()+phpCurrent, 0x1500)                // current_execute_data
	put(0x500, 0x1a00, 0, 0, 0x1b00, 0, 0, 0x1600) // the one that runs
	put32(0x500+phpInfo, phpTop)
	put(0x600, 0, 0, 0, 0, 0x1900, 0, 0x1500) // a placeholder, and back
	put32(0x600+phpInfo, phpObject)
	put(0x900+phpGenFrame, 0x1700)  // the outer one
	put(0x900+phpGenParent, 0x1800) // whose parent has none
	put(0x700, 0x1a00, 0, 0, 0x1b00)
	put(0x800+phpGenFrame, 0x1500)
	put(0xb00, 0, 0x1c00, 0) // function
	b[0xb00] = phpEval
	put(0xb00+80, 0, 0x1a00)
	put32(0xb00+80, 1) // one instruction, on line 7
	put32(0xa00+phpLineno, 7)
	put(0xb00+152, 0x1c00) // file
	put32(0xb00+160, 7)    // its lines
	put32(0xb00+164, 7)
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

// hotspotLayouts is the layout of HotSpot 17 and, if detached, of 25, shortened.
func hotspotLayouts(detached bool) hotspotLayout {
	l := hotspotLayout{
		major: 17,
		cache: cacheLayout{heaps: 0x1000, callStub: 0x1008, listData: 8, heapMemory: 8, heapSegmap: 0x78, log2: 0x100, high: 8, lowEnd: 16, highEnd: 24, blockBytes: 16, blockUsed: 8},
		blob: blobLayout{bytes: 352, name: vmInt{0x60, 8}, frameSize: vmInt{0x1c, 4}, size: vmInt{12, 4},
			codeBegin: vmInt{0x20, 8}, codeEnd: vmInt{0x28, 8}},
		method: methodLayout{method: vmInt{0x70, 8}, id: vmInt{0x130, 4}, entry: vmInt{0xe0, 8}, deopt: vmInt{0x80, 8}, origPC: vmInt{0x12c, 4}},
		debug:  debugLayout{pcs: vmInt{0x10c, 4}, pcsEnd: vmInt{0x110, 4}, scopes: vmInt{0x78, 8}, metadata: vmInt{0x104, 4}, pcBytes: 16, pcScope: 4},
		queue:  queueLayout{at: 0x1010, buffer: 8, begin: 0x18, end: 0x1c, bytes: 48, codeletBytes: 16, codeletSize: 8},
		names: nameLayout{methodConst: 8, methodEntry: 0x38, constConstants: 8, constName: vmInt{0x22, 2}, constCode: vmInt{0x20, 2}, constBytes: 48,
			constFlags: vmInt{0x1c, 2}, constLines: 1, poolHolder: 0x18, poolBytes: 72, poolFile: vmInt{0x36, 2}, klassName: 0x18, symbolLen: 4, symbolBody: 6},
	}
	if detached {
		l.major, l.debug.detached, l.blob.relative, l.blob.codeBegin, l.blob.codeEnd = 25, true, true, vmInt{0x24, 4}, vmInt{0x28, 4}
		l.debug.immutable, l.debug.immutableSize, l.blob.mutable, l.blob.mutableSize, l.blob.relocate = vmInt{0x60, 8}, vmInt{0xa0, 4}, vmInt{0x10, 8}, vmInt{0x30, 4}, vmInt{0x1c, 4}
	}
	return l
}

// hotspotLocks reads the locks of 17 or 25.
func hotspotLocks(kind byte) *Locks {
	lay := hotspotLayouts(kind%2 == 1)
	l := &Locks{lay: &lay, monitor: monitorLayout{owner: 64, object: 8},
		threads: threadLayout{list: 0x1000, listLen: 4, listThreads: 16, os: 560, tid: 12, stackBase: 592, stackSize: 600, pending: 776, waiting: 792, object: 648, current: 656},
		objects: objectLayout{class: 8, classBase: 0x1000, classShift: 0x1010, base: 0x1000, shift: 0x1008, heap: 0x1008, moving: 48, collections: 64,
			shortOops: 0x1001, shortClasses: 0x1002, compact: 0x1003 + uint64(kind)%2, still: []uint64{0x1000 + uint64(kind)}},
		fields: fieldLayout{thread: 0x1000, holder: 0x1008, super: 120, list: 456, count: 310, pool: 232, bytes: 4, words: 4}}
	if kind%2 == 1 {
		l.fields.count, l.threads.id, l.threads.lockStack, l.threads.lockBase, l.monitor.locker = 0, 1312, 2000, 16, 192
	}
	return l
}

// checkLocks has the reader of Java's locks decode mem.
func checkLocks(t *testing.T, kind byte, mem rubbish) {
	waits, err := hotspotLocks(kind).Read(mem, func(tid int) bool { return tid%2 == 0 })
	for tid, w := range waits {
		if tid <= 0 || tid%2 != 0 || w.Owner < 0 || w.Free && w.Owner != 0 || w.Lock && w.Owner == 0 && !w.Free && w.Unknown == "" || err != nil && len(waits) == 0 {
			t.Errorf("thread %d: %+v, %v", tid, w, err)
		}
	}
}

// checkHotSpot has HotSpot decode b, which is memory at 0x1000 and its code cache.
func checkHotSpot(t *testing.T, kind byte, b []byte) {
	mem := rubbish(b)
	syms := map[string]uint64{}
	for _, s := range []string{"Structs", "StructEntryArrayStride", "StructEntryTypeNameOffset", "StructEntryFieldNameOffset", "Types", "TypeEntryArrayStride"} {
		syms["gHotSpotVM"+s] = 0x1000 + uint64(kind)*8
	}
	if rt, err := newHotSpot("libjvm.so", elf.EM_X86_64, syms, mem); err == nil {
		t.Errorf("rubbish is HotSpot %s", rt.Version())
	}
	checkLocks(t, kind, mem)
	checkHotSpotLayout(t, hotspotLayouts(kind%2 == 1), b)
}

// checkHotSpotLayout has a HotSpot of this layout decode b.
func checkHotSpotLayout(t *testing.T, lay hotspotLayout, b []byte) {
	mem := rubbish(b)
	h := &hotspot{mem: mem, lay: lay, blobs: map[uint64]*blob{}, byPC: map[uint64]*blob{}, names: map[uint64]string{}, methods: map[uint64]*hotspotMethod{}}
	h.Begin()
	h.heaps, h.found.callStub = []codeHeap{{low: 0x1000, high: 0x100000, segmap: 0x1000, log2: 7}}, 0x1500
	copied := new(unwind.Memory)
	page := make([]byte, 1<<12)
	mem.ReadAt(page, 0x1000)
	copied.Reset(0x1000, page, nil)
	region := Memory{unwind.Region{Addr: 0x1000, Bytes: page}}
	head, _ := h.lay.head(mem, 0x1100)
	for i := range 16 {
		h.Begin()
		pc := 0x1000 + uint64(i)*61
		// A blob of each kind, whatever its bounds.
		x := head
		x.begin, x.end, x.frame = 0x1000, 0x1000+uint64(len(page)), x.frame%256&^7
		x.m.entry = x.begin + x.m.entry%64
		kind := blobKind(i % 7)
		if kind == continuationBlob {
			x.frame = 0
		}
		h.byPC[pc] = &blob{blobHead: x, kind: kind, label: "x"}
		h.byPC[pc-1] = h.byPC[pc]
		special := x
		special.frame = 32 + head.frame%256&^7
		h.byPC[0x1800], h.found.entry.pc = &blob{blobHead: special, kind: nativeBlob}, 0x1800
		var set, up regs.Set
		for r := range set.R {
			set.R[r] = 0x1000 + 8*uint64(r)
		}
		set.PC, set.Known = pc, 1<<17-1
		for _, top := range []bool{true, false} {
			h.Caller(&set, top, copied, &up)
			var st Stack
			h.Identify([]unwind.Owned{{Frame: 0, Top: top, Set: set}}, region, &st)
			n := 0
			for _, s := range st.Segments {
				n += s.N
			}
			if n != len(st.Frames) || n > maxInlined {
				t.Errorf("%d frames in segments, %d in all", n, len(st.Frames))
			}
			for j := range st.Frames {
				f := &st.Frames[j]
				if k, ok := h.Key(region, mem, f); ok {
					if fn, ok := h.Function(mem, f, k); ok {
						fn.Line(f.At)
					}
				}
			}
		}
		h.inlined(&blob{blobHead: x}, uint64(i)*8)
		h.Confirm()
	}
	modifiedUTF8(b)
	h.lay.decodeLines(b)
	for i := range min(len(b), 64) {
		newDepths(b[i:], 0, 0x20, 0).at(uint64(i))
		behindCall(b[:i])
	}
}

func checkRubbish(t *testing.T, minor byte, b []byte) {
	if len(b) == 0 || len(b) > 1<<16 {
		return
	}
	mem := rubbish(b)
	further := minor / 8
	if minor%8 == 7 {
		checkDecoding(t, &php{root: 0x1000, loop: 0x1000, phpLayout: phpLayouts[1+int(further+1)%len(phpLayouts)]}, minor, b)
		return
	}
	if minor%8 == 6 {
		checkFurther(t, further%4, further/4, b)
		return
	}
	p := &python{objects: pyObjects{minor: 8 + int(minor)%7}, head: 0x100}
	if l, ok := pythonLayouts[p.objects.minor]; ok {
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

// checkFurther has one of the runtimes that came later decode b, in one of two versions.
func checkFurther(t *testing.T, which, minor byte, b []byte) {
	switch which {
	case 0:
		checkHotSpot(t, minor, b)
	case 1:
		r := &ruby{data: Span{0x1000, min(len(b), 1<<12) &^ 7}, low: 0x4000, high: 0x5000, at: rubyLayouts[fmt.Sprintf("3.%d", minor%5)]}
		checkDecoding(t, r, minor, b)
		rubyLines{0x1000, 12, b, b}.line(0x1000+uint64(minor), 1)
		rubyLines{0x1000, 12, b, b}.line(^uint64(0), 1)
	case 3:
		checkPerl(t, minor, b)
	case 2:
		l := &lua{loop: 0x1000, luaLayout: luaLayouts[3+int(minor%2)]}
		checkDecoding(t, l, minor, b)
		for _, at := range []uint64{0, 0x1000, 0x1004 + 4*uint64(minor), ^uint64(3)} {
			lines := luaLines{code: 0x1000, count: uint32(minor), size: l.lineBytes(), table: b, marks: b}
			lines.whole()
			lines.line(at, 1)
		}
	}
}

// checkPerl has Perl decode b, and place what it finds.
func checkPerl(t *testing.T, minor byte, b []byte) {
	p := &perl{perlLayout: perlLayouts[[]byte{32, 36, 40}[minor%3]], syms: perlSyms{runops: 1, run: 2, callSV: 3, amagic: 4}}
	checkDecoding(t, p, minor, b)
	page := make([]byte, 1<<16)
	rubbish(b).ReadAt(page, 0x1000)
	var st Stack
	p.Frames(Memory{unwind.Region{Addr: 0x1000, Bytes: page}}, rubbish(b), []uint64{0x1000}, &st)
	before := len(st.Frames)
	native := make([]unwind.Frame, 12)
	for i := range native {
		native[i].SP = 0x1000 + 0x100*uint64(i)
	}
	p.Anchor(native, true, func(i int, entry uint64) bool { return entry == uint64(b[i%len(b)]%6) }, nil, &st)
	n := 0
	for _, s := range st.Segments {
		n += s.N
	}
	if n != len(st.Frames) || n > before {
		t.Errorf("%d frames in segments, %d in all of %d", n, len(st.Frames), before)
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

// littleEndian skips a test whose memory is laid out as on x86-64, where alone the runtime is known.
func littleEndian(t *testing.T) {
	t.Helper()
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("numbers begin with their highest byte on this machine")
	}
}
