package ptrace

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRawReadFile: of a file that is longer than there is room for it is what follows the line of groups, however long that is.
func TestRawReadFile(t *testing.T) {
	const room = 64
	name := filepath.Join(t.TempDir(), "status")
	read := func(text string) (string, unix.Errno) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var buf [room]byte
		n, errno := RawReadFile([]byte(name+"\x00"), buf[:])
		return string(buf[:n]), errno
	}
	const head, groups, tail = "Name:\tx\n", "Groups:\t", "\nThreads:\t1\nSeccomp:\t2\n"
	for n := range 5 * room {
		text := head + groups + strings.Repeat("7", n) + tail
		want := text
		if len(text) >= room {
			want = tail
		}
		if got, errno := read(text); got != want || errno != 0 {
			t.Fatalf("%d bytes of groups: %q, %v; want %q", n, got, errno, want)
		}
	}
	long := head + strings.Repeat("x", 2*room)
	for _, tt := range []struct {
		text, want string
		errno      unix.Errno
	}{
		{"", "", 0},
		{long, long[:room], 0}, // no groups in its beginning
		{head + groups + "7\n" + long, ("\n" + long)[:room], 0},
		{head + groups + strings.Repeat("7", room), "", 0},                      // ends in its groups
		{head + groups + strings.Repeat("7", 2*mostGroupBytes), "", unix.EFBIG}, // more of them than there can be
	} {
		if got, errno := read(tt.text); got != tt.want || errno != tt.errno {
			t.Errorf("%.80q: %q, %v; want %q, %v", tt.text, got, errno, tt.want, tt.errno)
		}
	}
	if _, errno := RawReadFile([]byte(name+".none\x00"), make([]byte, room)); errno != unix.ENOENT {
		t.Errorf("no file: %v", errno)
	}
}

// TestRawReadFileGroups: a process with as many groups as it may have.
func TestRawReadFileGroups(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to set groups")
	}
	if _, err := exec.LookPath("sleep"); err != nil {
		t.Skip("no sleep on this machine")
	}
	const most = 65536 // NGROUPS_MAX (include/uapi/linux/limits.h)
	groups := make([]uint32, most)
	for i := range groups {
		groups[i] = 1<<32 - 2 - uint32(i)
	}
	cmd := exec.Command("sleep", "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Groups: groups}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Kill()
		cmd.Wait()
	}()
	var buf [4 << 10]byte
	n, errno := RawReadFile([]byte("/proc/"+strconv.Itoa(cmd.Process.Pid)+"/status\x00"), buf[:])
	text := string(buf[:n])
	if errno != 0 || n == len(buf) || !strings.Contains(text, "\nSeccomp:\t0\n") || !strings.Contains(text, "\nvoluntary_ctxt_switches:\t") {
		t.Errorf("%d bytes, %v: %q", n, errno, text)
	}
}
