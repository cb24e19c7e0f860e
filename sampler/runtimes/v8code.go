package runtimes

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"unicode/utf16"

	"sfsample/regs"
	"sfsample/unwind"
)

// v8Code is generated code of one function, as its Code object describes it.
type v8Code struct {
	start, end, addr uint64 // of its instructions, and of the Code
	head             []byte // of the Code, by which it is known again
	seen             uint64 // epoch in which it was read last
	kind             uint32
	frame            uint64            // where its frame is there: behind push rbp; mov rbp,rsp; 0: not known
	positions        []byte            // table of source positions
	returns          map[uint64]uint64 // positions of calls by the offset of what they return to, where they stand
	exits            uint64            // where exits to less optimised code begin; 0: none
	shared, number   uint64            // address of its SharedFunctionInfo, 0: not known; and the function's number
	inlined          []v8Site          // by number
	bytecodes        uint64            // of baseline code, pointer to its BytecodeArray
}

// v8Site is a function that was inlined: where it was called, its SharedFunctionInfo and its number.
type v8Site struct{ position, shared, number uint64 }

// bytes is about what c takes.
func (c *v8Code) bytes() int {
	return 256 + len(c.positions) + 24*len(c.inlined) + 48*len(c.returns)
}

// entered tells whether the frame of the code is complete at pc.
func (c *v8Code) entered(pc uint64) bool { return c.frame == 0 || pc >= c.frame }

func (v *v8Codes) optimised(c *v8Code) bool { return c.kind > v.heap.types.baseline }

// codeAt is the code that holds pc, nil if none is known.
func (v *v8Codes) codeAt(pc uint64) *v8Code {
	i, _ := slices.BinarySearchFunc(v.list, pc, func(c *v8Code, pc uint64) int { return cmp.Compare(c.start, pc+1) })
	if i > 0 {
		if c := v.list[i-1]; pc < c.end {
			if c.seen == v.epoch {
				return c
			}
			if v.same(c) {
				c.seen = v.epoch
				return c
			}
		}
	}
	return v.searchCode(pc)
}

// same tells whether c is the code still: other code that was put where it was may have all else in the same places too, but not the same positions.
func (v *v8Codes) same(c *v8Code) bool {
	b := v.heap.read(c.addr, v8CodeBytes)
	return b != nil && bytes.Equal(b, c.head) && (len(c.positions) == 0 || bytes.Equal(v.heap.read(word(b, v.layout.positions)-1+16, len(c.positions)), c.positions))
}

// searchCode looks backwards from pc for the object that holds it.
func (v *v8Codes) searchCode(pc uint64) *v8Code {
	const page = 4 << 10
	// An object begins some words before its instructions, which begin on a boundary of 16.
	end := pc &^ 7
	for back := 0; back < maxV8Back; back += page {
		from := (end - 8) &^ (page - 1)
		if generated, _ := v.origin(from); !generated {
			return nil
		}
		b := v.heap.read(from, int(end-from))
		if b == nil {
			return nil
		}
		for i := len(b) - 8; i >= 0; i -= 8 {
			w := word(b, i)
			if !v.streamMap(w) {
				continue
			}
			if c := v.openCode(from+uint64(i), pc); c != nil {
				return c
			}
			if next := from + uint64(i); v.covers(next, pc) {
				return nil
			}
		}
		end = from
	}
	return nil
}

// streamMap tells whether w is the map of what holds code.
func (v *v8Codes) streamMap(w uint64) bool {
	if !tagged(w) || w&7 != 1 {
		return false
	}
	is, ok := v.streams[w]
	if !ok {
		// Pages of maps begin with their own map... which all maps have: its type is not asked, only that of w.
		t, known := v.heap.instanceType(w)
		if !known {
			return false
		}
		is = t == v.heap.types.stream
		if len(v.streams) > 1<<16 {
			clear(v.streams)
		}
		v.streams[w] = is
	}
	return is
}

// covers tells whether the object at addr, whose map is that of what holds code, has pc.
func (v *v8Codes) covers(addr, pc uint64) bool {
	_, b := v.codeOf(addr)
	if b == nil {
		return false
	}
	start, end := v.bounds(addr, b)
	return start <= pc && pc < end
}

// codeOf is the Code of the object at addr that holds code.
func (v *v8Codes) codeOf(addr uint64) (code uint64, b []byte) {
	if v.layout.code != 0 {
		return addr, v.heap.read(addr, v8CodeBytes)
	}
	w := v.heap.read(addr, 16)
	if w == nil {
		return 0, nil
	}
	ptr := word(w, 8)
	b = v.heap.object(ptr, v8CodeBytes, v.heap.types.code)
	if b == nil || word(b, v.layout.stream)-1 != addr {
		return 0, nil
	}
	return ptr - 1, b
}

