package ptrace

// A seize waits for the end of an execve(2) of the target (cred_guard_mutex: ptrace_attach, kernel/ptrace.c), and that may
// wait for a file of a server that never answers. A signal does not end it: the kernel makes the call anew when the handler has
// returned (-ERESTARTNOINTR; handle_signal, arch/x86/kernel/signal.c; do_signal, arch/arm64/kernel/signal.c; arch_do_signal_or_restart,
// arch/s390/kernel/signal.c), for which it has put the thread back to the call's instruction. So the handler of [AlarmSignal]
// looks whether the thread stands there, and if so puts it behind the instruction, with -EINTR: a call that has not been made, or has
// been made in vain, is left out. It is assembly, uses no stack, and touches nothing else; so Go's runtime need not know of it.

// seize makes one PTRACE_SEIZE, and returns the errno. EINTR: an alarm has come meanwhile.
//
//go:noescape
func seize(tid, options uintptr) uintptr

// alarmHandler is the address of the handler.
func alarmHandler() uintptr
