package module

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"sfsample/regs"
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
	// Set when it is made.
	id      uint64
	key     objectKey
	cache   *Cache
	refs    int // guarded by cache.mu
	private bool
	hdr     *header
	buildID string
	used    atomic.Uint64 // when it was asked last

	mu         sync.Mutex // guards all below: one look-up at a time
	via        *Module    // whose memory the look-up reads
	opened     bool
	counted    int               // bytes of tables that the account in the cache has
	sframes    []*sframe.Section // version 2 and later
	old        []*sframe.Section // version 1
	eh         *ehframe.Table
	debug      *ehframe.Table // .debug_frame, asked where .eh_frame has nothing
	debugBytes int            // of the section, which is held in memory
	noDebug    bool           // there is no .debug_frame that can be used
	golang     goRows         // of a Go program, asked where .eh_frame has nothing
	sections   fileSections
	searched   bool // sections is filled
	problems   []Problem
	funcs      []specialFunc // functions in which stacks begin or change
	hasFuncs   bool          // funcs is filled
	entry      entryKind     // whether hdr.entry is where the kernel starts it
	starts     knownStarts   // of functions
	followed   followed
	late       bool // there was no time to read all of the file
}

// ReadAt reads the object's memory by link-time address, through the process
// whose look-up goes on. It is the reader of the tables; mu is held.
func (o *object) ReadAt(p []byte, vaddr int64) (int, error) {
	done := 0
	for done < len(p) {
		addr := uint64(vaddr) + uint64(done)
		off := int(addr % pageBytes)
		n := min(len(p)-done, pageBytes-off)
		key := pageKey{o.id, addr / pageBytes}
		if !o.cache.get(key, p[done:done+n], off) {
			data, err := o.readPage(addr - uint64(off))
			if err != nil {
				return done, fmt.Errorf("read %#x of %s: %w", addr, o.via.Path, err)
			}
			o.cache.put(key, data)
			copy(p[done:done+n], data[off:])
		}
		done += n
	}
	return done, nil
}

// errNotImage is for a part of an object that is not, or no longer, the file's.
var errNotImage = errors.New("not a read-only part of the file")

func (o *object) readPage(vaddr uint64) ([]byte, error) {
	m := o.via
	if !o.private && !m.owns(m.Bias+vaddr) {
		return nil, errNotImage
	}
	data := make([]byte, pageBytes)
	if _, err := m.access.src.ReadAt(data, int64(m.Bias+vaddr)); err != nil {
		return nil, err
	}
	// Another object may have come in its place since it was last seen.
	same, err := m.unchanged(make([]byte, maxProbe))
	if err == nil && !same {
		err = errNotImage
	}
	return data, err
}

// row answers unwind.Space.Row for the link-time address vaddr, reading through m.
func (o *object) row(m *Module, vaddr uint64, how unwind.How, log *slog.Logger) (*sframe.Row, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.via = m
	defer func() { o.via = nil }()
	if err := o.open(log); err != nil {
		return nil, err
	}
	row, err := o.answer(vaddr, how, log)
	o.cache.account(o, o.bytes())
	return row, err
}

func (o *object) answer(vaddr uint64, how unwind.How, log *slog.Logger) (*sframe.Row, error) {
	switch how {
	case unwind.SFrame:
		return o.sframeRow(vaddr, o.via.access.opt.NoEHFrame, log)
	case unwind.EHFrame:
		return o.ehRow(vaddr, log)
	}
	return nil, sframe.ErrNoRow
}

// bytes estimates what the tables hold.
func (o *object) bytes() int {
	n := 0
	for _, s := range o.sframes {
		n += s.CacheBytes()
	}
	for _, s := range o.old {
		n += s.CacheBytes()
	}
	if o.eh != nil {
		n += o.eh.CacheBytes()
	}
	if o.debug != nil {
		n += o.debug.CacheBytes() + o.debugBytes
	}
	const followedBytes, startBytes = 200, 40
	return n + o.golang.bytes() + followedBytes*len(o.followed) + startBytes*len(o.starts.byCode)
}

// close forgets the tables; the next look-up opens them again.
func (o *object) close() {
	o.opened = false
	o.sframes, o.old, o.eh, o.followed = nil, nil, nil, nil
	if o.golang.table != nil {
		o.golang = goRows{}
	}
	if o.debug != nil {
		o.debug, o.debugBytes, o.noDebug = nil, 0, false
	}
}

// sframeRow asks the .sframe tables. One of version 1 answers only where
// .eh_frame has nothing to say, unless that is not used at all (oldFirst): its
// assembler wrote rows that are wrong.
func (o *object) sframeRow(vaddr uint64, oldFirst bool, log *slog.Logger) (*sframe.Row, error) {
	row, err := o.ask(&o.sframes, vaddr, log)
	if err == nil || len(o.old) == 0 {
		return row, err
	}
	if !oldFirst {
		if _, ehErr := o.ehRow(vaddr, log); ehErr == nil {
			return nil, sframe.ErrNoRow
		}
	}
	return o.ask(&o.old, vaddr, log)
}

