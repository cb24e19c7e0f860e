//go:build unix

package procfs

import (
	"io/fs"
	"strconv"
	"sync/atomic"
	"syscall"
)

// Kept bounds how many files of threads stay open between reads.
type Kept struct {
	fs   FS
	room atomic.Int64
}

// Keep makes one for at most so many files, and no more than half of what this process may open.
func (f FS) Keep(most int) *Kept {
	k := &Kept{fs: f}
	var lim syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim) == nil && uint64(lim.Cur)/2 < uint64(most) {
		most = int(lim.Cur / 2)
	}
	k.room.Store(int64(most))
	return k
}

// TaskFiles reads those files of one thread that are read more than once. To read one that is open costs one call instead of
// three. What is open stays that thread's: if it has been reaped the number may be given anew, and a read fails with ESRCH
// (proc_single_show, fs/proc/base.c). It belongs to one goroutine at a time.
type TaskFiles struct {
	kept     *Kept
	pid, tid int
	fds      [2]int // of taskFiles, plus one; 0: not open
}

var taskFiles = [...]string{"schedstat", "syscall"}

// Task makes that of a thread. It opens nothing.
func (k *Kept) Task(pid, tid int) TaskFiles { return TaskFiles{kept: k, pid: pid, tid: tid} }

// Schedstat is [FS.Schedstat].
func (t *TaskFiles) Schedstat() (Schedstat, error) {
	var buf [taskFileBytes]byte
	b, err := t.read(0, buf[:])
	if err != nil {
		return Schedstat{}, err
	}
	return ParseSchedstat(b)
}

// Syscall is [FS.Syscall].
func (t *TaskFiles) Syscall() (Syscall, error) {
	var buf [taskFileBytes]byte
	b, err := t.read(1, buf[:])
	if err != nil {
		return Syscall{}, err
	}
	return ParseSyscall(b)
}

// taskFileBytes holds both files whole: nine numbers of 64 bits, with spaces.
const taskFileBytes = 256

// read gives the file as it is now: a read from offset 0 makes it anew (seq_read_iter, fs/seq_file.c).
func (t *TaskFiles) read(which int, buf []byte) ([]byte, error) {
	fd := t.fds[which] - 1
	if fd < 0 {
		path := t.kept.fs.taskPath(t.pid, t.tid, taskFiles[which])
		var err error
		if fd, err = again(func() (int, error) { return syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0) }); err != nil {
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
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
		return nil, &fs.PathError{Op: "read", Path: t.kept.fs.taskPath(t.pid, t.tid, taskFiles[which]), Err: err}
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

// taskPath is the path of a file of a thread.
func (f FS) taskPath(pid, tid int, name string) string {
	return f.root() + "/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid) + "/" + name
}

// TaskLook is what was read of a thread at one time.
type TaskLook struct {
	Name  string
	State byte
	Sched Schedstat // read before the call
	Call  Syscall
	Files *TaskFiles
}
