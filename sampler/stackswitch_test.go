package sampler

import (
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
)

// TestSplitStack dumps a stopped program whose stack lies in several segments: all
// calls that it has made, and its root.
func TestSplitStack(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("gcc splits stacks on x86-64")
	}
	path := testprog.Compile(t, []string{"-O1", "-fsplit-stack"}, "split.c")
	cmd := exec.Command(path, "40")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	var info unix.Siginfo
	if err := unix.Waitid(unix.P_PID, cmd.Process.Pid, &info, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
		t.Fatal(err)
	}
	threads, err := Dump(Options{PIDs: []int{cmd.Process.Pid}}, testPipeline(new(byFunction)))
	if err != nil || len(threads) != 1 || threads[0].Stack == nil {
		t.Fatalf("%d threads, %v", len(threads), err)
	}
	st := threads[0].Stack
	var names []string
	calls, segments := 0, 0
	for _, f := range st.Frames {
		names = append(names, f.Func)
		switch f.Func {
		case "down":
			calls++
		case "__morestack":
			segments++
		}
	}
	if st.End != "" || calls != 41 || segments < 2 || names[len(names)-1] != "_start" {
		t.Errorf("end %q, %d calls of down, want 41, in %d segments: %s", st.End, calls, segments, strings.Join(names, " "))
	}
}
