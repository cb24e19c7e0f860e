package symbol

// Tags, attributes and forms of DWARF 5, tables 7.3, 7.5 and 7.6; GNU's forms
// are in binutils' include/dwarf2.def.
const (
	tagArrayType       = 0x01
	tagClassType       = 0x02
	tagEnumerationType = 0x04
	tagMember          = 0x0d
	tagPointerType     = 0x0f
	tagStructureType   = 0x13
	tagSubroutineType  = 0x15
	tagUnionType       = 0x17
	tagInlined         = 0x1d
	tagSubprogram      = 0x2e
)

const (
	formAddr          = 0x01
	formBlock2        = 0x03
	formBlock4        = 0x04
	formData2         = 0x05
	formData4         = 0x06
	formData8         = 0x07
	formString        = 0x08
	formBlock         = 0x09
	formBlock1        = 0x0a
	formData1         = 0x0b
	formFlag          = 0x0c
	formSdata         = 0x0d
	formStrp          = 0x0e
	formUdata         = 0x0f
	formRefAddr       = 0x10
	formRef1          = 0x11
	formRef2          = 0x12
	formRef4          = 0x13
	formRef8          = 0x14
	formRefUdata      = 0x15
	formIndirect      = 0x16
	formSecOffset     = 0x17
	formExprloc       = 0x18
	formFlagPresent   = 0x19
	formStrx          = 0x1a
	formAddrx         = 0x1b
	formRefSup4       = 0x1c
	formStrpSup       = 0x1d
	formData16        = 0x1e
	formLineStrp      = 0x1f
	formRefSig8       = 0x20
	formImplicitConst = 0x21
	formLoclistx      = 0x22
	formRnglistx      = 0x23
	formRefSup8       = 0x24
	formStrx1         = 0x25
	formStrx4         = 0x28
	formAddrx1        = 0x29
	formAddrx4        = 0x2c
	formGNUAddrIndex  = 0x1f01
	formGNUStrIndex   = 0x1f02
	formGNURefAlt     = 0x1f20
	formGNUStrpAlt    = 0x1f21
)

// slot numbers the attributes that are of use here.
type slot int8

const (
	slotNone slot = iota - 1
	slotSibling
	slotName
	slotLinkage
	slotStmtList
	slotLow
	slotHigh
	slotRanges
	slotCompDir
	slotOrigin
	slotCallFile
	slotCallLine
	slotStrBase
	slotAddrBase
	slotRngBase
	slotByteSize
	slotMember // DW_AT_data_member_location
	slotType
	numSlots
)

// slots gives the slot of each attribute, plus one. Abstract origin and
// specification are one: both lead to the entry that has what this one lacks.
var slots = [...]slot{
	0x01: slotSibling + 1, 0x03: slotName + 1, 0x0b: slotByteSize + 1, 0x10: slotStmtList + 1, 0x11: slotLow + 1, 0x12: slotHigh + 1,
	0x1b: slotCompDir + 1, 0x31: slotOrigin + 1, 0x38: slotMember + 1, 0x47: slotOrigin + 1, 0x49: slotType + 1, 0x55: slotRanges + 1,
	0x58: slotCallFile + 1, 0x59: slotCallLine + 1, 0x6e: slotLinkage + 1,
	0x72: slotStrBase + 1, 0x73: slotAddrBase + 1, 0x74: slotRngBase + 1,
}

// slotOf returns the slot of an attribute. The last ones are those that GNU
// tools had before DWARF 4 and 5 (binutils' include/dwarf2.def).
func slotOf(attr uint64) slot {
	switch {
	case attr < uint64(len(slots)):
		return slots[attr] - 1
	case attr == 0x2007: // DW_AT_MIPS_linkage_name
		return slotLinkage
	case attr == 0x2133: // DW_AT_GNU_addr_base
		return slotAddrBase
	}
	return slotNone
}

// attrSpec is one attribute of an abbreviation.
type attrSpec struct {
	slot     slot
	form     uint16
	implicit int64
}

// abbrev is one abbreviation.
type abbrev struct {
	tag      uint16
	children bool
	attrs    []attrSpec
	// fixed is the size of all attributes together if every form has a fixed
	// size, else -1: most entries that are of no interest are stepped over at once.
	fixed int
}

// abbrevs is an abbreviation table by code; codes are dense as a rule.
type abbrevs struct {
	key    abbrevKey
	dense  []abbrev // code-1
	sparse map[uint64]abbrev
	specs  []attrSpec // of all of them
}

// abbrevKey is where a table is, and what its sizes depend on.
type abbrevKey struct {
	off    uint64
	format dwarfFormat
}

// dwarfFormat is what the sizes of forms depend on.
type dwarfFormat struct {
	version           uint16
	addrSize, offSize int
}

func (a *abbrevs) get(code uint64) *abbrev {
	if code-1 < uint64(len(a.dense)) {
		return &a.dense[code-1]
	}
	if d, ok := a.sparse[code]; ok {
		return &d
	}
	return nil
}

// maxAttrs bounds one abbreviation, maxAbbrevs a table: far above what
// compilers write.
const (
	maxAttrs   = 1 << 10
	maxAbbrevs = 1 << 20
)

