package clocks

import (
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// rove lets a clock that has no CPU answer requests, which come in parts: one each time that it sleeps,
// or waits for threads that do not report. Then it ends.
func rove(t *testing.T, samples int, actors []*actor, parts [][]int, set func(*script, *Board, *Clock)) (*script, *Clock, []*Sample) {
	t.Helper()
	s, b, c := desk(t, samples, actors...)
	c.place.cpu = Anywhere
	next := func() {
		if len(parts) == 0 {
			return
		}
		for _, slot := range parts[0] {
			if !c.requests.add(slot) {
				t.Errorf("slot %d cannot be asked for", slot)
			}
		}
		parts = parts[1:]
	}
	s.parks = func(val uint32) {
		if val != c.requests.begun.Load() || c.tracees.out != 0 {
			t.Errorf("it sleeps after request %d of %d, with %d on their way", val, c.requests.begun.Load(), c.tracees.out)
		}
		if since := c.grip.since.Load(); since != 0 {
			t.Errorf("it sleeps, and asks for a stop since %d", since)
		}
		if len(parts) == 0 {
			c.life.quit.Store(true)
		}
		next()
	}
	s.idle = func() {
		if since := c.grip.since.Load(); since == 0 || since > s.now {
			t.Errorf("it waits for stops since %d", since)
		}
		next()
	}
	if set != nil {
		set(s, b, c)
	}
	c.Outside()
	if since := c.grip.since.Load(); since != 0 && c.tracees.out == 0 {
		t.Errorf("at its end it asks for a stop since %d", since)
	}
	if s.seizes != s.released+c.tracees.out {
		t.Errorf("%d threads seized, %d released, %d on their way", s.seizes, s.released, c.tracees.out)
	}
	return s, c, c.drain(nil)
}

// tids are the threads of samples, in order.
func tids(list []*Sample) (tids []int) {
	for _, m := range list {
		tids = append(tids, m.TID)
	}
	slices.Sort(tids)
	return tids
}

// TestRequests: threads are stopped whatever they do and wherever they are; requests that come while it waits are
// made as well.
func TestRequests(t *testing.T) {
	actors := []*actor{{tid: 7, state: 'S', run: 500, wait: 60}, {tid: 8, does: queues, cpu: 3, patience: 1}, {tid: 9, does: lingers}, {tid: 10}}
	s, c, list := rove(t, 8, actors, [][]int{{0, 1}, {2}, {3}}, func(s *script, b *Board, c *Clock) {
		s.now += 35_000 * us // tick 3
		s.opens = func(int) {
			if s.seizes == 0 && !c.life.active.Load() {
				t.Error("it is about to ask for a stop, and is not busy")
			}
		}
	})
	if got := fmt.Sprint(tids(list)); got != "[7 8 9 10]" {
		t.Fatalf("samples of %s", got)
	}
	for _, m := range list {
		if m.Tick != 3 || m.At.Wake > m.At.Asked || m.Gone {
			t.Errorf("%v", m)
		}
		if m.TID == 7 && (m.Asked.Run != 500 || m.Asked.Wait != 60) {
			t.Errorf("run time %d, wait %d at the request", m.Asked.Run, m.Asked.Wait)
		}
	}
	if c.tracees.out != 0 || c.requests.begun.Load() != 4 || slices.Contains(s.log, "reap 7") {
		t.Errorf("%d on their way, %d requests taken, %v", c.tracees.out, c.requests.begun.Load(), s.log)
	}
}

// TestRequestsInVain: slots that are empty or in use are passed over; who ends is reaped, and who is lost is
// gone.
func TestRequestsInVain(t *testing.T) {
	actors := []*actor{{tid: 7}, {tid: 8}, {tid: 9, does: ends}, {tid: 10, does: unwaitable}, {tid: 11, does: unwaitable}}
	s, c, list := rove(t, 8, actors, [][]int{{0, 1, 2}, {3, 4}}, func(s *script, b *Board, c *Clock) {
		b.Remove(0)
		b.slots[1].take(5)
	})
	if got := fmt.Sprint(tids(list)); got != "[9 10 11]" || c.tracees.out != 0 {
		t.Errorf("samples of %s, %d on their way", got, c.tracees.out)
	}
	for _, m := range list {
		if !m.Gone {
			t.Errorf("thread %d is not gone", m.TID)
		}
	}
	for i := range actors {
		want := int32(0)
		if i == 1 {
			want = 5
		}
		if h := c.board.slots[i].holder.Load(); h != want {
			t.Errorf("slot %d is held by %d", i, h)
		}
	}
	if got := fmt.Sprint(s.log); got != "[interrupt 9 reap 9 interrupt 10 interrupt 11 interrupt 110 interrupt 111]" {
		t.Errorf("it did %s", got)
	}
}

// TestRequestsOfRunning: who is asleep by the request is left alone, unless it is meant to be stopped all the same.
func TestRequestsOfRunning(t *testing.T) {
	actors := []*actor{{tid: 7, state: 'R'}, {tid: 8, state: 'S'}, {tid: 9, state: 'D'}, {tid: 10, state: 'S'}, {tid: 11, state: 'R'}}
	s, c, list := rove(t, 8, actors, [][]int{{^0, ^1, ^2, 3}, {4}}, nil)
	if got := fmt.Sprint(tids(list)); got != "[7 10 11]" || c.tracees.out != 0 || s.seizes != 3 {
		t.Errorf("samples of %s, %d on their way, %d seizes", got, c.tracees.out, s.seizes)
	}
	for i := range actors {
		if h := c.board.slots[i].holder.Load(); h != 0 {
			t.Errorf("slot %d is held by %d", i, h)
		}
	}
}

// TestRequestsAndExec: whoever calls exec, or is killed at its stop, is let go, and the others are waited for.
func TestRequestsAndExec(t *testing.T) {
	actors := []*actor{{tid: 7, does: execs}, {tid: 8, does: execsLater}, {tid: 9, does: dies}, {tid: 10, does: queues, patience: 4}}
	_, c, list := rove(t, 8, actors, [][]int{{0, 1, 2, 3}}, nil)
	if got := fmt.Sprint(tids(list)); got != "[7 8 9 10]" || c.tracees.out != 0 {
		t.Fatalf("samples of %s, %d on their way", got, c.tracees.out)
	}
	for _, m := range list {
		if m.Gone != (m.TID != 10) {
			t.Errorf("thread %d is gone: %t", m.TID, m.Gone)
		}
	}
	for _, a := range actors {
		if a.tracee || a.stopped {
			t.Errorf("thread %d is left: tracee %t, stopped %t", a.tid, a.tracee, a.stopped)
		}
	}
}

// TestClear: a clock looks for tracees that nobody has asked for until there are none; a signal tells nothing of that.
func TestClear(t *testing.T) {
	for _, tt := range []struct {
		name  string
		a     actor
		nudge bool
		want  bool // there may be more
		did   string
	}{
		{"none", actor{}, false, false, "[]"},
		{"one that has not stopped", actor{tracee: true}, false, true, "[]"},
		{"one that stops", actor{tracee: true, asked: true}, false, false, "[detach 7 0]"},
		{"one that has ended", actor{tracee: true, asked: true, does: ends}, false, false, "[reap 7]"},
		{"a signal", actor{tracee: true}, true, true, "[]"},
		{"a signal, and none", actor{}, true, true, "[]"},
	} {
		tt.a.tid = 7
		s, _, c := desk(t, 1, &tt.a)
		c.tracees.seizes.any = true
		c.k = &interruptedWait{script: s, done: !tt.nudge}
		if c.clear(); c.tracees.seizes.any != tt.want || fmt.Sprint(s.log) != tt.did {
			t.Errorf("%s: there may be more: %t; did %v, want %s", tt.name, c.tracees.seizes.any, s.log, tt.did)
		}
	}
}

// TestStoppedByExec: who cannot be waited for any more, and has called exec, is asked once more under the id of its process, for which nobody keeps the clock.
func TestStoppedByExec(t *testing.T) {
	a := &actor{tid: 107, tracee: true}
	s, b, c := desk(t, 1, &actor{tid: 7}, a)
	delete(s.actors, 7)
	m := &c.tracees.samples[0]
	m.TID, m.tracee.id, m.PID, c.tracees.out = 7, 7, 107, 1
	m.state.Store(asked)
	b.slots[0].take(1)
	c.grip.since.Store(50)
	c.stopped(m, 0, unix.ECHILD)
	if m.tracee.id != 107 || m.state.Load() != asked || c.tracees.out != 1 || c.grip.since.Load() != 0 || c.grip.holds.Load() != 0 || !a.asked {
		t.Errorf("thread %d is asked %t, sample in state %d, %d on their way, asks since %d", m.tracee.id, a.asked, m.state.Load(), c.tracees.out, c.grip.since.Load())
	}
	if c.stopped(m, 0, unix.ECHILD); m.state.Load() != filled || !m.Gone || c.tracees.out != 0 {
		t.Errorf("it is gone %t, sample in state %d, %d on their way", m.Gone, m.state.Load(), c.tracees.out)
	}
}

// TestReport: a report is for the sample of that thread, not for that of another of its process.
func TestReport(t *testing.T) {
	leader, other := &actor{tid: 107, tracee: true, asked: true, stopped: true}, &actor{tid: 7}
	s, _, c := desk(t, 3, other, leader)
	for i, m := range []*Sample{{TID: 7, tracee: tracee{id: 7}, PID: 107}, {TID: 107, tracee: tracee{id: 107}, PID: 107, Slot: 1}} {
		c.tracees.samples[i+1].TID, c.tracees.samples[i+1].tracee.id, c.tracees.samples[i+1].PID, c.tracees.samples[i+1].Slot = m.TID, m.tracee.id, m.PID, m.Slot
		c.tracees.samples[i+1].state.Store(asked)
	}
	c.tracees.samples[0].tracee.id = 107 // of an old sample
	c.tracees.out = 2
	c.report(107, interrupted, 0)
	if c.tracees.samples[0].state.Load() != free || c.tracees.samples[1].state.Load() != asked || c.tracees.samples[2].state.Load() != filled || c.tracees.samples[2].Gone {
		t.Errorf("samples in states %d, %d, %d after a report of the leader", c.tracees.samples[0].state.Load(), c.tracees.samples[1].state.Load(), c.tracees.samples[2].state.Load())
	}
	// Nobody's: it is let go, or reaped.
	s.actors[55] = &actor{tid: 55, tracee: true, asked: true, stopped: true}
	c.report(55, interrupted, 0)
	if a := s.actors[55]; a.tracee || a.stopped || c.tracees.samples[1].state.Load() != asked || c.tracees.out != 1 {
		t.Errorf("a report of another process: tracee %t, stopped %t, %d on their way", a.tracee, a.stopped, c.tracees.out)
	}
	c.report(55, 0, 0)
	if !slices.Contains(s.log, "reap 55") {
		t.Error("an end that nobody has waited for is not reaped")
	}
}

// TestRing: requests that were made and not yet taken are bounded, and their places used again.
func TestRing(t *testing.T) {
	c := new(Clock)
	const from = 1<<32 - 500 // the counts begin anew
	c.requests.made.Store(from)
	c.requests.begun.Store(from)
	for i := range 1024 {
		if !c.requests.add(i) {
			t.Fatalf("request %d is refused", i)
		}
	}
	if c.requests.add(5) || c.requests.made.Load() != from-(1<<32)+1024 {
		t.Errorf("a request more is taken, %d in all", c.requests.made.Load())
	}
	c.requests.begun.Add(1)
	if !c.requests.add(77) || c.requests.add(78) {
		t.Error("the place of a request that was taken is not used again")
	}
	var parts [][]int
	for range 3 {
		parts = append(parts, []int{0, 1, 2, 3, 4})
	}
	var actors []*actor
	for i := range 5 {
		actors = append(actors, &actor{tid: 7 + i})
	}
	_, _, list := rove(t, 20, actors, parts, func(s *script, b *Board, c *Clock) {
		c.requests.made.Store(1018)
		c.requests.begun.Store(1018)
	})
	if got := fmt.Sprint(tids(list)); got != "[7 7 7 8 8 8 9 9 9 10 10 10 11 11 11]" {
		t.Errorf("samples of %s", got)
	}
}
