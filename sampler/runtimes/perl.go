package runtimes

import (
	"bytes"
	"debug/elf"
	"fmt"
	"hash/fnv"
	"io"
	"path"
	"slices"
	"strings"

	"sfsample/regs"
	"sfsample/sampler/taking"
	"sfsample/unwind"
)

// perl is a Perl with interpreters of their own for threads. What it runs of a thread is found as what has its innermost JMPENV on that thread's
// native stack.
type perl struct {
	version string
	syms    perlSyms
	// given are names of closures that were given one, by the operation that they begin with and their GV; empty: they have had several.
	given map[[2]uint64]string
	perlLayout
}

// perlSyms are addresses of functions: of the loop, and of those that begin activations of it.
type perlSyms struct {
	runops, run, callSV, amagic, leaveScope uint64
	enters                                  [4]uint64 // of the operations of perlEnters
}

// perlLayout is what differs between versions, in bytes: offsets in struct interpreter (intrpvar.h).
type perlLayout struct {
	defstash  int // Idefstash, which does not change while it lives; Icurcop is 16 and Icurstackinfo 32 bytes behind it
	topEnv    int
	compiling int
	defers    byte   // CXt_DEFER; 0: there is none
	try       byte   // CXp_TRY
	step      uint64 // OP_NEXTSTATE, which OP_DBSTATE follows (opnames.h)
	detached  bool   // what a stash has beside its body is behind its array (hv.h)
}

var perlLayouts = map[byte]perlLayout{
	32: {defstash: 208, topEnv: 776, compiling: 1952, step: 195, detached: true},
	34: {defstash: 192, topEnv: 760, compiling: 1936, try: 0x80, step: 195, detached: true},
	36: {defstash: 192, topEnv: 760, compiling: 1936, defers: 13, try: 0x80, step: 195},
	38: {defstash: 192, topEnv: 776, compiling: 1720, defers: 13, try: 0x80, step: 198},
	40: {defstash: 192, topEnv: 776, compiling: 1720, defers: 13, try: 0x80, step: 198},
	42: {defstash: 192, topEnv: 776, compiling: 1720, defers: 13, try: 0x80, step: 202},
	44: {defstash: 192, topEnv: 776, compiling: 1720, defers: 13, try: 0x80, step: 202},
}

// perlKnown are the keys of perlLayouts, for people.
const perlKnown = "5.32 to 5.44, even"

// Offsets that are the same in all known versions.
const (
	// struct interpreter: Iop; from Idefstash on Icurcop, Icurstack, Icurstackinfo.
	perlOp        = 8
	perlCurcop    = 16
	perlCurstack  = 24
	perlStackinfo = 32
	// PERL_SI (cop.h): si_cxstack 8, si_prev, si_cxix, si_type.
	perlStacks  = 8
	perlPrev    = 16
	perlIndex   = 32
	perlSIType  = 44
	perlSIBytes = 56
	// PERL_CONTEXT (cop.h): type 0, blk_oldcop; of a sub or format retop, cv; of an eval its old_namesv, cur_top_env.
	perlOldcop  = 16
	perlRetop   = 48
	perlNamesv  = 64
	perlCV      = 72
	perlTopEnv  = 96
	perlContext = 104
	// COP (cop.h, op.h): op_ppaddr, op_targ, op_type (9 bits), line, file, seq.
	perlDoes = 16
	perlTarg = 24
	perlType = 32
	perlLine = 36
	perlFile = 48
	perlSeq  = 60
	perlCOP  = 64
	// SV (sv.h): body 0, flags.
	perlFlags = 12
	perlSV    = 16
	// XPVCV (cv.h): stash, start, gv or HEK, flags.
	perlStash   = 32
	perlStart   = 40
	perlGV      = 56
	perlCVFlags = 92
	perlCVBody  = 96
	// XPVGV (gv.h, sv.h): name, stash.
	perlName   = 32
	perlOwner  = 40
	perlGVBody = 48
	// HEK (hv.h): length 4, text; what follows that says whether it is UTF-8. Behind the body of a stash (32 bytes) are its names, and how many.
	perlHEK   = 8
	perlNames = 32
	perlCount = 60
)

