package stuck

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"sfsample/output"
	"sfsample/ptrace/procfs"
)

// futexWords puts a wait on a lock in words and finds its owner.
func (d *Dump) futexWords(t *Thread, w *Wait) {
	l := &w.futex.lock
	w.What = fmt.Sprintf("%s %#x", l.kind, w.Lock)
	if ownWord[w.futex.fam.kind] && !t.first.named() {
		w.What, w.Object, w.Lock = l.kind, "", 0
	}
	w.Text = "waits for " + w.What
	if l.kind == endOfThread {
		w.What, w.Text = l.kind, "waits for the "+l.kind
	}
	if w.futex.fam.kind == javaMonitor || t.first.entersMonitor() { // it looks again now and then (ObjectMonitor::EnterI)
		w.Timed, w.polls = false, t.first.entersMonitor()
	}
	if l.note != "" {
		w.Text += " (" + l.note + ")"
	}
	w.Unknown = l.unknown
	if t.Outside && l.kind == "futex" && l.unknown == unknownKind {
		w.Unknown = "its stack is not looked at (try: --pid of its process too)"
	}
	if text, ok := instead[w.futex.fam.kind]; ok {
		w.Text, w.Unknown = text, ""
	}
	if strings.HasPrefix(w.futex.fam.kind, "go") {
		d.told.missGoroutines(t.PID)
	}
	switch {
	case l.free && l.kind == "semaphore":
		w.Lost = "though it may go on: a wake-up was lost, or its sender has not run since"
	case l.free:
		w.Lost = "which is free: a wake-up was lost, or its sender has not run since"
	case l.owner != 0:
		d.owners.name(t, w)
	}
}

const endOfThread = "end of a thread"

// name names the thread whose number stands in a lock: the one that it has in its own pid namespace.
func (o *owners) name(t *Thread, w *Wait) {
	r := Releaser{How: Holds, evidence: fmt.Sprintf("the lock at %#x holds the thread id %d", w.Lock, w.futex.lock.owner)}
	if w.futex.lock.kind == endOfThread {
		r.How = Ends
	}
	if t.first.kept != nil {
		r.evidence = fmt.Sprintf("HotSpot's record of it at %#x has the thread id %d", w.Lock, w.futex.lock.owner)
	}
	k := o.key(t, w.Lock, w.futex.lock.owner)
	private := k.of == sharedFile{}
	var found owner
	if by := t.Process.byInner[w.futex.lock.owner]; by != nil && private {
		found.pid, found.tid, r.Name = by.PID, by.TID, by.Name
	} else {
		found = o.search(t, k)
	}
	if found.unsure != "" {
		o.missing.add("owners of locks that processes share: %s", found.unsure)
	}
	if w.Whole = found.unsure == "" && !w.futex.lock.loose; found.tid == 0 {
		w.Whole = false
		w.Unknown = orElse(found.why, fmt.Sprintf("the word has %d, which is no thread that can be seen: it has ended, or the memory is overwritten", w.futex.lock.owner))
		return
	}
	w.Unknown = ""
	r.PID, r.TID = found.pid, found.tid
	w.on(r, o.fs)
}

// owners finds the threads whose numbers stand in locks.
type owners struct {
	fs      procfs.FS
	missing missing
	known   map[innerKey]owner
	maps    map[int][]procfs.Mapping // shared ones, by process
}

func newOwners(fs procfs.FS, m missing) owners {
	return owners{fs, m, map[innerKey]owner{}, map[int][]procfs.Mapping{}}
}

// innerKey is a thread's number as a process has it, and the memory that the lock is in.
type innerKey struct {
	pid, id int
	of      sharedFile
}

// sharedFile is what processes share memory of, also without a name; the zero value is memory that they do not share.
type sharedFile struct {
	dev   procfs.Dev
	inode uint64
}

// owner is the thread that a number means.
type owner struct {
	pid, tid int
	why      string // why there is none; empty: nobody has that number
	unsure   string // why another may be meant; empty: none
}

