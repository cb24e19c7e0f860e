package sampler

import (
	"fmt"
	"os"
	"strings"

	"sfsample/sampler/syscalls"
)

// restarts names the system calls that go on after a ptrace stop as if nothing
// had happened, deadline included. Each was tried: a target blocked for a
// second in the call was interrupted twice, and neither its result nor the time
// it took changed. Calls are not here whose result may be a short count (write,
// splice) or that depend on more than can be seen (connect).
var restarts = map[string]map[string]bool{
	"amd64": set("nanosleep", "clock_nanosleep", "restart_syscall", "pause", "rt_sigsuspend",
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

// transparent tells whether a thread of process pid that is blocked in system
// call nr may be stopped once without any effect that it could see.
func transparent(arch string, pid int, nr int64, args *[6]uint64) bool {
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
	return false
}
