package runtimes

import (
	"bytes"
	"hash/fnv"
	"io"
	"slices"
	"strings"

	"sfsample/unwind"
)

// unknownLine stands for an instruction that is not known, or that there is not.
const unknownLine = 1 << 33

// hotspotPlace is a method and an instruction in it.
type hotspotPlace struct {
	method uint64
	at     uint64 // index of the bytecode, or unknownLine
}

// Identify implements Managed.
func (h *hotspot) Identify(owned []unwind.Owned, mem Memory, st *Stack) {
	st.Reset()
	h.used.left = maxBlobWork
	for i := range owned {
		o := &owned[i]
		n := len(st.Frames)
		h.identify(o, mem, st)
		if n = len(st.Frames) - n; n > 0 {
			st.Segments = append(st.Segments, Segment{N: n, Native: o.Frame})
		}
	}
}

func (h *hotspot) identify(o *unwind.Owned, mem Memory, st *Stack) {
	pc := o.Set.PC
	if !o.Top {
		pc--
	}
	b := h.find(pc)
	if b == nil || !h.found.dropped.was(b.since) {
		return
	}
	sp := o.Set.R[regRSP]
	add := func(method, at uint64) { st.Frames = append(st.Frames, Frame{Addr: sp, Code: method, At: at}) }
	switch b.kind {
	case interpreterBlob:
		if method, at, ok := h.interpretedAt(o, b, mem); ok {
			add(method, at)
			return
		}
		name := "Interpreter"
		if c := h.codelet(b, o.Set.PC); strings.HasPrefix(c.text, "deoptimization entry") {
			name = "[being deoptimised]"
		}
		h.addStub(st, sp, name)
	case nativeBlob:
		if h.methodAt(b.m.method) != nil {
			add(b.m.method, unknownLine)
		}
	case compiledBlob:
		ra := o.Set.PC
		if ra == b.m.deopt {
			if v, ok := mem.Word(sp + b.m.origPC); ok && v > b.begin && v <= b.end {
				ra = v
			} else {
				ra = b.begin
			}
		}
		for _, p := range h.inlined(b, ra-b.begin) {
			add(p.method, p.at)
		}
	case continuationBlob:
		if code := b.bytes(h); o.Top || code == nil || !bytes.HasPrefix(code[o.Set.PC-b.begin:], loadEntry) {
			h.addStub(st, sp, b.label)
			return
		}
		if h.addStub(st, sp, inHeap); special(h) != nil {
			add(special(h).m.method, unknownLine)
		}
	default:
		name := b.label
		if o.Set.PC == h.found.callStub {
			name = "call_stub"
		}
		if name != "" {
			h.addStub(st, sp, name)
		}
	}
}

// addStub appends a frame of the runtime's own code.
func (h *hotspot) addStub(st *Stack, sp uint64, name string) {
	for i, s := range h.stubs {
		if s == name {
			st.Frames = append(st.Frames, Frame{Addr: sp, Globals: uint64(i + 1)})
			return
		}
	}
	if len(h.stubs) < maxStubNames {
		h.stubs = append(h.stubs, name)
		st.Frames = append(st.Frames, Frame{Addr: sp, Globals: uint64(len(h.stubs))})
	}
}

// interpretedAt is the method of an interpreter's frame and its instruction. It is that of the frame only if the pointer to the instruction points into its
// bytecodes, or, of a native one, if its entry is the code that runs.
func (h *hotspot) interpretedAt(o *unwind.Owned, b *blob, mem Memory) (method, at uint64, ok bool) {
	c := h.codelet(b, o.Set.PC)
	fp, known := o.Set.Reg(regRBP)
	entry := c.entry()
	code := b.bytes(h)
	sp := o.Set.R[regRSP]
	if o.Top && entry && (!c.built(code, b, o.Set.PC) || known && fp+slotMethod&(1<<64-1) < sp) {
		m, ok := o.Set.Reg(regRBX) // its frame does not hold it yet
		if !ok || !h.enters(m, c) {
			return 0, 0, false
		}
		return m, 0, true
	}
	if o.Top && (code == nil || leftAt(code, int(o.Set.PC-b.begin)) != notLeft) {
		return 0, 0, false // the frame pointer is the caller's already
	}
	if !known || fp < sp {
		return 0, 0, false
	}
	m, ok := mem.Word(fp + slotMethod&(1<<64-1))
	if !ok {
		return 0, 0, false
	}
	x := h.methodAt(m)
	if x == nil {
		return 0, 0, false
	}
	if x.codeBytes == 0 {
		return m, unknownLine, entry && h.enters(m, c)
	}
	slot, _ := mem.Word(fp + slotBCP&(1<<64-1))
	if r13, ok := o.Set.Reg(regR13); ok && x.holds(r13) {
		return m, r13 - x.codes, true
	}
	if x.holds(slot) && fp+slotBCP&(1<<64-1) >= sp {
		at := slot - x.codes
		if o.Top {
			at = unknownLine // it is in r13, which is not known or in use
		}
		return m, at, true
	}
	return 0, 0, false
}

