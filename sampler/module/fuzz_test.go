package module

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"sfsample/ptrace/procfs"
	"sfsample/sframe"
	"sfsample/unwind"
)

// fuzzHead is how much of an image's beginning bears on the readers: headers and
// tables. The section headers with names and symbols, at imgShdr, do so too; the
// rest does not take part in fuzzing.
const fuzzHead = 0x800

// whole makes a file of the two parts.
func whole(parts []byte) []byte {
	f := make([]byte, imgEnd)
	n := copy(f[:fuzzHead], parts)
	copy(f[imgShdr:], parts[n:])
	return f
}

// seeds are images of each kind, of each its two parts.
func seeds() (list [][]byte) {
	for _, b := range images() {
		list = append(list, append(b[:fuzzHead:fuzzHead], bytes.TrimRight(b[imgShdr:], "\x00")...))
	}
	return list
}

func images() [][]byte {
	return [][]byte{
		image{buildID: "12345678", cfa: 8, sframe: 3, sections: true, symbols: map[string]uint64{"_start": 0x1100}}.bytes(),
		image{cfa: 8, sframe: 1, noSFPhdr: true, noEHPhdr: true, sections: true}.bytes(),
		image{class: elf.ELFCLASS32, cfa: 8, buildID: "12345678", sections: true}.bytes(),
		image{order: binary.BigEndian, abi: 4, sframe: 2, noEH: true, twoTexts: true, dupSF: true}.bytes(),
		image{wholeText: true, interp: true, entry: 0x1100, cfa: 8, base: 0xffffffff80000000}.bytes(),
	}
}

// FuzzHeader reads headers, notes and sections of damaged files: a header or an
// error, within bounds, and the same from memory as from the file.
func FuzzHeader(f *testing.F) {
	for _, b := range seeds() {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, parts []byte) {
		b := whole(parts)
		h, err := readHeader(bytes.NewReader(b), 0)
		if (h == nil) == (err == nil) {
			t.Fatalf("header %v and error %v", h, err)
		}
		if err != nil {
			return
		}
		if h.size > uint64(len(b)) {
			t.Errorf("headers of %#x bytes in a file of %#x", h.size, len(b))
		}
		if len(h.loads) == 0 || len(h.loads) > maxPhdrs || len(h.sframes) > maxSFrames || len(h.notes) > maxNotes {
			t.Errorf("%d loads, %d sframe, %d notes", len(h.loads), len(h.sframes), len(h.notes))
		}
		for _, r := range append(slices.Clone(h.sframes), h.ehHdr) {
			if p, ok := h.loadAt(r); ok && (r.addr < p.vaddr || r.addr+r.size > p.vaddr+p.filesz || r.addr+r.size < r.addr) {
				t.Errorf("%+v in load %+v", r, p)
			}
		}
		// An executable segment placed by its bias is recognised.
		for _, p := range h.loads {
			if p.flags&elf.PF_X == 0 || p.filesz == 0 {
				continue
			}
			if bias, ok := h.biasOf(0x7f0000000000+p.off, p.off, p.filesz); !ok || !h.place(bias, 0x7f0000000000+p.off, p.off, p.filesz) {
				t.Errorf("%+v is not where biasOf puts it", p)
			}
		}
		id, at := h.buildID(bytes.NewReader(b), true)
		if len(id) > 2*maxBuildID || uint64(len(id)) != 2*at.size {
			t.Errorf("build-id %q at %#x", id, at)
		}
		n := 0
		h.readSections(bytes.NewReader(b), int64(len(b)), func(s section) {
			if n++; len(s.name) > maxName {
				t.Errorf("name of %d bytes", len(s.name))
			}
		})
		if n > maxSections {
			t.Errorf("%d sections", n)
		}
	})
}

// FuzzSpace maps a damaged file by damaged mappings and asks everything: a row
// or an error, never both; answers that do not contradict each other; no more
// than so many reads.
func FuzzSpace(f *testing.F) {
	const lines = "7f0000000000-7f0000001000 r--p 00000000 08:01 5 /lib/a.so\n" +
		"7f0000001000-7f0000002000 r-xp 00001000 08:01 5 /lib/a.so\n" +
		"7f0000005000-7f0000006000 rw-p 00005000 08:01 5 /lib/a.so\n"
	for _, b := range seeds() {
		f.Add(lines, b)
	}
	f.Add("7fff00000000-7fff00002000 r-xp 00000000 00:00 0 [vdso]\n", seeds()[4])
	f.Add(strings.Repeat("7f0000000000-7f0000001000 r-xp 00000000 08:01 5 /lib/a.so\n", 3), seeds()[0])
	f.Fuzz(func(t *testing.T, lines string, parts []byte) {
		maps, err := procfs.ParseMaps([]byte(lines))
		if err != nil || len(maps) == 0 || len(maps) > 64 {
			return
		}
		file := whole(parts)
		p := &process{maps: maps, files: map[uint64][]byte{5: file}}
		for _, m := range maps {
			if m.Offset < uint64(len(file)) {
				p.mem = append(p.mem, memory{m.Start, file[m.Offset:][:min(m.End-m.Start, uint64(len(file))-m.Offset)]})
			}
		}
		now := time.Unix(1000, 0)
		s := NewSpace(p, NewCache(64<<10), Options{Now: func() time.Time { return now }})
		for _, m := range maps {
			for _, pc := range []uint64{m.Start, m.Start + 0x10, m.Start + (m.End-m.Start)/2, m.End - 1, m.End} {
				for _, how := range []unwind.How{unwind.SFrame, unwind.EHFrame} {
					row, err := s.Row(pc, how)
					if (row == nil) == (err == nil) {
						t.Fatalf("Row(%#x, %v) = %v, %v", pc, how, row, err)
					}
					again, err2 := s.Row(pc, how)
					if err == nil && (err2 != nil || cfaOf(again, nil) != cfaOf(row, nil)) {
						t.Errorf("Row(%#x, %v) = %v, then %v, %v", pc, how, row, again, err2)
					}
					if err == nil && !s.Executable(pc) {
						t.Errorf("a row for %#x, which is not executable", pc)
					}
				}
				if m, vaddr, ok := s.Module(pc); ok && m.Bias+vaddr != pc {
					t.Errorf("Module(%#x): %#x + %#x", pc, m.Bias, vaddr)
				}
				if s.Entry(pc) && !s.Executable(pc) {
					t.Errorf("entry at %#x, which is not executable", pc)
				}
				var code [16]byte
				if n := s.Code(pc, code[:]); n > 0 && !s.Executable(pc) {
					t.Errorf("code at %#x, which is not executable", pc)
				}
			}
		}
		if !slices.IsSortedFunc(s.mapped.code.list, func(a, b codeRange) int {
			if a.end <= b.start {
				return -1
			}
			return 1
		}) {
			t.Errorf("ranges overlap: %v", s.mapped.code.list)
		}
		for _, pr := range problemsOf(s) {
			if errors.Is(pr.Err, sframe.ErrNoRow) {
				t.Errorf("no row is a problem: %v", pr)
			}
		}
		s.Verify()
		s.Close()
	})
}
