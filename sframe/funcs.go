package sframe

import "iter"

// FuncRow is a row of a function as the table has it.
type FuncRow struct {
	Off    uint32 // where it starts, from the start of the function or block
	SecOff uint64 // of the row in the section
	Row    Row
}

// Funcs goes through all functions of the section in the order of its tables.
// With an error of type *[FormatError] the Func holds what could be decoded,
// and the iteration goes on; any other error ends it.
func (s *Section) Funcs() iter.Seq2[Func, error] {
	return func(yield func(Func, error) bool) {
		l, err := s.chain()
		if err != nil {
			yield(Func{}, err)
			return
		}
		// Two windows: table and attribute blocks are read in turn.
		table, blocks := s.window(), s.window()
		defer table.release()
		defer blocks.release()
		for _, img := range l.images {
			for i := range int(img.header.NumFDEs) {
				e, err := img.entry(table, i, len(table.buf))
				if err != nil {
					yield(Func{}, err)
					return
				}
				f, err := img.function(blocks, e)
				if !yield(f, err) || err != nil && !isFormat(err) {
					return
				}
			}
		}
	}
}

// Rows goes through the rows of f, a function of s. An error ends it, unless it
// is a *[FormatError] of the words of one row: then the FuncRow tells which, and
// the iteration goes on. A function without rows has none here, whatever
// [Section.Find] says about it.
func (s *Section) Rows(f *Func) iter.Seq2[FuncRow, error] {
	return func(yield func(FuncRow, error) bool) {
		w := s.window()
		defer w.release()
		for c := f.scan(); ; {
			h, ok, err := c.next(w, len(w.buf))
			if !ok {
				if err != nil {
					yield(FuncRow{SecOff: c.off}, err)
				}
				return
			}
			row, err := f.decode(w, &h)
			if !yield(FuncRow{Off: h.start, SecOff: h.secOff, Row: row}, err) || err != nil && !isFormat(err) {
				return
			}
		}
	}
}

func isFormat(err error) bool {
	_, ok := err.(*FormatError)
	return ok
}
