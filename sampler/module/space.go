package module

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sort"
	"strings"
	"time"

	"sfsample/ptrace/procfs"
	"sfsample/regs"
	"sfsample/sframe"
	"sfsample/unwind"
	"sfsample/unwind/code"
)

// Options are settings of a Space. The zero value is the default.
type Options struct {
	// Owner tells whose memory it is: Spaces with different owners share
	// nothing. A live process's is its user.
	Owner uint32
	// NoEHFrame: .eh_frame is not going to be asked, so that a .sframe table of
	// version 1 answers before it.
	NoEHFrame bool
	// Log takes a debug record for each table put aside; nil: none.
	Log *slog.Logger
	// Now is the clock for bounding how often the mappings are read; nil:
	// time.Now.
	Now func() time.Time
}

// silent is for who wants no records.
var silent = slog.New(slog.DiscardHandler)

// Space is the code of one process: an unwind.Space. It is for one goroutine at
// a time.
type Space struct {
	access *access
	cache  *Cache

	mapped  mapped
	gen     uint64
	listed  time.Time
	misses  misses
	notELF  map[fileID]bool // mapped files that have no ELF header
	buf     [maxProbe]byte
	history history
	stay    lasting
	verify  comparison
	free    freeCode
	jit     jitCode
}

// access is how a Space and its modules read their process.
type access struct {
	src Source
	opt Options
}

// mapped is what one list of mappings tells.
type mapped struct {
	maps    []procfs.Mapping // all, in ascending order
	code    codeRanges
	modules []*Module // by address
	byID    map[moduleID]*Module
	owners  map[uint64]*Module // by the start of a mapping
}

// codeRanges are the executable mappings, in ascending order.
type codeRanges struct {
	list []codeRange
	last int // index of the last hit
}

// codeRange is an executable mapping.
type codeRange struct {
	start, end uint64
	mapping    int       // index in mapped.maps
	mod        *Module   // nil: no ELF object
	since      time.Time // it was first seen to be of that
	unread     bool      // the header of an object could not be read: what there is of it is not known
}

var _ interface {
	unwind.Space
	unwind.Layout
	unwind.Follower
	unwind.Stacks
	unwind.Origins
} = (*Space)(nil)