// built tells whether the entry in c, in the code of b, has built its frame before pc.
func (c codelet) built(code []byte, b *blob, pc uint64) bool {
	if code == nil || c.start < b.begin || c.end > b.end {
		return false
	}
	at := bytes.Index(code[c.start-b.begin:c.end-b.begin], frameBuilt)
	return at >= 0 && pc-c.start > uint64(at+len(frameBuilt))
}

// enters tells whether the entry of a method is in codelet c.
func (h *hotspot) enters(m uint64, c codelet) bool {
	x := h.methodAt(m)
	return x != nil && x.entry-c.start < c.end-c.start
}

// hotspotMethod is what is known of a method.
type hotspotMethod struct {
	key       Key
	entry     uint64
	codes     uint64 // where its bytecodes begin
	codeBytes uint64
	epoch     uint64 // of the walk in which it was confirmed
	since     uint64 // see [dropped.since]
	parts     []Span // what it was read from, in the order of methodParts
}

// What tells a method. When classes are unloaded others take their place, and those that a program makes by one pattern have the same at the same
// addresses: only their names differ.
const (
	partMethod = iota
	partConst
	partHolder // the words that lead to its class, and to the names of both
	partSlot
	partKlass
	partClass
	partName
	methodParts
)

func (m *hotspotMethod) holds(bcp uint64) bool { return bcp-m.codes < m.codeBytes }

// methodAt reads the method at addr, if that was not done in this walk; nil: there is none.
func (h *hotspot) methodAt(addr uint64) *hotspotMethod {
	m := h.methods[addr]
	if m != nil && m.epoch == h.epoch {
		return m
	}
	if m != nil {
		h.areas.spans = append(h.areas.spans[:0], m.parts...)
		if b := h.areas.read(h.mem); b == nil || !h.lay.confirm(m, b) {
			m = nil
		}
	}
	if m == nil {
		if m = h.lay.readMethod(h.mem, addr); m != nil {
			m.since = h.found.dropped.since(h.mem)
		}
	}
	if m == nil {
		delete(h.methods, addr)
		return nil
	}
	m.epoch = h.epoch
	if len(h.methods) >= maxMethods {
		clear(h.methods)
	}
	h.methods[addr] = m
	return m
}

// readMethod reads the method at addr, nil if there is none. If its names cannot be read its key has no hash.
func (l *hotspotLayout) readMethod(mem io.ReaderAt, addr uint64) *hotspotMethod {
	if addr&7 != 0 {
		return nil
	}
	m := &hotspotMethod{key: Key{Code: addr}}
	var b []byte
	part := func(at uint64, n int) []byte {
		x := read(mem, at, n)
		if x != nil {
			m.parts, b = append(m.parts, Span{at, n}), append(b, x...)
		}
		return x
	}
	x := part(addr, l.methodBytes())
	if x == nil {
		return nil
	}
	if x = part(word(x, l.names.methodConst), l.names.constBytes); x == nil {
		return nil
	}
	pool := word(x, l.names.constConstants)
	holder, slot := part(pool+uint64(l.names.poolHolder), 8), part(l.slot(pool, l.names.constName.in(x)), 8)
	if holder != nil && slot != nil {
		if klass := part(word(holder, 0)+uint64(l.names.klassName), 8); klass != nil {
			for _, symbol := range []uint64{word(klass, 0), word(slot, 0) &^ 1} {
				if x := read(mem, symbol, l.names.symbolLen+2); x != nil && symbol&7 == 0 {
					part(symbol, l.symbolBytes(x))
				}
			}
		}
	}
	if !l.confirm(m, b) {
		return nil
	}
	return m
}

func (l *hotspotLayout) methodBytes() int { return max(l.names.methodConst, l.names.methodEntry) + 8 }

// slot is where a pool has the entry with an index.
func (l *hotspotLayout) slot(pool, index uint64) uint64 {
	return pool + uint64(l.names.poolBytes) + 8*index
}

