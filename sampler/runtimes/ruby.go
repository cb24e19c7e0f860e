package runtimes

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/bits"
	"strings"
	"sync/atomic"

	"sfsample/regs"
	"sfsample/sampler/taking"
)

// ruby is CRuby.
type ruby struct {
	version   string
	low, high uint64 // where it is mapped
	data      Span   // what of that can be written
	vm        atomic.Uint64
	symbols   atomic.Uint64 // address of rubySymbols
	looks     atomic.Int64  // for that
	loop      atomic.Uint64 // an address in vm_exec_core
	at        rubyLayout
}

// rubyLayout is what differs between minor versions, in bytes: offsets in rb_thread_t, rb_native_thread, rb_execution_context_t, rb_control_frame_t,
// rb_vm_t (vm_core.h, thread_pthread.h) and rb_iseq_constant_body, on 64-bit machines.
type rubyLayout struct {
	ec, native, pthread, tid int // native: in the thread, of what pthread and tid are in; 0: these are in the thread. tid 0: there is none
	owner                    int // thread_ptr of the execution context
	frame                    int // bytes
	insns, info              int // insns_info.body, bytes of one of these
	classPath                int // of a class; 0: that is among its variables
	shapes                   int // of the machine: shape_list, by which variables are found; 0: they are in a table
	stringData               int // of a string that holds its text
	single                   uint64
	heap                     rubyHeap
}

// rubyHeap is where a page of the heap, struct heap_page (gc.c), says which of its objects are garbage.
type rubyHeap struct {
	bytes        uint64 // of a page, where its objects are and first its address
	flags, marks int    // before_sweep is the lowest bit; mark_bits, of which there are as many as slots
	start        int    // address of the first object
}

var rubyLayouts = map[string]rubyLayout{
	"3.0": {ec: 40, pthread: 80, owner: 56, frame: 56, insns: 120, info: 8, stringData: 16, single: 1 << 12, heap: rubyHeap{1 << 14, 8, 112, 24}},
	"3.1": {ec: 40, pthread: 80, tid: 88, owner: 48, frame: 64, insns: 120, info: 12, stringData: 16, single: 1 << 12, heap: rubyHeap{1 << 14, 12, 120, 32}},
	"3.2": {ec: 48, native: 40, pthread: 8, tid: 16, owner: 48, frame: 64, insns: 112, info: 12, shapes: 376, stringData: 24, single: 1 << 12, heap: rubyHeap{1 << 16, 8, 272, 32}},
	"3.3": {ec: 48, native: 40, pthread: 16, tid: 24, owner: 48, frame: 56, insns: 112, info: 12, classPath: 152, stringData: 24, single: 1 << 12, heap: rubyHeap{1 << 16, 12, 272, 32}},
	"3.4": {ec: 48, native: 40, pthread: 16, tid: 24, owner: 48, frame: 56, insns: 112, info: 12, classPath: 152, stringData: 24, single: 1 << 13, heap: rubyHeap{1 << 16, 12, 280, 40}},
}

// Offsets behind those of insns_info.body and classPath.
const (
	rubyInsnsSize = 16
	rubySucc      = 24 // succ_index_table
	rubyParent    = 48 // parent_iseq
	rubyLocalISeq = 56
	rubyPermanent = -3 // permanent_classpath, the lowest bit
	rubyAttached  = -24
)

// Offsets that all share.
const (
	// rb_vm_t: the main thread.
	rubyMainRactor = 32
	rubyMainThread = 40
	// rb_thread_t: node of the list of a ractor's threads 0, vm.
	rubyVM = 32
	// rb_execution_context_t: vm_stack 0, its size in words 8, cfp 16.
	rubySize = 8
	rubyCFP  = 16
	// rb_control_frame_t: pc 0, sp 8, iseq, ep.
	rubySP   = 8
	rubyISeq = 16
	rubyEP   = 32
	// rb_iseq_t: flags 0, body. rb_iseq_constant_body: type 0, size 4, instructions 8, pathobj, base_label, label, first_lineno.
	rubyBody      = 16
	rubyISeqSize  = 24
	rubyPath      = 64
	rubyBaseLabel = 72
	rubyLabel     = 80
	rubyFirst     = 88
	// rb_method_entry_t: defined_class 8, def, called_id, owner. rb_method_definition_t: type 0, function 8, original_id.
	rubyDef        = 16
	rubyOwner      = 32
	rubyMethodSize = 40
	rubyOriginal   = 32
)

