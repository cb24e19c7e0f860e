package sframe

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
)

// full is a section read from end to end: what a look-up is held against.
type full struct {
	funcs []fullFunc
}

type fullFunc struct {
	Func
	err  error // of the function, or of the first row that has one
	rows []fullRow
}

type fullRow struct {
	FuncRow
	err error
}

// readFull reads everything; ok is false if the reader itself fails.
func readFull(s *Section) (all full, ok bool) {
	for f, err := range s.Funcs() {
		if err != nil && !isFormat(err) {
			return all, false
		}
		ff := fullFunc{Func: f, err: err}
		for r, err := range s.Rows(&f) {
			if err != nil && !isFormat(err) {
				return all, false
			}
			if err != nil && ff.err == nil {
				ff.err = err
			}
			ff.rows = append(ff.rows, fullRow{r, err})
		}
		all.funcs = append(all.funcs, ff)
	}
	return all, true
}

// row is the row of f for pc, found by going through all of them.
func (f *fullFunc) row(pc uint64) (Row, bool) {
	if f.NumRows == 0 {
		return f.rowless()
	}
	off := uint32(pc - f.Start)
	if f.Mask {
		off %= f.Block
	}
	var row Row
	found := false
	for _, r := range f.rows {
		if r.Off <= off {
			row, found = r.Row, true
		}
	}
	return row, found
}

// checkAnswer holds the answers for pc against the full reading. sound: the
// check found nothing wrong, so that there is one right answer.
func (all *full) checkAnswer(s *Section, pc uint64, sound bool) error {
	e, err := s.Find(pc)
	row, rowErr := s.Row(pc)
	again, againErr := s.Row(pc)
	if (err == nil) != (rowErr == nil) || (row == nil) == (rowErr == nil) || row != again || (rowErr == nil) != (againErr == nil) {
		return fmt.Errorf("Find: %v, Row: %v, %v, then %v, %v", err, row, rowErr, again, againErr)
	}
	if err != nil && err != ErrNoRow && !isFormat(err) {
		return fmt.Errorf("error of unknown kind: %w", err)
	}
	if err == nil {
		if rowRules(row) != rowRules(&e.Row) {
			return fmt.Errorf("Find: %+v, Row: %+v", e.Row, row)
		}
		if pc-e.Start >= e.End-e.Start || pc-e.FuncStart >= e.FuncEnd-e.FuncStart {
			return fmt.Errorf("row %#x-%#x of function %#x-%#x", e.Start, e.End, e.FuncStart, e.FuncEnd)
		}
	}
	covered := false
	for i := range all.funcs {
		f := &all.funcs[i]
		if pc-f.Start >= uint64(f.Size) || !f.valid {
			continue
		}
		want, ok := f.row(pc)
		covered = covered || ok
		if err == nil && ok && rowRules(&want) == rowRules(&e.Row) {
			return nil
		}
	}
	switch {
	case err == nil:
		return fmt.Errorf("row %+v is in no function that covers the address", e.Row)
	case sound && covered:
		return fmt.Errorf("got %v, but a row covers the address", err)
	case sound && err != ErrNoRow:
		return fmt.Errorf("got %v of a section without faults", err)
	}
	return nil
}

// checkSection reads data in all ways and compares. It returns how many faults
// the check reports.
func checkSection(data []byte, addr uint64, pcs ...uint64) (faults int, err error) {
	s, err := Open(bytes.NewReader(data), addr, uint64(len(data)))
	if err != nil {
		var fe *FormatError
		if !errors.Is(err, ErrEmpty) && (!errors.As(err, &fe) || !fe.Whole) {
			return 0, fmt.Errorf("Open: error of unknown kind: %w", err)
		}
		return 1, nil
	}
	for err := range s.Check(nil) {
		var fe *FormatError
		if !errors.As(err, &fe) {
			return 0, fmt.Errorf("fault without a place: %w", err)
		}
		faults++
	}
	all, ok := readFull(s)
	if !ok {
		return 0, errors.New("a slice cannot be read")
	}
	for i := range all.funcs {
		f := &all.funcs[i]
		if i < 64 {
			pcs = append(pcs, f.Start-1, f.Start, f.Start+uint64(f.Size)-1, f.Start+uint64(f.Size))
		}
		for j, r := range f.rows {
			if i < 64 && j < 64 {
				pcs = append(pcs, f.Start+uint64(r.Off), f.Start+uint64(r.Off)-1)
			}
		}
	}
	for _, pc := range pcs {
		if err := all.checkAnswer(s, pc, faults == 0); err != nil {
			return 0, fmt.Errorf("%#x: %w", pc, err)
		}
	}
	return faults, nil
}

// FuzzSection: any bytes give a row or an error, never both, the same when
// asked twice, and the row that reading everything finds. Without faults there
// is one right answer.
func FuzzSection(f *testing.F) {
	for _, v := range readVectors(f) {
		f.Add(v.data, v.addr, v.addr+0x1000)
	}
	bads, _ := filepath.Glob("testdata/vectors/bad/*.hex")
	for _, path := range bads {
		f.Add(readHex(f, path), uint64(badAddr), uint64(0x401005))
	}
	f.Fuzz(func(t *testing.T, data []byte, addr, pc uint64) {
		if _, err := checkSection(data, addr, pc); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzRoundTrip: a section written from random choices reads back as it was
// meant.
func FuzzRoundTrip(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Add(uint64(400), uint64(1))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		m := newModel(rand.New(rand.NewPCG(a, b)))
		var rows, lookups int
		if err := m.check(&rows, &lookups); err != nil {
			t.Fatal(err)
		}
		data := m.section.Bytes()
		if faults, err := checkSection(data, m.section.Addr); err != nil || faults > 0 && !m.mayFault() {
			t.Fatalf("%d faults, %v", faults, err)
		}
	})
}

// mayFault: the model is legal, but unusual enough for the check.
func (m *model) mayFault() bool {
	for i, f := range m.section.Funcs {
		for j, r := range f.Rows {
			row := &m.rows[i][j]
			cfa := func(rule Rule) bool { return rule.Base == FromCFA && rule.Offset%8 != 0 }
			if j == 0 && r.Off != 0 || cfa(row.RA) || cfa(row.FP) {
				return true
			}
		}
	}
	return false
}

// changing gives other bytes at each reading.
type changing struct {
	data []byte
	rnd  *rand.Rand
}

func (c *changing) ReadAt(p []byte, off int64) (int, error) {
	n, err := bytes.NewReader(c.data).ReadAt(p, off)
	for range c.rnd.IntN(3) {
		if n > 0 {
			p[c.rnd.IntN(n)] = byte(c.rnd.Uint32())
		}
	}
	return n, err
}

// TestChangingSection: a section that changes while it is read gives a row or
// an error, within bounds.
func TestChangingSection(t *testing.T) {
	rows, errs := 0, 0
	for _, v := range readVectors(t) {
		rnd := rand.New(rand.NewPCG(uint64(len(v.data)), 3))
		for range 200 {
			s, err := Open(&changing{v.data, rnd}, v.addr, uint64(len(v.data)))
			if err != nil {
				errs++
				continue
			}
			for range s.Check(nil) {
				errs++
			}
			for pc := v.addr; pc < v.addr+0x2000; pc += 0x55 {
				row, err := s.Row(pc)
				if (row == nil) == (err == nil) {
					t.Fatalf("%s: got %v, %v", v.name, row, err)
				}
				if err == nil {
					rows++
				}
			}
		}
	}
	t.Logf("%d rows, %d errors", rows, errs)
}
