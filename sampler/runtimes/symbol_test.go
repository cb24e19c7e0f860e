package runtimes

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// TestHotSpotSymbol: what is a name in a class file is one, and what memory holds that was a symbol's is none.
func TestHotSpotSymbol(t *testing.T) {
	l := new(hotspotLayout)
	l.names.symbolLen, l.names.symbolBody = 0, 6
	for _, tt := range []struct{ text, want string }{
		{"getAsLong", "getAsLong"},
		{"java/util/List", "java/util/List"},
		{"a\xc0\x80b", "a\x00b"},
		{"\xc3\xa4\xe2\x82\xac", "ä€"},
		{"\xed\xa0\xbd\xed\xb8\x80", "😀"},
		{"hot\x00000603", ""},
		{"\xf0\x9f\x98\x80", ""}, // not in this form
		{"x\xff", ""},
		{"", ""},
	} {
		mem := append(make([]byte, 14), tt.text...)
		binary.LittleEndian.PutUint16(mem[8:], uint16(len(tt.text)))
		if got := l.symbol(bytes.NewReader(mem), 8); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.text, got, tt.want)
		}
	}
}
