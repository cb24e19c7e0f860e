package symbol

import (
	"bytes"
	"compress/zlib"
	"debug/elf"
	"encoding/binary"
	"io"
	"syscall"
	"testing"

	"github.com/klauspost/compress/zstd"

	"sfsample/internal/late"
)

// compressedSection is a file of one compressed section, whose header claims
// size bytes.
func compressedSection(t *testing.T, typ elf.CompressionType, contents []byte, size uint64) (*image, *section) {
	t.Helper()
	var b bytes.Buffer
	for _, v := range []any{uint32(typ), uint32(0), size, uint64(1)} { // Elf64_Chdr
		if err := binary.Write(&b, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	var w io.WriteCloser = zlib.NewWriter(&b)
	if typ == elf.COMPRESS_ZSTD {
		var err error
		if w, err = zstd.NewWriter(&b); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Write(contents); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	im := &image{f: late.Open(nil, bytes.NewReader(b.Bytes())), order: binary.LittleEndian, is64: true}
	im.sections = []section{{name: ".debug_info", typ: elf.SHT_PROGBITS, flags: elf.SHF_COMPRESSED, size: int64(b.Len())}}
	return im, &im.sections[0]
}

// Large sections are expanded to a file that has no name, whatever a header
// claims.
func TestExpandToFile(t *testing.T) {
	contents := bytes.Repeat([]byte("0123456789abcde\n"), maxExpanded/16+1)
	size := uint64(len(contents))
	for name, typ := range map[string]elf.CompressionType{"zlib": elf.COMPRESS_ZLIB, "zstd": elf.COMPRESS_ZSTD} {
		t.Run(name, func(t *testing.T) {
			im, _ := compressedSection(t, typ, contents, size)
			s := im.debugSection("info")
			if s.tmp == nil || s.mem != nil || s.size != size {
				t.Fatalf("section of %d bytes in file %v, %d in memory; want a file of %d", s.size, s.tmp, len(s.mem), size)
			}
			defer s.tmp.Close()
			got, err := io.ReadAll(io.NewSectionReader(s.f, 0, s.f.Size()))
			if err != nil || !bytes.Equal(got, contents) {
				t.Errorf("%d bytes, %v; want the %d that were compressed", len(got), err, size)
			}
			info, err := s.tmp.Stat()
			if err != nil {
				t.Fatal(err)
			}
			if links := info.Sys().(*syscall.Stat_t).Nlink; links != 0 {
				t.Errorf("the file has %d names, want none", links)
			}
			im, _ = compressedSection(t, typ, contents[:maxExpanded], maxExpanded)
			if s := im.debugSection("info"); s.tmp != nil || len(s.mem) != maxExpanded {
				t.Errorf("a small section has %d bytes in memory, want %d and no file", len(s.mem), maxExpanded)
			}
			for _, claim := range []uint64{size + 1, maxSection, maxSection + 1, 1 << 62} {
				im, sec := compressedSection(t, typ, contents, claim)
				if f, _, err := im.expandToFile(sec); err == nil {
					f.Close()
					t.Errorf("%d bytes that claim to be %d were expanded", size, claim)
				}
			}
			im, sec := compressedSection(t, typ, contents, size-1)
			f, n, err := im.expandToFile(sec)
			if err != nil || n != int64(size-1) {
				t.Fatalf("%d bytes, %v; want the %d that the header tells", n, err, size-1)
			}
			f.Close()
		})
	}
}
