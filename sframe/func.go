package sframe

// Func is one function of a section: an FDE and, in V3, the attribute block in
// front of its rows.
type Func struct {
	Start    uint64 // virtual address
	Size     uint32 // in bytes; the range may be empty
	NumRows  uint32
	Flexible bool   // V3: rows have control words
	Mask     bool   // rows repeat every Block bytes (a PLT)
	Block    uint32 // size of a block when Mask is set
	Signal   bool   // V3: a signal trampoline
	KeyB     bool   // AArch64: return addresses are signed with key B
	Image    int    // which of the section's images it belongs to
	SecOff   uint64 // of the FDE in the section

	img   *image
	valid bool   // rows may be read
	width int    // bytes of a row's start
	rows  uint64 // offset of the first row in the section
	attr  attributes
}

// attributes are those of a function, as stored.
type attributes struct {
	info, info2 byte   // info2: V3
	rep         byte   // V2, V3
	pad         uint16 // V2
}

// entry is an FDE as it stands in the table.
type entry struct {
	secOff  uint64
	start   uint64 // virtual address
	size    uint32
	freOff  uint32 // of the rows (V3: the attribute block) in the sub-section
	numRows uint32 // V1, V2
	attr    attributes
}

func (e *entry) covers(pc uint64) bool { return pc-e.start < uint64(e.size) }

func (img *image) entryOff(i int) uint64 {
	return img.fdes + uint64(i)*entryBytes[img.header.Version]
}

// entry reads FDE i, and ahead bytes with it.
func (img *image) entry(w *window, i, ahead int) (entry, error) {
	off := img.entryOff(i)
	b, err := w.at(off, int(entryBytes[img.header.Version]), ahead)
	if err != nil {
		return entry{}, err
	}
	e := entry{secOff: off}
	if img.header.Version == 3 {
		e.start = img.order.u64(b)
		e.size = img.order.u32(b[8:])
		e.freOff = img.order.u32(b[12:])
	} else {
		e.start = uint64(int64(int32(img.order.u32(b))))
		e.size = img.order.u32(b[4:])
		e.freOff = img.order.u32(b[8:])
		e.numRows = img.order.u32(b[12:])
		e.attr.info = b[16]
		if img.header.Version == 2 {
			e.attr.rep = b[17]
			e.attr.pad = img.order.u16(b[18:])
		}
	}
	// The start field counts from itself or from the section's start (format
	// specification, "func_start_offset", and V2 erratum 1), modulo 2^64.
	if img.header.Flags&FlagPCRel != 0 {
		e.start += img.addr + (off - img.secOff)
	} else {
		e.start += img.addr
	}
	return e, nil
}

// Info bits of a function (specification, "The SFrame FDE info bits").
const (
	infoWidth  = 0x0f
	infoMask   = 0x10
	infoKeyB   = 0x20
	infoSignal = 0x80 // V3

	info2Type = 0x1f // V3
	typeFlex  = 1
)

// maxRows bounds the rows of a function, for versions whose count has 32 bits;
// V3's has 16.
const maxRows = 1 << 18

// rowAhead is read together with the start of a function's rows. Nine functions
// in ten have less.
const rowAhead = 256

// function completes an entry: info bits decoded, bounds of the rows checked.
// An error is a damage of this function only. The result is useful for
// messages even then.
func (img *image) function(w *window, e entry) (Func, error) {
	f := Func{
		Start: e.start, Size: e.size, NumRows: e.numRows, Image: img.num, SecOff: e.secOff,
		img: img, attr: e.attr, rows: img.fres + uint64(e.freOff),
	}
	if img.header.Version == 3 {
		if f.rows+attrBytes > img.limit {
			return f, bad(e.secOff+12, "attribute block is past the rows", uint64(e.freOff))
		}
		b, err := w.at(f.rows, attrBytes, rowAhead)
		if err != nil {
			return f, err
		}
		f.NumRows = uint32(img.order.u16(b))
		f.attr = attributes{info: b[2], info2: b[3], rep: b[4]}
		f.rows += attrBytes
	}
	return f, f.decodeInfo()
}

// decodeInfo sets what the info bytes and the repeat size mean, and checks that
// the rows can lie where they are said to.
func (f *Func) decodeInfo() error {
	infoOff := f.SecOff + 16
	if f.img.header.Version == 3 {
		infoOff = f.rows - 3
	}
	f.Mask = f.attr.info&infoMask != 0
	f.KeyB = f.img.header.ABI.aarch64() && f.attr.info&infoKeyB != 0
	if f.img.header.Version == 3 {
		f.Signal = f.attr.info&infoSignal != 0
		f.Flexible = f.attr.info2&info2Type == typeFlex
	}
	if f.attr.info&infoWidth > 2 {
		return bad(infoOff, "undefined row address type", uint64(f.attr.info&infoWidth))
	}
	f.width = 1 << (f.attr.info & infoWidth)
	if f.attr.info2&info2Type > typeFlex {
		return bad(infoOff+1, "undefined function type", uint64(f.attr.info2&info2Type))
	}
	if f.Mask {
		f.Block = uint32(f.attr.rep)
		if f.img.header.Version == 1 && f.img.header.ABI == AMD64 {
			// V1 has no repeat size. The one block that its linker describes
			// is the 16-byte PLT entry.
			f.Block = 16
		}
		if f.Block == 0 {
			return bad(infoOff+1, "repeating rows without a block size", 0)
		}
	}
	if f.NumRows == 0 {
		f.valid = true
		return nil
	}
	// Each row has at least a start and its info byte.
	if need := uint64(f.NumRows) * uint64(f.width+1); f.NumRows > maxRows || f.rows > f.img.limit || need > f.img.limit-f.rows {
		return bad(f.SecOff, "rows of the function run past the rows of the section", uint64(f.NumRows))
	}
	f.valid = true
	return nil
}
