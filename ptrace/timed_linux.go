package ptrace

import "golang.org/x/sys/unix"

// timed is where a system call has its time limit.
type timed struct {
	in     uint8 // untimed to ofSocket
	at     uint8 // its argument
	kept   bool  // by the kernel, which goes on to the old limit after a stop
	narrow bool  // in memory, as two words of 4 bytes
	end    int16 // what the call returns when it is over: 0, or an error
}

// Where that is: an argument in milliseconds, none at all if it is negative; one that is the address of seconds and
// nanoseconds, or 0; what io_uring_enter(2) is told in memory; or the call's socket, of which nobody else can ask (SO_RCVTIMEO, socket(7)).
const (
	untimed = iota
	millis
	address
	ring
	ofSocket
)

const (
	again    = -int16(unix.EAGAIN)
	timedOut = -int16(unix.ETIMEDOUT)
	ringTime = -int16(unix.ETIME)
)

// Flags of io_uring_enter(2) (include/uapi/linux/io_uring.h): it waits, and is told how long, in memory; until a time; in memory that it knows.
const (
	ringWaits   = 1<<0 | 1<<3
	ringOthers  = 1<<5 | 1<<6
	futexOp     = 127 // FUTEX_CMD_MASK; FUTEX_WAIT is 0, the only one with a limit from now on (futex(2))
	ringLimitAt = 16  // of struct io_uring_getevents_arg
)

// Timed tells whether a thread may wait with a time limit in the system call nr with these arguments, of which a stop would lose what
// has passed: the call is cut short, and ends early or begins anew. (What is left is kept by the kernel, or in memory, of the others:
// signal(7), poll(2), select(2).) narrow: it is a call of a 32-bit program.
//
//go:nosplit
//go:norace
func Timed(nr int64, args *[6]uint64, narrow bool) bool {
	t := timedIn(nr, args, narrow)
	switch {
	case t.kept:
		return false
	case t.in == millis:
		return int32(args[t.at]) > 0
	case t.in == address, t.in == ring:
		return args[t.at] != 0
	}
	return t.in == ofSocket
}

// Limit is the time limit of a system call.
type Limit struct {
	NS     int64  // in nanoseconds, if a register holds it; 0 or less: none
	Addr   uint64 // where it is in memory, as seconds and nanoseconds; 0: it is not there
	Word   int    // bytes of each of the two
	Padded bool   // of the nanoseconds' 8 bytes the upper half means nothing (get_timespec64, kernel/time/time.c)
	Ring   bool   // at Addr is its address
	Result int64  // of the call when it is over
}

// LimitOf is the time limit of the call that the thread tid with this note is in, as far as that can be known.
func LimitOf(tid int, note []byte) (l Limit) {
	var args [6]uint64
	nr, narrow := callIn(tid, note, &args)
	t := timedIn(nr, &args, narrow)
	l.Result = int64(t.end)
	switch t.in {
	case millis:
		l.NS = int64(int32(args[t.at])) * 1e6
	case address, ring:
		if l.Addr, l.Word, l.Ring = args[t.at], 8, t.in == ring; t.narrow {
			l.Word = 4
		}
		l.Padded = narrow && !t.narrow
		if l.Ring {
			l.Addr += ringLimitAt
		}
	}
	return l
}

// timedIn is where a call has its limit.
//
//go:nosplit
//go:norace
func timedIn(nr int64, args *[6]uint64, narrow bool) timed {
	t := timedHere(nr, args, narrow)
	if t.in != untimed || narrow {
		return t
	}
	switch nr {
	case unix.SYS_EPOLL_PWAIT:
		return timed{in: millis, at: 3}
	case unix.SYS_RT_SIGTIMEDWAIT:
		return timed{in: address, at: 2, end: again}
	case unix.SYS_EPOLL_PWAIT2:
		return timed{in: address, at: 3}
	case unix.SYS_SEMTIMEDOP:
		return timed{in: address, at: 3, end: again}
	case unix.SYS_IO_GETEVENTS, unix.SYS_IO_PGETEVENTS:
		return timed{in: address, at: 4}
	case unix.SYS_IO_URING_ENTER:
		return timedRing(args)
	case unix.SYS_NANOSLEEP:
		return timed{in: address, at: 0, kept: true}
	case unix.SYS_CLOCK_NANOSLEEP:
		return timedSleep(args, false)
	case unix.SYS_FUTEX:
		return timedFutex(args, false)
	case unix.SYS_READ, unix.SYS_READV, unix.SYS_RECVFROM, unix.SYS_RECVMSG, unix.SYS_RECVMMSG, unix.SYS_ACCEPT4:
		return timed{in: ofSocket}
	}
	return t
}

//go:nosplit
//go:norace
func timedRing(args *[6]uint64) (t timed) {
	if args[3]&(ringWaits|ringOthers) == ringWaits {
		t = timed{in: ring, at: 4, end: ringTime}
	}
	return t
}

//go:nosplit
//go:norace
func timedSleep(args *[6]uint64, narrow bool) (t timed) {
	switch int32(args[0]) {
	case unix.CLOCK_REALTIME, unix.CLOCK_MONOTONIC, unix.CLOCK_BOOTTIME, unix.CLOCK_REALTIME_ALARM, unix.CLOCK_BOOTTIME_ALARM, unix.CLOCK_TAI:
	default: // the CPU time of somebody
		return timed{}
	}
	if args[1] == 0 { // else until a time (TIMER_ABSTIME)
		t = timed{in: address, at: 2, kept: true, narrow: narrow}
	}
	return t
}

//go:nosplit
//go:norace
func timedFutex(args *[6]uint64, narrow bool) (t timed) {
	if args[1]&futexOp == 0 {
		t = timed{in: address, at: 3, kept: true, narrow: narrow, end: timedOut}
	}
	return t
}
