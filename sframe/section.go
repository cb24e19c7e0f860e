package sframe

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"sync/atomic"
)

// Section is an open SFrame section. It may be used by any number of goroutines
// at once, if its reader may.
type Section struct {
	r     io.ReaderAt
	addr  uint64
	size  uint64
	first *image

	mu     sync.Mutex // one goroutine at a time builds a layout
	layout atomic.Pointer[layout]
	cache  cache
}

// layout is what is known about the section beyond its first header.
type layout struct {
	images []*image
	// tail is what is wrong behind the last image.
	tail error
	// index has the functions of all images by start; nil if the table of the
	// only image can be searched as it is.
	index []place
}

// Open reads the header of a section of size bytes, whose first byte is at
// offset 0 of r and at the virtual address addr. Addresses asked for and
// answered are of addr's kind: of the file or of the process.
//
// Nothing but the header is read now, and later only what a question needs, so
// r may be the memory of a process. The error is [ErrEmpty], a *[FormatError]
// with Whole set, or that of r.
func Open(r io.ReaderAt, addr, size uint64) (*Section, error) {
	if size == 0 {
		return nil, ErrEmpty
	}
	s := &Section{r: r, addr: addr, size: min(size, math.MaxInt64)}
	w := s.window()
	defer w.release()
	var err error
	s.first, err = s.header(w, 0)
	if err != nil {
		return nil, err
	}
	s.cache.begin(addr)
	return s, nil
}

// header reads and checks the header at secOff.
func (s *Section) header(w *window, secOff uint64) (*image, error) {
	if s.size-secOff < headerBytes {
		return nil, badWhole(secOff, "shorter than a header", s.size-secOff)
	}
	b, err := w.at(secOff, headerBytes, 0)
	if err != nil {
		return nil, err
	}
	if [headerBytes]byte(b) == [headerBytes]byte{} {
		return nil, ErrEmpty
	}
	return decodeHeader(b, s.addr, secOff, s.size)
}

// Header returns the header of the first image.
func (s *Section) Header() Header { return s.first.header }

// Version is that of the first image: 1, 2 or 3. Version 1 was written by one
// assembler only (binutils 2.40), and not always correctly: .eh_frame is the
// better source where it exists.
func (s *Section) Version() uint8 { return s.first.header.Version }

// ABI is that of all images.
func (s *Section) ABI() ABI { return s.first.header.ABI }

// Addr is the virtual address of the section, Size its length in bytes.
func (s *Section) Addr() uint64 { return s.addr }

// Size is the length in bytes that Open was given.
func (s *Section) Size() uint64 { return s.size }

// Image is one of the complete tables that a section holds.
type Image struct {
	SecOff uint64 // of its header in the section
	Header Header
}

// Images returns the tables of the section, one unless a linker that does not
// know the format has joined its inputs. The error says what is wrong behind
// the last of them; it may come together with images.
func (s *Section) Images() ([]Image, error) {
	l, err := s.chain()
	if err != nil {
		return nil, err
	}
	images := make([]Image, len(l.images))
	for i, img := range l.images {
		images[i] = Image{SecOff: img.secOff, Header: img.header}
	}
	return images, l.tail
}

// Bounds on what a section may make us keep: an image costs about 100 bytes, a
// place 16. A program of 200 MB of text has some 600,000 functions.
const (
	maxImages = 1 << 16
	maxIndex  = 1 << 20
)

// chain returns the layout, after looking for further images if nobody has
// done so. LLD, gold and GNU ld on inputs that it cannot merge concatenate
// sections of alignment 8.
func (s *Section) chain() (*layout, error) {
	if l := s.layout.Load(); l != nil {
		return l, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.layout.Load(); l != nil {
		return l, nil
	}
	w := s.window()
	defer w.release()
	l := &layout{images: []*image{s.first}}
	for off := s.first.next(); off < s.size && s.size-off >= headerBytes; {
		img, err := s.header(w, off)
		if err != nil {
			var fe *FormatError
			switch {
			case !errors.Is(err, ErrEmpty) && !errors.As(err, &fe):
				return nil, err // not read: perhaps next time
			case fe != nil && fe.SecOff != off: // a magic number, but no good header
				l.tail = &FormatError{SecOff: fe.SecOff, Text: fe.Text, Value: fe.Value}
			}
			break // padding, or other data: both are allowed
		}
		if img.header.ABI != s.first.header.ABI {
			l.tail = bad(off+4, "ABI is not that of the first table", uint64(img.header.ABI))
			break
		}
		if len(l.images) == maxImages {
			l.tail = bad(off, "more joined tables than are read", maxImages)
			break
		}
		img.num = len(l.images)
		l.images = append(l.images, img)
		off = img.next()
	}
	s.layout.Store(l)
	return l, nil
}

// next is the offset at which the image behind img would start.
func (img *image) next() uint64 { return (img.end + 7) &^ 7 }

// errUnsearchable: the index would not be bounded.
func errUnsearchable(n uint64) error {
	return badWhole(8, fmt.Sprintf("table is not sorted and has more than %d functions", maxIndex), n)
}
