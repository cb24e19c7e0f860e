package procfs

import "fmt"

// SyntaxError is a line that does not have the form which the kernel gives it.
type SyntaxError struct {
	File string // name of the file below the process's folder
	Line int    // from 1
	Text string // what is wrong
	Part string // the offending part, cut short
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s: line %d: %s: %q", e.File, e.Line, e.Text, e.Part)
}

// maxPart bounds what an error quotes of a file.
const maxPart = 80

func syntaxError(file string, line int, text string, part []byte) error {
	return &SyntaxError{File: file, Line: line, Text: text, Part: string(part[:min(len(part), maxPart)])}
}
