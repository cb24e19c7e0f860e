package module

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"sfsample/regs"
	"sfsample/sampler/symbol"
	"sfsample/sampler/symbol/rootfs"
	"sfsample/sframe"
	"sfsample/sframe/ehframe"
	"sfsample/unwind"
)

// maxProblems bounds what is kept of the defects of one object.
const maxProblems = 64

// Problem is a defect that cost an unwind table or a part of one.
type Problem struct {
	Module string // path as the process has it
	Table  string // "sframe", "eh_frame", "debug_frame" or "pclntab"
	Addr   uint64 // link-time address that was asked for or, if Whole, of the table
	Whole  bool   // the table is not used any more
	Err    error
}

func (p Problem) String() string {
	what := "entry for"
	if p.Whole {
		what = "table at"
	}
	return fmt.Sprintf("%s: %s: %s %#x not used: %v", p.Module, p.Table, what, p.Addr, p.Err)
}

// object is an ELF file as far as its code and tables go: what all processes
// that map it have in common. Addresses are link-time addresses.
type object struct {
	cached cached

	mu       sync.Mutex // guards all below but what of mem is set when it is made: one look-up at a time
	mem      objectMemory
	tables   tables
	debug    debugTable // asked where .eh_frame has nothing
	golang   goRows     // of a Go program, asked where .eh_frame has nothing
	sections fileSections
	problems []Problem
	specials specialFuncs // functions in which stacks begin or change
	entry    entryKind    // whether the ELF entry address is where the kernel starts it
	starts   knownStarts  // of functions
	followed followed
	late     bool // there was no time to read all of the file
	tries    tries
}

// objectMemory is the memory of an object by link-time address, as the process has it whose
// look-up goes on. The Cache keeps its pages.
type objectMemory struct {
	id      uint64
	cache   *Cache
	private bool
	hdr     *header
	via     *Module // whose memory the look-up reads; what is above never changes
	failed  bool    // a read has, since that was last asked
	passing bool    // and it, or one of the file, may succeed another time: nobody knows just now what it would tell
}

// tables are the unwind tables in memory, once they are opened.
type tables struct {
	opened  bool
	sframes []*sframe.Section // version 2 and later
	old     []*sframe.Section // version 1
	eh      *ehframe.Table
}

// debugTable is .debug_frame.
type debugTable struct {
	table *ehframe.Table
	bytes int  // of the section, which is held in memory
	none  bool // there is none that can be used
}

// lock begins a look-up that reads the memory of m; unlock ends it.
func (o *object) lock(m *Module) {
	o.mu.Lock()
	o.mem.via = m
}

func (o *object) unlock() {
	o.mem.via = nil
	o.mu.Unlock()
}

// ReadAt reads the object's memory by link-time address, through the process
// whose look-up goes on. It is the reader of the tables.
func (mem *objectMemory) ReadAt(p []byte, vaddr int64) (int, error) {
	done := 0
	for done < len(p) {
		addr := uint64(vaddr) + uint64(done)
		off := int(addr % pageBytes)
		n := min(len(p)-done, pageBytes-off)
		key := pageKey{mem.id, addr / pageBytes}
		if !mem.cache.get(key, p[done:done+n], off) {
			data, err := mem.readPage(addr - uint64(off))
			if err != nil {
				return done, fmt.Errorf("read %#x of %s: %w", addr, mem.via.Path, err)
			}
			mem.cache.put(key, data)
			copy(p[done:done+n], data[off:])
		}
		done += n
	}
	return done, nil
}

// errNotImage is for a part of an object that is not, or no longer, the file's.
var errNotImage = errors.New("not a read-only part of the file")

