package sampler

import (
	"bufio"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/taking"
)

// maxBelow is how far below the mapping of a main stack its stack pointer is looked for, in bytes: the usual limit of its size.
const maxBelow = 8 << 20

// stackExtent finds the mapping that sp lies in, none if it is not memory of the
// process's own. The kernel maps a main stack as far down as it was touched only
// (expand_stack, mm/mmap.c): there, sp may lie below.
func stackExtent(maps []procfs.Mapping, sp uint64) taking.Extent {
	i, _ := findMapping(maps, sp)
	if i == len(maps) || maps[i].File() || maps[i].Perms&procfs.Shared != 0 {
		return taking.Extent{}
	}
	x := taking.Extent{Low: maps[i].Start, High: maps[i].End, Below: maps[i].Start}
	if maps[i].Path == "[stack]" {
		x.Below = x.Low - min(x.Low, maxBelow)
		if i > 0 {
			x.Below = max(x.Below, maps[i-1].End)
		}
	}
	if sp < x.Below {
		return taking.Extent{}
	}
	return x
}

// mappingAt returns the one of maps, which are in ascending order, that holds
// addr, nil if there is none.
func mappingAt(maps []procfs.Mapping, addr uint64) *procfs.Mapping {
	i, found := findMapping(maps, addr)
	if !found {
		return nil
	}
	return &maps[i]
}

// findMapping returns the index of the one of maps that holds addr, or of the next.
func findMapping(maps []procfs.Mapping, addr uint64) (i int, found bool) {
	return slices.BinarySearchFunc(maps, addr, func(m procfs.Mapping, addr uint64) int {
		switch {
		case m.End <= addr:
			return -1
		case m.Start > addr:
			return 1
		}
		return 0
	})
}

// maxAsked bounds how often a process is asked about its stacks, by [zeros], and how often for its mappings: the kernel walks through
// all of its memory for that.
const maxAsked = 64

// span is memory from an address to another.
type span struct{ low, high uint64 }

// maxSpans bounds how many mappings [zeros] lists.
const maxSpans = 1 << 14

// zeros lists the mappings without a file of which pages that are not in memory were never written, and nobody
// has asked to be told of them: flags um, uw and ui are userfaultfd's (show_smap_vma_flags,
// fs/proc/task_mmu.c).
func zeros(fs procfs.FS, pid int) (list []span) {
	f, err := os.Open(fs.Path(pid, "smaps"))
	if err != nil {
		return nil
	}
	defer f.Close()
	var here span
	for lines := bufio.NewScanner(f); lines.Scan() && len(list) < maxSpans; {
		line := lines.Text()
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok {
			if here.high > 0 && !slices.ContainsFunc(strings.Fields(flags), func(f string) bool { return f == "um" || f == "uw" || f == "ui" }) {
				list = append(list, here)
			}
			here = span{}
			continue
		}
		bounds, rest, _ := strings.Cut(line, " ")
		low, high, ok := strings.Cut(bounds, "-")
		if !ok || strings.Contains(rest, "/") {
			continue
		}
		start, err := strconv.ParseUint(low, 16, 64)
		end, err2 := strconv.ParseUint(high, 16, 64)
		if err == nil && err2 == nil {
			here = span{start, end}
		}
	}
	return list
}

// waiting is the kernel for reads within Go's scheduler: a page that has to be brought in may take its time, and the collector does
// not wait for that.
type waiting struct{ taking.Live }

// Memory implements taking.Kernel.
func (*waiting) Memory(tid int, addr uint64, buf []byte) int {
	n, _ := ptrace.ReadMemory(tid, addr, buf)
	return n
}

// Gather implements taking.Kernel.
func (k *waiting) Gather(tid int, from []unix.RemoteIovec, buf []byte) int {
	return gatherEach(k, tid, from, buf)
}

// wary is the kernel for reads of one process on whose end a stopped thread, or the whole dump, waits.
type wary struct {
	waiting
	mem   ptrace.Wary
	pages procfs.Pagemap // of the process
	holds bool           // a thread may be stopped meanwhile
}

// Memory implements taking.Kernel. What is not at hand any more when the read begins, on a thread of its own, is not read.
func (k *wary) Memory(tid int, addr uint64, buf []byte) int {
	if k.pages < 0 {
		n, _ := k.mem.ReadMemory(tid, addr, buf)
		return n
	}
	n, _ := k.mem.ReadAtHand(k.pages, tid, addr, buf)
	return n
}

// Pread implements taking.Kernel: pagemap waits for a lock that a thread may have which waits for the server of a file
// (pagemap_read, fs/proc/task_mmu.c).
func (k *wary) Pread(fd int, buf []byte, off int64) (int, unix.Errno) {
	if !k.holds {
		return k.waiting.Pread(fd, buf, off)
	}
	n, err := k.mem.Do(uint64(off), buf, func(b []byte) (int, error) { return unix.Pread(fd, b, off) })
	if err != nil {
		return 0, unix.EIO
	}
	return n, 0
}

// Gather implements taking.Kernel.
func (k *wary) Gather(tid int, from []unix.RemoteIovec, buf []byte) int {
	return gatherEach(k, tid, from, buf)
}

// gatherEach reads areas one by one.
func gatherEach(k taking.Kernel, tid int, from []unix.RemoteIovec, buf []byte) (n int) {
	for _, f := range from {
		got := k.Memory(tid, uint64(f.Base), buf[n:n+f.Len])
		if n += got; got < f.Len {
			break
		}
	}
	return n
}
