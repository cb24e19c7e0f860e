package procfs

import (
	"bytes"
	"fmt"
	"path/filepath"
)

// FileLock is one line of /proc/locks.
type FileLock struct {
	ID           int    // lines of one id: the lock that is held, and those that wait for it
	Waits        bool   // "->": not held, waits for the lock of the same id
	Kind         string // FLOCK POSIX OFDLCK LEASE …
	Mode         string // READ or WRITE
	PID          int    // -1: not known (an open file description's, or of another pid namespace)
	Major, Minor uint32
	Inode        uint64
	Range        string // "0 EOF", in bytes
}

// maxLocks bounds what is read of /proc/locks, in bytes.
const maxLocks = 8 << 20

// Locks reads the locks of all files on the machine, and whether the list is whole.
func (f FS) Locks() (locks []FileLock, whole bool, err error) {
	b, whole, err := readLocks(f)
	return ParseLocks(b), whole, err
}

// Leases reads the leases and delegations of all files on the machine, and whether the list is whole. Of other locks, which may be
// many, it takes no note.
func (f FS) Leases() (leases []FileLock, whole bool, err error) {
	b, whole, err := readLocks(f)
	for line := range bytes.Lines(b) {
		if bytes.Contains(line, []byte(" LEASE ")) || bytes.Contains(line, []byte(" DELEG ")) {
			leases = append(leases, ParseLocks(line)...)
		}
	}
	return leases, whole, err
}

func readLocks(f FS) (b []byte, whole bool, err error) {
	b, err = readFile(filepath.Join(f.root(), "locks"), maxLocks+1)
	return b, err == nil && len(b) <= maxLocks, err
}

// ParseLocks parses the content of /proc/locks (lock_get_status, fs/locks.c). Lines of
// another form are skipped.
func ParseLocks(b []byte) []FileLock {
	var list []FileLock
	for line := range bytes.Lines(b) {
		if l, ok := parseLock(line); ok {
			list = append(list, l)
		}
	}
	return list
}

func parseLock(b []byte) (l FileLock, ok bool) {
	id, rest, ok := decimal(spaces(b))
	words := bytes.Fields(bytes.TrimPrefix(rest, []byte(":")))
	if len(words) > 0 && string(words[0]) == "->" {
		l.Waits, words = true, words[1:]
	}
	if !ok || len(words) < 7 || id > 1<<31-1 {
		return l, false
	}
	l.ID, l.Kind, l.Mode = int(id), string(words[0]), string(words[2])
	pid, _, ok := signed(words[3])
	if !ok || pid > 1<<31-1 {
		return l, false
	}
	l.PID = int(max(pid, -1))
	if l.PID == 0 { // "0": its process is of a namespace that we do not see
		l.PID = -1
	}
	if _, err := fmt.Sscanf(string(words[4]), "%x:%x:%d", &l.Major, &l.Minor, &l.Inode); err != nil {
		return l, false
	}
	l.Range = string(words[5]) + " " + string(words[6])
	return l, true
}
