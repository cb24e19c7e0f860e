package symbol

import (
	"cmp"
	"slices"
	"sort"
)

// unit is one compilation unit (or partial unit, to which others refer).
type unit struct {
	d        *dwarfInfo
	off, end uint64 // in .debug_info, the header included
	first    uint64 // offset of the first entry
	abbrev   uint64 // offset of its abbreviations
	format   dwarfFormat
	skeleton bool // the rest is in a .dwo file
	root     unitRoot

	parsed *unitTree            // nil: not in memory
	inner  map[uint64]*unitTree // of functions whose calls parsed leaves out, by offset
	lines  *lineTable

	innerBytes int
}

// unitRoot is what the unit's own entry tells.
type unitRoot struct {
	low                        uint64
	strBase, addrBase, rngBase uint64 // of the unit's parts of sections
	stmtList                   uint64 // of its line program
	hasLines                   bool
}

// Kinds of units (DWARF 5, table 7.2).
const (
	unitCompile  = 1
	unitType     = 2
	unitPartial  = 3
	unitSkeleton = 4
)

// readUnit reads the unit header at off. ok is false when the rest of the
// section cannot be used; a unit that is merely of no interest has end alone.
func (d *dwarfInfo) readUnit(off uint64) (u *unit, ok bool) {
	c := d.sections.info.cursor(off, 64, d.im.order)
	length, offSize := c.unitLength()
	if c.bad || length > d.sections.info.size-off-uint64(c.pos) {
		return nil, false
	}
	u = &unit{d: d, off: off, end: off + uint64(c.pos) + length, format: dwarfFormat{offSize: offSize}}
	u.format.version = c.u16()
	kind := uint8(unitCompile)
	switch {
	case u.format.version >= 2 && u.format.version <= 4:
		u.abbrev = c.uint(offSize)
		u.format.addrSize = int(c.u8())
	case u.format.version == 5:
		kind = c.u8()
		u.format.addrSize = int(c.u8())
		u.abbrev = c.uint(offSize)
		if kind == unitSkeleton {
			c.u64() // id of the .dwo unit
			u.skeleton = true
		}
	default:
		return u, true
	}
	if c.bad || u.format.addrSize != 4 && u.format.addrSize != 8 || kind == unitType || kind > unitSkeleton {
		return u, true
	}
	u.first = off + uint64(c.pos)
	return u, true
}

// readRoot reads the unit's own entry and returns the ranges of addresses that
// it claims.
func (u *unit) readRoot() []span {
	var root die
	if !u.rootDie(&root) {
		return nil
	}
	u.root.strBase, u.root.addrBase, u.root.rngBase = root.v[slotStrBase].u, root.v[slotAddrBase].u, root.v[slotRngBase].u
	if v := root.v[slotStmtList]; v.form != 0 {
		u.root.stmtList, u.root.hasLines = v.u, true
	}
	// DWARF 5, 2.17.3: the unit's low_pc is the base of its range lists.
	if v := root.v[slotLow]; v.form != 0 {
		u.root.low = u.address(v)
	}
	var spans []span
	u.ranges(&root, func(s span) { spans = append(spans, s) })
	return join(spans)
}

// join sorts ranges and makes one of those that touch: a unit has one for each
// function in a section of its own.
func join(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	n := 0
	for _, s := range spans {
		if n > 0 && s.start <= spans[n-1].end {
			spans[n-1].end = max(spans[n-1].end, s.end)
			continue
		}
		spans[n] = s
		n++
	}
	return spans[:n]
}

// rootDie reads the first entry. Its abbreviation is mostly the first one of the
// table, so the table is read only as far as needed.
func (u *unit) rootDie(root *die) bool {
	c := u.d.sections.info.cursor(u.first, int(min(u.end-u.first, 4096)), u.d.im.order)
	code := c.uleb()
	if code == 0 || c.bad {
		return false
	}
	a := cursor{b: u.d.sections.abbrev.bytes(u.abbrev, firstAbbrevs), order: u.d.im.order}
	for {
		u.d.specs = u.d.specs[:0]
		got, decl := readAbbrev(&a, &u.format, &u.d.specs)
		if got == 0 {
			return false
		}
		if got == code {
			u.format.readAttrs(&c, &decl, root)
			return !c.bad && root.tag != 0
		}
	}
}

