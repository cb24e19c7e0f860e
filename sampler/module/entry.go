package module

import (
	"bytes"
	"cmp"
	"debug/elf"
	"slices"

	"sfsample/sampler/symbol"
	"sfsample/unwind/code"
)

// special says what is special about a function as the end of a stack.
type special uint8

const (
	// begins: stacks begin here, nothing called it.
	begins special = 1 << iota
	// switches: the function goes over to another stack and calls on from
	// there. What lies above its frame is no caller of it, though Go's tables,
	// which do not know of the switch, give a place for one. The frame pointer
	// still leads back to the stack that was left, if that is returned to.
	switches
	// ends: nothing returns through the function, and what its table gives for
	// its caller is of no use: what a goroutine that had the stack before has
	// left above the frame of goexit (runtime/proc.go, newproc1).
	ends
	// visits: the function goes over to the scheduler's stack, unless it is there, for a call into the vDSO. As switches, where its table
	// is Go's.
	visits
)

// unreturned are functions that call on from another stack and are not returned to.
const unreturned = begins | switches

// specials are the functions in which stacks begin or change. Those that others
// call on the way (__libc_start_main, start_thread) are not among them.
var specials = []struct {
	name []byte
	is   special
}{
	{[]byte("_start"), begins},                // every libc's crt1, and the dynamic linker
	{[]byte("_dl_start_user"), begins},        // glibc's dynamic linker, which jumps to _start
	{[]byte("clone"), begins},                 // thread starts: glibc, musl, bionic
	{[]byte("__clone"), begins},               //
	{[]byte("clone3"), begins},                //
	{[]byte("__clone3"), begins},              //
	{[]byte("thread_start"), begins},          // glibc's label in clone
	{[]byte("__bionic_clone"), begins},        //
	{[]byte("__start_context"), begins},       // glibc: where a makecontext function returns to
	{[]byte("make_fcontext"), begins},         // Boost.Context's label in it, where a context's function returns to: fibers of PHP
	{[]byte("runtime.goexit"), begins | ends}, // Go: goroutines
	{[]byte("runtime.mstart"), begins},        // Go: threads
	{[]byte("runtime.clone"), begins},         //
	{[]byte("runtime.rt0_go"), begins},        // Go: the first thread
	{[]byte("runtime.mcall"), unreturned},     // Go: to the scheduler
	{[]byte("runtime.morestack"), unreturned}, // Go: to newstack, which goes on in the goroutine (gogo)
	{[]byte("runtime.systemstack"), switches},
	{[]byte("runtime.asmcgocall"), switches},
	{[]byte("runtime.asmcgocall_no_g"), switches},
	{[]byte("runtime.cgocallback"), switches},
	{[]byte("runtime.nanotime1"), visits}, // Go: the clocks
	{[]byte("runtime.walltime"), visits},
	{[]byte("time.now"), visits},
	{[]byte("runtime.vgetrandom1"), visits},
}

// abi0 is what Go's linker appends to the names of functions in assembly.
var abi0 = []byte(".abi0")

// specialEnds tells of the special names that s ends with, and how long these
// ends are. There may be several: linkers let a name share the end of another, so
// that "clone" may be found in "__clone".
func specialEnds(s []byte, found func(is special, length int)) {
	extra := 0
	if t, ok := bytes.CutSuffix(s, abi0); ok {
		s, extra = t, len(abi0)
	}
	for i := range specials {
		if p := &specials[i]; bytes.HasSuffix(s, p.name) {
			found(p.is, len(p.name)+extra)
		}
	}
}

// unsizedBytes is how far a start without a size, or without a table that
// knows its end, is taken to reach.
const unsizedBytes = 64

// Entry implements unwind.Space.
func (s *Space) Entry(pc uint64) bool {
	r := s.cover(pc)
	return r != nil && r.mod != nil && r.mod.obj.isStart(r.mod, pc-r.mod.Bias)
}

