package runtimes

import (
	"bytes"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sfsample/regs"
	"sfsample/sampler/taking"
)

// php is PHP without thread safety (NTS): one thread of a process, the first, runs scripts.
type php struct {
	version string
	root    uint64 // address of phpRoot in executor_globals
	loop    uint64 // execute_ex
	phpLayout
}

// phpLayout is what differs between minor versions, in bytes: offsets in zend_executor_globals (Zend/zend_globals.h), zend_op_array,
// zend_internal_function (Zend/zend_compile.h) and zend_generator (Zend/zend_generators.h), on 64-bit machines.
type phpLayout struct {
	least                                          uint64 // bytes of executor_globals, which patch releases make longer at its end
	stackTop, beforeException, exceptionOp         int
	last, opcodes, filename, firstLine, fn, handle int // fn is how much of a function is copied
	genFlags                                       int
}

var phpLayouts = map[int]phpLayout{
	1: {least: 1752, stackTop: 456, beforeException: 880, exceptionOp: 888, last: 68, opcodes: 72, handle: 56, filename: 144, firstLine: 152, fn: 160, genFlags: 264},
	2: {least: 1776, stackTop: 456, beforeException: 880, exceptionOp: 888, last: 80, opcodes: 88, handle: 72, filename: 152, firstLine: 160, fn: 168, genFlags: 264},
	3: {least: 1792, stackTop: 456, beforeException: 880, exceptionOp: 888, last: 76, opcodes: 80, handle: 72, filename: 144, firstLine: 152, fn: 160, genFlags: 264},
	4: {least: 1960, stackTop: 456, beforeException: 952, exceptionOp: 960, last: 96, opcodes: 104, handle: 88, filename: 168, firstLine: 176, fn: 184, genFlags: 272},
	5: {least: 1984, stackTop: 480, beforeException: 976, exceptionOp: 984, last: 96, opcodes: 104, handle: 88, filename: 168, firstLine: 176, fn: 184, genFlags: 272},
}

// Offsets in executor_globals that all share. phpRoot is symtable_cache_limit, from where on it is copied: it points at itself, as
// it is the end of the array in front of it, once a request has begun.
const (
	phpRoot       = 288
	phpOpBytes    = 32 // zend_op
	phpLineno     = 24
	phpOpcode     = 28
	phpException  = 149 // ZEND_HANDLE_EXCEPTION (Zend/zend_vm_opcodes.h)
	phpExceptions = 3   // operations in exception_op, all of them that
	phpPageBytes  = 24  // struct _zend_vm_stack: top, end, prev
)

// Offsets from vm_stack_top on: vm_stack and current_execute_data.
const (
	phpStackPage = 16
	phpCurrent   = 32
)

// Offsets in zend_execute_data: opline 0, return_value 16, func 24, This 32 with the call's flags behind it, prev_execute_data 48.
const (
	// phpResult is where the frame of a generator has the generator (zend_get_running_generator, Zend/zend_execute.c).
	phpResult = 16
	phpFunc   = 24
	phpThis   = 32
	phpInfo   = 40
	phpPrev   = 48
	phpFrame  = 56
	// phpTop is ZEND_CALL_TOP: the call has begun an activation of the loop.
	phpTop = 1 << 17
	// phpGen is ZEND_CALL_GENERATOR.
	phpGen    = 1 << 24
	phpObject = 8 // IS_OBJECT, in the lowest byte of a zval's type
)

// Offsets in zend_generator: execute_data, node.parent. phpGenerator is how much of it is copied.
const (
	phpGenFrame  = 56
	phpGenParent = 152
	phpGenerator = 280
	// phpRunning is ZEND_GENERATOR_CURRENTLY_RUNNING.
	phpRunning = 1
)

// Types of functions, the first byte of each.
const (
	phpInternal = 1
	phpEval     = 4
	phpUser     = 2 | phpEval // bits
)

