package symbol

import (
	"debug/elf"
)

// Entries of procedure linkage tables have no symbols of their own. They are
// named by decoding, not by counting entries, since linkers lay them out
// differently (lazy, IBT, BIND_NOW, merged with .got): an entry loads a slot of
// the GOT and jumps there, and the slot's relocation names the function.
//
// Instruction sequences: System V ABI AMD64 supplement 5.2 and Intel's CET
// (endbr, bnd jmp); i386 psABI 5.2; "ELF for the Arm 64-bit Architecture"
// 5.7 (adrp x16, ldr x17); s390x ELF ABI supplement, "Procedure linkage table"
// (larl %r1).

const (
	// maxPLTs bounds the sections; linkers make up to four.
	maxPLTs = 16
	// maxPLTRelocs bounds the relocations that are kept, of some 50 bytes each.
	maxPLTRelocs = 1 << 18
)

// pltTable names the entries of an image's linkage tables.
type pltTable struct {
	im      *image
	parts   []pltPart
	slots   map[uint64]pltSlot // by address of the slot
	gotBase uint64             // what %ebx holds in i386 code
	strs    stringTable
	symOff  int64 // .dynsym in the file
	symSize int64
}

type pltPart struct {
	span
	off   int64  // in the file
	entry uint64 // size of an entry
	lazy  bool   // the first entry is the resolver's
}

// pltSlot is the relocation of a slot: a dynamic symbol, or the resolver that
// an IRELATIVE relocation calls.
type pltSlot struct {
	sym      uint32
	resolver uint64
}

// pltRelocs gives, by machine, the types of relocations that fill GOT slots:
// GLOB_DAT, JUMP_SLOT, IRELATIVE.
var pltRelocs = map[elf.Machine][3]uint32{
	elf.EM_X86_64:  {6, 7, 37},
	elf.EM_386:     {6, 7, 42},
	elf.EM_AARCH64: {1025, 1026, 1032},
	elf.EM_S390:    {10, 11, 61},
}

// openPLT finds the linkage tables; nil if there are none.
func openPLT(im *image) *pltTable {
	types, ok := pltRelocs[im.machine]
	if !ok {
		return nil
	}
	p := &pltTable{im: im}
	for i := range im.sections {
		s := &im.sections[i]
		if s.flags&elf.SHF_EXECINSTR == 0 || s.size == 0 || len(p.parts) == maxPLTs || s.addr+uint64(s.size) < s.addr {
			continue
		}
		switch s.name {
		case ".plt", ".plt.sec", ".plt.got", ".plt.bnd", ".iplt":
			p.parts = append(p.parts, pltPart{
				span: span{s.addr, s.addr + uint64(s.size)}, off: s.off,
				entry: pltEntry(im.machine, s), lazy: s.name == ".plt",
			})
		}
	}
	if len(p.parts) == 0 {
		return nil
	}
	p.readSlots(types)
	if s := im.sections.named(".got.plt"); s != nil {
		p.gotBase = s.addr
	} else if s := im.sections.named(".got"); s != nil {
		p.gotBase = s.addr
	}
	return p
}

// pltEntry is the size of the entries of a section: 8 for x86's .plt.got
// without IBT, 32 on s390x, 16 elsewhere.
func pltEntry(m elf.Machine, s *section) uint64 {
	switch {
	case m == elf.EM_S390:
		return 32
	case s.ent == 8 && (m == elf.EM_X86_64 || m == elf.EM_386):
		return 8
	}
	return 16
}

// readSlots collects the relocations of GOT slots.
func (p *pltTable) readSlots(types [3]uint32) {
	im := p.im
	p.slots = make(map[uint64]pltSlot)
	left := int64(maxRelocs)
	for i := range im.sections {
		s := &im.sections[i]
		if s.flags&elf.SHF_ALLOC == 0 {
			continue
		}
		switch s.typ {
		case elf.SHT_RELA, elf.SHT_REL:
		case elf.SHT_DYNSYM:
			if int64(s.link) < int64(len(im.sections)) {
				str := &im.sections[s.link]
				p.symOff, p.symSize = s.off, s.size
				p.strs = stringTable{f: im.f, off: str.off, size: str.size}
			}
			continue
		default:
			continue
		}
		if s.size > left {
			continue
		}
		left -= s.size
		if !im.is64 && s.typ == elf.SHT_REL && s.ent == 8 {
			p.readRel32(s, types)
		}
		if im.is64 && s.typ == elf.SHT_RELA && s.ent == 24 {
			im.eachRela(s, func(addr, info, addend uint64) {
				p.addSlot(addr, uint32(info), uint32(info>>32), addend, types)
			})
		}
	}
}

