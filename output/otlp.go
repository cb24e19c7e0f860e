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
	*PProf
	w   io.Writer
	opt OTLPOptions
	// Begin and End are those of the time that the samples are of, and Account is told with them; ID, which makes the
	// profiles' own, is never that of others. They are to be set before Close.
	Begin, End time.Time
	Account    []Attr
	ID         [16]byte

	e             *protoWriter
	ticks         []int64 // of each cell
	texts         table
	attributes    refs[[2]string]
	usedMappings  refs[uint32]
	usedLocations refs[uint32]
	usedFunctions refs[uint32]
	stacks        refs[uint32]
}

// refs numbers what a dictionary holds in the order of its first use, from 1: number 0 stands for nothing.
type refs[K comparable] struct {
	ids  map[K]uint64
	keys []K
}

func (r *refs[K]) id(k K) uint64 {
	id, ok := r.ids[k]
	if !ok {
		if r.ids == nil {
			r.ids = make(map[K]uint64)
		}
		r.keys = append(r.keys, k)
		id = uint64(len(r.keys))
		r.ids[k] = id
	}
	return id
}

// NewOTLP returns an OTLP that writes to w when it is closed.
func NewOTLP(w io.Writer, o OTLPOptions) *OTLP {
	return &OTLP{PProf: NewPProf(nil, o.Options), w: w, opt: o}
}

// Empty tells whether there was no sample.
func (o *OTLP) Empty() bool { return len(o.values) == 0 }

// Close writes the message.
func (o *OTLP) Close() error { return o.write(o.w) }

func (o *OTLP) write(w io.Writer) error {
	o.e = newProtoWriter(w)
	_, o.ticks = o.weigh()
	o.texts = table{}
	o.texts.add("")
	o.attributes, o.usedMappings, o.usedLocations = refs[[2]string]{}, refs[uint32]{}, refs[uint32]{}
	o.usedFunctions, o.stacks = refs[uint32]{}, refs[uint32]{}
	order := make([]uint32, len(o.values))
	for i := range order {
		order[i] = uint32(i)
	}
	pid := func(i uint32) int { return o.labels[o.values[i].key.labels].pid }
	slices.SortStableFunc(order, func(a, b uint32) int { return cmp.Compare(pid(a), pid(b)) })
	for len(order) > 0 {
		n := 1
		for n < len(order) && pid(order[n]) == pid(order[0]) {
			n++
		}
		o.process(pid(order[0]), order[:n])
		order = order[n:]
	}
	o.dictionary()
	return o.e.close()
}

