package runtimes

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"

	"sfsample/regs"
	"sfsample/sampler/taking"
)

// python is CPython.
type python struct {
	version string
	head    uint64 // address of the pointer to its list of interpreters
	// attached is the address of the pointer to the state that has the lock; 0: states tell that.
	attached uint64
	loop     uint64
	objects  pyObjects
	pythonLayout
}

// pythonLayout is where words of CPython's structures stand, by offset in bytes.
type pythonLayout struct {
	interpreters pyInterpreters
	state        pyState
	cframe       pyCFrame
	frame        pyFrame
	code         pyCode
}

// pyInterpreters is how interpreters are found: head is in _PyRuntime, as attached, the state that has the lock, of versions whose
// states do not tell that themselves; the others are in PyInterpreterState.
type pyInterpreters struct {
	head, attached uint64
	next, threads  int
}

// pyState is PyThreadState. current leads to the innermost frame; of 3.11 and 3.12 to the innermost _PyCFrame. status, if not 0, has the bits
// that tell whether it has its interpreter's lock.
type pyState struct{ next, interpreter, current, threadID, nativeID, chunk, status, bytes int }

// pyCFrame is _PyCFrame. previous is 0 of versions that have none.
type pyCFrame struct{ current, previous int }

// pyFrame is the frame: PyFrameObject to 3.10, _PyInterpreterFrame since. codeMask has the bits of the pointer to the code that are none of its address.
type pyFrame struct {
	code, previous, globals, instr, owner, bytes int
	codeMask                                     uint64
}

// pyCode is PyCodeObject.
type pyCode struct{ first, file, name, qualname, lines, adaptive, version int }

// firstSelfDescribed is the first minor version whose _PyRuntime tells offsets (_Py_DebugOffsets).
const firstSelfDescribed = 13

// pythonLayouts are the layouts of the versions before, by minor version: offsets in the structures of Include/cpython/pystate.h,
// code.h and frameobject.h, and Include/internal/pycore_{runtime,interp,frame}.h, on 64-bit machines.
var pythonLayouts = map[int]pythonLayout{
	8:  {interpreters: pyInterpreters{head: 0x20, attached: 0x558, threads: 8}, state: pyState{next: 8, interpreter: 16, current: 24, threadID: 176, nativeID: -1, chunk: -1, bytes: 184}, frame: pyFrame{code: 32, previous: 24, globals: 48, instr: 104, owner: -1, bytes: 112}, code: pyCode{first: 40, file: 104, name: 112, qualname: -1, lines: 120, version: -1}},
	9:  {interpreters: pyInterpreters{head: 0x20, attached: 0x238, threads: 8}, state: pyState{next: 8, interpreter: 16, current: 24, threadID: 176, nativeID: -1, chunk: -1, bytes: 184}, frame: pyFrame{code: 32, previous: 24, globals: 48, instr: 104, owner: -1, bytes: 112}, code: pyCode{first: 40, file: 104, name: 112, qualname: -1, lines: 120, version: -1}},
	10: {interpreters: pyInterpreters{head: 0x20, attached: 0x238, threads: 8}, state: pyState{next: 8, interpreter: 16, current: 24, threadID: 176, nativeID: -1, chunk: -1, bytes: 184}, frame: pyFrame{code: 32, previous: 24, globals: 48, instr: 96, owner: -1, bytes: 112}, code: pyCode{first: 40, file: 104, name: 112, qualname: -1, lines: 120, version: -1}},
	11: {interpreters: pyInterpreters{head: 0x28, attached: 0x240, threads: 16}, state: pyState{next: 8, interpreter: 16, current: 56, threadID: 152, nativeID: 160, chunk: 296, bytes: 360}, cframe: pyCFrame{current: 8, previous: 16}, frame: pyFrame{code: 32, previous: 48, globals: 8, instr: 56, owner: 69, bytes: 72}, code: pyCode{first: 72, file: 112, name: 120, qualname: 128, lines: 136, adaptive: 184, version: -1}},
	12: {interpreters: pyInterpreters{head: 0x28, threads: 72}, state: pyState{next: 8, interpreter: 16, current: 56, threadID: 136, nativeID: 144, chunk: 232, status: 24, bytes: 288}, cframe: pyCFrame{current: 0, previous: 8}, frame: pyFrame{code: 0, previous: 8, globals: 24, instr: 56, owner: 70, bytes: 72}, code: pyCode{first: 68, file: 112, name: 120, qualname: 128, lines: 136, adaptive: 192, version: 92}},
}

