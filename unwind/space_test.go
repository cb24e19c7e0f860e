package unwind

import (
	"sfsample/regs"
	"sfsample/sframe"
)

// space is a Space in a test's hands: ranges of code with rows.
type space struct {
	rows    map[How][]sframe.Entry
	bad     map[How]error     // answer of a method that has no row
	code    map[uint64][]byte // bytes by address; elsewhere code reads as zeros
	mapped  [][2]uint64       // executable ranges
	entries [][2]uint64       // functions that start stacks
	stack   [2]uint64         // mapping of the stack; zero: not known
	also    [2]uint64         // a second such mapping
	vdso    [2]uint64
	gen     uint64
	asked   int // calls of Row
}

func inside(addr uint64, ranges ...[2]uint64) bool {
	for _, r := range ranges {
		if addr >= r[0] && addr < r[1] {
			return true
		}
	}
	return false
}

func (s *space) Row(pc uint64, m How) (*sframe.Row, error) {
	s.asked++
	for i := range s.rows[m] {
		if e := &s.rows[m][i]; pc >= e.Start && pc < e.End {
			return &e.Row, nil
		}
	}
	if err := s.bad[m]; err != nil {
		return nil, err
	}
	return nil, sframe.ErrNoRow
}

func (s *space) Executable(pc uint64) bool { return inside(pc, s.mapped...) }
func (s *space) Entry(pc uint64) bool      { return inside(pc, s.entries...) }
func (s *space) Generation() uint64        { return s.gen }
func (s *space) VDSO(pc uint64) bool       { return inside(pc, s.vdso) }

func (s *space) Mapping(addr uint64) (start, end uint64, ok bool) {
	for _, m := range [][2]uint64{s.stack, s.also} {
		if inside(addr, m) {
			return m[0], m[1], true
		}
	}
	return 0, 0, false
}

func (s *space) Code(pc uint64, b []byte) int {
	for i := range b {
		addr := pc + uint64(i)
		if !s.Executable(addr) {
			return i
		}
		b[i] = 0
		for at, text := range s.code {
			if off := addr - at; off < uint64(len(text)) {
				b[i] = text[off]
			}
		}
	}
	return len(b)
}

// put appends values as stack words of a.
func put(a *regs.Arch, b []byte, values ...uint64) []byte {
	for _, v := range values {
		for i := range a.WordBytes {
			shift := 8 * i
			if a.BigEndian {
				shift = 8 * (a.WordBytes - 1 - i)
			}
			b = append(b, byte(v>>shift))
		}
	}
	return b
}

// words is memory that holds values from addr on, and nothing else.
func words(a *regs.Arch, addr uint64, values ...uint64) *Memory {
	m := new(Memory)
	m.Reset(addr, put(a, nil, values...), nil)
	return m
}

// set makes a register set from pairs of number and value.
func set(pc uint64, pairs ...uint64) *regs.Set {
	s := &regs.Set{PC: pc}
	for i := 0; i < len(pairs); i += 2 {
		s.SetReg(uint8(pairs[i]), pairs[i+1])
	}
	return s
}
