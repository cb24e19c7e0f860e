// Package leb128 reads the numbers of variable length of DWARF, LEB128 (DWARF 5
// section 7.6). A number may be padded to any length.
package leb128

// Unsigned reads the unsigned number that b begins with and returns its length.
// The length is 0 if b ends before the number does, and negative if the number
// exceeds 64 bits, of which v is the low ones.
func Unsigned(b []byte) (v uint64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return unsigned(b)
}

func unsigned(b []byte) (v uint64, n int) {
	fits := 1
	for i, c := range b {
		low, shift := uint64(c&0x7f), 7*i
		v |= low << shift
		if low<<shift>>shift != low {
			fits = -1
		}
		if c < 0x80 {
			return v, fits * (i + 1)
		}
	}
	return 0, 0
}

// Signed is Unsigned for signed numbers.
func Signed(b []byte) (v int64, n int) {
	fits := 1
	for i, c := range b {
		low, shift := int64(c&0x7f), 7*i
		v |= low << shift
		// From the 64th bit on, all bits must be equal: they are the sign.
		if shift >= 63 && low != v>>63&0x7f {
			fits = -1
		}
		if c < 0x80 {
			if c&0x40 != 0 {
				v |= -1 << (shift + 7)
			}
			return v, fits * (i + 1)
		}
	}
	return 0, 0
}