// Types of contexts, the lowest four bits of their first byte, and further bits of that (cop.h).
const (
	perlSub       = 9
	perlFormat    = 10
	perlEval      = 11
	perlMulticall = 0x10
	perlBlock     = 0x40 // CXp_EVALBLOCK: of eval, not of text or a file
	perlFake      = 0x80 // CXp_SUB_RE_FAKE: of code in a regular expression
)

// What frames are of, beside perlSub, perlFormat and perlEval: Frame.At.
const (
	perlProgram = 0
	perlRequire = 12
	perlString  = 13 // eval of text
)

// Types of stacks (PERLSI_*, cop.h) whose activations do not begin in call_sv.
const (
	perlSort     = 3
	perlOverload = 5
)

// Types of SVs, the lowest byte of their flags, and flags of them and of CVs.
const (
	perlPVGV    = 9
	perlPVHV    = 12
	perlPVCV    = 13
	perlPVFM    = 14
	perlAux     = 0x2000000 // SVf_OOK
	perlNamed   = 0x8000    // CVf_NAMED
	perlLexical = 0x10000   // CVf_LEXICAL
	perlAnon    = 0x80      // CVf_ANON
	perlHolds   = 0x400     // CVf_CVGV_RC: it keeps the GV with its name, as anonymous ones, and those that were given another name
	perlKept    = perlNamed | perlLexical | perlAnon | perlHolds
	// perlWitness, in Key.Count: sub and statement were both copied at the stop.
	perlWitness = 1 << 31
)

// perlHead is how much is copied of the name of the file that is compiled. Its address is that of the next one's name soon.
const perlHead = 128

// perlText begins the names of files that are text.
const perlText = "(eval "

// perlNeeded are the symbols of perlSyms.
var perlNeeded = []string{"Perl_runops_standard", "perl_run", "Perl_call_sv", "Perl_amagic_call", "Perl_leave_scope"}

// perlEnters are what operations run that push the context of a frame (pp_hot.c, pp_ctl.c), the one for a sub first.
var perlEnters = []string{"Perl_pp_entersub", "Perl_pp_require", "Perl_pp_entereval", "Perl_pp_entertry"}

// newPerl reads what must be known of the Perl with these symbols.
func newPerl(file string, machine elf.Machine, syms map[string]uint64, mem io.ReaderAt) (Runtime, error) {
	var v [3]byte
	for i, s := range []string{"PL_revision", "PL_version", "PL_subversion"} {
		if b := read(mem, syms[s], 1); b != nil {
			v[i] = b[0]
		}
	}
	p := &perl{version: fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2])}
	l, ok := perlLayouts[v[1]]
	switch {
	case !ok || v[0] != 5:
		return nil, fmt.Errorf("%s: Perl %s is not known, its scripts are not shown (known: %s)", path.Base(file), p.version, perlKnown)
	case machine != elf.EM_X86_64:
		return nil, fmt.Errorf("%s: Perl is known on x86-64 only, its scripts are not shown", path.Base(file))
	case syms["PL_thr_key"] == 0:
		return nil, fmt.Errorf("%s: Perl without threads is not known, its scripts are not shown", path.Base(file))
	}
	p.perlLayout = l
	for i, at := range []*uint64{&p.syms.runops, &p.syms.run, &p.syms.callSV, &p.syms.amagic, &p.syms.leaveScope} {
		if *at = syms[perlNeeded[i]]; *at == 0 {
			return nil, fmt.Errorf("%s: this Perl does not export %s, its scripts are not shown", path.Base(file), perlNeeded[i])
		}
	}
	for i, s := range perlEnters {
		p.syms.enters[i] = syms[s]
	}
	return p, nil
}

func (p *perl) Name() string    { return "perl" }
func (p *perl) Version() string { return p.version }

// Loop implements [Interpreter].
func (p *perl) Loop() uint64 { return p.syms.runops }

// Registers implements [Interpreter]: the loop keeps nothing of where it is in registers.
func (p *perl) Registers(*regs.Arch) (frame, at uint8, ok bool) { return 0, 0, false }

// rootBytes reaches to the end of PL_compiling, the COP while something is compiled.
func (p *perl) rootBytes() int { return p.compiling + perlCOP }

// perlTried bounds the words of a stack that are tried.
const perlTried = 512

