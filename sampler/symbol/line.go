package symbol

import (
	"bytes"
	"cmp"
	"path"
	"slices"
	"sort"
)

// lineTable says which line the code of one unit comes from. It does not hold the rows that the
// unit's line program makes, millions at times, but marks in the program, from which a look-up runs it again.
type lineTable struct {
	d       *dwarfInfo
	header  lineHeader
	end     uint64     // of the program, in .debug_line
	marks   []lineMark // by address
	dirs    []string
	files   []lineFile
	first   uint32 // number of files[0]: 1 before DWARF 5
	comp    string // folder that the unit was compiled in
	claimed claim  // while it is read
}

type lineFile struct {
	name string
	dir  uint64
}

// lineState is a row of the table of lines, and where the program has got to.
type lineState struct {
	addr, file uint64
	line       int64
}

// lineStart is the state at the beginning of a sequence (DWARF 5, 6.2.2).
var lineStart = lineState{file: 1, line: 1}

// lineMark is a row, and where the program goes on behind it.
type lineMark struct {
	lineState
	next uint64
	from uint64 // the row, and those behind it, say nothing of addresses below that
}

const (
	// A look-up runs the program for lineStride rows, or linePiece bytes and a row.
	lineStride = 64
	linePiece  = 8 << 10
	// maxRowBytes bounds the program between two rows; compilers write some ten bytes.
	maxRowBytes = 64 << 10
	// maxLineHeader bounds the header of a program, which has the names of files.
	maxLineHeader = 8 << 20
	// maxLineFiles bounds folders and files of one unit.
	maxLineFiles = 1 << 17
	// What is claimed for a mark, which is kept twice for a moment, and for a file beside its name.
	lineMarkBytes = 128
	lineFileBytes = 64
)

// size estimates the memory that the table takes.
func (t *lineTable) size() int {
	if t == nil {
		return 0
	}
	return 40*len(t.marks) + lineFileBytes*(len(t.files)+len(t.dirs))
}

// find returns the row for addr.
func (t *lineTable) find(addr uint64) (row lineState, ok bool) {
	if t == nil {
		return row, false
	}
	i := sort.Search(len(t.marks), func(i int) bool { return t.marks[i].from > addr }) - 1
	if i < 0 {
		return row, false
	}
	m := &t.marks[i]
	p := lineProgram{lineState: m.lineState, t: t, at: m.next}
	least := m.from
	for range lineStride {
		if p.addr > addr {
			break
		}
		if p.addr >= least {
			row, ok, least = p.lineState, true, p.addr
		}
		end, more := p.next()
		if end && p.addr <= addr {
			return lineState{}, false
		}
		if end || !more {
			break
		}
	}
	return row, ok
}

// name returns the path of file number n, empty if there is none.
func (t *lineTable) name(n uint64) string {
	if t == nil || n < uint64(t.first) || n-uint64(t.first) >= uint64(len(t.files)) {
		return ""
	}
	f := t.files[n-uint64(t.first)]
	if path.IsAbs(f.name) {
		return f.name
	}
	dir := ""
	if f.dir < uint64(len(t.dirs)) {
		dir = t.dirs[f.dir]
	}
	if !path.IsAbs(dir) {
		dir = path.Join(t.comp, dir)
	}
	return path.Join(dir, f.name)
}

// lineHeader is what a line program needs of its header (DWARF 5, 6.2.4).
type lineHeader struct {
	minInst    uint64
	lineBase   int64
	lineRange  uint64
	opcodeBase uint8
	lengths    []byte // operands of standard opcodes 1 to opcodeBase-1
}

