package rootfs

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWatch: a file system that is mounted later is known as soon as it is there, and stays known.
func TestWatch(t *testing.T) {
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its mounts with it
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Skipf("no mount namespace to be had: %v", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Skipf("no mount namespace to be had: %v", err)
	}
	server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no FUSE to be had: %v", err)
	}
	w := NewWatch(func() string { return fmt.Sprintf("/proc/self/task/%d", unix.Gettid()) })
	defer w.Close()
	if w.Device(0, 1) {
		t.Error("the kernel's own memory files are remote")
	}
	dir := t.TempDir()
	if err := unix.Mount("silent", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server)); err != nil {
		t.Skipf("no FUSE to be had: %v", err)
	}
	text, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var minor uint32
	for line := range strings.Lines(string(text)) {
		if m, ok := parseMount(line); ok && m.point == dir {
			fmt.Sscanf(m.device, "0:%d", &minor)
		}
	}
	if minor == 0 || !w.Device(0, minor) {
		t.Errorf("0:%d is not remote", minor)
	}
	unix.Close(server) // who asks for it gets errors from now on
	if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if !w.Device(0, minor) {
		t.Errorf("0:%d is not remote any more: files of it may still be mapped", minor)
	}
}
