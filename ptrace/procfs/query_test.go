//go:build linux

package procfs

import (
	"fmt"
	"os"
	"os/exec"
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
	// A process that waits changes none of its mappings.
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer in.Close()
	if _, err := in.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := MappingFrom(f, 0); err == unix.ENOTTY {
		t.Skip("the kernel cannot be asked about single mappings (before Linux 6.11)")
	}
	all, err := FS{}.Maps(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	files, addr := 0, uint64(0)
	for _, m := range all {
		if m.Path == "[vsyscall]" {
			continue // no mapping of the process, and listed all the same
		}
		for _, at := range []uint64{addr, m.Start, m.End - 1} {
			got, err := MappingFrom(f, at)
			if err != nil || got.Start != m.Start || got.End != m.End || got.Offset != m.Offset || got.Inode != m.Inode || got.Dev != m.Dev || got.File() != m.File() {
				t.Errorf("from %#x: %v, %v; want %v", at, got, err, m)
			}
		}
		if addr = m.End; m.File() {
			files++
		}
	}
	if files < 2 {
		t.Errorf("%d mapped files", files)
	}
	if m, err := MappingFrom(f, addr); err != unix.ENOENT {
		t.Errorf("behind the last one: %v, %v", m, err)
	}
	f.Close()
	for _, none := range []*os.File{f, nil} {
		if _, err := MappingFrom(none, 0); err != unix.EBADF {
			t.Errorf("without a file: %v", err)
		}
	}
}
