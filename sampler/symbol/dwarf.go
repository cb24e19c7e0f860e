package symbol

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"

	"sfsample/internal/late"
)

// dwarfInfo is the debugging information of one file. It reads headers of all
// units once, and the entries of a unit when an address in it is asked for. Not
// safe for concurrent use.
//
// Delve's godwarf and the standard library's debug/dwarf are not used here: both
// want whole sections in memory, build an object for each attribute, and trust
// counts that files give. For 1 GB of DWARF that is the difference between
// reading two megabytes and reading all.
type dwarfInfo struct {
	im    *image
	shift uint64 // what is added to an address of the mapped file to get one here
	alt   *dwarfInfo

	sections debugSections

	units  []*unit    // by offset
	ranges []unitSpan // by start

	wantLines bool
	cut       bool // a unit was read in part: see inUnits
	piece     int  // bytes of .debug_info that are read at a time

	loaded []*unit // those with entries or lines in memory, the last used last
	held   int     // bytes that they take, roughly

	abbrevs *abbrevs    // the table that was used last
	specs   []attrSpec  // room for one abbreviation
	scratch []nodeRange // room for the ranges of a unit
}

// debugSections are the sections that debugging information is in.
type debugSections struct {
	info, abbrev, str, lineStr, strOffsets, addr, ranges, rngLists, line, aranges *debugSection
}

func openDebugSections(im *image) debugSections {
	open := im.debugSection
	return debugSections{
		info: open("info"), abbrev: open("abbrev"), str: open("str"), lineStr: open("line_str"), strOffsets: open("str_offsets"),
		addr: open("addr"), ranges: open("ranges"), rngLists: open("rnglists"), line: open("line"), aranges: open("aranges"),
	}
}

func (s *debugSections) all() []*debugSection {
	return []*debugSection{s.info, s.abbrev, s.str, s.lineStr, s.strOffsets, s.addr, s.ranges, s.rngLists, s.line, s.aranges}
}

// unitSpan is a range of addresses of a unit. maxEnd is the largest end of this
// and all earlier ranges: ranges may overlap, and a search stops where no earlier
// one reaches.
type unitSpan struct {
	span
	unit   int32
	maxEnd uint64
}

const (
	// maxUnits bounds the headers of units; the largest programs have some 50,000.
	maxUnits = 1 << 18
	// maxUnitSpans bounds the ranges of all units.
	maxUnitSpans = 1 << 21
	// maxUnit is the largest unit that is read; a Rust program in one unit has
	// some 100 MB.
	maxUnit = 512 << 20
	// maxDwarfHeld bounds what is kept of parsed units; the last one is kept
	// whatever it takes.
	maxDwarfHeld = 12 << 20
)

var errNoDWARF = errors.New("no debugging information")

// openDWARF reads the headers of all units of im. lines: those are wanted too.
func openDWARF(im *image, lines bool) (*dwarfInfo, error) {
	if im.sections.debug("info") == nil {
		return nil, errNoDWARF
	}
	d := newDWARF(im)
	d.wantLines = lines
	if d.stopped() {
		d.Close()
		return nil, late.ErrNoTime
	}
	if d.sections.info.size == 0 || d.sections.abbrev.size == 0 {
		d.Close()
		return nil, errors.New("debugging information cannot be read")
	}
	d.readUnits(true)
	if d.stopped() {
		d.Close()
		return nil, late.ErrNoTime
	}
	if len(d.ranges) == 0 {
		d.Close()
		for _, u := range d.units {
			if u.skeleton {
				return nil, errors.New("debugging information is in .dwo files")
			}
		}
		return nil, errors.New("no unit of the debugging information has addresses")
	}
	return d, nil
}

// Close closes the files that sections were expanded to.
func (d *dwarfInfo) Close() error {
	var errs []error
	for _, s := range d.sections.all() {
		if s.tmp != nil {
			errs = append(errs, s.tmp.Close())
			onDisk.give(int64(s.size))
		}
	}
	if d.alt != nil {
		d.alt.im.release()
		errs = append(errs, d.alt.Close())
	}
	return errors.Join(errs...)
}

// bytes is about how much memory d holds.
func (d *dwarfInfo) bytes() int {
	const unitBytes = 192
	n := d.held + unitBytes*len(d.units) + 32*cap(d.ranges)
	for _, s := range d.sections.all() {
		n += cap(s.mem) + cap(s.window)
	}
	if d.alt != nil {
		n += d.alt.bytes()
	}
	return n
}

