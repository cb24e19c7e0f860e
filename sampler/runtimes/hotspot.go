package runtimes

import (
	"debug/elf"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"sfsample/unwind"
)

// hotspot is a HotSpot on x86-64, by its vmStructs. What these do not tell is as in 17 to 25: the slots of an interpreter's frame
// (cpu/x86/frame_x86.hpp), how scopes are written (share/code/debugInfo.hpp, share/utilities/unsigned5.hpp), and the code at
// the entries of methods (cpu/x86/macroAssembler_x86.cpp, verified_entry).
type hotspot struct {
	mem     io.ReaderAt
	version string
	lay     hotspotLayout

	heaps   []codeHeap
	epoch   uint64 // of the walk under way
	blobs   map[uint64]*blob
	byPC    map[uint64]*blob
	used    usedBlobs
	names   map[uint64]string
	stubs   []string // names, by what a Frame has in Globals
	methods map[uint64]*hotspotMethod
	queue   codelets

	found hotspotFound
	areas gathering
	locks *Locks
}

// usedBlobs are those of the walk under way.
type usedBlobs struct {
	list []*blob
	left int // bytes of code and of what tells of it that the walk may still look at
	held int // bytes of all blobs that are kept, about
}

// take tells whether n bytes may be looked at, and counts them.
func (u *usedBlobs) take(n int) bool {
	if u.left <= 0 {
		return false
	}
	u.left -= n
	return true
}

// next begins a walk, and counts what the one before has added to blobs. over: they are too much.
func (u *usedBlobs) next() (over bool) {
	for _, b := range u.list {
		n := 256 + len(b.code) + 24*cap(b.depths)
		if b.debug != nil {
			n += b.debug.held
		}
		u.held, b.held = u.held+n-b.held, n
	}
	clear(u.list)
	u.list, u.left = u.list[:0], maxBlobWork
	if over = u.held > maxBlobsHeld; over {
		u.held = 0
	}
	return over
}

// hotspotFound is what was looked for in the process.
type hotspotFound struct {
	callStub uint64 // return address of what Java's outermost frame was called by
	entry    specialEntry
	dropped  dropped
}

// hotspotLayout is where fields are.
type hotspotLayout struct {
	major  int
	cache  cacheLayout
	blob   blobLayout
	method methodLayout
	debug  debugLayout
	queue  queueLayout
	names  nameLayout
	perf   perfLayout
}

// cacheLayout is of the code cache: where its heaps and the return address of call_stub are told, and what is where in these, in a VirtualSpace and in the
// header of a block.
type cacheLayout struct {
	heaps, callStub              uint64
	listLen, listData            int
	heapMemory, heapSegmap, log2 int
	low, high, lowEnd, highEnd   int
	blockBytes, blockUsed        int
}

// blobLayout is of a CodeBlob.
type blobLayout struct {
	bytes                          int // to read of its header
	name, size                     vmInt
	frameSize                      vmInt
	codeBegin, codeEnd             vmInt
	relative                       bool // these two are distances
	mutable, mutableSize, relocate vmInt
}

// methodLayout is of an nmethod.
type methodLayout struct {
	method, id, entry, deopt, origPC vmInt
}

// debugLayout is of what an nmethod tells of its instructions.
type debugLayout struct {
	detached                      bool // it is not with the code, as since 23
	immutable, immutableSize      vmInt
	pcs, pcsEnd, scopes, metadata vmInt
	pcBytes, pcOffset, pcScope    int
}

// queueLayout is of the interpreter's codelets.
type queueLayout struct {
	at                                     uint64
	buffer, begin, end, bytes              int
	codeletBytes, codeletSize, codeletText int
}

// nameLayout is of what names a method.
type nameLayout struct {
	methodConst, methodEntry int
	constConstants           int
	constName, constCode     vmInt
	constBytes               int
	constFlags               vmInt
	constLines               uint32 // flag: it has a table of lines
	poolHolder, poolBytes    int
	poolFile, klassFile      vmInt // one of them
	klassName                int
	symbolLen, symbolBody    int
}

