package sampler

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/output"
	"sfsample/ptrace/procfs"
)

// sightings notes which functions threads were seen in. Its tally counts.
type sightings struct {
	tally
	mu    sync.Mutex
	count map[string]int // by thread and function
	news  chan struct{}  // with room for one: something was added
}

// Add implements output.Sink.
func (s *sightings) Add(x *output.Sample) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.tell()
	if x.Stack != nil {
		for _, f := range x.Stack.Frames {
			s.count[fmt.Sprint(x.TID, " ", f.Func)]++
		}
	}
	return s.tally.Add(x)
}

// tell wakes who waits for something to happen.
func (s *sightings) tell() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (s *sightings) in(tid int, function string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[fmt.Sprint(tid, " ", function)]
}

// threads is how many threads were seen in a function.
func (s *sightings) threads(function string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for what := range s.count {
		if strings.HasSuffix(what, " "+function) {
			n++
		}
	}
	return n
}

// pooled is a process with threads that wait for words, and the run that samples it.
type pooled struct {
	*testprog.Proc
	tids  []int
	in    io.Writer
	sink  *sightings
	gone  sync.Map // the threads whose end the engine knows, by id
	stop  func()
	ended chan struct{}
	r     Result
}

const poolThreads = 100

// threadsProg builds a C program that has threads.
func threadsProg(t *testing.T, source string) (path string) {
	t.Helper()
	return testprog.Compile(t, []string{"-O1", "-pthread"}, source)
}

// forkAside keeps the thread that forks from becoming a tracing one, which would take
// the child's end for a tracee's.
func forkAside(t *testing.T) {
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
}

// startPool starts such a process.
func startPool(t *testing.T, path string) *pooled {
	t.Helper()
	forkAside(t)
	cmd := exec.Command(path, strconv.Itoa(poolThreads))
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &pooled{Proc: testprog.StartCmd(t, cmd), in: in, ended: make(chan struct{})}
	p.sink = &sightings{count: map[string]int{}, news: make(chan struct{}, 1)}
	for _, line := range p.Lines {
		p.tids = append(p.tids, newThreadID(t, line))
	}
	if len(p.tids) != poolThreads {
		t.Fatalf("%d threads, want %d", len(p.tids), poolThreads)
	}
	for _, tid := range p.tids { // each has been there, but may not wait yet
		for waits := false; !waits; runtime.Gosched() {
			call, err := (procfs.FS{}).Task(p.PID, tid).Syscall()
			if err != nil {
				t.Fatal(err)
			}
			waits = call.NR == unix.SYS_READ
		}
	}
	return p
}

// sample begins to sample p, and the processes of opt.
func (p *pooled) sample(t *testing.T, opt Options) {
	t.Helper()
	opt.PIDs = append(opt.PIDs, p.PID)
	opt.test.ended = func(tid int) {
		p.gone.Store(tid, true)
		p.sink.tell()
	}
	p.sink.interval = opt.interval()
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	t.Cleanup(cancel)
	ready := make(chan struct{})
	go func() {
		defer close(p.ended)
		var err error
		if p.r, err = Run(ctx, opt, 0, testPipeline(p.sink), func() { close(ready) }, nil); err != nil {
			t.Error(err)
		}
	}()
	select {
	case <-ready:
	case <-p.ended:
		t.FailNow()
	}
}

// newThreadID is the id that a line of pool tells.
func newThreadID(t *testing.T, line string) int {
	t.Helper()
	tid, err := strconv.Atoi(strings.TrimPrefix(line, "tid "))
	if err != nil {
		t.Fatal(err)
	}
	return tid
}

// say gives a thread a word.
func (p *pooled) say(t *testing.T, word byte, thread int) {
	t.Helper()
	if _, err := fmt.Fprintf(p.in, "%c%d\n", word, thread); err != nil {
		t.Fatal(err)
	}
}

