package symbol

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"sfsample/internal/late"
)

// vast is a file that looks large: behind head it has the same bytes again and again. It counts what is read.
type vast struct {
	head, fill []byte
	read       atomic.Int64
}

func (v *vast) Size() int64 { return 1 << 40 }

func (v *vast) ReadAt(b []byte, off int64) (int, error) {
	if off < 0 || off >= v.Size() {
		return 0, io.EOF
	}
	v.read.Add(int64(len(b)))
	n := 0
	if off < int64(len(v.head)) {
		n = copy(b, v.head[off:])
	}
	for n < len(b) {
		n += copy(b[n:], v.fill[(off+int64(n))%int64(len(v.fill)):])
	}
	return n, nil
}

var zeros = make([]byte, 64<<10)

// hostile are files that could take long, by sizes that cost their maker nothing.
var hostile = map[string]struct {
	build func(e *testELF)
	fill  []byte // zeros if nil
	most  int64  // bytes that may be read of it
}{
	"notes": {func(e *testELF) {
		e.extra = []testSection{{name: ".note", typ: elf.SHT_NOTE, hole: 1 << 30, count: 500}}
	}, nil, 9 << 20},
	"linkage tables": {func(e *testELF) {
		e.extra = []testSection{{name: ".plt", typ: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, hole: 4 << 20, count: 100}}
	}, nil, 1 << 20},
	"relocations": {func(e *testELF) {
		e.extra = []testSection{
			{name: ".plt", typ: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, hole: 1 << 10},
			{name: ".rela.plt", typ: elf.SHT_RELA, flags: elf.SHF_ALLOC, ent: 24, hole: 100 << 20, count: 8},
		}
	}, nil, 257 << 20},
	"section headers": {func(e *testELF) {
		e.extra, e.shent = []testSection{{name: ".x", typ: elf.SHT_PROGBITS, count: 1000}}, 65535
	}, nil, 9 << 20},
	"program headers": {func(e *testELF) {
		e.progs = make([]prog, 2000)
		for i := range e.progs {
			e.progs[i] = prog{typ: elf.PT_NOTE, filesz: 1 << 30}
		}
	}, nil, 1 << 20},
	"dynamic segments": {func(e *testELF) {
		for range 200 {
			e.progs = append(e.progs, prog{typ: elf.PT_DYNAMIC, off: holes, filesz: 1 << 30})
		}
	}, []byte{1}, 4 << 20},
	"units of nothing": {func(e *testELF) {
		e.extra = []testSection{{name: ".debug_info", typ: elf.SHT_PROGBITS, hole: 64 << 20}, {name: ".debug_abbrev", typ: elf.SHT_PROGBITS, hole: 16}}
	}, nil, 8 << 20},
	"address sets of nothing": {func(e *testELF) {
		unit := e.u32(nil, 8) // a unit of version 4 without ranges of its own, whose entry has no abbreviation
		unit = e.u32(e.u16(unit, 4), 0)
		e.extra = []testSection{
			{name: ".debug_info", typ: elf.SHT_PROGBITS, data: append(unit, 8, 1)},
			{name: ".debug_abbrev", typ: elf.SHT_PROGBITS, hole: 16}, {name: ".debug_aranges", typ: elf.SHT_PROGBITS, hole: 64 << 20},
		}
	}, nil, 8 << 20},
	"beginnings of Go's table": {func(e *testELF) {
		e.extra = []testSection{{name: ".go.buildinfo", typ: elf.SHT_PROGBITS}}
		e.progs = []prog{{typ: elf.PT_LOAD, flags: elf.PF_R, off: holes, vaddr: holes, filesz: 1 << 20, memsz: 1 << 20}}
	}, goBeginning(), 16 << 20},
}

// goBeginning is what looks like the header of a table of 20,000 functions.
func goBeginning() []byte {
	b := make([]byte, 128)
	binary.LittleEndian.PutUint32(b, 0xfffffff1)
	b[6], b[7] = 1, 8
	binary.LittleEndian.PutUint64(b[8:], 20000)
	return b
}

// TestHostile: whatever a file says of itself, little is read of it.
func TestHostile(t *testing.T) {
	for name, tt := range hostile {
		t.Run(name, func(t *testing.T) {
			e := &testELF{class: elf.ELFCLASS64, order: binary.LittleEndian, machine: elf.EM_X86_64, text: []span{{0x1000, 0x2000}}}
			tt.build(e)
			f := &vast{head: e.bytes(), fill: zeros}
			if tt.fill != nil {
				f.fill = bytes.Repeat(tt.fill, len(zeros)/len(tt.fill))
			}
			if len(f.head) > holes {
				t.Fatalf("the head has %d bytes", len(f.head))
			}
			o := Open(f, "/test", Options{Inlines: true, Lines: true})
			defer o.Close()
			o.Frames(0x1234)
			if n := f.read.Load(); n > tt.most {
				t.Errorf("%d bytes are read, want %d at most", n, tt.most)
			}
		})
	}
}