// vmInt is a field whose type differs between versions.
type vmInt struct{ at, bytes int }

// in is the value of the field in b, 0 if b does not reach there.
func (f vmInt) in(b []byte) uint64 {
	if f.at+f.bytes > len(b) {
		return 0
	}
	switch f.bytes {
	case 1:
		return uint64(b[f.at])
	case 2:
		return uint64(b[f.at]) | uint64(b[f.at+1])<<8
	case 4:
		return uint64(word32(b, f.at))
	case 8:
		return word(b, f.at)
	}
	return 0
}

// num is a field of any type of integer or pointer.
func (v *vmStructs) num(names ...string) vmInt {
	for _, n := range names {
		if !v.has(n) {
			continue
		}
		f := v.fields[n]
		switch t := strings.TrimPrefix(f.typ, "volatile "); {
		case strings.HasSuffix(t, "*"), t == "address", t == "size_t", t == "long", t == "intptr_t", t == "uint64_t":
			return vmInt{int(f.at), 8}
		case t == "int", t == "jint", t == "uint", t == "u4", t == "unsigned int", t == "uint32_t", t == "int32_t":
			return vmInt{int(f.at), 4}
		case t == "u2", t == "uint16_t", t == "jushort", t == "int16_t", t == "short", t == "unsigned short":
			return vmInt{int(f.at), 2}
		case t == "bool", t == "u1", t == "uint8_t":
			return vmInt{int(f.at), 1}
		}
	}
	v.lacks(names[0])
	return vmInt{}
}

// Bounds of what is read of a HotSpot.
const (
	maxHeaps     = 8
	maxSegments  = 4 << 20
	maxBlobs     = 1 << 14
	maxBlobBytes = 1 << 10 // of a header
	maxBlobCode  = 4 << 20
	maxBlobsHeld = 64 << 20 // bytes of blobs
	maxBlobWork  = 16 << 20 // bytes that a walk looks at, code whose depths it makes fourfold
	maxDebugInfo = 1 << 20  // of one method, in bytes
	maxCodelets  = 2048
	maxMethods   = 1 << 15
	maxInlined   = 64
	maxStubNames = 1024
	maxHops      = 4096
)

// Releases whose code is walked as here.
const (
	firstHotSpot = 11
	lastHotSpot  = 25
)

// newHotSpot reads what must be known of the HotSpot with these symbols.
func newHotSpot(file string, machine elf.Machine, syms map[string]uint64, mem io.ReaderAt) (Runtime, error) {
	if machine != elf.EM_X86_64 {
		return nil, fmt.Errorf("%s: HotSpot is known on x86-64 only, Java frames are not shown", path.Base(file))
	}
	v, err := readVMStructs(mem, syms)
	if err != nil {
		return nil, fmt.Errorf("%s: %w, Java frames are not shown", path.Base(file), err)
	}
	h := &hotspot{mem: mem, blobs: map[uint64]*blob{}, byPC: map[uint64]*blob{}, names: map[uint64]string{}, methods: map[uint64]*hotspotMethod{}}
	var part [3]string
	for i, name := range []string{"major", "minor", "security"} {
		b := read(mem, v.static("Abstract_VM_Version::_vm_"+name+"_version"), 4)
		if b == nil {
			return nil, fmt.Errorf("%s: this HotSpot does not tell its version, Java frames are not shown", path.Base(file))
		}
		part[i] = fmt.Sprint(int32(word32(b, 0)))
		if i == 0 {
			h.lay.major = int(int32(word32(b, 0)))
		}
	}
	h.version = strings.Join(part[:], ".")
	if h.lay.major < firstHotSpot || h.lay.major > lastHotSpot {
		return nil, fmt.Errorf("HotSpot %s is not known, Java frames are not shown (known: %d to %d)", h.version, firstHotSpot, lastHotSpot)
	}
	h.lay.read(v)
	if v.missing != "" {
		return nil, fmt.Errorf("HotSpot %s does not tell %s, Java frames are not shown", h.version, v.missing)
	}
	if !h.lay.sane() {
		return nil, fmt.Errorf("HotSpot %s tells fields that are not in what they belong to, Java frames are not shown", h.version)
	}
	h.locks = newLocks(v, &h.lay, h.version)
	return h, nil
}

