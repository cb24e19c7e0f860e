package unwind

// x86-64 and i386. A call pushes the return address; a function that keeps a
// frame pointer then pushes the caller's and points rbp at it. Words are 8 or 4
// bytes and everything else is alike, so both are made from one description.
//
// Signal frames: arch/x86/include/asm/sigframe.h and uapi/asm/sigcontext.h.

import (
	"bytes"

	"github.com/go-delve/delve/pkg/dwarf/regnum"

	"sfsample/regs"
	"sfsample/sframe"
)

var (
	amd64Convention = x86Convention(regs.AMD64, amd64Signal)
	i386Convention  = x86Convention(regs.I386, i386Signal)
)

// x86Rows are the rows of the frame states that the bytes at pc can tell.
type x86Rows struct {
	frame  *sframe.Row // rbp points at the saved rbp
	entry  *sframe.Row // the return address is on top of the stack
	pushed *sframe.Row // above it lies the caller's rbp
}

func x86Convention(a *regs.Arch, signal func(*window, bool) *sframe.Row) convention {
	ws := int32(a.WordBytes)
	ra, fp := atCFA(-ws), atCFA(-2*ws)
	rows := x86Rows{
		frame:  &sframe.Row{CFA: fromReg(a.FP, 2*ws), RA: ra, FP: fp},
		entry:  &sframe.Row{CFA: fromReg(a.SP, ws), RA: ra},
		pushed: &sframe.Row{CFA: fromReg(a.SP, 2*ws), RA: ra, FP: fp},
	}
	// At a function's first and last instruction every callee-saved register
	// has the caller's value.
	rows.entry.Keep = a.CalleeSaved &^ (1 << a.FP)
	return convention{
		frame: rows.frame,
		entry: rows.entry,
		innermost: func(w *window) *sframe.Row {
			return rows.innermost(w, a.WordBytes == 8)
		},
		returned: func(w *window) *sframe.Row {
			return x86Returned(w, a)
		},
		signal:    signal,
		afterCall: x86AfterCall,
		jumps:     func(w *window) (uint8, bool) { return x86Jumps(w, a) },
		calls:     func(b [3]byte) (uint8, bool) { return x86Calls(b, a) },
	}
}

// x86Calls returns the register that the call at the end of b goes through, of those that calls preserve: rbx, r12 to r15.
func x86Calls(b [3]byte, a *regs.Arch) (reg uint8, ok bool) {
	switch {
	case a.WordBytes != 8 || b[1] != 0xff:
		return 0, false
	case b[0] == 0x41 && b[2] >= 0xd4 && b[2] <= 0xd7:
		return b[2] - 0xd0 + 8, true
	}
	return regnum.AMD64_Rbx, b[0] != 0x41 && b[2] == 0xd3
}

// Instructions of prologue and epilogue (Intel SDM volume 2).
var (
	x86Endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}
	x86Endbr32 = []byte{0xf3, 0x0f, 0x1e, 0xfb}
)

const (
	x86PushBP = 0x55
	x86PopBP  = 0x5d
	x86Leave  = 0xc9
	x86Ret    = 0xc3
	x86RetImm = 0xc2
	x86Rep    = 0xf3
	x86Bnd    = 0xf2
	x86RexW   = 0x48
)

// innermost knows: the first instruction (push %rbp, behind endbr or not), the
// move to rbp that follows it, pop %rbp before ret, and ret. Anything else has
// its frame pointer set, or never sets it, which bytes cannot tell.
func (rows *x86Rows) innermost(w *window, wide bool) *sframe.Row {
	at := w.ahead()
	if len(at) == 0 {
		return nil
	}
	body := at
	if bytes.HasPrefix(body, x86Endbr64) || bytes.HasPrefix(body, x86Endbr32) {
		body = body[4:]
		if len(body) > 0 && body[0] != x86PushBP && !x86JumpSlot(body) {
			// The target of an indirect jump within a function, or the entry
			// of one without a frame: the one has rbp set, the other not.
			return nil
		}
	}
	switch {
	case len(body) == 0:
		return nil
	case body[0] == x86PushBP, x86IsRet(body), x86JumpSlot(body):
		return rows.entry
	case x86IsMoveToBP(body, wide) && len(w.behind()) > 0 && w.behind()[w.before-1] == x86PushBP:
		return rows.pushed
	case body[0] == x86PopBP && x86IsRet(body[1:]):
		return rows.pushed
	}
	return nil
}

