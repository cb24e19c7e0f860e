package symbol

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
)

// What is expanded from compressed sections at one time, by all objects of the
// program: a few KB can claim, and be, any size. Symbols of MiniDebugInfo take 3 MB
// for the largest libraries of distributions. What units of debugging information are made into, while they are
// read: some bytes of an entry take a hundred then, and a Rust program in one unit of 100 MB some 180 MB.
var (
	inMemory = &budget{what: "compressed sections are not expanded to more than %d MB in memory", limit: 64 << 20}
	onDisk   = &budget{what: "compressed sections are not expanded to more than %d MB in files", limit: 512 << 20}
	inUnits  = &budget{what: "units of debugging information are not read into more than %d MB in memory", limit: 192 << 20}
)

// budget is a bound on bytes, for any number of goroutines.
type budget struct {
	what  string // what is told, with %d for limit in MB
	limit int64

	mu      sync.Mutex
	used    int64
	refused bool
}

// take takes n bytes, which are to be given back.
func (b *budget) take(n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n < 0 || n > b.limit-b.used {
		b.refused = true
		return errors.New(b.text())
	}
	b.used += n
	return nil
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
}

func (b *budget) text() string { return fmt.Sprintf(b.what, b.limit>>20) }

// claim is what one goroutine takes of inUnits, for many small things.
type claim struct {
	used, taken int64
	refused     bool
}

// take is false if there is no room for n bytes.
func (c *claim) take(n int) bool {
	const step = 64 << 10
	if c.used += int64(n); c.used <= c.taken {
		return true
	}
	more := max(c.used-c.taken, step)
	if inUnits.take(more) != nil {
		c.refused = true
		return false
	}
	c.taken += more
	return true
}

// free gives all of it back. It reports whether there was no room for some.
func (c *claim) free() (refused bool) {
	inUnits.give(c.taken)
	refused, *c = c.refused, claim{}
	return refused
}

// Refused lists the bounds that were met so far, for a report. Names, inlined functions or lines are missing for
// that.
func Refused() (list []string) {
	for _, b := range []*budget{inMemory, onDisk, inUnits} {
		b.mu.Lock()
		if b.refused {
			list = append(list, b.text())
		}
		b.mu.Unlock()
	}
	return list
}

// pieces is what is expanded in memory, in parts of equal size but for the last: to
// grow takes no copy.
type pieces struct {
	list [][]byte
	size int64
}

const pieceBytes = 64 << 10

// expandInMemory reads r to its end. What that takes is of the budget.
func expandInMemory(r io.Reader) (p *pieces, err error) {
	p = new(pieces)
	b := make([]byte, pieceBytes)
	for {
		n, err := io.ReadFull(r, b)
		last := err == io.EOF || err == io.ErrUnexpectedEOF
		if err == nil || last {
			err = inMemory.take(int64(n))
		}
		if err != nil {
			p.free()
			return nil, err
		}
		p.list, p.size = append(p.list, bytes.Clone(b[:n])), p.size+int64(n)
		if last {
			return p, nil
		}
	}
}

// free gives back what the pieces take.
func (p *pieces) free() {
	inMemory.give(p.size)
	p.list, p.size = nil, 0
}

// Size is in bytes.
func (p *pieces) Size() int64 { return p.size }

// ReadAt implements io.ReaderAt.
func (p *pieces) ReadAt(b []byte, off int64) (n int, err error) {
	for n < len(b) {
		if off < 0 || off >= p.size {
			return n, io.EOF
		}
		k := copy(b[n:], p.list[off/pieceBytes][off%pieceBytes:])
		n, off = n+k, off+int64(k)
	}
	return n, nil
}
