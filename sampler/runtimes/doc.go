// Package runtimes reads the stacks that interpreters keep of the programs that they run: script frames, beside the
// native ones of the interpreter itself.
//
// A [Runtime] is one interpreter in one process, as [Recognise] finds it by the symbols of an object and the words that these lead
// to. It answers, in this order: which states it keeps of a thread ([Runtime.Roots]); what to copy while that is stopped
// ([Runtime.Recipe], which package taking follows without decoding anything); which frames a copy holds
// ([Interpreter.Frames], a pure function); and, at leisure, what the code of a frame is called ([Runtime.Function]). [Merge] puts
// script frames in the place of the native frames that run them, by the addresses of what the interpreter keeps on the native
// stack, and by symbol only where it keeps nothing there. Functions of an interpreter itself stand beside the native frames that they are.
//
// That is an [Interpreter]; one that is [Anchored] tells by registers which native frames run what. A [Managed] runtime runs programs on the native stack itself, in code that it generates: it leads walks through
// that ([unwind.Runtime]), and tells which functions, inlined ones first, its native frames are ([Managed.Identify], [Identified]).
//
// [Locks] reads which locks threads wait for that a runtime keeps without the kernel, and who has them.
//
// All that is read belongs to the target and may be anything: every length and count is bounded before it is used, chains
// end at a bound, and a name that cannot be proven to be that of the frame's code is none.
//
// An Interpreter does not change, and may be used by any goroutine; a Managed runtime keeps what it has read. What it is not sure of, as the layout of a version that it does
// not know, is an error with the reason, not a guess. It does not know processes: memory comes as an io.ReaderAt or as copies.
//
// Sources: CPython Include/cpython/{code,unicodeobject,bytesobject}.h, Include/internal/{pycore_frame,pycore_runtime,pycore_dict,
// pycore_interpframe_structs,pycore_debug_offsets}.h and Objects/{locations.md,lnotab_notes.txt} of 3.8 to 3.15. PHP Zend/zend_{globals,compile,types,string,generators,fibers}.h, zend_{execute,generators,fibers,builtin_functions}.c
// and main/SAPI.c of 8.1 to 8.5. Ruby vm_core.h, iseq.{h,c}, method.h, vm_insnhelper.c, vm_backtrace.c, symbol.{h,c}, internal/imemo.h and
// thread_pthread.h, shape.h and gc.c of 3.0 to 3.4, with offsets by their headers, verified on live processes. HotSpot's are named where they are used.
// Lua lstate.h, lobject.h, ldo.c, ldebug.c, lvm.c and lapi.c of 5.3.6 and 5.4.4, offsets by the debugging symbols of Debian's packages; those of 5.3.3 verified on live processes.
// Perl intrpvar.h, cop.h, op.h, cv.h, gv.h, hv.h, sv.h, pp_ctl.c, perl.c, pad.c and inline.h of 5.32 to 5.44, offsets by the headers of Debian's and Ubuntu's packages.
// Erlang/OTP erts/emulator/beam/{erl_process.h,jit/beam_jit_metadata.cpp,jit/beam_jit_common.cpp,jit/x86/beam_asm.hpp,jit/x86/process_main.cpp} of 25.2.3 and 27.3.4, offsets verified on live processes.
// V8 src/objects/{code,script,scope-info,shared-function-info,string}.{h,tq}, src/codegen/source-position{.h,-table.cc}, src/execution/frame-constants.h,
// src/baseline/bytecode-offset-iterator.h of 10.2, 11.3, 12.4 and 13.6, and the v8dbg constants of node 18, 20, 22 and 24; src/codegen/{reloc-info.{h,cc},maglev-safepoint-table.h} of 13.6, verified on live processes.
package runtimes
