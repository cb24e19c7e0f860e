package sampler

import (
	"cmp"
	"time"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
	"sfsample/sampler/clocks"
	"sfsample/sampler/ledger"
)

// harvest takes what clocks have taken: each sample is accounted for or dropped, once, and its buffers are the clock's again.
type harvest struct {
	opt     *Options
	ticks   *ticks
	files   *files
	listing *listing
	bank    *clocks.Bank
	roster  *roster
	news    *news
	acct    *accounts
	book    *ledger.Book
	pool    *pool
	load    *load
	rounds  *rounds
	toll    *clocks.Toll
	became  became
	figures figures
}

// became is what was read early of programs that processes have become, where a clock has met one before it was known that there is another. It
// may be gone soon.
type became struct {
	heard uint32 // how often clocks had called
	until int64  // the tick up to which they are listened to
	early map[*clocks.Sample]*early
}

// listenTicks is for how long after a sample of such a program the next one is expected.
const listenTicks = 128

// listens tells whether the coordinator is to be called by clocks before a tick is over.
func (b *became) listens(n int64) bool { return n < b.until }

// figures are what samples tell of a run, see [Result].
type figures struct {
	delay, pause, took, met histogram
	moved, seizes           int64
}

// tell adds them to a result.
func (f *figures) tell(r *Result) {
	r.Times.Delay, r.Times.Pause, r.Times.Taken, r.Times.Met = f.delay.spread(), f.pause.spread(), f.took.spread(), f.met.spread()
	r.Stops.Moved, r.Stops.Asked = f.moved, f.seizes
}

// drain takes what clocks have taken.
func (h *harvest) drain() {
	for _, m := range h.bank.Drain() {
		t := h.listing.thread(m.Slot)
		if t != nil && t.tid == 0 {
			// The slot may have been another process's, or another program's, when it was taken.
			if p := t.proc; t != p.mem.spare || m.PID != p.pid || m.At.Wake < p.mem.since || m.Gone {
				t = nil
			} else {
				t = h.news.met(p, m.TID, min(m.Tick, h.book.Tick()), time.Duration(m.Stopped.Run))
			}
		}
		if h.taken(t, m); t != nil {
			t.proc.cpu.stands = 0 // where nothing of it was sent
		}
		delete(h.became.early, m)
		m.Done()
	}
}

// taken accounts for a sample of a clock and passes it on.
func (h *harvest) taken(t *thread, m *clocks.Sample) {
	if !m.Peeked.Asleep {
		h.figures.seizes++
	}
	if t == nil || t.tid != m.TID || !h.roster.live(t) {
		return // it was dropped meanwhile
	}
	asked := t.req.asking
	t.req.again, t.req.asking = t.req.asking, false
	took := h.toll.Taken(m)
	h.figures.took.add(took)
	h.load.add(t, took)
	tick := min(m.Tick, h.book.Tick())
	if h.book.Owed(&t.line, tick) == 0 {
		t.req.again = false // what the stop has shown is lost
		return              // it was read at this tick already, when it waited
	}
	h.wasMet(t, tick, m)
	early := h.early(m)
	if m.Gone || m.Became() >= 0 && early == nil || t.proc.mem.shares && t.proc.replaced() { // a clock cannot tell whose memory that was
		h.listing.restless = h.book.Tick()
		h.book.Give(&t.line, tick, ledger.Exited)
		return
	}
	c := h.swap(t, m)
	if c == nil {
		t.req.again = false
		h.listing.restless = h.book.Tick()
		h.book.Give(&t.line, tick, ledger.NoRoom)
		return
	}
	if asked && ptrace.StackPointer(c.Regs.Note) == t.req.wait.SP {
		// Not every architecture tells at a stop which call it has met.
		c.Blocked, c.Regs.Call.NR = true, t.req.wait.NR
	}
	c.Weight.Delay, c.Weight.Pause, c.Weight.Late = time.Duration(m.At.Stopped-m.At.Asked), time.Duration(m.At.Released-m.At.Stopped), time.Duration(m.At.Wake-h.ticks.start-m.Tick*h.ticks.interval)
	if m.Peeked.Asleep {
		c.Taken, c.Blocked, c.Regs.Call, c.Count = capture.Unstopped, true, m.Peeked.Call, m.Peeked.Count
	} else {
		h.figures.delay.add(c.Weight.Delay)
		h.figures.pause.add(c.Weight.Pause)
		h.rounds.now.pause.add(c.Weight.Pause)
		if m.Buffer.Call.Met {
			h.figures.met.add(c.Weight.Delay + c.Weight.Pause)
		}
	}
	if m.Moved && !asked {
		h.figures.moved++
	}
	h.standsFor(t, tick, m)
	if early == nil {
		h.acct.emit(t, m.Tick, c, h.ran(t, m), m.At.Released)
		return
	}
	c.Beyond.Reset() // these are what the program before had there
	c.Marks.Reset()
	c.Roots = c.Roots[:0]
	early.pages = procfs.Pagemap(m.Became()).Duplicate()
	h.news.became(t)
	h.acct.emitWith(t, m.Tick, c, h.ran(t, m), m.At.Released, early)
}