func (v *v8Codes) bounds(code uint64, b []byte) (start, end uint64) {
	size := word32(b, v.layout.size)
	if size == 0 || size > maxV8Code {
		return 0, 0
	}
	if start = code + uint64(v.layout.code); v.layout.code == 0 {
		start = word(b, v.layout.start)
	}
	return start, start + uint64(size)
}

// openCode reads the description of the code in the object at addr, nil if it does not hold pc.
func (v *v8Codes) openCode(addr, pc uint64) *v8Code {
	at, b := v.codeOf(addr)
	if b == nil {
		return nil
	}
	c := &v8Code{addr: at, head: b, seen: v.epoch, kind: word32(b, v.layout.flags) & 15}
	if c.start, c.end = v.bounds(at, b); pc < c.start || pc >= c.end {
		return nil
	}
	if code := v.heap.read(c.start, int(min(v8Prologue, c.end-c.start))); code != nil {
		if i := bytes.Index(code, v8Entry); i >= 0 {
			c.frame = c.start + uint64(i+len(v8Entry))
		}
	}
	switch {
	case c.kind == v.heap.types.baseline:
		c.bytecodes, c.positions = word(b, v.layout.deopt), v.heap.byteArray(word(b, v.layout.positions))
		if !v.heap.isBytecodes(c.bytecodes) { // InterpreterData, which leads to it
			if d := v.heap.read(c.bytecodes-1, 16); d != nil && tagged(c.bytecodes) {
				c.bytecodes = word(d, 8)
			}
		}
	case v.optimised(c):
		c.positions = v.heap.byteArray(word(b, v.layout.positions))
		v.readInlined(c, word(b, v.layout.deopt))
		if v.layout.exitOffset > 0 {
			c.returns = v.readReturns(c, word(b, v.layout.stream))
		}
	}
	// It is what was read only if it is the same code still.
	if again := v.heap.read(at, v8CodeBytes); again == nil || !bytes.Equal(again, b) {
		return nil
	}
	v.keep(c)
	return c
}

// keep adds c to the codes that are known, in the place of what was there.
func (v *v8Codes) keep(c *v8Code) {
	held := c.bytes()
	v.list = slices.DeleteFunc(v.list, func(o *v8Code) bool {
		gone := o.start < c.end && c.start < o.end
		if !gone {
			held += o.bytes()
		}
		return gone
	})
	if len(v.list) >= maxV8Codes || held > maxV8Held {
		clear(v.list)
		v.list = v.list[:0]
	}
	i, _ := slices.BinarySearchFunc(v.list, c.start, func(o *v8Code, s uint64) int { return cmp.Compare(o.start, s) })
	v.list = slices.Insert(v.list, i, c)
}

func (v *v8Heap) isBytecodes(ptr uint64) bool {
	return v.object(ptr, 8, v.types.bytecodes) != nil
}

// byteArray is the content of an array of bytes; nil also if there is something else.
func (v *v8Heap) byteArray(ptr uint64) []byte {
	n, ok := v.length(ptr)
	if !ok || n <= 0 || n > maxV8Table {
		return nil
	}
	return v.read(ptr-1+16, n)
}

// length is what arrays have behind their map.
func (v *v8Heap) length(ptr uint64) (int, bool) {
	if !tagged(ptr) {
		return 0, false
	}
	b := v.read(ptr-1, 16)
	if b == nil {
		return 0, false
	}
	t, ok := v.instanceType(word(b, 0))
	if !ok || t < v.types.firstNonstring {
		return 0, false
	}
	n, ok := smi(word(b, 8))
	return n, ok
}

