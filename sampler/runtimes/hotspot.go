package runtimes

import (
	"debug/elf"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// hotspot is a HotSpot on x86-64, by its vmStructs. What these do not tell is as in 17 to 25: the slots of an interpreter's frame
// (cpu/x86/frame_x86.hpp), how scopes are written (share/code/debugInfo.hpp, share/utilities/unsigned5.hpp), the code of its prologues and
// epilogues.
type hotspot struct {
	mem     io.ReaderAt
	version string
	hotspotLayout

	heaps   []codeHeap
	epoch   uint64 // of the walk under way
	blobs   map[uint64]*blob
	byPC    map[uint64]*blob
	used    []*blob // by the walk under way
	names   map[uint64]string
	stubs   []string // names, by what a Frame has in Globals
	methods map[uint64]*hotspotMethod
	code    []codelet // of the interpreter
	codeOf  *blob

	callStub uint64 // return address of what Java's outermost frame was called by
	spans    []Span
	room     []byte
}

// hotspotLayout is where fields are.
type hotspotLayout struct {
	major int

	heaps, callStubAt, codeletsAt uint64 // addresses
	listLen, listData             int
	heapMemory, heapSegmap, log2  int
	low, high, lowEnd, highEnd    int // of a VirtualSpace
	blockBytes                    int
	blockUsed                     int

	blobBytes                        int // to read of a blob's header
	name, frameSize, frameComplete   vmInt
	size                             vmInt
	codeBegin, codeEnd               vmInt
	relative                         bool // codeBegin and codeEnd are distances
	method, compileID                vmInt
	entry, deopt                     vmInt
	immutable, immutableSize         vmInt
	pcs, pcsEnd, scopes, scopesEnd   vmInt
	metadata, metadataEnd            vmInt
	mutable, mutableSize, relocation vmInt
	origPC                           vmInt
	detached                         bool // the metadata is not with the code, as since 23

	pcBytes, pcOffset, pcScope               int
	queueBuffer, queueBegin, queueEnd, queue int
	codeletBytes, codeletSize, codeletText   int

	methodConst, methodEntry int
	constConstants           int
	constName, constCode     vmInt
	constBytes               int
	constFlags               vmInt
	constLines               uint32 // flag: it has a table of lines
	poolHolder, poolBytes    int
	poolFile                 vmInt
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
	maxBlobs     = 1 << 14
	maxBlobBytes = 1 << 10 // of a header
	maxBlobCode  = 4 << 20
	maxDebugInfo = 1 << 20 // of one method, in bytes
	maxCodelets  = 2048
	maxMethods   = 1 << 15
	maxInlined   = 64
	maxStubNames = 1024
	maxHops      = 4096
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
			h.major = int(int32(word32(b, 0)))
		}
	}
	h.version = strings.Join(part[:], ".")
	h.layout(v)
	if v.missing != "" {
		return nil, fmt.Errorf("HotSpot %s does not tell %s, Java frames are not shown", h.version, v.missing)
	}
	return h, nil
}