// read takes from v where everything is.
func (l *hotspotLayout) read(v *vmStructs) {
	l.cache.heaps, l.cache.callStub, l.queue.at = v.static("CodeCache::_heaps"), v.static("StubRoutines::_call_stub_return_address"), v.static("AbstractInterpreter::_code")
	l.cache.listLen, l.cache.listData = v.field("GrowableArrayBase::_len", "GenericGrowableArray::_len"), v.field("GrowableArray<int>::_data")
	l.cache.heapMemory, l.cache.heapSegmap, l.cache.log2 = v.field("CodeHeap::_memory"), v.field("CodeHeap::_segmap"), v.field("CodeHeap::_log2_segment_size")
	l.cache.low, l.cache.high = v.field("VirtualSpace::_low_boundary"), v.field("VirtualSpace::_high_boundary")
	l.cache.lowEnd, l.cache.highEnd = v.field("VirtualSpace::_low"), v.field("VirtualSpace::_high")
	l.cache.blockBytes, l.cache.blockUsed = v.size("HeapBlock"), v.field("HeapBlock::Header::_used")

	l.blob.bytes = min(max(v.size("nmethod"), v.size("CodeBlob")), maxBlobBytes)
	l.blob.name, l.blob.frameSize, l.blob.size = v.num("CodeBlob::_name"), v.num("CodeBlob::_frame_size"), v.num("CodeBlob::_size")
	if l.blob.relative = !v.has("CodeBlob::_code_begin"); l.blob.relative {
		l.blob.codeBegin, l.blob.codeEnd = v.num("CodeBlob::_code_offset"), v.num("CodeBlob::_data_offset")
	} else {
		l.blob.codeBegin, l.blob.codeEnd = v.num("CodeBlob::_code_begin"), v.num("CodeBlob::_code_end")
	}
	l.method.method, l.method.id = v.num("CompiledMethod::_method", "nmethod::_method"), v.num("nmethod::_compile_id")
	l.method.entry = v.num("nmethod::_verified_entry_point", "nmethod::_verified_entry_offset")
	l.method.deopt = v.num("CompiledMethod::_deopt_handler_begin", "nmethod::_deopt_handler_offset")
	l.method.origPC = v.num("nmethod::_orig_pc_offset")
	l.debug.pcs = v.num("nmethod::_scopes_pcs_offset")
	if l.debug.detached = v.has("nmethod::_immutable_data"); l.debug.detached {
		l.debug.immutable, l.debug.immutableSize = v.num("nmethod::_immutable_data"), v.num("nmethod::_immutable_data_size")
		l.debug.scopes = v.num("nmethod::_scopes_data_offset")
		l.blob.mutable, l.blob.mutableSize, l.blob.relocate = v.num("CodeBlob::_mutable_data"), v.num("CodeBlob::_mutable_data_size"), v.num("CodeBlob::_relocation_size")
	} else {
		l.debug.pcsEnd, l.debug.scopes = v.num("nmethod::_dependencies_offset"), v.num("CompiledMethod::_scopes_data_begin")
		l.debug.metadata = v.num("nmethod::_metadata_offset")
	}
	l.debug.pcBytes, l.debug.pcOffset, l.debug.pcScope = v.size("PcDesc"), v.field("PcDesc::_pc_offset"), v.field("PcDesc::_scope_decode_offset")
	l.queue.buffer, l.queue.begin, l.queue.end, l.queue.bytes = v.field("StubQueue::_stub_buffer"), v.field("StubQueue::_queue_begin"), v.field("StubQueue::_queue_end"), v.size("StubQueue")
	l.queue.codeletBytes, l.queue.codeletSize, l.queue.codeletText = v.size("InterpreterCodelet"), v.field("InterpreterCodelet::_size"), v.field("InterpreterCodelet::_description")

	l.perf.read(v)
	l.names.methodConst, l.names.methodEntry = v.field("Method::_constMethod"), v.field("Method::_i2i_entry")
	l.names.constConstants, l.names.constName, l.names.constCode = v.field("ConstMethod::_constants"), v.num("ConstMethod::_name_index"), v.num("ConstMethod::_code_size")
	l.names.constBytes = v.size("ConstMethod")
	l.names.constFlags, l.names.constLines = v.num("ConstMethod::_flags", "ConstMethod::_flags._flags"), v.number("ConstMethod::_has_linenumber_table", "ConstMethodFlags::_misc_has_linenumber_table")
	l.names.poolHolder, l.names.poolBytes = v.field("ConstantPool::_pool_holder"), v.size("ConstantPool")
	if l.names.klassFile = (vmInt{}); v.has("InstanceKlass::_source_file_name_index") { // before 15
		l.names.klassFile = v.num("InstanceKlass::_source_file_name_index")
	} else {
		l.names.poolFile = v.num("ConstantPool::_source_file_name_index")
	}
	l.names.klassName = v.field("Klass::_name")
	l.names.symbolLen, l.names.symbolBody = v.field("Symbol::_length"), v.field("Symbol::_body")
}

