package clocks

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/regs"
	"sfsample/sampler/taking"
)

// conduct is what a thread of the script does when it is asked to stop.
type conduct int

const (
	stops      conduct = iota // at once, on its CPU
	wanders                   // it was brought to another CPU before the request, and stops after 50 us, of which it runs 40
	strays                    // it is brought there after the request: it meets that first
	lingers                   // after 50 us in the kernel, on its CPU
	queues                    // not before the tick after the next
	ends                      // it exits instead
	signalled                 // it stops for SIGUSR1
	grouped                   // its process is stopped
	vanishes                  // it is not there any more
	refuses                   // it may not be traced
	replaced                  // it stops, and its memory is another's
	unwaitable                // somebody else takes its end
	execs                     // it is in execve(2), for which a seize waits, and has the id of its process then
	execsLater                // it is so when it was asked to stop
	dies                      // it stops, and is killed then
	hangs                     // its process is in execve(2), for which a seize waits until an alarm
	conducts
)

func (c conduct) String() string {
	return [...]string{"stops", "wanders", "strays", "lingers", "queues", "ends", "signalled", "grouped", "vanishes", "refuses", "replaced", "unwaitable", "execs", "execsLater", "dies", "hangs"}[c]
}

// actor is a thread of the script.
type actor struct {
	tid       int
	does      conduct
	state     byte
	cpu       int
	run, wait int64
	exec      int64 // when it was last on a CPU
	former    int   // the thread's id before its exec
	tracee    bool
	asked     bool
	stopped   bool
	patience  int        // looks for its stop until that comes
	killed    bool       // while it was stopped
	deaf      unix.Errno // of an interrupt
	woken     int        // how often it was put on a CPU since
}

// script is a kernel of which each test says what it does. It holds every call against what may be
// called then.
type script struct {
	taking.Kernel // what is not scripted is not to be called
	t             *testing.T
	now           int64
	actors        map[int]*actor
	owners        map[int]*actor // by the thread at the beginning, whose files are open
	seizes        int
	hung          int         // seizes in vain
	releases      map[int]int // signals passed on, by thread
	released      int
	binds         unix.Errno
	policy        []string           // what was done about CPUs and priority
	asleep        func()             // the clock has slept
	delay         func() int64       // how much later than asked for it wakes, nil: 5 us
	parks         func(val uint32)   // a clock without work sleeps
	idle          func()             // a clock waits for any thread, and none reports
	yields        func()             // a clock lets others have its CPU
	opens         func(fd int)       // a file is read
	files         map[int]string     // contents of open files, in the place of what actors say
	broken        map[int]unix.Errno // files that cannot be read
	reads         map[int]int        // how often files were read
	sleeps        []int64            // until when
	log           []string           // requests
	calls         int
	memory        int             // copies of a stack
	peeks         bool            // of threads that are awake, too
	fill          byte            // what is in it
	registers     []byte          // nil: all are 0
	written       []byte          // registers that were written last
	status        string          // of every thread, empty: it cannot be read
	messages      map[int]uint64  // of events, by thread
	atExit        map[int]bool    // threads at the stop of their exit
	step          int64           // nanoseconds that a call takes
	spent         map[int32]int64 // what CPU clocks tell; -1: nothing
	asked         []int32         // which were asked
	passes        int64           // nanoseconds from a look at the clock to the next
	alarm         int64           // when it rings
	nudges        int64           // nanoseconds after which a seize is nudged, 0: never
	late          int64           // how much later the clock has got its CPU
	letGo         func()          // a thread goes on
	realTime      int             // a thread of that priority
}

// newScript is a script of these threads. It begins one second after the machine.
func newScript(t *testing.T, actors ...*actor) *script {
	s := &script{t: t, now: 1e9, step: us, actors: map[int]*actor{}, owners: map[int]*actor{}, releases: map[int]int{}, files: map[int]string{},
		broken: map[int]unix.Errno{}, reads: map[int]int{}, messages: map[int]uint64{}, atExit: map[int]bool{}}
	for _, a := range actors {
		s.actors[a.tid] = a
		s.owners[a.tid] = a
	}
	return s
}

// pidOf is the process of a thread.
func pidOf(tid int) int { return 100 + tid }

// exec gives a thread the id of its process.
func (s *script) exec(a *actor) {
	delete(s.actors, a.tid)
	a.former, a.tid = a.tid, pidOf(a.tid)
	s.actors[a.tid] = a
}