// Roots implements Runtime: most functions of Perl have the interpreter as their first argument, so that it is among the innermost words of the
// stack.
func (p *perl) Roots(mem io.ReaderAt, th Thread) []taking.Root {
	tried := map[uint64]bool{}
	for i := 0; i+8 <= len(th.Stack) && len(tried) < perlTried; i += 8 {
		addr := word(th.Stack, i)
		if addr&7 != 0 || addr-th.StackAddr < uint64(len(th.Stack)) || tried[addr] || addr < 1<<16 {
			continue
		}
		tried[addr] = true
		// Its innermost JMPENV is on the stack, and the stack that it takes for the current one is that.
		b := read(mem, addr+uint64(p.topEnv), 8)
		if b == nil || word(b, 0)-th.StackAddr >= uint64(len(th.Stack)) {
			continue
		}
		if b = read(mem, addr+uint64(p.defstash), perlStackinfo+8); b == nil {
			continue
		}
		if si := read(mem, word(b, perlStackinfo), perlSIBytes); si != nil && word(si, 0) == word(b, perlCurstack) && word(si, 0) != 0 {
			return []taking.Root{{Addr: addr, Is: word(b, 0)}}
		}
	}
	return nil
}

// Recipe implements Runtime.
func (p *perl) Recipe(roots []taking.Root, last *Stack) *taking.Recipe {
	r := &taking.Recipe{RootBytes: p.rootBytes(), Check: p.defstash, OnStack: p.topEnv}
	copy(r.Roots[:], roots)
	r.Steps[0] = taking.Step{Bytes: perlCOP, Head: p.defstash + perlCurcop, Most: 1}
	r.Steps[1] = taking.Step{Bytes: perlHead, Head: p.compiling + perlFile, Most: 1}
	r.Steps[2] = taking.Step{Bytes: perlSIBytes, Head: p.defstash + perlStackinfo, Next: perlPrev, Most: 64, Areas: [2]taking.Area{
		{From: perlStacks, Index: perlIndex, Each: perlContext, Last: true, Leaves: [2]taking.Leaf{
			{Link: taking.Link{At: perlOldcop, Bytes: perlCOP}, Tags: 1<<perlSub | 1<<perlFormat | 1<<perlEval},
			{Link: taking.Link{At: perlCV, Bytes: perlSV}, Tags: 1<<perlSub | 1<<perlFormat, Then: taking.Link{Bytes: perlCVBody}}}}}}
	r.Steps[3] = taking.Step{Bytes: perlDoes + 8, Head: perlOp, Most: 1}
	spans := make([]Span, 0, len(roots)+len(last.Spans))
	for _, root := range roots {
		spans = append(spans, Span{root.Addr, p.rootBytes()})
	}
	spans = append(spans, last.Spans...)
	r.Room = min(max(2*foresee(r, spans), leastRoom), mostRoom)
	if last.Short {
		r.Room = mostRoom
	}
	return r
}

// perlMark is where an activation of the loop may begin, innermost first.
type perlMark struct {
	end      int       // frames that are further in
	kind     perlBegin // what has begun it
	optional bool      // it may be a call at the end of what another one runs
	env      uint64    // of an eval: the JMPENV
}

// perlBegin is what begins an activation of the loop.
type perlBegin byte

const (
	beginsCall  perlBegin = iota // call_sv
	beginsMagic                  // amagic_call
	beginsOther                  // sort, code of regular expressions, MULTICALL
	beginsEval                   // an eval that a JMPENV of its own was made for
	beginsRun                    // perl_run
)

// perlForeseen is of how many frames the statements and subs are copied by the next recipe.
const perlForeseen = 64

// maxJumps bounds the JMPENVs of a thread that are looked at.
const maxJumps = 256