// sane tells whether fields lie in what is read of that they belong to.
func (l *hotspotLayout) sane() bool {
	in := func(most int, list ...int) bool {
		return !slices.ContainsFunc(list, func(at int) bool { return at < 0 || at > most })
	}
	return in(l.cache.blockBytes-1, l.cache.blockUsed) && in(l.debug.pcBytes-4, l.debug.pcOffset, l.debug.pcScope) &&
		in(l.queue.bytes-8, l.queue.buffer) && in(l.queue.bytes-4, l.queue.begin, l.queue.end) &&
		in(l.queue.codeletBytes-8, l.queue.codeletText) && in(l.queue.codeletBytes-4, l.queue.codeletSize) &&
		in(l.names.constBytes-8, l.names.constConstants) && in(l.perf.prologueBytes-4, l.perf.used, l.perf.first) &&
		in(l.names.poolBytes-8, l.names.poolHolder) && in(l.names.symbolBody-2, l.names.symbolLen) &&
		in(l.perf.entryBytes-8, l.perf.length) && in(l.perf.entryBytes-4, l.perf.name, l.perf.data)
}

func (h *hotspot) Name() string    { return "java" }
func (h *hotspot) Version() string { return h.version }

// codeHeap is a part of the code cache, which stays where it is.
type codeHeap struct {
	low, high uint64
	segmap    uint64
	segmapEnd uint64 // where it is told
	log2      uint
}

// specialEntry is where jdk.internal.vm.Continuation.enterSpecial is; 0: it is not known, and looked for again at the walk next.
type specialEntry struct{ pc, next uint64 }

// blob is a piece of code with what describes it.
type blob struct {
	blobHead
	kind   blobKind
	label  string
	code   []byte // if it was read
	epoch  uint64 // of the walk that it was used in
	since  uint64 // see [dropped.since]
	debug  *debugInfo
	depths depths // if asked for
	held   int    // bytes, as they count in usedBlobs
}

// blobHead is what tells a blob from all others that were ever in its place.
type blobHead struct {
	addr       uint64 // of the CodeBlob
	begin, end uint64 // of its code
	frame      uint64 // bytes of its frames, return address included; 0: they differ, or it has none
	name       uint64
	m          methodHead // zero, if it is no method
}

// methodHead is what a compiled method has besides.
type methodHead struct {
	method, entry, deopt  uint64
	id, origPC            uint64
	pcs, scopes, metadata area
}

// area is from one address to another.
type area struct{ from, to uint64 }

type blobKind uint8

const (
	otherBlob blobKind = iota
	compiledBlob
	nativeBlob
	interpreterBlob
	adapterBlob
	framelessBlob // it never has a frame
	continuationBlob
)

