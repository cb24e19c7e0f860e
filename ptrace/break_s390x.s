#include "textflag.h"

// See break.go. Offsets are of struct ucontext (arch/s390/include/uapi/asm/ucontext.h) with _sigregs
// (arch/s390/include/uapi/asm/sigcontext.h) at 40: psw.mask, psw.addr, gprs.

// The call begins with its instruction, so that the function's address is that.
TEXT seizeCall<>(SB),NOSPLIT|NOFRAME,$0
	SYSCALL
	RET

// func seize(tid, options uintptr) uintptr
TEXT ·seize(SB),NOSPLIT,$0-24
	MOVD	$26, R1	// SYS_PTRACE
	MOVD	$0x4206, R2	// PTRACE_SEIZE
	MOVD	tid+0(FP), R3
	MOVD	$0, R4
	MOVD	options+8(FP), R5
	CALL	seizeCall<>(SB)
	NEG	R2, R2
	MOVD	R2, ret+16(FP)
	RET

// The handler: R4 has the ucontext. Before a restart the kernel has put back psw.addr (48) and r2 (72).
TEXT onAlarm<>(SB),NOSPLIT|NOFRAME,$0
	MOVD	$seizeCall<>(SB), R1
	MOVD	48(R4), R2
	CMPUBNE	R1, R2, other
	ADD	$2, R2	// past SVC
	MOVD	R2, 48(R4)
	MOVD	$-4, R1	// -EINTR
	MOVD	R1, 72(R4)
other:
	RET

// func alarmHandler() uintptr
TEXT ·alarmHandler(SB),NOSPLIT,$0-8
	MOVD	$onAlarm<>(SB), R1
	MOVD	R1, ret+0(FP)
	RET