// Frames implements [Interpreter]. caller_cx and dopopto_sub_at (pp_ctl.c) say which contexts are frames.
func (p *perl) Frames(mem Memory, late io.ReaderAt, roots []uint64, st *Stack) {
	st.Reset()
	for _, root := range roots[:min(len(roots), 1)] {
		b := mem.Bytes(root, p.rootBytes())
		if b == nil {
			return
		}
		for env := word(b, p.topEnv); len(st.jumps) < maxJumps; {
			next, ok := mem.Word(env)
			if !ok {
				break
			}
			st.jumps = append(st.jumps, env)
			if next <= env {
				break // to the outermost, which is in the interpreter
			}
			env = next
		}
		w := perlWalk{of: p, mem: mem, late: late, st: st, cop: word(b, p.defstash+perlCurcop), compiling: root + uint64(p.compiling), enters: -1}
		if does, ok := mem.Word(word(b, perlOp) + perlDoes); ok && does != 0 {
			st.note(word(b, perlOp), perlDoes+8)
			w.enters = slices.Index(p.syms.enters[:], does)
		}
		w.chain(word(b, p.defstash+perlStackinfo))
		for i := range min(len(st.Frames), perlForeseen) {
			w.foresee(&st.Frames[i])
		}
		st.segment(len(st.Frames), 0) // until Anchor knows better
	}
}

// perlWalk decodes the frames of one stack.
type perlWalk struct {
	of   *perl
	mem  Memory
	late io.ReaderAt
	st   *Stack
	cop  uint64 // of the next frame
	// compiling is the address of PL_compiling: where what is compiled now is, and no longer where what has had that compiled is.
	compiling uint64
	evals     bool // there are evals of text or files further in
	enters    int  // which of perlEnters is under way: it may be filling in the innermost context, whose type comes first (cx_pushblock, inline.h); or -1
}

// chain appends the frames of the stacks from the one at addr on.
func (w *perlWalk) chain(addr uint64) {
	st := w.st
	var contexts []Span
	steps := 0
	for addr != 0 {
		si := w.mem.Bytes(addr, perlSIBytes)
		if steps++; si == nil || steps > maxScript || len(st.Frames) >= maxScript {
			st.Short = true
			break
		}
		st.note(addr, perlSIBytes)
		base, count := word(si, perlStacks), int(int32(word32(si, perlIndex)))+1
		if count > 0 && count <= maxScript*8 {
			n := min(count*perlContext, maxContexts)
			contexts = append(contexts, Span{base + uint64(count*perlContext-n), n})
		}
		for i := count - 1; i >= 0; i-- {
			at := base + uint64(i)*perlContext
			c := w.mem.Bytes(at, perlContext)
			if steps++; c == nil || steps > 8*maxScript || len(st.Frames) >= maxScript {
				st.Short = true
				break
			}
			w.context(at, c, int(word32(si, perlSIType)), i)
			w.enters = -1
		}
		if st.Short {
			break
		}
		addr = word(si, perlPrev)
	}
	for _, s := range contexts {
		if len(st.Spans) < maxSpans {
			st.Spans = append(st.Spans, Span{s.Addr, s.Len})
		}
	}
	if !st.Short {
		w.frame(Frame{At: perlProgram}, nil)
		w.mark(beginsRun, 0)
	}
}

// maxContexts bounds what is copied of a stack's contexts, in bytes, as taking does.
const maxContexts = 256 << 10

// mark notes that an activation begins with what was met last.
func (w *perlWalk) mark(kind perlBegin, env uint64) {
	// The operation behind a call at the end of a sort's block, or of code in a regular expression, is none, as behind one from native code.
	if n := len(w.st.marks) - 1; kind == beginsOther && n >= 0 && w.st.marks[n].kind == beginsCall && w.st.marks[n].end == len(w.st.Frames) {
		w.st.marks[n].optional = true
	}
	w.st.marks = append(w.st.marks, perlMark{end: len(w.st.Frames), kind: kind, env: env})
}