// execd tells whether an id is that of a thread before its exec.
func (s *script) execd(tid int) bool { return s.actors[tid] == nil && s.owners[tid] != nil }

// call counts: a clock that never ends its work would have the test wait for ever.
func (s *script) call() {
	if s.calls++; s.calls > 100_000 {
		panic("the clock never comes to an end")
	}
}

func (s *script) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...))
}

const us = int64(1000)

// Numbers of open files: of thread 7, schedstat is 71 and so on.
const (
	fileSched = 1
	fileStat  = 2
	fileDebug = 3
	filePages = 4
	fileCall  = 5
	fileStack = 6
	fileOwn   = 9 // the clock's own sched
)

func (s *script) actor(tid int, may bool, what string) *actor {
	a := s.actors[tid]
	if a == nil || !may && !a.tracee {
		s.t.Fatalf("%s: thread %d, which is not a tracee", what, tid)
	}
	s.now += s.step
	return a
}

func (s *script) Now() int64 {
	s.call()
	s.now += s.passes
	return s.now
}

func (s *script) Bind(cpus []uint64, slack bool) unix.Errno {
	s.policy = append(s.policy, fmt.Sprintf("%b, slack %t", cpus[:min(len(cpus), 1)], slack))
	return s.binds
}

func (s *script) Sleep(until int64) {
	s.call()
	s.sleeps = append(s.sleeps, until)
	late := 5 * us
	if s.delay != nil {
		late = s.delay()
	}
	s.now = max(s.now, until+late) // earlier: a signal
	if s.asleep != nil {
		s.asleep()
	}
}

func (s *script) Seize(tid int) unix.Errno {
	if s.execd(tid) {
		return unix.ESRCH
	}
	a := s.actor(tid, true, "seize")
	switch {
	case a.tracee:
		s.t.Fatalf("thread %d is seized twice", tid)
	case a.does == vanishes:
		return unix.ESRCH
	case a.does == refuses:
		return unix.EPERM
	case a.does == hangs:
		s.hung++
		switch {
		case s.nudges > 0:
			s.now += s.nudges
		case s.alarm == 0:
			s.t.Fatal("a seize waits for ever")
		default:
			s.now = max(s.now, s.alarm)
		}
		return unix.EINTR
	}
	s.seizes++
	a.tracee = true
	if a.does == execs {
		s.exec(a)
	}
	return 0
}

func (s *script) SeizeIn(int, int, int) ([]ptrace.Status, error) { return nil, nil }

func (s *script) Alarm(_ *ptrace.Alarm, at int64) { s.alarm = at }

func (s *script) Interrupt(tid int) unix.Errno {
	s.note("interrupt %d", tid)
	a := s.actors[tid]
	if a == nil {
		return unix.ESRCH
	}
	a = s.actor(tid, false, "interrupt")
	a.asked = true
	if a.does == wanders {
		a.cpu++
	}
	return a.deaf
}

func (s *script) Wait(tid int, block bool) (int, uint32, unix.Errno) {
	s.call()
	if tid == 0 {
		return s.waitAny(block)
	}
	if s.execd(tid) {
		return 0, 0, unix.ECHILD
	}
	a := s.actor(tid, false, "wait")
	if !a.asked {
		s.t.Fatalf("thread %d is waited for, and was not asked to stop", tid)
	}
	interrupt := uint32(unix.PTRACE_EVENT_STOP<<16 | int(unix.SIGTRAP)<<8 | 0x7f)
	a.stopped = true
	switch a.does {
	case wanders:
		s.now, a.run = s.now+50*us, a.run+40*us
	case strays:
		s.now, a.run, a.cpu = s.now+50*us, a.run+40*us, a.cpu+1
	case lingers:
		s.now, a.run = s.now+50*us, a.run+50*us
	case queues:
		if a.patience--; a.patience >= 0 {
			a.stopped = false
			if block {
				return 0, 0, unix.EINTR
			}
			return 0, 0, 0
		}
	case execsLater:
		if a.former == 0 {
			s.exec(a)
			a.stopped = false
			if block {
				return 0, 0, unix.EINTR
			}
			return 0, 0, 0
		}
	case dies:
		if a.killed {
			a.tracee, a.stopped, a.asked, a.killed = false, false, false, false
			s.released++
			return tid, uint32(unix.SIGKILL), 0
		}
		a.killed = true
	case ends:
		a.tracee, a.stopped = false, false
		s.released++
		return tid, 7 << 8, 0
	case signalled:
		return tid, uint32(unix.SIGUSR1)<<8 | 0x7f, 0
	case grouped:
		return tid, uint32(unix.PTRACE_EVENT_STOP<<16 | int(unix.SIGSTOP)<<8 | 0x7f), 0
	case unwaitable:
		a.tracee, a.stopped = false, false
		s.released++
		return 0, 0, unix.ECHILD
	default:
		s.now, a.run = s.now+us, a.run+us
	}
	return tid, interrupt, 0
}

