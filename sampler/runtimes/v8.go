package runtimes

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"sfsample/internal/safeelf"
	"sfsample/regs"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// v8 is V8 in a process, as node has it: many isolates, which share all that is kept here.
type v8 struct {
	version string
	root    taking.Root // a constant, which every copy holds: heaps have no states of threads
	sizes   []byte      // of bytecodes, by scale and opcode; empty: not known
	heap    *v8Heap
	codes   *v8Codes
	scripts *v8Scripts
	tables  map[v8Table][]byte
	texts   map[v8Text]*v8Lines
	held    int // bytes of texts
	tabled  int // and of tables
}

// v8Heap reads objects.
type v8Heap struct {
	mem       io.ReaderAt
	budget    int // reads that the walk under way may still do
	at        v8Fields
	types     v8Types
	instances map[uint64]uint16 // types by the address of their map
}

// v8Fields are offsets in bytes, and numbers, that constants of the object tell.
type v8Fields struct {
	function, script, funcName, scriptName, source, lineEnds, instance int
	bytecodes, firstVars, locals, offContext, offFunction              int
	offBytecode, offOffset                                             int
}

// v8Codes is the generated code that was met.
type v8Codes struct {
	heap    *v8Heap
	layout  v8Layout
	origin  func(pc uint64) (generated, bare bool)
	epoch   uint64          // number of the walk under way
	list    []*v8Code       // by start
	streams map[uint64]bool // maps of what holds code
}

// v8Types are instance types (JSObject's and String's map has them).
type v8Types struct {
	function, shared, scope, script, code, stream, bytecodes, builtinExit, firstNonstring, weakList, weakArray, maps uint16

	baseline uint32 // kind of baseline code; those behind it are optimised
}

// v8Layout is what no constants tell, by version: offsets in bytes (objects/{code,script,bytecode-array,shared-function-info}.{h,tq}).
type v8Layout struct {
	deopt, positions, stream, start, flags, size, code int // in Code; code is where instructions begin in it, 0: at start
	bytecodePositions                                  int // in BytecodeArray
	deoptLiterals, deoptShared, deoptInlining          int // elements of deoptimization data
	wrapped                                            bool
	bytecodes                                          int // how many there are, where no symbol tells their sizes
	// exitOffset is the mode of relocation information that tells the position of an exit (codegen/reloc-info.h). 0: there is no code of Maglev.
	exitOffset byte
	// initialises is the FunctionKind (objects/function-kind.h) of what initialises a class's members; the next one is of its static ones. Both have
	// the class's name since V8 names them by that. 0: they have names.
	initialises uint32
}

// v8Layouts are those of the versions that were verified, by major version and minor.
var v8Layouts = map[[2]uint32]v8Layout{
	{10, 2}: {deopt: 16, positions: 24, flags: 48, size: 40, code: 128, bytecodePositions: 32, deoptLiterals: 2, deoptShared: 6, deoptInlining: 7},
	{11, 3}: {deopt: 16, positions: 24, stream: 32, start: 40, flags: 48, size: 56, bytecodePositions: 32, deoptLiterals: 2, deoptShared: 6, deoptInlining: 7},
	{12, 4}: {deopt: 8, positions: 16, stream: 32, start: 40, flags: 48, size: 52, bytecodePositions: 24, deoptLiterals: 2, deoptShared: 6, deoptInlining: 7, initialises: 24},
	{13, 6}: {deopt: 8, positions: 16, stream: 32, start: 40, flags: 52, size: 56, bytecodePositions: 24, deoptLiterals: 3, deoptShared: 7, deoptInlining: 8, wrapped: true, bytecodes: 208, exitOffset: 17, initialises: 24},
}

// v8Kind is what of a SharedFunctionInfo's flags is the function's kind (objects/shared-function-info.tq).
const v8Kind = 31

// Bytes of objects that are looked at.
const (
	v8FunctionBytes = 64
	v8SharedBytes   = 64
	v8ScriptBytes   = 80
	v8ScriptLine    = 24 // line_offset
	v8ScriptID      = 64
	v8ScriptInfos   = 88 // shared_function_infos
	v8BytecodeBytes = 64
	v8CodeBytes     = 64
)