// debugOffsets are the words of _Py_DebugOffsets behind its cookie that are used here, by their number, that of
// the cookie being 0: of structures that of their size, behind which their members follow (Include/internal/pycore_runtime.h of 3.13, pycore_debug_offsets.h since).
type debugOffsets struct {
	head, nextInterpreter, threadsHead, thread, threadID, frame, code int
	codeMask                                                          uint64
}

var pythonDebugOffsets = map[int]debugOffsets{
	13: {head: 5, nextInterpreter: 8, threadsHead: 9, thread: 19, threadID: 24, frame: 28, code: 34},
	14: {head: 5, nextInterpreter: 8, threadsHead: 9, thread: 22, threadID: 27, frame: 31, code: 39, codeMask: 7},
	15: {head: 5, nextInterpreter: 8, threadsHead: 9, thread: 22, threadID: 30, frame: 39, code: 47, codeMask: 7},
}

// active is the bit of a PyThreadState's _status that says that its thread is the one that runs its interpreter: with a lock, that which has it.
const active = 1 << 4

// Owners of an _PyInterpreterFrame (enum _frameowner): those from here on are no frames of scripts, but begin an activation of the
// loop, and lie on the native stack.
const ownedByNative = 3

var pythonName = regexp.MustCompile(`python3\.(\d+)`)

// newPython reads what must be known of the CPython with these symbols.
func newPython(file string, syms map[string]uint64, mem io.ReaderAt) (Runtime, error) {
	o := pyObjects{code: syms["PyCode_Type"], text: syms["PyUnicode_Type"], bytes: syms["PyBytes_Type"], dict: syms["PyDict_Type"]}
	if o.code == 0 || o.text == 0 || o.bytes == 0 || o.dict == 0 {
		return nil, fmt.Errorf("%s: this python exports no types, its scripts are not shown", path.Base(file))
	}
	p := &python{loop: syms["_PyEval_EvalFrameDefault"], objects: o}
	runtime := syms["_PyRuntime"]
	if b := read(mem, syms["Py_Version"], 4); b != nil { // since 3.11
		v := word32(b, 0) // PY_VERSION_HEX
		if v>>24 != 3 {
			return nil, unknownPython(fmt.Sprintf("%d", v>>24))
		}
		p.objects.minor, p.version = int(v>>16&0xff), fmt.Sprintf("3.%d.%d", v>>16&0xff, v>>8&0xff)
	} else if m := pythonName.FindStringSubmatch(path.Base(file)); m != nil {
		p.objects.minor, _ = strconv.Atoi(m[1])
		p.version = "3." + m[1]
	} else {
		return nil, unknownPython("not told by " + path.Base(file))
	}
	if p.objects.minor >= firstSelfDescribed {
		if err := p.describe(mem, runtime); err != nil {
			return nil, err
		}
	} else if l, ok := pythonLayouts[p.objects.minor]; ok {
		p.pythonLayout = l
	} else {
		return nil, unknownPython(p.version)
	}
	p.head = runtime + p.interpreters.head
	if p.interpreters.attached > 0 {
		p.attached = runtime + p.interpreters.attached
	}
	return p, nil
}

func unknownPython(version string) error {
	return fmt.Errorf("python of version %s is not known, its scripts are not shown (known: 3.8 to 3.15)", version)
}