func (o *object) ask(tables *[]*sframe.Section, vaddr uint64, log *slog.Logger) (*sframe.Row, error) {
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
			o.problem(log, "sframe", s.Addr(), true, err)
			*tables = append((*tables)[:i:i], (*tables)[i+1:]...)
			i--
		} else if bad != nil {
			o.problem(log, "sframe", vaddr, false, err)
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
func (o *object) ehRow(vaddr uint64, log *slog.Logger) (*sframe.Row, error) {
	err := sframe.ErrNoRow
	if o.eh != nil {
		var row *sframe.Row
		if row, err = o.eh.Row(vaddr); err == nil {
			return row, nil
		}
		if bad := defect(err); bad != nil {
			o.problem(log, "eh_frame", vaddr, bad.Whole, err)
			if bad.Whole {
				o.eh = nil
			}
		}
	}
	if errors.Is(err, sframe.ErrNoRow) && o.openGo(log) {
		var row *sframe.Row
		if row, err = o.goRow(vaddr, log); err == nil {
			return row, nil
		}
	}
	if errors.Is(err, sframe.ErrNoRow) && o.openDebug(log) {
		if o.sections.goTable.size > 0 { // of an older layout
			switch is := o.specialAt(o.special(vaddr, log), vaddr, vaddr); {
			case is == unreturned, is&ends != 0:
				return &outermost, nil
			case is&switches != 0:
				return nil, errSwitch
			}
		}
		var row *sframe.Row
		if row, err = o.debug.Row(vaddr); defect(err) != nil {
			o.problem(log, "debug_frame", vaddr, false, err)
		}
		return row, err
	}
	return nil, err
}

// maxDebugFrame bounds a .debug_frame, which is read as a whole: that of a Go
// program of 200 MB has 6 MB.
const maxDebugFrame = 8 << 20

// search looks into the file for tables without a program header, once. It
// fails if the file cannot be opened: another process may be able to.
func (o *object) search(log *slog.Logger) bool {
	if !o.searched {
		o.sections, o.searched = o.via.sections(log)
	}
	return o.searched
}

// openDebug reads .debug_frame from the file, if it has one, at the first need.
func (o *object) openDebug(log *slog.Logger) bool {
	if o.debug != nil || o.noDebug {
		return o.debug != nil
	}
	if !o.search(log) {
		return false
	}
	o.noDebug = true
	if !o.sections.debugFrame || o.hdr.arch == nil {
		return false
	}
	data, err := debugFrame(o.via)
	if err == nil {
		o.debug, err = ehframe.Open(bytes.NewReader(data), o.hdr.arch,
			ehframe.Sections{FrameSize: uint64(len(data)), DebugFrame: true, Over: func() bool { return over(o) }})
	}
	if err != nil {
		o.problem(log, "debug_frame", 0, true, err)
		return false
	}
	o.debugBytes = len(data)
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
func (o *object) problem(log *slog.Logger, table string, addr uint64, whole bool, err error) {
	p := Problem{Module: o.via.Path, Table: table, Addr: addr, Whole: whole, Err: err}
	for _, q := range o.problems {
		if q.Table == table && q.Err.Error() == err.Error() {
			return
		}
	}
	if len(o.problems) >= maxProblems {
		return
	}
	o.problems = append(o.problems, p)
	log.Debug("unwind table not used", "module", p.Module, "table", table, "addr", addr, "whole", whole, "reason", err.Error())
}

// open finds and opens the tables, at the first look-up. It fails only when the
// process could not be read; what is defective is put aside.
func (o *object) open(log *slog.Logger) error {
	if o.opened {
		return nil
	}
	frames, hdr := o.hdr.sframes, o.hdr.ehHdr
	if (len(frames) == 0 || hdr.size == 0) && !o.searched {
		// Linkers that do not know SFrame leave no program header for it; some
		// programs have .eh_frame without the header.
		o.search(log)
	}
	o.close()
	if len(frames) == 0 {
		frames = o.sections.sframes
	}
	for _, r := range frames {
		if err := o.openSFrame(r, log); err != nil {
			return err
		}
	}
	if err := o.openEH(hdr, log); err != nil {
		return err
	}
	o.opened = true
	return nil
}

// openSFrame opens the .sframe table at r.
func (o *object) openSFrame(r region, log *slog.Logger) error {
	if _, ok := o.hdr.loadAt(r); !ok {
		if r.size != 0 {
			o.problem(log, "sframe", r.addr, true, &HeaderError{0, "table outside of loadable segments", r.addr})
		}
		return nil
	}
	s, err := sframe.Open(io.NewSectionReader(o, int64(r.addr), int64(r.size)), r.addr, r.size)
	switch {
	case errors.Is(err, sframe.ErrEmpty):
		return nil
	case defect(err) != nil:
		o.problem(log, "sframe", r.addr, true, err)
		return nil
	case err != nil:
		return err
	}
	if !s.ABI().Matches(o.hdr.machine, o.hdr.enc.data) {
		o.problem(log, "sframe", r.addr, true, fmt.Errorf("table is for %v", s.ABI()))
		return nil
	}
	if s.Version() == 1 {
		o.old = append(o.old, s)
	} else {
		o.sframes = append(o.sframes, s)
	}
	return nil
}

// openEH opens .eh_frame, by its header or by the section's place in the file.
func (o *object) openEH(hdr region, log *slog.Logger) error {
	if o.hdr.arch == nil {
		return nil
	}
	for _, s := range o.ehPlaces(hdr) {
		s.Over = func() bool { return over(o) }
		t, err := ehframe.Open(o, o.hdr.arch, s)
		if err == nil {
			o.eh = t
			return nil
		}
		if defect(err) == nil {
			return err
		}
		o.problem(log, "eh_frame", s.HdrAddr, true, err)
	}
	return nil
}

// ehPlaces lists where .eh_frame may be found, best first.
func (o *object) ehPlaces(hdr region) (list []ehframe.Sections) {
	if p, ok := o.hdr.loadAt(hdr); ok && hdr.size > 0 {
		list = append(list, ehframe.Sections{HdrAddr: hdr.addr, HdrSize: hdr.size, Limit: p.vaddr + p.filesz})
	}
	frame := o.sections.eh
	if _, ok := o.hdr.loadAt(frame); ok && frame.size > 0 {
		list = append(list, ehframe.Sections{FrameAddr: frame.addr, FrameSize: frame.size})
	}
	return list
}
