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

	mu   sync.Mutex // nothing is opened under it
	maps []procfs.Mapping
	dead bool
	// offered: maps were read by somebody else, at the time that counts.
	offered bool

	opens sync.Mutex                    // guards what follows
	root  *rootfs.Root                  // of the process; outlives it
	files map[survivorFile]*rootfs.File // nil: cannot be used
}

// survivorFile is a file of the process, as its mappings tell.
type survivorFile struct {
	dev   procfs.Dev
	inode uint64
	path  string
}

// NewSurvivor returns the source of process pid, whose mappings are read within the bounds of lists.
func NewSurvivor(pid int, lists *module.Lists) *Survivor {
	s := &Survivor{Live: module.NewLive(pid, lists), files: map[survivorFile]*rootfs.File{}}
	var err error
	s.root, err = rootfs.Open(fmt.Sprintf("/proc/%d/root", pid))
	if err != nil && !errors.Is(err, rootfs.ErrRemote) { // gone already: most processes have our own root
		s.root, _ = rootfs.Open("/")
	}
	return s
}

// Close closes the files that were opened.
func (s *Survivor) Close() {
	s.Live.Close()
	s.opens.Lock()
	defer s.opens.Unlock()
	for _, f := range s.files {
		if f != nil {
			f.Close()
		}
	}
	s.files = nil
	if s.root != nil {
		s.root.Close()
		s.root = nil
	}
}

// Maps implements module.Source.
func (s *Survivor) Maps() ([]procfs.Mapping, error) {
	if maps := s.takeOffer(); maps != nil {
		return maps, nil
	}
	maps, err := s.Live.Maps()
	s.mu.Lock()
	defer s.mu.Unlock()
	if (err != nil && !module.Refused(err) || err == nil && len(maps) == 0) && len(s.maps) > 0 {
		return s.maps, nil
	}
	if err == nil {
		s.maps = maps
	}
	return maps, err
}

func (s *Survivor) takeOffer() []procfs.Mapping {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.offered {
		return nil
	}
	s.offered = false
	return s.maps
}

// Offer gives the mappings as somebody else has read them, for the case that the
// process is gone, or another program, by the time that they are asked for.
func (s *Survivor) Offer(maps []procfs.Mapping) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.maps, s.offered = maps, true
}

// ReadAt implements module.Source.
func (s *Survivor) ReadAt(p []byte, addr int64) (int, error) {
	if !s.isDead() {
		n, err := s.Live.ReadAt(p, addr)
		if !errors.Is(err, unix.ESRCH) {
			return n, err
		}
	}
	m := s.lastMapping(uint64(addr))
	if m == nil || m.Perms&procfs.Write != 0 {
		return 0, unix.ESRCH // what it held is lost
	}
	f, err := s.file(m)
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

// lastMapping notes that the process is dead, and returns its last mapping at addr, nil: there was none.
func (s *Survivor) lastMapping(addr uint64) *procfs.Mapping {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
	return mappingAt(s.maps, addr)
}

func (s *Survivor) isDead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead
}

// OpenFile implements module.Source.
func (s *Survivor) OpenFile(m procfs.Mapping) (module.File, error) {
	f, err := s.Live.OpenFile(m)
	if err == nil || errors.Is(err, rootfs.ErrSilent) {
		return f, err
	}
	if own, ferr := s.file(&m); ferr == nil {
		return own.Duplicate()
	}
	return nil, err
}

// file opens the file of a mapping by its name below the process's root, if it
// is still the one that was mapped.
func (s *Survivor) file(m *procfs.Mapping) (*rootfs.File, error) {
	s.opens.Lock()
	defer s.opens.Unlock()
	key := survivorFile{m.Dev, m.Inode, m.Path}
	if f, ok := s.files[key]; ok {
		if f == nil {
			return nil, unix.ESRCH
		}
		return f, nil
	}
	if s.root == nil || !m.File() || s.files == nil {
		return nil, unix.ESRCH
	}
	f, err := s.root.OpenFile(m.Path)
	if err != nil {
		s.files[key] = nil
		return nil, err
	}
	if !f.Is(m.Dev.Major, m.Dev.Minor, m.Inode) {
		f.Close()
		s.files[key] = nil
		return nil, unix.ESRCH
	}
	s.files[key] = f
	return f, nil
}
