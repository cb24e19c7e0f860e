package rootfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
)

// TestLeased: a file that is leased for writing is not opened, one leased for reading and others are.
func TestLeased(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	holder, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(holder)
	for _, c := range []struct {
		lease int
		want  error
	}{{unix.F_RDLCK, nil}, {unix.F_UNLCK, nil}, {unix.F_WRLCK, ErrLeased}} {
		if _, err := unix.FcntlInt(uintptr(holder), unix.F_SETLEASE, c.lease); err != nil {
			t.Skipf("no leases to be had: %v", err)
		}
		known = new(leaseList)
		f, err := Reopen(pathOnly(t, name), name)
		if !errors.Is(err, c.want) {
			t.Errorf("lease %d: %v, want %v", c.lease, err, c.want)
		}
		if err == nil {
			f.Close()
		}
		if got, err := unix.FcntlInt(uintptr(holder), unix.F_GETLEASE, 0); got != c.lease {
			t.Errorf("lease %d has become %d, %v", c.lease, got, err)
		}
	}
}

// TestLeasesRead: the list is read again when it is older than twenty times what reading it took, and not before; and one that does not
// come is done without.
func TestLeasesRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	path := pathOnly(t, name)
	var st unix.Stat_t
	if err := unix.Fstat(path, &st); err != nil {
		t.Fatal(err)
	}
	lease := procfs.FileLock{Kind: "LEASE", Mode: "WRITE", Major: unix.Major(st.Dev), Minor: unix.Minor(st.Dev), Inode: st.Ino}
	defer func() { known = new(leaseList) }()
	for _, c := range []struct {
		name string
		list *leaseList
		want error
	}{
		{"fresh", &leaseList{until: time.Now().Add(time.Hour), leases: []procfs.FileLock{lease}, whole: true}, ErrLeased},
		{"stale", &leaseList{until: time.Now().Add(-1), leases: []procfs.FileLock{lease}, whole: true}, nil},
		{"not whole", &leaseList{until: time.Now().Add(time.Hour)}, ErrLeased},
		{"stuck", &leaseList{until: time.Now().Add(time.Hour), err: ptrace.ErrStuck}, nil},
	} {
		known = c.list
		if err := leased(path, &st); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

// TestSilent: an open that nobody permits is given up, is not tried again meanwhile, and leaves nothing open once it ends.
func TestSilent(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"file", "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(dir, "file")
	listener, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err == nil {
		err = unix.FanotifyMark(listener, unix.FAN_MARK_ADD, unix.FAN_OPEN_PERM, unix.AT_FDCWD, name)
	}
	if err != nil {
		t.Skipf("no fanotify to be had: %v", err)
	}
	path, other := pathOnly(t, name), pathOnly(t, filepath.Join(dir, "other"))
	before := openFiles(t)
	open := func() error {
		return inTime(t, "an open", func() error {
			f, err := Reopen(path, name)
			if err == nil {
				f.Close()
			}
			return err
		})
	}
	if err := open(); !errors.Is(err, ErrSilent) {
		t.Errorf("%v, want %v", err, ErrSilent)
	}
	begun := time.Now()
	if err := open(); !errors.Is(err, ErrSilent) || time.Since(begun) > 250*time.Millisecond {
		t.Errorf("again: %v after %v, want %v at once", err, time.Since(begun), ErrSilent)
	}
	if f, err := Reopen(other, "other"); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	unix.Close(listener) // what waits is permitted
	for end := time.Now().Add(5 * time.Second); open() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the file cannot be opened when nobody is to be asked")
		}
	}
	if after := openFiles(t); after != before-1 {
		t.Errorf("%d files are open, want %d", after, before-1)
	}
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
