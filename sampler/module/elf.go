package module

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"sort"

	"sfsample/regs"
)

// Program header type of a stack trace table (SFrame version 3 specification,
// and binutils' include/elf/common.h); debug/elf does not have it.
const ptGNUSFrame elf.ProgType = 0x6474e554

// Section type of such a table in files of binutils 2.45 and later.
const shtGNUSFrame elf.SectionType = 0x6ffffff4

// Bounds on what is read of an ELF file in order to find its tables. All are
// far above what linkers write.
const (
	maxPhdrs     = 256
	maxPhdrBytes = 256 // of one; they have 32 or 56
	maxNotes     = 16
	maxNoteBytes = 4 << 10
	maxBuildID   = 64 // bytes; linkers write 8 to 20
	maxSFrames   = 16 // tables of one object
)

// HeaderError is a defect of an ELF header, in memory or in a file.
type HeaderError struct {
	Off   uint64 // offset of the defective field in the file
	Text  string // what is wrong
	Value uint64 // the offending value
}

func (e *HeaderError) Error() string {
	return fmt.Sprintf("ELF header at %#x: %s (%#x)", e.Off, e.Text, e.Value)
}

// region is a part of an object: link-time addresses, in bytes.
type region struct{ addr, size uint64 }

// load is a PT_LOAD segment.
type load struct {
	vaddr, memsz uint64
	off, filesz  uint64
	flags        elf.ProgFlag
}

// header is what the ELF header and the program headers of an object tell.
type header struct {
	arch    *regs.Arch // nil: a machine that we do not know
	machine elf.Machine
	enc     encoding
	typ     elf.Type
	entry   uint64
	shdrs   sectionTable
	loads   []load
	placed  []placed // the parts of the file that the loads have, in ascending order
	sframes []region
	ehHdr   region
	dynamic region
	interp  bool   // there is a PT_INTERP: a program
	notes   []note // of PT_NOTE
	// sum is the hash of the bytes of both headers: objects whose tables lie
	// in different places differ in it.
	sum [sha256.Size]byte
	// size is where the program headers end, in bytes from the ELF header.
	size uint64
}

// note is a PT_NOTE segment, by address and by offset in the file.
type note struct{ addr, off, size uint64 }

// sectionTable is where the section headers are in the file.
type sectionTable struct {
	off   uint64
	num   int
	ent   int // bytes of one
	names int // number of the section with the sections' names
}

// encoding is the size of words and their byte order.
type encoding struct {
	class elf.Class
	data  elf.Data
	order binary.ByteOrder
}

// layout holds the sizes of headers and the offsets of their fields, which differ between 32 and 64
// bits (System V gABI, chapters 4 and 5).
type layout struct {
	ehdr ehdrLayout
	phdr phdrLayout
	shdr shdrLayout
}

type (
	ehdrLayout struct{ size, entry, phoff, shoff, phentsize, shentsize int }
	phdrLayout struct{ size, flags, off, vaddr, filesz, memsz int }
	shdrLayout struct{ size, flags, addr, off, length, link, entsize int }
)

var (
	layout64 = layout{ehdrLayout{size: 64, entry: 24, phoff: 32, shoff: 40, phentsize: 54, shentsize: 58},
		phdrLayout{size: 56, flags: 4, off: 8, vaddr: 16, filesz: 32, memsz: 40},
		shdrLayout{size: 64, flags: 8, addr: 16, off: 24, length: 32, link: 40, entsize: 56}}
	layout32 = layout{ehdrLayout{size: 52, entry: 24, phoff: 28, shoff: 32, phentsize: 42, shentsize: 46},
		phdrLayout{size: 32, flags: 24, off: 4, vaddr: 8, filesz: 16, memsz: 20},
		shdrLayout{size: 40, flags: 8, addr: 12, off: 16, length: 20, link: 24, entsize: 36}}
)

func (e *encoding) layout() *layout {
	if e.class == elf.ELFCLASS32 {
		return &layout32
	}
	return &layout64
}

// word reads an address-sized field.
func (e *encoding) word(b []byte) uint64 {
	if e.class == elf.ELFCLASS32 {
		return uint64(e.order.Uint32(b))
	}
	return e.order.Uint64(b)
}

