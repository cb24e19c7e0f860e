package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"

	"sfsample/sframe"
)

// tables calls show for each table of obj that is asked for.
func (d *dumper) tables(obj *object, show func(iter.Seq2[function, error])) error {
	if d.eh {
		t, err := obj.openEH()
		if err != nil {
			return fmt.Errorf("%s: %w", obj.path, err)
		}
		show(obj.ehFuncs(t))
		return nil
	}
	for _, s := range obj.sframes {
		show(obj.sframeFuncs(s))
	}
	return nil
}

// each calls show for each function, and complains about damage.
func (d *dumper) each(obj *object, funcs iter.Seq2[function, error], show func(*function)) {
	for f, err := range funcs {
		if err != nil {
			d.complain(fmt.Errorf("%s: %w", obj.path, err))
			continue
		}
		show(&f)
		for _, err := range f.errs {
			d.complain(fmt.Errorf("%s: function %#x: %w", obj.path, f.start, err))
		}
	}
}

// rows prints one line a row.
func (d *dumper) rows(obj *object) error {
	if d.json {
		return d.dumpJSON(obj)
	}
	return d.tables(obj, func(funcs iter.Seq2[function, error]) {
		d.each(obj, funcs, func(f *function) {
			for _, r := range f.rows {
				fmt.Fprintf(d.out, "%x %d %s | %x %s %s %s\n", f.start, f.size, f.attrs, r.pc, r.CFA, r.FP, r.RA)
			}
		})
	})
}

// dump prints tables for people.
func (d *dumper) dump(obj *object) error {
	if d.json {
		return d.dumpJSON(obj)
	}
	if d.eh {
		fmt.Fprintf(d.out, "%s: .eh_frame\n", printable(obj.path))
		return d.tables(obj, func(funcs iter.Seq2[function, error]) { d.dumpFuncs(obj, funcs) })
	}
	for _, s := range obj.sframes {
		d.dumpHeaders(obj, s)
		d.dumpFuncs(obj, obj.sframeFuncs(s))
	}
	return nil
}

func (d *dumper) dumpHeaders(obj *object, s *sframe.Section) {
	fmt.Fprintf(d.out, "%s: .sframe at %#x, %d bytes\n", printable(obj.path), s.Addr(), s.Size())
	images, err := s.Images()
	if err != nil {
		var fe *sframe.FormatError
		if !errors.As(err, &fe) { // a format error comes again with the functions
			d.complain(fmt.Errorf("%s: %w", obj.path, err))
		}
	}
	for _, img := range images {
		h := &img.Header
		if len(images) > 1 {
			fmt.Fprintf(d.out, "  table at offset %#x:\n", img.SecOff)
		}
		fmt.Fprintf(d.out, "  version %d, %s%s\n", h.Version, h.ABI, flagWords(h))
		fmt.Fprintf(d.out, "  %d functions, %d rows in %d bytes\n", h.NumFDEs, h.NumFREs, h.FRELen)
	}
}

// flagWords spells flags and fixed offsets of a header.
func flagWords(h *sframe.Header) string {
	var text string
	if h.Flags&sframe.FlagSorted != 0 {
		text += ", sorted"
	}
	if h.Flags&sframe.FlagFramePointer != 0 {
		text += ", frame pointers"
	}
	if h.Flags&sframe.FlagPCRel != 0 {
		text += ", starts relative to their field"
	}
	if h.FixedRA != 0 {
		text += fmt.Sprintf(", RA at CFA%+d", h.FixedRA)
	}
	if h.FixedFP != 0 {
		text += fmt.Sprintf(", FP at CFA%+d", h.FixedFP)
	}
	if h.AuxLen != 0 {
		text += fmt.Sprintf(", auxiliary header of %d bytes", h.AuxLen)
	}
	return text
}

