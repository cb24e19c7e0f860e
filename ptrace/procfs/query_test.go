//go:build linux

package procfs

import (
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestMappingFrom: asked about single mappings, the kernel tells what it lists.
func TestMappingFrom(t *testing.T) {
	// _IOWR('f', 17, struct procmap_query) by include/uapi/asm-generic/ioctl.h, and what it is asked with by include/uapi/linux/fs.h
	if want := 3<<30 | unsafe.Sizeof(procmapQuery{})<<16 | 'f'<<8 | 17; procmapAsk != want || procmapNext != 0x10 {
		t.Errorf("asked by %#x with %#x, want %#x", procmapAsk, procmapNext, want)
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := MappingFrom(f, 0); err == unix.ENOTTY {
		t.Skip("the kernel cannot be asked about single mappings (before Linux 6.11)")
	}
	all, err := FS{}.Maps(os.Getpid(), nil)
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	for i, m := range all {
		if !m.File() {
			continue // it may be another by now
		}
		files++
		asked := []uint64{m.Start, m.End - 1}
		if i == 0 {
			asked = append(asked, 0)
		} else if last := all[i-1].End; all[i-1].File() {
			asked = append(asked, last)
		}
		for _, at := range asked {
			got, err := MappingFrom(f, at)
			if err != nil || got.Start != m.Start || got.End != m.End || got.Offset != m.Offset || got.Inode != m.Inode || got.Dev != m.Dev || !got.File() {
				t.Errorf("from %#x: %v, %v; want %v", at, got, err, m)
			}
		}
	}
	if files < 2 {
		t.Errorf("%d mapped files", files)
	}
	var word int
	if got, err := MappingFrom(f, uint64(uintptr(unsafe.Pointer(&word)))); err != nil || got.File() {
		t.Errorf("memory of no file: %v, %v", got, err)
	}
	if m, err := MappingFrom(f, 1<<63); err != unix.ENOENT {
		t.Errorf("behind the last one: %v, %v", m, err)
	}
	f.Close()
	for _, none := range []*os.File{f, nil} {
		if _, err := MappingFrom(none, 0); err != unix.EBADF {
			t.Errorf("without a file: %v", err)
		}
	}
}
