package sampler

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/clocks"
)

// TestHangs: the coordinator hangs if it gives no sign of life and a thread of ours stays in one call that reads; not
// if it got no CPU, and not if it goes on.
func TestHangs(t *testing.T) {
	reads := procfs.Syscall{NR: unix.SYS_PREAD64, SP: 1, PC: 2}
	later := reads
	later.SP = 3
	calls := func(c procfs.Syscall) map[int]wait { return map[int]wait{7: {c, 3}} }
	for _, tt := range []struct {
		name          string
		before, found idleness
		want          bool
	}{
		{"first look", idleness{}, idleness{5, calls(reads)}, false},
		{"the same call", idleness{5, calls(reads)}, idleness{5, calls(reads)}, true},
		{"a sign of life between", idleness{5, calls(reads)}, idleness{6, calls(reads)}, false},
		{"another call", idleness{5, calls(reads)}, idleness{5, calls(later)}, false},
		{"another thread", idleness{5, calls(reads)}, idleness{5, map[int]wait{8: {reads, 3}}}, false},
		{"has run between", idleness{5, calls(reads)}, idleness{5, map[int]wait{7: {reads, 4}}}, false},
		{"no CPU", idleness{5, nil}, idleness{5, nil}, false},
	} {
		if got := tt.found.goesOn(tt.before); got != tt.want {
			t.Errorf("%s: hangs %t, want %t", tt.name, got, tt.want)
		}
	}
}

// TestWatchdog: a coordinator that is in a read without end is given up, after hung to one and a half times that unless others
// have the CPUs; one that works on, or has nothing to do, is not.
func TestWatchdog(t *testing.T) {
	var took []time.Duration
	for len(took) < 3 && (len(took) == 0 || slices.Min(took) > hung*5/4) {
		took = append(took, watchHung(t))
	}
	if least := slices.Min(took); least < hung || least > hung*3/2 {
		t.Errorf("given up after %v, want %v to %v", took, hung, hung*3/2)
	}
	for name, does := range map[string]func(*pulse){"at rest": (*pulse).rests, "at work": (*pulse).works} {
		e, done := &pulse{stop: make(chan struct{})}, make(chan struct{})
		go func() {
			defer close(done)
			for end := time.Now().Add(3 * hung); time.Now().Before(end); {
				does(e)
				ptrace.Now()
			}
		}()
		ctx, cancel := context.WithTimeout(context.Background(), testprog.Patience)
		defer cancel()
		if err := e.watch(ctx, done, nil); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// watchHung is how long it takes until a coordinator is given up that is in an open without end. Another thread of ours is in a read
// without end all the time, which alone would not do: it is of nothing in /proc.
func watchHung(t *testing.T) time.Duration {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()   // not before: nobody else refers to it
	fd := int(r.Fd()) // blocking from now on
	read := make(chan struct{})
	go func() {
		unix.Read(fd, make([]byte, 1))
		close(read)
	}()
	defer func() {
		w.Close()
		<-read
	}()
	name := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	other := &pulse{stop: make(chan struct{})}
	other.works()
	starved := make(chan struct{})
	time.AfterFunc(3*hung, func() { close(starved) })
	if err := other.watch(context.Background(), starved, nil); err != nil {
		t.Errorf("watch = %v of a coordinator that gets no CPU, while another thread reads a pipe", err)
	}
	done := make(chan struct{})
	e := &pulse{stop: make(chan struct{})}
	begun := time.Now()
	e.works()
	go func() {
		fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
		}
		close(done)
	}()
	if err := e.watch(context.Background(), done, nil); err != errHung {
		t.Errorf("watch = %v, want that reading hangs", err)
	}
	took := time.Since(begun)
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-done
	return took
}

// TestSuspects: who holds a thread hangs if it is blocked, and has not run, from a look to the one hungLooks later; not if it runs, and not
// if that is another hold.
func TestSuspects(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	fd, ids := int(r.Fd()), make(chan int) // blocking from now on
	var quit atomic.Bool
	defer quit.Store(true)
	start := func(f func()) int {
		go func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ids <- unix.Gettid()
			f()
		}()
		return <-ids
	}
	blocked := start(func() { unix.Read(fd, make([]byte, 1)) })
	works := start(func() {
		for !quit.Load() {
		}
	})
	for end := time.Now().Add(testprog.Patience); ; {
		if c, err := proc.Task(os.Getpid(), blocked).Syscall(); err == nil && !c.Running && c.NR == unix.SYS_READ {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the thread does not begin to read")
		}
	}
	a, b := clocks.Hold{By: blocked, TID: 1, Since: 5}, clocks.Hold{By: works, TID: 2, Since: 5}
	var s suspects
	for end := time.Now().Add(testprog.Patience); ; { // Go's scheduler has it sleep at times
		if s.look(proc, []clocks.Hold{b}); len(s) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("who works is suspect")
		}
	}
	for i := range hungLooks {
		if hang := s.look(proc, []clocks.Hold{a}); hang != nil || len(s) != 1 || s[a].looks != i {
			t.Fatalf("look %d: %v hang of %v", i, hang, s)
		}
	}
	other := a
	other.Since++
	if hang := s.look(proc, []clocks.Hold{other}); hang != nil || s[other].looks != 0 {
		t.Errorf("another hold: %v hang of %v", hang, s)
	}
	for range hungLooks - 1 {
		s.look(proc, []clocks.Hold{other})
	}
	had := s[other]
	s[other] = suspect{had.count - 1, had.looks} // it has run since
	if hang := s.look(proc, []clocks.Hold{other}); hang != nil || s[other].looks != 0 {
		t.Errorf("one that has run: %v hang of %v", hang, s)
	}
	for range hungLooks - 1 {
		s.look(proc, []clocks.Hold{other})
	}
	if hang := s.look(proc, []clocks.Hold{other}); !slices.Equal(hang, []clocks.Hold{other}) || len(s) != 0 {
		t.Errorf("at last %v hang, want %v; %v are left", hang, other, s)
	}
}
