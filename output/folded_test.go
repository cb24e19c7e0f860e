package output

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func folded(o Options) func(*bytes.Buffer) *Folded {
	o.Hz = 100
	return func(b *bytes.Buffer) *Folded { return NewFolded(b, o) }
}

func TestFoldedGolden(t *testing.T) {
	for name, o := range map[string]Options{
		"plain":     {},
		"by-thread": {By: ByThread},
		"lines":     {Lines: true},
	} {
		t.Run(name, func(t *testing.T) {
			golden(t, "folded-"+name+".txt", write(t, folded(o), testRun()))
		})
	}
}

// TestBy: what tells processes of one name, threads and states apart.
func TestBy(t *testing.T) {
	samples := []*Sample{
		{Process: "p", PID: 1, Thread: "a", State: "running", CPU: tick}, {Process: "p", PID: 2, Thread: "a", State: "read", CPU: tick},
		{Process: "p", PID: 2, Thread: "b", State: "read", CPU: tick},
	}
	for by, want := range map[By]string{
		"": "p 3\n", ByProcess: "p 3\n", ByPID: "p-1 1\np-2 2\n", ByThread: "p;a 2\np;b 1\n", ByState: "p;read 2\np;running 1\n",
	} {
		if got := string(write(t, folded(Options{By: by}), samples)); got != want {
			t.Errorf("by %q: got %q, want %q", by, got, want)
		}
	}
}

func TestFoldedTotalsAndOrder(t *testing.T) {
	var cpu time.Duration
	for _, s := range testRun() {
		cpu += s.CPU
	}
	want := int64((cpu + tick/2) / tick)
	lines := strings.Split(strings.TrimSuffix(string(write(t, folded(Options{}), testRun())), "\n"), "\n")
	var got int64
	for _, l := range lines {
		n, err := strconv.ParseInt(l[strings.LastIndexByte(l, ' ')+1:], 10, 64)
		if err != nil {
			t.Fatalf("%q: %v", l, err)
		}
		got += n
	}
	if got != want {
		t.Errorf("lines add up to %d ticks, want %d", got, want)
	}
	if !slices.IsSorted(lines) {
		t.Errorf("lines are not in byte order:\n%s", strings.Join(lines, "\n"))
	}
}

// TestFoldedSorted takes names whose order as frames and as lines differs:
// ' ' < '0' < ';' < 'a'.
func TestFoldedSorted(t *testing.T) {
	f := func(names ...string) *Sample {
		s := &Sample{Process: "p", Stack: &Stack{}, CPU: 7 * tick}
		for _, n := range names {
			s.Stack.Frames = append(s.Stack.Frames, Frame{Func: n})
		}
		slices.Reverse(s.Stack.Frames)
		return s
	}
	got := write(t, folded(Options{}), []*Sample{
		f("a", "x"), f("a"), f("a b"), f("a b", "c"), f("a0"), f("a0", "z"), f("a!"), f("aa"), f("A"), f("a 9"), f("é"),
	})
	lines := strings.Split(strings.TrimSuffix(string(got), "\n"), "\n")
	if len(lines) != 11 || !slices.IsSorted(lines) {
		t.Errorf("want 11 lines in byte order, got\n%s", got)
	}
}