// context looks at the context c, which is at addr and the one with this index of a stack of type si.
func (w *perlWalk) context(addr uint64, c []byte, si, index int) {
	kind, sub := c[0]&15, false
	switch {
	case kind == perlSub && c[0]&perlFake != 0:
		w.mark(beginsOther, 0)
		return
	case kind == perlSub || kind == perlFormat:
		if sub = true; word(c, perlCV) == 0 { // it is being made or left
			if w.enters != 0 {
				w.cop = word(c, perlOldcop)
			}
			break
		}
		w.frame(Frame{Addr: addr, Code: word(c, perlCV), At: uint64(kind)}, c)
	case kind == perlEval && c[0]&w.of.try != 0:
	case kind == perlEval:
		f := Frame{Addr: addr, At: perlEval}
		switch {
		case c[0]&perlBlock != 0: // a name is another's, until the context is filled (cx_pushblock, then cx_pusheval, inline.h)
		case word(c, perlNamesv) != 0:
			f.At = perlRequire
		default:
			f.At = perlString
		}
		w.frame(f, c)
		if env := word(c, perlTopEnv); env != 0 {
			w.mark(beginsEval, env)
		}
	}
	switch {
	case w.of.defers > 0 && kind == w.of.defers, si == perlSort && index == 0, sub && c[0]&perlMulticall != 0:
		w.mark(beginsOther, 0)
	case sub && word(c, perlRetop) != 0, !sub:
	case si == perlOverload && index == 0:
		w.mark(beginsMagic, 0)
	default:
		w.mark(beginsCall, 0)
	}
}

// frame appends f, whose context is c.
func (w *perlWalk) frame(f Frame, c []byte) {
	if f.Globals = w.cop; f.Globals == w.compiling && w.evals {
		f.Globals = 0
	}
	w.evals = w.evals || f.At == perlRequire || f.At == perlString
	if c == nil {
		c = make([]byte, perlContext)
	}
	cop := w.cop
	if w.cop = word(c, perlOldcop); w.enters > 0 && f.Code == 0 && w.cop != cop && cop != w.compiling {
		w.cop = 0 // it may be what stood there before
	}
	if len(w.st.Frames) == 0 && f.Code != 0 && f.Globals == w.cop {
		f.Globals = 0 // it has not begun its first statement, or calls itself
	}
	w.st.Frames = append(w.st.Frames, f)
}

// foresee notes what else f leads to.
func (w *perlWalk) foresee(f *Frame) {
	if f.Globals != 0 {
		w.st.note(f.Globals, perlCOP)
	}
	if f.Code != 0 {
		w.st.note(f.Code, perlSV)
		if b := w.mem.Bytes(f.Code, perlSV); b != nil {
			w.st.note(word(b, 0), perlCVBody)
		}
	}
}

// Anchor implements [Anchored]. From the outermost on, activations are those that begin where the loop's native callers say.
func (p *perl) Anchor(native []unwind.Frame, complete bool, in func(i int, entry uint64) bool, _ func(int) regs.Set, st *Stack) {
	w := perlPlaces{of: p, native: native, in: in, st: st, at: make([]int, len(st.marks))}
	ok := false
	if complete && !st.Short {
		var left int
		if left, ok = w.match(false); !ok || left > 0 {
			if n, whole := w.match(true); whole && n == 0 {
				ok = true
			} else if ok {
				w.match(false)
			}
		}
	}
	st.Segments = st.Segments[:0]
	if !ok { // what there is of it is still where to look next time
		st.Frames = st.Frames[:0]
		return
	}
	// What no native frame runs yet, or any more, is left out: the comparison of a sort between two calls.
	first := 0
	for k := range st.marks {
		if w.at[k] >= 0 {
			break
		}
		if m := &st.marks[k]; m.kind != beginsEval && !m.optional {
			first = m.end
		}
	}
	done := first
	for k, m := range st.marks {
		if w.at[k] < 0 || m.end <= done {
			continue
		}
		st.segment(m.end-done, native[w.at[k]].SP)
		done = m.end
	}
	if n := len(st.Segments); n > 0 && w.at[len(w.at)-1] < 0 {
		// Further out is the eval that call_sv has made for the outermost one; perl_run runs nothing yet, or no more.
		st.Segments[n-1].N += len(st.Frames) - 1 - done
		done = len(st.Frames) - 1
	}
	st.Frames = st.Frames[:done][first:]
}

// perlPlaces finds the native frames that run what marks begin.
type perlPlaces struct {
	of     *perl
	native []unwind.Frame
	in     func(i int, entry uint64) bool
	st     *Stack
	at     []int // by mark: its native frame, -1: it has none
}