// readLines reads the unit's line program; nil if it has none that can be read. It is false
// if there was no time for it.
func (u *unit) readLines() (*lineTable, bool) {
	if !u.root.hasLines {
		return nil, true
	}
	line := u.d.sections.line
	c := line.cursor(u.root.stmtList, linePiece, u.d.im.order)
	length, offSize := c.unitLength()
	begin := u.root.stmtList + uint64(c.pos)
	if c.bad {
		return nil, true
	}
	// The program's own sizes may differ from the unit's.
	lu := *u
	if lu.format.offSize, lu.format.version = offSize, c.u16(); lu.format.version < 2 || lu.format.version > 5 {
		return nil, true
	}
	if lu.format.version == 5 {
		lu.format.addrSize = int(c.u8())
		c.u8() // segment selector size
	}
	headerLen := c.uint(offSize)
	t := &lineTable{d: u.d, end: begin + min(length, line.size-begin), comp: u.compDir()}
	at := u.root.stmtList + uint64(c.pos)
	if c.bad || at > t.end || headerLen > min(t.end-at, maxLineHeader) {
		return nil, true
	}
	c = cursor{b: line.read(at, int(headerLen)), order: c.order}
	h := &t.header
	h.minInst = uint64(c.u8())
	if lu.format.version >= 4 {
		c.u8() // maximum operations per instruction: 1 but on VLIW machines
	}
	c.u8() // default_is_stmt
	h.lineBase, h.lineRange = int64(int8(c.u8())), uint64(c.u8())
	h.opcodeBase = c.u8()
	if c.bad || h.lineRange == 0 || h.opcodeBase == 0 {
		return nil, true
	}
	h.lengths = bytes.Clone(c.take(uint64(h.opcodeBase) - 1))
	defer func() { u.d.cut = t.claimed.free() || u.d.cut }()
	if lu.format.version == 5 {
		t.readNames5(&c, &lu)
	} else {
		t.readNames(&c)
	}
	if c.bad {
		return nil, true
	}
	return t, t.mark(&lineProgram{lineState: lineStart, t: t, at: at + headerLen, defines: true})
}

// addDir and addFile are false where there is no room.
func (t *lineTable) addDir(name string) bool {
	if len(t.dirs) >= maxLineFiles || !t.claimed.take(lineFileBytes+len(name)) {
		return false
	}
	t.dirs = append(t.dirs, name)
	return true
}

func (t *lineTable) addFile(name string, dir uint64) bool {
	if len(t.files) >= maxLineFiles || !t.claimed.take(lineFileBytes+len(name)) {
		return false
	}
	t.files = append(t.files, lineFile{name, dir})
	return true
}

// readNames reads the tables of folders and files before DWARF 5. Folder 0 is
// the unit's; the first file is number 1.
func (t *lineTable) readNames(c *cursor) {
	t.first = 1
	t.dirs = append(t.dirs, t.comp)
	for {
		dir := c.cstr()
		if len(dir) == 0 {
			break
		}
		c.bad = !t.addDir(string(dir))
	}
	for {
		name := c.cstr()
		if len(name) == 0 {
			break
		}
		c.bad = !t.addFile(string(name), c.uleb()) || c.bad
		c.uleb() // time
		c.uleb() // size
	}
}

// Contents of the entries of DWARF 5's tables (table 7.27).
const (
	lnctPath           = 1
	lnctDirectoryIndex = 2
)

// readNames5 reads the tables of folders and files of DWARF 5.
func (t *lineTable) readNames5(c *cursor, u *unit) {
	readEntries(c, u, func(name string, _ uint64) bool { return t.addDir(name) })
	readEntries(c, u, t.addFile)
}

func readEntries(c *cursor, u *unit, add func(name string, dir uint64) bool) {
	type format struct{ content, form uint64 }
	formats := make([]format, c.u8())
	for i := range formats {
		formats[i] = format{c.uleb(), c.uleb()}
	}
	n := c.uleb()
	if len(formats) == 0 {
		return
	}
	for ; n > 0 && !c.bad; n-- {
		if n > maxLineFiles {
			c.bad = true
			return
		}
		var name string
		var dir uint64
		for _, f := range formats {
			v := u.format.readForm(c, uint16(min(f.form, 0xffff)), 0)
			switch f.content {
			case lnctPath:
				name = u.str(v)
			case lnctDirectoryIndex:
				dir = v.u
			}
		}
		c.bad = !add(name, dir) || c.bad
	}
}

// Opcodes of line programs (DWARF 5, tables 7.25 and 7.26).
const (
	lnsCopy           = 1
	lnsAdvancePC      = 2
	lnsAdvanceLine    = 3
	lnsSetFile        = 4
	lnsConstAddPC     = 8
	lnsFixedAdvancePC = 9
	lneEndSequence    = 1
	lneSetAddress     = 2
	lneDefineFile     = 3
)

// lineProgram is a line program that is run, a piece of it in memory.
type lineProgram struct {
	lineState
	t       *lineTable
	c       cursor
	at      uint64 // offset in .debug_line of the piece
	defines bool   // the files that it defines are new ones
}

func (p *lineProgram) here() uint64 { return p.at + uint64(p.c.pos) }

