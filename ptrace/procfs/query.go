//go:build linux

package procfs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// MapsFile is an open /proc/PID/maps that is asked about single mappings, -1 if there is none to be had. It is of the
// memory that the process had when it was opened.
type MapsFile int

// OpenMaps opens that of a process or thread.
func (f FS) OpenMaps(pid int) MapsFile {
	fd, err := unix.Open(f.Path(pid, "maps"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1
	}
	return MapsFile(fd)
}

// Close closes it, if it is open.
func (f MapsFile) Close() { Pagemap(f).Close() }

// procmapQuery is struct procmap_query, and what of it is asked with (include/uapi/linux/fs.h).
type procmapQuery struct {
	size, flags, addr                      uint64
	start, end, perms, page, offset, inode uint64
	major, minor, nameSize, buildIDSize    uint32
	name, buildID                          uint64
}

const (
	procmapAsk   = 0xc0686611 // PROCMAP_QUERY: _IOWR('f', 17, struct procmap_query)
	procmapNext  = 0x10       // PROCMAP_QUERY_COVERING_OR_NEXT_VMA
	procmapFiles = 0x20       // PROCMAP_QUERY_FILE_BACKED_VMA
)

// FileFrom returns the first mapping of a file that ends above addr: where it lies, its offset and which file it is, but not
// its name. ENOENT: there is none. ENOTTY: the kernel cannot be asked (before Linux 6.11). ESRCH: the memory is gone.
func (f MapsFile) FileFrom(addr uint64) (m Mapping, err error) {
	q := procmapQuery{flags: procmapNext | procmapFiles, addr: addr}
	q.size = uint64(unsafe.Sizeof(q))
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(f), procmapAsk, uintptr(unsafe.Pointer(&q)))
		switch errno {
		case 0:
			m.Start, m.End, m.Offset, m.Inode = q.start, q.end, q.offset, q.inode
			m.Dev.Major, m.Dev.Minor = q.major, q.minor
			return m, nil
		case unix.EINTR:
		default:
			return m, errno
		}
	}
}
