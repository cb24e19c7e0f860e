package main

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"

	"sfsample/internal/safeelf"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/module"
	"sfsample/sframe/ehframe"
)

// moduleCacheBytes bounds what is kept of the process's memory.
const moduleCacheBytes = 16 << 20

// process treats all modules of the process of the command line.
func (d *dumper) process() error {
	live := module.NewLive(d.pid, nil)
	space := module.NewSpace(live, module.NewCache(moduleCacheBytes), module.Options{Owner: live.Owner()})
	defer space.Close()
	if err := space.Refresh(); err != nil {
		return d.noProcess(live, err)
	}
	var probe [1]byte
	if mods := space.Modules(); len(mods) > 0 {
		if _, err := live.ReadAt(probe[:], int64(mods[0].Maps[0].Start)); err != nil {
			return d.noProcess(live, err)
		}
	}
	tables := 0
	for _, m := range space.Modules() {
		o, err := openModule(live, m)
		if err != nil {
			d.complain(fmt.Errorf("%s: %w", m.Path, err))
			continue
		}
		if d.has(o) {
			tables++
			if err := d.object(o); err != nil {
				d.complain(err)
			}
		}
		o.close()
	}
	if d.mode == modeLookup {
		d.uncovered(space)
	} else if tables == 0 && d.mode != modeDump {
		return fmt.Errorf("process %d: no module has the table (try: with or without --eh)", d.pid)
	}
	return nil
}

// has tells whether a module has a table that is asked for. That one of many has
// none is no failure.
func (d *dumper) has(o *object) bool {
	sframe := len(o.sframes)+len(o.faults) > 0
	_, err := o.openEH()
	eh := !errors.Is(err, errNoEHFrame)
	switch {
	case d.eh && eh, !d.eh && sframe, d.mode == modeCompare && eh:
		return true
	case d.mode == modeDump && !d.json && d.eh:
		fmt.Fprintf(d.out, "%s: no .eh_frame\n", printable(o.path))
	case d.mode == modeDump && !d.json:
		fmt.Fprintf(d.out, "%s: no .sframe\n", printable(o.path))
	}
	return false
}

// errNoEHFrame: the module has no such table (the vDSO of arm64, for one).
var errNoEHFrame = errors.New("no .eh_frame")

// uncovered complains about addresses that no module has code at.
func (d *dumper) uncovered(space *module.Space) {
	for _, addr := range d.addrs {
		if _, _, ok := space.Module(addr); !ok {
			d.complain(fmt.Errorf("process %d: %#x: not code of a module", d.pid, addr))
		}
	}
}

// noProcess says why a process cannot be read and what would help.
func (d *dumper) noProcess(live *module.Live, err error) error {
	err = fmt.Errorf("read process %d: %w", d.pid, err)
	if remedy := live.FS.Permission(d.pid).Remedy(); remedy != "" && !procfs.Gone(err) {
		err = fmt.Errorf("%w (try: %s)", err, remedy)
	}
	return err
}

// openModule opens a module by its image in memory. Its file is only asked for
// names, and for tables that no program header tells of.
func openModule(live *module.Live, m *module.Module) (*object, error) {
	first := &m.Maps[0]
	mem := shiftedMemory{live, first.Start}
	f, err := safeelf.NewFile(headerOnly{mem})
	if err != nil {
		return nil, fmt.Errorf("ELF header at %#x: %w", first.Start, err)
	}
	o, err := newObject(f, m.Path)
	if err != nil {
		return nil, err
	}
	o.bias = m.Bias
	for _, p := range f.Progs {
		switch {
		case p.Type == ptGNUSFrame:
			o.add(&f.FileHeader, shiftedMemory{live, p.Vaddr + m.Bias}, p.Vaddr+m.Bias, p.Memsz)
		case p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0:
			o.code = append(o.code, span{p.Vaddr + m.Bias, p.Memsz})
		}
	}
	image := shiftedMemory{live, m.Bias}
	eh := ehSections(f)
	file, err := m.OpenFile()
	if err == nil {
		o.close = func() { file.Close() }
		o.names(file)
		if ef, err := safeelf.NewFile(file); err == nil {
			o.bySections(ef, live)
			eh = ehframe.ELFSections(ef)
		}
	}
	o.openEH = func() (*ehframe.Table, error) {
		if eh.HdrSize == 0 && eh.FrameSize == 0 {
			return nil, errNoEHFrame
		}
		return ehframe.Open(image, o.arch, eh)
	}
	return o, nil
}

// bySections adds tables that only section headers of the file tell of: LLD
// makes no program header for them.
func (o *object) bySections(f *elf.File, live *module.Live) {
	if len(o.sframes)+len(o.faults) > 0 || o.empty {
		return
	}
	for _, s := range f.Sections {
		if isSFrame(s) && s.Flags&elf.SHF_ALLOC != 0 {
			addr := s.Addr + o.bias
			o.add(&f.FileHeader, shiftedMemory{live, addr}, addr, s.Size)
		}
	}
}

// ehSections is what program headers tell of .eh_frame: its index, and the
// segment that bounds it.
func ehSections(f *elf.File) ehframe.Sections {
	var s ehframe.Sections
	for _, p := range f.Progs {
		if p.Type == elf.PT_GNU_EH_FRAME {
			s.HdrAddr, s.HdrSize = p.Vaddr, p.Memsz
		}
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && s.HdrAddr >= p.Vaddr && s.HdrAddr-p.Vaddr < p.Memsz {
			s.Limit = p.Vaddr + p.Memsz
		}
	}
	return s
}

// shiftedMemory is the memory of a process from addr on.
type shiftedMemory struct {
	live *module.Live
	addr uint64
}

func (s shiftedMemory) ReadAt(p []byte, off int64) (int, error) {
	return s.live.ReadAt(p, int64(s.addr+uint64(off)))
}

// headerOnly is an ELF file in memory, where its section headers usually are
// not: the header is shown without them.
type headerOnly struct{ r io.ReaderAt }

func (h headerOnly) ReadAt(p []byte, off int64) (int, error) {
	n, err := h.r.ReadAt(p, off)
	// e_shoff is at 0x28, e_shnum and e_shstrndx at 0x3c of a 64-bit header, at
	// 0x20 and 0x30 of a 32-bit one (gABI chapter 4).
	ident := make([]byte, elf.EI_CLASS+1)
	if _, err := h.r.ReadAt(ident, 0); err != nil || !bytes.HasPrefix(ident, []byte(elf.ELFMAG)) {
		return n, err
	}
	hide := [][2]int64{{0x28, 8}, {0x3c, 4}}
	if elf.Class(ident[elf.EI_CLASS]) == elf.ELFCLASS32 {
		hide = [][2]int64{{0x20, 4}, {0x30, 4}}
	}
	for _, field := range hide {
		for at := max(field[0], off); at < min(field[0]+field[1], off+int64(n)); at++ {
			p[at-off] = 0
		}
	}
	return n, err
}
