package sampler

import (
	"log/slog"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// isOpen tells whether a descriptor of ours is.
func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

// ownThread is a thread of ours, with no file open.
func ownThread(t *testing.T) *thread {
	t.Helper()
	tasks, err := unix.Open("/proc/self/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(tasks) })
	return newThread(&process{pid: os.Getpid(), mem: memory{tasks: tasks}}, os.Getpid())
}

// TestFiles: what threads have open is what the budget says, after every call; what is given away is open until it is closed.
func TestFiles(t *testing.T) {
	f := files{most: 1 << 16}
	a, b := ownThread(t), ownThread(t)
	check := func(step string, want int) {
		t.Helper()
		n := 0
		for _, th := range []*thread{a, b} {
			for _, fd := range th.fds() {
				if *fd >= 0 && !isOpen(*fd) {
					t.Errorf("%s: a closed file counts as open", step)
				}
			}
			n += th.files()
		}
		if f.open != n || n != want {
			t.Errorf("%s: %d files are open, the budget says %d; want %d", step, n, f.open, want)
		}
	}
	f.keep(a)
	f.keep(b)
	check("kept", 4)
	sched := a.open.sched
	if !f.list(a) || a.open.sched != sched {
		t.Error("it cannot be listed with the files that it has")
	}
	listed := 7
	for _, fd := range []int{a.open.debug, a.open.stack} { // there may be none, see CONFIG_SCHED_DEBUG and CONFIG_STACKTRACE
		if fd < 0 {
			listed--
		}
	}
	check("one listed", listed)
	stat := a.open.stat
	f.unlist(a)
	if check("unlisted", 4); isOpen(stat) {
		t.Error("what only clocks read is left open")
	}
	f.list(b)
	fds := [5]int{}
	for i, fd := range b.fds() {
		fds[i] = *fd
	}
	closeFiles := f.part(b)
	if check("parted", 2); !isOpen(fds[0]) || !isOpen(fds[1]) || !isOpen(fds[2]) {
		t.Error("what was given away is closed")
	}
	if closeFiles(); isOpen(fds[0]) || isOpen(fds[1]) || isOpen(fds[2]) {
		t.Error("what was given away is left open")
	}
	f.close(a)
	check("closed", 0)
}

// TestFilesBudget: so many files are left to others as each use says; that a thread cannot be sampled for want of files is said.
func TestFilesBudget(t *testing.T) {
	var said strings.Builder
	f := files{most: spareFiles + 3, said: &notices{log: slog.New(slog.NewTextHandler(&said, nil))}}
	a, b := ownThread(t), ownThread(t)
	f.keep(a)
	if f.keep(b); a.files() != 2 || b.files() != 0 {
		t.Errorf("%d and %d files are open for good with room for 3 of them", a.files(), b.files())
	}
	f.most = leastSpare + 6
	if f.list(b) || b.files() != 0 || !f.lacks || !strings.Contains(said.String(), "ulimit") {
		t.Errorf("with room for 4 files of 5: %d are open, said %q", b.files(), &said)
	}
	f.most++
	if !f.list(b) {
		t.Error("not listed with room for 5")
	}
	f.lacks = false
	if f.failed(unix.ESRCH) || f.lacks || !f.failed(unix.ENFILE) || !f.lacks {
		t.Error("a thread that is gone counts as want of files, or that not")
	}
	f.close(a)
	f.close(b)
}
