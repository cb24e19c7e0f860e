package stuck

import (
	"os"
	"slices"
	"strconv"
	"time"

	"sfsample/ptrace/procfs"
)

// Bounds of the search for other ends.
const (
	searchAtMost = time.Second
	maxEnds      = 64 // kept for one object
	maxFDs       = 1 << 18
	maxSearches  = 3
)

// endSearch finds who holds pipes and sockets: by one pass over the descriptors of all
// processes.
type endSearch struct {
	wanted map[string][]holder // by link, "pipe:[1]"
	more   map[string]bool     // links with more holders than are kept
	denied int                 // processes that may not be looked at
	cut    bool                // the time was up
	hidden bool                // there may be processes that are not seen
	new    bool                // something is wanted that was not searched for
	times  int
	own    map[string]bool // our descriptors when the dump began
}

// holder is one descriptor of a process.
type holder struct {
	End
	reads, writes bool
}

// listOwn lists our own descriptors. Those opened later are thousands of files of /proc.
func (s *endSearch) listOwn(fs procfs.FS) {
	s.own = map[string]bool{}
	f, err := os.Open(fs.Path(os.Getpid(), "fd"))
	if err != nil {
		return
	}
	defer f.Close()
	list, _ := f.Readdirnames(-1) // those that are missing are not searched
	for _, name := range list {
		s.own[name] = name != strconv.Itoa(int(f.Fd()))
	}
}

// want notes that the holders of an object are to be found.
func (s *endSearch) want(link string) {
	if s.wanted == nil {
		s.wanted, s.more = map[string][]holder{}, map[string]bool{}
	}
	if _, ok := s.wanted[link]; !ok {
		s.wanted[link], s.new = nil, true
	}
}

// search passes over all processes; those of the dump come first. The symbolic link's
// mode says how the file was opened (tid_fd_update_inode, fs/proc/fd.c).
func (d *Dump) search() {
	s := &d.ends
	if !s.new {
		return
	}
	if s.new = false; s.times == maxSearches {
		s.cut = true
		return
	}
	s.times++
	for link := range s.wanted {
		s.wanted[link] = nil
	}
	s.denied = 0
	pids, err := d.fs.PIDs()
	if err != nil {
		s.cut = true
		d.miss("other ends of pipes and sockets: %v", err)
		return
	}
	slices.SortStableFunc(pids, func(a, b int) int { return rank(d, a) - rank(d, b) })
	deadline := time.Now().Add(searchAtMost)
	total := 0
	for _, pid := range pids {
		n, err := d.searchProcess(pid, deadline)
		total += n
		if err != nil && !procfs.Gone(err) {
			s.denied++
		}
		if time.Now().After(deadline) || total > maxFDs {
			s.cut = true
			d.miss("other ends of pipes and sockets: after %v the search ended before its end", searchAtMost)
			break
		}
	}
	if why := d.owners.hidden(); why != "" {
		s.hidden = true
		d.miss("other ends of pipes and sockets: %s", why)
	}
	if s.denied > 0 {
		d.miss("other ends of pipes and sockets: the descriptors of %d processes may not be looked at (try: as root)", s.denied)
	}
}

// rank puts the processes that are looked at first.
func rank(d *Dump, pid int) int {
	if d.procs[pid] != nil {
		return 0
	}
	return 1
}

func (d *Dump) searchProcess(pid int, deadline time.Time) (n int, err error) {
	dir := d.fs.Path(pid, "fd")
	f, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	self := os.Getpid()
	for time.Now().Before(deadline) {
		names, err := f.Readdirnames(256)
		for _, name := range names {
			if pid != self || d.ends.own[name] { // what we have opened since is no end of anything
				d.match(pid, dir, name)
			}
		}
		if n += len(names); err != nil || n > maxFDs {
			return n, nil // the end of the folder
		}
	}
	return n, nil
}

func (d *Dump) match(pid int, dir, name string) {
	path := dir + "/" + name
	link, err := os.Readlink(path)
	if err != nil {
		return
	}
	list, ok := d.ends.wanted[link]
	if !ok {
		return
	}
	h := holder{End: End{PID: pid}}
	h.FD, _ = strconv.Atoi(name)
	if st, err := os.Lstat(path); err == nil {
		h.reads, h.writes = st.Mode().Perm()&0o400 != 0, st.Mode().Perm()&0o200 != 0
	}
	again := func(o holder) bool { return o.PID == pid && (o.reads || !h.reads) && (o.writes || !h.writes) }
	switch {
	case len(list) >= shownEnds && slices.ContainsFunc(list, again):
		return // a process that has it more than once tells nothing new
	case len(list) >= maxEnds:
		d.ends.more[link] = true
		return
	}
	if p := d.procs[pid]; p != nil {
		h.Name = p.name
	} else {
		h.Name, _ = d.fs.Comm(pid, pid)
	}
	d.ends.wanted[link] = append(list, h)
}

// whole tells whether all holders of an object are known.
func (s *endSearch) whole(link string) bool {
	return s.times > 0 && !s.new && !s.cut && !s.hidden && s.denied == 0 && !s.more[link]
}