// Offset of a function's flags, and the bit ZEND_ACC_IMMUTABLE of them.
const (
	phpFlags     = 4
	phpImmutable = 1 << 7
)

// phpText is the beginning of a zend_string: type 4, hash 8, length 16; its bytes follow. phpHead is how much of a file's name is copied
// with it, as names of eval()'d code have no hash.
const (
	phpText = 24
	phpHead = phpText + 232
)

// phpBanner is in each program that contains PHP (main/SAPI.c).
var phpBanner = regexp.MustCompile(`X-Powered-By: PHP/(\d+)\.(\d+)\.(\d+)`)

// newPHP reads what must be known of the PHP with these symbols. size is that of executor_globals, constants what holds phpBanner.
func newPHP(file string, syms map[string]uint64, size uint64, constants []byte) (Runtime, error) {
	if syms["executor_globals"] == 0 {
		return nil, fmt.Errorf("%s: PHP with thread safety (ZTS) is not known, its scripts are not shown", path.Base(file))
	}
	m := phpBanner.FindSubmatch(constants)
	if m == nil {
		return nil, fmt.Errorf("%s: this PHP does not tell its version, its scripts are not shown", path.Base(file))
	}
	minor, _ := strconv.Atoi(string(m[2]))
	p := &php{version: string(bytes.Join(m[1:], []byte("."))), root: syms["executor_globals"] + phpRoot, loop: syms["execute_ex"]}
	l, ok := phpLayouts[minor]
	if !ok || string(m[1]) != "8" {
		return nil, fmt.Errorf("PHP of version %s is not known, its scripts are not shown (known: 8.1 to 8.5)", p.version)
	}
	if size < l.least {
		return nil, fmt.Errorf("PHP %s has executor_globals of %d bytes, its scripts are not shown (known: %d and more)", p.version, size, l.least)
	}
	p.phpLayout = l
	return p, nil
}

func (p *php) Name() string    { return "php" }
func (p *php) Version() string { return p.version }
func (p *php) Loop() uint64    { return p.loop }

// Generates implements Generating: opcache's JIT has its code in the memory that processes share, by mmap(2) or shmget(2).
func (p *php) Generates(file string) bool {
	return strings.HasPrefix(file, "/dev/zero") || strings.HasPrefix(file, "/SYSV")
}

// Registers implements Runtime: the loop keeps execute_data and opline in ZEND_VM_FP_GLOBAL_REG and ZEND_VM_IP_GLOBAL_REG (Zend/zend_execute.c),
// where it is built with them. Elsewhere it always has them in memory.
func (p *php) Registers(a *regs.Arch) (frame, at uint8, ok bool) {
	switch a.Name {
	case regs.AMD64.Name:
		return 14, 15, true // %r14, %r15
	case regs.ARM64.Name:
		return 27, 28, true // x27, x28
	}
	return 0, 0, false
}

// Roots implements Runtime. What executor_globals has at its beginning and in exception_op proves its layout.
func (p *php) Roots(mem io.ReaderAt, th Thread) []taking.Root {
	b := read(mem, p.root, p.exceptionOp+phpExceptions*phpOpBytes-phpRoot)
	if !th.First || b == nil || word(b, 0) != p.root {
		return nil
	}
	for i := range phpExceptions {
		if b[p.exceptionOp-phpRoot+i*phpOpBytes+phpOpcode] != phpException {
			return nil
		}
	}
	return []taking.Root{{Addr: p.root, Is: p.root}}
}

// top is the offset of vm_stack_top in what is copied of executor_globals.
func (l *phpLayout) top() int { return l.stackTop - phpRoot }

// rootBytes reaches to the first operation of exception_op.
func (p *php) rootBytes() int { return p.exceptionOp + phpOpBytes - phpRoot }

