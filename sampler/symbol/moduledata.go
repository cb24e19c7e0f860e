package symbol

import "debug/elf"

// Words of runtime.moduledata (Go 1.18 and later) that are of use here; gofunc
// stands two words earlier before Go 1.20 had coverage counters.
const (
	moduleText   = 22
	moduleEText  = 23
	moduleGofunc = 40
)

// relative gives, by machine, the relocation type that adds the load address:
// R_X86_64_RELATIVE, R_AARCH64_RELATIVE, R_390_RELATIVE.
var relative = map[elf.Machine]uint32{
	elf.EM_X86_64:  uint32(elf.R_X86_64_RELATIVE),
	elf.EM_AARCH64: uint32(elf.R_AARCH64_RELATIVE),
	elf.EM_S390:    uint32(elf.R_390_RELATIVE),
}

// moduledata finds the runtime.moduledata whose first word is the address of
// the pclntab, and returns the addresses of the text and of go:func.* from it.
// In position-independent programs the words are relocations.
func moduledata(im *image, pclntab, ptr uint64) (text, gofunc uint64, ok bool) {
	if ptr != 8 { // no 32-bit Go program is worth the search
		return 0, 0, false
	}
	valid := func(words func(i int) uint64) bool {
		text, gofunc = words(moduleText), words(moduleGofunc)
		_, ok := im.text.at(text)
		return ok && words(moduleEText) > text
	}
	if words, ok := relocatedModule(im, pclntab); ok && valid(words) {
		return text, gofunc, true
	}
	left := int64(maxGoSearch)
	for _, p := range im.progs {
		if p.typ != elf.PT_LOAD || p.flags&elf.PF_W == 0 || p.filesz > left {
			continue
		}
		left -= p.filesz
		if searchWord(im, p.off, p.filesz, pclntab, func(b []byte) bool {
			return valid(func(i int) uint64 { return im.order.Uint64(b[8*i:]) })
		}) {
			return text, gofunc, true
		}
	}
	return 0, 0, false
}

// searchWord calls try with what follows each aligned word of value v in a
// range of the file, until try is true.
func searchWord(im *image, off, size int64, v uint64, try func([]byte) bool) bool {
	const need = (moduleGofunc + 1) * 8
	const step = 1 << 20
	buf := make([]byte, step+need)
	for done := int64(0); done+need <= size; done += step {
		b := buf[:min(int64(len(buf)), size-done)]
		if readFull(im.f, b, off+done) != nil {
			return false
		}
		for i := 0; i+need <= len(b) && i < step; i += 8 {
			if im.order.Uint64(b[i:]) == v && try(b[i:]) {
				return true
			}
		}
	}
	return false
}

// relocatedModule finds moduledata among the relative relocations: the one with
// the pclntab's address is its first word. The words returned are the addends.
func relocatedModule(im *image, pclntab uint64) (func(i int) uint64, bool) {
	typ, ok := relative[im.machine]
	if !ok || !im.is64 {
		return nil, false
	}
	left := int64(maxRelocs)
	for i := range im.sections {
		s := &im.sections[i]
		if s.typ != elf.SHT_RELA || s.ent != 24 || s.size > left {
			continue
		}
		left -= s.size
		var base uint64
		var words [moduleGofunc + 1]uint64
		found := false
		// Relocations are sorted by address (ld -z combreloc), so that what
		// follows moduledata's first word follows in the section too.
		im.eachRela(s, func(addr uint64, info uint64, addend uint64) {
			switch {
			case uint32(info) != typ:
			case !found && addend == pclntab:
				base, found = addr, true
				words[0] = addend
			case found && addr > base && (addr-base)%8 == 0 && (addr-base)/8 < uint64(len(words)):
				words[(addr-base)/8] = addend
			}
		})
		if found {
			return func(i int) uint64 { return words[i] }, true
		}
	}
	return nil, false
}

// maxRelocs bounds what is read of a file's relocations at one go, in bytes: position-independent programs of 200 MB have some 20 MB.
const maxRelocs = 256 << 20

// eachRela calls fn with each entry of a 64-bit relocation section.
func (im *image) eachRela(s *section, fn func(addr, info, addend uint64)) {
	buf := make([]byte, 24*4096)
	for off, left := s.off, s.size-s.size%24; left > 0; {
		b := buf[:min(int64(len(buf)), left)]
		if readFull(im.f, b, off) != nil {
			return
		}
		off, left = off+int64(len(b)), left-int64(len(b))
		for ; len(b) >= 24; b = b[24:] {
			fn(im.order.Uint64(b), im.order.Uint64(b[8:]), im.order.Uint64(b[16:]))
		}
	}
}