// compDir is the folder that the unit was compiled in.
func (u *unit) compDir() string {
	var root die
	if !u.rootDie(&root) {
		return ""
	}
	return u.str(root.v[slotCompDir])
}

// str returns a string attribute.
func (u *unit) str(v value) string {
	switch v.form {
	case formString:
		return string(v.s[:min(len(v.s), maxName)])
	case formStrp:
		return u.d.sections.str.str(v.u)
	case formLineStrp:
		return u.d.sections.lineStr.str(v.u)
	case formStrpSup, formGNUStrpAlt:
		if u.d.alt != nil {
			return u.d.alt.sections.str.str(v.u)
		}
	case formStrx, formStrx1, formStrx1 + 1, formStrx1 + 2, formStrx4, formGNUStrIndex:
		base := u.root.strBase
		if base == 0 && u.format.version >= 5 {
			base = uint64(u.format.offSize) * 2 // after the header of the only table
		}
		if v.u > u.d.sections.strOffsets.size {
			return ""
		}
		c := u.d.sections.strOffsets.cursor(base+v.u*uint64(u.format.offSize), u.format.offSize, u.d.im.order)
		off := c.uint(u.format.offSize)
		if !c.bad {
			return u.d.sections.str.str(off)
		}
	}
	return ""
}

// address returns an address attribute.
func (u *unit) address(v value) uint64 {
	switch v.form {
	case formAddrx, formAddrx1, formAddrx1 + 1, formAddrx1 + 2, formAddrx4, formGNUAddrIndex:
		return u.indexed(v.u)
	}
	return v.u
}

// indexed returns entry i of the unit's part of .debug_addr.
func (u *unit) indexed(i uint64) uint64 {
	if i > u.d.sections.addr.size {
		return 0
	}
	c := u.d.sections.addr.cursor(u.root.addrBase+i*uint64(u.format.addrSize), u.format.addrSize, u.d.im.order)
	return c.uint(u.format.addrSize)
}

// ranges calls fn with each range of addresses of an entry, empty ones and those
// of code that the linker dropped left out.
func (u *unit) ranges(d *die, fn func(span)) {
	add := func(s span) {
		if s.start < s.end && u.d.im.text.has(s.start) {
			fn(s)
		}
	}
	if v := d.v[slotRanges]; v.form != 0 {
		u.rangeList(v, add)
		return
	}
	low, high := d.v[slotLow], d.v[slotHigh]
	if low.form == 0 || high.form == 0 {
		return
	}
	start := u.address(low)
	switch high.form {
	case formAddr, formAddrx, formAddrx1, formAddrx1 + 1, formAddrx1 + 2, formAddrx4, formGNUAddrIndex:
		add(span{start, u.address(high)})
	default: // since DWARF 4: an offset from low_pc
		add(span{start, start + high.u})
	}
}

// maxRanges bounds one range list.
const maxRanges = 1 << 16

func (u *unit) rangeList(v value, add func(span)) {
	if u.format.version < 5 {
		u.rangeList4(v.u, add)
		return
	}
	off := v.u
	if v.form == formRnglistx {
		if v.u > u.d.sections.rngLists.size {
			return
		}
		c := u.d.sections.rngLists.cursor(u.root.rngBase+v.u*uint64(u.format.offSize), u.format.offSize, u.d.im.order)
		off = u.root.rngBase + c.uint(u.format.offSize)
	}
	u.rangeList5(off, add)
}

// rangeList4 reads a list in .debug_ranges (DWARF 4, 2.17.3).
func (u *unit) rangeList4(off uint64, add func(span)) {
	base := u.root.low
	largest := ^uint64(0)
	if u.format.addrSize == 4 {
		largest = 0xffffffff
	}
	for range maxRanges {
		c := u.d.sections.ranges.cursor(off, 2*u.format.addrSize, u.d.im.order)
		start, end := c.uint(u.format.addrSize), c.uint(u.format.addrSize)
		off += uint64(2 * u.format.addrSize)
		switch {
		case c.bad || start == 0 && end == 0:
			return
		case start == largest:
			base = end
		default:
			add(span{base + start, base + end})
		}
	}
}