// describe takes the layout from the offsets that the interpreter tells of itself.
func (p *python) describe(mem io.ReaderAt, runtime uint64) error {
	d, ok := pythonDebugOffsets[p.objects.minor]
	if !ok {
		return unknownPython(p.version)
	}
	const words = 64
	b := read(mem, runtime, 8*words)
	if b == nil || !bytes.Equal(b[:8], []byte("xdebugpy")) || int(word(b, 8)>>16&0xff) != p.objects.minor {
		return fmt.Errorf("python %s does not tell its offsets, its scripts are not shown", p.version)
	}
	if word(b, 16) != 0 {
		return fmt.Errorf("python %s without a lock (free-threaded) is not known, its scripts are not shown", p.version)
	}
	bad := false
	at := func(i int) int {
		v := word(b, 8*i)
		bad = bad || v > 1<<16
		return int(v & (1<<16 - 1))
	}
	p.pythonLayout = pythonLayout{
		interpreters: pyInterpreters{head: uint64(at(d.head)), next: at(d.nextInterpreter), threads: at(d.threadsHead)},
		state:        pyState{next: at(d.thread + 2), interpreter: at(d.thread + 3), current: at(d.thread + 4), threadID: at(d.threadID), nativeID: at(d.threadID + 1), chunk: at(d.threadID + 2), status: at(d.threadID + 3)},
		frame: pyFrame{previous: at(d.frame + 1), code: at(d.frame + 2), instr: at(d.frame + 3), owner: at(d.frame + 5), codeMask: d.codeMask,
			globals: at(d.frame+2) + 24}, // f_globals, which is not told: behind f_executable, previous and f_funcobj
		code: pyCode{file: at(d.code + 1), name: at(d.code + 2), qualname: at(d.code + 3), lines: at(d.code + 4), first: at(d.code + 5), adaptive: at(d.code + 9), version: 92},
	}
	p.state.bytes = max(p.state.next, p.state.interpreter, p.state.current, p.state.threadID, p.state.nativeID, p.state.chunk+8, p.state.status) + 8
	p.frame.bytes = (max(p.frame.previous, p.frame.code, p.frame.instr, p.frame.owner, p.frame.globals) + 15) &^ 7
	if bad || p.state.bytes > 4096 || p.frame.bytes > 256 || p.code.bytes() > 512 {
		return fmt.Errorf("python %s tells offsets that cannot be, its scripts are not shown", p.version)
	}
	return nil
}

// bytes is how much of a code object is copied.
func (c *pyCode) bytes() int {
	return max(16, c.first+4, c.file+8, c.name+8, c.qualname+8, c.lines+8, c.version+4)
}

func (p *python) Name() string    { return "python" }
func (p *python) Version() string { return p.version }
func (p *python) Loop() uint64    { return p.loop }

// Registers implements Runtime.
func (p *python) Registers(*regs.Arch) (frame, at uint8, ok bool) { return 0, 0, false }

// Bounds of the lists that are followed, outside of stops.
const (
	maxInterpreters = 64
	maxThreads      = 1 << 14
)

// Roots implements Runtime.
func (p *python) Roots(mem io.ReaderAt, th Thread) (roots []taking.Root) {
	b := read(mem, p.head, 8)
	if b == nil {
		return nil
	}
	threads := 0
	interp := word(b, 0)
	for range maxInterpreters {
		if b = read(mem, interp+uint64(p.interpreters.next), 8); b == nil {
			return roots
		}
		next := word(b, 0)
		if b = read(mem, interp+uint64(p.interpreters.threads), 8); b == nil {
			return roots
		}
		for ts := word(b, 0); ts != 0 && threads < maxThreads; threads++ {
			s := read(mem, ts, p.state.bytes)
			if s == nil || word(s, p.state.interpreter) != interp {
				break
			}
			addr := ts
			if r := (taking.Root{Addr: ts, Is: word(s, p.state.threadID)}); p.state.isOf(s, r.Is, th) {
				if p.state.nativeID < 0 && th.Pointer == 0 {
					// The structure of the thread is at the upper end of its stack: that of another one is further up.
					if len(roots) == 0 || r.Is < roots[0].Is {
						roots = append(roots[:0], r)
					}
				} else if len(roots) < taking.MaxRoots {
					roots = append(roots, r)
				}
			}
			if ts = word(s, p.state.next); ts == 0 && next == 0 && p.state.isFirst(s, th) {
				roots = []taking.Root{{Addr: addr, Is: word(s, p.state.threadID)}}
			}
		}
		if interp = next; interp == 0 {
			break
		}
	}
	return roots
}

