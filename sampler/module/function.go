package module

import (
	"debug/elf"
	"errors"
	"io"
	"slices"

	"sfsample/regs"
	"sfsample/sframe"
	"sfsample/unwind/code"
)

// Function is a function as unwind tables tell of it, without a name.
// Addresses are link-time addresses.
type Function struct {
	Start uint64
	// Piece is where the piece of the function begins that holds the address:
	// Start, or that of code split off, which compilers put elsewhere (.cold).
	Piece uint64
}

// Function returns the function that holds pc. ok is false where no table
// covers it.
func (s *Space) Function(pc uint64) (f Function, ok bool) {
	r := s.cover(pc)
	if r == nil || r.mod == nil {
		return Function{}, false
	}
	o := r.mod.obj
	o.lock(r.mod)
	defer o.unlock()
	if o.open() != nil {
		return Function{}, false
	}
	start, ok := o.function(pc - r.mod.Bias)
	return Function{o.whole(start), start}, ok
}

// knownStarts are starts of functions.
type knownStarts struct {
	ofPieces map[uint64]uint64 // by the starts of pieces
	byCode   map[uint64]uint64 // by addresses, as code tells; 0: it does not
	asked    int               // how often code was asked
	told     int               // and how often it did tell
}

// hopeless tells whether code is of a kind that does not tell, as that of compilers that do not use the stack as C does: in vain it takes 6 ms each time.
func (k *knownStarts) hopeless() bool {
	const trial, few = 32, 8
	return k.asked >= trial && k.told < k.asked/few
}

// Begins returns where the function begins that holds the link-time address vaddr, which no table covers, as its code tells: from there
// on is nothing but that function, though it may begin before.
func Begins(m *Module, vaddr uint64) (start uint64, ok bool) {
	o := m.obj
	o.lock(m)
	defer o.unlock()
	if o.mem.hdr.arch == nil || o.open() != nil {
		return 0, false
	}
	known := &o.starts.byCode
	if start, ok = (*known)[vaddr]; ok || o.starts.hopeless() {
		return start, start != 0
	}
	o.starts.asked++
	if start, ok = code.Start(o.mem.hdr.arch, vaddr, o.mem.code); ok {
		if _, covered := o.function(start); covered {
			start = 0
		}
	}
	if start != 0 {
		o.starts.told++
	}
	if *known == nil || len(*known) >= maxFollowed {
		*known = map[uint64]uint64{}
	}
	(*known)[vaddr] = start
	o.mem.cache.account(o, o.bytes())
	return start, start != 0
}

// function returns where the function at vaddr begins, by the first table that
// covers it.
func (o *object) function(vaddr uint64) (start uint64, ok bool) {
	if o.tables.eh != nil {
		if e, err := o.tables.eh.Find(vaddr); err == nil {
			return e.FuncStart, true
		}
	}
	for _, list := range [][]*sframe.Section{o.tables.sframes, o.tables.old} {
		for _, s := range list {
			if e, err := s.Find(vaddr); err == nil {
				return e.FuncStart, true
			}
		}
	}
	if f, ok := o.goFunc(vaddr); ok {
		return f.Start, true
	}
	if o.openDebug() {
		if e, err := o.debug.table.Find(vaddr); err == nil {
			return e.FuncStart, true
		}
	}
	return 0, false
}

const (
	// maxPieces bounds the pieces of one object that are looked for: each takes
	// a scan of the code, about 1 ms for 1 MB.
	maxPieces = 64
	// maxScan bounds the code that is scanned, in bytes.
	maxScan = 64 << 20
	// maxChain: a piece may be jumped to from another one.
	maxChain = 4
)

// whole returns the start of the function that the piece at start belongs to:
// start itself, unless the table says that code there has a frame already, and
// one function alone jumps there.
func (o *object) whole(start uint64) uint64 {
	if known, ok := o.starts.ofPieces[start]; ok {
		return known
	}
	if !o.hasFrame(start) || len(o.starts.ofPieces) >= maxPieces {
		return start
	}
	at, ok := start, true
	for i := 0; ok && o.hasFrame(at); i++ {
		if at, ok = o.jumper(at); i >= maxChain {
			ok = false
		}
	}
	if !ok {
		at = start
	}
	if o.starts.ofPieces == nil {
		o.starts.ofPieces = map[uint64]uint64{}
	}
	o.starts.ofPieces[start] = at
	return at
}

// hasFrame tells whether .eh_frame gives the code at start, the first of its
// entry, another CFA than a call leaves.
func (o *object) hasFrame(start uint64) bool {
	a := o.mem.hdr.arch
	if o.tables.eh == nil || a == nil {
		return false
	}
	e, err := o.tables.eh.Find(start)
	if err != nil || e.FuncStart != start || e.Row.Outermost || e.Row.Signal {
		return false
	}
	entry := sframe.Rule{Base: sframe.FromReg, Reg: a.SP, Offset: int32(-a.SPOffset)}
	if !a.Link {
		entry.Offset = int32(a.WordBytes)
	}
	// PLTs, which calls enter, have expressions.
	return e.Row.CFA != entry && e.Row.CFA.Base == sframe.FromReg
}