func (d *dumper) dumpFuncs(obj *object, funcs iter.Seq2[function, error]) {
	d.each(obj, funcs, func(f *function) {
		name, ok := obj.name(f.start)
		if !ok {
			name = "?"
		}
		fmt.Fprintf(d.out, "\n%#x %s: %d bytes%s\n", f.start, printable(name), f.size, attrWords(f.attrs, f.block))
		if f.special != "" {
			fmt.Fprintf(d.out, "    %s\n", f.special)
		}
		for _, r := range f.rows {
			if r.RA == "undef" {
				fmt.Fprintf(d.out, "    %#-16x  outermost frame: ra undefined\n", r.pc)
				continue
			}
			fmt.Fprintf(d.out, "    %#-16x  cfa %-10s fp %-8s ra %s\n", r.pc, r.CFA, r.FP, r.RA)
		}
	})
}

// hexAddr is an address in JSON: a string, since a number of 64 bits loses its
// lowest ones in many readers.
type hexAddr uint64

// MarshalText implements encoding.TextMarshaler.
func (a hexAddr) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%#x", uint64(a)), nil }

type jsonTable struct {
	File    string       `json:"file"`
	Table   string       `json:"table"`
	Addr    hexAddr      `json:"addr"`
	Bytes   uint64       `json:"size_bytes"`
	Version uint8        `json:"version"`
	ABI     string       `json:"abi"`
	Headers []jsonHeader `json:"headers"`
}

type jsonHeader struct {
	Off       uint64 `json:"offset_bytes"`
	Version   uint8  `json:"version"`
	Flags     uint8  `json:"flags"`
	FixedFP   int8   `json:"fixed_fp"`
	FixedRA   int8   `json:"fixed_ra"`
	Functions uint32 `json:"functions"`
	Rows      uint32 `json:"rows"`
}

type jsonFunc struct {
	File  string    `json:"file"`
	Start hexAddr   `json:"start"`
	Bytes uint64    `json:"size_bytes"`
	Name  string    `json:"name,omitempty"`
	Attrs string    `json:"attrs"`
	Block uint32    `json:"block_bytes,omitempty"`
	Note  string    `json:"note,omitempty"`
	Rows  []jsonRow `json:"rows"`
	Errs  []string  `json:"errors,omitempty"`
}

type jsonRow struct {
	PC hexAddr `json:"pc"`
	columns
}

// emit writes one JSON object as a line.
func (d *dumper) emit(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		d.complain(err)
		return
	}
	d.out.Write(append(b, '\n'))
}

// dumpJSON writes an object for each table, followed by one for each function.
func (d *dumper) dumpJSON(obj *object) error {
	for _, s := range obj.sframes {
		if d.eh {
			break
		}
		images, _ := s.Images() // its error comes again with the functions
		t := jsonTable{File: obj.path, Table: ".sframe", Addr: hexAddr(s.Addr()), Bytes: s.Size(), Version: s.Version(), ABI: s.ABI().String()}
		for _, img := range images {
			h := &img.Header
			t.Headers = append(t.Headers, jsonHeader{img.SecOff, h.Version, h.Flags, h.FixedFP, h.FixedRA, h.NumFDEs, h.NumFREs})
		}
		d.emit(t)
		d.funcsJSON(obj, obj.sframeFuncs(s))
	}
	if !d.eh {
		return nil
	}
	return d.tables(obj, func(funcs iter.Seq2[function, error]) {
		d.emit(map[string]string{"file": obj.path, "table": ".eh_frame"})
		d.funcsJSON(obj, funcs)
	})
}

func (d *dumper) funcsJSON(obj *object, funcs iter.Seq2[function, error]) {
	d.each(obj, funcs, func(f *function) {
		j := jsonFunc{File: obj.path, Start: hexAddr(f.start), Bytes: f.size, Attrs: f.attrs, Note: f.special, Rows: []jsonRow{}}
		j.Name, _ = obj.name(f.start)
		for _, a := range f.attrs {
			if a == 'M' {
				j.Block = f.block
			}
		}
		for _, r := range f.rows {
			j.Rows = append(j.Rows, jsonRow{hexAddr(r.pc), r.columns})
		}
		for _, err := range f.errs {
			j.Errs = append(j.Errs, err.Error())
		}
		d.emit(j)
	})
}
