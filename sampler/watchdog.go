package sampler

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/clocks"
)

// hung is for how long the coordinator may get nowhere until it counts as hanging: a page that no server
// brings, or a lock of the kernel, can keep it for ever.
const hung = time.Second

// Who holds a stopped thread hangs if it is found blocked by so many looks more, so often, and has not run since the first: for 400 ms. From the
// beginning of the hold to the end of the program it is a second then. Page faults of a busy disk take less, as does a lock
// that a thread has which waits for a CPU; whoever waits for a CPU itself is not blocked.
const (
	hungLooks = 4
	lookOften = 100 * time.Millisecond
	lookRests = 200 * time.Millisecond // how often it is looked whether anybody is held
)

// ErrHeld is the end of a run of which a thread of a target is held that only the end of this program lets go.
var ErrHeld = errors.New("sample: the copy of a stack hangs, as a page of it is not brought (by userfaultfd(2), or by the server of a file), and the thread stands still: the run ends here, which lets it go; what was sampled until then is written (try: --stop never)")

// errHung is the end of a run whose coordinator hangs: there is nothing more to come.
var errHung = errors.New("sample: the target's files in /proc cannot be read for a second, reading them hangs (try: cat /proc/PID/stack, with the target's number); what was sampled until then is written")

// pulse is the coordinator's sign of life, and what it shows of the run, for the watchdog: all that both touch is atomic, so that neither
// waits for the other.
type pulse struct {
	fs   procfs.FS
	said *notices
	stop chan struct{} // closed by the watchdog when the run is to end

	busy      atomic.Int64                 // the coordinator may hang since this CLOCK_MONOTONIC time; 0: it rests
	board     atomic.Pointer[clocks.Board] // nil: not there yet
	status    atomic.Pointer[Progress]     // nil: nothing yet
	published int64                        // when status was set; the coordinator's
}

// works notes that the coordinator goes on with what may hang.
func (p *pulse) works() { p.busy.Store(ptrace.Now()) }

// rests notes that the coordinator waits for nothing of the target.
func (p *pulse) rests() { p.busy.Store(0) }

// ends tells whether the run is to end.
func (p *pulse) ends() bool {
	select {
	case <-p.stop:
		return true
	default:
		return false
	}
}

// publish lets other goroutines see how it goes, ten times a second at the most.
func (p *pulse) publish(now int64, look func() *Progress) {
	if now-p.published >= int64(100*time.Millisecond) {
		p.published = now
		p.status.Store(look())
	}
}

// watch is the watchdog of a run, a goroutine of its own. It holds nothing and reads nothing of the target, so that it cannot hang itself.
// It waits for the engine's end, asks for it when ctx is done or a clock holds a stopped thread and hangs, and reports progress.
// An error is that: ErrHeld, or errHung, if the coordinator hangs, which will not end. The latter is found after hung to one and a
// half times that.
func (p *pulse) watch(ctx context.Context, done <-chan struct{}, progress func(Progress)) error {
	every := lookRests
	tick := time.NewTimer(every)
	defer tick.Stop()
	cancelled := ctx.Done()
	ending := false
	var end error
	var before idleness
	var held suspects
	var earlier []clocks.Hold
	last := ptrace.Now()
	stop := func() {
		if !ending {
			ending = true
			close(p.stop)
			if b := p.board.Load(); b != nil {
				b.Call()
			}
		}
	}
	for {
		select {
		case <-done:
			return end
		case <-cancelled:
			cancelled = nil
			stop()
		case <-tick.C:
			now := ptrace.Now()
			starved := now-last > int64(every)*3/2 // as others are then
			if last = now; starved {
				before = idleness{}
			}
			if since := p.busy.Load(); since != 0 && now-since > int64(hung/2) && !starved {
				found := idleness{since, callsOf(p.fs, os.Getpid())}
				if now-since > int64(hung) && found.goesOn(before) {
					return errHung
				}
				before = found
			}
			every = lookRests
			if b := p.board.Load(); b != nil {
				now := b.Held(nil)
				freeStarved(p.fs, b, earlier, now)
				earlier = now
				for _, h := range held.look(p.fs, now) {
					h.GiveUp()
					end = ErrHeld
					stop()
				}
				if len(held) > 0 {
					every = lookOften
				}
			}
			if s := p.status.Load(); s != nil && progress != nil {
				progress(*s)
			}
			tick.Reset(every)
		}
	}
}

