package procfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// capSysPtrace is the number of CAP_SYS_PTRACE (include/uapi/linux/capability.h).
const capSysPtrace = 19

// Permission holds what decides whether this process may trace another
// (ptrace(2), "Ptrace access mode checking").
type Permission struct {
	PID int
	// Exists: the process is there; nothing else is known if not.
	Exists bool
	// OwnUID is the effective user of this process, UID those of the target
	// (real, effective, saved).
	OwnUID int
	UID    [3]int
	// OwnGID and GID are the same of groups.
	OwnGID int
	GID    [3]int
	// Capable: this process has CAP_SYS_PTRACE in its own user namespace.
	Capable bool
	// NotDumpable: the target forbids tracing by its own user (set-user-ID,
	// unreadable executable or prctl(2) PR_SET_DUMPABLE). Then the files in its
	// folder belong to root.
	NotDumpable bool
	// PtraceScope is kernel.yama.ptrace_scope, -1 when the kernel has no Yama.
	PtraceScope int
	TracerPID   int  // 0: not traced
	Zombie      bool // it has exited, only its parent has not taken notice
	// Thread of Tgid: PID names a thread and no process; 0 if it does not.
	ThreadOf int
}

// Permission collects what is known of the right to trace pid. It needs no
// right itself.
func (f FS) Permission(pid int) Permission {
	p := Permission{PID: pid, OwnUID: os.Geteuid(), OwnGID: os.Getegid(), PtraceScope: ptraceScope(f)}
	if own, err := record(filepath.Join(f.root(), "self", "status"), ParseStatus); err == nil {
		p.Capable = own.CapEff&(1<<capSysPtrace) != 0
	}
	s, err := f.Status(pid)
	if err != nil {
		return p
	}
	p.Exists = true
	copy(p.UID[:], s.UID[:])
	copy(p.GID[:], s.GID[:])
	p.TracerPID, p.Zombie = s.TracerPid, s.State == 'Z'
	if s.Tgid != s.Pid {
		p.ThreadOf = s.Tgid
	}
	// proc_pid_make_inode: the files belong to the effective user, or to root
	// while the target is not dumpable. The folder itself always belongs to
	// the user, so ask for a file. Those of a thread without memory are root's, too.
	if tid, err := f.LiveTask(pid); err == nil {
		if owner, err := fileOwner(f.Task(pid, tid).path("maps")); err == nil {
			p.NotDumpable = owner != s.UID[1]
		}
	}
	return p
}

// ptraceScope reads kernel.yama.ptrace_scope: 0 classic, 1 descendants only, 2
// CAP_SYS_PTRACE only, 3 nobody. -1: there is no Yama.
func ptraceScope(f FS) int {
	b, err := os.ReadFile(filepath.Join(f.root(), "sys", "kernel", "yama", "ptrace_scope"))
	if err != nil {
		return -1
	}
	n, _, ok := decimal(b)
	if !ok || n > 3 {
		return -1
	}
	return int(n)
}

// Remedy says in a few words what stands in the way and what to try, for the
// brackets behind an error; empty if nothing is known to.
func (p Permission) Remedy() string {
	var why []string
	say := func(format string, args ...any) { why = append(why, fmt.Sprintf(format, args...)) }
	switch {
	case !p.Exists:
		return "no such process"
	case p.ThreadOf != 0:
		say("it is a thread of process %d, try: -p %d", p.ThreadOf, p.ThreadOf)
	case p.Zombie:
		say("its main thread has exited: it ends, or another thread of it is in the midst of an exec; try: again")
	}
	if p.TracerPID != 0 {
		say("it is traced by process %d", p.TracerPID)
	}
	if p.PtraceScope == 3 {
		say("kernel.yama.ptrace_scope is 3, nobody may trace until the next boot")
	}
	if p.Capable {
		return strings.Join(why, "; ")
	}
	root := "run as root"
	if p.OwnUID == 0 {
		root = "with CAP_SYS_PTRACE, which this root is without"
	}
	if i := slices.IndexFunc(p.UID[:], func(uid int) bool { return uid != p.OwnUID }); i >= 0 {
		say("it belongs to uid %d, we are uid %d, try: %s", p.UID[i], p.OwnUID, root)
	} else if p.GID != [3]int{p.OwnGID, p.OwnGID, p.OwnGID} {
		say("its groups, real, effective and saved, are %d, %d and %d, ours is %d, try: %s", p.GID[0], p.GID[1], p.GID[2], p.OwnGID, root)
	} else if p.NotDumpable {
		say("it does not let its own user trace it, try: %s", root)
	} else if p.OwnUID == 0 { // it may have more of root's rights than we (cap_ptrace_access_check, security/commoncap.c)
		say("try: %s", root)
	}
	switch p.PtraceScope {
	case 1:
		say("kernel.yama.ptrace_scope is 1, try: %s, or start the program with sfsample -- COMMAND", root)
	case 2:
		say("kernel.yama.ptrace_scope is 2, try: %s", root)
	}
	return strings.Join(why, "; ")
}

// Gone tells whether an error of this package says that the process or thread
// is no longer there.
func Gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoProcess)
}