// layout takes from v where everything is.
func (h *hotspot) layout(v *vmStructs) {
	l := &h.hotspotLayout
	l.heaps, l.callStubAt, l.codeletsAt = v.static("CodeCache::_heaps"), v.static("StubRoutines::_call_stub_return_address"), v.static("AbstractInterpreter::_code")
	l.listLen, l.listData = v.field("GrowableArrayBase::_len", "GenericGrowableArray::_len"), v.field("GrowableArray<int>::_data")
	l.heapMemory, l.heapSegmap, l.log2 = v.field("CodeHeap::_memory"), v.field("CodeHeap::_segmap"), v.field("CodeHeap::_log2_segment_size")
	l.low, l.high = v.field("VirtualSpace::_low_boundary"), v.field("VirtualSpace::_high_boundary")
	l.lowEnd, l.highEnd = v.field("VirtualSpace::_low"), v.field("VirtualSpace::_high")
	l.blockBytes, l.blockUsed = v.size("HeapBlock"), v.field("HeapBlock::Header::_used")

	l.blobBytes = min(max(v.size("nmethod"), v.size("CodeBlob")), maxBlobBytes)
	l.name, l.frameSize, l.frameComplete, l.size = v.num("CodeBlob::_name"), v.num("CodeBlob::_frame_size"), v.num("CodeBlob::_frame_complete_offset"), v.num("CodeBlob::_size")
	if l.relative = !v.has("CodeBlob::_code_begin"); l.relative {
		l.codeBegin, l.codeEnd = v.num("CodeBlob::_code_offset"), v.num("CodeBlob::_data_offset")
	} else {
		l.codeBegin, l.codeEnd = v.num("CodeBlob::_code_begin"), v.num("CodeBlob::_code_end")
	}
	l.method, l.compileID = v.num("CompiledMethod::_method", "nmethod::_method"), v.num("nmethod::_compile_id")
	l.entry = v.num("nmethod::_verified_entry_point", "nmethod::_verified_entry_offset")
	l.deopt = v.num("CompiledMethod::_deopt_handler_begin", "nmethod::_deopt_handler_offset")
	l.origPC = v.num("nmethod::_orig_pc_offset")
	l.pcs = v.num("nmethod::_scopes_pcs_offset")
	if l.detached = v.has("nmethod::_immutable_data"); l.detached {
		l.immutable, l.immutableSize = v.num("nmethod::_immutable_data"), v.num("nmethod::_immutable_data_size")
		l.scopes = v.num("nmethod::_scopes_data_offset")
		l.mutable, l.mutableSize, l.relocation = v.num("CodeBlob::_mutable_data"), v.num("CodeBlob::_mutable_data_size"), v.num("CodeBlob::_relocation_size")
	} else {
		l.pcsEnd, l.scopes = v.num("nmethod::_dependencies_offset"), v.num("CompiledMethod::_scopes_data_begin")
		l.metadata = v.num("nmethod::_metadata_offset")
	}
	l.pcBytes, l.pcOffset, l.pcScope = v.size("PcDesc"), v.field("PcDesc::_pc_offset"), v.field("PcDesc::_scope_decode_offset")
	l.queueBuffer, l.queueBegin, l.queueEnd, l.queue = v.field("StubQueue::_stub_buffer"), v.field("StubQueue::_queue_begin"), v.field("StubQueue::_queue_end"), v.size("StubQueue")
	l.codeletBytes, l.codeletSize, l.codeletText = v.size("InterpreterCodelet"), v.field("InterpreterCodelet::_size"), v.field("InterpreterCodelet::_description")

	l.methodConst, l.methodEntry = v.field("Method::_constMethod"), v.field("Method::_i2i_entry")
	l.constConstants, l.constName, l.constCode = v.field("ConstMethod::_constants"), v.num("ConstMethod::_name_index"), v.num("ConstMethod::_code_size")
	l.constBytes = v.size("ConstMethod")
	l.constFlags, l.constLines = v.num("ConstMethod::_flags", "ConstMethod::_flags._flags"), v.number("ConstMethod::_has_linenumber_table", "ConstMethodFlags::_misc_has_linenumber_table")
	l.poolHolder, l.poolBytes = v.field("ConstantPool::_pool_holder"), v.size("ConstantPool")
	l.poolFile = v.num("ConstantPool::_source_file_name_index")
	l.klassName = v.field("Klass::_name")
	l.symbolLen, l.symbolBody = v.field("Symbol::_length"), v.field("Symbol::_body")
}

func (h *hotspot) Name() string    { return "java" }
func (h *hotspot) Version() string { return h.version }

// Roots implements Runtime: the native stack is all there is.
func (h *hotspot) Roots(io.ReaderAt, Thread) []taking.Root { return nil }

// Recipe implements Runtime.
func (h *hotspot) Recipe([]taking.Root, *Stack) *taking.Recipe { return nil }

// codeHeap is a part of the code cache, which stays where it is.
type codeHeap struct {
	low, high uint64
	segmap    uint64
	log2      uint
}

// blob is a piece of code with what describes it.
type blob struct {
	blobHead
	kind  blobKind
	label string
	code  []byte // if it was read
	epoch uint64 // of the walk that it was used in
	debug *debugInfo
}

