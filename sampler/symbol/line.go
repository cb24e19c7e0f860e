package symbol

import (
	"cmp"
	"path"
	"slices"
	"sort"
)

// lineRow says that code from addr on comes from a line.
type lineRow struct {
	addr uint64
	file uint32 // number in the unit's table
	line uint32
	end  bool // the first address after a sequence
}

// lineTable is the decoded line program of one unit.
type lineTable struct {
	rows  []lineRow // by address, sequence after sequence
	dirs  []string
	files []lineFile
	first uint32 // number of files[0]: 1 before DWARF 5
	comp  string // folder that the unit was compiled in
}

type lineFile struct {
	name string
	dir  uint64
}

const (
	// maxLineProgram bounds the program of one unit, maxLineRows what it makes.
	maxLineProgram = 256 << 20
	maxLineRows    = 1 << 23
	// maxLineFiles bounds folders and files of one unit.
	maxLineFiles = 1 << 17
)

// size estimates the memory that the table takes.
func (t *lineTable) size() int {
	if t == nil {
		return 0
	}
	return 24*len(t.rows) + 64*(len(t.files)+len(t.dirs))
}

// find returns the row for addr.
func (t *lineTable) find(addr uint64) (lineRow, bool) {
	if t == nil {
		return lineRow{}, false
	}
	i := sort.Search(len(t.rows), func(i int) bool { return t.rows[i].addr > addr }) - 1
	if i < 0 || t.rows[i].end {
		return lineRow{}, false
	}
	return t.rows[i], true
}

