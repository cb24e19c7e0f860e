package ledger

import "time"

// Book is the account of a run while it is written.
type Book struct {
	acct     Account
	tick     int64 // the last that has passed
	lines    int64
	interval time.Duration
}

// NewBook begins an account before tick 0, with this time between ticks.
func NewBook(interval time.Duration) *Book { return &Book{tick: -1, interval: interval} }

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
	done  int64         // the first tick that is not accounted for
	open  bool          // it is in the book
	run   time.Duration // CPU time of the thread that was charged, or was before our time
	carry time.Duration // of that, what no sample has weighed yet
}

// Open begins a line with the next tick. The thread has run for so long already, which is
// not charged.
func (b *Book) Open(l *Line, run time.Duration) {
	*l = Line{done: b.tick + 1, open: true, run: run}
	b.lines++
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

// Close ends a line: what it owes is given to c. It returns the CPU time that was charged and
// that no sample stands for.
func (b *Book) Close(l *Line, c Class) (loose time.Duration) {
	if !l.open {
		return 0
	}
	b.Give(l, b.tick, c)
	b.lines--
	l.open = false
	loose, l.carry = l.carry, 0
	return loose
}

// Charge takes note of what a thread has run for, all in all, and returns how much of that is
// new.
func (l *Line) Charge(run time.Duration) (cpu time.Duration) {
	cpu = max(run-l.run, 0)
	l.run += cpu
	l.carry += cpu
	return cpu
}

// Weigh takes whole ticks of what is carried, by rounding: the next sample weighs the more
// what this one weighs too little.
func (b *Book) Weigh(l *Line) (ticks int64) {
	ticks = max(0, int64((l.carry+b.interval/2)/b.interval))
	l.carry -= time.Duration(ticks) * b.interval
	return ticks
}

// Run is the CPU time up to which the thread was charged.
func (l *Line) Run() time.Duration { return l.run }

// Carry is the CPU time that was charged and that no sample stands for yet; it may be
// negative, by half a tick.
func (l *Line) Carry() time.Duration { return l.carry }
