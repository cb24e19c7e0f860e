package module

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"io"
	"testing"

	"sfsample/internal/late"
	"sfsample/ptrace/procfs"
	"sfsample/unwind"
)

// vast is a process whose file looks large: behind its contents it has zeros. It counts what is read of the file.
type vast struct {
	*process
	read int64
}

func (v *vast) OpenFile(m procfs.Mapping) (File, error) {
	f, err := v.process.OpenFile(m)
	if err != nil {
		return nil, err
	}
	return &vastFile{f, v}, nil
}

type vastFile struct {
	File
	of *vast
}

func (f *vastFile) Size() int64 { return 1 << 40 }

func (f *vastFile) ReadAt(b []byte, off int64) (int, error) {
	f.of.read += int64(len(b))
	n, err := 0, io.EOF
	if off < f.File.Size() {
		n, err = f.File.ReadAt(b, off)
	}
	if err == io.EOF {
		clear(b[n:])
		n, err = len(b), nil
	}
	return n, err
}

// change changes the file that p has mapped at libAt, and what is mapped of its header.
func (p *process) change(fn func(header, sections []byte)) {
	b := p.files[5]
	fn(b[:64], b[imgShdr:imgShdr+0x800])
	for i := range p.mem {
		if p.mem[i].start == libAt {
			copy(p.mem[i].data, b[:64])
		}
	}
}

// grow gives a section another type and size, in zeros behind the file's other contents. Section 3 has the names of its symbols.
func grow(s []byte, typ elf.SectionType, size uint64) {
	binary.LittleEndian.PutUint32(s[4:], uint32(typ))
	binary.LittleEndian.PutUint64(s[24:], 1<<20)
	binary.LittleEndian.PutUint64(s[32:], size)
	binary.LittleEndian.PutUint32(s[40:], 3)
	binary.LittleEndian.PutUint64(s[56:], 24)
}

// TestHostile: whatever a file says of itself, little is read of it, and less once there is no time. Where that may have cost rows
// or what is known of functions, the module tells.
func TestHostile(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for name, tt := range map[string]struct {
		change func(header, sections []byte)
		most   int64 // bytes that may be read of it
		late   bool  // there is no time for that
	}{
		"usual": {func(_, _ []byte) {}, 1 << 20, false},
		"section headers": {func(header, _ []byte) {
			binary.LittleEndian.PutUint16(header[58:], 65535)
			binary.LittleEndian.PutUint16(header[60:], 1000)
		}, 1 << 20, false},
		"symbol tables": {func(_, sections []byte) {
			for i := 2; i < 6; i++ {
				grow(sections[64*i:], elf.SHT_SYMTAB, 24<<20)
			}
			grow(sections[64*3:], elf.SHT_STRTAB, 24<<20)
		}, 25 << 20, true},
	} {
		t.Run(name, func(t *testing.T) {
			for what, until := range map[string]*late.Time{"in time": nil, "late": late.New(over)} {
				p := &vast{process: new(process)}
				p.load(image{buildID: "12345678", cfa: 8, sections: true, debug: true, text: true}, libAt, 5, "/lib/a.so")
				p.change(tt.change)
				c := NewCache(0)
				c.Until = until
				s := NewSpace(p, c, Options{})
				if got := cfaOf(s.Row(codeAt, unwind.EHFrame)); got != "8" {
					t.Errorf("%s: row %s", what, got)
				}
				s.Entry(codeAt)
				most, isLate := tt.most, tt.late && until != nil
				if until != nil {
					most = min(most, 17<<20)
				}
				m, _, ok := s.Module(codeAt)
				if !ok || p.read > most || m.Late() != isLate {
					t.Errorf("%s: %d bytes read, want %d at most; late: want %v", what, p.read, most, isLate)
				}
			}
		})
	}
}