// symbolBytes is how much is read of a Symbol that begins with b.
func (l *hotspotLayout) symbolBytes(b []byte) int {
	return l.names.symbolBody + min(int(vmInt{l.names.symbolLen, 2}.in(b)), maxText)
}

// confirm makes m what its parts say, whose bytes are b, one behind the other. false: they do not lead to each other, or m was another method.
func (l *hotspotLayout) confirm(m *hotspotMethod, b []byte) bool {
	var part [methodParts][]byte
	for i, s := range m.parts {
		part[i], b = b[:s.Len], b[s.Len:]
	}
	at, c := m.parts[partConst].Addr, part[partConst]
	if word(part[partMethod], l.names.methodConst) != at {
		return false
	}
	pool, index := word(c, l.names.constConstants), l.names.constName.in(c)
	n := hotspotMethod{entry: word(part[partMethod], l.names.methodEntry), codes: at + uint64(l.names.constBytes), codeBytes: l.names.constCode.in(c)}
	n.key = Key{Code: m.key.Code, Globals: at, Name: pool, First: uint32(index), Count: uint32(n.codeBytes)}
	if uint32(l.names.constFlags.in(c))&l.names.constLines != 0 {
		n.key.Lines = n.codes + n.codeBytes
	}
	if len(m.parts) == methodParts {
		where := [...]uint64{pool + uint64(l.names.poolHolder), l.slot(pool, index), word(part[partHolder], 0) + uint64(l.names.klassName), word(part[partKlass], 0), word(part[partSlot], 0) &^ 1}
		for i, addr := range where {
			if m.parts[partHolder+i].Addr != addr {
				return false
			}
		}
		h := fnv.New64a()
		for _, symbol := range part[partClass:] {
			if len(symbol) != l.symbolBytes(symbol) {
				return false
			}
			h.Write(symbol[l.names.symbolLen:][:2])
			h.Write(symbol[l.names.symbolBody:])
		}
		n.key.Hash = h.Sum64()
	}
	if m.key.Globals != 0 && m.key != n.key {
		return false
	}
	m.key, m.entry, m.codes, m.codeBytes = n.key, n.entry, n.codes, n.codeBytes
	return true
}

// Key implements Runtime.
func (h *hotspot) Key(_ Memory, _ io.ReaderAt, f *Frame) (Key, bool) {
	if f.Globals != 0 {
		return Key{Version: 1, Count: uint32(f.Globals)}, true
	}
	m := h.methodAt(f.Code)
	if m == nil || !h.found.dropped.was(m.since) {
		return Key{}, false
	}
	return m.key, true
}

// Function implements Runtime.
func (h *hotspot) Function(mem io.ReaderAt, f *Frame, k Key) (*Function, bool) {
	if k.Version == 1 {
		if i := int(k.Count) - 1; i >= 0 && i < len(h.stubs) {
			return &Function{Name: h.stubs[i], Stub: true}, true
		}
		return nil, false
	}
	l := &h.lay
	m := l.readMethod(mem, f.Code)
	if m == nil || m.key != k || len(m.parts) < methodParts {
		return nil, false
	}
	pool := read(mem, k.Name, l.names.poolBytes)
	if pool == nil {
		return nil, false
	}
	class, name := l.symbol(mem, m.parts[partClass].Addr), l.symbol(mem, m.parts[partName].Addr)
	if class == "" || name == "" {
		return nil, false
	}
	fn := &Function{Name: className(class) + "." + name}
	index := l.names.poolFile.in(pool)
	if l.names.klassFile.bytes > 0 {
		index = l.names.klassFile.in(read(mem, word(pool, l.names.poolHolder), l.names.klassFile.at+l.names.klassFile.bytes))
	}
	if index > 0 {
		if b := read(mem, l.slot(k.Name, index), 8); b != nil {
			fn.File = l.symbol(mem, word(b, 0)&^1)
		}
	}
	if k.Lines != 0 {
		fn.lines = l.lines(mem, k.Lines)
	}
	again := l.readMethod(mem, f.Code)
	return fn, again != nil && again.key == k
}

// className is the name of a class as Java writes it. What makes the name of a hidden one unique is an address, and left out.
func className(s string) string {
	if i := strings.IndexByte(s, '+'); i > 0 {
		s = s[:i]
	}
	if i := strings.Index(s, "/0x"); i > 0 {
		s = s[:i]
	}
	return strings.ReplaceAll(s, "/", ".")
}

