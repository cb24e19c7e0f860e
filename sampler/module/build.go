package module

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"sort"

	"sfsample/ptrace/procfs"
	"sfsample/sampler/symbol/rootfs"
)

// builder finds the objects in a list of mappings. A process can have 65,530 of them
// (vm.max_map_count), all of one file: each is looked at a bounded number of times.
type builder struct {
	s     *Space
	maps  []procfs.Mapping
	files map[fileID]*mappedFile
	code  []codeRange
	mods  map[moduleID]*Module
	owner map[int]*Module // of the mappings that are of a module
	bad   map[int]bool    // mappings that do not begin with a usable header
	list  []*Module

	unread map[int]bool // those of bad that could not be read
	failed bool         // something could not be read of what the mapping under way may belong to
	other  bool         // something was, and is no object
}

type fileID struct {
	dev   procfs.Dev
	inode uint64
}

// mappedFile is what a pass knows of one file. The lists are of mappings, in
// ascending order.
type mappedFile struct {
	all   []int
	heads []int // of the file's beginning
	// free are those that are not of a module yet, by address - offset, which all
	// mappings of a segment have in common. It is made at the first need.
	free    map[uint64][]int
	hdr     *header // read from the file
	buildID string
	shut    bool // it cannot be opened, or is not ELF
	// biases are the modules that were found by hdr.
	biases map[uint64]*Module
	copies int // objects of this file
}

// newBuilder sorts the mappings by file.
func newBuilder(s *Space, maps []procfs.Mapping) *builder {
	b := &builder{s: s, maps: maps, files: map[fileID]*mappedFile{}, mods: map[moduleID]*Module{},
		owner: map[int]*Module{}, bad: map[int]bool{}, unread: map[int]bool{}}
	for i := range maps {
		m := &maps[i]
		if !m.File() {
			continue
		}
		id := fileID{m.Dev, m.Inode}
		f := b.files[id]
		if f == nil {
			f = new(mappedFile)
			b.files[id] = f
		}
		f.all = append(f.all, i)
		if m.Offset == 0 {
			f.heads = append(f.heads, i)
		}
	}
	return b
}

// build returns what the mappings tell.
func (b *builder) build() mapped {
	now := b.s.access.opt.Now()
	for i := range b.maps {
		if m := &b.maps[i]; m.Perms&procfs.Exec != 0 {
			// A kernel never lists overlapping mappings; a recording may.
			if n := len(b.code); n > 0 && m.Start < b.code[n-1].end {
				continue
			}
			b.failed, b.other = false, false
			mod := b.module(i)
			b.code = append(b.code, codeRange{m.Start, m.End, i, mod, now, mod == nil && b.failed && !b.other})
		}
	}
	// An inode may come back as another file.
	for f := range b.s.notELF {
		if b.files[f] == nil {
			delete(b.s.notELF, f)
		}
	}
	owners := map[uint64]*Module{}
	for _, m := range b.list {
		for i := range m.Maps {
			owners[m.Maps[i].Start] = m
		}
	}
	return mapped{b.maps, codeRanges{list: b.code}, b.list, b.mods, owners}
}

const (
	// maxBack bounds how many mappings of the same file are looked at for an ELF
	// header that is not at the file's beginning.
	maxBack = 8
	// maxHeads bounds how many mappings of the file's beginning are looked at below
	// and above one that is of none of them: those of a library that is loaded
	// several times lie apart.
	maxHeads = 16
	// maxObjects bounds the objects of a process.
	maxObjects = 4096
	// maxCopies bounds those of one file: who maps one again and again does not
	// take the place of the others. dlmopen(3) loads a library 16 times at most;
	// archives have many, one beside the other.
	maxCopies = 256
)

