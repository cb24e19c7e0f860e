package live

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sfsample/output"
	"sfsample/sampler/ledger"
)

const ms = time.Millisecond

// stackOf makes a stack of functions, innermost first, each "name" or "name@module"; a name with a dot is of a script.
func stackOf(list ...string) *output.Stack {
	s := new(output.Stack)
	for _, x := range list {
		name, module, _ := strings.Cut(x, "@")
		s.Frames = append(s.Frames, output.Frame{Func: name, Module: module, PC: 1, Script: strings.Contains(name, ".")})
	}
	return s
}

// sampled is a model of one round with a program: main calls a and b, b itself and read.
func sampled(t *testing.T) *Model {
	t.Helper()
	m := New()
	a, b, r := stackOf("a@app", "main@app"), stackOf("b@app", "b@app", "x.py@app", "main@app"), stackOf("read@libc", "b@app", "main@app")
	for _, s := range []output.Sample{
		{PID: 1, TID: 1, Process: "app", Thread: "app", State: "running", Stack: a, CPU: 30 * ms, Wall: 10 * ms},
		{PID: 1, TID: 1, Process: "app", Thread: "app", State: "running", Stack: b, CPU: 50 * ms, Wall: 10 * ms},
		{PID: 1, TID: 2, Process: "app", Thread: "io", State: "read", Wait: "read: pipe", Stack: r, Wall: 80 * ms},
		{PID: 1, TID: 2, Process: "app", Thread: "io", State: "running", Stack: r, CPU: 20 * ms, Wall: 10 * ms},
	} {
		m.Add(&s)
	}
	m.EndRound(roundOf(1, ledger.Sampled, 4))
	return m
}

var began = time.Unix(1000, 0)

// roundOf is the nth second.
func roundOf(n int, class ledger.Class, count int64) Round {
	r := Round{Start: began.Add(time.Duration(n-1) * time.Second), End: began.Add(time.Duration(n) * time.Second), Processes: 1, Threads: 2, Stride: 1}
	r.Account.Ticks, r.Account.Expected = 99, 198
	r.Account.Count[class] = count
	return r
}

func TestRows(t *testing.T) {
	for name, tt := range map[string]struct {
		query Query
		want  []Row
		sum   time.Duration
	}{
		"functions": {Query{}, []Row{
			{Name: "b", Where: "app", Self: 50 * ms, Total: 70 * ms},
			{Name: "a", Where: "app", Self: 30 * ms, Total: 30 * ms},
			{Name: "read", Where: "libc", Self: 20 * ms, Total: 20 * ms},
			{Name: "main", Where: "app", Total: 100 * ms},
			{Name: "x.py", Where: "app", Total: 50 * ms},
		}, 100 * ms},
		"by total": {Query{ByTotal: true}, []Row{
			{Name: "main", Where: "app", Total: 100 * ms},
			{Name: "b", Where: "app", Self: 50 * ms, Total: 70 * ms},
			{Name: "x.py", Where: "app", Total: 50 * ms},
			{Name: "a", Where: "app", Self: 30 * ms, Total: 30 * ms},
			{Name: "read", Where: "libc", Self: 20 * ms, Total: 20 * ms},
		}, 100 * ms},
		"filter": {Query{Filter: regexp.MustCompile("^a$|LIBC|libc")}, []Row{
			{Name: "a", Where: "app", Self: 30 * ms, Total: 30 * ms},
			{Name: "read", Where: "libc", Self: 20 * ms, Total: 20 * ms},
		}, 100 * ms},
		"scripts": {Query{By: ByScript}, []Row{{Name: "x.py", Where: "app", Self: 50 * ms, Total: 50 * ms}}, 100 * ms},
		"modules": {Query{By: ByModule}, []Row{
			{Name: "app", Self: 80 * ms, Total: 100 * ms},
			{Name: "libc", Self: 20 * ms, Total: 20 * ms},
		}, 100 * ms},
		"threads": {Query{By: ByThread}, []Row{
			{Name: "      1 app", Where: "b", Self: 80 * ms, Total: 80 * ms},
			{Name: "      2 io (app)", Where: "read", Self: 20 * ms, Total: 20 * ms},
		}, 100 * ms},
		"threads, wall": {Query{By: ByThread, Wall: true}, []Row{
			{Name: "      2 io (app)", Where: "read: pipe", Self: 90 * ms, Total: 90 * ms},
			{Name: "      1 app", Where: "a", Self: 20 * ms, Total: 20 * ms},
		}, 110 * ms},
		"waits": {Query{By: ByWait, Wall: true}, []Row{
			{Name: "read: pipe", Where: "1 thread", Self: 80 * ms, Total: 80 * ms},
			{Name: "running", Where: "2 threads", Self: 30 * ms, Total: 30 * ms},
		}, 110 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			got, sum := sampled(t).Take(Last).Rows(tt.query)
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreFields(Row{}, "Key", "id")); diff != "" || sum != tt.sum {
				t.Errorf("sum %v, want %v; rows -want +got:\n%s", sum, tt.sum, diff)
			}
		})
	}
}

