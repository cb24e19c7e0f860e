package procfs

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// FS reads a proc file system. The zero value reads /proc.
//
// Where a method takes an id, the id of any thread does as well as that of a
// process: the kernel has a hidden folder for each. When a process's leader
// has exited, maps, exe and auxv are readable by the id of a live thread only
// (see [FS.LiveTask]).
//
// Errors satisfy errors.Is for fs.ErrNotExist or ESRCH (the thread is gone)
// and fs.ErrPermission (see [FS.Permission] for the reason).
type FS struct {
	Root string // folder in place of /proc
}

// Bounds on what is read of a file, in bytes. A process can make its maps and
// its command line long.
const (
	maxSmall = 64 << 10 // of one record
	maxMaps  = 64 << 20
)

func (f FS) root() string {
	if f.Root == "" {
		return "/proc"
	}
	return f.Root
}

// Path is the path of a file of process or thread id, for callers that keep it
// open: FS.Path(pid, "map_files").
func (f FS) Path(id int, elem ...string) string {
	return filepath.Join(f.root(), strconv.Itoa(id), filepath.Join(elem...))
}

// record parses a file of one record, which is read whole.
func record[T any](path string, parse func([]byte) (T, error)) (v T, err error) {
	b, err := readFile(path, maxSmall+1)
	if err == nil && len(b) > maxSmall {
		err = &fs.PathError{Op: "read", Path: path, Err: ErrTooLong}
	}
	if err != nil {
		return v, err
	}
	return parse(b)
}

// ErrTooLong is the error of a file that a process has made long.
var ErrTooLong = errors.New("longer than any that is plausible")

// Maps reads the mappings of id as long as more, if there is one, has no error: it is asked after each piece, with how much of the
// text was read and what the list takes by then, in bytes. ESRCH: it is ending.
func (f FS) Maps(id int, more func(text, list int) error) ([]Mapping, error) {
	p, text := mapsParser{}, 0
	path := f.Path(id, "maps")
	err := readPieces(path, func(piece []byte) error {
		if text += len(piece); text > maxMaps {
			return &fs.PathError{Op: "read", Path: path, Err: ErrTooLong}
		}
		if err := p.parse(piece); err != nil || more == nil {
			return err
		}
		return more(text, p.bytes)
	})
	if err == nil {
		err = stillThere(f, id)
	}
	if err != nil {
		return nil, err
	}
	return p.end()
}

// stillThere tells whether what was read of maps is whole for certain: it is read piece by piece, and ends where its memory did meanwhile
// (m_start, fs/proc/task_mmu.c), unless the thread still has that afterwards.
func stillThere(f FS, id int) error {
	if s, err := f.Task(id, id).Stat(); err != nil || s.Flags&FlagExiting != 0 { // not f.Stat, which sums up the times of all threads
		return errNoProcess
	}
	return nil
}

// Status reads the status of thread id (of the leader, if id is a process).
func (f FS) Status(id int) (Status, error) { return record(f.Path(id, "status"), ParseStatus) }

// Stat reads the stat file of a process: times are those of all its threads.
func (f FS) Stat(id int) (Stat, error) { return record(f.Path(id, "stat"), ParseStat) }

// Personality reads the execution domain of a process (personality(2)).
func (f FS) Personality(pid int) (uint32, error) {
	return record(f.Path(pid, "personality"), parsePersonality)
}

func parsePersonality(b []byte) (uint32, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 16, 32)
	if err != nil {
		return 0, syntaxError("personality", 1, "no number", b)
	}
	return uint32(n), nil
}

// Cmdline reads the arguments of a process, of which a very long list is cut.
// It is empty for a zombie and for a thread of the kernel, and holds what the
// process made of it.
func (f FS) Cmdline(id int) ([]string, error) {
	b, err := readFile(f.Path(id, "cmdline"), maxSmall)
	if err != nil || len(b) == 0 {
		return nil, err
	}
	return strings.Split(strings.TrimRight(string(b), "\x00"), "\x00"), nil
}

// Auxv reads the auxiliary vector of a process; order and wordBytes are those
// of its memory.
func (f FS) Auxv(id int, order binary.ByteOrder, wordBytes int) ([]Aux, error) {
	b, err := readFile(f.Path(id, "auxv"), maxSmall)
	if err != nil {
		return nil, err
	}
	return ParseAuxv(b, order, wordBytes), nil
}

// Exe reads the path of the executable, and whether it is marked as deleted.
func (f FS) Exe(id int) (path string, deleted bool, err error) {
	path, err = os.Readlink(f.Path(id, "exe"))
	path, deleted = strings.CutSuffix(path, deletedMark)
	return path, deleted, err
}