// Bounds.
const (
	maxV8Constants = 2048
	maxV8Constant  = 256 << 20 // of an object's constants, in bytes
	maxV8Codes     = 1 << 12
	maxV8Code      = 4 << 20  // of one Code, in bytes
	maxV8Table     = 1 << 20  // of positions, in bytes
	maxV8Tables    = 1 << 12  // of them
	maxV8Sizes     = 1 << 18  // places that are tried for sizes of bytecodes
	maxV8Source    = 32 << 20 // of a script's text, in bytes
	maxV8Held      = 64 << 20 // of all lines, of all positions, and of all code
	maxV8Inlined   = 256      // functions in one frame
	maxV8Back      = 1 << 20  // how far the beginning of code is looked for, in bytes
	maxV8Budget    = 4096     // reads for one stack, and one more for each 64 KB
	maxV8Frames    = 1024
)

// v8Symbol tells whether a symbol is of those that newV8 wants.
func v8Symbol(name string) bool {
	return strings.HasPrefix(name, "v8dbg_") || strings.HasPrefix(name, "_ZN2v88internal7Version") || name == v8Sizes
}

const (
	v8Sizes = "_ZN2v88internal11interpreter9Bytecodes14kBytecodeSizesE"
	v8Major = "_ZN2v88internal7Version6major_E"
	v8Minor = "_ZN2v88internal7Version6minor_E"
	v8Build = "_ZN2v88internal7Version6build_E"
	v8Known = "v8dbg_off_fp_function"
)