// match fills in at. optional: so do calls that may be none. left is how many native frames run nothing; ok is false if marks and frames cannot
// be those of one instant.
func (w *perlPlaces) match(optional bool) (left int, ok bool) {
	for k := range w.at {
		w.at[k] = -1
	}
	marks := w.st.marks
	must := func(k int) bool { // it has a native frame, but at the instants of its beginning and end
		m := &marks[k]
		return (m.kind == beginsCall || m.kind == beginsMagic) && (optional || !m.optional)
	}
	k := len(marks) - 1 // the outermost that has none yet
	for i := len(w.native) - 2; i >= 0; i-- {
		if !w.in(i, 0) {
			continue
		}
		kind, env := w.begins(i)
		if kind == beginsEval {
			// The outermost eval that has it. If that has ended, what follows is run here too, and stays where it was begun.
			for j := k; j >= 0 && !must(j) && marks[j].kind != beginsOther; j-- {
				if marks[j].kind == beginsEval && marks[j].env == env {
					w.at[j], k = i, j-1
					break
				}
			}
			continue
		}
		j := k
		for ; j >= 0 && marks[j].kind != kind || j >= 0 && kind == beginsCall && !must(j); j-- {
			if must(j) {
				return left, false
			}
		}
		if j < 0 {
			if left++; kind == beginsRun || left > 1 {
				return left, false
			}
			continue // it is yet to begin, or has ended
		}
		w.at[j], k = i, j-1
	}
	more := 0
	for ; k >= 0; k-- {
		if must(k) {
			more++
		}
	}
	return left, more+left <= 1
}

// begins is what has begun the loop of native frame i: its caller.
func (w *perlPlaces) begins(i int) (kind perlBegin, env uint64) {
	last := len(w.native) - 1
	switch {
	case w.in(i+1, w.of.syms.callSV):
		return beginsCall, 0
	case w.in(i+1, w.of.syms.amagic):
		return beginsMagic, 0
	case w.in(i+1, w.of.syms.run), i+2 <= last && w.in(i+2, w.of.syms.run):
		return beginsRun, 0
	case i+2 <= last && w.in(i+2, w.of.syms.leaveScope):
		return beginsOther, 0 // a block of defer, which has a JMPENV from 5.42 on (invoke_defer_block, scope.c)
	}
	for _, env := range w.st.jumps {
		if i+2 <= last && env >= w.native[i+1].SP && env < w.native[i+2].SP {
			return beginsEval, env
		}
	}
	return beginsOther, 0
}

// Key implements Runtime: each statement that was ever compiled has a number of its own.
func (p *perl) Key(mem Memory, late io.ReaderAt, f *Frame) (k Key, ok bool) {
	k = Key{Code: f.Globals, Version: uint32(f.At)}
	passing := f.At == perlString || f.At == perlRequire // its code may be freed when it ends
	if f.Code != 0 {
		head, body := p.cv(mem, late, f.Code)
		if body == nil {
			return k, false
		}
		k.Globals, k.Name, k.Qualname, k.Count = word(body, perlStart), word(body, perlGV), word(body, perlStash), word32(body, perlCVFlags)&perlKept
		if k.Version = word32(head, perlFlags) & 0xff; k.Version != perlPVCV && k.Version != perlPVFM {
			return k, false
		}
		passing = k.Count&perlAnon != 0 && mem.Bytes(f.Code, perlSV) == nil
	}
	if f.Globals != 0 {
		b := mem.Bytes(f.Globals, perlCOP)
		copied := b != nil
		if !copied {
			if b = read(late, f.Globals, perlCOP); b == nil {
				return k, false
			}
		}
		switch op, was := uint64(word32(b, perlType)&0x1ff), word(b, perlTarg); {
		case op-p.step <= 1, op == 0 && was-p.step <= 1: // or it was optimised away
		case op == 0 && was == 0: // PL_compiling, or its copy
			file := word(b, perlFile)
			text, _, whole := bytes.Cut(mem.Bytes(file, perlHead), []byte{0})
			if !whole {
				return k, false
			}
			k.Lines = perlHash(text)
		default:
			return k, false
		}
		k.File, k.First, k.Hash = word(b, perlFile), word32(b, perlLine), uint64(word32(b, perlSeq))
		if !copied && mem != nil && f.Code != 0 && !passing {
			file, ok := cString(late, k.File)
			passing = !ok || strings.HasPrefix(file, perlText)
		}
		if passing = passing && (!copied || f.Code != 0); copied && k.Count&perlAnon != 0 && mem.Bytes(f.Code, perlSV) != nil {
			k.Count |= perlWitness
		}
	}
	if c := mem.Bytes(f.Addr, perlContext); c != nil && passing {
		// What was read later is the frame's if that is still there.
		if again := read(late, f.Addr, perlContext); !bytes.Equal(c, again) {
			return k, false
		}
	}
	return k, true
}