// waitAny is Wait for any thread: the first that was asked and stops. If none does, the script goes on.
func (s *script) waitAny(block bool) (int, uint32, unix.Errno) {
	tracees := false
	for _, tid := range slices.Sorted(maps.Keys(s.actors)) {
		a := s.actors[tid]
		tracees = tracees || a.tracee && a.does != unwaitable
		if !a.tracee || !a.asked || a.stopped && !a.killed || a.does == unwaitable {
			continue
		}
		if who, status, _ := s.Wait(tid, false); who != 0 {
			return who, status, 0
		}
	}
	if !tracees {
		for _, a := range s.actors {
			if a.tracee {
				a.tracee = false
				s.released++
			}
		}
		return 0, 0, unix.ECHILD
	}
	if !block {
		return 0, 0, 0
	}
	if s.alarm > s.now { // a signal comes before it, if there is time
		s.now = min(s.alarm, s.now+500*us)
		s.sleeps = append(s.sleeps, s.now)
		return 0, 0, unix.EINTR
	}
	s.idle()
	return 0, 0, unix.EINTR
}

func (s *script) Reap(tid int) bool {
	s.note("reap %d", tid)
	return true
}

func (s *script) Cont(tid, sig int) unix.Errno {
	s.note("cont %d %d", tid, sig)
	a := s.held(tid, "cont")
	a.stopped, a.asked = false, false
	return 0
}

func (s *script) Listen(tid int) unix.Errno {
	s.note("listen %d", tid)
	s.held(tid, "listen")
	return 0
}

func (s *script) Spent(clock int32) int64 {
	s.asked = append(s.asked, clock)
	return s.spent[clock]
}

func (s *script) Signal(tid int) { s.note("signal %d", tid) }

func (s *script) Yield() {
	s.call()
	s.now += s.step
	s.yields()
}

func (s *script) Park(addr *uint32, val uint32, until int64) {
	s.call()
	s.parks(val)
}

func (s *script) ReadFile(path, buf []byte) (int, unix.Errno) {
	var tid int
	if n, _ := fmt.Sscanf(string(path), "/proc/%d/schedstat\x00", &tid); n == 1 && strings.HasSuffix(string(path), "/schedstat\x00") {
		a := s.actor(tid, false, "read times")
		return copy(buf, fmt.Sprintf("%d %d %d\n", a.run, a.wait, 12+a.woken)), 0
	}
	if s.status == "" || !strings.HasSuffix(string(path), "/status\x00") {
		return 0, unix.ENOENT
	}
	return copy(buf, s.status), 0
}

func (s *script) held(tid int, what string) *actor {
	a := s.actor(tid, false, what)
	if !a.stopped {
		s.t.Fatalf("%s: thread %d is not stopped", what, tid)
	}
	return a
}

func (s *script) Regs(tid, note int, buf []byte) (int, unix.Errno) {
	if s.held(tid, "read registers").killed {
		return 0, unix.ESRCH
	}
	clear(buf)
	if s.registers != nil {
		return copy(buf, s.registers), 0
	}
	return len(buf), 0
}

func (s *script) SetRegs(tid, note int, buf []byte) unix.Errno {
	s.note("write %d", tid)
	s.held(tid, "write registers")
	s.written = bytes.Clone(buf)
	return 0
}

func (s *script) Memory(tid int, addr uint64, buf []byte) int {
	if a := s.owners[tid]; a == nil || a.state != 'S' && !s.peeks { // it may be read asleep
		s.held(tid, "read memory")
	}
	s.memory++
	for i := range buf {
		buf[i] = s.fill
	}
	return len(buf)
}