// isStart tells whether vaddr lies in a function that starts stacks: that at
// the ELF entry address, which needs no symbol, or one of startNames.
func (o *object) isStart(m *Module, vaddr uint64) bool {
	o.lock(m)
	defer o.unlock()
	if !o.entry.known {
		o.entry = entryKind{is: m.program(), known: true}
	}
	if o.entry.is && o.atEntry(vaddr) {
		return true
	}
	if o.open() == nil && o.tables.beforeOutermost(vaddr) || o.inStartContext(vaddr) {
		return true
	}
	if f, ok := o.goFunc(vaddr); ok {
		return o.mem.specialAt(goSpecial(f.Name), f.Start, vaddr)&begins != 0
	}
	known := o.specialFuncs()
	if len(known.list) == 0 && o.sections.goTable.size > 0 {
		return m.isGoStart(vaddr)
	}
	return o.mem.specialAt(known.at(vaddr), vaddr, vaddr)&begins != 0
}

// entryKind tells whether an ELF entry address is one that the kernel starts, once that is known.
type entryKind struct{ is, known bool }

// specialAt is what is special about vaddr in a function of which that is known, and which begins at start, if that is told.
// One that is not returned to begins a stack only where it calls on from there, or has gone over to it:
// before, it stands on the stack of its caller.
func (mem *objectMemory) specialAt(is special, start, vaddr uint64) special {
	if is == unreturned && !mem.calls(vaddr) && !mem.changedStacks(start, vaddr) {
		return switches
	}
	return is
}

// changedStacks tells whether code of x86-64 that leads straight from start to vaddr loads the stack pointer, as Go's mcall and morestack do just before they call on: mov rsp,[reg+disp8].
func (mem *objectMemory) changedStacks(start, vaddr uint64) bool {
	const bytesBefore = 24 // of it and what follows up to the call: 14 in mcall of Go 1.19, 21 with 1.26
	var b [bytesBefore]byte
	code := b[:min(vaddr-start, bytesBefore)]
	if mem.hdr.machine != elf.EM_X86_64 || len(code) == 0 {
		return false
	}
	if _, err := mem.ReadAt(code, int64(vaddr)-int64(len(code))); err != nil {
		return false
	}
	for i := 0; i+4 <= len(code); i++ {
		if code[i]&^1 == 0x48 && code[i+1] == 0x8b && code[i+2]&^7 == 0x60 && code[i+2] != 0x64 {
			return true
		}
	}
	return false
}

// calls tells whether vaddr, where a caller is looked up, is the last byte of a
// call. Those of arm64 and s390x lie between instructions otherwise.
func (mem *objectMemory) calls(vaddr uint64) bool {
	if mem.hdr.machine != elf.EM_X86_64 && mem.hdr.machine != elf.EM_386 {
		return vaddr%2 != 0
	}
	var b [5]byte
	if _, err := mem.ReadAt(b[:], int64(vaddr-4)); err != nil {
		return false
	}
	// call rel32, and call of a register (Intel SDM volume 2: E8 cd, FF /2).
	return b[0] == 0xe8 || b[3] == 0xff && b[4]&0xf8 == 0xd0
}

// isGoStart asks a table of functions that gives no rows, as those before Go 1.18
// do not, whether vaddr lies in one where stacks begin. It opens the file each
// time: a walk asks once for an address.
func (m *Module) isGoStart(vaddr uint64) bool {
	f, err := read(m)
	if err != nil {
		return false
	}
	defer f.Close()
	names := symbol.Open(f, m.Path, symbol.Options{Demangle: symbol.Off, Until: m.obj.mem.cache.Until})
	defer names.Close()
	sym, ok := names.Lookup(vaddr)
	return ok && m.obj.mem.specialAt(goSpecial(sym.Name), vaddr, vaddr)&begins != 0
}

// specialFuncs finds the special functions by the symbols of the file, once.
func (o *object) specialFuncs() *specialFuncs {
	if !o.specials.known && due(o) {
		list, err := o.mem.via.specials()
		o.specials = specialFuncs{list, !again(o, err)}
	}
	return &o.specials
}

// specialFuncs are the special functions of an object, once its symbols were read.
type specialFuncs struct {
	list  []specialFunc
	known bool
}

// at tells what is special about the function at vaddr.
func (s *specialFuncs) at(vaddr uint64) (is special) {
	for _, f := range s.list {
		if vaddr-f.addr < f.size {
			is |= f.is
		}
	}
	return is
}

// specialFunc is a special function and its place.
type specialFunc struct {
	region
	is special
}

