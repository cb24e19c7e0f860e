package sampler

import (
	"os"
	"runtime"
	"testing"
	"time"

	"sfsample/internal/testprog"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/watch"
)

// TestReadEarly: what is read of a young process is not taken for that of a capture if it has become another program since.
func TestReadEarly(t *testing.T) {
	p := startPool(t, threadsProg(t, "pool.c"))
	proc := &process{pid: p.PID, young: young{brief: true}, mem: memory{pages: procfs.FS{}.OpenPagemap(p.PID)}, program: new(program)}
	defer proc.mem.pages.Close()
	th := &thread{tid: p.PID, proc: proc}
	early := readEarly(th)
	if early == nil || len(early.maps) == 0 || early.pages < 0 || early.pages == proc.mem.pages {
		t.Fatalf("nothing was read of a process that lives, or not of which memory: %v", early)
	}
	defer early.pages.Close()
	if proc.program.replaced.Load() {
		t.Error("it is another program, though it has not called exec")
	}
	p.say(t, 'x', 4)
	for end := time.Now().Add(testprog.Patience); !proc.replaced(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("the program never calls exec")
		}
	}
	for range 4 { // it is read at the first captures, not at all
		if early := readEarly(th); early != nil {
			t.Fatalf("mappings of the next program:\n%s", early.maps)
		}
	}
	if !early.pages.Gone() || !proc.program.replaced.Load() {
		t.Errorf("the program's memory is gone %t, it is known to be another %t; want both", early.pages.Gone(), proc.program.replaced.Load())
	}
}

// TestReplacedChild: a child that shares its parent's memory has become another program when it does not any more.
func TestReplacedChild(t *testing.T) {
	own := procfs.FS{}.OpenPagemap(os.Getpid())
	defer own.Close()
	for _, tt := range []struct {
		parent int
		shares bool
		want   bool
	}{{os.Getpid(), true, false}, {1, true, true}, {1, false, false}} {
		p := &process{pid: os.Getpid(), mem: memory{pages: own, shares: tt.shares}, children: children{parent: tt.parent}}
		if got := p.replaced(); got != tt.want {
			t.Errorf("parent %d, shares %t: %t", tt.parent, tt.shares, got)
		}
	}
}

// TestUnseen: of what the kernel tells of ended children, that is charged to their parent which was not seen.
func TestUnseen(t *testing.T) {
	const ms = time.Millisecond
	for _, tt := range []struct {
		name string
		children
		want time.Duration
	}{
		{"none", children{}, 0},
		{"all", children{reaped: 50 * ms}, 50 * ms},
		{"some were seen", children{reaped: 50 * ms, known: 30 * ms}, 20 * ms},
		{"more were seen than it has waited for", children{reaped: 50 * ms, known: 60 * ms}, 0},
		{"some were told of", children{reaped: 50 * ms, known: 10 * ms, told: 15 * ms}, 25 * ms},
		{"before sampling began", children{base: 500 * ms, reaped: 550 * ms}, 30 * ms},
		{"less than is known for certain", children{base: 500 * ms, reaped: 515 * ms}, 0},
	} {
		if got := (&process{children: tt.children}).unseen(); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
	// What is known of a child is known of its parent's ended children.
	timing := watch.Timing{Interval: ms}
	child := &process{pid: 3, cpu: charges{base: 4 * ms}, children: children{parent: 2, base: 3 * ms, known: 2 * ms, told: ms}, watch: watch.NewProcess(0, timing, 10*ms)}
	parent := &process{pid: 2, children: children{parent: 1}}
	ac := &accounts{roster: newRoster(nil), opt: &Options{Follow: Follow{Children: true}}}
	ac.roster.procs[2] = parent
	ac.endChild(parent)
	ac.endChild(child)
	if parent.children.known != 16*ms {
		t.Errorf("%v of a child are known that has used 10ms, and 6ms of its own children", parent.children.known)
	}
}

// TestBlind: a process whose files could not be opened when it called exec is found again.
func TestBlind(t *testing.T) {
	p := startPool(t, threadsProg(t, "pool.c"))
	e := bareEngine(Options{Hz: 99})
	defer e.news.closeAll()
	if err := e.news.attach(p.PID); err != nil {
		t.Fatal(err)
	}
	proc := e.roster.procs[p.PID]
	known := proc.threads.Load()
	proc.mem.pages.Close()
	proc.mem.pages = -1
	e.news.find(1)
	if e.roster.procs[p.PID] != proc || proc.mem.pages < 0 || proc.replaced() {
		t.Fatalf("it is not sampled, or still without a pagemap: %d", proc.mem.pages)
	}
	if n := proc.threads.Load(); n != known || known != poolThreads+1 {
		t.Errorf("%d threads before, %d after, want %d", known, n, poolThreads+1)
	}
	program := proc.program
	if e.news.find(2); proc.program != program {
		t.Error("it begins anew though nothing has become of it")
	}
}