// freeStarved has clocks leave their CPUs that hold a thread since an earlier look and get no time there: threads of a higher priority in real
// time may have them for good.
func freeStarved(fs procfs.FS, b *clocks.Board, earlier, now []clocks.Hold) {
	for _, h := range now {
		if !slices.Contains(earlier, h) {
			continue
		}
		if st, err := fs.Task(os.Getpid(), h.By).Stat(); err == nil && st.State == 'R' {
			b.Free(h.By)
		}
	}
}

// suspects are those who hold a thread, and were blocked at the last look.
type suspects map[clocks.Hold]suspect

type suspect struct {
	count uint64 // how often it has run
	looks int    // since which it has not
}

// look looks at who holds a thread now, and returns those that hang.
func (s *suspects) look(fs procfs.FS, now []clocks.Hold) (hang []clocks.Hold) {
	before := *s
	*s = nil
	for _, h := range now {
		task := fs.Task(os.Getpid(), h.By)
		st, err := task.Stat()
		run, rerr := task.Schedstat()
		if err != nil || rerr != nil || st.State == 'R' {
			continue
		}
		looks := 0
		if was, ok := before[h]; ok && was.count == run.Count {
			looks = was.looks + 1
		}
		if looks == hungLooks {
			hang = append(hang, h)
			continue
		}
		if *s == nil {
			*s = suspects{}
		}
		(*s)[h] = suspect{run.Count, looks}
	}
	return hang
}

// idleness is what threads of ours wait in while the coordinator has given no sign of life since a time.
type idleness struct {
	since int64
	calls map[int]wait
}

// wait is the call that a thread is blocked in, with its run count.
type wait struct {
	call  procfs.Syscall
	count uint64
}

// goesOn tells whether some thread of ours has been in one call of those that read the target since an earlier look, and the
// coordinator gave no sign of life meanwhile. One that only gets no CPU is in no call.
func (x idleness) goesOn(before idleness) bool {
	if x.since != before.since {
		return false
	}
	for tid, c := range x.calls {
		if was, ok := before.calls[tid]; ok && c == was {
			return true
		}
	}
	return false
}

// readingCalls are those with which the coordinator reads a target, of which readingFiles do so by a descriptor of /proc: in others of
// these a thread of ours may wait for something else.
var (
	readingCalls = []int64{unix.SYS_OPENAT, unix.SYS_READLINKAT, unix.SYS_FACCESSAT, unix.SYS_PROCESS_VM_READV, unix.SYS_KCMP, unix.SYS_PTRACE}
	readingFiles = []int64{unix.SYS_PREAD64, unix.SYS_READ, unix.SYS_GETDENTS64, unix.SYS_FSTAT, unix.SYS_CLOSE}
)

// callsOf lists the threads of a process, our own, that are blocked in a call that reads a target.
func callsOf(fs procfs.FS, pid int) map[int]wait {
	calls := map[int]wait{}
	ids, _ := fs.TaskIDs(pid)
	for _, tid := range ids {
		task := fs.Task(pid, tid)
		s, _ := task.Schedstat()
		c, err := task.Syscall()
		if err != nil || c.Running {
			continue
		}
		if slices.Contains(readingCalls, c.NR) || slices.Contains(readingFiles, c.NR) && inProc(c.Args[0]) {
			calls[tid] = wait{c, s.Count}
		}
	}
	return calls
}

// inProc tells whether a descriptor of ours is a file in /proc, or one that is being closed.
func inProc(fd uint64) bool {
	name, err := os.Readlink("/proc/self/fd/" + strconv.FormatUint(fd, 10))
	return err != nil || strings.HasPrefix(name, "/proc/")
}
