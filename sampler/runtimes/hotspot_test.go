package runtimes

import (
	"encoding/binary"
	"testing"

	"sfsample/regs"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// hotspotMemory is a method in memory of 0x1000 bytes at 0x1000, as hotspotLayouts(false) has it: Method, ConstMethod, ConstantPool, Klass and two Symbols.
func hotspotMemory() []byte {
	b := make([]byte, 0x1000)
	put := func(at int, v uint64) { binary.NativeEndian.PutUint64(b[at:], v) }
	put(0x108, 0x1200)
	put(0x138, 0x1f00)
	put(0x208, 0x1300)
	binary.NativeEndian.PutUint16(b[0x220:], 5)
	binary.NativeEndian.PutUint16(b[0x222:], 1)
	put(0x318, 0x1400)
	put(0x350, 0x1500)
	put(0x418, 0x1600)
	for at, text := range map[int]string{0x500: "run", 0x600: "Made1"} {
		binary.NativeEndian.PutUint16(b[at+4:], uint16(len(text)))
		copy(b[at+6:], text)
	}
	return b
}

// TestHotSpotUnloaded: a class that has the place of another one, and differs from it by its name alone, has its own name.
func TestHotSpotUnloaded(t *testing.T) {
	littleEndian(t)
	b := hotspotMemory()
	h := &hotspot{mem: rubbish(b), lay: hotspotLayouts(false), methods: map[uint64]*hotspotMethod{}}
	f := &Frame{Code: 0x1100}
	name := func(k Key) string {
		fn, ok := h.Function(h.mem, f, k)
		if !ok {
			return ""
		}
		return fn.Name
	}
	h.epoch++
	before, ok := h.Key(nil, h.mem, f)
	if got := name(before); !ok || got != "Made1.run" {
		t.Fatalf("%q, %v", got, ok)
	}
	for _, change := range []struct {
		at   int
		want string
	}{{0x60a, "Made2.run"}, {0x506, "Made2.2un"}} {
		b[change.at] = '2'
		h.epoch++
		now, ok := h.Key(nil, h.mem, f)
		if got, old := name(now), name(before); !ok || now == before || got != change.want || old != "" {
			t.Errorf("%q and, by its key of before, %q, want %q and none; %v", got, old, change.want, ok)
		}
		before = now
	}
	h.epoch++
	if now, ok := h.Key(nil, h.mem, f); !ok || now != before {
		t.Errorf("what has not changed has another key: %+v, %+v", now, before)
	}
}

// TestHotSpotDropped: what is read for the first time holds for a stop if no class was dropped since; what was known before, and is the same, anyway.
func TestHotSpotDropped(t *testing.T) {
	littleEndian(t)
	b := hotspotMemory()
	h := &hotspot{mem: rubbish(b), lay: hotspotLayouts(false), methods: map[uint64]*hotspotMethod{}, found: hotspotFound{dropped: dropped{root: taking.Root{Addr: 0x1800}, at: 8}}}
	for i, tt := range []struct {
		now, taken uint64
		change     byte // of the name
		ok         bool
	}{{5, 4, '1', false}, {5, 5, '1', true}, {7, 7, '1', true}, {7, 6, '1', true}, {8, 7, '2', false}, {8, 8, '2', true}} {
		binary.NativeEndian.PutUint64(b[0x808:], tt.now)
		b[0x60a] = tt.change
		h.epoch++
		h.found.dropped.taken = tt.taken
		if _, ok := h.Key(nil, h.mem, &Frame{Code: 0x1100}); ok != tt.ok {
			t.Errorf("%d: %+v, has a key: %v", i, tt, ok)
		}
	}
}

// recordedRubbish is that of a recording.
type recordedRubbish struct{ rubbish }

func (recordedRubbish) Replayed() bool { return true }

// TestHotSpotReplayed: a replay, which looks for no roots, finds the count of classes that were dropped too, where the recording has it.
func TestHotSpotReplayed(t *testing.T) {
	littleEndian(t)
	for _, counted := range []bool{true, false} {
		b := hotspotMemory()
		h := &hotspot{mem: recordedRubbish{b}, lay: hotspotLayouts(false), methods: map[uint64]*hotspotMethod{}, heaps: make([]codeHeap, 1)}
		h.lay.perf = perfLayout{start: 0x1700, used: 4, first: 8, prologueBytes: 16, entryBytes: 16, length: 0, name: 4, data: 8}
		for i, v := range []uint32{0, 0x70, 16, 0, 0x60, 16, 48} { // the prologue, and an entry
			binary.NativeEndian.PutUint32(b[0x780+4*i:], v)
		}
		copy(b[0x7a0:], droppedName)
		if counted {
			binary.NativeEndian.PutUint64(b[0x700:], 0x1780)
		}
		for _, tt := range []struct {
			now, taken byte
			change     byte // of the name
			ok         bool
		}{{5, 4, '1', false}, {5, 5, '1', true}, {6, 5, '2', false}, {6, 6, '2', true}} {
			b[0x7c0], b[0x60a] = tt.now, tt.change
			h.Begin()
			var mem unwind.Memory
			mem.Also = []unwind.Region{{Addr: 0x1790, Bytes: append(make([]byte, 48), tt.taken, 0, 0, 0, 0, 0, 0, 0)}}
			h.found.dropped.take(&mem)
			if _, ok := h.Key(nil, h.mem, &Frame{Code: 0x1100}); ok != (tt.ok || !counted) {
				t.Errorf("counted %v, %+v: has a key: %v", counted, tt, ok)
			}
		}
	}
	d := dropped{root: taking.Root{Addr: 0x1790}}
	if old, live := d.since(recordedRubbish{}), d.since(rubbish{}); old != 0 || live != ^uint64(0) {
		t.Errorf("what cannot be read is since %#x in a replay, else since %#x", old, live)
	}
}

// TestHotSpotLies: fields that are said to be outside of what they belong to, or that to be small, are refused, or read as nothing.
func TestHotSpotLies(t *testing.T) {
	v := &vmStructs{fields: map[string]vmField{}, sizes: map[string]uint64{}, numbers: map[string]uint32{}}
	layout := func() (l hotspotLayout, ok bool) {
		v.missing = ""
		l.major = 17
		l.read(v)
		return l, v.missing == "" && l.sane()
	}
	// What is asked for is a field, one that is static, a type or a constant.
	layout()
	for range 200 {
		name := v.missing
		if name == "" {
			break
		}
		for _, add := range []func(){
			func() {
				v.fields[name] = vmField{typ: "int", at: 8}
				if name == "Symbol::_body" { // behind the length
					v.fields[name] = vmField{typ: "int", at: 16}
				}
			},
			func() { v.fields[name] = vmField{static: true, at: 0x1000} },
			func() { delete(v.fields, name); v.sizes[name] = 64 },
			func() { delete(v.sizes, name); v.numbers[name] = 1 },
		} {
			add()
			if layout(); v.missing != name {
				break
			}
		}
	}
	good, ok := layout()
	if !ok || len(v.fields) < 30 {
		t.Fatalf("of %d fields %q is missing", len(v.fields), v.missing)
	}
	b := make([]byte, 1<<12)
	for i := range b {
		b[i] = byte(i % 3)
	}
	checkHotSpotLayout(t, good, b)
	refused := 0
	try := func() {
		if l, ok := layout(); ok {
			checkHotSpotLayout(t, l, b)
		} else {
			refused++
		}
	}
	for name, f := range v.fields {
		lie := f
		for _, lie.at = range []uint64{60, 61, 1000, maxVMOffset - 1} {
			v.fields[name] = lie
			try()
		}
		v.fields[name] = f
	}
	for name, n := range v.sizes {
		for _, v.sizes[name] = range []uint64{1, 7} {
			try()
		}
		v.sizes[name] = n
	}
	if refused < 20 {
		t.Errorf("%d lies were refused", refused)
	}
}

// countedZeros is memory of zeros that counts what is read of it.
type countedZeros struct{ bytes int }

func (c *countedZeros) ReadAt(b []byte, _ int64) (int, error) {
	c.bytes += len(b)
	return len(b), nil
}

// TestHotSpotHeld: what is kept of code, and of what tells of it, is bounded by its bytes, and so is what a walk looks at; the next walk goes on from there.
func TestHotSpotHeld(t *testing.T) {
	mem := new(countedZeros)
	h := &hotspot{mem: mem, lay: hotspotLayouts(false), blobs: map[uint64]*blob{}, byPC: map[uint64]*blob{}, names: map[uint64]string{}}
	pc := uint64(0)
	next := func(size uint64) *blob {
		pc += 1 << 24
		b := &blob{blobHead: blobHead{addr: pc, begin: pc, end: pc + size, m: methodHead{entry: pc}}, kind: compiledBlob}
		for _, a := range []*area{&b.m.pcs, &b.m.scopes, &b.m.metadata} {
			*a = area{pc, pc + maxDebugInfo}
		}
		h.blobs[pc], h.byPC[pc] = b, b
		return h.find(pc)
	}
	for _, look := range []struct {
		what  string
		size  uint64 // of the code of each
		bytes int    // that are looked at for each
		at    func(b *blob) bool
	}{
		{"code", maxBlobCode, maxBlobCode, func(b *blob) bool { return b.bytes(h) != nil }},
		{"depths", 1 << 18, 5 << 18, func(b *blob) bool {
			s := hotspotStep{h: h, from: &regs.Set{PC: pc}, mem: new(unwind.Memory), to: new(regs.Set)}
			s.compiled(b, pc)
			return b.depths != nil
		}},
		{"what tells of it", 64, 3 * maxDebugInfo, func(b *blob) bool {
			before := mem.bytes
			h.debugOf(b)
			return mem.bytes > before
		}},
	} {
		for range 8 {
			h.Begin()
			n := 0
			for n < 50 && look.at(next(look.size)) {
				n++
			}
			held := 0
			for _, b := range h.blobs {
				held += len(b.code) + 24*len(b.depths)
			}
			if n == 0 || n > maxBlobWork/look.bytes+1 || held > maxBlobsHeld+2*maxBlobWork {
				t.Fatalf("%s: %d pieces are looked at for a walk, %d MB are kept", look.what, n, held>>20)
			}
		}
	}
}