// want makes n bytes the rest of the piece, at least, or fewer at the program's end.
func (p *lineProgram) want(n int) {
	if len(p.c.b)-p.c.pos < n && p.at+uint64(len(p.c.b)) < p.t.end {
		p.at = p.here()
		p.c = p.t.d.sections.line.cursor(p.at, int(min(p.t.end-p.at, uint64(max(n, linePiece)))), p.t.d.im.order)
	}
}

// seek goes on at an offset in .debug_line.
func (p *lineProgram) seek(off uint64) {
	if in := off - p.at; off >= p.at && in < uint64(len(p.c.b)) {
		p.c.pos = int(in)
		return
	}
	p.at, p.c = off, cursor{}
}

// next runs the program up to its next row, or the end of the sequence, whose address it has then. ok is false at
// the end of the program.
func (p *lineProgram) next() (end, ok bool) {
	h := &p.t.header
	for begin := p.here(); !p.c.bad && p.here() < p.t.end && p.here()-begin < maxRowBytes; {
		p.want(linePiece / 2)
		c := &p.c
		op := c.u8()
		switch {
		case op >= h.opcodeBase:
			n := uint64(op - h.opcodeBase)
			p.addr += n / h.lineRange * h.minInst
			p.line += h.lineBase + int64(n%h.lineRange)
			return false, true
		case op == 0:
			n := c.uleb()
			if c.bad || n > p.t.end-p.here() {
				return false, false
			}
			if p.extended(n) {
				return true, true
			}
		case op == lnsCopy:
			return false, true
		case op == lnsAdvancePC:
			p.addr += c.uleb() * h.minInst
		case op == lnsAdvanceLine:
			p.line += c.sleb()
		case op == lnsSetFile:
			p.file = c.uleb()
		case op == lnsConstAddPC:
			p.addr += uint64(255-h.opcodeBase) / h.lineRange * h.minInst
		case op == lnsFixedAdvancePC:
			p.addr += uint64(c.u16())
		default: // of no interest here: the header says how many operands it has
			for range h.lengths[op-1] {
				c.uleb()
			}
		}
	}
	return false, false
}

// extended runs an extended opcode of n bytes. It is true at the end of a sequence.
func (p *lineProgram) extended(n uint64) bool {
	next := p.here() + n
	p.want(int(min(n, maxName+linePiece)))
	ext := cursor{b: p.c.b[p.c.pos:min(uint64(len(p.c.b)), uint64(p.c.pos)+n)], order: p.c.order}
	op := ext.u8()
	p.seek(next)
	switch op {
	case lneSetAddress:
		p.addr = ext.uint(min(len(ext.b)-ext.pos, 8))
	case lneDefineFile:
		// One that is left out would give the next ones its number.
		p.c.bad = p.defines && !p.t.addFile(string(ext.cstr()), ext.uleb())
	}
	return op == lneEndSequence
}

// mark runs the program once, for the marks of its sequences. Sequences of code that the linker dropped are left
// out. It is false if there was no time for it.
func (t *lineTable) mark(p *lineProgram) bool {
	type sequence struct {
		marks []lineMark
		last  uint64
	}
	var seqs []sequence
	var marks []lineMark // of this sequence
	total, rows, last := 0, 0, uint64(0)
	for {
		end, ok := p.next()
		if !ok {
			break
		}
		last = max(last, p.addr)
		if end {
			if len(marks) > 0 && t.d.im.text.has(marks[0].addr) {
				seqs = append(seqs, sequence{slices.Clip(marks), last})
				total += len(marks)
				marks = nil
			}
			marks, last, p.lineState = marks[:0], 0, lineStart
			continue
		}
		if rows++; len(marks) > 0 && rows < lineStride && p.here()-marks[len(marks)-1].next < linePiece {
			continue
		}
		if t.d.stopped() {
			return false
		}
		if !t.claimed.take(lineMarkBytes) {
			break
		}
		marks, rows = append(marks, lineMark{p.lineState, p.here(), last}), 0
	}
	// Within a sequence addresses only grow, and sequences do not overlap; what breaks this is left out, for it cannot be searched.
	slices.SortStableFunc(seqs, func(a, b sequence) int { return cmp.Compare(a.marks[0].addr, b.marks[0].addr) })
	t.marks, last = make([]lineMark, 0, total), 0
	for _, s := range seqs {
		for _, m := range s.marks {
			m.from = max(m.from, last)
			t.marks = append(t.marks, m)
		}
		last = max(last, s.last)
	}
	return true
}