// readInlined reads what deoptimization data tells of a code's functions.
func (v *v8Codes) readInlined(c *v8Code, ptr uint64) {
	n, ok := v.heap.length(ptr)
	if !ok || n <= v.layout.deoptInlining+1 || n > 1<<16 {
		return
	}
	d := v.heap.read(ptr-1+16, 8*(v.layout.deoptInlining+2))
	if d == nil {
		return
	}
	shared := word(d, 8*v.layout.deoptShared)
	if v.layout.wrapped && tagged(shared) {
		b := v.heap.read(shared-1, 16)
		if b == nil {
			return
		}
		shared = word(b, 8)
	}
	if v.heap.object(shared, v8SharedBytes, v.heap.types.shared) == nil {
		return
	}
	if exits, ok := smi(word(d, 8*(v.layout.deoptInlining+1))); ok && exits > 0 && uint64(exits) < c.end-c.start {
		c.exits = c.start + uint64(exits)
	}
	sites := v.heap.byteArray(word(d, 8*v.layout.deoptInlining))
	literals, ok := v.heap.length(word(d, 8*v.layout.deoptLiterals))
	if len(sites) > 0 && ok && literals > 0 && literals < 1<<16 {
		list := v.heap.read(word(d, 8*v.layout.deoptLiterals)-1+16, 8*literals)
		if list == nil {
			return
		}
		for i := 0; i+16 <= len(sites); i += 16 {
			s := v8Site{position: word(sites, i)}
			if id := word32(sites, i+8); id < uint32(literals) {
				// A weak pointer has one bit more.
				s.shared = word(list, 8*int(id)) &^ 2
				if v.heap.object(s.shared, v8SharedBytes, v.heap.types.shared) == nil {
					s.shared = 0
				}
				if s.shared--; s.shared != ^uint64(0) {
					s.number = v.heap.number(nil, s.shared)
				}
			}
			c.inlined = append(c.inlined, s)
		}
	}
	c.shared, c.number = shared-1, v.heap.number(nil, shared-1)
}

// Tables of safepoints (codegen/{,maglev-}safepoint-table.h) have the frame's slots, the number of entries, how these are, and of Maglev's code slots with
// pointers.
const (
	v8SafepointHead = 12
	maxV8Safepoints = 1 << 16
)

// readReturns reads the positions of calls by the offset of what they return to: of those to exits, as they do while less optimised code is to replace
// this, and of others, which are those of the exits that they would return to then. The table of positions does not have all calls: Maglev's slow paths
// stand behind all other code.
func (v *v8Codes) readReturns(c *v8Code, stream uint64) map[uint64]uint64 {
	head, w := v.heap.read(c.end, v8SafepointHead), v.heap.read(stream-1+16, 8)
	if head == nil || w == nil {
		return nil
	}
	returns := v8Exits(v.heap.byteArray(word(w, 0)), v.layout.exitOffset)
	n, how := int(word32(head, 4)), word32(head, 8)
	// Bits: whether there are exits, then how many bytes the mask of registers has, an offset, and the number of an exit.
	registers, pc, index := int(how>>1&7), int(how>>4&7), int(how>>7&7)
	from, size := c.end+v8SafepointHead, 2*pc+index+registers
	if c.kind == v.heap.types.baseline+1 { // Maglev's
		from, size = from+4, size+1
	}
	if how&1 == 0 || n <= 0 || n > maxV8Safepoints || pc < 1 || pc > 4 || index > 4 || registers > 4 {
		return returns
	}
	list := v.heap.read(from, n*size)
	number := func(b []byte) (n uint64) {
		for i := len(b) - 1; i >= 0; i-- {
			n = n<<8 | uint64(b[i])
		}
		return n
	}
	for ; len(list) >= size; list = list[size:] {
		// Numbers and offsets of exits are one more than they are.
		if exit := number(list[pc+index : 2*pc+index]); exit > 0 {
			if p, ok := returns[exit-1]; ok {
				returns[number(list[:pc])] = p
			}
		}
	}
	return returns
}

// v8Exits are the positions of exits to less optimised code, by their offset, as relocation information has them (codegen/reloc-info.{h,cc}). That is
// read from its end on. mode is that of an exit's offset in the source; the next one is of the number of what was inlined.
func v8Exits(b []byte, mode byte) map[uint64]uint64 {
	exits := map[uint64]uint64{}
	at := uint64(0)
	next := func() (c byte) {
		if len(b) > 0 {
			c, b = b[len(b)-1], b[:len(b)-1]
		}
		return c
	}
	number := func() (n uint32) {
		for i := range 4 {
			n |= uint32(next()) << (8 * i)
		}
		return n
	}
	offset := uint32(0)
	for len(b) > 0 {
		c := next()
		if c&3 != 3 { // a frequent mode, and the distance
			at += uint64(c >> 2)
			continue
		}
		is := c >> 2
		if is == mode+5 { // a longer distance
			for shift := 6; shift < 48; shift += 7 {
				c := next()
				if at += uint64(c&0x7f) << shift; c < 0x80 {
					break
				}
			}
			continue
		}
		at += uint64(next())
		switch is {
		case mode:
			offset = number() + 1
		case mode + 1:
			if id := number() + 1; offset < 1<<30 && id <= 0xffff {
				exits[at] = uint64(offset)<<1 | uint64(id)<<31
			}
		case mode + 2: // the reason
			next()
		case mode + 3, mode + 4, mode - 1, mode - 2: // its number, that of a node, pools
			number()
		}
	}
	return exits
}

