package module

import (
	"bytes"
	"debug/elf"
	"log/slog"
	"slices"
)

// startNames are the functions in which stacks begin: nothing called them.
// Functions that others call on the way (__libc_start_main, start_thread) are
// not among them.
var startNames = [][]byte{
	[]byte("_start"),          // every libc's crt1, and the dynamic linker
	[]byte("_dl_start_user"),  // glibc's dynamic linker, which jumps to _start
	[]byte("clone"),           // thread starts: glibc, musl, bionic
	[]byte("__clone"),         //
	[]byte("clone3"),          //
	[]byte("__clone3"),        //
	[]byte("thread_start"),    // glibc's label in clone
	[]byte("__bionic_clone"),  //
	[]byte("__start_context"), // glibc: where a makecontext function returns to
	[]byte("runtime.goexit"),  // Go: goroutines
	[]byte("runtime.mstart"),  // Go: threads
	[]byte("runtime.clone"),   //
	[]byte("runtime.rt0_go"),  // Go: the first thread
	[]byte("runtime.goexit.abi0"),
	[]byte("runtime.mstart.abi0"),
	[]byte("runtime.clone.abi0"),
	[]byte("runtime.rt0_go.abi0"),
}

// unsizedBytes is how far a start without a size, or without a table that
// knows its end, is taken to reach.
const unsizedBytes = 64

// Entry implements unwind.Space.
func (s *Space) Entry(pc uint64) bool {
	r := s.cover(pc)
	return r != nil && r.mod != nil && r.mod.obj.isStart(r.mod, pc-r.mod.Bias, s.opt.Log)
}

// isStart tells whether vaddr lies in a function that starts stacks: that at
// the ELF entry address, which needs no symbol, or one of startNames.
func (o *object) isStart(m *Module, vaddr uint64, log *slog.Logger) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.via = m
	defer func() { o.via = nil }()
	if !o.entryKnown {
		o.hasEntry, o.entryKnown = m.program(), true
	}
	if o.hasEntry && o.atEntry(vaddr, log) {
		return true
	}
	if o.beforeOutermost(vaddr, log) {
		return true
	}
	if !o.hasStart {
		o.starts, o.hasStart = m.starts(log), true
	}
	for _, r := range o.starts {
		if vaddr-r.addr < r.size {
			return true
		}
	}
	return false
}

const (
	maxDynBytes = 8 << 10
	dtFlags1    = 0x6ffffffb // DT_FLAGS_1 (elf.h)
)

// program tells whether the kernel starts the module at its ELF entry address:
// an executable, a static one included, or a dynamic linker. In other shared
// objects the field means nothing: some linkers put the first function there.
func (m *Module) program() bool {
	h := m.obj.hdr
	if h.entry == 0 {
		return false
	}
	if h.typ == elf.ET_EXEC || h.interp || isDynamicLinker(m.Name()) {
		return true
	}
	// A static-PIE has neither an interpreter nor a fixed address.
	b := make([]byte, min(h.dynamic.size, maxDynBytes))
	n, _ := m.src.ReadAt(b, int64(m.Bias+h.dynamic.addr))
	word := 8
	if h.class == elf.ELFCLASS32 {
		word = 4
	}
	for b = b[:n]; len(b) >= 2*word; b = b[2*word:] {
		if h.word(b) == dtFlags1 {
			return h.word(b[word:])&uint64(elf.DF_1_PIE) != 0
		}
	}
	return false
}

// isDynamicLinker goes by the names that the psABIs and libcs give:
// ld-linux-x86-64.so.2, ld64.so.1, ld-musl-s390x.so.1, ld.so.1, ld-2.31.so.
func isDynamicLinker(name string) bool {
	return len(name) > 2 && name[:2] == "ld" && (name[2] == '-' || name[2] == '.' || name[2] == '6')
}

// atEntry tells whether vaddr lies in the function at the entry address.
func (o *object) atEntry(vaddr uint64, log *slog.Logger) bool {
	if o.open(log) == nil && o.eh != nil {
		if e, err := o.eh.Find(vaddr); err == nil {
			return e.FuncStart == o.hdr.entry
		}
	}
	return vaddr-o.hdr.entry < unsizedBytes
}

// birthBytes is more than the instructions between the system call that makes a
// thread and the code of the new thread: glibc's clone and clone3 have up to 16
// bytes there.
const birthBytes = 32

// beforeOutermost tells whether vaddr lies in a short gap without rows that ends
// where the outermost function of a stack begins. A new thread is there before
// its first instruction of its own: glibc ends the table in front of the system
// call, since in the new thread what it says would be wrong
// (sysdeps/unix/sysv/linux/x86_64/clone3.S).
func (o *object) beforeOutermost(vaddr uint64, log *slog.Logger) bool {
	if o.open(log) != nil || o.eh == nil {
		return false
	}
	for d := range uint64(birthBytes) {
		if e, err := o.eh.Find(vaddr + d); err == nil {
			return d > 0 && e.Row.Outermost
		}
	}
	return false
}

