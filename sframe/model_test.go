package sframe

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"sfsample/internal/sframetest"
)

// model is a random section with the rows that it must decode to.
type model struct {
	section sframetest.Section
	rows    [][]Row // by function, beside section.Funcs[i].Rows
}

// pick returns one of the values.
func pick[T any](rnd *rand.Rand, values ...T) T { return values[rnd.IntN(len(values))] }

func chance(rnd *rand.Rand, percent int) bool { return rnd.IntN(100) < percent }

// newModel makes a valid section of any kind.
func newModel(rnd *rand.Rand) *model {
	m := &model{section: sframetest.Section{
		Version: pick(rnd, uint8(1), 2, 3, 3), ABI: pick(rnd, uint8(1), 2, 3, 4),
		Addr: pick(rnd, 0x400200, rnd.Uint64N(1<<47)),
	}}
	s := &m.section
	if s.ABI == sframetest.AMD64 {
		s.FixedRA = -8
	} else if chance(rnd, 5) {
		s.FixedRA = -16
	}
	if chance(rnd, 5) {
		s.FixedFP = -24
	}
	if s.Version > 1 && chance(rnd, 60) {
		s.Flags |= sframetest.PCRel
	}
	if s.Version < 3 && chance(rnd, 20) {
		s.Flags |= sframetest.FramePointer
	}
	if chance(rnd, 20) {
		s.Aux, s.FDEGap, s.FREGap = make([]byte, rnd.IntN(9)), rnd.IntN(9), rnd.IntN(9)
	}
	m.addFuncs(rnd, rnd.IntN(200))
	if chance(rnd, 50) {
		s.Flags |= sframetest.Sorted
	} else {
		rnd.Shuffle(len(s.Funcs), func(i, j int) {
			s.Funcs[i], s.Funcs[j] = s.Funcs[j], s.Funcs[i]
			m.rows[i], m.rows[j] = m.rows[j], m.rows[i]
		})
	}
	return m
}

// addFuncs adds n functions that ascend and do not overlap, near the section,
// or further away where the version can say so.
func (m *model) addFuncs(rnd *rand.Rand, n int) {
	s := &m.section
	at := s.Addr + pick(rnd, uint64(0x100000), 1<<30)
	if s.Version == 3 {
		at = s.Addr + pick(rnd, uint64(0x1000), 1<<35)
	}
	for range n {
		at += pick(rnd, uint64(0), 0, 1, 16, 4096)
		f := sframetest.Func{
			Start: at, Size: pick(rnd, 0, rnd.Uint32N(100), rnd.Uint32N(100), rnd.Uint32N(60000), rnd.Uint32N(200000)),
			KeyB: (s.ABI == sframetest.AArch64BE || s.ABI == sframetest.AArch64LE) && chance(rnd, 20),
			Flex: s.Version == 3 && chance(rnd, 40), Signal: s.Version == 3 && chance(rnd, 10),
			Width: pick(rnd, 1, 2, 4),
		}
		span := f.Size
		if chance(rnd, 15) && (s.Version > 1 || s.ABI == sframetest.AMD64) {
			f.Mask, f.Rep = true, pick(rnd, uint8(1), 8, 16, 32, 255)
			span = min(span, uint32(f.Rep))
			if s.Version == 1 {
				f.Rep, span = 0, min(f.Size, 16)
			}
		}
		var rows []Row
		off := uint32(0)
		if f.Width < 4 {
			span = min(span, 1<<(8*f.Width)-1)
		}
		for range pick(rnd, 0, 1, 3, rnd.IntN(40)) {
			r, row := m.randomRow(rnd, &f)
			r.Off = off
			f.Rows = append(f.Rows, r)
			rows = append(rows, row)
			off += rnd.Uint32N(span/8 + 2)
			if off > span {
				break
			}
		}
		s.Funcs = append(s.Funcs, f)
		m.rows = append(m.rows, rows)
		at += uint64(f.Size)
	}
}