// cv is the CV at addr, and the beginning of its body; nil: it is not there.
func (p *perl) cv(mem Memory, late io.ReaderAt, addr uint64) (head, body []byte) {
	get := func(addr uint64, n int) []byte {
		if b := mem.Bytes(addr, n); b != nil {
			return b
		}
		return read(late, addr, n)
	}
	if head = get(addr, perlSV); head != nil {
		body = get(word(head, 0), perlCVBody)
	}
	return head, body
}

// Function implements Runtime.
func (p *perl) Function(mem io.ReaderAt, f *Frame, k Key) (*Function, bool) {
	fn, ok := &Function{First: int(k.First), lines: perlLines{}}, true
	switch {
	case f.Code != 0:
		fn.Name, ok = p.subName(mem, k)
		if k.Version == perlPVFM {
			fn.Name = "format " + fn.Name
		}
	case f.At == perlEval || f.At == perlString:
		fn.Name = "(eval)"
	case f.At == perlRequire:
		fn.Name = "(require)"
	default:
		fn.Name = "main program"
	}
	if !ok {
		return nil, false
	}
	// Without a statement, whose number nothing else has, only what stays is known to be what it was.
	sure := f.Code == 0 || k.File != 0 || p.stays(mem, k.Globals)
	// What was read is the frame's only if it still is what it was.
	code := *f
	code.Globals = 0
	again, good := p.Key(nil, mem, &code)
	if !good || again.Globals != k.Globals || again.Name != k.Name || again.Qualname != k.Qualname || again.Count != k.Count&^perlWitness {
		return fn, p.closure(mem, f, k, fn)
	}
	if k.Count&(perlHolds|perlAnon) == perlHolds && p.renamed(k, fn.Name) {
		return nil, false
	}
	if k.File == 0 {
		fn.Passing = f.Code != 0
		return fn, sure
	}
	fn.File, good = cString(mem, k.File)
	// Closures that were given names have their statements in common.
	fn.Passing = strings.HasPrefix(fn.File, perlText) || k.Count&(perlHolds|perlAnon) == perlHolds
	if k.Lines != 0 {
		good = good && perlHash([]byte(fn.File)) == k.Lines
	} else if good {
		again, good = p.Key(nil, mem, f)
		again.Count |= k.Count & perlWitness
		good = good && again == k
	}
	if !good && f.Code != 0 {
		return nil, false // its operations are gone, and the sub may be another that was made in its place
	}
	if !good { // it is known what it is, not where
		fn.File, fn.First, fn.Passing = "", 0, true
	}
	return fn, true
}

// maxGiven bounds perl.given.
const maxGiven = 1 << 12

// renamed tells whether a closure that was given a name has had another one before, or others in its place have: whose the frame is is not known then.
func (p *perl) renamed(k Key, name string) bool {
	at := [2]uint64{k.Globals, k.Name}
	was, ok := p.given[at]
	if p.given == nil || len(p.given) >= maxGiven {
		p.given = map[[2]uint64]string{}
	}
	if ok && was != name {
		name = ""
	}
	p.given[at] = name
	return name == ""
}

// stays tells whether what a sub begins with is a statement of a file. What is compiled from text a program may drop, and the next has its addresses.
func (p *perl) stays(mem io.ReaderAt, addr uint64) bool {
	b := read(mem, addr, perlCOP)
	if b == nil || uint64(word32(b, perlType)&0x1ff)-p.step > 1 {
		return false
	}
	file, ok := cString(mem, word(b, perlFile))
	return ok && !strings.HasPrefix(file, perlText)
}

