package sampler

import (
	"slices"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/taking"
)

// stackExtent finds the mapping that sp lies in, none if it is not memory of the
// process's own.
func stackExtent(maps []procfs.Mapping, sp uint64) taking.Extent {
	m := mappingAt(maps, sp)
	if m == nil || m.File() || m.Perms&procfs.Shared != 0 {
		return taking.Extent{}
	}
	return taking.Extent{Low: m.Start, High: m.End}
}

// mappingAt returns the one of maps, which are in ascending order, that holds
// addr, nil if there is none.
func mappingAt(maps []procfs.Mapping, addr uint64) *procfs.Mapping {
	i, found := slices.BinarySearchFunc(maps, addr, func(m procfs.Mapping, addr uint64) int {
		switch {
		case m.End <= addr:
			return -1
		case m.Start > addr:
			return 1
		}
		return 0
	})
	if !found {
		return nil
	}
	return &maps[i]
}

// pagemap is an open /proc/PID/pagemap, -1 if there is none to be had
// (Documentation/admin-guide/mm/pagemap.rst).
type pagemap int

func openPagemap(fs procfs.FS, pid int) pagemap {
	fd, err := unix.Open(fs.Path(pid, "pagemap"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return pagemap(fd)
}

func (p pagemap) close() {
	if p >= 0 {
		unix.Close(int(p))
	}
}

// waiting is the kernel for reads of threads that are not stopped: a page that has to be brought in may
// take its time.
type waiting struct{ taking.Live }

// Memory implements taking.Kernel.
func (*waiting) Memory(tid int, addr uint64, buf []byte) int {
	n, _ := ptrace.ReadMemory(tid, addr, buf)
	return n
}
