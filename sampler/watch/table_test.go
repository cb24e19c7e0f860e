package watch

import (
	"testing"
	"time"
)

var times = Timing{Interval: 10 * time.Millisecond, Lag: 4 * time.Millisecond}

// with is a process with so many threads asleep, whose sum is known at tick n.
func with(asleep int, n int64) *Process {
	p := NewProcess(0, times, 0)
	var ts = make([]Thread, asleep)
	for i := range ts {
		ts[i].Sleeps(&p, 0, 1, 100)
	}
	p.Begin(n, asleep)
	p.Read(n, Reading{Clock: time.Duration(100 * asleep)})
	p.moved = false
	return &p
}

// TestNeed: what is to be read before the looks, and after them.
func TestNeed(t *testing.T) {
	for _, tt := range []struct {
		name            string
		asleep, threads int
		stirred, next   int64 // of tick 1000
		moved           bool
		begin, again    Need
	}{
		{"all asleep", 20, 20, 0, 2000, false, Clock, Nothing},
		{"all asleep, one has run", 20, 20, 0, 2000, true, Clock, Clock},
		{"all asleep, one has run of late", 20, 20, 1000, 0, false, Clock, Nothing},
		{"one of few awake", 15, 16, 0, 0, false, Stand, Nothing},
		{"one of many awake", 16, 17, 0, 0, false, Times, Nothing},
		{"too many awake", 600, 633, 0, 0, false, Stand, Nothing},
		{"as many as may be", 600, 632, 0, 0, false, Times, Nothing},
		{"not due", 16, 17, 0, 1001, false, Nothing, Nothing},
		{"due", 16, 17, 0, 1000, false, Times, Nothing},
		{"due, one has run", 16, 17, 0, 1000, true, Times, Times},
		{"not due, one has run", 16, 17, 0, 1001, true, Nothing, Nothing},
		{"one asleep has run of late", 16, 17, 872, 1000, false, Nothing, Times},
		{"not so late", 16, 17, 871, 1000, false, Times, Nothing},
		{"of late, not due", 16, 17, 990, 1001, false, Nothing, Nothing},
	} {
		p := with(tt.asleep, 10)
		p.stirred, p.next, p.moved = tt.stirred, tt.next, tt.moved
		if got := p.Begin(1000, tt.threads); got != tt.begin {
			t.Errorf("%s: %d before the looks, want %d", tt.name, got, tt.begin)
		}
		want := int64(10)
		if tt.threads > tt.asleep {
			want = 1000
		}
		if p.Ran() != want {
			t.Errorf("%s: ran at %d, want %d", tt.name, p.Ran(), want)
		}
		if got := p.Again(1000, tt.threads); got != tt.again {
			t.Errorf("%s: %d after the looks, want %d", tt.name, got, tt.again)
		}
	}
	late := with(17, 10) // the one that was awake fell asleep meanwhile
	if late.need, late.moved = Times, true; late.Again(1000, 17) != Clock || late.need != Clock {
		t.Errorf("all have fallen asleep: %d is to be read", late.need)
	}
	p := NewProcess(5, times, 7)
	if p.Clock() != 7 || p.Moved() || !p.quiet(5) || p.quiet(4) || p.stood >= 0 || !p.due(0) {
		t.Errorf("a new process is %+v", p)
	}
	if p.moved = true; p.Moved() {
		t.Error("nobody is asleep, and has run")
	}
	if p.asleep = 1; !p.Moved() {
		t.Error("one asleep may have run, and is not told")
	}
	if p.SetClock(9); p.Clock() != 9 {
		t.Error("the clock is not what it was set to")
	}
	for interval, want := range map[time.Duration]time.Duration{time.Millisecond: 250 * time.Microsecond, time.Second: 500 * time.Microsecond} {
		if got := (Timing{Interval: interval}).Slack(); got != want {
			t.Errorf("readings are %v after a tick of %v at least, want %v", got, interval, want)
		}
	}
}

