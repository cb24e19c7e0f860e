package runtimes

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"

	"sfsample/regs"
	"sfsample/sampler/taking"
)

// python is CPython.
type python struct {
	minor   int // of version 3
	version string
	head    uint64 // address of the pointer to its list of interpreters
	loop    uint64
	types   struct{ code, text, bytes, dict uint64 } // addresses of its types
	pythonLayout
}

// pythonLayout is where words of CPython's structures stand, by offset in bytes.
type pythonLayout struct {
	interpretersHead             uint64 // in _PyRuntime
	nextInterpreter, threadsHead int    // in PyInterpreterState
	// In PyThreadState. current leads to the innermost frame; of 3.11 and 3.12 to the innermost _PyCFrame.
	nextThread, interpreter, current, threadID, nativeID, chunk, threadBytes int
	// In the frame: PyFrameObject to 3.10, _PyInterpreterFrame since.
	code, previous, globals, instr, owner, frameBytes int
	codeMask                                          uint64 // bits of the pointer to the code that are none of its address
	cframe                                            bool   // current leads to a _PyCFrame
	cframeCurrent, cframePrevious                     int
	// In PyCodeObject.
	first, file, name, qualname, lines, adaptive, codeVersion int
	text                                                      int // data of an ASCII string; others have 16 bytes more
}

// firstSelfDescribed is the first minor version whose _PyRuntime tells offsets (_Py_DebugOffsets).
const firstSelfDescribed = 13

// pythonLayouts are the layouts of the versions before, by minor version: offsets in the structures of Include/cpython/pystate.h,
// code.h and frameobject.h, and Include/internal/pycore_{runtime,interp,frame}.h, on 64-bit machines.
var pythonLayouts = map[int]pythonLayout{
	8:  {interpretersHead: 0x20, threadsHead: 8, nextThread: 8, interpreter: 16, current: 24, threadID: 176, nativeID: -1, chunk: -1, threadBytes: 184, code: 32, previous: 24, globals: 48, instr: 104, owner: -1, frameBytes: 112, first: 40, file: 104, name: 112, qualname: -1, lines: 120, codeVersion: -1, text: 48},
	9:  {interpretersHead: 0x20, threadsHead: 8, nextThread: 8, interpreter: 16, current: 24, threadID: 176, nativeID: -1, chunk: -1, threadBytes: 184, code: 32, previous: 24, globals: 48, instr: 104, owner: -1, frameBytes: 112, first: 40, file: 104, name: 112, qualname: -1, lines: 120, codeVersion: -1, text: 48},
	10: {interpretersHead: 0x20, threadsHead: 8, nextThread: 8, interpreter: 16, current: 24, threadID: 176, nativeID: -1, chunk: -1, threadBytes: 184, code: 32, previous: 24, globals: 48, instr: 96, owner: -1, frameBytes: 112, first: 40, file: 104, name: 112, qualname: -1, lines: 120, codeVersion: -1, text: 48},
	11: {interpretersHead: 0x28, threadsHead: 16, nextThread: 8, interpreter: 16, current: 56, threadID: 152, nativeID: 160, chunk: 296, threadBytes: 360, cframe: true, cframeCurrent: 8, cframePrevious: 16, code: 32, previous: 48, globals: 8, instr: 56, owner: 69, frameBytes: 72, first: 72, file: 112, name: 120, qualname: 128, lines: 136, adaptive: 184, codeVersion: -1, text: 48},
	12: {interpretersHead: 0x28, threadsHead: 72, nextThread: 8, interpreter: 16, current: 56, threadID: 136, nativeID: 144, chunk: 232, threadBytes: 288, cframe: true, cframeCurrent: 0, cframePrevious: 8, code: 0, previous: 8, globals: 24, instr: 56, owner: 70, frameBytes: 72, first: 68, file: 112, name: 120, qualname: 128, lines: 136, adaptive: 192, codeVersion: 92, text: 40},
}

// debugOffsets are the words of _Py_DebugOffsets behind its cookie that are used here, by their number, that of
// the cookie being 0: of structures that of their size, behind which their members follow (Include/internal/pycore_runtime.h of 3.13, pycore_debug_offsets.h of 3.14).
type debugOffsets struct {
	head, nextInterpreter, threadsHead, thread, frame, code int
	codeMask                                                uint64
}

