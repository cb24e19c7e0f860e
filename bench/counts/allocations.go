package main

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// allocations counts on one CPU, in the kernel, how often programs of a file allocate memory: by a probe at the function of Go's runtime through which that goes
// (perf_event_open(2): the PMU uprobe, uprobe_path in config1, probe_offset in config2).
type allocations struct{ fd int }

// allocator is that function.
const allocator = "runtime.mallocgc"

func openAllocations(file string, cpu int) (*allocations, error) {
	offset, err := offsetOf(file, allocator)
	if err != nil {
		return nil, err
	}
	const pmu = "/sys/bus/event_source/devices/uprobe/type"
	text, err := os.ReadFile(pmu)
	if err != nil {
		return nil, fmt.Errorf("count allocations: %w (try: a kernel with CONFIG_UPROBE_EVENTS)", err)
	}
	kind, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", pmu, err)
	}
	path, err := unix.BytePtrFromString(file)
	if err != nil {
		return nil, err
	}
	attr := unix.PerfEventAttr{Type: uint32(kind), Ext1: uint64(uintptr(unsafe.Pointer(path))), Ext2: offset}
	attr.Size = uint32(unsafe.Sizeof(attr))
	fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
	runtime.KeepAlive(path)
	if err != nil {
		return nil, fmt.Errorf("count allocations: perf_event_open of %s in %s: %w (try: as root)", allocator, file, err)
	}
	return &allocations{fd}, nil
}

// offsetOf is where a function begins in a file.
func offsetOf(file, name string) (uint64, error) {
	f, err := elf.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	list, err := f.Symbols()
	if err != nil {
		return 0, fmt.Errorf("%s: %w (try: a build with symbols)", file, err)
	}
	for _, s := range list {
		if s.Name != name {
			continue
		}
		for _, p := range f.Progs {
			if p.Type == elf.PT_LOAD && s.Value >= p.Vaddr && s.Value < p.Vaddr+p.Filesz {
				return s.Value - p.Vaddr + p.Off, nil
			}
		}
	}
	return 0, fmt.Errorf("%s has no %s (try: a program of Go)", file, name)
}

func (a *allocations) close() { unix.Close(a.fd) }

// now is how many there were so far.
func (a *allocations) now() (uint64, error) {
	var b [8]byte
	if n, err := unix.Read(a.fd, b[:]); err != nil || n != len(b) {
		return 0, fmt.Errorf("count allocations: read %d bytes: %w", n, err)
	}
	return binary.NativeEndian.Uint64(b[:]), nil
}

// allocated is how often sfsample, run by a command on one CPU, allocates memory in the window that begins warm after the first time.
func allocated(tool string, cpu int, command []string) (float64, error) {
	a, err := openAllocations(tool, cpu)
	if err != nil {
		return 0, err
	}
	defer a.close()
	run := exec.Command(command[0], command[1:]...)
	if err := run.Start(); err != nil {
		return 0, err
	}
	n, err := a.within()
	return n, errors.Join(err, run.Wait())
}

// within counts those of the window that begins warm after the first one.
func (a *allocations) within() (float64, error) {
	for end := time.Now().Add(length); ; {
		n, err := a.now()
		if err != nil {
			return 0, err
		}
		if n > 0 {
			break
		}
		if time.Now().After(end) {
			return 0, errors.New("count allocations: there are none")
		}
		time.Sleep(time.Millisecond)
	}
	time.Sleep(warm)
	first, err := a.now()
	if err != nil {
		return 0, err
	}
	start := time.Now()
	time.Sleep(window)
	last, err := a.now()
	return float64(last-first) * window.Seconds() / time.Since(start).Seconds(), err
}
