package testprog

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"
)

// Section is one that [Sparse] gives a program.
type Section struct {
	Name  string
	Type  elf.SectionType
	Flags elf.SectionFlag
	Addr  uint64
	Data  []byte
	Size  uint64 // in bytes; what it has beyond Data is a hole that reads as zeros
	Link  int    // number of another one of the list, from 1 on; 0: of none
	Ent   uint64 // size of its entries, in bytes
	Count int    // of headers that all tell of it; 0 is 1
}

// Sparse writes a copy of the 64-bit ELF program at path that has further sections, and returns its path. It runs as
// the program does, since the kernel reads program headers only. With headers the file claims to have so many section
// headers, most of which are zeros. The file takes hardly any room on the disk, however large it looks.
func Sparse(t testing.TB, path string, headers uint64, list ...Section) string {
	t.Helper()
	body, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.OpenFile(filepath.Join(t.TempDir(), filepath.Base(path)), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := sparse(out, body, headers, list); err != nil {
		t.Fatalf("%s: %v", out.Name(), err)
	}
	return out.Name()
}

func sparse(out *os.File, body []byte, headers uint64, list []Section) error {
	const shdrBytes = 64 // Elf64_Shdr
	order := binary.ByteOrder(binary.LittleEndian)
	if elf.Data(body[elf.EI_DATA]) == elf.ELFDATA2MSB {
		order = binary.BigEndian
	}
	// Elf64_Ehdr: e_shoff, e_shnum, e_shstrndx.
	shoff, shnum, shstr := order.Uint64(body[40:]), uint64(order.Uint16(body[60:])), uint64(order.Uint16(body[62:]))
	table := append([]byte{}, body[shoff:shoff+shnum*shdrBytes]...)
	old := table[shstr*shdrBytes:]
	off, size := order.Uint64(old[24:]), order.Uint64(old[32:])
	names := append([]byte{}, body[off:off+size]...)
	first := make([]int, len(list)) // number of the first header of each
	for i, n := 0, int(shnum); i < len(list); i++ {
		first[i] = n
		n += max(list[i].Count, 1)
	}
	end := uint64(len(body))
	put := func(b []byte, size uint64) (at uint64, err error) {
		at = (end + 4095) &^ 4095
		end = at + max(size, uint64(len(b)))
		_, err = out.WriteAt(b, int64(at))
		return at, err
	}
	for i := range list {
		s := &list[i]
		at, err := put(s.Data, s.Size)
		if err != nil {
			return err
		}
		h := make([]byte, shdrBytes)
		order.PutUint32(h, uint32(len(names)))
		names = append(append(names, s.Name...), 0)
		order.PutUint32(h[4:], uint32(s.Type))
		order.PutUint64(h[8:], uint64(s.Flags))
		order.PutUint64(h[16:], s.Addr)
		order.PutUint64(h[24:], at)
		order.PutUint64(h[32:], max(s.Size, uint64(len(s.Data))))
		if s.Link > 0 {
			order.PutUint32(h[40:], uint32(first[s.Link-1]))
		}
		order.PutUint64(h[56:], s.Ent)
		for range max(s.Count, 1) {
			table = append(table, h...)
		}
	}
	at, err := put(names, 0)
	if err != nil {
		return err
	}
	order.PutUint64(table[shstr*shdrBytes+24:], at)
	order.PutUint64(table[shstr*shdrBytes+32:], uint64(len(names)))
	headers = max(headers, uint64(len(table)/shdrBytes))
	if headers >= uint64(elf.SHN_LORESERVE) { // gABI, "ELF Header": it stands in section 0 then
		order.PutUint64(table[32:], headers)
		order.PutUint16(body[60:], 0)
	} else {
		order.PutUint16(body[60:], uint16(headers))
	}
	if at, err = put(table, headers*shdrBytes); err != nil {
		return err
	}
	order.PutUint64(body[40:], at)
	if _, err := out.WriteAt(body, 0); err != nil {
		return err
	}
	return out.Truncate(int64(end))
}
