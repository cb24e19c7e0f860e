package goroutines

import (
	"regexp"
	"strconv"

	"sfsample/sampler/symbol"
)

// layout is where the fields are that are used of the runtime's structures, in bytes from their beginnings. They are
// the same on all machines of 64 bits.
type layout struct {
	// Of type g. The first three fields, of any version, are the stack's bounds; the registers of a goroutine that does
	// not run (type gobuf) are at sched.
	sched, status, goid, since, reason, seq, locked, parent, gopc, start, waiting int
	bp                                                                            int // from sched
	sudog                                                                         sudogLayout
	procid                                                                        int // of type m
}

// sudogLayout is where type sudog, an entry of the list of what a goroutine waits on, has the semaphore, the next one of the goroutine, and the channel.
type sudogLayout struct{ elem, link, channel int }

// bytes is how many bytes from its beginning have these.
func (l *sudogLayout) bytes() int { return max(l.elem, l.link, l.channel) + 8 }

// Fields of type gobuf (runtime/runtime2.go) whose place has not changed, from its beginning; and of type hchan
// (runtime/chan.go).
const (
	gobufSP, gobufPC, gobufG = 0, 8, 16

	chanCount, chanCap = 0, 8
)

// releases are the layouts by minor version of Go, as the debugging information of programs of the first and the last
// patch release of each has them that there was by go1.26.8.
var releases = map[int]layout{
	19: {56, 144, 152, 168, 176, 189, 232, none, 296, 312, 328, 48, sudogLayout{24, 64, 80}, 72},
	20: {56, 144, 152, 168, 176, 189, 232, none, 296, 312, 328, 48, sudogLayout{24, 64, 80}, 72},
	21: {56, 144, 152, 168, 176, 188, 208, 272, 280, 296, 312, 48, sudogLayout{24, 64, 80}, 72},
	22: {56, 144, 152, 168, 176, 191, 208, 272, 280, 296, 312, 48, sudogLayout{24, 64, 80}, 72},
	23: {56, 152, 160, 176, 184, 199, 216, 280, 288, 304, 320, 48, sudogLayout{24, 64, 80}, 72},
	24: {56, 152, 160, 176, 184, 199, 216, 280, 288, 304, 320, 48, sudogLayout{24, 64, 80}, 72},
	25: {56, 144, 152, 168, 176, 191, 208, 272, 280, 296, 312, 40, sudogLayout{24, 64, 80}, 64},
	26: {56, 144, 152, 168, 176, 191, 208, 280, 288, 304, 320, 40, sudogLayout{32, 72, 96}, 64},
}

// none is the offset of a field that a version does not have.
const none = -1

// release matches the versions that are in the table: releases, also with experiments switched on ("go1.24.2
// X:rangefunc"), but neither betas nor what others have made of them.
var release = regexp.MustCompile(`^go1\.(\d{1,3})(\.\d{1,3})?( X:[a-z0-9,]*)?$`)

// releaseOf is the minor version of Go, 0 if it is none that was released.
func releaseOf(version string) int {
	m := release.FindStringSubmatch(version)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// described is the layout as debugging information has it. missing is the first field that it lacks.
func described(p *symbol.GoProgram) (l layout, missing string) {
	const traceable = "runtime.maybeTraceablePtr"
	types := p.Structs("runtime.g", "runtime.gobuf", "runtime.sudog", "runtime.m", traceable)
	at := func(typ, field string) int {
		f, ok := types["runtime."+typ][field]
		if (!ok || f.Offset > maxHead-8) && missing == "" {
			missing = "runtime." + typ + "." + field
		}
		return int(min(f.Offset, maxHead))
	}
	// Since Go 1.26 a sudog hides its pointers from the collector: what is true is in another word.
	word := func(field string) int {
		off := at("sudog", field)
		if types["runtime.sudog"][field].Size == 16 {
			vu, ok := types[traceable]["vu"]
			if !ok && missing == "" {
				missing = traceable + ".vu"
			}
			off += int(min(vu.Offset, 8))
		}
		return off
	}
	l = layout{
		sched: at("g", "sched"), status: at("g", "atomicstatus"), goid: at("g", "goid"), since: at("g", "waitsince"), reason: at("g", "waitreason"),
		seq: at("g", "trackingSeq"), locked: at("g", "lockedm"), parent: none, gopc: at("g", "gopc"), start: at("g", "startpc"), waiting: at("g", "waiting"),
		bp: at("gobuf", "bp"), sudog: sudogLayout{elem: word("elem"), link: at("sudog", "waitlink"), channel: word("c")}, procid: at("m", "procid"),
	}
	if f, ok := types["runtime.g"]["parentGoid"]; ok && f.Offset <= maxHead-8 {
		l.parent = int(f.Offset)
	}
	for field, want := range map[string]uint64{"sp": gobufSP, "pc": gobufPC, "g": gobufG} {
		if f, ok := types["runtime.gobuf"][field]; missing == "" && (!ok || f.Offset != want) {
			missing = "runtime.gobuf." + field
		}
	}
	if missing == "" && at("g", "stack") != 0 {
		missing = "runtime.g.stack"
	}
	return l, missing
}

// maxHead bounds the structures of which fields are read, in bytes.
const maxHead = 4 << 10

// head is how many bytes from a g's beginning have all that is used of it.
func (l *layout) head() int {
	return max(l.sched+l.bp, l.status, l.goid, l.since, l.reason, l.seq, l.locked, l.parent, l.gopc, l.start, l.waiting) + 8
}
