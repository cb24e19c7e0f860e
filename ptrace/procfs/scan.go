package procfs

import (
	"bytes"
	"math"
)

// The scanners below cut one item off the front of b and return the rest. They
// do without strings and strconv, which would allocate or copy.

// decimal reads an unsigned decimal number.
func decimal(b []byte) (n uint64, rest []byte, ok bool) {
	i := 0
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		d := uint64(b[i] - '0')
		if n > (math.MaxUint64-d)/10 {
			return 0, b, false
		}
		n = n*10 + d
	}
	return n, b[i:], i > 0
}

// signed reads a decimal number that may have a minus sign.
func signed(b []byte) (n int64, rest []byte, ok bool) {
	digits, neg := bytes.CutPrefix(b, []byte{'-'})
	u, rest, ok := decimal(digits)
	if !ok || u > math.MaxInt64 {
		return 0, b, false
	}
	if neg {
		return -int64(u), rest, true
	}
	return int64(u), rest, true
}

// hex reads a hexadecimal number without prefix, of up to 64 bits.
func hex(b []byte) (n uint64, rest []byte, ok bool) {
	i := 0
	for ; i < len(b); i++ {
		d, ok := hexDigit(b[i])
		if !ok {
			break
		}
		if n>>60 != 0 {
			return 0, b, false
		}
		n = n<<4 | d
	}
	return n, b[i:], i > 0
}

func hexDigit(c byte) (uint64, bool) {
	switch {
	case c >= '0' && c <= '9':
		return uint64(c - '0'), true
	case c >= 'a' && c <= 'f':
		return uint64(c-'a') + 10, true
	case c >= 'A' && c <= 'F':
		return uint64(c-'A') + 10, true
	}
	return 0, false
}

// prefixedHex reads a hexadecimal number that begins with 0x.
func prefixedHex(b []byte) (n uint64, rest []byte, ok bool) {
	digits, ok := bytes.CutPrefix(b, []byte("0x"))
	if !ok {
		return 0, b, false
	}
	return hex(digits)
}

// literal reads exactly the byte c.
func literal(b []byte, c byte) (rest []byte, ok bool) {
	if len(b) == 0 || b[0] != c {
		return b, false
	}
	return b[1:], true
}

// spaces skips blanks and tabs.
func spaces(b []byte) []byte {
	i := 0
	for i < len(b) && (b[i] == ' ' || b[i] == '\t') {
		i++
	}
	return b[i:]
}

// word reads up to the next blank or the end.
func word(b []byte) (w, rest []byte) {
	i := 0
	for i < len(b) && b[i] != ' ' && b[i] != '\t' && b[i] != '\n' {
		i++
	}
	return b[:i], b[i:]
}
