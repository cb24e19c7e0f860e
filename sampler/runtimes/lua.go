package runtimes

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sfsample/internal/safeelf"
	"sfsample/regs"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// lua is a Lua library in a process. What it runs of a thread is found on the native stack alone: each lua_State that is
// active there has its errorJmp in it, and each activation of luaV_execute has the CallInfo that it runs in a register.
type lua struct {
	version string
	loop    uint64 // luaV_execute
	luaLayout
}

// luaLayout is what differs between 5.3 and 5.4, in bytes: offsets in CallInfo (lstate.h) and Proto (lobject.h), on 64-bit machines.
type luaLayout struct {
	patches             []int // that it was verified with
	pc                  uint8 // DWARF number of the register with the next instruction; 0: memory has it always
	savedpc, status     int   // in CallInfo
	kind, script, fresh uint16
	first, code, source int // in Proto
	lineinfo, abs       int // 5.3 has no abslineinfo
}

// In %r13 gcc keeps pc of luaV_execute of 5.4 on x86-64; that it is an instruction of the function is checked with each line.
// kind is CIST_C in 5.4, CIST_LUA in 5.3 (lstate.h).
var luaLayouts = map[int]luaLayout{
	3: {patches: []int{3, 6}, savedpc: 40, status: 66, kind: 1 << 1, script: 1 << 1, fresh: 1 << 3,
		first: 40, code: 56, source: 104, lineinfo: 72},
	4: {patches: []int{4, 7}, pc: 13, savedpc: 32, status: 62, kind: 1 << 1, script: 0, fresh: 1 << 2,
		first: 44, code: 64, source: 112, lineinfo: 88, abs: 96},
}

// Offsets that 5.3 and 5.4 share, in lua_State, CallInfo, closures and Proto.
const (
	luaTag   = 8 // of each object
	luaG     = 24
	luaCI    = 32
	luaJump  = 88
	luaBase  = 96 // base_ci, behind which nothing is read
	luaPrev  = 16
	luaNext  = 24
	luaInfo  = 72 // bytes of CallInfo
	luaProto = 24 // in LClosure
	luaCount = 24 // sizecode
	luaSized = 28 // sizelineinfo
	luaAbs   = 40 // sizeabslineinfo of 5.4
	luaBytes = 128
	luaText  = 24           // TString: its bytes follow
	luaHead  = luaText + 72 // of a source that are copied: enough for each name that is hashed and kept in place
	luaTable = 128          // of lines: what is freed has other bytes at its beginning
	luaSlots = 32           // the function of a frame, and its first argument
)

// Tags of objects (lua.h, lobject.h), and the bit that values have with those that are collected.
const (
	luaThread    = 8
	luaLClosure  = 6
	luaCClosure  = 6 | 2<<4
	luaShort     = 4
	luaLong      = 4 | 1<<4
	luaCollected = 1 << 6
)

// luaBanner is lua_ident (lapi.c), which 5.1 begins otherwise.
var luaBanner = regexp.MustCompile(`\$Lua(?:Version)?: Lua 5\.(\d+)(?:\.(\d+))? `)

// lineBytes is what lineinfo has of an instruction.
func (l *luaLayout) lineBytes() int {
	if l.abs == 0 {
		return 4
	}
	return 1
}

// proto is the tag of a function's code (LUA_TPROTO).
func (l *luaLayout) proto() byte {
	if l.abs == 0 {
		return 9
	}
	return 10
}

// newLua reads what must be known of the object e, which exports the functions of Lua with addresses between low and high, bias less than in
// the process, and among whose constants is luaBanner.
func newLua(file string, e *elf.File, constants []byte, low, high, bias uint64) (Runtime, error) {
	m := luaBanner.FindSubmatch(constants)
	if m == nil {
		return nil, nil // LuaJIT has no such word
	}
	minor, _ := strconv.Atoi(string(m[1]))
	patch, _ := strconv.Atoi(string(m[2]))
	l := &lua{version: fmt.Sprintf("5.%d.%d", minor, patch)}
	layout, ok := luaLayouts[minor]
	if !ok || !slices.Contains(layout.patches, patch) {
		return nil, fmt.Errorf("%s: Lua %s is not known, its scripts are not shown (known: 5.3.3, 5.3.6, 5.4.4 and 5.4.7)", path.Base(file), l.version)
	}
	l.luaLayout = layout
	if e.Machine != elf.EM_X86_64 {
		return nil, fmt.Errorf("%s: Lua is known on x86-64 only, its scripts are not shown", path.Base(file))
	}
	if l.loop = largest(e, low, high); l.loop == 0 {
		return nil, fmt.Errorf("%s: this Lua has no table of its functions, its scripts are not shown", path.Base(file))
	}
	l.loop += bias
	return l, nil
}