// newV8 reads what must be known of the V8 with these symbols, those of v8Symbol.
func newV8(o Object, e *elf.File, syms []elf.Symbol, mem io.ReaderAt) (Runtime, error) {
	where, consts := map[string]elf.Symbol{}, map[string]int{}
	for _, s := range syms {
		where[s.Name] = s
		if name, ok := strings.CutPrefix(s.Name, "v8dbg_"); ok && s.Size == 4 {
			consts[name] = v8Constant(e, s)
		}
	}
	number := func(name string) uint32 {
		b := read(mem, where[name].Value+o.Bias, 4)
		if b == nil || where[name].Value == 0 {
			return 0
		}
		return word32(b, 0)
	}
	heap := &v8Heap{mem: mem, instances: map[uint64]uint16{}}
	v := &v8{heap: heap, codes: &v8Codes{heap: heap, origin: o.Origin, streams: map[uint64]bool{}}, scripts: &v8Scripts{heap: heap, isolates: map[uint64]bool{}}, tables: map[v8Table][]byte{}, texts: map[v8Text]*v8Lines{}}
	major, minor := number(v8Major), number(v8Minor)
	v.version = fmt.Sprintf("%d.%d.%d", major, minor, number(v8Build))
	layout, ok := v8Layouts[[2]uint32{major, minor}]
	if !ok || e.Machine != elf.EM_X86_64 {
		return nil, fmt.Errorf("%s: V8 of version %s for %s is not known, its scripts are not shown (known: 10.2, 11.3, 12.4 and 13.6, as in node 18, 20, 22 and 24, for x86-64)", path.Base(o.Path), v.version, e.Machine)
	}
	v.codes.layout = layout
	missing := ""
	// The type of a field ends the name of its constant, and changes.
	at := func(prefix string) int {
		for name, n := range consts {
			if strings.HasPrefix(name, prefix) {
				return n
			}
		}
		missing = prefix
		return 0
	}
	v.heap.at.function, v.heap.at.funcName = at("class_JSFunction__shared__"), at("class_SharedFunctionInfo__name_or_scope_info__")
	if n, ok := consts["class_SharedFunctionInfo__script_or_debug_info__HeapObject"]; ok {
		v.heap.at.script = n
	} else {
		v.heap.at.script = at("class_SharedFunctionInfo__script__")
	}
	v.heap.at.scriptName, v.heap.at.source, v.heap.at.lineEnds = at("class_Script__name__"), at("class_Script__source__"), at("class_Script__line_ends__")
	v.heap.at.instance, v.heap.at.bytecodes = at("class_Map__instance_type__"), at("class_BytecodeArray__data__")
	v.heap.at.firstVars, v.heap.at.locals = at("scopeinfo_idx_first_vars"), at("scopeinfo_idx_ncontextlocals")
	v.heap.at.offContext, v.heap.at.offFunction = at("off_fp_context_or_frame_type"), at("off_fp_function")
	v.heap.at.offBytecode, v.heap.at.offOffset = at("off_fp_bytecode_array"), at("off_fp_bytecode_offset")
	v.heap.types.baseline = uint32(at("CodeKindBaseline"))
	t := &v.heap.types
	t.function, t.shared = uint16(at("type_JSFunction__")), uint16(at("type_SharedFunctionInfo__"))
	t.scope, t.script, t.code = uint16(at("type_ScopeInfo__")), uint16(at("type_Script__")), uint16(at("type_Code__"))
	t.bytecodes, t.builtinExit = uint16(at("type_BytecodeArray__")), uint16(at("frametype_BuiltinExitFrame"))
	t.firstNonstring = uint16(at("FirstNonstringType"))
	t.maps = uint16(at("type_Map__"))
	t.weakList, t.weakArray = uint16(at("type_WeakArrayList__")), uint16(at("type_WeakFixedArray__"))
	if t.stream = t.code; v.codes.layout.code == 0 {
		t.stream = uint16(at("type_InstructionStream__"))
	}
	if missing != "" || !v.sane() {
		return nil, fmt.Errorf("%s: V8 %s tells too little of itself, its scripts are not shown", path.Base(o.Path), v.version)
	}
	v.root.Addr = (where[v8Known].Value + o.Bias) &^ 7
	b := read(mem, v.root.Addr, 8)
	if b == nil {
		return nil, nil
	}
	v.root.Is = word(b, 0)
	if s := where[v8Sizes]; s.Value != 0 && s.Size < 3*256 && s.Size%3 == 0 {
		v.sizes = read(mem, s.Value+o.Bias, int(s.Size))
	} else if layout.bytecodes > 0 {
		v.sizes = v8BytecodeSizes(e, layout.bytecodes)
	}
	return v, nil
}

// v8BytecodeSizes finds the sizes of n bytecodes at the three scales among the constants of e by what they are: of prefixes, which come first, they
// are 1, and each operand that has scales is by as much larger at each. nil: there is none, or more than one.
func v8BytecodeSizes(e *elf.File, n int) (found []byte) {
	s := e.Section(".rodata")
	if s == nil || safeelf.Plain(s, maxV8Constant) != nil {
		return nil
	}
	const piece = 1 << 20
	b, tries := make([]byte, piece+3*n), 0
	for at := int64(0); at < int64(s.Size); at += piece {
		got, err := s.ReadAt(b, at)
		if err != nil && err != io.EOF {
			return nil
		}
		for i := 0; i < piece && i+3*n <= got; i += 8 {
			t := b[i : i+3*n]
			if word32(t, 0) != 0x01010101 {
				continue
			}
			if tries++; tries > maxV8Sizes {
				return nil
			}
			if v8SizesAre(t) {
				if found != nil {
					return nil
				}
				found = bytes.Clone(t)
			}
		}
	}
	return found
}

// v8SizesAre tells whether t, which begins with those of the prefixes, is sizes.
func v8SizesAre(t []byte) bool {
	n, most := len(t)/3, byte(0)
	for i := range n {
		one, two, four := t[i], t[n+i], t[2*n+i]
		if one == 0 || two < one || int(four)-int(one) != 3*(int(two)-int(one)) {
			return false
		}
		most = max(most, four)
	}
	return most > 8
}

