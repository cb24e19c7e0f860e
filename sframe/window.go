package sframe

import (
	"fmt"
	"io"
	"sync"
)

// window reads a section piece by piece through a small buffer: a section may
// be read out of another process, where each read is a system call, and may
// change or vanish meanwhile, so that nothing is assumed to be there twice.
type window struct {
	r    io.ReaderAt
	size uint64 // of the section
	off  uint64 // of buf in the section
	n    int    // bytes of buf that hold something
	buf  [4096]byte
}

// Windows are pooled, since a buffer that goes through an io.ReaderAt is
// always on the heap.
var windows = sync.Pool{New: func() any { return new(window) }}

func (s *Section) window() *window {
	w := windows.Get().(*window)
	w.r, w.size, w.n = s.r, s.size, 0
	return w
}

func (w *window) release() {
	w.r = nil
	windows.Put(w)
}

// at returns n bytes of the section from off on, valid until the next call.
// What is not in the buffer is read, and up to ahead bytes with it; that these
// cannot be had is no error. n is at most the size of the buffer.
func (w *window) at(off uint64, n, ahead int) ([]byte, error) {
	if d := off - w.off; off >= w.off && d <= uint64(w.n) && uint64(n) <= uint64(w.n)-d {
		return w.buf[d:][:n], nil
	}
	if off > w.size || uint64(n) > w.size-off {
		return nil, bad(off, "runs past the section", uint64(n))
	}
	want := min(max(n, ahead), len(w.buf))
	want = int(min(uint64(want), w.size-off))
	got, err := w.r.ReadAt(w.buf[:want], int64(off))
	w.off, w.n = off, max(got, 0)
	if got < n {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read section at offset %#x: %w", off, err)
	}
	return w.buf[:n], nil
}