// largest is where the longest function between two addresses begins, by the sorted table of .eh_frame_hdr as all linkers write it
// (DW_EH_PE_udata4 entries, DW_EH_PE_datarel|DW_EH_PE_sdata4 addresses; LSB, Core, 10.6.2); 0: there is none.
func largest(e *elf.File, low, high uint64) (at uint64) {
	s := e.Section(".eh_frame_hdr")
	if s == nil {
		return 0
	}
	b, err := safeelf.Data(s, maxConstants)
	if err != nil || len(b) < 12 || b[2] != 0x03 || b[3] != 0x3b {
		return 0
	}
	var most, before uint64
	for b = b[12:]; len(b) >= 8; b = b[8:] {
		start := s.Addr + uint64(int32(e.ByteOrder.Uint32(b)))
		if before >= low && start <= high && start > before && start-before > most {
			most, at = start-before, before
		}
		before = start
	}
	return at
}

func (l *lua) Name() string    { return "lua" }
func (l *lua) Version() string { return l.version }
func (l *lua) Loop() uint64    { return l.loop }

// luaFrame are the registers, by DWARF number, of which one has the CallInfo in a native frame of the loop: those that calls preserve.
var luaFrame = []uint8{3, 6, 12, 13, 14, 15}

// luaFrameReg is %rbp, by its DWARF number, which has the CallInfo in most builds with gcc.
const luaFrameReg = 6

// Registers implements [Interpreter].
func (l *lua) Registers(*regs.Arch) (frame, at uint8, ok bool) { return luaFrameReg, l.pc, l.pc != 0 }

// luaRoots bounds the states of a thread that are looked at in each stop; others are found from these.
const luaRoots = 4

// luaTried bounds the words of a stack that are tried.
const luaTried = 4096

// Roots implements Runtime: what is on the stack and points at a state whose innermost protected call lies on the same stack.
func (l *lua) Roots(mem io.ReaderAt, th Thread) (roots []taking.Root) {
	low, tried := th.StackAddr, map[uint64]bool{}
	at := map[uint64]uint64{}
	for i := 0; i+8 <= len(th.Stack) && len(tried) < luaTried; i += 8 {
		addr := word(th.Stack, i)
		if addr&7 != 0 || addr-low < uint64(len(th.Stack)) || tried[addr] || addr < 1<<16 {
			continue
		}
		tried[addr] = true
		b := read(mem, addr, luaBase)
		if b == nil || b[luaTag] != luaThread {
			continue
		}
		if jump := word(b, luaJump); jump-low < uint64(len(th.Stack)) && jump&7 == 0 && word(b, luaG) != 0 {
			at[addr] = jump
			roots = append(roots, taking.Root{Addr: addr, Is: word(b, luaG)})
		}
	}
	slices.SortFunc(roots, func(a, b taking.Root) int { return cmp.Compare(at[b.Addr], at[a.Addr]) })
	return roots[:min(len(roots), luaRoots)]
}

// Recipe implements Runtime.
func (l *lua) Recipe(roots []taking.Root, last *Stack) *taking.Recipe {
	r := &taking.Recipe{RootBytes: luaBase, Check: luaG, OnStack: luaJump, Hop: taking.Hop{Head: luaCI, Bytes: luaInfo,
		Slots: luaSlots, State: luaThread | luaCollected, Closure: luaCClosure | luaCollected, Kept: 32}}
	copy(r.Roots[:], roots)
	r.Steps[0] = taking.Step{Bytes: luaInfo, Head: luaCI, Next: luaPrev, Most: 512, Part: taking.Part{Bytes: luaSlots},
		Sub: taking.Sub{Bytes: luaProto + 8, TagAt: 8, Tag: luaLClosure | luaCollected,
			Trail: [2]taking.Link{{At: luaProto, Bytes: luaBytes}, {At: l.source, Bytes: luaHead}}, Twig: taking.Link{At: l.lineinfo, Bytes: luaTable}}}
	spans := make([]Span, 0, len(roots)+len(last.Spans))
	for _, root := range roots {
		spans = append(spans, Span{root.Addr, luaBase})
	}
	spans = append(spans, last.Spans...)
	r.Room = min(max(2*foresee(r, spans), leastRoom), mostRoom)
	if last.Short {
		r.Room = mostRoom
	}
	return r
}