// isOf tells whether s is the state of a thread, whose pthread_self is id. Without its registers, and before states had the kernel's
// id, one that is not the first is known by where its stack lies.
func (l *pyState) isOf(s []byte, id uint64, th Thread) bool {
	switch {
	case th.Pointer != 0:
		return id == th.Pointer
	case l.nativeID >= 0:
		return word(s, l.nativeID) == uint64(th.TID)
	}
	return id > th.SP && id < th.StackEnd
}

// isFirst tells whether s, the last state of the last interpreter, which is where lists grow away from, is that of a process's first
// thread, of which there are no registers: its innermost frame's address is on the stack then, where the loop keeps it.
func (l *pyState) isFirst(s []byte, th Thread) bool {
	frame := s[l.current : l.current+8]
	if l.nativeID >= 0 || th.Pointer != 0 || !th.First || word(frame, 0) == 0 {
		return false
	}
	for i := 0; i+8 <= len(th.Stack); i += 8 {
		if bytes.Equal(th.Stack[i:i+8], frame) {
			return true
		}
	}
	return false
}

// Bounds of what is copied in a stop.
const (
	maxChunks  = 40
	maxCFrames = 400
	leastRoom  = 24 << 10
	mostRoom   = taking.MostRoom
	// chunkSlack is how much more of the newest chunk is foreseen than it held: it costs less than a second read.
	chunkSlack = 1 << 10
	// guessedCodes is of how many frames the code is copied too, from the innermost on.
	guessedCodes = 20
)

// Recipe implements Runtime.
func (p *python) Recipe(roots []taking.Root, last *Stack) *taking.Recipe {
	r := &taking.Recipe{RootBytes: p.state.bytes, Check: p.state.threadID}
	copy(r.Roots[:], roots)
	frames := taking.Step{Bytes: p.frame.bytes, Head: p.state.current, Next: p.frame.previous, Most: 512, Mask: 7, Part: taking.Part{At: p.frame.code, Bytes: p.code.bytes(), Mask: p.frame.codeMask, Late: true}}
	n := 0
	add := func(s taking.Step) { r.Steps[n], n = s, n+1 }
	if p.attached != 0 && len(roots) > 0 {
		// It is foreseen too, but of what is foreseen nothing is copied behind an area that is gone. What it points at is not wanted.
		add(taking.Step{Bytes: 8, Head: p.state.threadID, Via: true, At: p.attached - roots[0].Is})
	}
	if p.state.chunk >= 0 {
		// _PyStackChunk: previous, size, top, data; datastack_top follows datastack_chunk.
		add(taking.Step{Bytes: 24, Head: p.state.chunk, Fill: 16, End: p.state.chunk + 8, Most: maxChunks})
	}
	if p.cframe.previous != 0 {
		add(taking.Step{Bytes: 24, Head: p.state.current, Next: p.cframe.previous, Most: maxCFrames})
		frames.Via, frames.At = true, uint64(p.cframe.current)
	}
	add(frames)

	spans := make([]Span, 0, 1+len(last.Spans)+guessedCodes+taking.MaxRoots)
	if p.attached != 0 {
		spans = append(spans, Span{p.attached, 8})
	}
	for _, root := range roots {
		spans = append(spans, Span{root.Addr, p.state.bytes})
	}
	spans = append(spans, last.Spans...)
	codes := 0
	for i := range last.Frames {
		if c := last.Frames[i].Code; codes < guessedCodes && (i == 0 || c != last.Frames[i-1].Code) {
			codes++
			spans = append(spans, Span{c, p.code.bytes()})
		}
	}
	room := foresee(r, spans)
	r.Room = min(max(2*room, leastRoom), mostRoom)
	if last.Short {
		r.Room = mostRoom
	}
	return r
}

