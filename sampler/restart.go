package sampler

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/syscalls"
)

// restarts names the system calls that go on after a ptrace stop as if nothing
// had happened, deadline included. Each was tried, on each architecture: package
// ptrace has the experiments as a test, TestStopOfBlockedThread. Calls are not
// here whose result may be a short count (write, splice) or that depend on more
// than can be seen: connect; and restart_syscall, which may be a nanosleep that tells
// how much is left of it.
var restarts = map[string]map[string]bool{
	"amd64": set("nanosleep", "clock_nanosleep", "pause", "rt_sigsuspend",
		"poll", "ppoll", "select", "pselect6", "futex", "futex_waitv",
		"msgrcv", "msgsnd", "wait4", "waitid", "flock", "fcntl"),
	"arm64": set("nanosleep", "clock_nanosleep", "rt_sigsuspend",
		"ppoll", "pselect6", "futex", "futex_waitv",
		"msgrcv", "msgsnd", "wait4", "waitid", "flock", "fcntl"),
	"s390x": set("nanosleep", "clock_nanosleep", "pause", "rt_sigsuspend",
		"poll", "ppoll", "select", "pselect6", "futex", "futex_waitv",
		"msgrcv", "msgsnd", "wait4", "waitid", "flock", "fcntl"),
}

// restartsOnSome names calls that do so on some kinds of file only, those whose links begin so: not on
// sockets, which may have a timeout, nor on terminals, which may have one, or give fewer bytes.
var (
	restartsOnSome = set("read", "readv")
	plainFiles     = []string{"pipe:", "anon_inode:[eventfd]"}
)

// unseen tells whether a call of restarts changes nothing that its program could see: with some arguments,
// a stop is written to memory or changes the result.
func unseen(fs procfs.FS, pid int, name string, args *[6]uint64) bool {
	const (
		command   = 0x7f // FUTEX_CMD_MASK (include/uapi/linux/futex.h)
		wait      = 0
		lockPI    = 6
		waitUntil = 9 // FUTEX_WAIT_BITSET
		lockPI2   = 13
	)
	switch name {
	case "nanosleep": // what is left at a stop is written (nanosleep_copyout, kernel/time/hrtimer.c)
		return args[1] == 0
	case "clock_nanosleep":
		return args[1]&unix.TIMER_ABSTIME != 0 || args[3] == 0
	case "select", "pselect6":
		return writable(fs, pid, args[4])
	case "ppoll":
		return writable(fs, pid, args[2])
	case "futex": // not FUTEX_WAIT_REQUEUE_PI, which ends with EAGAIN
		switch args[1] & command {
		case lockPI, lockPI2:
			return true
		case wait, waitUntil:
			return wordHolds(fs, pid, args[0], uint32(args[2]))
		}
		return false
	case "futex_waitv": // struct futex_waitv: value, address, flags (include/uapi/linux/futex.h)
		list := make([]byte, 24*min(args[1], 128)) // FUTEX_WAITV_MAX
		if !readAtHand(fs, pid, args[0], list) {
			return false
		}
		for ; len(list) > 0; list = list[24:] {
			if !wordHolds(fs, pid, binary.NativeEndian.Uint64(list[8:]), uint32(binary.NativeEndian.Uint64(list))) {
				return false
			}
		}
	}
	return true
}

// wordHolds tells whether a futex word has the value that a thread waits with. If it has another, the wake-up was lost or is on its
// way: a stop would end the wait, as the call that begins anew looks at the word (futex_wait_setup, kernel/futex/waitwake.c).
func wordHolds(fs procfs.FS, pid int, addr uint64, value uint32) bool {
	var word [4]byte
	return readAtHand(fs, pid, addr, word[:]) && binary.NativeEndian.Uint32(word[:]) == value
}

// patient reads what is at hand: it may go between its look and its read.
var patient ptrace.Patient

// readAtHand reads memory, if it is at hand.
func readAtHand(fs procfs.FS, pid int, addr uint64, b []byte) bool {
	pages := fs.OpenPagemap(pid)
	defer pages.Close()
	n, err := patient.ReadAtHand(pages, pid, addr, b)
	return err == nil && n == len(b)
}

// maxRights bounds what is read of maps to learn of one address, in bytes.
const maxRights = 4 << 20

// writable tells whether what is left of a limit at addr can be written at a stop: else, the call ends with EINTR
// (poll_select_finish, fs/select.c). 0: there is no limit.
func writable(fs procfs.FS, pid int, addr uint64) bool {
	const sticky = 0x4000000 // STICKY_TIMEOUTS (include/uapi/linux/personality.h)
	if addr == 0 {
		return true
	}
	maps, err := fs.Maps(pid, upTo(maxRights))
	m := mappingAt(maps, addr)
	if err != nil || m == nil || m.Perms&procfs.Write == 0 {
		return false
	}
	p, err := fs.Personality(pid)
	return err == nil && p&sticky == 0
}

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// takenBack tells of a call whose EINTR [ptrace.Revert] takes back whether it
// waits without a time limit: one with a limit would begin anew with all of it.
func takenBack(name string, args *[6]uint64) bool {
	switch name {
	case "epoll_wait", "epoll_pwait":
		return int32(args[3]) < 0
	case "epoll_pwait2", "semtimedop":
		return args[3] == 0
	case "semop":
		return true
	case "rt_sigtimedwait":
		return args[2] == 0
	case "io_getevents":
		return args[4] == 0 && args[1] <= 1 // one that wants more ends with what it has
	}
	return false
}

