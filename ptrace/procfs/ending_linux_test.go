package procfs

import (
	"os"
	"os/exec"
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
	if maps, err := (FS{}).Maps(pid); !Gone(err) {
		t.Errorf("a zombie has %d mappings (%v), want that it is gone", len(maps), err)
	}
	if maps, err := (FS{}).Maps(os.Getpid()); err != nil || len(maps) == 0 {
		t.Errorf("this process has %d mappings (%v)", len(maps), err)
	}
}
