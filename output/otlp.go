package output

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"slices"
	"time"
)

// Attr is an attribute: a text or, without one, a number.
type Attr struct {
	Key    string
	Text   string
	Number int64
}

// OTLPOptions are what a message of OTLP profiles has besides samples.
type OTLPOptions struct {
	Options
	// Resource gives the attributes of a process, each key once.
	Resource func(pid int, process string) []Attr
	Version  string // of this program
	// NoNames leaves names out where a build-id and an address tell a receiver that has symbols as much.
	NoNames bool
}

// OTLP writes the request by which OTLP profiles are exported (ExportProfilesServiceRequest, gzipped): for each process a
// resource, with a profile of ticks ("samples"), one of CPU time ("cpu") and, of wall-clock time, one of that ("wall").
// Each has the same stacks, with the thread's name and state as attributes; one that was cut has "[truncated: REASON]" as
// its root, too.
type OTLP struct {
	w     io.Writer
	opt   OTLPOptions
	cells cells
	// Begin and End are those of the time that the samples are of, and Account is told with them; ID, which makes the
	// profiles' own, is never that of others. They are to be set before Close.
	Begin, End time.Time
	Account    []Attr
	ID         [16]byte
}

// otlpMessage is a message in the making: what its profiles refer to is numbered as they are written, and written after
// them. Numbers are from 1: 0 stands for nothing.
type otlpMessage struct {
	e          *protoWriter
	cells      *cells
	ticks      []int64 // of each cell
	noNames    bool
	texts      table // the first is ""
	attributes index[[2]string]
	// Those that are used of the cells' mappings, locations, functions and nodes.
	mappings, locations, functions, stacks index[uint32]
}

// NewOTLP returns an OTLP that writes to w when it is closed.
func NewOTLP(w io.Writer, o OTLPOptions) *OTLP {
	return &OTLP{w: w, opt: o, cells: newCells(o.Options)}
}

// Add counts one sample; it never fails.
func (o *OTLP) Add(s *Sample) error {
	o.cells.add(s)
	return nil
}

// Empty tells whether there was no sample.
func (o *OTLP) Empty() bool { return len(o.cells.times) == 0 }

// Close writes the message.
func (o *OTLP) Close() error { return o.write(o.w) }

func (o *OTLP) write(w io.Writer) error {
	m := &otlpMessage{e: newProtoWriter(w), cells: &o.cells, noNames: o.opt.NoNames}
	_, m.ticks = o.cells.weigh()
	m.texts.add("")
	order := make([]uint32, len(o.cells.times))
	for i := range order {
		order[i] = uint32(i)
	}
	pid := func(i uint32) int { return o.cells.labelsOf(i).pid }
	slices.SortStableFunc(order, func(a, b uint32) int { return cmp.Compare(pid(a), pid(b)) })
	for len(order) > 0 {
		n := 1
		for n < len(order) && pid(order[n]) == pid(order[0]) {
			n++
		}
		o.process(m, order[:n])
		order = order[n:]
	}
	m.dictionary()
	return m.e.close()
}

// process writes the profiles of a process, whose samples are those cells.
func (o *OTLP) process(m *otlpMessage, cells []uint32) {
	e := m.e
	first := o.cells.labelsOf(cells[0])
	e.begin()
	for _, a := range o.opt.Resource(first.pid, first.process) {
		e.attr(1, a) // Resource.attributes
	}
	e.nested(otlpResource)
	e.begin()
	e.begin() // InstrumentationScope: name, version, attributes
	e.text(1, "sfsample")
	e.text(2, o.opt.Version)
	for _, a := range o.Account {
		e.attr(3, a)
	}
	e.nested(otlpScope)
	o.profile(m, cells, "samples", "count", func(i uint32) int64 { return m.ticks[i] })
	o.profile(m, cells, "cpu", "nanoseconds", func(i uint32) int64 { return int64(o.cells.times[i].cpu) })
	if o.opt.Wall {
		o.profile(m, cells, "wall", "nanoseconds", func(i uint32) int64 { return int64(o.cells.times[i].wall) })
	}
	e.nested(otlpScopeProfiles)
	e.end(otlpResourceProfiles)
}

// profile writes the values of one kind.
func (o *OTLP) profile(m *otlpMessage, cells []uint32, kind, unit string, value func(i uint32) int64) {
	e := m.e
	e.begin()
	m.valueType(otlpSampleType, kind, unit)
	for _, i := range cells {
		v := value(i)
		if v == 0 {
			continue
		}
		e.begin()
		e.uint(otlpSampleStack, uint64(m.stacks.ref(o.cells.index.keys[i].node)))
		l := o.cells.labelsOf(i)
		e.begin()
		for _, a := range [...]Attr{{attrThreadName, l.thread, 0}, {attrThreadState, l.state, 0}, {attrThreadWait, l.wait, 0}, {attrThreadGIL, l.gil, 0}, {attrStackEnd, l.end, 0}} {
			if a.Text != "" {
				e.varint(m.attribute(a.Key, a.Text))
			}
		}
		e.nested(otlpSampleAttributes)
		e.begin()
		e.varint(uint64(v))
		e.nested(otlpSampleValues)
		e.nested(otlpSamples)
	}
	e.fixed64(otlpTime, uint64(o.Begin.UnixNano()))
	e.uint(otlpDuration, uint64(max(o.End.Sub(o.Begin), 0)))
	period := "cpu"
	if o.opt.Wall {
		period = "wall"
	}
	m.valueType(otlpPeriodType, period, "nanoseconds")
	if o.opt.Hz > 0 {
		e.uint(otlpPeriod, uint64(float64(time.Second)/o.opt.Hz))
	}
	id := sha256.New()
	id.Write(o.ID[:])
	id.Write(binary.AppendVarint([]byte(kind), int64(o.cells.labelsOf(cells[0]).pid)))
	e.text(otlpProfileID, string(id.Sum(nil)[:16]))
	e.nested(otlpProfiles)
}

