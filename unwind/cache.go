package unwind

import (
	"errors"
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

// knownCode is what is known of the code of a process, by address, as the methods of one order see it.
type knownCode struct {
	proc  *process
	order []How
	cache cache
	gen   uint64 // of the space, as of what cache holds
	// Entries of addresses outside code, which the cache does not keep.
	nowhere, innermost entry
	unread             bool // a table could not be read of the address under way: no method guesses in its place

	window window
}

// refresh drops what has gone stale.
func (c *knownCode) refresh() {
	if g := c.proc.space.Generation(); g != c.gen || c.cache.count > maxEntries {
		c.cache.clear()
		c.gen = g
	}
}

// lookup returns the entry of a frame's PC, made now if there was none. That of
// an address outside code is valid only until the next lookup.
func (c *knownCode) lookup(pc uint64, isReturn bool) *entry {
	var kind flags
	if isReturn {
		pc--
		kind = isCaller
	}
	if e := c.cache.find(pc, kind); e != nil {
		return e
	}
	return c.fill(pc, kind)
}

// fill makes the entry of an address. Other addresses than those of code are
// not kept: the space has to be asked again, since code may have been mapped
// there meanwhile.
func (c *knownCode) fill(pc uint64, kind flags) *entry {
	exact := pc
	if kind == isCaller {
		exact++
	}
	e := entry{pc: pc, flags: kind, to: nobody}
	// A call may be the last instruction of a mapping, a trampoline the first.
	if !c.proc.space.Executable(pc) && !c.proc.space.Executable(exact) {
		if kind == isCaller {
			c.nowhere = e
			return &c.nowhere
		}
		if c.proc.conv.entry != nil && c.allows(FramePointer, BackChain) {
			// A call through a bad pointer: nothing was executed there, so
			// everything is as at a function's entry.
			e.row, e.how = c.proc.conv.entry, FramePointer
		}
		c.innermost = e
		return &c.innermost
	}
	e.flags |= isCode
	c.window.read(c.proc.space, exact)
	if c.proc.conv.signal != nil {
		e.row = c.proc.conv.signal(&c.window, kind == 0)
	}
	if e.row != nil {
		e.how = Signal
		e.flags |= isTrampoline
		return c.cache.insert(e)
	}
	if kind == 0 && c.proc.conv.lost != nil && c.proc.conv.lost(&c.window) {
		return c.cache.insert(e)
	}
	if kind == isCaller && c.proc.conv.afterCall != nil && c.proc.conv.afterCall(&c.window) {
		e.flags |= afterCall
	}
	if c.proc.own.runtime != nil && c.proc.own.runtime.Owns(pc) {
		e.flags |= isOwned
		return c.cache.insert(e)
	}
	if e.row, e.how = c.firstRow(pc, kind == 0); e.row == nil && c.unread {
		return &entry{pc: pc, flags: e.flags, to: nobody} // kept by nobody
	}
	if e.row != nil {
		e.row = c.cache.share(e.row)
		var ok bool
		if e.plain, ok = compile(c.proc.arch, e.row); ok {
			e.flags |= isPlain
			e.num = c.cache.number(e.row)
		}
	}
	if e.how == FramePointer && c.proc.generated(pc) {
		e.flags &^= isPlain // it is looked whether the frame pointer is a caller's
	}
	if kind == 0 && e.how == FramePointer && c.proc.conv.jumps != nil {
		if _, ok := c.proc.conv.jumps(&c.window); ok {
			e.flags = e.flags&^isPlain | isJump
		}
	}
	return c.cache.insert(e)
}

// rowOf is e with the row that other methods have for code of the runtime.
func (c *knownCode) rowOf(e *entry) *entry {
	if e.flags&(isOwned|rowKnown) == isOwned {
		caller := e.flags&isCaller != 0
		exact := e.pc
		if caller {
			exact++
		}
		c.window.read(c.proc.space, exact)
		if e.row, e.how = c.firstRow(e.pc, !caller); e.row != nil {
			e.row = c.cache.share(e.row)
		} else if c.unread {
			return e
		}
		e.flags |= rowKnown
	}
	return e
}

// firstRow returns the row of the first method that has one for the lookup
// address pc. c.window holds the code around it.
func (c *knownCode) firstRow(pc uint64, top bool) (*sframe.Row, How) {
	c.unread = false
	for _, h := range c.order {
		row, ok := c.methodRow(h, pc, top)
		if ok {
			return row, h
		}
	}
	return nil, Regs
}

// methodRow returns the row that method h has for the lookup address pc.
// c.window holds the code around it. A row of nil that is ok is chosen by the
// stack, at each step anew.
func (c *knownCode) methodRow(h How, pc uint64, top bool) (row *sframe.Row, ok bool) {
	if c.unread && h != SFrame && h != EHFrame {
		return nil, false
	}
	switch h {
	case SFrame, EHFrame:
		row, err := c.proc.space.Row(pc, h)
		c.unread = c.unread || errors.Is(err, ErrUnread)
		if err != nil || row == nil || row.Signal && row.CFA.Base == sframe.Undefined {
			// The last is a signal frame that SFrame has no rules for. Its
			// bytes were looked at before any table.
			return nil, false
		}
		return row, true
	case Code:
		if c.proc.follower == nil {
			return nil, false
		}
		if !top {
			pc++ // where it goes on
		}
		row, err := c.proc.follower.Follow(pc, !top)
		c.unread = c.unread || errors.Is(err, ErrUnread)
		return row, err == nil
	case FramePointer:
		if c.proc.conv.frame == nil {
			return nil, false
		}
		if top {
			if row = c.proc.conv.innermost(&c.window); row != nil {
				return row, true
			}
		} else if c.proc.conv.returned != nil {
			if row = c.proc.conv.returned(&c.window); row != nil {
				return row, true
			}
		}
		return c.proc.conv.frame, true
	case BackChain:
		if c.proc.arch.Name == regs.S390X.Name {
			if top {
				row = c.proc.conv.innermost(&c.window)
			}
			return row, true
		}
	}
	return nil, false
}

// isEntry asks once for each address whether it lies in a function that starts
// stacks.
func (c *knownCode) isEntry(e *entry) bool {
	if e.flags&entryKnown == 0 {
		e.flags |= entryKnown
		if c.proc.space.Entry(e.pc) {
			e.flags |= isEntry
		}
	}
	return e.flags&isEntry != 0
}

// allows: the order has one of the methods.
func (c *knownCode) allows(methods ...How) bool {
	for _, h := range methods {
		if slices.Contains(c.order, h) {
			return true
		}
	}
	return false
}
