package sframe

import (
	"sync"
	"sync/atomic"
)

// Row returns the row for the address pc, with errors as for [Section.Find].
// The answer for an address is kept, errors of the reader excepted; asking again
// allocates nothing. At most 32,768 answers and 4,096 different rows are kept,
// about 2 MB; a row that was handed out stays valid and unchanged for ever.
func (s *Section) Row(pc uint64) (*Row, error) {
	if a := s.cache.load(pc); a != nil {
		return a.row, a.err
	}
	e, err := s.Find(pc)
	if err != nil && err != ErrNoRow && !isFormat(err) {
		return nil, err
	}
	return s.cache.store(pc, &e.Row, err)
}

// answer is what is known about one address. It does not change.
type answer struct {
	pc  uint64
	row *Row
	err error
}

// Sizes of the cache, in answers.
const (
	ways     = 4 // places where the answer for an address may stand
	minSlots = 64
	maxSlots = 32768
	maxRules = 4096
)

// cache maps addresses to answers. Reading it takes no lock: a table is
// replaced as a whole when it grows, a slot by one store.
type cache struct {
	table atomic.Pointer[table]

	mu   sync.Mutex // held by writers
	used int        // stores into the present table
	rows map[rules]*Row
}

// table is sets of slots. A set is one cache line.
type table struct {
	shift uint // of the hash, to get the number of a set
	sets  []set
}

type set [ways]slot

// slot holds one answer. The address stands here a second time so that a look
// past the wrong answers touches none of them.
type slot struct {
	pc     atomic.Uint64
	answer atomic.Pointer[answer]
}

// rules is a row in a comparable form: rows of SFrame have no slices. Sections
// repeat a few hundred rows over and over.
type rules struct {
	cfa, ra, fp               Rule
	outermost, signal, signed bool
}

// reset forgets all answers.
func (c *cache) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.table.Store(newTable(minSlots))
	c.used = 0
}

func newTable(slots int) *table {
	t := &table{shift: 64, sets: make([]set, slots/ways)}
	for n := len(t.sets); n > 1; n /= 2 {
		t.shift--
	}
	return t
}

// set returns the slots that may hold pc. The factor is 2^64 divided by the
// golden ratio (Knuth, The Art of Computer Programming 3, section 6.4).
func (t *table) set(pc uint64) *set {
	return &t.sets[pc*0x9e3779b97f4a7c15>>t.shift]
}

func (c *cache) load(pc uint64) *answer {
	set := c.table.Load().set(pc)
	for i := range set {
		if set[i].pc.Load() != pc {
			continue
		}
		// The slot may have got another answer in between, or have none.
		if a := set[i].answer.Load(); a != nil && a.pc == pc {
			return a
		}
	}
	return nil
}

// store keeps the answer for pc and returns it.
func (c *cache) store(pc uint64, row *Row, err error) (*Row, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := &answer{pc: pc, err: err}
	if err == nil {
		a.row = c.intern(row)
	}
	t := c.table.Load()
	if c.used++; c.used > len(t.sets)*ways/2 && len(t.sets)*ways < maxSlots {
		t = grow(t)
		c.table.Store(t)
		c.used = 0
	}
	t.put(a)
	return a.row, a.err
}

// put stores a in its set, the most recent first; the oldest falls out.
func (t *table) put(a *answer) {
	set := t.set(a.pc)
	for i := len(set) - 1; i > 0; i-- {
		if b := set[i-1].answer.Load(); b != nil {
			set[i].put(b)
		}
	}
	set[0].put(a)
}

func (s *slot) put(a *answer) {
	s.answer.Store(a)
	s.pc.Store(a.pc)
}

// grow returns a table of twice the size with the answers of t.
func grow(t *table) *table {
	bigger := newTable(2 * ways * len(t.sets))
	for i := range t.sets {
		for j := range t.sets[i] {
			if a := t.sets[i][j].answer.Load(); a != nil {
				bigger.put(a)
			}
		}
	}
	return bigger
}

// intern returns the one copy of a row.
func (c *cache) intern(row *Row) *Row {
	key := rules{row.CFA, row.RA, row.FP, row.Outermost, row.Signal, row.Signed}
	if r := c.rows[key]; r != nil {
		return r
	}
	if c.rows == nil || len(c.rows) >= maxRules {
		c.rows = make(map[rules]*Row)
	}
	r := new(Row)
	*r = *row
	c.rows[key] = r
	return r
}
