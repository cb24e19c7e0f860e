package runtimes

import "io"

// rubyReader reads objects of a Ruby: strings, symbols, and what classes are called.
type rubyReader struct {
	r   *ruby
	mem io.ReaderAt
}

// qualified is a method's name with the class that has it, where that has a name.
func (x rubyReader) qualified(class uint64, method string) string {
	b := read(x.mem, class, 8)
	if b == nil {
		return method
	}
	between := "#"
	if word(b, 0)&x.r.at.single != 0 && word(b, 0)&rubyTypes == 2 { // T_CLASS of one object
		class, between = x.attached(class), "."
		if b = read(x.mem, class, 8); b == nil {
			return method
		}
	}
	if t := word(b, 0) & rubyTypes; t != 2 && t != 3 { // T_CLASS, T_MODULE
		return method
	}
	name, ok := x.text(x.classPath(class))
	if !ok || name == "" { // it is in no constant
		return method
	}
	return name + between + method
}

// attached is the one object of a class, 0 if that is not found.
func (x rubyReader) attached(class uint64) uint64 {
	if x.r.at.classPath == 0 {
		return x.variable(class, "__attached__")
	}
	if b := read(x.mem, class+uint64(x.r.at.classPath+rubyAttached), 8); b != nil {
		return word(b, 0)
	}
	return 0
}

// classPath is the name of a class that is in a constant, a String, 0 if it is in none.
func (x rubyReader) classPath(class uint64) uint64 {
	if x.r.at.classPath == 0 {
		return x.variable(class, "__classpath__") // one that is not in a constant has another variable
	}
	b := read(x.mem, class+uint64(x.r.at.classPath+rubyPermanent), 8-rubyPermanent)
	if b == nil || b[0]&1 == 0 {
		return 0
	}
	return word(b, -rubyPermanent)
}

// maxVariables bounds the variables of a class that are looked through.
const maxVariables = 256

// variable is what a class has as a variable of a name that no program can use. 0: none.
func (x rubyReader) variable(class uint64, name string) uint64 {
	if x.r.at.shapes > 0 {
		return x.shaped(class, name)
	}
	b := read(x.mem, class+24, 8)
	if b == nil {
		return 0
	}
	if b = read(x.mem, word(b, 0)+8, 8); b == nil {
		return 0
	}
	table := read(x.mem, word(b, 0), 56) // st_table: entries_bound 40, entries 48: hash, key, record
	if table == nil {
		return 0
	}
	list := read(x.mem, word(table, 48), 24*int(min(word(table, 40), maxVariables)))
	for i := 0; i+24 <= len(list); i += 24 {
		if s, ok := x.symbol(word(list, i+8)); ok && s == name {
			return word(list, i+16)
		}
	}
	return 0
}

// shaped is the same where classes have shapes (shape.h of 3.2): edge_name 8, next_iv_index 16, type 24, parent_id 28. A shape is the variable that
// was added last, and leads to those before.
func (x rubyReader) shaped(class uint64, name string) uint64 {
	const (
		size     = 32
		variable = 1 // SHAPE_IVAR
	)
	object := read(x.mem, class, 40) // the upper half of its flags is the shape; iv_ptr 32
	list := read(x.mem, x.r.machine(x.mem)+uint64(x.r.at.shapes), 24)
	if object == nil || list == nil {
		return 0
	}
	shapes, count := word(list, 0), word32(list, 16) // next_shape_id
	id := word32(object, 4)
	for range maxVariables {
		if id >= count {
			break
		}
		shape := read(x.mem, shapes+size*uint64(id), size)
		if shape == nil {
			break
		}
		if shape[24] == variable {
			if s, ok := x.symbol(word(shape, 8)); ok && s == name {
				if b := read(x.mem, word(object, 32)+8*(uint64(word32(shape, 16))-1), 8); b != nil {
					return word(b, 0)
				}
				break
			}
		}
		id = word32(shape, 28)
	}
	return 0
}

