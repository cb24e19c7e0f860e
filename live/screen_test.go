package live

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/clipperhouse/displaywidth"

	"sfsample/output"
	"sfsample/sampler/ledger"
)

// typed presses keys, characters or those of the names below, and returns the screen.
func typed(s *Screen, m *Model, st Status, keys ...any) string {
	s.Draw(m, st)
	for _, k := range keys {
		switch k := k.(type) {
		case Key:
			s.Press(k)
			s.Draw(m, st)
		case string:
			for _, r := range k {
				s.Press(Key(r))
				s.Draw(m, st)
			}
		}
	}
	return text(s.Draw(m, st))
}

func text(lines []Line) string {
	var b strings.Builder
	for _, l := range lines {
		mark := ' '
		if l.Style == Chosen {
			mark = '>'
		}
		fmt.Fprintf(&b, "%c%s\n", mark, strings.TrimRight(l.Text, " "))
	}
	return b.String()
}

// TestKeys: what each key shows.
func TestKeys(t *testing.T) {
	for name, tt := range map[string]struct {
		all  bool
		keys []any
		want []string
		lack []string
	}{
		"functions":        {false, nil, []string{"▾SELF", "  MODULE", ">   0.05   50.0     0.07   70.0  b  ", "2 threads", "4 samples, no tick lost", "on CPU", "CPU 10.0%"}, nil},
		"by total":         {false, []any{"s"}, []string{"▾TOTAL", ">   0.00    0.0     0.10  100.0  main"}, []string{"▾SELF"}},
		"threads":          {false, []any{"t"}, []string{"MOSTLY IN", ">   0.08   80.0        1 app   "}, nil},
		"modules":          {false, []any{"m"}, []string{">   0.08   80.0     0.10  100.0  app"}, nil},
		"scripts":          {false, []any{"y"}, []string{"FUNCTION OF A SCRIPT", "x.py"}, []string{"main"}},
		"tab":              {false, []any{KeyTab, KeyTab}, []string{"libc"}, []string{"  read "}},
		"waits":            {true, []any{"w"}, []string{"WAIT", "read: pipe", "all threads"}, nil},
		"waits, on CPU":    {true, []any{"wa"}, []string{"FUNCTION", "on CPU"}, []string{"read: pipe"}},
		"waits, not asked": {false, []any{"w"}, []string{"--threads all"}, []string{"THREADS"}},
		"down":             {false, []any{KeyDown}, []string{">   0.03   30.0"}, nil},
		"down and up":      {false, []any{KeyDown, KeyDown, KeyUp}, []string{">   0.03   30.0"}, nil},
		"end":              {false, []any{KeyEnd}, []string{">   0.00    0.0     0.05   50.0  x.py"}, nil},
		"detail":           {false, []any{KeyEnter}, []string{"called by", "71.4%  x.py", "calls", "28.6%  read", "  > b", "in app"}, []string{"FUNCTION"}},
		"back":             {false, []any{KeyEnter, KeyEscape}, []string{"FUNCTION"}, []string{"called by"}},
		"filter":           {false, []any{"/MAI", KeyEnter}, []string{">   0.00    0.0     0.10  100.0  main", "filter MAI"}, []string{"  read "}},
		"filter, typed":    {false, []any{"/q", KeyBackspace, "re"}, []string{"/re_", "read"}, []string{"main"}},
		"no expression":    {false, []any{"/(("}, []string{"/((_", "no expression", "nothing matches"}, []string{"main"}},
		"filter, gone":     {false, []any{"/read", KeyEscape}, []string{"main"}, []string{"filter"}},
		"help":             {false, []any{"?"}, []string{"hold the picture", "docs/numbers.md"}, []string{"FUNCTION"}},
		"help, gone":       {false, []any{"??"}, []string{"FUNCTION"}, []string{"hold the picture"}},
		"paused":           {false, []any{"p"}, []string{"PAUSED"}, nil},
		"goes on":          {false, []any{"pp"}, nil, []string{"PAUSED"}},
		"window":           {false, []any{"ii"}, []string{"all of 1s"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := typed(NewScreen(tt.all, tt.all, false), sampled(t), Status{What: "app", Hz: 99}, tt.keys...)
			if n := strings.Count(got, "\n"); n != 24 {
				t.Errorf("%d lines", n)
			}
			for _, want := range tt.want {
				if !strings.Contains(got, want) {
					t.Errorf("lacks %q:\n%s", want, got)
				}
			}
			for _, lack := range tt.lack {
				if strings.Contains(got, lack) {
					t.Errorf("has %q:\n%s", lack, got)
				}
			}
		})
	}
}

