package rootfs

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// permit answers the next question of a listener.
func permit(t *testing.T, listener int) {
	t.Helper()
	var event [64]byte // struct fanotify_event_metadata (fanotify(7)): fd at 16
	if n, err := unix.Read(listener, event[:]); n < 24 || err != nil {
		t.Fatalf("a question of fanotify: %d bytes, %v", n, err)
	}
	fd := binary.NativeEndian.Uint32(event[16:])
	answer := binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, fd), unix.FAN_ALLOW)
	if _, err := unix.Write(listener, answer); err != nil {
		t.Fatal(err)
	}
	unix.Close(int(fd))
}

// TestSilentRead: a read that nobody permits is given up, and is not tried again meanwhile; when two files do not come, no other of their disk is
// read, and when one does not, nothing is looked up. All that ends when they come.
func TestSilentRead(t *testing.T) {
	dir := t.TempDir()
	listener, err := unix.FanotifyInit(unix.FAN_CLASS_CONTENT|unix.FAN_CLOEXEC, unix.O_RDONLY)
	if err != nil {
		t.Skipf("no fanotify to be had: %v", err)
	}
	var files []*File
	for _, name := range []string{"one", "two", "three"} {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte("contents"), 0o600); err != nil {
			t.Fatal(err)
		}
		path, asked := pathOnly(t, name), len(files) < 2
		if asked { // before it is opened: one that nobody is asked about then is never asked about (file_set_fsnotify_mode_from_watchers, fs/notify/fsnotify.c)
			if err := unix.FanotifyMark(listener, unix.FAN_MARK_ADD, unix.FAN_ACCESS_PERM, unix.AT_FDCWD, name); err != nil {
				t.Skipf("no fanotify to be had: %v", err)
			}
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			f, err := Reopen(path, name)
			if err != nil {
				t.Error(err)
				return
			}
			files = append(files, f)
		}()
		if asked {
			permit(t, listener)
		}
		if <-done; t.Failed() {
			return
		}
		defer files[len(files)-1].Close()
	}
	files[0].disk.first.Store(nil) // what other tests have left
	r, err := Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b := make([]byte, 8)
	read := func(f *File, done <-chan struct{}) (time.Duration, error) {
		begun := time.Now()
		err := inTime(t, "a read", func() error {
			_, err := f.ReadUntil(done, b, 0)
			return err
		})
		return time.Since(begun), err
	}
	if _, err := read(files[0], nil); !errors.Is(err, ErrSilent) {
		t.Errorf("%v, want %v", err, ErrSilent)
	}
	if took, err := read(files[0], nil); !errors.Is(err, ErrSilent) || took > 250*time.Millisecond {
		t.Errorf("again: %v after %v, want %v at once", err, took, ErrSilent)
	}
	if _, err := read(files[2], nil); err != nil {
		t.Errorf("another file: %v", err)
	}
	if _, err := r.OpenFile(dir + "/none"); !errors.Is(err, ErrSilent) {
		t.Errorf("a look-up while a read hangs: %v, want %v", err, ErrSilent)
	}
	over := make(chan struct{})
	close(over)
	if took, err := read(files[1], over); !errors.Is(err, ErrSilent) || took > 400*time.Millisecond {
		t.Errorf("when time is up: %v after %v, want %v within a tenth of a second", err, took, ErrSilent)
	}
	if took, err := read(files[2], nil); !errors.Is(err, ErrSilent) || took > 250*time.Millisecond {
		t.Errorf("another file when two hang: %v after %v, want %v at once", err, took, ErrSilent)
	}
	if !slices.ContainsFunc(Silent(), func(s string) bool { return strings.HasPrefix(s, files[0].Name()+" (device ") }) {
		t.Errorf("told is %q, want %s", Silent(), files[0].Name())
	}
	unix.Close(listener) // what waits is permitted
	for end := time.Now().Add(5 * time.Second); files[0].disk.Stuck(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("reads hang when nobody is to be asked")
		}
	}
	for _, f := range files {
		if _, err := read(f, nil); err != nil || string(b) != "contents" {
			t.Errorf("%s: %q, %v", f.Name(), b, err)
		}
	}
	if _, err := r.OpenFile(dir + "/none"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a look-up: %v", err)
	}
}

// TestReadPieces: what is read in several pieces is what the file has, up to its end.
func TestReadPieces(t *testing.T) {
	name := filepath.Join(t.TempDir(), "large")
	want := make([]byte, 2*pieceBytes+5)
	for i := range want {
		want[i] = byte(i >> 8)
	}
	if err := os.WriteFile(name, want, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Reopen(pathOnly(t, name), name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got := make([]byte, len(want)+7)
	if n, err := f.ReadAt(got, 3); n != len(want)-3 || err != io.EOF || !slices.Equal(got[:n], want[3:]) {
		t.Errorf("%d bytes, %v; want %d and the end", n, err, len(want)-3)
	}
	if n, err := f.ReadAt(got[:8], -1); n != 0 || err == nil || errors.Is(err, io.EOF) {
		t.Errorf("before the beginning: %d bytes, %v", n, err)
	}
}

// TestWatchDisk: what is on a disk is read with that disk's patience, what is in memory is not: a program may keep back pages of that.
func TestWatchDisk(t *testing.T) {
	w := NewWatch(func() string { return "/proc/self" })
	defer w.Close()
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range parseMounts(string(text)) {
		id := (&Mounts{points: map[string]*mount{"/": &m}}).deviceOf("/")
		disk, err := w.Disk(unix.Major(id), unix.Minor(id))
		if err != nil {
			continue
		}
		if memoryTypes[m.kind] == (disk != nil) {
			t.Errorf("%s on %s: a disk of its own: %t", m.kind, m.point, disk != nil)
		}
	}
	if disk, err := w.Disk(0, 1); disk != nil || err != nil {
		t.Errorf("the kernel's own memory files: %v, %v", disk, err)
	}
}

// TestDiskOf: paths are told apart by the file system that they lead to.
func TestDiskOf(t *testing.T) {
	ms := judgeMounts(parseMounts(ownInfo), parseMounts(ownInfo), false)
	for path, want := range map[string]uint64{"/usr/x": unix.Mkdev(8, 1), "/nfs/x": unix.Mkdev(0, 40), "//nfs/../usr": unix.Mkdev(8, 1), "/docker/y/merged/a": unix.Mkdev(0, 51)} {
		if got := ms.deviceOf(path); got != want {
			t.Errorf("%s is on %#x, want %#x", path, got, want)
		}
	}
	if one := DiskOf(1); one != DiskOf(1) || one == DiskOf(2) || one.Stuck() {
		t.Error("disks are not told apart")
	}
}