// NewSpace returns a Space that reads src and keeps what it read of objects in
// cache. Nothing is read before the first question or Refresh.
func NewSpace(src Source, cache *Cache, opt Options) *Space {
	if opt.Log == nil {
		opt.Log = silent
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	s := &Space{access: &access{src, opt}, cache: cache, gen: 1, notELF: map[fileID]bool{}}
	s.free.in, s.jit.in = s, s
	return s
}

// Close gives the objects back to the cache. The Space is not used afterwards;
// its Modules can still open files.
func (s *Space) Close() {
	for _, m := range s.mapped.modules {
		s.cache.release(m.obj)
	}
	s.mapped = mapped{}
}

// Listed is when the list of mappings had been read last. What was found by it was
// read later.
func (s *Space) Listed() time.Time { return s.listed }

// Generation implements unwind.Space.
func (s *Space) Generation() uint64 { return s.gen }

// find returns the range that holds pc.
func (c *codeRanges) find(pc uint64) *codeRange {
	if c.last < len(c.list) {
		if r := &c.list[c.last]; r.start <= pc && pc < r.end {
			return r
		}
	}
	lo, hi := 0, len(c.list)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if c.list[mid].end <= pc {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(c.list) && c.list[lo].start <= pc {
		c.last = lo
		return &c.list[lo]
	}
	return nil
}

// cover is find, with the mappings read anew if they do not hold pc.
func (s *Space) cover(pc uint64) *codeRange {
	if r := s.mapped.code.find(pc); r != nil || !s.missed(pc) {
		return r
	}
	return s.mapped.code.find(pc)
}

// missed reads the mappings anew for want of addr, if that is worth it.
func (s *Space) missed(addr uint64) bool {
	if !s.misses.worthIt(addr, s.access.opt.Now(), s.history.was(addr)) {
		return false
	}
	before, begun := s.gen, s.access.opt.Now()
	if err := s.Refresh(); err != nil {
		s.access.opt.Log.Debug("mappings not read", "reason", err.Error())
	}
	s.misses.note(addr, s.gen != before, begun, s.access.opt.Now())
	return true
}

// Executable implements unwind.Space.
func (s *Space) Executable(pc uint64) bool { return s.cover(pc) != nil }

// Origin implements unwind.Origins. The mapping may have no name, one that the program has
// given it, or be of memory that only looks like a file (memfd_create(2)).
func (s *Space) Origin(pc uint64) (code, object bool) {
	r := s.mapped.code.find(pc)
	if r == nil {
		return false, false
	}
	// Files that are no objects hold what was compiled before (SBCL's core), by rules of its own.
	m := &s.mapped.maps[r.mapping]
	return r.mod != nil || m.Path == "" || m.Path[0] == '[' || strings.HasPrefix(m.Path, "/memfd:"), r.mod != nil
}

// Calls implements unwind.Origins, by the function's start in a table. A call may go by an entry of a linkage table, whose slot in
// memory tells where that goes.
func (s *Space) Calls(ra, pc uint64) (calls, known bool) {
	f, ok := s.Function(pc)
	from, of := s.mapped.code.find(ra-1), s.mapped.code.find(pc)
	if !ok || from == nil || from.mod == nil || from.mod.Arch == nil || of == nil || of.mod == nil {
		return false, false
	}
	start := f.Start + of.mod.Bias
	to, ok := callee(from.mod, ra)
	if !ok {
		to, ok = slotted(s, slotCalled(s, ra))
		return ok && to == start, ok && to == start // it may have held another address
	}
	if slot := linkage(s, to); to != start && slot != 0 {
		to, ok = slotted(s, slot)
	}
	return ok && to == start, ok
}

// slotted is the address in a slot; ok is false where that cannot be read: recordings hold no such memory.
func slotted(s *Space, slot uint64) (addr uint64, ok bool) {
	var b [8]byte
	n, err := s.access.src.ReadAt(b[:], int64(slot))
	return binary.LittleEndian.Uint64(b[:]), slot != 0 && n == len(b) && err == nil
}

// slotCalled is the address of the slot that the call of x86-64 before ra goes through, relative to it (FF 15, Intel SDM volume 2), else 0.
func slotCalled(s *Space, ra uint64) (slot uint64) {
	var b [6]byte
	r := s.mapped.code.find(ra - 1)
	if r == nil || r.mod == nil || r.mod.Arch != regs.AMD64 || s.Code(ra-6, b[:]) < len(b) || b[0] != 0xff || b[1] != 0x15 {
		return 0
	}
	return ra + uint64(int64(int32(binary.LittleEndian.Uint32(b[2:]))))
}

// callee is where the direct call goes that ends at ra, both in memory.
func callee(m *Module, ra uint64) (addr uint64, ok bool) {
	m.obj.lock(m)
	defer m.obj.unlock()
	addr, ok = code.Target(m.Arch, ra-m.Bias, m.obj.mem.code)
	return addr + m.Bias, ok
}

// linkage is the address of the slot by which the code at pc jumps on, if that is an entry of a linkage table of x86-64 (its psABI,
// section 5.2), with endbr64 and bnd or without; else 0.
func linkage(s *Space, pc uint64) (slot uint64) {
	var b [12]byte
	r := s.mapped.code.find(pc)
	if r == nil || r.mod == nil || r.mod.Arch != regs.AMD64 || s.Code(pc, b[:]) < len(b) {
		return 0
	}
	at := b[:]
	at = bytes.TrimPrefix(at, []byte{0xf3, 0x0f, 0x1e, 0xfa})
	at = bytes.TrimPrefix(at, []byte{0xf2})
	if at[0] != 0xff || at[1] != 0x25 {
		return 0
	}
	after := pc + uint64(len(b)-len(at)) + 6
	return after + uint64(int64(int32(binary.LittleEndian.Uint32(at[2:]))))
}

// Row implements unwind.Space.
func (s *Space) Row(pc uint64, how unwind.How) (*sframe.Row, error) {
	r := s.cover(pc)
	if r != nil && r.unread && s.missed(pc) {
		r = s.mapped.code.find(pc)
	}
	switch {
	case r == nil:
		return nil, sframe.ErrNoRow
	case r.unread:
		return nil, unwind.ErrUnread
	case r.mod == nil && how == unwind.EHFrame:
		return s.jit.row(pc)
	case r.mod == nil:
		return nil, sframe.ErrNoRow
	}
	r.mod.asked = true
	return r.mod.obj.row(r.mod, pc-r.mod.Bias, how)
}

// Code implements unwind.Space. It stops at the end of the executable mapping.
func (s *Space) Code(pc uint64, b []byte) int {
	r := s.cover(pc)
	if r == nil {
		return 0
	}
	b = b[:min(uint64(len(b)), r.end-pc)]
	n, err := s.access.src.ReadAt(b, int64(pc))
	if err != nil && n == 0 {
		return 0
	}
	if r.mod != nil && !s.stay.has(s, r.mod) { // another one may have come since the last look, whose code says nothing of this one's frames
		if same, err := r.mod.unchanged(s.buf[:]); !same || err != nil {
			return 0
		}
	}
	return n
}

// Mapping implements unwind.Layout: the bounds of the mapping that holds addr,
// joined with neighbours of equal rights. A stack that grew since the mappings
// were read still ends where it did.
func (s *Space) Mapping(addr uint64) (start, end uint64, ok bool) {
	i, ok := s.mapped.at(addr)
	if !ok {
		return 0, 0, false
	}
	lo, hi := i, i
	for lo > 0 && s.mapped.maps[lo-1].End == s.mapped.maps[lo].Start && s.mapped.maps[lo-1].Perms == s.mapped.maps[i].Perms {
		lo--
	}
	for hi+1 < len(s.mapped.maps) && s.mapped.maps[hi+1].Start == s.mapped.maps[hi].End && s.mapped.maps[hi+1].Perms == s.mapped.maps[i].Perms {
		hi++
	}
	return s.mapped.maps[lo].Start, s.mapped.maps[hi].End, true
}

// Writable implements unwind.Stacks. Stacks may be younger than the list of mappings.
func (s *Space) Writable(addr uint64) bool {
	writable := func() bool {
		const both = procfs.Read | procfs.Write
		i, ok := s.mapped.at(addr)
		return ok && s.mapped.maps[i].Perms&both == both
	}
	return writable() || s.missed(addr) && writable()
}

// VDSO implements unwind.Layout.
func (s *Space) VDSO(pc uint64) bool {
	r := s.mapped.code.find(pc)
	return r != nil && r.mod != nil && r.mod.VDSO()
}

// at is the index of the mapping that holds addr, of a file or not.
func (m *mapped) at(addr uint64) (int, bool) {
	i := sort.Search(len(m.maps), func(i int) bool { return m.maps[i].End > addr })
	return i, i < len(m.maps) && m.maps[i].Start <= addr
}

// Module returns the object that has pc mapped, and pc's link-time address
// there. ok is false for what is of no object. Mappings are not read anew.
func (s *Space) Module(pc uint64) (m *Module, vaddr uint64, ok bool) {
	if r := s.mapped.code.find(pc); r != nil {
		m = r.mod
	} else if i, found := s.mapped.at(pc); found {
		m = s.mapped.owners[s.mapped.maps[i].Start]
	}
	if m == nil {
		return nil, 0, false
	}
	m.asked = true
	return m, pc - m.Bias, true
}

// Modules returns the objects with code, by address. The caller must not change them.
func (s *Space) Modules() []*Module { return s.mapped.modules }

// errNoMemory: a zombie's mappings can be read, there are none.
var errNoMemory = errors.New("the process has no memory (it has exited)")

// Source is what the process is read through.
func (s *Space) Source() Source { return s.access.src }

// readRanges reads pieces of memory to buf, one behind the other, at the price of few if the source can. It returns how many
// bytes there were up to the first piece that could not be read.
func readRanges(src Source, buf []byte, list []Range) (done int, err error) {
	if v, ok := src.(Vector); ok {
		return v.ReadRanges(buf, list)
	}
	for _, r := range list {
		n, err := src.ReadAt(buf[done:done+r.Size], int64(r.Addr))
		if done += n; err != nil {
			return done, err
		}
	}
	return done, nil
}

// Refresh reads the mappings. Modules whose mappings and headers are as before
// stay the same; Generation changes if anything that bears on code did. After
// an error the Space is as it was.
func (s *Space) Refresh() error {
	maps, err := s.access.src.Maps()
	if err != nil {
		return err
	}
	s.listed = s.access.opt.Now()
	if len(maps) == 0 {
		return errNoMemory
	}
	byStart := func(a, b procfs.Mapping) int { return cmp.Compare(a.Start, b.Start) }
	if !slices.IsSortedFunc(maps, byStart) {
		slices.SortFunc(maps, byStart)
	}
	old, now := s.mapped, newBuilder(s, maps).build()
	if len(old.maps) > 0 {
		s.history.compare(old.code.list, now.code.list)
	}
	s.mapped = now
	for _, m := range old.modules {
		if now.byID[m.id] != m {
			s.jit.forget(m)
			s.cache.release(m.obj)
		}
	}
	if !slices.EqualFunc(old.code.list, now.code.list, func(x, y codeRange) bool {
		return x.start == y.start && x.end == y.end && x.mod == y.mod
	}) {
		s.free.forget()
	}
	s.jit.changed()
	return nil
}

// Verify compares the objects in memory with what is known of them, and reads
// the mappings anew if one differs: a library that was unloaded and another
// loaded in its place leaves no other trace. It costs one system call that reads
// some hundred bytes of each object. changed tells that answers given since the
// last Verify may have been of an object that was no longer there.
func (s *Space) Verify() (changed bool, err error) {
	before := s.gen
	if !s.verify.unchanged(s.access.src, s.mapped.modules) {
		if err = s.Refresh(); err == nil && s.gen == before {
			err = unread(s.mapped.modules)
		}
	}
	s.free.changed()
	s.jit.changed()
	return s.gen != before, err
}

// unread returns why modules could not be compared with memory, nil if all were.
func unread(modules []*Module) error {
	for _, m := range modules {
		if m.unread != nil {
			return fmt.Errorf("compare %s with memory: %w", m.Path, m.unread)
		}
	}
	return nil
}

// maxVerify bounds what Verify reads, in bytes.
const maxVerify = 1 << 20

// comparison compares modules with memory. It keeps the room that this takes.
type comparison struct {
	ranges []Range
	buf    []byte
}

// unchanged tells whether the modules are where they were.
func (c *comparison) unchanged(src Source, modules []*Module) bool {
	size := 0
	c.ranges = c.ranges[:0]
	for _, m := range modules {
		if m.proven = size+maxProbe <= maxVerify; !m.proven {
			continue
		}
		if len(m.probes.list) == 0 {
			return false // known by its mappings only
		}
		for _, p := range m.probes.list {
			c.ranges = append(c.ranges, Range{p.addr, len(p.data)})
			size += len(p.data)
		}
	}
	if size == 0 {
		return true
	}
	if size > len(c.buf) {
		c.buf = make([]byte, size+size/4)
	}
	if n, err := readRanges(src, c.buf[:size], c.ranges); n < size || err != nil {
		return false
	}
	at := c.buf
	for _, m := range modules {
		for _, p := range m.probes.list {
			if !m.proven {
				break
			}
			if !bytes.Equal(at[:len(p.data)], p.data) {
				return false
			}
			at = at[len(p.data):]
		}
	}
	return true
}

// misses bounds how often the mappings are read because of an address that
// none of them holds. A stack that ends in garbage asks for such an address at
// each sample, a library just loaded asks once.
type misses struct {
	pages  map[uint64]time.Time // when the mappings did not hold the page
	tokens int
	filled time.Time
	rest   time.Time // until then nothing is read in vain
}

const (
	// missAge: so long an address that was not mapped is taken not to be.
	missAge = time.Second
	// So many readings may be in vain at once, and so often after.
	missBurst = 20
	missEvery = 100 * time.Millisecond
	maxMisses = 1024
	// missRest is for how many times as long as a reading in vain took there is none:
	// a process may have 65,530 mappings (vm.max_map_count), and a stack ends in
	// garbage at each sample.
	missRest = 20
	// lowest is below any mapping (the default of vm.mmap_min_addr).
	lowest = 64 << 10
)

// worthIt tells whether to read the mappings for pc. Where objects came and went,
// one may be there again at any time.
func (m *misses) worthIt(pc uint64, now time.Time, moved bool) bool {
	if pc < lowest {
		return false
	}
	if m.pages == nil {
		m.pages, m.tokens, m.filled = map[uint64]time.Time{}, missBurst, now
	}
	if n := int(now.Sub(m.filled) / missEvery); n > 0 {
		m.tokens, m.filled = min(missBurst, m.tokens+n), now
	}
	if t, ok := m.pages[pc/pageBytes]; ok && !moved && now.Sub(t) < missAge {
		return false
	}
	return m.tokens > 0 && !now.Before(m.rest)
}

// note takes what came of it, from when to when.
func (m *misses) note(pc uint64, changed bool, begun, now time.Time) {
	if changed {
		clear(m.pages)
		return
	}
	m.tokens--
	m.rest = now.Add(missRest * now.Sub(begun))
	if len(m.pages) >= maxMisses {
		clear(m.pages)
	}
	m.pages[pc/pageBytes] = now
}

// imageAt reads a process's memory by link-time address.
type imageAt struct {
	src  io.ReaderAt
	bias uint64
}

func (r imageAt) ReadAt(p []byte, vaddr int64) (int, error) {
	return r.src.ReadAt(p, int64(r.bias+uint64(vaddr)))
}