// Flags of an environment, its word at ep (vm_core.h): the type of its frame, and that.
const (
	rubyType   = 0x7fff0001
	rubyCFunc  = 0x55550001
	rubyDummy  = 0x79990001 // the outermost of a thread
	rubyLocal  = 2
	rubyFinish = 0x20 // the frame has begun an activation of the loop
	rubyNative = 0x80 // CFRAME: it runs no instructions
)

// Types of iseqs, and of objects in the lowest bits of their flags (include/ruby/internal/value_type.h).
const (
	rubyMethod = 1
	rubyRescue = 4
	rubyEnsure = 5
	rubyEval   = 6
	rubyString = 5
	rubyArray  = 7
	rubyIMemo  = 0x1a
	rubyTypes  = 0x1f
	rubyMark   = 1 << 13 // strings: the text is elsewhere; arrays: the elements are inside
)

// newRuby reads what must be known of the Ruby whose ruby_version is at version.
func newRuby(e *elf.File, bias, version uint64, mem io.ReaderAt) (Runtime, error) {
	b := read(mem, version, 6)
	text, _, _ := bytes.Cut(b, []byte{0})
	r := &ruby{version: string(text)}
	minor := r.version[:max(strings.LastIndexByte(r.version, '.'), 0)]
	l, ok := rubyLayouts[minor]
	if !ok {
		return nil, fmt.Errorf("ruby of version %q is not known, its scripts are not shown (known: 3.0 to 3.4)", r.version)
	}
	if e.Machine != elf.EM_X86_64 {
		return nil, errors.New("ruby is known on x86-64 only, its scripts are not shown")
	}
	r.at = l
	for _, p := range e.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		if r.low == 0 {
			r.low = p.Vaddr + bias
		}
		r.high = p.Vaddr + bias + p.Memsz
		if p.Flags&elf.PF_W != 0 {
			r.data = Span{p.Vaddr + bias, int(min(p.Memsz, maxData)) &^ 7}
		}
	}
	return r, nil
}

// Bounds of what is looked through of an interpreter's own data.
const (
	maxData     = 4 << 20 // bytes
	maxMachines = 1 << 14 // words that may lead to Ruby's machine
	maxTables   = 1 << 12 // and to its symbols
)

func (r *ruby) Name() string    { return "ruby" }
func (r *ruby) Version() string { return r.version }

// Loop implements Runtime. The loop is direct-threaded: each instruction is the address of what does it, in the loop's function.
func (r *ruby) Loop() uint64 { return r.loop.Load() }

// Registers implements Runtime: the loop writes the instruction to memory whenever it goes on.
func (r *ruby) Registers(*regs.Arch) (frame, at uint8, ok bool) { return 0, 0, false }

// machine is the address of its rb_vm_t, 0 if there is none yet: ruby_current_vm_ptr is not always exported, but what it leads to tells
// itself from all else that its data lead to.
func (r *ruby) machine(mem io.ReaderAt) uint64 {
	if vm := r.vm.Load(); vm != 0 {
		return vm
	}
	data := read(mem, r.data.Addr, r.data.Len)
	for i, tries := len(data)-8, 0; i >= 0 && tries < maxMachines; i -= 8 { // it is among the last of them, which begin as zeros
		vm := word(data, i)
		if !object(r, vm) {
			continue
		}
		tries++
		b := read(mem, vm+rubyMainThread, 8)
		if b == nil {
			continue
		}
		if main := word(b, 0); r.thread(mem, vm, main) != nil {
			r.vm.Store(vm)
			return vm
		}
	}
	return 0
}

// object tells whether a word can be the address of something outside of its own data: the lowest page is never mapped, and half of the addresses
// is the kernel's.
func object(r *ruby, v uint64) bool {
	return v&7 == 0 && v >= 1<<12 && v < 1<<47 && v-r.low >= r.high-r.low
}