// blobHead is what tells a blob from all others that were ever in its place.
type blobHead struct {
	addr                     uint64 // of the CodeBlob
	begin, end               uint64 // of its code
	frame                    uint64 // bytes of its frames, return address included; 0: they differ
	complete                 uint64 // distance from begin at which the frame stands
	name                     uint64
	method, entry, deopt     uint64
	id, origPC               uint64
	pcs, pcsEnd              uint64
	scopes, scopesEnd        uint64
	metadata, metadataEnd    uint64
	immutable, immutableSize uint64
}

type blobKind uint8

const (
	otherBlob blobKind = iota
	compiledBlob
	nativeBlob
	interpreterBlob
	adapterBlob
	framelessBlob // it never has a frame
)

// Begin implements Managed.
func (h *hotspot) Begin() (changed bool) {
	h.epoch++
	h.used = h.used[:0]
	if len(h.heaps) > 0 {
		return false
	}
	h.findHeaps()
	return len(h.heaps) > 0
}

// findHeaps reads where the code cache is, once it is made.
func (h *hotspot) findHeaps() {
	l := &h.hotspotLayout
	b := read(h.mem, l.heaps, 8)
	if b == nil {
		return
	}
	list := word(b, 0)
	head := read(h.mem, list, max(l.listLen+4, l.listData+8))
	stub := read(h.mem, l.callStubAt, 8)
	if head == nil || stub == nil || word(stub, 0) == 0 {
		return
	}
	n := word32(head, l.listLen)
	at := read(h.mem, word(head, l.listData), 8*int(min(n, maxHeaps)))
	var heaps []codeHeap
	for i := 0; i < len(at); i += 8 {
		size := max(l.heapMemory, l.heapSegmap) + max(l.high, l.highEnd, l.low, l.lowEnd) + 8
		x := read(h.mem, word(at, i), max(size, l.log2+4))
		if x == nil {
			return
		}
		c := codeHeap{low: word(x, l.heapMemory+l.low), high: word(x, l.heapMemory+l.high), segmap: word(x, l.heapSegmap+l.lowEnd), log2: uint(word32(x, l.log2))}
		if c.low >= c.high || c.high > 1<<62 || c.high-c.low > 1<<40 || c.log2 < 4 || c.log2 > 20 || c.segmap == 0 {
			return
		}
		heaps = append(heaps, c)
	}
	h.callStub, h.heaps = word(stub, 0), heaps
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
		h.used = append(h.used, b)
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
	addr := c.low + (from+uint64(at))<<c.log2 + uint64(h.blockBytes)
	head, ok := h.head(addr)
	if !ok || pc < head.begin || pc >= head.end {
		return nil
	}
	if b := h.blobs[addr]; b != nil && b.blobHead == head {
		return b
	}
	b := &blob{blobHead: head, label: h.text(head.name)}
	b.kind = kindOf(b.label)
	switch {
	case b.kind != compiledBlob && b.kind != nativeBlob:
		b.blobHead = b.plain()
	case b.entry < b.begin || b.entry >= b.end:
		return nil
	}
	if len(h.blobs) >= maxBlobs {
		clear(h.blobs)
		clear(h.byPC)
	}
	h.blobs[addr] = b
	return b
}

// plain is h of a blob that is no method.
func (h blobHead) plain() blobHead {
	return blobHead{addr: h.addr, begin: h.begin, end: h.end, frame: h.frame, complete: h.complete, name: h.name}
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
	}
	return otherBlob
}

// head reads the header of the blob at addr, with that of the block before it.
func (h *hotspot) head(addr uint64) (blobHead, bool) {
	b := read(h.mem, addr-uint64(h.blockBytes), h.blockBytes+h.blobBytes)
	if b == nil {
		return blobHead{}, false
	}
	return h.parse(addr, b)
}