var pythonDebugOffsets = map[int]debugOffsets{
	13: {head: 5, nextInterpreter: 8, threadsHead: 9, thread: 19, frame: 28, code: 34},
	14: {head: 5, nextInterpreter: 8, threadsHead: 9, thread: 22, frame: 31, code: 39, codeMask: 7},
}

// Owners of an _PyInterpreterFrame (enum _frameowner): those from here on are no frames of scripts, but begin an activation of the
// loop, and lie on the native stack.
const ownedByNative = 3

var pythonName = regexp.MustCompile(`python3\.(\d+)`)

// newPython reads what must be known of the CPython with these symbols.
func newPython(file string, syms map[string]uint64, mem io.ReaderAt) (Runtime, error) {
	p := &python{loop: syms["_PyEval_EvalFrameDefault"]}
	p.types.code, p.types.text, p.types.bytes, p.types.dict = syms["PyCode_Type"], syms["PyUnicode_Type"], syms["PyBytes_Type"], syms["PyDict_Type"]
	if p.types.code == 0 || p.types.text == 0 || p.types.bytes == 0 || p.types.dict == 0 {
		return nil, fmt.Errorf("%s: this python exports no types, its scripts are not shown", path.Base(file))
	}
	runtime := syms["_PyRuntime"]
	if b := read(mem, syms["Py_Version"], 4); b != nil { // since 3.11
		v := word32(b, 0) // PY_VERSION_HEX
		if v>>24 != 3 {
			return nil, unknownPython(fmt.Sprintf("%d", v>>24))
		}
		p.minor, p.version = int(v>>16&0xff), fmt.Sprintf("3.%d.%d", v>>16&0xff, v>>8&0xff)
	} else if m := pythonName.FindStringSubmatch(path.Base(file)); m != nil {
		p.minor, _ = strconv.Atoi(m[1])
		p.version = "3." + m[1]
	} else {
		return nil, unknownPython("not told by " + path.Base(file))
	}
	if p.minor >= firstSelfDescribed {
		if err := p.describe(mem, runtime); err != nil {
			return nil, err
		}
	} else if l, ok := pythonLayouts[p.minor]; ok {
		p.pythonLayout = l
	} else {
		return nil, unknownPython(p.version)
	}
	p.head = runtime + p.interpretersHead
	return p, nil
}

func unknownPython(version string) error {
	return fmt.Errorf("python of version %s is not known, its scripts are not shown (known: 3.8 to 3.14)", version)
}

// describe takes the layout from the offsets that the interpreter tells of itself.
func (p *python) describe(mem io.ReaderAt, runtime uint64) error {
	d, ok := pythonDebugOffsets[p.minor]
	if !ok {
		return unknownPython(p.version)
	}
	const words = 64
	b := read(mem, runtime, 8*words)
	if b == nil || !bytes.Equal(b[:8], []byte("xdebugpy")) || int(word(b, 8)>>16&0xff) != p.minor {
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
		interpretersHead: uint64(at(d.head)), nextInterpreter: at(d.nextInterpreter), threadsHead: at(d.threadsHead),
		nextThread: at(d.thread + 2), interpreter: at(d.thread + 3), current: at(d.thread + 4), threadID: at(d.thread + 5), nativeID: at(d.thread + 6), chunk: at(d.thread + 7),
		previous: at(d.frame + 1), code: at(d.frame + 2), instr: at(d.frame + 3), owner: at(d.frame + 5), codeMask: d.codeMask,
		globals: at(d.frame+2) + 24, // f_globals, which is not told: behind f_executable, previous and f_funcobj
		file:    at(d.code + 1), name: at(d.code + 2), qualname: at(d.code + 3), lines: at(d.code + 4), first: at(d.code + 5), adaptive: at(d.code + 9),
		codeVersion: 92, text: 40,
	}
	p.threadBytes = max(p.nextThread, p.interpreter, p.current, p.threadID, p.nativeID, p.chunk+8) + 8
	p.frameBytes = (max(p.previous, p.code, p.instr, p.owner, p.globals) + 8) &^ 7
	if bad || p.threadBytes > 4096 || p.frameBytes > 256 || p.codeBytes() > 512 {
		return fmt.Errorf("python %s tells offsets that cannot be, its scripts are not shown", p.version)
	}
	return nil
}