// module returns the object that the executable mapping i belongs to, nil if
// it is of none.
func (b *builder) module(i int) *Module {
	m := &b.maps[i]
	if m.Pseudo() {
		if m.Path == vdsoName {
			return b.at(i, i)
		}
		return nil
	}
	if mod := b.owner[i]; mod != nil || !m.File() {
		return mod
	}
	f := b.files[fileID{m.Dev, m.Inode}]
	// The header is in the nearest mapping of the file's beginning that fits:
	// below, as linkers lay files out; else above.
	above, found := slices.BinarySearch(f.heads, i)
	below := above - 1
	if found {
		below = above
	}
	for k := below; k >= max(0, below-maxHeads); k-- {
		if mod := b.at(f.heads[k], i); mod != nil {
			return mod
		}
	}
	for _, k := range f.heads[above:min(len(f.heads), above+maxHeads)] {
		if mod := b.at(k, i); mod != nil {
			return mod
		}
	}
	// A library inside an archive has its header elsewhere.
	at, _ := slices.BinarySearch(f.all, i)
	for k := at; k >= max(0, at-maxBack); k-- {
		if b.maps[f.all[k]].Offset > 0 {
			if mod := b.at(f.all[k], i); mod != nil {
				return mod
			}
		}
	}
	return b.fromFile(f, i)
}

func idOf(m *procfs.Mapping) moduleID {
	return moduleID{start: m.Start, offset: m.Offset, dev: m.Dev, inode: m.Inode, path: m.Path}
}

// at returns the object whose ELF header is at the start of mapping k, if
// mapping i belongs to it.
func (b *builder) at(k, i int) *Module {
	head, m := &b.maps[k], &b.maps[i]
	id := idOf(head)
	if mod := b.mods[id]; mod != nil {
		if !mod.obj.mem.hdr.place(mod.Bias, m.Start, m.Offset-mod.base, m.End-m.Start) {
			return nil
		}
		return mod
	}
	if b.bad[k] || b.full(head) {
		b.failed, b.other = b.failed || b.unread[k], b.other || b.bad[k] && !b.unread[k]
		return nil
	}
	if mod := b.kept(id); mod != nil {
		if !mod.obj.mem.hdr.place(mod.Bias, m.Start, m.Offset-mod.base, m.End-m.Start) {
			return nil
		}
		return b.add(mod)
	}
	h, err := readHeader(b.s.access.src, int64(head.Start))
	if err != nil {
		b.bad[k] = true
		if _, bad := errors.AsType[*HeaderError](err); !bad && head.Perms&procfs.Read != 0 && !errors.Is(err, rootfs.ErrRemote) {
			b.unread[k], b.failed = true, true
		} else {
			b.other = true // and so is what else is mapped of the file
		}
		return nil
	}
	first := h.first()
	bias := head.Start - (first.vaddr - first.off)
	if !h.place(bias, m.Start, m.Offset-head.Offset, m.End-m.Start) {
		return nil
	}
	mod := &Module{base: head.Offset, Bias: bias, id: id}
	buildID, at := h.buildID(imageAt{b.s.access.src, bias}, false)
	if mod.probes.list, err = readProbes(b.s.access.src, head, h, at, bias); err != nil || !held(b.s.access.src, mod.probes.list, h, buildID, at, bias) {
		b.failed = true
		return nil // it changes at this moment, or could not be read
	}
	mod.probes.marks = marks(mod.probes.list)
	return b.add(b.newModule(mod, h, buildID, m))
}

// full tells whether there is no room for another object of a mapping's file.
func (b *builder) full(m *procfs.Mapping) bool {
	f := b.files[fileID{m.Dev, m.Inode}]
	return len(b.list) >= maxObjects || f != nil && f.copies >= maxCopies
}