// v8Constant is the value of a constant in the file.
func v8Constant(e *elf.File, s elf.Symbol) int {
	for _, p := range e.Progs {
		var b [4]byte
		if off := s.Value - p.Vaddr; p.Type == elf.PT_LOAD && s.Value >= p.Vaddr && off+4 <= p.Filesz {
			if _, err := p.ReadAt(b[:], int64(off)); err != nil {
				return -1
			}
			return int(int32(e.ByteOrder.Uint32(b[:])))
		}
	}
	return 0 // .bss
}

// sane tells whether offsets are those of fields, and in what is copied: of a SharedFunctionInfo to behind its flags and the number that follows.
func (v *v8) sane() bool {
	in := func(most int, list ...int) bool {
		return !slices.ContainsFunc(list, func(n int) bool { return n < 8 || n > most || n%8 != 0 })
	}
	return in(v8FunctionBytes-8, v.heap.at.function) && in(v8SharedBytes-8, v.heap.at.funcName) && in(v8SharedBytes-24, v.heap.at.script) && in(v8ScriptBytes-8, v.heap.at.scriptName, v.heap.at.source, v.heap.at.lineEnds) &&
		v.heap.at.instance == 12 && v.heap.at.bytecodes >= 40 && v.heap.at.bytecodes <= v8BytecodeBytes && v.heap.at.offContext == -8 && v.heap.at.offFunction == -16 && v.heap.at.offBytecode == -32 && v.heap.at.offOffset == -40 &&
		v.heap.at.firstVars >= 3 && v.heap.at.firstVars <= 8 && v.heap.at.locals > 0 && v.heap.at.locals < v.heap.at.firstVars
}

// Name implements Runtime.
func (v *v8) Name() string { return "node" }

// Version implements Runtime.
func (v *v8) Version() string { return v.version }

// Roots implements Runtime.
func (v *v8) Roots(io.ReaderAt, Thread) []taking.Root { return []taking.Root{v.root} }

// v8Room is what is copied of a thread at most, in bytes.
const v8Room = 32 << 10

// Recipe implements Runtime.
func (v *v8) Recipe(roots []taking.Root, last *Stack) *taking.Recipe {
	r := &taking.Recipe{RootBytes: 8, Room: v8Room}
	copy(r.Roots[:], roots)
	r.Scan = taking.Scan{
		Function: v.heap.at.offFunction, Context: v.heap.at.offContext, Also: v.heap.at.offBytecode, AlsoBytes: v8BytecodeBytes, Bytes: v8FunctionBytes,
		Chain: [2]taking.Link{{At: v.heap.at.function, Bytes: v8SharedBytes}, {At: v.heap.at.script, Bytes: v8ScriptBytes}},
	}
	foresee(r, append([]Span{{v.root.Addr, 8}}, last.Spans...))
	return r
}

// Begin implements Managed. What was read of code is read again once in each walk that needs it.
func (v *v8) Begin() (changed bool) {
	v.codes.epoch++
	v.heap.budget = maxV8Budget
	if v.codes.epoch%v8Forget == 0 {
		clear(v.heap.instances)
	}
	return v.codes.epoch == 1
}

// Confirm implements Managed: what is kept of code was compared in this walk, where it was used ([v8Codes.codeAt]).
func (v *v8) Confirm() bool { return true }

// v8Forget is after how many walks the types of maps are read anew.
const v8Forget = 1 << 10

// Owns implements unwind.Runtime: generated code, and builtins, which the object of V8 has without tables.
func (v *v8) Owns(pc uint64) bool {
	generated, bare := v.codes.origin(pc)
	return generated || bare
}

// read is n bytes of the process, nil if they cannot be read or enough was read for this stack.
func (v *v8Heap) read(addr uint64, n int) []byte {
	if v.budget -= 1 + n>>16; v.budget < 0 {
		return nil
	}
	return read(v.mem, addr, n)
}

// tagged tells whether a word is a pointer to an object, which is one more than its address.
func tagged(w uint64) bool { return w&3 == 1 && w > 1<<12 && w < 1<<47 }

