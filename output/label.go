package output

import (
	"bytes"
	"math"
	"path/filepath"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// maxNameBytes bounds a cleaned name. Names are the target's, and a hostile one
// may be a megabyte long; C++ templates reach a few thousand bytes.
const maxNameBytes = 4096

// Plural is a number of things, what being the word for one of them.
func Plural(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return strconv.FormatInt(n, 10) + " " + what
}

// Percent is a share, of 1, in percent, to a hundredth.
func Percent(share float64) string {
	return strconv.FormatFloat(math.Round(1e4*share)/100, 'f', -1, 64) + " %"
}

// Markers that stand where a name would. They begin with '[', which no
// function of C, C++, Rust or Go does.
const (
	unknownName = "[unknown]"
	overflow    = "[more: too many distinct stacks]"
	kernelMark  = "_[k]" // as stackcollapse-perf.pl --kernel marks kernel frames
)

// appendClean appends name to b so that it can be shown anywhere: whatever
// unicode.IsPrint refuses (control characters, line breaks, direction marks,
// private use) and each byte of invalid UTF-8 becomes an escape as Go writes
// it, \x1b or \u202e. A name longer than maxNameBytes is cut and ends in "...".
func appendClean(b []byte, name string) []byte {
	start := len(b)
	for i := 0; i < len(name); {
		if len(b)-start > maxNameBytes {
			return append(b, "..."...)
		}
		c := name[i]
		if c < utf8.RuneSelf {
			if c < ' ' || c == 0x7f {
				b = appendHex(append(b, `\x`...), uint64(c), 2)
			} else {
				b = append(b, c)
			}
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(name[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			b = appendHex(append(b, `\x`...), uint64(c), 2)
		case unicode.IsPrint(r):
			b = append(b, name[i:i+n]...)
		case r > 0xffff:
			b = appendHex(append(b, `\U`...), uint64(r), 8)
		default:
			b = appendHex(append(b, `\u`...), uint64(r), 4)
		}
		i += n
	}
	return b
}

// appendHex appends v as digits hexadecimal digits.
func appendHex(b []byte, v uint64, digits int) []byte {
	for d := digits - 1; d >= 0; d-- {
		b = append(b, "0123456789abcdef"[v>>(4*d)&15])
	}
	return b
}

// Printable is how names and messages are shown on a terminal, and in all outputs:
// see appendClean.
func Printable(s string) string { return clean(s) }

// clean is appendClean as a string; a name that needs nothing is returned as
// it is.
func clean(name string) string {
	b := appendClean(make([]byte, 0, 64), name)
	if string(b) == name {
		return name
	}
	return string(b)
}

// appendName appends the cleaned name of f without file and line: its function
// or, if that is unknown, "module+0x1f20", "[anon]+0x7f…" with the start of the
// region, or "[unknown]".
func appendName(b []byte, f *Frame) []byte {
	switch {
	case f.Func != "":
		b = appendClean(b, f.Func)
	case f.Module != "":
		b = append(appendClean(b, f.Module), "+0x"...)
		b = strconv.AppendUint(b, f.Offset, 16)
	default:
		b = append(b, unknownName...)
	}
	if f.Kernel {
		b = append(b, kernelMark...)
	}
	return b
}

// Label is the cleaned name of f, as it stands in all outputs without lines.
func (f *Frame) Label() string { return string(appendName(nil, f)) }

// appendFolded appends f as one frame of a folded line, with " file:line" if
// lines is set and they are known.
func appendFolded(b []byte, f *Frame, lines bool) []byte {
	start := len(b)
	b = appendName(b, f)
	if lines && f.File != "" {
		b = appendClean(append(b, ' '), filepath.Base(f.File))
		if f.Line > 0 {
			b = strconv.AppendInt(append(b, ':'), int64(f.Line), 10)
		}
	}
	return foldSafe(b, start)
}

// foldSafe makes b[start:], already clean, one frame of a folded line:
//   - ';' separates frames and becomes ':';
//   - flamegraph.pl takes "name 12 3" for the two counts of a differential
//     profile, so the blank before a last word that is a number becomes '_';
//   - blanks at the ends go, and an empty frame is "[unknown]".
func foldSafe(b []byte, start int) []byte {
	s := b[start:]
	for i, c := range s {
		if c == ';' {
			s[i] = ':'
		}
	}
	s = bytes.TrimSpace(s)
	if len(s) == 0 {
		return append(b[:start], unknownName...)
	}
	b = append(b[:start], s...)
	s = b[start:]
	if i := bytes.LastIndexByte(s, ' '); i >= 0 && isNumber(s[i+1:]) {
		s[i] = '_'
	}
	return b
}

// isNumber reports whether s is what flamegraph.pl takes for a count: digits,
// perhaps a point, perhaps more digits.
func isNumber(s []byte) bool {
	i := 0
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	if i == 0 {
		return false
	}
	if i < len(s) && s[i] == '.' {
		i++
	}
	for i < len(s) && '0' <= s[i] && s[i] <= '9' {
		i++
	}
	return i == len(s)
}

// marker tells a frame that stands for something else than code: it has a name,
// but no place.
func (f *Frame) marker() bool { return f.PC == 0 && f.Module == "" && f.Func != "" && !f.Kernel }

// FramesMissing is the function of the marker frame that stands for frames of which
// nothing is known.
const FramesMissing = "[frames missing]"

// truncated is the frame that stands at the root of s, which was cut; empty where it needs
// none: the stack is complete, or has its root, and [FramesMissing] where it was cut.
func (s *Stack) truncated() string {
	if s.End == "" || "["+s.End+"]" == FramesMissing {
		return ""
	}
	return "[truncated: " + s.End + "]"
}
