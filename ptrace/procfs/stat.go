package procfs

import (
	"bytes"
	"time"
)

// Task flags (include/linux/sched.h) that stat shows.
const (
	FlagExiting    = 0x00000004 // PF_EXITING
	FlagIOWorker   = 0x00000010 // PF_IO_WORKER
	FlagUserWorker = 0x00004000 // PF_USER_WORKER, from Linux 6.4 on
	FlagKThread    = 0x00200000 // PF_KTHREAD
)

// userHZ is the unit of times in stat, 1/100 s on every architecture that we
// support (USER_HZ, include/asm-generic/param.h).
const userHZ = 100

// Stat is what /proc/PID/stat (or /proc/PID/task/TID/stat) says.
type Stat struct {
	PID        int
	Comm       string // of the thread; any byte but NUL may be in it
	State      byte   // R S D T t Z X I P
	PPID       int
	Flags      uint64 // Flag…
	Faults     uint64 // page faults, with and without reading from a disk
	UTime      time.Duration
	STime      time.Duration
	Reaped     time.Duration // CPU time of ended children that the process has waited for
	Threads    int
	StartTicks uint64 // since boot, in 1/100 s; with the PID it names a process for ever
	StartStack uint64 // address; 0 without permission
	Processor  int    // CPU it last ran on
	RealTime   bool   // it has its CPU before all threads of the usual policies: by its own policy, or since such a one waits for it
}

// NoUserStack tells whether the task is one of the kernel's own threads or a
// worker that the kernel runs within a process (io_uring, vhost): such a task
// has no user-mode registers and never stops for a tracer.
func (s *Stat) NoUserStack() bool {
	return s.Flags&(FlagKThread|FlagIOWorker|FlagUserWorker) != 0
}

// ParseStat parses the content of a stat file.
func ParseStat(b []byte) (Stat, error) {
	var s Stat
	pid, _, ok := decimal(b)
	fields, state := afterComm(b)
	if !ok || state == 0 || pid > 1<<31-1 {
		return Stat{}, syntaxError("stat", 1, "no pid, name and state", b)
	}
	s.PID, s.State = int(pid), state
	s.Comm = unescape(b[bytes.IndexByte(b, '(')+1 : bytes.LastIndexByte(b, ')')])
	if !s.setFields(fields) {
		return Stat{}, syntaxError("stat", 1, "bad or missing field", b)
	}
	return s, nil
}

// lastStatField is the last field of proc_pid_stat(5) that we read.
const lastStatField = 39

// setFields takes the fields from number 4 on (numbers of proc_pid_stat(5)).
func (s *Stat) setFields(b []byte) bool {
	for field := 4; field <= lastStatField; field++ {
		n, rest, ok := statNumber(spaces(b))
		if !ok {
			return false
		}
		b = rest
		switch field {
		case 4:
			s.PPID = int(n)
		case 9:
			s.Flags = n
		case 10, 12:
			s.Faults += n
		case 14:
			s.UTime = ticks(n)
		case 15:
			s.STime = ticks(n)
		case 16, 17:
			s.Reaped += ticks(n)
		case 18:
			s.RealTime = int64(n) < 0
		case 20:
			s.Threads = int(n)
		case 22:
			s.StartTicks = n
		case 28:
			s.StartStack = n
		case 39:
			s.Processor = int(n)
		}
	}
	return true
}

// statNumber reads a number of either sign, in two's complement.
func statNumber(b []byte) (uint64, []byte, bool) {
	if bytes.HasPrefix(b, []byte{'-'}) {
		n, rest, ok := signed(b)
		return uint64(n), rest, ok
	}
	return decimal(b)
}

// ticks turns a count of 1/userHZ s into a duration. Times beyond 292 years do
// not occur; they come out as 0 rather than negative.
func ticks(n uint64) time.Duration {
	const unit = uint64(time.Second / userHZ)
	if n > (1<<63-1)/unit {
		return 0
	}
	return time.Duration(n * unit)
}

// afterComm finds the state letter and what follows it; 0 if there is none. A
// name may hold parentheses and blanks, the numbers after it cannot: so the
// last ")" ends it.
func afterComm(b []byte) (rest []byte, state byte) {
	i := bytes.LastIndexByte(b, ')')
	if open := bytes.IndexByte(b, '('); open < 0 || open > i {
		return nil, 0
	}
	b = b[i+1:]
	if len(b) < 2 || b[0] != ' ' || b[1] < 'A' || b[1] > 'z' {
		return nil, 0
	}
	return b[2:], b[1]
}
