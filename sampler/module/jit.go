package module

import (
	"bytes"
	"debug/elf"
	"slices"
	"strings"
	"time"

	"sfsample/regs"
	"sfsample/sframe"
	"sfsample/sframe/ehframe"
)

// GDB's interface for JIT compilers ("Debugging with GDB", chapter "JIT Compilation
// Interface"): a variable of the program leads to a list of ELF images in memory, each of
// which describes code that was generated. QEMU and LLVM tell there how to unwind
// theirs. The program may write anything there: all is bounded, and what it
// says counts only for code that belongs to no object.

// jitDescriptor is the name of the variable.
var jitDescriptor = []byte("__jit_debug_descriptor")

// Bounds of what is read of a process.
const (
	maxJITEntries = 4096
	maxJITImage   = 1 << 20  // of one image, in bytes
	maxJITBytes   = 16 << 20 // of all
	// jitEvery is how often the list is read for want of an address.
	jitEvery = 100 * time.Millisecond
	// jitRest and jitByteRest are for how long there is rest for each entry and byte that was read: some twenty times as long as that takes.
	jitRest     = 200 * time.Microsecond
	jitByteRest = 10 * time.Nanosecond
	// maxJITPieces and maxJITWatched bound what is compared with memory at each look: what comes first in a list has come last.
	maxJITPieces  = 1024      // what one call reads (UIO_MAXIOV)
	maxJITWatched = 256 << 10 // bytes
	// maxJITEager is in how many objects a list is looked for before somebody asks.
	maxJITEager = 64
	// maxJITNews bounds the images whose coming or going is noted apart.
	maxJITNews = 64
)

// jitCode is what a process tells of its generated code.
type jitCode struct {
	in      *Space
	looked  map[*Module]bool
	gen     uint64 // of the mappings that were looked through
	lists   []jitList
	images  []jitImage
	read    time.Time     // when the images were read; zero: not yet
	rest    time.Duration // from then on, in which a change does not have them read
	stale   bool          // they are not what the program tells by now
	watched []Range       // what tells whether the images are still what they were,
	was     []byte        // and what it was
	now     []byte        // kept for its memory
	retold  retold
}

// jitList is a descriptor in memory.
type jitList struct {
	mod  *Module
	addr uint64
}

// jitImage tells of code.
type jitImage struct {
	jitKey
	table *ehframe.Table
}

// jitKey is all that rows are made of.
type jitKey struct {
	start, end, at uint64 // of the code; at is the address of the table
	frames         string
}

// row returns the row for generated code at pc.
func (j *jitCode) row(pc uint64) (*sframe.Row, error) {
	j.find()
	if len(j.lists) == 0 {
		return nil, sframe.ErrNoRow
	}
	if row, err := j.known(pc); err == nil || j.in.access.opt.Now().Sub(j.read) < max(jitEvery, j.rest) {
		return row, err
	}
	j.readLists()
	return j.known(pc)
}

// known is the row by the images that were read.
func (j *jitCode) known(pc uint64) (*sframe.Row, error) {
	if j.stale {
		return nil, sframe.ErrNoRow
	}
	for i := range j.images {
		if m := &j.images[i]; m.start <= pc && pc < m.end {
			if row, err := m.table.Row(pc); err == nil {
				return row, nil
			}
		}
	}
	return nil, sframe.ErrNoRow
}

// find looks for descriptors in the objects that were not looked through yet.
func (j *jitCode) find() {
	s := j.in
	if j.gen == s.gen {
		return
	}
	if j.gen = s.gen; j.looked == nil {
		j.looked = map[*Module]bool{}
	}
	for _, m := range s.mapped.modules {
		if j.looked[m] || m.VDSO() || m.Arch == nil {
			continue
		}
		j.looked[m] = true
		if vaddr, ok := m.variable(jitDescriptor); ok {
			j.lists = append(j.lists, jitList{mod: m, addr: m.Bias + vaddr})
			j.read = time.Time{}
		}
	}
}

// forget forgets what an object that has gone has told.
func (j *jitCode) forget(m *Module) {
	delete(j.looked, m)
	n := len(j.lists)
	if j.lists = slices.DeleteFunc(j.lists, func(l jitList) bool { return l.mod == m }); len(j.lists) < n {
		j.stale, j.read, j.watched, j.was = true, time.Time{}, nil, nil
	}
}

