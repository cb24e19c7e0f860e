package sampler

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sort"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
	"sfsample/sampler/module"
	"sfsample/sampler/symbol/rootfs"
)

// Replay sends the records of a recording through pipe, as if they were
// captured now. The run record must have been read. A recording that was cut
// is used as far as it goes: the error is then io.ErrUnexpectedEOF.
func Replay(r *capture.Reader, pipe *Pipeline, files *Recorded) error {
	// Nothing waits between the two: a record may have 64 MB.
	items := make(chan capture.Record)
	done := make(chan struct{})
	var full error
	go func() {
		defer close(done)
		full = pipe.replay(items, files)
	}()
	err := readAll(r, items, done)
	close(items)
	<-done
	return cmp.Or(pipe.failed.err, full, err)
}

// readAll reads records until done is closed.
func readAll(r *capture.Reader, to chan<- capture.Record, done <-chan struct{}) error {
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case to <- rec:
		case <-done:
			return nil
		}
	}
}

func (p *Pipeline) replay(records <-chan capture.Record, files *Recorded) (err error) {
	end := p.out.begin(0)
	p.script.recorded = files.memory
	for rec := range records {
		pid := 0
		switch r := rec.(type) {
		case *capture.Maps:
			pid = r.PID
			files.set(r)
			if t := p.targets.all[r.PID]; t != nil && t.space != nil {
				if err := t.space.Refresh(); err != nil {
					p.cfg.Log.Warn("use the recorded mappings", "pid", r.PID, "err", err)
				}
			}
		case *capture.Capture:
			pid = r.PID
			p.capture(r, nil)
		case *capture.Credit:
			pid = r.PID
			p.credit(r)
		case *capture.Spent:
			pid = r.PID
			p.spent(r)
		case *capture.Gone:
			pid = r.PID
			p.targets.forget(r.PID)
			files.forget(r.PID)
		case *capture.Memory:
			pid = r.PID
			files.keep(r)
		case *capture.Name:
			pid = r.PID
			t := p.targets.of(r.PID)
			if r.TID == 0 {
				t.name = r.Name
			} else {
				t.thread(r.TID).name = r.Name
			}
		}
		if err = files.account(pid, p.targets.all); err != nil {
			break
		}
	}
	p.targets.closeAll()
	end()
	return err
}

// maxRecorded bounds what is kept of all processes of a recording at one time, in bytes.
var maxRecorded = 256 << 20

// recordedBytes is about what is kept of one process.
type recordedBytes struct{ maps, memory, target int }

func (b recordedBytes) sum() int { return b.maps + b.memory + b.target }

// account notes what is kept of a process. The error says that it is too much in all, even without what can be made again.
func (r *Recorded) account(pid int, targets map[int]*target) error {
	note := func(pid int) {
		b := r.kept[pid]
		r.total -= b.sum()
		if b.target = 0; targets[pid] != nil {
			b.target = targets[pid].bytes()
		}
		if r.kept[pid] = b; b.sum() == 0 {
			delete(r.kept, pid)
		}
		r.total += b.sum()
	}
	if note(pid); r.total <= maxRecorded {
		return nil
	}
	for pid, t := range targets {
		t.met.forget()
		note(pid)
	}
	if r.total <= maxRecorded {
		return nil
	}
	return fmt.Errorf("what it has of its processes takes more than %d MB at one time; what came before was used (try: a recording of fewer processes)", maxRecorded>>20)
}

// bytes is about what is kept of a process that was recorded.
func (t *target) bytes() int {
	n := 8<<10 + len(t.name) + 1<<10*len(t.threads) + 112*t.met.held + 300*len(t.met.frames)
	if t.scripts != nil {
		n += 1 << 10 * (len(t.scripts.functions) + len(t.scripts.lines))
	}
	return n
}

// Recorded holds the address spaces of a recording: mappings from its records,
// contents from the files that they name, if those are still the same: by build-id, without one by size and time of
// the last change, and where a recording of before has neither by device and inode, and as not
// changed since that began.
//
// It may be used by several goroutines.
type Recorded struct {
	start time.Time // of the recording

	mu   sync.Mutex
	maps map[int]*capture.Maps
	open map[recordedFile]module.File // nil: cannot be used
	// others are files that are not those of the recording.
	others []string

	// Of the goroutine that replays: memory by process and address, and what is kept.
	memory map[int]map[uint64][]byte
	kept   map[int]recordedBytes
	total  int
}

