// Package procfs reads what /proc tells about processes and threads: maps,
// status, stat, schedstat, the system call that a thread is blocked in, the
// kernel's stack, and so on.
//
// Reading stands apart from parsing. The Parse functions take the bytes of a
// file, make no system call and run on any system; those that a sampler calls
// at each tick ([ParseSchedstat], [ParseSyscall]) do not
// allocate. [FS] does the reading, and [Task] that of one thread, under a root
// that tests replace by a folder of their own.
//
// What a process can choose itself (names, paths, arguments) comes out as it
// is, bar the kernel's own escapes: whoever prints it must quote it.
//
// The package does not trace and does not read memory. Everything but [TaskFiles] may be used by any number
// of goroutines at once. A read can block for as long as the kernel holds the
// target's mmap lock (maps, cmdline, auxv): the callers know which thread may
// wait.
//
// Sources: proc_pid_maps(5), proc_pid_status(5), proc_pid_stat(5) and their
// neighbours, and the kernel's fs/proc/{array,base,task_mmu}.c.
package procfs
