package ptrace

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ReadMemory copies the memory of the process that thread tid belongs to, from
// addr on, to buf. It returns how many bytes could be read: fewer when an
// unmapped page follows. It needs no stop and no tracing, only the permission,
// and works while tid lives (a leader that has exited has no memory: ESRCH).
// It can block for as long as a page fault of the target would.
func ReadMemory(tid int, addr uint64, buf []byte) (int, error) {
	if len(buf) == 0 {
		return 0, nil
	}
	local := unix.Iovec{Base: unsafe.SliceData(buf)}
	local.SetLen(len(buf))
	remote := unix.RemoteIovec{Base: uintptr(addr), Len: len(buf)}
	n, _, errno := unix.Syscall6(unix.SYS_PROCESS_VM_READV, uintptr(tid),
		uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1, 0)
	runtime.KeepAlive(buf)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