// What a function has that a request forgets: its name, and its class and the name of that. Those of opcache's (ZEND_ACC_IMMUTABLE) stay.
var (
	phpName  = taking.Sub{At: 8, Bytes: phpHead, If: phpUser, UnlessAt: phpFlags, Unless: phpImmutable}
	phpClass = taking.Sub{At: 16, Bytes: 16, If: phpUser, UnlessAt: phpFlags, Unless: phpImmutable, Trail: [2]taking.Link{{At: 8, Bytes: phpHead}}}
)

// Recipe implements Runtime.
func (p *php) Recipe(roots []taking.Root, last *Stack) *taking.Recipe {
	r := &taking.Recipe{RootBytes: p.rootBytes()}
	copy(r.Roots[:], roots)
	r.Steps[0] = taking.Step{Bytes: phpPageBytes, Head: p.top() + phpStackPage, Next: 16, Ends: true, End: p.top(), Most: maxChunks}
	r.Steps[1] = taking.Step{Bytes: phpFrame, Head: p.top() + phpCurrent, Next: phpPrev, Most: 512,
		Part: taking.Part{At: phpFunc, Bytes: p.fn}, Sub: taking.Sub{At: p.filename, Bytes: phpHead, If: phpUser},
		Also: [2]taking.Sub{phpName, phpClass}, Kin: taking.Kin{Has: true, At: phpThis, If: phpFunc}}
	r.Steps[3] = taking.Step{Bytes: phpFrame, Head: p.top() + phpCurrent, Next: phpPrev, Most: 1, Part: taking.Part{At: phpResult, Bytes: phpGenerator}}
	r.Steps[2] = taking.Step{Kin: taking.Kin{Is: true}, Bytes: phpGenerator, Next: phpGenParent, Most: 64, Part: taking.Part{At: phpGenFrame, Bytes: phpFrame},
		Sub: taking.Sub{At: phpFunc, Bytes: p.fn, Trail: [2]taking.Link{{At: phpClass.At, Bytes: phpClass.Bytes}, {At: 8, Bytes: phpHead}}},
		Also: [2]taking.Sub{{At: phpFunc, Bytes: p.fn, Trail: [2]taking.Link{{At: p.filename, Bytes: phpHead}}},
			{At: phpFunc, Bytes: p.fn, Trail: [2]taking.Link{{At: phpName.At, Bytes: phpHead}}}}}

	spans := make([]Span, 0, len(last.Spans)+guessedCodes+1)
	for _, root := range roots {
		spans = append(spans, Span{root.Addr, p.rootBytes()})
	}
	spans = append(spans, last.Spans...)
	codes := 0
	for i := range last.Frames {
		if c := last.Frames[i].Code; codes < guessedCodes && (i == 0 || c != last.Frames[i-1].Code) {
			codes++
			spans = append(spans, Span{c, p.fn})
		}
	}
	r.Room = min(max(2*foresee(r, spans), leastRoom), mostRoom)
	if last.Short {
		r.Room = mostRoom
	}
	return r
}

// Frames implements Runtime.
func (p *php) Frames(mem Memory, late io.ReaderAt, roots []uint64, st *Stack) {
	st.Reset()
	for _, root := range roots {
		if g := mem.Bytes(root, p.rootBytes()); g != nil {
			w := phpWalk{php: p, mem: mem, late: late, globals: g, st: st, functions: map[uint64][]byte{}}
			w.pages()
			w.chain()
		}
	}
}

// phpWalk decodes the frames of one stack.
type phpWalk struct {
	php       *php
	mem       Memory
	late      io.ReaderAt
	globals   []byte // from phpRoot on
	st        *Stack
	functions map[uint64][]byte // by address; nil: it cannot be read
	open      int               // frames of the segment whose outermost is yet to come
	elsewhere bool              // what follows has another native stack
	file      uint64            // that was met last
	class     uint64
	held      int // spans that are pages
}

