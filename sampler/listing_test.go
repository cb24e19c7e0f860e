package sampler

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"sfsample/sampler/clocks"
	"sfsample/sampler/ledger"
	"sfsample/sampler/taking"
)

// scriptBoard is a board whose slots are held by a clock when a test says so. It notes what a clock would read.
type scriptBoard struct {
	slots []*clocks.Thread
	holds map[int]bool
	room  int
}

func (b *scriptBoard) Put(t clocks.Thread) int {
	for i := range b.slots {
		if b.slots[i] == nil {
			b.slots[i] = &t
			return i
		}
	}
	if len(b.slots) == b.room {
		return -1
	}
	b.slots = append(b.slots, &t)
	return len(b.slots) - 1
}

func (b *scriptBoard) Remove(slot int) bool {
	if b.holds[slot] {
		return false
	}
	b.slots[slot] = nil
	return true
}

func (b *scriptBoard) Advise(slot int, a taking.Advice) bool { return !b.holds[slot] }
func (b *scriptBoard) Met(int, int64) clocks.Meeting         { return clocks.NotMet }
func (b *scriptBoard) Asked(int) int64                       { return -1 }
func (b *scriptBoard) Holds(int, int64) bool                 { return false }
func (b *scriptBoard) Group(int32) int                       { return -1 }
func (b *scriptBoard) Ungroup(int)                           {}
func (b *scriptBoard) Renew(slot int) bool                   { return !b.holds[slot] }
func (b *scriptBoard) Bell() uint32                          { return 0 }

// pagemaps counts those of this process that it has open. (Tests before this one may have left some of others, which are closed later.)
func pagemaps(t *testing.T) (n int) {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		if name, _ := os.Readlink("/proc/self/fd/" + f.Name()); name == fmt.Sprintf("/proc/%d/pagemap", os.Getpid()) {
			n++
		}
	}
	return n
}

// TestListing plays threads that come to the board and leave it, while clocks hold some of them: no file that a clock reads is
// closed while it holds the thread, none is left open after that, and each slot is the thread's that is there.
func TestListing(t *testing.T) {
	before := pagemaps(t)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := &scriptBoard{holds: map[int]bool{}, room: 10}
		l := listing{opt: &Options{}, book: ledger.NewBook(), files: &files{most: 1 << 16}, board: b}
		var live []*thread
		come := func() {
			th := ownThread(t)
			th.proc.mem.pages = proc.OpenPagemap(th.tid)
			th.proc.group = 0
			l.spare(th.proc)
			live = append(live, th)
		}
		check := func() {
			t.Helper()
			for slot, x := range b.slots {
				if x == nil {
					continue
				}
				for _, fd := range []int{x.Sched, x.Stat, x.Call, x.Pages} {
					if fd >= 0 && !isOpen(fd) { // there may be no pagemap here
						t.Fatalf("seed %d: a clock may read a file of slot %d that is closed", seed, slot)
					}
				}
			}
			for _, th := range live {
				if th.slot >= 0 {
					if x := b.slots[th.slot]; x == nil || x.Stat != th.open.stat || l.thread(th.slot) != th {
						t.Fatalf("seed %d: slot %d is not the thread's", seed, th.slot)
					}
				} else if th.open.stat >= 0 || th.open.debug >= 0 {
					t.Fatalf("seed %d: a thread that is not on the board has its files open", seed)
				}
			}
			open, listed := 0, 0
			for _, th := range live {
				open += th.files()
				if th.slot >= 0 {
					listed++
				}
			}
			if l.n != listed {
				t.Fatalf("seed %d: %d threads are on the board, %d are counted", seed, listed, l.n)
			}
			if l.files.open != open {
				t.Fatalf("seed %d: %d files are open, the budget says %d", seed, open, l.files.open)
			}
		}
		for range 200 {
			switch op := r.IntN(6); {
			case op == 0 && len(live) < 8:
				come()
			case len(live) == 0:
			case op == 1:
				l.awake(live[r.IntN(len(live))], -1)
			case op == 2:
				th := live[r.IntN(len(live))]
				holds := th.slot >= 0 && b.holds[th.slot]
				if l.leave(th) == holds {
					t.Fatalf("seed %d: left %t, held %t", seed, !holds, holds)
				}
			case op == 3: // it ends
				i := r.IntN(len(live))
				th := live[i]
				if l.leave(th) {
					l.files.close(th)
				} else {
					l.gone(th)
				}
				l.unspare(th.proc)
				l.closePages(th.proc)
				live = append(live[:i], live[i+1:]...)
			case op == 4 && len(b.slots) > 0:
				slot := r.IntN(len(b.slots))
				b.holds[slot] = b.slots[slot] != nil && !b.holds[slot]
			default:
				l.retry()
			}
			check()
		}
		clear(b.holds)
		l.retry()
		l.retry() // a pagemap is closed after the last of its threads
		if l.pending() {
			t.Fatalf("seed %d: something is still to be tried, and nobody holds a thread", seed)
		}
		for _, th := range live {
			l.leave(th)
			l.files.close(th)
			l.closePages(th.proc)
		}
		if l.files.open != 0 {
			t.Errorf("seed %d: %d files count as open at the end", seed, l.files.open)
		}
		if n := pagemaps(t); n != before {
			t.Errorf("seed %d: %d pagemaps are left open", seed, n-before)
		}
	}
}
