package clocks

import "sfsample/sampler/capture"

// Readers of the files of /proc that a clock reads at its tick. They are here and not
// in procfs because nothing in them may grow the stack.

// number reads a decimal number of b from i on. next is behind it and the one blank or line
// end that follows; -1: there is no number.
//
//go:nosplit
//go:norace
func number(b []byte, i int) (v int64, next int) {
	from := i
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		if v > (1<<63-10)/10 {
			return 0, -1
		}
		v = v*10 + int64(b[i]-'0')
	}
	if i == from {
		return 0, -1
	}
	return v, i + 1
}

// schedstat reads a thread's times on a CPU and waiting for one, in nanoseconds, and how often it was put on one
// (proc_pid_schedstat, fs/proc/base.c).
//
//go:nosplit
//go:norace
func schedstat(b []byte) (run, wait, count int64, ok bool) {
	run, i := number(b, 0)
	if i < 0 {
		return 0, 0, 0, false
	}
	if wait, i = number(b, i); i < 0 {
		return run, 0, 0, false
	}
	count, i = number(b, min(i, len(b)))
	return run, wait, count, i >= 0
}

// hex reads a number of b from i on that is written as the kernel's %#lx does. next is as number has it.
//
//go:nosplit
//go:norace
func hex(b []byte, i int) (v uint64, next int) {
	if i+2 < len(b) && b[i] == '0' && b[i+1] == 'x' {
		i += 2
	}
	from := i
	for ; i < len(b); i++ {
		d := uint64(b[i])
		switch {
		case d >= '0' && d <= '9':
			d -= '0'
		case d >= 'a' && d <= 'f':
			d -= 'a' - 10
		default:
			d = 16
		}
		if d == 16 {
			break
		}
		if v>>60 != 0 {
			return 0, -1
		}
		v = v<<4 | d
	}
	if i == from {
		return 0, -1
	}
	return v, i + 1
}

// readCall reads where a thread is blocked (proc_pid_syscall, fs/proc/base.c): the number of the call, -1 outside one; its
// arguments, if it is in one; stack pointer and program counter. false: it runs, or nothing is known.
//
//go:nosplit
//go:norace
func readCall(c *capture.Call, b []byte) bool {
	i := 0
	if len(b) > 2 && b[0] == '-' && b[1] == '1' {
		c.NR, i = -1, 3
	} else if c.NR, i = number(b, 0); i < 0 {
		return false
	}
	for k := range c.Args {
		if c.Args[k] = 0; c.NR >= 0 {
			if c.Args[k], i = hex(b, i); i < 0 {
				return false
			}
		}
	}
	if c.SP, i = hex(b, i); i < 0 {
		return false
	}
	c.PC, i = hex(b, i)
	return i >= 0 && c.SP|c.PC != 0
}

// statCPU is the number of the field of stat that holds the CPU (proc_pid_stat(5)).
const statCPU = 39

// stat reads a thread's state letter and the CPU that it was last on (proc_pid_stat(5)).
// A name may hold any byte: the last parenthesis ends it.
//
//go:nosplit
//go:norace
func stat(b []byte) (state byte, cpu int, ok bool) {
	i := len(b) - 1
	for i >= 0 && b[i] != ')' {
		i--
	}
	if i < 0 || i+3 >= len(b) {
		return 0, 0, false
	}
	state = b[i+2]
	i += 4
	for field := 4; field < statCPU; field++ {
		for i < len(b) && b[i] != ' ' {
			i++
		}
		i++
	}
	v, next := number(b, min(i, len(b)))
	if next < 0 || v > 1<<20 {
		return 0, 0, false
	}
	return state, int(v), true
}

// execStart finds when the scheduler last brought a thread's run time up to date, in
// milliseconds and millionths, as one number of nanoseconds of its CPU's clock
// (proc_sched_show_task, kernel/sched/debug.c): of the threads of one CPU it is the
// highest for the one that was last on it.
//
//go:nosplit
//go:norace
func execStart(b []byte) (at int64, ok bool) {
	const name = "se.exec_start"
	for i := 0; i+len(name) < len(b); i++ {
		if b[i] != 's' || string(b[i:i+len(name)]) != name {
			continue
		}
		for i += len(name); i < len(b) && (b[i] == ' ' || b[i] == ':'); i++ {
		}
		ms, next := number(b, i)
		if next < 0 {
			return 0, false
		}
		ns, next := number(b, min(next, len(b)))
		return ms*1e6 + ns, next >= 0
	}
	return 0, false
}