// readAbbrev reads one abbreviation, its attributes behind those in specs; code
// 0 ends the table.
func readAbbrev(c *cursor, format *dwarfFormat, specs *[]attrSpec) (code uint64, a abbrev) {
	code = c.uleb()
	if code == 0 || c.bad {
		return 0, a
	}
	a.tag, a.children = uint16(c.uleb()), c.u8() != 0
	list := *specs
	first := len(list)
	for len(list)-first < maxAttrs {
		attr, form := c.uleb(), c.uleb()
		if attr == 0 && form == 0 || c.bad {
			break
		}
		spec := attrSpec{slot: slotOf(attr), form: uint16(min(form, 0xffff))}
		if form == formImplicitConst {
			spec.implicit = c.sleb()
		}
		list = append(list, spec)
		if n := format.fixedSize(spec.form); n < 0 || a.fixed < 0 {
			a.fixed = -1
		} else {
			a.fixed += n
		}
	}
	a.attrs = list[first:len(list):len(list)]
	*specs = list
	return code, a
}

// abbrevsOf reads the abbreviations of a unit. They are valid until the next
// call.
func (d *dwarfInfo) abbrevsOf(u *unit) *abbrevs {
	key := abbrevKey{u.abbrev, u.format}
	if d.abbrevs != nil && d.abbrevs.key == key {
		return d.abbrevs
	}
	t := &abbrevs{key: key}
	if d.abbrevs != nil && cap(d.abbrevs.specs) < maxScratch { // use its room
		t.dense, t.specs = d.abbrevs.dense[:0], d.abbrevs.specs[:0]
	}
	for size := firstAbbrevs; ; size *= 4 {
		b := d.sections.abbrev.bytes(u.abbrev, size)
		if t.read(b, u) || len(b) < size || size >= maxAbbrevBytes {
			break
		}
		*t = abbrevs{key: key, dense: t.dense[:0], specs: t.specs[:0]}
	}
	d.abbrevs = t
	return t
}

// Most tables are shorter than firstAbbrevs bytes, all shorter than
// maxAbbrevBytes; those in memory take some twenty times as much.
const (
	firstAbbrevs   = 16 << 10
	maxAbbrevBytes = 1 << 20
)

// read reads the table in b. It is false if the table does not end there.
func (t *abbrevs) read(b []byte, u *unit) bool {
	c := cursor{b: b, order: u.d.im.order}
	for n := 0; n < maxAbbrevs; n++ {
		code, a := readAbbrev(&c, &u.format, &t.specs)
		if c.bad {
			return false
		}
		if code == 0 {
			break
		}
		if code == uint64(len(t.dense))+1 {
			t.dense = append(t.dense, a)
			continue
		}
		if t.sparse == nil {
			t.sparse = make(map[uint64]abbrev)
		}
		t.sparse[code] = a
	}
	return true
}

// fixedSize is the size of a form, -1 if it varies.
func (f *dwarfFormat) fixedSize(form uint16) int {
	switch form {
	case formFlagPresent, formImplicitConst:
		return 0
	case formData1, formRef1, formFlag, formStrx1, formAddrx1:
		return 1
	case formData2, formRef2, formStrx1 + 1, formAddrx1 + 1:
		return 2
	case formStrx1 + 2, formAddrx1 + 2:
		return 3
	case formData4, formRef4, formRefSup4, formStrx4, formAddrx4:
		return 4
	case formData8, formRef8, formRefSig8, formRefSup8:
		return 8
	case formData16:
		return 16
	case formAddr:
		return f.addrSize
	case formRefAddr:
		if f.version == 2 {
			return f.addrSize
		}
		return f.offSize
	case formStrp, formSecOffset, formLineStrp, formStrpSup, formGNURefAlt, formGNUStrpAlt:
		return f.offSize
	}
	return -1
}

// value is an attribute's value: a number, or a string that stands in place.
type value struct {
	form uint16 // 0: the attribute is absent
	u    uint64
	s    []byte
}

// die is what is of interest of one debugging information entry.
type die struct {
	tag      uint16
	children bool
	v        [numSlots]value
}

// readAttrs reads the attributes of an entry with abbreviation a.
func (f *dwarfFormat) readAttrs(c *cursor, a *abbrev, d *die) {
	d.v = [numSlots]value{}
	d.tag, d.children = a.tag, a.children
	for i := range a.attrs {
		spec := &a.attrs[i]
		v := f.readForm(c, spec.form, spec.implicit)
		if spec.slot != slotNone {
			d.v[spec.slot] = v
		}
	}
}

// readForm reads one value.
func (f *dwarfFormat) readForm(c *cursor, form uint16, implicit int64) value {
	v := value{form: form}
	switch form {
	case formFlagPresent:
		v.u = 1
	case formImplicitConst:
		v.u = uint64(implicit)
	case formSdata:
		v.u = uint64(c.sleb())
	case formUdata, formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx, formGNUAddrIndex, formGNUStrIndex:
		v.u = c.uleb()
	case formString:
		v.s = c.cstr()
	case formBlock1:
		c.take(uint64(c.u8()))
	case formBlock2:
		c.take(uint64(c.u16()))
	case formBlock4:
		c.take(uint64(c.u32()))
	case formBlock, formExprloc:
		c.take(c.uleb())
	case formData16:
		c.take(16)
	case formIndirect:
		// DWARF 5, 7.5.3: an implicit constant cannot be indirect; a chain of
		// indirections is nonsense.
		if other := c.uleb(); other != formIndirect && other != formImplicitConst && other <= 0xffff {
			return f.readForm(c, uint16(other), 0)
		}
		c.bad = true
	default:
		n := f.fixedSize(form)
		if n <= 0 {
			c.bad = true
			return v
		}
		v.u = c.uint(n)
	}
	return v
}