// A source position has bit 0 set if it is outside of scripts; then 30 bits of one more than the offset and 16 of the number, from 1 on, of what was
// inlined (codegen/source-position.h).
func v8Position(p uint64) (at uint64, inlined int, ok bool) {
	at = p >> 1 & (1<<30 - 1)
	return at, int(p >> 31 & 0xffff), p&1 == 0 && at != 0
}

// vlq reads one number of a table: 7 bits a byte, lowest first, the highest bit set if more follow; the lowest of the number is its sign.
func vlq(b []byte) (n int64, rest []byte, ok bool) {
	var u uint64
	for shift := 0; shift < 64 && len(b) > 0; shift += 7 {
		c := b[0]
		u, b = u|uint64(c&0x7f)<<shift, b[1:]
		if c < 0x80 {
			return int64(u>>1) ^ -int64(u&1), b, true
		}
	}
	return 0, nil, false
}

// v8PositionAt is the position in a table of the instruction at offset at, and the next one that the table has. 0: none.
func v8PositionAt(table []byte, at int64) (position, next uint64) {
	off, pos := int64(-1), int64(0) // the entry of a function is at -1
	for len(table) > 0 {
		d, rest, ok := vlq(table)
		if !ok {
			return 0, 0
		}
		if d < 0 {
			d = -(d + 1) // an expression's, not a statement's
		}
		p, rest, ok := vlq(rest)
		if !ok {
			return 0, 0
		}
		pos += p
		if off += d; off > at {
			return position, uint64(pos)
		}
		position, table = uint64(pos), rest
	}
	return position, 0
}

// within is the position without a place of the innermost function that both p and q are in.
func (c *v8Code) within(p, q uint64) uint64 {
	in := c.chain(q)
	for _, id := range c.chain(p) {
		if slices.Contains(in, id) {
			return id << 31
		}
	}
	return 0
}

// chain is the numbers of the inlined functions that p is in, innermost first.
func (c *v8Code) chain(p uint64) (list []uint64) {
	for range maxV8Inlined {
		id := p >> 31 & 0xffff
		if p&1 != 0 || id == 0 || id > uint64(len(c.inlined)) {
			break
		}
		list, p = append(list, id), c.inlined[id-1].position
	}
	return list
}

// Identify implements Managed.
func (v *v8) Identify(owned []unwind.Owned, mem Memory, st *Stack) {
	st.Reset()
	v.scripts.meet(owned)
	called := -1 // the frame of a function that was called, or of what has called it without being one
	for i := range owned {
		if len(st.Frames) > maxV8Frames {
			break
		}
		before, calls := len(st.Frames), called >= 0 && called == owned[i].Frame-1
		v.frame(&owned[i], mem, st, calls)
		if calls || len(st.Frames) > before {
			called = owned[i].Frame
		}
		if n := len(st.Frames) - before; n > 0 {
			st.Segments = append(st.Segments, Segment{N: n, Native: owned[i].Frame})
		}
	}
}

