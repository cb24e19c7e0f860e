package module

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"syscall"

	"sfsample/ptrace/procfs"
	"sfsample/sframe"
)

// image describes an ELF file for tests: offset = link-time address - base.
//
//	0x0000  headers, build-id, .eh_frame_hdr, .eh_frame, .sframe   R
//	0x1000  code of 0x1000 bytes                                    R X
//	0x3000  the same, if twoTexts                                   R X
//	0x5000  data                                                    RW
//	0x6000  section headers, names, symbols                         not loaded
//
// The tables have one function, of all code of the first text, and a row whose
// CFA is rsp plus cfa in .eh_frame and plus cfa+100 in .sframe.
type image struct {
	class    elf.Class // 0: 64 bits
	order    binary.ByteOrder
	typ      elf.Type // 0: ET_DYN
	base     uint64
	entry    uint64
	buildID  string
	cfa      int8
	twoTexts bool
	interp   bool

	sframe    int  // version; 0: none
	abi       byte // 0: amd64
	noSFPhdr  bool // only a section header tells of .sframe
	dupSF     bool // two PT_GNU_SFRAME, the first one of zeros
	noEH      bool
	noEHPhdr  bool
	tablesRW  bool // the first segment is writable
	sections  bool
	debug     bool // .debug_frame, whose row has rsp plus cfa+50
	text      bool // a section of the code
	goTable   bool // a section named like Go's table of functions
	symbols   map[string]uint64
	unsized   bool // the symbols have no sizes
	wholeText bool // one RX segment from offset 0 on
}

const (
	imgNote  = 0x400
	imgHdr   = 0x480
	imgFrame = 0x500
	imgSF    = 0x600
	imgZero  = 0x700
	imgText  = 0x1000
	imgText2 = 0x3000
	imgData  = 0x5000
	imgShdr  = 0x6000
	imgEnd   = 0x8000
)

type prog struct {
	typ       elf.ProgType
	flags     elf.ProgFlag
	off, size uint64
}

func (im image) ord() binary.ByteOrder {
	if im.order == nil {
		return binary.LittleEndian
	}
	return im.order
}

// word appends an address-sized field.
func (im image) word(b []byte, v uint64) []byte {
	o := im.ord().(binary.AppendByteOrder)
	if im.class == elf.ELFCLASS32 {
		return o.AppendUint32(b, uint32(v))
	}
	return o.AppendUint64(b, v)
}

// bytes lays the file out.
func (im image) bytes() []byte {
	o := im.ord().(binary.AppendByteOrder)
	f := make([]byte, imgEnd)
	is32 := im.class == elf.ELFCLASS32
	for i := imgText; i < imgData; i++ {
		f[i] = 0x90
	}
	progs := im.progs()

	ident := []byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	machine, l := elf.EM_X86_64, layout64
	if is32 {
		ident[4], machine, l = 1, elf.EM_386, layout32
	}
	if im.order == binary.BigEndian {
		ident[5], machine = 2, elf.EM_S390
	}
	typ := im.typ
	if typ == 0 {
		typ = elf.ET_DYN
	}
	h := o.AppendUint16(ident, uint16(typ))
	h = o.AppendUint16(h, uint16(machine))
	h = o.AppendUint32(h, 1)
	h = im.word(h, im.entry)
	h = im.word(h, uint64(l.ehdr.size))
	shoff, shnum := uint64(0), 0
	shdrs, strtab, symtab := im.shdrs()
	if im.sections {
		shoff, shnum = imgShdr, len(shdrs)/l.shdr.size
		copy(f[imgShdr:], shdrs)
		copy(f[imgShdr+0x800:], strtab)
		copy(f[imgShdr+0x1000:], symtab)
		copy(f[imgShdr+0x1800:], im.debugFrame())
	}
	h = im.word(h, shoff)
	h = o.AppendUint32(h, 0)
	for _, v := range []int{l.ehdr.size, l.phdr.size, len(progs), l.shdr.size, shnum, min(shnum, 1)} {
		h = o.AppendUint16(h, uint16(v))
	}
	for _, p := range progs {
		h = o.AppendUint32(h, uint32(p.typ))
		if !is32 {
			h = o.AppendUint32(h, uint32(p.flags))
		}
		h = im.word(h, p.off)
		h = im.word(h, im.base+p.off)
		h = im.word(h, im.base+p.off)
		h = im.word(h, p.size)
		h = im.word(h, p.size)
		if is32 {
			h = o.AppendUint32(h, uint32(p.flags))
		}
		h = im.word(h, 0x1000)
	}
	copy(f, h)
	copy(f[imgNote:], im.note())
	if !im.noEH {
		hdr, frame := im.ehFrame()
		copy(f[imgHdr:], hdr)
		copy(f[imgFrame:], frame)
	}
	if im.sframe > 0 {
		copy(f[imgSF:], im.sframeSection())
	}
	return f
}

