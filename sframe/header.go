package sframe

import "debug/elf"

// ABI identifies architecture and byte order of a section (SFrame
// specification, "SFrame ABI/arch identifiers").
type ABI uint8

const (
	AArch64BE ABI = 1
	AArch64LE ABI = 2
	AMD64     ABI = 3
	S390X     ABI = 4
)

var abiNames = [...]string{AArch64BE: "AArch64 big-endian", AArch64LE: "AArch64 little-endian", AMD64: "AMD64", S390X: "s390x"}

// String is the name for people.
func (a ABI) String() string {
	if a.known() {
		return abiNames[a]
	}
	return "unknown"
}

func (a ABI) known() bool     { return a >= AArch64BE && a <= S390X }
func (a ABI) bigEndian() bool { return a == AArch64BE || a == S390X }
func (a ABI) aarch64() bool   { return a == AArch64BE || a == AArch64LE }

// Matches reports whether a section with this ABI belongs into an ELF file of
// that machine and byte order.
func (a ABI) Matches(m elf.Machine, d elf.Data) bool {
	machines := [...]elf.Machine{AArch64BE: elf.EM_AARCH64, AArch64LE: elf.EM_AARCH64, AMD64: elf.EM_X86_64, S390X: elf.EM_S390}
	return a.known() && machines[a] == m && a.bigEndian() == (d == elf.ELFDATA2MSB)
}

// Registers are DWARF numbers of the stack pointer and the frame pointer: what
// a default row's CFA starts from (System V ABI AMD64 supplement figure 3.36;
// DWARF for the Arm 64-bit Architecture 4.1; s390x ELF ABI supplement).
func (a ABI) Registers() (sp, fp uint8) {
	switch a {
	case AMD64:
		return 7, 6
	case S390X:
		return 15, 11
	}
	return 31, 29
}

// Flags of the header (SFrame specification, "SFrame flags").
const (
	FlagSorted       = 0x01 // FDEs ascend by function start
	FlagFramePointer = 0x02 // V1, V2: all functions keep a frame pointer
	FlagPCRel        = 0x04 // V2 erratum 1, V3: starts count from their own field
)

// validFlags is by version.
var validFlags = [...]uint8{1: 0x03, 2: 0x07, 3: 0x05}

// Header is an SFrame header as stored, but for the magic number.
type Header struct {
	Version uint8 // 1, 2 or 3
	Flags   uint8
	ABI     ABI
	FixedFP int8   // saved FP is always at CFA plus this; 0: rows say
	FixedRA int8   // saved RA is always at CFA plus this; 0: rows say
	AuxLen  uint8  // bytes of auxiliary header, skipped
	NumFDEs uint32 // functions
	NumFREs uint32 // rows, over all functions
	FRELen  uint32 // bytes of rows
	FDEOff  uint32 // of the function table, from the end of header and auxiliary header
	FREOff  uint32 // of the rows, likewise
}

const (
	headerBytes = 28
	magic       = 0xdee2
	// maxRowBytes is the longest row: 4 bytes of start, the info byte, and 15
	// words of 4 bytes.
	maxRowBytes = 4 + 1 + 15*4
	// attrBytes is V3's attribute block in front of a function's rows.
	attrBytes = 5
)

// entryBytes is the size of an FDE in the table, by version (specification,
// "SFrame function descriptor entry": 17 packed, 20, and V3's 16-byte index).
var entryBytes = [...]uint64{1: 17, 2: 20, 3: 16}

// image is one header with its tables. Linkers that do not know the format
// concatenate their inputs, so a section may hold several. All offsets are
// from the start of the section, and checked: table and rows lie in it.
type image struct {
	header Header
	order  order
	num    int    // place among the images of the section
	secOff uint64 // of the header
	addr   uint64 // virtual address of the header
	fdes   uint64 // of the function table
	fres   uint64 // of the rows
	end    uint64 // of the rows, as the header has it
	limit  uint64 // of what can be read of them
}

