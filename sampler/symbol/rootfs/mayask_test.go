package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The first thread, whose mounts /proc/self shows, keeps them: no test runs on it.
func init() { runtime.LockOSThread() }

// silent mounts a file system on dir that answers nothing, in a mount namespace of this thread's own. It returns
// the thread's folder in /proc.
func silent(t *testing.T, dir string) string {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and its mounts with it
	err := unix.Unshare(unix.CLONE_NEWNS)
	if err == nil {
		err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
	}
	if err != nil {
		t.Skipf("no mount namespace to be had: %v", err)
	}
	mountSilent(t, dir)
	return fmt.Sprintf("/proc/%d/task/%d", os.Getpid(), unix.Gettid())
}

func mountSilent(t *testing.T, dir string) {
	t.Helper()
	server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("no FUSE to be had: %v", err)
	}
	t.Cleanup(func() { unix.Close(server) }) // who waits for it gets an error from then on
	if err := unix.Mount("silent", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", server)); err != nil {
		t.Skipf("no FUSE to be had: %v", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
}

// inTime runs f, which must not wait for a server.
func inTime(t *testing.T, what string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(5 * time.Second):
		t.Fatalf("%s waits for a server that does not answer", what)
		return nil
	}
}

func pathOnly(t *testing.T, name string) int {
	t.Helper()
	fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestMayAsk: files on mounts that are known and local may be asked for, and memory files; those of remote mounts
// and of mounts that nobody knows may not.
func TestMayAsk(t *testing.T) {
	remote := t.TempDir()
	dir := silent(t, remote)
	memory, err := unix.MemfdCreate("library", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(memory)
	shown := fmt.Sprintf("/proc/thread-self/fd/%d", memory)
	detached := t.TempDir()
	if err := unix.Mount("", detached, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	unreachable := pathOnly(t, detached)
	if err := unix.Unmount(detached, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		fd   int
		want error
	}{
		"local":  {pathOnly(t, t.TempDir()), nil},
		"memory": {pathOnly(t, shown), nil},
		"remote": {pathOnly(t, remote), ErrRemote},
		"gone":   {unreachable, ErrRemote},
	} {
		if err := inTime(t, name, func() error { return MayAsk(tt.fd, dir) }); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// TestBelowChroot: where our own root is no mount point, our mountinfo does not have the mount that it is in, which is
// entered all the same; remote ones are not.
func TestBelowChroot(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"proc", "remote"} {
		if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "file"), []byte("read"), 0o644); err != nil {
		t.Fatal(err)
	}
	dir := silent(t, filepath.Join(root, "remote"))
	old := pathOnly(t, "/")
	proc := filepath.Join(root, "proc")
	if err := unix.Mount("/proc", proc, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	if err := unix.Chroot(root); err != nil { // of this thread alone, whose namespace is its own
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(unix.Fchdir(old), unix.Chroot("."), unix.Unmount(proc, unix.MNT_DETACH)); err != nil {
			t.Error(err)
		}
	})
	r, err := Open(dir + "/root")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	f, err := r.OpenFile("/file")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := MayAsk(pathOnly(t, "/remote"), dir); !errors.Is(err, ErrRemote) {
		t.Errorf("remote: %v, want %v", err, ErrRemote)
	}
}

// TestNeverEntered: no path leads into a remote mount, by links or dots either, and not into one that has come
// after the root was opened; other mounts are entered.
func TestNeverEntered(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"early", "late", "local", "etc"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"link": "/early", "etc/up": "../late/x", "etc/local": "/local/file"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	task := silent(t, filepath.Join(dir, "early"))
	if err := unix.Mount("", filepath.Join(dir, "local"), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(filepath.Join(dir, "local"), unix.MNT_DETACH) })
	for _, name := range []string{"etc/file", "local/file"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	mounts, err := openMounts(task)
	if err != nil {
		t.Fatal(err)
	}
	r := &Root{fd: pathOnly(t, dir), name: dir, mounts: mounts}
	defer mounts.Close()
	if r.id, err = mountID(r.fd); err != nil {
		t.Fatal(err)
	}
	mountSilent(t, filepath.Join(dir, "late"))
	for path, want := range map[string]error{
		"early": ErrRemote, "early/lib.so": ErrRemote, "link/lib.so": ErrRemote, "etc/../early/../etc/file": ErrRemote,
		"late": ErrRemote, "late/x": ErrRemote, "etc/up": ErrRemote, "etc//./up": ErrRemote,
		"etc/file": nil, "local/file": nil, "etc/local": nil, "local/../etc/file": nil,
	} {
		err := inTime(t, path, func() error {
			f, err := r.OpenFile(path)
			if err == nil {
				f.Close()
			}
			return err
		})
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
}

// TestAutomount: to look a path up mounts nothing, for which it would wait for a daemon.
func TestAutomount(t *testing.T) {
	dir := t.TempDir()
	auto := filepath.Join(dir, "auto")
	if err := os.Mkdir(auto, 0o755); err != nil {
		t.Fatal(err)
	}
	task := silent(t, t.TempDir())
	daemon, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer daemon.Close()
	defer pipe.Close() // who waits gets an error from then on
	options := fmt.Sprintf("fd=%d,pgrp=1,minproto=5,maxproto=5,direct", pipe.Fd())
	if err := unix.Mount("auto", auto, "autofs", 0, options); err != nil {
		t.Skipf("no autofs to be had: %v", err)
	}
	defer unix.Unmount(auto, unix.MNT_DETACH)
	r := &Root{fd: pathOnly(t, dir), name: dir}
	if r.mounts, err = openMounts(task); err != nil {
		t.Fatal(err)
	}
	defer r.mounts.Close()
	if r.id, err = mountID(r.fd); err != nil {
		t.Fatal(err)
	}
	err = inTime(t, "a path below", func() error {
		_, err := r.OpenFile("auto/x")
		return err
	})
	if !errors.Is(err, ErrRemote) {
		t.Errorf("%v, want %v", err, ErrRemote)
	}
}