// await waits until f is true, which a sample or the end of a thread makes it.
func (p *pooled) await(t *testing.T, what string, f func() bool) {
	t.Helper()
	limit := time.After(testprog.Patience)
	for !f() {
		select {
		case <-p.sink.news:
		case <-p.ended:
			if !f() {
				t.Fatalf("the run has ended without %s", what)
			}
		case <-limit:
			t.Fatalf("in vain: %s", what)
		}
	}
}

// within is what c gives. The test fails if that takes too long.
func within[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(testprog.Patience):
		t.Fatal(what)
		panic("not reached")
	}
}

// finish ends the run and checks its account.
func (p *pooled) finish(t *testing.T) {
	t.Helper()
	p.stop()
	within(t, p.ended, "the run does not end")
	if err := checkAccount(&p.r, &p.sink.tally); err != nil {
		t.Error(err)
	}
}

// checkFree checks that no thread that waits is anybody's tracee.
func (p *pooled) checkFree(t *testing.T) {
	t.Helper()
	for i, tid := range append([]int{p.PID}, p.tids...) {
		s, err := (procfs.FS{}).Status(tid)
		if err != nil {
			t.Fatal(err)
		}
		if s.TracerPid != 0 && s.State == 'S' {
			t.Errorf("thread %d waits, and is traced by %d", i-1, s.TracerPid)
		}
	}
}

// TestBirths samples a process with many threads that wait, and finds out what becomes of them, although
// nobody tells.
func TestBirths(t *testing.T) {
	path := threadsProg(t, "pool.c")
	opts := map[string]Options{
		"all":     {Hz: 99, All: true, WallWeight: true},
		"running": {Hz: 99},
	}
	for name, opt := range opts {
		t.Run(name, func(t *testing.T) {
			p := startPool(t, path)
			p.sample(t, opt)
			if opt.All {
				for i, tid := range p.tids {
					p.await(t, fmt.Sprintf("a sample of thread %d", i), func() bool { return p.sink.in(tid, "await") > 0 })
				}
			}
			p.checkFree(t)

			p.say(t, 's', 3)
			p.await(t, "a sample of what spins", func() bool { return p.sink.in(p.tids[3], "spin") > 0 })
			p.checkFree(t)
			p.say(t, 'w', 3)

			p.say(t, 'b', 5)
			tid := newThreadID(t, p.Line(t))
			p.await(t, "a sample of what was born", func() bool { return p.sink.in(tid, "newborn") > 0 })

			p.say(t, 'e', 7)
			p.await(t, "the end of a thread", func() bool { _, ok := p.gone.Load(p.tids[7]); return ok })

			p.say(t, 'x', 9)
			p.await(t, "a sample of the new program", func() bool { return p.sink.in(p.PID, "became") > 0 })
			if opt.All {
				p.await(t, "samples of all threads of the new program", func() bool { return p.sink.threads("chain") == poolThreads })
			}
			p.finish(t)
		})
	}
}

// TestEnds has a process end: so does the run.
func TestEnds(t *testing.T) {
	path := threadsProg(t, "pool.c")
	for _, end := range []string{"exit", "kill"} {
		t.Run(end, func(t *testing.T) {
			p := startPool(t, path)
			p.sample(t, Options{Hz: 99, All: true})
			p.await(t, "a sample", func() bool { return p.sink.in(p.tids[0], "await") > 0 })
			if end == "kill" {
				p.Signal(t, syscall.SIGKILL)
			} else if err := p.in.(io.Closer).Close(); err != nil {
				t.Fatal(err)
			}
			within(t, p.ended, "the run goes on without its process")
			p.finish(t)
		})
	}
}

// TestReplaced has a thread call exec of a program that ends at once: its
// end is noticed, although another process is sampled, too.
func TestReplaced(t *testing.T) {
	path := threadsProg(t, "pool.c")
	other := startWaiting(t)
	p := startPool(t, path)
	p.sample(t, Options{Hz: 99, All: true, PIDs: []int{other.PID}})
	p.say(t, 'q', 4)
	p.await(t, "the end of the process", func() bool { _, ok := p.gone.Load(p.PID); return ok })
	p.finish(t)
}

