package symbol

import (
	"bytes"
	"cmp"
	"container/heap"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"sfsample/internal/late"
	"sfsample/sampler/symbol/rootfs"
)

// PerfMap names the code of a JIT compiler by the text file that it appends to,
// /tmp/perf-PID.map by convention: a line for each function with its start, its
// size, both in hex, and its name (the kernel's
// tools/perf/Documentation/jit-interface.txt). Addresses are those of the
// process.
//
// Of overlapping functions the one written last counts: compilers reuse memory.
// What has been read is kept as numbers; names are read when they are asked
// for. A PerfMap may be used by any number of goroutines.
type PerfMap struct {
	// Until, if set, ends the reading and sorting of lines once it is done. It is set
	// before the first look-up.
	Until *late.Time

	root *rootfs.Root
	path string
	uid  uint32

	mu      sync.Mutex
	file    *rootfs.File
	ino     fileID
	pos     int64         // how far lines were read
	took    time.Duration // what reading and sorting them has taken
	last    time.Time     // when that was done last
	entries []mapEntry
	merged  int // entries[:merged] are in segs, the others are newer
	segs    segments
	names   nameCache[int32]
	problem string
}

// mapEntry is one line.
type mapEntry struct {
	start uint64
	size  uint32
	name  uint16 // length of the name
	off   int64  // of the name in the file
}

func (e *mapEntry) end() uint64 { return e.start + uint64(e.size) }

type fileID struct{ dev, ino uint64 }

// Bounds of what is taken from a map. Node writes some 100 bytes for a function; half a
// million functions take 30 MB and a tenth of a second.
const (
	maxMapBytes   = 512 << 20
	maxMapEntries = 512 << 10
	maxMapSize    = 1 << 30 // bytes of one function
	// maxMapTail is how many lines are searched one by one before the segments are
	// made anew; where there are many already, it is one for mapTailShare of those: a
	// map that grows all the time would be sorted all the time.
	maxMapTail   = 512
	mapTailShare = 64
	// mapRest is for how many times as long as the reading of a file has taken no other one is read in its place:
	// who exchanges it all the time is not to take more than a twentieth of ours.
	mapRest = 20
	// mapRun is how many lines are sorted between two looks at the time.
	mapRun = 32 << 10
)

// NewPerfMap returns the map at path below root, which is the target's root: the
// number in the name is the pid that the process has in its own namespace.
// Nothing is opened yet, and the file may come to be later. A file that belongs
// neither to uid, the target's user, nor to root is refused: anyone may put one
// into /tmp.
func NewPerfMap(root *rootfs.Root, path string, uid uint32) *PerfMap {
	return &PerfMap{root: root, path: path, uid: uid}
}

// Close closes the file. No look-up may follow.
func (m *PerfMap) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.file == nil {
		return nil
	}
	err := m.file.Close()
	m.file = nil
	return err
}

// Problem says why the map, or a part of it, is not used; empty if all is well
// or there is none.
func (m *PerfMap) Problem() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.problem
}

// Lookup names the function at an address of the process. An address that is
// not known makes it read what was appended since.
func (m *PerfMap) Lookup(addr uint64) (Sym, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := m.find(addr)
	if i == none && m.refresh() {
		i = m.find(addr)
	}
	if i == none {
		return Sym{}, false
	}
	e := &m.entries[i]
	name := m.name(i)
	return Sym{Name: name, Start: e.start, Size: uint64(e.size), Source: "perf map"}, name != ""
}

// Refresh reads what was appended since the last look. A function whose memory
// was reused keeps its old name until then.
func (m *PerfMap) Refresh() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refresh()
}

func (m *PerfMap) find(addr uint64) int32 {
	for i := len(m.entries) - 1; i >= m.merged; i-- {
		if e := &m.entries[i]; addr >= e.start && addr < e.end() {
			return int32(i)
		}
	}
	s := m.segs.start
	i, found := slices.BinarySearch(s, addr)
	if !found {
		i--
	}
	if i < 0 {
		return none
	}
	return m.segs.id[i]
}

func (m *PerfMap) name(i int32) string {
	if name, ok := m.names.names[i]; ok {
		return name
	}
	e := &m.entries[i]
	b := make([]byte, e.name)
	n, _ := m.file.ReadAt(b, e.off)
	name := cut(string(b[:n]))
	m.names.keep(i, name)
	return name
}

// refresh reads new lines and reports whether there were any.
func (m *PerfMap) refresh() bool {
	size, err := m.reopen()
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			m.problem = err.Error()
		}
		return false
	}
	if size > maxMapBytes {
		size = maxMapBytes
		m.problem = fmt.Sprintf("perf map is larger than %d MB: the rest is not read", maxMapBytes>>20)
	}
	if size <= m.pos {
		return false
	}
	before, begun := len(m.entries), time.Now()
	defer func() {
		m.last = time.Now()
		m.took += m.last.Sub(begun)
	}()
	m.read(size)
	late := m.Until.Over()
	if len(m.entries)-m.merged > max(maxMapTail, m.merged/mapTailShare) {
		late = !m.merge()
	}
	if late {
		m.entries = m.entries[:min(len(m.entries), m.merged+maxMapTail)]
		m.problem = "perf map: no time was left to read it to its end"
	}
	return len(m.entries) > before
}

