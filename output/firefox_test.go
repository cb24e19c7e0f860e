package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

func firefox(o Options) func(*bytes.Buffer) *Firefox {
	return func(b *bytes.Buffer) *Firefox { return NewFirefox(b, o) }
}

// firefoxProfile is the part of the processed profile format, version 62
// (docs-developer/CHANGELOG-formats.md and src/types/profile.ts of the Firefox
// Profiler), that the tests look at.
type firefoxProfile struct {
	Meta struct {
		PreprocessedProfileVersion int
		Interval, StartTime        float64
		Categories                 []struct{ Name, Color string }
	}
	Libs   []struct{ Name, Path, BreakpadID, CodeID string }
	Shared struct {
		StackTable struct {
			Length int
			Frame  []int
			Prefix []*int
		}
		FrameTable struct {
			Length                                         int
			Address, InlineDepth, Category, Func           []int
			Subcategory, NativeSymbol, InnerWindowID, Line []*int
			Column                                         []*int
		}
		FuncTable struct {
			Length                           int
			Name, Resource                   []int
			IsJS, RelevantForJS              []bool
			Source, LineNumber, ColumnNumber []*int
		}
		ResourceTable struct {
			Length          int
			Lib, Name, Type []int
			Host            []*int
		}
		Sources struct {
			Length   int
			Filename []int
		}
		StringArray []string
	}
	Threads []struct {
		Name, ProcessName, PID, TID string
		IsMainThread                bool
		Samples                     struct {
			Length         int
			WeightType     string
			ThreadCPUDelta []int64
			Stack          []*int
			Time, Weight   []float64
		}
	}
}

func parseFirefox(t *testing.T, b []byte) *firefoxProfile {
	t.Helper()
	p := new(firefoxProfile)
	if err := json.Unmarshal(b, p); err != nil {
		t.Fatal(err)
	}
	return p
}

// path is a stack, root first, as folded has it, with the libraries' names.
func (p *firefoxProfile) path(stack *int) string {
	var names []string
	for ; stack != nil; stack = p.Shared.StackTable.Prefix[*stack] {
		names = append([]string{p.Shared.StringArray[p.Shared.FuncTable.Name[p.Shared.FrameTable.Func[p.Shared.StackTable.Frame[*stack]]]]}, names...)
	}
	return strings.Join(names, ";")
}

func TestFirefoxAgreesWithFolded(t *testing.T) {
	b := write(t, firefox(Options{Hz: 100}), testRun())
	golden(t, "firefox.json", b)
	p := parseFirefox(t, b)
	got := make(map[string]int64)
	for _, th := range p.Threads {
		for i := range th.Samples.Length {
			path := th.ProcessName
			if s := p.path(th.Samples.Stack[i]); s != "" {
				path += ";" + s
			}
			if i > 0 && th.Samples.Time[i] < th.Samples.Time[i-1] {
				t.Errorf("thread %s: time goes back at sample %d", th.TID, i)
			}
			got[path] += int64(math.Round(1000 * th.Samples.Weight[i]))
		}
	}
	for l := range strings.Lines(string(write(t, folded(Options{Micros: true}), testRun()))) {
		i := strings.LastIndexByte(l, ' ')
		path := l[:i]
		if strings.HasPrefix(path, "e:v") { // what is special in folded lines only
			path = `e;v\x07il 3;main;a;b<script>"'&\x1b[31m\x0a\x09\xff\u202e\ end 12`
		}
		if n := fmt.Sprintln(got[path]); n != l[i+1:] {
			t.Errorf("%s has weight %swant %s", path, n, l[i+1:])
		}
		delete(got, path)
	}
	for path := range got {
		t.Errorf("%s is not in the folded output", path)
	}
}