func (s *script) Detach(tid, sig int) unix.Errno {
	s.note("detach %d %d", tid, sig)
	a := s.held(tid, "detach")
	if a.killed {
		return unix.ESRCH
	}
	a.tracee, a.stopped, a.asked = false, false, false
	s.releases[tid] = sig
	if s.released++; s.letGo != nil {
		s.letGo()
	}
	return 0
}

// Gather has each area as Memory has it.
func (s *script) Gather(tid int, from []unix.RemoteIovec, b []byte) (n int) {
	for _, f := range from {
		got := s.Memory(tid, uint64(f.Base), b[n:n+f.Len])
		if n += got; got < f.Len {
			break
		}
	}
	return n
}

func (s *script) Pread(fd int, buf []byte, off int64) (int, unix.Errno) {
	s.call()
	if _, ok := s.files[0]; fd == 0 && !ok {
		s.t.Error("file 0 is read, which stands for none")
	}
	if _, ok := s.files[fd]; !ok && s.actors[fd/10] == nil { // of the real /proc, which a keeper opens at exits
		return 0, unix.EBADF
	}
	if off%8 != 0 || off != 0 && fd%10 != filePages { // a pagemap has words of 8 bytes
		s.t.Errorf("file %d is read from %d on", fd, off)
	}
	if s.reads[fd]++; s.opens != nil {
		s.opens(fd)
	}
	if s.broken[fd] != 0 {
		return 0, s.broken[fd]
	}
	if text, ok := s.files[fd]; ok {
		return copy(buf, text), 0
	}
	a := s.owners[fd/10]
	s.now += s.step
	if a.former != 0 && fd%10 == filePages {
		return 0, 0
	} else if a.former != 0 {
		return 0, unix.ESRCH
	}
	switch fd % 10 {
	case fileSched:
		return copy(buf, fmt.Sprintf("%d %d %d\n", a.run, a.wait, 12+a.woken)), 0
	case fileStat:
		text := fmt.Sprintf("%d (a) b c) %c", a.tid, a.state)
		for field := 4; field < statCPU; field++ {
			text += " 0"
		}
		return copy(buf, text+fmt.Sprintf(" %d 0\n", a.cpu)), 0
	case fileDebug:
		return copy(buf, fmt.Sprintf("x (1, #threads: 1)\nse.exec_start   :   %d.%06d\nse.vruntime : 5.000001\n", a.exec/1e6, a.exec%1e6)), 0
	case filePages:
		if a.does == replaced && !a.stopped && !a.tracee {
			return 0, 0
		}
		for i := range buf {
			buf[i] = 0xff
		}
		return len(buf), 0
	}
	s.t.Fatalf("file %d is read", fd)
	return 0, 0
}

// desk is a clock of CPU 0, with a board that these threads are on, in order, and their script.
func desk(t *testing.T, samples int, actors ...*actor) (*script, *Board, *Clock) {
	s := newScript(t, actors...)
	b := NewBoard(64, s.now, 10_000*us)
	for _, a := range actors {
		f := 10 * a.tid
		b.Put(Thread{TID: a.tid, PID: pidOf(a.tid), Sched: f + fileSched, Stat: f + fileStat, Debug: f + fileDebug, Call: f + fileCall, Pages: f + filePages, Run: a.run})
	}
	c := &Clock{who: 1, board: b, k: s, ticks: answered{last: -1}, search: search{last: -1}, tracees: tracees{samples: make([]Sample, samples), seizes: seizer{alarm: new(ptrace.Alarm)}}}
	for i := range c.tracees.samples {
		c.tracees.samples[i].Buffer.Regs.Room, c.tracees.samples[i].Buffer.Stack.Room = make([]byte, regs.PrstatusMaxBytes), make([]byte, 4096)
	}
	b.clocks[1].Store(c)
	return s, b, c
}