// readRel32 reads an i386 relocation section. An IRELATIVE's addend lies in the
// slot itself.
func (p *pltTable) readRel32(s *section, types [3]uint32) {
	b, err := p.im.data(s, maxSection)
	if err != nil {
		return
	}
	o := p.im.order
	for ; len(b) >= 8; b = b[8:] {
		addr, info := uint64(o.Uint32(b)), o.Uint32(b[4:])
		var addend uint64
		if info&0xff == types[2] {
			var word [4]byte
			if off, n, ok := p.im.progs.fileOff(addr); ok && n >= 4 && readFull(p.im.f, word[:], off) == nil {
				addend = uint64(o.Uint32(word[:]))
			}
		}
		p.addSlot(addr, info&0xff, info>>8, addend, types)
	}
}

func (p *pltTable) addSlot(addr uint64, typ, sym uint32, addend uint64, types [3]uint32) {
	if len(p.slots) >= maxPLTRelocs {
		return
	}
	switch {
	case typ == types[2]:
		p.slots[addr] = pltSlot{resolver: addend}
	case (typ == types[0] || typ == types[1]) && sym != 0:
		p.slots[addr] = pltSlot{sym: sym}
	}
}

// find returns the entry that holds addr and the slot it jumps through.
func (p *pltTable) find(addr uint64) (start, size uint64, slot pltSlot, ok bool) {
	for i := range p.parts {
		part := &p.parts[i]
		if addr < part.start || addr >= part.end {
			continue
		}
		off := (addr - part.start) / part.entry * part.entry
		if part.lazy && p.im.machine == elf.EM_AARCH64 {
			// The first entry takes 32 bytes, two of the others.
			if off < 32 {
				return 0, 0, pltSlot{}, false
			}
		}
		code := make([]byte, min(part.entry, part.end-part.start-off))
		if readFull(p.im.f, code, part.off+int64(off)) != nil {
			return 0, 0, pltSlot{}, false
		}
		got, ok := p.decode(code, part.start+off)
		if !ok {
			return 0, 0, pltSlot{}, false
		}
		slot, ok := p.slots[got]
		return part.start + off, uint64(len(code)), slot, ok
	}
	return 0, 0, pltSlot{}, false
}

// decode returns the address of the slot through which the code of one entry at
// addr jumps.
func (p *pltTable) decode(code []byte, addr uint64) (uint64, bool) {
	switch p.im.machine {
	case elf.EM_X86_64, elf.EM_386:
		return p.decodeX86(code, addr)
	case elf.EM_AARCH64:
		return p.decodeARM64(code, addr)
	case elf.EM_S390:
		// larl %r1,slot: c0 10, then a signed count of halfwords.
		if len(code) >= 6 && code[0] == 0xc0 && code[1] == 0x10 {
			rel := int64(int32(p.im.order.Uint32(code[2:])))
			return addr + uint64(rel*2), true
		}
	}
	return 0, false
}

func (p *pltTable) decodeX86(code []byte, addr uint64) (uint64, bool) {
	i := 0
	if len(code) >= 4 && code[0] == 0xf3 && code[1] == 0x0f && code[2] == 0x1e { // endbr64, endbr32
		i = 4
	}
	if i < len(code) && code[i] == 0xf2 { // bnd
		i++
	}
	if len(code) < i+6 || code[i] != 0xff {
		return 0, false
	}
	disp := p.im.order.Uint32(code[i+2:])
	switch {
	case code[i+1] == 0x25 && p.im.is64: // jmp *disp(%rip)
		return addr + uint64(i+6) + uint64(int64(int32(disp))), true
	case code[i+1] == 0x25: // jmp *address
		return uint64(disp), true
	case code[i+1] == 0xa3 && !p.im.is64: // jmp *disp(%ebx)
		return (p.gotBase + uint64(disp)) & 0xffffffff, true
	}
	return 0, false
}

// decodeARM64 looks for adrp x16, page and ldr x17, [x16, #off]; a bti may
// stand before them.
func (p *pltTable) decodeARM64(code []byte, addr uint64) (uint64, bool) {
	for i := 0; i+8 <= len(code); i += 4 {
		adrp, ldr := p.im.order.Uint32(code[i:]), p.im.order.Uint32(code[i+4:])
		if adrp&0x9f00001f != 0x90000010 || ldr&0xffc003ff != 0xf9400211 {
			continue
		}
		imm := uint64(adrp>>29&3) | uint64(adrp>>5&0x7ffff)<<2 // 21 bits, signed
		page := (addr+uint64(i))&^0xfff + uint64(int64(imm<<43)>>43)<<12
		return page + uint64(ldr>>10&0xfff)*8, true
	}
	return 0, false
}

// symName is the name of dynamic symbol number n.
func (p *pltTable) symName(n uint32) string {
	ent := int64(p.im.symbolBytes())
	var b [4]byte
	off := int64(n) * ent
	if off+ent > p.symSize || readFull(p.im.f, b[:], p.symOff+off) != nil {
		return ""
	}
	return p.strs.name(p.im.order.Uint32(b[:]))
}
