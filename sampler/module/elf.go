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
	class   elf.Class
	data    elf.Data
	order   binary.ByteOrder
	typ     elf.Type
	entry   uint64
	shoff   uint64
	shnum   int
	shent   int
	shstr   int
	loads   []load
	placed  []placed // the parts of the file that the loads have, in ascending order
	fileID  string   // build-id, if these are the headers of a file
	sframes []region
	ehHdr   region
	dynamic region
	interp  bool     // there is a PT_INTERP: a program
	notes   []region // of PT_NOTE, by address
	noteOff []uint64 // the same, by file offset
	// sum is the hash of the bytes of both headers: objects whose tables lie
	// in different places differ in it.
	sum [sha256.Size]byte
	// size is where the program headers end, in bytes from the ELF header.
	size uint64
}

// layout holds the sizes and offsets of fields, which differ between 32 and 64
// bits (System V gABI, chapters 4 and 5).
type layout struct {
	ehdr, phdr, shdr      int
	entry, phoff, shoff   int
	phentsize, shentsize  int
	pFlags, pOff, pVaddr  int
	pFilesz, pMemsz       int
	shAddr, shOff, shSize int
	shFlags, shLink       int
	shEntsize             int
}

var (
	layout64 = layout{ehdr: 64, phdr: 56, shdr: 64, entry: 24, phoff: 32, shoff: 40, phentsize: 54, shentsize: 58,
		pFlags: 4, pOff: 8, pVaddr: 16, pFilesz: 32, pMemsz: 40,
		shFlags: 8, shAddr: 16, shOff: 24, shSize: 32, shLink: 40, shEntsize: 56}
	layout32 = layout{ehdr: 52, phdr: 32, shdr: 40, entry: 24, phoff: 28, shoff: 32, phentsize: 42, shentsize: 46,
		pFlags: 24, pOff: 4, pVaddr: 8, pFilesz: 16, pMemsz: 20,
		shFlags: 8, shAddr: 12, shOff: 16, shSize: 20, shLink: 24, shEntsize: 36}
)

func (h *header) layout() *layout {
	if h.class == elf.ELFCLASS32 {
		return &layout32
	}
	return &layout64
}

// word reads an address-sized field.
func (h *header) word(b []byte) uint64 {
	if h.class == elf.ELFCLASS32 {
		return uint64(h.order.Uint32(b))
	}
	return h.order.Uint64(b)
}

// readHeader reads both headers from r, whose offset base is the first byte of
// the ELF header. The error is a *HeaderError or one of r.
func readHeader(r io.ReaderAt, base int64) (*header, error) {
	var ident [64]byte
	if n, err := r.ReadAt(ident[:layout32.ehdr], base); n < layout32.ehdr {
		return nil, fmt.Errorf("read ELF header: %w", orEOF(err))
	}
	h, err := parseIdent(ident[:])
	if err != nil {
		return nil, err
	}
	l := h.layout()
	if n, err := r.ReadAt(ident[:l.ehdr], base); n < l.ehdr {
		return nil, fmt.Errorf("read ELF header: %w", orEOF(err))
	}
	b := ident[:l.ehdr]
	h.typ = elf.Type(h.order.Uint16(b[16:]))
	h.machine = elf.Machine(h.order.Uint16(b[18:]))
	h.arch, _ = regs.ByELF(h.machine, h.class, h.data)
	h.entry, h.shoff = h.word(b[l.entry:]), h.word(b[l.shoff:])
	h.shent = int(h.order.Uint16(b[l.shentsize:]))
	h.shnum = int(h.order.Uint16(b[l.shentsize+2:]))
	h.shstr = int(h.order.Uint16(b[l.shentsize+4:]))

	phoff := h.word(b[l.phoff:])
	phent := int(h.order.Uint16(b[l.phentsize:]))
	phnum := int(h.order.Uint16(b[l.phentsize+2:]))
	switch {
	case phnum == 0:
		return nil, &HeaderError{uint64(l.phentsize + 2), "no program headers", 0}
	case phnum > maxPhdrs:
		return nil, &HeaderError{uint64(l.phentsize + 2), "too many program headers", uint64(phnum)}
	case phent < l.phdr || phent > maxPhdrBytes:
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

func parseIdent(b []byte) (*header, error) {
	if !bytes.Equal(b[:4], []byte(elf.ELFMAG)) {
		return nil, &HeaderError{0, "not ELF", uint64(binary.BigEndian.Uint32(b))}
	}
	h := &header{class: elf.Class(b[4]), data: elf.Data(b[5])}
	if h.class != elf.ELFCLASS32 && h.class != elf.ELFCLASS64 {
		return nil, &HeaderError{4, "bad class", uint64(b[4])}
	}
	switch h.data {
	case elf.ELFDATA2LSB:
		h.order = binary.LittleEndian
	case elf.ELFDATA2MSB:
		h.order = binary.BigEndian
	default:
		return nil, &HeaderError{5, "bad byte order", uint64(b[5])}
	}
	return h, nil
}

// addProg takes one program header.
func (h *header) addProg(b []byte) {
	l := h.layout()
	p := load{
		vaddr: h.word(b[l.pVaddr:]), memsz: h.word(b[l.pMemsz:]),
		off: h.word(b[l.pOff:]), filesz: h.word(b[l.pFilesz:]),
		flags: elf.ProgFlag(h.order.Uint32(b[l.pFlags:])),
	}
	if p.vaddr+p.memsz < p.vaddr || p.off+p.filesz < p.off {
		return // wraps: nothing can be mapped from it
	}
	switch elf.ProgType(h.order.Uint32(b)) {
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
			h.notes = append(h.notes, region{p.vaddr, p.filesz})
			h.noteOff = append(h.noteOff, p.off)
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
	for i, n := range h.notes {
		addr := n.addr
		if byOff {
			addr = h.noteOff[i]
		}
		b := make([]byte, min(n.size, maxNoteBytes))
		got, _ := r.ReadAt(b, int64(addr))
		if id, off := findBuildID(b[:got], h.order); id != "" {
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