// TestLate: once time is up, a file is read up to a bound, and what has no name for that is counted. One of the usual size is
// read as ever.
func TestLate(t *testing.T) {
	for name, tt := range map[string]struct {
		hole uint64 // of relocations
		late bool
	}{"usual": {8 << 20, false}, "large": {200 << 20, true}} {
		t.Run(name, func(t *testing.T) {
			e := &testELF{class: elf.ELFCLASS64, order: binary.LittleEndian, machine: elf.EM_X86_64, text: []span{{0x1000, 0x2000}},
				syms: []testSym{{name: "known", value: 0x1000, size: 16, typ: elf.STT_FUNC}}}
			e.extra = []testSection{
				{name: ".plt", typ: elf.SHT_PROGBITS, flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, hole: 1 << 10},
				{name: ".rela.plt", typ: elf.SHT_RELA, flags: elf.SHF_ALLOC, ent: 24, hole: tt.hole},
			}
			f := &vast{head: e.bytes(), fill: zeros}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			o := Open(f, "/test", Options{Until: late.New(ctx)})
			defer o.Close()
			if sym, ok := o.Lookup(0x1008); !ok || sym.Name != "known" {
				t.Errorf("what was read in time: %+v, %v", sym, ok)
			}
			o.Lookup(0x1800)
			names, _ := o.Unread()
			if n := f.read.Load(); names > 0 != tt.late || n > 17<<20 || strings.Contains(o.Missing(), late.ErrNoTime.Error()) != tt.late {
				t.Errorf("%d addresses are without names for want of time, %d bytes read, missing: %q", names, n, o.Missing())
			}
		})
	}
}

// TestSymbolsInOneArray: a table of many symbols takes little more while it is made than afterwards.
func TestSymbolsInOneArray(t *testing.T) {
	const n = 1 << 17
	e := &testELF{class: elf.ELFCLASS64, order: binary.LittleEndian, machine: elf.EM_X86_64, text: []span{{0x1000, 0x1000 + 16*n}}}
	for i := range uint64(n) {
		e.syms = append(e.syms, testSym{name: "f", value: 0x1000 + 16*i, size: 16, typ: elf.STT_FUNC})
	}
	o := Open(bytes.NewReader(e.bytes()), "/test", Options{})
	defer o.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if sym, ok := o.Lookup(0x1000 + 16*(n-1)); !ok || sym.Name != "f" {
		t.Fatalf("the last symbol: %+v, %v", sym, ok)
	}
	runtime.ReadMemStats(&after)
	// Of each symbol 16 bytes, and 12 of a segment, which grow by and by.
	if took := int(after.TotalAlloc - before.TotalAlloc); took > 90*n {
		t.Errorf("%d bytes are allocated for a symbol", took/n)
	}
}

// lookedAt is a context that is done when it has been looked at so many times.
type lookedAt struct {
	context.Context
	left atomic.Int64
}

func (l *lookedAt) Err() error {
	if l.left.Add(-1) < 0 {
		return context.Canceled
	}
	return nil
}

// TestSortingEnds: very many symbols are not sorted once time is up. A look at the time comes for each piece of a file that is read, and for
// each 4,096 comparisons.
func TestSortingEnds(t *testing.T) {
	const n = quickSymbols + 1<<10
	e := &testELF{class: elf.ELFCLASS64, order: binary.LittleEndian, machine: elf.EM_X86_64, text: []span{{0x1000, 0x1000 + 16*n}}}
	for i := range uint64(n) {
		e.syms = append(e.syms, testSym{name: "f", value: 0x1000 + 16*(i*7919%n), size: 16, typ: elf.STT_FUNC})
	}
	file := e.bytes()
	for _, looks := range []int64{100, 1 << 40} {
		until := &lookedAt{Context: context.Background()}
		until.left.Store(looks)
		o := Open(bytes.NewReader(file), "/test", Options{Until: late.New(until)})
		_, ok := o.Lookup(0x1000 + 16*(n-1))
		names, _ := o.Unread()
		if late := looks == 100; ok == late || names > 0 != late || late && until.left.Load() < -100 {
			t.Errorf("%d looks at the time: found %v, %d addresses without names for want of time; %d looks are left", looks, ok, names, until.left.Load())
		}
		o.Close()
	}
}
