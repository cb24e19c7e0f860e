// Package rootfs opens files as a process sees them: below the process's root
// directory, with every symbolic link, absolute or with dots, resolved inside
// it. What lies there is the target's and may be hostile: links that lead out,
// FIFOs and devices in the place of files, file systems whose server does not answer:
// of those nothing is looked up, asked for or opened, whenever they were mounted. Nor is a file opened that a program
// holds a write lease on, and an open that a listener neither permits nor refuses is given up (see [Reopen]). Reads
// and look-ups are given up as well: of a disk whose server or device hangs (see [Disk] and [File]). A look-up that hangs keeps the process
// from ending, on ext4, until the disk answers: nothing is looked up while something of its disk hangs.
//
// It hides openat2(2) and what stands in for it where the kernel (before 5.6) or
// a seccomp filter does not have it. It reads no file contents. A [Root] may be
// used by any number of goroutines until it is closed.
//
// Documents followed: openat2(2) (RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS,
// RESOLVE_NO_XDEV), path_resolution(7), proc_pid_mountinfo(5), proc_pid_fdinfo(5), proc_locks(5),
// F_SETLEASE in fcntl(2), fanotify(7).
package rootfs