// TestActions: keys that are not the screen's alone.
func TestActions(t *testing.T) {
	s := NewScreen(false, false, false)
	for k, want := range map[Key]Action{'q': Quit, 'r': Reset, 'x': Draw, 0: Draw, KeyEnter: Draw} {
		if got := s.Press(k); got != want {
			t.Errorf("%q does %d, want %d", rune(k), got, want)
		}
	}
	typed(s, sampled(t), Status{}, "/")
	if got := s.Press('q'); got != Draw {
		t.Error("q ends the run while a filter is typed")
	}
}

// TestFollow: the chosen function stays chosen when others overtake it; nobody's choice is the first.
func TestFollow(t *testing.T) {
	m, s, st := sampled(t), NewScreen(false, false, false), Status{}
	typed(s, m, st, KeyDown) // a
	more := func(name string) {
		m.Add(&output.Sample{PID: 1, TID: 1, State: "running", Stack: stackOf(name, "main@app"), CPU: time.Second})
		m.EndRound(roundOf(2, ledger.Sampled, 1))
	}
	more("new@app")
	if got := typed(s, m, st); !strings.Contains(got, "\n>   0.03    2.7     0.03    2.7  a") {
		t.Errorf("the choice is another:\n%s", got)
	}
	if got := typed(NewScreen(false, false, false), m, st); !strings.Contains(got, ">   1.00") {
		t.Errorf("the first is not chosen:\n%s", got)
	}
	// A picture that is held does not change, also with another key.
	s = NewScreen(false, false, false)
	held := typed(s, m, st, "p")
	more("newer@app")
	if got := typed(s, m, st); got != held {
		t.Errorf("it was held, and is now:\n%s\nnot\n%s", got, held)
	}
	if got := typed(s, m, st, "p"); !strings.Contains(got, "newer") {
		t.Errorf("it is held for ever:\n%s", got)
	}
}

// TestScroll: the chosen row is always shown.
func TestScroll(t *testing.T) {
	m := New()
	for i := range 100 {
		m.Add(&output.Sample{PID: 1, TID: 1, State: "running", Stack: stackOf(fmt.Sprintf("f%02d", i)), CPU: time.Duration(1000-i) * ms})
	}
	m.EndRound(roundOf(1, ledger.Sampled, 1))
	s := NewScreen(false, false, false)
	at := 0
	for _, step := range []struct {
		key  Key
		want int
	}{{KeyDown, 1}, {KeyPageDown, 19}, {KeyPageDown, 37}, {KeyUp, 36}, {KeyEnd, 99}, {KeyDown, 99}, {KeyPageUp, 81}, {KeyHome, 0}, {KeyUp, 0}} {
		at = step.want
		if got := typed(s, m, Status{}, step.key); !strings.Contains(got, fmt.Sprintf("  f%02d\n", at)) || !strings.Contains(got, "\n>") {
			t.Fatalf("row %d is not shown:\n%s", at, got)
		}
		if i := s.list.at; i != at {
			t.Errorf("row %d is chosen, want %d", i, at)
		}
	}
	s.Paper.Height = 10
	if got := typed(s, m, Status{}, KeyEnd); !strings.Contains(got, "f99\n") {
		t.Errorf("after a change of size:\n%s", got)
	}
}

