package main

import (
	"errors"
	"iter"

	"sfsample/sframe"
	"sfsample/sframe/ehframe"
)

// function is one function of either table, ready to print.
type function struct {
	start, size uint64
	attrs       string
	block       uint32 // when attrs has M
	special     string // what a function without rows means
	rows        []row
	errs        []error
}

type row struct {
	pc uint64 // with M in attrs: the offset in the block
	columns
}

// sframeFuncs goes through an SFrame section. Errors that end the section come
// with a zero function.
func (o *object) sframeFuncs(s *sframe.Section) iter.Seq2[function, error] {
	return func(yield func(function, error) bool) {
		for f, err := range s.Funcs() {
			var fe *sframe.FormatError
			if err != nil && !errors.As(err, &fe) {
				yield(function{}, err)
				return
			}
			if !yield(o.sframeFunc(s, &f, err), nil) {
				return
			}
		}
		if _, err := s.Images(); err != nil {
			yield(function{}, err)
		}
	}
}

func (o *object) sframeFunc(s *sframe.Section, f *sframe.Func, err error) function {
	out := function{start: f.Start, size: uint64(f.Size), block: f.Block, attrs: attrs(f.Flexible, f.Signal, f.Mask, f.KeyB)}
	if err != nil {
		out.errs = []error{err}
		return out
	}
	base := f.Start
	if f.Mask {
		base = 0
	}
	for r, err := range s.Rows(f) {
		if err != nil {
			out.errs = append(out.errs, err)
			continue
		}
		out.rows = append(out.rows, row{base + uint64(r.Off), o.note.columns(&r.Row)})
	}
	if f.NumRows == 0 && s.Version() == 3 {
		out.special = "no rows: nothing calls it (outermost frame)"
		if f.Signal {
			out.special = "no rows: signal trampoline, the kernel's frame is known by the ABI"
		}
	}
	return out
}

// ehFuncs goes through .eh_frame.
func (o *object) ehFuncs(t *ehframe.Table) iter.Seq2[function, error] {
	return func(yield func(function, error) bool) {
		for f, err := range t.Funcs() {
			if err != nil && f.Start == 0 && f.End == 0 && f.SecOff == 0 {
				yield(function{}, err)
				return
			}
			out := function{start: f.Start + o.bias, size: f.End - f.Start, attrs: attrs(false, f.Signal, false, f.KeyB)}
			if err != nil {
				out.errs = []error{err}
			}
			for i := range f.Entries {
				e := &f.Entries[i]
				out.rows = append(out.rows, row{e.Start + o.bias, o.note.ehColumns(&e.Row)})
			}
			if !yield(out, nil) {
				return
			}
		}
	}
}
