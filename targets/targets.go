package targets

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sfsample/ptrace/procfs"
)

// Selector says which processes are meant: those of PIDs, and those that are in each of the other lists that
// are not empty, by any of its words.
type Selector struct {
	PIDs    []int
	Names   []string // of the main thread or of the executable's file, with * ? and [] as in a shell
	Cgroups []string // see [InCgroup]
	Users   []uint32 // effective user ids, see [UserID]
	Tree    bool     // the descendants of all these too
}

// Open tells whether processes may come that are meant, whoever is there now.
func (s *Selector) Open() bool { return len(s.Names)+len(s.Cgroups)+len(s.Users) > 0 }

// Process is a process for ever: ids come again, with another start.
type Process struct {
	PID        int
	StartTicks uint64 // since boot, in 1/100 s
}

// Check tells patterns that match nothing because they are malformed.
func (s *Selector) Check() error {
	for _, n := range s.Names {
		if _, err := path.Match(n, ""); err != nil || n == "" {
			return fmt.Errorf("name %q: it is no pattern (* any text, ? one character, [a-z] one of these; \\ before what is meant as it is)", n)
		}
	}
	if slices.Contains(s.Cgroups, "") {
		return fmt.Errorf(`cgroup "": it is no group (a path from /, a name such as ssh.service, or a container's id)`)
	}
	return nil
}

// Find lists the processes that are there now, by number. One that ends meanwhile is
// left out; threads of the kernel and this process itself are not meant by a name, a
// group or a tree. It reads no more than stat where only ids are given.
func (s *Selector) Find(fs procfs.FS) ([]Process, error) {
	return s.find(fs, nil)
}

// find is Find, and also those of members that still live.
func (s *Selector) find(fs procfs.FS, members map[Process]bool) ([]Process, error) {
	if !s.Open() && !s.Tree {
		return s.given(fs), nil
	}
	pids, err := fs.PIDs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w (try: mount /proc)", err)
	}
	stats := make(map[int]procfs.Stat, len(pids))
	found := map[int]bool{}
	for _, pid := range pids {
		st, err := fs.Stat(pid)
		if err != nil || st.Flags&procfs.FlagKThread != 0 || pid == os.Getpid() && fs.Root == "" {
			continue
		}
		stats[pid] = st
		found[pid] = members[Process{pid, st.StartTicks}] || slices.Contains(s.PIDs, pid) ||
			s.Open() && s.named(fs, pid, st.Comm) && s.owned(fs, pid) && s.grouped(fs, pid)
	}
	if s.Tree {
		spread(found, stats)
	}
	var list []Process
	for pid, is := range found {
		if is {
			list = append(list, Process{pid, stats[pid].StartTicks})
		}
	}
	slices.SortFunc(list, func(a, b Process) int { return a.PID - b.PID })
	return list, nil
}

func (s *Selector) given(fs procfs.FS) []Process {
	var list []Process
	for _, pid := range s.PIDs {
		if st, err := fs.Stat(pid); err == nil {
			list = append(list, Process{pid, st.StartTicks})
		}
	}
	return list
}

// named looks at the executable only if the thread's name does not match.
func (s *Selector) named(fs procfs.FS, pid int, comm string) bool {
	matches := func(name string) bool {
		return slices.ContainsFunc(s.Names, func(p string) bool { ok, _ := path.Match(p, name); return ok })
	}
	if len(s.Names) == 0 || matches(comm) {
		return true
	}
	exe, _, err := fs.Exe(pid)
	return err == nil && matches(filepath.Base(exe))
}

func (s *Selector) owned(fs procfs.FS, pid int) bool {
	if len(s.Users) == 0 {
		return true
	}
	st, err := fs.Status(pid)
	return err == nil && slices.Contains(s.Users, uint32(st.UID[1]))
}

func (s *Selector) grouped(fs procfs.FS, pid int) bool {
	if len(s.Cgroups) == 0 {
		return true
	}
	groups, err := fs.Cgroups(pid)
	return err == nil && slices.ContainsFunc(groups, func(g string) bool {
		return slices.ContainsFunc(s.Cgroups, func(want string) bool { return InCgroup(g, want) })
	})
}

// shortestID is how many digits of a container's id are taken for one: what docker ps
// shows.
const shortestID = 12

// IsContainerID tells whether s may be the beginning of a container's id: 12 hexadecimal digits or more.
func IsContainerID(s string) bool {
	return len(s) >= shortestID && strings.Trim(s, "0123456789abcdef") == ""
}

// InCgroup tells whether a process of control group path belongs to what the user
// calls want: the path itself or one above it, when want begins with a slash; else
// a folder of that name, "ssh" for ssh.service, ssh.scope or ssh.slice too; else the
// beginning of the id of a container (docker-ID.scope, cri-containerd-ID.scope, ID).
func InCgroup(group, want string) bool {
	if strings.HasPrefix(want, "/") {
		want = path.Clean(want)
		return group == want || want == "/" || strings.HasPrefix(group, want+"/")
	}
	for _, folder := range strings.Split(group, "/") {
		name := folder
		for _, suffix := range []string{".service", ".scope", ".slice"} {
			name = strings.TrimSuffix(name, suffix)
		}
		id := name[strings.LastIndexByte(name, '-')+1:]
		switch {
		case want == folder || want == name:
			return true
		case !IsContainerID(want):
		case strings.HasPrefix(name, want) || strings.HasPrefix(id, want):
			return true
		}
	}
	return false
}

// spread adds the descendants of those found. Each round goes one generation down, and
// ends when there is nobody new: a circle of parents, which a /proc read while
// processes come and go may show, ends it too.
func spread(found map[int]bool, stats map[int]procfs.Stat) {
	children := map[int][]int{}
	var next []int
	for pid, st := range stats {
		children[st.PPID] = append(children[st.PPID], pid)
		if found[pid] {
			next = append(next, pid)
		}
	}
	for len(next) > 0 {
		pid := next[0]
		next = next[1:]
		for _, child := range children[pid] {
			if !found[child] {
				found[child] = true
				next = append(next, child)
			}
		}
	}
}
