package runtimes

import (
	"bytes"
	"debug/elf"
	"os"
	"testing"

	"sfsample/internal/testprog"
)

// counted counts the bytes that are read of a file.
type counted struct {
	*os.File
	read int
}

func (c *counted) ReadAt(b []byte, off int64) (int, error) {
	c.read += len(b)
	return c.File.ReadAt(b, off)
}

// TestRecogniseHostile: a program that claims to have very many sections, or symbols, is no interpreter, and is not read for long.
func TestRecogniseHostile(t *testing.T) {
	for name, tt := range map[string]struct {
		headers  uint64
		sections []testprog.Section
	}{
		"headers": {1 << 17, nil},
		"symbols": {0, []testprog.Section{
			{Name: ".dynsym", Type: elf.SHT_DYNSYM, Size: 100 << 20, Ent: 24, Link: 2},
			{Name: ".dynstr", Type: elf.SHT_STRTAB, Size: 100 << 20}}},
		"versions": {0, []testprog.Section{
			{Name: ".dynsym", Type: elf.SHT_DYNSYM, Size: 24, Ent: 24, Link: 2},
			{Name: ".dynstr", Type: elf.SHT_STRTAB, Size: 100},
			{Name: ".gnu.version", Type: elf.SHT_GNU_VERSYM, Size: 100 << 20},
			{Name: ".gnu.version_r", Type: elf.SHT_GNU_VERNEED, Size: 100 << 20, Link: 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open(testprog.Sparse(t, testprog.Committed(t, "amd64", "ehframe", "deep"), tt.headers, tt.sections...))
			if err != nil {
				t.Fatal(err)
			}
			c := &counted{File: f}
			rt, err := Recognise(Object{Path: "/deep", Open: func() (File, error) { return c, nil }}, bytes.NewReader(nil))
			if rt != nil || err != nil || c.read > 1<<20 {
				t.Errorf("%v, %v; %d bytes read, want 1 MB at most", rt, err, c.read)
			}
		})
	}
}
