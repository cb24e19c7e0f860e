package symbol

import "math"

// segments cuts ranges that may nest or overlap into pieces that do not: at each
// address the range that began last and has not ended.
type segments struct {
	start []uint64 // of each piece, ascending; it ends where the next begins
	id    []int32  // of the range, none where there is no range

	open []openRange // ranges that began, the last one innermost
	pos  uint64      // pieces are complete up to here
}

type openRange struct {
	end uint64
	id  int32
}

// begin adds a range. Ranges come in ascending order of start; of those with one
// start the last one counts.
func (s *segments) begin(start, end uint64, id int32) {
	s.closeTo(start)
	s.open = append(s.open, openRange{end, id})
	s.piece(start, id)
	s.pos = max(s.pos, start)
}

// finish ends all ranges.
func (s *segments) finish() {
	s.closeTo(math.MaxUint64)
	s.open = nil
}

// covered reports whether a range holds addr, at or after which no range has
// begun yet.
func (s *segments) covered(addr uint64) bool {
	s.closeTo(addr)
	return len(s.open) > 0
}

// closeTo ends what ends at or before addr; what lies around it goes on.
func (s *segments) closeTo(addr uint64) {
	for len(s.open) > 0 {
		top := s.open[len(s.open)-1]
		if top.end > addr {
			return
		}
		s.open = s.open[:len(s.open)-1]
		if top.end <= s.pos {
			continue
		}
		s.pos = top.end
		for len(s.open) > 0 && s.open[len(s.open)-1].end <= s.pos {
			s.open = s.open[:len(s.open)-1]
		}
		if n := len(s.open); n > 0 {
			s.piece(s.pos, s.open[n-1].id)
		} else {
			s.piece(s.pos, none)
		}
	}
}

// piece begins a piece at addr; one that begins where the last one began
// replaces it.
func (s *segments) piece(addr uint64, id int32) {
	if n := len(s.start); n > 0 && s.start[n-1] == addr {
		s.id[n-1] = id
		return
	}
	s.start = append(s.start, addr)
	s.id = append(s.id, id)
}
