package runtimes

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/sampler/taking"
	"sfsample/unwind"
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

// areas is memory of which a read of several ends where one is not there.
type areas struct {
	taking.Kernel
	mem offset
}

func (k areas) Memory(_ int, addr uint64, b []byte) int {
	n, _ := k.mem.ReadAt(b, int64(addr))
	return n
}

func (k areas) Gather(tid int, from []unix.RemoteIovec, b []byte) (n int) {
	for _, f := range from {
		got := k.Memory(tid, uint64(f.Base), b[n:n+f.Len])
		if n += got; got < f.Len {
			break
		}
	}
	return n
}

// TestPythonLocked: who has the lock is known although what was foreseen is not there any more.
func TestPythonLocked(t *testing.T) {
	for minor, l := range pythonLayouts {
		if l.interpreters.attached == 0 {
			continue
		}
		p := &python{objects: pyObjects{minor: minor}, attached: 0x1f00, pythonLayout: l}
		b := make([]byte, 0x1000)
		binary.NativeEndian.PutUint64(b[l.state.threadID:], 0x7700)
		binary.NativeEndian.PutUint64(b[0xf00:], 0x1000)
		r := p.Recipe([]taking.Root{{Addr: 0x1000, Is: 0x7700}}, &Stack{Spans: []Span{{0x400, 64}}})
		buf := &taking.Buffer{Beyond: taking.Copy{Room: make([]byte, r.Room)}}
		taking.Follow(areas{mem: offset{b, 0x1000}}, 1, r, buf, -1)
		var mem Memory
		copied := buf.Beyond.Used()
		for _, x := range buf.Blocks[:buf.NBlocks] {
			mem = append(mem, unwind.Region{Addr: x.Addr, Bytes: copied[:x.Len]})
			copied = copied[x.Len:]
		}
		var st Stack
		if p.Frames(mem, nil, buf.Roots[:buf.NRoots], &st); !st.Locked {
			t.Errorf("3.%d: it has the lock, and is shown without", minor)
		}
	}
}