// sharedFile finds what the memory at an address is shared of.
func (o *owners) sharedFile(pid, tid int, addr uint64) sharedFile {
	for _, m := range o.mappings(pid, tid) {
		if m.Start <= addr && addr < m.End {
			return sharedFile{m.Dev, m.Inode}
		}
	}
	return sharedFile{}
}

// mappings are the shared ones of a process, read once.
func (o *owners) mappings(pid, tid int) []procfs.Mapping {
	list, ok := o.maps[pid]
	if !ok {
		for _, m := range maps(o.fs, tid) {
			if m.Perms&procfs.Shared != 0 {
				list = append(list, m)
			}
		}
		o.maps[pid] = list
	}
	return list
}

// maxMaps is what a list of mappings may take, in bytes: some 200,000 of them.
const maxMaps = 16 << 20

// maps are the mappings of a thread: none if it has ended, may not be looked at, or has made the list longer.
func maps(fs procfs.FS, tid int) []procfs.Mapping {
	list, err := fs.Maps(tid, func(_, list int) error {
		if list > maxMaps {
			return procfs.ErrTooLong
		}
		return nil
	})
	if err != nil {
		return nil
	}
	return list
}

// ownerSearch bounds the search for who is meant by a number.
const ownerSearch = 50 * time.Millisecond

// key is that of the thread with this number, as a thread that waits at addr knows it: where processes share the word, one of theirs.
func (o *owners) key(t *Thread, addr uint64, id int) innerKey {
	k := innerKey{pid: t.PID, id: id}
	if t.Call.Args[1]&futexPrivate == 0 {
		k.of = o.sharedFile(t.PID, t.TID, addr)
	}
	return k
}

// search finds, once for thousands that wait for the same, who is called k.id: of the process's own threads, some of which may not have been asked for, or, for a lock that
// processes share, of all that share it: in another pid namespace the same number is another thread's.
func (o *owners) search(t *Thread, k innerKey) owner {
	found, ok := o.known[k]
	switch {
	case ok:
		return found
	case k.of == sharedFile{}:
		found = owner{pid: t.PID, tid: o.called(t.PID, k.id)}
	default:
		found = o.searchSharers(t, k)
	}
	o.known[k] = found
	return found
}

func (o *owners) searchSharers(t *Thread, k innerKey) owner {
	found := owner{unsure: hidden(o.fs)}
	pids, err := o.fs.PIDs()
	if err != nil {
		return owner{why: fmt.Sprintf("the processes that share it cannot be listed: %v", err)}
	}
	mine, err := o.fs.Namespace(t.TID, "pid")
	direct := 0 // of those with our numbers it is the one process that has this one
	if st, err := o.fs.Status(k.id); err == nil {
		direct = st.Tgid
	}
	deadline := time.Now().Add(ownerSearch)
	for _, pid := range pids {
		ns, nsErr := o.fs.Namespace(pid, "pid")
		switch {
		case time.Now().After(deadline):
			return owner{why: fmt.Sprintf("the search among the processes that share it took longer than %v", ownerSearch)}
		case err == nil && nsErr == nil && ns == mine && !t.Process.inner && pid != direct, !o.sharesFile(pid, k.of):
			continue
		}
		tid := o.called(pid, k.id)
		switch {
		case tid == 0:
		case found.tid != 0:
			return owner{why: fmt.Sprintf("the word has %d, which is the number of several threads that share it, in different pid namespaces", k.id)}
		default:
			found.pid, found.tid = pid, tid
		}
	}
	return found
}

// sharesFile tells whether a process has a shared mapping of a file.
func (o *owners) sharesFile(pid int, of sharedFile) bool {
	return slices.ContainsFunc(o.mappings(pid, pid), func(m procfs.Mapping) bool {
		return of == sharedFile{m.Dev, m.Inode}
	})
}

// called finds the thread of a process that has this number in its own pid namespace; 0: there is none.
func (o *owners) called(pid, id int) int {
	if st, err := o.fs.Status(pid); err != nil || len(st.NSpid) <= 1 { // its numbers are ours
		if st, err = o.fs.Status(id); err != nil || st.Tgid != pid {
			return 0
		}
		return id
	}
	ids, _ := o.fs.TaskIDs(pid) // none: it has ended
	for _, tid := range ids {
		st, err := o.fs.Status(tid)
		if err == nil && len(st.NSpid) > 0 && st.NSpid[len(st.NSpid)-1] == id {
			return tid
		}
	}
	return 0
}