// thread is the beginning of the thread at addr, nil if there is none of this machine.
func (r *ruby) thread(mem io.ReaderAt, vm, addr uint64) []byte {
	if addr&7 != 0 {
		return nil
	}
	th := read(mem, addr, r.threadBytes())
	if th == nil || word(th, rubyVM) != vm {
		return nil
	}
	if ec := read(mem, word(th, r.at.ec), r.contextBytes()); ec == nil || word(ec, r.at.owner) != addr {
		return nil
	}
	return th
}

// threadBytes is how much of a thread is copied.
func (r *ruby) threadBytes() int {
	if r.at.native > 0 {
		return r.at.ec + 8
	}
	return max(r.at.pthread, r.at.tid) + 8
}

// contextBytes is how much of an execution context is copied.
func (r *ruby) contextBytes() int { return r.at.owner + 8 }

// check is the offset in a thread of what tells whose it is.
func (r *ruby) check() int {
	if r.at.native > 0 {
		return r.at.native
	}
	return r.at.pthread
}

// Roots implements Runtime. Threads of a ractor are a ring that also goes through the ractor, and so are ractors, through the machine.
func (r *ruby) Roots(mem io.ReaderAt, th Thread) []taking.Root {
	vm := r.machine(mem)
	if vm == 0 {
		return nil
	}
	b := read(mem, vm, rubyMainThread+8)
	if b == nil {
		return nil
	}
	ractor, main := word(b, rubyMainRactor), word(b, rubyMainThread)
	var list uint64 // in a ractor, of its threads
	r.ring(mem, main, func(node uint64) bool {
		if node-ractor < maxRactor {
			list = node - ractor
		}
		return list == 0
	})
	if list == 0 {
		return nil
	}
	var found []taking.Root
	threads := 0
	of := func(node uint64) bool {
		threads++
		if s := r.thread(mem, vm, node); s != nil && r.isOf(mem, s, th) {
			found = []taking.Root{{Addr: node, Is: word(s, r.check())}}
		}
		return found == nil && threads < maxThreads
	}
	r.ring(mem, ractor+list, of)
	var inRactor uint64 // where the node of the machine's ring is in a ractor
	r.ring(mem, vm+8, func(node uint64) bool {
		if node-ractor < maxRactor {
			inRactor = node - ractor
		}
		return inRactor == 0
	})
	if found == nil && inRactor > 0 {
		r.ring(mem, vm+8, func(node uint64) bool {
			if node != ractor+inRactor {
				r.ring(mem, node-inRactor+list, of)
			}
			return found == nil && threads < maxThreads
		})
	}
	return found
}

// maxRactor bounds the offsets of lists in a ractor.
const maxRactor = 4 << 10

// ring asks of each further node of a ring of them until it is told to end.
func (r *ruby) ring(mem io.ReaderAt, head uint64, more func(node uint64) bool) {
	for node, i := head, 0; i < maxThreads; i++ {
		b := read(mem, node, 8)
		if b == nil {
			return
		}
		if node = word(b, 0); node == head || !more(node) {
			return
		}
	}
}

// isOf tells whether s is the state of a thread.
func (r *ruby) isOf(mem io.ReaderAt, s []byte, th Thread) bool {
	if r.at.native > 0 {
		if s = read(mem, word(s, r.at.native), r.at.tid+8); s == nil { // it waits for a native thread
			return false
		}
	}
	if th.Pointer != 0 {
		return word(s, r.at.pthread) == th.Pointer
	}
	if r.at.tid == 0 { // it is known by where its native stack begins
		ec := read(mem, word(s, r.at.ec), rubyStackStart+8)
		return ec != nil && word(ec, rubyStackStart)-th.SP < th.StackEnd-th.SP
	}
	return word32(s, r.at.tid) == uint32(th.TID)
}

const rubyStackStart = 152 // machine.stack_start, in the execution context of 3.0

// rubyParts is of how many frames the code is copied too, from the innermost on.
const rubyParts = 12