func (im image) progs() []prog {
	first := prog{elf.PT_LOAD, elf.PF_R, 0, 0x1000}
	if im.tablesRW {
		first.flags |= elf.PF_W
	}
	p := []prog{first, {elf.PT_LOAD, elf.PF_R | elf.PF_X, imgText, 0x1000}}
	if im.wholeText {
		p = []prog{{elf.PT_LOAD, elf.PF_R | elf.PF_X, 0, 0x2000}}
	}
	if im.twoTexts {
		p = append(p, prog{elf.PT_LOAD, elf.PF_R | elf.PF_X, imgText2, 0x1000})
	}
	p = append(p, prog{elf.PT_LOAD, elf.PF_R | elf.PF_W, imgData, 0x800})
	if im.buildID != "" {
		p = append(p, prog{elf.PT_NOTE, elf.PF_R, imgNote, uint64(len(im.note()))})
	}
	if im.interp {
		p = append(p, prog{elf.PT_INTERP, elf.PF_R, imgZero, 1})
	}
	if !im.noEH && !im.noEHPhdr {
		hdr, _ := im.ehFrame()
		p = append(p, prog{elf.PT_GNU_EH_FRAME, elf.PF_R, imgHdr, uint64(len(hdr))})
	}
	if im.dupSF {
		p = append(p, prog{ptGNUSFrame, elf.PF_R, imgZero, 28})
	}
	if im.sframe > 0 && !im.noSFPhdr {
		p = append(p, prog{ptGNUSFrame, elf.PF_R, imgSF, uint64(len(im.sframeSection()))})
	}
	return p
}

func (im image) note() []byte {
	o := im.ord().(binary.AppendByteOrder)
	b := o.AppendUint32(nil, 4) // another note first, as linkers do
	b = o.AppendUint32(b, 8)
	b = o.AppendUint32(b, 5)
	b = append(b, "GNU\x00\x01\x02\x03\x04\x05\x06\x07\x08"...)
	b = o.AppendUint32(b, 4)
	b = o.AppendUint32(b, uint32(len(im.buildID)))
	b = o.AppendUint32(b, ntGNUBuildID)
	b = append(b, "GNU\x00"...)
	b = append(b, im.buildID...)
	return append(b, make([]byte, -len(b)&3)...)
}

// ehFrame writes .eh_frame_hdr and .eh_frame (LSB Core 5.0, chapter 10.6): CFA is
// rsp+cfa, the return address at CFA-8.
func (im image) ehFrame() (hdr, frame []byte) {
	o := im.ord().(binary.AppendByteOrder)
	// CIE: version 1, "zR", code alignment 1, data alignment -8, RA 16, pointers
	// pcrel sdata4; DW_CFA_def_cfa rsp, cfa; DW_CFA_offset 16 at 1*-8.
	cie := append([]byte{0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 0x1b, 0x0c, 7, byte(im.cfa), 0x90, 1}, 0, 0)
	frame = o.AppendUint32(nil, uint32(len(cie)))
	frame = append(frame, cie...)
	fde := uint64(len(frame))
	frame = o.AppendUint32(frame, 16)
	frame = o.AppendUint32(frame, uint32(fde+4))
	frame = o.AppendUint32(frame, uint32(imgText-(imgFrame+fde+8)))
	frame = o.AppendUint32(frame, 0x1000)
	frame = append(frame, 0, 0, 0, 0)
	frame = o.AppendUint32(frame, 0)
	// Version 1; pointer pcrel sdata4, count udata4, table datarel sdata4.
	hdr = []byte{1, 0x1b, 3, 0x3b}
	hdr = o.AppendUint32(hdr, uint32(imgFrame-(imgHdr+4)))
	hdr = o.AppendUint32(hdr, 1)
	hdr = o.AppendUint32(hdr, uint32(imgText-imgHdr))
	hdr = o.AppendUint32(hdr, uint32(imgFrame+fde-imgHdr))
	return hdr, frame
}

// debugFrame writes .debug_frame (DWARF 5 section 6.4.1), version 3.
func (im image) debugFrame() []byte {
	o := im.ord().(binary.AppendByteOrder)
	cie := []byte{0xff, 0xff, 0xff, 0xff, 3, 0, 1, 0x78, 16, 0x0c, 7, byte(im.cfa) + 50, 0x90, 1, 0, 0}
	b := o.AppendUint32(nil, uint32(len(cie)))
	b = append(b, cie...)
	fde := im.word(im.word(o.AppendUint32(nil, 0), im.base+imgText), 0x1000)
	b = o.AppendUint32(b, uint32(len(fde)))
	return append(b, fde...)
}

