package ehframe

import (
	"errors"
	"fmt"
	"io"

	"sfsample/regs"
	"sfsample/sframe"
)

// Sections tells where the frame information of an image lies. Addresses are
// those of the image before it is loaded anywhere, sizes are in bytes.
//
// Either the header or the section is needed. A live process shows only the
// header (PT_GNU_EH_FRAME): the section's address is taken from it then.
type Sections struct {
	HdrAddr, HdrSize uint64 // .eh_frame_hdr; size 0: there is none

	FrameAddr, FrameSize uint64 // .eh_frame or .debug_frame; size 0: not known
	// Limit is the end of what can be read behind the section's start, that is
	// of its PT_LOAD segment, for a section whose size is not known. 0: none.
	Limit uint64
	// DebugFrame: the section is .debug_frame, which differs in its CIE ids,
	// and whose address is usually 0.
	DebugFrame bool

	// TextAddr and DataAddr are what textrel and datarel pointers in the section
	// are relative to: the text section, and DT_PLTGOT. 0: not known.
	TextAddr, DataAddr uint64

	// Over, if set, is asked while the whole section is read, which takes long where
	// functions are not indexed. Once it is true no function is found.
	Over func() bool
}

// Table is the frame information of one image.
type Table struct {
	sec   section
	index index
	cache cache
}

// maxSpan bounds a section of unknown size.
const maxSpan = 1 << 32

// Open prepares to read the frame information that s tells of. It reads no more
// than the header. img is addressed by link-time address; it is read whenever an
// address is looked up that was not lately, so it must stay usable.
//
// An error that holds a *sframe.FormatError says that the table cannot be used.
func Open(img io.ReaderAt, arch *regs.Arch, s Sections) (*Table, error) {
	t := &Table{sec: section{
		mem:        memory{img: img},
		arch:       arch,
		arm64:      arch.Name == regs.ARM64.Name || arch.Name == regs.ARM64BE.Name,
		general:    general(arch),
		start:      s.FrameAddr,
		debugFrame: s.DebugFrame,
		bases: bases{
			text: s.TextAddr, hasText: s.TextAddr != 0,
			data: s.DataAddr, hasData: s.DataAddr != 0,
		},
		cies: make(map[uint64]*cie),
		over: s.Over,
	}}
	t.index.sec = &t.sec
	if s.HdrSize != 0 {
		if err := t.index.open(s); err != nil && s.FrameSize == 0 {
			return nil, fmt.Errorf(".eh_frame_hdr at %#x: %w", s.HdrAddr, err)
		}
	} else if s.FrameSize == 0 {
		return nil, errors.New("no frame information: neither header nor section is known")
	}
	if err := t.sec.setBounds(s); err != nil {
		return nil, err
	}
	return t, nil
}

// setBounds decides how far the section reaches.
func (s *section) setBounds(given Sections) error {
	size, most := given.FrameSize, s.wrap(^uint64(0))-s.start
	switch {
	case size != 0:
		s.sized = true
		if size > most {
			return &sframe.FormatError{Text: "section runs past the end of the address space", Value: size, Whole: true}
		}
	case given.Limit > s.start:
		size = min(given.Limit-s.start, most)
	case given.Limit != 0:
		return &sframe.FormatError{Text: "section lies outside its segment", Value: s.start, Whole: true}
	default:
		size = min(maxSpan, most)
	}
	s.end = s.start + size
	return nil
}

// general is the set of registers that regs.Set holds for an architecture:
// amd64 has 16 and i386 8 general ones, the numbers behind them are the return
// address and vector registers.
func general(a *regs.Arch) uint32 {
	switch a.Name {
	case regs.AMD64.Name:
		return 0xffff
	case regs.I386.Name:
		return 0xff
	}
	return 0xffffffff
}

// Row returns the row that covers the link-time address pc. The row is shared
// and never changes. The error is sframe.ErrNoRow if no function covers pc, an
// error that holds a *sframe.FormatError if the function's entry is damaged, or
// the reader's error.
func (t *Table) Row(pc uint64) (*sframe.Row, error) {
	switch id := t.cache.row(pc); id {
	case idNone:
		return t.coldRow(pc)
	case idNoRow:
		return nil, sframe.ErrNoRow
	default:
		return t.cache.list[id], nil
	}
}