// jumper returns the start of the one function that jumps to target, where a piece begins, or, where none does, as that is reached by a table of addresses,
// of the one that jumps into the piece four times at least.
func (o *object) jumper(target uint64) (start uint64, ok bool) {
	e, err := o.tables.eh.Find(target)
	if err != nil {
		return 0, false
	}
	f, err := read(o.mem.via)
	if err != nil {
		return 0, false
	}
	defer f.Close()
	var jumps []jump
	left := uint64(maxScan)
	for _, p := range o.mem.hdr.loads {
		if p.flags&elf.PF_X != 0 && p.filesz <= left {
			left -= p.filesz
			jumps = append(jumps, scanJumps(f, o.mem.hdr.arch, p, target, e.FuncEnd)...)
		}
	}
	fewest := 4
	if exact := slices.DeleteFunc(slices.Clone(jumps), func(j jump) bool { return j.to != target }); len(exact) > 0 {
		jumps, fewest = exact, 1
	}
	for _, j := range jumps {
		s, covered := o.function(j.site)
		if !covered || ok && s != start {
			return 0, false
		}
		start, ok = s, true
	}
	return start, ok && len(jumps) >= fewest
}

// jump is an instruction and where it jumps to.
type jump struct{ site, to uint64 }

// scanJumps returns where the code of a segment may jump into that from start to end, from elsewhere.
func scanJumps(f io.ReaderAt, a *regs.Arch, p load, start, end uint64) (jumps []jump) {
	const (
		piece    = 256 << 10
		overlap  = 8       // more than the bytes of a jump
		maxJumps = 1 << 12 // of one function to its piece there are some hundred
	)
	buf := make([]byte, piece+overlap)
	for off := uint64(0); off < p.filesz && len(jumps) < maxJumps; off += piece {
		b := buf[:min(uint64(len(buf)), p.filesz-off)]
		if n, err := f.ReadAt(b, int64(p.off+off)); n < len(b) && !errors.Is(err, io.EOF) {
			break
		}
		jumps = append(jumps, jumpsTo(a, b, p.vaddr+off, start, end)...)
	}
	return jumps
}

// jumpsTo returns where code, whose first byte is at base, jumps into that from start to end, from elsewhere, by
// jumps that a compiler uses between pieces of a function. On x86 bytes of other
// instructions may look like one, which takes a chance of 1 in 2^32 for each address.
func jumpsTo(a *regs.Arch, code []byte, base, start, end uint64) (jumps []jump) {
	add := func(site, to uint64) {
		if to-start < end-start && site-start >= end-start {
			jumps = append(jumps, jump{site, to})
		}
	}
	switch a {
	case regs.AMD64, regs.I386:
		for i := 1; i+4 <= len(code); i++ {
			to := base + uint64(i) + 4 + uint64(int64(int32(a.Order.Uint32(code[i:]))))
			if to-start >= end-start {
				continue
			}
			// jmp rel32 (e9), jcc rel32 (0f 80 to 0f 8f): Intel SDM volume 2.
			if code[i-1] == 0xe9 {
				add(base+uint64(i)-1, to)
			} else if i >= 2 && code[i-2] == 0x0f && code[i-1]&0xf0 == 0x80 {
				add(base+uint64(i)-2, to)
			}
		}
	case regs.ARM64:
		for i := int(-base & 3); i+4 <= len(code); i += 4 {
			if to, ok := arm64Jump(a.Order.Uint32(code[i:])); ok {
				add(base+uint64(i), base+uint64(i)+to)
			}
		}
	case regs.S390X:
		for i := int(base & 1); i+6 <= len(code); i += 2 {
			// brc (a7 m4 rel16) and brcl (c0 m4 rel32), in halfwords ("z/Architecture
			// Principles of Operation", branch relative on condition).
			to := uint64(int64(int16(a.Order.Uint16(code[i+2:]))) * 2)
			if code[i] == 0xc0 {
				to = uint64(int64(int32(a.Order.Uint32(code[i+2:]))) * 2)
			}
			if (code[i] == 0xa7 || code[i] == 0xc0) && code[i+1]&15 == 4 {
				add(base+uint64(i), base+uint64(i)+to)
			}
		}
	}
	return jumps
}

// arm64Jump returns how far an instruction jumps, in bytes: b, b.cond, cbz, cbnz,
// tbz and tbnz ("Arm Architecture Reference Manual", C4.1, branches).
func arm64Jump(insn uint32) (uint64, bool) {
	field := func(low, width int) uint64 {
		return uint64(int64(insn)<<(64-low-width)>>(64-width)) * 4
	}
	switch {
	case insn>>26 == 0x05:
		return field(0, 26), true
	case insn>>24 == 0x54 && insn&0x10 == 0, insn>>25&0x3f == 0x1a:
		return field(5, 19), true
	case insn>>25&0x3f == 0x1b:
		return field(5, 14), true
	}
	return 0, false
}