// randomRow makes a row of f and says what it means.
func (m *model) randomRow(rnd *rand.Rand, f *sframetest.Func) (sframetest.Row, Row) {
	s := &m.section
	arm := s.ABI == sframetest.AArch64BE || s.ABI == sframetest.AArch64LE
	if s.Version > 1 && chance(rnd, 5) {
		return sframetest.Row{}, Row{Outermost: true, Signal: f.Signal}
	}
	r := sframetest.Row{SP: chance(rnd, 60), Signed: arm && chance(rnd, 30)}
	row := Row{Signal: f.Signal, Signed: r.Signed}
	if s.FixedRA != 0 {
		row.RA = Rule{Base: FromCFA, Deref: true, Offset: int32(s.FixedRA)}
	}
	if s.FixedFP != 0 {
		row.FP = Rule{Base: FromCFA, Deref: true, Offset: int32(s.FixedFP)}
	}
	if f.Flex {
		r.SP = false
		m.flexRow(rnd, &r, &row)
	} else {
		m.defaultRow(rnd, &r, &row)
	}
	return r, row
}

func randomOffset(rnd *rand.Rand) int64 {
	return 8 * int64(pick(rnd, rnd.IntN(30)-15, rnd.IntN(8000)-4000, rnd.IntN(1<<24)-1<<23))
}

// cfaWord returns a CFA offset and the word for it.
func (m *model) cfaWord(rnd *rand.Rand) (off int32, word int64) {
	n := randomOffset(rnd)
	if m.section.ABI == sframetest.S390X {
		return int32(n), (n - 160) / 8
	}
	return int32(n), n
}

func (m *model) defaultRow(rnd *rand.Rand, r *sframetest.Row, row *Row) {
	s := &m.section
	sp, fp := map[uint8][2]uint8{1: {31, 29}, 2: {31, 29}, 3: {7, 6}, 4: {15, 11}}[s.ABI][0],
		map[uint8][2]uint8{1: {31, 29}, 2: {31, 29}, 3: {7, 6}, 4: {15, 11}}[s.ABI][1]
	off, word := m.cfaWord(rnd)
	row.CFA = Rule{Base: FromReg, Reg: fp, Offset: off}
	if r.SP {
		row.CFA.Reg = sp
	}
	words := []int64{word}
	saved := func(rule *Rule) {
		if s.ABI == sframetest.S390X && s.Version == 2 && chance(rnd, 40) {
			reg := rnd.IntN(32)
			words = append(words, int64(reg)<<1|1)
			*rule = Rule{Base: FromReg, Reg: uint8(reg)}
			return
		}
		n := randomOffset(rnd)
		if n == 0 {
			n = -8
		}
		words = append(words, n)
		*rule = Rule{Base: FromCFA, Deref: true, Offset: int32(n)}
	}
	withFP := chance(rnd, 50)
	if s.FixedRA == 0 && (withFP || chance(rnd, 50)) {
		if s.ABI == sframetest.S390X && withFP && chance(rnd, 50) {
			words = append(words, 0)
		} else {
			saved(&row.RA)
		}
	}
	if withFP && s.FixedFP == 0 {
		saved(&row.FP)
	}
	r.Words, r.WordBytes = words, sframetest.WordBytes(words, nil)
}