// symbol is the text of a Symbol, in Java's form of UTF-8; "" if that is none: when a class is dropped its symbols' memory is soon another's, while
// its methods can still be read.
func (l *hotspotLayout) symbol(mem io.ReaderAt, addr uint64) string {
	if addr&7 != 0 {
		return ""
	}
	b := read(mem, addr, max(l.names.symbolLen+2, l.names.symbolBody))
	if b == nil {
		return ""
	}
	n := int(vmInt{l.names.symbolLen, 2}.in(b))
	text := read(mem, addr+uint64(l.names.symbolBody), min(n, maxText))
	if slices.ContainsFunc(text, func(c byte) bool { return c == 0 || c >= 0xf0 }) { // The Java Virtual Machine Specification, section 4.4.7
		return ""
	}
	return modifiedUTF8(text)
}

// modifiedUTF8 decodes class files' form of UTF-8: 0 is c0 80, and characters beyond the first 65,536 are two surrogates of three
// bytes each (The Java Virtual Machine Specification, section 4.4.7). What is none is replaced.
func modifiedUTF8(b []byte) string {
	var s strings.Builder
	three := func(i int) rune {
		if i+2 < len(b) && b[i]>>4 == 0xe && b[i+1]>>6 == 2 && b[i+2]>>6 == 2 {
			return rune(b[i]&15)<<12 | rune(b[i+1]&63)<<6 | rune(b[i+2]&63)
		}
		return -1
	}
	for i := 0; i < len(b); {
		c := b[i]
		switch {
		case c < 0x80:
			s.WriteByte(c)
			i++
		case c>>5 == 6 && i+1 < len(b) && b[i+1]>>6 == 2:
			s.WriteRune(rune(c&31)<<6 | rune(b[i+1]&63))
			i += 2
		case three(i) >= 0:
			r := three(i)
			i += 3
			if low := three(i); r>>10 == 0xd800>>10 && low>>10 == 0xdc00>>10 {
				r = (r-0xd800)<<10 + low - 0xdc00 + 0x10000
				i += 3
			}
			s.WriteRune(r) // half a pair becomes a replacement character
		default:
			s.WriteRune('\uFFFD')
			i++
		}
	}
	return s.String()
}

// javaLines are the lines of a method, in the order of their bytecodes.
type javaLines []javaLine

type javaLine struct{ at, line int }

func (l javaLines) line(at uint64, _ int) int {
	if at >= unknownLine {
		return 0
	}
	best, line := -1, 0
	for _, x := range l { // not sorted by javac always
		if x.at <= int(at) && x.at > best {
			best, line = x.at, x.line
		}
	}
	return line
}

// maxLines bounds the bytes of a table of lines.
const maxLineBytes = 64 << 10

// lines reads the compressed table at addr: share/code/compressedStream.cpp, CompressedLineNumberReadStream. nil: it cannot be read.
func (l *hotspotLayout) lines(mem io.ReaderAt, addr uint64) lineTable {
	var b []byte
	for n := 256; ; n *= 4 {
		more := read(mem, addr, n)
		if more == nil && n > 256 {
			return nil
		}
		if more == nil {
			if more = read(mem, addr, int(4096-addr%4096)); more == nil {
				return nil
			}
		}
		b = more
		if list, ok := l.decodeLines(b); ok {
			return list
		}
		if n >= maxLineBytes || len(b) < n {
			return nil
		}
	}
}

// decodeLines: ok is false if the table goes on behind b.
func (l *hotspotLayout) decodeLines(b []byte) (list javaLines, ok bool) {
	bci, line := 0, 0
	for i := 0; i < len(b); {
		c := b[i]
		i++
		switch c {
		case 0:
			return list, true
		case 0xff:
			var v [2]int
			for j := range v {
				u, n := l.unsigned5(b[min(i, len(b)):])
				if n == 0 {
					return nil, false
				}
				i += n
				v[j] = int(int32(u>>1) ^ -int32(u&1))
			}
			bci, line = bci+v[0], line+v[1]
		default:
			bci, line = bci+int(c>>3), line+int(c&7)
		}
		list = append(list, javaLine{bci, line})
	}
	return nil, false
}

// unsigned5 reads a number (share/utilities/unsigned5.hpp): up to five digits to the base of 64, the last or a low one below 192; since 20 no
// byte is 0. n is how many bytes it has, 0 if it is none.
func (l *hotspotLayout) unsigned5(b []byte) (v uint32, n int) {
	excluded := uint32(0)
	if l.major >= 20 {
		excluded = 1
	}
	for i := 0; i < 5 && i < len(b); i++ {
		c := uint32(b[i])
		if c < excluded {
			return 0, 0
		}
		v += (c - excluded) << (6 * i)
		if c < 192 || i == 4 {
			return v, i + 1
		}
	}
	return 0, 0
}

