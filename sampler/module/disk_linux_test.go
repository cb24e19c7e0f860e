package module

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/sampler/symbol/rootfs"
)

// TestSilentDisk: of a disk that does not answer memory is read as far as it is there, at once, and what has no file as ever.
func TestSilentDisk(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, make([]byte, 2*os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	own := NewLive(os.Getpid(), nil)
	defer own.Close()
	if disk, err := own.mounts.Disk(unix.Major(st.Dev), unix.Minor(st.Dev)); disk == nil {
		t.Skipf("temporary files are on no disk: %v", err)
	}
	pages := func() []byte {
		b, err := unix.Mmap(int(f.Fd()), 0, 2*os.Getpagesize(), unix.PROT_READ, unix.MAP_PRIVATE)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Munmap(b) })
		return b
	}
	there, absent, nofile := pages(), pages(), make([]byte, 64)
	if there[0] != 0 { // now it is
		t.Fatal("not what was written")
	}
	goOn := hang(t, rootfs.DiskOf(st.Dev))
	for _, way := range []string{"asked for", "listed"} { // one mapping is; without PROCMAP_QUERY (before Linux 6.11) all are
		l := NewLive(os.Getpid(), nil)
		defer l.Close()
		if way == "listed" {
			l.maps.Close()
		}
		read := func(b []byte) error {
			_, err := l.ReadAt(make([]byte, 8), int64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))))
			_, rerr := l.ReadRanges(make([]byte, 8), []Range{{uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))), 8}})
			if (err == nil) != (rerr == nil) {
				t.Errorf("%s: %v by itself, %v among others", way, err, rerr)
			}
			return err
		}
		if err := read(absent); !errors.Is(err, ptrace.ErrStuck) {
			t.Errorf("%s: what is not there: %v, want %v", way, err, ptrace.ErrStuck)
		}
		if err := errors.Join(read(there), read(nofile)); err != nil {
			t.Errorf("%s: what is there: %v", way, err)
		}
		defer func() {
			if err := read(absent); err != nil {
				t.Errorf("%s: when the disk answers: %v", way, err)
			}
		}()
	}
	goOn()
}

// hang makes reads of a disk hang, as many as it takes, until it is told to let them go on.
func hang(t *testing.T, disk *rootfs.Disk) (goOn func()) {
	t.Helper()
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	var ended sync.WaitGroup
	over := make(chan struct{})
	close(over)
	for n := range uint64(disk.Most) {
		ended.Add(1)
		_, err := disk.Do(over, n, nil, func([]byte) (int, error) {
			defer ended.Done()
			fd, err := unix.Open(fifo, unix.O_RDONLY|unix.O_CLOEXEC, 0) // until somebody writes
			unix.Close(fd)
			return 0, err
		})
		if !errors.Is(err, ptrace.ErrStuck) {
			t.Fatalf("a read that hangs: %v", err)
		}
	}
	return func() {
		fd, err := unix.Open(fifo, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		ended.Wait()
		unix.Close(fd)
		for disk.Stuck() { // it is told a moment later
		}
	}
}
