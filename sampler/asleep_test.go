package sampler

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// actor is a thread that the tests below make run, with what a look would show.
type actor struct {
	thread
	stat  procfs.Schedstat
	busy  bool
	every int     // it wakes once in so many ticks; 0: never
	ran   float64 // when it first ran after its last look, in ticks; 0: not yet
}

// stage is a process of actors, and what the engine does with it at each tick.
type stage struct {
	t       *testing.T
	r       *rand.Rand
	p       process
	actors  []*actor
	exited  time.Duration
	foreign bool // a thread that is not sampled runs now and then
	torn    int  // of 100 readings, how many find other times after the clock
	now     float64
	looks   int
	unsure  int64
	latest  int64 // ticks until a run was found out
}

func (s *stage) clock() (sum, running time.Duration) {
	sum = s.exited
	for _, a := range s.actors {
		sum += a.stat.Run
		if !a.blocked {
			running += a.stat.Run
		}
	}
	return sum, running
}

// run lets some threads run, before the look or reading that follows.
func (s *stage) run(share float64) {
	s.now += 0.001
	for _, a := range s.actors {
		if a.busy || a.every > 0 && s.r.Float64() < share/float64(a.every) {
			a.stat.Run += time.Duration(1 + s.r.IntN(100_000))
			if a.ran == 0 {
				a.ran = s.now
			}
			if !a.busy {
				a.stat.Count++
			}
		}
	}
	if s.foreign && s.r.Float64() < share/3 {
		s.exited += time.Duration(1 + s.r.IntN(1000))
	}
}

func (s *stage) read(n int64) {
	a := &s.p.asleep
	if !a.reads {
		return
	}
	cpu, running := s.clock()
	switch {
	case !a.few(s.p.threads):
		a.plain(n, cpu)
	case !a.sums:
		a.reading(n, cpu, running)
	default:
		a.cpu, a.before, a.after = cpu, running, running
		if s.r.IntN(100) < s.torn {
			a.after++
		}
		a.end(n)
	}
}

// look is the engine's.
func (s *stage) look(a *actor, n int64) {
	s.looks++
	p := &s.p.asleep
	if a.blocked && a.stat.Count == a.count && !a.busy {
		a.seenAt, a.ran = n, 0
		a.next = n + 1 + min((n-a.since)/finest, maxGap-1)
		return
	}
	if a.blocked {
		sure := p.sureOf(&a.thread)
		if float64(sure) > a.ran && sure > a.seenAt {
			s.t.Fatalf("tick %d: a thread that was looked at in tick %d and ran at %.3f is said not to have until %d, %+v", n, a.seenAt, a.ran, sure, *p)
		}
		s.unsure += max(0, n-1-max(sure, a.seenAt))
		s.latest = max(s.latest, n-int64(a.ran))
		p.stirred = n
		a.wakes()
	}
	if a.ran = 0; !a.busy {
		a.sleeps(n, a.stat)
	}
}

// tick is the engine's choose, with threads that run in between.
func (s *stage) tick(n int64) {
	s.now = float64(n) - 0.5
	s.run(0.9)
	s.now = float64(n)
	a := &s.p.asleep
	a.begin(n, s.p.threads)
	s.read(n)
	s.run(0.02)
	for _, t := range s.actors {
		if !t.blocked || n >= t.next && !a.waits(&t.thread, n) {
			s.look(t, n)
		}
	}
	s.run(0.02)
	a.again(n, s.p.threads)
	s.read(n)
	s.run(0.02)
	for _, t := range s.actors {
		if a.moved && t.blocked && t.seenAt < n && n >= t.next {
			s.look(t, n)
		}
	}
}

func newStage(t *testing.T, seed uint64, every ...int) *stage {
	s := &stage{t: t, r: rand.New(rand.NewPCG(seed, 1))}
	s.p.asleep = asleep{stood: -1, stirred: -finest - 1}
	for i, e := range every {
		a := &actor{every: e, busy: e < 0}
		a.every = max(e, 0)
		a.proc, a.tid = &s.p, i
		a.stat = procfs.Schedstat{Run: time.Duration(1000 + s.r.IntN(1000)), Count: 1}
		s.actors = append(s.actors, a)
	}
	s.p.threads = len(s.actors)
	return s
}

