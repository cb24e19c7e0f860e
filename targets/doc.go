// Package targets finds the processes that a user means: by number, by name, by
// control group or container, by user, and with their descendants.
//
// It is the one place where a choice of processes is made of words. A process is its
// number and its start, so that a number which comes again is another process; [Set]
// tells who came and who went between two looks, and [Set.Follow] goes on looking, as
// often as costs little. A look is no snapshot: a process born while /proc is read may
// be missing until the next.
//
// It reads /proc (stat, status, exe, cgroup) and the list of users, and nothing else,
// touches no process, and keeps no state but a Set's. Everything but a Set may be used
// by any number of goroutines.
//
// Sources: proc_pid_stat(5), cgroups(7), proc_pid_cgroup(5).
package targets