// pages notes where the frames lie.
func (w *phpWalk) pages() {
	addr, end := word(w.globals, w.php.top()+phpStackPage), word(w.globals, w.php.top())
	for i := 0; i < maxChunks; i++ {
		b := w.mem.Bytes(addr, phpPageBytes)
		if b == nil {
			return
		}
		if i > 0 {
			end = word(b, 0)
		}
		if n := end - addr; n >= phpPageBytes && n <= taking.MostRoom {
			if i == 0 {
				n = min(n+chunkSlack, max(n, min(word(b, 8)-addr, taking.MostRoom)))
			}
			w.st.Spans = append(w.st.Spans, Span{addr, int(n)})
		}
		addr, w.held = word(b, 16), len(w.st.Spans)
	}
}

// maxSpans bounds the areas that are noted of one stack.
const maxSpans = 256

// note adds an area to those that were used, unless it is in a page.
func (w *phpWalk) note(addr uint64, n int) {
	if len(w.st.Spans) < maxSpans && !slices.ContainsFunc(w.st.Spans[:w.held], func(s Span) bool { return addr-s.Addr < uint64(s.Len) }) {
		w.st.Spans = append(w.st.Spans, Span{addr, n})
	}
}

// chain appends the frames from the current one on.
func (w *phpWalk) chain() {
	steps, unlinked, last := 0, false, uint64(0)
	for addr := word(w.globals, w.php.top()+phpCurrent); addr != 0; steps++ {
		f := w.mem.Bytes(addr, phpFrame)
		if f == nil || len(w.st.Frames) >= maxScript || steps >= 2*maxScript {
			w.st.Short = true
			break
		}
		w.note(addr, phpFrame)
		if word(f, phpFunc) != 0 {
			n := len(w.st.Frames)
			w.frame(addr, f)
			// A fiber that is about to be left leads nowhere for a moment (Fiber::suspend, Zend/zend_fibers.c).
			unlinked = len(w.st.Frames) == n && word(f, phpPrev) == 0
			if steps == 0 {
				g, ok := w.php.linked(w.mem, addr, f)
				if !ok {
					unlinked = true
					break
				}
				if g != 0 {
					w.note(g, phpGenerator)
				}
			}
		} else if word32(f, phpInfo)&0xff == phpObject && !w.generators(word(f, phpThis), last) {
			w.st.Short = true
			break
		}
		last, addr = addr, word(f, phpPrev)
	}
	w.close()
	w.st.Short = w.st.Short || unlinked
}

// linked tells whether the innermost frame at addr, which is f, leads to its caller, and which generator it is of. That of one that is about to be resumed still leads to
// who has resumed it before, if that one is there at all, until it runs (zend_generator_resume, Zend/zend_generators.c).
func (l *phpLayout) linked(mem Memory, addr uint64, f []byte) (generator uint64, ok bool) {
	if word32(f, phpInfo)&phpGen == 0 {
		return 0, true
	}
	generator = word(f, phpResult)
	g := mem.Bytes(generator, phpGenerator)
	return generator, g != nil && word(g, phpGenFrame) == addr && g[l.genFlags]&phpRunning != 0
}

// close ends a segment.
func (w *phpWalk) close() {
	if w.open > 0 {
		w.st.Segments = append(w.st.Segments, Segment{N: w.open, Elsewhere: w.elsewhere})
	}
	w.open = 0
}

// frame appends the one at addr, which is f.
func (w *phpWalk) frame(addr uint64, f []byte) {
	code := word(f, phpFunc)
	fn := w.function(code)
	if fn == nil || fn[0]&phpUser != 0 {
		w.st.Frames = append(w.st.Frames, Frame{Addr: addr, Code: code, At: w.instruction(word(f, 0))})
		w.open++
		if word32(f, phpInfo)&phpTop != 0 {
			w.close()
		}
		return
	}
	w.close()
	if word(fn, 8) == 0 {
		w.elsewhere = true // zend_fiber_function, the outermost of a fiber (Zend/zend_fibers.c)
		return
	}
	w.st.Frames = append(w.st.Frames, Frame{Addr: addr, Code: code})
	w.st.Segments = append(w.st.Segments, Segment{N: 1, Entry: word(fn, w.php.handle), Elsewhere: w.elsewhere})
}

