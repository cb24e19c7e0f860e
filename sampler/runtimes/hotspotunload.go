package runtimes

import (
	"bytes"
	"io"

	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// What describes code is read after the stop, when it may be that of other code: classes are dropped, and others take their place. HotSpot counts the
// classes that it has dropped, before it frees what belongs to them (share/services/classLoadingService.cpp, InstanceKlass::unload_class), in the memory that it
// shares with jstat (share/runtime/perfMemory.hpp). That count is copied in the stop. What is read for the first time holds for a stop only if nothing was
// dropped from then on until it was read; what was there before, and is still the same, was there at the stop.

// dropped is the count of classes that were dropped.
type dropped struct {
	root  taking.Root // the entry that it is in; Addr 0: there is none
	at    int         // where in the entry
	taken uint64      // as it was in the stop that is walked, or the one before
	found bool        // taken was looked for in this walk
}

// perfLayout is of the memory that HotSpot shares with jstat.
type perfLayout struct {
	start                          uint64
	used, first                    int
	entryBytes, length, name, data int
	prologueBytes                  int
}

func (l *perfLayout) read(v *vmStructs) {
	l.start = v.static("PerfMemory::_start")
	l.prologueBytes, l.used, l.first = v.size("PerfDataPrologue"), v.field("PerfDataPrologue::used"), v.field("PerfDataPrologue::entry_offset")
	l.entryBytes, l.length, l.name, l.data = v.size("PerfDataEntry"), v.field("PerfDataEntry::entry_length"), v.field("PerfDataEntry::name_offset"), v.field("PerfDataEntry::data_offset")
}

// droppedName is of the count.
const droppedName = "java.cls.unloadedClasses\x00"

// maxPerfBytes bounds what is read to find it, and maxPerfEntry where it is in its entry.
const (
	maxPerfBytes = 1 << 20
	maxPerfEntry = 256
)

// findDropped looks for the count. It has no address where HotSpot keeps none (-XX:-UsePerfData).
func findDropped(h *hotspot) (d dropped) {
	l := &h.lay.perf
	b := read(h.mem, l.start, 8)
	if b == nil {
		return d
	}
	start := word(b, 0)
	if b = read(h.mem, start, l.prologueBytes); b == nil {
		return d
	}
	at, used := int(word32(b, l.first)), int(word32(b, l.used))
	if b = read(h.mem, start, min(used, maxPerfBytes)); b == nil {
		return d
	}
	for at >= 0 && at+l.entryBytes <= len(b) && at&7 == 0 {
		e := b[at:]
		n := int(word32(e, l.length))
		if n < l.entryBytes || n > len(e) {
			return d
		}
		name, data := int(word32(e, l.name)), int(word32(e, l.data))
		if name >= 0 && name < n && bytes.HasPrefix(e[name:n], []byte(droppedName)) && data >= max(8, l.length+8) && data+8 <= min(n, maxPerfEntry) {
			return dropped{root: taking.Root{Addr: start + uint64(at), Is: word(e, l.length)}, at: data}
		}
		at += n
	}
	return d
}

// Roots implements Runtime: the native stack is all there is, but for the count.
func (h *hotspot) Roots(io.ReaderAt, Thread) []taking.Root {
	if h.found.dropped.root.Addr == 0 {
		h.found.dropped = findDropped(h)
	}
	if h.found.dropped.root.Addr == 0 {
		return nil
	}
	return []taking.Root{h.found.dropped.root}
}

// Recipe implements Runtime.
func (h *hotspot) Recipe(roots []taking.Root, _ *Stack) *taking.Recipe {
	r := &taking.Recipe{RootBytes: h.found.dropped.at + 8, Check: h.lay.perf.length, Room: 1 << 10}
	copy(r.Roots[:], roots)
	foresee(r, []Span{{roots[0].Addr, r.RootBytes}})
	return r
}

// Beforehand implements [Beforehand].
func (h *hotspot) Beforehand() {}

// take looks for the count of the stop that is walked.
func (d *dropped) take(mem *unwind.Memory) {
	if !d.found {
		d.found = true
		for i := range mem.Also {
			if b := (Memory{mem.Also[i]}).Bytes(d.root.Addr, d.at+8); b != nil && d.root.Addr != 0 {
				d.taken = word(b, d.at)
			}
		}
	}
}

// since is the count now: what was just read for the first time was there when no more were dropped.
func (d *dropped) since(mem io.ReaderAt) uint64 {
	if d.root.Addr == 0 {
		return 0
	}
	b := read(mem, d.root.Addr+uint64(d.at), 8)
	switch {
	case b != nil:
		return word(b, 0)
	case replayed(mem):
		return 0 // it was not asked for when that was recorded
	}
	return ^uint64(0)
}

// was tells whether what has this count was there at the stop.
func (d *dropped) was(since uint64) bool { return since <= d.taken }

// replayer is memory that may be a recording's.
type replayer interface{ Replayed() bool }

func replayed(mem io.ReaderAt) bool {
	r, ok := mem.(replayer)
	return ok && r.Replayed()
}
