package sampler

import (
	"testing"
	"time"

	"sfsample/sampler/clocks"
	"sfsample/sampler/ledger"
)

// TestBetweenSamples accounts for the ticks between two at which clocks have met a thread, whose times say how much of that it
// ran, waited for a CPU and slept.
func TestBetweenSamples(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name             string
		owed             int64
		ran, wait, slept time.Duration
		never            bool // no clock had met it before
		want             ledger.Account
	}{
		{name: "ran all the time", owed: 2, ran: 3 * ms, slept: switching, want: counted(ledger.Unmet, 2)},
		{name: "ran through one tick", owed: 1, ran: 2 * ms, slept: switching, want: counted(ledger.Unmet, 1)},
		{name: "slept for a moment", owed: 1, ran: 2 * ms, slept: switching + 1, want: counted(ledger.Idle, 1)},
		{name: "may have slept at the tick", owed: 1, ran: 3 * ms / 2, slept: ms / 2, want: counted(ledger.Idle, 1)},
		{name: "slept a little each time", owed: 4, ran: 4 * ms, slept: ms, want: counted(ledger.Idle, 2, ledger.Unmet, 2)},
		{name: "slept", owed: 9, ran: 2 * ms, slept: 8 * ms, want: counted(ledger.Idle, 9)},
		{name: "waited and ran", owed: 4, ran: 3 * ms, wait: 2 * ms, want: counted(ledger.Waiting, 2, ledger.Unmet, 2)},
		{name: "met at each tick", ran: ms, want: counted()},
		{name: "first met", owed: 3, ran: 4 * ms, never: true, want: counted(ledger.Idle, 3)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			book := ledger.NewBook()
			h := &harvest{acct: &accounts{opt: &Options{}, ticks: &ticks{interval: int64(ms)}, out: new(outlet), book: book, load: new(load)}, book: book}
			th := newThread(&process{}, 1)
			th.slot = 0
			book.Open(&th.line, 0)
			book.Advance(0)
			first := clocks.Sample{At: clocks.Moments{Asked: 5, Stopped: 10, Released: 20}, Stopped: clocks.Usage{Run: int64(time.Second), Wait: int64(time.Second)}}
			if !tt.never {
				h.wasMet(th, 0, &first)
			}
			book.Give(&th.line, 0, ledger.Sampled)
			th.queue.waited = time.Second
			book.Advance(tt.owed + 1) // that tick is the clock's
			h.wasMet(th, tt.owed+1, &clocks.Sample{
				At:    clocks.Moments{Wake: first.At.Released + int64(tt.ran+tt.wait+tt.slept)},
				Asked: clocks.Usage{Run: first.Stopped.Run + int64(tt.ran), Wait: first.Stopped.Wait + int64(tt.wait)},
			})
			book.Give(&th.line, tt.owed+1, ledger.Sampled)
			tt.want.Count[ledger.Sampled] = 2
			if got := book.Account(); got.Count != tt.want.Count {
				t.Errorf("%v, want %v", &got, &tt.want)
			}
		})
	}
}

// TestLateStops accounts for the ticks from a clock's, 0.4 of an interval after tick 3, to the stop that it asked for.
func TestLateStops(t *testing.T) {
	const ms = int64(time.Millisecond)
	for _, tt := range []struct {
		name        string
		stops, wait int64 // after the clock's wake-up; for a CPU of that
		owed        int64 // ticks of the thread that are nobody's yet, of the six
		waits       int64
		want        ledger.Account
	}{
		{name: "at once", stops: 20_000, wait: 20_000, owed: 3, want: counted(ledger.Idle, 3, ledger.Sampled, 1)},
		{name: "before the clock's next tick", stops: ms - 1, wait: ms - 1, owed: 3, want: counted(ledger.Idle, 3, ledger.Sampled, 1)},
		{name: "just before its third", stops: 3*ms - 1, wait: 3*ms - 1, owed: 1, waits: 2, want: counted(ledger.Idle, 3, ledger.Sampled, 1, ledger.Waiting, 2)},
		{name: "it did not wait for a CPU", stops: 3*ms - 1, owed: 1, want: counted(ledger.Idle, 3, ledger.Sampled, 1, ledger.NotStopped, 2)},
		{name: "later than what is known", stops: 9 * ms, wait: 9 * ms, waits: 3, want: counted(ledger.Idle, 3, ledger.Sampled, 1, ledger.Waiting, 3)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			book := ledger.NewBook()
			x := &ticks{interval: ms}
			h := &harvest{ticks: x, acct: &accounts{opt: &Options{}, ticks: x, book: book}, book: book}
			th := newThread(&process{}, 1)
			book.Open(&th.line, 0)
			book.Advance(6)
			book.Give(&th.line, 2, ledger.Idle)
			wake := 3*ms + 400_000
			h.standsFor(th, 3, &clocks.Sample{Tick: 3, At: clocks.Moments{Wake: wake, Asked: wake, Stopped: wake + tt.stops}, Asked: clocks.Usage{Wait: 7}, Stopped: clocks.Usage{Wait: 7 + tt.wait}})
			if got := book.Account(); got.Count != tt.want.Count {
				t.Errorf("%v, want %v", &got, &tt.want)
			}
			if owed := book.Owed(&th.line, 6); owed != tt.owed || th.queue.waits != tt.waits {
				t.Errorf("%d ticks are owed and %d are to be shown as waiting, want %d, %d", owed, th.queue.waits, tt.owed, tt.waits)
			}
		})
	}
}

// counted is an account of pairs of a class and its number of ticks.
func counted(pairs ...any) (a ledger.Account) {
	for i := 0; i < len(pairs); i += 2 {
		a.Count[pairs[i].(ledger.Class)] += int64(pairs[i+1].(int))
	}
	return a
}