// transparent tells whether a thread of process pid that is blocked in system
// call nr may be stopped once without any effect that it could see, if no filter
// sees it. revert: EINTR is taken back.
func transparent(fs procfs.FS, arch string, pid int, nr int64, args *[6]uint64, revert bool) bool {
	name, ok := syscalls.Name(arch, nr)
	if !ok || restarts[arch] == nil {
		return false
	}
	switch {
	case restarts[arch][name]:
		return unseen(fs, pid, name, args)
	case restartsOnSome[name]:
		file, err := os.Readlink(fs.Path(pid, fmt.Sprintf("fd/%d", int32(args[0]))))
		return err == nil && slices.ContainsFunc(plainFiles, func(p string) bool { return strings.HasPrefix(file, p) })
	}
	return revert && takenBack(name, args)
}

// filters is what is to be known of seccomp filters before restart_syscall(2) is left
// to a thread: one that does not know that call may kill it.
type filters struct {
	some   bool // the thread has one
	coming bool // it may get one before it goes on, from another thread (seccomp(2), SECCOMP_FILTER_FLAG_TSYNC)
}

// filtersOf asks at the moment that counts: a filter may come at any time, and none
// goes away. A thread that cannot be asked is taken to have one.
func filtersOf(fs procfs.FS, tid int) filters {
	s, err := fs.Status(tid)
	return filters{err != nil || s.Seccomp != 0, s.Threads > 1}
}

// timed tells of a call whether it goes on after a stop by restart_syscall, and would
// wait for longer if it began anew instead: its limit is a span of time.
func timed(name string, args *[6]uint64) bool {
	switch name {
	case "nanosleep":
		return true
	case "clock_nanosleep":
		return args[1]&unix.TIMER_ABSTIME == 0
	case "futex":
		const command = 0x7f // FUTEX_CMD_MASK; FUTEX_WAIT is 0 (include/uapi/linux/futex.h)
		return args[1]&command == 0 && args[3] != 0
	case "poll":
		return int32(args[2]) >= 0
	}
	return false
}

// drifts tells of a call whether each stop makes it last longer by as long as the stop takes: it begins anew with what was left
// of its limit at the stop (poll_select_finish, fs/select.c), where others keep the instant at which it ends.
func drifts(nr int64, args *[6]uint64) bool {
	switch name, _ := syscalls.Name(runtime.GOARCH, nr); name {
	case "select", "pselect6":
		return args[4] != 0
	case "ppoll":
		return args[2] != 0
	}
	return false
}

// mayStop tells whether a thread of process pid that is blocked in this call may
// be stopped, which costs time if it may.
func (o *Options) mayStop(fs procfs.FS, pid, tid int, nr int64, args *[6]uint64) bool {
	if o.NoRestart || !transparent(fs, runtime.GOARCH, pid, nr, args, ptrace.Reverts) {
		return false
	}
	name, _ := syscalls.Name(runtime.GOARCH, nr)
	f := filtersOf(fs, tid)
	return !f.some && !(f.coming && timed(name, args))
}

// awaited tells whether to wait for the stop of a thread, which was asked for so long
// ago, before its tracing ends. If it was about to wait then, its call is cut short
// all the same: without its stop nobody takes EINTR back, and a filter may kill it for going on. A thread that waits for a CPU
// stops as soon as it gets one; one that waits for anything else may never.
func awaited(fs procfs.FS, pid, tid int, since time.Duration) bool {
	st, err := fs.Task(pid, tid).Stat()
	switch {
	case err != nil || st.State == 'Z' || st.State == 'X' || since > starved:
		return false
	case st.State == 't': // it has stopped, and waits for us
		return true
	case filtersOf(fs, tid).some:
		return st.State != 'D' || since < lastStops
	}
	return st.State == 'R' && since < busyStops
}

const (
	// lastStops is how long the end of a run waits for stops that are asked for.
	lastStops = 500 * time.Millisecond
	// busyStops is how long it waits for a thread that may have to repeat a call, and gets no CPU.
	busyStops = 5 * time.Second
	// starved is how long it waits for a thread that a filter may kill.
	starved = 30 * time.Second
	// askEvery is how often it is asked which those are.
	askEvery = 20 * time.Millisecond
)

// is32: the program of process pid is a 32-bit one, as far as can be seen: the
// auxiliary vector is of words of its size (fs/compat_binfmt_elf.c). Its file may lie
// where nobody answers.
func is32(pid int) bool {
	const phent, pageSize, phdr32 = 4, 6, 32 // AT_PHENT, AT_PAGESZ, sizeof(Elf32_Phdr)
	aux, err := (procfs.FS{}).Auxv(pid, binary.NativeEndian, 4)
	return err == nil &&
		slices.Contains(aux, procfs.Aux{Type: phent, Value: phdr32}) &&
		slices.Contains(aux, procfs.Aux{Type: pageSize, Value: uint64(os.Getpagesize())})
}