// Recipe implements Runtime.
func (r *ruby) Recipe(roots []taking.Root, last *Stack) *taking.Recipe {
	c := &taking.Recipe{RootBytes: r.threadBytes(), Check: r.check()}
	copy(c.Roots[:], roots)
	c.Steps[0] = taking.Step{Bytes: r.contextBytes(), Head: r.at.ec, Most: 1, Areas: [2]taking.Area{
		{From: rubyCFP, Words: rubySize},                 // control frames, which grow down from the end of the stack
		{To: rubyCFP, Via: true, At: rubySP, Last: true}, // and values, which grow up
	}}
	c.Steps[1] = taking.Step{Bytes: r.at.frame, Head: r.at.ec, Via: true, At: rubyCFP, Next: taking.Behind, Most: rubyParts, Part: taking.Part{At: rubyISeq, Bytes: rubyISeqSize}, Sub: taking.Sub{At: rubyBody, Bytes: r.bodyBytes()}}
	// An environment that outlives its frame is elsewhere.
	c.Steps[2] = taking.Step{Bytes: r.at.frame, Head: r.at.ec, Via: true, At: rubyCFP, Next: taking.Behind, Most: 512, Part: taking.Part{At: rubyEP, Bytes: 24, Before: 16}}
	spans := make([]Span, 0, len(last.Spans)+taking.MaxRoots)
	for _, root := range roots {
		spans = append(spans, Span{root.Addr, c.RootBytes})
	}
	spans = append(spans, last.Spans...)
	c.Room = min(max(2*foresee(c, spans), leastRoom), mostRoom)
	if last.Short {
		c.Room = mostRoom
	}
	return c
}

// bodyBytes is how much of an iseq's body is copied.
func (r *ruby) bodyBytes() int { return r.at.insns + rubyLocalISeq + 8 }

// Frames implements Runtime.
func (r *ruby) Frames(mem Memory, late io.ReaderAt, roots []uint64, st *Stack) {
	st.Reset()
	for _, root := range roots {
		if th := mem.Bytes(root, r.threadBytes()); th != nil {
			w := rubyWalk{r: r, mem: mem, late: late, st: st}
			w.thread(root, word(th, r.at.ec))
		}
	}
}

// rubyWalk decodes the frames of one stack.
type rubyWalk struct {
	r     *ruby
	mem   Memory
	late  io.ReaderAt
	st    *Stack
	stack Span
	open  int // frames of the segment whose outermost is yet to come
}

// maxWords bounds the stack of a thread, in words.
const maxWords = 1 << 28

// thread appends the frames of the execution context at addr of a thread.
func (w *rubyWalk) thread(thread, addr uint64) {
	ec := w.mem.Bytes(addr, w.r.contextBytes())
	if ec == nil {
		w.st.Short = true
		return
	}
	w.st.Spans = append(w.st.Spans, Span{addr, len(ec)})
	stack, words, cfp := word(ec, 0), word(ec, rubySize), word(ec, rubyCFP)
	end := stack + 8*words
	if word(ec, w.r.at.owner) != thread || words > maxWords || cfp < stack || cfp >= end || (end-cfp)%uint64(w.r.at.frame) != 0 {
		return // it is just being made, or is none
	}
	if top := w.mem.Bytes(cfp, w.r.at.frame); top != nil {
		low, high := max(cfp-min(cfp, chunkSlack), stack), word(top, rubySP)
		w.st.Spans = append(w.st.Spans, Span{low, int(min(end-low, taking.MostRoom))})
		if high-stack < end-stack {
			n := min(high-stack+chunkSlack, end-stack, taking.MostRoom)
			w.st.Spans = append(w.st.Spans, Span{high + min(chunkSlack, end-high) - n, int(n)})
		}
	}
	w.stack = Span{stack, int(end - stack)}
	for i := 0; cfp < end; i++ {
		f := w.mem.Bytes(cfp, w.r.at.frame)
		if f == nil || len(w.st.Frames) >= maxScript || i >= 2*maxScript {
			w.st.Short = true
			break
		}
		if !w.one(cfp, f) {
			w.st.Short = true
			break
		}
		cfp += uint64(w.r.at.frame)
	}
	w.close()
}

