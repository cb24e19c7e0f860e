package symbol

import (
	"debug/buildinfo"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"

	"sfsample/internal/late"
	"sfsample/internal/safeelf"
)

// GoProgram is the file of a Go program, for what it tells of the runtime's
// variables and structures. It is for one goroutine at a time, and of use as long as
// the file is open.
type GoProgram struct {
	im *image
}

// ErrNotGo is for files that do not come from Go's linker.
var ErrNotGo = errors.New("not a Go program")

// OpenGoProgram reads the headers of a file. It returns ErrNotGo for what is no Go
// program of 64 bits. What is asked for later is not found once until, which may be nil, is
// done.
func OpenGoProgram(f File, until *late.Time) (*GoProgram, error) {
	im, err := openImage(f, until)
	if err != nil {
		return nil, err
	}
	if !isGo(im) || !im.is64 {
		im.release()
		return nil, ErrNotGo
	}
	return &GoProgram{im}, nil
}

// Close gives back what it holds besides the file.
func (p *GoProgram) Close() { p.im.release() }

// Machine is what the code is for.
func (p *GoProgram) Machine() elf.Machine { return p.im.machine }

// Order is that of the bytes in memory.
func (p *GoProgram) Order() binary.ByteOrder { return p.im.order }

// Version is that of Go as the program has it ("go1.26.8"), empty if it does not say.
// Stripped programs have it too.
func (p *GoProgram) Version() string {
	if safeelf.Check(p.im.f) != nil { // buildinfo has debug/elf open it
		return ""
	}
	const most = 32 << 20 // bytes; the linker has it first in the data
	info, err := buildinfo.Read(&metered{p.im.f, most})
	if err != nil {
		return ""
	}
	return info.GoVersion
}

// metered is what may be read of a file up to so many bytes in all: packages of others believe the lengths that it has.
type metered struct {
	r    io.ReaderAt
	left int
}

// ReadAt implements io.ReaderAt.
func (m *metered) ReadAt(b []byte, off int64) (int, error) {
	if m.left -= len(b); m.left < 0 {
		return 0, io.ErrUnexpectedEOF
	}
	return m.r.ReadAt(b, off)
}