// play lets one clock, of CPU 0, tick over these threads: before each tick the first runs, unless turn
// says otherwise. After so many ticks the clock ends. It returns all samples.
func play(t *testing.T, ticks int64, samples int, actors []*actor, turn func(tick int64), set ...func(*Board)) (*script, *Board, []*Sample) {
	t.Helper()
	s, b, c := desk(t, samples, actors...)
	for _, f := range set {
		f(b)
	}
	var list []*Sample
	at := int64(-1)
	s.asleep = func() {
		for _, m := range c.drain(nil) {
			list = append(list, m.copy())
			m.Done()
		}
		n := (s.now - b.Start) / b.Interval
		if n == at {
			return
		}
		at = n
		if n >= ticks {
			c.life.quit.Store(true)
			return
		}
		if turn != nil {
			turn(n)
		} else {
			actors[0].runs(s, b.Interval)
		}
	}
	c.Outside()
	for _, a := range actors {
		if a.stopped {
			t.Errorf("thread %d is left stopped", a.tid)
		}
		if a.tracee && a.does != queues {
			t.Errorf("thread %d is left a tracee", a.tid)
		}
	}
	if s.seizes != s.released+c.tracees.out {
		t.Errorf("%d threads seized, %d released, %d on their way", s.seizes, s.released, c.tracees.out)
	}
	return s, b, list
}

// runs lets a thread run for so long until now.
func (a *actor) runs(s *script, span int64) {
	if a.tracee { // it waits for a CPU
		return
	}
	a.run += span
	a.exec = s.now
	a.state = 'R'
}

func TestConducts(t *testing.T) {
	const ticks = 10
	for c := range conducts {
		t.Run(c.String(), func(t *testing.T) {
			a := &actor{tid: 7, does: c, state: 'R'}
			a.patience = 5
			s, b, list := play(t, ticks, 4, []*actor{a}, nil)
			met := b.Met(0, ticks-1)
			sampled, lost, refused := met == Sampled, met == Lost, met == Refused
			switch c {
			case vanishes:
				if len(list) != 0 || sampled || refused {
					t.Errorf("%d samples, sampled %t, refused %t of a thread that is gone", len(list), sampled, refused)
				}
				return
			case refuses:
				if len(list) != 0 || sampled || !refused {
					t.Errorf("%d samples, sampled %t, refused %t of a thread that may not be traced", len(list), sampled, refused)
				}
				return
			case hangs:
				if len(list) != 0 || met != Execs || s.seizes != 0 || s.hung != 1 {
					t.Errorf("%d samples, met %d, %d seizes, %d in vain of a thread that cannot be seized; the process is to be left alone for 0.1 s", len(list), met, s.seizes, s.hung)
				}
				return
			case queues:
				if len(list) == 0 || list[0].At.Stopped-list[0].At.Asked < 1000*us || list[0].Gone || list[0].Tick != 0 {
					t.Errorf("%d samples, the first %v: want a late stop", len(list), list[:min(1, len(list))])
				}
				return
			}
			want := ticks
			if c == execs || c == execsLater {
				want = 1 // then there is no such thread
			}
			if c == wanders || c == strays {
				want = 1 // it is on another CPU then, of which this clock knows nothing
			}
			if len(list) != want || lost {
				t.Fatalf("%d samples, want %d; lost %t", len(list), want, lost)
			}
			for i, m := range list {
				wantMoved, wantGone := c == wanders, c == ends || c == replaced || c == unwaitable || c == execs || c == execsLater || c == dies
				if m.Moved != wantMoved || m.Gone != wantGone || m.TID != 7 || m.Tick != int64(i) {
					t.Errorf("sample %d: thread %d, tick %d, moved %t, gone %t; want moved %t, gone %t", i, m.TID, m.Tick, m.Moved, m.Gone, wantMoved, wantGone)
				}
				if !m.Gone && (m.At.Wake > m.At.Asked || m.At.Asked > m.At.Stopped || m.At.Stopped > m.At.Released || m.At.Released > m.At.End || m.Asked.Run > m.Stopped.Run) {
					t.Errorf("sample %d: %v", i, m)
				}
			}
			if want := map[conduct]int{signalled: int(unix.SIGUSR1)}[c]; s.releases[7] != want {
				t.Errorf("let go with signal %d, want %d", s.releases[7], want)
			}
		})
	}
}

// String is for messages of tests.
func (m *Sample) String() string {
	return fmt.Sprintf("slot %d, thread %d of %d, tick %d: woke %d, asked %d (run %d, wait %d), stopped %d, released %d (run %d, wait %d), end %d; status %#x, gone %t, moved %t, waits %t",
		m.Slot, m.TID, m.PID, m.Tick, m.At.Wake, m.At.Asked, m.Asked.Run, m.Asked.Wait, m.At.Stopped, m.At.Released, m.Stopped.Run, m.Stopped.Wait, m.At.End, m.Status, m.Gone, m.Moved, m.proof.waits)
}

