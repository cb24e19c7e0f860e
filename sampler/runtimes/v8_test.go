package runtimes

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"sfsample/regs"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// rubbishV8 is a V8 in memory of any contents.
func rubbishV8(b []byte, version [2]uint32) *v8 {
	heap := &v8Heap{mem: rubbish(b), instances: map[uint64]uint16{}}
	heap.at = v8Fields{function: 24, script: 32, funcName: 16, scriptName: 16, source: 8, lineEnds: 56, instance: 12, bytecodes: 56, firstVars: 3, locals: 2, offContext: -8, offFunction: -16, offBytecode: -32, offOffset: -40}
	heap.types = v8Types{function: 1, shared: 2, scope: 3, script: 4, code: 5, stream: 5, bytecodes: 6, firstNonstring: 1, baseline: 1, weakList: 7, weakArray: 8, maps: 9}
	v := &v8{heap: heap, codes: &v8Codes{heap: heap, layout: v8Layouts[version], streams: map[uint64]bool{}}, scripts: &v8Scripts{heap: heap, isolates: map[uint64]bool{}}, tables: map[v8Table][]byte{}, texts: map[v8Text]*v8Lines{}}
	v.codes.origin = func(pc uint64) (generated, bare bool) { return pc&1 == 0, pc&1 == 1 }
	return v
}

// TestV8Rubbish has memory of any contents decoded: it ends, within its bounds.
func TestV8Rubbish(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		b := make([]byte, 8*(1+r.IntN(100)))
		for j := 0; j < len(b); j += 8 {
			// Small integers, pointers, what instance types are in, and any.
			binary.NativeEndian.PutUint64(b[j:], []uint64{r.Uint64N(9) << 32, 0x2001 + 8*r.Uint64N(1<<10), r.Uint64N(8) << 32, r.Uint64()}[r.IntN(4)])
		}
		page := make([]byte, 1<<14)
		rubbish(b).ReadAt(page, 0x2000)
		mem := Memory{unwind.Region{Addr: 0x2000, Bytes: page}}
		for version := range v8Layouts {
			v := rubbishV8(b, version)
			v.Begin()
			var owned []unwind.Owned
			for i := range 50 {
				o := unwind.Owned{Frame: i, Top: i == 0, Set: regs.Set{PC: 0x2000 + r.Uint64N(1<<12)}}
				o.Set.SetReg(regs.AMD64.FP, 0x2000+8*r.Uint64N(1<<10))
				o.Set.SetReg(regs.AMD64.SP, 0x2000)
				owned = append(owned, o)
				var to regs.Set
				var m unwind.Memory
				m.Reset(0x2000, page, nil)
				v.Caller(&o.Set, o.Top, &m, &to)
			}
			var st Stack
			v.Identify(owned, mem, &st)
			n := 0
			for _, s := range st.Segments {
				n += s.N
			}
			if n != len(st.Frames) || n > len(owned)*(maxV8Inlined+1) {
				t.Fatalf("%d frames in segments, %d in all", n, len(st.Frames))
			}
			if g := v.Recipe([]taking.Root{{Addr: 0x2000}}, &st); g.Guesses > taking.MaxGuess {
				t.Fatalf("%d areas", g.Guesses)
			}
			for i := range st.Frames {
				if k, ok := v.Key(mem, nil, &st.Frames[i]); ok {
					if fn, ok := v.Function(nil, &st.Frames[i], k); ok && len(fn.Name) > 8*maxText {
						t.Errorf("a name of %d bytes", len(fn.Name))
					}
				}
			}
		}
	}
}