// fromFile reads the headers from the file, when they are not in memory.
func (b *builder) fromFile(f *mappedFile, i int) *Module {
	m := &b.maps[i]
	id, file := idOf(m), fileID{m.Dev, m.Inode}
	if b.full(m) {
		return nil
	}
	if mod := b.kept(id); mod != nil {
		return b.add(mod)
	}
	// JIT compilers map much code of one file that is not ELF.
	if b.s.notELF[file] || f.shut {
		return nil
	}
	if f.hdr == nil && !b.openFile(f, m) {
		return nil
	}
	bias, ok := f.hdr.biasOf(m.Start, m.Offset, m.End-m.Start)
	if !ok {
		return nil
	}
	if mod := f.biases[bias]; mod != nil {
		return mod
	}
	mod := b.add(b.newModule(&Module{Bias: bias, id: id}, f.hdr, f.buildID, m))
	f.biases[bias] = mod
	return mod
}

// openFile reads the headers of the file of a mapping.
func (b *builder) openFile(f *mappedFile, m *procfs.Mapping) bool {
	f.shut = true
	file, err := b.s.access.src.OpenFile(*m)
	if err != nil {
		b.s.access.opt.Log.Debug("file not used", "module", m.Path, "addr", m.Start, "reason", err.Error())
		return false
	}
	defer file.Close()
	h, err := readHeader(file, 0)
	if err != nil {
		if _, bad := errors.AsType[*HeaderError](err); bad {
			b.s.notELF[fileID{m.Dev, m.Inode}] = true
			b.s.access.opt.Log.Debug("no ELF object", "module", m.Path, "addr", m.Start, "reason", err.Error())
		}
		return false
	}
	f.buildID, _ = h.buildID(file, true)
	f.hdr, f.shut, f.biases = h, false, map[uint64]*Module{}
	return true
}

// add takes m, whose mappings are known, into the list.
func (b *builder) add(m *Module) *Module {
	b.mods[m.id] = m
	b.list = append(b.list, m)
	if m.VDSO() {
		return m
	}
	b.files[fileID{m.id.dev, m.id.inode}].copies++
	for _, i := range b.own(m) {
		b.owner[i] = m
	}
	free := b.files[fileID{m.id.dev, m.id.inode}].free
	for n := range m.obj.mem.hdr.placed {
		k := m.key(n)
		free[k] = slices.DeleteFunc(free[k], func(i int) bool { return b.owner[i] != nil })
	}
	return m
}

// key is the difference of address and offset in mappings of the nth part of the
// file that m has.
func (m *Module) key(n int) uint64 { return m.Bias + m.obj.mem.hdr.placed[n].skew - m.base }

// kept returns the module with this id that the Space has, if its mappings are
// the same and memory still holds it, or cannot be read just now.
func (b *builder) kept(id moduleID) *Module {
	m := b.s.mapped.byID[id]
	if m == nil || !slices.Equal(m.Maps, b.ownMaps(m)) {
		return nil
	}
	if same, err := m.unchanged(b.s.buf[:]); same || err != nil {
		m.unread = err
		return m
	}
	return nil
}

// ownMaps returns the mappings that are of m.
func (b *builder) ownMaps(m *Module) (list []procfs.Mapping) {
	if m.VDSO() {
		i, ok := slices.BinarySearchFunc(b.maps, m.id.start, func(r procfs.Mapping, start uint64) int {
			return cmp.Compare(r.Start, start)
		})
		if ok {
			list = append(list, b.maps[i])
		}
		return list
	}
	for _, i := range b.own(m) {
		list = append(list, b.maps[i])
	}
	return list
}

