package ledger

import "time"

// Book is the account of a run while it is written.
type Book struct {
	acct  Account
	tick  int64 // the last that has passed
	lines int64
}

// NewBook begins an account before tick 0.
func NewBook() *Book { return &Book{tick: -1} }

// Account is how the account stands.
func (b *Book) Account() Account { return b.acct }

// Tick is the last tick that has passed, -1 for none.
func (b *Book) Tick() int64 { return b.tick }

// Advance lets the ticks up to n pass: every line owes them.
func (b *Book) Advance(n int64) {
	if n <= b.tick {
		return
	}
	b.acct.Ticks += n - b.tick
	b.acct.Expected += (n - b.tick) * b.lines
	b.tick = n
}

// Line is the account of one thread.
type Line struct {
	done int64         // the first tick that is not accounted for
	open bool          // it is in the book
	run  time.Duration // CPU time of the thread that was charged, or was before our time
}

// Open begins a line with the next tick. The thread has run for so long already, which is
// not charged.
func (b *Book) Open(l *Line, run time.Duration) {
	*l = Line{done: b.tick + 1, open: true, run: run}
	b.lines++
}

// OpenAt is Open for a line that owes tick n and those since, too.
func (b *Book) OpenAt(l *Line, n int64, run time.Duration) {
	b.Open(l, run)
	if n = max(n, 0); n <= b.tick {
		b.acct.Expected += l.done - n
		l.done = n
	}
}

// Owed is how many ticks of a line up to tick n are not accounted for.
func (b *Book) Owed(l *Line, n int64) int64 { return max(0, min(n, b.tick)+1-l.done) }

// Give accounts for all that a line owes up to tick n, and returns how many ticks that were.
func (b *Book) Give(l *Line, n int64, c Class) int64 {
	return b.GiveSome(l, b.Owed(l, n), c)
}

// GiveSome accounts for the oldest ticks that a line owes, k at most.
func (b *Book) GiveSome(l *Line, k int64, c Class) int64 {
	k = max(0, min(k, b.Owed(l, b.tick)))
	b.acct.Count[c] += k
	l.done += k
	return k
}

// Close ends a line: what it owes is given to c.
func (b *Book) Close(l *Line, c Class) {
	if !l.open {
		return
	}
	b.Give(l, b.tick, c)
	b.lines--
	l.open = false
}

// Charge takes note of what a thread has run for, all in all, and returns how much of that is
// new.
func (l *Line) Charge(run time.Duration) (cpu time.Duration) {
	cpu = max(run-l.run, 0)
	l.run += cpu
	return cpu
}

// Run is the CPU time up to which the thread was charged.
func (l *Line) Run() time.Duration { return l.run }