func TestFrameNames(t *testing.T) {
	for _, tc := range []struct {
		name  string
		frame Frame
		lines bool
		want  string
	}{
		{"function", frMain, false, "main"},
		{"function with line", frMain, true, "main app.c:10"},
		{"no line known", frRead, true, "read"},
		{"file without line", Frame{Func: "f", File: "/x/y.c"}, true, "f y.c"},
		{"module and offset", frNoName, false, "libc.so.6+0x1f20"},
		{"anonymous", frAnon, false, "[anon]+0x7e0000000010"},
		{"unmapped", frNone, false, "[unknown]"},
		{"kernel", frKernel, false, "vfs_read_[k]"},
		{"hostile", frEvil, false, `a:b<script>"'&\x1b[31m\x0a\x09\xff\u202e\ end_12`},
		{"hostile module", Frame{Module: "m;\n", Offset: 2}, false, `m:\x0a+0x2`},
		{"blank", Frame{Func: "  "}, false, "[unknown]"},
		{"ends in a count", Frame{Func: "operator 12"}, false, "operator_12"},
		{"ends in two counts", Frame{Func: "a 1 2"}, false, "a 1_2"},
		{"ends in a decimal count", Frame{Func: "a 1.5"}, false, "a_1.5"},
		{"ends in a number that is no count", Frame{Func: "a 1.5x"}, false, "a 1.5x"},
		{"blanks inside", Frame{Func: "operator new(unsigned long)"}, false, "operator new(unsigned long)"},
		{"umlaut", Frame{Func: "größe"}, false, "größe"},
		{"C1 control", Frame{Func: "a\u009bb"}, false, `a\u009bb`},
		{"line separator", Frame{Func: "a\u2028b"}, false, `a\u2028b`},
		{"beyond the BMP, unassigned", Frame{Func: "\U000e0001"}, false, `\U000e0001`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := string(appendFolded(nil, &tc.frame, tc.lines)); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestLongNameIsCut(t *testing.T) {
	got := clean(strings.Repeat("x", 1<<20))
	if len(got) > maxNameBytes+16 || !strings.HasSuffix(got, "x...") {
		t.Errorf("a name of 1 MB became one of %d bytes, ending in %q", len(got), got[len(got)-8:])
	}
}

// TestFoldedBounded feeds more distinct stacks than fit: memory stays bounded,
// the total stays exact and what does not fit is marked.
func TestFoldedBounded(t *testing.T) {
	var b bytes.Buffer
	f := NewFolded(&b, Options{Hz: 100})
	f.tree.limit = 100
	for i := range 1000 {
		f.Add(&Sample{Process: "p", CPU: tick, Stack: &Stack{Frames: []Frame{{Func: fmt.Sprint("f", i)}, {Func: "main"}}}})
	}
	if n := len(f.tree.nodes); n > 200 {
		t.Errorf("%d nodes with a limit of 100", n)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(b.String(), "\n"), "\n")
	// Node 0, p and main leave room for 97 of the 1,000 functions, and a quarter more for 24 below the frame that says so.
	if len(lines) != 122 || lines[0] != "p;main;[more: too many distinct stacks] 879" || lines[1] != "p;main;[more: too many distinct stacks];f100 1" {
		t.Errorf("%d lines, the first %q", len(lines), lines[:2])
	}
}

// TestLeafKept: what a function weighs by itself is the same where there is no room for all stacks, in each output.
func TestLeafKept(t *testing.T) {
	var texts [3]bytes.Buffer
	f, p, x := NewFolded(&texts[0], Options{Hz: 100}), NewPProf(&texts[1], Options{Hz: 100}), NewFirefox(&texts[2], Options{Hz: 100})
	f.tree.limit, p.cells.tree.limit, x.timeline.shared.tree.limit = 1000, 1000, 1000
	for i := range 600 {
		frames := []Frame{{Func: fmt.Sprint("leaf", i%3), PC: uint64(i%3 + 1)}}
		for k := range 30 {
			frames = append(frames, Frame{Func: fmt.Sprint("f", i, ".", k), PC: uint64(1000*i + k + 10)})
		}
		for _, o := range []interface{ Add(*Sample) error }{f, p, x} {
			o.Add(&Sample{Process: "p", PID: 1, TID: 1, CPU: tick, Stack: &Stack{Frames: frames}})
		}
	}
	for _, o := range []io.Closer{f, p, x} {
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var got [3]map[string]int64
	for i := range got {
		got[i] = map[string]int64{}
	}
	for line := range strings.Lines(texts[0].String()) {
		stack, n, _ := cutLast(strings.TrimSpace(line), " ")
		weight, _ := strconv.ParseInt(n, 10, 64)
		_, leaf, _ := cutLast(stack, ";")
		got[0][leaf] += weight
	}
	for _, s := range parsePProf(t, texts[1].Bytes()).Sample {
		got[1][s.Location[0].Line[0].Function.Name] += s.Value[0]
	}
	profile := parseFirefox(t, texts[2].Bytes())
	for i := range profile.Threads {
		for _, stack := range profile.Threads[i].Samples.Stack {
			_, leaf, _ := cutLast(";"+profile.path(stack), ";")
			got[2][leaf]++
		}
	}
	for i, got := range got {
		if want := map[string]int64{"leaf0": 200, "leaf1": 200, "leaf2": 200}; !maps.Equal(got, want) {
			t.Errorf("output %d: %v", i, got)
		}
	}
}

// cutLast is strings.Cut at the last separator.
func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func TestFoldedNamesBounded(t *testing.T) {
	var b bytes.Buffer
	f := NewFolded(&b, Options{Hz: 100})
	pad := strings.Repeat("x", 4000)
	const n = 2 * maxTextBytes / 4000
	for i := range n {
		f.Add(&Sample{Process: "p", CPU: tick, Stack: &Stack{Frames: []Frame{{Func: fmt.Sprint(i, pad)}}}})
	}
	if f.names.bytes > maxTextBytes {
		t.Errorf("%d bytes of names, the bound is %d", f.names.bytes, maxTextBytes)
	}
	if f.Close(); !strings.Contains(b.String(), "p;[more: too many distinct stacks] ") {
		t.Error("what did not fit is not marked")
	}
}

// TestPathCacheIsBounded: stacks are recognised by pointer, but not for ever,
// and counted right all the same.
func TestPathCacheIsBounded(t *testing.T) {
	var b bytes.Buffer
	f := NewFolded(&b, Options{Hz: 100})
	frames := make([]Frame, 1000)
	for i := range frames {
		frames[i].Func = "recurse"
	}
	for range 100 {
		f.Add(&Sample{Process: "p", CPU: tick, Stack: &Stack{Frames: frames}})
	}
	if len(f.cache.ids) > maxCached/1000 {
		t.Errorf("%d stacks of 1,000 frames are held, the bound is %d frames", len(f.cache.ids), maxCached)
	}
	if f.Close(); !strings.HasSuffix(b.String(), ";recurse 100\n") || strings.Count(b.String(), "\n") != 1 {
		t.Errorf("100 equal stacks gave %q…", b.String()[:100])
	}
}

// FuzzFolded builds a stack of arbitrary names and requires of the line what
// flamegraph.pl relies on.
func FuzzFolded(f *testing.F) {
	f.Add("app", "main", "a;b 1\x1b[0m\n", "c.c", int64(3))
	f.Add("", "\xff\xfe", " 12", "", int64(1))
	f.Add("x 1", "y 2", "z 3.", "f 4", int64(9))
	f.Add("\u202e", "\u2028", "\u00a0 7", "\x00", int64(1))
	f.Fuzz(func(t *testing.T, process, outer, inner, file string, ticks int64) {
		if ticks <= 0 {
			ticks = 1
		}
		s := &Sample{Process: process, CPU: time.Duration(ticks) * tick, Stack: &Stack{
			End:    inner,
			Frames: []Frame{{Func: inner, File: file, Line: 3}, {Module: outer, Offset: 16}},
		}}
		line := string(write(t, folded(Options{Lines: true}), []*Sample{s}))
		body, ok := strings.CutSuffix(line, fmt.Sprintf(" %d\n", ticks))
		if !ok {
			t.Fatalf("%q does not end in its count", line)
		}
		if !utf8.ValidString(body) || strings.ContainsFunc(body, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q has unprintable characters", body)
		}
		frames := 3
		if inner != "" {
			frames++
		}
		parts := strings.Split(body, ";")
		if len(parts) != frames {
			t.Errorf("%q has %d frames, want %d", body, len(parts), frames)
		}
		for _, p := range parts {
			if p == "" || strings.TrimSpace(p) != p {
				t.Errorf("%q has the frame %q", body, p)
			}
			if i := strings.LastIndexByte(p, ' '); i >= 0 && isNumber([]byte(p[i+1:])) {
				t.Errorf("frame %q ends in a count", p)
			}
		}
	})
}

func BenchmarkFoldedAdd(b *testing.B) {
	f := NewFolded(io.Discard, Options{Hz: 100, By: ByThread})
	samples := testRun()
	for _, s := range samples {
		f.Add(s)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		f.Add(samples[i%len(samples)])
	}
}

// BenchmarkFoldedNew is the cost of a stack that is not recognised by its
// pointer: 50 frames that the tree knows.
func BenchmarkFoldedNew(b *testing.B) {
	f := NewFolded(io.Discard, Options{Hz: 100})
	frames := make([]Frame, 50)
	for i := range frames {
		frames[i].Func = fmt.Sprint("function", i)
	}
	b.ReportAllocs()
	for b.Loop() {
		f.Add(&Sample{Process: "p", CPU: tick, Stack: &Stack{Frames: frames}})
	}
}

func ExampleFolded() {
	var w strings.Builder
	f := NewFolded(&w, Options{Hz: 99})
	busy := &Stack{Frames: []Frame{{Func: "hash"}, {Func: "main"}}} // innermost first
	cut := &Stack{Frames: []Frame{{Module: "libz.so.1", Offset: 0x1f20}}, End: "no row"}
	for _, s := range []*Stack{busy, cut, busy} {
		if err := f.Add(&Sample{Process: "app", Stack: s, CPU: time.Second / 99}); err != nil {
			panic(err)
		}
	}
	if err := f.Close(); err != nil {
		panic(err)
	}
	fmt.Print(w.String())
	// Output:
	// app;[truncated: no row];libz.so.1+0x1f20 1
	// app;main;hash 2
}

// TestDeal: whole units by largest remainder, checked against the rule itself: the
// sum is the rounded one, nobody is a unit or more away from his share, and
// nobody with a smaller rest got one before another.
func TestDeal(t *testing.T) {
	for _, tc := range []struct {
		weights, want []int64
		none          int
	}{
		{nil, []int64{}, 0},
		{[]int64{10, 20}, []int64{1, 2}, 0},
		{[]int64{4, 4, 4}, []int64{1, 0, 0}, 2},
		{[]int64{5}, []int64{1}, 0},
		{[]int64{4}, []int64{0}, 1},
		{[]int64{13, 9, 8}, []int64{1, 1, 1}, 0},
		{[]int64{16, 14, 0}, []int64{2, 1, 0}, 0},
	} {
		if got, none := deal(tc.weights, 10); !slices.Equal(got, tc.want) || none != tc.none {
			t.Errorf("%v: got %v and %d without, want %v and %d", tc.weights, got, none, tc.want, tc.none)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		w := make([]int64, 1+r.IntN(50))
		var sum, units int64
		for i := range w {
			w[i] = r.Int64N(1000)
			sum += w[i]
		}
		got, _ := deal(w, 100)
		least, most := int64(100), int64(-1) // rests that got one more, and that did not
		for i, n := range got {
			units += n
			switch n - w[i]/100 {
			case 1:
				least = min(least, w[i]%100)
			case 0:
				most = max(most, w[i]%100)
			default:
				t.Fatalf("%d became %d units", w[i], n)
			}
		}
		if units != (sum+50)/100 || least < most {
			t.Fatalf("%v: %v, %d units of %d; a rest of %d got one, one of %d did not", w, got, units, sum, least, most)
		}
	}
}

// TestSumsAgree: a run of many samples that weigh much less than a tick has the same sum in
// every format, and those without a line are told.
func TestSumsAgree(t *testing.T) {
	var samples []*Sample
	var total time.Duration
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 60 {
		s := &Sample{Time: start, Process: "p", PID: 1, TID: 1, CPU: time.Duration(r.Int64N(int64(tick))), Stack: &Stack{Frames: []Frame{{Func: fmt.Sprint("f", i), PC: uint64(i + 1)}}}}
		total += s.CPU
		samples = append(samples, s)
	}
	o := Options{Hz: 100}
	var f *Folded
	text := write(t, func(b *bytes.Buffer) *Folded { f = NewFolded(b, o); return f }, samples)
	ticks, lines := int64(0), 0
	for path, n := range weights(t, text) {
		if path != "p" {
			ticks, lines = ticks+n, lines+1
		}
	}
	if want := int64((total + tick/2) / tick); ticks != want || lines == 60 {
		t.Errorf("folded has %d ticks in %d lines, want %d in fewer than 60", ticks, lines, want)
	}
	if notes := f.Notes(); len(notes) != 1 || !strings.Contains(notes[0], fmt.Sprintf("have no line: %d;", 60-lines)) {
		t.Errorf("notes are %q, want one of %d stacks", notes, 60-lines)
	}
	var periods time.Duration
	for _, m := range perfEvent.FindAllStringSubmatch(string(write(t, perf(o), samples)), -1) {
		n, _ := strconv.ParseInt(m[1], 10, 64)
		periods += time.Duration(n)
	}
	profile := parsePProf(t, write(t, pprof(o), samples))
	var count, cpu int64
	for _, s := range profile.Sample {
		count, cpu = count+s.Value[0], cpu+s.Value[1]
	}
	var ms float64
	for _, th := range parseFirefox(t, write(t, firefox(o), samples)).Threads {
		for _, w := range th.Samples.Weight {
			ms += w
		}
	}
	_, frames := pageData(t, write(t, page(o), samples))
	var page int64
	for i := 2; i < len(frames); i += 3 {
		page += frames[i]
	}
	if count != ticks || time.Duration(cpu) != total || time.Duration(page) != total || math.Abs(ms-total.Seconds()*1e3) > 1e-6 || periods != total {
		t.Errorf("folded %d ticks, pprof %d and %v, html %v, firefox %v ms, perf %v; the run had %v", ticks, count, time.Duration(cpu), time.Duration(page), ms, periods, total)
	}
}

// TestMoreIsTold: what had no room is in the notes.
func TestMoreIsTold(t *testing.T) {
	f := NewFolded(io.Discard, Options{Hz: 100})
	f.tree.limit = 10
	for i := range 30 {
		if i == 8 && f.Notes() != nil {
			t.Errorf("while there is room, the notes are %q", f.Notes())
		}
		f.Add(&Sample{Process: "p", CPU: tick, Stack: &Stack{Frames: []Frame{{Func: fmt.Sprint(i)}}}})
	}
	if notes := f.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "no room for all distinct stacks: at 1 place") {
		t.Errorf("notes are %q", notes)
	}
}
