package symbol

import "debug/elf"

// dynamicSymbols reads the dynamic symbols by the dynamic segment alone: for
// files without section headers, and images of memory.
func (im *image) dynamicSymbols() (*table, error) {
	d := readDynamic(im)
	tags := d.tags
	sym, str, size := tags[elf.DT_SYMTAB], tags[elf.DT_STRTAB], tags[elf.DT_STRSZ]
	symOff, symRoom, ok1 := im.progs.fileOff(sym)
	strOff, strRoom, ok2 := im.progs.fileOff(str)
	if sym == 0 || str == 0 || !ok1 || !ok2 {
		return nil, errNoSection
	}
	ent := uint64(im.symbolBytes())
	n := min(d.count(), uint64(symRoom)/ent)
	return im.symbolTable("dynamic", symOff, int64(n*ent), ent, strOff, min(strRoom, int64(min(size, 1<<40))), 0)
}

// dynamicSegment is the first dynamic segment of an image: linkers make one. Of a tag that occurs twice the first counts.
type dynamicSegment struct {
	im   *image
	tags map[elf.DynTag]uint64
}

func readDynamic(im *image) dynamicSegment {
	tags := make(map[elf.DynTag]uint64)
	d := dynamicSegment{im, tags}
	for _, p := range im.progs {
		if p.typ != elf.PT_DYNAMIC {
			continue
		}
		b := make([]byte, min(p.filesz, maxSmallSection))
		if readFull(im.f, b, p.off) != nil {
			return d
		}
		c := cursor{b: b, order: im.order}
		word := 4
		if im.is64 {
			word = 8
		}
		for len(b)-c.pos >= 2*word {
			tag, v := c.uint(word), c.uint(word)
			if elf.DynTag(tag) == elf.DT_NULL {
				return d
			}
			if _, ok := tags[elf.DynTag(tag)]; !ok {
				tags[elf.DynTag(tag)] = v
			}
		}
		break
	}
	return d
}

// count is the number of dynamic symbols, which only the hash tables
// tell (gABI chapter 5, "Hash Table": nchain; GNU's: the end of the last
// chain).
func (d dynamicSegment) count() uint64 {
	im := d.im
	if v := d.tags[elf.DT_HASH]; v != 0 {
		var b [8]byte
		// s390x is the one machine whose hash words have 8 bytes (s390x ELF ABI
		// supplement, "Hash table section").
		if off, n, ok := im.progs.fileOff(v); ok && im.machine == elf.EM_S390 && im.is64 {
			if n >= 16 && readFull(im.f, b[:], off+8) == nil {
				return im.order.Uint64(b[:])
			}
		} else if ok && n >= 8 && readFull(im.f, b[:], off) == nil {
			return uint64(im.order.Uint32(b[4:]))
		}
	}
	if v := d.tags[elf.DT_GNU_HASH]; v != 0 {
		return gnuHashCount(im, v)
	}
	return 0
}

// maxGNUHash bounds GNU's hash table, in bytes: 4 for each symbol, and as much for buckets.
const maxGNUHash = 16 << 20

// gnuHashCount walks to the end of the chain of the highest bucket.
func gnuHashCount(im *image, addr uint64) uint64 {
	off, n, ok := im.progs.fileOff(addr)
	if !ok || n < 16 {
		return 0
	}
	b := make([]byte, min(n, maxGNUHash))
	if readFull(im.f, b, off) != nil {
		return 0
	}
	word := func(i uint64) (uint32, bool) {
		if i >= uint64(len(b))/4 {
			return 0, false
		}
		return im.order.Uint32(b[4*i:]), true
	}
	buckets, _ := word(0)
	first, _ := word(1)
	bloom, _ := word(2)
	perBloom := uint64(1)
	if im.is64 {
		perBloom = 2
	}
	start := 4 + uint64(bloom)*perBloom
	highest := uint32(0)
	for i := range uint64(buckets) {
		v, ok := word(start + i)
		if !ok {
			return 0
		}
		highest = max(highest, v)
	}
	if highest < first {
		return uint64(first)
	}
	for i := uint64(highest); ; i++ {
		v, ok := word(start + uint64(buckets) + i - uint64(first))
		if !ok || v&1 != 0 { // the lowest bit ends a chain
			return i + 1
		}
	}
}
