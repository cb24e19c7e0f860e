package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestExecHangs: an exec that waits for its file holds up neither Ctrl-C nor, for longer than any exec takes, -d.
func TestExecHangs(t *testing.T) {
	for _, tt := range []struct {
		name   string
		flags  []string
		status int
		want   string
	}{
		{"-d", []string{"-d", "0.1"}, exitFailed, " is still in its exec (its file, "},
		{"-d, exit stacks", []string{"-d", "0.1", "--exit-stacks"}, exitFailed, " is still in its exec (its file, "},
		{"Ctrl-C", nil, exitDone, " lives on as process "},
		{"Ctrl-C, exit stacks", []string{"--exit-stacks"}, exitDone, " lives on as process "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			name := filepath.Join(t.TempDir(), "program")
			check(os.WriteFile(name, []byte("none"), 0o700))
			f, err := os.Open(name)
			check(err)
			defer f.Close() // with which the lease ends
			// Who opens it waits until the lease is given back, or the kernel takes it after /proc/sys/fs/lease-break-time (fcntl(2)): 45 s.
			eventually(t, "nobody else has it open", func() bool { // as a child of the other tests may until its exec
				_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
				return err != unix.EAGAIN
			})
			if err != nil {
				t.Skip("no lease to be had: ", err)
			}
			cmd := tool(append(append([]string{"-o", os.DevNull}, tt.flags...), "--", name)...)
			told := intoFile(t, cmd)
			r := begin(t, cmd)
			eventually(t, "the exec waits", func() bool {
				lease, err := unix.FcntlInt(f.Fd(), unix.F_GETLEASE, 0)
				check(err)
				return lease != unix.F_WRLCK
			})
			begun := time.Now()
			if tt.status == exitDone {
				r.interrupt(t)
			}
			r.end(t)
			if took := time.Since(begun); took > 30*time.Second {
				t.Errorf("it ends after %v", took)
			}
			if status := cmd.ProcessState.ExitCode(); status != tt.status || !strings.Contains(told(), tt.want) {
				t.Errorf("status %d, want %d, and %q:\n%s", status, tt.status, tt.want, told())
			}
		})
	}
}
