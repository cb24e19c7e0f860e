package ptrace

import "golang.org/x/sys/unix"

// timedHere is where a call has its limit that not each architecture has.
//
//go:nosplit
//go:norace
func timedHere(nr int64, _ *[6]uint64, narrow bool) timed {
	switch {
	case narrow:
	case nr == unix.SYS_ACCEPT:
		return timed{in: ofSocket}
	}
	return timed{}
}

// callIn is the system call that a thread is in, -1: at a stop the kernel has forgotten it (see [Reverts]).
func callIn(int, []byte, *[6]uint64) (nr int64, narrow bool) { return -1, false }