// readHeader reads both headers from r, whose offset base is the first byte of
// the ELF header. The error is a *HeaderError or one of r.
func readHeader(r io.ReaderAt, base int64) (*header, error) {
	var ident [64]byte
	if n, err := r.ReadAt(ident[:layout32.ehdr.size], base); n < layout32.ehdr.size {
		return nil, fmt.Errorf("read ELF header: %w", orEOF(err))
	}
	enc, err := parseIdent(ident[:])
	if err != nil {
		return nil, err
	}
	l := &enc.layout().ehdr
	if n, err := r.ReadAt(ident[:l.size], base); n < l.size {
		return nil, fmt.Errorf("read ELF header: %w", orEOF(err))
	}
	b := ident[:l.size]
	half := func(at int) int { return int(enc.order.Uint16(b[at:])) }
	h := &header{
		enc: enc, typ: elf.Type(half(16)), machine: elf.Machine(half(18)), entry: enc.word(b[l.entry:]),
		shdrs: sectionTable{enc.word(b[l.shoff:]), half(l.shentsize + 2), half(l.shentsize), half(l.shentsize + 4)},
	}
	h.arch, _ = regs.ByELF(h.machine, enc.class, enc.data)

	phoff := enc.word(b[l.phoff:])
	phent, phnum := half(l.phentsize), half(l.phentsize+2)
	switch {
	case phnum == 0:
		return nil, &HeaderError{uint64(l.phentsize + 2), "no program headers", 0}
	case phnum > maxPhdrs:
		return nil, &HeaderError{uint64(l.phentsize + 2), "too many program headers", uint64(phnum)}
	case phent < enc.layout().phdr.size || phent > maxPhdrBytes:
		return nil, &HeaderError{uint64(l.phentsize), "program headers of odd size", uint64(phent)}
	case phoff > 1<<40:
		return nil, &HeaderError{uint64(l.phoff), "program headers too far away", phoff}
	}
	table := make([]byte, phnum*phent)
	if n, err := r.ReadAt(table, base+int64(phoff)); n < len(table) {
		return nil, fmt.Errorf("read program headers: %w", orEOF(err))
	}
	sum := sha256.New()
	sum.Write(b)
	sum.Write(table)
	sum.Sum(h.sum[:0])
	h.size = phoff + uint64(len(table))
	for i := range phnum {
		h.addProg(table[i*phent:])
	}
	if len(h.loads) == 0 {
		return nil, &HeaderError{phoff, "no loadable segment", uint64(phnum)}
	}
	h.arrange()
	return h, nil
}

// orEOF is for a short read without an error of its own.
func orEOF(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}

func parseIdent(b []byte) (e encoding, err error) {
	if !bytes.Equal(b[:4], []byte(elf.ELFMAG)) {
		return e, &HeaderError{0, "not ELF", uint64(binary.BigEndian.Uint32(b))}
	}
	e.class, e.data = elf.Class(b[4]), elf.Data(b[5])
	if e.class != elf.ELFCLASS32 && e.class != elf.ELFCLASS64 {
		return e, &HeaderError{4, "bad class", uint64(b[4])}
	}
	switch e.data {
	case elf.ELFDATA2LSB:
		e.order = binary.LittleEndian
	case elf.ELFDATA2MSB:
		e.order = binary.BigEndian
	default:
		return e, &HeaderError{5, "bad byte order", uint64(b[5])}
	}
	return e, nil
}

// addProg takes one program header.
func (h *header) addProg(b []byte) {
	e, l := &h.enc, &h.enc.layout().phdr
	p := load{
		vaddr: e.word(b[l.vaddr:]), memsz: e.word(b[l.memsz:]),
		off: e.word(b[l.off:]), filesz: e.word(b[l.filesz:]),
		flags: elf.ProgFlag(e.order.Uint32(b[l.flags:])),
	}
	if p.vaddr+p.memsz < p.vaddr || p.off+p.filesz < p.off {
		return // wraps: nothing can be mapped from it
	}
	switch elf.ProgType(e.order.Uint32(b)) {
	case elf.PT_LOAD:
		p.filesz = min(p.filesz, p.memsz)
		if p.memsz > 0 {
			h.loads = append(h.loads, p)
		}
	case ptGNUSFrame:
		if len(h.sframes) < maxSFrames {
			h.sframes = append(h.sframes, region{p.vaddr, p.memsz})
		}
	case elf.PT_GNU_EH_FRAME:
		if h.ehHdr.size == 0 {
			h.ehHdr = region{p.vaddr, p.memsz}
		}
	case elf.PT_DYNAMIC:
		h.dynamic = region{p.vaddr, p.filesz}
	case elf.PT_INTERP:
		h.interp = true
	case elf.PT_NOTE:
		if len(h.notes) < maxNotes && p.filesz > 0 {
			h.notes = append(h.notes, note{p.vaddr, p.off, p.filesz})
		}
	}
}