// TestReadings: the table of the package's text, event by event.
func TestReadings(t *testing.T) {
	type event struct {
		n         int64
		need      Need
		clock     time.Duration
		torn      time.Duration
		moved     bool
		from, to  int64
		ran, next int64
	}
	for name, events := range map[string][]event{
		"the same sum, read less and less often": {
			{11, Clock, 1000, 0, false, 10, 11, 10, 12}, {127 + 10, Clock, 1000, 0, false, 10, 137, 10, 138},
			{128 + 10, Clock, 1000, 0, false, 10, 138, 10, 140}, {10_000, Clock, 1000, 0, false, 10, 10_000, 10, 10_016},
		},
		"another sum, and back: the one that has run was found": {
			{11, Clock, 1001, 0, true, 10, 10, 11, 12}, {12, Clock, 1000, 0, false, 10, 12, 11, 13},
		},
		"another sum to the end": {
			{11, Clock, 1001, 0, true, 10, 10, 11, 12}, {11 + 64, Clock, 1001, 0, true, 10, 10, 75, 76},
			{11 + 65, Clock, 1001, 0, true, 76, 76, 76, 77}, {77, Clock, 1001, 0, false, 76, 77, 76, 78},
		},
		"it begins anew when it was right in between": {
			{11, Clock, 1001, 0, true, 10, 10, 11, 12}, {50, Clock, 1000, 0, false, 10, 50, 11, 51},
			{11 + 65, Clock, 1001, 0, true, 10, 50, 76, 77}, {76 + 64, Clock, 1001, 0, true, 10, 50, 140, 141},
			{76 + 65, Clock, 1001, 0, true, 141, 141, 141, 142},
		},
		"another sum, and back at the same tick": {
			{11, Clock, 1001, 0, true, 10, 10, 11, 12}, {11, Clock, 1000, 0, false, 10, 11, 11, 12}, {12, Clock, 1001, 0, true, 10, 11, 12, 13},
			{76, Clock, 1001, 0, true, 10, 11, 76, 77}, {77, Clock, 1001, 0, true, 77, 77, 77, 78},
		},
		"torn": {
			{11, Times, 1001, 1, false, 10, 10, 11, 11}, {25, Times, 1001, 1, false, 10, 10, 25, 11}, {26, Times, 1001, 1, true, 10, 10, 26, 11},
			{27, Times, 1000, 0, false, 10, 27, 26, 28},
		},
		"the clock stands, moves, stands": {
			{11, Stand, 1000, 0, false, 10, 11, 10, 11}, {12, Stand, 1001, 0, true, 11, 11, 12, 11}, {13, Stand, 1001, 0, false, 11, 13, 12, 11},
			{14, Clock, 1001, 0, true, 14, 14, 14, 15}, {15, Stand, 1001, 0, false, 14, 15, 14, 15},
		},
		"nothing": {{11, Nothing, 5, 5, false, 10, 10, 10, 11}},
	} {
		p := with(10, 10)
		for _, e := range events {
			was := p.Clock()
			p.need = e.need
			p.Read(e.n, Reading{Clock: e.clock, Before: 0, After: e.torn})
			if p.moved != e.moved || p.calm != (calm{e.from, e.to}) || p.Ran() != e.ran || p.next != e.next {
				t.Errorf("%s: at %d %+v, want %+v", name, e.n, *p, e)
			}
			if want := e.clock; e.need != Nothing && p.Clock() != want || e.need == Nothing && p.Clock() != was {
				t.Errorf("%s: the clock shows %d at %d, want %d", name, p.Clock(), e.n, want)
			}
		}
	}
	p := with(10, 10)
	p.need = Times
	p.Read(11, Reading{Clock: 1500, Before: 500, After: 500})
	if p.moved {
		t.Error("what threads awake have run for is taken for that of the others")
	}
	p.need = Clock
	if p.Failed(12); !p.Moved() || p.Ran() != 12 || p.need != Nothing || p.known || p.stood >= 0 {
		t.Errorf("a reading that failed leaves %+v", *p)
	}
	p.need = Clock
	p.Read(13, Reading{Clock: 9999})
	if want := (calm{10, 11}); !p.moved || p.was != want || p.calm != (calm{13, 13}) {
		t.Errorf("the calm before is %v, want %v", p.was, want)
	}
}

// TestThread: a wait from its beginning to its end.
func TestThread(t *testing.T) {
	p := with(10, 10)
	var th Thread
	if th.Same(0) || th.Asleep() || th.DueAgain(p, 100) {
		t.Error("a thread awake sleeps")
	}
	th.Wakes(p) // nothing
	th.Sleeps(p, 20, 7, 300)
	if p.asleep != 11 || p.rest != 1300 || !th.Asleep() || th.Count() != 7 || th.Since() != 20 || th.Waited(25) != 5 {
		t.Errorf("asleep: %+v of %+v", th, *p)
	}
	th.Sleeps(p, 21, 8, 400) // another wait, of which nobody has seen the end
	if p.asleep != 11 || p.rest != 1400 {
		t.Errorf("twice asleep: %+v", *p)
	}
	if p.moved = true; !th.Due(p, 0, 22) || th.Due(p, 0, 21) {
		t.Error("not due at the tick after it fell asleep, or before")
	}
	if th.Same(7) || !th.Same(8) {
		t.Error("another run count")
	}
	if zero := (Thread{asleep: true}); zero.Same(0) {
		t.Error("0 is a run count")
	}
	for n, want := range map[int64]bool{21: false, 22: true} {
		if p.moved = true; th.DueAgain(p, n) != want {
			t.Errorf("after the looks of tick %d: %v, want %v", n, !want, want)
		}
	}
	if p.moved = false; th.DueAgain(p, 22) {
		t.Error("nobody has run, and it is looked at again")
	}
	p.moved = true
	th.SleepsOn(30, 5)
	for n, want := range map[int64]bool{30: false, 34: false, 35: true} {
		if th.DueAgain(p, n) != want || th.Waited(30) != 9 {
			t.Errorf("after the looks of tick %d: %v, want %v", n, !want, want)
		}
	}
	th.next = 0
	if th.DueAgain(p, 30) {
		t.Error("twice at one tick")
	}
	th.Wakes(p)
	if p.asleep != 10 || p.rest != 1000 || th.Asleep() || !p.known {
		t.Errorf("awake: %+v of %+v", th, *p)
	}
	th.Sleeps(p, 9, 1, 1)
	if th.Wakes(p); p.known {
		t.Error("a thread that fell asleep before the calm, and may have run before it, leaves the sum known")
	}
	p = with(10, 10)
	th.Sleeps(p, 10, 1, 1)
	if th.Wakes(p); !p.known {
		t.Error("one that fell asleep in the calm's first tick makes the sum unknown")
	}
}