// name returns the path of file number n, empty if there is none.
func (t *lineTable) name(n uint32) string {
	if t == nil || n-t.first >= uint32(len(t.files)) || n < t.first {
		return ""
	}
	f := t.files[n-t.first]
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

// readLines decodes the unit's line program; nil if it has none that can be
// read.
func (u *unit) readLines() *lineTable {
	if !u.hasLines {
		return nil
	}
	c := u.d.line.cursor(u.stmtList, 12, u.d.im.order)
	length, offSize := c.unitLength()
	if c.bad || length > maxLineProgram {
		return nil
	}
	b := u.d.line.read(u.stmtList+uint64(c.pos), int(length))
	c = cursor{b: b, order: u.d.im.order}
	version := c.u16()
	if version < 2 || version > 5 {
		return nil
	}
	// The program's own sizes may differ from the unit's.
	lu := *u
	lu.offSize, lu.version = offSize, version
	if version == 5 {
		lu.addrSize = int(c.u8())
		c.u8() // segment selector size
	}
	headerLen := c.uint(offSize)
	if c.bad || headerLen > uint64(len(b)-c.pos) {
		return nil
	}
	program := c.pos + int(headerLen)
	var h lineHeader
	h.minInst = uint64(c.u8())
	if version >= 4 {
		c.u8() // maximum operations per instruction: 1 but on VLIW machines
	}
	c.u8() // default_is_stmt
	h.lineBase, h.lineRange = int64(int8(c.u8())), uint64(c.u8())
	h.opcodeBase = c.u8()
	if c.bad || h.lineRange == 0 || h.opcodeBase == 0 {
		return nil
	}
	h.lengths = c.take(uint64(h.opcodeBase) - 1)
	t := &lineTable{comp: u.compDir()}
	if version == 5 {
		t.readNames5(&c, &lu)
	} else {
		t.readNames(&c)
	}
	if c.bad {
		return nil
	}
	t.run(&h, &cursor{b: b, pos: program, order: c.order}, &lu)
	return t
}

// readNames reads the tables of folders and files before DWARF 5. Folder 0 is
// the unit's; the first file is number 1.
func (t *lineTable) readNames(c *cursor) {
	t.first = 1
	t.dirs = append(t.dirs, t.comp)
	for len(t.dirs) < maxLineFiles {
		dir := c.cstr()
		if len(dir) == 0 {
			break
		}
		t.dirs = append(t.dirs, string(dir))
	}
	for len(t.files) < maxLineFiles {
		name := c.cstr()
		if len(name) == 0 {
			break
		}
		f := lineFile{name: string(name), dir: c.uleb()}
		c.uleb() // time
		c.uleb() // size
		t.files = append(t.files, f)
	}
}

// Contents of the entries of DWARF 5's tables (table 7.27).
const (
	lnctPath           = 1
	lnctDirectoryIndex = 2
)

// readNames5 reads the tables of folders and files of DWARF 5.
func (t *lineTable) readNames5(c *cursor, u *unit) {
	t.readEntries(c, u, func(name string, _ uint64) { t.dirs = append(t.dirs, name) })
	t.readEntries(c, u, func(name string, dir uint64) { t.files = append(t.files, lineFile{name, dir}) })
}

func (t *lineTable) readEntries(c *cursor, u *unit, add func(name string, dir uint64)) {
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
			v := u.readForm(c, uint16(min(f.form, 0xffff)), 0)
			switch f.content {
			case lnctPath:
				name = u.str(v)
			case lnctDirectoryIndex:
				dir = v.u
			}
		}
		add(name, dir)
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

// run executes a line program. Sequences of code that the linker dropped are
// left out.
func (t *lineTable) run(h *lineHeader, c *cursor, u *unit) {
	all := u.d.rows[:0]
	addr, file, line := uint64(0), uint64(1), int64(1)
	begin := 0 // first row of this sequence
	row := func(end bool) {
		all = append(all, lineRow{addr: addr, file: uint32(file), line: uint32(max(line, 0)), end: end})
	}
	for c.more() && len(all) < maxLineRows {
		op := c.u8()
		switch {
		case op >= h.opcodeBase:
			n := uint64(op - h.opcodeBase)
			addr += n / h.lineRange * h.minInst
			line += h.lineBase + int64(n%h.lineRange)
			row(false)
		case op == 0:
			ext := cursor{b: c.take(c.uleb()), order: c.order}
			switch ext.u8() {
			case lneEndSequence:
				row(true)
				if !u.d.im.isText(all[begin].addr) {
					all = all[:begin]
				}
				begin = len(all)
				addr, file, line = 0, 1, 1
			case lneSetAddress:
				addr = ext.uint(min(len(ext.b)-ext.pos, 8))
			case lneDefineFile:
				f := lineFile{name: string(ext.cstr()), dir: ext.uleb()}
				if len(t.files) < maxLineFiles {
					t.files = append(t.files, f)
				}
			}
		case op == lnsCopy:
			row(false)
		case op == lnsAdvancePC:
			addr += c.uleb() * h.minInst
		case op == lnsAdvanceLine:
			line += c.sleb()
		case op == lnsSetFile:
			file = c.uleb()
		case op == lnsConstAddPC:
			addr += uint64(255-h.opcodeBase) / h.lineRange * h.minInst
		case op == lnsFixedAdvancePC:
			addr += uint64(c.u16())
		default: // of no interest here: the header says how many operands it has
			for range h.lengths[op-1] {
				c.uleb()
			}
		}
	}
	t.arrange(all[:begin])
	if cap(all) < maxScratch {
		u.d.rows = all[:0]
	}
}

// arrange sorts whole sequences by address. Rows of one address stay in the
// program's order, so that the last one counts.
func (t *lineTable) arrange(rows []lineRow) {
	type sequence struct{ rows []lineRow }
	var seqs []sequence
	total := len(rows)
	for len(rows) > 0 {
		n := slices.IndexFunc(rows, func(r lineRow) bool { return r.end }) + 1
		seqs = append(seqs, sequence{rows[:n]})
		rows = rows[n:]
	}
	t.rows = make([]lineRow, 0, total)
	slices.SortStableFunc(seqs, func(a, b sequence) int { return cmp.Compare(a.rows[0].addr, b.rows[0].addr) })
	for _, s := range seqs {
		// Within a sequence addresses only grow; a table that breaks this cannot
		// be searched, so what goes back is dropped.
		for _, r := range s.rows {
			if n := len(t.rows); n > 0 && r.addr < t.rows[n-1].addr {
				continue
			}
			t.rows = append(t.rows, r)
		}
	}
}
