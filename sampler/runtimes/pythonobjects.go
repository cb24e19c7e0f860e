package runtimes

import (
	"encoding/binary"
	"io"
)

// pyObjects reads objects of CPython.
type pyObjects struct {
	minor                   int    // of version 3
	code, text, bytes, dict uint64 // addresses of their types
}

// alive tells whether b is the beginning of an object of a type: allocators put pointers where its count of references was when it is freed. The count
// has 32 bits since 3.12, with flags in the upper 16 bits since 3.14.
func (o *pyObjects) alive(b []byte, typ uint64) bool {
	refs := word(b, 0)
	if o.minor >= 14 {
		refs &= 1<<48 - 1
	}
	return refs != 0 && refs < 1<<32 && word(b, 8) == typ
}

// Bounds of names and tables, in bytes.
const (
	maxText  = 4 << 10
	maxTable = 1 << 20
)

// string is a str object.
func (o *pyObjects) string(mem io.ReaderAt, addr uint64) (string, bool) {
	// PyASCIIObject: length 16, hash 24, state 32: kind in bits 2 to 4, compact in bit 5, ascii in bit 6.
	b := read(mem, addr, 40)
	if b == nil || !o.alive(b, o.text) {
		return "", false
	}
	state := word32(b, 32)
	kind, data := int(state>>2&7), addr+40
	if state&(1<<5) == 0 || kind != 1 && kind != 2 && kind != 4 {
		return "", false
	}
	if o.minor < 12 { // which had wstr too
		data += 8
	}
	if state&(1<<6) == 0 {
		data += 16
		if o.minor < 12 { // PyCompactUnicodeObject had wstr_length too
			data += 8
		}
	}
	n := word(b, 16)
	if n == 0 {
		return "", true
	}
	cut := n > maxText
	raw := read(mem, data, int(min(n, maxText))*kind)
	if raw == nil {
		return "", false
	}
	runes := make([]rune, 0, len(raw)/kind)
	for i := 0; i+kind <= len(raw); i += kind {
		switch kind {
		case 1:
			runes = append(runes, rune(raw[i]))
		case 2:
			runes = append(runes, rune(binary.NativeEndian.Uint16(raw[i:])))
		default:
			runes = append(runes, rune(binary.NativeEndian.Uint32(raw[i:])&0x7fffffff))
		}
	}
	if cut {
		runes = append(runes, '…')
	}
	return string(runes), true
}

// byteString is a bytes object: size 16, data 32.
func (o *pyObjects) byteString(mem io.ReaderAt, addr uint64) ([]byte, bool) {
	b := read(mem, addr, 24)
	if b == nil || !o.alive(b, o.bytes) || word(b, 16) > maxTable {
		return nil, false
	}
	if word(b, 16) == 0 {
		return nil, true
	}
	t := read(mem, addr+32, int(word(b, 16)))
	return t, t != nil
}

// nameEntries is among how many of the first names of a module its own is looked for: modules begin with it (PyModule_NewObject).
const nameEntries = 8

// nameReads is how often that is looked for: of a dict that grows the thread moves the names meanwhile (dictresize, Objects/dictobject.c).
const nameReads = 4

// module is the value of __name__ in a dict, empty if it is not found.
func (o *pyObjects) module(mem io.ReaderAt, dict uint64) (name string) {
	for range nameReads {
		if name = o.moduleOnce(mem, dict); name != "" {
			break
		}
	}
	return name
}

func (o *pyObjects) moduleOnce(mem io.ReaderAt, dict uint64) string {
	b := read(mem, dict, 48) // PyDictObject: ma_keys 32, ma_values 40
	if b == nil || word(b, 8) != o.dict || word(b, 40) != 0 {
		return ""
	}
	keys := word(b, 32)
	if b = read(mem, keys, 40); b == nil {
		return ""
	}
	// PyDictKeysObject, since 3.11: log2 of the indices' bytes at 9, kind at 10, indices at 32; before: their number at 8,
	// indices at 40. Entries are hash, key, value, or key, value of kind 1.
	var entries uint64
	size := 24
	if o.minor >= 11 {
		if b[9] > 32 {
			return ""
		}
		entries = keys + 32 + 1<<b[9]
		if b[10] == 1 {
			size = 16
		}
	} else {
		n := word(b, 8)
		width := uint64(8)
		switch {
		case n <= 0xff:
			width = 1
		case n <= 0xffff:
			width = 2
		case n <= 0xffffffff:
			width = 4
		default:
			return ""
		}
		entries = keys + 40 + n*width
	}
	for i := range nameEntries {
		e := read(mem, entries+uint64(i*size), size)
		if e == nil {
			return ""
		}
		if key, ok := o.string(mem, word(e, size-16)); ok && key == "__name__" {
			v, _ := o.string(mem, word(e, size-8))
			return v
		}
	}
	return ""
}
