package module

import (
	"cmp"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"slices"

	"sfsample/ptrace/procfs"
)

// builder finds the objects in a list of mappings.
type builder struct {
	s     *Space
	maps  []procfs.Mapping
	files map[fileID][]int // mappings of each file, in ascending order
	code  []codeRange
	mods  map[moduleID]*Module
	bad   map[int]bool    // mappings that do not begin with a usable header
	shut  map[fileID]bool // files that cannot be opened
	list  []*Module
}

type fileID struct {
	dev   procfs.Dev
	inode uint64
}

// newBuilder sorts the mappings by file.
func newBuilder(s *Space, maps []procfs.Mapping) *builder {
	b := &builder{s: s, maps: maps, files: map[fileID][]int{}, mods: map[moduleID]*Module{}, bad: map[int]bool{}, shut: map[fileID]bool{}}
	for i := range maps {
		if m := &maps[i]; m.File() {
			id := fileID{m.Dev, m.Inode}
			b.files[id] = append(b.files[id], i)
		}
	}
	return b
}

// maxBack bounds how many mappings of the same file are looked at for an ELF
// header that is not at the file's beginning.
const maxBack = 8

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
	if !m.File() {
		return nil
	}
	same := b.files[fileID{m.Dev, m.Inode}]
	at, _ := slices.BinarySearch(same, i)
	// The header is in the nearest mapping of the file's beginning that fits:
	// below, as linkers lay files out; else above.
	for k := at; k >= 0; k-- {
		if b.maps[same[k]].Offset == 0 {
			if mod := b.at(same[k], i); mod != nil {
				return mod
			}
		}
	}
	for _, k := range same[at:] {
		if b.maps[k].Offset == 0 {
			if mod := b.at(k, i); mod != nil {
				return mod
			}
		}
	}
	// A library inside an archive has its header elsewhere.
	for k := at; k >= max(0, at-maxBack); k-- {
		if b.maps[same[k]].Offset > 0 {
			if mod := b.at(same[k], i); mod != nil {
				return mod
			}
		}
	}
	return b.fromFile(i)
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
		if !mod.obj.hdr.place(mod.Bias, m.Start, m.Offset-mod.base, m.End-m.Start) {
			return nil
		}
		return mod
	}
	if b.bad[k] {
		return nil
	}
	if mod := b.kept(id); mod != nil {
		if !mod.obj.hdr.place(mod.Bias, m.Start, m.Offset-mod.base, m.End-m.Start) {
			return nil
		}
		return b.add(mod)
	}
	h, err := readHeader(b.s.src, int64(head.Start))
	if err != nil {
		b.bad[k] = true
		return nil
	}
	first := h.first()
	bias := head.Start - (first.vaddr - first.off)
	if !h.place(bias, m.Start, m.Offset-head.Offset, m.End-m.Start) {
		return nil
	}
	mod := &Module{base: head.Offset, Bias: bias, id: id}
	buildID, at := h.buildID(imageAt{b.s.src, bias}, false)
	if mod.probes, err = b.s.probes(head, h, at, bias); err != nil {
		return nil // it changes at this moment
	}
	return b.add(b.newModule(mod, h, buildID, m))
}

// fromFile reads the headers from the file, when they are not in memory.
func (b *builder) fromFile(i int) *Module {
	m := &b.maps[i]
	id, file := idOf(m), fileID{m.Dev, m.Inode}
	if mod := b.kept(id); mod != nil {
		return b.add(mod)
	}
	// JIT compilers map much code of one file that is not ELF.
	if b.s.notELF[file] || b.shut[file] {
		return nil
	}
	f, err := b.s.src.OpenFile(*m)
	if err != nil {
		b.shut[file] = true
		b.s.opt.Log.Debug("file not used", "module", m.Path, "addr", m.Start, "reason", err.Error())
		return nil
	}
	defer f.Close()
	h, err := readHeader(f, 0)
	if err != nil {
		b.shut[file] = true
		if _, bad := errors.AsType[*HeaderError](err); bad {
			b.s.notELF[file] = true
			b.s.opt.Log.Debug("no ELF object", "module", m.Path, "addr", m.Start, "reason", err.Error())
		}
		return nil
	}
	bias, ok := h.biasOf(m.Start, m.Offset, m.End-m.Start)
	if !ok {
		return nil
	}
	buildID, _ := h.buildID(f, true)
	return b.add(b.newModule(&Module{Bias: bias, id: id}, h, buildID, m))
}