// TestDue: which threads asleep are left out.
func TestDue(t *testing.T) {
	type state struct {
		seen, since, next int64
		moved             bool
		need              Need
		stirred           int64
		id                int
	}
	old := state{999, 800, 0, false, Clock, 0, 0} // not run for long
	for name, tt := range map[string]struct {
		change func(*state)
		due    bool
	}{
		"not run for long":            {func(s *state) {}, false},
		"although one has run":        {func(s *state) { s.moved = true }, false},
		"and none is to be read":      {func(s *state) { s.need, s.stirred = Nothing, 990 }, false},
		"another calm":                {func(s *state) { s.seen = 500 }, true},
		"right after it":              {func(s *state) { s.seen, s.since = 501, 501 }, false},
		"of late":                     {func(s *state) { s.since = 950 }, false},
		"just of late":                {func(s *state) { s.since, s.moved = 873, true }, true},
		"just not of late":            {func(s *state) { s.since, s.moved = 872, true }, false},
		"of late, and one has run":    {func(s *state) { s.since, s.moved = 950, true }, true},
		"of late, nothing to read":    {func(s *state) { s.since, s.need = 950, Nothing }, false},
		"of late, and others, too":    {func(s *state) { s.since, s.need, s.stirred = 950, Nothing, 990 }, true},
		"of late, others, and a read": {func(s *state) { s.since, s.stirred = 950, 990 }, false},
		"not due":                     {func(s *state) { s.seen, s.next = 500, 1001 }, false},
		"due":                         {func(s *state) { s.seen, s.next = 500, 1000 }, true},
	} {
		s := old
		tt.change(&s)
		p := with(20, 10)
		p.calm, p.moved, p.need, p.stirred = calm{500, 990}, s.moved, s.need, s.stirred
		th := Thread{asleep: true, seen: s.seen, since: s.since, next: s.next}
		if got := th.Due(p, s.id, 1000); got != tt.due {
			t.Errorf("%s: %v", name, got)
		}
	}
	// Whatever the clock says, each at another tick.
	p := with(20, 10)
	p.calm = calm{5, 5000}
	for id, after := range map[int]int64{0: 1024, 1: 1025, 511: 1535, 512: 1024} {
		th := Thread{asleep: true, seen: 100, since: 6}
		if th.Due(p, id, 100+after-1) || !th.Due(p, id, 100+after) {
			t.Errorf("thread %d is not looked at first after %d ticks", id, after)
		}
	}
}

// TestRan: up to which tick a thread has not run for certain.
func TestRan(t *testing.T) {
	ms := time.Millisecond
	for _, tt := range []struct {
		name     string
		seen, n  int64
		run      time.Duration
		interval time.Duration
		sure     int64
	}{
		{"no calm", 5, 60, 0, 10 * ms, 5},
		{"in the calm before", 15, 60, 0, 10 * ms, 19},
		{"its first tick", 10, 60, 0, 10 * ms, 10},
		{"in the calm at hand, right after its end", 25, 51, 0, 10 * ms, 49},
		{"in its first tick", 20, 51, 0, 10 * ms, 20},
		{"later, run for long", 25, 52, 9 * ms, 10 * ms, 49},
		{"later, run for short", 25, 52, ms / 2, 10 * ms, 50},
		{"later, run for a bit more", 25, 52, ms/2 + 1, 10 * ms, 49},
		{"later, at a high rate", 25, 55, 9 * ms, ms, 46},
		{"not late enough, at a high rate", 25, 54, 0, ms, 46},
		{"late enough, at a high rate", 25, 55, ms / 4, ms, 50},
		{"met at a tick that the clock's reading is behind", 25, 45, 0, 10 * ms, 44},
		{"seen after what the clock tells", 49, 51, 0, ms, 49},
	} {
		p := with(20, 10)
		p.times = Timing{tt.interval, 4 * ms}
		p.was, p.calm = calm{10, 19}, calm{20, 50}
		th := Thread{asleep: true, seen: tt.seen, run: ms}
		if got := th.Ran(p, tt.n, ms+tt.run); got != tt.sure {
			t.Errorf("%s: sure up to %d, want %d", tt.name, got, tt.sure)
		}
		if th.Asleep() || p.stirred != tt.n || p.asleep != 19 {
			t.Errorf("%s: %+v of %+v", tt.name, th, *p)
		}
	}
}
