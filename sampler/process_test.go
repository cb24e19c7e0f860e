package sampler

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// TestFewFiles: a thread of which no file can be opened for want of descriptors is not taken for one that
// has exited.
func TestFewFiles(t *testing.T) {
	tasks, err := unix.Open("/proc/self/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(tasks)
	th := &thread{tid: os.Getpid(), proc: &process{tasks: tasks}, schedFD: -1, callFD: -1}
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: lim.Max}); err != nil {
		t.Fatal(err)
	}
	_, err = th.schedstat(make([]byte, 512))
	if back := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); back != nil {
		t.Fatal(back)
	}
	if err != unix.EMFILE {
		t.Errorf("%v, want %v", err, unix.EMFILE)
	}
	th.tid = 1 << 30
	if _, err = th.schedstat(make([]byte, 512)); err != unix.ESRCH {
		t.Errorf("of no thread: %v, want %v", err, unix.ESRCH)
	}
}

// TestSwitches: where the kernel keeps no run counts, what stands in for them tells who has not run.
func TestSwitches(t *testing.T) {
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	tasks, err := unix.Open(fmt.Sprintf("/proc/%d/task", cmd.Process.Pid), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(tasks)
	th := &thread{tid: cmd.Process.Pid, proc: &process{tasks: tasks, uncounted: true}, schedFD: -1, callFD: -1, statFD: -1}
	echo := func() {
		if _, err := io.WriteString(in, "x\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, 2)); err != nil {
			t.Fatal(err)
		}
	}
	waits := func() (s procfs.Schedstat) { // until it is back in read
		for {
			call, err := th.syscall(make([]byte, 512))
			if err != nil {
				t.Fatal(err)
			}
			if !call.Running {
				if s, err = th.schedstat(make([]byte, 512)); err != nil {
					t.Fatal(err)
				}
				return s
			}
			runtime.Gosched()
		}
	}
	echo()
	before := waits()
	for range 3 {
		if s, err := th.schedstat(make([]byte, 512)); err != nil || s.Count != before.Count || s.Count == 0 {
			t.Errorf("it has not run: %+v, then %+v, %v", before, s, err)
		}
	}
	echo()
	if after := waits(); after.Count == before.Count {
		t.Errorf("it has run: %+v as before", after)
	}
}

// TestCountsRuns: the probe of the run counts; zeros and no file are none.
func TestCountsRuns(t *testing.T) {
	if !countsRuns(procfs.FS{}) {
		t.Skip("this kernel keeps no run counts")
	}
	root := t.TempDir()
	if countsRuns(procfs.FS{Root: root}) {
		t.Error("counts without a file")
	}
	dir := fmt.Sprintf("%s/%d/task/%d", root, os.Getpid(), os.Getpid())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/schedstat", []byte("0 0 0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if countsRuns(procfs.FS{Root: root}) {
		t.Error("0 is a count")
	}
}