// codeBytes is how much of a code object is copied.
func (p *python) codeBytes() int {
	return max(16, p.first+4, p.file+8, p.name+8, p.qualname+8, p.lines+8, p.codeVersion+4)
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
		if b = read(mem, interp+uint64(p.nextInterpreter), 8); b == nil {
			return roots
		}
		next := word(b, 0)
		if b = read(mem, interp+uint64(p.threadsHead), 8); b == nil {
			return roots
		}
		for ts := word(b, 0); ts != 0 && threads < maxThreads; threads++ {
			s := read(mem, ts, p.threadBytes)
			if s == nil || word(s, p.interpreter) != interp {
				break
			}
			addr := ts
			if r := (taking.Root{Addr: ts, Is: word(s, p.threadID)}); p.isOf(s, r.Is, th) {
				if p.nativeID < 0 && th.Pointer == 0 {
					// The structure of the thread is at the upper end of its stack: that of another one is further up.
					if len(roots) == 0 || r.Is < roots[0].Is {
						roots = append(roots[:0], r)
					}
				} else if len(roots) < taking.MaxRoots {
					roots = append(roots, r)
				}
			}
			if ts = word(s, p.nextThread); ts == 0 && next == 0 && p.isFirst(s, th) {
				roots = []taking.Root{{Addr: addr, Is: word(s, p.threadID)}}
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
func (p *python) isOf(s []byte, id uint64, th Thread) bool {
	switch {
	case th.Pointer != 0:
		return id == th.Pointer
	case p.nativeID >= 0:
		return word(s, p.nativeID) == uint64(th.TID)
	}
	return id > th.SP && id < th.StackEnd
}

// isFirst tells whether s, the last state of the last interpreter, which is where lists grow away from, is that of a process's first
// thread, of which there are no registers: its innermost frame's address is on the stack then, where the loop keeps it.
func (p *python) isFirst(s []byte, th Thread) bool {
	frame := s[p.current : p.current+8]
	if p.nativeID >= 0 || th.Pointer != 0 || !th.First || word(frame, 0) == 0 {
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
	r := &taking.Recipe{RootBytes: p.threadBytes, Check: p.threadID}
	copy(r.Roots[:], roots)
	frames := taking.Step{Bytes: p.frameBytes, Head: p.current, Next: p.previous, Most: 512, Mask: 7, Part: taking.Part{At: p.code, Bytes: p.codeBytes(), Mask: p.codeMask}}
	n := 0
	add := func(s taking.Step) { r.Steps[n], n = s, n+1 }
	if p.chunk >= 0 {
		// _PyStackChunk: previous, size, top, data; datastack_top follows datastack_chunk.
		add(taking.Step{Bytes: 24, Head: p.chunk, Fill: 16, End: p.chunk + 8, Most: maxChunks})
	}
	if p.cframe {
		add(taking.Step{Bytes: 24, Head: p.current, Next: p.cframePrevious, Most: maxCFrames})
		frames.Via, frames.At = true, uint64(p.cframeCurrent)
	}
	add(frames)

	spans := make([]Span, 0, len(last.Spans)+guessedCodes+taking.MaxRoots)
	for _, root := range roots {
		spans = append(spans, Span{root.Addr, p.threadBytes})
	}
	spans = append(spans, last.Spans...)
	codes := 0
	for i := range last.Frames {
		if c := last.Frames[i].Code; codes < guessedCodes && (i == 0 || c != last.Frames[i-1].Code) {
			codes++
			spans = append(spans, Span{c, p.codeBytes()})
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
		if s := mem.Bytes(root, p.threadBytes); s != nil {
			p.thread(mem, s, st)
		}
	}
}

// thread decodes the frames of one state.
func (p *python) thread(mem Memory, s []byte, st *Stack) {
	if p.chunk >= 0 {
		p.chunks(mem, s, st)
	}
	if !p.cframe {
		p.frames(mem, word(s, p.current), ^uint64(0), 0, st)
		return
	}
	// Each activation of the loop has its _PyCFrame on the stack, the last one is in the state itself.
	cf := word(s, p.current)
	b := mem.Bytes(cf, 24)
	if b == nil {
		st.Short = true
		return
	}
	if p.minor >= 12 {
		p.frames(mem, word(b, p.cframeCurrent), ^uint64(0), 0, st)
		return
	}
	for range maxCFrames {
		next := word(b, p.cframePrevious)
		var end uint64 // where the frames of the next one begin
		outer := mem.Bytes(next, 24)
		if next != 0 && outer == nil {
			st.Short = true
			return
		}
		if outer != nil {
			end = word(outer, p.cframeCurrent)
		}
		if !p.frames(mem, word(b, p.cframeCurrent), end, cf, st) || next == 0 {
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
		f := mem.Bytes(addr, p.frameBytes)
		if f == nil || len(st.Frames) >= maxScript || steps >= 2*maxScript { // those of native code come between, and may lead in a circle
			st.Short = true
			st.segment(n, ^uint64(0))
			return false
		}
		if p.owner >= 0 && f[p.owner] >= ownedByNative && p.minor >= 12 {
			st.segment(n, addr) // it is in the copy of the stack
			n = 0
		} else {
			if p.owner >= 0 && f[p.owner] == 1 || p.owner < 0 {
				st.Spans = append(st.Spans, Span{addr, p.frameBytes}) // of a generator, or on the heap as all were
			}
			at := word(f, p.instr)
			if p.owner < 0 {
				at = uint64(int64(int32(at))) // f_lasti
			}
			st.Frames = append(st.Frames, Frame{Addr: addr, Code: word(f, p.code) &^ p.codeMask, Globals: word(f, p.globals), At: at})
			n++
			if p.owner < 0 {
				st.segment(n, 0)
				n = 0
			}
		}
		addr = word(f, p.previous) &^ 7
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
func (p *python) chunks(mem Memory, s []byte, st *Stack) {
	addr, end := word(s, p.chunk), word(s, p.chunk+8)
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
	b := mem.Bytes(f.Code, p.codeBytes())
	if b == nil {
		if b = read(late, f.Code, p.codeBytes()); b == nil {
			return Key{}, false
		}
	}
	return p.key(b, f)
}

// key is the identity of the code whose beginning is b. ok is false where no code is.
func (p *python) key(b []byte, f *Frame) (k Key, ok bool) {
	if word(b, 8) != p.types.code || !p.alive(word(b, 0)) {
		return k, false
	}
	k = Key{Code: f.Code, Globals: f.Globals, Name: word(b, p.name), File: word(b, p.file), Lines: word(b, p.lines), First: word32(b, p.first)}
	if p.qualname >= 0 {
		k.Qualname = word(b, p.qualname)
	}
	if p.codeVersion >= 0 {
		k.Version = word32(b, p.codeVersion)
	}
	return k, true
}

// alive tells whether a word can be a count of references: allocators put pointers there when an object is freed. The count has 32
// bits since 3.12, with flags in the upper 16 bits since 3.14.
func (p *python) alive(refs uint64) bool {
	if p.minor >= 14 {
		refs &= 1<<48 - 1
	}
	return refs != 0 && refs < 1<<32
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
		s, good := p.string(mem, addr)
		ok = ok && good
		return s
	}
	fn.Name, fn.File = part(name), part(k.File)
	table, good := p.byteString(mem, k.Lines)
	if !ok || !good {
		return nil, false
	}
	if m := p.module(mem, k.Globals); m != "" {
		fn.Name = m + "." + fn.Name
	}
	switch {
	case p.minor <= 9:
		fn.lines = lnotab(table)
	case p.minor == 10:
		fn.lines = linetable310(table)
	default:
		fn.lines = locations{f.Code + uint64(p.adaptive), table}
	}
	// What was read is the code's only if it still is what it was.
	b := read(mem, f.Code, p.codeBytes())
	if b == nil {
		return nil, false
	}
	again, ok := p.key(b, f)
	return fn, ok && again == k
}

// Bounds of names and tables, in bytes.
const (
	maxText  = 4 << 10
	maxTable = 1 << 20
)

// string is a str object.
func (p *python) string(mem io.ReaderAt, addr uint64) (string, bool) {
	// PyASCIIObject: length 16, hash 24, state 32: kind in bits 2 to 4, compact in bit 5, ascii in bit 6.
	b := read(mem, addr, 40)
	if b == nil || word(b, 8) != p.types.text || !p.alive(word(b, 0)) {
		return "", false
	}
	state := word32(b, 32)
	kind, data := int(state>>2&7), addr+uint64(p.text)
	if state&(1<<5) == 0 || kind != 1 && kind != 2 && kind != 4 {
		return "", false
	}
	if state&(1<<6) == 0 {
		data += 16
		if p.minor < 12 { // PyCompactUnicodeObject had wstr_length too
			data += 8
		}
	}
	n := word(b, 16)
	if n == 0 {
		return "", true
	}
	cut := n > maxText
	raw := read(mem, data, int(min(n, maxText))*kind)
	if raw == nil {
		return "", false
	}
	runes := make([]rune, 0, len(raw)/kind)
	for i := 0; i+kind <= len(raw); i += kind {
		switch kind {
		case 1:
			runes = append(runes, rune(raw[i]))
		case 2:
			runes = append(runes, rune(binary.NativeEndian.Uint16(raw[i:])))
		default:
			runes = append(runes, rune(binary.NativeEndian.Uint32(raw[i:])&0x7fffffff))
		}
	}
	if cut {
		runes = append(runes, '…')
	}
	return string(runes), true
}

// byteString is a bytes object: size 16, data 32.
func (p *python) byteString(mem io.ReaderAt, addr uint64) ([]byte, bool) {
	b := read(mem, addr, 24)
	if b == nil || word(b, 8) != p.types.bytes || !p.alive(word(b, 0)) || word(b, 16) > maxTable {
		return nil, false
	}
	if word(b, 16) == 0 {
		return nil, true
	}
	t := read(mem, addr+32, int(word(b, 16)))
	return t, t != nil
}

// nameEntries is among how many of the first names of a module its own is looked for: modules begin with it (PyModule_NewObject).
const nameEntries = 8

// nameReads is how often that is looked for: of a dict that grows the thread moves the names meanwhile (dictresize, Objects/dictobject.c).
const nameReads = 4

// module is the value of __name__ in a dict, empty if it is not found.
func (p *python) module(mem io.ReaderAt, dict uint64) (name string) {
	for range nameReads {
		if name = p.moduleOnce(mem, dict); name != "" {
			break
		}
	}
	return name
}

func (p *python) moduleOnce(mem io.ReaderAt, dict uint64) string {
	b := read(mem, dict, 48) // PyDictObject: ma_keys 32, ma_values 40
	if b == nil || word(b, 8) != p.types.dict || word(b, 40) != 0 {
		return ""
	}
	keys := word(b, 32)
	if b = read(mem, keys, 40); b == nil {
		return ""
	}
	// PyDictKeysObject, since 3.11: log2 of the indices' bytes at 9, kind at 10, indices at 32; before: their number at 8,
	// indices at 40. Entries are hash, key, value, or key, value of kind 1.
	var entries uint64
	size := 24
	if p.minor >= 11 {
		if b[9] > 32 {
			return ""
		}
		entries = keys + 32 + 1<<b[9]
		if b[10] == 1 {
			size = 16
		}
	} else {
		n := word(b, 8)
		width := uint64(8)
		switch {
		case n <= 0xff:
			width = 1
		case n <= 0xffff:
			width = 2
		case n <= 0xffffffff:
			width = 4
		default:
			return ""
		}
		entries = keys + 40 + n*width
	}
	for i := range nameEntries {
		e := read(mem, entries+uint64(i*size), size)
		if e == nil {
			return ""
		}
		if key, ok := p.string(mem, word(e, size-16)); ok && key == "__name__" {
			v, _ := p.string(mem, word(e, size-8))
			return v
		}
	}
	return ""
}