func (m *otlpMessage) text(s string) uint64 { return uint64(m.texts.add(s)) }

func (m *otlpMessage) attribute(key, text string) uint64 {
	return uint64(m.attributes.ref([2]string{key, text}))
}

func (m *otlpMessage) valueType(field int, name, unit string) {
	m.e.begin()
	m.e.uint(otlpTypeName, m.text(name))
	m.e.uint(otlpTypeUnit, m.text(unit))
	m.e.nested(field)
}

// dictionary writes what the profiles refer to. Each table begins with an entry that stands for nothing; those that refer
// to others come before them.
func (m *otlpMessage) dictionary() {
	e, tree, code := m.e, &m.cells.tree, &m.cells.code
	nothing := func(field int) {
		e.begin()
		e.nested(field)
	}
	nothing(otlpStacks)
	for _, n := range m.stacks.keys {
		e.begin()
		e.begin()
		for ; n != 0; n = tree.nodes[n].parent {
			e.varint(uint64(m.locations.ref(tree.nodes[n].frame)))
		}
		e.nested(otlpStackLocations)
		e.nested(otlpStacks)
	}
	nothing(otlpLocations)
	for _, i := range m.locations.keys {
		m.location(&code.list[i])
	}
	nothing(otlpFunctions)
	for _, i := range m.functions.keys {
		f := code.functions.keys[i]
		name := m.text(code.strings.keys[f.name])
		e.begin()
		e.uint(otlpFunctionName, name)
		e.uint(otlpFunctionSystem, name)
		e.uint(otlpFunctionFile, m.text(code.strings.keys[f.file]))
		e.nested(otlpFunctions)
	}
	nothing(otlpMappings)
	for _, i := range m.mappings.keys {
		mapped := &code.mappings.keys[i]
		e.begin()
		e.uint(otlpMappingStart, mapped.Start)
		e.uint(otlpMappingEnd, mapped.End)
		e.uint(otlpMappingOffset, mapped.FileOff)
		e.uint(otlpMappingFile, m.text(clean(mapped.Path)))
		if mapped.BuildID != "" {
			e.begin()
			e.varint(m.attribute(attrBuildID, clean(mapped.BuildID)))
			e.nested(otlpMappingAttributes)
		}
		e.nested(otlpMappings)
	}
	nothing(otlpAttributes)
	for _, a := range m.attributes.keys {
		e.begin()
		e.uint(otlpAttributeKey, m.text(a[0]))
		e.begin()
		e.text(1, clean(a[1])) // AnyValue.string_value
		e.nested(otlpAttributeValue)
		e.nested(otlpAttributes)
	}
	e.begin()
	e.text(otlpLinkTrace, string(make([]byte, 16)))
	e.text(otlpLinkSpan, string(make([]byte, 8)))
	e.nested(otlpLinks)
	for _, s := range m.texts.keys {
		e.begin()
		e.msg = append(e.msg, s...)
		e.nested(otlpStrings)
	}
	e.end(otlpDictionary)
}

// location writes a location.
func (m *otlpMessage) location(l *codeLocation) {
	e, code := m.e, &m.cells.code
	e.begin()
	named := true
	if l.mapping != 0 {
		e.uint(otlpLocationMapping, uint64(m.mappings.ref(l.mapping-1)))
		named = !m.noNames || code.mappings.keys[l.mapping-1].BuildID == ""
	}
	e.uint(otlpLocationAddress, l.addr)
	for _, line := range code.linesOf(l) {
		if named {
			e.begin()
			e.uint(otlpLineFunction, uint64(m.functions.ref(line.function)))
			e.uint(otlpLineLine, uint64(line.line))
			e.nested(otlpLocationLines)
		}
	}
	kind := ""
	switch {
	case l.mapping != 0:
		kind = frameNative
	case l.addr>>63 != 0: // not on s390x, whose kernel has addresses of its own
		kind = frameKernel
	}
	if kind != "" {
		e.begin()
		e.varint(m.attribute(attrFrameType, kind))
		e.nested(otlpLocationAttributes)
	}
	e.nested(otlpLocations)
}

// attr adds a KeyValue (opentelemetry/proto/common/v1/common.proto) to the field in the making.
func (e *protoWriter) attr(field int, a Attr) {
	e.begin()
	e.text(1, clean(a.Key))
	e.begin()
	if a.Text != "" {
		e.text(1, clean(a.Text)) // AnyValue.string_value
	} else {
		e.msg = binary.AppendUvarint(e.msg, 3<<3|wireVarint) // AnyValue.int_value, 0 too
		e.varint(uint64(a.Number))
	}
	e.nested(2)
	e.nested(field)
}

// text adds a string or bytes to the field in the making, unless there is none.
func (e *protoWriter) text(field int, s string) {
	if s != "" {
		e.begin()
		e.msg = append(e.msg, s...)
		e.nested(field)
	}
}

// fixed64 adds a number of fixed size to the field in the making.
func (e *protoWriter) fixed64(field int, v uint64) {
	e.msg = binary.AppendUvarint(e.msg, uint64(field)<<3|wireFixed64)
	e.msg = binary.LittleEndian.AppendUint64(e.msg, v)
}
