package unwind

import (
	"math/bits"
	"slices"

	"sfsample/regs"
	"sfsample/sframe"
)

// entry is what is known of one code address.
type entry struct {
	pc    uint64      // the address looked up: of a caller, its PC-1
	row   *sframe.Row // of method how; nil with how BackChain: chosen by the stack
	to    *entry      // the caller that was met last from here; never nil
	plain plain       // of row, if the flag says so
	num   uint32      // of row in cache.plain, if it has a short form
	how   How         // first method that has something, Regs: none
	flags flags
}

type flags uint16

const (
	isCaller     flags = 1 << iota // of an address behind a call
	isCode                         // in an executable mapping
	afterCall                      // a call may end right before it
	isTrampoline                   // row is a signal trampoline's, by its bytes
	entryKnown                     // isEntry was asked for
	isEntry                        // in a function that starts stacks
	isPlain                        // row has a short form
	isJump                         // an innermost frame that is to jump to where a register says, of which no table tells, nor code
	isOwned                        // of the runtime's code: row is looked for only where the runtime does not know the caller
	rowKnown                       // that was done
)

// cache maps addresses to entries: a hash table of pointers with linear
// probing, never more than half full. The entries lie in the order in which
// walks first met them, and each points at the caller that followed: a stack
// like an earlier one is walked along memory that the processor fetches ahead,
// past the table.
type cache struct {
	table []*entry
	shift uint8 // 64 - log2(len(table))
	count int
	chunk []entry // room for the next entries
	rows  map[rowKey]*sframe.Row
	plain []*sframe.Row // those that have a short form, most of them once
	nums  map[*sframe.Row]uint32
}

const (
	minSlots   = 1 << 10
	maxEntries = 1 << 16 // of 48 bytes
	chunkSize  = 256
)

// nobody is an entry that no lookup finds.
var nobody = new(entry)

// insert adds an entry that is not there yet. The pointer stays valid.
func (c *cache) insert(e entry) *entry {
	if len(c.table) < 2*(c.count+1) {
		c.grow()
	}
	if len(c.chunk) == 0 {
		c.chunk = make([]entry, chunkSize)
	}
	p := &c.chunk[0]
	c.chunk = c.chunk[1:]
	*p = e
	c.put(p)
	c.count++
	return p
}

func (c *cache) grow() {
	old := c.table
	c.table = make([]*entry, max(minSlots, 2*len(old)))
	c.shift = uint8(64 - bits.TrailingZeros(uint(len(c.table))))
	for _, e := range old {
		if e != nil {
			c.put(e)
		}
	}
}

func (c *cache) put(e *entry) {
	i := c.slot(e.pc)
	for c.table[i] != nil {
		i = (i + 1) & (len(c.table) - 1)
	}
	c.table[i] = e
}

// clear forgets everything.
func (c *cache) clear() { *c = cache{} }

// slot is where the search for an address begins. Multiplication by 2^64 over
// the golden ratio spreads neighbours (Knuth, The Art of Computer Programming,
// section 6.4).
func (c *cache) slot(pc uint64) int {
	return int(pc * 0x9e3779b97f4a7c15 >> c.shift)
}

// find returns the entry of an address, nil if there is none.
func (c *cache) find(pc uint64, kind flags) *entry {
	if c.count == 0 {
		return nil
	}
	for i := c.slot(pc); ; i = (i + 1) & (len(c.table) - 1) {
		e := c.table[i]
		if e == nil || e.pc == pc && e.flags&isCaller == kind {
			return e
		}
	}
}

// caller returns the entry of the return address ra, for a walk that comes
// from entry e; nil if there is none.
func (c *cache) caller(e *entry, ra uint64) *entry {
	if e.to.pc == ra-1 && e.to.flags&isCaller != 0 {
		return e.to
	}
	return c.callerFrom(e, ra)
}

func (c *cache) callerFrom(e *entry, ra uint64) *entry {
	to := c.find(ra-1, isCaller)
	if to != nil {
		e.to = to
	}
	return to
}

// rowKey is the content of a row that has few saved registers and no
// expressions.
type rowKey struct {
	cfa, ra, fp sframe.Rule
	keep        uint32
	n           int
	saved       [maxSharedSaved]sframe.SavedRule
}

const maxSharedSaved = 8

// share returns the row that stands for all rows with the content of row: a
// program has far fewer than addresses, and a walk that meets the same few
// finds them in the processor's nearest cache.
func (c *cache) share(row *sframe.Row) *sframe.Row {
	if row.Outermost || row.Signal || row.Switch || len(row.Exprs) > 0 || len(row.Saved) > maxSharedSaved {
		return row
	}
	k := rowKey{cfa: row.CFA, ra: row.RA, fp: row.FP, keep: row.Keep, n: len(row.Saved)}
	copy(k.saved[:], row.Saved)
	if shared := c.rows[k]; shared != nil {
		return shared
	}
	if c.rows == nil {
		c.rows = make(map[rowKey]*sframe.Row)
	}
	c.rows[k] = row
	return row
}