// TestLeaderAlone samples the leader of a process, --tid, of which another thread
// calls exec. The threads of the new program are not asked for.
func TestLeaderAlone(t *testing.T) {
	p := startPool(t, threadsProg(t, "pool.c"))
	p.sample(t, Options{Hz: 99, All: true, TIDs: []int{p.PID}})
	p.say(t, 'x', 4)
	p.await(t, "a sample of the new program", func() bool { return p.sink.in(p.PID, "became") > 9 })
	p.finish(t)
	if n := p.sink.threads("chain") + p.sink.threads("await"); n > 0 {
		t.Errorf("%d threads were sampled that were not asked for", n)
	}
}

// TestAttachInExec attaches to a process again and again that is often just calling
// exec, from a thread that is not the leader: that waits for the ends of all others,
// also of those that are tracees by then, and attaching waits for it.
func TestAttachInExec(t *testing.T) {
	path := threadsProg(t, "execs.c")
	for _, threads := range []int{32, 128} {
		t.Run(strconv.Itoa(threads), func(t *testing.T) {
			forkAside(t)
			p := testprog.Start(t, path, strconv.Itoa(threads))
			for range 10 {
				attachInExec(t, p)
			}
		})
	}
}

// attachInExec samples p, which hardly runs in its threads, until it has called exec twice and they are seen.
func attachInExec(t *testing.T, p *testprog.Proc) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	sink := new(byFunction)
	ended := make(chan error, 1)
	go func() {
		r, err := Run(ctx, Options{Hz: 199, All: true, PIDs: []int{p.PID}}, 0, testPipeline(sink), nil, nil)
		if err == nil && r.Sum() != r.Expected {
			err = fmt.Errorf("the classes (%v) sum up to %d, want %d thread ticks", &r.Account, r.Sum(), r.Expected)
		}
		ended <- err
	}()
	for lines := 0; lines < 2 || sink.of("live") < 1; lines++ {
		if p.Line(t); lines > 10_000 {
			t.Fatal("10,000 programs, and a thread of none was seen")
		}
		select {
		case err := <-ended:
			t.Fatalf("the run has ended: %v", err)
		default:
		}
	}
	cancel()
	if err := within(t, ended, "the run does not end"); err != nil {
		t.Error(err)
	}
}

// TestManyExecs: the run goes on while its process calls exec all the time, from its leader and from another thread in turn.
func TestManyExecs(t *testing.T) {
	path := threadsProg(t, "manyexecs.c")
	forkAside(t)
	p := testprog.Start(t, path, "2000")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := Run(ctx, Options{Hz: 999, PIDs: []int{p.PID}}, 0, testPipeline(new(byFunction)), nil, nil)
		ended <- err
	}()
	if line := p.Line(t); line != "done" {
		t.Fatal(line)
	}
	select {
	case err := <-ended:
		t.Fatalf("the run has ended before the program: %v", err)
	default:
	}
	cancel()
	if err := within(t, ended, "the run does not end"); err != nil {
		t.Error(err)
	}
}

// TestBecomes samples processes of which a thread that is not the leader calls exec, often while a clock asks it to stop:
// the new program is let go, and gets its signals.
func TestBecomes(t *testing.T) {
	path := threadsProg(t, "becomes.c")
	forkAside(t)
	cmd := exec.Command(path, "60")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &pooled{Proc: testprog.StartCmd(t, cmd), in: in, ended: make(chan struct{})}
	p.sink = &sightings{count: map[string]int{}, news: make(chan struct{}, 1)}
	p.sample(t, Options{Hz: 999, Follow: Follow{Children: true}})
	p.say(t, ' ', 0)
	if line := p.Line(t); line != "killed 0" {
		t.Errorf("%s, want none", line)
	}
	p.finish(t)
}