// smi is a small integer.
func smi(w uint64) (int, bool) { return int(int32(w >> 32)), uint32(w) == 0 }

// is tells whether the object whose first word is w has this instance type.
func (v *v8Heap) is(w uint64, want uint16) bool {
	t, ok := v.instanceType(w)
	return ok && t == want
}

func (v *v8Heap) instanceType(w uint64) (uint16, bool) {
	if !tagged(w) {
		return 0, false
	}
	t, ok := v.instances[w]
	if !ok {
		b := v.read(w-1, 16)
		if b == nil {
			return 0, false
		}
		if t = binary.NativeEndian.Uint16(b[v.at.instance:]); len(v.instances) < 1<<14 {
			v.instances[w] = t
		}
	}
	return t, true
}

// object is n bytes of an object of this type, nil if it is none.
func (v *v8Heap) object(ptr uint64, n int, want uint16) []byte {
	if !tagged(ptr) {
		return nil
	}
	b := v.read(ptr-1, n)
	if b == nil || !v.is(word(b, 0), want) {
		return nil
	}
	return b
}

// Key implements Runtime. A script has a number that no other has had, and a function in it one too.
func (v *v8) Key(mem Memory, late io.ReaderAt, f *Frame) (Key, bool) {
	k, ok := v.heap.key(mem, f.Code)
	if ok && f.Globals != k.v8Number() {
		v.codes.list = nil // what code was read of leads to functions that the garbage collector has moved
		return k, false
	}
	return k, ok
}

// v8Number is a script's number with that of a function in it, which no two functions have in common. 0: it is in no script.
func (k *Key) v8Number() uint64 {
	if k.Lines == 0 {
		return 0
	}
	return k.Lines | uint64(k.First)
}

// key is that of the SharedFunctionInfo at addr, as it was copied, or is.
func (v *v8Heap) key(mem Memory, addr uint64) (k Key, ok bool) {
	b := mem.Bytes(addr, v8SharedBytes)
	if b == nil {
		b = v.read(addr, v8SharedBytes)
	}
	if b == nil || !v.is(word(b, 0), v.types.shared) {
		return k, false
	}
	k = Key{Code: addr, Name: word(b, v.at.funcName), File: word(b, v.at.script), First: word32(b, v.flagsAt()+4)}
	script := mem.Bytes(k.File-1, v8ScriptBytes)
	if script == nil && tagged(k.File) {
		script = v.read(k.File-1, v8ScriptBytes)
	}
	if script != nil && v.is(word(script, 0), v.types.script) {
		k.Lines = word(script, v8ScriptID)
	}
	return k, true
}

// number is that of the function whose SharedFunctionInfo is at addr.
func (v *v8Heap) number(mem Memory, addr uint64) uint64 {
	k, _ := v.key(mem, addr)
	return k.v8Number()
}

// flagsAt is where the flags of a SharedFunctionInfo are, behind its script and four short numbers.
func (v *v8Heap) flagsAt() int { return v.at.script + 16 }

// Function implements Runtime.
func (v *v8) Function(mem io.ReaderAt, f *Frame, k Key) (*Function, bool) {
	name, ok := v.heap.name(k.Name)
	if !ok {
		return nil, false
	}
	fn := &Function{Name: name}
	var source uint64
	if k.Lines != 0 {
		script := v.heap.object(k.File, v8ScriptBytes, v.heap.types.script)
		if script == nil || word(script, v8ScriptID) != k.Lines {
			return nil, false
		}
		// The name of a script may be anything: what its loader has said.
		fn.File, _ = v.heap.text(word(script, v.heap.at.scriptName), maxText)
		fn.File = strings.TrimPrefix(fn.File, "file://")
		source = word(script, v.heap.at.source)
		if l := v.lines(script); l != nil {
			fn.lines = l
		}
	}
	if fn.Name == "" {
		fn.Name, fn.Stub = "(anonymous)", k.Lines == 0
	}
	// What was read is the function's only if it still is what it was.
	b := v.heap.read(f.Code, v8SharedBytes)
	if b == nil {
		return nil, false
	}
	if first := v.codes.layout.initialises; first > 0 {
		switch word32(b, v.heap.flagsAt()) & v8Kind {
		case first:
			fn.Name = "<instance_members_initializer>"
		case first + 1:
			fn.Name = "<static_initializer>"
		}
	}
	again, ok := v.heap.key(nil, f.Code)
	if !ok || again != k || !v.scripts.alive(&k) {
		delete(v.texts, v8Text{k.Lines, source})
		return nil, false
	}
	return fn, true
}

