package ptrace

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests of userfaultfd(2) (include/uapi/linux/userfaultfd.h).
const (
	uffdioAPI      = 0xc018aa3f
	uffdioRegister = 0xc020aa00
	uffdioCopy     = 0xc028aa03
	uffdAPI        = 0xaa
)

// unfilled maps a page that is not there until fill is called.
func unfilled(t *testing.T) (page []byte, fill func()) {
	t.Helper()
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	if errno != 0 {
		t.Skipf("userfaultfd is not to be had here: %v", errno)
	}
	t.Cleanup(func() { unix.Close(int(fd)) })
	ioctl := func(request uintptr, arg unsafe.Pointer) {
		t.Helper()
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(arg)); errno != 0 {
			t.Fatalf("ioctl %#x: %v", request, errno)
		}
	}
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(page) })
	start := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(page))))
	ioctl(uffdioAPI, unsafe.Pointer(&[3]uint64{uffdAPI}))
	const missing = 1 // UFFDIO_REGISTER_MODE_MISSING
	ioctl(uffdioRegister, unsafe.Pointer(&[4]uint64{start, uint64(len(page)), missing}))
	return page, func() {
		content := bytes.Repeat([]byte{'x'}, len(page))
		from := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(content))))
		ioctl(uffdioCopy, unsafe.Pointer(&[5]uint64{start, from, uint64(len(page))}))
		runtime.KeepAlive(content)
	}
}

// TestPatient reads a page that nobody brings: the read is given up, others go
// on, and the page can be read once it has come.
func TestPatient(t *testing.T) {
	page, fill := unfilled(t)
	addr := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(page))))
	var p Patient
	var buf [16]byte
	if _, err := p.ReadMemory(os.Getpid(), addr, buf[:]); err != ErrStuck {
		t.Fatalf("a page that does not come: %v, want %v", err, ErrStuck)
	}
	if _, err := p.ReadMemory(os.Getpid(), addr, buf[:]); err != ErrStuck || len(p.stuck) != 1 {
		t.Errorf("again: %v, %d reads hang; want %v and no further read", err, len(p.stuck), ErrStuck)
	}
	other := []byte("elsewhere")
	n, err := p.ReadMemory(os.Getpid(), uint64(uintptr(unsafe.Pointer(unsafe.SliceData(other)))), buf[:len(other)])
	if err != nil || string(buf[:n]) != string(other) {
		t.Errorf("another page: %q, %v", buf[:n], err)
	}
	fill()
	// The read that was given up ends now; until then the page counts as stuck.
	for limit := time.Now().Add(20 * time.Second); ; runtime.Gosched() {
		n, err = p.ReadMemory(os.Getpid(), addr, buf[:])
		if err != ErrStuck || time.Now().After(limit) {
			break
		}
	}
	if err != nil || string(buf[:n]) != "xxxxxxxxxxxxxxxx" {
		t.Errorf("the page that has come: %q, %v", buf[:n], err)
	}
}

// TestWary: once a page has not come nothing more is read of that process.
func TestWary(t *testing.T) {
	page, fill := unfilled(t)
	defer fill()
	var w Wary
	there := []byte("elsewhere")
	addr := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(there))))
	buf := make([]byte, len(there))
	if n, err := w.ReadMemory(os.Getpid(), addr, buf); err != nil || string(buf[:n]) != string(there) || w.Stuck() {
		t.Errorf("before: %q, %v, stuck %t", buf[:n], err, w.Stuck())
	}
	if _, err := w.ReadMemory(os.Getpid(), uint64(uintptr(unsafe.Pointer(unsafe.SliceData(page)))), buf); err != ErrStuck {
		t.Errorf("a page that does not come: %v, want %v", err, ErrStuck)
	}
	if n, err := w.ReadMemory(os.Getpid(), addr, buf); n != 0 || err != ErrStuck || !w.Stuck() {
		t.Errorf("after: %d bytes, %v, stuck %t; want none", n, err, w.Stuck())
	}
}

// TestPatientEnds: when there is no time left a read that sleeps is given up at once, one under way too; and no more are made than may hang.
func TestPatientEnds(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	p := Patient{Most: 2}
	open := func([]byte) (int, error) { // until somebody writes
		fd, err := unix.Open(fifo, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		unix.Close(fd)
		return 0, err
	}
	done := make(chan struct{})
	first := make(chan error)
	go func() {
		_, err := p.Do(done, 1, nil, open)
		first <- err
	}()
	close(done)
	if err := <-first; err != ErrStuck || !p.Stuck() {
		t.Errorf("under way: %v, want %v", err, ErrStuck)
	}
	begun := time.Now()
	if _, err := p.Do(done, 2, nil, open); err != ErrStuck || time.Since(begun) >= sleepAtMost {
		t.Errorf("begun then: %v after %v, want %v", err, time.Since(begun), ErrStuck)
	}
	read := func([]byte) (int, error) { return 0, nil }
	if _, err := p.Do(nil, 3, nil, read); err != ErrStuck {
		t.Errorf("beside two that hang: %v, want %v", err, ErrStuck)
	}
	writer, err := unix.Open(fifo, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(writer)
	for limit := time.Now().Add(20 * time.Second); p.Stuck() && time.Now().Before(limit); runtime.Gosched() {
	}
	if _, err := p.Do(done, 3, nil, read); err != nil {
		t.Errorf("when nothing hangs: %v", err)
	}
}

// TestPatientWaits: a read that only takes long, without sleeping in the kernel,
// is not given up.
func TestPatientWaits(t *testing.T) {
	var p Patient
	n, err := p.Do(nil, 1, make([]byte, 1), func(b []byte) (int, error) {
		for until := time.Now().Add(sleepAtMost + sleepAtMost/2); time.Now().Before(until); {
		}
		return 1, nil
	})
	if n != 1 || err != nil {
		t.Errorf("a slow read: %d, %v; want 1 byte", n, err)
	}
}
