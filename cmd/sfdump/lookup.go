package main

import (
	"errors"
	"fmt"

	"sfsample/sframe"
)

// found is the answer for one address.
type found struct {
	File  string  `json:"file"`
	Addr  hexAddr `json:"addr"`
	Name  string  `json:"name,omitempty"`
	Func  hexAddr `json:"function_start"`
	End   hexAddr `json:"function_end"`
	From  hexAddr `json:"row_start"`
	To    hexAddr `json:"row_end"`
	Flags string  `json:"attrs"` // S: signal frame
	columns
}

// lookup prints the row for each address. In a process, an object is only asked
// for addresses of its own code.
func (d *dumper) lookup(obj *object) error {
	for _, addr := range d.addrs {
		if d.pid > 0 && !obj.executable(addr, 1) {
			continue
		}
		e, err := d.find(obj, addr)
		if err != nil {
			d.complain(fmt.Errorf("%s: %#x: %w", obj.path, addr, err))
			continue
		}
		f := found{
			File: obj.path, Addr: hexAddr(addr), Func: hexAddr(e.FuncStart), End: hexAddr(e.FuncEnd),
			From: hexAddr(e.Start), To: hexAddr(e.End), Flags: attrs(false, e.Row.Signal, false, false), columns: obj.note.columns(&e.Row),
		}
		f.Name, _ = obj.name(addr)
		if d.json {
			d.emit(f)
			continue
		}
		name := f.Name
		if name == "" {
			name = "?"
		}
		fmt.Fprintf(d.out, "%#x %s\n", addr, printable(name))
		fmt.Fprintf(d.out, "    function %#x-%#x%s\n", e.FuncStart, e.FuncEnd, attrWords(f.Flags, 0))
		fmt.Fprintf(d.out, "    row %#x-%#x  cfa %s  fp %s  ra %s\n", e.Start, e.End, f.CFA, f.FP, f.RA)
	}
	return nil
}

// find asks the tables of obj in turn.
func (d *dumper) find(obj *object, addr uint64) (sframe.Entry, error) {
	if d.eh {
		t, err := obj.openEH()
		if err != nil {
			return sframe.Entry{}, err
		}
		e, err := t.Find(addr - obj.bias)
		e.Start, e.End = e.Start+obj.bias, e.End+obj.bias
		e.FuncStart, e.FuncEnd = e.FuncStart+obj.bias, e.FuncEnd+obj.bias
		return e, err
	}
	err := sframe.ErrNoRow
	for _, s := range obj.sframes {
		e, findErr := s.Find(addr)
		if findErr == nil {
			return e, nil
		}
		if !errors.Is(findErr, sframe.ErrNoRow) {
			err = findErr
		}
	}
	return sframe.Entry{}, err
}