// name is that of a function, or what V8 has inferred for one without.
func (v *v8Heap) name(ptr uint64) (string, bool) {
	if _, ok := smi(ptr); ok {
		return "", true
	}
	if !tagged(ptr) {
		return "", false
	}
	b := v.read(ptr-1, 8)
	if b == nil {
		return "", false
	}
	if !v.is(word(b, 0), v.types.scope) {
		return v.text(ptr, maxText)
	}
	// ScopeInfo: its map, flags, counts and positions, then the names of variables in contexts, unless they are in a table of their own, then what
	// each is; then its function's name and place, and the inferred name, where it has these.
	head := v.read(ptr-1, 8*(1+v.at.firstVars))
	if head == nil {
		return "", false
	}
	n, ok := smi(word(head, 8*(1+v.at.locals)))
	if !ok || n < 0 || n > 1<<16 {
		return "", false
	}
	at := 1 + v.at.firstVars
	if n < 75 { // kScopeInfoMaxInlinedLocalNamesSize
		at += 2 * n
	} else {
		at += 1 + n
	}
	const words = 8
	b = v.read(ptr-1+uint64(8*at), 8*words)
	if b == nil {
		return "", false
	}
	for i := range words {
		w := word(b, 8*i)
		if !tagged(w) {
			continue
		}
		h := v.read(w-1, 8)
		if h == nil {
			return "", false
		}
		switch t, ok := v.instanceType(word(h, 0)); {
		case !ok:
			return "", false
		case t < v.types.firstNonstring:
			s, ok := v.text(w, maxText)
			if !ok || s != "" {
				return s, ok
			}
		case t == v.types.scope, t == v.types.maps:
			return "", true // the scope around it, or the next object's map: it has no name
		}
	}
	return "", true
}

// Strings: what the lower bits of their instance type say (objects/instance-type.h).
const (
	v8StringKind     = 7
	v8OneByte        = 8
	v8Sequential     = 0
	v8Cons           = 1
	v8External       = 2
	v8Sliced         = 3
	v8Thin           = 5
	v8Uncached       = 16
	v8StringBytes    = 32
	maxV8StringDepth = 64
)

// text is a string's, cut after so many characters.
func (v *v8Heap) text(ptr uint64, most int) (string, bool) {
	units, ok := v.units(nil, ptr, most+1, 0)
	if !ok {
		return "", false
	}
	cut := len(units) > most
	if cut {
		units = units[:most]
	}
	s := decodeUTF16(units)
	if cut {
		s += "…"
	}
	return s, true
}

