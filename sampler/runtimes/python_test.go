package runtimes

import (
	"encoding/binary"
	"testing"
)

// TestPythonPassing: code that was compiled from text may soon be other code of the same addresses, where it has no number.
func TestPythonPassing(t *testing.T) {
	for minor, l := range pythonLayouts {
		for file, want := range map[string]bool{"<string>": minor < 12, "<frozen os>": false, "/a.py": false} {
			p := &python{objects: pyObjects{minor: minor, code: 1, text: 2, bytes: 3, dict: 4}, pythonLayout: l}
			b := make([]byte, 0x1000)
			put := func(at int, list ...uint64) {
				for i, v := range list {
					binary.NativeEndian.PutUint64(b[at+8*i:], v)
				}
			}
			put(0x100, 1, 1) // code
			put(0x100+l.code.file, 0x1400)
			put(0x100+l.code.name, 0x1500)
			if l.code.qualname >= 0 {
				put(0x100+l.code.qualname, 0x1500)
			}
			put(0x100+l.code.lines, 0x1600)
			put(0x600, 1, 3, 0) // bytes
			for at, text := range map[int]string{0x400: file, 0x500: "f"} {
				put(at, 1, 2, uint64(len(text)))
				binary.NativeEndian.PutUint32(b[at+32:], 1<<2|1<<5|1<<6)
				if minor < 12 {
					at += 8
				}
				copy(b[at+40:], text)
			}
			f := &Frame{Code: 0x1100}
			k, ok := p.Key(nil, rubbish(b), f)
			fn, named := p.Function(rubbish(b), f, k)
			if !ok || !named || fn.Name != "f" || fn.File != file || fn.Passing != want {
				t.Errorf("3.%d: %+v, has a key: %v, and a name: %v; want %s, passing: %v", minor, fn, ok, named, file, want)
			}
		}
	}
}
