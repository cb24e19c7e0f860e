package ehframe

import (
	"slices"

	"sfsample/sframe"
)

// maxCacheBytes bounds what one table keeps of functions, rows and addresses.
// When it is reached everything is dropped at once: that is simple, and a
// working set of this size (about 20,000 functions) of one image was not seen.
const maxCacheBytes = 4 << 20

// Sizes of the address cache: it starts small, because most tables are asked for
// few addresses, and doubles as it fills.
const (
	minSlots = 64
	maxSlots = 1 << 14
)

// noRow stands in the address cache for "no function covers it".
var noRow sframe.Row

// slot is one address of the address cache; row is nil in a free one.
type slot struct {
	pc  uint64
	row *sframe.Row
}

// cache keeps what was compiled: rows by address, functions by the address of
// their entry, and each distinct row once (functions have far fewer distinct
// rows than rows).
type cache struct {
	slots []slot // open addressing, a power of two
	shift uint8  // 64 - log2(len(slots))
	used  int
	funcs map[uint64]*function
	rows  map[uint64]*sframe.Row // by hash of the content
	bytes int                    // estimate of everything

	saved []sframe.SavedRule // scratch
	exprs [][]byte
}

// hashPC is Fibonacci hashing: neighbouring addresses spread over the table.
func (c *cache) hashPC(pc uint64) uint64 { return pc * 0x9e3779b97f4a7c15 >> c.shift }

// row returns the row cached for pc, nil if there is none.
func (c *cache) row(pc uint64) *sframe.Row {
	if len(c.slots) == 0 {
		return nil
	}
	for i := c.hashPC(pc); ; i++ {
		s := &c.slots[i&uint64(len(c.slots)-1)]
		if s.pc == pc || s.row == nil {
			return s.row
		}
	}
}

// put remembers the row of pc.
func (c *cache) put(pc uint64, r *sframe.Row) {
	if c.used >= len(c.slots)/4*3 {
		c.grow()
	}
	c.insert(pc, r)
}

func (c *cache) insert(pc uint64, r *sframe.Row) {
	i := c.hashPC(pc)
	for c.slots[i&uint64(len(c.slots)-1)].row != nil {
		i++
	}
	c.slots[i&uint64(len(c.slots)-1)] = slot{pc, r}
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
	c.slots = make([]slot, max(minSlots, 2*len(old)))
	c.shift = 64
	for n := len(c.slots); n > 1; n /= 2 {
		c.shift--
	}
	c.used = 0
	c.bytes += slotBytes * (len(c.slots) - len(old))
	for _, s := range old {
		if s.row != nil {
			c.insert(s.pc, s.row)
		}
	}
}

func (c *cache) function(addr uint64) *function { return c.funcs[addr] }

// Estimates of what a cached thing costs, maps and allocation classes included.
const (
	slotBytes   = 16
	funcBytes   = 96 + 40
	rowRefBytes = 4 + 8
	rowBytes    = 96 + 40
	savedBytes  = 12
	exprBytes   = 24
)

// putFunction remembers the function whose entry is at addr.
func (c *cache) putFunction(addr uint64, f *function) {
	f.offs, f.rows = slices.Clip(f.offs), slices.Clip(f.rows)
	if c.bytes >= maxCacheBytes {
		*c = cache{}
	}
	if c.funcs == nil {
		c.funcs = make(map[uint64]*function)
	}
	c.funcs[addr] = f
	c.bytes += funcBytes + rowRefBytes*len(f.rows)
}

// intern returns the row of m's state: one that is equal, or a new one.
func (c *cache) intern(m *machine) *sframe.Row {
	r := m.row(c.saved[:0], c.exprs[:0])
	c.saved, c.exprs = r.Saved, r.Exprs
	h := hashRow(&r)
	if have := c.rows[h]; have != nil && equalRows(have, &r) {
		return have
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
	if c.rows == nil {
		c.rows = make(map[uint64]*sframe.Row)
	}
	c.rows[h] = keep
	c.bytes += rowBytes + savedBytes*len(r.Saved) + exprBytes*len(r.Exprs) + n
	return keep
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
