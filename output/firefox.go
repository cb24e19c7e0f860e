package output

import (
	"bufio"
	"cmp"
	"encoding/hex"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of what a Firefox holds beside its call tree.
const (
	maxTimed   = 1 << 20 // samples that keep their time, 32 bytes each
	maxThreads = 1 << 14
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
	w    io.Writer
	opts Options

	strings  table
	funcs    table // of name, library and file; see intern
	frames   []firefoxFrame
	byFrame  map[firefoxFrame]uint32
	function []firefoxFunc // parallel to funcs
	symbols  []firefoxSymbol
	bySymbol map[firefoxSymbol]uint32
	libs     []Mapping
	byLib    map[string]int32 // by path and build-id
	tree     tree

	cache stackCache[firefoxStack]
	run   Run
	waits int // in all threads
	buf   []byte

	threads  []*firefoxThread
	byThread map[threadKey]*firefoxThread
	timed    int           // samples in all threads
	limit    int           // of timed
	span     time.Duration // within which samples have been joined; 0: none were
	start    time.Time
}

// firefoxStack is a stack, and whether its thread ran or waited at its innermost frame.
type firefoxStack struct {
	stack *Stack
	idle  bool
}

// maxWaits bounds the waits that become markers, 24 bytes each.
const maxWaits = 1 << 18

// wait is a time in which a thread was blocked in one call.
type wait struct {
	from, to time.Duration
	call     uint32 // string
}

type firefoxFunc struct {
	name uint32 // string
	file int32  // string, -1: unknown
	lib  int32  // -1: none
}

type firefoxFrame struct {
	function, line uint32
	symbol         uint32 // plus one; 0: none
	depth          uint16 // of inlining
	category       uint8
	address        uint64 // of the instruction, or in the call, from its library's beginning on, plus one; 0: not known
}

// firefoxSymbol is where a function of native code begins in its library.
type firefoxSymbol struct {
	lib     int32
	name    uint32
	address uint64
}

type threadKey struct {
	pid, tid int
	process  string
}

type firefoxThread struct {
	key     threadKey
	name    string
	samples []timed
	waits   []wait
}

// main tells the thread that a process began with (gettid(2)).
func (t *firefoxThread) main() bool { return t.key.tid == t.key.pid }

// timed is a sample in a thread's table.
type timed struct {
	at     time.Duration // since the first sample of the run
	cpu    time.Duration
	weight time.Duration
	stack  uint32 // node
}

// Categories of frames, indexes of the list that is written.
const (
	categoryOther = iota
	categoryUser
	categoryKernel
	categoryIdle
)

// NewFirefox returns a Firefox that writes to w when it is closed.
func NewFirefox(w io.Writer, o Options) *Firefox {
	f := &Firefox{
		w: w, opts: o,
		byFrame:  make(map[firefoxFrame]uint32),
		bySymbol: make(map[firefoxSymbol]uint32),
		byLib:    make(map[string]int32),
		tree:     newTree(maxNodes),
		byThread: make(map[threadKey]*firefoxThread),
		limit:    maxTimed,
	}
	f.marker(overflow) // frame overflowName
	return f
}

// Add keeps one sample; it never fails.
func (f *Firefox) Add(s *Sample) error {
	if f.start.IsZero() {
		f.start = s.Time
	}
	weight := f.opts.weight(s)
	if weight <= 0 {
		return nil
	}
	t := f.thread(s)
	idle := s.State != "running"
	k := firefoxStack{s.Stack, idle}
	n, ok := f.cache.ids[k]
	if !ok {
		n = f.walk(k)
		f.cache.keep(k, s.Stack, n)
	}
	at := max(s.Time.Sub(f.start), 0)
	if idle {
		f.wait(t, cmp.Or(s.Wait, s.State), max(at-s.Wall, 0), at)
	}
	if f.timed >= f.limit {
		f.join()
	}
	if f.timed >= f.limit && len(t.samples) > 0 { // no room: what is known is only that there was more
		last := &t.samples[len(t.samples)-1]
		if last.stack != n {
			last.stack = f.tree.more(0)
		}
		last.weight += weight
		last.cpu += s.CPU
		return nil
	}
	t.samples = append(t.samples, timed{at, s.CPU, weight, n})
	f.timed++
	return nil
}

func (f *Firefox) thread(s *Sample) *firefoxThread {
	k := threadKey{s.PID, s.TID, s.Process}
	t := f.byThread[k]
	if t == nil {
		if len(f.threads) >= maxThreads {
			k = threadKey{0, 0, "[more threads]"}
			if t = f.byThread[k]; t != nil {
				return t
			}
		}
		t = &firefoxThread{key: k, name: s.Thread}
		f.byThread[k] = t
		f.threads = append(f.threads, t)
	}
	return t
}

// describe is told of the run, at its end.
func (f *Firefox) describe(r Run) { f.run = r }

// wait notes that a thread was blocked, in the call that it was blocked in before or in another.
func (f *Firefox) wait(t *firefoxThread, call string, from, to time.Duration) {
	id, ok := f.strings.id(appendClean(nil, call))
	if n := len(t.waits); n > 0 && t.waits[n-1].call == id && from <= t.waits[n-1].to+f.opts.tick() {
		t.waits[n-1].to = max(to, t.waits[n-1].to)
		return
	}
	if ok && f.waits < maxWaits {
		f.waits++
		t.waits = append(t.waits, wait{from, to, id})
	}
}

// join halves the samples, at least, if that can be done by joining equal
// stacks: first within a second, then within ever longer spans.
func (f *Firefox) join() {
	for f.timed > f.limit/2 && f.span < 1<<20*time.Second {
		f.span = max(2*f.span, time.Second)
		f.timed = 0
		for _, t := range f.threads {
			t.samples = joinSpans(t.samples, f.span)
			f.timed += len(t.samples)
		}
	}
}

// joinSpans joins the samples of equal stacks within each span. A joined sample
// has the time of the first.
func joinSpans(samples []timed, span time.Duration) []timed {
	slices.SortStableFunc(samples, func(a, b timed) int {
		return cmp.Or(cmp.Compare(a.at/span, b.at/span), cmp.Compare(a.stack, b.stack))
	})
	n := 0
	for _, s := range samples {
		if n > 0 && samples[n-1].stack == s.stack && samples[n-1].at/span == s.at/span {
			samples[n-1].weight += s.weight
			samples[n-1].cpu += s.cpu
			continue
		}
		samples[n] = s
		n++
	}
	samples = samples[:n]
	slices.SortStableFunc(samples, func(a, b timed) int { return cmp.Compare(a.at, b.at) })
	return samples
}

// walk follows a stack from the root to its node.
func (f *Firefox) walk(k firefoxStack) uint32 {
	n, ok := uint32(0), true
	if k.stack == nil {
		return n
	}
	if cut := k.stack.truncated(); cut != "" {
		frame := f.marker(cut)
		n, ok = f.tree.step(n, frame, frame != overflowName)
	}
	for i := len(k.stack.Frames) - 1; ok && i >= 0; i-- {
		frame := f.frame(k.stack.Frames, i, k.idle)
		n, ok = f.tree.step(n, frame, frame != overflowName)
	}
	return n
}

func (f *Firefox) marker(name string) uint32 {
	return f.intern(appendClean(f.buf[:0], name), "", -1, firefoxFrame{category: categoryOther})
}

// frame returns the number of frame i of a stack.
func (f *Firefox) frame(frames []Frame, i int, idle bool) uint32 {
	fr := &frames[i]
	out := firefoxFrame{line: uint32(max(fr.Line, 0)), category: categoryUser}
	switch {
	case i == 0 && idle:
		out.category = categoryIdle
	case fr.Kernel:
		out.category = categoryKernel
	}
	if fr.Inlined { // one deeper than the frame that it was inlined into
		for j := i; j < len(frames) && frames[j].Inlined && out.depth < 1000; j++ {
			out.depth++
		}
	}
	lib := f.lib(fr)
	f.place(frames[i:], lib, &out)
	return f.intern(appendName(f.buf[:0], fr), fr.File, lib, out)
}

// place sets address and symbol of the first of frames.
func (f *Firefox) place(frames []Frame, lib int32, out *firefoxFrame) {
	fr := &frames[0]
	if lib < 0 || fr.Script || fr.Mapping == nil || fr.Mapping.Image == 0 || fr.PC <= fr.Mapping.Image {
		return
	}
	image := fr.Mapping.Image
	out.address = lookupPC(fr) - image + 1
	outer := fr // the function that it was inlined into has the symbol
	for i := 1; outer.Inlined && i < len(frames); i++ {
		outer = &frames[i]
	}
	start := outer.PC - outer.Offset
	if outer.Func == "" || outer.Script || outer.Kernel || start < image {
		return
	}
	name, ok := f.strings.id(appendName(f.buf[:0], outer))
	if !ok {
		return
	}
	key := firefoxSymbol{lib, name, start - image}
	id, ok := f.bySymbol[key]
	if !ok {
		if len(f.symbols) >= maxNodes {
			return
		}
		id = uint32(len(f.symbols))
		f.bySymbol[key] = id
		f.symbols = append(f.symbols, key)
	}
	out.symbol = id + 1
}

// lib returns the index of the library that a frame lies in, -1 if that is not
// known.
func (f *Firefox) lib(fr *Frame) int32 {
	m := Mapping{Path: fr.Module}
	if fr.Mapping != nil {
		m = Mapping{Path: fr.Mapping.Path, BuildID: fr.Mapping.BuildID}
	}
	if m.Path == "" || fr.Kernel {
		return -1
	}
	key := m.Path + "\x00" + m.BuildID
	if i, ok := f.byLib[key]; ok {
		return i
	}
	if len(f.libs) >= maxThreads {
		return -1
	}
	i := int32(len(f.libs))
	f.byLib[key] = i
	f.libs = append(f.libs, m)
	return i
}

// intern returns the number of a frame of the function name in a library and
// file; overflowName when there is no room for it.
func (f *Firefox) intern(name []byte, file string, lib int32, fr firefoxFrame) uint32 {
	f.buf = name
	nameID, ok := f.strings.id(name)
	fileID := int32(-1)
	if file != "" && ok {
		var id uint32
		id, ok = f.strings.id(appendClean(nil, file))
		fileID = int32(id)
	}
	if !ok {
		return overflowName
	}
	key := strconv.AppendInt(f.buf[:0], int64(nameID), 36)
	key = strconv.AppendInt(append(key, ' '), int64(lib), 36)
	key = strconv.AppendInt(append(key, ' '), int64(fileID), 36)
	if fr.function, ok = f.funcs.id(key); !ok {
		return overflowName
	}
	if int(fr.function) == len(f.function) {
		f.function = append(f.function, firefoxFunc{nameID, fileID, lib})
	}
	id, ok := f.byFrame[fr]
	if !ok {
		if len(f.frames) >= maxNodes {
			return overflowName
		}
		id = uint32(len(f.frames))
		f.byFrame[fr] = id
		f.frames = append(f.frames, fr)
	}
	return id
}

// breakpadID is the identifier that Breakpad makes of a build-id: its first 16
// bytes as a GUID, whose first three fields are little-endian, and an age of 0.
func breakpadID(buildID string) string {
	b, err := hex.DecodeString(buildID)
	if err != nil || len(b) == 0 {
		return ""
	}
	b = append(b, make([]byte, 16)...)[:16]
	slices.Reverse(b[0:4])
	slices.Reverse(b[4:6])
	slices.Reverse(b[6:8])
	return strings.ToUpper(hex.EncodeToString(b)) + "0"
}

// Notes says of the result what a reader should know.
func (f *Firefox) Notes() []string { return f.tree.notes() }

// Close writes the profile.
func (f *Firefox) Close() error { return f.write(f.w) }

func (f *Firefox) write(w io.Writer) error {
	j := jsonWriter{out: bufio.NewWriterSize(w, 1<<16)}
	j.open('{')
	f.writeMeta(&j)
	names := f.writeLibs(&j)
	j.name("shared")
	j.open('{')
	f.writeTables(&j, names)
	j.close('}')
	j.name("threads")
	j.open('[')
	threads := slices.Clone(f.threads)
	first := make(map[int]int) // where a pid appeared
	for i, t := range threads {
		if _, ok := first[t.key.pid]; !ok {
			first[t.key.pid] = i
		}
	}
	slices.SortStableFunc(threads, func(a, b *firefoxThread) int {
		if c := cmp.Compare(first[a.key.pid], first[b.key.pid]); c != 0 || a.main() == b.main() {
			return c
		}
		if a.main() {
			return -1
		}
		return 1
	})
	for _, t := range threads {
		f.writeThread(&j, t)
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
	if f.opts.Hz > 0 {
		interval = 1000 / f.opts.Hz
	}
	j.float(interval)
	j.name("startTime")
	ms := 0.0
	if !f.start.IsZero() {
		ms = float64(f.start.UnixMicro()) / 1e3
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

// writeLibs writes the libraries and returns the numbers of their names, new
// strings.
func (f *Firefox) writeLibs(j *jsonWriter) (names []uint32) {
	j.name("libs")
	j.open('[')
	for _, m := range f.libs {
		path := clean(m.Path)
		base := path
		if strings.Contains(path, "/") {
			base = filepath.Base(path)
		}
		names = append(names, f.strings.add(base))
		j.open('{')
		j.name("arch")
		j.raw("null")
		j.text("name", base)
		j.text("path", path)
		j.text("debugName", base)
		j.text("debugPath", path)
		j.text("breakpadId", breakpadID(m.BuildID))
		j.name("codeId")
		if m.BuildID == "" {
			j.raw("null")
		} else {
			j.string(m.BuildID)
		}
		j.close('}')
	}
	j.close(']')
	return names
}

func (f *Firefox) writeTables(j *jsonWriter, libNames []uint32) {
	frames, nodes := len(f.frames), len(f.tree.nodes)-1
	sources := make(map[int32]int64) // by string
	var files []int32
	for _, fn := range f.function {
		if _, ok := sources[fn.file]; !ok && fn.file >= 0 {
			sources[fn.file] = int64(len(files))
			files = append(files, fn.file)
		}
	}
	j.table("stackTable", nodes)
	j.column("frame", nodes, func(i int) int64 { return int64(f.tree.nodes[i+1].frame) })
	j.column("prefix", nodes, func(i int) int64 { return int64(f.tree.nodes[i+1].parent) - 1 }) // node 0 is no stack
	j.close('}')

	j.table("frameTable", frames)
	j.name("address") // -1 for none, not null
	j.open('[')
	for i := range frames {
		j.int(int64(f.frames[i].address) - 1)
	}
	j.close(']')
	j.column("inlineDepth", frames, func(i int) int64 { return int64(f.frames[i].depth) })
	j.column("category", frames, func(i int) int64 { return int64(f.frames[i].category) })
	j.constant("subcategory", frames, "0")
	j.column("func", frames, func(i int) int64 { return int64(f.frames[i].function) })
	j.column("nativeSymbol", frames, func(i int) int64 { return int64(f.frames[i].symbol) - 1 })
	j.constant("innerWindowID", frames, "0")
	j.column("line", frames, func(i int) int64 { return orNull(f.frames[i].line) })
	j.constant("column", frames, "null")
	j.close('}')

	n := len(f.function)
	j.table("funcTable", n)
	j.column("name", n, func(i int) int64 { return int64(f.function[i].name) })
	j.constant("isJS", n, "false")
	j.constant("relevantForJS", n, "false")
	j.name("resource") // -1 for none, not null
	j.open('[')
	for i := range n {
		j.int(int64(f.function[i].lib))
	}
	j.close(']')
	j.column("source", n, func(i int) int64 {
		if f.function[i].file < 0 {
			return -1
		}
		return sources[f.function[i].file]
	})
	j.constant("lineNumber", n, "null")
	j.constant("columnNumber", n, "null")
	j.close('}')

	n = len(libNames)
	j.table("resourceTable", n)
	j.column("lib", n, func(i int) int64 { return int64(i) })
	j.column("name", n, func(i int) int64 { return int64(libNames[i]) })
	j.constant("host", n, "null")
	j.constant("type", n, "1") // a library
	j.close('}')

	n = len(f.symbols)
	j.table("nativeSymbols", n)
	j.column("libIndex", n, func(i int) int64 { return int64(f.symbols[i].lib) })
	j.column("address", n, func(i int) int64 { return int64(f.symbols[i].address) })
	j.column("name", n, func(i int) int64 { return int64(f.symbols[i].name) })
	j.constant("functionSize", n, "null")
	j.close('}')

	n = len(files)
	j.table("sources", n)
	j.constant("id", n, "null")
	j.column("filename", n, func(i int) int64 { return int64(files[i]) })
	j.constant("startLine", n, "1")
	j.constant("startColumn", n, "1")
	j.constant("sourceMapURL", n, "null")
	j.close('}')

	j.name("stringArray")
	j.open('[')
	for _, s := range f.strings.keys {
		j.string(s)
	}
	j.close(']')
}

// orNull is a line for a column: 0, which is unknown, as null.
func orNull(line uint32) int64 {
	if line == 0 {
		return -1
	}
	return int64(line)
}

func (f *Firefox) writeThread(j *jsonWriter, t *firefoxThread) {
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
	n = len(t.waits)
	j.table("markers", n)
	j.constant("data", n, `{"type":"Wait"}`)
	j.column("name", n, func(i int) int64 { return int64(t.waits[i].call) })
	j.times("startTime", n, func(i int) time.Duration { return t.waits[i].from })
	j.times("endTime", n, func(i int) time.Duration { return t.waits[i].to })
	j.constant("phase", n, "1") // an interval
	j.constant("category", n, strconv.Itoa(categoryIdle))
	j.close('}')
	j.close('}')
}