// process writes the profiles of a process, whose samples are those cells.
func (o *OTLP) process(pid int, cells []uint32) {
	e := o.e
	e.begin()
	for _, a := range o.opt.Resource(pid, o.labels[o.values[cells[0]].key.labels].process) {
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
	o.profile(pid, cells, "samples", "count", func(i uint32) int64 { return o.ticks[i] })
	o.profile(pid, cells, "cpu", "nanoseconds", func(i uint32) int64 { return int64(o.values[i].cpu) })
	if o.opt.Wall {
		o.profile(pid, cells, "wall", "nanoseconds", func(i uint32) int64 { return int64(o.values[i].wall) })
	}
	e.nested(otlpScopeProfiles)
	e.end(otlpResourceProfiles)
}

// profile writes the values of one kind.
func (o *OTLP) profile(pid int, cells []uint32, kind, unit string, value func(i uint32) int64) {
	e := o.e
	valueType := func(field int, name, unit string) {
		e.begin()
		e.uint(otlpTypeName, o.text(name))
		e.uint(otlpTypeUnit, o.text(unit))
		e.nested(field)
	}
	e.begin()
	valueType(otlpSampleType, kind, unit)
	for _, i := range cells {
		c := &o.values[i]
		v := value(i)
		if v == 0 {
			continue
		}
		e.begin()
		e.uint(otlpSampleStack, o.stacks.id(c.key.node))
		l := &o.labels[c.key.labels]
		e.begin()
		for _, a := range [...]Attr{{attrThreadName, l.thread, 0}, {attrThreadState, l.state, 0}, {attrThreadWait, l.wait, 0}, {attrStackEnd, l.end, 0}} {
			if a.Text != "" {
				e.varint(o.attribute(a.Key, a.Text))
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
	valueType(otlpPeriodType, period, "nanoseconds")
	if o.opt.Hz > 0 {
		e.uint(otlpPeriod, uint64(float64(time.Second)/o.opt.Hz))
	}
	id := sha256.New()
	id.Write(o.ID[:])
	id.Write(binary.AppendVarint([]byte(kind), int64(pid)))
	e.text(otlpProfileID, string(id.Sum(nil)[:16]))
	e.nested(otlpProfiles)
}

func (o *OTLP) text(s string) uint64 { return uint64(o.texts.add(s)) }

func (o *OTLP) attribute(key, text string) uint64 { return o.attributes.id([2]string{key, text}) }

// dictionary writes what the profiles refer to. Each table begins with an entry that stands for nothing; those that refer
// to others come before them.
func (o *OTLP) dictionary() {
	e := o.e
	nothing := func(field int) {
		e.begin()
		e.nested(field)
	}
	nothing(otlpStacks)
	for _, n := range o.stacks.keys {
		e.begin()
		e.begin()
		for ; n != 0; n = o.tree.nodes[n].parent {
			e.varint(o.usedLocations.id(o.tree.nodes[n].frame))
		}
		e.nested(otlpStackLocations)
		e.nested(otlpStacks)
	}
	nothing(otlpLocations)
	for _, i := range o.usedLocations.keys {
		o.useLocation(&o.locations[i])
	}
	nothing(otlpFunctions)
	for _, i := range o.usedFunctions.keys {
		key := []byte(o.functions.keys[i])
		name := o.text(o.strings.keys[binary.LittleEndian.Uint32(key)])
		e.begin()
		e.uint(otlpFunctionName, name)
		e.uint(otlpFunctionSystem, name)
		e.uint(otlpFunctionFile, o.text(o.strings.keys[binary.LittleEndian.Uint32(key[4:])]))
		e.nested(otlpFunctions)
	}
	nothing(otlpMappings)
	for _, i := range o.usedMappings.keys {
		m := &o.mappings[i]
		e.begin()
		e.uint(otlpMappingStart, m.Start)
		e.uint(otlpMappingEnd, m.End)
		e.uint(otlpMappingOffset, m.FileOff)
		e.uint(otlpMappingFile, o.text(clean(m.Path)))
		if m.BuildID != "" {
			e.begin()
			e.varint(o.attribute(attrBuildID, clean(m.BuildID)))
			e.nested(otlpMappingAttributes)
		}
		e.nested(otlpMappings)
	}
	nothing(otlpAttributes)
	for _, a := range o.attributes.keys {
		e.begin()
		e.uint(otlpAttributeKey, o.text(a[0]))
		e.begin()
		e.text(1, clean(a[1])) // AnyValue.string_value
		e.nested(otlpAttributeValue)
		e.nested(otlpAttributes)
	}
	e.begin()
	e.text(otlpLinkTrace, string(make([]byte, 16)))
	e.text(otlpLinkSpan, string(make([]byte, 8)))
	e.nested(otlpLinks)
	for _, s := range o.texts.keys {
		e.begin()
		e.msg = append(e.msg, s...)
		e.nested(otlpStrings)
	}
	e.end(otlpDictionary)
}

// useLocation adds a location to the dictionary.
func (o *OTLP) useLocation(l *pprofLocation) {
	e := o.e
	e.begin()
	named := true
	if l.mapping != 0 {
		e.uint(otlpLocationMapping, o.usedMappings.id(l.mapping-1))
		named = !o.opt.NoNames || o.mappings[l.mapping-1].BuildID == ""
	}
	e.uint(otlpLocationAddress, l.addr)
	for _, line := range o.lines[l.first : l.first+l.numLine] {
		if named {
			e.begin()
			e.uint(otlpLineFunction, o.usedFunctions.id(line.function))
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
		e.varint(o.attribute(attrFrameType, kind))
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
	const wireFixed64 = 1 // Protocol Buffers, "Encoding"
	e.msg = binary.AppendUvarint(e.msg, uint64(field)<<3|wireFixed64)
	e.msg = binary.LittleEndian.AppendUint64(e.msg, v)
}
