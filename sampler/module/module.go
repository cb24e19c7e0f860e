package module

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"syscall"

	"sfsample/internal/late"
	"sfsample/ptrace/procfs"
	"sfsample/regs"
)

// vdsoName is the kernel's name for its own object in every process.
const vdsoName = "[vdso]"

// Module is an ELF object in a process. It does not change: an object that is
// loaded anew is another Module.
type Module struct {
	Path    string // of the file as the process has it, or "[vdso]"
	BuildID string // lower-case hex, empty if there is none
	Bias    uint64 // address in the process = link-time address + Bias
	Arch    *regs.Arch
	// Maps are its mappings of the file, in ascending order.
	Maps []procfs.Mapping

	access *access
	obj    *object
	base   uint64 // offset in the file of the ELF header
	id     moduleID
	asked  bool     // for a row or a name; for the goroutine of the Space
	proven bool     // the last Verify has compared it; for the same goroutine
	dyn    *dynamic // once it is asked for; for the same goroutine
	unread error    // why the last reading of the mappings could not compare it; for the same goroutine
	probes probes
}

// probes are what a module is recognised by, and the part of it that is read with each stack.
type probes struct {
	list  []probe
	marks []Mark
}

// Mark is memory by which a module is told from others at one place: the beginnings of its probes.
type Mark struct {
	Addr  uint64
	Data  []byte
	Table bool // of an unwind table: less telling than header and build-id
}

const (
	// maxMark bounds a mark, in bytes: a header, and the build-id behind it.
	maxMark = 1024
	// maxMarks bounds those of an object: the first table is one.
	maxMarks = 3
)

func marks(list []probe) (m []Mark) {
	for _, p := range list[:min(len(list), maxMarks)] {
		m = append(m, Mark{p.addr, p.data[:min(len(p.data), maxMark)], p.table})
		if p.table {
			break
		}
	}
	return m
}

// probe is a part of memory by which a module is recognised: the header with the build-id, if that is near, else that by
// itself, and the beginnings of its tables. A build-id alone does not do: who edits a file leaves it (patchelf,
// objcopy), and a linker takes any that it is told (--build-id=0x...).
type probe struct {
	addr  uint64
	data  []byte
	table bool
}

// moduleID is what a module is recognised by in a later list of mappings.
type moduleID struct {
	start, offset uint64 // of the mapping with the ELF header, or with code
	dev           procfs.Dev
	inode         uint64
	path          string
}

// Name is the file's name without folders.
func (m *Module) Name() string { return path.Base(m.Path) }

// ImageBase is the address in the process of the lowest page of the module's segments, from which on tools for other
// formats count; 0 if it has none.
func (m *Module) ImageBase() uint64 {
	if len(m.obj.mem.hdr.loads) == 0 {
		return 0
	}
	low := m.obj.mem.hdr.loads[0].vaddr
	for _, l := range m.obj.mem.hdr.loads {
		low = min(low, l.vaddr)
	}
	return m.Bias + low&^0xfff
}

// VDSO tells whether the module is the kernel's own.
func (m *Module) VDSO() bool { return m.id.inode == 0 }

// owns tells whether the page at addr is mapped from the module's file and
// cannot be written.
func (m *Module) owns(addr uint64) bool {
	for i := range m.Maps {
		if r := &m.Maps[i]; r.Start <= addr && addr < r.End {
			return r.Perms&procfs.Write == 0
		}
	}
	return false
}

// maxProbe bounds the bytes of a probe.
const maxProbe = pageBytes

// unchanged tells whether memory still holds this module. One whose header is
// not mapped is known by its mappings only. The error is for memory that cannot be
// read just now: that it is another module's, or none, has no error.
func (m *Module) unchanged(buf []byte) (bool, error) {
	for _, p := range m.probes.list {
		b := buf[:len(p.data)]
		_, err := m.access.src.ReadAt(b, int64(p.addr))
		switch {
		case err == nil && bytes.Equal(b, p.data):
		case err == nil, errors.Is(err, syscall.EFAULT), errors.Is(err, io.ErrUnexpectedEOF):
			return false, nil
		default:
			return false, err
		}
	}
	return true, nil
}

// OpenFile opens the module's file as the process sees it, for sections and
// symbols. Offset 0 is the ELF header. It fails if the file cannot be reached or
// is another one by now. For the vDSO it is a copy of its memory.
func (m *Module) OpenFile() (File, error) {
	if m.VDSO() {
		return m.image()
	}
	var err error
	for _, r := range m.Maps {
		var f File
		if f, err = m.access.src.OpenFile(r); err != nil {
			continue
		}
		if m.base > 0 {
			f = inner{io.NewSectionReader(f, int64(m.base), max(0, f.Size()-int64(m.base))), f}
		}
		if err = m.checkFile(f); err == nil {
			return f, nil
		}
		f.Close()
		break
	}
	return nil, fmt.Errorf("open %s: %w", m.Path, err)
}

var errOtherFile = errors.New("file is not the one that is mapped")

// checkFile compares the headers of a file with those in memory.
func (m *Module) checkFile(f File) error {
	r := reading{File: late.Open(nil, f)}
	h, err := readHeader(&r, 0)
	if err != nil {
		return cmp.Or(r.err, err)
	}
	if h.sum != m.obj.mem.hdr.sum {
		return errOtherFile
	}
	if id, _ := h.buildID(&r, true); id != m.BuildID {
		return cmp.Or(r.err, errOtherFile)
	}
	return nil
}

// maxImage bounds the image of a vDSO; kernels have two or three pages.
const maxImage = 1 << 20

func (m *Module) image() (File, error) {
	r := m.Maps[0]
	b := make([]byte, min(r.End-r.Start, maxImage))
	if _, err := m.access.src.ReadAt(b, int64(r.Start)); err != nil {
		return nil, fmt.Errorf("read %s: %w", m.Path, err)
	}
	return bytesFile{io.NewSectionReader(bytes.NewReader(b), 0, int64(len(b)))}, nil
}

// fileSections is what only the section headers of a file tell.
type fileSections struct {
	sframes    []region
	eh         region
	debugFrame bool   // there is a .debug_frame
	goTable    region // of Go functions; size 0: there is none
	known      bool   // the file was looked into
}

// sections looks into the file for tables without a program header. They are not known
// if the file cannot be opened, as another process may be able to. The error is for what could not be opened, or read just now.
func (m *Module) sections(log *slog.Logger) (list fileSections, err error) {
	f, err := read(m)
	if err != nil {
		log.Debug("file not used", "module", m.Path, "reason", err.Error())
		return list, err
	}
	defer f.Close()
	list.known = true
	h := m.obj.mem.hdr
	err = h.readSections(f, f.Size(), func(s section) {
		switch {
		case s.typ == elf.SHT_NOBITS:
		case s.name == ".debug_frame" || s.name == ".zdebug_frame":
			list.debugFrame = true
		case s.name == ".gopclntab" || s.name == ".data.rel.ro.gopclntab":
			list.goTable = region{s.addr, s.size}
		case s.flags&elf.SHF_ALLOC == 0:
			// Not in memory.
		case s.name == ".sframe" || s.typ == shtGNUSFrame:
			if len(list.sframes) < maxSFrames {
				list.sframes = append(list.sframes, region{s.addr, s.size})
			}
		case s.name == ".eh_frame" && list.eh.size == 0:
			list.eh = region{s.addr, s.size}
		}
	})
	if err != nil {
		log.Debug("section headers not used", "module", m.Path, "reason", err.Error())
	}
	return list, f.err
}