// TestFirefoxTables: every column is as long as its table, every index is in
// the table that it points into, and a caller comes before what it calls.
func TestFirefoxTables(t *testing.T) {
	b := write(t, firefox(Options{Hz: 100}), testRun())
	var doc struct {
		Shared  map[string]json.RawMessage
		Threads []map[string]json.RawMessage
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	tables := make(map[string]json.RawMessage)
	for name, raw := range doc.Shared {
		if name != "stringArray" {
			tables[name] = raw
		}
	}
	for i, th := range doc.Threads {
		tables[fmt.Sprint("samples ", i)], tables[fmt.Sprint("markers ", i)] = th["samples"], th["markers"]
	}
	for name, raw := range tables {
		var columns map[string]json.RawMessage
		if err := json.Unmarshal(raw, &columns); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var length int
		if err := json.Unmarshal(columns["length"], &length); err != nil {
			t.Errorf("%s: length: %v", name, err)
		}
		for c, raw := range columns {
			var values []any
			if c == "length" || c == "weightType" {
				continue
			}
			if err := json.Unmarshal(raw, &values); err != nil || len(values) != length {
				t.Errorf("%s.%s has %d rows, want %d (%v)", name, c, len(values), length, err)
			}
		}
	}

	p := parseFirefox(t, b)
	within := func(what string, i *int, n int) {
		if i != nil && (*i < 0 || *i >= n) {
			t.Errorf("%s is %d of %d", what, *i, n)
		}
	}
	s := &p.Shared
	for i := range s.StackTable.Length {
		within("frame", &s.StackTable.Frame[i], s.FrameTable.Length)
		within("prefix", s.StackTable.Prefix[i], i)
	}
	for i := range s.FrameTable.Length {
		within("func", &s.FrameTable.Func[i], s.FuncTable.Length)
		within("category", &s.FrameTable.Category[i], len(p.Meta.Categories))
	}
	for i := range s.FuncTable.Length {
		within("name", &s.FuncTable.Name[i], len(s.StringArray))
		within("source", s.FuncTable.Source[i], s.Sources.Length)
		if s.FuncTable.Resource[i] != -1 {
			within("resource", &s.FuncTable.Resource[i], s.ResourceTable.Length)
		}
	}
	for i := range s.ResourceTable.Length {
		within("lib", &s.ResourceTable.Lib[i], len(p.Libs))
		within("name", &s.ResourceTable.Name[i], len(s.StringArray))
	}
	for i := range s.Sources.Length {
		within("filename", &s.Sources.Filename[i], len(s.StringArray))
	}
	for _, th := range p.Threads {
		for i := range th.Samples.Length {
			within("stack", th.Samples.Stack[i], s.StackTable.Length)
		}
	}
}

func TestFirefoxInlineDepth(t *testing.T) {
	twice := frScan
	twice.Func = "peek"
	s := []*Sample{{Process: "p", CPU: tick, Stack: &Stack{Frames: []Frame{twice, frScan, frParse, frMain}}}}
	p := parseFirefox(t, write(t, firefox(Options{}), s))
	depths := make(map[string]int)
	for i, fn := range p.Shared.FrameTable.Func {
		depths[p.Shared.StringArray[p.Shared.FuncTable.Name[fn]]] = p.Shared.FrameTable.InlineDepth[i]
	}
	for name, want := range map[string]int{"main": 0, "parse": 0, "scan": 1, "peek": 2} {
		if depths[name] != want {
			t.Errorf("%s has inline depth %d, want %d", name, depths[name], want)
		}
	}
}

// TestBreakpadID takes its pair from a profile that samply wrote of a program
// with this build-id.
func TestBreakpadID(t *testing.T) {
	if got, want := breakpadID("510d0a5c19eadf8043f203b4525be9be3dcb9554"), "5C0A0D51EA1980DF43F203B4525BE9BE0"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for in, want := range map[string]string{"": "", "xy": "", "0102": "00000201000000000000000000000000" + "0"} {
		if got := breakpadID(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// TestJoinSpans: equal stacks within a second become one.
func TestJoinSpans(t *testing.T) {
	const ms = time.Millisecond
	got := joinSpans([]timed{
		{0, 1, 1, 5}, {100 * ms, 2, 1, 6}, {200 * ms, 4, 2, 5}, {1100 * ms, 8, 1, 5}, {1200 * ms, 16, 1, 5},
	}, time.Second)
	want := []timed{{0, 5, 3, 5}, {100 * ms, 2, 1, 6}, {1100 * ms, 24, 2, 5}}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestFirefoxBounded feeds more samples than are kept, of few and of ever new
// stacks: their number stays bounded, no weight is lost.
func TestFirefoxBounded(t *testing.T) {
	for name, distinct := range map[string]int{"few stacks": 100, "ever new stacks": 1 << 30} {
		t.Run(name, func(t *testing.T) {
			f := NewFirefox(io.Discard, Options{Hz: 1000})
			l := &f.timeline
			l.shared.tree.limit = 1000
			l.limit = 10_000
			const n = 15_000
			for i := range n {
				f.Add(&Sample{
					Time: start.Add(time.Duration(i) * time.Millisecond), Process: "p", PID: 1, TID: 1 + i%4, CPU: tick,
					Stack: &Stack{Frames: []Frame{{Func: "leaf", Module: fmt.Sprint(i % min(distinct, 2000)), Line: i % distinct}}},
				})
			}
			var ticks, samples int64
			for _, th := range l.threads {
				for _, s := range th.samples {
					ticks += int64(s.weight / tick)
					samples++
				}
			}
			if ticks != n || samples > int64(l.limit) || l.samples != int(samples) {
				t.Errorf("%d ticks in %d samples (%d), want %d in at most %d", ticks, samples, l.samples, n, l.limit)
			}
		})
	}
}

// TestFirefoxWaits: blocked samples have an idle leaf, and those of one call that follow each other are one marker.
func TestFirefoxWaits(t *testing.T) {
	at := func(ms int, state string) *Sample {
		return &Sample{Time: start.Add(time.Duration(ms) * time.Millisecond), Process: "p", PID: 1, TID: 1, State: state, Wall: tick,
			Stack: &Stack{Frames: []Frame{frRead, frMain}}}
	}
	b := write(t, func(b *bytes.Buffer) *Firefox {
		f := NewFirefox(b, Options{Hz: 100, Wall: true})
		f.describe(Run{Command: "p -x", CPUs: 2, CPU: "fast"})
		return f
	}, []*Sample{at(0, "running"), at(10, "read"), at(20, "read"), at(30, "futex"), at(100, "read")})
	var doc struct {
		Meta struct {
			Arguments, CPUName, OSCPU string
			LogicalCPUs               int
			MarkerSchema              []struct{ Name string }
		}
		Threads []struct {
			Markers struct {
				Name               []int
				StartTime, EndTime []float64
				Phase, Category    []int
				Data               []struct{ Type string }
			}
		}
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	p := parseFirefox(t, b)
	if doc.Meta.Arguments != "p -x" || doc.Meta.CPUName != "fast" || doc.Meta.OSCPU != "Linux" || doc.Meta.LogicalCPUs != 2 {
		t.Errorf("meta is %+v", doc.Meta)
	}
	m := doc.Threads[0].Markers
	var got []string
	for i := range m.Name {
		got = append(got, fmt.Sprint(p.Shared.StringArray[m.Name[i]], " ", m.StartTime[i], "-", m.EndTime[i]))
		if m.Data[i].Type != doc.Meta.MarkerSchema[0].Name || m.Phase[i] != 1 || p.Meta.Categories[m.Category[i]].Name != "Idle" {
			t.Errorf("marker %d is %+v", i, m)
		}
	}
	if want := "[read 0-20 futex 20-30 read 90-100]"; fmt.Sprint(got) != want {
		t.Errorf("waits are %v, want %s", got, want)
	}
	for i, s := range p.Threads[0].Samples.Stack {
		category := p.Meta.Categories[p.Shared.FrameTable.Category[p.Shared.StackTable.Frame[*s]]].Name
		if want := "Idle"; (category == want) == (i == 0) {
			t.Errorf("the leaf of sample %d is in the category %s", i, category)
		}
	}
}

func TestFirefoxManyThreads(t *testing.T) {
	f := NewFirefox(io.Discard, Options{})
	for i := range maxThreads + 100 {
		f.Add(&Sample{Process: "p", PID: 1, TID: 1 + i, CPU: tick})
	}
	threads := f.timeline.threads
	last := threads[len(threads)-1]
	if len(threads) != maxThreads+1 || len(last.samples) != 100 || last.key.process != "[more threads]" {
		t.Errorf("%d threads, the last %+v with %d samples", len(threads), last.key, len(last.samples))
	}
}

func BenchmarkFirefoxAdd(b *testing.B) {
	samples := testRun()
	f := NewFirefox(io.Discard, Options{Hz: 100})
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		f.Add(samples[i%len(samples)])
	}
}
