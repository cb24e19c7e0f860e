package procfs

import (
	"bytes"
	"time"
)

// Schedstat is what /proc/PID/task/TID/schedstat says.
type Schedstat struct {
	// Run is the time on a CPU. It is brought up to date at the scheduler's
	// ticks and switches: exact for a thread that is stopped or blocked, late
	// by up to some ticks for one that runs.
	Run time.Duration
	// Wait is the time spent runnable without a CPU.
	Wait time.Duration
	// Count is how often the thread was put on a CPU. All three are 0 on
	// kernels without CONFIG_SCHED_INFO.
	Count uint64
}

// ParseSchedstat parses the content of a schedstat file, without allocation.
func ParseSchedstat(b []byte) (Schedstat, error) {
	run, rest, ok1 := decimal(b)
	wait, rest, ok2 := decimal(spaces(rest))
	count, _, ok3 := decimal(spaces(rest))
	if !ok1 || !ok2 || !ok3 || run > 1<<63-1 || wait > 1<<63-1 {
		return Schedstat{}, syntaxError("schedstat", 1, "not three numbers", b)
	}
	return Schedstat{time.Duration(run), time.Duration(wait), count}, nil
}

// Syscall is what /proc/PID/task/TID/syscall says: where a thread that is not
// running entered the kernel.
type Syscall struct {
	// Running: on a CPU or waiting for one; nothing else is known then.
	Running bool
	// NR is the number of the system call in the thread's own table (a 32-bit
	// thread: the 32-bit one), -1 when it is blocked outside of any: in a page
	// fault, or stopped.
	NR   int64
	Args [6]uint64 // only with NR >= 0
	// SP and PC are the user-mode registers. Both 0: the thread is a zombie or
	// one of the kernel's.
	SP, PC uint64
}

var wordRunning = []byte("running")

// ParseSyscall parses the content of a syscall file (proc_pid_syscall in
// fs/proc/base.c), without allocation.
func ParseSyscall(b []byte) (Syscall, error) {
	if w, _ := word(b); bytes.Equal(w, wordRunning) {
		return Syscall{Running: true, NR: -1}, nil
	}
	nr, rest, ok := signed(b)
	s := Syscall{NR: nr}
	if ok && nr >= 0 {
		for i := range s.Args {
			if s.Args[i], rest, ok = prefixedHex(spaces(rest)); !ok {
				break
			}
		}
	}
	if ok {
		s.SP, rest, ok = prefixedHex(spaces(rest))
	}
	if ok {
		s.PC, _, ok = prefixedHex(spaces(rest))
	}
	if !ok {
		return Syscall{}, syntaxError("syscall", 1, "not a number with its arguments, sp and pc", b)
	}
	return s, nil
}