// maxScript bounds the frames of a stack.
const maxScript = 4096

// Frames implements Runtime.
func (p *python) Frames(mem Memory, _ io.ReaderAt, roots []uint64, st *Stack) {
	st.Reset()
	for _, root := range roots {
		if s := mem.Bytes(root, p.state.bytes); s != nil {
			st.Locked = st.Locked || p.locked(mem, root, s)
			p.thread(mem, s, st)
		}
	}
}

// locked tells whether the state s, at root, has the lock.
func (p *python) locked(mem Memory, root uint64, s []byte) bool {
	if p.attached == 0 {
		return word32(s, p.state.status)&active != 0
	}
	has, ok := mem.Word(p.attached)
	return ok && has == root
}

// thread decodes the frames of one state.
func (p *python) thread(mem Memory, s []byte, st *Stack) {
	if p.state.chunk >= 0 {
		p.state.chunks(mem, s, st)
	}
	if p.cframe.previous == 0 {
		p.frames(mem, word(s, p.state.current), ^uint64(0), 0, st)
		return
	}
	// Each activation of the loop has its _PyCFrame on the stack, the last one is in the state itself.
	cf := word(s, p.state.current)
	b := mem.Bytes(cf, 24)
	if b == nil {
		st.Short = true
		return
	}
	if p.objects.minor >= 12 {
		p.frames(mem, word(b, p.cframe.current), ^uint64(0), 0, st)
		return
	}
	for range maxCFrames {
		next := word(b, p.cframe.previous)
		var end uint64 // where the frames of the next one begin
		outer := mem.Bytes(next, 24)
		if next != 0 && outer == nil {
			st.Short = true
			return
		}
		if outer != nil {
			end = word(outer, p.cframe.current)
		}
		if !p.frames(mem, word(b, p.cframe.current), end, cf, st) || next == 0 {
			return
		}
		cf, b = next, outer
	}
	st.Short = true
}

// frames appends those from addr on, up to end. anchor is in the native frame that runs them; 0: they tell that themselves.
// false: they could not all be followed.
func (p *python) frames(mem Memory, addr, end, anchor uint64, st *Stack) bool {
	n, steps := 0, 0
	for addr &^= 7; addr != 0 && addr != end; steps++ {
		f := mem.Bytes(addr, p.frame.bytes)
		if f == nil || len(st.Frames) >= maxScript || steps >= 2*maxScript { // those of native code come between, and may lead in a circle
			st.Short = true
			st.segment(n, ^uint64(0))
			return false
		}
		if p.frame.owner >= 0 && f[p.frame.owner] >= ownedByNative && p.objects.minor >= 12 {
			st.segment(n, addr) // it is in the copy of the stack
			if n == 0 && word(f, p.frame.previous) == 0 {
				st.Spans = append(st.Spans, Span{addr, p.frame.bytes}) // of 3.15, the one in the state that all others are called from
			}
			n = 0
		} else {
			if p.frame.owner >= 0 && f[p.frame.owner] == 1 || p.frame.owner < 0 {
				st.Spans = append(st.Spans, Span{addr, p.frame.bytes}) // of a generator, or on the heap as all were
			}
			at := word(f, p.frame.instr)
			if p.frame.owner < 0 {
				at = uint64(int64(int32(at))) // f_lasti
			}
			st.Frames = append(st.Frames, Frame{Addr: addr, Code: word(f, p.frame.code) &^ p.frame.codeMask, Globals: word(f, p.frame.globals), At: at})
			n++
			if p.frame.owner < 0 {
				st.segment(n, 0)
				n = 0
			}
		}
		addr = word(f, p.frame.previous) &^ 7
	}
	st.segment(n, anchor)
	return true
}

