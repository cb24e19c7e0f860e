package symbol

import "encoding/binary"

// Lines and inlined functions of Go programs without DWARF come from the same
// tables that the runtime prints stacks by: runtime/symtab.go (_func, pcvalue,
// funcline1), runtime/symtabinl.go (inlinedCall) and internal/abi/symtab.go.

// 32-bit fields of _func after its entry, in Go 1.20 and later.
const (
	goPCFile  = 4
	goPCLine  = 5
	goNPCData = 6
	goCU      = 7
	goCounts  = 9 // Go 1.20: funcID, flag, padding, number of funcdata
	goTables  = 10
)

const (
	pcdataInlTreeIndex = 2
	funcdataInlTree    = 3
	inlinedCallSize    = 16
	// maxGoInline bounds the depth of inlined calls at one address.
	maxGoInline = 256
)

// inlines reports whether the tables of inlined calls can be read: since Go 1.20.
func (t *goTable) inlines() bool { return t.version >= go120 && t.gofunc != 0 }

// locations returns the functions at addr, innermost first; nil if the tables
// say nothing.
func (t *goTable) locations(addr uint64) []location {
	fn := t.find(addr)
	if fn == none {
		return nil
	}
	if off, ok := t.funcField(fn, goPCLine); !ok || off == 0 {
		return nil // a C function that cgo has linked in
	}
	var list []location
	pc := addr
	for len(list) < maxGoInline {
		l := location{}
		l.file, l.line = t.fileLine(fn, pc)
		name, callPC, ok := t.inlinedCall(fn, pc)
		if !ok {
			l.name = t.name(fn)
			return append(list, l)
		}
		l.name, l.inlined = name, true
		list = append(list, l)
		pc = callPC
	}
	return list
}

// value looks pc up in the table of pc-value pairs at offset off of function
// fn; -1 if it has none.
func (t *goTable) value(fn int32, off uint32, pc uint64) int32 {
	if off == 0 {
		return -1
	}
	pos := uint64(t.parts.pc) + uint64(off)
	const window = 4096
	c := t.data.cursor(pos, window, t.order)
	at, v := t.entry[fn], int32(-1)
	for first := true; ; first = false {
		if len(c.b)-c.pos < 20 && len(c.b) == window { // two numbers may not fit
			pos += uint64(c.pos)
			c = t.data.cursor(pos, window, t.order)
		}
		d := uint32(c.uleb())
		if c.bad || d == 0 && !first {
			return -1
		}
		// Zigzag, as cmd/internal/obj/pcln.go writes it.
		v += int32(d>>1) ^ -int32(d&1)
		at += c.uleb() * t.quantum
		if pc < at {
			return v
		}
		if at > t.entry[fn+1] {
			return -1
		}
	}
}

// fileLine returns the source position of pc in function fn.
func (t *goTable) fileLine(fn int32, pc uint64) (file string, line int) {
	fileTab, ok1 := t.funcField(fn, goPCFile)
	lineTab, ok2 := t.funcField(fn, goPCLine)
	cu, ok3 := t.funcField(fn, goCU)
	if !ok1 || !ok2 || !ok3 {
		return "", 0
	}
	line = int(max(t.value(fn, lineTab, pc), 0))
	n := t.value(fn, fileTab, pc)
	if n < 0 || cu == ^uint32(0) {
		return "", line
	}
	off, ok := t.uint32At(t.parts.cu + 4*(int64(cu)+int64(n)))
	if !ok || off == ^uint32(0) {
		return "", line
	}
	return t.data.str(uint64(t.parts.file) + uint64(off)), line
}

// inlinedCall says whether pc lies in a call that was inlined into fn: its name,
// and an address in fn that has the position of the call.
func (t *goTable) inlinedCall(fn int32, pc uint64) (name string, callPC uint64, ok bool) {
	npc, ok1 := t.funcField(fn, goNPCData)
	counts, ok2 := t.uint32At(t.parts.fn + int64(t.fn[fn]) + 4 + 4*goCounts)
	if !ok1 || !ok2 || npc <= pcdataInlTreeIndex || npc > 64 {
		return "", 0, false
	}
	nfuncdata := counts & 0xff // the last of four bytes
	if t.order == binary.ByteOrder(binary.LittleEndian) {
		nfuncdata = counts >> 24
	}
	if nfuncdata <= funcdataInlTree {
		return "", 0, false
	}
	index, _ := t.funcField(fn, goTables+pcdataInlTreeIndex)
	tree, _ := t.funcField(fn, goTables+int(npc)+funcdataInlTree)
	i := t.value(fn, index, pc)
	if i < 0 || tree == ^uint32(0) {
		return "", 0, false
	}
	off, n, ok := t.im.progs.fileOff(t.gofunc + uint64(tree) + uint64(i)*inlinedCallSize)
	var b [inlinedCallSize]byte
	if !ok || n < inlinedCallSize || readFull(t.im.f, b[:], off) != nil {
		return "", 0, false
	}
	parent := int32(t.order.Uint32(b[8:]))
	if parent < 0 {
		return "", 0, false
	}
	return goName(t.names.name(t.order.Uint32(b[4:]))), t.entry[fn] + uint64(parent), true
}
