package clocks

import "sfsample/sampler/capture"

// Readers of the files of /proc that a clock reads at its tick. They are here and not
// in procfs because nothing in them may grow the stack.

// number reads a decimal number of b from i on. next is behind it and the one blank or line
// end that follows; 0: there is no number.
//
//go:nosplit
//go:norace
func number(b []byte, i int) (v int64, next int) {
	from := i
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		if v > (1<<63-10)/10 {
			return 0, 0
		}
		v = v*10 + int64(b[i]-'0')
	}
	if i == from {
		return 0, 0
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
	if wait, i = number(b, i); i == 0 { // nor is it there if the first is not: it is read again
		return 0, 0, 0, false
	}
	count, i = number(b, min(i, len(b)))
	return run, wait, count, i != 0
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
			return 0, 0
		}
		v = v<<4 | d
	}
	if i == from {
		return 0, 0
	}
	return v, i + 1
}

// readCall reads where a thread is blocked (proc_pid_syscall, fs/proc/base.c): the number of the call, -1 outside one; its
// arguments, if it is in one; stack pointer and program counter. false: it runs, or nothing is known.
//
//go:nosplit
//go:norace
func readCall(c *capture.Call, b []byte) bool {
	var i int
	if string(b[:min(2, len(b))]) == "-1" {
		c.NR, i = -1, 3
	} else if c.NR, i = number(b, 0); i == 0 {
		return false
	}
	for k := range c.Args {
		if c.Args[k] = 0; c.NR >= 0 {
			if c.Args[k], i = hex(b, i); i == 0 {
				return false
			}
		}
	}
	if c.SP, i = hex(b, i); i == 0 {
		return false
	}
	c.PC, i = hex(b, i)
	return i != 0 && c.SP|c.PC != 0
}

// Numbers of stat's fields (proc_pid_stat(5)): the priority, and the CPU that a thread was last on.
const (
	statPriority = 18
	statCPU      = 39
)

// stat reads a thread's state letter and the CPU that it was last on (proc_pid_stat(5)).
//
//go:nosplit
//go:norace
func stat(b []byte) (state byte, cpu int, ok bool) {
	i := field(b, statCPU)
	if i == 0 {
		return 0, -1, false
	}
	v, next := number(b, min(i, len(b)))
	return b[field(b, 3)], int(v), next != 0 && v <= 1<<20
}

// realTime tells by a thread's stat whether it has its CPU before all of the usual policies: then its priority is negative (task_prio, kernel/sched).
//
//go:nosplit
//go:norace
func realTime(b []byte) bool {
	i := field(b, statPriority)
	return i > 0 && i < len(b) && b[i] == '-'
}

// field is where the field of a number, from 3 on, begins in a thread's stat, or its end if there are fewer. 0: it is none. A name may hold any byte: the last
// parenthesis ends it.
//
//go:nosplit
//go:norace
func field(b []byte, n int) int {
	i := len(b) - 1
	for i >= 0 && b[i] != ')' {
		i--
	}
	if i < 0 || i+3 >= len(b) {
		return 0
	}
	for i += 2; n > 3; n-- {
		for i < len(b) && b[i] != ' ' {
			i++
		}
		i++
	}
	return i
}

// What a stack in the kernel tells of the system call that a thread is in the midst of.
type inCall int

const (
	unknown   inCall = iota
	elsewhere        // nothing: it is on another CPU by now
	unharmed         // a stop does it no harm
	transfer         // it ends early upon a stop, with a part of what it was asked for
	waiting          // it may wait, and has moved a part by then, or has a time limit: it ends early, or begins anew with all of that
)

// callOf reads a thread's stack in the kernel (proc_pid_stack(5)).
//
//go:nosplit
//go:norace
func callOf(stack []byte) (call inCall) {
	call = elsewhere
	for i := 0; i < len(stack); i++ {
		from, to := i, 0
		for ; i < len(stack) && stack[i] != '\n'; i++ {
			switch {
			case stack[i] == ' ':
				from, to = i+1, 0 // behind the address
			case (stack[i] == '+' || stack[i] == '.') && to == 0: // offset; .part.0, .isra.0: the compiler's
				to = i
			}
		}
		name := stack[from:max(from, to)]
		switch {
		case among(transfers[:], name), among(systemCalls[:], entered(name)):
			return transfer
		case among(waits[:], name):
			call = waiting
		default:
			call = max(call, unharmed)
		}
	}
	return call
}

// among tells whether a name is in a list.
//
//go:nosplit
//go:norace
func among(list []string, name []byte) bool {
	for i := range list {
		if string(name) == list[i] {
			return true
		}
	}
	return false
}

// entered is the name of the system call that a function is the beginning of: __x64_sys_ioctl, __arm64_sys_ioctl, __do_sys_swapoff, __sys_bpf. Empty: of
// none.
//
//go:nosplit
//go:norace
func entered(function []byte) []byte {
	const end = "_sys_"
	for i := 1; i+len(end) <= len(function) && function[0] == '_'; i++ {
		if string(function[i:i+len(end)]) == end {
			return function[i+len(end):]
		}
	}
	return nil
}

// Functions of the kernel. Those of random numbers, zeros, pipes, sockets, terminals, epoll_wait, poll, recvmmsg, ioctl, bpf, huge pages and a core dump were met on Linux
// 6.18 of x86-64; the others are there for brothers of these calls, older kernels and the other architectures, and were not: one that has another name
// there is stopped as before.
var (
	// transfers are of random numbers and zeros (drivers/char), of splices and copies of files (fs), room that is made for them, a core dump, and files of
	// which a write has the kernel do something.
	transfers = [...]string{
		"get_random_bytes_user", "urandom_read_iter", "urandom_read", "urandom_read_nowarn", "extract_crng_user", "read_zero", "read_iter_zero", "write_pool_user", "random_write_iter", "write_pool",
		"do_sendfile", "do_splice", "do_splice_direct", "splice_direct_to_actor", "splice_file_to_pipe", "do_tee", "vfs_copy_file_range", "vfs_fallocate",
		"do_coredump", "vfs_coredump", "elf_core_dump", "kernfs_fop_write_iter", "kernfs_fop_write", "proc_reg_write", "proc_sys_call_handler", "filp_flush",
	}
	// systemCalls are those that a driver, a file system or a translator does anything in, and ends at a signal, with EINTR, EAGAIN or a part done.
	systemCalls = [...]string{
		"ioctl", "bpf", "swapoff", "init_module", "finit_module", "delete_module", "add_key", "request_key", "keyctl", "mount", "fsconfig",
		"getrandom", "sendfile", "sendfile64", "splice", "tee", "vmsplice", "copy_file_range", "fallocate", "recvmmsg", "sendmmsg", "migrate_pages", "move_pages",
	}
	// waits are those whose limit nobody keeps, and what moves data by pipes, sockets and terminals. A kernel that does not preempt itself
	// shows a thread there if it has been woken in the midst of it.
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
		if next == 0 {
			return 0, false
		}
		ns, next := number(b, min(next, len(b)))
		return ms*1e6 + ns, next != 0
	}
	return 0, false
}
