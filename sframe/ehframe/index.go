package ehframe

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"

	"sfsample/sframe"
)

// index finds the entries of functions by address.
type index struct {
	sec    *section
	hdr    hdrIndex
	own    []indexEntry // used when the header has no search table
	ownOK  bool         // own was built
	ownErr error        // why own does not have all functions
}

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

// open reads .eh_frame_hdr (LSB Core 5.0, 10.6.2): version 1, the encodings
// of three things, and these: the address of .eh_frame, the number of pairs, and
// the pairs (start of function, address of FDE), sorted by start. The last two
// may be omitted, or encoded so that there is nothing to search in.
func (x *index) open(s Sections) error {
	n := int(min(s.HdrSize, maxHdrBytes))
	buf, err := x.sec.mem.bytes(s.HdrAddr, n)
	if err != nil {
		return err
	}
	c := cursor{b: slices.Clone(buf), addr: s.HdrAddr, sec: s.HdrAddr, big: x.sec.arch.BigEndian}
	version, ptrEnc, countEnc, tableEnc := c.u8(), c.u8(), c.u8(), c.u8()
	if c.err == nil && version != 1 {
		c.fail("unknown header version", uint64(version))
	}
	// Here datarel means relative to the header itself.
	base := bases{data: s.HdrAddr, hasData: true}
	frame := x.sec.pointer(&c, ptrEnc, base)
	if c.err != nil {
		c.err.Whole = true
		return c.err
	}
	if s.FrameSize == 0 && s.FrameAddr == 0 {
		x.sec.start = frame
	}
	if countEnc == encOmit || tableEnc == encOmit || frame != x.sec.start {
		return nil // a header of another section, or without table: index the section
	}
	count := x.sec.pointer(&c, countEnc, base)
	size, ok := formBytes(tableEnc, x.sec.arch.WordBytes)
	if c.err != nil || !ok || size == 0 || tableEnc&encIndirect != 0 {
		return nil
	}
	if b := tableEnc & encBase; b != encAbs && b != encDataRel && b != encPCRel {
		return nil
	}
	if have := s.HdrSize - uint64(c.pos); count > have/uint64(2*size) || count > maxFuncs {
		return nil // it cannot have so many
	}
	x.hdr = hdrIndex{addr: s.HdrAddr, table: c.at(), n: int(count), enc: tableEnc, bytes: size}
	return nil
}

// hdrAt decodes pair i of the header's table.
func (x *index) hdrAt(i int) (start, addr uint64, err error) {
	at := x.hdr.table + uint64(i)*uint64(2*x.hdr.bytes)
	b, err := x.sec.mem.bytes(at, 2*x.hdr.bytes)
	if err != nil {
		return 0, 0, err
	}
	c := cursor{b: b, addr: at, big: x.sec.arch.BigEndian}
	value := func() uint64 {
		base := uint64(0)
		switch x.hdr.enc & encBase {
		case encDataRel:
			base = x.hdr.addr
		case encPCRel:
			base = c.at()
		}
		return x.sec.wrap(base + c.plain(x.hdr.enc, x.sec.arch.WordBytes))
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

// at returns the start of function i and the address of its FDE.
func (x *index) at(i int) (start, addr uint64, err error) {
	if x.hdr.n > 0 {
		return x.hdrAt(i)
	}
	return x.own[i].start, x.own[i].addr, nil
}

// search returns how many functions of the index start at or before pc.
func (x *index) search(pc uint64) (int, error) {
	if x.hdr.n == 0 {
		if err := x.build(); err != nil {
			return 0, err
		}
		return sort.Search(len(x.own), func(i int) bool { return x.own[i].start > pc }), nil
	}
	var failed error
	n := sort.Search(x.hdr.n, func(i int) bool {
		start, _, err := x.hdrAt(i)
		if err != nil {
			failed = err
		}
		return err != nil || start > pc
	})
	return n, failed
}

// build reads the whole section once. What a defect in it hides is told by
// ownErr; an error means that it could not be read and may be tried again.
func (x *index) build() error {
	if x.ownOK {
		return nil
	}
	var own []indexEntry
	var skipped error
	err := x.sec.scan(func(f fde, err error) bool {
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
		x.ownErr = fmt.Errorf("index of frame information is incomplete: %w", cmp.Or(err, skipped))
	case len(own) == maxFuncs:
		x.ownErr = x.sec.formatError(x.sec.start, "too many functions to index", maxFuncs)
	}
	slices.SortFunc(own, func(a, b indexEntry) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.addr, b.addr))
	})
	x.own, x.ownOK = slices.Clip(own), true
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
func (s *section) scan(yield func(fde, error) bool) error {
	terminators, damaged := 0, 0
	for addr, n := s.start, 0; addr < s.end; n++ {
		switch {
		case n == maxEntries || terminators == maxTerminators || damaged == maxDamaged:
			return s.formatError(addr, "too many entries to index", uint64(n))
		case n > 0 && n%overEvery == 0 && s.over != nil && s.over():
			return errOver
		}
		h, err := s.head(addr)
		var bad *sframe.FormatError
		switch {
		case err == errTerminator:
			if !s.sized {
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
			f, err := s.parseFDE(h)
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
