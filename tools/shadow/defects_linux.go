package main

import (
	"strings"

	"github.com/go-delve/delve/pkg/dwarf/regnum"

	"sfsample/regs"
	"sfsample/sframe"
	"sfsample/unwind"
)

// defect names the fault of the tables, or the state of the program, that the
// chain of this moment suffers from at frame at, if it is a known one that no
// reader of tables can do anything about. It looks at the program, not at what
// the walk made of it.
func (t *tracer) defect(at int, reason unwind.Reason) string {
	n := len(t.shadow.entries)
	for i := n - 1; i >= 0 && i >= n-1-at; i-- {
		if t.shadow.entries[i].rewritten {
			// libgcc's uw_install_context writes the registers of the frame that
			// will catch, its landing pad included, over the words that its own
			// caller saved, and only then lets go of the frames between.
			return "the program has replaced a return address (an exception goes to its landing pad)"
		}
	}
	p := t.program.place(t.tracee.at().pc)
	if p.module == "libgcc_s.so.1" {
		// The same, before the return address itself is written: what the
		// unwinder's entry has saved is no longer its caller's, and every frame
		// beyond that takes its frame pointer from there.
		for _, f := range t.frames[:at+1] {
			if q := t.program.place(f.LookupPC()); q.module == p.module && strings.HasPrefix(q.fn, "_Unwind_") {
				return "the program has replaced saved registers (an exception goes to its landing pad)"
			}
		}
	}
	return t.tableFault(at, reason)
}

// tableFault names what the table says wrongly of frame at, or does not say.
// Each case was found by a chain that was not right, and read in objdump -d
// beside readelf -wF of glibc 2.36 (Debian 12).
func (t *tracer) tableFault(at int, reason unwind.Reason) string {
	f := t.frames[at]
	fn := t.program.place(f.LookupPC()).fn
	switch {
	case reason == unwind.NoRow && strings.HasSuffix(fn, "@plt"):
		return "the linker has written no rows for this PLT"
	case reason == unwind.NoRow && t.program.space.VDSO(f.LookupPC()) && t.program.arch.Name != regs.AMD64.Name:
		return "the vDSO of this kernel has no table"
	case !changesFrame(fn):
	case t.program.arch == regs.AMD64 && at == 0:
		// mov 0xa0(%rdx),%rsp loads the stack pointer of the context to resume,
		// push %rcx puts the return address there some instructions later. The
		// table has CFA=rsp+8 and the return address below it throughout.
		if sp, err := t.program.word(t.tracee.user.Set.R[regnum.AMD64_Rdx] + 0xa0); err == nil && sp == t.tracee.at().sp {
			return "glibc: the table of " + fn + " says that the return address of the context to resume is on its stack already"
		}
	case t.program.arch.Name == regs.ARM64.Name && fn == "swapcontext":
		// adr x30 makes it the address at which the context is to go on, then
		// mov x22, x30 keeps it over a call. The table has no rule at all.
		if at > 0 || t.program.place(t.tracee.user.Set.R[regs.ARM64.RA]).fn == fn {
			return "glibc: the table of swapcontext has no rule for the return address after x30 got another value"
		}
	case t.program.arch.Name == regs.ARM64.Name:
		// cfi_def_cfa(x0, 0): where the registers of the target lie in the
		// buffer. The CFA is the caller's stack pointer, which x0 is not.
		if row, err := t.program.space.Row(f.LookupPC(), unwind.EHFrame); err == nil &&
			row.CFA.Base == sframe.FromReg && row.CFA.Reg != regs.ARM64.SP && row.CFA.Reg != regs.ARM64.FP {
			return "glibc: the table of " + fn + " has the address of the saved registers for the stack pointer"
		}
	}
	return ""
}

// switching: the thread is about to go to another frame than its caller, so
// that no walk can stand for the base: in the middle of a throw, or in one of
// glibc's functions that change stacks.
func (p *program) switching(frames []unwind.Frame) bool {
	for i, f := range frames {
		fn := p.place(f.LookupPC()).fn
		if strings.HasPrefix(fn, "_Unwind_") || i == 0 && changesFrame(fn) {
			return true
		}
	}
	return false
}

// changesFrame: fn is one of glibc's functions that go on in another frame than
// their caller's.
func changesFrame(fn string) bool {
	switch fn {
	case "swapcontext", "setcontext", "__longjmp", "____longjmp_chk":
		return true
	}
	return false
}
