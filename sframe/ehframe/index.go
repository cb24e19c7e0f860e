package ehframe

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"

	"sfsample/sframe"
)

// hdrIndex is the binary search table of .eh_frame_hdr.
type hdrIndex struct {
	addr  uint64 // of the header
	table uint64 // of the first pair
	n     int    // pairs; 0: there is no table
	enc   uint8
	bytes int // of one value of a pair
}

// maxHdrBytes is enough for the fields before the table.
const maxHdrBytes = 4 + 8 + 8

// openHdr reads .eh_frame_hdr (LSB Core 5.0, 10.6.2): version 1, the encodings
// of three things, and these: the address of .eh_frame, the number of pairs, and
// the pairs (start of function, address of FDE), sorted by start. The last two
// may be omitted, or encoded so that there is nothing to search in.
func (t *Table) openHdr(s Sections) error {
	n := int(min(s.HdrSize, maxHdrBytes))
	buf, err := t.mem.bytes(s.HdrAddr, n)
	if err != nil {
		return err
	}
	c := cursor{b: slices.Clone(buf), addr: s.HdrAddr, sec: s.HdrAddr, big: t.arch.BigEndian}
	version, ptrEnc, countEnc, tableEnc := c.u8(), c.u8(), c.u8(), c.u8()
	if c.err == nil && version != 1 {
		c.fail("unknown header version", uint64(version))
	}
	// Here datarel means relative to the header itself.
	base := bases{data: s.HdrAddr, hasData: true}
	frame := t.pointer(&c, ptrEnc, base)
	if c.err != nil {
		c.err.Whole = true
		return c.err
	}
	if s.FrameSize == 0 && s.FrameAddr == 0 {
		t.frameAddr = frame
	}
	if countEnc == encOmit || tableEnc == encOmit || frame != t.frameAddr {
		return nil // a header of another section, or without table: index the section
	}
	count := t.pointer(&c, countEnc, base)
	size, ok := formBytes(tableEnc, t.arch.WordBytes)
	if c.err != nil || !ok || size == 0 || tableEnc&encIndirect != 0 {
		return nil
	}
	if b := tableEnc & encBase; b != encAbs && b != encDataRel && b != encPCRel {
		return nil
	}
	if have := s.HdrSize - uint64(c.pos); count > have/uint64(2*size) || count > maxFuncs {
		return nil // it cannot have so many
	}
	t.hdr = hdrIndex{addr: s.HdrAddr, table: c.at(), n: int(count), enc: tableEnc, bytes: size}
	return nil
}

// hdrAt decodes pair i of the header's table.
func (t *Table) hdrAt(i int) (start, addr uint64, err error) {
	at := t.hdr.table + uint64(i)*uint64(2*t.hdr.bytes)
	b, err := t.mem.bytes(at, 2*t.hdr.bytes)
	if err != nil {
		return 0, 0, err
	}
	c := cursor{b: b, addr: at, big: t.arch.BigEndian}
	value := func() uint64 {
		base := uint64(0)
		switch t.hdr.enc & encBase {
		case encDataRel:
			base = t.hdr.addr
		case encPCRel:
			base = c.at()
		}
		return t.wrap(base + c.plain(t.hdr.enc, t.arch.WordBytes))
	}
	return value(), value(), nil
}

// indexEntry is a function in the table's own index.
type indexEntry struct {
	start, addr uint64
}

// maxFuncs bounds the index: 16 MiB for a million functions. The largest known
// program, a browser, has about half of that.
const maxFuncs = 1 << 20

// indexAt returns the start of function i and the address of its FDE.
func (t *Table) indexAt(i int) (start, addr uint64, err error) {
	if t.hdr.n > 0 {
		return t.hdrAt(i)
	}
	return t.own[i].start, t.own[i].addr, nil
}

// search returns how many functions of the index start at or before pc.
func (t *Table) search(pc uint64) (int, error) {
	if t.hdr.n == 0 {
		if err := t.buildIndex(); err != nil {
			return 0, err
		}
		return sort.Search(len(t.own), func(i int) bool { return t.own[i].start > pc }), nil
	}
	var failed error
	n := sort.Search(t.hdr.n, func(i int) bool {
		start, _, err := t.hdrAt(i)
		if err != nil {
			failed = err
		}
		return err != nil || start > pc
	})
	return n, failed
}

// buildIndex reads the whole section once. What a defect in it hides is told by
// ownErr; an error means that it could not be read and may be tried again.
func (t *Table) buildIndex() error {
	if t.ownOK {
		return nil
	}
	var own []indexEntry
	var skipped error
	err := t.scan(func(f fde, err error) bool {
		switch {
		case f.end > f.start && f.start != 0: // damaged or not, its range is known
			own = append(own, indexEntry{f.start, f.addr})
		default:
			skipped = cmp.Or(skipped, err)
		}
		// A start of 0 is what linkers leave of functions that they removed.
		return len(own) < maxFuncs
	})
	var bad *sframe.FormatError
	switch {
	case err != nil && !errors.As(err, &bad):
		return err
	case err != nil || skipped != nil:
		t.ownErr = fmt.Errorf("index of frame information is incomplete: %w", cmp.Or(err, skipped))
	case len(own) == maxFuncs:
		t.ownErr = t.formatError(t.frameAddr, "too many functions to index", maxFuncs)
	}
	slices.SortFunc(own, func(a, b indexEntry) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.addr, b.addr))
	})
	t.own, t.ownOK = slices.Clip(own), true
	return nil
}

// Bounds of a scan.
const (
	// maxEntries is how many CIEs and FDEs are read: each FDE may have a CIE of its own.
	maxEntries = 2 * maxFuncs
	// maxTerminators is how many terminators are passed over: one for each end file that was linked. In a section of zeros each
	// four bytes are one.
	maxTerminators = 1 << 10
	// maxDamaged is how many damaged ones are passed over: nothing that runs has many.
	maxDamaged = 1 << 16
	// overEvery is how many entries are read between two looks at whether there is time.
	overEvery = 1 << 10
)

// errOver: see [Sections].
var errOver = errors.New("no time was left to read the frame information")

// scan calls yield for each FDE in the order of the section, until yield returns
// false. A damaged one is given with its error, and skipped. The error returned
// says why the scan ended before the section did.
func (t *Table) scan(yield func(fde, error) bool) error {
	terminators, damaged := 0, 0
	for addr, n := t.frameAddr, 0; addr < t.frameEnd; n++ {
		switch {
		case n == maxEntries || terminators == maxTerminators || damaged == maxDamaged:
			return t.formatError(addr, "too many entries to index", uint64(n))
		case n > 0 && n%overEvery == 0 && t.mem.over != nil && t.mem.over():
			return errOver
		}
		h, err := t.head(addr)
		var bad *sframe.FormatError
		switch {
		case err == errTerminator:
			if !t.sized {
				return nil
			}
			// Code linked behind the C runtime's end file has its entries behind
			// the terminator; readelf goes on there as well.
			terminators++
		case err != nil && h.end > addr && errors.As(err, &bad):
			damaged++
			if !yield(fde{addr: addr, next: h.end}, err) {
				return nil
			}
		case err != nil:
			return err
		case !h.isCIE:
			f, err := t.parseFDE(h)
			if err != nil && !errors.As(err, &bad) {
				return err
			}
			if err != nil {
				damaged++
			}
			if !yield(f, err) {
				return nil
			}
		}
		addr = h.end
	}
	return nil
}