// first is the load whose bytes begin the file: the one that holds the ELF
// header if that is mapped at all.
func (h *header) first() load {
	f := h.loads[0]
	for _, p := range h.loads[1:] {
		if p.off < f.off {
			f = p
		}
	}
	return f
}

// placed is a part of the file that segments have at one distance of link-time
// address and offset.
type placed struct{ skew, off, end uint64 }

// arrange sorts what the loads have of the file and joins what overlaps.
func (h *header) arrange() {
	all := make([]placed, len(h.loads))
	for i, p := range h.loads {
		all[i] = placed{p.vaddr - p.off, p.off, p.off + p.filesz}
	}
	slices.SortFunc(all, func(a, b placed) int { return cmp.Or(cmp.Compare(a.skew, b.skew), cmp.Compare(a.off, b.off)) })
	for _, p := range all {
		if n := len(h.placed); n > 0 && h.placed[n-1].skew == p.skew && p.off <= h.placed[n-1].end {
			h.placed[n-1].end = max(h.placed[n-1].end, p.end)
			continue
		}
		h.placed = append(h.placed, p)
	}
}

// place tells whether the bytes of the file at off, mapped at addr for size
// bytes, belong to this object loaded with the given bias.
func (h *header) place(bias, addr, off, size uint64) bool {
	// Both ends of a mapping are rounded to pages, the difference of address and
	// offset is not.
	skew := addr - off - bias
	i := sort.Search(len(h.placed), func(i int) bool {
		p := &h.placed[i]
		return p.skew > skew || p.skew == skew && p.end > off
	})
	return i < len(h.placed) && h.placed[i].skew == skew && off+size > h.placed[i].off
}

// biasOf returns the bias with which the mapping of the file at off lies at
// addr; executable segments only.
func (h *header) biasOf(addr, off, size uint64) (uint64, bool) {
	for _, p := range h.loads {
		if p.flags&elf.PF_X != 0 && off < p.off+p.filesz && off+size > p.off {
			return addr - off - (p.vaddr - p.off), true
		}
	}
	return 0, false
}

// loadAt returns the load that holds r from the file, whole.
func (h *header) loadAt(r region) (load, bool) {
	for _, p := range h.loads {
		if r.addr >= p.vaddr && r.addr-p.vaddr < p.filesz && r.size <= p.filesz-(r.addr-p.vaddr) {
			return p, true
		}
	}
	return load{}, false
}

// buildID returns the build-id in lower-case hex and the place of its bytes,
// empty if there is none. r is addressed by link-time address, or by file
// offset if byOff is set.
func (h *header) buildID(r io.ReaderAt, byOff bool) (id string, at region) {
	for _, n := range h.notes {
		addr := n.addr
		if byOff {
			addr = n.off
		}
		b := make([]byte, min(n.size, maxNoteBytes))
		got, _ := r.ReadAt(b, int64(addr))
		if id, off := findBuildID(b[:got], h.enc.order); id != "" {
			return id, region{n.addr + uint64(off), uint64(len(id) / 2)}
		}
	}
	return "", region{}
}

// ntGNUBuildID is the type of the note (NT_GNU_BUILD_ID in elf.h).
const ntGNUBuildID = 3

// findBuildID looks for the note of owner GNU in a PT_NOTE segment and returns
// the id and the offset of its bytes.
func findBuildID(b []byte, order binary.ByteOrder) (id string, off int) {
	for pos := 0; len(b)-pos >= 12; {
		namesz, descsz := uint64(order.Uint32(b[pos:])), uint64(order.Uint32(b[pos+4:]))
		typ := order.Uint32(b[pos+8:])
		name := uint64(pos) + 12
		desc := name + (namesz+3)&^3
		next := desc + (descsz+3)&^3
		if desc+descsz > uint64(len(b)) {
			return "", 0
		}
		if typ == ntGNUBuildID && namesz == 4 && string(b[name:name+4]) == "GNU\x00" &&
			descsz > 0 && descsz <= maxBuildID {
			return hex.EncodeToString(b[desc : desc+descsz]), int(desc)
		}
		if next > uint64(len(b)) {
			return "", 0
		}
		pos = int(next)
	}
	return "", 0
}