// function is the beginning of the function at addr, nil if it cannot be read.
func (w *phpWalk) function(addr uint64) []byte {
	b, ok := w.functions[addr]
	if !ok {
		if b = w.mem.Bytes(addr, w.php.fn); b == nil {
			b = read(w.late, addr, w.php.fn)
		}
		w.functions[addr] = b
		if file := w.file; b != nil && b[0]&phpUser != 0 {
			if w.file = word(b, w.php.filename); w.file != file {
				w.note(w.file, phpHead)
			}
			w.forgotten(b)
		}
	}
	return b
}

// forgotten notes what phpName and phpClass lead to from the function whose beginning is b.
func (w *phpWalk) forgotten(b []byte) {
	if b[phpFlags]&phpImmutable != 0 {
		return
	}
	if name := word(b, phpName.At); name != 0 {
		w.note(name, phpHead)
	}
	if class := word(b, phpClass.At); class != 0 && class != w.class {
		w.class = class
		w.note(class, phpClass.Bytes)
		if name, ok := w.mem.Word(class + 8); ok {
			w.note(name, phpHead)
		}
	}
}

// instruction is where a frame is whose opline is op: while an exception is on its way that is one of exception_op, and what it stands for is kept
// beside (zend_fetch_debug_backtrace, Zend/zend_builtin_functions.c).
func (w *phpWalk) instruction(op uint64) uint64 {
	at := w.php.root - phpRoot + uint64(w.php.exceptionOp)
	if op-at < phpExceptions*phpOpBytes && w.globals[w.php.exceptionOp-phpRoot+phpOpcode] == phpException {
		return word(w.globals, w.php.beforeException-phpRoot)
	}
	return op
}

// generators appends the frames of generators that delegate (yield from) to the one whose frame was the last: leaf is the
// outermost of them, which a placeholder in the chain stands for (zend_generator_check_placeholder_frame, Zend/zend_generators.c). The
// innermost is the one of last, the frame before the placeholder, also if it is about to delegate itself. false: they were not all copied.
func (w *phpWalk) generators(leaf, last uint64) bool {
	var list []Frame
	for g := leaf; ; {
		b := w.mem.Bytes(g, phpGenerator)
		if b == nil || len(w.st.Frames)+len(list) >= maxScript {
			return false
		}
		w.note(g, phpGenerator)
		parent, addr := word(b, phpGenParent), word(b, phpGenFrame)
		if parent == 0 || addr == last {
			break
		}
		f := w.mem.Bytes(addr, phpFrame)
		if f == nil {
			return false
		}
		w.note(addr, phpFrame)
		w.function(word(f, phpFunc))
		list = append(list, Frame{Addr: addr, Code: word(f, phpFunc), At: w.instruction(word(f, 0))})
		g = parent
	}
	slices.Reverse(list)
	w.st.Frames = append(w.st.Frames, list...)
	if n := len(w.st.Segments); w.open == 0 && n > 0 {
		w.st.Segments[n-1].N += len(list) // the same activation goes on in whichever can
	} else {
		w.open += len(list)
	}
	return true
}

// Key implements Runtime.
func (p *php) Key(mem Memory, late io.ReaderAt, f *Frame) (Key, bool) {
	b := mem.Bytes(f.Code, p.fn)
	if b == nil {
		if b = read(late, f.Code, p.fn); b == nil {
			return Key{}, false
		}
	}
	return p.key(b, mem, late, f)
}