// closure fills in fn, the name of an anonymous sub that is gone, as those that a program makes for each request. Its operations are those of all
// that are made there: as long as they are there one of these subs is, and holds the GV that has the name.
func (p *perl) closure(mem io.ReaderAt, f *Frame, k Key, fn *Function) bool {
	if k.Count&perlWitness == 0 || k.Lines != 0 || !strings.HasSuffix(fn.Name, "::__ANON__") {
		return false
	}
	gv := read(mem, k.Name, perlSV)
	if gv == nil {
		return false
	}
	if gv = read(mem, word(gv, 0), perlGVBody); gv == nil || word(gv, perlOwner) != k.Qualname {
		return false
	}
	file, ok := cString(mem, k.File)
	there, good := p.Key(nil, mem, &Frame{Globals: f.Globals})
	fn.File, fn.Passing = file, true
	return ok && good && there.File == k.File && there.First == k.First && there.Hash == k.Hash
}

// perlHash is a hash of text that is not 0.
func perlHash(text []byte) uint64 {
	h := fnv.New64a()
	h.Write(text)
	return h.Sum64() | 1
}

// perlLines: a Key is of one statement.
type perlLines struct{}

func (perlLines) line(_ uint64, first int) int { return first }

// subName is what cv_name (pad.c) says of a sub or format.
func (p *perl) subName(mem io.ReaderAt, k Key) (string, bool) {
	name, stash := k.Name, k.Qualname
	if k.Count&perlNamed == 0 {
		if name == 0 {
			return "(unknown)", true
		}
		b := read(mem, name, perlSV)
		if b == nil || word32(b, perlFlags)&0xff != perlPVGV {
			return "", false
		}
		if b = read(mem, word(b, 0), perlGVBody); b == nil {
			return "", false
		}
		name, stash = word(b, perlName), word(b, perlOwner)
	}
	text, ok := hek(mem, name)
	if !ok || k.Count&perlLexical != 0 || stash == 0 {
		return text, ok
	}
	b := read(mem, stash, perlSV+8)
	if b == nil || word32(b, perlFlags)&0xff != perlPVHV {
		return "", false
	}
	if word32(b, perlFlags)&perlAux == 0 {
		return "__ANON__::" + text, true
	}
	aux := word(b, 0) + perlNames
	if p.detached {
		body := read(mem, word(b, 0), perlNames)
		if body == nil {
			return "", false
		}
		aux = word(b, perlSV) + 8*(word(body, perlNames-8)+1) // behind HvARRAY, by HvMAX
	}
	if b = read(mem, aux, perlCount-perlNames+4); b == nil {
		return "", false
	}
	at := word(b, 0)
	if word32(b, perlCount-perlNames) != 0 { // an array of them
		if b = read(mem, at, 8); b == nil {
			return "", false
		}
		at = word(b, 0)
	}
	if at == 0 {
		return "__ANON__::" + text, true
	}
	pkg, ok := hek(mem, at)
	return pkg + "::" + text, ok
}

// hek is the text of the HEK at addr (hv.h): behind it are a NUL and flags, of which the lowest says that it is UTF-8, not Latin-1.
func hek(mem io.ReaderAt, addr uint64) (string, bool) {
	b := read(mem, addr, perlHEK)
	if b == nil {
		return "", false
	}
	n := int64(int32(word32(b, 4)))
	if n < 0 {
		return "", false
	}
	end := read(mem, addr+perlHEK+uint64(n), 2)
	b = read(mem, addr+perlHEK, int(min(n, maxText)))
	if end == nil || end[0] != 0 || b == nil && n > 0 {
		return "", false
	}
	cut := ""
	if n > maxText {
		cut = "…"
	}
	if end[1]&1 != 0 {
		return strings.ToValidUTF8(string(b), "\ufffd") + cut, true // Perl has surrogates, and what is beyond Unicode
	}
	text := make([]rune, len(b))
	for i := range text {
		text[i] = rune(b[i])
	}
	return string(text) + cut, true
}

// cString is the text at addr that a NUL ends.
func cString(mem io.ReaderAt, addr uint64) (string, bool) {
	var text []byte
	for len(text) < maxText {
		n := 64 - int(addr%64)
		b := read(mem, addr, n)
		if b == nil {
			return "", false
		}
		if end := bytes.IndexByte(b, 0); end >= 0 {
			return string(append(text, b[:end]...)), true
		}
		text, addr = append(text, b...), addr+uint64(n)
	}
	return string(text) + "…", true
}