// Kinds of entries in .debug_rnglists (DWARF 5, table 7.30).
const (
	rleEndOfList    = 0
	rleBaseAddressx = 1
	rleStartxEndx   = 2
	rleStartxLength = 3
	rleOffsetPair   = 4
	rleBaseAddress  = 5
	rleStartEnd     = 6
	rleStartLength  = 7
)

// rangeList5 reads a list in .debug_rnglists (DWARF 5, 2.17.3).
func (u *unit) rangeList5(off uint64, add func(span)) {
	base := u.root.low
	const longest = 1 + 10 + 10 // bytes of one entry
	for range maxRanges {
		c := u.d.sections.rngLists.cursor(off, longest, u.d.im.order)
		kind := c.u8()
		var s span
		switch kind {
		case rleEndOfList:
			return
		case rleBaseAddressx:
			base = u.indexed(c.uleb())
		case rleStartxEndx:
			s.start = u.indexed(c.uleb())
			s.end = u.indexed(c.uleb())
		case rleStartxLength:
			s.start = u.indexed(c.uleb())
			s.end = s.start + c.uleb()
		case rleOffsetPair:
			s.start = base + c.uleb()
			s.end = base + c.uleb()
		case rleBaseAddress:
			base = c.uint(u.format.addrSize)
		case rleStartEnd:
			s.start, s.end = c.uint(u.format.addrSize), c.uint(u.format.addrSize)
		case rleStartLength:
			s.start = c.uint(u.format.addrSize)
			s.end = s.start + c.uleb()
		default:
			return
		}
		if c.bad {
			return
		}
		off += uint64(c.pos)
		if s.end != 0 {
			add(s)
		}
	}
}

// node is a function, or a call that was inlined, in a unit.
type node struct {
	parent   int32  // the node around it, none for a function
	inlined  bool   // an inlined call
	outline  bool   // what is inlined here was not read
	origin   uint64 // offset of the entry itself in .debug_info
	callFile uint32
	callLine uint32
}

// unitTree says which node covers which address, innermost.
type unitTree struct {
	nodes []node
	segs  segments
	part  bool // functions inside others may be missing
}

const (
	// maxDepth bounds the nesting of entries.
	maxDepth = 1 << 10
	// maxScratch is how many ranges are kept room for.
	maxScratch = 1 << 16
	// What is claimed for a node, and for a range of one, with its pieces of a unitTree.
	nodeBytes  = 32
	rangeBytes = 24 + 2*12
)

// nodeRange is a range of a node; depth tells inner from outer ones that begin
// at the same address.
type nodeRange struct {
	span
	node  int32
	depth int32
}

// reach says how much of a unit parse reads.
type reach int

const (
	// outline: the functions, without what is inside them where that can be
	// stepped over. That is most of a unit.
	outline reach = iota
	// whole: all of the unit.
	whole
	// function: one entry and what is inside it.
	function
)

// parse reads the entries of the unit from off on. It is nil when there was no
// time to: see [Options.Until].
func (u *unit) parse(off uint64, reach reach) *unitTree {
	t := &unitTree{}
	if u.first == 0 || u.end-u.first > maxUnit {
		return t
	}
	e := u.entries(off)
	type level struct{ node, depth int32 }
	stack := []level{{node: none}}
	ranges := u.d.scratch[:0]
	var d die
	var claimed claim
	defer func() { u.d.cut = claimed.free() || u.d.cut }()
	for e.more() && !claimed.refused && !u.d.stopped() {
		here := e.here()
		parent := stack[len(stack)-1]
		if !e.next(&d) {
			if stack = stack[:len(stack)-1]; len(stack) == 0 || e.c.bad || reach == function && len(stack) == 1 {
				break
			}
			continue
		}
		inside := parent
		if d.tag == tagSubprogram || d.tag == tagInlined {
			before := len(ranges)
			id := int32(len(t.nodes))
			u.ranges(&d, func(s span) { ranges = append(ranges, nodeRange{s, id, parent.depth + 1}) })
			// An inlined call may have no ranges, but inner ones that do: DWARF 2
			// could not say where one lies that is in pieces.
			if len(ranges) > before || d.tag == tagInlined {
				if !claimed.take(nodeBytes + rangeBytes*(len(ranges)-before)) {
					ranges = ranges[:before]
					break
				}
				n := node{parent: none, inlined: d.tag == tagInlined, origin: here}
				if n.inlined {
					n.parent = parent.node
					n.callFile, n.callLine = uint32(d.v[slotCallFile].u), uint32(d.v[slotCallLine].u)
				}
				t.nodes = append(t.nodes, n)
				inside = level{id, parent.depth + 1}
			}
		}
		if !d.children {
			if reach == function && len(stack) == 1 {
				break
			}
			continue
		}
		skip := noCode(d.tag) || d.tag == tagSubprogram && reach == outline
		if v := d.v[slotSibling]; v.form != 0 && skip {
			if next := u.reference(v); next > here && next <= u.end {
				if d.tag == tagSubprogram {
					t.part = true
					if inside.node != parent.node {
						t.nodes[inside.node].outline = true
					}
				}
				e.seek(next)
				continue
			}
		}
		if len(stack) >= maxDepth {
			break
		}
		stack = append(stack, inside)
	}
	if u.d.stopped() {
		return nil
	}
	t.nodes = slices.Clip(t.nodes)
	t.build(ranges)
	if cap(ranges) < maxScratch {
		u.d.scratch = ranges[:0]
	}
	return t
}

