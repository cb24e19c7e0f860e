package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
)

// crowd is a target of many threads: some run briefly, again and again, some
// are blocked in read(2), and one counts signals.
type crowd struct {
	busy    []atomic.Int64 // turns of each thread that runs
	blocked sync.WaitGroup // threads in read
	pipes   []int          // where they are woken
	woken   chan error     // what read returned
	signals atomic.Int64   // arrived
	lost    atomic.Int64   // did not arrive
}

const (
	crowdThreads = 50
	crowdBusy    = 25
	// signalPeriod is how soon the next signal comes once one has arrived.
	signalPeriod = time.Millisecond
)

// newCrowd starts the threads and waits until each is there.
func newCrowd() *crowd {
	c := &crowd{busy: make([]atomic.Int64, crowdBusy), woken: make(chan error)}
	for i := range c.busy {
		go c.takeTurns(&c.busy[i])
	}
	for range crowdThreads - crowdBusy {
		c.block()
	}
	go c.countSignals()
	c.blocked.Wait()
	c.turn()
	return c
}

// takeTurns runs for a moment, then sleeps, for ever.
func (c *crowd) takeTurns(n *atomic.Int64) {
	runtime.LockOSThread()
	nap := unix.NsecToTimespec(int64(50 * time.Millisecond))
	for {
		spin(500 * time.Microsecond)
		n.Add(1)
		_ = unix.Nanosleep(&nap, nil) // a signal may cut it short
	}
}

// block starts a thread that reads a pipe to which nobody writes until the end.
func (c *crowd) block() {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	c.pipes = append(c.pipes, p[1])
	c.blocked.Add(1)
	go func() {
		runtime.LockOSThread()
		c.blocked.Done()
		var b [2]byte
		n, err := unix.Read(p[0], b[:])
		if err == nil && n != 1 {
			err = fmt.Errorf("read: %d bytes", n)
		}
		c.woken <- err
	}()
}

// countSignals lets a timer send a signal to the process, and once that has
// arrived the next. So none can be merged with another, and each is counted.
func (c *crowd) countSignals() {
	arrived := make(chan os.Signal, 1)
	signal.Notify(arrived, unix.SIGALRM)
	for {
		once := unix.Itimerval{Value: unix.NsecToTimeval(int64(signalPeriod))}
		if _, err := unix.Setitimer(unix.ITIMER_REAL, once); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		select {
		case <-arrived:
			c.signals.Add(1)
		case <-time.After(testprog.Patience):
			c.lost.Add(1)
		}
	}
}

// turn returns when every thread that runs has taken a turn, and several
// signals have arrived, since it was called.
func (c *crowd) turn() {
	before := make([]int64, len(c.busy))
	for i := range c.busy {
		before[i] = c.busy[i].Load()
	}
	signals := c.signals.Load()
	for i := 0; i < len(c.busy) || c.signals.Load() < signals+3; {
		if i < len(c.busy) && c.busy[i].Load() > before[i] {
			i++
			continue
		}
		time.Sleep(time.Millisecond)
	}
}

// obey does what a line asks for and returns the answer.
func (c *crowd) obey(word string) string {
	switch word {
	case "turn":
		c.turn()
		return fmt.Sprintf("signals %d lost %d", c.signals.Load(), c.lost.Load())
	case "wake":
		for _, fd := range c.pipes {
			if _, err := unix.Write(fd, []byte{1}); err != nil {
				return "write: " + err.Error()
			}
		}
		for range c.pipes {
			if err := <-c.woken; err != nil {
				return err.Error()
			}
		}
		return "woken"
	}
	return "unknown word " + word
}

// killTime bounds the usual run on emulated machines, where one kill takes
// seconds.
const killTime = 5 * time.Second

// TestKilled kills sfsample at random moments of runs at 999 Hz on a process of
// 50 threads, before, while and after it attaches: nobody is left stopped or
// traced, nobody is missing, each thread goes on with its work, and the
// process's signals arrive.
func TestKilled(t *testing.T) {
	p := startTarget(t, "crowd")
	kills, enough := 15*long(), time.Now().Add(killTime)
	all := tasks(t, p.pid)
	if len(all) < crowdThreads {
		t.Fatalf("the target has %d threads, want at least %d", len(all), crowdThreads)
	}
	signals, lost, sampled := 0, 0, 0
	for i := range kills {
		if i > 2 && long() == 1 && time.Now().After(enough) {
			kills = i // a slow machine
			break
		}
		r := begin(t, tool("-p", strconv.Itoa(p.pid), "-hz", "999", "-o", "/dev/null"))
		if i%2 == 0 {
			// At any moment of the life of a run; else when it samples.
			r.traces(t, p.pid)
			sampled++
		}
		time.Sleep(rand.N(50 * time.Millisecond)) // the random moment; nothing depends on its length
		signalTo(t, r.cmd.Process.Pid, unix.SIGKILL)
		if o := r.end(t); o.status != -1 {
			t.Fatalf("run %d ended before it was killed, with status %d; standard error:\n%s", i, o.status, o.stderr)
		}
		p.unharmed(t, all)
		p.send(t, "turn")
		if _, err := fmt.Sscanf(p.line(t), "signals %d lost %d", &signals, &lost); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("after kill %d of %d", i+1, kills)
		}
	}
	p.send(t, "wake")
	if got := p.line(t); got != "woken" {
		t.Errorf("the blocked threads: %s", got)
	}
	t.Logf("%d kills, %d of them in runs that sampled already: %d signals, %d lost", kills, sampled, signals, lost)
	if lost > 0 {
		t.Errorf("%d of %d signals lost in %d kills", lost, signals, kills)
	}
}

// unharmed fails the test if a thread of all is stopped, traced or gone.
func (p *proc) unharmed(t testing.TB, all []int) {
	t.Helper()
	for _, tid := range all {
		s, err := (procfs.FS{}).Status(tid)
		switch {
		case err != nil:
			t.Errorf("thread %d: %v", tid, err)
		case s.TracerPid != 0 || s.State == 't' || s.State == 'T':
			t.Errorf("thread %d is left in state %c, traced by %d", tid, s.State, s.TracerPid)
		}
	}
}

// TestMetCalls: stops that have met a system call are counted, as a SIGKILL in them cannot be mended.
func TestMetCalls(t *testing.T) {
	if !ptrace.Reverts {
		t.Skip("the kernel decides on the restart of a call before the stop")
	}
	p := testprog.Start(t, testprog.Committed(t, runtime.GOARCH, "ehframe", "blocked"), "17")
	o := sfsample(t, "-p", strconv.Itoa(p.PID), "--threads", "all", "--stop", "always", "-d", "500ms", "-v", "-o", "/dev/null")
	o.want(t, exitDone)
	if !regexp.MustCompile(`stops that met a system call: [1-9][0-9]*, from request to release p50 [1-9]`).MatchString(o.stderr) {
		t.Errorf("no such stop is told of:\n%s", o.stderr)
	}
}