// frame appends the functions that one frame is of. calls: it has called a function.
func (v *v8) frame(o *unwind.Owned, mem Memory, st *Stack, calls bool) {
	pc := o.Set.PC
	generated, _ := v.codes.origin(pc)
	var code *v8Code
	if generated {
		code = v.codes.codeAt(pc)
	}
	if o.Top {
		if place := v.place(pc); place != returnAtFP {
			// Its frame is not there yet, or not any more.
			if code != nil && v.codes.optimised(code) && code.shared != 0 && v.shared(mem, code.shared) {
				st.Frames = append(st.Frames, Frame{Code: code.shared, Globals: code.number})
			}
			return
		}
	}
	fp, ok := o.Set.Reg(regs.AMD64.FP)
	if !ok {
		return
	}
	f := mem.Bytes(fp-40, 56)
	if f == nil {
		return
	}
	function := uint64(0)
	switch w := word(f, 32); {
	case tagged(w):
		function = word(f, 24)
	case w&1 == 0 && w>>1 == uint64(v.heap.types.builtinExit):
		// BuiltinExitFrame: new.target and the function stand behind the return address.
		if b := mem.Bytes(fp+16, 16); b != nil {
			function = word(b, 8)
		}
	}
	if !tagged(function) {
		return
	}
	v.foresee(function, word(f, 8), mem, st)
	fn := mem.Bytes(function-1, v8FunctionBytes)
	if fn == nil {
		return
	}
	if t, ok := v.heap.instanceType(word(fn, 0)); !ok || t < v.heap.types.function || t > v.heap.types.function+v8FunctionKinds {
		return
	}
	ptr := word(fn, v.heap.at.function)
	if !tagged(ptr) || !v.shared(mem, ptr-1) {
		return
	}
	if shared := mem.Bytes(ptr-1, v8SharedBytes); !tagged(word(shared, v.heap.at.funcName)) {
		if script := mem.Bytes(word(shared, v.heap.at.script)-1, v8ScriptBytes); script == nil || !v.heap.is(word(script, 0), v.heap.types.script) {
			return // a builtin without a name, as what resumes async functions
		}
	}
	fr := Frame{Addr: fp, Code: ptr - 1, Globals: v.heap.number(mem, ptr-1)}
	// Functions that were inlined, and have called, are not known.
	unknown := func() {
		if calls {
			st.Frames = append(st.Frames, Frame{Addr: fp})
		}
	}
	switch {
	case code == nil && !generated:
		fr.At = v.interpreted(o, f, fr.Globals, mem)
	case code == nil:
		unknown()
	case code.kind == v.heap.types.baseline:
		if word(f, 8) == code.bytecodes {
			fr.At = v.baseline(code, pc, o.Top, fr.Globals, mem)
		}
	case v.codes.optimised(code):
		if code.number != fr.Globals {
			code = v.codes.searchCode(pc) // what was read may be of other code that was there before
		}
		if code == nil || code.shared != fr.Code || code.number != fr.Globals {
			unknown() // it is gone; or at its very beginning or end
			break
		}
		exact, ok := code.returns[pc-code.start]
		if ok = ok && !o.Top; !ok && code.exits != 0 && pc >= code.exits {
			if len(code.inlined) > 0 {
				unknown() // it is being replaced by less optimised code
			}
			break
		}
		at := int64(pc - code.start)
		if !o.Top {
			at--
		}
		p, next := v8PositionAt(code.positions, at)
		// Each call of a function has a position, but Maglev's in that of the exit behind it. Other instructions may have none, and the table does not
		// tell where these are.
		if ok {
			p = exact
		} else if !calls || code.kind == v.heap.types.baseline+1 {
			if p = code.within(p, next); len(code.inlined) > 0 {
				unknown()
			}
		}
		v.inlinedFrames(code, p, fr, mem, st)
		return
	}
	st.Frames = append(st.Frames, fr)
}

// foresee notes what the next copy is to have for the frame of a function; also is a pointer to bytecode, or something else. What was not copied
// is read now for that, and for nothing else.
func (v *v8) foresee(function, also uint64, mem Memory, st *Stack) {
	get := func(ptr uint64, n int, want uint16) []byte {
		if !tagged(ptr) {
			return nil
		}
		b := mem.Bytes(ptr-1, n)
		if b == nil {
			b = v.heap.read(ptr-1, n)
		}
		if b == nil || want != 0 && !v.heap.is(word(b, 0), want) {
			return nil
		}
		if s := (Span{ptr - 1, n}); !slices.Contains(st.Spans, s) {
			st.Spans = append(st.Spans, s)
		}
		return b
	}
	if fn := get(function, v8FunctionBytes, 0); fn != nil {
		if b := get(word(fn, v.heap.at.function), v8SharedBytes, v.heap.types.shared); b != nil {
			get(word(b, v.heap.at.script), v8ScriptBytes, v.heap.types.script)
		}
	}
	get(also, v8BytecodeBytes, v.heap.types.bytecodes)
}

// v8FunctionKinds is how many instance types of functions follow the first: constructors of classes and of builtins.
const v8FunctionKinds = 24

// shared tells whether a SharedFunctionInfo is at addr, as it was copied or is, and foresees it and its script.
func (v *v8) shared(mem Memory, addr uint64) bool {
	b := mem.Bytes(addr, v8SharedBytes)
	return b != nil && v.heap.is(word(b, 0), v.heap.types.shared)
}

