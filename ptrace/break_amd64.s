#include "textflag.h"

// See break.go. Offsets are of struct ucontext (include/uapi/asm-generic/ucontext.h) with struct sigcontext_64
// (arch/x86/include/uapi/asm/sigcontext.h) at 40.

// The call begins with its instruction, so that the function's address is that.
TEXT seizeCall<>(SB),NOSPLIT|NOFRAME,$0
	SYSCALL
	RET

// func seize(tid, options uintptr) uintptr
TEXT ·seize(SB),NOSPLIT,$0-24
	MOVQ	$101, AX	// SYS_PTRACE
	MOVQ	$0x4206, DI	// PTRACE_SEIZE
	MOVQ	tid+0(FP), SI
	MOVQ	$0, DX
	MOVQ	options+8(FP), R10
	CALL	seizeCall<>(SB)
	NEGQ	AX
	MOVQ	AX, ret+16(FP)
	RET

// The handler: DX has the ucontext. Before a restart the kernel has put back rip (168) and rax (144).
TEXT onAlarm<>(SB),NOSPLIT|NOFRAME,$0
	MOVQ	$seizeCall<>(SB), AX
	CMPQ	AX, 168(DX)
	JNE	other
	MOVQ	$-4, 144(DX)	// -EINTR
	ADDQ	$2, 168(DX)	// past SYSCALL
other:
	RET

// func alarmHandler() uintptr
TEXT ·alarmHandler(SB),NOSPLIT,$0-8
	MOVQ	$onAlarm<>(SB), AX
	MOVQ	AX, ret+0(FP)
	RET