// copy is what a sample tells.
func (m *Sample) copy() *Sample {
	return &Sample{Slot: m.Slot, TID: m.TID, PID: m.PID, Tick: m.Tick, At: m.At, Asked: m.Asked, Stopped: m.Stopped, Status: m.Status, Gone: m.Gone, Moved: m.Moved, Peeked: Peeked{Asleep: m.Peeked.Asleep}, tracee: tracee{pages: m.tracee.pages}}
}

// TestPreempted: of three threads that have run since the last tick on the clock's CPU, the one is sampled that
// was on it last; and of those that sleep, that are elsewhere or that were not put on the board, none.
func TestPreempted(t *testing.T) {
	const ticks = 30
	var actors []*actor
	for tid := range 6 {
		actors = append(actors, &actor{tid: 7 + tid, state: 'S'})
	}
	actors[4].cpu = 1
	var want []int
	s := new(script)
	_, _, list := play(t, ticks, 4, actors, func(tick int64) {
		s.now = (tick+2)*10_000*us + 1e9
		order := []int{int(tick) % 3, int(tick+1) % 3, int(tick*7+2) % 3}
		for i, j := range order {
			actors[j].run += 2_000 * us
			actors[j].exec, actors[j].state = s.now-int64(10-i)*us, 'R'
		}
		actors[3].run += 100 * us // it ran, and sleeps now
		actors[4].run, actors[4].exec, actors[4].state = actors[4].run+5_000*us, s.now, 'R'
		want = append(want, 7+order[2])
	})
	if len(list) != ticks {
		t.Fatalf("%d samples of %d ticks", len(list), ticks)
	}
	for i, m := range list {
		if m.TID != want[i] {
			t.Errorf("tick %d: thread %d, want %d, which was on the CPU last", i, m.TID, want[i])
		}
	}
}

// TestMetOnce: a thread that another clock has sampled at a tick is not asked again, nor is one that
// another uses just now; without room nobody is stopped.
func TestMetOnce(t *testing.T) {
	const ticks = 8
	a := &actor{tid: 7, state: 'R'}
	var board *Board
	s, b, list := play(t, ticks, 4, []*actor{a}, func(tick int64) {
		a.runs(&script{now: tick}, 10_000*us)
		switch slot := &board.slots[0]; tick {
		case 2:
			slot.sampled.Store(2)
		case 3:
			slot.take(coordinator)
		case 4:
			slot.give()
		}
	}, func(b *Board) { board = b })
	if got := ticksOf(list); fmt.Sprint(got) != "[0 1 4 5 6 7]" || s.seizes != 6 {
		t.Errorf("sampled at ticks %v by %d stops, want all but 2 and 3", got, s.seizes)
	}
	if b.Met(0, ticks-1) != Sampled {
		t.Error("the board does not know of the last sample")
	}
	s, b, list = play(t, ticks, 0, []*actor{{tid: 7, state: 'R'}}, nil)
	if met := b.Met(0, ticks-1); len(list) != 0 || s.seizes != 0 || met != Lost {
		t.Errorf("%d samples, %d stops without room, met %d", len(list), s.seizes, met)
	}
}

func ticksOf(list []*Sample) (ticks []int64) {
	for _, m := range list {
		ticks = append(ticks, m.Tick)
	}
	return ticks
}

// TestStride: only every third tick is answered, and none at rest.
func TestStride(t *testing.T) {
	a := &actor{tid: 7, state: 'R'}
	_, _, list := play(t, 12, 4, []*actor{a}, func(int64) { a.runs(new(script), 10_000*us) }, func(b *Board) { b.SetStride(3 * Every) })
	if got := ticksOf(list); fmt.Sprint(got) != "[0 3 6 9]" {
		t.Errorf("sampled at %v with a stride of 3", got)
	}
	s, _, list := play(t, 12, 4, []*actor{a}, func(int64) { a.runs(new(script), 10_000*us) }, func(b *Board) { b.Rest() })
	if len(list) != 0 || s.seizes != 0 {
		t.Errorf("%d samples, %d stops at rest", len(list), s.seizes)
	}
}

