//go:build linux

package procfs

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// procmapQuery is struct procmap_query, and what of it is asked with (include/uapi/linux/fs.h).
type procmapQuery struct {
	size, flags, addr                      uint64
	start, end, perms, page, offset, inode uint64
	major, minor, nameSize, buildIDSize    uint32
	name, buildID                          uint64
}

const (
	procmapAsk  = 0xc0686611 // PROCMAP_QUERY: _IOWR('f', 17, struct procmap_query)
	procmapNext = 0x10       // PROCMAP_QUERY_COVERING_OR_NEXT_VMA
)

// MappingFrom asks an open /proc/PID/maps, which is of the memory that the process had when it was opened, for the first mapping
// that ends above addr: where it lies, its offset and which file it is, but not its name. It asks for no kind of mapping: then the
// kernel would go through all others that lie before it. ENOENT: there is none. ENOTTY: the kernel cannot be asked (before Linux 6.11). EBADF: maps is nil or closed. ESRCH: the memory is gone.
func MappingFrom(maps *os.File, addr uint64) (m Mapping, err error) {
	q := procmapQuery{flags: procmapNext, addr: addr}
	q.size = uint64(unsafe.Sizeof(q))
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, maps.Fd(), procmapAsk, uintptr(unsafe.Pointer(&q)))
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
