package symbol

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"
	"strings"

	"sfsample/internal/late"
)

// debug/elf is not used to open files: it makes objects for every section and
// symbol at once, refuses files whose section headers are damaged although
// their segments are whole, and inflates what a header claims. Its constants are.

// File is a mapped file as the target sees it, or an image of memory.
// *bytes.Reader and *io.SectionReader are Files.
type File interface {
	io.ReaderAt
	Size() int64
}

// FormatError is a defect of a file that is read for names.
type FormatError struct {
	Off  int64  // offset of the defect in the file, in bytes
	Text string // what is wrong
	Val  uint64 // the offending value
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%s at file offset %#x (value %#x)", e.Text, e.Off, e.Val)
}

// Bounds of what is believed of a file.
const (
	// maxSections: a file of more has been made by -ffunction-sections without a
	// final link; nothing that runs has.
	maxSections = 1 << 16
	// maxSection is the largest section that is taken into memory in one piece.
	maxSection = 64 << 20
	// maxSmallSection is the same for sections that are short by nature: notes,
	// links, string tables of section names.
	maxSmallSection = 1 << 20
	// maxHeaders bounds the table of section headers, and that of program headers, in bytes.
	maxHeaders = 8 << 20
	// maxNotes bounds what is read of all notes of a file, in bytes: linkers write some KB.
	maxNotes = 4 << 20
	// maxProgs bounds the program headers; linkers write some 15.
	maxProgs = 1 << 10
)

var errNoSection = errors.New("no such section")

// section is one section header.
type section struct {
	name  string
	typ   elf.SectionType
	flags elf.SectionFlag
	addr  uint64
	off   int64
	size  int64 // in the file; 0 for SHT_NOBITS, see mem
	mem   uint64
	link  uint32
	ent   uint64
}

// prog is one program header.
type prog struct {
	typ    elf.ProgType
	flags  elf.ProgFlag
	vaddr  uint64
	memsz  uint64
	off    int64
	filesz int64
}

// span is a range of addresses, end excluded.
type span struct{ start, end uint64 }

// sections, progs and spans are those of an image; spans are sorted.
type (
	sections []section
	progs    []prog
	spans    []span
)

// image is an ELF file whose headers were read and checked: every offset and
// size in it lies in the file.
type image struct {
	f        *late.File
	order    binary.ByteOrder
	is64     bool
	machine  elf.Machine
	sections sections
	progs    progs
	text     spans // executable sections, or segments if there are no sections; sorted

	until *late.Time // see Options
	// What it holds of inMemory: the file itself, if it was expanded, and sections.
	expanded *pieces
	taken    int64
}

// release gives back what the image holds of the budgets. It is not used afterwards.
func (im *image) release() {
	if im == nil {
		return
	}
	if im.expanded != nil {
		im.expanded.free()
	}
	inMemory.give(im.taken)
	im.taken = 0
}

