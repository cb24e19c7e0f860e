package main

import (
	"fmt"
	"iter"
)

// jsonFault is one fault of --check.
type jsonFault struct {
	File  string `json:"file"`
	Fault string `json:"fault"`
}

// fault prints what is wrong with a table; the run fails.
func (d *dumper) fault(obj *object, err error) {
	d.failed = true
	if d.json {
		d.emit(jsonFault{obj.path, err.Error()})
		return
	}
	fmt.Fprintf(d.out, "%s: %s\n", printable(obj.path), printable(err.Error()))
}

// check validates all functions and rows. A sound object gets a line as well.
func (d *dumper) check(obj *object) error {
	faults, funcs, rows := len(obj.faults), 0, 0
	count := func(list iter.Seq2[function, error]) {
		for f, err := range list {
			if err == nil {
				funcs++
				rows += len(f.rows)
				if d.eh {
					for _, err := range f.errs {
						d.fault(obj, fmt.Errorf("function %#x: %w", f.start, err))
						faults++
					}
				}
			} else if d.eh {
				d.fault(obj, err)
				faults++
			}
		}
	}
	table := ".sframe"
	if d.eh {
		table = ".eh_frame"
	} else {
		for _, s := range obj.sframes {
			for err := range s.Check(obj.executable) {
				d.fault(obj, fmt.Errorf(".sframe: %w", err))
				faults++
			}
		}
	}
	if err := d.tables(obj, count); err != nil {
		return err
	}
	if d.json {
		d.emit(map[string]any{"file": obj.path, "table": table, "functions": funcs, "rows": rows, "faults": faults})
		return nil
	}
	result := "no fault"
	if faults > 0 {
		result = fmt.Sprintf("%d faults", faults)
	}
	fmt.Fprintf(d.out, "%s: %s: %d functions, %d rows: %s\n", printable(obj.path), table, funcs, rows, result)
	return nil
}