func (m *model) flexRow(rnd *rand.Rand, r *sframetest.Row, row *Row) {
	s := &m.section
	maxReg := 31
	if s.ABI == sframetest.AMD64 {
		maxReg = 15
	}
	var controls, offsets []int64
	pair := func(rule *Rule, reg int, deref bool, off int32, word int64) {
		isReg := reg >= 0
		*rule = Rule{Base: FromCFA, Deref: deref, Offset: off}
		if isReg {
			rule.Base, rule.Reg = FromReg, uint8(reg)
		}
		control := sframetest.Control(max(reg, 0), isReg, deref)
		controls, offsets = append(controls, control), append(offsets, word)
		r.Words = append(r.Words, control, word)
	}
	other := func(rule *Rule) {
		n := randomOffset(rnd)
		switch rnd.IntN(3) {
		case 0:
			pair(rule, -1, true, int32(n), n)
		case 1:
			pair(rule, rnd.IntN(256), chance(rnd, 50), int32(n), n)
		case 2:
			pair(rule, rnd.IntN(maxReg+1), false, 0, 0)
		}
	}
	off, word := m.cfaWord(rnd)
	pair(&row.CFA, rnd.IntN(maxReg+1), chance(rnd, 30), off, word)
	withRA, withFP := chance(rnd, 30), chance(rnd, 50)
	if withRA {
		other(&row.RA)
	} else if withFP || chance(rnd, 10) {
		r.Words = append(r.Words, 0)
	}
	if withFP {
		other(&row.FP)
	}
	r.WordBytes = sframetest.WordBytes(offsets, controls)
}

// TestRoundTrip: what the writer was told is what the reader says, by function
// and row and by look-ups at the edges of each row.
func TestRoundTrip(t *testing.T) {
	funcs, rows, lookups := 0, 0, 0
	for seed := range uint64(150) {
		m := newModel(rand.New(rand.NewPCG(seed, 1)))
		if err := m.check(&rows, &lookups); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		funcs += len(m.rows)
	}
	t.Logf("%d functions, %d rows, %d look-ups", funcs, rows, lookups)
}

// check holds the section against the model.
func (m *model) check(rows, lookups *int) error {
	data := m.section.Bytes()
	s, err := Open(bytes.NewReader(data), m.section.Addr, uint64(len(data)))
	if err != nil {
		return err
	}
	i := 0
	for f, err := range s.Funcs() {
		if err != nil {
			return err
		}
		want := &m.section.Funcs[i]
		if f.Start != want.Start || f.Size != want.Size || int(f.NumRows) != len(want.Rows) ||
			f.Flexible != want.Flex || f.Signal != want.Signal || f.Mask != want.Mask || f.KeyB != want.KeyB {
			return fmt.Errorf("function %d: got %+v, want %+v", i, f, want)
		}
		j := 0
		for r, err := range s.Rows(&f) {
			if err != nil {
				return fmt.Errorf("function %d, row %d: %v", i, j, err)
			}
			if r.Off != want.Rows[j].Off || rowRules(&r.Row) != rowRules(&m.rows[i][j]) {
				return fmt.Errorf("function %d, row %d (%+v): got %+v, want %+v", i, j, want.Rows[j], r.Row, m.rows[i][j])
			}
			j++
			*rows++
		}
		i++
	}
	for i := range m.rows {
		n, err := m.lookups(s, i)
		if err != nil {
			return fmt.Errorf("function %d: %w", i, err)
		}
		*lookups += n
	}
	return nil
}

// lookups asks for addresses at both edges of each row of function i, and
// just outside of the function.
func (m *model) lookups(s *Section, i int) (n int, err error) {
	f := &m.section.Funcs[i]
	pcs := []uint64{f.Start - 1, f.Start, f.Start + uint64(f.Size) - 1, f.Start + uint64(f.Size)}
	for _, r := range f.Rows {
		pcs = append(pcs, f.Start+uint64(r.Off)-1, f.Start+uint64(r.Off))
	}
	for _, pc := range pcs {
		if err := m.lookup(s, pc); err != nil {
			return 0, fmt.Errorf("%#x: %w", pc, err)
		}
		n++
	}
	return n, nil
}

