package sampler

import (
	"context"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
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

// TestWatchdog: a coordinator that is in a read without end is given up; one that works on, or has nothing to
// do, is not.
func TestWatchdog(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	fd := int(r.Fd()) // blocking from now on
	done := make(chan struct{})
	e := &engine{stop: make(chan struct{})}
	e.works()
	go func() {
		unix.Read(fd, make([]byte, 1))
		close(done)
	}()
	if err := e.watch(context.Background(), done, nil); err != errHung {
		t.Errorf("watch = %v, want that reading hangs", err)
	}
	if _, err := w.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	<-done
	for name, does := range map[string]func(*engine){"at rest": (*engine).rests, "at work": (*engine).works} {
		e, done := &engine{stop: make(chan struct{})}, make(chan struct{})
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