// TestV8Lies: a field that is said to be where the flags behind it are not copied is refused.
func TestV8Lies(t *testing.T) {
	b := make([]byte, 16) // a SharedFunctionInfo, which is its own map
	binary.NativeEndian.PutUint64(b, 0x2001)
	binary.NativeEndian.PutUint16(b[12:], 2)
	for script := 8; script <= v8SharedBytes; script += 8 {
		v := rubbishV8(b, [2]uint32{13, 6})
		v.Begin()
		v.heap.at.script = script
		sane := v.sane()
		if sane != (script <= 40) {
			t.Errorf("a script at %d is sane: %v", script, sane)
		}
		if !sane {
			continue
		}
		if _, ok := v.Key(nil, nil, &Frame{Code: 0x2000}); !ok {
			t.Errorf("no key with a script at %d", script)
		}
	}
}

// TestV8Positions: the table is that of a function whose listing (node --print-bytecode) has positions 208 S at 0, 208 E at 3, 219 S at 6, 219 E at 9
// and 228 S at 13.
func TestV8Positions(t *testing.T) {
	table := []byte{0x01, 0xac, 0x06, 0x02, 0x18, 0x07, 0x00, 0x06, 0x2c, 0x07, 0x00, 0x08, 0x24}
	for _, tt := range []struct{ at, want int64 }{{-1, 202}, {0, 208}, {2, 208}, {3, 208}, {5, 208}, {6, 219}, {9, 219}, {12, 219}, {13, 228}, {99, 228}} {
		p, _ := v8PositionAt(table, tt.at)
		at, id, ok := v8Position(p)
		if !ok || id != 0 || int64(at)-1 != tt.want {
			t.Errorf("at %d: %d, inlined %d, %t; want %d", tt.at, int64(at)-1, id, ok, tt.want)
		}
	}
	for at, want := range map[int64]uint64{8: 219, 9: 228, 13: 0} {
		if _, next := v8PositionAt(table, at); next != 0 && next>>1-1 != want || next == 0 && want != 0 {
			t.Errorf("behind %d: %d, want %d", at, int64(next>>1)-1, want)
		}
	}
	for cut := range table {
		v8PositionAt(table[:cut], 99)
	}
}

