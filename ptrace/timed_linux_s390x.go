package ptrace

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// timedHere is where a call has its limit that not each architecture has.
//
//go:nosplit
//go:norace
func timedHere(nr int64, _ *[6]uint64, narrow bool) timed {
	switch {
	case narrow:
	case nr == unix.SYS_POLL:
		return timed{in: millis, at: 2}
	case nr == unix.SYS_EPOLL_WAIT:
		return timed{in: millis, at: 3}
	}
	return timed{}
}

// callIn is the system call that the thread tid with this note is in, 0 if in none, and its arguments: r2 to r7, of which r2 is
// kept elsewhere meanwhile (orig_gpr2 of s390_regs, arch/s390/include/uapi/asm/ptrace.h).
func callIn(tid int, note []byte, args *[6]uint64) (nr int64, narrow bool) {
	if len(note) != noteBytes {
		return 0, false
	}
	for i := range args {
		args[i] = binary.BigEndian.Uint64(note[noteR2+8*i:])
	}
	args[0] = binary.BigEndian.Uint64(note[noteOrigR2:])
	return int64(callOf(tid)), false
}
