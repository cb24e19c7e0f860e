package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// testSym is a symbol of a file that a test builds.
type testSym struct {
	name  string
	value uint64
	size  uint64
	bind  elf.SymBind
	typ   elf.SymType
	undef bool
}

// testELF builds small ELF files: what the tests say of symbols must hold for
// both classes and byte orders.
type testELF struct {
	class   elf.Class
	order   binary.ByteOrder
	machine elf.Machine
	text    []span // executable sections
	syms    []testSym
	dynsyms []testSym
	extra   []testSection
	progs   []prog // of 64-bit files
	shent   uint16 // size of a section header, 0 for that of the class
}

// testSection is a further section that is not loaded.
type testSection struct {
	name  string
	typ   elf.SectionType
	flags elf.SectionFlag
	data  []byte
	addr  uint64
	ent   uint64
	hole  uint64 // bytes that it has behind the file's other contents, in place of data
	count int    // of such sections; 0 is 1
}

// holes is where the holes of sections begin in the file.
const holes = 1 << 20

func (e *testELF) is64() bool { return e.class == elf.ELFCLASS64 }

// word appends an address-sized number.
func (e *testELF) word(b []byte, v uint64) []byte {
	if e.is64() {
		return e.u64(b, v)
	}
	return e.u32(b, uint32(v))
}

func (e *testELF) u16(b []byte, v uint16) []byte {
	return e.order.(binary.AppendByteOrder).AppendUint16(b, v)
}
func (e *testELF) u32(b []byte, v uint32) []byte {
	return e.order.(binary.AppendByteOrder).AppendUint32(b, v)
}
func (e *testELF) u64(b []byte, v uint64) []byte {
	return e.order.(binary.AppendByteOrder).AppendUint64(b, v)
}

func (e *testELF) symbols(list []testSym) (tab, str []byte) {
	str = []byte{0}
	ent := 16
	if e.is64() {
		ent = 24
	}
	tab = make([]byte, ent)
	for _, s := range list {
		name := uint32(len(str))
		str = append(append(str, s.name...), 0)
		info, shndx := byte(s.bind)<<4|byte(s.typ), uint16(1)
		if s.undef {
			shndx = 0
		}
		tab = e.u32(tab, name)
		if e.is64() {
			tab = append(tab, info, 0)
			tab = e.u16(tab, shndx)
			tab = e.u64(tab, s.value)
			tab = e.u64(tab, s.size)
		} else {
			tab = e.u32(tab, uint32(s.value))
			tab = e.u32(tab, uint32(s.size))
			tab = append(tab, info, 0)
			tab = e.u16(tab, shndx)
		}
	}
	return tab, str
}

// bytes lays the file out: header, contents of sections, section headers.
func (e *testELF) bytes() []byte {
	type header struct {
		name            string
		typ             elf.SectionType
		flags           elf.SectionFlag
		addr, off, size uint64
		link            uint32
		ent             uint64
	}
	heads := []header{{}}
	ehsize, shentsize, symEnt := 52, 40, uint64(16)
	if e.is64() {
		ehsize, shentsize, symEnt = 64, 64, 24
	}
	body := make([]byte, ehsize)
	add := func(h header, data []byte) {
		h.off, h.size = uint64(len(body)), uint64(len(data))
		body = append(body, data...)
		heads = append(heads, h)
	}
	for _, t := range e.text {
		heads = append(heads, header{name: ".text", typ: elf.SHT_NOBITS, flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR,
			addr: t.start, off: uint64(len(body)), size: t.end - t.start})
	}
	for _, s := range []struct {
		name string
		typ  elf.SectionType
		list []testSym
	}{{".symtab", elf.SHT_SYMTAB, e.syms}, {".dynsym", elf.SHT_DYNSYM, e.dynsyms}} {
		if s.list == nil {
			continue
		}
		tab, str := e.symbols(s.list)
		add(header{name: s.name, typ: s.typ, link: uint32(len(heads) + 1), ent: symEnt}, tab)
		add(header{name: s.name + "str", typ: elf.SHT_STRTAB}, str)
	}
	for _, s := range e.extra {
		add(header{name: s.name, typ: s.typ, flags: s.flags, addr: s.addr, ent: s.ent}, s.data)
		if s.hole > 0 {
			heads[len(heads)-1].off, heads[len(heads)-1].size = holes, s.hole
		}
		for range s.count - 1 {
			heads = append(heads, heads[len(heads)-1])
		}
	}
	names := []byte{0}
	nameOffs := make([]uint32, len(heads)+1)
	for i := range heads {
		nameOffs[i] = uint32(len(names))
		names = append(append(names, heads[i].name...), 0)
	}
	nameOffs[len(heads)] = uint32(len(names))
	names = append(names, ".shstrtab\x00"...)
	add(header{name: ".shstrtab", typ: elf.SHT_STRTAB}, names)

	shoff := len(body)
	for i, h := range heads {
		body = e.u32(body, nameOffs[i])
		body = e.u32(body, uint32(h.typ))
		body = e.word(body, uint64(h.flags))
		body = e.word(body, h.addr)
		body = e.word(body, h.off)
		body = e.word(body, h.size)
		body = e.u32(body, h.link)
		body = e.u32(body, 0)
		body = e.word(body, 1)
		body = e.word(body, h.ent)
	}
	phoff := 0
	if len(e.progs) > 0 {
		phoff = len(body)
	}
	for _, p := range e.progs {
		body = e.u32(body, uint32(p.typ))
		body = e.u32(body, uint32(p.flags))
		for _, v := range []uint64{uint64(p.off), p.vaddr, p.vaddr, uint64(p.filesz), p.memsz, 1} {
			body = e.u64(body, v)
		}
	}
	var hd []byte
	data := elf.ELFDATA2LSB
	if e.order == binary.ByteOrder(binary.BigEndian) {
		data = elf.ELFDATA2MSB
	}
	hd = append(hd, elf.ELFMAG...)
	hd = append(hd, byte(e.class), byte(data), 1, 0)
	hd = append(hd, make([]byte, 8)...)
	hd = e.u16(hd, uint16(elf.ET_DYN))
	hd = e.u16(hd, uint16(e.machine))
	hd = e.u32(hd, 1)
	hd = e.word(hd, 0)
	hd = e.word(hd, uint64(phoff))
	hd = e.word(hd, uint64(shoff))
	hd = e.u32(hd, 0)
	hd = e.u16(hd, uint16(ehsize))
	hd = e.u16(hd, 56)
	hd = e.u16(hd, uint16(len(e.progs)))
	if e.shent != 0 {
		shentsize = int(e.shent)
	}
	hd = e.u16(hd, uint16(shentsize))
	hd = e.u16(hd, uint16(len(heads)))
	hd = e.u16(hd, uint16(len(heads)-1))
	copy(body, hd)
	return body
}

func (e *testELF) open(opt Options) *Object {
	return Open(bytes.NewReader(e.bytes()), "/test", opt)
}

// kinds are the classes and byte orders of the supported machines.
var kinds = []struct {
	name    string
	class   elf.Class
	order   binary.ByteOrder
	machine elf.Machine
}{
	{"amd64", elf.ELFCLASS64, binary.LittleEndian, elf.EM_X86_64},
	{"386", elf.ELFCLASS32, binary.LittleEndian, elf.EM_386},
	{"arm64", elf.ELFCLASS64, binary.LittleEndian, elf.EM_AARCH64},
	{"s390x", elf.ELFCLASS64, binary.BigEndian, elf.EM_S390},
}