func newDWARF(im *image) *dwarfInfo {
	return &dwarfInfo{im: im, piece: windowSize, sections: openDebugSections(im)}
}

// readUnits reads the headers of all units, and what addresses each has if asked
// to. It stops at the first header that is damaged: where the next one is cannot
// be known.
func (d *dwarfInfo) readUnits(ranges bool) {
	bare := make(map[uint64]int32) // units whose ranges are elsewhere, by offset
	for off, n := uint64(0), 0; off < d.sections.info.size && n < maxUnits && len(d.ranges) < maxUnitSpans && !d.stopped(); n++ {
		u, ok := d.readUnit(off)
		if !ok {
			break
		}
		if u.first != 0 && u.first < u.end {
			n := int32(len(d.units))
			d.units = append(d.units, u)
			if ranges {
				before := len(d.ranges)
				for _, s := range u.readRoot() {
					d.ranges = append(d.ranges, unitSpan{span: s, unit: n})
				}
				if len(d.ranges) == before || u.format.version == 2 {
					bare[u.off] = n
				}
			}
		}
		off = u.end
	}
	if len(bare) > 0 {
		d.readAranges(bare)
	}
	d.ranges = slices.Clip(d.ranges)
	slices.SortFunc(d.ranges, func(a, b unitSpan) int {
		if r := cmp.Compare(a.start, b.start); r != 0 {
			return r
		}
		return cmp.Compare(a.unit, b.unit)
	})
	for i := range d.ranges {
		r := &d.ranges[i]
		r.maxEnd = r.end
		if i > 0 {
			r.maxEnd = max(r.maxEnd, d.ranges[i-1].maxEnd)
		}
	}
}

// unitAt returns the unit at an offset in .debug_info.
func (d *dwarfInfo) unitAt(off uint64) *unit {
	i := sort.Search(len(d.units), func(i int) bool { return d.units[i].end > off })
	if i < len(d.units) && d.units[i].first <= off {
		return d.units[i]
	}
	return nil
}

// maxOverlap is how many units' ranges are tried for one address.
const maxOverlap = 64

// candidates calls fn with the units that claim addr, until it is true.
func (d *dwarfInfo) candidates(addr uint64, fn func(*unit) bool) {
	i := sort.Search(len(d.ranges), func(i int) bool { return d.ranges[i].start > addr })
	for n := 0; i > 0 && n < maxOverlap && d.ranges[i-1].maxEnd > addr; n++ {
		i--
		if d.ranges[i].end > addr && fn(d.units[d.ranges[i].unit]) {
			return
		}
	}
}

// use makes sure that the entries and lines of u are in memory. It is false if
// there was no time to read them.
func (d *dwarfInfo) use(u *unit) bool {
	if i := slices.Index(d.loaded, u); i >= 0 {
		d.loaded = append(slices.Delete(d.loaded, i, i+1), u)
		return true
	}
	if d.stopped() {
		return false
	}
	if u.parsed = u.parse(u.first, outline); u.parsed == nil {
		return false
	}
	if d.wantLines {
		var ok bool
		if u.lines, ok = u.readLines(); !ok {
			u.parsed, u.lines = nil, nil
			return false
		}
	}
	d.loaded = append(d.loaded, u)
	d.held += u.held()
	return true
}

// trim forgets units until few enough bytes are held; the last one stays.
func (d *dwarfInfo) trim() {
	for d.held > maxDwarfHeld && len(d.loaded) > 1 {
		old := d.loaded[0]
		d.held -= old.held()
		old.parsed, old.lines, old.inner, old.innerBytes = nil, nil, nil, 0
		d.loaded = slices.Delete(d.loaded, 0, 1)
	}
	if d.held > maxDwarfHeld {
		u := d.loaded[0]
		d.held -= u.innerBytes
		u.inner, u.innerBytes = nil, 0
	}
}

// held is about how much memory the unit's entries and lines take.
func (u *unit) held() int { return u.parsed.size() + u.innerBytes + u.lines.size() }

// stopped reports whether nothing that takes long is to be read any more.
func (d *dwarfInfo) stopped() bool { return d.im.until.Over() }

// location is one function at an address, as the debugging information has it.
type location struct {
	name    string // the linker's name if the entry has one, else the plain one
	file    string
	line    int
	inlined bool
}

