package symbol

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"sfsample/internal/late"
)

// maxZstdWindow is what a zstd stream may ask us to keep: the format's own
// recommendation for decoders (RFC 8878, section 3.1.1.1.2).
const maxZstdWindow = 8 << 20

// maxExpanded is how much of a compressed section is expanded into memory.
// Larger ones, which debugging information of a few MB can be, go to a file.
const maxExpanded = 4 << 20

// expandToFile expands a compressed section into a file without name. The caller
// closes it and gives its size back to onDisk. It is nil if the section is small:
// see data.
func (im *image) expandToFile(s *section) (*os.File, int64, error) {
	r, size, err := im.expander(s)
	if err != nil || size <= maxExpanded {
		if err == nil {
			r.Close()
		}
		return nil, 0, err
	}
	defer r.Close()
	if err := onDisk.take(int64(min(size, math.MaxInt64))); err != nil {
		return nil, 0, fmt.Errorf("expand section %s: %w", s.name, err)
	}
	f, err := tempFile(int64(size))
	if err != nil {
		onDisk.give(int64(size))
		return nil, 0, fmt.Errorf("expand section %s: %w", s.name, err)
	}
	n, err := io.Copy(f, io.LimitReader(im.until.Reader(r), int64(size)))
	if err == nil && uint64(n) != size {
		err = &FormatError{s.off, "section " + s.name + " is shorter than its header says", uint64(n)}
	}
	if err != nil {
		f.Close()
		onDisk.give(int64(size))
		return nil, 0, fmt.Errorf("expand section %s: %w", s.name, err)
	}
	return f, n, nil
}

// tempFile makes a file that is gone when it is closed. /var/tmp comes first:
// /tmp can be memory. It is refused where it would take more than a quarter of
// what is free.
func tempFile(size int64) (*os.File, error) {
	err := error(fs.ErrNotExist)
	for _, dir := range []string{"/var/tmp", os.TempDir()} {
		var vol unix.Statfs_t
		if err = unix.Statfs(dir, &vol); err != nil {
			continue
		}
		if free := vol.Bavail * uint64(vol.Bsize); uint64(size) > free/4 {
			err = fmt.Errorf("%s has %d MB left, of which %d MB would be used", dir, free>>20, size>>20)
			continue
		}
		var f *os.File
		if f, err = os.CreateTemp(dir, "sfsample-*"); err != nil {
			continue
		}
		if err = os.Remove(f.Name()); err != nil {
			f.Close()
			continue
		}
		return f, nil
	}
	return nil, err
}

// data returns the contents of a section, decompressed. limit bounds the result
// and is checked before anything is allocated.
func (im *image) data(s *section, limit int64) ([]byte, error) {
	if s == nil || s.size == 0 {
		return nil, errNoSection
	}
	if s.isCompressed() {
		r, size, err := im.expander(s)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		if size > uint64(limit) {
			return nil, &FormatError{s.off, "section " + s.name + " is too large", size}
		}
		if err := inMemory.take(int64(size)); err != nil {
			return nil, fmt.Errorf("expand section %s: %w", s.name, err)
		}
		im.taken += int64(size)
		return expand(s, im.until.Reader(r), size)
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

func (s *section) isCompressed() bool {
	return s.flags&elf.SHF_COMPRESSED != 0 || strings.HasPrefix(s.name, ".zdebug_")
}

// expander returns what a compressed section expands to, and the size that its
// header claims.
func (im *image) expander(s *section) (r io.ReadCloser, size uint64, err error) {
	if s.flags&elf.SHF_COMPRESSED != 0 {
		return im.compressed(s)
	}
	return im.zdebug(s)
}

// compressed reads a section that begins with Elf64_Chdr or Elf32_Chdr (gABI
// chapter 4, "Section Compression").
func (im *image) compressed(s *section) (r io.ReadCloser, size uint64, err error) {
	var h [24]byte
	n := int64(12)
	if im.is64 {
		n = 24
	}
	if s.size < n {
		return nil, 0, &FormatError{s.off, "section " + s.name + " is too short for a compression header", uint64(s.size)}
	}
	if err := readFull(im.f, h[:n], s.off); err != nil {
		return nil, 0, fmt.Errorf("read section %s: %w", s.name, err)
	}
	typ := elf.CompressionType(im.order.Uint32(h[:]))
	size = uint64(im.order.Uint32(h[4:]))
	if im.is64 {
		size = im.order.Uint64(h[8:])
	}
	src := io.NewSectionReader(im.f, s.off+n, s.size-n)
	switch typ {
	case elf.COMPRESS_ZLIB:
		r, err = zlib.NewReader(src)
	case elf.COMPRESS_ZSTD:
		var d *zstd.Decoder
		d, err = zstd.NewReader(src, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxZstdWindow))
		if err == nil {
			r = d.IOReadCloser()
		}
	default:
		return nil, 0, &FormatError{s.off, "section " + s.name + " is compressed in an unknown way", uint64(typ)}
	}
	if err != nil {
		return nil, 0, fmt.Errorf("section %s: %w", s.name, err)
	}
	return r, size, nil
}

// zdebug reads a section in GNU's older form: "ZLIB", the size in 8 bytes
// big-endian, a zlib stream.
func (im *image) zdebug(s *section) (r io.ReadCloser, size uint64, err error) {
	var h [12]byte
	if s.size < 12 {
		return nil, 0, &FormatError{s.off, "section " + s.name + " is too short for a compression header", uint64(s.size)}
	}
	if err := readFull(im.f, h[:], s.off); err != nil {
		return nil, 0, fmt.Errorf("read section %s: %w", s.name, err)
	}
	if string(h[:4]) != "ZLIB" {
		return nil, 0, &FormatError{s.off, "section " + s.name + " has no ZLIB header", uint64(binary.BigEndian.Uint32(h[:]))}
	}
	r, err = zlib.NewReader(io.NewSectionReader(im.f, s.off+12, s.size-12))
	if err != nil {
		return nil, 0, fmt.Errorf("section %s: %w", s.name, err)
	}
	return r, binary.BigEndian.Uint64(h[4:]), nil
}

// expand reads the size bytes that a header claims. The buffer grows with what
// really comes, for a header may claim anything.
func expand(s *section, r io.Reader, size uint64) ([]byte, error) {
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

// DebugFrame returns the contents of the .debug_frame of a file, decompressed, of up to limit bytes.
func DebugFrame(f File, limit int64, until *late.Time) ([]byte, error) {
	im, err := openImage(f, until)
	if err != nil {
		return nil, err
	}
	defer im.release()
	return im.data(im.sections.debug("frame"), limit)
}
