package leb128

import (
	"bytes"
	"math/big"
	"testing"
)

// TestExamples are those of DWARF 5 section 7.6, and the limits.
func TestExamples(t *testing.T) {
	for _, tt := range []struct {
		b    []byte
		want uint64
		n    int
	}{
		{[]byte{2}, 2, 1},
		{[]byte{127}, 127, 1},
		{[]byte{0 + 0x80, 1}, 128, 2},
		{[]byte{1 + 0x80, 1}, 129, 2},
		{[]byte{57 + 0x80, 100}, 12857, 2},
		{[]byte{57 + 0x80, 100, 99}, 12857, 2}, // what follows is not its own
		{[]byte{2 + 0x80, 0x80, 0}, 2, 3},      // padded
		{nil, 0, 0},
		{[]byte{0x80, 0x80}, 0, 0},
		{append(bytes.Repeat([]byte{0xff}, 9), 1), 1<<64 - 1, 10},
		{append(bytes.Repeat([]byte{0x80}, 9), 2), 0, -10},
		{append(bytes.Repeat([]byte{0x81}, 12), 1), 0x8102040810204081, -13},
	} {
		if v, n := Unsigned(tt.b); v != tt.want || n != tt.n {
			t.Errorf("Unsigned(% x) = %#x, %d; want %#x, %d", tt.b, v, n, tt.want, tt.n)
		}
	}
	for _, tt := range []struct {
		b    []byte
		want int64
		n    int
	}{
		{[]byte{2}, 2, 1},
		{[]byte{0x7e}, -2, 1},
		{[]byte{127 + 0x80, 0}, 127, 2},
		{[]byte{1 + 0x80, 0x7f}, -127, 2},
		{[]byte{0 + 0x80, 1}, 128, 2},
		{[]byte{0 + 0x80, 0x7f}, -128, 2},
		{[]byte{1 + 0x80, 1}, 129, 2},
		{[]byte{0x7f + 0x80, 0x7e}, -129, 2},
		{[]byte{0x7e + 0x80, 0xff, 0x7f}, -2, 3}, // padded
		{nil, 0, 0},
		{[]byte{0xff}, 0, 0},
		{append(bytes.Repeat([]byte{0xff}, 9), 0), 1<<63 - 1, 10},
		{append(bytes.Repeat([]byte{0x80}, 9), 0x7f), -1 << 63, 10},
	} {
		if v, n := Signed(tt.b); v != tt.want || n != tt.n {
			t.Errorf("Signed(% x) = %d, %d; want %d, %d", tt.b, v, n, tt.want, tt.n)
		}
	}
}

// FuzzNumbers: both readers give what arithmetic without a limit does.
func FuzzNumbers(f *testing.F) {
	for _, end := range []byte{0, 1, 2, 0x3f, 0x40, 0x7e, 0x7f} {
		for _, fill := range []byte{0x80, 0xc0, 0xff} {
			for n := range 13 {
				f.Add(append(bytes.Repeat([]byte{fill}, n), end))
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		size := 0 // of the number; 0: it has no end
		for i, c := range b {
			if c&0x80 == 0 {
				size = i + 1
				break
			}
		}
		sum := new(big.Int)
		for i := size - 1; i >= 0; i-- {
			sum.Lsh(sum, 7).Or(sum, big.NewInt(int64(b[i]&0x7f)))
		}
		v, n := Unsigned(b)
		low := new(big.Int).And(sum, new(big.Int).SetUint64(1<<64-1)).Uint64()
		if want := signedIf(size, sum.IsUint64()); v != low || n != want {
			t.Fatalf("Unsigned(% x) = %#x, %d; want %#x, %d", b, v, n, low, want)
		}
		if size > 0 && b[size-1]&0x40 != 0 {
			sum.Sub(sum, new(big.Int).Lsh(big.NewInt(1), uint(7*size)))
		}
		low = new(big.Int).And(sum, new(big.Int).SetUint64(1<<64-1)).Uint64()
		s, n := Signed(b)
		if want := signedIf(size, sum.IsInt64()); uint64(s) != low || n != want {
			t.Fatalf("Signed(% x) = %d, %d; want %d, %d", b, s, n, int64(low), want)
		}
	})
}

// signedIf is size, negative if the number does not fit.
func signedIf(size int, fits bool) int {
	if !fits {
		return -size
	}
	return size
}