// Frames implements [Interpreter].
func (l *lua) Frames(mem Memory, late io.ReaderAt, roots []uint64, st *Stack) {
	st.Reset()
	if len(mem) == 0 {
		return
	}
	stack := mem[0] // the native one is the first
	jump := func(root uint64) uint64 {
		if b := mem.Bytes(root, luaBase); b != nil && b[luaTag] == luaThread {
			return word(b, luaJump)
		}
		return 0
	}
	// The one that runs has the innermost protected call. One of which that lies elsewhere does not run here.
	roots = slices.DeleteFunc(slices.Clone(roots), func(a uint64) bool { return jump(a)-stack.Addr >= uint64(len(stack.Bytes)) })
	slices.SortFunc(roots, func(a, b uint64) int { return cmp.Compare(jump(a), jump(b)) })
	var rest Stack // further out than what was not copied: where that lies
	for i, root := range roots {
		b := mem.Bytes(root, luaBase)
		st.note(root, luaBase)
		if top := mem.Bytes(word(b, luaCI), luaInfo); i == 0 && top != nil {
			st.left = word(top, luaNext)
			st.calls = binary.NativeEndian.Uint16(top[l.status:])&l.kind != l.script
		}
		if st.Short {
			l.chain(mem, root, word(b, luaCI), &rest)
		} else {
			st.Short = !l.chain(mem, root, word(b, luaCI), st)
		}
	}
	st.Spans = append(st.Spans, rest.Spans[:min(len(rest.Spans), maxSpans-len(st.Spans))]...)
}

// note adds an area to those that were used: to one that lies near, if there is one.
func (s *Stack) note(addr uint64, n int) {
	for i := range s.Spans {
		x := &s.Spans[i]
		low, high := min(addr, x.Addr), max(addr+uint64(n), x.Addr+uint64(x.Len))
		if high-low <= uint64(n+x.Len+nearSpans) && high-low <= taking.MostRoom/8 {
			x.Addr, x.Len = low, int(high-low)
			return
		}
	}
	if len(s.Spans) < maxSpans {
		s.Spans = append(s.Spans, Span{addr, n})
	}
}

// chain appends the frames of the state at root, from the CallInfo at addr on. false: they were not all copied.
func (l *lua) chain(mem Memory, root, addr uint64, st *Stack) bool {
	open := 0
	end := func(whole bool) bool {
		if open > 0 {
			st.Segments = append(st.Segments, Segment{N: open})
		}
		open = 0
		return whole
	}
	for steps := 0; addr != root+luaBase; steps++ {
		e := mem.Bytes(addr, luaInfo)
		if e == nil || steps >= 2*maxScript || len(st.Frames) >= maxScript {
			return end(false)
		}
		st.note(addr, luaInfo)
		if status := binary.NativeEndian.Uint16(e[l.status:]); status&l.kind == l.script {
			code := l.closure(mem, word(e, 0), st)
			if code == 0 {
				return end(false)
			}
			st.Frames = append(st.Frames, Frame{Addr: addr, Code: code, At: word(e, l.savedpc)})
			if open++; status&l.fresh != 0 {
				end(true)
			}
		}
		addr = word(e, luaPrev)
	}
	return end(true)
}

// closure is the Proto of the Lua function in the slot at addr, 0 if it was not copied.
func (l *lua) closure(mem Memory, addr uint64, st *Stack) uint64 {
	slot := mem.Bytes(addr, luaSlots)
	if slot == nil {
		return 0
	}
	st.note(addr, luaSlots)
	if slot[luaTag] != luaLClosure|luaCollected {
		return 0
	}
	c := mem.Bytes(word(slot, 0), luaProto+8)
	if c == nil || c[luaTag] != luaLClosure {
		return 0
	}
	st.note(word(slot, 0), luaProto+8)
	code := word(c, luaProto)
	if p := mem.Bytes(code, luaBytes); p != nil {
		st.note(code, luaBytes)
		st.note(word(p, l.source), luaHead)
		st.note(word(p, l.lineinfo), luaTable)
	}
	return code
}