// find returns the functions at addr, innermost first; nil if no unit has it. A
// result with one location without name says only the line. late means that
// there was no time to read what is known of addr.
func (d *dwarfInfo) find(addr uint64) (found []location, late bool) {
	addr += d.shift
	d.candidates(addr, func(u *unit) bool {
		if !d.use(u) {
			late = true
			return true
		}
		before := u.held()
		t, n := u.at(addr)
		d.held += u.held() - before
		d.trim()
		if d.stopped() && (n == none && t.part || n != none && t.nodes[n].outline) {
			late = true
			return true
		}
		row, ok := u.lines.find(addr)
		if n == none && !ok {
			return false
		}
		found = u.locations(t, n, row)
		return n != none
	})
	return found, late
}

// locations climbs from node n of t outwards. The innermost function's line is that
// of the address, each further one's that of the call.
func (u *unit) locations(t *unitTree, n int32, row lineState) []location {
	file, line := row.file, int(uint32(max(row.line, 0)))
	if n == none {
		return []location{{file: u.lines.name(file), line: line}}
	}
	var list []location
	for n != none && len(list) < maxDepth {
		node := &t.nodes[n]
		list = append(list, location{
			name: u.d.functionName(node.origin), file: u.lines.name(file), line: line, inlined: node.inlined,
		})
		file, line = uint64(node.callFile), int(node.callLine)
		n = node.parent
	}
	return list
}

// maxOrigins bounds the chain of entries that lead to a name: from an inlined
// call to the function to its declaration, in a partial unit at times.
const maxOrigins = 8

// functionName returns the name of the function whose entry is at off. A
// linker's name anywhere in the chain comes before a plain name.
func (d *dwarfInfo) functionName(off uint64) string {
	plain := ""
	for range maxOrigins {
		u := d.unitAt(off)
		if u == nil {
			break
		}
		var e die
		if !u.dieAt(off, &e) {
			break
		}
		if v := e.v[slotLinkage]; v.form != 0 {
			if name := u.str(v); name != "" {
				return name
			}
		}
		if v := e.v[slotName]; v.form != 0 && plain == "" {
			plain = u.str(v)
		}
		v := e.v[slotOrigin]
		switch v.form {
		case 0:
			return plain
		case formGNURefAlt, formRefSup4, formRefSup8:
			if d = d.alt; d == nil {
				return plain
			}
			off = v.u
		default:
			off = u.reference(v)
		}
	}
	return plain
}

// dieAt reads the entry at off, which lies in u.
func (u *unit) dieAt(off uint64, e *die) bool {
	const longest = 4096 // of an entry that names a function
	c := u.d.sections.info.cursor(off, int(min(u.end-off, longest)), u.d.im.order)
	code := c.uleb()
	if code == 0 || c.bad {
		return false
	}
	a := u.abbrevFor(code)
	if a == nil {
		return false
	}
	u.format.readAttrs(&c, a, e)
	return e.tag != 0 && !c.bad
}

// abbrevFor finds one abbreviation of the unit's table.
func (u *unit) abbrevFor(code uint64) *abbrev {
	if t := u.d.abbrevs; t != nil && t.key == (abbrevKey{u.abbrev, u.format}) {
		return t.get(code)
	}
	for size := firstAbbrevs; ; size *= 4 {
		b := u.d.sections.abbrev.bytes(u.abbrev, size)
		c := cursor{b: b, order: u.d.im.order}
		for {
			u.d.specs = u.d.specs[:0]
			got, a := readAbbrev(&c, &u.format, &u.d.specs)
			if c.bad {
				break // perhaps for want of bytes
			}
			if got == code {
				return &a
			}
			if got == 0 {
				return nil
			}
		}
		if len(b) < size || size >= maxAbbrevBytes {
			return nil
		}
	}
}

// loadAlt opens the supplementary file that dwz made (.gnu_debugaltlink: a name
// and a build-id), through open, which finds a file by path and build-id.
func (d *dwarfInfo) loadAlt(open func(path, id string) (*image, error)) error {
	b, err := d.im.data(d.im.sections.named(".gnu_debugaltlink"), maxSmallSection)
	if errors.Is(err, errNoSection) {
		return nil
	}
	if err != nil {
		return err
	}
	path := cstring(b, 0, 4096)
	if len(path)+1 >= len(b) || len(b)-len(path) > 64 {
		return &FormatError{0, ".gnu_debugaltlink has no build-id", uint64(len(b))}
	}
	id := fmt.Sprintf("%x", b[len(path)+1:])
	im, err := open(path, id)
	if err != nil {
		return fmt.Errorf("supplementary file %s: %w", path, err)
	}
	d.alt = newDWARF(im)
	d.alt.readUnits(false)
	return nil
}