// recordedFile is a file that a recording names. Processes in different containers
// have different files of one name.
type recordedFile struct {
	path, buildID string
	// Without a build-id:
	written
	dev   procfs.Dev
	inode uint64
}

// NewRecorded returns a Recorded, of a recording that began at start, that knows no process yet.
func NewRecorded(start time.Time) *Recorded {
	return &Recorded{
		start: start, maps: map[int]*capture.Maps{}, open: map[recordedFile]module.File{},
		memory: map[int]map[uint64][]byte{}, kept: map[int]recordedBytes{},
	}
}

func (r *Recorded) set(m *capture.Maps) {
	slices.SortFunc(m.Regions, func(a, b capture.Region) int {
		if a.Start < b.Start {
			return -1
		}
		return 1
	})
	m.VDSO = bytes.Clone(m.VDSO) // a part of the record
	b := r.kept[m.PID]
	r.total -= b.maps
	b.maps = len(m.VDSO)
	for i := range m.Regions {
		const regionBytes = 256 // here, and of its mapping
		b.maps += regionBytes + len(m.Regions[i].Path) + len(m.Regions[i].BuildID)
	}
	r.total += b.maps
	r.kept[m.PID] = b
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maps[m.PID] = m
}

// keep keeps memory of a process.
func (r *Recorded) keep(m *capture.Memory) {
	const pieceBytes = 64 // of a map entry
	of, b := r.memory[m.PID], r.kept[m.PID]
	if of == nil {
		of = map[uint64][]byte{}
		r.memory[m.PID] = of
	}
	n := len(m.Bytes)
	if was, ok := of[m.Addr]; ok {
		n -= len(was)
	} else {
		n += pieceBytes
	}
	of[m.Addr] = bytes.Clone(m.Bytes) // a part of the record
	b.memory, r.total = b.memory+n, r.total+n
	r.kept[m.PID] = b
}

func (r *Recorded) forget(pid int) {
	r.total -= r.kept[pid].sum()
	delete(r.kept, pid)
	delete(r.memory, pid)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.maps, pid)
}

func (r *Recorded) process(pid int) *capture.Maps {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.maps[pid]
}

// Source is the process's part, for module.NewSpace.
func (r *Recorded) Source(pid int) module.Source { return &recordedSource{r, pid} }

// recordedSource is one process of a recording, as module.Source wants it.
type recordedSource struct {
	all *Recorded
	pid int
}

func (s *recordedSource) maps() []capture.Region {
	if m := s.all.process(s.pid); m != nil {
		return m.Regions
	}
	return nil
}

// Maps implements module.Source.
func (s *recordedSource) Maps() ([]procfs.Mapping, error) {
	var list []procfs.Mapping
	for _, r := range s.maps() {
		list = append(list, r.Mapping)
	}
	return list, nil
}

// ReadAt implements module.Source: it reads what the file behind a mapping
// holds. Memory that the process could write is not recorded.
func (s *recordedSource) ReadAt(p []byte, addr int64) (int, error) {
	done := 0
	for done < len(p) {
		a := uint64(addr) + uint64(done)
		r := s.regionAt(a)
		if r == nil {
			return done, fmt.Errorf("address %#x is not recorded", a)
		}
		n, err := s.read(r, p[done:done+int(min(uint64(len(p)-done), r.End-a))], a-r.Start)
		if done += n; err != nil || n == 0 {
			return done, cmp.Or(err, io.ErrUnexpectedEOF)
		}
	}
	return done, nil
}

// regionAt returns the region that holds addr, nil if there is none.
func (s *recordedSource) regionAt(addr uint64) *capture.Region {
	list := s.maps()
	i := sort.Search(len(list), func(i int) bool { return list[i].End > addr })
	if i == len(list) || addr < list[i].Start {
		return nil
	}
	return &list[i]
}

func (s *recordedSource) read(r *capture.Region, p []byte, off uint64) (int, error) {
	if r.Path == vdso {
		return readTail(bytes.NewReader(s.all.process(s.pid).VDSO), p, int64(off))
	}
	if r.Perms&procfs.Write != 0 && r.Perms&procfs.Exec == 0 {
		return 0, fmt.Errorf("writable memory at %#x is not recorded", r.Start+off)
	}
	f, err := s.file(r)
	if err != nil {
		return 0, err
	}
	return readTail(f, p, int64(r.Offset+off))
}