// readFull reads len(b) bytes at off. An end of file before that is an error.
func readFull(f File, b []byte, off int64) error {
	n, err := f.ReadAt(b, off)
	if n == len(b) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// openImage reads the ELF header, the program headers and the section headers.
// Damaged section headers cost the sections, not the file.
func openImage(file File, until *late.Time) (*image, error) {
	f := late.Open(until, file)
	var h [64]byte
	if f.Size() < 52 {
		return nil, &FormatError{0, "file is too short for an ELF header", uint64(f.Size())}
	}
	if err := readFull(f, h[:min(64, f.Size())], 0); err != nil {
		return nil, fmt.Errorf("read ELF header: %w", err)
	}
	if string(h[:4]) != elf.ELFMAG {
		return nil, &FormatError{0, "not an ELF file", uint64(binary.BigEndian.Uint32(h[:]))}
	}
	im := &image{f: f, until: until}
	switch elf.Data(h[elf.EI_DATA]) {
	case elf.ELFDATA2LSB:
		im.order = binary.LittleEndian
	case elf.ELFDATA2MSB:
		im.order = binary.BigEndian
	default:
		return nil, &FormatError{elf.EI_DATA, "unknown ELF data encoding", uint64(h[elf.EI_DATA])}
	}
	o := im.order
	im.machine = elf.Machine(o.Uint16(h[18:]))
	var phoff, shoff uint64
	var tail []byte // e_ehsize and what follows
	switch elf.Class(h[elf.EI_CLASS]) {
	case elf.ELFCLASS64:
		im.is64 = true
		phoff, shoff, tail = o.Uint64(h[32:]), o.Uint64(h[40:]), h[52:]
	case elf.ELFCLASS32:
		phoff, shoff, tail = uint64(o.Uint32(h[28:])), uint64(o.Uint32(h[32:])), h[40:]
	default:
		return nil, &FormatError{elf.EI_CLASS, "unknown ELF class", uint64(h[elf.EI_CLASS])}
	}
	phentsize, phnum := o.Uint16(tail[2:]), o.Uint16(tail[4:])
	shentsize, shnum, shstrndx := o.Uint16(tail[6:]), o.Uint16(tail[8:]), o.Uint16(tail[10:])
	if err := im.readProgs(phoff, int(phentsize), int(phnum)); err != nil {
		return nil, err
	}
	if shoff != 0 {
		if err := im.readSections(shoff, int(shentsize), int(shnum), int(shstrndx)); err != nil {
			im.sections = nil
		}
	}
	im.text = textOf(im.sections, im.progs)
	return im, nil
}

// symbolBytes is the size of an entry of a symbol table.
func (im *image) symbolBytes() int {
	if im.is64 {
		return 24
	}
	return 16
}

// table reads num entries of size ent at off, after checking that they lie in
// the file and that an entry has at least need bytes.
func (im *image) table(what string, off uint64, ent, num, need int) ([]byte, error) {
	size := uint64(im.f.Size())
	if ent < need {
		return nil, &FormatError{int64(min(off, math.MaxInt64)), what + " entries are too short", uint64(ent)}
	}
	if n := uint64(ent) * uint64(num); n > maxHeaders || off > size || n > size-off {
		return nil, &FormatError{int64(min(off, math.MaxInt64)), what + " lie outside the file, or are too many", n}
	}
	b := make([]byte, ent*num)
	if err := readFull(im.f, b, int64(off)); err != nil {
		return nil, fmt.Errorf("read %s: %w", what, err)
	}
	return b, nil
}

func (im *image) readProgs(off uint64, ent, num int) error {
	if num == 0 {
		return nil
	}
	if num > maxProgs {
		return &FormatError{int64(min(off, math.MaxInt64)), "too many program headers", uint64(num)}
	}
	need := 32
	if im.is64 {
		need = 56
	}
	b, err := im.table("program headers", off, ent, num, need)
	if err != nil {
		return err
	}
	o := im.order
	for ; len(b) >= ent; b = b[ent:] {
		var p prog
		var fileOff, filesz uint64
		p.typ = elf.ProgType(o.Uint32(b))
		if im.is64 {
			p.flags = elf.ProgFlag(o.Uint32(b[4:]))
			fileOff, p.vaddr, filesz, p.memsz = o.Uint64(b[8:]), o.Uint64(b[16:]), o.Uint64(b[32:]), o.Uint64(b[40:])
		} else {
			p.flags = elf.ProgFlag(o.Uint32(b[24:]))
			fileOff, p.vaddr, filesz, p.memsz = uint64(o.Uint32(b[4:])), uint64(o.Uint32(b[8:])), uint64(o.Uint32(b[16:])), uint64(o.Uint32(b[20:]))
		}
		if p.memsz > math.MaxUint64-p.vaddr {
			continue
		}
		p.off, p.filesz = im.clip(fileOff, filesz)
		im.progs = append(im.progs, p)
	}
	return nil
}

// clip returns the part of [off, off+size) that lies in the file. The headers
// of a debug file describe the segments of the file it was split from.
func (im *image) clip(off, size uint64) (int64, int64) {
	end := uint64(im.f.Size())
	if off > end {
		return int64(end), 0
	}
	return int64(off), int64(min(size, end-off))
}

func (im *image) readSections(off uint64, ent, num, strndx int) error {
	need := 40
	if im.is64 {
		need = 64
	}
	// gABI, ELF header: numbers too large for their fields stand in section 0.
	if num == 0 || strndx == int(elf.SHN_XINDEX) {
		b, err := im.table("section headers", off, ent, 1, need)
		if err != nil {
			return err
		}
		s, _ := im.section(b)
		if num == 0 {
			num = int(min(s.mem, maxSections+1))
		}
		if strndx == int(elf.SHN_XINDEX) {
			strndx = int(s.link)
		}
	}
	if num > maxSections {
		return &FormatError{int64(off), "too many sections", uint64(num)}
	}
	b, err := im.table("section headers", off, ent, num, need)
	if err != nil {
		return err
	}
	secs := make([]section, num)
	nameOffs := make([]uint32, num)
	for i := range secs {
		secs[i], nameOffs[i] = im.section(b[i*ent:])
	}
	if strndx >= num {
		return &FormatError{int64(off), "no section holds the section names", uint64(strndx)}
	}
	names, err := im.data(&secs[strndx], maxSmallSection)
	if err != nil {
		return fmt.Errorf("section names: %w", err)
	}
	for i := range secs {
		secs[i].name = cstring(names, uint64(nameOffs[i]), 256)
	}
	im.sections = secs
	return nil
}

// section decodes one section header and returns the offset of its name too. A
// section that leaves the file is taken as empty.
func (im *image) section(b []byte) (section, uint32) {
	o := im.order
	s := section{typ: elf.SectionType(o.Uint32(b[4:]))}
	var off uint64
	if im.is64 {
		s.flags, s.addr = elf.SectionFlag(o.Uint64(b[8:])), o.Uint64(b[16:])
		off, s.mem = o.Uint64(b[24:]), o.Uint64(b[32:])
		s.link, s.ent = o.Uint32(b[40:]), o.Uint64(b[56:])
	} else {
		s.flags, s.addr = elf.SectionFlag(o.Uint32(b[8:])), uint64(o.Uint32(b[12:]))
		off, s.mem = uint64(o.Uint32(b[16:])), uint64(o.Uint32(b[20:]))
		s.link, s.ent = o.Uint32(b[24:]), uint64(o.Uint32(b[36:]))
	}
	if size := uint64(im.f.Size()); s.typ != elf.SHT_NOBITS && off <= size && s.mem <= size-off {
		s.off, s.size = int64(off), int64(s.mem)
	}
	return s, o.Uint32(b)
}

// textOf tells where code lies: symbols elsewhere name data.
func textOf(sections sections, progs progs) (text spans) {
	for i := range sections {
		s := &sections[i]
		if s.flags&elf.SHF_EXECINSTR != 0 && s.flags&elf.SHF_ALLOC != 0 && s.mem > 0 && s.mem <= math.MaxUint64-s.addr {
			text = append(text, span{s.addr, s.addr + s.mem})
		}
	}
	if len(text) == 0 {
		for _, p := range progs {
			if p.typ == elf.PT_LOAD && p.flags&elf.PF_X != 0 && p.memsz > 0 {
				text = append(text, span{p.vaddr, p.vaddr + p.memsz})
			}
		}
	}
	sort.Slice(text, func(i, j int) bool { return text[i].start < text[j].start })
	// Sections of a sound file do not overlap. Where they do, the later one
	// begins where the earlier ends, so that the spans can be searched.
	for i := 1; i < len(text); i++ {
		prev, t := text[i-1].end, &text[i]
		t.start, t.end = max(t.start, prev), max(t.end, prev)
	}
	return text
}

// at returns the span that holds addr.
func (t spans) at(addr uint64) (span, bool) {
	i := sort.Search(len(t), func(i int) bool { return t[i].end > addr })
	if i < len(t) && t[i].start <= addr {
		return t[i], true
	}
	return span{}, false
}

// has reports whether a span holds addr. Linkers leave 0, -1 or -2 for
// the addresses of what they dropped.
func (t spans) has(addr uint64) bool {
	_, ok := t.at(addr)
	return ok
}

// named returns the section called name that has contents in this file, or nil.
func (list sections) named(name string) *section {
	for i := range list {
		if s := &list[i]; s.name == name && s.size > 0 {
			return s
		}
	}
	return nil
}

// typed returns the first section of a type that has contents, or nil.
func (list sections) typed(t elf.SectionType) *section {
	for i := range list {
		if s := &list[i]; s.typ == t && s.size > 0 {
			return s
		}
	}
	return nil
}

// debug returns the section called .debug_name, or .zdebug_name as GNU's older form is, or nil.
func (list sections) debug(name string) *section {
	if s := list.named(".debug_" + name); s != nil {
		return s
	}
	return list.named(".zdebug_" + name)
}

// loadBase is the lowest address of the segments: by which a debug file
// of a prelinked object differs from the object.
func (list progs) loadBase() uint64 {
	base := uint64(math.MaxUint64)
	for _, p := range list {
		if p.typ == elf.PT_LOAD {
			base = min(base, p.vaddr)
		}
	}
	if base == math.MaxUint64 {
		return 0
	}
	return base
}

// fileOff returns where the bytes at address addr lie in the file, and how many
// of them follow there.
func (list progs) fileOff(addr uint64) (off, n int64, ok bool) {
	for _, p := range list {
		if p.typ == elf.PT_LOAD && addr >= p.vaddr && addr-p.vaddr < uint64(p.filesz) {
			d := int64(addr - p.vaddr)
			return p.off + d, p.filesz - d, true
		}
	}
	return 0, 0, false
}

// note returns the descriptor of the note with the given owner and type, from
// note sections or, without them, note segments.
func (im *image) note(owner string, typ uint32) []byte {
	left := int64(maxNotes)
	for i := range im.sections {
		if s := &im.sections[i]; s.typ == elf.SHT_NOTE && s.size > 0 {
			if d := im.findNote(s.off, s.size, &left, owner, typ); d != nil {
				return d
			}
		}
	}
	for _, p := range im.progs {
		if p.typ == elf.PT_NOTE && p.filesz > 0 {
			if d := im.findNote(p.off, p.filesz, &left, owner, typ); d != nil {
				return d
			}
		}
	}
	return nil
}

// findNote reads up to *left bytes, which it takes from that.
func (im *image) findNote(off, size int64, left *int64, owner string, typ uint32) []byte {
	b := make([]byte, min(size, maxSmallSection, *left))
	if *left -= int64(len(b)); readFull(im.f, b, off) != nil {
		return nil
	}
	for len(b) >= 12 {
		namesz, descsz, t := uint64(im.order.Uint32(b)), uint64(im.order.Uint32(b[4:])), im.order.Uint32(b[8:])
		b = b[12:]
		nameLen, descLen := (namesz+3)&^3, (descsz+3)&^3
		if nameLen > uint64(len(b)) || descsz > uint64(len(b))-nameLen {
			return nil
		}
		if t == typ && strings.TrimRight(string(b[:namesz]), "\x00") == owner {
			return b[nameLen : nameLen+descsz]
		}
		b = b[min(nameLen+descLen, uint64(len(b))):]
	}
	return nil
}

// buildID returns the GNU build-id in lower-case hex, empty if there is none.
func (im *image) buildID() string {
	const ntGNUBuildID = 3 // elf.h, NT_GNU_BUILD_ID
	d := im.note("GNU", ntGNUBuildID)
	if len(d) < 2 || len(d) > 64 {
		return ""
	}
	return fmt.Sprintf("%x", d)
}

// cstring returns the string at off in b, cut after limit bytes.
func cstring(b []byte, off uint64, limit int) string {
	if off >= uint64(len(b)) {
		return ""
	}
	b = b[off:]
	b = b[:min(len(b), limit)]
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}
