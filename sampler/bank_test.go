package sampler

import (
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/sampler/clocks"
	"sfsample/sampler/ledger"
	"sfsample/sampler/taking"
)

// TestClocksComeAndGo: what clocks had is there for others when they have ended, and clocks of many CPUs leave captures
// their room.
func TestClocksComeAndGo(t *testing.T) {
	for _, hz := range []int{99, 20000} {
		room := new(pool)
		for range 64 {
			e := newEngine(Options{Hz: hz}, room, time.Now(), new(outlet))
			e.bank.Need(0, 0)
			if e.bank.Clocks() != 1 {
				t.Fatal("there is no clock for CPU 0")
			}
			e.bank.Fit(1<<20, 1<<20)
			e.bank.Close()
		}
		if c := room.get(newCopy, firstCopy); c == nil {
			t.Errorf("at %d Hz there is no room for a capture when all clocks have ended", hz)
		}
	}
}

// TestHeldFiles: the pagemap of a process stays open while a clock holds a thread of it, and no longer.
func TestHeldFiles(t *testing.T) {
	var l listing
	p := &process{mem: memory{tasks: -1, pages: proc.OpenPagemap(os.Getpid()), held: 1}}
	pages := int(p.mem.pages)
	open := func() bool { _, err := unix.FcntlInt(uintptr(pages), unix.F_GETFD, 0); return err == nil }
	l.closePages(p)
	l.retry()
	if !open() || p.mem.pages != -1 || !l.pending() {
		t.Fatal("the pagemap is closed while a clock reads it")
	}
	p.mem.held = 0
	if l.retry(); l.pending() || open() {
		t.Error("the pagemap is left open")
	}
}

// TestRefused: a thread that a thread of ours traces already, by the id that it had before an exec, is not another's, nor
// is one that has ended.
func TestRefused(t *testing.T) {
	other := startWaiting(t)
	var warned strings.Builder
	e := bareEngine(Options{Log: slog.New(slog.NewTextHandler(&warned, nil))})
	book := e.acct.book
	th := &thread{tid: other.PID, proc: &process{pid: other.PID}}
	refuse := func(want ledger.Class) {
		t.Helper()
		n := book.Tick() + 1
		book.Open(&th.line, 0)
		book.Advance(n)
		before := book.Account()
		e.looks.refuse(th, n)
		if a := book.Account(); a.Count[want] != before.Count[want]+1 || warned.Len() > 0 {
			t.Errorf("booked as %v, want 1 %v; said %q", &a, want, &warned)
		}
	}
	traced, end := make(chan error), make(chan struct{})
	done := ptrace.OnThread(func() {
		traced <- ptrace.Seize(other.PID, 0)
		<-end
	})
	if err := <-traced; err != nil {
		t.Fatal(err)
	}
	refuse(ledger.NotStopped)
	close(end)
	<-done
	th.tid = 1 << 30 // no thread has it
	refuse(ledger.Exited)
}

// TestRoomIsUsed: where clocks had less room for a thread than its advice asks for, as others have used it, they have it again.
func TestRoomIsUsed(t *testing.T) {
	e := newEngine(Options{Hz: 99}, new(pool), time.Now(), new(outlet))
	e.bank.Need(0, 0)
	defer e.bank.Close()
	before := e.bank.Room()
	th := &thread{proc: new(process), fb: new(Feedback)}
	th.fb.Set(Advice{Advice: taking.Advice{Want: 256 << 10, Beyond: 256 << 10}})
	enough := &clocks.Sample{Buffer: taking.Buffer{Stack: taking.Copy{Room: make([]byte, 256<<10)}, Beyond: taking.Copy{Room: make([]byte, 256<<10)}}}
	if e.harvest.swap(th, enough) == nil || e.bank.Room() != before {
		t.Errorf("room for %d bytes, with %d before, though there was enough for the thread", e.bank.Room(), before)
	}
	short := &clocks.Sample{Buffer: taking.Buffer{Stack: taking.Copy{Room: make([]byte, 256<<10)}, Beyond: taking.Copy{Room: make([]byte, 64<<10)}}}
	if e.harvest.swap(th, short) == nil || e.bank.Room() >= before {
		t.Errorf("room for %d bytes, as before: clocks have as little for the thread as they had", e.bank.Room())
	}
}