func x86IsRet(b []byte) bool {
	if len(b) > 1 && (b[0] == x86Rep || b[0] == x86Bnd) {
		b = b[1:]
	}
	return len(b) > 0 && (b[0] == x86Ret || b[0] == x86RetImm)
}

// x86IsMoveToBP: mov %rsp,%rbp in either of its two encodings.
func x86IsMoveToBP(b []byte, wide bool) bool {
	if wide {
		var ok bool
		if b, ok = bytes.CutPrefix(b, []byte{x86RexW}); !ok {
			return false
		}
	}
	return bytes.HasPrefix(b, []byte{0x89, 0xe5}) || bytes.HasPrefix(b, []byte{0x8b, 0xec})
}

// x86Returned knows add $size,%rsp before ret behind a call: whatever the
// registers hold, this is how the caller's frame ends. Trampolines without
// tables are of that kind, such as those that CPython makes for each function so
// that profilers tell them apart (Python/asm_trampoline.S).
func x86Returned(w *window, a *regs.Arch) *sframe.Row {
	b := w.ahead()
	if a.WordBytes == 8 {
		if len(b) == 0 || b[0] != x86RexW {
			return nil
		}
		b = b[1:]
	}
	if len(b) < 4 || b[0] != 0x83 || b[1] != 0xc4 || !x86IsRet(b[3:]) {
		return nil
	}
	size, ws := int32(int8(b[2])), int32(a.WordBytes)
	if size < 0 {
		return nil
	}
	return &sframe.Row{CFA: fromReg(a.SP, size+ws), RA: atCFA(-ws), Keep: a.CalleeSaved &^ (1 << a.FP)}
}

// x86JumpSlot: jmp *slot, as in a PLT entry or a tail call through the GOT.
// Jump tables use other forms.
func x86JumpSlot(b []byte) bool {
	b = bytes.TrimPrefix(b, []byte{x86Bnd})
	return len(b) >= 6 && b[0] == 0xff && b[1] == 0x25
}

// x86Jumps: jmp of a register (ff /4), of those that came with AMD64 too (41), and unchecked by CET (3e).
func x86Jumps(w *window, a *regs.Arch) (reg uint8, ok bool) {
	b := bytes.TrimPrefix(w.ahead(), []byte{0x3e})
	b, more := bytes.CutPrefix(b, []byte{0x41})
	if len(b) < 2 || b[0] != 0xff || b[1]&0xf8 != 0xe0 || more && a.WordBytes != 8 {
		return 0, false
	}
	reg = b[1] & 7
	switch {
	case more:
		reg += regnum.AMD64_R8
	case a.WordBytes == 8:
		reg = [...]uint8{regnum.AMD64_Rax, regnum.AMD64_Rcx, regnum.AMD64_Rdx, regnum.AMD64_Rbx,
			regnum.AMD64_Rsp, regnum.AMD64_Rbp, regnum.AMD64_Rsi, regnum.AMD64_Rdi}[reg]
	}
	return reg, true
}

// x86AfterCall: call rel32 (e8), or call r/m (ff /2) in any of its lengths.
// It may say yes where the bytes are something else, which is rare, and never
// no after a call.
func x86AfterCall(w *window) bool {
	b := w.behind()
	n := len(b)
	if n >= 5 && b[n-5] == 0xe8 {
		return true
	}
	for size := 2; size <= 7 && size <= n; size++ {
		if b[n-size] == 0xff && b[n-size+1]>>3&7 == 2 && x86ModRMBytes(b[n-size+1:]) == size-1 {
			return true
		}
	}
	return false
}

// x86ModRMBytes is the length of a ModRM byte with its SIB byte and
// displacement, 32- and 64-bit addressing (Intel SDM volume 2, section 2.1.5).
func x86ModRMBytes(b []byte) int {
	mod, rm := b[0]>>6, b[0]&7
	n := 1
	if mod == 3 {
		return n
	}
	base := rm
	if rm == 4 {
		if len(b) < 2 {
			return 0
		}
		base = b[1] & 7
		n++
	}
	switch {
	case mod == 1:
		n++
	case mod == 2, mod == 0 && base == 5:
		n += 4
	}
	return n
}