// at returns the tree and the innermost node in it at addr, or none.
func (u *unit) at(addr uint64) (*unitTree, int32) {
	t := u.parsed
	n := t.find(addr)
	if n == none && t.part {
		// Some compilers put a function that was declared inside another one there.
		if t = u.parse(u.first, whole); t == nil {
			return u.parsed, none
		}
		u.parsed = t
		n = t.find(addr)
	}
	if n == none || !t.nodes[n].outline {
		return t, n
	}
	off := t.nodes[n].origin
	in := u.inner[off]
	if in == nil {
		if in = u.parse(off, function); in == nil {
			return t, n
		}
		if u.inner == nil {
			u.inner = map[uint64]*unitTree{}
		}
		u.inner[off] = in
		u.innerBytes += in.size()
	}
	if m := in.find(addr); m != none {
		return in, m
	}
	return t, n
}

// step reads the next entry; of one that is of no interest only the tag, unless all is wanted. It is
// false at the end of a list of children.
func (u *unit) step(c *cursor, ab *abbrevs, d *die, all bool) bool {
	d.tag = 0
	code := c.uleb()
	if code == 0 || c.bad {
		return false
	}
	a := ab.get(code)
	if a == nil {
		c.bad = true
		return false
	}
	if !all && a.tag != tagSubprogram && a.tag != tagInlined && a.fixed >= 0 && !(a.children && noCode(a.tag)) {
		d.tag, d.children = a.tag, a.children
		c.take(uint64(a.fixed))
		return !c.bad
	}
	u.format.readAttrs(c, a, d)
	return d.tag != 0 && !c.bad
}

// noCode tells types, whose entries hold declarations but no code: compilers
// put definitions of member functions outside and refer to the declaration.
func noCode(tag uint16) bool {
	switch tag {
	case tagArrayType, tagClassType, tagEnumerationType, tagStructureType, tagSubroutineType, tagUnionType:
		return true
	}
	return false
}

// reference returns the offset in .debug_info that a reference within this file
// leads to, 0 for others.
func (u *unit) reference(v value) uint64 {
	switch v.form {
	case formRef1, formRef2, formRef4, formRef8, formRefUdata:
		return u.off + v.u
	case formRefAddr:
		return v.u
	}
	return 0
}

func (t *unitTree) build(ranges []nodeRange) {
	slices.SortFunc(ranges, func(a, b nodeRange) int {
		if r := cmp.Compare(a.start, b.start); r != 0 {
			return r
		}
		if r := cmp.Compare(a.depth, b.depth); r != 0 {
			return r
		}
		return cmp.Compare(a.node, b.node)
	})
	for _, r := range ranges {
		t.segs.begin(r.start, r.end, r.node)
	}
	t.segs.finish()
}

// find returns the innermost node at addr, or none.
func (t *unitTree) find(addr uint64) int32 {
	s := &t.segs
	i := sort.Search(len(s.start), func(i int) bool { return s.start[i] > addr }) - 1
	if i < 0 {
		return none
	}
	return s.id[i]
}

// size estimates the memory that the tree takes.
func (t *unitTree) size() int {
	if t == nil {
		return 0
	}
	return 128 + nodeBytes*len(t.nodes) + 12*cap(t.segs.start)
}
