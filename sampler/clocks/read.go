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

// Numbers of fields of stat: the time in the kernel, in ticks of USER_HZ, and the CPU (proc_pid_stat(5)).
const (
	statSystem = 15
	statCPU    = 39
)

// stat reads a thread's state letter and the CPU that it was last on (proc_pid_stat(5)).
// A name may hold any byte: the last parenthesis ends it.
//
//go:nosplit
//go:norace
func stat(b []byte) (state byte, cpu int, ok bool) {
	state, v := statField(b, statCPU)
	return state, int(v), v >= 0 && v <= 1<<20
}

// statField reads a thread's state letter and a field of stat behind that, a number; -1: it has none.
//
//go:nosplit
//go:norace
func statField(b []byte, n int) (state byte, v int64) {
	i := len(b) - 1
	for i >= 0 && b[i] != ')' {
		i--
	}
	if i < 0 || i+3 >= len(b) {
		return 0, -1
	}
	state = b[i+2]
	i += 4
	for field := 4; field < n; field++ {
		for i < len(b) && b[i] != ' ' {
			i++
		}
		i++
	}
	v, next := number(b, min(i, len(b)))
	if next < 0 {
		return 0, -1
	}
	return state, v
}

// What a stack in the kernel tells of the system call that a thread is in the midst of.
type inCall int

const (
	noCall   inCall = iota
	whole           // a stop does it no harm
	transfer        // one that ends early upon a stop, with a part of what it was asked for
	waiting         // one that may wait: then it ends early, or begins anew with all of its time limit
)

// callOf reads a thread's stack in the kernel (proc_pid_stack(5)).
//
//go:nosplit
//go:norace
func callOf(stack []byte) (call inCall) {
	for i := 0; i < len(stack); i++ {
		from, to := i, 0
		for ; i < len(stack) && stack[i] != '\n'; i++ {
			switch {
			case stack[i] == ' ':
				from, to = i+1, 0 // behind the address
			case stack[i] == '+' && to == 0:
				to = i
			}
		}
		name := stack[from:max(from, to)]
		for k := range leaving {
			if string(name) == leaving[k] {
				return noCall
			}
		}
		for k := range transfers {
			if string(name) == transfers[k] {
				call = transfer
			}
		}
		for k := range waits {
			if string(name) == waits[k] && call < transfer {
				call = waiting
			}
		}
		for k := range enters {
			if string(name) == enters[k] && call < whole {
				call = whole
			}
		}
	}
	return call
}

// CutShort tells by a thread's stack in the kernel whether a stop may cut short the system call that it is in the midst of.
func CutShort(stack []byte) bool { return callOf(stack) >= transfer }

// Functions of the kernel. Those of random numbers, zeros, epoll_wait, poll and recv were met on Linux 6.18 of x86-64; the others are there for
// brothers of these calls, older kernels and the other architectures, and were not: one that has another name there is stopped as before.
var (
	// enters is what a system call comes in by.
	enters = [...]string{"do_syscall_64", "do_int80_syscall_32", "do_int80_emulation", "do_fast_syscall_32", "el0_svc", "invoke_syscall", "__do_syscall", "system_call"}
	// leaving is what gives up the CPU behind a call or an interrupt.
	leaving = [...]string{"exit_to_user_mode_loop", "exit_to_user_mode_prepare", "irqentry_exit_to_user_mode", "syscall_exit_to_user_mode", "do_notify_resume"}
	// transfers are of random numbers and zeros (drivers/char), of splices and copies of files (fs), and room that is made for them.
	transfers = [...]string{
		"get_random_bytes_user", "urandom_read_iter", "urandom_read", "urandom_read_nowarn", "extract_crng_user", "read_zero", "read_iter_zero",
		"do_sendfile", "do_splice", "do_splice_direct", "splice_direct_to_actor", "splice_file_to_pipe", "do_tee", "vfs_copy_file_range", "vfs_fallocate",
	}
	// waits are those whose limit nobody keeps, and what sends to pipes, sockets and terminals.
	waits = [...]string{
		"pipe_write", "anon_pipe_write", "sock_write_iter", "__sys_sendto", "___sys_sendmsg", "file_tty_write", "n_tty_write", "n_tty_read",
		"sock_read_iter", "__sys_recvfrom", "___sys_recvmsg", "do_recvmmsg", "__sys_accept4", "do_accept", "sock_close",
		"ep_poll", "do_epoll_wait", "do_sys_poll", "do_semtimedop", "__do_semtimedop", "do_sigtimedwait", "read_events", "do_io_getevents", "io_cqring_wait",
	}
)

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
