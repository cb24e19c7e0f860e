package symbol

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"slices"

	"sfsample/internal/late"
)

// sttGNUIFunc is STT_GNU_IFUNC: the symbol's value is the resolver's address.
const sttGNUIFunc = elf.SymType(10)

// maxSymbols bounds one table; the largest programs known have some 5 million.
const maxSymbols = 1 << 23

// entry is one symbol that names code.
type entry struct {
	start uint64
	size  uint32 // clipped at maxSize; its rank stands above that while a table is built
	name  uint32 // offset in the string table
}

// Of a symbol's size and rank.
const (
	rankShift = 29
	maxSize   = 1<<rankShift - 1
)

func (e entry) rank() uint32 { return e.size >> rankShift }
func (e entry) sized() bool  { return e.size&maxSize != 0 }

// table is a symbol table made ready for look-up. Code is cut into segments
// that do not overlap, each with the symbol that names it; addresses that no
// symbol covers lie in no segment or in a loose one.
//
// Which symbol names an address:
//
//  1. one whose size covers it, before one without a size;
//  2. of those the one that starts last, so that an inner symbol wins inside its
//     range and the outer one after it;
//  3. at one start: a function before a label without type, then global and weak
//     before local, then names without glibc's __GI_, with the fewest leading
//     underscores, the shortest, the last in byte order.
//
// 1 and 2 are what eu-addr2line does (libdwfl, dwfl_module_addrsym.c). For 3
// every tool has a rule of its own: libdwfl takes global before weak and the
// first in the file, gdb the last of a sort that leaves the file's order, perf
// counts underscores (tools/perf/util/symbol.c, choose_best_symbol). Counting
// them first, whatever the binding, gives the names of manual pages (fflush, not
// _IO_fflush) and agreed best with gdb on glibc.
//
// A symbol without size reaches to the next symbol or the end of its section,
// and only where no symbol with a size covers the address.
type table struct {
	syms []entry
	segs segments // id is the index in syms

	// bucket[i] is the piece that holds base + i<<shift: a look-up is one step
	// here and a few in segs, instead of 20 cache misses.
	bucket []int32
	base   uint64
	shift  uint

	strs stringTable
	what string // source, for reports: ".symtab", ".dynsym"
}

const none = -1

// bytes is about how much memory t holds.
func (t *table) bytes() int {
	return 16*cap(t.syms) + 12*cap(t.segs.start) + 4*cap(t.bucket)
}

// symbols reads the symbol table section sec. shift is added to every value.
func (im *image) symbols(sec *section, what string, shift uint64) (*table, error) {
	if int64(sec.link) >= int64(len(im.sections)) {
		return nil, &FormatError{sec.off, what + " names no string table", uint64(sec.link)}
	}
	str := &im.sections[sec.link]
	return im.symbolTable(what, sec.off, sec.size, sec.ent, str.off, str.size, shift)
}

// symbolTable reads a symbol table from anywhere in the file.
func (im *image) symbolTable(what string, off, size int64, ent uint64, strOff, strSize int64, shift uint64) (*table, error) {
	if ent != uint64(im.symbolBytes()) {
		return nil, &FormatError{off, what + " has entries of odd size", ent}
	}
	if uint64(size)/ent > maxSymbols {
		return nil, &FormatError{off, what + " is too large", uint64(size)}
	}
	t := &table{what: what, strs: stringTable{f: im.f, off: strOff, size: strSize}}
	if err := t.read(im, off, size-size%int64(ent), int(ent)); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", what, err)
	}
	if err := t.build(im, shift); err != nil {
		return nil, fmt.Errorf("%s cannot be sorted: %w", what, err)
	}
	return t, nil
}

// read reads the symbols that may name code. It reads the table twice: to count them first takes less than room for more
// than there are.
func (t *table) read(im *image, off, size int64, ent int) error {
	n := 0
	if err := im.eachEntry(off, size, ent, func(entry) { n++ }); err != nil {
		return err
	}
	mapping := im.machine == elf.EM_AARCH64 || im.machine == elf.EM_ARM || im.machine == elf.EM_RISCV
	t.syms = make([]entry, 0, n)
	return im.eachEntry(off, size, ent, func(e entry) {
		// "ELF for the Arm 64-bit Architecture", 5.5.4: mapping symbols are
		// local, without type, and named $x, $d or $x.anything.
		if mapping && e.rank() == 0 {
			if name := t.strs.bytes(e.name); !im.f.Take(len(name)) || bytes.HasPrefix(name, []byte("$")) {
				return
			}
		}
		if len(t.syms) < n { // else the file has changed
			t.syms = append(t.syms, e)
		}
	})
}

// eachEntry calls fn with each symbol that may name code.
func (im *image) eachEntry(off, size int64, ent int, fn func(entry)) error {
	buf := make([]byte, min(size, int64(ent)*(16<<10)))
	for size > 0 {
		b := buf[:min(int64(len(buf)), size)]
		if err := readFull(im.f, b, off); err != nil {
			return err
		}
		off, size = off+int64(len(b)), size-int64(len(b))
		for ; len(b) > 0; b = b[ent:] {
			if e, ok := im.entryOf(b); ok {
				fn(e)
			}
		}
	}
	return nil
}