// readTail reads like memory that is mapped from a file: what lies behind the
// end of the file in its last page is zero.
func readTail(f io.ReaderAt, p []byte, off int64) (int, error) {
	n, err := f.ReadAt(p, off)
	if n > 0 && errors.Is(err, io.EOF) {
		clear(p[n:])
		return len(p), nil
	}
	return n, err
}

// file opens the file of a region once for all.
func (s *recordedSource) file(r *capture.Region) (module.File, error) {
	if r.Inode == 0 || r.Path == "" {
		return nil, fmt.Errorf("memory at %#x is not recorded", r.Start)
	}
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	key := recordedFile{path: r.Path, buildID: r.BuildID}
	if key.buildID == "" {
		key.written, key.dev, key.inode = written{r.Size, r.Modified}, r.Dev, r.Inode
	}
	if f, ok := s.all.open[key]; ok {
		if f == nil {
			return nil, fmt.Errorf("%s cannot be used", r.Path)
		}
		return f, nil
	}
	if len(s.all.open) >= maxRecordedFiles || len(r.Path) > unix.PathMax {
		return nil, fmt.Errorf("%s is one of more than %d files", r.Path, maxRecordedFiles)
	}
	f, err := openRegular(r.Path)
	if err == nil {
		if why := s.all.other(f, r); why != "" {
			f.Close()
			err = fmt.Errorf("%s %s", r.Path, why)
			m := s.all.maps[s.pid]
			if m != nil && slices.ContainsFunc(m.Regions, func(m capture.Region) bool { return m.Path == r.Path && m.Perms&procfs.Exec != 0 }) {
				s.all.others = append(s.all.others, err.Error())
			}
		}
	}
	if err != nil {
		s.all.open[key] = nil
		return nil, err
	}
	s.all.open[key] = f
	return f, nil
}

// maxRecordedFiles bounds the files of a recording.
const maxRecordedFiles = 1 << 14

// other tells why f is not the file of a region; empty: it is.
func (all *Recorded) other(f regularFile, r *capture.Region) string {
	const remedy = " (try: the machine of the recording, and the file as it was)"
	recorded := written{r.Size, r.Modified}
	if r.BuildID != "" {
		if id, _ := module.FileBuildID(f); id != r.BuildID {
			return fmt.Sprintf("has build-id %q, recorded was %s", id, r.BuildID) + remedy
		}
	} else if recorded != (written{}) {
		if writtenOf(f) != recorded {
			return "has no build-id, and another size or time of its last change than the one that was recorded" + remedy
		}
	} else if !rootfs.SameFile(f.File, r.Dev.Major, r.Dev.Minor, r.Inode) {
		return "has no build-id, and is another file by its inode than the one that was recorded" + remedy
	} else if writtenOf(f).modified > all.start.UnixNano() { // inodes are used again
		return "has no build-id, and was changed after the recording began" + remedy
	}
	return ""
}

// Others lists files with code that are not those of the recording, and why. Their frames are without names.
func (r *Recorded) Others() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.others)
}

// OpenFile implements module.Source. The caller's Close leaves the shared file
// open.
func (s *recordedSource) OpenFile(m procfs.Mapping) (module.File, error) {
	f, err := s.file(s.region(m))
	if err != nil {
		return nil, err
	}
	return keepOpen{f}, nil
}

func (s *recordedSource) region(m procfs.Mapping) *capture.Region {
	if r := s.regionAt(m.Start); r != nil && r.Start == m.Start {
		return r
	}
	return &capture.Region{Mapping: m}
}

type keepOpen struct{ module.File }

func (keepOpen) Close() error { return nil }

// Stat tells which file it is.
func (f keepOpen) Stat() (os.FileInfo, error) {
	if s, ok := f.File.(interface{ Stat() (os.FileInfo, error) }); ok {
		return s.Stat()
	}
	return nil, fs.ErrInvalid
}

// regularFile is a file of this machine.
type regularFile struct {
	*os.File
	size int64
}

func (f regularFile) Size() int64 { return f.size }

func openRegular(path string) (f regularFile, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return f, err
	}
	if !st.Mode().IsRegular() {
		return f, fmt.Errorf("%s is not a regular file", path)
	}
	file, err := os.Open(path)
	return regularFile{file, st.Size()}, err
}