// ReadAt reads memory as it is at the program's start, by link-time address: what the file has for it. What relocations
// will write is not there yet.
func (p *GoProgram) ReadAt(b []byte, addr int64) (int, error) {
	off, n, ok := p.im.progs.fileOff(uint64(addr))
	if !ok || n < int64(len(b)) {
		return 0, io.ErrUnexpectedEOF
	}
	if err := readFull(p.im.f, b, off); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Variable is a variable of a program.
type Variable struct {
	Addr uint64 // link-time address
	Size uint64 // in bytes
}

// maxVariable bounds the variables that are looked for, in bytes: the names of larger ones are not read.
const maxVariable = 16 << 10

// Variables finds variables by name in the symbol table. Those that it does not have
// are missing in the result.
func (p *GoProgram) Variables(names ...string) map[string]Variable {
	found := map[string]Variable{}
	wanted := map[string]bool{}
	for _, n := range names {
		wanted[n] = true
	}
	im := p.im
	sec := im.sections.typed(elf.SHT_SYMTAB)
	const entryBytes = 24 // Elf64_Sym
	if sec == nil || sec.ent != entryBytes || int64(sec.link) >= int64(len(im.sections)) || sec.size/entryBytes > maxSymbols {
		return found
	}
	strs := stringTable{f: im.f, off: im.sections[sec.link].off, size: im.sections[sec.link].size}
	buf := make([]byte, entryBytes*(16<<10))
	for off, left := sec.off, sec.size-sec.size%entryBytes; left > 0 && len(found) < len(wanted) && !im.until.Over(); {
		b := buf[:min(int64(len(buf)), left)]
		if readFull(im.f, b, off) != nil {
			break
		}
		off, left = off+int64(len(b)), left-int64(len(b))
		for ; len(b) > 0; b = b[entryBytes:] {
			v := Variable{im.order.Uint64(b[8:]), im.order.Uint64(b[16:])}
			if elf.ST_TYPE(b[4]) != elf.STT_OBJECT || v.Size == 0 || v.Size > maxVariable || v.Size%8 != 0 {
				continue
			}
			if name := strs.bytes(im.order.Uint32(b)); wanted[string(name)] {
				found[string(name)] = v
			}
		}
	}
	return found
}

// untilEvery is how many functions or entries are read between two looks at whether there is time.
const untilEvery = 4096

// maxReferring bounds the code of a function that is searched, in bytes.
const maxReferring = 16 << 10

// References finds the addresses of data that the code of a function may refer to by
// their distance from the instruction, on x86-64: each four bytes of it are taken for
// such a distance that ends an instruction, so most are none. The function is found by
// its name in Go's own table, which stripped programs have too. None are returned where
// it is not found.
func (p *GoProgram) References(function string) ([]uint64, error) {
	im := p.im
	if im.machine != elf.EM_X86_64 {
		return nil, nil
	}
	t, err := findGoTable(im)
	if err != nil {
		return nil, err
	}
	for i := range t.fn {
		if i%untilEvery == 0 && im.until.Over() {
			break
		}
		off, ok := t.funcField(int32(i), 0)
		if !ok || string(t.names.bytes(off)) != function {
			continue
		}
		b := make([]byte, min(t.entry[i+1]-t.entry[i], maxReferring))
		if _, err := p.ReadAt(b, int64(t.entry[i])); err != nil {
			return nil, err
		}
		return references(im, b, t.entry[i]), nil
	}
	return nil, nil
}

// references lists, without repetition, what lies in writable segments of the targets
// of distances in code at addr.
func references(im *image, code []byte, addr uint64) (list []uint64) {
	seen := map[uint64]bool{}
	for i := 0; i+4 <= len(code); i++ {
		to := addr + uint64(i) + 4 + uint64(int64(int32(im.order.Uint32(code[i:]))))
		if !seen[to] && im.progs.writable(to) {
			seen[to] = true
			list = append(list, to)
		}
	}
	return list
}

// writable tells whether a word of data can be at addr.
func (list progs) writable(addr uint64) bool {
	for _, p := range list {
		if p.typ == elf.PT_LOAD && p.flags&elf.PF_W != 0 && addr >= p.vaddr && addr-p.vaddr < p.memsz && addr%8 == 0 {
			return true
		}
	}
	return false
}

// Field is a member of a structure.
type Field struct {
	Offset, Size uint64 // in bytes; Size 0: not known
}

// maxStructs bounds the entries of debugging information that are read for
// structures: programs of 100 MB have some 2 million.
const maxStructs = 1 << 23

// Structs finds the members of structures by name in the program's debugging
// information: the first structure of each name. Those that it does not have are missing in
// the result.
func (p *GoProgram) Structs(names ...string) map[string]map[string]Field {
	found := map[string]map[string]Field{}
	if p.im.sections.debug("info") == nil {
		return found
	}
	d := newDWARF(p.im)
	defer d.Close()
	d.readUnits(false)
	entries := maxStructs
	for _, u := range d.units {
		// The linker puts types among the entries of package runtime (cmd/link/internal/ld/dwarf.go).
		var root die
		if d.stopped() {
			break
		}
		if !u.rootDie(&root) || u.str(root.v[slotName]) != "runtime" {
			continue
		}
		u.structs(names, found, &entries)
		if len(found) == len(names) {
			break
		}
	}
	return found
}

// structs adds what a unit has of structures. It reads no more than the given number of
// entries, from which it takes those read.
func (u *unit) structs(names []string, found map[string]map[string]Field, entries *int) {
	types := map[string]map[string]uint64{} // where the types of members are described, by structure and member
	e := u.entries(u.first)
	e.all = true
	var d die
	depth := 0
	var fields map[string]Field
	var refs map[string]uint64
	for ; e.more() && *entries > 0; *entries-- {
		if *entries%untilEvery == 0 && u.d.stopped() {
			break
		}
		if !e.next(&d) {
			if e.c.bad {
				return
			}
			if depth--; depth <= 1 {
				fields = nil
			}
			if depth <= 0 {
				break
			}
			if fields == nil && len(found) == len(names) {
				break
			}
			continue
		}
		switch name := u.str(d.v[slotName]); {
		case d.tag == tagStructureType && d.children:
			fields = nil
			for _, n := range names {
				if n == name && found[n] == nil {
					fields, refs = map[string]Field{}, map[string]uint64{}
					found[n], types[n] = fields, refs
				}
			}
		case d.tag == tagMember && fields != nil && d.v[slotMember].form != 0:
			fields[name] = Field{Offset: d.v[slotMember].u}
			refs[name] = u.reference(d.v[slotType])
		}
		if d.children {
			depth++
		}
	}
	for n, list := range types {
		for member, at := range list {
			f := found[n][member]
			f.Size = u.sizeAt(at)
			found[n][member] = f
		}
	}
}

// sizeAt is the size of the type described at an offset, 0 if it is not of this unit.
func (u *unit) sizeAt(off uint64) uint64 {
	var d die
	for range 8 { // of types that are other names for others
		if off < u.first || off >= u.end {
			return 0
		}
		e := u.entries(off)
		e.all = true
		if !e.next(&d) {
			return 0
		}
		if d.v[slotByteSize].form != 0 {
			return d.v[slotByteSize].u
		}
		if d.tag == tagPointerType {
			return uint64(u.format.addrSize)
		}
		off = u.reference(d.v[slotType])
	}
	return 0
}
