//go:build unix

package procfs

import (
	"io/fs"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Kept keeps the task folders of processes open, and bounds how many files of their threads stay open between reads.
type Kept struct {
	fs   FS
	room atomic.Int64
	// waits: this kernel has told of a thread what it waits in.
	waits atomic.Bool
	// pauses is how often it was waited for a thread in a queue.
	pauses atomic.Int32

	mu      sync.Mutex
	folders map[int]*taskFolder // by process
	most    int                 // how many of these may be open
}

// taskFolder is an open task folder: a file in it is found by half of the steps that its path from the root takes, and each step
// asks whether the thread still lives (pid_revalidate, fs/proc/base.c).
type taskFolder struct{ fd int } // -1: not open

// maxFolders bounds how many of these are open, beside an eighth of what this process may open.
const maxFolders = 256

// Close closes the folders. What is read afterwards is found by its path.
func (k *Kept) Close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, f := range k.folders {
		if f.fd >= 0 {
			syscall.Close(f.fd)
			f.fd = -1
		}
	}
	clear(k.folders)
}

// folder opens that of a process, once.
func (k *Kept) folder(pid int) *taskFolder {
	k.mu.Lock()
	defer k.mu.Unlock()
	f := k.folders[pid]
	if f == nil {
		f = &taskFolder{-1}
		if len(k.folders) < k.most {
			path := k.fs.Path(pid, "task")
			if fd, err := again(func() (int, error) {
				return syscall.Open(path, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
			}); err == nil {
				f.fd = fd
			}
			k.folders[pid] = f
		}
	}
	return f
}

// Keep makes one for at most so many files, and no more than half of what this process may open.
func (f FS) Keep(most int) *Kept {
	k := &Kept{fs: f, folders: map[int]*taskFolder{}, most: maxFolders}
	var lim syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim) == nil {
		most = int(min(uint64(most), uint64(lim.Cur)/2))
		k.most = int(min(maxFolders, uint64(lim.Cur)/8))
	}
	k.room.Store(int64(most))
	return k
}

// TaskFiles reads those files of one thread that are read more than once. To read one that is open costs one call instead of
// three. What is open stays that thread's: if it has been reaped the number may be given anew, and a read fails with ESRCH
// (proc_single_show, fs/proc/base.c). It belongs to one goroutine at a time.
type TaskFiles struct {
	kept   *Kept
	folder *taskFolder
	task   Task
	fds    [2]int // of taskFiles, plus one; 0: not open
}

var taskFiles = [...]string{"schedstat", "syscall"}

// Task makes that of a thread. It opens none of its files.
func (k *Kept) Task(pid, tid int) TaskFiles {
	return TaskFiles{kept: k, folder: k.folder(pid), task: k.fs.Task(pid, tid)}
}

// Stat is [Task.Stat].
func (t *TaskFiles) Stat() (Stat, error) {
	var buf [firstRead]byte
	b, err := t.once("stat", buf[:0])
	if err != nil {
		return Stat{}, err
	}
	return ParseStat(b)
}

// RawStack reads the text of [Task.Stack] for [ParseStack], into buf if it has room for it: that of most threads is one of few.
func (t *TaskFiles) RawStack(buf []byte) ([]byte, error) { return t.once("stack", buf[:0]) }

// once reads a file that is not kept.
func (t *TaskFiles) once(name string, buf []byte) ([]byte, error) {
	fd, err := t.open(name)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	return readAll(fd, name, buf, maxSmall)
}

func (t *TaskFiles) open(name string) (int, error) {
	at, path := t.folder.fd, strconv.Itoa(t.task.tid)+"/"+name
	if at < 0 {
		at, path = unix.AT_FDCWD, t.task.path(name)
	}
	fd, err := again(func() (int, error) { return unix.Openat(at, path, unix.O_RDONLY|unix.O_CLOEXEC, 0) })
	if err != nil {
		return fd, &fs.PathError{Op: "open", Path: t.task.path(name), Err: err}
	}
	return fd, nil
}

// Schedstat is [Task.Schedstat].
func (t *TaskFiles) Schedstat() (Schedstat, error) {
	var buf [taskFileBytes]byte
	b, err := t.read(0, buf[:])
	if err != nil {
		return Schedstat{}, err
	}
	return ParseSchedstat(b)
}