// sframeSection writes a section with one function and one row: CFA is
// rsp+cfa+100.
func (im image) sframeSection() []byte {
	o := im.ord().(binary.AppendByteOrder)
	abi := im.abi
	if abi == 0 {
		abi = byte(sframe.AMD64)
	}
	fde, row := []byte{}, []byte{0, 1 | 1<<1, byte(im.cfa) + 100} // at 0; CFA from SP, one word of a byte
	flags := byte(sframe.FlagSorted)
	switch im.sframe {
	case 1, 2:
		// Function starts count from the section.
		fde = o.AppendUint32(fde, uint32(int32(imgText-imgSF)))
		fde = o.AppendUint32(fde, 0x1000)
		fde = o.AppendUint32(fde, 0)
		fde = o.AppendUint32(fde, 1)
		fde = append(fde, 0)
		if im.sframe == 2 {
			fde = append(fde, 0, 0, 0)
		}
	case 3:
		flags |= sframe.FlagPCRel
		fde = o.AppendUint64(fde, uint64(imgText-(imgSF+28)))
		fde = o.AppendUint32(fde, 0x1000)
		fde = o.AppendUint32(fde, 0)
		row = append(o.AppendUint16(nil, 1), append([]byte{0, 0, 0}, row...)...)
	}
	b := o.AppendUint16(nil, 0xdee2)
	b = append(b, byte(im.sframe), flags, abi, 0, 0xf8, 0)
	for _, v := range []int{1, 1, len(row), 0, len(fde)} {
		b = o.AppendUint32(b, uint32(v))
	}
	return append(append(b, fde...), row...)
}

// shdrs writes section headers, their names and symbol names, and the symbols.
func (im image) shdrs() (hdrs, strs, syms []byte) {
	o := im.ord().(binary.AppendByteOrder)
	is32 := im.class == elf.ELFCLASS32
	strs = []byte{0}
	name := func(s string) uint32 {
		n := len(strs)
		strs = append(append(strs, s...), 0)
		return uint32(n)
	}
	entsize := 24
	if is32 {
		entsize = 16
	}
	syms = make([]byte, entsize)
	symSize := uint32(16)
	if im.unsized {
		symSize = 0
	}
	for n, addr := range im.symbols {
		syms = o.AppendUint32(syms, name(n))
		if is32 {
			syms = o.AppendUint32(o.AppendUint32(syms, uint32(addr)), symSize)
		}
		typ := elf.STT_FUNC
		if n == string(jitDescriptor) {
			typ = elf.STT_OBJECT
		}
		syms = append(syms, byte(typ), 0)
		syms = o.AppendUint16(syms, 1)
		if !is32 {
			syms = o.AppendUint64(o.AppendUint64(syms, addr), uint64(symSize))
		}
	}
	add := func(n string, typ elf.SectionType, flags elf.SectionFlag, off, size uint64, ent int) {
		addr := uint64(0)
		if flags&elf.SHF_ALLOC != 0 {
			addr = im.base + off
		}
		hdrs = o.AppendUint32(hdrs, name(n))
		hdrs = o.AppendUint32(hdrs, uint32(typ))
		for _, v := range []uint64{uint64(flags), addr, off, size} {
			hdrs = im.word(hdrs, v)
		}
		hdrs = o.AppendUint32(hdrs, 1) // link: .strtab
		hdrs = o.AppendUint32(hdrs, 0)
		hdrs = im.word(hdrs, 1)
		hdrs = im.word(hdrs, uint64(ent))
	}
	add("", elf.SHT_NULL, 0, 0, 0, 0)
	add(".strtab", elf.SHT_STRTAB, 0, imgShdr+0x800, 0x800, 0)
	add(".symtab", elf.SHT_SYMTAB, 0, imgShdr+0x1000, uint64(len(syms)), entsize)
	if !im.noEH {
		_, frame := im.ehFrame()
		add(".eh_frame", elf.SHT_PROGBITS, elf.SHF_ALLOC, imgFrame, uint64(len(frame)), 0)
	}
	if im.debug {
		add(".debug_frame", elf.SHT_PROGBITS, 0, imgShdr+0x1800, uint64(len(im.debugFrame())), 0)
	}
	if im.text {
		add(".text", elf.SHT_PROGBITS, elf.SHF_ALLOC|elf.SHF_EXECINSTR, imgText, 0x1000, 0)
	}
	if im.goTable {
		add(".gopclntab", elf.SHT_PROGBITS, elf.SHF_ALLOC, imgZero, 16, 0)
	}
	if im.sframe > 0 {
		add(".sframe", elf.SHT_PROGBITS, elf.SHF_ALLOC, imgSF, uint64(len(im.sframeSection())), 0)
	}
	return hdrs, strs, syms
}