// close ends a segment.
func (w *rubyWalk) close() {
	w.st.segment(w.open, 0)
	w.open = 0
}

// bytes is n bytes at addr.
func (w *rubyWalk) bytes(addr uint64, n int) []byte {
	if b := w.mem.Bytes(addr, n); b != nil {
		return b
	}
	return read(w.late, addr, n)
}

// one appends the frame at addr, which is f. false: its environment was not copied.
func (w *rubyWalk) one(addr uint64, f []byte) bool {
	pc, iseq, ep := word(f, 0), word(f, rubyISeq), word(f, rubyEP)
	env := w.mem.Bytes(ep-16, 24)
	if env == nil {
		return false
	}
	if ep-w.stack.Addr >= uint64(w.stack.Len) && len(w.st.Spans) < maxSpans {
		w.st.Spans = append(w.st.Spans, Span{ep - 16, 24}) // it outlives its frame
	}
	switch flags := word(env, 16); {
	case flags&rubyNative == 0 && flags&rubyType != rubyDummy && iseq != 0 && pc != 0:
		if w.r.loop.Load() == 0 {
			w.learn(iseq)
		}
		fr := Frame{Addr: addr, Code: iseq, At: pc}
		if me := w.method(env); me != 0 {
			fr.Globals = me
		}
		if len(w.st.Frames) < rubyParts {
			w.foresee(iseq)
		}
		w.st.Frames = append(w.st.Frames, fr)
		w.open++
		if flags&rubyFinish != 0 {
			w.close()
		}
	case flags&rubyType == rubyCFunc:
		fr := Frame{Addr: addr}
		var entry uint64
		if fr.Globals = w.method(env); fr.Globals != 0 {
			if me := w.bytes(fr.Globals, rubyMethodSize); me != nil {
				if def := w.bytes(word(me, rubyDef), rubyMethodSize); def != nil {
					fr.Code, entry = word(me, rubyDef), word(def, 8)
				}
			}
		}
		if entry == 0 {
			break
		}
		w.close()
		w.st.Frames = append(w.st.Frames, fr)
		w.st.Segments = append(w.st.Segments, Segment{N: 1, Entry: entry})
	}
	return true
}

// foresee notes where the code at iseq is.
func (w *rubyWalk) foresee(iseq uint64) {
	if b := w.mem.Bytes(iseq, rubyISeqSize); b != nil {
		w.st.Spans = append(w.st.Spans, Span{iseq, rubyISeqSize}, Span{word(b, rubyBody), w.r.bodyBytes()})
	}
}

// learn makes the first instruction of an iseq the address in the loop.
func (w *rubyWalk) learn(iseq uint64) {
	b := w.bytes(iseq, rubyISeqSize)
	if b == nil {
		return
	}
	if b = w.bytes(word(b, rubyBody), 16); b == nil {
		return
	}
	if b = w.bytes(word(b, 8), 8); b != nil && word(b, 0)-w.r.low < w.r.high-w.r.low {
		w.r.loop.Store(word(b, 0))
	}
}

// maxEnvironments bounds the environments that are within each other.
const maxEnvironments = 64

// method is the address of the entry of the method that an environment belongs to, 0 if it is none (rb_vm_frame_method_entry, vm_insnhelper.c). env is
// the three words of which the last is at ep.
func (w *rubyWalk) method(env []byte) uint64 {
	for range maxEnvironments {
		local := word(env, 16)&rubyLocal != 0
		if me := w.entry(word(env, 0), local); me != 0 || local {
			return me
		}
		if env = w.bytes(word(env, 8)&^3-16, 24); env == nil {
			break
		}
	}
	return 0
}

// entry is the method entry at addr, or that which a svar there leads to.
func (w *rubyWalk) entry(addr uint64, svar bool) uint64 {
	b := w.bytes(addr, rubyMethodSize)
	if addr&7 != 0 || b == nil || word(b, 0)&rubyTypes != rubyIMemo {
		return 0
	}
	switch word(b, 0) >> 12 & 15 { // enum imemo_type
	case 6:
		return addr
	case 2:
		if svar {
			return w.entry(word(b, 8), false)
		}
	}
	return 0
}