// changed reads the lists anew, and has walks forget their rows, if what tells of the images is not what it was. Where that
// takes long, there are no rows for a while. Lists are looked for once there is generated code, so that what they tell is known
// before somebody is met there.
func (j *jitCode) changed() {
	s := j.in
	if j.gen != s.gen && len(s.mapped.modules) <= maxJITEager && slices.ContainsFunc(s.mapped.code.list, func(r codeRange) bool { return r.mod == nil }) {
		if j.find(); len(j.lists) > 0 && j.read.IsZero() {
			j.readLists()
			return
		}
	}
	if len(j.watched) == 0 {
		return
	}
	j.retold.looks++
	j.retold.quiet++
	j.now = slices.Grow(j.now[:0], len(j.was))[:len(j.was)]
	if n, err := readRanges(s.access.src, j.now, j.watched); err == nil && n == len(j.now) && bytes.Equal(j.now, j.was) {
		return
	}
	s.gen++
	if j.stale = s.access.opt.Now().Sub(j.read) < j.rest; j.stale {
		j.watched, j.was = nil, nil
		return
	}
	j.readLists()
}

// renew puts images in place of those that were known, and returns where they tell otherwise. code is all code.
func (j *jitCode) renew(images []jitImage, code []codeRange, now time.Time) (changes []Change, gone bool) {
	old := j.images
	j.images, j.stale = images, false
	if j.retold.first.IsZero() && len(images) > 0 {
		j.retold.first = now
	}
	other := func(list, than []jitImage, replaced func(m *jitImage) bool) {
		known := make(map[jitKey]bool, len(than))
		for i := range than {
			known[than[i].jitKey] = true
		}
		for i := range list {
			if m := &list[i]; !known[m.jitKey] && len(changes) <= maxJITNews {
				changes = append(changes, Change{m.start, m.end, replaced(m)})
			}
		}
	}
	other(old, images, func(*jitImage) bool { return true })
	if gone = len(changes) > 0; gone {
		j.retold.note(now)
	}
	other(images, old, func(m *jitImage) bool {
		return slices.ContainsFunc(old, func(o jitImage) bool { return m.start < o.end && o.start < m.end })
	})
	if len(changes) > maxJITNews {
		changes = changes[:0]
		for _, r := range code {
			if r.mod == nil {
				changes = append(changes, Change{r.start, r.end, len(old) > 0})
			}
		}
	}
	return changes, gone
}

// watch has b, which is at addr, compared with memory at each look.
func (j *jitCode) watch(addr uint64, b []byte) {
	if len(b) > 0 && len(j.watched) < maxJITPieces && len(j.was)+len(b) <= maxJITWatched {
		j.watched, j.was = append(j.watched, Range{addr, len(b)}), append(j.was, b...)
	}
}

// readLists reads the images of all lists.
func (j *jitCode) readLists() {
	s := j.in
	j.read, j.watched, j.was = s.access.opt.Now(), j.watched[:0], j.was[:0]
	var images []jitImage
	entries, room := 0, maxJITBytes
	for _, l := range j.lists {
		a := l.mod.Arch
		word := a.WordBytes
		// struct jit_descriptor: version, action (32 bits each), relevant_entry, first_entry.
		state := make([]byte, 8+2*word)
		if n, err := s.access.src.ReadAt(state, int64(l.addr)); err != nil || n < len(state) || a.Order.Uint32(state) != 1 {
			continue
		}
		j.watch(l.addr, state)
		// struct jit_code_entry: next_entry, prev_entry, symfile_addr, symfile_size
		// (64 bits, on a boundary of 8; of 4 on i386).
		at := a.Word(state[8+word:])
		size := 3*word + 8
		if word == 4 && a != regs.I386 {
			size += 4
		}
		seen := map[uint64]bool{} // a list may be a ring
		for ; at != 0 && !seen[at] && entries < maxJITEntries && room > 0; entries++ {
			seen[at] = true
			e := make([]byte, size)
			if n, err := s.access.src.ReadAt(e, int64(at)); err != nil || n < len(e) {
				break
			}
			j.watch(at, e)
			image, length := a.Word(e[2*word:]), a.Order.Uint64(e[size-8:])
			if length > 0 && length <= maxJITImage && int(length) <= room {
				room -= int(length)
				if m, ok := j.open(a, image, int(length)); ok {
					images = append(images, m)
				}
			}
			at = a.Word(e)
		}
	}
	changes, gone := j.renew(images, s.mapped.code.list, j.read)
	for _, c := range changes {
		s.history.note(c)
	}
	if gone {
		s.gen++
	}
	j.rest = time.Duration(entries)*jitRest + time.Duration(maxJITBytes-room)*jitByteRest
}

