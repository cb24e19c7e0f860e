package sampler

import (
	"debug/elf"
	"fmt"
	"os"
	"strings"

	"sfsample/sampler/syscalls"
)

// restarts names the system calls that go on after a ptrace stop as if nothing
// had happened, deadline included. Each was tried, on each architecture: package
// ptrace has the experiments as a test, TestStopOfBlockedThread. Calls are not
// here whose result may be a short count (write, splice) or that depend on more
// than can be seen (connect).
var restarts = map[string]map[string]bool{
	"amd64": set("nanosleep", "clock_nanosleep", "restart_syscall", "pause", "rt_sigsuspend",
		"poll", "ppoll", "select", "pselect6", "futex", "futex_waitv",
		"msgrcv", "msgsnd", "wait4", "waitid", "flock", "fcntl"),
	"arm64": set("nanosleep", "clock_nanosleep", "restart_syscall", "rt_sigsuspend",
		"ppoll", "pselect6", "futex", "futex_waitv",
		"msgrcv", "msgsnd", "wait4", "waitid", "flock", "fcntl"),
	"s390x": set("nanosleep", "clock_nanosleep", "restart_syscall", "pause", "rt_sigsuspend",
		"poll", "ppoll", "select", "pselect6", "futex", "futex_waitv",
		"msgrcv", "msgsnd", "wait4", "waitid", "flock", "fcntl"),
}

// restartsOnSome names calls that do so on some kinds of file only: not on
// sockets, which may have a timeout.
var restartsOnSome = set("read", "readv")

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
		return args[4] == 0
	}
	return false
}

// transparent tells whether a thread of process pid that is blocked in system
// call nr may be stopped once without any effect that it could see. revert:
// EINTR is taken back.
func transparent(arch string, pid int, nr int64, args *[6]uint64, revert bool) bool {
	name, ok := syscalls.Name(arch, nr)
	if !ok || restarts[arch] == nil {
		return false
	}
	switch {
	case restarts[arch][name]:
		return true
	case restartsOnSome[name]:
		file, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, int32(args[0])))
		return err == nil && !strings.HasPrefix(file, "socket:")
	}
	return revert && takenBack(name, args)
}

// is32: the program of process pid is a 32-bit one, as far as can be seen.
func is32(pid int) bool {
	f, err := os.Open(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false
	}
	defer f.Close()
	var ident [elf.EI_CLASS + 1]byte
	_, err = f.ReadAt(ident[:], 0)
	return err == nil && elf.Class(ident[elf.EI_CLASS]) == elf.ELFCLASS32
}