// decodeHeader reads the header at secOff, where b starts, of a section that
// begins at the virtual address addr and has size bytes.
func decodeHeader(b []byte, addr, secOff, size uint64) (*image, error) {
	img := &image{secOff: secOff, addr: addr + secOff}
	switch {
	case b[0] == magic&0xff && b[1] == magic>>8:
	case b[0] == magic>>8 && b[1] == magic&0xff:
		img.order = true
	default:
		return nil, badWhole(secOff, "no SFrame magic", uint64(b[0])|uint64(b[1])<<8)
	}
	img.header = Header{
		Version: b[2], Flags: b[3], ABI: ABI(b[4]), FixedFP: int8(b[5]), FixedRA: int8(b[6]), AuxLen: b[7],
		NumFDEs: img.order.u32(b[8:]), NumFREs: img.order.u32(b[12:]), FRELen: img.order.u32(b[16:]),
		FDEOff: img.order.u32(b[20:]), FREOff: img.order.u32(b[24:]),
	}
	if err := img.header.check(secOff, img.order); err != nil {
		return nil, err
	}
	return img, img.place(size)
}

// check refuses values that have no meaning. Undefined flags are refused
// too: one of them changed what the start field counts from.
func (h *Header) check(secOff uint64, big order) error {
	switch {
	case h.Version < 1 || h.Version > 3:
		return badWhole(secOff+2, "unknown version", uint64(h.Version))
	case h.Flags&^validFlags[h.Version] != 0:
		return badWhole(secOff+3, "undefined flags", uint64(h.Flags))
	case !h.ABI.known():
		return badWhole(secOff+4, "unknown ABI", uint64(h.ABI))
	case h.ABI.bigEndian() != bool(big):
		return badWhole(secOff+4, "byte order is not that of the ABI", uint64(h.ABI))
	case h.ABI == AMD64 && h.FixedRA == 0:
		// The call instruction puts the return address at a fixed place, and
		// rows of AMD64 have no word for another.
		return badWhole(secOff+6, "AMD64 without a fixed return address offset", 0)
	}
	return nil
}

// place computes and checks where the tables lie. Header fields have 32 bits,
// so sums of a few of them do not wrap.
func (img *image) place(size uint64) error {
	h := &img.header
	origin := img.secOff + headerBytes + uint64(h.AuxLen)
	img.fdes = origin + uint64(h.FDEOff)
	img.fres = origin + uint64(h.FREOff)
	img.end = img.fres + uint64(h.FRELen)
	img.limit = min(img.end, size)
	switch {
	case origin > size:
		return badWhole(img.secOff+7, "auxiliary header runs past the section", uint64(h.AuxLen))
	case h.FDEOff > h.FREOff:
		return badWhole(img.secOff+20, "function table starts behind the rows", uint64(h.FDEOff))
	case uint64(h.NumFDEs)*entryBytes[h.Version] > img.fres-img.fdes:
		return badWhole(img.secOff+8, "functions do not fit before the rows", uint64(h.NumFDEs))
	case img.fres > size:
		return badWhole(img.secOff+24, "rows start past the section", uint64(h.FREOff))
	case img.end-img.limit > maxRowBytes:
		// A section that is cut inside its last row costs that row's function
		// only, which finds out by img.limit.
		return badWhole(img.secOff+16, "rows run past the section", uint64(h.FRELen))
	}
	return nil
}

// order is the byte order of a section: true is big-endian. A method value of
// binary.ByteOrder would be an indirect call for each field.
type order bool

func (big order) u16(b []byte) uint16 {
	if big {
		return uint16(b[0])<<8 | uint16(b[1])
	}
	return uint16(b[1])<<8 | uint16(b[0])
}

func (big order) u32(b []byte) uint32 {
	if big {
		return uint32(big.u16(b))<<16 | uint32(big.u16(b[2:]))
	}
	return uint32(big.u16(b[2:]))<<16 | uint32(big.u16(b))
}

func (big order) u64(b []byte) uint64 {
	if big {
		return uint64(big.u32(b))<<32 | uint64(big.u32(b[4:]))
	}
	return uint64(big.u32(b[4:]))<<32 | uint64(big.u32(b))
}

// unsigned reads the first width (1, 2 or 4) bytes of b.
func (big order) unsigned(b []byte, width int) uint32 {
	switch width {
	case 1:
		return uint32(b[0])
	case 2:
		return uint32(big.u16(b))
	}
	return big.u32(b)
}

// signed is unsigned with the sign extended.
func (big order) signed(b []byte, width int) int32 {
	switch width {
	case 1:
		return int32(int8(b[0]))
	case 2:
		return int32(int16(big.u16(b)))
	}
	return int32(big.u32(b))
}
