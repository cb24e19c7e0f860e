package symbol

import "bytes"

// maxName is how many bytes of a name are read. The longest mangled names of
// C++ and Rust programs reach a few KiB.
const maxName = 16 << 10

// stringTable reads strings out of a string table section, through a few pages
// of cache: neither the table nor a string for each symbol is kept. It is not
// safe for concurrent use.
type stringTable struct {
	f     File
	off   int64
	size  int64
	pages [strPages]strPage
	spare []byte // for names that cross a page
}

const (
	strPages    = 16
	strPageSize = 16 << 10
)

type strPage struct {
	no   int64 // number of the page + 1
	data []byte
}

// page returns the bytes of the page that holds offset off, from off on.
func (t *stringTable) page(off int64) []byte {
	no := off / strPageSize
	p := &t.pages[no%strPages]
	if p.no != no+1 {
		n := min(strPageSize, t.size-no*strPageSize)
		if int64(cap(p.data)) < n {
			p.data = make([]byte, n)
		}
		p.data = p.data[:n]
		p.no = no + 1
		if readFull(t.f, p.data, t.off+no*strPageSize) != nil {
			p.no = 0 // a disk may answer later
			return nil
		}
	}
	in := off % strPageSize
	if in >= int64(len(p.data)) {
		return nil
	}
	return p.data[in:]
}

// bytes returns the string at off without its NUL, at most maxName bytes of it.
// The result is valid until the next call.
func (t *stringTable) bytes(off uint32) []byte {
	pos := int64(off)
	if pos >= t.size {
		return nil
	}
	b := t.page(pos)
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	t.spare = t.spare[:0]
	for len(b) > 0 && len(t.spare) < maxName {
		i := bytes.IndexByte(b, 0)
		if i >= 0 {
			t.spare = append(t.spare, b[:i]...)
			break
		}
		t.spare = append(t.spare, b...)
		if pos += int64(len(b)); pos >= t.size {
			break
		}
		if b = t.page(pos); len(b) == 0 {
			return nil // half a name would be another one
		}
	}
	return t.spare[:min(len(t.spare), maxName)]
}

func (t *stringTable) name(off uint32) string {
	return string(t.bytes(off))
}

// nameCache keeps names by what they are of, up to maxHeld bytes.
type nameCache[K comparable] struct {
	names map[K]string
	held  int // bytes
}

// maxHeld bounds the names that one object keeps. Programs have been
// seen with 10,000 functions in one profile; at 200 bytes each that is 2 MB.
const maxHeld = 8 << 20

func (c *nameCache[K]) keep(k K, name string) {
	const overhead = 64 // of a map entry
	if c.held += len(name) + overhead; c.held > maxHeld || c.names == nil {
		c.names, c.held = map[K]string{}, len(name)+overhead
	}
	c.names[k] = name
}