// key is the identity of the function whose beginning is b. Memory of a request is used again by the next one, so that addresses do not
// tell files apart; and each closure is a copy of its function, with the same instructions.
func (p *php) key(b []byte, mem Memory, late io.ReaderAt, f *Frame) (k Key, ok bool) {
	k = Key{Version: uint32(b[0]), Name: word(b, 8), Qualname: word(b, 16)}
	if b[0] == phpInternal {
		k.Code = f.Code
		return k, true
	}
	if b[0]&phpUser == 0 {
		return k, false
	}
	k.File, k.Lines, k.First, k.Count = word(b, p.filename), word(b, p.opcodes), word32(b, p.firstLine), word32(b, p.last)
	if k.Hash = phpHashOf(mem, late, k.File); k.Hash == 0 {
		return k, false
	}
	if k.Name != 0 {
		if k.NameHash = phpHashOf(mem, late, k.Name); k.NameHash == 0 {
			return k, false
		}
	}
	if k.Name != 0 && k.Qualname != 0 {
		class := mem.Bytes(k.Qualname, phpClass.Bytes)
		if class == nil {
			class = read(late, k.Qualname, phpClass.Bytes)
		}
		if class == nil {
			return k, false
		}
		k.ClassHash = phpHashOf(mem, late, word(class, 8))
	}
	return k, k.Qualname == 0 || k.Name == 0 || k.ClassHash != 0
}

// phpHashOf is the hash of the string at addr, 0 if it is not known.
func phpHashOf(mem Memory, late io.ReaderAt, addr uint64) uint64 {
	head := mem.Bytes(addr, phpHead)
	for _, n := range []int{phpHead, phpText} {
		if head == nil {
			head = read(late, addr, n)
		}
	}
	if head == nil {
		return 0
	}
	hash := word(head, 8)
	if hash == 0 && word(head, 16) <= uint64(len(head)-phpText) {
		hash, _ = phpHash(head[phpText:][:word(head, 16)])
	}
	return hash
}

// phpHash is the hash of a string (zend_inline_hash_func, Zend/zend_string.h), where char is not signed and where it is, as on x86-64.
func phpHash(text []byte) (unsigned, signed uint64) {
	unsigned, signed = 5381, 5381
	for _, c := range text {
		unsigned, signed = unsigned*33+uint64(c), signed*33+uint64(int8(c))
	}
	return unsigned | 1<<63, signed | 1<<63
}

// maxOps bounds the instructions of a function of which lines are kept.
const maxOps = 1 << 15

// Function implements Runtime.
func (p *php) Function(mem io.ReaderAt, f *Frame, k Key) (*Function, bool) {
	return p.Copied(nil, mem, f, k)
}

// Copied implements Copying.
func (p *php) Copied(mem Memory, late io.ReaderAt, f *Frame, k Key) (*Function, bool) {
	// What was copied all at once is of one function; what was read since, only if that is still what it was.
	names := io.ReaderAt(over{mem, late})
	copied := p.whole(mem, f)
	if !copied {
		names = late
	}
	fn := &Function{First: int(int32(k.First))}
	ok := true
	part := func(addr, hash uint64) string {
		s, good := p.text(names, addr, hash)
		ok = ok && good
		return s
	}
	switch {
	case k.Name != 0:
		fn.Name = part(k.Name, k.NameHash)
	case k.Version == phpEval:
		fn.Name = "{eval}"
	default:
		fn.Name = "{main}"
	}
	if k.Qualname != 0 && k.Name != 0 {
		class := read(names, k.Qualname, phpClass.Bytes)
		if class == nil {
			return nil, false
		}
		name, _, _ := strings.Cut(part(word(class, 8), k.ClassHash), "\x00") // what makes an anonymous one unique follows
		fn.Name = name + "::" + fn.Name
	}
	var ops []byte
	if k.Version != phpInternal {
		fn.File = part(k.File, k.Hash)
		fn.Passing = strings.HasSuffix(fn.File, ") : eval()'d code")
		if k.Count <= maxOps {
			if ops = read(late, k.Lines, int(k.Count)*phpOpBytes); ops == nil && !copied {
				return nil, false
			}
		}
	}
	b := read(late, f.Code, p.fn)
	var again Key
	same := b != nil
	if same {
		again, same = p.key(b, nil, late, f)
	}
	same = same && again == k
	if same && ops != nil {
		fn.lines = p.table(k, b, ops)
	}
	if k.Version != phpInternal && k.Count <= maxOps && fn.lines == nil {
		fn.Passing = true // its lines may be there another time
	}
	return fn, ok && (copied || same && (k.Version == phpInternal || word32(b, phpFlags)&phpImmutable != 0 || runs(late, f)))
}

