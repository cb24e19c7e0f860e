package module

import (
	"debug/elf"
	"encoding/binary"
	"testing"

	"sfsample/ptrace/procfs"
	"sfsample/unwind"
)

const rx = procfs.Read | procfs.Exec

// TestLayouts: the ways in which objects lie in memory. Each says what is asked
// for and the answer.
func TestLayouts(t *testing.T) {
	full := image{buildID: "12345678", cfa: 8, sframe: 3, sections: true}
	type want struct {
		pc     uint64
		exec   bool
		module string // path, empty: none
		vaddr  uint64
		sframe string // CFA, or "none"
		eh     string
	}
	tests := []struct {
		name string
		make func(p *process)
		want []want
	}{
		{"shared object", func(p *process) { p.load(full, 0x7f0000000000, 5, "/lib/a.so") }, []want{
			{0x7f0000001000, true, "/lib/a.so", 0x1000, "108", "8"},
			{0x7f0000001fff, true, "/lib/a.so", 0x1fff, "108", "8"},
			{0x7f0000002000, false, "", 0, "none", "none"},
			{0x7f0000000fff, false, "/lib/a.so", 0xfff, "none", "none"},
			{0x7f0000005000, false, "/lib/a.so", 0x5000, "none", "none"},
		}},
		{"program with a fixed address", func(p *process) {
			im := full
			im.base, im.typ = 0x400000, elf.ET_EXEC
			p.load(im, 0x400000, 5, "/bin/a")
		}, []want{{0x401234, true, "/bin/a", 0x401234, "108", "8"}}},
		{"prelinked, at another address", func(p *process) {
			im := full
			im.base = 0x3000000000
			p.load(im, 0x7f0000000000, 5, "/lib/a.so")
		}, []want{{0x7f0000001234, true, "/lib/a.so", 0x3000001234, "108", "8"}}},
		{"below its link-time address", func(p *process) {
			im := full
			im.base = 0x7fff00000000
			p.load(im, 0x10000, 5, "/lib/a.so")
		}, []want{{0x11234, true, "/lib/a.so", 0x7fff00001234, "108", "8"}}},
		{"two texts", func(p *process) {
			im := full
			im.twoTexts = true
			p.load(im, 0x7f0000000000, 5, "/lib/a.so")
		}, []want{
			{0x7f0000001000, true, "/lib/a.so", 0x1000, "108", "8"},
			{0x7f0000003000, true, "/lib/a.so", 0x3000, "none", "none"},
		}},
		{"header in the text", func(p *process) {
			im := full
			im.wholeText = true
			p.load(im, 0x7f0000000000, 5, "/lib/a.so")
		}, []want{{0x7f0000001000, true, "/lib/a.so", 0x1000, "108", "8"}}},
		{"loaded twice", func(p *process) {
			p.load(full, 0x7f0000000000, 5, "/lib/a.so")
			p.load(full, 0x7f0000010000, 5, "/lib/a.so")
		}, []want{
			{0x7f0000001000, true, "/lib/a.so", 0x1000, "108", "8"},
			{0x7f0000011000, true, "/lib/a.so", 0x1000, "108", "8"},
		}},
		{"two files of one name", func(p *process) {
			p.load(full, 0x7f0000000000, 5, "/lib/a.so")
			other := full
			other.buildID, other.cfa = "87654321", 24
			p.load(other, 0x7f0000010000, 6, "/lib/a.so")
		}, []want{
			{0x7f0000001000, true, "/lib/a.so", 0x1000, "108", "8"},
			{0x7f0000011000, true, "/lib/a.so", 0x1000, "124", "24"},
		}},
		{"header not mapped", func(p *process) {
			im := full
			b := im.bytes()
			p.mapAt(0x7f0000001000, rx, b, 0x1000, 0x1000, 5, "/lib/a.so")
			p.files = map[uint64][]byte{5: b}
			// Its tables are not mapped either.
		}, []want{{0x7f0000001000, true, "/lib/a.so", 0x1000, "error", "error"}}},
		{"in an archive", func(p *process) {
			b := append(make([]byte, 0x10000), full.bytes()...)
			p.mapAt(0x7f0000000000, procfs.Read, b, 0x10000, 0x1000, 5, "/app/a.apk")
			p.mapAt(0x7f0000001000, rx, b, 0x11000, 0x1000, 5, "/app/a.apk")
			p.files = map[uint64][]byte{5: b}
		}, []want{{0x7f0000001000, true, "/app/a.apk", 0x1000, "108", "8"}}},
		{"mapped by hand, as data and code", func(p *process) {
			b := full.bytes()
			p.mapAt(0x7f0000000000, rx, b, 0x1000, 0x1000, 5, "/lib/a.so")
			p.mapAt(0x7f0000010000, procfs.Read, b, 0, 0x1000, 5, "/lib/a.so")
			// The header's mapping does not fit the code's, nor can the file be
			// opened.
		}, []want{{0x7f0000000000, true, "", 0, "none", "none"}}},
		{"32 bits", func(p *process) {
			im := full
			im.class, im.sframe = elf.ELFCLASS32, 0
			p.load(im, 0xf7000000, 5, "/lib/a.so")
		}, []want{{0xf7001000, true, "/lib/a.so", 0x1000, "none", "8"}}},
		{"big-endian", func(p *process) {
			im := full
			im.order, im.abi, im.noEH = binary.BigEndian, 4, true
			p.load(im, 0x3ff00000000, 5, "/lib/a.so")
		}, []want{{0x3ff00001000, true, "/lib/a.so", 0x1000, "1024", "none"}}}, // s390x: 8*108+160
		{"vDSO", func(p *process) {
			im := full
			im.wholeText = true
			p.mapAt(0x7fff00000000, rx, im.bytes(), 0, 0x2000, 0, "[vdso]")
		}, []want{{0x7fff00001000, true, "[vdso]", 0x1000, "108", "8"}}},
		{"JIT", func(p *process) {
			p.mapAt(0x7f0000000000, rx|procfs.Write, make([]byte, 0x1000), 0, 0x1000, 0, "")
			p.mapAt(0x7f0000001000, rx, make([]byte, 0x1000), 0, 0x1000, 0, "[anon:JIT]")
		}, []want{
			{0x7f0000000010, true, "", 0, "none", "none"},
			{0x7f0000001010, true, "", 0, "none", "none"},
		}},
		{"code in a file that is not ELF", func(p *process) {
			p.mapAt(0x7f0000000000, rx, make([]byte, 0x1000), 0, 0x1000, 5, "/memfd:jit")
			p.files = map[uint64][]byte{5: make([]byte, 0x1000)}
		}, []want{{0x7f0000000010, true, "", 0, "none", "none"}}},
		{"uprobes and vsyscall", func(p *process) {
			p.mapAt(0x7fff00000000, procfs.Exec, nil, 0, 0x1000, 0, "[uprobes]")
			p.mapAt(0xffffffffff600000, procfs.Exec, nil, 0, 0x1000, 0, "[vsyscall]")
		}, []want{
			{0x7fff00000010, true, "", 0, "none", "none"},
			{0xffffffffff600010, true, "", 0, "none", "none"},
			{0, false, "", 0, "none", "none"},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := new(process)
			tt.make(p)
			s := NewSpace(p, NewCache(0), Options{})
			for _, w := range tt.want {
				if got := s.Executable(w.pc); got != w.exec {
					t.Errorf("Executable(%#x) = %v, want %v", w.pc, got, w.exec)
				}
				m, vaddr, ok := s.Module(w.pc)
				path := ""
				if ok {
					path = m.Path
				}
				if path != w.module || vaddr != w.vaddr {
					t.Errorf("Module(%#x) = %q, %#x; want %q, %#x", w.pc, path, vaddr, w.module, w.vaddr)
				}
				if got := cfaOf(s.Row(w.pc, unwind.SFrame)); got != w.sframe {
					t.Errorf("Row(%#x, sframe) = %s, want %s", w.pc, got, w.sframe)
				}
				if got := cfaOf(s.Row(w.pc, unwind.EHFrame)); got != w.eh {
					t.Errorf("Row(%#x, eh_frame) = %s, want %s", w.pc, got, w.eh)
				}
			}
		})
	}
}