func (mem *objectMemory) readPage(vaddr uint64) ([]byte, error) {
	m := mem.via
	if !mem.private && !m.owns(m.Bias+vaddr) {
		return nil, errNotImage
	}
	data := make([]byte, pageBytes)
	if _, err := m.access.src.ReadAt(data, int64(m.Bias+vaddr)); errors.Is(err, rootfs.ErrRemote) {
		return nil, err // nor will it be: what is left is a guess
	} else if err != nil {
		mem.failed, mem.passing = true, mem.passing || passing(err)
		return nil, fmt.Errorf("%w: %w", unwind.ErrUnread, err)
	}
	// Another object may have come in its place since it was last seen.
	same, err := m.unchanged(make([]byte, maxProbe))
	if errors.Is(err, rootfs.ErrRemote) {
		return nil, err
	}
	if err == nil && !same {
		err = errNotImage
	}
	if err != nil {
		mem.failed, mem.passing = true, mem.passing || passing(err)
		return nil, fmt.Errorf("%w: %w", unwind.ErrUnread, err)
	}
	return data, nil
}

// row answers unwind.Space.Row for the link-time address vaddr, reading through m.
func (o *object) row(m *Module, vaddr uint64, how unwind.How) (*sframe.Row, error) {
	o.lock(m)
	defer o.unlock()
	if err := o.open(); err != nil {
		return nil, err
	}
	row, err := (*sframe.Row)(nil), sframe.ErrNoRow
	switch how {
	case unwind.SFrame:
		row, err = o.sframeRow(vaddr)
	case unwind.EHFrame:
		row, err = o.ehRow(vaddr)
	}
	o.mem.cache.account(o, o.bytes())
	return row, err
}

// bytes estimates what the tables hold.
func (o *object) bytes() int {
	n := o.tables.bytes()
	if o.debug.table != nil {
		n += o.debug.table.CacheBytes() + o.debug.bytes
	}
	const followedBytes, startBytes = 200, 40
	return n + o.golang.bytes() + followedBytes*len(o.followed) + startBytes*len(o.starts.byCode)
}

func (t *tables) bytes() (n int) {
	for _, list := range [][]*sframe.Section{t.sframes, t.old} {
		for _, s := range list {
			n += s.CacheBytes()
		}
	}
	if t.eh != nil {
		n += t.eh.CacheBytes()
	}
	return n
}

// close forgets the tables; the next look-up opens them again.
func (o *object) close() {
	o.tables, o.followed = tables{}, nil
	if o.golang.table != nil {
		o.golang = goRows{}
	}
	if o.debug.table != nil {
		o.debug = debugTable{}
	}
}

// sframeRow asks the .sframe tables. One of version 1 answers only where
// .eh_frame has nothing to say, unless that is not used at all: its
// assembler wrote rows that are wrong.
func (o *object) sframeRow(vaddr uint64) (*sframe.Row, error) {
	row, err := o.ask(&o.tables.sframes, vaddr)
	if err == nil || len(o.tables.old) == 0 {
		return row, err
	}
	if !o.mem.via.access.opt.NoEHFrame {
		if _, ehErr := o.ehRow(vaddr); ehErr == nil {
			return nil, sframe.ErrNoRow
		} else if errors.Is(ehErr, unwind.ErrUnread) {
			return nil, ehErr
		}
	}
	return o.ask(&o.tables.old, vaddr)
}

func (o *object) ask(tables *[]*sframe.Section, vaddr uint64) (*sframe.Row, error) {
	result := sframe.ErrNoRow
	for i := 0; i < len(*tables); i++ {
		s := (*tables)[i]
		row, err := s.Row(vaddr)
		if err == nil {
			return trueRow(s, vaddr, row), nil
		}
		if errors.Is(err, sframe.ErrNoRow) {
			continue
		}
		result = err
		if bad := defect(err); bad != nil && bad.Whole {
			o.problem("sframe", s.Addr(), true, err)
			*tables = append((*tables)[:i:i], (*tables)[i+1:]...)
			i--
		} else if bad != nil {
			o.problem("sframe", vaddr, false, err)
		}
	}
	return nil, result
}

