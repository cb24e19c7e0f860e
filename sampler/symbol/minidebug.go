package symbol

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/ulikunitz/xz/lzma"

	"sfsample/internal/late"
)

const (
	// maxMiniDebug bounds .gnu_debugdata before it is expanded. It holds symbols only.
	maxMiniDebug = 16 << 20
	// maxXZDict is half of what may be expanded in memory at all. The presets of xz
	// up to -8 have no larger dictionary; the default is 8 MiB.
	maxXZDict = 32 << 20
)

// miniDebug expands .gnu_debugdata (GDB manual, "MiniDebugInfo") and opens the
// ELF file in it. It returns errNoSection if there is none.
func (im *image) miniDebug() (*image, error) {
	b, err := im.data(im.sections.named(".gnu_debugdata"), maxMiniDebug)
	if err != nil {
		return nil, err
	}
	x, err := unxz(im.until, b)
	if err != nil {
		return nil, fmt.Errorf("expand .gnu_debugdata: %w", err)
	}
	d, err := openImage(x, im.until)
	if err != nil {
		x.free()
		return nil, err
	}
	d.expanded = x
	return d, nil
}

// unxz expands the first block of an .xz stream of one LZMA2 filter, which is
// what the xz program writes for less than 24 MiB. The headers are read here
// because the xz package allocates whatever dictionary they ask for, up to
// 4 GiB. Check values are not compared: what comes out is an untrusted ELF file
// either way. The format is that of "The .xz File Format" 1.1, sections 2.1.1
// and 3.1.
func unxz(until *late.Time, b []byte) (*pieces, error) {
	const streamHeader = 12
	if len(b) < streamHeader+12 || string(b[:6]) != "\xfd7zXZ\x00" {
		return nil, &FormatError{0, "not an xz stream", uint64(len(b))}
	}
	h := b[streamHeader:]
	size := (int(h[0]) + 1) * 4
	if h[0] == 0 || size > len(h) {
		return nil, &FormatError{streamHeader, "xz block header leaves the stream", uint64(size)}
	}
	flags, p := h[1], h[2:size]
	for _, has := range []byte{0x40, 0x80} { // compressed size, uncompressed size
		if flags&has != 0 {
			_, n := binary.Uvarint(p)
			if n <= 0 {
				return nil, &FormatError{streamHeader, "xz block size is damaged", uint64(flags)}
			}
			p = p[n:]
		}
	}
	const lzma2 = 0x21
	if flags&3 != 0 || len(p) < 3 || p[0] != lzma2 || p[1] != 1 {
		return nil, &FormatError{streamHeader, "xz block is not plain LZMA2", uint64(flags)}
	}
	dict, err := lzma.DecodeDictCap(p[2])
	if err != nil || dict > maxXZDict {
		return nil, &FormatError{streamHeader, "xz dictionary is too large", uint64(p[2])}
	}
	cfg := lzma.Reader2Config{DictCap: int(max(dict, lzma.MinDictCap))}
	if err := inMemory.take(int64(cfg.DictCap)); err != nil {
		return nil, err
	}
	defer inMemory.give(int64(cfg.DictCap))
	r, err := cfg.NewReader2(bytes.NewReader(h[size:]))
	if err != nil {
		return nil, err
	}
	return expandInMemory(until.Reader(r))
}

// debugLink reads .gnu_debuglink: a file name and the CRC-32 of that file (GDB
// manual, "Separate Debug Files").
func (im *image) debugLink() (name string, crc uint32, ok bool) {
	b, err := im.data(im.sections.named(".gnu_debuglink"), maxSmallSection)
	if err != nil {
		return "", 0, false
	}
	name = cstring(b, 0, 4096)
	crcOff := (len(name) + 4) &^ 3
	if name == "" || len(b) < crcOff+4 {
		return "", 0, false
	}
	return name, im.order.Uint32(b[crcOff:]), true
}