// debugInfo is what a compiled method tells of its instructions.
type debugInfo struct {
	pcs    []pcDesc
	scopes []byte
	meta   []byte
	chains map[int][]hotspotPlace // by index in pcs
	held   int                    // bytes, about
}

type pcDesc struct{ at, scope int32 }

// inlined is the methods that are at a distance in the code of b, innermost first. Where that is not a place of which the compiler has
// told, only those are that the places before and behind it share, and where in them is not known.
func (h *hotspot) inlined(b *blob, at uint64) []hotspotPlace {
	outer := []hotspotPlace{{b.m.method, unknownLine}}
	if h.methodAt(b.m.method) == nil {
		return nil
	}
	d := h.debugOf(b)
	if d == nil {
		return outer
	}
	i := 0
	for i < len(d.pcs) && int64(d.pcs[i].at) < int64(at) {
		i++
	}
	if i == len(d.pcs) {
		return outer
	}
	here := d.chain(&h.lay, b.m.method, i)
	switch {
	case here == nil:
		return outer
	case int64(d.pcs[i].at) == int64(at):
		return here
	case i == 0:
		return outer
	}
	before := d.chain(&h.lay, b.m.method, i-1)
	var both []hotspotPlace
	for n := 1; n <= len(here) && n <= len(before); n++ {
		x, y := here[len(here)-n], before[len(before)-n]
		if x.method != y.method {
			break
		}
		same := x.at == y.at
		if !same {
			x.at = unknownLine
		}
		both = append([]hotspotPlace{x}, both...)
		if !same {
			break // the callers of what follows differ
		}
	}
	if len(both) == 0 {
		return outer
	}
	both[0].at = unknownLine
	return both
}

// debugOf reads what b tells of its instructions, once.
func (h *hotspot) debugOf(b *blob) *debugInfo {
	if b.debug != nil {
		return b.debug
	}
	l := &h.lay
	size := func(a area) int {
		if a.to <= a.from || a.to-a.from > maxDebugInfo {
			return 0
		}
		return int(a.to - a.from)
	}
	n := size(b.m.pcs) + size(b.m.scopes) + size(b.m.metadata)
	if !h.used.take(n) {
		return nil
	}
	pcs := read(h.mem, b.m.pcs.from, size(b.m.pcs))
	d := &debugInfo{scopes: read(h.mem, b.m.scopes.from, size(b.m.scopes)), meta: read(h.mem, b.m.metadata.from, size(b.m.metadata)), chains: map[int][]hotspotPlace{}, held: n}
	if now, ok := h.lay.head(h.mem, b.addr); !ok || now != b.blobHead || pcs == nil || d.scopes == nil || d.meta == nil {
		return nil
	}
	for i := 0; i+l.debug.pcBytes <= len(pcs); i += l.debug.pcBytes {
		p := pcDesc{int32(word32(pcs, i+l.debug.pcOffset)), int32(word32(pcs, i+l.debug.pcScope))}
		if p.at >= 0 && int64(p.at) <= int64(b.end-b.begin) { // the first and the last are bounds
			d.pcs = append(d.pcs, p)
		}
	}
	b.debug = d
	return d
}

// chain is the methods at the place of index i, innermost first; nil: it is not told, or does not end in outermost.
func (d *debugInfo) chain(l *hotspotLayout, outermost uint64, i int) []hotspotPlace {
	if c, ok := d.chains[i]; ok {
		return c
	}
	var list []hotspotPlace
	at := uint32(d.pcs[i].scope)
	for range maxInlined {
		if at == 0 || at >= uint32(len(d.scopes)) {
			list = nil
			break
		}
		var v [3]uint32 // sender's scope, method, bci+1
		rest := d.scopes[at:]
		for j := range v {
			u, n := l.unsigned5(rest)
			if n == 0 {
				rest = nil
				break
			}
			v[j], rest = u, rest[n:]
		}
		if rest == nil || v[1] == 0 || 8*int64(v[1]) > int64(len(d.meta)) {
			list = nil
			break
		}
		p := hotspotPlace{word(d.meta, 8*int(v[1]-1)), uint64(v[2]) - 1}
		if v[2] == 0 {
			p.at = 0 // it is being entered
		}
		list = append(list, p)
		if v[0] == 0 {
			break
		}
		if at = v[0]; len(list) == maxInlined {
			list = nil
		}
	}
	if len(list) > 0 && list[len(list)-1].method != outermost {
		list = nil
	}
	d.chains[i] = list
	d.held += 64 + 16*cap(list)
	return list
}
