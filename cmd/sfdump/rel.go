package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"sort"

	"sfsample/internal/safeelf"
	"sfsample/sframe"
	"sfsample/sframe/ehframe"
)

// Relocatable objects are shown as if their code sections were linked one behind
// the other, the first at address 0: then functions do not overlap, and in the
// usual object with one code section addresses are offsets in it, as readelf has
// them.

// relObject is a relocatable object on its way to that.
type relObject struct {
	f     *elf.File
	syms  []elf.Symbol
	bases map[elf.SectionIndex]uint64
	end   uint64 // of the code laid out
	left  uint64 // of maxRelBytes
}

// maxRelBytes bounds the tables of an object and their relocations, in all: tables are held in memory.
const maxRelBytes = 256 << 20

// relocatable opens the tables of an object file.
func (o *object) relocatable(f *elf.File) error {
	rel := relObject{f: f, bases: map[elf.SectionIndex]uint64{}, left: maxRelBytes}
	for i, s := range f.Sections {
		if s.Flags&elf.SHF_EXECINSTR == 0 || s.Flags&elf.SHF_ALLOC == 0 || s.Size == 0 || s.Size > math.MaxInt32 {
			continue
		}
		align := max(s.Addralign, 1)
		if align > 1<<16 {
			return fmt.Errorf("section %s: alignment %#x", s.Name, align)
		}
		rel.end = (rel.end + align - 1) / align * align
		rel.bases[elf.SectionIndex(i)] = rel.end
		o.code = append(o.code, span{rel.end, s.Size})
		rel.end += s.Size
	}
	if f.SectionByType(elf.SHT_SYMTAB) != nil {
		if err := safeelf.Symbols(f, elf.SHT_SYMTAB, func(s elf.Symbol) { rel.syms = append(rel.syms, s) }); err != nil {
			return err
		}
	}
	for i, s := range f.Sections {
		if !isSFrame(s) {
			continue
		}
		data, err := rel.linked(i, func(data []byte) bool {
			// Before binutils 2.45 the fields of an object are relative to
			// themselves although the flag is clear, and the linker made them
			// relative to the section. So do we.
			return len(data) > 3 && data[3]&sframe.FlagPCRel == 0
		})
		if err != nil {
			return err
		}
		o.add(&f.FileHeader, bytes.NewReader(data), rel.end, uint64(len(data)))
	}
	o.openEH = func() (*ehframe.Table, error) { return rel.ehFrame(o) }
	o.name = rel.names()
	return nil
}

// ehFrame opens the object's .eh_frame.
func (r *relObject) ehFrame(o *object) (*ehframe.Table, error) {
	for i, s := range r.f.Sections {
		if s.Name != ".eh_frame" || s.Type == elf.SHT_NOBITS {
			continue
		}
		data, err := r.linked(i, func([]byte) bool { return false })
		if err != nil {
			return nil, err
		}
		img := shifted{bytes.NewReader(data), int64(r.end)}
		return ehframe.Open(img, o.arch, ehframe.Sections{FrameAddr: r.end, FrameSize: uint64(len(data))})
	}
	return nil, errors.New("file has no .eh_frame")
}

// shifted is a reader whose first byte is at offset by.
type shifted struct {
	r  io.ReaderAt
	by int64
}

func (s shifted) ReadAt(p []byte, off int64) (int, error) {
	if off < s.by {
		return 0, io.EOF
	}
	return s.r.ReadAt(p, off-s.by)
}

// linked returns the bytes of section number i as a linker would make them that
// places it at r.end. If fromStart says so of the bytes, relative fields count from
// the section's start.
func (r *relObject) linked(i int, fromStart func([]byte) bool) ([]byte, error) {
	s := r.f.Sections[i]
	data, err := r.data(s)
	if err != nil {
		return nil, err
	}
	whole := fromStart(data)
	for _, rs := range r.f.Sections {
		if rs.Type != elf.SHT_RELA || int(rs.Info) != i {
			continue
		}
		list, err := r.data(rs)
		if err != nil {
			return nil, err
		}
		for ; len(list) >= relaBytes; list = list[relaBytes:] {
			if err := r.apply(data, list, whole); err != nil {
				return nil, fmt.Errorf("section %s: %w", s.Name, err)
			}
		}
	}
	return data, nil
}

