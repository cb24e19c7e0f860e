package ptrace

import (
	"cmp"
	"errors"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// ErrStuck is the error of a read that has been given up: the page that it waits
// for is another program's to bring (userfaultfd(2), FUSE, a network file
// system), or a disk's, which does not.
var ErrStuck = errors.New("the memory does not come (its page belongs to a server or disk that does not answer)")

// sleepAtMost is how long a read may sleep. Those from a disk take milliseconds.
const sleepAtMost = 500 * time.Millisecond

// maxStuck bounds the reads that hang at the same time. Each holds a thread,
// which no signal but SIGKILL gets free.
const maxStuck = 8

// Patient makes reads that can be given up, of a process's memory or of files. It remembers
// where that was and does not try again while the read hangs. The zero value is
// ready; any number of goroutines may use it.
type Patient struct {
	Most int // reads that may hang before no others are made; 0: a bound that suits memory

	mu    sync.Mutex
	stuck map[uint64]bool // by address of the read
}

// reader carries one read. It belongs to the goroutine that reads until that has
// sent its result.
type reader struct {
	buf   []byte
	tid   atomic.Int64 // thread that reads
	done  chan result
	timer *time.Timer
}

type result struct {
	n   int
	err error
}

var readers = sync.Pool{New: func() any {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return &reader{done: make(chan result, 1), timer: t}
}}

// Do calls read with a buffer of len(buf) bytes for the read at addr and copies
// what it got to buf. When that takes too long, the error is ErrStuck; once done is closed, what sleeps
// for a twentieth of a second takes too long. done may be nil.
func (p *Patient) Do(done <-chan struct{}, addr uint64, buf []byte, read func(buf []byte) (int, error)) (int, error) {
	if p.isStuck(addr) {
		return 0, ErrStuck
	}
	r := readers.Get().(*reader)
	if cap(r.buf) < len(buf) {
		r.buf = make([]byte, len(buf))
	}
	r.buf = r.buf[:len(buf)]
	r.tid.Store(0)
	go r.run(read)
	hung := hang{}
	for wait := sleepAtMost; ; wait = sleepAtMost / 10 {
		r.timer.Reset(wait)
		select {
		case got := <-r.done:
			r.timer.Stop()
			copy(buf, r.buf[:max(got.n, 0)])
			readers.Put(r)
			return got.n, got.err
		case <-done:
			done = nil
		case <-r.timer.C:
		}
		if hung.still(int(r.tid.Load())) {
			break
		}
	}
	p.setStuck(addr, true)
	go func() {
		<-r.done
		p.setStuck(addr, false)
	}()
	return 0, ErrStuck
}

func (r *reader) run(read func([]byte) (int, error)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	r.tid.Store(int64(unix.Gettid()))
	n, err := read(r.buf)
	r.done <- result{n, err}
}

// hang tells a thread that sleeps in the kernel from one that waits for a CPU.
type hang struct {
	seen  bool
	count uint64
}

// still reports whether thread tid of this process sleeps in its read, whatever for,
// and has not run since it was found there at the call before.
func (h *hang) still(tid int) bool {
	if tid == 0 {
		return false // it has not begun
	}
	task := procfs.FS{}.Task(os.Getpid(), tid)
	st, err := task.Stat()
	s, serr := task.Schedstat()
	if err != nil || serr != nil || st.State != 'D' && !reads(tid) {
		h.seen = false
		return false
	}
	same := h.seen && s.Count == h.count
	h.seen, h.count = true, s.Count
	return same
}

// sleeps are the calls that Do is made for, and that can sleep like that.
var sleeps = [...]int64{unix.SYS_PROCESS_VM_READV, unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_PREAD64}

// reads tells whether a thread of this process is blocked in its read, or in opening a file. FUSE has it
// sleep like one that could be interrupted (request_wait_answer, fs/fuse/dev.c).
func reads(tid int) bool {
	call, err := (procfs.FS{}).Task(os.Getpid(), tid).Syscall()
	return err == nil && !call.Running && slices.Contains(sleeps[:], call.NR)
}

func (p *Patient) isStuck(addr uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stuck[addr] || len(p.stuck) >= cmp.Or(p.Most, maxStuck)
}

// Stuck tells whether a read hangs.
func (p *Patient) Stuck() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.stuck) > 0
}

func (p *Patient) setStuck(addr uint64, stuck bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !stuck {
		delete(p.stuck, addr)
		return
	}
	if p.stuck == nil {
		p.stuck = map[uint64]bool{}
	}
	p.stuck[addr] = true
}

// Wary reads the memory of one process as [Patient] does, and nothing more once a page has not come: each further read could take as
// long. The zero value is ready; any number of goroutines may use it.
type Wary struct {
	patient Patient
	stuck   atomic.Bool
}

// Stuck tells whether a page has not come.
func (w *Wary) Stuck() bool { return w.stuck.Load() }

// Do is that of [Patient]. Once a page has not come the error is ErrStuck.
func (w *Wary) Do(addr uint64, buf []byte, read func(buf []byte) (int, error)) (int, error) {
	if w.stuck.Load() {
		return 0, ErrStuck
	}
	n, err := w.patient.Do(nil, addr, buf, read)
	if err == ErrStuck {
		w.stuck.Store(true)
	}
	return n, err
}

// ReadMemory is the function [ReadMemory], done so.
func (w *Wary) ReadMemory(tid int, addr uint64, buf []byte) (int, error) {
	return w.Do(addr, buf, func(b []byte) (int, error) { return ReadMemory(tid, addr, b) })
}

// ReadAtHand is the function [ReadAtHand] for one piece, with patience.
func (p *Patient) ReadAtHand(pages procfs.Pagemap, tid int, addr uint64, buf []byte) (int, error) {
	return p.Do(nil, addr, buf, piece(pages, tid, addr))
}

// ReadAtHand is that of [Patient].
func (w *Wary) ReadAtHand(pages procfs.Pagemap, tid int, addr uint64, buf []byte) (int, error) {
	return w.Do(addr, buf, piece(pages, tid, addr))
}

func piece(pages procfs.Pagemap, tid int, addr uint64) func(b []byte) (int, error) {
	return func(b []byte) (int, error) {
		return ReadAtHand(pages, tid, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}, b)
	}
}

// ReadMemory is the function [ReadMemory] with patience.
func (p *Patient) ReadMemory(tid int, addr uint64, buf []byte) (int, error) {
	return p.Do(nil, addr, buf, func(b []byte) (int, error) { return ReadMemory(tid, addr, b) })
}