// hear reads what is gone soon of programs that clocks have met just now.
func (h *harvest) hear() {
	b := &h.became
	bell := h.listing.board.Bell()
	if bell == b.heard {
		return
	}
	b.heard = bell
	for _, m := range h.bank.Drain() {
		if e := h.early(m); e != nil {
			b.early[m] = e
		}
	}
}

// early is what has been read early of the program that a sample is of, which its process has become since it was looked at last. nil: it has not, or that is too late.
func (h *harvest) early(m *clocks.Sample) *early {
	b := &h.became
	pages := procfs.Pagemap(m.Became())
	if pages < 0 || h.news.keeping.on() { // who knows of all execs
		return nil
	}
	b.until = h.book.Tick() + listenTicks
	if e := b.early[m]; e != nil {
		return e
	}
	if pages.Gone() {
		return nil
	}
	if e := earlyOf(m.PID, m.TID); !pages.Gone() && len(e.maps) > 0 {
		return e
	}
	return nil
}

// standsFor accounts for the tick of a sample, and for those up to the thread's stop, which comes where it gets a CPU: those of the clock that met it, which may do so again
// at its next.
func (h *harvest) standsFor(t *thread, tick int64, m *clocks.Sample) {
	h.book.Give(&t.line, tick, ledger.Sampled)
	until := min(m.Tick+(m.At.Stopped-m.At.Wake)/h.ticks.interval, h.book.Tick())
	h.acct.wait(t, until, m.Stopped.Wait-m.Asked.Wait, 0)
	h.book.Give(&t.line, until, ledger.NotStopped)
}

// ran is what a thread has run for when a clock let go of it.
func (h *harvest) ran(t *thread, m *clocks.Sample) time.Duration {
	if h.opt.test.uncounted {
		s, _ := h.files.schedstat(t)
		return s.Run
	}
	return time.Duration(m.Stopped.Run)
}

// wasMet accounts for the ticks before the one at which a clock has met a thread.
func (h *harvest) wasMet(t *thread, tick int64, m *clocks.Sample) {
	weighs := h.acct.load.both > clocks.Every || t.watch.Asleep()
	if t.watch.Asleep() {
		h.acct.unsure(t, tick, time.Duration(m.Asked.Run))
	} else {
		h.acct.settleBy(t, tick-1, times{m.At.Wake, time.Duration(m.Asked.Run), max(time.Duration(m.Asked.Wait), t.queue.waited)})
	}
	t.queue.homeless, t.queue.due = 0, 0
	if tick := time.Duration(h.acct.ticks.interval); weighs {
		t.queue.bound(t.queue.doubt-tick, tick) // this tick stands for that
	}
	if !m.Gone { // of which nothing was read
		t.queue.waited, t.queue.let = time.Duration(m.Stopped.Wait), times{m.At.Released, time.Duration(m.Stopped.Run), time.Duration(m.Stopped.Wait)}
	}
	t.stack = false
}

// swap makes a capture of what a clock has taken, and gives the clock other room. nil: there is
// none.
func (h *harvest) swap(t *thread, m *clocks.Sample) *capture.Capture {
	a := t.fb.Get()
	want, beyond := cmp.Or(a.Room(), h.pool.first()), a.Beyond
	if k := t.fb.known(); k != nil {
		beyond = max(beyond, k.Beyond)
	}
	beyond = clocks.RoundUp(beyond)
	if most := len(m.Buffer.Stack.Room) + len(m.Buffer.Beyond.Room); want+beyond > most && want+beyond > most+h.bank.Room() {
		want, beyond = len(m.Buffer.Stack.Room), len(m.Buffer.Beyond.Room)
	}
	if len(m.Buffer.Stack.Room) < want || len(m.Buffer.Beyond.Room) < beyond {
		defer h.bank.Fit(want, beyond) // what had room for it was used for others
	}
	c := h.pool.get(want, beyond)
	if c == nil {
		return nil
	}
	lent := held(c)
	room := *c
	m.Buffer.Fill(c)
	h.pool.grown(held(c) - lent)
	m.Buffer.Use(&room)
	if m.Buffer.PACMask != 0 {
		t.proc.pac = m.Buffer.PACMask
	}
	c.Taken = capture.Stopped
	return c
}