// initialPIDs is the link of the first pid namespace, PROC_PID_INIT_INO of include/linux/proc_ns.h.
const initialPIDs = "pid:[4026531836]"

// hidden tells why there may be processes that /proc does not show, empty if there are none.
func hidden(fs procfs.FS) string {
	if ns, err := fs.Namespace(os.Getpid(), "pid"); err != nil || ns != initialPIDs {
		return "processes outside of this pid namespace cannot be seen (try: on the host)"
	}
	if _, err := fs.Stat(1); err != nil {
		return "/proc hides the processes of other users (try: as root)"
	}
	return ""
}

// outside looks at the threads that others wait for and that were not asked for, and
// returns whether there are any new ones.
func (d *Dump) outside() bool {
	var new []*Thread
	seen, self := map[int]bool{}, os.Getpid()
	for _, t := range d.roster.threads {
		if t.Wait == nil || len(t.Wait.On) > maxEnds {
			continue
		}
		for _, r := range t.Wait.On {
			p := d.roster.procs[r.PID]
			if r.PID == 0 || r.PID == self || seen[r.PID] || p != nil && p.complete {
				continue
			}
			seen[r.PID] = true
			if p == nil && d.roster.countOutside() >= maxOutside {
				d.missing.add("processes beyond %d that others wait for are not looked at", maxOutside)
				continue
			}
			new = append(new, d.roster.list(r.PID, true, func(int) bool { return true })...)
			if p = d.roster.procs[r.PID]; p != nil {
				p.complete = true
			}
		}
	}
	new = d.firstLook(new)
	for _, t := range new {
		d.decode(t)
	}
	return len(new) > 0
}

// refused tells a thread that sleeps for ever because the kernel has refused it a
// priority-inheriting lock, with EDEADLK or ESRCH: glibc waits on a word of 0 on its own
// stack then (nptl/pthread_mutex_lock.c, PTHREAD_MUTEX_PI_NORMAL_NP). Which lock that
// was is in its registers alone. The function that waits may have no symbol: then it is told from a semaphore
// on the caller's stack by where the word lies.
func (c *call) refused(f family) *Wait {
	const onStack = 4096 // that word is in one of the innermost frames
	sp := c.t.first.call.SP
	if f.kind != "mutex" && (f.kind != "" || !f.glib) || c.args[2] != 0 || c.args[3] != 0 || c.args[0]-sp > onStack || f.kind == "" && !c.d.mem.inLibrary(c.t, sp, c.args[0]) {
		return nil
	}
	return &Wait{Kind: "refused lock", What: "a mutex that the kernel has refused", Function: f.fn,
		Text: "sleeps for ever, since the kernel has refused it a priority-inheriting mutex " +
			"(EDEADLK: its owner waits for this thread; or ESRCH: its owner has ended)"}
}

// inLibrary tells whether a word of a thread's stack, which ends at sp, lies in a frame of the C library: the address at which the library
// returns to the program does not stand below it. So it is where that address lies above what a function keeps on the stack; on arm64 it lies below, and may be
// signed: there nothing is told.
func (m *memory) inLibrary(t *Thread, sp, word uint64) bool {
	i := slices.IndexFunc(t.frames, func(f output.Frame) bool { return !glibc(f.Module) })
	below := m.read(t, sp, int(word-sp))
	if t.Process.arch == "arm64" || i < 1 || len(below) < int(word-sp) {
		return false
	}
	size := t.wordBytes()
	back := binary.NativeEndian.AppendUint64(nil, t.frames[i].PC)
	if size == 4 {
		back = binary.NativeEndian.AppendUint32(nil, uint32(t.frames[i].PC))
	}
	for at := int(-sp & uint64(size-1)); at+size <= len(below); at += size {
		if bytes.Equal(below[at:at+size], back) {
			return false
		}
	}
	return true
}
