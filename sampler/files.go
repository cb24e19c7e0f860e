package sampler

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// files reads the files that threads have in /proc, and is the budget of open ones: open is how many the threads have by
// its leave, and each that opens some leaves so many to others as it says.
type files struct {
	said  *notices
	open  int       // of all threads
	most  int       // that this process may have; 0: not known yet
	lacks bool      // as Result.FewFiles
	buf   [512]byte // of the read at hand
}

const (
	// spareFiles is how many files are left to all others that open some, by those that make reading
	// threads cheaper.
	spareFiles = 1024
	// leastSpare is how many are left by those that it takes to sample a thread.
	leastSpare = 40
)

// room tells whether there is room for n more files, with so many to spare.
func (f *files) room(n, spare int) bool {
	if f.most == 0 {
		var lim unix.Rlimit
		if unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) == nil {
			f.most = int(min(lim.Cur, 1<<24))
		}
	}
	return f.open+n <= f.most-spare
}

// count calls change, which opens or closes files of t.
func (f *files) count(t *thread, change func()) {
	before := t.files()
	change()
	f.open += t.files() - before
}

// keep opens the thread's files in /proc for good, if there are enough to be
// had: reading it then costs a fifth.
func (f *files) keep(t *thread) {
	f.close(t)
	if f.room(2, spareFiles) {
		f.count(t, t.openFiles)
	}
}

// list opens what clocks read of a thread on the board. false: there is no room.
func (f *files) list(t *thread) bool {
	if !f.room(5, leastSpare) {
		f.few()
		return false
	}
	f.count(t, func() {
		if t.open.sched < 0 {
			t.open.sched, _ = t.openFile("schedstat")
		}
		if t.open.call < 0 {
			t.open.call, _ = t.openFile("syscall")
		}
		t.open.stat, _ = t.openFile("stat")
		t.open.debug, _ = t.openFile("sched")
		if showsStacks() {
			t.open.stack, _ = t.openFile("stack")
		}
	})
	return true
}

// showsStacks tells whether this kernel shows a thread's stack in it, by our own: an empty one is of a thread that runs elsewhere then.
var showsStacks = sync.OnceValue(func() bool {
	b, err := os.ReadFile("/proc/thread-self/stack")
	return err == nil && len(b) > 0
})

// unlist closes what only clocks read.
func (f *files) unlist(t *thread) {
	f.count(t, func() {
		closeFD(&t.open.stat)
		closeFD(&t.open.debug)
		closeFD(&t.open.stack)
	})
}

func (f *files) close(t *thread) {
	f.count(t, func() {
		for _, fd := range t.fds() {
			closeFD(fd)
		}
	})
}

// part gives the thread's files away: they are not of it any more, nor of the budget, until close is called.
func (f *files) part(t *thread) (close func()) {
	var fds []int
	f.count(t, func() {
		for _, fd := range t.fds() {
			fds = append(fds, *fd)
			*fd = -1
		}
	})
	return func() {
		for _, fd := range fds {
			closeFD(&fd)
		}
	}
}

// few says that there are not enough files to be had.
func (f *files) few() {
	f.lacks = true
	f.said.warn("no more files can be opened: some threads are not sampled (it takes six for each; try: ulimit -n 4096)")
}

// failed tells whether an error of reading a thread is our own want of files, and says so then.
func (f *files) failed(err error) bool {
	if err != unix.EMFILE && err != unix.ENFILE {
		return false
	}
	f.few()
	return true
}

func (f *files) schedstat(t *thread) (procfs.Schedstat, error) { return t.schedstat(f.buf[:]) }
func (f *files) syscall(t *thread) (procfs.Syscall, error)     { return t.syscall(f.buf[:]) }
func (f *files) stat(t *thread) (procfs.Stat, error)           { return t.stat(f.buf[:]) }