// data is what a section holds.
func (r *relObject) data(s *elf.Section) ([]byte, error) {
	b, err := safeelf.Data(s, r.left)
	r.left -= uint64(len(b))
	return b, err
}

// relaBytes is the size of Elf64_Rela: offset, info, addend.
const relaBytes = 24

// relKinds are the relocations of function starts, by machine (psABI of each;
// the comments give the names): size of the field, and whether it is relative.
var relKinds = map[elf.Machine]map[uint32]struct {
	bytes    uint64
	relative bool
}{
	elf.EM_X86_64: {
		1:  {8, false}, // R_X86_64_64
		2:  {4, true},  // R_X86_64_PC32
		10: {4, false}, // R_X86_64_32
		24: {8, true},  // R_X86_64_PC64
	},
	elf.EM_AARCH64: {
		257: {8, false}, // R_AARCH64_ABS64
		258: {4, false}, // R_AARCH64_ABS32
		260: {8, true},  // R_AARCH64_PREL64
		261: {4, true},  // R_AARCH64_PREL32
	},
	elf.EM_S390: {
		4:  {4, false}, // R_390_32
		5:  {4, true},  // R_390_PC32
		22: {8, false}, // R_390_64
		23: {8, true},  // R_390_PC64
	},
}

// apply applies the relocation at the start of list to data.
func (r *relObject) apply(data, list []byte, whole bool) error {
	order := r.f.ByteOrder
	off, info, addend := order.Uint64(list), order.Uint64(list[8:]), order.Uint64(list[16:])
	kind, ok := relKinds[r.f.Machine][uint32(info)]
	if !ok || uint32(info) == 0 {
		return nil // of a field that is no address of code
	}
	if off > uint64(len(data)) || kind.bytes > uint64(len(data))-off {
		return fmt.Errorf("relocation at %#x is past the section", off)
	}
	value := addend
	if sym := info >> 32; sym > 0 {
		if sym > uint64(len(r.syms)) {
			return fmt.Errorf("relocation at %#x names symbol %d, which does not exist", off, sym)
		}
		s := &r.syms[sym-1] // debug/elf leaves symbol 0 out
		value += r.bases[s.Section] + s.Value
	}
	if kind.relative {
		value -= r.end
		if !whole {
			value -= off
		}
	}
	put(order, data[off:], kind.bytes, value)
	return nil
}

func put(order binary.ByteOrder, b []byte, n, value uint64) {
	if n == 8 {
		order.PutUint64(b, value)
	} else {
		order.PutUint32(b, uint32(value))
	}
}

// names names functions by the object's own symbols.
func (r *relObject) names() func(uint64) (string, bool) {
	var funcs []elf.Symbol
	for _, s := range r.syms {
		base, ok := r.bases[s.Section]
		if typ := elf.ST_TYPE(s.Info); ok && (typ == elf.STT_FUNC || typ == elf.STT_GNU_IFUNC) {
			s.Value += base
			funcs = append(funcs, s)
		}
	}
	sort.SliceStable(funcs, func(i, j int) bool { return funcs[i].Value < funcs[j].Value })
	return func(addr uint64) (string, bool) {
		i := sort.Search(len(funcs), func(i int) bool { return funcs[i].Value > addr }) - 1
		if i < 0 || addr != funcs[i].Value && addr-funcs[i].Value >= funcs[i].Size {
			return "", false
		}
		if off := addr - funcs[i].Value; off > 0 {
			return fmt.Sprintf("%s+%#x", funcs[i].Name, off), true
		}
		return funcs[i].Name, true
	}
}