// amd64SigreturnCode are the forms of "move 15 to rax; syscall": as glibc and
// musl write it, and as Go's assembler does.
var amd64SigreturnCode = [][]byte{
	{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05},
	{0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05},
}

// amd64SignalRow: at the restorer SP points at the ucontext, whose general
// registers begin at byte 40: r8–r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip.
var amd64SignalRow = func() *sframe.Row {
	order := []uint8{8, 9, 10, 11, 12, 13, 14, 15, regnum.AMD64_Rdi, regnum.AMD64_Rsi,
		regnum.AMD64_Rbp, regnum.AMD64_Rbx, regnum.AMD64_Rdx, regnum.AMD64_Rax,
		regnum.AMD64_Rcx, regnum.AMD64_Rsp, regnum.AMD64_Rip}
	return signalRow(regs.AMD64, order, 40, 8)
}()

func amd64Signal(w *window, mid bool) *sframe.Row {
	for _, code := range amd64SigreturnCode {
		if matchCode(w, code, len(code)-2, mid) {
			return amd64SignalRow
		}
	}
	return nil
}

// matchCode: the trampoline code begins at pc, or, if mid, first bytes before.
func matchCode(w *window, code []byte, first int, mid bool) bool {
	if bytes.HasPrefix(w.ahead(), code) {
		return true
	}
	return mid && bytes.HasSuffix(w.behind(), code[:first]) && bytes.HasPrefix(w.ahead(), code[first:])
}

// i386: sigreturn pops the signal number first; rt_sigreturn does not
// (arch/x86/entry/vdso/vdso32/sigreturn.S). Behind the pop, SP is a word higher.
var (
	i386SigreturnCode   = []byte{0x58, 0xb8, 0x77, 0, 0, 0, 0xcd, 0x80}
	i386RTSigreturnCode = []byte{0xb8, 0xad, 0, 0, 0, 0xcd, 0x80}

	// struct sigcontext_32: four segment words, then di, si, bp, sp, bx, dx,
	// cx, ax, trapno, err, ip. It follows the signal number in the one frame
	// (struct sigframe_ia32), and stands 160 bytes above SP in the other
	// (struct rt_sigframe_ia32: number, two pointers, siginfo of 128 bytes,
	// then the ucontext with 20 bytes before it).
	i386Registers = []uint8{regnum.I386_Edi, regnum.I386_Esi, regnum.I386_Ebp, regnum.I386_Esp,
		regnum.I386_Ebx, regnum.I386_Edx, regnum.I386_Ecx, regnum.I386_Eax, skipWord, skipWord, regnum.I386_Eip}
	i386SignalRow   = signalRow(regs.I386, i386Registers, 4+16, 4)
	i386PoppedRow   = signalRow(regs.I386, i386Registers, 16, 4)
	i386RTSignalRow = signalRow(regs.I386, i386Registers, 12+128+20+16, 4)
)

func i386Signal(w *window, mid bool) *sframe.Row {
	switch {
	case bytes.HasPrefix(w.ahead(), i386SigreturnCode):
		return i386SignalRow
	case mid && (matchCode(w, i386SigreturnCode, 1, true) || matchCode(w, i386SigreturnCode, 6, true)):
		return i386PoppedRow
	case matchCode(w, i386RTSigreturnCode, 5, mid):
		return i386RTSignalRow
	}
	return nil
}

// skipWord stands for a word that is no register of ours.
const skipWord = 0xff

// signalRow makes the row of a trampoline from the registers that the kernel
// saved, one word after the other from SP+off on. a.RA in the list stands for the
// interrupted PC where it is no register; without it, the caller sets RA.
func signalRow(a *regs.Arch, order []uint8, off, word int32) *sframe.Row {
	row := &sframe.Row{Signal: true}
	for i, reg := range order {
		rule := atReg(a.SP, off+int32(i)*word)
		switch {
		case reg == skipWord:
		case reg == a.SP:
			// The saved SP serves as the CFA, so that one rule restores it.
			row.CFA = rule
			row.Saved = append(row.Saved, sframe.SavedRule{Reg: a.SP, Rule: cfaRule})
		case reg == a.FP:
			row.FP = rule
		case reg == a.RA && !a.Link:
			row.RA = rule
		default:
			row.Saved = append(row.Saved, sframe.SavedRule{Reg: reg, Rule: rule})
		}
	}
	return row
}
