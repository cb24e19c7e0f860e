package main

import (
	"encoding/binary"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// injector is what happens to a program while it runs: it is followed call by call of the system, or left alone.
type injector struct {
	during func(pid int) // while nobody follows it
	// enter is told of a call before it is made. With an error that it returns the call is not made, and fails so.
	enter func(c call) unix.Errno
	// leave is told of a call that was made, and what it returned. What it returns is what the program gets.
	leave func(c call, result int64) int64
}

// call is a call of the system.
type call struct {
	n    int // how many were before it: of all threads, in the order in which they come
	nr   int64
	args [6]uint64
	fail unix.Errno // it is not made
}

// The kernel's struct ptrace_syscall_info (include/uapi/linux/ptrace.h): op at 0, of an entry the number of the call at 24 and its
// arguments from 32 on, of an exit the result at 24.
const (
	getSyscallInfo = 0x420e // PTRACE_GET_SYSCALL_INFO
	infoEntry      = 1      // PTRACE_SYSCALL_INFO_ENTRY
	infoExit       = 2      // PTRACE_SYSCALL_INFO_EXIT
)

// register is where a register is: in which set, from which byte on, and how many it has.
type register struct{ set, at, size int }

// results have what a call returns: x86-64 rax, arm64 x0, s390x gpr 2 (of NT_PRSTATUS: struct user_regs_struct, user_pt_regs, s390_regs).
// numbers have the number of a call that is about to be made: x86-64 orig_rax, NT_ARM_SYSTEM_CALL, NT_S390_SYSTEM_CALL.
var (
	results = map[string]register{"amd64": {1, 80, 8}, "arm64": {1, 0, 8}, "s390x": {1, 32, 8}}
	numbers = map[string]register{"amd64": {1, 120, 8}, "arm64": {0x404, 0, 4}, "s390x": {0x307, 0, 4}}
)

// follow starts cmd, lets the injector see its calls, and returns its status and how many calls it made. A program that has not ended after the
// limit is killed: hung. cmd's output must be files.
func (in injector) follow(cmd *exec.Cmd, limit time.Duration) (status syscall.WaitStatus, calls int, hung bool, err error) {
	runtime.LockOSThread() // it is the tracer
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, 0, false, err
	}
	pid := cmd.Process.Pid
	late := make(chan struct{})
	timer := time.AfterFunc(limit, func() {
		close(late)
		_ = unix.Kill(pid, unix.SIGKILL) // it has not been reaped
	})
	defer timer.Stop()
	if _, err := syscall.Wait4(pid, &status, syscall.WALL, nil); err != nil {
		return 0, 0, false, fmt.Errorf("wait for %s: %w", cmd.Path, err)
	}
	if err := unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL); err != nil {
		return 0, 0, false, fmt.Errorf("follow %s: %w", cmd.Path, err)
	}
	under := map[int]call{} // way, by thread
	for tid, sig := pid, 0; ; {
		_ = unix.PtraceSyscall(tid, sig) // it may have been killed
		if tid, err = syscall.Wait4(-1, &status, syscall.WALL|unix.WNOTHREAD, nil); err != nil {
			return 0, 0, false, fmt.Errorf("wait for %s: %w", cmd.Path, err)
		}
		sig = 0
		switch {
		case tid == pid && (status.Exited() || status.Signaled()):
			select {
			case <-late:
				hung = true
			default:
			}
			return status, calls, hung, nil
		case !status.Stopped():
			// A thread: nothing is left to be let go, and so nobody is.
		case status.StopSignal() == syscall.SIGTRAP|0x80:
			var info [88]byte
			if _, _, e := unix.Syscall6(unix.SYS_PTRACE, getSyscallInfo, uintptr(tid), uintptr(len(info)), uintptr(unsafe.Pointer(&info)), 0, 0); e != 0 {
				continue
			}
			word := func(at int) uint64 { return binary.NativeEndian.Uint64(info[at:]) }
			switch info[0] {
			case infoEntry:
				c := call{n: calls, nr: int64(word(24))}
				for i := range c.args {
					c.args[i] = word(32 + 8*i)
				}
				if in.enter != nil {
					if c.fail = in.enter(c); c.fail != 0 {
						set(tid, numbers[runtime.GOARCH], -1)
					}
				}
				under[tid] = c
				calls++
			case infoExit:
				c, was := under[tid], int64(word(24))
				result := was
				if c.fail != 0 {
					result = -int64(c.fail)
				} else if in.leave != nil {
					result = in.leave(c, was)
				}
				if result != was {
					set(tid, results[runtime.GOARCH], result)
				}
			}
		case status.StopSignal() == syscall.SIGSTOP, status.StopSignal() == syscall.SIGTRAP: // a new thread, and the event that tells of it
		default:
			sig = int(status.StopSignal())
		}
	}
}

// set changes a register of thread tid. A thread that was killed has no use for it.
func set(tid int, at register, value int64) {
	var regs [512]byte
	iov := unix.Iovec{Base: &regs[0]}
	iov.SetLen(len(regs))
	ptrace := func(request int) bool {
		_, _, e := unix.Syscall6(unix.SYS_PTRACE, uintptr(request), uintptr(tid), uintptr(at.set), uintptr(unsafe.Pointer(&iov)), 0, 0)
		return e == 0
	}
	if !ptrace(unix.PTRACE_GETREGSET) {
		return
	}
	if at.size == 4 {
		binary.NativeEndian.PutUint32(regs[at.at:], uint32(value))
	} else {
		binary.NativeEndian.PutUint64(regs[at.at:], uint64(value))
	}
	ptrace(unix.PTRACE_SETREGSET)
}