// Begin implements Managed.
func (h *hotspot) Begin() (changed bool) {
	h.epoch++
	if h.used.next() {
		clear(h.blobs)
		clear(h.byPC)
		h.queue = codelets{}
	}
	h.found.dropped.found = false
	if replayed(h.mem) && h.found.dropped.root.Addr == 0 {
		h.found.dropped = findDropped(h) // nobody asks for roots
	}
	if len(h.heaps) > 0 {
		return false
	}
	h.findHeaps()
	return len(h.heaps) > 0
}

// findHeaps reads where the code cache is, once it is made.
func (h *hotspot) findHeaps() {
	l := &h.lay
	b := read(h.mem, l.cache.heaps, 8)
	if b == nil {
		return
	}
	list := word(b, 0)
	head := read(h.mem, list, max(l.cache.listLen+4, l.cache.listData+8))
	stub := read(h.mem, l.cache.callStub, 8)
	if head == nil || stub == nil || word(stub, 0) == 0 {
		return
	}
	n := word32(head, l.cache.listLen)
	at := read(h.mem, word(head, l.cache.listData), 8*int(min(n, maxHeaps)))
	var heaps []codeHeap
	for i := 0; i < len(at); i += 8 {
		size := max(l.cache.heapMemory, l.cache.heapSegmap) + max(l.cache.high, l.cache.highEnd, l.cache.low, l.cache.lowEnd) + 8
		x := read(h.mem, word(at, i), max(size, l.cache.log2+4))
		if x == nil {
			return
		}
		c := codeHeap{low: word(x, l.cache.heapMemory+l.cache.low), high: word(x, l.cache.heapMemory+l.cache.high), segmap: word(x, l.cache.heapSegmap+l.cache.lowEnd),
			segmapEnd: word(at, i) + uint64(l.cache.heapSegmap+l.cache.highEnd), log2: uint(word32(x, l.cache.log2))}
		if c.low >= c.high || c.high > 1<<62 || c.high-c.low > 1<<40 || c.log2 < 4 || c.log2 > 20 || c.segmap == 0 {
			return
		}
		heaps = append(heaps, c)
	}
	h.found.callStub, h.heaps = word(stub, 0), heaps
}

// Owns implements unwind.Runtime.
func (h *hotspot) Owns(pc uint64) bool { return h.heapAt(pc) != nil }

func (h *hotspot) heapAt(pc uint64) *codeHeap {
	for i := range h.heaps {
		if c := &h.heaps[i]; pc-c.low < c.high-c.low {
			return c
		}
	}
	return nil
}

// find is the blob that pc lies in, nil if there is none. What is known of it is confirmed once the walk is over.
func (h *hotspot) find(pc uint64) *blob {
	b := h.byPC[pc]
	if b == nil {
		if b = h.seek(pc); b == nil {
			return nil
		}
		if len(h.byPC) >= maxBlobs {
			clear(h.byPC)
		}
		h.byPC[pc] = b
	}
	if b.epoch != h.epoch {
		b.epoch = h.epoch
		h.used.list = append(h.used.list, b)
	}
	return b
}

// seek finds the blob of pc by the map of the heap's segments: 0 is where a block begins, 255 is free, what is between leads back.
func (h *hotspot) seek(pc uint64) *blob {
	c := h.heapAt(pc)
	if c == nil {
		return nil
	}
	i := (pc - c.low) >> c.log2
	from := i - min(i, maxHops)
	m := read(h.mem, c.segmap+from, int(i-from+1))
	if m == nil {
		return nil
	}
	at := int(i - from)
	for hops := 0; m[at] != 0; hops++ {
		if m[at] == 255 || int(m[at]) > at || hops > maxHops {
			return nil
		}
		at -= int(m[at])
	}
	addr := c.low + (from+uint64(at))<<c.log2 + uint64(h.lay.cache.blockBytes)
	head, ok := h.lay.head(h.mem, addr)
	if !ok || pc < head.begin || pc >= head.end {
		return nil
	}
	label := h.text(head.name)
	kind := kindOf(label)
	switch {
	case kind != compiledBlob && kind != nativeBlob:
		head.m = methodHead{}
	case head.m.entry < head.begin || head.m.entry >= head.end:
		return nil
	}
	if b := h.blobs[addr]; b != nil && b.blobHead == head {
		return b
	}
	b := &blob{blobHead: head, kind: kind, label: label, since: h.found.dropped.since(h.mem)}
	if len(h.blobs) >= maxBlobs {
		clear(h.blobs)
		clear(h.byPC)
	}
	h.blobs[addr] = b
	return b
}

