package runtimes

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"io"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"sfsample/internal/safeelf"
	"sfsample/regs"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// Runtime runs programs in a process: it is an [Interpreter] or [Managed].
type Runtime interface {
	// Name is what frames of its scripts are marked with.
	Name() string
	// Version is for people.
	Version() string
	// Roots returns the states that it keeps of a thread, none if it keeps none yet.
	Roots(mem io.ReaderAt, th Thread) []taking.Root
	// Recipe is what to copy of a thread with these roots. last is what the copy before has led to.
	Recipe(roots []taking.Root, last *Stack) *taking.Recipe
	// Key tells the code of a frame from all other code that was ever at its address. ok is false if it cannot be read.
	Key(mem Memory, late io.ReaderAt, f *Frame) (k Key, ok bool)
	// Function names the code of a frame whose Key is k. ok is false if that has changed since.
	Function(mem io.ReaderAt, f *Frame, k Key) (fn *Function, ok bool)
}

// Interpreter keeps a stack of its programs' frames beside the native one.
type Interpreter interface {
	Runtime
	// Frames decodes what was copied of a thread: the frames of the states at roots. late is asked of functions that were not copied whether they
	// are scripts'.
	Frames(mem Memory, late io.ReaderAt, roots []uint64, st *Stack)
	// Loop is the address of the function of which each native frame runs one script frame; 0: [Segment.Anchor] tells.
	Loop() uint64
	// Registers are those, by DWARF number, in which the native frame of the loop has the address of its script frame and the
	// instruction of that, which in memory is an earlier one while the loop itself runs. ok is false if there are none.
	Registers(a *regs.Arch) (frame, at uint8, ok bool)
}

// Copying is an Interpreter whose recipes copy what names code, too, if it may be freed.
type Copying interface {
	Interpreter
	// Copied is as Function. mem is what was copied of the thread.
	Copied(mem Memory, late io.ReaderAt, f *Frame, k Key) (fn *Function, ok bool)
}

// Generating is an Interpreter that also generates code, which runs in the native frames of its loop.
type Generating interface {
	Interpreter
	// Generates tells whether a mapping of this name, which is of no object, is of such code.
	Generates(file string) bool
}

// Anchored is an Interpreter that knows by registers which native frames of its loop run which frames.
type Anchored interface {
	Interpreter
	// Anchor sets the anchors of st's segments, and leaves out frames that nothing runs yet, and all if it finds none that is run. registers are those
	// of a native frame as far as they are known; in is as that of [Merge]. complete: there are no more native frames.
	Anchor(native []unwind.Frame, complete bool, in func(i int, entry uint64) bool, registers func(i int) regs.Set, st *Stack)
}

// Managed runs programs on the native stack, in code that it generates or that has no tables. It reads, and keeps, what describes that code,
// and is for one goroutine at a time.
type Managed interface {
	Runtime
	unwind.Runtime
	// Begin is called before each walk: what is kept may be of code that is gone by now. changed: Owns may answer otherwise than before.
	Begin() (changed bool)
	// Confirm is called after each walk. false: something was not what was kept of it, so that the walk may be wrong, and another may not.
	Confirm() bool
	// Identify sets st to the frames that those of a walk in its code are, one segment for each that is known, innermost first. mem is what was
	// copied of the thread.
	Identify(owned []unwind.Owned, mem Memory, st *Stack)
}

// Beforehand is a Managed runtime whose walks need what its recipes copy, so that of a thread that was not copied so it is copied before the walk.
type Beforehand interface {
	Managed
	Beforehand()
}

// Thread is what is known of a thread whose states are looked for.
type Thread struct {
	TID     int    // in its own namespace of process ids
	Pointer uint64 // its thread pointer, which is pthread_self of glibc on x86-64 and s390x; 0: not known
	// SP is its stack pointer, and StackEnd where the mapping ends in which that lies.
	SP, StackEnd uint64
	First        bool   // it is the first of its process
	StackAddr    uint64 // of Stack
	Stack        []byte // a copy of its stack, from an aligned address on
}

// Frame is one script frame, as it was copied.
type Frame struct {
	Addr    uint64 // of the interpreter's frame
	Code    uint64 // address of its code
	Globals uint64 // address of the names of its module; of V8, number of the function; 0: not known
	At      uint64 // instruction, as the runtime counts
}

// Segment is a run of frames that one activation of the interpreter's loop runs.
type Segment struct {
	N int // frames
	// Anchor is the address of something in the native frame of that activation; 0: not known.
	Anchor uint64
	// Entry, if not 0, is the address of a native function that the one frame stands for; it stands beside that.
	Entry uint64
	// Elsewhere: it was run on a native stack other than the one that the thread is on.
	Elsewhere bool
	// Native is the index of the native frame that they are, of one that is Managed.
	Native int
}