// owner is the class that has the method of an entry. code, if not 0, must be that of the method, as the entry may be another one by now.
func (w *rubyWalk) owner(entry, code uint64) uint64 {
	me := w.bytes(entry, rubyMethodSize)
	if me == nil || word(me, 0)&rubyTypes != rubyIMemo {
		return 0
	}
	if code != 0 {
		// Of a method in Ruby, whose type is 0, the definition has the code.
		if def := w.bytes(word(me, rubyDef), 16); def == nil || word(def, 0)&15 != 0 || word(def, 8) != code {
			return 0
		}
	}
	return word(me, rubyOwner)
}

// Key implements Runtime.
func (r *ruby) Key(mem Memory, late io.ReaderAt, f *Frame) (Key, bool) {
	w := rubyWalk{r: r, mem: mem, late: late}
	return w.key(f)
}

// key is the identity of a frame's code, as far as it was copied at its copy's time. Its instruction must be one of the code's.
func (w *rubyWalk) key(f *Frame) (k Key, ok bool) {
	k = Key{Code: f.Code}
	if f.At == 0 {
		k.Globals = w.owner(f.Globals, 0) // of native code, by its method's definition
		def := w.bytes(f.Code, rubyMethodSize)
		if def == nil {
			return k, false
		}
		k.Version, k.Name = uint32(word(def, 0)&15), word(def, rubyOriginal)
		return k, true
	}
	b := w.bytes(f.Code, rubyISeqSize)
	if b == nil || word(b, 0)&rubyTypes != rubyIMemo {
		return k, false
	}
	if b = w.bytes(word(b, rubyBody), w.r.bodyBytes()); b == nil {
		return k, false
	}
	k.Version, k.Count, k.Lines = word32(b, 0), word32(b, 4), word(b, 8)
	k.File, k.Name, k.Qualname, k.First = word(b, rubyPath), word(b, rubyLabel), word(b, w.r.at.insns), w.r.first(b)
	k.Globals = w.owner(f.Globals, word(b, w.r.at.insns+rubyLocalISeq))
	label, ok := w.reader().text(k.Name)
	h := fnv.New64a()
	io.WriteString(h, label)
	k.Hash = h.Sum64()
	return k, ok && f.At-k.Lines <= 8*uint64(k.Count)
}

// first is the line at which the code of a body begins: an int since 3.2, a Fixnum before.
func (r *ruby) first(body []byte) uint32 {
	if r.at.native > 0 {
		return word32(body, rubyFirst)
	}
	return uint32(word(body, rubyFirst) >> 1)
}

// Function implements Runtime.
func (r *ruby) Function(mem io.ReaderAt, f *Frame, k Key) (fn *Function, ok bool) {
	w := rubyWalk{r: r, late: mem}
	fn = &Function{}
	if f.At == 0 {
		name, good := w.reader().symbol(k.Name)
		fn.Name, ok = w.reader().qualified(k.Globals, name), good
	} else {
		fn.First = int(int32(k.First))
		ok = w.code(fn, f, k)
	}
	// What was read is the code's only if it still is what it was, and was not garbage: then it is no more, but what it leads to may be gone.
	ok = ok && (f.At == 0 || w.reader().alive(f.Code)) && (f.Globals == 0 || w.reader().alive(f.Globals))
	again, good := w.key(f)
	return fn, ok && good && again == k
}

// maxInfo bounds the places of a function of which lines are kept.
const maxInfo = 1 << 15