// number returns the place of row in c.plain.
func (c *cache) number(row *sframe.Row) uint32 {
	n, ok := c.nums[row]
	if !ok {
		if c.nums == nil {
			c.nums = make(map[*sframe.Row]uint32)
		}
		n = uint32(len(c.plain))
		c.nums[row] = n
		c.plain = append(c.plain, row)
	}
	return n
}

// lookup returns the entry of a frame's PC, made now if there was none. That of
// an address outside code is valid only until the next lookup.
func (w *Walker) lookup(pc uint64, isReturn bool) *entry {
	var kind flags
	if isReturn {
		pc--
		kind = isCaller
	}
	if e := w.cache.find(pc, kind); e != nil {
		return e
	}
	return w.fill(pc, kind)
}

// fill makes the entry of an address. Other addresses than those of code are
// not kept: the space has to be asked again, since code may have been mapped
// there meanwhile.
func (w *Walker) fill(pc uint64, kind flags) *entry {
	exact := pc
	if kind == isCaller {
		exact++
	}
	e := entry{pc: pc, flags: kind, to: nobody}
	// A call may be the last instruction of a mapping, a trampoline the first.
	if !w.space.Executable(pc) && !w.space.Executable(exact) {
		if kind == isCaller {
			w.nowhere = e
			return &w.nowhere
		}
		if w.conv.entry != nil && w.allows(FramePointer, BackChain) {
			// A call through a bad pointer: nothing was executed there, so
			// everything is as at a function's entry.
			e.row, e.how = w.conv.entry, FramePointer
		}
		w.innermost = e
		return &w.innermost
	}
	e.flags |= isCode
	w.window.read(w.space, exact)
	if w.conv.signal != nil {
		e.row = w.conv.signal(&w.window, kind == 0)
	}
	if e.row != nil {
		e.how = Signal
		e.flags |= isTrampoline
		return w.cache.insert(e)
	}
	if kind == 0 && w.conv.lost != nil && w.conv.lost(&w.window) {
		return w.cache.insert(e)
	}
	if kind == isCaller && w.conv.afterCall != nil && w.conv.afterCall(&w.window) {
		e.flags |= afterCall
	}
	if w.own.runtime != nil && w.own.runtime.Owns(pc) {
		e.flags |= isOwned
		return w.cache.insert(e)
	}
	if e.row, e.how = w.firstRow(pc, kind == 0); e.row != nil {
		e.row = w.cache.share(e.row)
		var ok bool
		if e.plain, ok = compile(w.arch, e.row); ok {
			e.flags |= isPlain
			e.num = w.cache.number(e.row)
		}
	}
	if e.how == FramePointer && w.generated(pc) {
		e.flags &^= isPlain // it is looked whether the frame pointer is a caller's
	}
	if kind == 0 && e.how == FramePointer && w.conv.jumps != nil {
		if _, ok := w.conv.jumps(&w.window); ok {
			e.flags = e.flags&^isPlain | isJump
		}
	}
	return w.cache.insert(e)
}

// rowOf is e with the row that other methods have for code of the runtime.
func rowOf(w *Walker, e *entry) *entry {
	if e.flags&(isOwned|rowKnown) == isOwned {
		caller := e.flags&isCaller != 0
		exact := e.pc
		if caller {
			exact++
		}
		w.window.read(w.space, exact)
		if e.row, e.how = w.firstRow(e.pc, !caller); e.row != nil {
			e.row = w.cache.share(e.row)
		}
		e.flags |= rowKnown
	}
	return e
}

// firstRow returns the row of the first method that has one for the lookup
// address pc. w.window holds the code around it.
func (w *Walker) firstRow(pc uint64, top bool) (*sframe.Row, How) {
	for _, h := range w.order {
		row, ok := w.methodRow(h, pc, top)
		if ok {
			return row, h
		}
	}
	return nil, Regs
}

// methodRow returns the row that method h has for the lookup address pc.
// w.window holds the code around it. A row of nil that is ok is chosen by the
// stack, at each step anew.
func (w *Walker) methodRow(h How, pc uint64, top bool) (row *sframe.Row, ok bool) {
	switch h {
	case SFrame, EHFrame:
		row, err := w.space.Row(pc, h)
		if err != nil || row == nil || row.Signal && row.CFA.Base == sframe.Undefined {
			// The last is a signal frame that SFrame has no rules for. Its
			// bytes were looked at before any table.
			return nil, false
		}
		return row, true
	case Code:
		if w.follower == nil {
			return nil, false
		}
		if !top {
			pc++ // where it goes on
		}
		row, err := w.follower.Follow(pc, !top)
		return row, err == nil
	case FramePointer:
		if w.conv.frame == nil {
			return nil, false
		}
		if top {
			if row = w.conv.innermost(&w.window); row != nil {
				return row, true
			}
		} else if w.conv.returned != nil {
			if row = w.conv.returned(&w.window); row != nil {
				return row, true
			}
		}
		return w.conv.frame, true
	case BackChain:
		if w.arch.Name != regs.S390X.Name {
			return nil, false
		}
		if top {
			row = w.conv.innermost(&w.window)
		}
		return row, true
	}
	return nil, false
}

// allows: the order has one of the methods.
func (w *Walker) allows(methods ...How) bool {
	for _, h := range methods {
		if slices.Contains(w.order, h) {
			return true
		}
	}
	return false
}