// inlinedFrames appends the function that a position is in, and those that it was inlined into, up to outer.
func (v *v8) inlinedFrames(c *v8Code, p uint64, outer Frame, mem Memory, st *Stack) {
	first := len(st.Frames)
	for range maxV8Inlined {
		at, id, ok := v8Position(p)
		if outer.At = 0; ok {
			outer.At = at
		}
		if id == 0 || p&1 != 0 {
			st.Frames = append(st.Frames, outer)
			return
		}
		if id > len(c.inlined) || c.inlined[id-1].shared == ^uint64(0) {
			break
		}
		s := &c.inlined[id-1]
		st.Frames = append(st.Frames, Frame{Addr: outer.Addr, Code: s.shared, Globals: s.number, At: outer.At})
		p = s.position
	}
	// That cannot be: the function itself is all that is sure.
	outer.At = 0
	st.Frames = append(st.Frames[:first], outer)
}

// v8Table tells a table of positions from others.
type v8Table struct{ function, bytecodes, table, size uint64 }

// position is the position of the bytecode of a function, by its number, at offset at, -1 being the entry, one more than its offset in the source; 0:
// not known.
func (v *v8) position(ptr uint64, at int64, function uint64, mem Memory) uint64 {
	b := mem.Bytes(ptr-1, v8BytecodeBytes)
	if b == nil || !v.heap.is(word(b, 0), v.heap.types.bytecodes) {
		return 0
	}
	n, ok := smi(word(b, 8))
	if !ok || at < -1 || at >= int64(n) {
		return 0
	}
	t := v8Table{function, ptr, word(b, v.codes.layout.bytecodePositions), word(b, 8)}
	list, ok := v.tables[t]
	if !ok {
		list = slices.Clone(v.heap.byteArray(t.table))
		if again := v.heap.read(ptr-1, v8BytecodeBytes); again == nil || word(again, v.codes.layout.bytecodePositions) != t.table || word(again, 8) != t.size {
			return 0
		}
		if v.tabled += 128 + len(list); len(v.tables) >= maxV8Tables || v.tabled > maxV8Held {
			clear(v.tables)
			v.tabled = 128 + len(list)
		}
		v.tables[t] = list
	}
	p, _ := v8PositionAt(list, at)
	off, id, ok := v8Position(p)
	if !ok || id != 0 {
		return 0
	}
	return off
}

// interpreted is the position of a frame of the interpreter, of which f is the memory.
func (v *v8) interpreted(o *unwind.Owned, f []byte, function uint64, mem Memory) uint64 {
	ptr := word(f, 8)
	at, ok := smi(word(f, 0))
	if !tagged(ptr) || !ok || o.Top {
		return 0 // while bytecode runs, its offset is in a register
	}
	return v.position(ptr, int64(at)-int64(v.heap.at.bytecodes-1), function, mem)
}

// baseline is the position of pc in baseline code.
func (v *v8) baseline(c *v8Code, pc uint64, top bool, function uint64, mem Memory) uint64 {
	n, ok := v.bytecodeLength(c.bytecodes, mem)
	if !ok || len(v.sizes) == 0 {
		return 0
	}
	code := v.heap.read(c.bytecodes-1+uint64(v.heap.at.bytecodes), n)
	if code == nil {
		return 0
	}
	kinds := len(v.sizes) / 3
	want := pc - c.start
	if top {
		want++
	}
	// The table has how many bytes of code there are for the entry, and then for each bytecode.
	var end uint64
	for t, at, first := c.positions, 0, true; ; first = false {
		d, n := binary.Uvarint(t)
		if n <= 0 || d > maxV8Code {
			return 0
		}
		t, end = t[n:], end+d
		if end >= want {
			if first {
				return v.position(c.bytecodes, -1, function, mem)
			}
			return v.position(c.bytecodes, int64(at), function, mem)
		}
		if first {
			continue
		}
		scale := 0
		if at < len(code) && code[at] <= 3 { // Wide, ExtraWide, and the same for a debugger
			scale = 1 + int(code[at]&1)
			at++
		}
		if at >= len(code) || int(code[at]) >= kinds {
			return 0
		}
		at += int(v.sizes[scale*kinds+int(code[at])])
	}
}

func (v *v8) bytecodeLength(ptr uint64, mem Memory) (int, bool) {
	if !tagged(ptr) {
		return 0, false
	}
	b := mem.Bytes(ptr-1, v8BytecodeBytes)
	if b == nil || !v.heap.is(word(b, 0), v.heap.types.bytecodes) {
		return 0, false
	}
	n, ok := smi(word(b, 8))
	return n, ok && n > 0 && n <= maxV8Table
}

func decodeUTF16(units []uint16) string { return string(utf16.Decode(units)) }