// TestAnyConduct plays at random: whatever threads do, each that is seized is let go once, what is done to it is
// done while it is stopped, and the clock meets only threads that were on its CPU.
func TestAnyConduct(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		var actors []*actor
		for i := range 1 + r.IntN(5) {
			actors = append(actors, &actor{tid: 7 + i, does: conduct(r.IntN(int(conducts))), state: 'S', patience: r.IntN(9), cpu: r.IntN(3) / 2})
		}
		on := map[int64]map[int]bool{} // who ran on the clock's CPU, by tick
		_, _, list := play(t, 20, 1+r.IntN(4), actors, func(tick int64) {
			on[tick] = map[int]bool{}
			for _, a := range actors {
				switch {
				case a.tracee:
				case r.IntN(2) == 0:
					a.state = 'S'
				default:
					a.cpu = r.IntN(2)
					a.runs(&script{now: tick*10_000*us + int64(r.IntN(1000))}, 1_000*us)
					on[tick][a.tid] = a.cpu == 0
				}
				if r.IntN(4) == 0 {
					a.does = conduct(r.IntN(int(conducts)))
				}
			}
		})
		for _, m := range list {
			if !on[m.Tick][m.TID] && !m.Gone {
				t.Fatalf("seed %d: thread %d is met at tick %d, where it was not on the CPU", seed, m.TID, m.Tick)
			}
		}
	}
}

// slowMemory is a script in which reading memory takes until somebody says so.
type slowMemory struct {
	*script
	reading, goOn chan struct{}
}

func (s *slowMemory) Memory(tid int, addr uint64, buf []byte) int {
	s.reading <- struct{}{}
	<-s.goOn
	return s.script.Memory(tid, addr, buf)
}

// TestHeld: anybody sees which thread a clock holds, for as long as it does.
func TestHeld(t *testing.T) {
	a := &actor{tid: 7, state: 'R'}
	reading, goOn, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	boards := make(chan *Board, 1)
	go func() {
		defer close(done)
		play(t, 2, 4, []*actor{a}, nil, func(b *Board) {
			b.clocks[1].Load().k = &slowMemory{b.clocks[1].Load().k.(*script), reading, goOn}
			boards <- b
		})
	}()
	b := <-boards
	for range 2 {
		<-reading
		if list := b.Held(nil); len(list) != 1 || list[0].TID != 7 || list[0].Since <= b.Start {
			t.Errorf("%v are held, want thread 7", list)
		}
		goOn <- struct{}{}
	}
	<-done
	if list := b.Held(nil); len(list) != 0 {
		t.Errorf("%v are held at the end", list)
	}
}

// Report, AtExit and Message make it a [Tracer].
func (s *script) Report() (ptrace.Status, bool, error) { panic("not scripted") }

func (s *script) AtExit(tid int) bool { return s.atExit[tid] }

func (s *script) Message(st ptrace.Status) (uint64, error) {
	if m, ok := s.messages[st.TID]; ok {
		return m, nil
	}
	return 0, unix.ESRCH
}

// TestBecame: of a thread whose process has become another program since the board knows it the pagemap is opened while it stands still, the coordinator is called, and
// with the sample the file is given back.
func TestBecame(t *testing.T) {
	for _, opens := range []bool{true, false} {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fd, err := unix.Dup(int(f.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		a := &actor{tid: 7, state: 'R'}
		var bell uint32
		defer func(was func([]byte) (int, unix.Errno)) { openFile = was }(openFile)
		openFile = func(path []byte) (int, unix.Errno) {
			if string(path) != "/proc/7/pagemap\x00" || !a.stopped {
				t.Errorf("%q is opened, while the thread is stopped %t", path, a.stopped)
			}
			if opens {
				return fd, 0
			}
			return 0, unix.EACCES
		}
		_, b, list := play(t, 1, 4, []*actor{a}, nil, func(b *Board) {
			b.clocks[1].Load().k.(*script).files = map[int]string{10*7 + filePages: ""}
			bell = b.Bell()
		})
		if len(list) != 1 {
			t.Fatalf("%d samples, want 1", len(list))
		}
		_, err = unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		m, called := list[0], b.Bell() != bell
		switch want := map[bool]int{true: fd, false: -1}[opens]; {
		case m.Became() != want || m.Gone == opens || called != opens:
			t.Errorf("a program that can be opened %t: became %d, want %d, gone %t, the coordinator called %t", opens, m.Became(), want, m.Gone, called)
		case opens && err != unix.EBADF:
			t.Errorf("the pagemap is still open when the sample has been given back")
		}
		if !opens {
			unix.Close(fd)
		}
	}
}