// text is a String.
func (x rubyReader) text(addr uint64) (string, bool) {
	b := read(x.mem, addr, 40)
	if addr&7 != 0 || b == nil || word(b, 0)&rubyTypes != rubyString {
		return "", false
	}
	n, data := word(b, 16), word(b, 24)
	if word(b, 0)&rubyMark == 0 {
		data = addr + uint64(x.r.at.stringData)
		if x.r.at.stringData == 16 { // its length is in its flags
			n = word(b, 0) >> 14 & 31
		}
	}
	if n == 0 {
		return "", true
	}
	raw := read(x.mem, data, int(min(n, maxText)))
	if n > maxText {
		return string(raw) + "…", raw != nil
	}
	return string(raw), raw != nil
}

// path is the name of a file: a String, or the first of an Array of them.
func (x rubyReader) path(addr uint64) (string, bool) {
	if first, ok := x.elements(addr); ok {
		if b := read(x.mem, first, 8); b != nil {
			addr = word(b, 0)
		}
	}
	return x.text(addr)
}

// elements is where the elements of an Array are.
func (x rubyReader) elements(addr uint64) (first uint64, ok bool) {
	b := read(x.mem, addr, 40)
	if addr&7 != 0 || b == nil || word(b, 0)&rubyTypes != rubyArray {
		return 0, false
	}
	if word(b, 0)&rubyMark != 0 {
		return addr + 16, true
	}
	return word(b, 32), true
}

// Symbols are found by numbers: in arrays of rubyUnit pairs of a String and a Symbol (symbol.c).
const (
	rubyUnit   = 512
	rubyLastOp = 256 // above those of operators, which are numbers, and below all others, which have four bits of scope
	maxSymbols = 1 << 24
)

// symbol is the text of an ID.
func (x rubyReader) symbol(id uint64) (string, bool) {
	n := id
	if id > rubyLastOp {
		n = id >> 4
	}
	return x.serial(x.table(), n)
}

// serial is the text of a symbol by its number. ids is the array of arrays of them.
func (x rubyReader) serial(ids, n uint64) (string, bool) {
	outer, ok := x.elements(ids)
	if !ok || n > maxSymbols {
		return "", false
	}
	b := read(x.mem, outer+8*(n/rubyUnit), 8)
	if b == nil {
		return "", false
	}
	inner, ok := x.elements(word(b, 0))
	if !ok {
		return "", false
	}
	if b = read(x.mem, inner+16*(n%rubyUnit), 8); b == nil {
		return "", false
	}
	return x.text(word(b, 0))
}

// table is the address of the array of all symbols, 0 if it is not found: ruby_global_symbols is exported nowhere, but it is the only
// number in its data that has a table and an array behind it in which "+" has the number of that character.
func (x rubyReader) table() uint64 {
	if at := x.r.symbols.Load(); at != 0 {
		if b := read(x.mem, at, 8); b != nil {
			return word(b, 0)
		}
		return 0
	}
	if n := x.r.looks.Add(1); n > 16 && n&(n-1) != 0 {
		return 0 // it was looked for in vain so often: seldom again
	}
	data := read(x.mem, x.r.data.Addr, x.r.data.Len)
	for i, tries := 16, 0; i+8 <= len(data) && tries < maxTables; i += 8 {
		if ids := word(data, i); object(x.r, ids) && word(data, i-16)-rubyLastOp < maxSymbols {
			tries++
			if s, ok := x.serial(ids, '+'); ok && s == "+" {
				x.r.symbols.Store(x.r.data.Addr + uint64(i))
				return ids
			}
		}
	}
	return 0
}

// alive tells whether the object at addr, if it is one, is not garbage that is yet to be swept (is_garbage_object, gc.c).
func (x rubyReader) alive(addr uint64) bool {
	h := &x.r.at.heap
	base := addr &^ (h.bytes - 1)
	b := read(x.mem, base, 8)
	if b == nil {
		return false
	}
	slot := (addr - base) / rubySlot
	mark := h.marks + int(slot/8)
	page := read(x.mem, word(b, 0), mark+1)
	if page == nil || word(page, h.start)&^(h.bytes-1) != base {
		return false
	}
	return page[h.flags]&1 == 0 || page[mark]>>(slot%8)&1 != 0
}

const rubySlot = 40 // bytes of the smallest objects