// Stack is the frames of one thread, innermost first.
type Stack struct {
	Frames   []Frame
	Segments []Segment
	Spans    []Span // other areas that were used, for the next recipe
	// Locked: the thread had the lock that one thread at a time has of those that run an interpreter.
	Locked bool
	// Short: it goes on in memory that was not copied.
	Short bool
	left  uint64 // of Lua: the CallInfo behind that of the innermost function, which may be just being left
	calls bool   // and a function that is written in C runs, which is called by the innermost frame
	// Of Perl: where activations of the loop begin, and addresses of the JMPENVs, innermost first.
	marks []perlMark
	jumps []uint64
}

// Span is an area of memory.
type Span struct {
	Addr uint64
	Len  int
}

// Reset empties s.
func (s *Stack) Reset() {
	s.Frames, s.Segments, s.Spans, s.Short, s.Locked = s.Frames[:0], s.Segments[:0], s.Spans[:0], false, false
	s.left, s.calls, s.marks, s.jumps = 0, false, s.marks[:0], s.jumps[:0]
}

// Key is the identity of code, as far as the memory that describes it tells it.
type Key struct {
	Code, Globals, Name, Qualname, File, Lines uint64 // addresses
	Hash                                       uint64 // of the file's name
	NameHash, ClassHash                        uint64 // of its own name and its class's
	First, Version, Count                      uint32 // Count is of instructions
}

// Function is code with its name.
type Function struct {
	Name  string // module.function; empty: it is the interpreter's own, and not shown
	Stub  bool   // it is no function of a script, but code that a runtime has between them
	File  string
	First int // line
	// Passing: other code may have the same Key later.
	Passing bool
	lines   lineTable
}

// Line is the line of an instruction, 0 if it is not known.
func (f *Function) Line(at uint64) int {
	if f.lines == nil {
		return 0
	}
	return f.lines.line(at, f.First)
}

// Bytes is about what the function takes. Lines of a script that many functions share count in the first of these.
func (f *Function) Bytes() int {
	n := 256 + len(f.Name) + len(f.File)
	switch t := f.lines.(type) {
	case lnotab:
		n += len(t)
	case linetable310:
		n += len(t)
	case locations:
		n += len(t.table)
	case rubyLines:
		n += len(t.info) + len(t.ranks)
	case luaLines:
		n += len(t.table) + len(t.marks)
	case phpLines:
		n += 4 * len(t.table)
	case javaLines:
		n += 16 * cap(t)
	case beamLines:
		n += 24 * cap(t)
	case *v8Lines:
		if !t.counted {
			t.counted = true
			n += 4 * cap(t.ends)
		}
	}
	return n
}

// lineTable tells lines by instruction.
type lineTable interface {
	line(at uint64, first int) int
}

// Memory is copies of memory.
type Memory []unwind.Region

// Bytes is n bytes at addr, nil if they were not copied.
func (m Memory) Bytes(addr uint64, n int) []byte {
	for i := range m {
		if off := addr - m[i].Addr; off < uint64(len(m[i].Bytes)) && uint64(n) <= uint64(len(m[i].Bytes))-off {
			return m[i].Bytes[off : off+uint64(n)]
		}
	}
	return nil
}

// Word is the word of 8 bytes at addr.
func (m Memory) Word(addr uint64) (v uint64, ok bool) {
	if b := m.Bytes(addr, 8); b != nil {
		return word(b, 0), true
	}
	return 0, false
}

// nearSpans is how far apart areas may lie, in bytes, to be copied as one: what lies between costs less than another area.
const nearSpans = 2 << 10

// foresee makes spans the areas that a recipe copies at once, and returns how many bytes they are. Those that come first are the last to be
// left out.
func foresee(r *taking.Recipe, spans []Span) (bytes int) {
	for most := len(spans); ; most = most * 3 / 4 {
		list := slices.Clone(spans[:most])
		slices.SortFunc(list, func(a, b Span) int { return cmp.Compare(a.Addr, b.Addr) })
		bytes, r.Guesses, r.Guess = 0, 0, [taking.MaxGuess]unix.RemoteIovec{}
		var end uint64
		fits := true
		for _, s := range list {
			if s.Addr == 0 || s.Addr > 1<<62 || s.Len <= 0 || s.Len > taking.MostRoom {
				continue
			}
			last := s.Addr + uint64(s.Len)
			if r.Guesses > 0 && s.Addr <= end+nearSpans {
				if last > end {
					r.Guess[r.Guesses-1].Len += int(last - end)
					bytes += int(last - end)
					end = last
				}
				continue
			}
			if fits = r.Guesses < taking.MaxGuess; !fits {
				break
			}
			r.Guess[r.Guesses] = unix.RemoteIovec{Base: uintptr(s.Addr), Len: s.Len}
			r.Guesses++
			bytes += s.Len
			end = last
		}
		if fits && bytes <= taking.MostRoom/2 {
			return bytes
		}
	}
}

