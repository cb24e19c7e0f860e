// Package rootfs opens files as a process sees them: below the process's root
// directory, with every symbolic link, absolute or with dots, resolved inside
// it. What lies there is the target's and may be hostile: links that lead out,
// FIFOs and devices in the place of files.
//
// It hides openat2(2) and what stands in for it where the kernel (before 5.6) or
// a seccomp filter does not have it. It reads no file contents. A [Root] may be
// used by any number of goroutines until it is closed.
//
// Documents followed: openat2(2) (RESOLVE_IN_ROOT, RESOLVE_NO_MAGICLINKS),
// path_resolution(7).
package rootfs