// units appends the characters of a string, up to so many, to list.
func (v *v8Heap) units(list []uint16, ptr uint64, most, depth int) ([]uint16, bool) {
	for ; depth < maxV8StringDepth; depth++ {
		if !tagged(ptr) {
			return list, false
		}
		b := v.read(ptr-1, v8StringBytes)
		if b == nil {
			return list, false
		}
		t, ok := v.instanceType(word(b, 0))
		if !ok || t >= v.types.firstNonstring {
			return list, false
		}
		n := int(word32(b, 12)) // length, behind the hash
		if n < 0 || n > 1<<30 {
			return list, false
		}
		n = min(n, most-len(list))
		if n <= 0 {
			return list, true
		}
		data := ptr - 1 + 16
		switch t & v8StringKind {
		case v8Cons:
			if list, ok = v.units(list, word(b, 16), most, depth+1); !ok || len(list) >= most {
				return list, ok
			}
			ptr = word(b, 24)
			continue
		case v8Thin:
			ptr = word(b, 16)
			continue
		case v8Sliced:
			off, ok := smi(word(b, 24))
			if !ok || off < 0 || off > 1<<30 || n > maxV8Source-off {
				return list, false
			}
			was := len(list)
			whole, ok := v.units(nil, word(b, 16), off+n, depth+1)
			if !ok || len(whole) < off {
				return list[:was], false
			}
			return append(list, whole[off:]...), true
		case v8External:
			if t&v8Uncached != 0 {
				return list, false
			}
			data = word(b, 24)
		case v8Sequential:
		default:
			return list, false
		}
		if t&v8OneByte != 0 {
			raw := v.read(data, n)
			for _, c := range raw {
				list = append(list, uint16(c))
			}
			return list, raw != nil
		}
		raw := v.read(data, 2*n)
		for i := 0; i+2 <= len(raw); i += 2 {
			list = append(list, binary.NativeEndian.Uint16(raw[i:]))
		}
		return list, raw != nil
	}
	return list, false
}

// v8Text tells one text from others.
type v8Text struct{ script, source uint64 }

// v8Lines are the offsets of the ends of a script's lines.
type v8Lines struct {
	ends    []int32
	first   int  // number of the first line
	counted bool // by [Function.Bytes]
}

// line implements lineTable. at is a position, one more than an offset; 0: not known.
func (l *v8Lines) line(at uint64, _ int) int {
	if at == 0 || at > 1<<30 {
		return 0
	}
	n, _ := slices.BinarySearch(l.ends, int32(at-1))
	return l.first + n
}

// lines are those of a script, of which the beginning is given.
func (v *v8) lines(script []byte) *v8Lines {
	key := v8Text{word(script, v8ScriptID), word(script, v.heap.at.source)}
	if l, ok := v.texts[key]; ok {
		return l
	}
	offset, ok := smi(word(script, v8ScriptLine))
	if !ok {
		return nil
	}
	units, ok := v.heap.units(nil, key.source, maxV8Source, 0)
	if !ok || len(units) >= maxV8Source {
		return nil
	}
	l := &v8Lines{first: offset + 1}
	for i, c := range units {
		switch {
		case c == '\r' && i+1 < len(units) && units[i+1] == '\n':
		case c == '\n', c == '\r', c == 0x2028, c == 0x2029:
			l.ends = append(l.ends, int32(i))
		}
	}
	if v.held += 4*len(l.ends) + 64; v.held > maxV8Held {
		clear(v.texts)
		v.held = 4*len(l.ends) + 64
	}
	v.texts[key] = l
	return l
}

// Caller implements unwind.Runtime. Code of V8 has the frame pointer of its frame, or of its caller's where it has no frame or none yet.
func (v *v8) Caller(from *regs.Set, top bool, mem *unwind.Memory, to *regs.Set) (unwind.Reason, uint64) {
	a := regs.AMD64
	fp, known := from.Reg(a.FP)
	sp, _ := from.Reg(a.SP)
	if !known {
		return unwind.NoRow, 0
	}
	at := func(addr uint64) (uint64, unwind.Reason) {
		w, err := mem.Word(a, addr)
		if err != nil {
			return 0, err.(unwind.Reason)
		}
		return w, 0
	}
	caller := func(ra, sp, fp uint64) {
		to.PC = ra
		to.SetReg(a.SP, sp)
		to.SetReg(a.FP, fp)
	}
	if top {
		switch place := v.place(from.PC); place {
		case returnAtSP:
			ra, r := at(sp)
			if r != 0 {
				return r, sp
			}
			caller(ra, sp+8, fp)
			return 0, 0
		case returnBehindFP:
			ra, r := at(sp + 8)
			if r != 0 {
				return r, sp + 8
			}
			if fp, r = at(sp); r != 0 {
				return r, sp
			}
			caller(ra, sp+16, fp)
			return 0, 0
		case returnInRCX, returnInR10:
			reg := uint8(2) // DWARF number of rcx
			if place == returnInR10 {
				reg = 10
			}
			ra, ok := from.Reg(reg)
			if !ok {
				return unwind.UnknownRegister, uint64(reg)
			}
			caller(ra, sp, fp)
			return 0, 0
		}
	}
	if fp < sp || fp&7 != 0 {
		return unwind.NoRow, 0
	}
	ra, r := at(fp + 8)
	if r != 0 {
		return r, fp + 8
	}
	up, r := at(fp)
	if r != 0 {
		return r, fp
	}
	caller(ra, fp+16, up)
	return 0, 0
}