// starts looks for startNames in the symbol tables of the module's file.
func (m *Module) starts(log *slog.Logger) (list []region) {
	if m.VDSO() {
		return nil
	}
	f, err := m.OpenFile()
	if err != nil {
		log.Debug("file not used", "module", m.Path, "reason", err.Error())
		return nil
	}
	defer f.Close()
	var all []section
	h := m.obj.hdr
	if err := h.readSections(f, f.Size(), func(s section) { all = append(all, s) }); err != nil {
		log.Debug("section headers not used", "module", m.Path, "reason", err.Error())
		return nil
	}
	for _, s := range all {
		if (s.typ == elf.SHT_SYMTAB || s.typ == elf.SHT_DYNSYM) && s.link < len(all) {
			list = append(list, h.findSymbols(f, s, all[s.link])...)
		}
	}
	return list
}

const (
	maxSymbolBytes = 256 << 20 // of a symbol or string table
	maxStarts      = 64
	scanBytes      = 64 << 10
)

// findSymbols returns the functions in the symbol table syms whose name is one
// of startNames. It reads both tables once, in order: the strings first, for
// the offsets at which a name stands. (Linkers let a name share the end of
// another, so "clone" may be the end of "__clone".)
func (h *header) findSymbols(f File, syms, strs section) (list []region) {
	var offsets []uint64
	h.scan(f, strs, func(b []byte, off uint64) int {
		used := 0
		for {
			n := bytes.IndexByte(b[used:], 0)
			if n < 0 {
				return used
			}
			if s := b[used : used+n]; n > 0 && startEnds[s[n-1]] && len(offsets) < maxStarts {
				for _, name := range startNames {
					if bytes.HasSuffix(s, name) {
						offsets = append(offsets, off+uint64(used+n-len(name)))
					}
				}
			}
			used += n + 1
		}
	})
	size := 24 // Elf64_Sym: name, info, other, shndx, value, size
	if h.class == elf.ELFCLASS32 {
		size = 16 // Elf32_Sym: name, value, size, info, other, shndx
	}
	if len(offsets) == 0 || syms.ent != uint64(size) {
		return nil
	}
	h.scan(f, syms, func(b []byte, _ uint64) int {
		used := 0
		for ; len(b)-used >= size; used += size {
			s := b[used : used+size]
			if slices.Contains(offsets, uint64(h.order.Uint32(s))) && len(list) < maxStarts {
				if r, ok := h.function(s); ok {
					list = append(list, r)
				}
			}
		}
		return used
	})
	return list
}

// startEnds tells which bytes a start's name can end with.
var startEnds = func() (t [256]bool) {
	for _, n := range startNames {
		t[n[len(n)-1]] = true
	}
	return t
}()

// function decodes a symbol and returns its place if it is one of code.
func (h *header) function(s []byte) (r region, ok bool) {
	info, shndx := s[4], h.order.Uint16(s[6:])
	if h.class == elf.ELFCLASS32 {
		r = region{h.word(s[4:]), h.word(s[8:])}
		info, shndx = s[12], h.order.Uint16(s[14:])
	} else {
		r = region{h.word(s[8:]), h.word(s[16:])}
	}
	if r.size == 0 {
		r.size = unsizedBytes
	}
	typ := elf.ST_TYPE(info)
	return r, shndx != uint16(elf.SHN_UNDEF) && (typ == elf.STT_FUNC || typ == elf.STT_NOTYPE) && r.addr != 0
}

// scan reads a section piece by piece. use gets the bytes from offset off of the
// section on and returns how many it has dealt with; the rest comes again with
// what follows.
func (h *header) scan(f File, s section, use func(b []byte, off uint64) int) {
	if s.size > maxSymbolBytes || s.off > uint64(f.Size()) || s.size > uint64(f.Size())-s.off || s.typ == elf.SHT_NOBITS {
		return
	}
	buf := make([]byte, min(scanBytes, s.size))
	kept := 0
	for off := uint64(0); off < s.size; {
		n := int(min(uint64(len(buf)-kept), s.size-off))
		got, _ := f.ReadAt(buf[kept:kept+n], int64(s.off+off))
		if got < n {
			return
		}
		off += uint64(n)
		have := kept + n
		used := use(buf[:have], off-uint64(have))
		kept = copy(buf, buf[used:have])
		if kept == len(buf) {
			kept = 0 // a name longer than the buffer is none of ours
		}
	}
}
