package procfs

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// With this variable set the test binary waits until its standard input ends.
const waitsEnv = "SFSAMPLE_PROCFS_WAITS"

func init() {
	if os.Getenv(waitsEnv) != "" {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
}

// TestKept: files that stay open say what those opened anew say, no more stay open than there is room for, and those of a process that
// has been reaped say that it is gone.
func TestKept(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), waitsEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	var f FS
	k := f.Keep(1)
	task := k.Task(pid, pid)
	for i := range 3 {
		before, err := task.Schedstat()
		if err != nil || before.Count == 0 {
			t.Fatalf("%+v, %v", before, err)
		}
		if _, err := task.Syscall(); err != nil && !errors.Is(err, os.ErrPermission) {
			t.Fatal(err)
		}
		if i > 0 && (task.fds[0] == 0 || task.fds[1] != 0 || k.room.Load() != 0) {
			t.Errorf("open are %v, room is left for %d", task.fds, k.room.Load())
		}
	}
	if after, err := f.Schedstat(pid, pid); err != nil {
		t.Error(err)
	} else if now, err := task.Schedstat(); err != nil || now.Count < after.Count {
		t.Errorf("%+v, %v after %+v: an old text", now, err, after)
	}
	_, stackErr := f.RawStack(pid, pid)
	for _, folders := range []int{1, 0} { // with an open folder, and by paths
		k.Close()
		k.most = folders
		task := k.Task(pid, pid)
		if open := task.folder.fd >= 0; open != (folders > 0) {
			t.Errorf("room for %d folders, one is open: %v", folders, open)
		}
		if s, err := task.Stat(); err != nil || s.PID != pid || s.PPID != os.Getpid() {
			t.Errorf("%+v, %v", s, err)
		}
		frames, err := 0, stackErr
		for end := time.Now().Add(time.Minute); err == nil && frames == 0 && time.Now().Before(end); { // while it runs it has none
			var text []byte
			if text, err = task.RawStack(make([]byte, 1)); err == nil {
				list, _ := ParseStack(text)
				frames = len(list)
			}
		}
		if (err == nil) != (stackErr == nil) || err == nil && frames == 0 {
			t.Errorf("%d frames of the kernel, %v; by path %v", frames, err, stackErr)
		}
	}
	in.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if s, err := task.Schedstat(); !Gone(err) || !errors.Is(err, syscall.ESRCH) {
		t.Errorf("of a process that is gone: %+v, %v", s, err)
	}
	if s, err := task.Stat(); !Gone(err) {
		t.Errorf("of a process that is gone: %+v, %v", s, err)
	}
	task.Close()
	if task.fds != [2]int{} || k.room.Load() != 1 {
		t.Errorf("open are %v, room is left for %d", task.fds, k.room.Load())
	}
}

// TestKeep: no more files are kept than are asked for, and no more than half of those that may be open.
func TestKeep(t *testing.T) {
	var lim syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	half := int64(lim.Cur / 2)
	for most, want := range map[int]int64{0: 0, 3: 3, int(half): half, int(half) + 1: half, 2 * int(half): half, 5 * int(half): half} {
		if got := (FS{}).Keep(most).room.Load(); got != want {
			t.Errorf("of at most %d, with %d that may be open, %d are kept, want %d", most, lim.Cur, got, want)
		}
	}
}

// TestSplit: each of n is in one part.
func TestSplit(t *testing.T) {
	for _, n := range []int{0, 1, perReader - 1, perReader, 5*perReader + 3, 1000} {
		seen := make([]int, n)
		Split(n, func(part, from, to int) {
			if part < 0 || part >= Parts() {
				t.Errorf("part %d of %d", part, Parts())
			}
			for i := from; i < to; i++ {
				seen[i]++
			}
		})
		for i, times := range seen {
			if times != 1 {
				t.Errorf("of %d, %d is in %d parts", n, i, times)
			}
		}
	}
}
