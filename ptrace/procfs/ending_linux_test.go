package procfs

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// TestMapsOfEnding reads the mappings of a process that has ended, and that nobody
// has waited for: what there is to read is not all that it had.
func TestMapsOfEnding(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	pid := cmd.Process.Pid
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	if maps, err := (FS{}).Maps(pid, nil); !Gone(err) {
		t.Errorf("a zombie has %d mappings (%v), want that it is gone", len(maps), err)
	}
	if maps, err := (FS{}).Maps(os.Getpid(), nil); err != nil || len(maps) == 0 {
		t.Errorf("this process has %d mappings (%v)", len(maps), err)
	}
}

// TestLiveTaskAgain: a thread ends while the others are looked at, and another, that was not listed, goes on: as at an exec.
func TestLiveTaskAgain(t *testing.T) {
	f := folder(t, map[string]string{"1/task/2/x": "", "1/task/3/x": ""}) // thread 3 ends before it is looked at
	if err := unix.Mkfifo(f.Path(1, "task/2/stat"), 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		w, err := os.OpenFile(f.Path(1, "task/2/stat"), os.O_WRONLY, 0) // waits until it is read
		if err == nil {
			for openBelow(t, f.Root) < 2 { // both ends
				runtime.Gosched()
			}
			err = errors.Join(os.Mkdir(f.Path(1, "task/4"), 0o755), os.WriteFile(f.Path(1, "task/4/stat"), []byte(stat("S", 0)), 0o600), os.RemoveAll(f.Path(1, "task/2")), w.Close())
		}
		done <- err
	}()
	tid, err := f.LiveTask(1)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if tid != 4 || err != nil {
		t.Errorf("thread %d, %v; want 4", tid, err)
	}
	if tid, err := folder(t, map[string]string{"1/task/2/x": ""}).LiveTask(1); tid != 0 || !errors.Is(err, fs.ErrNotExist) { // not for ever
		t.Errorf("thread %d, %v, and each is gone when it is looked at", tid, err)
	}
}

// TestRecords: of a file of one record the first read is all, if it has not filled its room; of others each read is a part.
func TestRecords(t *testing.T) {
	for _, tt := range []struct {
		name  string
		parts []string
		read  func(FS) (any, error)
		want  any
	}{
		{"wchan", []string{"do_", "wait"}, func(f FS) (any, error) { return f.Task(1, 2).Wchan() }, "do_"},
		{"wchan", []string{string(bytes.Repeat([]byte{'a'}, firstRead)), "b"}, func(f FS) (any, error) { s, err := f.Task(1, 2).Wchan(); return len(s), err }, firstRead + 1},
		{"children", []string{"3 ", "4 ", "5"}, func(f FS) (any, error) { list, err := f.Task(1, 2).Children(); return len(list), err }, 3},
	} {
		fd := packets(t, tt.parts...)
		f := folder(t, map[string]string{"1/task/2/x": ""})
		if err := os.Symlink("/proc/self/fd/"+strconv.Itoa(fd), f.Path(1, "task/2", tt.name)); err != nil {
			t.Fatal(err)
		}
		if got, err := tt.read(f); got != tt.want || err != nil {
			t.Errorf("%s in %d parts: %v, %v; want %v", tt.name, len(tt.parts), got, err, tt.want)
		}
		unix.Close(fd)
	}
	for name, read := range readers {
		fd := packets(t, cmp.Or(texts[name], "\n"), "more")
		f := folder(t, map[string]string{"1/task/2/x": ""})
		if err := os.Symlink("/proc/self/fd/"+strconv.Itoa(fd), filepath.Join(f.Root, name)); err != nil {
			t.Fatal(err)
		}
		var left [9]byte
		if err := read(f); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if n, err := unix.Read(fd, left[:]); string(left[:max(n, 0)]) != "more" {
			t.Errorf("%s: %q is left, %v", name, left[:max(n, 0)], err)
		}
		unix.Close(fd)
	}
}

// packets is a pipe of which each read gives one part (pipe(2)).
func packets(t *testing.T, parts ...string) int {
	t.Helper()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_DIRECT|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		if _, err := unix.Write(p[1], []byte(part)); err != nil {
			t.Fatal(err)
		}
	}
	unix.Close(p[1])
	return p[0]
}
