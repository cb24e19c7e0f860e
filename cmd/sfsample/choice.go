package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"sfsample/ptrace/procfs"
	"sfsample/targets"
)

// choice is which processes and threads are meant.
type choice struct {
	pids     []int    // each once, in the order given
	tids     []int    // only these threads; empty: all
	names    []string // processes by name
	cgroups  []string // processes by control group
	users    []uint32 // processes by user
	tree     bool     // the descendants of all these too
	children bool     // follow forks and execs
}

// selector is the choice of processes.
func (w *choice) selector() targets.Selector {
	return targets.Selector{PIDs: w.pids, Names: w.names, Cgroups: w.cgroups, Users: w.users, Tree: w.tree}
}

// searches tells whether processes are searched for.
func (w *choice) searches() bool {
	sel := w.selector()
	return sel.Open() || w.tree
}

// meant is what the user asked for, for messages.
func (w *choice) meant() string {
	var parts []string
	if len(w.pids) > 0 {
		parts = append(parts, joinInts(w.pids))
	}
	for _, n := range w.names {
		parts = append(parts, "--name "+n)
	}
	for _, g := range w.cgroups {
		parts = append(parts, "--cgroup "+g)
	}
	for _, u := range w.users {
		parts = append(parts, fmt.Sprintf("--user %d", u))
	}
	return printable(strings.Join(parts, ", "))
}

// check tells ids of threads from those of processes, which would be sampled in part only, and finds the processes of --tid.
func (w *choice) check() error {
	for _, pid := range w.pids {
		s, err := (procfs.FS{}).Status(pid)
		switch {
		case err != nil && procfs.Gone(err):
			return fmt.Errorf("attach %d: no such process (try: ps -e)", pid)
		case err != nil:
			return fmt.Errorf("attach %d: %w", pid, err)
		case s.Tgid != pid:
			return fmt.Errorf("attach %d: it is a thread of process %d (try: -p %d, or -p %d -t %d)", pid, s.Tgid, s.Tgid, s.Tgid, pid)
		case pid == os.Getpid():
			return fmt.Errorf("attach %d: this is sfsample itself (try: another process)", pid)
		}
	}
	return w.findOwners()
}

// checkLife tells processes that run no code of their own any more, or never
// did.
func (w *choice) checkLife() error {
	var fs procfs.FS
	for _, pid := range w.pids {
		s, err := fs.Stat(pid)
		if err != nil {
			continue // gone; attaching will tell
		}
		if s.Flags&procfs.FlagKThread != 0 {
			return fmt.Errorf("attach %d: it is a thread of the kernel, it has no user stack (try: perf)", pid)
		}
		// A leader that has exited before its threads is a zombie too.
		if _, err := fs.LiveTask(pid); s.State == 'Z' && err != nil {
			return fmt.Errorf("attach %d: it has exited, and its parent, process %d, has not reaped it (try: another process)", pid, s.PPID)
		}
	}
	return nil
}

// findOwners finds the processes of --tid where no --pid names them.
func (w *choice) findOwners() error {
	owners := map[int]bool{}
	for _, tid := range w.tids {
		s, err := (procfs.FS{}).Status(tid)
		if err != nil {
			return fmt.Errorf("attach %d: no such thread (try: ls /proc/PID/task)", tid)
		}
		owners[s.Tgid] = true
		if len(w.pids) > 0 && !slices.Contains(w.pids, s.Tgid) {
			return fmt.Errorf("attach %d: it is a thread of process %d, which -p does not name (try: -p %d)", tid, s.Tgid, s.Tgid)
		}
	}
	if len(w.pids) == 0 {
		w.pids = slices.Collect(maps.Keys(owners))
	}
	return nil
}

// stopped returns a process that was asked for and is stopped, and who traces it if that is why.
func (w *choice) stopped() (pid, tracer int) {
	fs := procfs.FS{}
	for _, pid := range w.pids {
		stat, err := fs.Stat(pid)
		switch {
		case err != nil:
		case stat.State == 'T':
			return pid, 0
		case stat.State == 't':
			status, _ := fs.Status(pid)
			return pid, status.TracerPid
		}
	}
	return 0, 0
}
