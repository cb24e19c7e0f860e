package clocks

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

// schedstat reads a thread's times on a CPU and waiting for one, in nanoseconds
// (proc_pid_schedstat, fs/proc/base.c).
//
//go:nosplit
//go:norace
func schedstat(b []byte) (run, wait int64, ok bool) {
	run, i := number(b, 0)
	if i < 0 {
		return 0, 0, false
	}
	wait, i = number(b, i)
	return run, wait, i >= 0
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
