package ehframe

import (
	"math/bits"
	"slices"

	"sfsample/sframe"
)

// maxCacheBytes bounds what one table keeps of functions, rows and addresses.
// When it is reached everything is dropped at once: that is simple, and a
// working set of this size (about 15,000 functions) of one image was not seen.
const maxCacheBytes = 4 << 20

// maxList bounds the distinct rows, so that with those that one lookup can add,
// which compiles up to maxOverlap functions, their number fits a rowID.
const maxList = 1<<16 - 1 - maxOverlap*(maxRows+1)

// Sizes of the address cache: it starts small, because most tables are asked for
// few addresses, and doubles as it fills.
const (
	minSlots = 64
	maxSlots = 1 << 14
)

// rowID is the place of a row in cache.list.
type rowID uint16

// The first two places of the list: an empty slot, and the mark for "no function
// covers it".
const (
	idNone rowID = iota
	idNoRow
	idFirst
)

// cache keeps what was compiled: rows by address, functions by the address of
// their entry, and each distinct row once (functions have far fewer distinct
// rows than rows).
type cache struct {
	// slots is the address cache, with open addressing in a power of two: an
	// address in the upper 48 bits, a rowID in the lower 16. Half the size of
	// address and pointer, which counts when 10,000 addresses are in use.
	slots []uint64
	shift uint8 // 64 - log2(len(slots))
	used  int
	list  []*sframe.Row
	ids   map[uint64]rowID // of list, by hash of the content
	funcs map[uint64]*function
	bytes int // estimate of everything

	saved []sframe.SavedRule // scratch
	exprs [][]byte
}

// hashPC is Fibonacci hashing: neighbouring addresses spread over the table.
func (c *cache) hashPC(pc uint64) uint64 { return pc * 0x9e3779b97f4a7c15 >> c.shift }

// row returns the place of the row cached for pc, idNone if there is none.
func (c *cache) row(pc uint64) rowID {
	if len(c.slots) == 0 {
		return idNone
	}
	for i := c.hashPC(pc); ; i++ {
		s := c.slots[i&uint64(len(c.slots)-1)]
		if s>>16 == pc || s == 0 {
			return rowID(s)
		}
	}
}

// put remembers the row of pc. An address of more than 48 bits is not worth it:
// no file has one.
func (c *cache) put(pc uint64, id rowID) {
	if pc>>48 != 0 {
		return
	}
	if c.used >= len(c.slots)/4*3 {
		c.grow()
	}
	c.insert(pc<<16 | uint64(id))
}

func (c *cache) insert(s uint64) {
	i := c.hashPC(s >> 16)
	for c.slots[i&uint64(len(c.slots)-1)] != 0 {
		i++
	}
	c.slots[i&uint64(len(c.slots)-1)] = s
	c.used++
}

// grow doubles the address cache, or empties it when it has its full size.
func (c *cache) grow() {
	if len(c.slots) == maxSlots {
		clear(c.slots)
		c.used = 0
		return
	}
	old := c.slots
	c.slots = make([]uint64, max(minSlots, 2*len(old)))
	c.shift = uint8(64 - bits.TrailingZeros(uint(len(c.slots))))
	c.used = 0
	c.bytes += 8 * (len(c.slots) - len(old))
	for _, s := range old {
		if s != 0 {
			c.insert(s)
		}
	}
}

// trim drops everything when the cache has reached its bound. It is called before
// a lookup, never during one: functions refer to the list.
func (c *cache) trim() {
	if c.bytes >= maxCacheBytes || len(c.list) > maxList {
		*c = cache{}
	}
}

func (c *cache) function(addr uint64) *function { return c.funcs[addr] }

// Estimates of what a cached thing costs, maps and allocation classes included.
const (
	funcBytes   = 96 + 40
	rowRefBytes = 4 + 2
	rowBytes    = 96 + 40
	savedBytes  = 12
	exprBytes   = 24
)

// putFunction remembers the function whose entry is at addr.
func (c *cache) putFunction(addr uint64, f *function) {
	f.offs, f.rows = slices.Clip(f.offs), slices.Clip(f.rows)
	if c.funcs == nil {
		c.funcs = make(map[uint64]*function)
	}
	c.funcs[addr] = f
	c.bytes += funcBytes + rowRefBytes*len(f.rows)
}

// intern returns the place of the row of m's state: of one that is equal, or of a
// new one.
func (c *cache) intern(m *machine) rowID {
	r := m.row(c.saved[:0], c.exprs[:0])
	c.saved, c.exprs = r.Saved, r.Exprs
	h := hashRow(&r)
	if id, ok := c.ids[h]; ok && equalRows(c.list[id], &r) {
		return id
	}
	if c.ids == nil {
		c.ids = make(map[uint64]rowID)
		c.list = make([]*sframe.Row, idFirst)
	}
	keep := new(sframe.Row)
	*keep = r
	keep.Saved = append([]sframe.SavedRule(nil), r.Saved...) // nil if empty
	keep.Exprs = nil
	n := 0
	for _, e := range r.Exprs {
		keep.Exprs = append(keep.Exprs, slices.Clone(e))
		n += len(e)
	}
	id := rowID(len(c.list))
	c.list = append(c.list, keep)
	c.ids[h] = id
	c.bytes += rowBytes + savedBytes*len(r.Saved) + exprBytes*len(r.Exprs) + n
	return id
}

// hashRow mixes what rows commonly differ in. Rows of equal hash that differ are
// not an error, they only cost a copy each.
func hashRow(r *sframe.Row) uint64 {
	h := hashRule(uint64(r.Keep), r.CFA)
	h = hashRule(h, r.RA)
	h = hashRule(h, r.FP)
	for _, s := range r.Saved {
		h = hashRule(h+uint64(s.Reg), s.Rule)
	}
	for _, e := range r.Exprs {
		for _, b := range e {
			h = (h ^ uint64(b)) * 0x100000001b3 // FNV-1a's prime
		}
	}
	for _, flag := range [...]bool{r.Outermost, r.Signal, r.Signed} {
		h *= 3
		if flag {
			h++
		}
	}
	return h
}

func hashRule(h uint64, r sframe.Rule) uint64 {
	v := uint64(r.Base)<<40 | uint64(r.Reg)<<32 | uint64(uint32(r.Offset))
	if r.Deref {
		v |= 1 << 48
	}
	h = (h ^ v) * 0x9e3779b97f4a7c15
	return h ^ h>>29
}

func equalRows(a, b *sframe.Row) bool {
	return a.CFA == b.CFA && a.RA == b.RA && a.FP == b.FP && a.Keep == b.Keep &&
		a.Outermost == b.Outermost && a.Signal == b.Signal && a.Signed == b.Signed &&
		slices.Equal(a.Saved, b.Saved) &&
		slices.EqualFunc(a.Exprs, b.Exprs, func(x, y []byte) bool { return string(x) == string(y) })
}