// TestV8Within: between two positions only the functions are sure that both are in.
func TestV8Within(t *testing.T) {
	at := func(id, pos uint64) uint64 { return id<<31 | (pos+1)<<1 }
	// 1 and 4 are in the function itself, 2 and 3 in 1; 5 in itself.
	c := &v8Code{inlined: []v8Site{{position: at(0, 9)}, {position: at(1, 8)}, {position: at(1, 7)}, {position: at(0, 6)}, {position: at(5, 5)}}}
	for _, tt := range []struct{ p, q, want uint64 }{{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {2, 1, 1}, {1, 2, 1}, {2, 3, 1}, {2, 4, 0}, {2, 0, 0}, {5, 5, 5}, {5, 1, 0}, {9, 9, 0}} {
		if got := c.within(at(tt.p, 1), at(tt.q, 2)); got != tt.want<<31 {
			t.Errorf("%d and %d: %#x, want %d", tt.p, tt.q, got, tt.want)
		}
	}
}

// TestV8Epilogue: where the return address is while code returns.
func TestV8Epilogue(t *testing.T) {
	pad := []byte{0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc, 0xcc}
	for _, tt := range []struct {
		code []byte
		want int
	}{
		{[]byte{0xc3}, returnAtSP},
		{[]byte{0xc2, 8, 0}, returnAtSP},
		{[]byte{0x59, 0x48, 0x83, 0xc4, 8, 0x51, 0xc3}, returnAtSP},                // pop rcx; add rsp,8; push rcx; ret
		{[]byte{0x48, 0x83, 0xc4, 8, 0x51, 0xc3}, returnInRCX},                     // behind the pop
		{[]byte{0x51, 0xc3}, returnInRCX},                                          //
		{[]byte{0x41, 0x5a, 0x48, 0x8d, 0x24, 0xcc, 0x41, 0x52, 0xc3}, returnAtSP}, // pop r10; lea rsp,[rsp+rcx*8]; push r10; ret
		{[]byte{0x48, 0x8d, 0x24, 0xcc, 0x41, 0x52, 0xc3}, returnInR10},
		{[]byte{0x59, 0x90}, returnAtFP},
		{[]byte{0x48, 0x83, 0xc4, 8, 0xc3}, returnAtFP}, // what it drops is not known to be its own
		{nil, returnAtFP},
	} {
		if got := v8Epilogue(append(append([]byte(nil), tt.code...), pad...)); got != tt.want {
			t.Errorf("% x: %d, want %d", tt.code, got, tt.want)
		}
	}
}

// TestV8Exits: relocation information and safepoints of code of which node --print-maglev-code tells offsets in the source 93 of what was inlined first at
// exit 0x13d, 139, 139, 139 and 121 of the function itself at 0x141 to 0x14d, 105 of the first and of the second inlined one at 0x151 and 0x155, and exits
// 0x14d, 0x151 and 0x155 behind the calls that return to 0x1f, 0xcd and 0xe5.
func TestV8Exits(t *testing.T) {
	littleEndian(t)
	b, err := hex.DecodeString("0000000600533c004f00000001004b0000006904470000000500533c004f00000000004b0000006904470000000400533c004fffffffff004b00000079044700000003005335004fffffffff004b0000008b044700000002005329004fffffffff004b0000008b044700000001005329004fffffffff004b0000008b044700000000005344004f00000000004b0000005d10470c3b015b093b3c093b4c025b481b3b")
	if err != nil {
		t.Fatal(err)
	}
	at := func(offset, inlined uint64) uint64 { return (offset+1)<<1 | (inlined+1)<<31 }
	const itself = ^uint64(0)
	want := map[uint64]uint64{0x13d: at(93, 0), 0x141: at(139, itself), 0x145: at(139, itself), 0x149: at(139, itself), 0x14d: at(121, itself), 0x151: at(105, 0), 0x155: at(105, 1)}
	if got := v8Exits(b, 17); !maps.Equal(got, want) {
		t.Errorf("exits %x, want %x", got, want)
	}
	for cut := range b {
		v8Exits(b[cut:], 17)
		v8Exits(b[:cut], 17)
	}

	points, err := hex.DecodeString("0600000004000000a3000000010000001f00054e010000cd000652010101e5000756010203310100000001000000000000000000000000000000000000000000")
	if err != nil {
		t.Fatal(err)
	}
	// The stream leads to an array of the bytes above, of which the map is that at 0x2000.
	page := make([]byte, 1<<12)
	binary.NativeEndian.PutUint16(page[12:], 7)            // instance type
	binary.NativeEndian.PutUint64(page[0x100+16:], 0x2201) // stream
	binary.NativeEndian.PutUint64(page[0x200:], 0x2001)    // array
	binary.NativeEndian.PutUint64(page[0x208:], 162<<32)   //
	copy(page[0x210:], b)                                  //
	copy(page[0x400:], points)                             // behind the code
	v := rubbishV8(page, [2]uint32{13, 6})
	v.Begin()
	c := &v8Code{start: 0x2400 - 0x15c, end: 0x2400, kind: v.heap.types.baseline + 1}
	for ret, exit := range map[uint64]uint64{0x1f: 0x14d, 0xcd: 0x151, 0xe5: 0x155} {
		want[ret] = want[exit]
	}
	if got := v.codes.readReturns(c, 0x2101); !maps.Equal(got, want) {
		t.Errorf("returns %x, want %x", got, want)
	}
}

// TestV8Safepoints: a table of safepoints as a process had it behind TurboFan's code, whose exits begin at 0x1f2.
func TestV8Safepoints(t *testing.T) {
	littleEndian(t)
	points, err := hex.DecodeString("0800000003000000a1040000a001070b02c001080f02e501091302040404cccc")
	if err != nil {
		t.Fatal(err)
	}
	page := make([]byte, 1<<12)
	binary.NativeEndian.PutUint16(page[12:], 7)
	binary.NativeEndian.PutUint64(page[0x100+16:], 0x2201)
	binary.NativeEndian.PutUint64(page[0x200:], 0x2001)
	copy(page[0x400:], points)
	// Relocation information, from its end on: an offset and a number at exits 0x20a, 0x20e and 0x212.
	var info []byte
	for i, at := range []byte{0x0a, 4, 4} {
		item := []byte{17<<2 | 3, at, byte(40 + i), 0, 0, 0, 18<<2 | 3, 0, byte(i), 0, 0, 0}
		if i == 0 {
			item = append([]byte{22<<2 | 3, 8}, item...) // 8 times 64 further on
		}
		info = append(info, item...)
	}
	slices.Reverse(info)
	binary.NativeEndian.PutUint64(page[0x208:], uint64(len(info))<<32)
	copy(page[0x210:], info)
	v := rubbishV8(page, [2]uint32{13, 6})
	v.Begin()
	c := &v8Code{start: 0x2400 - 0x218, end: 0x2400, kind: v.heap.types.baseline + 2}
	want := map[uint64]uint64{}
	for i, at := range [][2]uint64{{0x1a0, 0x20a}, {0x1c0, 0x20e}, {0x1e5, 0x212}} {
		want[at[0]] = uint64(41+i)<<1 | uint64(i+1)<<31
		want[at[1]] = want[at[0]]
	}
	if got := v.codes.readReturns(c, 0x2101); !maps.Equal(got, want) {
		t.Errorf("returns %x, want %x", got, want)
	}
}

// TestV8NameEnds: what a ScopeInfo without a name is followed by is not its name.
func TestV8NameEnds(t *testing.T) {
	littleEndian(t)
	page := make([]byte, 1<<12)
	put := func(at int, w uint64) { binary.NativeEndian.PutUint64(page[at:], w) }
	for at, kind := range map[int]uint16{0: 3, 0x40: 9, 0x80: 8} { // maps of scopes, of maps, of strings
		binary.NativeEndian.PutUint16(page[at+12:], kind)
		put(at, 0x2041)
	}
	for at := 0x100; at < 0x200; at += 8 {
		put(at, 1<<32)
	}
	put(0x100, 0x2001) // the scope: three numbers, none of variables
	put(0x118, 0)
	put(0x300, 0x2081) // a string
	put(0x308, 3<<32)
	copy(page[0x310:], "abc")
	binary.NativeEndian.PutUint16(page[12:], 200)
	binary.NativeEndian.PutUint16(page[0x40+12:], 201)
	for _, tt := range []struct {
		next uint64
		want string
	}{{5 << 32, "abc"}, {0x2041, ""}} {
		put(0x120, tt.next)
		put(0x128, 0x2301)
		v := rubbishV8(page, [2]uint32{13, 6})
		v.heap.types.firstNonstring, v.heap.types.scope, v.heap.types.maps = 128, 200, 201
		v.Begin()
		if got, ok := v.heap.name(0x2101); got != tt.want || !ok {
			t.Errorf("behind %#x: %q, %t; want %q", tt.next, got, ok, tt.want)
		}
	}
}

// TestV8Sizes: sizes of bytecodes are found by what they are, once.
func TestV8Sizes(t *testing.T) {
	table := []byte{1, 1, 1, 1, 2, 4, 1, 1, 1, 1, 3, 7, 1, 1, 1, 1, 5, 13}
	if !v8SizesAre(table) {
		t.Error("not taken for sizes")
	}
	for i := range table {
		for _, n := range []byte{0, table[i] + 1} {
			bad := bytes.Clone(table)
			if bad[i] = n; v8SizesAre(bad) {
				t.Errorf("%v taken for sizes", bad)
			}
		}
	}
	if v8SizesAre(bytes.Repeat([]byte{1}, 18)) {
		t.Error("ones taken for sizes")
	}
}

// words is memory of words, of which one may be moving.
type words struct {
	at     map[uint64]uint64
	moving uint64
}

func (m *words) ReadAt(b []byte, addr int64) (int, error) {
	for i := range b {
		a := uint64(addr) + uint64(i)
		var w [8]byte
		if a&^7 != m.moving {
			binary.NativeEndian.PutUint64(w[:], m.at[a&^7])
		}
		b[i] = w[a&7]
	}
	return len(b), nil
}

// TestV8ScriptList: where isolates have the list of their scripts is looked for again if the collector was moving it, and is the same in all of them.
func TestV8ScriptList(t *testing.T) {
	const (
		place, lists, arrays, scripts = 0x208, 0x310001, 0x318001, 0x330001 // the last three are maps
		code                          = 0x350000
	)
	instances := func(typ uint32) uint64 { // 12 bytes into a map
		var w [8]byte
		binary.NativeEndian.PutUint32(w[4:], typ)
		return binary.NativeEndian.Uint64(w[:])
	}
	m := &words{at: map[uint64]uint64{lists - 1 + 8: instances(7), arrays - 1 + 8: instances(8), scripts - 1 + 8: instances(4)}}
	isolate := func(at, list, script, infos uint64) regs.Set {
		for addr, w := range map[uint64]uint64{
			at + place: list + 1,
			list:       lists, list + 16: 2 << 32, list + 24: 1 | v8WeakBit, list + 32: script + 1 | v8WeakBit, // the first was collected
			script: scripts, script + v8ScriptInfos: infos + 1,
			infos: arrays, infos + 8: 1 << 32, infos + 16: code + 1 | v8WeakBit,
		} {
			m.at[addr] = w
		}
		var s regs.Set
		s.SetReg(v8RootRegister, at+v8RootsBefore)
		return s
	}
	one, two := isolate(0x100000, 0x300000, 0x320000, 0x340000), isolate(0x200000, 0x400000, 0x420000, 0x440000)
	v := rubbishV8(nil, [2]uint32{}).scripts
	v.heap.mem = m
	v.heap.budget = 1 << 10
	key := func(script uint64) *Key { return &Key{Code: code, File: script + 1, Lines: 1} }
	if !v.alive(key(0x320000)) {
		t.Error("a function is not alive, and no isolate is known")
	}
	m.moving = 0x300000
	v.meet([]unwind.Owned{{Set: one}})
	if v.place != 0 || v.alive(key(0x320000)) {
		t.Errorf("the list is at %#x while it is moving", v.place)
	}
	m.moving = 0
	v.meet([]unwind.Owned{{Set: one}})
	if v.place != place || !v.alive(key(0x320000)) || v.alive(key(0x420000)) {
		t.Errorf("the list is at %#x, want %#x", v.place, place)
	}
	for i := range uint64(2 * maxV8Isolates) { // workers that come and go
		v.meet([]unwind.Owned{{Set: isolate(0x1000000+i<<12, 0x300000, 0x320000, 0x340000)}})
	}
	v.meet([]unwind.Owned{{Set: two}})
	if !v.alive(key(0x420000)) || v.alive(key(0x320000)) {
		t.Error("not the functions of the other isolate are alive")
	}
	v.meet([]unwind.Owned{{Set: one}})
	v.meet(nil) // an isolate that is not known
	if !v.alive(key(0x420000)) || !v.alive(key(0x320000)) {
		t.Error("no function of a known isolate is alive")
	}
	gone := key(0x420000)
	gone.First = 1
	if v.alive(gone) {
		t.Error("a function is alive that its script does not have")
	}
	if v.heap.budget = 0; v.alive(key(0x420000)) {
		t.Error("a function is alive for which nothing may be read")
	}

	v = rubbishV8(nil, [2]uint32{}).scripts // in which there is none
	v.heap.mem = &words{}
	for n := 1; !v.alive(key(0x320000)) || n == 1; n++ {
		if v.meet([]unwind.Owned{{Set: one}}); n > 1<<17 || v.looks > v8Looks {
			t.Fatalf("%d looks at %d meetings", v.looks, n)
		}
	}
	if v.looks != v8Looks || v.meetings < 1<<10 {
		t.Errorf("%d looks at %d meetings, want %d at 1,000 or more", v.looks, v.meetings, v8Looks)
	}
}

// TestV8Held: what is kept of code and of positions, and what is read for a stack, is bounded by its bytes.
func TestV8Held(t *testing.T) {
	page := make([]byte, 1<<12)
	put := func(at int, w uint64) { binary.NativeEndian.PutUint64(page[at:], w) }
	binary.NativeEndian.PutUint16(page[12:], 6) // the map of bytecodes, and of their positions
	put(0x100, 0x2001)
	put(0x108, maxV8Table<<32)
	put(0x100+v8Layouts[[2]uint32{13, 6}].bytecodePositions, 0x2101)
	v := rubbishV8(page, [2]uint32{13, 6})
	for i := range uint64(100) {
		v.Begin()
		v.position(0x2101, 0, i, Memory{{Addr: 0x2000, Bytes: page}})
		v.codes.keep(&v8Code{start: 0x1000 * i, end: 0x1000*i + 0x1000, positions: page, returns: map[uint64]uint64{}, inlined: make([]v8Site, 1<<15)})
		n := 0
		for _, b := range v.tables {
			n += len(b)
		}
		if n < maxV8Table || n > maxV8Held || len(v.codes.list) == 0 || len(v.codes.list) > maxV8Held/(24<<15) {
			t.Fatalf("%d bytes of positions, %d pieces of code", n, len(v.codes.list))
		}
	}
	if c := v.codes.list[len(v.codes.list)-1]; c.start != 0x1000*99 {
		t.Errorf("the newest code is %#x", c.start)
	}
	kept := v.codes.list[:cap(v.codes.list)]
	for i := len(v.codes.list); i < len(kept); i++ {
		if kept[i] != nil {
			t.Errorf("the code that had place %d is kept", i)
		}
	}
	v.heap.mem = zeros{}
	v.Begin()
	n := 0
	for n < 1<<30 && v.heap.read(0x1000, 1<<20) != nil {
		n += 1 << 20
	}
	if n > maxV8Budget<<16 {
		t.Errorf("%d bytes are read for a stack", n)
	}
}

// zeros is memory of zeros.
type zeros struct{}

func (zeros) ReadAt(b []byte, _ int64) (int, error) { return len(b), nil }

// TestV8StreamMap: a word that was not looked at, as enough was read for a stack, is looked at for the next one.
func TestV8StreamMap(t *testing.T) {
	page := make([]byte, 1<<12)
	binary.NativeEndian.PutUint16(page[12:], 5)
	v := rubbishV8(page, [2]uint32{13, 6})
	if v.codes.streamMap(0x2001) {
		t.Error("a type is known, and nothing may be read")
	}
	if v.Begin(); !v.codes.streamMap(0x2001) || v.codes.streamMap(0x2081) {
		t.Error("the map of what holds code is not known, or another is taken for it")
	}
}

// TestV8SizesFound: the sizes are found among constants of which many might be theirs; very many are not looked through.
func TestV8SizesFound(t *testing.T) {
	table := bytes.Repeat([]byte{1}, 3*208)
	table[208+100], table[416+100] = 4, 10
	for _, tt := range []struct {
		ones int
		want []byte
	}{{1 << 10, table}, {8*maxV8Sizes + 1<<10, nil}} {
		b := append(append(bytes.Repeat([]byte{1}, tt.ones), 0, 0, 0, 0, 0, 0, 0, 0), table...)
		s := &elf.Section{SectionHeader: elf.SectionHeader{Name: ".rodata", Size: uint64(len(b))}, ReaderAt: bytes.NewReader(b)}
		if got := v8BytecodeSizes(&elf.File{Sections: []*elf.Section{s}}, 208); !bytes.Equal(got, tt.want) {
			t.Errorf("behind %d ones: %v", tt.ones, got)
		}
	}
}
