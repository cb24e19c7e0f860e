package sframe

import (
	"cmp"
	"errors"
	"slices"
)

// place is where the FDE of a function stands.
type place struct {
	start uint64
	image uint32
	num   uint32 // in its image
}

// errDisorder: a table that claims to be sorted is not.
var errDisorder = errors.New("function table is not sorted")

// Find returns the row for the address pc with the ranges that it holds for.
// [ErrNoRow]: the table has none. A *[FormatError] says what is damaged; Whole
// is set if no other address fares better. Other errors are those of the reader
// and may pass.
func (s *Section) Find(pc uint64) (Entry, error) {
	w := s.window()
	defer w.release()
	f, err := s.function(w, pc)
	if err != nil {
		return Entry{}, err
	}
	return f.find(w, pc)
}

// Func returns the function that covers pc, with errors as for [Section.Find].
func (s *Section) Func(pc uint64) (Func, error) {
	w := s.window()
	defer w.release()
	return s.function(w, pc)
}

// function finds the FDE for pc.
func (s *Section) function(w *window, pc uint64) (Func, error) {
	l, err := s.searchable(false)
	if err != nil {
		return Func{}, err
	}
	e, img, err := l.search(w, pc)
	if err == errDisorder {
		if l, err = s.searchable(true); err != nil {
			return Func{}, err
		}
		e, img, err = l.search(w, pc)
	}
	if err != nil {
		return Func{}, err
	}
	return img.function(w, e)
}