// lookup compares the answer for pc with a search through the whole model.
func (m *model) lookup(s *Section, pc uint64) error {
	want, ok := m.answer(pc)
	got, err := s.Find(pc)
	switch {
	case !ok && errors.Is(err, ErrNoRow):
		return nil
	case !ok || err != nil:
		return fmt.Errorf("got %+v, %v, want %+v, %v", got, err, want, ok)
	case rowRules(&got.Row) != rowRules(&want) || (got.Row.CFA.Base == Undefined) != (want.CFA.Base == Undefined):
		return fmt.Errorf("got %+v, want %+v", got.Row, want)
	case pc < got.Start || pc >= got.End || got.Start < got.FuncStart || got.End > got.FuncEnd:
		return fmt.Errorf("row %#x-%#x of %#x-%#x", got.Start, got.End, got.FuncStart, got.FuncEnd)
	}
	return nil
}

// answer finds the row for pc by going through all of them.
func (m *model) answer(pc uint64) (Row, bool) {
	for i, f := range m.section.Funcs {
		off := pc - f.Start
		if off >= uint64(f.Size) {
			continue
		}
		if len(f.Rows) == 0 {
			if m.section.Version < 3 {
				return Row{}, false
			}
			if f.Signal {
				return Row{Signal: true, CFA: Rule{Base: Undefined}}, true
			}
			return Row{Outermost: true}, true
		}
		if f.Mask {
			rep := uint64(f.Rep)
			if m.section.Version == 1 {
				rep = 16
			}
			off %= rep
		}
		var row Row
		found := false
		for j, r := range f.Rows {
			if uint64(r.Off) <= off {
				row, found = m.rows[i][j], true
			}
		}
		return row, found
	}
	return Row{}, false
}

// TestRoundTripJoined: several sections in one, as linkers leave them that do
// not know the format, and rows that several functions share.
func TestRoundTripJoined(t *testing.T) {
	for seed := range uint64(25) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		var data []byte
		var models []*model
		base := uint64(0x400000)
		for len(models) < 4 {
			m := newModel(rnd)
			if m.section.ABI != sframetest.AMD64 {
				continue
			}
			// Move the model's functions with its section to its place.
			shift := base + uint64(len(data)) - m.section.Addr
			m.section.Addr += shift
			far := uint64(len(models)) << 28
			for i := range m.section.Funcs {
				m.section.Funcs[i].Start += shift - uint64(len(data)) + far
			}
			data = append(data, m.section.Bytes()...)
			data = append(data, make([]byte, -len(data)&7)...)
			models = append(models, m)
		}
		s, err := Open(bytes.NewReader(data), base, uint64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		images, err := s.Images()
		if err != nil || len(images) != len(models) {
			t.Fatalf("seed %d: got %d images, %v", seed, len(images), err)
		}
		for n, m := range models {
			for i := range m.rows {
				for _, pc := range []uint64{m.section.Funcs[i].Start, m.section.Funcs[i].Start + uint64(m.section.Funcs[i].Size)/2} {
					if want, ok := m.answer(pc); ok {
						if got, err := s.Row(pc); err != nil || rowRules(got) != rowRules(&want) {
							t.Fatalf("seed %d, section %d, function %d: got %+v, %v, want %+v", seed, n, i, got, err, want)
						}
					}
				}
			}
		}
	}
}

// TestSharedRows: two functions may point to the same rows.
func TestSharedRows(t *testing.T) {
	for _, version := range []uint8{1, 2, 3} {
		section := sframetest.Section{Version: version, Flags: sframetest.Sorted, ABI: sframetest.AMD64, FixedRA: -8, Addr: 0x1000, Funcs: []sframetest.Func{
			{Start: 0x2000, Size: 16, Width: 1, Rows: []sframetest.Row{{SP: true, Words: []int64{24}}}},
			{Start: 0x3000, Size: 16, Width: 1, Share: 1},
		}}
		data := section.Bytes()
		s, err := Open(bytes.NewReader(data), 0x1000, uint64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		a, errA := s.Row(0x2008)
		b, errB := s.Row(0x3008)
		if errA != nil || errB != nil || a != b || a.CFA.Offset != 24 {
			t.Errorf("V%d: got %v, %v and %v, %v, want one row with offset 24", version, a, errA, b, errB)
		}
	}
}