// entryOf decodes one symbol table entry. It is false for what cannot name
// code: data, sections, files, undefined symbols.
func (im *image) entryOf(b []byte) (e entry, ok bool) {
	o := im.order
	var info uint8
	var shndx elf.SectionIndex
	var size uint64
	e.name = o.Uint32(b)
	if im.is64 {
		info, shndx = b[4], elf.SectionIndex(o.Uint16(b[6:]))
		e.start, size = o.Uint64(b[8:]), o.Uint64(b[16:])
	} else {
		info, shndx = b[12], elf.SectionIndex(o.Uint16(b[14:]))
		e.start, size = uint64(o.Uint32(b[4:])), uint64(o.Uint32(b[8:]))
	}
	if shndx == elf.SHN_UNDEF || e.name == 0 {
		return e, false
	}
	rank := uint32(0)
	switch elf.ST_TYPE(info) {
	case elf.STT_FUNC, sttGNUIFunc:
		rank = 4
	case elf.STT_NOTYPE:
	default:
		return e, false
	}
	if elf.ST_BIND(info) != elf.STB_LOCAL {
		rank++
	}
	e.size = uint32(min(size, maxSize)) | rank<<rankShift
	_, ok = im.text.at(e.start)
	return e, ok
}

// build sorts the symbols and turns them into segments.
func (t *table) build(im *image, shift uint64) error {
	list := t.syms
	compared, over := 0, false
	slices.SortFunc(list, func(a, b entry) int {
		if compared++; compared%lookEvery == 0 {
			over = over || len(list) > quickSymbols && im.until.Over()
		}
		if over {
			return 0 // all alike: then the rest takes one step for each
		}
		if r := cmp.Compare(a.start, b.start); r != 0 {
			return r
		}
		if a.sized() != b.sized() { // those without a size first: the last one wins
			if b.sized() {
				return -1
			}
			return 1
		}
		if r := cmp.Compare(a.rank(), b.rank()); r != 0 {
			return r
		}
		return cmp.Compare(a.name, b.name)
	})
	if over {
		return late.ErrNoTime
	}
	t.chooseAliases(im.f)
	for i := range list {
		list[i].size &= maxSize
	}
	t.cut(im)
	for i := range list {
		list[i].start += shift
	}
	for i := range t.segs.start {
		t.segs.start[i] += shift
	}
	t.index()
	return nil
}

const (
	// lookEvery is how many comparisons are made between two looks at whether there is time.
	lookEvery = 4096
	// quickSymbols is how many symbols are sorted in any case, which takes some 50 ms.
	quickSymbols = 1 << 18
)

// chooseAliases puts the best name last among symbols that differ in nothing but
// their names and sizes.
func (t *table) chooseAliases(f *late.File) {
	list := t.syms
	for i := 0; i < len(list); {
		j := i + 1
		for j < len(list) && list[j].start == list[i].start && list[j].rank() == list[i].rank() && list[j].sized() == list[i].sized() {
			j++
		}
		if j-i > 1 {
			best := i
			bestName := bytes.Clone(t.strs.bytes(list[i].name))
			for k := i + 1; k < j; k++ {
				name := t.strs.bytes(list[k].name)
				if !f.Take(len(name)) {
					return
				}
				if betterName(name, bestName) {
					best, bestName = k, append(bestName[:0], name...)
				}
			}
			list[best], list[j-1] = list[j-1], list[best]
		}
		i = j
	}
}

// betterName reports whether a is to be preferred to b as the name of one
// function.
func betterName(a, b []byte) bool {
	// glibc's hidden aliases of its own functions (include/libc-symbols.h).
	hidden := []byte("__GI_")
	if ha, hb := bytes.HasPrefix(a, hidden), bytes.HasPrefix(b, hidden); ha != hb {
		return hb
	}
	ua, ub := underscores(a), underscores(b)
	switch {
	case ua != ub:
		return ua < ub
	case len(a) != len(b):
		return len(a) < len(b)
	}
	return bytes.Compare(a, b) > 0
}

func underscores(b []byte) int {
	return len(b) - len(bytes.TrimLeft(b, "_"))
}

// cut makes the segments of the sorted symbols.
func (t *table) cut(im *image) {
	for i, c := range t.syms {
		text, _ := im.text.at(c.start)
		switch {
		case c.size != 0:
			size := min(uint64(c.size), text.end-c.start)
			t.segs.begin(c.start, c.start+size, int32(i))
		case !t.segs.covered(c.start): // else it is a label inside a function
			t.segs.piece(c.start, int32(i))
			if i+1 == len(t.syms) || t.syms[i+1].start > text.end {
				t.segs.piece(text.end, none)
			}
		}
	}
	t.segs.finish()
}

// index makes the buckets, of equal width: about one for two segments.
func (t *table) index() {
	t.segs.start, t.segs.id = slices.Clip(t.segs.start), slices.Clip(t.segs.id)
	start := t.segs.start
	n := len(start)
	if n == 0 {
		return
	}
	t.base = start[0]
	width := start[n-1] - t.base
	for width>>t.shift > uint64(n)/2 {
		t.shift++
	}
	t.bucket = make([]int32, width>>t.shift+2)
	seg := 0
	for i := range t.bucket {
		addr := t.base + uint64(i)<<t.shift
		for seg+1 < n && start[seg+1] <= addr {
			seg++
		}
		t.bucket[i] = int32(seg)
	}
}

// find returns the symbol that names addr (index in syms) and whether its size
// covers it; none if nothing does.
func (t *table) find(addr uint64) (sym int32, sized bool) {
	start := t.segs.start
	if len(start) == 0 || addr < t.base {
		return none, false
	}
	lo, hi := 0, len(start)
	if b := (addr - t.base) >> t.shift; b < uint64(len(t.bucket)) {
		lo = int(t.bucket[b])
		if b+1 < uint64(len(t.bucket)) {
			hi = int(t.bucket[b+1]) + 1
		}
	}
	for lo+1 < hi { // start[lo] <= addr < start[hi]
		if mid := int(uint(lo+hi) >> 1); start[mid] <= addr {
			lo = mid
		} else {
			hi = mid
		}
	}
	sym = t.segs.id[lo]
	return sym, sym != none && t.syms[sym].size != 0
}