func (b *builder) add(m *Module) *Module {
	b.mods[m.id] = m
	b.list = append(b.list, m)
	return m
}

// kept returns the module with this id that the Space has, if its mappings are
// the same and memory still holds it.
func (b *builder) kept(id moduleID) *Module {
	m := b.s.byID[id]
	if m != nil && slices.Equal(m.Maps, b.own(m)) && m.unchanged(b.s.buf[:]) {
		return m
	}
	return nil
}

// own returns the mappings that are of m.
func (b *builder) own(m *Module) (list []procfs.Mapping) {
	if m.VDSO() {
		i, ok := slices.BinarySearchFunc(b.maps, m.id.start, func(r procfs.Mapping, start uint64) int {
			return cmp.Compare(r.Start, start)
		})
		if ok {
			list = append(list, b.maps[i])
		}
		return list
	}
	for _, i := range b.files[fileID{m.id.dev, m.id.inode}] {
		r := &b.maps[i]
		if r.Path == m.Path && m.obj.hdr.place(m.Bias, r.Start, r.Offset-m.base, r.End-r.Start) {
			list = append(list, *r)
		}
	}
	return list
}

// maxTableProbe is how much of a table is compared: of .eh_frame_hdr the count
// and the first functions, of .sframe the header.
const maxTableProbe = 512

// probes reads what a module with its header in head is recognised by later.
func (s *Space) probes(head *procfs.Mapping, h *header, id region, bias uint64) ([]probe, error) {
	size := min(h.size, maxProbe)
	if end := id.addr + id.size + bias - head.Start; id.size > 0 && end <= maxProbe {
		size = max(size, end)
	}
	parts := []region{{head.Start - bias, min(size, head.End-head.Start)}}
	if id.size == 0 {
		for _, r := range append(slices.Clone(h.sframes), h.ehHdr) {
			if _, ok := h.loadAt(r); ok && r.size > 0 {
				parts = append(parts, region{r.addr, min(r.size, maxTableProbe)})
			}
		}
	}
	var list []probe
	for _, r := range parts {
		p := probe{bias + r.addr, make([]byte, r.size)}
		if _, err := s.src.ReadAt(p.data, int64(p.addr)); err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// newModule completes m, an object with header h that mapping r is of.
func (b *builder) newModule(m *Module, h *header, buildID string, r *procfs.Mapping) *Module {
	s := b.s
	m.Path, m.Deleted, m.BuildID, m.Arch = r.Path, r.Deleted, buildID, h.arch
	m.src, m.oldFirst = s.src, s.opt.NoEHFrame
	key := objectKey{owner: s.opt.Owner, buildID: buildID, sum: h.sum}
	if buildID == "" {
		key.dev, key.inode = r.Dev, r.Inode
		sum := sha256.New()
		sum.Write(h.sum[:])
		for _, p := range m.probes {
			sum.Write(p.data)
		}
		sum.Sum(key.sum[:0])
	}
	m.obj = s.cache.object(key, !r.File() || !h.shareable(), func() *object {
		return &object{hdr: h, buildID: buildID}
	})
	m.Maps = b.own(m)
	return m
}

// shareable tells whether what is read of the object's tables is the same in
// every process: 32-bit code may have relocations in it, and so may tables in a
// writable segment.
func (h *header) shareable() bool {
	if h.class != elf.ELFCLASS64 {
		return false
	}
	for _, r := range append(slices.Clone(h.sframes), h.ehHdr) {
		if p, ok := h.loadAt(r); ok && r.size > 0 && p.flags&elf.PF_W != 0 {
			return false
		}
	}
	return true
}