// code fills in what is known of the code of an iseq.
func (w *rubyWalk) code(fn *Function, f *Frame, k Key) bool {
	iseq := read(w.late, f.Code, rubyISeqSize)
	if iseq == nil {
		return false
	}
	b := read(w.late, word(iseq, rubyBody), w.r.bodyBytes())
	if b == nil {
		return false
	}
	label, ok := w.within(b)
	file, good := w.reader().path(k.File)
	fn.Name, fn.File = label, file
	if k.Globals != 0 {
		fn.Name = w.label(k.Globals, b, label)
	}
	if n := word32(b, w.r.at.insns+rubyInsnsSize); n > 0 && n <= maxInfo && k.Count <= maxOps {
		l := rubyLines{first: k.Lines, step: w.r.at.info, info: read(w.late, k.Qualname, int(n)*w.r.at.info)}
		if n > 1 {
			blocks := (max(int(k.Count), rubyImmediate) - rubyImmediate + rubyBlock - 1) / rubyBlock
			l.ranks = read(w.late, word(b, w.r.at.insns+rubySucc), rubyImmediate/9*8+blocks*rubyBlockBytes)
			good = good && l.ranks != nil
		}
		good = good && l.info != nil
		fn.lines = l
	}
	return ok && good
}

// reader reads what frames lead to.
func (w *rubyWalk) reader() rubyReader { return rubyReader{w.r, w.late} }

// maxClauses bounds the clauses and evals that are within each other.
const maxClauses = 16

// within is the label of the code with a body, by what that is in: of what Ruby evaluates the label says since 3.4 that it was compiled, and no more.
func (w *rubyWalk) within(body []byte) (label string, ok bool) {
	clauses := ""
	for range maxClauses {
		switch word32(body, 0) {
		case rubyRescue:
			clauses += "rescue in "
		case rubyEnsure:
			clauses += "ensure in "
		case rubyEval:
		default:
			label, ok = w.reader().text(word(body, rubyLabel))
			return clauses + label, ok
		}
		iseq := read(w.late, word(body, w.r.at.insns+rubyParent), rubyISeqSize)
		if iseq == nil { // it is in nothing
			label, ok = w.reader().text(word(body, rubyLabel))
			return label, ok
		}
		if body = read(w.late, word(iseq, rubyBody), w.r.bodyBytes()); body == nil {
			break
		}
	}
	return "", false
}

// label is the label of code in a method, with the class of that, as since 3.4 it has (calculate_iseq_label, vm_backtrace.c).
func (w *rubyWalk) label(owner uint64, body []byte, label string) string {
	local := read(w.late, word(body, w.r.at.insns+rubyLocalISeq), rubyISeqSize)
	if local == nil {
		return label
	}
	b := read(w.late, word(local, rubyBody), rubyLabel+8)
	if b == nil || word32(b, 0) != rubyMethod {
		return label
	}
	name, ok := w.reader().text(word(b, rubyLabel))
	if before, is := strings.CutSuffix(label, name); ok && is {
		return before + w.reader().qualified(owner, name)
	}
	return label
}

// rubyLines are the lines of code (succ_index_lookup, iseq.c).
type rubyLines struct {
	first uint64 // address of the first instruction
	step  int    // bytes of one of info: the line, before other things
	info  []byte
	ranks []byte // which of info a position is of
}

const (
	rubyImmediate  = 54  // positions whose ranks are nine to a word
	rubyBlock      = 512 // positions of each block behind these
	rubyBlockBytes = 80  // rank, ranks of parts of 64 positions, and a bit for each
)

func (t rubyLines) line(at uint64, _ int) int {
	pos := (at - t.first) / 8
	if pos > 0 {
		pos-- // it is behind the instruction that is done
	}
	i := 1
	if len(t.info) > t.step {
		i = t.rank(int(min(pos, 1<<20)))
	}
	if i < 1 || i*t.step > len(t.info) {
		return 0
	}
	return int(int32(word32(t.info, (i-1)*t.step)))
}

func (t rubyLines) rank(pos int) int {
	if pos < rubyImmediate {
		return int(word(t.ranks, pos/9*8) >> (pos % 9 * 7) & 0x7f)
	}
	pos -= rubyImmediate
	at := rubyImmediate/9*8 + pos/rubyBlock*rubyBlockBytes
	if at+rubyBlockBytes > len(t.ranks) {
		return 0
	}
	b := t.ranks[at:]
	n, part := int(word32(b, 0)), pos%rubyBlock/64
	if part > 0 {
		n += int(word(b, 8) >> ((part - 1) * 9) & 0x1ff)
	}
	return n + bits.OnesCount64(word(b, 16+8*part)<<(63-pos%64))
}