// coldRow answers an address that was not asked for lately.
func (t *Table) coldRow(pc uint64) (*sframe.Row, error) {
	f, err := t.find(pc)
	if err == sframe.ErrNoRow {
		t.cache.put(pc, idNoRow)
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	id := f.rows[f.index(pc)]
	t.cache.put(pc, id)
	return t.cache.list[id], nil
}

// Find is Row with the range that the row covers and its function's. It is not
// for hot paths.
func (t *Table) Find(pc uint64) (sframe.Entry, error) {
	f, err := t.find(pc)
	if err != nil {
		return sframe.Entry{}, err
	}
	return t.entry(f, f.index(pc)), nil
}

// CacheBytes estimates the memory that the table holds for what was looked up.
// It is bounded.
func (t *Table) CacheBytes() int {
	return t.cache.bytes + len(t.sec.cies)*cieBytes + len(t.sec.mem.blocks)*blockBytes +
		cap(t.sec.fdeBuf) + cap(t.sec.mem.buf) + 16*cap(t.index.own)
}

// function is one compiled FDE.
type function struct {
	start, end uint64
	offs       []uint32 // starts of the rows, relative to start, ascending from 0
	rows       []rowID
	err        error // the entry is damaged
}

func (f *function) covers(pc uint64) bool { return f.start <= pc && pc < f.end }

// index is the number of the row that covers pc, which the function covers.
func (f *function) index(pc uint64) int {
	off := uint32(min(pc-f.start, 1<<32-1))
	lo, hi := 0, len(f.offs) // offs[lo] <= off < offs[hi]
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; f.offs[mid] <= off {
			lo = mid
		} else {
			hi = mid
		}
	}
	return lo
}

// entry is row i of f with its range.
func (t *Table) entry(f *function, i int) sframe.Entry {
	e := sframe.Entry{
		Start: f.start + uint64(f.offs[i]), End: f.end,
		FuncStart: f.start, FuncEnd: f.end,
		Row: *t.cache.list[f.rows[i]],
	}
	if i+1 < len(f.offs) {
		e.End = f.start + uint64(f.offs[i+1])
	}
	return e
}

// maxOverlap is how many index entries before pc are tried. One suffices unless
// functions overlap, contain each other or are empty.
const maxOverlap = 8

// find returns the innermost function that covers pc: the one that starts last.
// Of several that start together, the one whose entry comes first.
func (t *Table) find(pc uint64) (*function, error) {
	t.cache.trim()
	n, err := t.index.search(pc)
	if err != nil {
		return nil, err
	}
	var best *function
	var bestStart, bestAddr uint64
	var damage error
	for i := n - 1; i >= 0 && n-i <= maxOverlap; i-- {
		start, addr, err := t.index.at(i)
		if err != nil {
			return nil, err
		}
		if (best != nil || damage != nil) && start != bestStart {
			break
		}
		f, err := t.function(addr)
		switch {
		case err != nil:
			return nil, err
		case f.err == nil && f.start != start:
			err = t.sec.formatError(addr, "function starts elsewhere than its index entry says", f.start)
		case f.err != nil && (f.end == 0 || f.covers(pc)):
			err = f.err
		case f.err == nil && f.covers(pc) && (best == nil || addr < bestAddr):
			best, bestAddr, bestStart = f, addr, start
		}
		if err != nil {
			damage, bestStart = err, start
		}
	}
	switch {
	case best != nil:
		return best, nil
	case damage != nil:
		return nil, damage
	case t.index.ownErr != nil:
		return nil, t.index.ownErr // the function may be among those that could not be indexed
	}
	return nil, sframe.ErrNoRow
}

// function returns the compiled FDE at addr, from the cache or by compiling it.
// Damage is in its err; an error means that it could not be read.
func (t *Table) function(addr uint64) (*function, error) {
	if f := t.cache.function(addr); f != nil {
		return f, nil
	}
	var bad *sframe.FormatError
	e, err := t.sec.fdeAt(addr)
	f := &function{err: err}
	switch {
	case err == nil:
		t.compile(&e, f)
	case e.end > e.start:
		f.start, f.end = e.start, e.end // damaged behind its range
	}
	if err != nil && !errors.As(err, &bad) {
		return nil, err
	}
	t.cache.putFunction(addr, f)
	return f, nil
}

// compile executes the instructions of e and leaves the rows, or the damage, in f.
func (t *Table) compile(e *fde, f *function) {
	f.start, f.end = e.start, e.end
	m := newMachine(&t.sec, e.cie, e)
	defer m.release()
	emit := func(start, end uint64) {
		if start >= f.end || start-f.start > 1<<32-1 {
			return // instructions may go on past the end; no address needs them
		}
		id := t.cache.intern(m)
		if n := len(f.rows); n == 0 || f.rows[n-1] != id {
			f.offs = append(f.offs, uint32(start-f.start))
			f.rows = append(f.rows, id)
		}
	}
	m.run(&e.code, emit)
	if e.code.err != nil {
		f.offs, f.rows, f.err = nil, nil, e.code.err
		return
	}
	emit(m.loc, f.end)
}