func word(b []byte, off int) uint64   { return binary.NativeEndian.Uint64(b[off:]) }
func word32(b []byte, off int) uint32 { return binary.NativeEndian.Uint32(b[off:]) }

// read is n bytes at addr, nil if they cannot be read.
func read(mem io.ReaderAt, addr uint64, n int) []byte {
	if n <= 0 || addr == 0 || addr > 1<<62 {
		return nil
	}
	b := make([]byte, n)
	if got, _ := mem.ReadAt(b, int64(addr)); got != n {
		return nil
	}
	return b
}

// Object is a file that a process has mapped.
type Object struct {
	Path string
	Bias uint64 // address in the process = address in the file + Bias
	Open func() (File, error)
	// Origin tells whether an address is in generated code, or in code of this object that has no table.
	Origin func(pc uint64) (generated, bare bool)
}

// File is its content.
type File interface {
	io.ReaderAt
	io.Closer
}

// Candidate tells by its name whether an object may be, or contain, an interpreter: a program, or a library that is named so.
func Candidate(file string) bool {
	name := path.Base(file)
	return strings.Contains(name, "python") || strings.Contains(name, "libphp") || strings.Contains(name, "libruby") || strings.Contains(name, "liblua") ||
		strings.Contains(name, "libperl") || strings.Contains(name, "libnode") || name == "libjvm.so" || !strings.Contains(name, ".so")
}

// maxFound bounds what is kept of a program's symbols; libpython has 2,200.
const maxFound = 1 << 14

// Recognise finds the interpreter that an object is. Both results are nil if it is none. An error says why one that it is cannot be
// read.
func Recognise(o Object, mem io.ReaderAt) (Runtime, error) {
	f, err := o.Open()
	if err != nil {
		return nil, nil
	}
	defer f.Close()
	e, err := safeelf.NewFile(f)
	if err != nil || e.Class != elf.ELFCLASS64 {
		return nil, nil
	}
	syms := map[string]uint64{}
	var v8 []elf.Symbol
	var globals uint64                 // bytes of PHP's
	low, high := ^uint64(0), uint64(0) // of Lua's functions
	err = safeelf.Symbols(e, elf.SHT_DYNSYM, func(s elf.Symbol) {
		if s.Section == elf.SHN_UNDEF || len(syms) > maxFound {
			return
		}
		if strings.HasPrefix(s.Name, "lua") && elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			low, high = min(low, s.Value), max(high, s.Value)
		}
		switch {
		case v8Symbol(s.Name):
			if len(v8) <= maxV8Constants {
				v8 = append(v8, s)
			}
		case s.Name == "executor_globals":
			globals = s.Size
			fallthrough
		case slices.Contains(beamSymbols, s.Name), s.Name == beamAlways, strings.HasPrefix(s.Name, "gHotSpotVM"), strings.Contains(s.Name, "Py"), s.Name == "execute_ex", s.Name == "executor_globals_offset",
			s.Name == "ruby_version", s.Name == "lua_newstate", strings.HasPrefix(s.Name, "PL_"), slices.Contains(perlNeeded, s.Name), slices.Contains(perlEnters, s.Name):
			syms[s.Name] = s.Value + o.Bias
		}
	})
	if err != nil {
		return nil, nil
	}
	switch {
	case slices.ContainsFunc(v8, func(s elf.Symbol) bool { return s.Name == v8Known }):
		return newV8(o, e, v8, mem)
	case syms[beamAlways] != 0:
		return newBeam(o, e.Machine, syms, mem)
	case syms["_PyRuntime"] != 0:
		return newPython(o.Path, syms, mem)
	case syms["gHotSpotVMStructs"] != 0:
		return newHotSpot(o.Path, e.Machine, syms, mem)
	case syms["execute_ex"] != 0 && (syms["executor_globals"] != 0 || syms["executor_globals_offset"] != 0):
		return newPHP(o.Path, syms, globals, constants(e))
	case syms["ruby_version"] != 0:
		return newRuby(e, o.Bias, syms["ruby_version"], mem)
	case syms["Perl_runops_standard"] != 0:
		return newPerl(o.Path, e.Machine, syms, mem)
	case syms["lua_newstate"] != 0:
		return newLua(o.Path, e, constants(e), low, high, o.Bias)
	}
	return nil, nil
}

// maxConstants bounds what is read of a program's constants, in bytes.
const maxConstants = 64 << 20

// constants is the .rodata of e, nil if it has none.
func constants(e *elf.File) []byte {
	s := e.Section(".rodata")
	if s == nil {
		return nil
	}
	b, err := safeelf.Data(s, maxConstants)
	if err != nil {
		return nil
	}
	return b
}