// Where the return address of an innermost frame is.
const (
	returnAtFP = iota
	returnAtSP
	returnBehindFP
	returnInRCX
	returnInR10
)

// v8Entry is push rbp; mov rbp,rsp, with which frames begin.
var v8Entry = []byte{0x55, 0x48, 0x89, 0xe5}

// v8Prologue bounds where in code its frame begins, in bytes.
const v8Prologue = 160

// place tells by the code around pc where its return address is.
func (v *v8) place(pc uint64) int {
	const before, after = 4, 32
	b := v.heap.read(pc-before, before+after)
	if b == nil {
		return returnAtFP
	}
	here := b[before:]
	switch {
	case bytes.HasPrefix(here, v8Entry):
		return returnAtSP
	case b[before-1] == 0x55 && bytes.HasPrefix(here, v8Entry[1:]):
		return returnBehindFP
	case here[0] == 0x5d && v8Epilogue(here[1:]) != returnAtFP: // pop rbp
		return returnBehindFP
	case v8Epilogue(here) != returnAtFP:
		return v8Epilogue(here)
	}
	if generated, _ := v.codes.origin(pc); generated {
		if c := v.codes.codeAt(pc); c != nil && !c.entered(pc) {
			return returnAtSP
		}
	}
	return returnAtFP
}

// v8Epilogue tells where the return address is if b is of code that only returns from there on: ret; pop rcx or r10, an addition to rsp,
// push of the same, ret; or a part of that.
func v8Epilogue(b []byte) int {
	popped := false
	for i := range 4 {
		switch {
		case len(b) < 3:
			return returnAtFP
		case i == 0 && (b[0] == 0xc3 || b[0] == 0xc2):
			return returnAtSP
		case i == 0 && b[0] == 0x59: // pop rcx
			popped, b = true, b[1:]
		case i == 0 && b[0] == 0x41 && b[1] == 0x5a: // pop r10
			popped, b = true, b[2:]
		case b[0] == 0x51 && b[1] == 0xc3 && popped, b[0] == 0x41 && b[1] == 0x52 && b[2] == 0xc3 && popped:
			return returnAtSP
		case b[0] == 0x51 && b[1] == 0xc3: // push rcx; ret
			return returnInRCX
		case b[0] == 0x41 && b[1] == 0x52 && b[2] == 0xc3: // push r10; ret
			return returnInR10
		default:
			n := addsToSP(b)
			if n == 0 {
				return returnAtFP
			}
			b = b[n:]
		}
	}
	return returnAtFP
}

// addsToSP is how long the instruction is with which b begins, if it adds to rsp; else 0.
func addsToSP(b []byte) int {
	if len(b) < 8 || b[0]&0xf0 != 0x40 {
		return 0
	}
	switch {
	case b[1] == 0x83 && b[2] == 0xc4: // add rsp,imm8
		return 4
	case b[1] == 0x81 && b[2] == 0xc4:
		return 7
	case b[1] == 0x03 && b[2]&0xf8 == 0xe0: // add rsp,reg
		return 3
	case b[1] == 0x01 && b[2]&0xc7 == 0xc4:
		return 3
	case b[1] == 0x8d && b[2] == 0x24: // lea rsp,[rsp+reg*8]
		return 4
	case b[1] == 0x8d && b[2] == 0x64:
		return 5
	case b[1] == 0x8d && b[2] == 0xa4:
		return 8
	}
	return 0
}
