package stuck

import (
	"fmt"
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
	fs      procfs.FS
	missing missing
	procs   map[int]*Process // of the dump

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
func (s *endSearch) listOwn() {
	f, err := os.Open(s.fs.Path(os.Getpid(), "fd"))
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
	if _, ok := s.wanted[link]; !ok {
		s.wanted[link], s.new = nil, true
	}
}

// need notes that the other end of a descriptor of w is to be found.
func (s *endSearch) need(w *Wait, i int, by side) {
	f := &w.Set.FDs[i]
	switch {
	case f.Kind == "pipe":
		s.want(fmt.Sprintf("pipe:[%d]", f.Inode))
	case f.Kind == "fifo":
		s.want(f.Path)
	case (f.Kind == "unix" || f.Kind == "tcp") && f.Peer != 0:
		s.want(fmt.Sprintf("socket:[%d]", f.Peer))
	default:
		return
	}
	if by == writing {
		i = ^i
	}
	w.Set.need = append(w.Set.need, i)
}

// search passes over all processes; those of the dump come first. The symbolic link's
// mode says how the file was opened (tid_fd_update_inode, fs/proc/fd.c).
func (s *endSearch) search() {
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
	pids, err := s.fs.PIDs()
	if err != nil {
		s.cut = true
		s.missing.add("other ends of pipes and sockets: %v", err)
		return
	}
	rank := func(pid int) int {
		if s.procs[pid] != nil {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(pids, func(a, b int) int { return rank(a) - rank(b) })
	deadline := time.Now().Add(searchAtMost)
	total := 0
	for _, pid := range pids {
		n, err := s.searchProcess(pid, deadline)
		total += n
		if err != nil && !procfs.Gone(err) {
			s.denied++
		}
		if time.Now().After(deadline) || total > maxFDs {
			s.cut = true
			s.missing.add("other ends of pipes and sockets: after %v the search ended before its end", searchAtMost)
			break
		}
	}
	if why := hidden(s.fs); why != "" {
		s.hidden = true
		s.missing.add("other ends of pipes and sockets: %s", why)
	}
	if s.denied > 0 {
		s.missing.add("other ends of pipes and sockets: the descriptors of %d processes may not be looked at (try: as root)", s.denied)
	}
}

func (s *endSearch) searchProcess(pid int, deadline time.Time) (n int, err error) {
	dir := s.fs.Path(pid, "fd")
	f, err := os.Open(dir)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	self := os.Getpid()
	for time.Now().Before(deadline) {
		names, err := f.Readdirnames(256)
		for _, name := range names {
			if pid != self || s.own[name] { // what we have opened since is no end of anything
				s.match(pid, dir, name)
			}
		}
		if n += len(names); err != nil || n > maxFDs {
			return n, nil // the end of the folder
		}
	}
	return n, nil
}

func (s *endSearch) match(pid int, dir, name string) {
	path := dir + "/" + name
	link, err := os.Readlink(path)
	if err != nil {
		return
	}
	list, ok := s.wanted[link]
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
		s.more[link] = true
		return
	}
	if p := s.procs[pid]; p != nil {
		h.Name = p.Name
	} else {
		h.Name, _ = s.fs.Task(pid, pid).Comm()
	}
	s.wanted[link] = append(list, h)
}

// whole tells whether all holders of an object are known.
func (s *endSearch) whole(link string) bool {
	return s.times > 0 && !s.new && !s.cut && !s.hidden && s.denied == 0 && !s.more[link]
}

// attach gives waits on descriptors those who hold the other ends.
func (s *endSearch) attach(t *Thread) {
	w := t.Wait
	if w == nil || len(w.Set.need) == 0 {
		return
	}
	w.On = slices.DeleteFunc(w.On, func(r Releaser) bool { return r.How == HasEnd })
	covered := 0
	for _, i := range w.Set.need {
		by := reading
		if i < 0 {
			i, by = ^i, writing
		}
		if s.attachOne(w, &w.Set.FDs[i], by) {
			covered++
		}
	}
	w.Whole = covered == len(w.Set.FDs) && w.Set.More == 0 && len(w.On) > 0
}

// attachOne returns whether all holders of the other end are known.
func (s *endSearch) attachOne(w *Wait, f *FD, by side) bool {
	link := fmt.Sprintf("%s:[%d]", f.Kind, f.Inode)
	switch f.Kind {
	case "fifo":
		link = f.Path
	case "unix", "tcp":
		link = fmt.Sprintf("socket:[%d]", f.Peer)
	}
	f.Ends = nil
	for _, h := range s.wanted[link] {
		if f.Peer == 0 && (by == reading && !h.writes || by == writing && !h.reads) {
			continue
		}
		f.Ends = append(f.Ends, h.End)
		if !slices.ContainsFunc(w.On, func(r Releaser) bool { return r.PID == h.PID }) {
			w.On = append(w.On, Releaser{PID: h.PID, How: HasEnd, Name: h.Name, evidence: fmt.Sprintf("%s, fd %d there", link, h.FD)})
		}
	}
	return s.whole(link) && len(f.Ends) > 0 && f.Kind != "fifo"
}
