//go:build linux

package procfs

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestFileFrom: asked about single mappings, the kernel tells what it lists.
func TestFileFrom(t *testing.T) {
	// _IOWR('f', 17, struct procmap_query) by include/uapi/asm-generic/ioctl.h, and what it is asked with by include/uapi/linux/fs.h
	if want := 3<<30 | unsafe.Sizeof(procmapQuery{})<<16 | 'f'<<8 | 17; procmapAsk != want || procmapNext != 0x10 || procmapFiles != 0x20 {
		t.Errorf("asked by %#x with %#x and %#x, want %#x", procmapAsk, procmapNext, procmapFiles, want)
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := FileFrom(f, 0); err == unix.ENOTTY {
		t.Skip("the kernel cannot be asked about single mappings (before Linux 6.11)")
	}
	all, err := FS{}.Maps(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	files, addr := 0, uint64(0)
	for _, m := range all {
		if !m.File() {
			continue
		}
		for _, at := range []uint64{addr, m.Start, m.End - 1} {
			got, err := FileFrom(f, at)
			if err != nil || got.Start != m.Start || got.End != m.End || got.Offset != m.Offset || got.Inode != m.Inode || got.Dev != m.Dev {
				t.Errorf("from %#x: %v, %v; want %v", at, got, err, m)
			}
		}
		files, addr = files+1, m.End
	}
	if files < 2 {
		t.Errorf("%d mapped files", files)
	}
	if m, err := FileFrom(f, addr); err != unix.ENOENT {
		t.Errorf("behind the last file: %v, %v", m, err)
	}
	f.Close()
	for _, none := range []*os.File{f, nil} {
		if _, err := FileFrom(none, 0); err != unix.EBADF {
			t.Errorf("without a file: %v", err)
		}
	}
}
