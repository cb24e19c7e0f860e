package sframe

import (
	"errors"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Row returns the row for the address pc, with errors as for [Section.Find].
// The answer for an address is kept, errors of the reader excepted; asking again
// allocates nothing. At most 32,768 addresses and 4,096 different answers are
// kept, see [Section.CacheBytes]; a row that was handed out stays valid and
// unchanged for ever.
func (s *Section) Row(pc uint64) (*Row, error) {
	t := s.cache.table.Load()
	if a := t.find(pc); a != nil {
		return a.row, a.err
	}
	return s.coldRow(t, pc)
}

// coldRow answers an address that t does not have.
func (s *Section) coldRow(t *table, pc uint64) (*Row, error) {
	e, err := s.Find(pc)
	if err != nil && err != ErrNoRow && !isFormat(err) {
		return nil, err
	}
	return s.cache.store(t.epoch, pc, &e.Row, err)
}

// CacheBytes estimates the memory that the section holds for what [Section.Row]
// was asked, at most 1.1 MB.
func (s *Section) CacheBytes() int { return int(s.cache.bytes.Load()) }

// answer is what is known of an address: a row, or an error.
type answer struct {
	row *Row
	err error
}

// Sizes of the cache.
const (
	minSlots = 64
	maxSlots = 32768
	// probes is the number of slots in which an address may stand: two cache
	// lines. A table that is half full, more than which only the largest is,
	// practically never fills as many in a row.
	probes     = 16
	minAnswers = 32
	maxAnswers = 4096

	slotBytes   = 8
	answerBytes = 24
	keptBytes   = 176 // of a row or error, and as a key in a map; an estimate
)

// cache maps addresses to answers. Reading it takes no lock, and touches one
// line of slots and one of answers: sections repeat a few hundred rows over and
// over.
type cache struct {
	table atomic.Pointer[table]
	bytes atomic.Int64

	mu      sync.Mutex // held by writers
	used    int        // slots of the present table
	victim  uint64     // counts addresses that lost their slot to another
	answers int        // of the present table, the unused one included
	rows    map[rules]int
	faults  map[FormatError]int
	noRow   int // number of the answer ErrNoRow, 0 if there is none
}

// table is a hash table with linear probing. It is replaced as a whole when its
// slots or its answers have to grow; beyond that a slot changes by one store.
type table struct {
	base  uint64 // what the slots' addresses are relative to
	epoch int    // counts how often the cache was emptied
	shift uint8  // 64 - log2(len(slots))
	// A slot has the distance of its address from base in the upper 48 bits
	// and the number of its answer in the lower 16, 0 if it is empty. An
	// address farther away is not kept; no file has one.
	slots []atomic.Uint64
	// answers begins with an unused one. An answer is written before the first
	// slot that names it, and not after. Slots are shared with the table that
	// has more answers, so they may name such as are not in here.
	answers []answer
}

// rules is a row in a comparable form: rows of SFrame have no slices.
type rules struct {
	cfa, ra, fp               Rule
	outermost, signal, signed bool
}

// begin makes the table for a section at addr, which lies in the middle of the
// addresses that it can hold.
func (c *cache) begin(addr uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.empty(addr-1<<47, 0)
}

// reset forgets all answers.
func (c *cache) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.table.Load()
	c.empty(t.base, t.epoch+1)
}

// empty begins a new table. mu is held.
func (c *cache) empty(base uint64, epoch int) {
	c.used, c.answers, c.noRow = 0, 1, 0
	c.rows, c.faults = map[rules]int{}, map[FormatError]int{}
	c.publish(&table{base, epoch, shift(minSlots), make([]atomic.Uint64, minSlots), make([]answer, minAnswers)})
}

func (c *cache) publish(t *table) {
	c.bytes.Store(int64(len(t.slots)*slotBytes + len(t.answers)*answerBytes + c.answers*keptBytes))
	c.table.Store(t)
}

func shift(slots int) uint8 { return uint8(64 - bits.TrailingZeros(uint(slots))) }

// slot is where the search for a distance begins. The factor is 2^64 divided by
// the golden ratio (Knuth, The Art of Computer Programming 3, section 6.4).
func (t *table) slot(off uint64) uint64 { return off * 0x9e3779b97f4a7c15 >> (t.shift & 63) }

// find returns the answer for pc, nil if there is none.
func (t *table) find(pc uint64) *answer {
	off, slots := pc-t.base, t.slots
	at := t.slot(off)
	for range probes {
		s := slots[at&uint64(len(slots)-1)].Load()
		if s>>16 == off || s == 0 {
			if n := int(s & 0xffff); n != 0 && n < len(t.answers) {
				return &t.answers[n]
			}
			return nil
		}
		at++
	}
	return nil
}

// store keeps the answer for pc, which was found out while the cache was in
// that epoch, and returns it.
func (c *cache) store(epoch int, pc uint64, row *Row, err error) (*Row, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, a := c.intern(row, err)
	t := c.table.Load()
	if off := pc - t.base; off>>48 == 0 && t.epoch == epoch {
		if c.used >= len(t.slots)/2 && len(t.slots) < maxSlots {
			t = c.grow(t)
		}
		c.put(t, off<<16|uint64(n))
	}
	return a.row, a.err
}

// put fills a slot, another's if there is no empty one.
func (c *cache) put(t *table, s uint64) {
	at, mask := t.slot(s>>16), uint64(len(t.slots)-1)
	for i := range uint64(probes) {
		switch old := t.slots[(at+i)&mask].Load(); {
		case old == 0:
			c.used++
		case old>>16 != s>>16: // else another goroutine was faster
			continue
		}
		t.slots[(at+i)&mask].Store(s)
		return
	}
	c.victim++
	t.slots[(at+c.victim%probes)&mask].Store(s)
}

// grow doubles the number of slots.
func (c *cache) grow(t *table) *table {
	slots := 2 * len(t.slots)
	bigger := &table{t.base, t.epoch, shift(slots), make([]atomic.Uint64, slots), t.answers}
	c.used = 0
	for i := range t.slots {
		if s := t.slots[i].Load(); s != 0 {
			c.put(bigger, s)
		}
	}
	c.publish(bigger)
	return bigger
}

// intern returns the one copy of an answer and its number.
func (c *cache) intern(row *Row, err error) (int, answer) {
	var key rules
	var fault *FormatError
	var n int
	switch {
	case err == nil:
		key = rules{row.CFA, row.RA, row.FP, row.Outermost, row.Signal, row.Signed}
		n = c.rows[key]
	case errors.As(err, &fault):
		n = c.faults[*fault]
	default:
		n = c.noRow
	}
	t := c.table.Load()
	if n != 0 {
		return n, t.answers[n]
	}
	a := answer{err: err}
	if err == nil {
		a.row = new(Row)
		*a.row = *row
	}
	if c.answers == len(t.answers) {
		t = c.moreAnswers(t)
	}
	n = c.answers
	c.answers++
	c.bytes.Add(keptBytes)
	t.answers[n] = a
	switch {
	case err == nil:
		c.rows[key] = n
	case fault != nil:
		c.faults[*fault] = n
	default:
		c.noRow = n
	}
	return n, a
}

// moreAnswers returns a table with room for another answer, an empty one when
// there are as many as may be.
func (c *cache) moreAnswers(t *table) *table {
	if len(t.answers) >= maxAnswers {
		c.empty(t.base, t.epoch+1)
		return c.table.Load()
	}
	more := *t
	more.answers = make([]answer, 2*len(t.answers))
	copy(more.answers, t.answers)
	c.publish(&more)
	return &more
}