// TestLosses: losses are told in the words of the account, the most frequent first.
func TestLosses(t *testing.T) {
	m := New()
	r := roundOf(1, ledger.Unmet, 3)
	r.Account.Count[ledger.Missed], r.Account.Count[ledger.Idle], r.Account.Count[ledger.Sampled] = 7, 100, 88
	r.Stride, r.Stops, r.P50, r.P99, r.Max = 2, 88, 12*time.Microsecond, 41*time.Microsecond, ms
	m.EndRound(r)
	got := typed(NewScreen(false, false, false), m, Status{Hz: 99, Notice: "sfsample: x\x1b[2J"})
	for _, want := range []string{
		"88 samples; lost: 10 of 198 thread ticks (7 missed, 3 not met); the rate is l", "pause p50 12µs p99 41µs max 1ms", `x\x1b[2J`, "nothing has run",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
	got = typed(NewScreen(false, false, false), m, Status{Ended: "app has ended"})
	if !strings.Contains(got, "app has ended; q leaves") {
		t.Errorf("the end is not told:\n%s", got)
	}
	s := NewScreen(false, false, false)
	for _, tt := range []struct{ ended, keys, want string }{
		{"", "w", "blocked threads are not sampled"}, {"app has ended", "", "app has ended; q leaves"},
		{"app has ended", "w", "blocked threads are not sampled"}, {"app has ended", "t", "app has ended; q leaves"},
	} {
		if got := typed(s, m, Status{Ended: tt.ended}, tt.keys); !strings.Contains(got, tt.want) {
			t.Errorf("key %q, ended: %q: lacks %q:\n%s", tt.keys, tt.ended, tt.want, got)
		}
	}
}

// TestNarrow: names are told in narrow windows too, and one that is too small has nothing of the picture before.
func TestNarrow(t *testing.T) {
	m := sampled(t)
	for _, tt := range []struct {
		width, height int
		keys          string
		want          []string
	}{
		{80, 24, "", []string{">   0.05   50.0     0.07   70.0  b"}},
		{40, 24, "", []string{"   \u25beSELF      %  FUNCTION", ">   0.05   50.0  b", "   0.02   20.0  read", "? help  q quit"}},
		{40, 24, "s", []string{"  \u25beTOTAL      %  FUNCTION", ">   0.10  100.0  main"}},
		{40, 24, "t", []string{"   TIME      %      TID THREAD", "   0.02   20.0        2 io"}},
		{20, 24, "s", []string{"    %  FUNCTION", ">100.0  main"}},
		{19, 8, "", []string{"too small\n \n \n \n \n \n \n \n"}},
		{80, 1, "", []string{"too small"}},
	} {
		s := NewScreen(false, false, false)
		s.Paper.Width, s.Paper.Height = tt.width, tt.height
		got := typed(s, m, Status{}, tt.keys)
		for _, want := range tt.want {
			if !strings.Contains(got, want) {
				t.Errorf("%d columns, %d lines, %q: lacks %q:\n%s", tt.width, tt.height, tt.keys, want, got)
			}
		}
	}
}

// TestHostile: whatever names are, every line of every screen is printable, no wider than the screen, and of ASCII
// where nothing else can be shown.
func TestHostile(t *testing.T) {
	m := New()
	for i, name := range []string{
		"a\x1b[2J\u202eb\x00\n\r\t", "\xff\xfe\u009b", strings.Repeat("long ", 2000), strings.Repeat("世界", 300), "e\u0301\u0301\u200d👨\u200d👩\u200d👧", "", "é",
	} {
		m.Add(&output.Sample{
			PID: i, TID: 100 + i, Process: name, Thread: "t" + name, State: "read", Wait: name,
			Stack: stackOf(name+"@"+name, name+".py@x", "main@"+name), CPU: ms, Wall: ms,
		})
	}
	m.EndRound(roundOf(1, ledger.Sampled, 1))
	st := Status{What: "a\x1b[2J" + strings.Repeat("世", 100), Notice: "n\x1b\u202e世"}
	for _, ascii := range []bool{false, true} {
		for _, size := range [][2]int{{80, 24}, {120, 40}, {40, 10}, {21, 7}, {19, 24}, {80, 6}, {1, 1}, {0, 0}} {
			s := NewScreen(true, true, ascii)
			s.Paper.Width, s.Paper.Height = size[0], size[1]
			for _, keys := range []string{"f", "y", "t", "m", "w", "a", "s", "i", "/", "\x1b", "?", "?"} {
				for _, more := range []Key{0, KeyDown, KeyEnter, KeyDown, KeyEnd, KeyEscape} {
					for _, k := range keys {
						s.Press(Key(k))
					}
					s.Press(more)
					lines := s.Draw(m, st)
					if len(lines) > s.Paper.Height {
						t.Fatalf("%v %q: %d lines", size, keys, len(lines))
					}
					for _, l := range lines {
						if w := displaywidth.String(l.Text); w > max(1, s.Paper.Width) {
							t.Fatalf("%v %q: %d columns: %q", size, keys, w, l.Text)
						}
						if i := strings.IndexFunc(l.Text, func(r rune) bool { return !unicode.IsPrint(r) || ascii && r > 0x7e }); i >= 0 {
							t.Fatalf("%v %q: %q", size, keys, l.Text[i:])
						}
					}
				}
			}
		}
	}
}
