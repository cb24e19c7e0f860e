package symbol

// entries reads the entries of a unit in order. It holds one piece of
// .debug_info at a time: a unit can have 100 MB.
type entries struct {
	u  *unit
	ab *abbrevs
	c  cursor
	at uint64 // offset in .debug_info of the piece
	// all: attributes are read of entries of all kinds, see step.
	all bool
}

// maxEntry bounds one entry, in bytes. The longest ones have a string or the
// constant value of an array in place.
const maxEntry = 1 << 20

func (u *unit) entries(off uint64) *entries {
	e := &entries{u: u, ab: u.d.abbrevsOf(u)}
	e.read(off, u.d.piece)
	return e
}

// read makes the n bytes at off the piece, fewer at the unit's end.
func (e *entries) read(off uint64, n int) {
	e.c = e.u.d.sections.info.cursor(off, int(min(e.u.end-off, uint64(n))), e.u.d.im.order)
	e.at = off
}

// here is the offset of the next entry.
func (e *entries) here() uint64 { return e.at + uint64(e.c.pos) }

// more reports whether there is a next entry.
func (e *entries) more() bool { return !e.c.bad && e.here() < e.u.end }

// seek goes to the entry at off.
func (e *entries) seek(off uint64) {
	if in := off - e.at; off >= e.at && in <= uint64(len(e.c.b)) {
		e.c.pos = int(in)
		return
	}
	e.read(off, e.u.d.piece)
}

// next reads an entry: see step. One that the piece ends in is read again, with
// more behind it.
func (e *entries) next(d *die) bool {
	for n := e.u.d.piece; ; n *= 4 {
		start := e.here()
		ok := e.u.step(&e.c, e.ab, d, e.all)
		if !e.c.bad || e.at+uint64(len(e.c.b)) >= e.u.end || n > maxEntry {
			return ok
		}
		if e.u.d.stopped() {
			return false
		}
		e.read(start, n)
	}
}
