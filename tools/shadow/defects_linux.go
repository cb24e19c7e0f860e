package main

import (
	"strings"

	"sfsample/unwind"
)

// defect names the fault of the tables, or the state of the program, that the
// chain of this moment suffers from at frame at, if it is a known one that no
// reader of tables can do anything about. It looks at the program, not at what
// the walk made of it.
func (t *tracer) defect(at int) string {
	n := len(t.shadow.entries)
	for i := n - 1; i >= 0 && i >= n-1-at; i-- {
		if t.shadow.entries[i].rewritten {
			// libgcc's uw_install_context writes the registers of the frame that
			// will catch, its landing pad included, over the words that its own
			// caller saved, and only then lets go of the frames between.
			return "the program has replaced a return address (an exception goes to its landing pad)"
		}
	}
	p := t.place(t.at().pc)
	if p.module == "libgcc_s.so.1" {
		// The same, before the return address itself is written: what the
		// unwinder's entry has saved is no longer its caller's, and every frame
		// beyond that takes its frame pointer from there.
		for _, f := range t.frames[:at+1] {
			if q := t.place(f.LookupPC()); q.module == p.module && strings.HasPrefix(q.fn, "_Unwind_") {
				return "the program has replaced saved registers (an exception goes to its landing pad)"
			}
		}
	}
	if changesFrame(p.fn) {
		return "glibc: the table of " + p.fn + " does not follow how it replaces the stack pointer"
	}
	return ""
}

// switching: the thread is about to go to another frame than its caller, so
// that no walk can stand for the base: in the middle of a throw, or in one of
// glibc's functions that change stacks.
func (t *tracer) switching(frames []unwind.Frame) bool {
	for i, f := range frames {
		fn := t.place(f.LookupPC()).fn
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