// program tells whether the kernel starts the module at its ELF entry address:
// an executable, a static one included, or a dynamic linker. In other shared
// objects the field means nothing: some linkers put the first function there.
func (m *Module) program() bool {
	h := m.obj.mem.hdr
	if h.entry == 0 {
		return false
	}
	if h.typ == elf.ET_EXEC || h.interp || isDynamicLinker(m.Name()) {
		return true
	}
	// A static-PIE has neither an interpreter nor a fixed address.
	return m.dynamic().pie
}

// isDynamicLinker goes by the names that the psABIs and libcs give:
// ld-linux-x86-64.so.2, ld64.so.1, ld-musl-s390x.so.1, ld.so.1, ld-2.31.so.
func isDynamicLinker(name string) bool {
	return len(name) > 2 && name[:2] == "ld" && (name[2] == '-' || name[2] == '.' || name[2] == '6')
}

// atEntry tells whether vaddr lies in the function at the entry address, by the
// tables or the symbols that know where that function ends.
func (o *object) atEntry(vaddr uint64) bool {
	if o.open() == nil {
		if start, ok := o.function(vaddr); ok {
			return start == o.mem.hdr.entry
		}
	}
	for _, f := range o.specialFuncs().list {
		if f.addr == o.mem.hdr.entry {
			return vaddr-f.addr < f.size
		}
	}
	return vaddr-o.mem.hdr.entry < unsizedBytes || o.mem.calls(vaddr) && code.Straight(o.mem.hdr.arch, o.mem.hdr.entry, vaddr, o.mem.code)
}

// birthBytes is more than the instructions between the system call that makes a
// thread and the code of the new thread: glibc's clone and clone3 have up to 16
// bytes there.
const birthBytes = 32

// beforeOutermost tells whether vaddr lies in a short gap without rows that ends
// where the outermost function of a stack begins. A new thread is there before
// its first instruction of its own: glibc ends the table in front of the system
// call, since in the new thread what it says would be wrong
// (sysdeps/unix/sysv/linux/x86_64/clone3.S).
func (t *tables) beforeOutermost(vaddr uint64) bool {
	if t.eh == nil {
		return false
	}
	for d := range uint64(birthBytes) {
		if e, err := t.eh.Find(vaddr + d); err == nil {
			return d > 0 && e.Row.Outermost
		}
	}
	return false
}

// contextCode is how glibc's __start_context begins, to which a function that
// makecontext(3) has set up returns: mov %rbx,%rsp; mov (%rsp),%rdi; test %rdi,%rdi
// (sysdeps/unix/sysv/linux/x86_64/__start_context.S).
var contextCode = []byte{0x48, 0x89, 0xdc, 0x48, 0x8b, 0x3c, 0x24, 0x48, 0x85, 0xff}

// inStartContext tells whether vaddr lies in glibc's __start_context, whose name a
// stripped libc does not have, or is the byte in front of it: no call has put its
// first instruction on the stack, and callers are looked for before where they
// go on.
func (o *object) inStartContext(vaddr uint64) bool {
	if o.mem.hdr.machine != elf.EM_X86_64 || o.open() != nil || o.tables.eh == nil {
		return false
	}
	e, err := o.tables.eh.Find(vaddr)
	if err != nil {
		if e, err = o.tables.eh.Find(vaddr + 1); err != nil || e.FuncStart != vaddr+1 {
			return false
		}
	}
	code := make([]byte, len(contextCode))
	n, _ := o.mem.via.access.src.ReadAt(code, int64(o.mem.via.Bias+e.FuncStart))
	return bytes.Equal(code[:n], contextCode)
}

// specials looks for special functions in the symbol tables of the module's file.
// The error is for a file that could not be opened, or read just now.
func (m *Module) specials() (list []specialFunc, err error) {
	if m.VDSO() {
		return nil, nil
	}
	f, err := read(m)
	if err != nil {
		m.access.opt.Log.Debug("file not used", "module", m.Path, "reason", err.Error())
		return nil, err
	}
	defer f.Close()
	var all []section
	h := m.obj.mem.hdr
	if err := h.readSections(f, f.Size(), func(s section) { all = append(all, s) }); err != nil {
		m.access.opt.Log.Debug("section headers not used", "module", m.Path, "reason", err.Error())
		return nil, cmp.Or(f.err, err)
	}
	// A file may have one of each (gABI, "Section Header", sh_type).
	for _, typ := range []elf.SectionType{elf.SHT_SYMTAB, elf.SHT_DYNSYM} {
		if i := slices.IndexFunc(all, func(s section) bool { return s.typ == typ }); i >= 0 && all[i].link < len(all) {
			list = append(list, h.findSymbols(f, all[i], all[all[i].link])...)
		}
	}
	return list, f.err
}