func (h *hotspot) parse(addr uint64, b []byte) (blobHead, bool) {
	l := &h.hotspotLayout
	if b[l.blockUsed] != 1 {
		return blobHead{}, false
	}
	b = b[l.blockBytes:]
	x := blobHead{addr: addr, begin: l.codeBegin.in(b), end: l.codeEnd.in(b), frame: 8 * uint64(uint32(l.frameSize.in(b))), name: l.name.in(b)}
	x.complete = l.frameComplete.in(b)
	if l.relative {
		x.begin, x.end = addr+x.begin, addr+x.end
	}
	size := l.size.in(b)
	if x.begin < addr || x.end <= x.begin || x.end > addr+size || size > 1<<30 || x.frame > 1<<20 {
		return blobHead{}, false
	}
	x.method, x.id, x.origPC = l.method.in(b), l.compileID.in(b), l.origPC.in(b)
	if x.entry = l.entry.in(b); l.entry.bytes != 8 {
		x.entry += x.begin // distances are from where the code begins
	}
	if x.deopt = l.deopt.in(b); l.deopt.bytes != 8 {
		x.deopt += addr
	}
	if l.detached {
		im, imSize := l.immutable.in(b), l.immutableSize.in(b)
		x.pcs, x.scopes, x.scopesEnd = im+l.pcs.in(b), im+l.scopes.in(b), im+imSize
		x.pcsEnd = x.scopes
		x.metadata, x.metadataEnd = l.mutable.in(b)+l.relocation.in(b), l.mutable.in(b)+l.mutableSize.in(b)
	} else {
		x.pcs, x.pcsEnd = addr+l.pcs.in(b), addr+l.pcsEnd.in(b)
		x.scopes, x.scopesEnd = l.scopes.in(b), x.pcs
		x.metadata, x.metadataEnd = addr+l.metadata.in(b), x.scopes
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
	size := h.blockBytes + h.blobBytes
	h.spans = h.spans[:0]
	for _, b := range h.used {
		h.spans = append(h.spans, Span{b.addr - uint64(h.blockBytes), size})
	}
	same := true
	room := h.gather()
	for i, b := range h.used {
		var now blobHead
		ok := room != nil
		if ok {
			now, ok = h.parse(b.addr, room[i*size:][:size])
		}
		if b.kind != compiledBlob && b.kind != nativeBlob {
			now = now.plain()
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

// gather reads h.spans, one behind the other; nil: not all can be read.
func (h *hotspot) gather() []byte {
	n := 0
	for _, s := range h.spans {
		n += s.Len
	}
	if cap(h.room) < n {
		h.room = make([]byte, n+n/2)
	}
	b := h.room[:n]
	if g, ok := h.mem.(gatherer); ok {
		if !g.Gather(h.spans, b) {
			return nil
		}
		return b
	}
	at := 0
	for _, s := range h.spans {
		if got, _ := h.mem.ReadAt(b[at:at+s.Len], int64(s.Addr)); got != s.Len {
			return nil
		}
		at += s.Len
	}
	return b
}

// bytes is the code of b, nil if it cannot be read.
func (h *hotspot) bytes(b *blob) []byte {
	if n := b.end - b.begin; b.code == nil && n <= maxBlobCode {
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

// codelet is the piece of the interpreter that pc is in.
func (h *hotspot) codelet(b *blob, pc uint64) codelet {
	if h.codeOf != b {
		h.codeOf, h.code = b, h.codelets()
	}
	i, _ := slices.BinarySearchFunc(h.code, pc, func(c codelet, pc uint64) int {
		if c.end <= pc {
			return -1
		}
		return 1
	})
	if i < len(h.code) && h.code[i].start <= pc {
		return h.code[i]
	}
	return codelet{}
}

// codelets reads the queue of them.
func (h *hotspot) codelets() (list []codelet) {
	l := &h.hotspotLayout
	b := read(h.mem, l.codeletsAt, 8)
	if b == nil {
		return nil
	}
	q := read(h.mem, word(b, 0), l.queue)
	if q == nil {
		return nil
	}
	buffer := word(q, l.queueBuffer)
	at, end := buffer+uint64(word32(q, l.queueBegin)), buffer+uint64(word32(q, l.queueEnd))
	for at < end && len(list) < maxCodelets {
		c := read(h.mem, at, l.codeletBytes)
		if c == nil {
			break
		}
		size := uint64(word32(c, l.codeletSize))
		if size == 0 || size > end-at {
			break
		}
		list = append(list, codelet{at, at + size, h.text(word(c, l.codeletText))})
		at += size
	}
	return list
}

var _ Managed = (*hotspot)(nil)
var _ unwind.Runtime = (*hotspot)(nil)