// runs tells whether a frame is still of its function. If not, the request may have ended, and others' names stand where those of the function stood.
func runs(late io.ReaderAt, f *Frame) bool {
	b := read(late, f.Addr, phpFrame)
	return b != nil && word(b, phpFunc) == f.Code
}

// table is the lines of the instructions ops of a function whose beginning is b, nil if there is one that lies outside of it: memory that was freed has kept what describes the
// function, and not these.
func (p *php) table(k Key, b, ops []byte) lineTable {
	t := phpLines{k.Lines, make([]uint32, len(ops)/phpOpBytes)}
	end := word32(b, p.firstLine+4)
	for i := range t.table {
		if t.table[i] = word32(ops, i*phpOpBytes+phpLineno); t.table[i] < k.First || t.table[i] > end {
			return nil
		}
	}
	return t
}

// whole tells whether all was copied that names the function of f.
func (p *php) whole(mem Memory, f *Frame) bool {
	b := mem.Bytes(f.Code, p.fn)
	if b == nil || b[0]&phpUser == 0 {
		return false
	}
	text := func(addr uint64) bool {
		head := mem.Bytes(addr, phpHead)
		return addr == 0 || head != nil && word(head, 16) <= phpHead-phpText
	}
	if !text(word(b, p.filename)) || !text(word(b, phpName.At)) {
		return false
	}
	class := word(b, phpClass.At)
	if class == 0 || word(b, phpName.At) == 0 {
		return true
	}
	head := mem.Bytes(class, phpClass.Bytes)
	return head != nil && text(word(head, 8))
}

// over is memory of which some was copied before.
type over struct {
	copies Memory
	io.ReaderAt
}

// ReadAt implements io.ReaderAt.
func (o over) ReadAt(b []byte, addr int64) (int, error) {
	if c := o.copies.Bytes(uint64(addr), len(b)); c != nil {
		return copy(b, c), nil
	}
	return o.ReaderAt.ReadAt(b, addr)
}

// text is a zend_string: its type is 6 in the lowest bits, and its hash, once it was needed, that of its bytes. hash is what that must be,
// unless it is 0.
func (p *php) text(mem io.ReaderAt, addr, hash uint64) (string, bool) {
	b := read(mem, addr, phpText)
	if b == nil || word32(b, 4)&15 != 6 {
		return "", false
	}
	var data []byte
	n, is := word(b, 16), word(b, 8)
	if n > 0 {
		if data = read(mem, addr+phpText, int(min(n, maxText))); data == nil {
			return "", false
		}
	}
	if n > maxText {
		return string(data) + "…", hash == 0 || hash == is
	}
	h, signed := phpHash(data)
	of := func(v uint64) bool { return v == 0 || v == h || v == signed }
	return string(data), of(is) && of(hash)
}

// phpLines are the lines of a function's instructions.
type phpLines struct {
	ops   uint64 // address of the first
	table []uint32
}

func (t phpLines) line(at uint64, _ int) int {
	if i := (at - t.ops) / phpOpBytes; at >= t.ops && i < uint64(len(t.table)) && (at-t.ops)%phpOpBytes == 0 {
		return int(int32(t.table[i]))
	}
	return 0
}