// kindOf tells by its name what a blob is (the constructors in share/code/codeBlob.cpp).
func kindOf(name string) blobKind {
	switch {
	case name == "nmethod":
		return compiledBlob
	case name == "native nmethod":
		return nativeBlob
	case name == "Interpreter":
		return interpreterBlob
	case name == "I2C/C2I adapters":
		return adapterBlob
	case name == "vtable chunks", name == "InlineCacheBuffer":
		return framelessBlob
	case strings.HasPrefix(name, continuationName):
		return continuationBlob
	}
	return otherBlob
}

// head reads the header of the blob at addr, with that of the block before it.
func (l *hotspotLayout) head(mem io.ReaderAt, addr uint64) (blobHead, bool) {
	b := read(mem, addr-uint64(l.cache.blockBytes), l.cache.blockBytes+l.blob.bytes)
	if b == nil {
		return blobHead{}, false
	}
	return l.parse(addr, b)
}

func (l *hotspotLayout) parse(addr uint64, b []byte) (blobHead, bool) {
	if b[l.cache.blockUsed] != 1 {
		return blobHead{}, false
	}
	b = b[l.cache.blockBytes:]
	x := blobHead{addr: addr, begin: l.blob.codeBegin.in(b), end: l.blob.codeEnd.in(b), frame: 8 * uint64(max(0, int32(l.blob.frameSize.in(b)))), name: l.blob.name.in(b)}
	if l.blob.relative {
		x.begin, x.end = addr+x.begin, addr+x.end
	}
	size := l.blob.size.in(b)
	if x.begin < addr || x.end <= x.begin || x.end > addr+size || size > 1<<30 || x.frame > 1<<20 {
		return blobHead{}, false
	}
	x.m.method, x.m.id, x.m.origPC = l.method.method.in(b), l.method.id.in(b), l.method.origPC.in(b)
	if x.m.entry = l.method.entry.in(b); l.method.entry.bytes != 8 {
		x.m.entry += x.begin // distances are from where the code begins
	}
	if x.m.deopt = l.method.deopt.in(b); l.method.deopt.bytes != 8 {
		x.m.deopt += addr
	}
	if l.debug.detached {
		im, imSize := l.debug.immutable.in(b), l.debug.immutableSize.in(b)
		x.m.pcs.from, x.m.scopes.from, x.m.scopes.to = im+l.debug.pcs.in(b), im+l.debug.scopes.in(b), im+imSize
		x.m.pcs.to = x.m.scopes.from
		x.m.metadata.from, x.m.metadata.to = l.blob.mutable.in(b)+l.blob.relocate.in(b), l.blob.mutable.in(b)+l.blob.mutableSize.in(b)
	} else {
		x.m.pcs.from, x.m.pcs.to = addr+l.debug.pcs.in(b), addr+l.debug.pcsEnd.in(b)
		x.m.scopes.from, x.m.scopes.to = l.debug.scopes.in(b), x.m.pcs.from
		x.m.metadata.from, x.m.metadata.to = addr+l.debug.metadata.in(b), x.m.scopes.from
	}
	return x, true
}

// text is the name at addr.
func (h *hotspot) text(addr uint64) string {
	if s, ok := h.names[addr]; ok {
		return s
	}
	v := vmStructs{mem: h.mem, pages: map[uint64][]byte{}}
	s := v.text(addr)
	if len(h.names) >= maxStubNames {
		clear(h.names)
	}
	h.names[addr] = s
	return s
}

