package symbol

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"runtime"
	"testing"

	"sfsample/internal/late"
)

// unitBomb is a unit of one function that is read into much.
type unitBomb struct {
	version      uint16 // of the line program
	abbrev, info []byte // behind the unit's own entry
	files        []byte // of the line program's header
	str          []byte
	rows         int
	refused      bool // for want of room
	line         int  // of the address
}

// file is a program of one function, from 0x1000 to 0x2000, with such a unit.
func (u *unitBomb) file() *testELF {
	e := &testELF{class: elf.ELFCLASS64, order: binary.LittleEndian, machine: elf.EM_X86_64, text: []span{{0x1000, 0x2000}}}
	section := func(name string, data []byte) {
		e.extra = append(e.extra, testSection{name: name, typ: elf.SHT_PROGBITS, data: data})
	}
	// The unit: DW_AT_low_pc, DW_AT_high_pc, DW_AT_stmt_list.
	section(".debug_abbrev", append(append([]byte{1, 0x11, 1, 0x11, formAddr, 0x12, formData8, 0x10, formSecOffset, 0, 0}, u.abbrev...), 0))
	unit := append(e.u32(e.u16(nil, 4), 0), 8, 1)
	unit = e.u32(e.u64(e.u64(unit, 0x1000), 0x1000), 0)
	unit = append(append(unit, u.info...), 0)
	section(".debug_info", append(e.u32(nil, uint32(len(unit))), unit...))
	// Opcodes from 10 on are rows: by 10 each one line further, at the same address.
	header := []byte{1, 1, 1, 1, 1, 10, 0, 1, 1, 1, 1, 0, 0, 0, 1}
	header = append(header, u.files...)
	program := append(e.u64([]byte{0, 9, lneSetAddress}, 0x1000), lnsCopy)
	program = append(program, bytes.Repeat([]byte{10}, u.rows)...)
	program = append(program, lnsAdvancePC, 0x80, 0x20, 0, 1, lneEndSequence)
	head := e.u16(nil, u.version)
	if u.version == 5 {
		head = append(head, 8, 0)
	}
	line := append(append(e.u32(head, uint32(len(header))), header...), program...)
	section(".debug_line", append(e.u32(nil, uint32(len(line))), line...))
	section(".debug_line_str", append(u.str, 0))
	return e
}

// bombs are units of debugging information, of some bytes an entry, that would take a hundred times as much in memory.
var bombs = map[string]unitBomb{
	"usual": {version: 4, files: oneFile, line: 1},
	"rows":  {version: 4, files: oneFile, rows: 12 << 20, line: 12<<20 + 1},
	// Of version 5: one folder, then 100,000 files, whose names are one string each.
	"names of files": {
		version: 5, str: bytes.Repeat([]byte{'a'}, maxName), refused: true,
		files: append([]byte{1, 1, formString, 1, '/', 0, 1, 1, formLineStrp, 0xa0, 0x8d, 0x06}, make([]byte, 4*100_000)...),
	},
	// Abbreviation 2: DW_TAG_inlined_subroutine without attributes.
	"inlined calls": {version: 4, files: oneFile, abbrev: []byte{2, tagInlined, 0, 0, 0}, info: bytes.Repeat([]byte{2}, 4<<20), refused: true, line: 1},
	// Abbreviation 2 has 1,000 attributes DW_AT_name of DW_FORM_flag_present, and so has the next one.
	"abbreviations": {version: 4, files: oneFile, abbrev: manyAbbrevs(), line: 1},
}

// oneFile is a table of no folder and one file.
var oneFile = []byte("\x00a.c\x00\x00\x00\x00\x00")

func manyAbbrevs() (b []byte) {
	for code := 2; len(b) < 15<<20; code++ {
		b = append(binary.AppendUvarint(b, uint64(code)), tagMember, 0)
		b = append(append(b, bytes.Repeat([]byte{3, formFlagPresent}, 1000)...), 0, 0)
	}
	return b
}

// TestUnitBombs: what a unit is read into is bounded. What has room has its line, and no other one.
func TestUnitBombs(t *testing.T) {
	was := inUnits
	t.Cleanup(func() { inUnits = was })
	for name, bomb := range bombs {
		t.Run(name, func(t *testing.T) {
			inUnits = &budget{what: "%d MB", limit: 32 << 20}
			o := bomb.file().open(Options{Inlines: true, Lines: true})
			defer o.Close()
			o.Lookup(0x1234)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			list := o.Frames(0x1234)
			runtime.ReadMemStats(&after)
			if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 200 {
				t.Errorf("%d MB are allocated", took)
			}
			got := 0
			if len(list) > 0 {
				got = list[len(list)-1].Line
			}
			if got != bomb.line {
				t.Errorf("%.300v, want line %d", list, bomb.line)
			}
			if inUnits.refused != bomb.refused || o.lines.dwarf.cut != bomb.refused || inUnits.used != 0 {
				t.Errorf("refused %v, told %v, want %v; %d bytes are not given back", inUnits.refused, o.lines.dwarf.cut, bomb.refused, inUnits.used)
			}
		})
	}
}

// TestLinesEnd: a line program is not run to its end once time is up, and that is counted.
func TestLinesEnd(t *testing.T) {
	bomb := bombs["rows"]
	for _, looks := range []int64{1000, 1 << 40} {
		until := &lookedAt{Context: context.Background()}
		until.left.Store(looks)
		o := bomb.file().open(Options{Lines: true, Until: late.New(until)})
		list := o.Frames(0x1234)
		_, unread := o.Unread()
		if late := looks == 1000; len(list) > 0 == late || unread > 0 != late || late && until.left.Load() < -100 {
			t.Errorf("%d looks at the time: %v, %d addresses without lines for want of time; %d looks are left", looks, list, unread, until.left.Load())
		}
		o.Close()
	}
}