// TestAsleep: no thread is said not to have run that has, and each that has run is
// found out soon, whatever runs beside it.
func TestAsleep(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		every := make([]int, 1+r.IntN(60))
		for i := range every {
			every[i] = []int{0, 0, 0, 1, 3, 30, 300, 3000, -1}[r.IntN(9)]
			if i > 3 && r.IntN(3) > 0 {
				every[i] = 0
			}
		}
		s := newStage(t, seed, every...)
		s.foreign = seed%5 == 4
		s.torn = []int{0, 0, 10, 100}[seed%4]
		for n := int64(0); n < 2000; n++ {
			s.tick(n)
			if r.IntN(100) == 0 { // one begins to run, or ends it
				a := s.actors[r.IntN(len(s.actors))]
				if a.busy = !a.busy; a.busy {
					a.stat.Count++
				}
			}
			if r.IntN(200) == 0 { // one exits, another is born
				i := r.IntN(len(s.actors))
				s.actors[i].wakes()
				s.p.asleep.forget()
				s.exited += s.actors[i].stat.Run + 7
				b := &actor{every: r.IntN(50), stat: procfs.Schedstat{Count: 1}}
				b.proc = &s.p
				s.actors[i] = b
			}
		}
		if s.latest > oddTicks+2*maxGap {
			t.Errorf("seed %d: a thread that had run was found out %d ticks later", seed, s.latest)
		}
	}
}

// TestAsleepBeside: threads that never run cost nothing beside some that do, once
// they were looked at.
func TestAsleepBeside(t *testing.T) {
	for _, tt := range []struct {
		name  string
		every []int
		most  int // looks at sleepers in 1000 ticks, in which each is looked at once anyhow
	}{
		{"nothing", nil, 100},
		{"a thread that has exited", nil, 100},
		{"a busy thread", []int{-1}, 100},
		{"a busy thread and one that has exited", []int{-1}, 100},
		{"a thread that wakes at each tick", []int{1}, 3000}, // a few times right after its look
		{"both", []int{-1, 1}, 3000},
		{"both and one that wakes now and then", []int{-1, 1, 60}, 3000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newStage(t, 1, append(make([]int, 100), tt.every...)...)
			looks := 0
			for n := int64(0); n < 2000; n++ {
				switch {
				case n == 500 && strings.HasSuffix(tt.name, "exited"):
					s.exited += time.Millisecond // unseen by the engine
				case n == 1000:
					looks = 0
				}
				s.looks = 0
				s.tick(n)
				looks += s.looks
			}
			looks -= 1000 * len(tt.every) // those are looked at
			if looks > tt.most {
				t.Errorf("%d looks at 100 threads that never ran, want at most %d", looks, tt.most)
			}
			fmt.Fprintln(t.Output(), looks, "looks;", s.unsure, "ticks unsure")
		})
	}
}

// TestAsleepTorn: where no reading tells anything, threads are looked at as before.
func TestAsleepTorn(t *testing.T) {
	s := newStage(t, 1, append(make([]int, 100), -1)...)
	for n := int64(0); n < 1000; n++ {
		if n == 500 {
			s.torn = 100
		}
		if n == 600 {
			s.now, s.actors[7].every = 600, 1
			s.run(1)
			s.actors[7].every = 0
		}
		s.tick(n)
	}
	if s.latest == 0 || s.latest > 2*maxGap {
		t.Errorf("a thread that had run was found out %d ticks later, want 1 to %d", s.latest, 2*maxGap)
	}
}

// TestFewFiles: a thread of which no file can be opened for want of descriptors is not taken for one that
// has exited.
func TestFewFiles(t *testing.T) {
	tasks, err := unix.Open("/proc/self/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(tasks)
	th := &thread{tid: os.Getpid(), proc: &process{tasks: tasks}, schedFD: -1, callFD: -1}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: lim.Max}); err != nil {
		t.Fatal(err)
	}
	_, err = th.schedstat(make([]byte, 512))
	if back := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); back != nil {
		t.Fatal(back)
	}
	if err != unix.EMFILE {
		t.Errorf("%v, want %v", err, unix.EMFILE)
	}
	th.tid = 1 << 30
	if _, err = th.schedstat(make([]byte, 512)); err != unix.ESRCH {
		t.Errorf("of no thread: %v, want %v", err, unix.ESRCH)
	}
}
