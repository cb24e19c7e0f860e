package runtimes

// lnotab is co_lnotab up to 3.9: pairs of what is added to the instruction's offset and, signed, to the line
// (Objects/lnotab_notes.txt). Instructions count from f_lasti, -1 before the first.
type lnotab []byte

func (t lnotab) line(at uint64, first int) int {
	lasti, addr, line := int64(at), int64(0), first
	for i := 0; i+1 < len(t); i += 2 {
		if addr += int64(t[i]); addr > lasti {
			break
		}
		line += int(int8(t[i+1]))
	}
	return line
}

// linetable310 is co_linetable of 3.10: pairs of the bytes that a line takes and, signed, its distance from the one before; -128 is
// no line (Objects/lnotab_notes.txt). f_lasti counts instructions of two bytes.
type linetable310 []byte

func (t linetable310) line(at uint64, first int) int {
	lasti, addr, line := 2*int64(at), int64(0), first
	if lasti < 0 {
		return first
	}
	for i := 0; i+1 < len(t); i += 2 {
		delta := int(int8(t[i+1]))
		none := delta == -128
		if !none {
			line += delta
		}
		if addr += int64(t[i]); lasti < addr {
			if none {
				return 0
			}
			return line
		}
	}
	return 0
}

// locations is co_linetable since 3.11 (Objects/locations.md): entries that begin with a byte whose bit 7 is set. code is the address of
// the first instruction.
type locations struct {
	code  uint64
	table []byte
}

func (t locations) line(at uint64, first int) int {
	unit, line := uint64(0), first
	want := (at - t.code) / 2
	if at < t.code { // before the first instruction
		return first
	}
	for b := t.table; len(b) > 0; {
		head := b[0]
		if head&0x80 == 0 {
			return 0
		}
		b = b[1:]
		kind, units := head>>3&15, uint64(head&7)+1
		none := false
		switch {
		case kind == 15:
			none = true
		case kind == 14 || kind == 13: // long, no columns
			var d int
			d, b = signedVarint(b)
			line += d
			if kind == 14 {
				for range 3 {
					_, b = varint(b)
				}
			}
		case kind >= 10: // one line
			line += int(kind) - 10
			b = b[min(2, len(b)):]
		default: // short
			b = b[min(1, len(b)):]
		}
		if unit += units; want < unit {
			if none {
				return 0
			}
			return line
		}
	}
	return 0
}

// varint reads a number of 6 bits a byte, the lowest first, bit 6 set in all but the last.
func varint(b []byte) (v uint, rest []byte) {
	for shift := uint(0); len(b) > 0; shift += 6 {
		c := b[0]
		b = b[1:]
		if shift < 32 {
			v |= uint(c&63) << shift
		}
		if c&64 == 0 {
			break
		}
	}
	return v, b
}

// signedVarint has the sign in the lowest bit.
func signedVarint(b []byte) (int, []byte) {
	v, b := varint(b)
	if v&1 != 0 {
		return -int(v >> 1), b
	}
	return int(v >> 1), b
}
