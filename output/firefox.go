package output

import (
	"bufio"
	"cmp"
	"io"
	"slices"
	"strconv"
	"time"
)

// Firefox writes a profile that the Firefox Profiler (profiler.firefox.com)
// opens: its "processed profile format", version 62, in which all threads share
// the tables of strings, functions, frames and stacks. Each thread has its
// samples with time, weight in milliseconds and CPU time. Functions are named already,
// so that the page asks nobody for symbols; frames have their addresses in their libraries.
//
// The number of samples held is bounded: when there are too many, those of a
// thread with the same stack are joined within spans of time that double each
// time. Threads beyond the first 16,384 are shown as one.
type Firefox struct {
	w        io.Writer
	timeline timeline
	waits    map[*timedThread][]wait
	nWaits   int // of all threads
	run      Run
}

// maxWaits bounds those that become markers, 24 bytes each.
const maxWaits = 1 << 18

// wait is a time in which a thread was blocked in one call.
type wait struct {
	from, to time.Duration
	call     uint32 // string
}

// NewFirefox returns a Firefox that writes to w when it is closed.
func NewFirefox(w io.Writer, o Options) *Firefox {
	return &Firefox{w: w, timeline: newTimeline(o, maxTimed), waits: make(map[*timedThread][]wait)}
}

// Add keeps one sample; it never fails.
func (f *Firefox) Add(s *Sample) error {
	if t, at := f.timeline.add(s); t != nil && s.State != "running" {
		f.wait(t, cmp.Or(s.Wait, s.State), max(at-s.Wall, 0), at)
	}
	return nil
}

// wait notes that a thread was blocked, in the call that it was blocked in before or in another.
func (f *Firefox) wait(t *timedThread, call string, from, to time.Duration) {
	id, ok := f.timeline.shared.strings.id(appendClean(nil, call))
	waits := f.waits[t]
	if n := len(waits); n > 0 && waits[n-1].call == id && from <= waits[n-1].to+f.timeline.opts.tick() {
		waits[n-1].to = max(to, waits[n-1].to)
		return
	}
	if ok && f.nWaits < maxWaits {
		f.nWaits++
		f.waits[t] = append(waits, wait{from, to, id})
	}
}

// describe is told of the run, at its end.
func (f *Firefox) describe(r Run) { f.run = r }

// Notes says of the result what a reader should know.
func (f *Firefox) Notes() []string { return f.timeline.shared.tree.notes() }

// Close writes the profile.
func (f *Firefox) Close() error { return f.write(f.w) }

func (f *Firefox) write(w io.Writer) error {
	j := jsonWriter{out: bufio.NewWriterSize(w, 1<<16)}
	j.open('{')
	f.writeMeta(&j)
	names := f.timeline.shared.writeLibs(&j)
	j.name("shared")
	j.open('{')
	f.timeline.shared.writeTables(&j, names)
	j.close('}')
	j.name("threads")
	j.open('[')
	threads := slices.Clone(f.timeline.threads)
	first := make(map[int]int) // where a pid appeared
	for i, t := range threads {
		if _, ok := first[t.key.pid]; !ok {
			first[t.key.pid] = i
		}
	}
	slices.SortStableFunc(threads, func(a, b *timedThread) int {
		if c := cmp.Compare(first[a.key.pid], first[b.key.pid]); c != 0 || a.main() == b.main() {
			return c
		}
		if a.main() {
			return -1
		}
		return 1
	})
	for _, t := range threads {
		writeThread(&j, t, f.waits[t])
	}
	j.close(']')
	j.close('}')
	j.out.WriteByte('\n')
	return j.out.Flush()
}

