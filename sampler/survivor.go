package sampler

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
	"sfsample/sampler/module"
	"sfsample/sampler/symbol/rootfs"
)

// Survivor is a live process as a module.Source, which goes on answering when
// the process has ended: from the mappings as they were last read, and from the
// files behind them. So the last captures of a process can be unwound and named
// after its death. It may be used by several goroutines.
type Survivor struct {
	*module.Live

	last  lastMaps
	files survivorFiles
}

// lastMaps are the mappings of a process as they were last read.
type lastMaps struct {
	mu   sync.Mutex // nothing is opened under it
	list []procfs.Mapping
	dead bool // the process is
	// offered: they were read by somebody else, at the time that counts.
	offered bool
}

// survivorFiles are the files of a process, by their names below its root, which outlive it.
type survivorFiles struct {
	mu   sync.Mutex
	root *rootfs.Root
	open map[survivorFile]*rootfs.File // nil: cannot be used
}

var _ module.Vector = (*Survivor)(nil)

// survivorFile is a file of the process, as its mappings tell.
type survivorFile struct {
	dev   procfs.Dev
	inode uint64
	path  string
}

// NewSurvivor returns the source of process pid, whose mappings are read within the bounds of lists.
func NewSurvivor(pid int, lists *module.Lists) *Survivor {
	s := &Survivor{Live: module.NewLive(pid, lists), files: survivorFiles{open: map[survivorFile]*rootfs.File{}}}
	var err error
	s.files.root, err = rootfs.Open(fmt.Sprintf("/proc/%d/root", pid))
	if err != nil && !errors.Is(err, rootfs.ErrRemote) { // gone already: most processes have our own root
		s.files.root, _ = rootfs.Open("/")
	}
	return s
}

// Close closes the files that were opened.
func (s *Survivor) Close() {
	s.Live.Close()
	s.files.close()
}

func (s *survivorFiles) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.open {
		if f != nil {
			f.Close()
		}
	}
	s.open = nil
	if s.root != nil {
		s.root.Close()
		s.root = nil
	}
}

// Maps implements module.Source.
func (s *Survivor) Maps() ([]procfs.Mapping, error) {
	l := &s.last
	if maps := l.takeOffer(); maps != nil {
		return maps, nil
	}
	maps, err := s.Live.Maps()
	l.mu.Lock()
	defer l.mu.Unlock()
	if (err != nil && !module.Refused(err) || err == nil && len(maps) == 0) && len(l.list) > 0 {
		return l.list, nil
	}
	if err == nil {
		l.list = maps
	}
	return maps, err
}

func (l *lastMaps) takeOffer() []procfs.Mapping {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.offered {
		return nil
	}
	l.offered = false
	return l.list
}

// Offer gives the mappings as somebody else has read them, for the case that the
// process is gone, or another program, by the time that they are asked for.
func (s *Survivor) Offer(maps []procfs.Mapping) {
	s.last.mu.Lock()
	defer s.last.mu.Unlock()
	s.last.list, s.last.offered = maps, true
}

// ReadAt implements module.Source.
func (s *Survivor) ReadAt(p []byte, addr int64) (int, error) {
	if !s.last.isDead() {
		n, err := s.Live.ReadAt(p, addr)
		if !errors.Is(err, unix.ESRCH) {
			return n, err
		}
	}
	m := s.last.of(uint64(addr))
	if m == nil || m.Perms&procfs.Write != 0 {
		return 0, unix.ESRCH // what it held is lost
	}
	f, err := s.files.of(m)
	if err != nil {
		return 0, err
	}
	off := uint64(addr) - m.Start
	n, err := readTail(f, p[:min(uint64(len(p)), m.End-uint64(addr))], int64(m.Offset+off))
	if err == nil && n < len(p) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// of notes that the process is dead, and returns its last mapping at addr, nil: there was none.
func (l *lastMaps) of(addr uint64) *procfs.Mapping {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = true
	return mappingAt(l.list, addr)
}

func (l *lastMaps) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// OpenFile implements module.Source.
func (s *Survivor) OpenFile(m procfs.Mapping) (module.File, error) {
	f, err := s.Live.OpenFile(m)
	if err == nil || errors.Is(err, rootfs.ErrSilent) {
		return f, err
	}
	if own, ferr := s.files.of(&m); ferr == nil {
		return own.Duplicate()
	}
	return nil, err
}

// of opens the file of a mapping, if it is still the one that was mapped.
func (s *survivorFiles) of(m *procfs.Mapping) (*rootfs.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := survivorFile{m.Dev, m.Inode, m.Path}
	if f, ok := s.open[key]; ok {
		if f == nil {
			return nil, unix.ESRCH
		}
		return f, nil
	}
	if s.root == nil || !m.File() || s.open == nil {
		return nil, unix.ESRCH
	}
	f, err := s.root.OpenFile(m.Path)
	if err != nil {
		s.open[key] = nil
		return nil, err
	}
	if !f.Is(m.Dev.Major, m.Dev.Minor, m.Inode) {
		f.Close()
		s.open[key] = nil
		return nil, unix.ESRCH
	}
	s.open[key] = f
	return f, nil
}
