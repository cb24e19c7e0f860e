package procfs

import (
	"encoding/binary"
	"slices"
	"testing"
)

// dirent is a struct linux_dirent64 with a record length that may be a lie.
func dirent(name string, size int) []byte {
	b := make([]byte, 18, 64)
	binary.NativeEndian.PutUint16(b[16:], uint16(size))
	b = append(b, 4) // DT_DIR
	return append(b, name...)
}

// TestDirents: names that are ids, from records of any length; a length that
// cannot be ends the list.
func TestDirents(t *testing.T) {
	good := dirent("12\x00", 24)[:22]
	good = append(good, 0, 0) // padding up to the next record
	for _, tt := range []struct {
		name string
		b    []byte
		want []int
	}{
		{"two, the second to its last byte", slices.Concat(good, dirent("345", 22)), []int{12, 345}},
		{"no name", slices.Concat(dirent("", 19), good), []int{12}},
		{"not an id", slices.Concat(dirent("..\x00", 22), good), []int{12}},
		{"length within the head", slices.Concat(good, dirent("7\x00", 18), good), []int{12}},
		{"length 0", slices.Concat(good, dirent("7\x00", 0), good), []int{12}},
		{"length beyond the end", slices.Concat(good, dirent("7", 21)), []int{12}},
		{"cut head", good[:18], nil},
		{"nothing", nil, nil},
	} {
		if got := appendDirents(nil, tt.b); !slices.Equal(got, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}