func (f *Firefox) writeMeta(j *jsonWriter) {
	j.name("meta")
	j.open('{')
	j.field("preprocessedProfileVersion", 62)
	j.field("version", 24) // of the Gecko format that is not there
	j.name("interval")
	interval := 0.0
	if f.timeline.opts.Hz > 0 {
		interval = 1000 / f.timeline.opts.Hz
	}
	j.float(interval)
	j.name("startTime")
	ms := 0.0
	if !f.timeline.start.IsZero() {
		ms = float64(f.timeline.start.UnixMicro()) / 1e3
	}
	j.float(ms)
	j.text("product", "sfsample")
	j.text("importedFrom", "sfsample")
	j.field("processType", 0)
	j.field("stackwalk", 1)
	j.name("debug")
	j.raw("false")
	for _, name := range []string{"symbolicated", "usesOnlyOneStackType", "sourceCodeIsNotOnSearchfox", "keepProfileThreadOrder"} {
		j.name(name)
		j.raw("true")
	}
	if f.run.Command != "" {
		j.text("arguments", clean(f.run.Command))
	}
	j.text("oscpu", "Linux") // "Platform" there
	if f.run.CPU != "" {
		j.text("CPUName", clean(f.run.CPU))
	}
	if f.run.CPUs > 0 {
		j.field("logicalCPUs", int64(f.run.CPUs))
	}
	j.name("markerSchema")
	j.raw(`[{"name":"Wait","display":["marker-chart","marker-table","timeline-overview"],"chartLabel":"{marker.name}",` +
		`"tooltipLabel":"waits in {marker.name}","tableLabel":"{marker.name}","fields":[]}]`)
	j.name("sampleUnits")
	j.raw(`{"time":"ms","eventDelay":"ms","threadCPUDelta":"ns"}`)
	j.name("extensions")
	j.raw(`{"length":0,"id":[],"name":[],"baseURL":[]}`)
	j.name("categories")
	j.raw(`[{"name":"Other","color":"grey","subcategories":["Other"]},` +
		`{"name":"User","color":"yellow","subcategories":["Other"]},` +
		`{"name":"Kernel","color":"orange","subcategories":["Other"]},` +
		`{"name":"Idle","color":"transparent","subcategories":["Other"]}]`)
	j.close('}')
}

func writeThread(j *jsonWriter, t *timedThread, waits []wait) {
	j.open('{')
	j.text("name", cmp.Or(clean(t.name), unknownName))
	j.name("isMainThread")
	j.raw(strconv.FormatBool(t.main()))
	j.text("processType", "default")
	j.text("processName", cmp.Or(clean(t.key.process), unknownName))
	j.field("processStartupTime", 0)
	j.name("processShutdownTime")
	j.raw("null")
	j.field("registerTime", 0)
	j.name("unregisterTime")
	j.raw("null")
	j.name("pausedRanges")
	j.raw("[]")
	j.name("showMarkersInTimeline")
	j.raw("false")
	j.text("pid", strconv.Itoa(t.key.pid))
	j.text("tid", strconv.Itoa(t.key.tid))
	n := len(t.samples)
	j.table("samples", n)
	j.text("weightType", "tracing-ms")
	j.name("weight")
	j.open('[')
	for _, s := range t.samples {
		j.float(float64(s.weight) / 1e6)
	}
	j.close(']')
	j.column("stack", n, func(i int) int64 { return int64(t.samples[i].stack) - 1 })
	j.column("threadCPUDelta", n, func(i int) int64 { return int64(t.samples[i].cpu) })
	j.times("time", n, func(i int) time.Duration { return t.samples[i].at })
	j.close('}')
	n = len(waits)
	j.table("markers", n)
	j.constant("data", n, `{"type":"Wait"}`)
	j.column("name", n, func(i int) int64 { return int64(waits[i].call) })
	j.times("startTime", n, func(i int) time.Duration { return waits[i].from })
	j.times("endTime", n, func(i int) time.Duration { return waits[i].to })
	j.constant("phase", n, "1") // an interval
	j.constant("category", n, strconv.Itoa(categoryIdle))
	j.close('}')
	j.close('}')
}