// reopen makes sure that the file is the one that the path leads to now, and
// returns its size. A new or shortened file begins from its start, but for mapRest: until then
// the size is as if nothing were new.
func (m *PerfMap) reopen() (int64, error) {
	f, err := m.root.OpenFile(m.path)
	if err != nil {
		return 0, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return 0, err
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok || sys.Uid != m.uid && sys.Uid != 0 {
		f.Close()
		return 0, fmt.Errorf("perf map %s belongs to neither the process's user nor root", m.path)
	}
	id := fileID{uint64(sys.Dev), sys.Ino}
	if m.file != nil && id == m.ino && st.Size() >= m.pos {
		f.Close()
		return st.Size(), nil
	}
	if m.file != nil && time.Since(m.last) < mapRest*m.took {
		f.Close()
		m.problem = fmt.Sprintf("perf map %s is exchanged more often than it can be read: functions without a name", m.path)
		return m.pos, nil
	}
	if m.file != nil {
		m.file.Close()
	}
	m.file, m.ino, m.pos, m.took = f, id, 0, 0
	m.entries, m.merged, m.segs = nil, 0, segments{}
	m.names = nameCache[int32]{}
	return st.Size(), nil
}

// read takes the whole lines up to size. The last line may still be growing.
func (m *PerfMap) read(size int64) {
	const chunk = 256 << 10
	r := io.NewSectionReader(m.file, m.pos, size-m.pos)
	buf := make([]byte, 0, chunk)
	skipping := false // inside a line that is longer than the buffer
	for len(m.entries) < maxMapEntries && !m.Until.Over() {
		n, err := r.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		used := 0
		for {
			end := bytes.IndexByte(buf[used:], '\n')
			if end < 0 {
				break
			}
			if !skipping {
				m.line(buf[used:used+end], m.pos+int64(used))
			}
			skipping = false
			used += end + 1
		}
		if used == 0 && len(buf) == cap(buf) {
			if !skipping {
				m.line(buf, m.pos) // the name is cut anyway
			}
			skipping, used = true, len(buf)
		}
		m.pos += int64(used)
		buf = buf[:copy(buf[:cap(buf)], buf[used:])]
		if err != nil {
			return
		}
	}
	m.problem = fmt.Sprintf("perf map has more than %d functions: the rest is not read", maxMapEntries)
}

// line parses one line, which lies at off in the file. Lines that make no sense
// are passed over.
func (m *PerfMap) line(b []byte, off int64) {
	whole := len(b)
	start, b, ok1 := hexField(b)
	size, b, ok2 := hexField(b)
	if !ok1 || !ok2 || len(b) == 0 || size == 0 || size > maxMapSize || start > ^uint64(0)-size || len(m.entries) >= maxMapEntries {
		return
	}
	m.entries = append(m.entries, mapEntry{
		start: start, size: uint32(size), name: uint16(min(len(b), maxName)), off: off + int64(whole-len(b)),
	})
}

// hexField parses a hex number, with or without 0x, and the blanks after it.
func hexField(b []byte) (v uint64, rest []byte, ok bool) {
	i := bytes.IndexByte(b, ' ')
	if i <= 0 || i > 18 {
		return 0, b, false
	}
	digits := b[:i]
	if len(digits) > 2 && digits[0] == '0' && digits[1] == 'x' {
		digits = digits[2:]
	}
	v, err := strconv.ParseUint(string(digits), 16, 64)
	return v, bytes.TrimLeft(b[i:], " "), err == nil
}

// newest is a heap of entries, the last one first.
type newest []int32

func (h newest) Len() int           { return len(h) }
func (h newest) Less(i, j int) bool { return h[i] > h[j] }
func (h newest) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *newest) Push(x any)        { *h = append(*h, x.(int32)) }
func (h *newest) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// sorted returns the numbers of all entries by their start, of one start the oldest first; nil
// if there is no time for that.
func (m *PerfMap) sorted() []int32 {
	order, other := make([]int32, len(m.entries)), make([]int32, len(m.entries))
	for i := range order {
		order[i] = int32(i)
	}
	byStart := func(a, b int32) int {
		return cmp.Or(cmp.Compare(m.entries[a].start, m.entries[b].start), cmp.Compare(a, b))
	}
	for run := range slices.Chunk(order, mapRun) {
		if m.Until.Over() {
			return nil
		}
		slices.SortFunc(run, byStart)
	}
	for n := mapRun; n < len(order); n *= 2 { // runs of n become runs of 2n
		out := other[:0]
		for two := range slices.Chunk(order, 2*n) {
			a, b := two[:min(n, len(two))], two[min(n, len(two)):]
			for len(a) > 0 && len(b) > 0 {
				if len(out)%mapRun == 0 && m.Until.Over() {
					return nil
				}
				if byStart(a[0], b[0]) < 0 {
					out, a = append(out, a[0]), a[1:]
				} else {
					out, b = append(out, b[0]), b[1:]
				}
			}
			out = append(append(out, a...), b...)
		}
		order, other = out, order
	}
	return order
}

// merge makes the segments of all entries: at each address the newest. It returns false if
// there was no time for that; then they are as before.
func (m *PerfMap) merge() bool {
	order := m.sorted()
	if order == nil {
		return len(m.entries) == 0
	}
	var segs segments
	var active newest
	pos := uint64(0)
	// fill makes the segments from pos up to limit.
	fill := func(limit uint64) {
		for pos < limit && len(active) > 0 {
			top := &m.entries[active[0]]
			if top.end() <= pos {
				heap.Pop(&active)
				continue
			}
			segs.piece(pos, active[0])
			pos = min(top.end(), limit)
			if pos == top.end() {
				heap.Pop(&active)
			}
			segs.piece(pos, none)
		}
		pos = limit
	}
	for n, i := range order {
		if n%mapRun == 0 && m.Until.Over() {
			return false
		}
		fill(m.entries[i].start)
		heap.Push(&active, i)
	}
	fill(^uint64(0))
	m.segs, m.merged = segs, len(m.entries)
	return true
}
