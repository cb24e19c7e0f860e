package sframe

import (
	"errors"
	"fmt"
)

// ErrEmpty is returned by [Open] for a section without content: no bytes, or
// a header of zero bytes. GNU ld 2.47 leaves the latter behind, with a program
// header, when no input function survives. It is no damage, there are just no
// rows.
var ErrEmpty = errors.New("section is empty")

// Error gives place, defect and value: "offset 0x1c: row address type (0x3)".
func (e *FormatError) Error() string {
	return fmt.Sprintf("offset %#x: %s (%#x)", e.SecOff, e.Text, e.Value)
}

// bad is a defect that costs a row or a function.
func bad(secOff uint64, text string, value uint64) error {
	return &FormatError{SecOff: secOff, Text: text, Value: value}
}

// badWhole is a defect that costs the table.
func badWhole(secOff uint64, text string, value uint64) error {
	return &FormatError{SecOff: secOff, Text: text, Value: value, Whole: true}
}
