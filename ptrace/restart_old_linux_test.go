//go:build amd64 || s390x

package ptrace

import "golang.org/x/sys/unix"

// Calls that newer architectures lack.
func init() {
	blockings = append(blockings,
		blocking{"poll with timeout", unix.SYS_POLL, func() [6]uintptr { return [6]uintptr{0, 0, uintptr(limit.Milliseconds())} }, deadline, 0},
		blocking{"poll", unix.SYS_POLL, func() [6]uintptr { return [6]uintptr{0, 0, none} }, nothing, 0},
		blocking{"select", unix.SYS_SELECT, func() [6]uintptr { return [6]uintptr{} }, nothing, 0},
		blocking{"pause", unix.SYS_PAUSE, func() [6]uintptr { return [6]uintptr{} }, nothing, 0},
		blocking{"epoll_wait", unix.SYS_EPOLL_WAIT, func() [6]uintptr { return [6]uintptr{epoll(), keep([2]uint64{}), 1, none} }, eintrs, 0},
	)
}
