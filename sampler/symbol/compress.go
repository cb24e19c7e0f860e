package symbol

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// maxZstdWindow is what a zstd stream may ask us to keep: the format's own
// recommendation for decoders is 8 MiB, --ultra goes to 128 MiB.
const maxZstdWindow = 128 << 20

// data returns the contents of a section, decompressed. limit bounds the result
// and is checked before anything is allocated.
func (im *image) data(s *section, limit int64) ([]byte, error) {
	if s == nil || s.size == 0 {
		return nil, errNoSection
	}
	switch {
	case s.flags&elf.SHF_COMPRESSED != 0:
		return im.compressed(s, limit)
	case strings.HasPrefix(s.name, ".zdebug_"):
		return im.zdebug(s, limit)
	}
	if s.size > limit {
		return nil, &FormatError{s.off, "section " + s.name + " is too large", uint64(s.size)}
	}
	b := make([]byte, s.size)
	if err := readFull(im.f, b, s.off); err != nil {
		return nil, fmt.Errorf("read section %s: %w", s.name, err)
	}
	return b, nil
}

// compressed reads a section that begins with Elf64_Chdr or Elf32_Chdr (gABI
// chapter 4, "Section Compression").
func (im *image) compressed(s *section, limit int64) ([]byte, error) {
	var h [24]byte
	n := int64(12)
	if im.is64 {
		n = 24
	}
	if s.size < n {
		return nil, &FormatError{s.off, "section " + s.name + " is too short for a compression header", uint64(s.size)}
	}
	if err := readFull(im.f, h[:n], s.off); err != nil {
		return nil, fmt.Errorf("read section %s: %w", s.name, err)
	}
	typ, size := elf.CompressionType(im.order.Uint32(h[:])), uint64(im.order.Uint32(h[4:]))
	if im.is64 {
		size = im.order.Uint64(h[8:])
	}
	src := io.NewSectionReader(im.f, s.off+n, s.size-n)
	switch typ {
	case elf.COMPRESS_ZLIB:
		return inflate(s, src, size, limit)
	case elf.COMPRESS_ZSTD:
		d, err := zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err != nil {
			return nil, fmt.Errorf("section %s: %w", s.name, err)
		}
		defer d.Close()
		return expand(s, d, size, limit)
	}
	return nil, &FormatError{s.off, "section " + s.name + " is compressed in an unknown way", uint64(typ)}
}

// zdebug reads a section in GNU's older form: "ZLIB", the size in 8 bytes
// big-endian, a zlib stream.
func (im *image) zdebug(s *section, limit int64) ([]byte, error) {
	var h [12]byte
	if s.size < 12 {
		return nil, &FormatError{s.off, "section " + s.name + " is too short for a compression header", uint64(s.size)}
	}
	if err := readFull(im.f, h[:], s.off); err != nil {
		return nil, fmt.Errorf("read section %s: %w", s.name, err)
	}
	if string(h[:4]) != "ZLIB" {
		return nil, &FormatError{s.off, "section " + s.name + " has no ZLIB header", uint64(binary.BigEndian.Uint32(h[:]))}
	}
	src := io.NewSectionReader(im.f, s.off+12, s.size-12)
	return inflate(s, src, binary.BigEndian.Uint64(h[4:]), limit)
}

func inflate(s *section, src io.Reader, size uint64, limit int64) ([]byte, error) {
	z, err := zlib.NewReader(src)
	if err != nil {
		return nil, fmt.Errorf("section %s: %w", s.name, err)
	}
	defer z.Close()
	return expand(s, z, size, limit)
}

// expand reads the size bytes that a header claims. The buffer grows with what
// really comes, for a header may claim anything.
func expand(s *section, r io.Reader, size uint64, limit int64) ([]byte, error) {
	if size > uint64(limit) {
		return nil, &FormatError{s.off, "section " + s.name + " is too large", size}
	}
	// No compression here exceeds 1:1100 by much for long (deflate's bound is
	// 1:1032), so a claim in that range is allocated at once.
	var b bytes.Buffer
	if size <= 1100*uint64(s.size) {
		b.Grow(int(size))
	}
	n, err := io.Copy(&b, io.LimitReader(r, int64(size)))
	if err != nil {
		return nil, fmt.Errorf("section %s: %w", s.name, err)
	}
	if uint64(n) != size {
		return nil, &FormatError{s.off, "section " + s.name + " is shorter than its header says", uint64(n)}
	}
	return b.Bytes(), nil
}