// trueRow returns row, which s has for vaddr, unless it is one that is known to be
// wrong. GNU ld gives the stubs of .plt.got on x86-64 the row of the second half
// of a lazy PLT entry, SP+16, with nothing pushed (2.44 and 2.47.50: lua and
// sqlite3 linked by them). At the first instruction of a stub, which is entered
// by a call, or a jump in place of a call, the CFA is SP+8 (x86-64 psABI,
// section 3.2.2).
func trueRow(s *sframe.Section, vaddr uint64, row *sframe.Row) *sframe.Row {
	if s.ABI() != sframe.AMD64 || row.CFA != stubWrong {
		return row
	}
	f, err := s.Func(vaddr)
	if err != nil || !f.Mask {
		return row
	}
	e, err := s.Find(vaddr)
	if err != nil || (e.Start-f.Start)%uint64(f.Block) != 0 {
		return row
	}
	return &stubRow
}

var (
	stubWrong = sframe.Rule{Base: sframe.FromReg, Reg: regs.AMD64.SP, Offset: 16}
	stubRow   = sframe.Row{
		CFA: sframe.Rule{Base: sframe.FromReg, Reg: regs.AMD64.SP, Offset: 8},
		RA:  sframe.Rule{Base: sframe.FromCFA, Deref: true, Offset: -8},
	}
)

// ehRow asks .eh_frame and, where that has nothing to say, Go's own table of
// functions, and .debug_frame of the file.
func (o *object) ehRow(vaddr uint64) (*sframe.Row, error) {
	err := sframe.ErrNoRow
	if o.tables.eh != nil {
		var row *sframe.Row
		if row, err = o.tables.eh.Row(vaddr); err == nil {
			return row, nil
		}
		if bad := defect(err); bad != nil {
			o.problem("eh_frame", vaddr, bad.Whole, err)
			if bad.Whole {
				o.tables.eh = nil
			}
		}
	}
	o.mem.passing = false
	if errors.Is(err, sframe.ErrNoRow) && o.openGo() {
		var row *sframe.Row
		if row, err = o.golang.row(&o.mem, vaddr); o.mem.passing {
			return nil, unwind.ErrUnread
		} else if err == nil {
			return row, nil
		}
		if _, bad := errors.AsType[*symbol.FormatError](err); bad {
			o.problem("pclntab", vaddr, false, err)
		}
	}
	if errors.Is(err, sframe.ErrNoRow) && !o.mem.passing && o.openDebug() {
		if o.sections.goTable.size > 0 { // of an older layout
			switch is := o.mem.specialAt(o.specialFuncs().at(vaddr), vaddr, vaddr); {
			case is == unreturned, is&ends != 0:
				return &outermost, nil
			case is&switches != 0:
				return nil, errSwitch
			}
		}
		var row *sframe.Row
		if row, err = o.debug.table.Row(vaddr); defect(err) != nil {
			o.problem("debug_frame", vaddr, false, err)
		}
		return row, err
	}
	if errors.Is(err, sframe.ErrNoRow) && o.mem.passing {
		err = unwind.ErrUnread
	}
	return nil, err
}

// maxDebugFrame bounds a .debug_frame, which is read as a whole: that of a Go
// program of 200 MB has 6 MB.
const maxDebugFrame = 8 << 20

// search looks into the file for tables without a program header, once. It
// fails if the file cannot be opened: another process may be able to.
func (o *object) search(log *slog.Logger) bool {
	if !o.sections.known && due(o) {
		list, err := o.mem.via.sections(log)
		if again(o, err) {
			list.known = false
		}
		o.sections = list
	}
	return o.sections.known
}

// openDebug reads .debug_frame from the file, if it has one, at the first need.
func (o *object) openDebug() bool {
	if o.debug.table != nil || o.debug.none {
		return o.debug.table != nil
	}
	if !o.search(o.mem.via.access.opt.Log) {
		return false
	}
	if o.debug.none = !o.sections.debugFrame || o.mem.hdr.arch == nil; o.debug.none {
		return false
	}
	if !due(o) {
		return false
	}
	data, err := debugFrame(o.mem.via)
	if again(o, err) {
		return false
	}
	o.debug.none = true
	if err == nil {
		o.debug.table, err = ehframe.Open(bytes.NewReader(data), o.mem.hdr.arch,
			ehframe.Sections{FrameSize: uint64(len(data)), DebugFrame: true, Over: func() bool { return over(o) }})
	}
	if err != nil {
		o.problem("debug_frame", 0, true, err)
		return false
	}
	o.debug.bytes = len(data)
	return true
}

