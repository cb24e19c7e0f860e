package main

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// vector is a golden image of sframe/testdata/vectors (README there).
type vector struct {
	data    []byte
	addr    uint64
	machine elf.Machine
	readelf string // what readelf prints
}

var vectorSection = regexp.MustCompile(`(?m)^section: va=0x([0-9a-f]+)`)

func readHex(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := hex.DecodeString(strings.Join(strings.Fields(string(text)), ""))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return data
}

func readVector(t testing.TB, base string) vector {
	t.Helper()
	v := vector{data: readHex(t, base+".hex")}
	text, err := os.ReadFile(base + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	m := vectorSection.FindSubmatch(text)
	v.addr, _ = strconv.ParseUint(string(m[1]), 16, 64)
	_, v.readelf, _ = strings.Cut(string(text), "\n[readelf")
	v.machine = machineOf(v.data)
	return v
}

// machineOf is the machine of a table by its ABI byte.
func machineOf(data []byte) elf.Machine {
	if len(data) > 4 {
		switch data[4] {
		case 1, 2:
			return elf.EM_AARCH64
		case 4:
			return elf.EM_S390
		}
	}
	return elf.EM_X86_64
}

// elfFile is a minimal ELF file with a table in it.
type elfFile struct {
	machine  elf.Machine
	big      bool
	addr     uint64 // of the table
	table    []byte
	sections bool // there are section headers
	segment  bool // there is a PT_GNU_SFRAME
	code     [2]uint64
}

// bytes lays the file out: header, program headers, table, section names,
// section headers (gABI chapter 4).
func (e *elfFile) bytes() []byte {
	var order binary.ByteOrder = binary.LittleEndian
	data := elf.ELFDATA2LSB
	if e.big {
		order, data = binary.BigEndian, elf.ELFDATA2MSB
	}
	progs := []elf.Prog64{{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: e.code[0], Memsz: e.code[1] - e.code[0]}}
	const ehsize, phsize, shsize = 64, 56, 64
	tableOff := uint64(ehsize + 2*phsize)
	if e.segment {
		progs = append(progs, elf.Prog64{Type: ptGNUSFrame, Flags: uint32(elf.PF_R), Off: tableOff, Vaddr: e.addr, Filesz: uint64(len(e.table)), Memsz: uint64(len(e.table))})
	}
	names := "\x00.sframe\x00.shstrtab\x00.text\x00"
	namesOff := tableOff + uint64(len(e.table))
	shoff := namesOff + uint64(len(names))
	hdr := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(e.machine), Version: 1, Phoff: ehsize, Ehsize: ehsize,
		Phentsize: phsize, Phnum: uint16(len(progs)), Shentsize: shsize,
	}
	copy(hdr.Ident[:], elf.ELFMAG)
	hdr.Ident[elf.EI_CLASS], hdr.Ident[elf.EI_DATA], hdr.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(data), 1
	var sections []elf.Section64
	if e.sections {
		sections = []elf.Section64{
			{},
			{Name: 1, Type: shtGNUSFrame, Flags: uint64(elf.SHF_ALLOC), Addr: e.addr, Off: tableOff, Size: uint64(len(e.table)), Addralign: 8},
			{Name: 9, Type: uint32(elf.SHT_STRTAB), Off: namesOff, Size: uint64(len(names))},
			{Name: 19, Type: uint32(elf.SHT_NOBITS), Flags: uint64(elf.SHF_ALLOC | elf.SHF_EXECINSTR), Addr: e.code[0], Size: e.code[1] - e.code[0]},
		}
		hdr.Shoff, hdr.Shnum, hdr.Shstrndx = shoff, uint16(len(sections)), 2
	}
	var b bytes.Buffer
	for _, part := range []any{hdr, progs} {
		binary.Write(&b, order, part)
	}
	b.Write(make([]byte, tableOff-uint64(b.Len())))
	b.Write(e.table)
	b.WriteString(names)
	binary.Write(&b, order, sections)
	return b.Bytes()
}

// writeELF writes a file with section headers around a table.
func writeELF(t testing.TB, machine elf.Machine, addr uint64, table []byte) string {
	t.Helper()
	e := elfFile{machine: machine, addr: addr, table: table, sections: true, segment: true, code: [2]uint64{0, 1 << 40}}
	e.big = machine == elf.EM_S390 || len(table) > 4 && table[4] == 1
	return e.write(t)
}

func (e *elfFile) write(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, e.bytes(), 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}