// open reads an image and opens its table.
func (j *jitCode) open(a *regs.Arch, addr uint64, size int) (m jitImage, ok bool) {
	b := make([]byte, size)
	if n, err := j.in.access.src.ReadAt(b, int64(addr)); err != nil || n < size {
		return m, false
	}
	f := bytes.NewReader(b)
	h, err := readHeader(f, 0)
	if err != nil || h.arch != a {
		return m, false
	}
	var text, frames section
	err = h.readSections(f, int64(size), func(x section) {
		switch {
		case x.flags&(elf.SHF_EXECINSTR|elf.SHF_ALLOC) == elf.SHF_EXECINSTR|elf.SHF_ALLOC && text.size == 0:
			text = x
		case x.name == ".debug_frame", x.name == ".eh_frame" && frames.size == 0:
			frames = x
		}
	})
	if err != nil || text.size == 0 || text.addr+text.size < text.addr || frames.typ == elf.SHT_NOBITS ||
		frames.flags&elf.SHF_COMPRESSED != 0 || frames.size == 0 || frames.off > uint64(size) || frames.size > uint64(size)-frames.off {
		return m, false
	}
	table := b[frames.off : frames.off+frames.size]
	j.watch(addr, b[:h.size])
	j.watch(addr+h.shdrs.off, b[h.shdrs.off:][:h.shdrs.num*h.shdrs.ent])
	j.watch(addr+frames.off, table)
	where := ehframe.Sections{FrameSize: frames.size, DebugFrame: frames.name == ".debug_frame"}
	if !where.DebugFrame {
		where.FrameAddr = frames.addr
	}
	m.jitKey = jitKey{text.addr, text.addr + text.size, where.FrameAddr, string(table)}
	if m.table, err = ehframe.Open(shifted{m.frames, where.FrameAddr}, a, where); err != nil {
		j.in.access.opt.Log.Debug("image of generated code not used", "addr", addr, "reason", err.Error())
		return m, false
	}
	return m, true
}

// shifted is a section by address.
type shifted struct {
	data string
	addr uint64
}

// ReadAt implements io.ReaderAt.
func (r shifted) ReadAt(b []byte, addr int64) (int, error) {
	return strings.NewReader(r.data).ReadAt(b, addr-int64(r.addr))
}

// variable returns the link-time address of the variable of that name, by the symbols of
// the module's file.
func (m *Module) variable(name []byte) (vaddr uint64, ok bool) {
	f, err := m.OpenFile()
	if err != nil {
		m.access.opt.Log.Debug("file not used", "module", m.Path, "reason", err.Error())
		return 0, false
	}
	defer f.Close()
	var all []section
	h := m.obj.mem.hdr
	if h.readSections(f, f.Size(), func(s section) { all = append(all, s) }) != nil {
		return 0, false
	}
	for _, s := range all {
		if (s.typ == elf.SHT_SYMTAB || s.typ == elf.SHT_DYNSYM) && s.link < len(all) && !ok {
			vaddr, ok = h.findVariable(f, s, all[s.link], name)
		}
	}
	return vaddr, ok
}

// maxNames bounds the names that a variable is looked for in, in bytes.
const maxNames = 16 << 20

// findVariable looks for a variable in the symbol table syms. It reads both tables once.
func (h *header) findVariable(f File, syms, strs section, name []byte) (vaddr uint64, ok bool) {
	l := symbolLayout(h.enc.class)
	if strs.size > maxNames || syms.ent != uint64(l.size) {
		return 0, false
	}
	index, found := uint32(0), false
	scan(f, strs, func(b []byte, off uint64) (used int) {
		for n := bytes.IndexByte(b, 0); n >= 0 && !found; n = bytes.IndexByte(b[used:], 0) {
			if bytes.HasSuffix(b[used:used+n], name) { // linkers share ends
				index, found = uint32(off)+uint32(used+n-len(name)), true
			}
			used += n + 1
		}
		if found {
			return len(b)
		}
		return used
	})
	if !found {
		return 0, false
	}
	scan(f, syms, func(b []byte, _ uint64) (used int) {
		for ; len(b)-used >= l.size; used += l.size {
			s := b[used : used+l.size]
			if h.enc.order.Uint32(s) == index && elf.ST_TYPE(s[l.info]) == elf.STT_OBJECT && h.enc.order.Uint16(s[l.shndx:]) != uint16(elf.SHN_UNDEF) {
				vaddr, ok = h.enc.word(s[l.value:]), true
			}
		}
		return used
	})
	return vaddr, ok
}

// symbolLayout is where fields are in a symbol (System V gABI, chapter 4, "Symbol Table").
func symbolLayout(c elf.Class) (l struct{ size, info, shndx, value, length int }) {
	l.size, l.info, l.shndx, l.value, l.length = 24, 4, 6, 8, 16 // Elf64_Sym: name, info, other, shndx, value, size
	if c == elf.ELFCLASS32 {
		l.size, l.info, l.shndx, l.value, l.length = 16, 12, 14, 4, 8 // Elf32_Sym: name, value, size, info, other, shndx
	}
	return l
}
