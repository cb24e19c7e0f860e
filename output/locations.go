package output

import "encoding/binary"

// locations numbers the code that stacks go through, as profile.proto has it: addresses, the mappings that they lie in
// and the functions there.
type locations struct {
	strings   table // the first is ""
	functions index[codeFunction]
	mappings  index[Mapping]
	byAddr    table          // keys are as intern makes them
	list      []codeLocation // parallel to byAddr.keys
	lines     []codeLine     // of all locations
	buf       []byte
	group     []codeLine
}

// codeFunction has its name and file in locations.strings.
type codeFunction struct{ name, file uint32 }

// codeLocation is an address; its functions are n of locations.lines from first,
// innermost first.
type codeLocation struct {
	addr           uint64
	mapping        uint32 // from 1; 0: none
	first, numLine uint32
}

type codeLine struct {
	function uint32 // index of locations.functions
	line     uint32
}

func newLocations() locations {
	var l locations
	l.functions.limit, l.mappings.limit = maxKeys, maxLabels
	l.strings.add("")
	l.marker(overflow) // location overflowName
	return l
}

// linesOf are the functions of a location, innermost first.
func (l *locations) linesOf(at *codeLocation) []codeLine {
	return l.lines[at.first : at.first+at.numLine]
}

// marker returns the location of a frame that is no code.
func (l *locations) marker(name string) uint32 {
	l.buf = appendClean(l.buf[:0], name)
	fn, ok := l.function(l.buf, "")
	if !ok {
		return overflowName
	}
	return l.intern(0, 0, append(l.group[:0], codeLine{function: fn}))
}

// location returns the location of a physical frame, the last of frames, with
// what was inlined into it, innermost first.
func (l *locations) location(frames []Frame) uint32 {
	f := &frames[len(frames)-1]
	lines := l.group[:0]
	for i := range frames {
		in := &frames[i]
		l.buf = appendName(l.buf[:0], in)
		fn, ok := l.function(l.buf, in.File)
		if !ok {
			return overflowName
		}
		lines = append(lines, codeLine{fn, uint32(max(in.Line, 0))})
	}
	mapping := uint32(0)
	if f.Mapping != nil {
		mapping = l.mappings.ref(*f.Mapping)
	}
	return l.intern(lookupPC(f), mapping, lines)
}

// lookupPC is the address in the instruction that frame f executes. In a caller
// that is the call, which ends where it returns to: profile.proto wants an
// address in the call for a location that is no leaf.
func lookupPC(f *Frame) uint64 {
	if f.How == "regs" || f.How == "signal" || f.Kernel || f.PC == 0 {
		return f.PC
	}
	return f.PC - 1
}

// function returns the index of a function of this (clean) name; false when
// there is no room for it.
func (l *locations) function(name []byte, file string) (uint32, bool) {
	nameID, ok := l.strings.id(name)
	if !ok {
		return 0, false
	}
	fileID := uint32(0)
	if file != "" {
		if fileID, ok = l.strings.id(appendClean(nil, file)); !ok {
			return 0, false
		}
	}
	return l.functions.id(codeFunction{nameID, fileID})
}

// intern returns the number of a location; overflowName when there is no room
// for it.
func (l *locations) intern(addr uint64, mapping uint32, lines []codeLine) uint32 {
	l.group = lines
	key := binary.LittleEndian.AppendUint64(l.buf[:0], addr)
	key = binary.AppendUvarint(key, uint64(mapping))
	for _, line := range lines {
		key = binary.AppendUvarint(key, uint64(line.function))
		key = binary.AppendUvarint(key, uint64(line.line))
	}
	l.buf = key
	id, ok := l.byAddr.id(key)
	if !ok {
		return overflowName
	}
	if int(id) == len(l.list) {
		l.list = append(l.list, codeLocation{addr, mapping, uint32(len(l.lines)), uint32(len(lines))})
		l.lines = append(l.lines, lines...)
	}
	return id
}
