package procfs

import (
	"bytes"
	"strconv"
	"strings"
)

// Task reads the files of one thread. Each is read by its path: the thread may have ended, and another have its id.
type Task struct {
	fs       FS
	pid, tid int
}

// Task is that of thread tid of a process.
func (f FS) Task(pid, tid int) Task { return Task{f, pid, tid} }

func (t Task) path(name string) string {
	return t.fs.root() + "/" + strconv.Itoa(t.pid) + "/task/" + strconv.Itoa(t.tid) + "/" + name
}

// Stat reads the stat file of the thread: times are its own.
func (t Task) Stat() (Stat, error) { return record(t.path("stat"), ParseStat) }

// Schedstat reads the run and wait times of the thread.
func (t Task) Schedstat() (Schedstat, error) { return record(t.path("schedstat"), ParseSchedstat) }

// Syscall reads where the thread entered the kernel.
func (t Task) Syscall() (Syscall, error) { return record(t.path("syscall"), ParseSyscall) }

// Stack reads the kernel's stack of the thread (root only).
func (t Task) Stack() ([]KernelFrame, error) { return record(t.path("stack"), ParseStack) }

// Wchan reads the name of the kernel function that the thread is blocked in;
// empty if it is not blocked or the kernel does not tell.
func (t Task) Wchan() (string, error) {
	b, err := readFile(t.path("wchan"), maxSmall)
	if err != nil {
		return "", err
	}
	if s := string(bytes.TrimSpace(b)); s != "0" {
		return s, nil
	}
	return "", nil
}

// Comm reads the name of the thread.
func (t Task) Comm() (string, error) {
	b, err := readFile(t.path("comm"), maxSmall)
	if err != nil {
		return "", err
	}
	return strings.TrimSuffix(string(b), "\n"), nil
}