func (s *Stack) segment(n int, anchor uint64) {
	if n > 0 {
		s.Segments = append(s.Segments, Segment{N: n, Anchor: anchor})
	}
}

// chunks notes where the frames of a thread lie.
func (l *pyState) chunks(mem Memory, s []byte, st *Stack) {
	addr, end := word(s, l.chunk), word(s, l.chunk+8)
	for i := 0; i < maxChunks && addr != 0; i++ {
		b := mem.Bytes(addr, 24)
		if b == nil {
			return
		}
		if i > 0 {
			end = addr + 24 + 8*(word(b, 16)&(1<<20-1))
		}
		size := min(word(b, 8), 1<<20)
		if n := end - addr; n >= 24 && n <= size {
			if i == 0 {
				n = min(n+chunkSlack, size)
			}
			st.Spans = append(st.Spans, Span{addr, int(n)})
		}
		addr = word(b, 0)
	}
}

// Key implements Runtime.
func (p *python) Key(mem Memory, late io.ReaderAt, f *Frame) (Key, bool) {
	b := mem.Bytes(f.Code, p.code.bytes())
	if b == nil {
		if b = read(late, f.Code, p.code.bytes()); b == nil {
			return Key{}, false
		}
	}
	return p.key(b, f)
}

// key is the identity of the code whose beginning is b. ok is false where no code is.
func (p *python) key(b []byte, f *Frame) (k Key, ok bool) {
	if !p.objects.alive(b, p.objects.code) {
		return k, false
	}
	k = Key{Code: f.Code, Globals: f.Globals, Name: word(b, p.code.name), File: word(b, p.code.file), Lines: word(b, p.code.lines), First: word32(b, p.code.first)}
	if p.code.qualname >= 0 {
		k.Qualname = word(b, p.code.qualname)
	}
	if p.code.version >= 0 {
		k.Version = word32(b, p.code.version)
	}
	return k, true
}

// Function implements Runtime.
func (p *python) Function(mem io.ReaderAt, f *Frame, k Key) (*Function, bool) {
	name := k.Qualname
	if name == 0 {
		name = k.Name
	}
	if k.File == k.Name && k.First == 0 {
		return new(Function), true // _Py_InitCleanup (Objects/codeobject.c), which calls an __init__
	}
	fn := &Function{First: int(int32(k.First))}
	ok := true
	part := func(addr uint64) string {
		s, good := p.objects.string(mem, addr)
		ok = ok && good
		return s
	}
	fn.Name, fn.File = part(name), part(k.File)
	table, good := p.objects.byteString(mem, k.Lines)
	if !ok || !good {
		return nil, false
	}
	if m := p.objects.module(mem, k.Globals); m != "" {
		fn.Name = m + "." + fn.Name
	}
	switch {
	case p.objects.minor <= 9:
		fn.lines = lnotab(table)
	case p.objects.minor == 10:
		fn.lines = linetable310(table)
	default:
		fn.lines = locations{f.Code + uint64(p.code.adaptive), table}
	}
	// What was read is the code's only if it still is what it was.
	b := read(mem, f.Code, p.code.bytes())
	if b == nil {
		return nil, false
	}
	again, ok := p.key(b, f)
	// Before 3.12 code has no number, and what a program compiles from text, and drops, often has the addresses of what it did before.
	fn.Passing = p.code.version < 0 && strings.HasPrefix(fn.File, "<") && !strings.HasPrefix(fn.File, "<frozen ")
	return fn, ok && again == k
}
