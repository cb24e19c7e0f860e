package main

import (
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// TestNiceOfRun: while a run lasts all threads of sfsample but its clocks have a nice value that is better by 10, or the best, where that is
// allowed, its command keeps the one that it was started with, and so does sfsample with --nice.
func TestNiceOfRun(t *testing.T) {
	// The 18th field of stat is the priority, of real-time threads below 0, and the 19th the nice value (proc_pid_stat(5)).
	for _, need := range []string{"awk", "cut", "nice", "sh", "sleep", "sort"} {
		if _, err := exec.LookPath(need); err != nil {
			t.Skipf("no %s on this machine", need)
		}
	}
	const show = `sleep 0.1; cut -d' ' -f19 /proc/self/stat; cat /proc/$PPID/task/*/stat | awk '$18 >= 0 {print $19}' | sort -u`
	own := niceOf(os.Getpid())
	allowed := unix.Setpriority(unix.PRIO_PROCESS, os.Getpid(), own-better) == nil
	if err := unix.Setpriority(unix.PRIO_PROCESS, os.Getpid(), own); err != nil {
		t.Fatal(err)
	}
	starts := []int{own}
	if allowed {
		starts = append(starts, -15)
	}
	for _, start := range starts {
		for _, by := range []int{0, 3} {
			for _, flag := range []string{"-q", "--nice"} {
				cmd := tool(flag, "-o", "/dev/null", "--", "nice", "-n", strconv.Itoa(by), "sh", "-c", show)
				o := beginAt(t, start, cmd).end(t)
				o.want(t, exitDone)
				want := start
				if allowed && flag != "--nice" {
					want = max(-20, start-10)
				}
				lines := strings.Fields(o.stdout)
				if len(lines) != 2 || lines[0] != strconv.Itoa(min(19, start+by)) || lines[1] != strconv.Itoa(want) {
					t.Errorf("from %d, %s: the command and the threads of sfsample have nice values %q, want %d and %d", start, flag, lines, min(19, start+by), want)
				}
			}
		}
	}
}

// beginAt begins a run with a nice value.
func beginAt(t *testing.T, nice int, cmd *exec.Cmd) *running {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), niceOf(unix.Gettid()))
	if err := unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), nice); err != nil {
		t.Fatal(err)
	}
	return begin(t, cmd)
}

// TestNiceOfWriting: a run and a dump have the nice value that they began with when no thread is held any more. Both write to a
// pipe that is full.
func TestNiceOfWriting(t *testing.T) {
	own := niceOf(os.Getpid())
	if err := unix.Setpriority(unix.PRIO_PROCESS, os.Getpid(), own-better); err != nil {
		t.Skipf("no better nice value is allowed: %v", err)
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, os.Getpid(), own); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(os.Getpid())
	for _, args := range [][]string{{"-q", "-d", "200ms", "--threads", "all", "-p", pid}, {"dump", "-p", pid}} {
		var pipe [2]int
		if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
		out, in := os.NewFile(uintptr(pipe[0]), "pipe"), os.NewFile(uintptr(pipe[1]), "pipe")
		size, err := unix.FcntlInt(in.Fd(), unix.F_GETPIPE_SZ, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		cmd := tool(args...)
		cmd.Stdout = in
		r := begin(t, cmd)
		in.Close()
		fs := procfs.FS{}
		writes := func() bool {
			ids, _ := fs.TaskIDs(cmd.Process.Pid)
			return slices.ContainsFunc(ids, func(tid int) bool {
				c, err := fs.Task(cmd.Process.Pid, tid).Syscall()
				return err == nil && !c.Running && c.NR == unix.SYS_WRITE && c.Args[0] == 1
			})
		}
		eventually(t, "the result is written", writes)
		ids, err := fs.TaskIDs(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.IndexFunc(ids, func(tid int) bool { return niceOf(tid) != own }); i >= 0 {
			t.Errorf("%q: a thread has nice value %d while the result is written, want %d", args, niceOf(ids[i]), own)
		}
		if _, err := io.Copy(io.Discard, out); err != nil {
			t.Error(err)
		}
		out.Close()
		r.end(t).want(t, exitDone)
	}
}

// TestGoAhead: it is taken back, and a process that is started meanwhile does not have it.
func TestGoAhead(t *testing.T) {
	own := niceOf(os.Getpid())
	new(config).goAhead()
	if niceOf(os.Getpid()) == own {
		t.Skip("no better nice value is allowed")
	}
	if got := niceOf(os.Getpid()); got != own-better {
		t.Errorf("nice value %d, want %d", got, own-better)
	}
	restore := fallBack()
	if got := niceOf(unix.Gettid()); got != own {
		t.Errorf("nice value %d where a process is started, want %d", got, own)
	}
	tid := unix.Gettid()
	restore()
	if got := niceOf(tid); got != own-better {
		t.Errorf("nice value %d after that, want %d", got, own-better)
	}
	if goBack(); niceOf(os.Getpid()) != own || niceOf(tid) != own {
		t.Errorf("nice values %d and %d, want %d again", niceOf(os.Getpid()), niceOf(tid), own)
	}
}
