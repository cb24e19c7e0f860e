#include "textflag.h"

// See break.go. Offsets are of struct ucontext and struct sigcontext (arch/arm64/include/uapi/asm: the latter lies at 176).

// The call begins with its instruction, so that the function's address is that.
TEXT seizeCall<>(SB),NOSPLIT|NOFRAME,$0
	SVC
	RET

// func seize(tid, options uintptr) uintptr
TEXT ·seize(SB),NOSPLIT,$0-24
	MOVD	$117, R8	// SYS_PTRACE
	MOVD	$0x4206, R0	// PTRACE_SEIZE
	MOVD	tid+0(FP), R1
	MOVD	$0, R2
	MOVD	options+8(FP), R3
	CALL	seizeCall<>(SB)
	NEG	R0, R0
	MOVD	R0, ret+16(FP)
	RET

// The handler: R2 has the ucontext. Before a restart the kernel has put back pc (440) and x0 (184).
TEXT onAlarm<>(SB),NOSPLIT|NOFRAME,$0
	MOVD	$seizeCall<>(SB), R9
	MOVD	440(R2), R10
	CMP	R9, R10
	BNE	other
	ADD	$4, R10	// past SVC
	MOVD	R10, 440(R2)
	MOVD	$-4, R9	// -EINTR
	MOVD	R9, 184(R2)
other:
	RET

// func alarmHandler() uintptr
TEXT ·alarmHandler(SB),NOSPLIT,$0-8
	MOVD	$onAlarm<>(SB), R9
	MOVD	R9, ret+0(FP)
	RET
