package rootfs

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// table is an open mountinfo file: the mounts of a process as it sees them, also after its end. It may be used by any
// number of goroutines.
type table struct {
	file   *os.File
	trusts bool

	mu     sync.Mutex
	list   *[]mount // nil: not read yet
	own    *[]mount // that judged was found with
	judged *Mounts  // of list
}

// openMounts opens the table of the process with this folder in /proc.
func openMounts(dir string) (*table, error) {
	t, err := openTable(dir)
	if err == nil {
		t.trusts = trusts(dir)
	}
	return t, err
}

// openTable opens a file that Go's runtime does not poll: it would take the changes that changed is to tell.
func openTable(dir string) (*table, error) {
	name := dir + "/mountinfo"
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return &table{file: os.NewFile(uintptr(fd), name)}, nil
}

// Close closes the file; a nil table has none.
func (t *table) Close() {
	if t != nil {
		t.file.Close()
	}
}

// ownMounts is our own table.
var ownMounts = sync.OnceValues(func() (*table, error) { return openTable("/proc/self") })

// now tells the mounts as they are now.
func (t *table) now() (*Mounts, error) {
	ownTable, err := ownMounts()
	if err != nil {
		return nil, err
	}
	own, err := ownTable.mounts()
	if err != nil {
		return nil, err
	}
	list, err := t.mounts()
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.judged == nil || t.own != own {
		t.judged, t.own = judgeMounts(*list, *own, t.trusts), own
	}
	return t.judged, nil
}

// mounts is the list as it is now. It is read again when the kernel tells of a change (mounts_poll, fs/proc_namespace.c).
func (t *table) mounts() (*[]mount, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if changed(int(t.file.Fd())) || t.list == nil {
		t.list, t.judged = nil, nil
		text, err := readMountinfo(t.file)
		if err != nil {
			return nil, err
		}
		list := parseMounts(text)
		t.list = &list
	}
	return t.list, nil
}

func changed(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLPRI}}
	for {
		n, err := unix.Poll(fds, 0)
		if err != unix.EINTR {
			return err != nil || n > 0
		}
	}
}

// trusts tells whether stacked file systems of the process with this folder in /proc that are not mounted in our own
// namespace are taken to lie where their options say, though whoever mounted them can have hidden a layer since
// (umount2(2), MNT_DETACH). Two kinds are: what has our user namespace, if we are in a container and so never see
// the mounts of others; and what has one that belongs to our own user, as container engines without root make it.
func trusts(dir string) bool {
	mounts, err := unix.Open(dir+"/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(mounts)
	user, err := unix.IoctlRetInt(mounts, unix.NS_GET_USERNS)
	if err != nil {
		return false
	}
	defer unix.Close(user)
	var theirs, ours unix.Stat_t
	if unix.Fstat(user, &theirs) != nil || unix.Stat("/proc/self/ns/user", &ours) != nil {
		return false
	}
	if theirs.Ino == ours.Ino {
		return contained()
	}
	uid, err := unix.IoctlGetUint32(user, unix.NS_GET_OWNER_UID)
	return err == nil && uid != 0 && int(uid) == unix.Geteuid()
}

// contained tells whether our own root is a container's.
func contained() bool {
	own, err := ownMounts()
	if err != nil {
		return false
	}
	list, err := own.mounts()
	if err != nil {
		return false
	}
	root := byPoint(*list)["/"]
	return root != nil && root.kind == "overlay"
}
