package unwind

import (
	"slices"

	"sfsample/regs"
	"sfsample/sframe"
)

// entry is what is known of one code address.
type entry struct {
	pc    uint64      // the address looked up: of a caller, its PC-1
	row   *sframe.Row // of method how; nil with how BackChain: chosen by the stack
	how   How         // first method that has something, Regs: none
	flags flags
}

type flags uint8

const (
	used         flags = 1 << iota // the slot holds an entry
	isCaller                       // of an address behind a call
	isCode                         // in an executable mapping
	afterCall                      // a call may end right before it
	isTrampoline                   // row is a signal trampoline's, by its bytes
	entryKnown                     // isEntry was asked for
	isEntry                        // in a function that starts stacks
)

// cache maps addresses to entries: a hash table with linear probing, never
// more than half full, emptied when it would outgrow maxEntries.
type cache struct {
	slots []entry
	shift uint8 // 64 - log2(len(slots))
	count int
}

const (
	minEntries = 1 << 10
	maxEntries = 1 << 16 // slots, of 24 bytes
)

func (c *cache) grow(size int) {
	old := c.slots
	c.slots = make([]entry, size)
	c.shift = 64
	for n := size; n > 1; n >>= 1 {
		c.shift--
	}
	for i := range old {
		if old[i].flags&used != 0 {
			*c.slot(old[i].pc, old[i].flags&isCaller) = old[i]
		}
	}
}

func (c *cache) clear() {
	clear(c.slots)
	c.count = 0
}

// reserve makes room for n more entries, so that pointers to entries stay valid
// until they are all made.
func (c *cache) reserve(n int) {
	size := len(c.slots)
	for size < 2*(c.count+n) {
		size *= 2
	}
	switch {
	case size == len(c.slots):
	case size > maxEntries && len(c.slots) >= maxEntries && len(c.slots) >= 2*n:
		c.clear()
	default:
		c.grow(size)
	}
}

// slot returns the slot of an address: the one that holds it, or the free one
// where it belongs. There is always a free one.
func (c *cache) slot(pc uint64, caller flags) *entry {
	// Multiplication by 2^64 over the golden ratio spreads neighbours (Knuth,
	// The Art of Computer Programming, section 6.4).
	i := int(pc * 0x9e3779b97f4a7c15 >> c.shift)
	for {
		e := &c.slots[i]
		if e.flags&used == 0 || e.pc == pc && e.flags&isCaller == caller {
			return e
		}
		if i++; i == len(c.slots) {
			i = 0
		}
	}
}

// lookup returns the entry of a frame's PC, made now if there was none. The
// pointer is valid until the next walk; that of an address outside code only
// until the next lookup.
func (w *Walker) lookup(pc uint64, isReturn bool) *entry {
	var kind flags
	if isReturn {
		pc--
		kind = isCaller
	}
	e := w.cache.slot(pc, kind)
	if e.flags&used == 0 {
		return w.fill(e, pc, kind)
	}
	return e
}

// fill makes the entry of an address. Slot e takes it if it is code. Other
// addresses are not kept: the space has to be asked again, since code may have
// been mapped there meanwhile.
func (w *Walker) fill(e *entry, pc uint64, kind flags) *entry {
	exact := pc
	if kind == isCaller {
		exact++
	}
	// A call may be the last instruction of a mapping, a trampoline the first.
	if !w.space.Executable(pc) && (kind == 0 || !w.space.Executable(exact)) {
		w.nowhere = entry{pc: pc, flags: kind}
		if kind == 0 {
			w.innermost = w.nowhere
			if w.conv.entry != nil && w.allows(FramePointer, BackChain) {
				// A call through a bad pointer: nothing was executed there, so
				// everything is as at a function's entry.
				w.innermost.row, w.innermost.how = w.conv.entry, FramePointer
			}
			return &w.innermost
		}
		return &w.nowhere
	}
	w.cache.count++
	*e = entry{pc: pc, flags: used | kind | isCode}
	w.window.read(w.space, exact)
	if w.conv.signal != nil {
		if row := w.conv.signal(&w.window, kind == 0); row != nil {
			e.row, e.how = row, Signal
			e.flags |= isTrampoline
			return e
		}
	}
	if kind == isCaller && w.conv.afterCall != nil && w.conv.afterCall(&w.window) {
		e.flags |= afterCall
	}
	e.row, e.how = w.firstRow(pc, kind == 0)
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
	case FramePointer:
		if w.conv.frame == nil {
			return nil, false
		}
		if top {
			if row = w.conv.innermost(&w.window); row != nil {
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
