package symbol

// readAranges adds the ranges of units whose own entries have none, from
// .debug_aranges (DWARF 5, 6.1.2): before DWARF 3 an entry could not have more
// than one range.
func (d *dwarfInfo) readAranges(bare map[uint64]int32) {
	for off, n := uint64(0), 0; off < d.sections.aranges.size && n < maxUnits && !d.stopped(); n++ {
		const header = 64 // at least
		c := d.sections.aranges.cursor(off, header, d.im.order)
		length, offSize := c.unitLength()
		start := uint64(c.pos)
		c.u16() // version
		unitOff := c.uint(offSize)
		addrSize, segSize := uint64(c.u8()), c.u8()
		if c.bad || length > d.sections.aranges.size-off-start {
			return
		}
		end := off + start + length
		n, ok := bare[unitOff]
		if ok && segSize == 0 && (addrSize == 4 || addrSize == 8) {
			// The first pair is aligned to its own size, counted from the header.
			pair := 2 * addrSize
			d.readPairs(off+(uint64(c.pos)+pair-1)/pair*pair, end, int(addrSize), n)
		}
		off = end
	}
}

// readPairs reads pairs of address and length from off to end for unit n.
func (d *dwarfInfo) readPairs(off, end uint64, addrSize int, n int32) {
	for ; off+uint64(2*addrSize) <= end && len(d.ranges) < maxUnitSpans; off += uint64(2 * addrSize) {
		c := d.sections.aranges.cursor(off, 2*addrSize, d.im.order)
		start, length := c.uint(addrSize), c.uint(addrSize)
		if c.bad || start == 0 && length == 0 {
			return
		}
		if start < start+length && d.im.text.has(start) {
			d.ranges = append(d.ranges, unitSpan{span: span{start, start + length}, unit: n})
		}
	}
}