// TestDetail: callers and callees of a function that calls itself are those outside of the recursion.
func TestDetail(t *testing.T) {
	p := sampled(t).Take(Last)
	find := func(q Query, name string) *Row {
		rows, _ := p.Rows(q)
		for i := range rows {
			if rows[i].Name == name {
				return &rows[i]
			}
		}
		t.Fatalf("no row %q in %v", name, rows)
		return nil
	}
	for name, tt := range map[string]struct {
		query Query
		row   string
		want  Detail
	}{
		"function": {Query{}, "b", Detail{
			Callers: []Part{{"x.py", 50 * ms}, {"main", 20 * ms}}, Callees: []Part{{"read", 20 * ms}},
			Stacks: []Stack{{50 * ms, []string{"b", "b", "x.py", "main"}, 0}, {20 * ms, []string{"read", "b", "main"}, 1}},
		}},
		"thread": {Query{By: ByThread}, "      2 io (app)", Detail{
			Functions: []Part{{"read", 20 * ms}}, Stacks: []Stack{{20 * ms, []string{"read", "b", "main"}, -1}},
		}},
		"wait": {Query{By: ByWait, Wall: true}, "read: pipe", Detail{
			Functions: []Part{{"read", 80 * ms}}, Stacks: []Stack{{80 * ms, []string{"read", "b", "main"}, -1}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, p.Detail(tt.query, find(tt.query, tt.row))); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestWindows: each window has the rounds that it is told to have.
func TestWindows(t *testing.T) {
	m := New()
	add := func(d time.Duration) {
		m.Add(&output.Sample{PID: 1, TID: 1, State: "running", Stack: stackOf("f"), CPU: d})
	}
	check := func(when string, want [3]time.Duration) {
		t.Helper()
		for w := range numWindows {
			if p := m.Take(w); p.CPU != want[w] {
				t.Errorf("%s: window %d has %v, want %v", when, w, p.CPU, want[w])
			}
		}
	}
	for i := range 12 {
		add(time.Duration(i+1) * ms) // 1 to 12
		m.EndRound(roundOf(i+1, ledger.Sampled, 1))
	}
	add(time.Hour) // of a round that has not ended
	check("12 rounds", [3]time.Duration{Recent: 75 * ms, Last: 12 * ms, All: 78 * ms})
	if p := m.Take(All); p.Took != 12*time.Second || p.Elapsed != 12*time.Second || p.Account.Count[ledger.Sampled] != 12 || p.Account.Ticks != 12*99 {
		t.Errorf("took %v of %v, account %v", p.Took, p.Elapsed, p.Account)
	}
	m.Reset()
	check("reset", [3]time.Duration{})
	add(5 * ms)
	m.EndRound(roundOf(13, ledger.Sampled, 1))
	add(2 * ms)
	brief := roundOf(14, ledger.Sampled, 1)
	brief.End, brief.Last = brief.Start.Add(10*ms), true
	m.EndRound(brief)
	check("the rest of a run", [3]time.Duration{7 * ms, 7 * ms, 7 * ms})
	m.Reset()
	add(3 * ms)
	long := roundOf(15, ledger.Sampled, 1)
	long.End = long.Start.Add(time.Minute) // sfsample was stopped meanwhile
	m.EndRound(long)
	for i := range 10 {
		add(ms)
		m.EndRound(roundOf(80+i, ledger.Sampled, 1))
	}
	check("after a long round", [3]time.Duration{Recent: 10 * ms, Last: ms, All: 13 * ms})
}

// TestBounds: more functions, stacks, threads and waits than there is room for lose no time.
func TestBounds(t *testing.T) {
	m := New()
	const many = maxStacks + 1000
	for i := range many {
		m.Add(&output.Sample{
			PID: i, TID: i, Process: "app", Thread: "x", State: "read", Wait: fmt.Sprint("wait ", i),
			Stack: stackOf(fmt.Sprint("f", i), "main"), CPU: ms, Wall: ms,
		})
		if i%1000 == 0 { // each window has room again
			m.EndRound(roundOf(i/1000+1, ledger.Sampled, 1))
		}
	}
	m.EndRound(roundOf(many/1000+2, ledger.Sampled, 1))
	if len(m.tables.funcs) > maxFuncs || len(m.tables.stacks) > maxStacks || len(m.tables.threads) > maxThreads || len(m.tables.waits) > maxWaits || len(m.tables.known) > maxKnown || len(m.all.cells) > maxCells+1 || m.tables.text > maxText {
		t.Errorf("%d functions, %d stacks, %d threads, %d waits, %d known, %d cells", len(m.tables.funcs), len(m.tables.stacks), len(m.tables.threads), len(m.tables.waits), len(m.tables.known), len(m.all.cells))
	}
	p := m.Take(All)
	for _, by := range []By{ByFunction, ByModule, ByThread, ByWait} {
		rows, sum := p.Rows(Query{By: by})
		var self time.Duration
		more := false
		for _, r := range rows {
			self += r.Self
			more = more || strings.HasPrefix(r.Name, "[more: ") || strings.Contains(r.Name, moreThreads)
		}
		if self != many*ms || sum != many*ms {
			t.Errorf("%d: rows have %v, their sum is %v, want %v", by, self, sum, many*ms)
		}
		if !more && by != ByModule {
			t.Errorf("%d: no row tells that there was no room", by)
		}
	}
}

// TestLongNames: names as long as they can be are no way to more memory.
func TestLongNames(t *testing.T) {
	m := New()
	for i := range 2 * maxText / 4000 {
		m.Add(&output.Sample{PID: 1, TID: 1, Stack: stackOf(fmt.Sprint(i, strings.Repeat("x", 4000))), CPU: ms})
	}
	m.EndRound(roundOf(1, ledger.Sampled, 1))
	rows, sum := m.Take(All).Rows(Query{})
	if len(rows) > maxText/4000+1 || rows[0].Name != moreFuncs || sum != 2*maxText/4000*ms {
		t.Errorf("%d functions, the first is %q, all have %v", len(rows), rows[0].Name, sum)
	}
}

// TestCutStack: a stack that was cut says so at its root.
func TestCutStack(t *testing.T) {
	m := New()
	s := stackOf("f")
	s.End = "no unwind information"
	m.Add(&output.Sample{PID: 1, TID: 1, Stack: s, CPU: ms})
	m.Add(&output.Sample{PID: 1, TID: 1, CPU: ms})
	m.EndRound(roundOf(1, ledger.Sampled, 1))
	rows, _ := m.Take(All).Rows(Query{})
	var names []string
	for _, r := range rows {
		names = append(names, r.Name)
	}
	if diff := cmp.Diff([]string{"f", "[no stack]", "[truncated: no unwind information]"}, names); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