// own returns which mappings of m's file are of m and of no other module.
func (b *builder) own(m *Module) (list []int) {
	f := b.files[fileID{m.id.dev, m.id.inode}]
	if f.free == nil {
		f.free = map[uint64][]int{}
		for _, i := range f.all {
			k := b.maps[i].Start - b.maps[i].Offset
			f.free[k] = append(f.free[k], i)
		}
	}
	for n := range m.obj.mem.hdr.placed {
		p, same := &m.obj.mem.hdr.placed[n], f.free[m.key(n)]
		// Where address and offset differ by the same, both ascend.
		first := sort.Search(len(same), func(i int) bool {
			r := &b.maps[same[i]]
			return r.Offset+(r.End-r.Start) > p.off+m.base
		})
		for _, i := range same[first:] {
			r := &b.maps[i]
			if r.Offset >= m.base && r.Offset-m.base >= p.end {
				break
			}
			if r.Offset >= m.base && r.Path == m.Path {
				list = append(list, i)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// maxTableProbe is how much of a table is compared: of .eh_frame_hdr the count
// and the first functions, of .sframe the header and the first functions, of small ones what follows them too.
const maxTableProbe = 512

// readProbes reads what a module with its header in head is recognised by later.
func readProbes(src io.ReaderAt, head *procfs.Mapping, h *header, id region, bias uint64) ([]probe, error) {
	parts := []region{{head.Start - bias, min(h.size, maxProbe, head.End-head.Start)}}
	if end := id.addr + id.size - parts[0].addr; id.size > 0 && end <= min(maxMark, head.End-head.Start) {
		parts[0].size = max(parts[0].size, end)
	} else if id.size > 0 {
		parts = append(parts, id)
	}
	tables := len(parts)
	for _, r := range append(slices.Clone(h.sframes), h.ehHdr) {
		p, ok := h.loadAt(r)
		if !ok || r.size == 0 {
			continue
		}
		if p.flags&elf.PF_W == 0 {
			r.size = p.filesz - (r.addr - p.vaddr)
		}
		parts = append(parts, region{r.addr, min(r.size, maxTableProbe)})
	}
	var list []probe
	for i, r := range parts {
		p := probe{bias + r.addr, make([]byte, r.size), i >= tables}
		if _, err := src.ReadAt(p.data, int64(p.addr)); err == nil {
			list = append(list, p)
		} else if !p.table || id.size == 0 {
			return nil, err
		}
	}
	return list, nil
}

// held tells whether the headers and the build-id, which were read before, are what the probes hold: another object may have
// come in between.
func held(src io.ReaderAt, list []probe, h *header, buildID string, id region, bias uint64) bool {
	var r io.ReaderAt = bytes.NewReader(list[0].data)
	if h.size > uint64(len(list[0].data)) {
		r = imageAt{src, list[0].addr}
	}
	now, err := readHeader(r, 0)
	if err != nil || now.sum != h.sum {
		return false
	}
	for _, p := range list {
		if at := bias + id.addr - p.addr; at < uint64(len(p.data)) {
			return hex.EncodeToString(p.data[at:min(at+id.size, uint64(len(p.data)))]) == buildID
		}
	}
	return id.size == 0
}

// newModule completes m, an object with header h that mapping r is of.
func (b *builder) newModule(m *Module, h *header, buildID string, r *procfs.Mapping) *Module {
	m.Path, m.BuildID, m.Arch = r.Path, buildID, h.arch
	m.access = b.s.access
	key := objectKey{owner: m.access.opt.Owner, buildID: buildID}
	if buildID == "" {
		key.dev, key.inode = r.Dev, r.Inode
	}
	sum := sha256.New()
	sum.Write(h.sum[:])
	for _, p := range m.probes.list {
		sum.Write(p.data)
	}
	sum.Sum(key.sum[:0])
	m.obj = b.s.cache.object(key, !r.File() || !h.shareable(), func() *object {
		return &object{mem: objectMemory{hdr: h}}
	})
	m.Maps = b.ownMaps(m)
	return m
}

// shareable tells whether what is read of the object's tables is the same in
// every process: 32-bit code may have relocations in it, and so may tables in a
// writable segment.
func (h *header) shareable() bool {
	if h.enc.class != elf.ELFCLASS64 {
		return false
	}
	for _, r := range append(slices.Clone(h.sframes), h.ehHdr) {
		if p, ok := h.loadAt(r); ok && r.size > 0 && p.flags&elf.PF_W != 0 {
			return false
		}
	}
	return true
}
