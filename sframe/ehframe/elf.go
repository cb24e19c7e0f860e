package ehframe

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"math"

	"sfsample/internal/safeelf"
	"sfsample/regs"
)

// OpenELF opens the frame information that a file's own headers tell of:
// .eh_frame through its section header or, stripped of those, through
// PT_GNU_EH_FRAME. For tools and tests that have a whole file. It must not be
// closed while the table is in use.
func OpenELF(f *elf.File) (*Table, error) {
	arch, err := regs.ByELF(f.Machine, f.Class, f.Data)
	if err != nil {
		return nil, err
	}
	s := ELFSections(f)
	if s.HdrSize == 0 && s.FrameSize == 0 {
		return nil, errors.New("file has no .eh_frame")
	}
	return Open(segments(f.Progs), arch, s)
}

// ELFSections returns what a file's headers say of its .eh_frame.
func ELFSections(f *elf.File) Sections {
	var s Sections
	for _, p := range f.Progs {
		// elf.PT_GNU_EH_FRAME is the header's segment, not the section's.
		if p.Type == elf.PT_GNU_EH_FRAME {
			s.HdrAddr, s.HdrSize = p.Vaddr, p.Filesz
		}
	}
	if sec := loaded(f, ".eh_frame_hdr"); sec != nil && s.HdrSize == 0 {
		s.HdrAddr, s.HdrSize = sec.Addr, sec.Size
	}
	if sec := loaded(f, ".eh_frame"); sec != nil {
		s.FrameAddr, s.FrameSize = sec.Addr, sec.Size
	}
	if sec := loaded(f, ".text"); sec != nil {
		s.TextAddr = sec.Addr
	}
	if sec := loaded(f, ".got"); sec != nil {
		s.DataAddr = sec.Addr
	}
	const maxDynamic = 1 << 20 // bytes; those of the largest programs take some hundred
	if sec := f.SectionByType(elf.SHT_DYNAMIC); sec != nil && safeelf.Plain(sec, maxDynamic) == nil {
		if v, err := f.DynValue(elf.DT_PLTGOT); err == nil && len(v) == 1 {
			s.DataAddr = v[0]
		}
	}
	return s
}

// loaded returns the section of that name if it has an address and content, as it
// has not in a separate debug file.
func loaded(f *elf.File, name string) *elf.Section {
	s := f.Section(name)
	if s == nil || s.Type == elf.SHT_NOBITS || s.Flags&elf.SHF_ALLOC == 0 {
		return nil
	}
	return s
}

// maxDebugFrameBytes bounds a compressed .debug_frame, which is held in memory.
const maxDebugFrameBytes = 64 << 20

// OpenDebugFrame opens .debug_frame of a file, usually a separate debug file. It
// needs an index of its own, and with it one pass over the section.
func OpenDebugFrame(f *elf.File) (*Table, error) {
	arch, err := regs.ByELF(f.Machine, f.Class, f.Data)
	if err != nil {
		return nil, err
	}
	sec := f.Section(".debug_frame")
	if sec == nil || sec.Type == elf.SHT_NOBITS {
		return nil, errors.New("file has no .debug_frame")
	}
	img := io.ReaderAt(sec)
	if sec.Flags&elf.SHF_COMPRESSED != 0 {
		if sec.Size > maxDebugFrameBytes {
			return nil, fmt.Errorf(".debug_frame: %d bytes are too much", sec.Size)
		}
		data, err := sec.Data()
		if err != nil {
			return nil, fmt.Errorf(".debug_frame: %w", err)
		}
		img = bytes.NewReader(data)
	}
	return Open(img, arch, Sections{FrameSize: sec.Size, DebugFrame: true})
}

// segments is a file seen by link-time address.
type segments []*elf.Prog

// ReadAt reads what the file has for the addresses from addr on, up to the end of
// one segment.
func (s segments) ReadAt(b []byte, addr int64) (int, error) {
	for _, p := range s {
		if p.Type != elf.PT_LOAD || uint64(addr) < p.Vaddr || uint64(addr)-p.Vaddr >= p.Filesz {
			continue
		}
		if p.Vaddr > math.MaxInt64 {
			continue
		}
		return p.ReadAt(b, addr-int64(p.Vaddr))
	}
	return 0, fmt.Errorf("address %#x is in no segment of the file", addr)
}