// luaLoops bounds the native frames of the loop whose registers are asked for: each takes a walk.
const luaLoops = 32

// Anchor implements [Anchored].
func (l *lua) Anchor(native []unwind.Frame, complete bool, in func(i int, entry uint64) bool, registers func(int) regs.Set, st *Stack) {
	of := map[uint64]int{} // index of the frame, by CallInfo
	ends := make([]int, len(st.Segments))
	n := 0
	for k := range st.Segments {
		for range st.Segments[k].N {
			of[st.Frames[n].Addr] = n
			n++
		}
		ends[k] = n
	}
	at := make([]int, len(st.Segments)) // native frame
	for k := range at {
		at[k] = -1
	}
	next, top, leaving, loops := 0, 0, -1, 0
	inFrame := false // the register of [lua.Registers] has the CallInfo
	for i := 0; i < len(native) && next < len(at); i++ {
		if !in(i, 0) {
			continue
		}
		if loops++; loops > luaLoops {
			at[next] = i // what is left is one each, in this order
			next++
			continue
		}
		set := registers(i)
		for _, r := range luaFrame {
			v, known := set.Reg(r)
			if f, ok := of[v]; known && ok {
				if k, _ := slices.BinarySearch(ends, f+1); k >= next {
					if next == 0 {
						top, inFrame = f, r == luaFrameReg
					}
					at[k], next = i, k+1
					break
				}
			} else if known && v == st.left && v != 0 && next == 0 {
				leaving = i
			}
		}
	}
	first := slices.IndexFunc(at, func(i int) bool { return i >= 0 })
	switch {
	case leaving >= 0 && len(at) > 0 && at[0] < 0:
		at[0] = leaving // it returns to the first
	case first < 0:
		st.Reset()
		return
	default:
		l.drop(st, top, first, ends)
		at = at[first:]
		if l.pc != 0 && !inFrame && top == 0 && !st.calls { // another build keeps its instruction elsewhere, and memory has that of its last call
			st.Frames[0].At = 0
		}
	}
	place := 0
	for k := range at {
		switch {
		case at[k] >= 0:
			place = at[k]
			st.Segments[k].Anchor = native[place].SP
		case complete:
			// The coroutine was left and resumed meanwhile: what runs the one further in goes on with this one (unroll, ldo.c).
			st.Segments[k].Anchor = native[place].SP
		default:
			st.Segments[k].Anchor = 1 << 62 // behind all that could be unwound
		}
	}
}

// drop leaves out the frames before top, which is in the segment first: their CallInfo is in the making, and nothing runs it yet.
func (l *lua) drop(st *Stack, top, first int, ends []int) {
	st.Frames = st.Frames[top:]
	st.Segments = st.Segments[first:]
	st.Segments[0].N = ends[first] - top
}

// Key implements Runtime.
func (l *lua) Key(mem Memory, late io.ReaderAt, f *Frame) (k Key, ok bool) {
	b := mem.Bytes(f.Code, luaBytes)
	if b == nil {
		if b = read(late, f.Code, luaBytes); b == nil {
			return k, false
		}
	}
	if b[luaTag] != l.proto() { // it was freed: malloc has words of its own there
		return k, false
	}
	k = Key{Code: f.Code, Globals: word(b, l.code), File: word(b, l.source), Lines: word(b, l.lineinfo),
		First: word32(b, l.first), Version: word32(b, luaSized), Count: word32(b, luaCount)}
	if l.abs > 0 {
		k.Name, k.Qualname = word(b, l.abs), uint64(word32(b, luaAbs))
	}
	h := fnv.New64a()
	if k.Lines != 0 && k.Version > 0 {
		n := int(min(uint64(k.Version)*uint64(l.lineBytes()), luaTable))
		table := mem.Bytes(k.Lines, n)
		if table == nil {
			table = read(late, k.Lines, n)
		}
		if table == nil {
			return k, false
		}
		h.Write(table)
	}
	if k.Hash = h.Sum64(); k.File == 0 {
		return k, true
	}
	head := mem.Bytes(k.File, luaHead)
	if head == nil {
		head = read(late, k.File, luaText)
	}
	if head == nil {
		return k, false
	}
	n, ok := luaLength(head)
	if want := luaText + int(min(n, luaHead-luaText)); len(head) < want {
		if head = read(late, k.File, want); head == nil {
			return k, false
		}
	}
	h.Write(head[luaTag:9]) // its kind, not what the collector notes
	h.Write(head[luaText:][:min(n, luaHead-luaText)])
	k.Hash = h.Sum64() ^ n
	return k, ok
}