// defect returns the format error that err holds, if it holds one: then the
// table is bad. Else it could not be read just now.
func defect(err error) *sframe.FormatError {
	if bad, ok := errors.AsType[*sframe.FormatError](err); ok {
		return bad
	}
	return nil
}

// problem records a defect once.
func (o *object) problem(table string, addr uint64, whole bool, err error) {
	p := Problem{Module: o.mem.via.Path, Table: table, Addr: addr, Whole: whole, Err: err}
	for _, q := range o.problems {
		if q.Table == table && q.Err.Error() == err.Error() {
			return
		}
	}
	if len(o.problems) >= maxProblems {
		return
	}
	o.problems = append(o.problems, p)
	o.mem.via.access.opt.Log.Debug("unwind table not used", "module", p.Module, "table", table, "addr", addr, "whole", whole, "reason", err.Error())
}

// open finds and opens the tables, at the first look-up. It fails only when the
// process could not be read; what is defective is put aside.
func (o *object) open() error {
	if o.tables.opened {
		return nil
	}
	frames, hdr := o.mem.hdr.sframes, o.mem.hdr.ehHdr
	if (len(frames) == 0 || hdr.size == 0) && !o.sections.known {
		// Linkers that do not know SFrame leave no program header for it; some
		// programs have .eh_frame without the header.
		o.mem.passing = false
		if !o.search(o.mem.via.access.opt.Log) && o.mem.passing && hdr.size == 0 {
			return unwind.ErrUnread
		}
	}
	o.close()
	if len(frames) == 0 {
		frames = o.sections.sframes
	}
	for _, r := range frames {
		if err := o.openSFrame(r); err != nil {
			return err
		}
	}
	if err := o.openEH(hdr); err != nil {
		return err
	}
	o.tables.opened = true
	return nil
}

// openSFrame opens the .sframe table at r.
func (o *object) openSFrame(r region) error {
	if _, ok := o.mem.hdr.loadAt(r); !ok {
		if r.size != 0 {
			o.problem("sframe", r.addr, true, &HeaderError{0, "table outside of loadable segments", r.addr})
		}
		return nil
	}
	s, err := sframe.Open(io.NewSectionReader(&o.mem, int64(r.addr), int64(r.size)), r.addr, r.size)
	switch {
	case errors.Is(err, sframe.ErrEmpty):
		return nil
	case defect(err) != nil:
		o.problem("sframe", r.addr, true, err)
		return nil
	case err != nil:
		return err
	}
	if !s.ABI().Matches(o.mem.hdr.machine, o.mem.hdr.enc.data) {
		o.problem("sframe", r.addr, true, fmt.Errorf("table is for %v", s.ABI()))
		return nil
	}
	if s.Version() == 1 {
		o.tables.old = append(o.tables.old, s)
	} else {
		o.tables.sframes = append(o.tables.sframes, s)
	}
	return nil
}

// openEH opens .eh_frame, by its header or by the section's place in the file.
func (o *object) openEH(hdr region) error {
	if o.mem.hdr.arch == nil {
		return nil
	}
	for _, s := range ehPlaces(o.mem.hdr, hdr, o.sections.eh) {
		s.Over = func() bool { return over(o) }
		t, err := ehframe.Open(&o.mem, o.mem.hdr.arch, s)
		if err == nil {
			o.tables.eh = t
			return nil
		}
		if defect(err) == nil {
			return err
		}
		o.problem("eh_frame", s.HdrAddr, true, err)
	}
	return nil
}

// ehPlaces lists where .eh_frame may be found, best first.
func ehPlaces(h *header, hdr, frame region) (list []ehframe.Sections) {
	if p, ok := h.loadAt(hdr); ok && hdr.size > 0 {
		list = append(list, ehframe.Sections{HdrAddr: hdr.addr, HdrSize: hdr.size, Limit: p.vaddr + p.filesz})
	}
	if _, ok := h.loadAt(frame); ok && frame.size > 0 {
		list = append(list, ehframe.Sections{FrameAddr: frame.addr, FrameSize: frame.size})
	}
	return list
}
