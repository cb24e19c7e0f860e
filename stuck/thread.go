package stuck

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"sfsample/output"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/runtimes"
	"sfsample/sampler/syscalls"
)

// Thread is what is known of one thread after both looks.
type Thread struct {
	PID, TID int
	// InnerTID is its number in its own pid namespace: what lock words hold.
	InnerTID int
	Process  *Process
	Name     string
	State    byte // letter of proc_pid_stat(5)
	// Outside: it was not asked for, and is looked at because another waits for it.
	Outside bool
	Call    Call
	Wait    *Wait // nil: it does not wait, or what for cannot be told
	Between Activity

	first, second look
	stopped       bool // for its stack: since then it has run
	files         procfs.TaskFiles
	frames        []output.Frame
}

// Call is the system call that a thread sits in.
type Call struct {
	Name string // empty: in none
	NR   int64
	Args [6]uint64
}

// Activity is what a thread did between the two looks.
type Activity struct {
	Motion Motion
	// Idle is how long it has not run, to about a tick; 0 where the kernel does not
	// tell. IdleAtLeast is what the two looks have seen.
	Idle, IdleAtLeast time.Duration
	CPU               time.Duration // used
	Runs              uint64        // how often it was put on a CPU
}

// Motion is what a thread did between the two looks.
type Motion string

// Values of [Motion].
const (
	Blocked Motion = "blocked" // it did not run, and sits in the same call
	Woken   Motion = "woken"   // it ran, and is in the same call with the same arguments
	Ran     Motion = "ran"     // it ran, or still does
	Gone    Motion = "gone"    // it has exited
)

// look is what one look saw of a thread.
type look struct {
	at     time.Time
	state  byte
	sched  procfs.Schedstat
	call   procfs.Syscall
	words  block              // around a futex word
	kept   *runtimes.LockWait // what the machine that runs the program says of the wait
	err    error              // of what needs permission
	gone   bool
	worker bool // of the kernel: it has no user stack; of the first look
}

// Process is what the threads of one process share.
type Process struct {
	Name string

	pid      int
	leader   procfs.Stat
	arch     string // of its system calls, as GOARCH has it
	inner    bool   // it is in a pid namespace below ours
	outside  bool
	denied   atomic.Bool // what needs permission cannot be read
	complete bool        // all threads that it had are looked at
	handlers *handlers   // nil: not looked for
	threads  []*Thread
	byInner  map[int]*Thread
}

func (t *Thread) wordBytes() int {
	if t.Process.arch == "386" {
		return 4
	}
	return 8
}

// label is how messages name a thread.
func (t *Thread) label() string {
	return fmt.Sprintf("tid %d %q", t.TID, clip(output.Printable(t.Name)))
}

// archOf tells 32-bit programs by the size of their program headers, which is in the
// auxiliary vector (AT_PHENT = 4 of elf.h: 32 bytes or 56).
func archOf(fs procfs.FS, pid int) string {
	if runtime.GOARCH != "amd64" {
		return runtime.GOARCH
	}
	aux, err := fs.Auxv(pid, nativeOrder, 4)
	if err == nil {
		for _, a := range aux {
			if a.Type == 4 && a.Value == 32 {
				return "386"
			}
		}
	}
	return runtime.GOARCH
}

// callOf is the call that a look found.
func callOf(p *Process, c procfs.Syscall) Call { return Call{callName(p, c), c.NR, c.Args} }

// callName is the name of the call that a look found, empty if in none.
func callName(p *Process, c procfs.Syscall) string {
	if c.Running || c.NR < 0 {
		return ""
	}
	name, ok := syscalls.Name(p.arch, c.NR)
	if !ok {
		return fmt.Sprintf("system call %d", c.NR)
	}
	return name
}

// newTime: calls that take 64-bit times in 32-bit programs too.
func newTime(call string) bool { return strings.HasSuffix(call, "time64") }

// clip shortens what a target chose, for one line.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// Ran tells whether a thread has run between an earlier dump and a later one.
func (t *Thread) Ran(later *Thread) bool {
	return t.second.sched.Count != later.first.sched.Count || later.Between.Motion == Ran || later.Between.Motion == Woken
}