// luaLength is the length of the string whose beginning is b (TString, lobject.h).
func luaLength(b []byte) (n uint64, ok bool) {
	switch b[luaTag] {
	case luaShort:
		return uint64(b[11]), true
	case luaLong:
		return word(b, 16), true
	}
	return 0, false
}

// Function implements Runtime.
func (l *lua) Function(mem io.ReaderAt, f *Frame, k Key) (*Function, bool) {
	fn := &Function{First: int(int32(k.First)), File: "?"}
	if k.File != 0 {
		head := read(mem, k.File, luaText)
		if head == nil {
			return nil, false
		}
		n, ok := luaLength(head)
		text := read(mem, k.File, luaText+int(min(n, maxText)))
		if !ok || text == nil {
			return nil, false
		}
		source := string(text[luaText:])
		fn.File, fn.Passing = luaChunk(source), !strings.HasPrefix(source, "@")
	}
	if fn.Name = fmt.Sprintf("function <%s:%d>", fn.File, fn.First); fn.First == 0 {
		fn.Name = fmt.Sprintf("main chunk <%s>", fn.File)
	}
	if n := k.Version; n > 0 && n <= maxOps && k.Count <= maxOps {
		lines := luaLines{code: k.Globals, count: k.Count, size: l.lineBytes(), table: read(mem, k.Lines, int(n)*l.lineBytes())}
		if marks := k.Qualname; marks > 0 && marks <= maxOps {
			lines.marks = read(mem, k.Name, int(marks)*8)
		}
		if !lines.whole() {
			return nil, false
		}
		fn.lines = lines
	}
	// What was read is the function's only if it still is what it was.
	again, ok := l.Key(nil, mem, f)
	return fn, ok && again == k
}

// luaChunk is how a source is shown (luaO_chunkid, lobject.c); names of files are not cut.
func luaChunk(source string) string {
	if strings.HasPrefix(source, "@") || strings.HasPrefix(source, "=") {
		return source[1:]
	}
	const most = 60 - len(`[string "..."]`) - 1 // LUA_IDSIZE
	line, _, cut := strings.Cut(source, "\n")
	if cut || len(line) >= most {
		return `[string "` + line[:min(len(line), most)] + `..."]`
	}
	return `[string "` + line + `"]`
}

// luaLines are the lines of a function's instructions: of 5.3 each, of 5.4 what is added with each, or -128 for one that marks tells
// (luaG_getfuncline, ldebug.c). What is kept of a frame is the next instruction.
type luaLines struct {
	code  uint64
	count uint32
	size  int // bytes of each
	table []byte
	marks []byte // instruction 4, line 4
}

// whole tells whether there is a mark for each that the table refers to, in the same order, and no other (savelineinfo, lcode.c): of code that is
// being freed that is no longer so.
func (t luaLines) whole() bool {
	marks := t.marks
	for pc, d := range t.table {
		if t.size == 1 && int8(d) == -128 {
			if len(marks) < 8 || word32(marks, 0) != uint32(pc) {
				return false
			}
			marks = marks[8:]
		}
	}
	return len(t.table) > 0 && len(marks) == 0
}

func (t luaLines) line(at uint64, first int) int {
	i := (at - t.code) / 4
	if at < t.code || at&3 != 0 || i > uint64(t.count) || int(i)*t.size > len(t.table) {
		return 0
	}
	if i == 0 {
		return first // it is yet to begin
	}
	if t.size == 4 {
		return int(int32(word32(t.table, int(i-1)*4)))
	}
	line, marks := first, t.marks
	for _, d := range t.table[:i] {
		if int8(d) != -128 {
			line += int(int8(d))
			continue
		}
		if len(marks) < 8 {
			return 0
		}
		line, marks = int(int32(word32(marks, 4))), marks[8:]
	}
	return line
}