// searchable returns a layout that can be searched. It builds the index if
// there are several images, a table does not claim to be sorted, or was caught
// at not being so.
func (s *Section) searchable(disorder bool) (*layout, error) {
	l, err := s.chain()
	if err != nil {
		return nil, err
	}
	sorted := len(l.images) == 1 && s.first.header.Flags&FlagSorted != 0 && !disorder
	if sorted || l.index != nil {
		return l, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l = s.layout.Load(); l.index != nil {
		return l, nil
	}
	index, err := s.buildIndex(l.images)
	if err != nil {
		return nil, err
	}
	l = &layout{images: l.images, tail: l.tail, index: index}
	s.layout.Store(l)
	if disorder {
		// Where functions overlap, answers may be others from now on.
		s.cache.reset()
	}
	return l, nil
}

// buildIndex reads all tables once.
func (s *Section) buildIndex(images []*image) ([]place, error) {
	var n uint64
	for _, img := range images {
		n += uint64(img.header.NumFDEs)
	}
	if n > maxIndex {
		return nil, errUnsearchable(n)
	}
	w := s.window()
	defer w.release()
	index := make([]place, 0, n) // checked: the tables fit the section
	for i, img := range images {
		for j := range int(img.header.NumFDEs) {
			e, err := img.entry(w, j, len(w.buf))
			if err != nil {
				return nil, err
			}
			index = append(index, place{start: e.start, image: uint32(i), num: uint32(j)})
		}
	}
	slices.SortStableFunc(index, func(a, b place) int { return cmp.Compare(a.start, b.start) })
	return index, nil
}

// len is the number of functions to search.
func (l *layout) len() int {
	if l.index != nil {
		return len(l.index)
	}
	return int(l.images[0].header.NumFDEs)
}

// entry returns the FDE at place i of the search order.
func (l *layout) entry(w *window, i int) (entry, *image, error) {
	img, num := l.images[0], i
	if l.index != nil {
		img, num = l.images[l.index[i].image], int(l.index[i].num)
	}
	e, err := img.entry(w, num, 0)
	return e, img, err
}

// start returns the start of the function at place i.
func (l *layout) start(w *window, i int) (uint64, error) {
	if l.index != nil {
		return l.index[i].start, nil
	}
	e, err := l.images[0].entry(w, i, 0)
	return e.start, err
}

// Bounds of a search.
const (
	// nearEntries are read at once when a search has come down to them.
	nearEntries = 32
	// maxBack is how many empty or equal-starting functions are stepped over.
	maxBack = 256
)

// search returns the entry that covers pc. errDisorder: the order of the
// table contradicts itself where it was looked at, so that a miss says nothing.
func (l *layout) search(w *window, pc uint64) (entry, *image, error) {
	i, err := l.last(w, pc)
	if err != nil {
		return entry{}, nil, err
	}
	// Empty functions share their start with a neighbour, and sorting does not
	// say which comes first: step back over them.
	for j := i; j >= 0 && i-j < maxBack; j-- {
		e, img, err := l.entry(w, j)
		if err != nil {
			return entry{}, nil, err
		}
		if e.covers(pc) {
			return e, img, nil
		}
		if e.size == 0 || j == 0 {
			continue
		}
		if prev, err := l.start(w, j-1); err != nil {
			return entry{}, nil, err
		} else if prev != e.start {
			break
		}
	}
	if err := l.ordered(w, i); err != nil {
		return entry{}, nil, err
	}
	if l.tail != nil {
		return entry{}, nil, l.tail
	}
	return entry{}, nil, ErrNoRow
}

// last returns the last place whose function starts at or before pc, -1 if
// there is none.
func (l *layout) last(w *window, pc uint64) (int, error) {
	lo, hi := 0, l.len()
	var first, final uint64 = 0, ^uint64(0) // starts on both sides
	for near := false; lo < hi; {
		if !near && hi-lo <= nearEntries && l.index == nil {
			near = true
			img := l.images[0]
			n := min(hi+2, l.len()) - max(lo-2, 0)
			if _, err := img.entry(w, max(lo-2, 0), n*int(entryBytes[img.header.Version])); err != nil {
				return 0, err
			}
		}
		m := int(uint(lo+hi) / 2)
		start, err := l.start(w, m)
		if err != nil {
			return 0, err
		}
		if start < first || start > final {
			return 0, errDisorder
		}
		if start <= pc {
			lo, first = m+1, start
		} else {
			hi, final = m, start
		}
	}
	return lo - 1, nil
}

// ordered looks at the neighbours of place i, where a search has missed. One
// misplaced function sends a search to its own side, and there it stands out.
func (l *layout) ordered(w *window, i int) error {
	if l.index != nil {
		return nil
	}
	var before uint64
	for j := max(i-1, 0); j <= i+2 && j < l.len(); j++ {
		start, err := l.start(w, j)
		if err != nil {
			return err
		}
		if start < before {
			return errDisorder
		}
		before = start
	}
	return nil
}

// verifyBytes of rows are checked beyond the one that was searched for, so that
// damage behind it counts too. Practically all functions are shorter.
const verifyBytes = 16 << 10

// find returns the row of f for pc, which f covers.
func (f *Func) find(w *window, pc uint64) (Entry, error) {
	e := Entry{FuncStart: f.Start, FuncEnd: f.Start + uint64(f.Size)}
	off, base, span := uint32(pc-f.Start), f.Start, f.Size
	if f.Mask {
		// The remainder is of the offset in the function, as in libsframe from
		// 2.46 on and in glibc 2.43.
		at := off
		off %= f.Block
		base += uint64(at - off)
		span = min(f.Block, f.Size-(at-off))
	}
	if f.NumRows == 0 {
		row, ok := f.rowless()
		if !ok {
			return Entry{}, ErrNoRow
		}
		e.Start, e.End = e.FuncStart, e.FuncEnd
		e.Row = row
		return e, nil
	}
	best, end, err := f.findHead(w, off)
	if err != nil {
		return Entry{}, err
	}
	e.Start = base + uint64(best.start)
	e.End = base + uint64(min(end, span))
	e.Row, err = f.decode(w, &best)
	return e, err
}

// rowless is the row of a function without rows. Only V3 has a meaning for it
// (GNU as writes it): nothing calls the function or, with the signal bit, no row
// can express the frame that the kernel has built.
func (f *Func) rowless() (Row, bool) {
	switch {
	case f.img.header.Version < 3:
		return Row{}, false
	case f.Signal:
		return Row{Signal: true, CFA: Rule{Base: Undefined}}, true
	}
	return Row{Outermost: true}, true
}

// findHead returns the last row that starts at or before off, and the start of
// the row behind it.
func (f *Func) findHead(w *window, off uint32) (best rowHead, end uint32, err error) {
	found, past := false, false
	end = ^uint32(0)
	for c := f.scan(); ; {
		ahead := rowAhead
		if c.off-f.rows >= rowAhead {
			ahead = 2048
		}
		h, ok, err := c.next(w, ahead)
		if err != nil {
			return rowHead{}, 0, err
		}
		if !ok || past && c.off-f.rows > verifyBytes {
			break
		}
		if h.start <= off {
			best, found = h, true
		} else if !past {
			past, end = true, h.start
		}
	}
	if !found {
		return rowHead{}, 0, ErrNoRow
	}
	return best, end, nil
}
