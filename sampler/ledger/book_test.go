package ledger

import (
	"math/rand/v2"
	"testing"
	"time"
)

// check tells whether every thread tick that has passed is in a class or owed.
func check(t *testing.T, b *Book, lines []*Line) {
	t.Helper()
	a := b.Account()
	owed := int64(0)
	for _, l := range lines {
		if l.open {
			owed += b.Owed(l, b.Tick())
		}
	}
	if a.Sum()+owed != a.Expected {
		t.Fatalf("%d accounted for + %d owed != %d thread ticks", a.Sum(), owed, a.Expected)
	}
}

// TestBookBalances makes calls at random and keeps its own count of thread ticks.
func TestBookBalances(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := NewBook()
		var lines []*Line
		var expected, ticks int64
		for range 300 {
			switch op := r.IntN(6); {
			case op == 0 || len(lines) == 0:
				l := new(Line)
				b.Open(l, 0)
				lines = append(lines, l)
			case op == 1:
				k := int64(r.IntN(4))
				live := int64(0)
				for _, l := range lines {
					if l.open {
						live++
					}
				}
				b.Advance(b.Tick() + k)
				ticks += k
				expected += k * live
			case op == 2:
				b.Give(lines[r.IntN(len(lines))], b.Tick()-int64(r.IntN(3)), Class(r.IntN(int(NumClasses))))
			case op == 3:
				b.GiveSome(lines[r.IntN(len(lines))], int64(r.IntN(5))-1, Class(r.IntN(int(NumClasses))))
			case op == 4:
				b.Close(lines[r.IntN(len(lines))], Exited)
			}
			// Lines that are closed must not be written any more.
			live := lines[:0]
			for _, l := range lines {
				if l.open {
					live = append(live, l)
				}
			}
			lines = live
			check(t, b, lines)
		}
		if a := b.Account(); a.Expected != expected || a.Ticks != ticks {
			t.Fatalf("seed %d: %d ticks, %d thread ticks, want %d and %d", seed, a.Ticks, a.Expected, ticks, expected)
		}
	}
}

// TestClasses gives a line's ticks to classes, oldest first.
func TestClasses(t *testing.T) {
	b := NewBook()
	if a := b.Account(); a.String() != "0" {
		t.Errorf("an empty account says %q", a.String())
	}
	var l Line
	b.Advance(4) // before its time
	b.Advance(2) // which does not go back
	b.Open(&l, 0)
	b.Advance(14)
	if n := b.Owed(&l, 100); n != 10 {
		t.Fatalf("owes %d ticks of 10", n)
	}
	if n := b.GiveSome(&l, 3, Waiting); n != 3 {
		t.Fatalf("gave %d of 3", n)
	}
	if n := b.Give(&l, 8, Unmet); n != 1 { // ticks 5 to 7 are given
		t.Fatalf("gave %d ticks up to 8, want 1", n)
	}
	if n := b.Give(&l, 7, Unmet); n != 0 {
		t.Fatalf("gave %d ticks a second time", n)
	}
	b.Close(&l, Exited)
	b.Close(&l, Exited)
	b.Advance(20)
	a := b.Account()
	if a.Count[Waiting] != 3 || a.Count[Unmet] != 1 || a.Count[Exited] != 6 || a.Expected != 10 || a.Ticks != 21 {
		t.Errorf("account %+v", a)
	}
	if n := a.Lost(); n != 1 { // those not met
		t.Errorf("%d are lost, want 1", n)
	}
	if s := a.String(); s != "3 waiting for a CPU + 1 not met + 6 exited" {
		t.Errorf("it says %q", s)
	}
}

// TestOpenAt opens lines in the past: they owe the ticks since.
func TestOpenAt(t *testing.T) {
	b := NewBook()
	var first, now, past, begin, next Line
	b.Open(&first, 0)
	b.Advance(9)
	for _, x := range []struct {
		l       *Line
		n, owes int64
	}{{&now, 9, 1}, {&past, 4, 6}, {&begin, -3, 10}, {&next, 10, 0}} {
		before := b.Account().Expected
		b.OpenAt(x.l, x.n, time.Second)
		if got := b.Owed(x.l, 9); got != x.owes || b.Account().Expected != before+x.owes || x.l.Run() != time.Second {
			t.Errorf("opened at %d it owes %d, want %d; %d are expected more", x.n, got, x.owes, b.Account().Expected-before)
		}
	}
	b.Advance(10)
	for _, l := range []*Line{&first, &now, &past, &begin, &next} {
		b.Close(l, Idle)
	}
	if a := b.Account(); a.Sum() != a.Expected || a.Expected != 11+2+7+11+1 {
		t.Errorf("of %d expected ticks %d are accounted for", a.Expected, a.Sum())
	}
}

// TestCharge charges CPU time in uneven parts: they add up to what the thread ran for, and a run time that
// goes back is not charged.
func TestCharge(t *testing.T) {
	var l Line
	NewBook().Open(&l, 3*time.Second) // not ours
	r := rand.New(rand.NewPCG(7, 7))
	run := 3 * time.Second
	for range 1000 {
		d := time.Duration(r.Int64N(int64(30 * time.Millisecond)))
		run += d
		if got := l.Charge(run); got != d {
			t.Fatalf("charged %v of %v", got, d)
		}
	}
	if got := l.Charge(run - time.Second); got != 0 || l.Run() != run {
		t.Errorf("a run time that went back was charged with %v, up to %v of %v", got, l.Run(), run)
	}
}