// process is a Source made by hand.
type process struct {
	maps  []procfs.Mapping
	mem   []memory
	files map[uint64][]byte // by inode

	reads  int // calls of ReadAt
	listed int // calls of Maps
	opened int // calls of OpenFile
	gone   bool
	// failAt: the read with this number fails, if it is not 0; half: in its midst; onward: and those after it.
	failAt       int
	half, onward bool
	// fileFails: the read of a file with this number does, and opening one, if that comes before; 0: none. fileReads are both so far.
	fileFails, fileReads int
	broken               bool // all of these fail
}

type memory struct {
	start uint64
	data  []byte
}

func (p *process) Maps() ([]procfs.Mapping, error) {
	p.listed++
	if p.gone {
		return nil, syscall.ESRCH
	}
	return slices.Clone(p.maps), nil
}

func (p *process) ReadAt(b []byte, addr int64) (int, error) {
	p.reads++
	if p.gone {
		return 0, syscall.ESRCH
	}
	if p.reads == p.failAt && p.half {
		return len(b) / 2, io.ErrUnexpectedEOF
	} else if p.reads == p.failAt || p.onward && p.failAt > 0 && p.reads > p.failAt {
		return 0, syscall.EIO
	}
	for _, m := range p.mem {
		if a := uint64(addr); a >= m.start && a-m.start < uint64(len(m.data)) {
			n := copy(b, m.data[a-m.start:])
			if n < len(b) {
				return n, io.ErrUnexpectedEOF
			}
			return n, nil
		}
	}
	return 0, syscall.EFAULT
}

func (p *process) OpenFile(m procfs.Mapping) (File, error) {
	p.opened++
	b := p.files[m.Inode]
	if b == nil {
		return nil, &fs.PathError{Op: "open", Path: m.Path, Err: fs.ErrNotExist}
	}
	if err := p.fileRead(); err != nil {
		return nil, &fs.PathError{Op: "open", Path: m.Path, Err: err}
	}
	return bytesFile{io.NewSectionReader(failing{p, bytes.NewReader(b)}, 0, int64(len(b)))}, nil
}

// fileRead fails the one that is to fail.
func (p *process) fileRead() error {
	if p.fileReads++; p.fileReads == p.fileFails || p.broken {
		return syscall.EIO
	}
	return nil
}

// failing reads a file of a process.
type failing struct {
	p *process
	r io.ReaderAt
}

func (f failing) ReadAt(b []byte, off int64) (int, error) {
	if err := f.p.fileRead(); err != nil {
		return 0, err
	}
	return f.r.ReadAt(b, off)
}

// mapAt maps size bytes of file b from off on at addr.
func (p *process) mapAt(addr uint64, perms procfs.Perms, b []byte, off, size uint64, inode uint64, path string) {
	p.maps = append(p.maps, procfs.Mapping{Start: addr, End: addr + size, Perms: perms, Offset: off,
		Dev: procfs.Dev{Major: 8, Minor: 1}, Inode: inode, Path: path})
	slices.SortFunc(p.maps, func(a, b procfs.Mapping) int {
		if a.Start < b.Start {
			return -1
		}
		return 1
	})
	if b != nil {
		p.mem = append(p.mem, memory{addr, slices.Clone(b[off : off+size])})
	}
}

// load maps im as a dynamic linker would, its offset 0 at addr.
func (p *process) load(im image, addr, inode uint64, path string) {
	b := im.bytes()
	for _, s := range im.progs() {
		if s.typ != elf.PT_LOAD {
			continue
		}
		perms := procfs.Perms(0)
		for f, m := range map[elf.ProgFlag]procfs.Perms{elf.PF_R: procfs.Read, elf.PF_W: procfs.Write, elf.PF_X: procfs.Exec} {
			if s.flags&f != 0 {
				perms |= m
			}
		}
		p.mapAt(addr+s.off, perms, b, s.off, (s.size+0xfff)&^0xfff, inode, path)
	}
	if p.files == nil {
		p.files = map[uint64][]byte{}
	}
	p.files[inode] = b
}

// unload takes away all mappings of path.
func (p *process) unload(path string) {
	p.mem = slices.DeleteFunc(p.mem, func(m memory) bool {
		return slices.ContainsFunc(p.maps, func(r procfs.Mapping) bool { return r.Path == path && r.Start == m.start })
	})
	p.maps = slices.DeleteFunc(p.maps, func(r procfs.Mapping) bool { return r.Path == path })
}

// cfaOf returns the CFA's offset from rsp that a row of the images has.
func cfaOf(r *sframe.Row, err error) string {
	switch {
	case errors.Is(err, sframe.ErrNoRow):
		return "none"
	case err != nil:
		return "error"
	case r.Outermost:
		return "outermost"
	}
	return fmt.Sprint(r.CFA.Offset)
}