const (
	maxSymbolBytes = 256 << 20 // of a symbol or string table
	maxSpecials    = 256
	scanBytes      = 64 << 10
)

// findSymbols returns the special functions in the symbol table syms. It reads
// both tables once, in order: the strings first, for the offsets at which a name
// stands.
func (h *header) findSymbols(f symbol.File, syms, strs section) (list []specialFunc) {
	names := map[uint32]special{} // by offset in strs
	scan(f, strs, func(b []byte, off uint64) int {
		used := 0
		for {
			n := bytes.IndexByte(b[used:], 0)
			if n < 0 {
				return used
			}
			if s := b[used : used+n]; n > 0 && specialLast[s[n-1]] && len(names) < maxSpecials {
				specialEnds(s, func(is special, length int) {
					names[uint32(off)+uint32(used+n-length)] |= is
				})
			}
			used += n + 1
		}
	})
	size := symbolLayout(h.enc.class).size
	if len(names) == 0 || syms.ent != uint64(size) {
		return nil
	}
	symbols := func(use func(s []byte)) {
		scan(f, syms, func(b []byte, _ uint64) int {
			used := 0
			for ; len(b)-used >= size; used += size {
				use(b[used : used+size])
			}
			return used
		})
	}
	var unsized []int
	symbols(func(s []byte) {
		is := names[h.enc.order.Uint32(s)]
		if r, ok := h.enc.function(s); is != 0 && ok && len(list) < maxSpecials {
			if r.size == 0 {
				unsized = append(unsized, len(list))
				r.size = unsizedBytes
			}
			list = append(list, specialFunc{r, is})
		}
	})
	if len(unsized) == 0 {
		return list
	}
	// They end where another begins (musl's clone has no size).
	symbols(func(s []byte) {
		r, ok := h.enc.function(s)
		for _, i := range unsized {
			if f := &list[i]; ok && r.addr > f.addr && r.addr-f.addr < f.size {
				f.size = r.addr - f.addr
			}
		}
	})
	return list
}

// specialLast tells which bytes a special name can end with.
var specialLast = func() (t [256]bool) {
	for _, p := range specials {
		t[p.name[len(p.name)-1]] = true
	}
	t[abi0[len(abi0)-1]] = true
	return t
}()

// function decodes a symbol and returns its place if it is one of code. The size
// may be 0, for not known.
func (e *encoding) function(s []byte) (r region, ok bool) {
	l := symbolLayout(e.class)
	r = region{e.word(s[l.value:]), e.word(s[l.length:])}
	typ, shndx := elf.ST_TYPE(s[l.info]), e.order.Uint16(s[l.shndx:])
	return r, shndx != uint16(elf.SHN_UNDEF) && (typ == elf.STT_FUNC || typ == elf.STT_NOTYPE) && r.addr != 0
}

// scan reads a section piece by piece. use gets the bytes from offset off of the
// section on and returns how many it has dealt with; the rest comes again with
// what follows.
func scan(f symbol.File, s section, use func(b []byte, off uint64) int) {
	if s.size > maxSymbolBytes || s.off > uint64(f.Size()) || s.size > uint64(f.Size())-s.off || s.typ == elf.SHT_NOBITS {
		return
	}
	buf := make([]byte, min(scanBytes, s.size))
	kept := 0
	for off := uint64(0); off < s.size; {
		n := int(min(uint64(len(buf)-kept), s.size-off))
		got, _ := f.ReadAt(buf[kept:kept+n], int64(s.off+off))
		if got < n {
			return
		}
		off += uint64(n)
		have := kept + n
		used := use(buf[:have], off-uint64(have))
		kept = copy(buf, buf[used:have])
		if kept == len(buf) {
			kept = 0 // a name longer than the buffer is none of ours
		}
	}
}
