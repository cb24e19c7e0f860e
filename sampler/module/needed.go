package module

import (
	"bytes"
	"debug/elf"
)

// dynamic is what the dynamic section of an object tells (System V gABI, chapter 5,
// "Dynamic Section").
type dynamic struct {
	pie    bool     // DF_1_PIE
	soname string   // DT_SONAME
	needed []string // DT_NEEDED
}

// Bounds of what is read of a dynamic section.
const (
	maxDynBytes  = 8 << 10
	maxDynString = 256
)

// dynamic reads the dynamic section from memory; what cannot be read is empty.
func (m *Module) dynamic() *dynamic {
	if m.dyn != nil {
		return m.dyn
	}
	m.dyn = new(dynamic)
	h := m.obj.mem.hdr
	word := 8
	if h.enc.class == elf.ELFCLASS32 {
		word = 4
	}
	var strtab, size, soname uint64
	var needed []uint64
	b := make([]byte, min(h.dynamic.size, maxDynBytes))
	n, _ := m.access.src.ReadAt(b, int64(m.Bias+h.dynamic.addr))
scan:
	for b = b[:n]; len(b) >= 2*word; b = b[2*word:] {
		val := h.enc.word(b[word:])
		switch elf.DynTag(h.enc.word(b)) {
		case elf.DT_NULL:
			break scan
		case elf.DT_FLAGS_1:
			m.dyn.pie = val&uint64(elf.DF_1_PIE) != 0
		case elf.DT_STRTAB:
			strtab = val
		case elf.DT_STRSZ:
			size = val
		case elf.DT_SONAME:
			soname = val
		case elf.DT_NEEDED:
			needed = append(needed, val)
		}
	}
	if strtab < m.Bias {
		strtab += m.Bias // glibc's linker writes the address here, musl's does not
	}
	text := func(at uint64) string {
		if at == 0 || at >= size {
			return ""
		}
		b := make([]byte, min(size-at, maxDynString))
		n, _ := m.access.src.ReadAt(b, int64(strtab+at))
		if end := bytes.IndexByte(b[:n], 0); end > 0 {
			return string(b[:end])
		}
		return ""
	}
	m.dyn.soname = text(soname)
	for _, at := range needed {
		if s := text(at); s != "" {
			m.dyn.needed = append(m.dyn.needed, s)
		}
	}
	return m.dyn
}

// lasting are the modules that stay for as long as the program does: the
// program itself, its dynamic linker, the vDSO, and the libraries that these need,
// directly or by way of others. The dynamic linker unmaps no such library, however
// often others open and close it (ld.so(8), dlclose(3)).
type lasting struct {
	of  map[*Module]bool
	gen uint64 // of the Space
}

// has tells whether m is such a module of s.
func (l *lasting) has(s *Space, m *Module) bool {
	if l.of == nil || l.gen != s.gen {
		l.of, l.gen = lastingOf(s.mapped.modules), s.gen
	}
	return l.of[m]
}

func lastingOf(modules []*Module) map[*Module]bool {
	stay := map[*Module]bool{}
	byName := map[string]*Module{}
	var list []*Module
	for _, m := range modules {
		if m.VDSO() || m.program() {
			stay[m] = true
			list = append(list, m)
			continue
		}
		name := m.dynamic().soname
		if name == "" {
			name = m.Name()
		}
		byName[name] = m
	}
	for ; len(list) > 0; list = list[1:] {
		for _, name := range list[0].dynamic().needed {
			if m := byName[name]; m != nil && !stay[m] {
				stay[m] = true
				list = append(list, m)
			}
		}
	}
	return stay
}