// Syscall is [Task.Syscall], but does not ask of a thread that runs while its state says that it sleeps: the kernel's answer comes only
// when it does so, and nothing ends the wait (wait_task_inactive, kernel/sched/core.c). One that reaps a child may go on like that for
// many seconds (do_wait and release_task, kernel/exit.c; shrink_dcache_parent, fs/dcache.c).
func (t *TaskFiles) Syscall() (Syscall, error) {
	if t.busy() {
		return Syscall{Running: true, NR: -1}, nil
	}
	var buf [taskFileBytes]byte
	b, err := t.read(1, buf[:])
	if err != nil {
		return Syscall{}, err
	}
	return ParseSyscall(b)
}

const (
	// A thread is looked at busyLooks times, with busyPause between, until it is known to run. One that has just fallen asleep may stand in
	// the queue for as long as others run (DELAY_DEQUEUE, kernel/sched/features.h).
	busyLooks = 10
	busyPause = 2 * time.Millisecond
	// mostPauses bounds the pauses for all threads: half a second.
	mostPauses = 250
)

// busy tells whether the thread runs while its state says that it sleeps: where it waits is not told as long as it is in a CPU's queue
// (get_wchan, kernel/sched/core.c, since 5.16), and the time goes up for which it has run.
func (t *TaskFiles) busy() bool {
	var first Schedstat
	for i := range busyLooks {
		if !t.queued() {
			return false
		}
		s, err := t.Schedstat()
		if err != nil {
			return false
		}
		if i == 0 {
			first = s
		} else if s != first {
			return true
		}
		if t.kept.pauses.Add(1) > mostPauses {
			return false
		}
		time.Sleep(busyPause)
	}
	return false
}

// queued tells whether the thread is in a CPU's queue and its state says that it sleeps. false also where that is not known.
func (t *TaskFiles) queued() bool {
	var buf [taskFileBytes]byte
	b, err := t.once("wchan", buf[:0])
	if err != nil {
		return false
	}
	if string(b) != "0" {
		t.kept.waits.Store(true)
		return false
	}
	if !t.kept.waits.Load() {
		return false
	}
	st, err := t.Stat()
	return err == nil && (st.State == 'S' || st.State == 'D')
}

// taskFileBytes holds both files whole: nine numbers of 64 bits, with spaces.
const taskFileBytes = 256

// read gives the file as it is now: a read from offset 0 makes it anew (seq_read_iter, fs/seq_file.c).
func (t *TaskFiles) read(which int, buf []byte) ([]byte, error) {
	fd := t.fds[which] - 1
	if fd < 0 {
		var err error
		if fd, err = t.open(taskFiles[which]); err != nil {
			return nil, err
		}
		if t.kept.room.Add(-1) >= 0 {
			t.fds[which] = fd + 1
		} else {
			t.kept.room.Add(1)
			defer syscall.Close(fd)
		}
	}
	n, err := again(func() (int, error) { return syscall.Pread(fd, buf, 0) })
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: t.task.path(taskFiles[which]), Err: err}
	}
	return buf[:n], nil
}

// Close closes what is open. The next read opens it anew.
func (t *TaskFiles) Close() {
	for i, fd := range t.fds {
		if fd > 0 {
			syscall.Close(fd - 1)
			t.fds[i] = 0
			t.kept.room.Add(1)
		}
	}
}

// TaskLook is what was read of a thread at one time.
type TaskLook struct {
	Name  string
	State byte
	Sched Schedstat // read before the call
	Call  Syscall
	Files *TaskFiles
}

// perReader is how many threads are worth a goroutine that reads their files.
const perReader = 32

// Split calls f for parts of 0 to n-1 at once, on as many CPUs as there are: what is read of /proc takes its time in the kernel.
// Each part has a number of its own, below [Parts].
func Split(n int, f func(part, from, to int)) {
	parts := min(Parts(), n/perReader+1)
	var wg sync.WaitGroup
	for i := range parts - 1 {
		wg.Go(func() { f(i, i*n/parts, (i+1)*n/parts) })
	}
	f(parts-1, (parts-1)*n/parts, n)
	wg.Wait()
}

// Parts is how many parts Split makes at most.
func Parts() int { return runtime.GOMAXPROCS(0) }
