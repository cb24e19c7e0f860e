package sframe

import "fmt"

func (e *FormatError) Error() string {
	return fmt.Sprintf("offset %#x: %s (%#x)", e.SecOff, e.Text, e.Value)
}