// Confirm implements Managed: it reads the headers of what the walk has used again.
func (h *hotspot) Confirm() bool {
	size := h.lay.cache.blockBytes + h.lay.blob.bytes
	h.areas.spans = h.areas.spans[:0]
	for _, b := range h.used.list {
		h.areas.spans = append(h.areas.spans, Span{b.addr - uint64(h.lay.cache.blockBytes), size})
	}
	same := true
	room := h.areas.read(h.mem)
	for i, b := range h.used.list {
		var now blobHead
		ok := room != nil
		if ok {
			now, ok = h.lay.parse(b.addr, room[i*size:][:size])
		}
		if b.kind != compiledBlob && b.kind != nativeBlob {
			now.m = methodHead{}
		}
		if !ok || now != b.blobHead {
			same = false
			delete(h.blobs, b.addr)
		}
	}
	if !same {
		clear(h.byPC)
	}
	return same
}

// gatherer is memory that reads many areas at the price of few.
type gatherer interface {
	Gather(list []Span, buf []byte) bool
}

// gathering is areas to be read at once, and room for them.
type gathering struct {
	spans []Span
	room  []byte
}

// read reads them from mem, one behind the other; nil: not all can be read.
func (h *gathering) read(mem io.ReaderAt) []byte {
	n := 0
	for _, s := range h.spans {
		n += s.Len
	}
	if cap(h.room) < n {
		h.room = make([]byte, n+n/2)
	}
	b := h.room[:n]
	if g, ok := mem.(gatherer); ok {
		if !g.Gather(h.spans, b) {
			return nil
		}
		return b
	}
	at := 0
	for _, s := range h.spans {
		if got, _ := mem.ReadAt(b[at:at+s.Len], int64(s.Addr)); got != s.Len {
			return nil
		}
		at += s.Len
	}
	return b
}

// bytes is the code of b, nil if it cannot be read, or enough was looked at for this walk.
func (b *blob) bytes(h *hotspot) []byte {
	if n := b.end - b.begin; b.code == nil && n <= maxBlobCode && h.used.take(int(n)) {
		b.code = read(h.mem, b.begin, int(n))
	}
	return b.code
}

// codelet is a piece of the interpreter.
type codelet struct {
	start, end uint64
	text       string
}

// entry tells whether methods begin there; 25 has a name of its own for native ones.
func (c codelet) entry() bool {
	return strings.HasPrefix(c.text, "method entry point") || strings.HasPrefix(c.text, "native method entry point")
}

// codelets are those of the interpreter, in their order.
type codelets struct {
	of   *blob
	list []codelet
}

// codelet is the piece of the interpreter that pc is in.
func (h *hotspot) codelet(b *blob, pc uint64) codelet {
	q := &h.queue
	if q.of != b {
		q.of, q.list = b, readCodelets(h)
	}
	i, _ := slices.BinarySearchFunc(q.list, pc, func(c codelet, pc uint64) int {
		if c.end <= pc {
			return -1
		}
		return 1
	})
	if i < len(q.list) && q.list[i].start <= pc {
		return q.list[i]
	}
	return codelet{}
}

// readCodelets reads the queue of them.
func readCodelets(h *hotspot) (list []codelet) {
	l := &h.lay
	b := read(h.mem, l.queue.at, 8)
	if b == nil {
		return nil
	}
	q := read(h.mem, word(b, 0), l.queue.bytes)
	if q == nil {
		return nil
	}
	buffer := word(q, l.queue.buffer)
	at, end := buffer+uint64(word32(q, l.queue.begin)), buffer+uint64(word32(q, l.queue.end))
	for at < end && len(list) < maxCodelets {
		c := read(h.mem, at, l.queue.codeletBytes)
		if c == nil {
			break
		}
		size := uint64(word32(c, l.queue.codeletSize))
		if size == 0 || size > end-at {
			break
		}
		list = append(list, codelet{at, at + size, h.text(word(c, l.queue.codeletText))})
		at += size
	}
	return list
}

var _ Managed = (*hotspot)(nil)
var _ unwind.Runtime = (*hotspot)(nil)
