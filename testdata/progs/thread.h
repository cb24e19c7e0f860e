/*
 * Threads and processes without a C library: clone(2) with a stack of the
 * caller's, for x86-64, arm64 and s390x.
 */
#ifndef THREAD_H
#define THREAD_H

#include "sys.h"

enum {
	CLONE_VM = 0x100,
	CLONE_FS = 0x200,
	CLONE_FILES = 0x400,
	CLONE_SIGHAND = 0x800,
	CLONE_VFORK = 0x4000,
	CLONE_THREAD = 0x10000,
	CLONE_SYSVSEM = 0x40000,
	THREAD = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM,
	SIGCHLD = 17,
};

/* start_thread calls clone; in the child, call(arg) runs on the stack that
 * ends at top, and then the child exits. The child's outermost frame is
 * thread_start. Returns the child's id, or a negative error number. */
long start_thread(void *top, void (*call)(void *), void *arg, word flags);

#if defined(__x86_64__)
__asm__(".text\n\t.globl start_thread\n\t.type start_thread,@function\n"
	"start_thread:\n\t" FUNCTION
	"subq $16, %rdi\n\t"
	"movq %rsi, (%rdi)\n\t"
	"movq %rdx, 8(%rdi)\n\t"
	"movq %rdi, %rsi\n\t"
	"movq %rcx, %rdi\n\t"
	"xorl %edx, %edx\n\t"
	"xorl %r10d, %r10d\n\t"
	"xorl %r8d, %r8d\n\t"
	"movl $56, %eax\n\t"
	"syscall\n\t"
	"testq %rax, %rax\n\t"
	"jz thread_start\n\t"
	"ret\n\t" FUNCTION_END
	".size start_thread, .-start_thread\n\t"
	".globl thread_start\n\t.type thread_start,@function\n"
	"thread_start:\n\t" OUTERMOST("rip")
	"xorl %ebp, %ebp\n\t"
	"popq %rax\n\t"
	"popq %rdi\n\t"
	"call *%rax\n\t"
	"xorl %edi, %edi\n\t"
	"movl $60, %eax\n\t"
	"syscall\n\t"
	"hlt\n\t" OUTERMOST_END
	".size thread_start, .-thread_start\n");
#elif defined(__aarch64__)
__asm__(".text\n\t.globl start_thread\n\t.type start_thread,@function\n"
	"start_thread:\n\t" FUNCTION
	"stp x1, x2, [x0, #-16]!\n\t"
	"mov x1, x0\n\t"
	"mov x0, x3\n\t"
	"mov x2, #0\n\t"
	"mov x3, #0\n\t"
	"mov x4, #0\n\t"
	"mov x8, #220\n\t"
	"svc #0\n\t"
	"cbz x0, thread_start\n\t"
	"ret\n\t" FUNCTION_END
	".size start_thread, .-start_thread\n\t"
	".globl thread_start\n\t.type thread_start,@function\n"
	"thread_start:\n\t" OUTERMOST("x30")
	"mov x29, #0\n\t"
	"mov x30, #0\n\t"
	"ldp x1, x0, [sp], #16\n\t"
	"blr x1\n\t"
	"mov x0, #0\n\t"
	"mov x8, #93\n\t"
	"svc #0\n\t"
	"brk #0\n\t" OUTERMOST_END
	".size thread_start, .-thread_start\n");
#elif defined(__s390x__)
/* On s390x clone takes the stack first and then the flags. */
__asm__(".text\n\t.globl start_thread\n\t.type start_thread,@function\n"
	"start_thread:\n\t" FUNCTION
	"stg %r6, 48(%r15)\n\t"
	"aghi %r2, -176\n\t"
	"stg %r3, 160(%r2)\n\t"
	"stg %r4, 168(%r2)\n\t"
	"lgr %r3, %r5\n\t"
	"lghi %r4, 0\n\t"
	"lghi %r5, 0\n\t"
	"lghi %r6, 0\n\t"
	"svc 120\n\t"
	"ltgr %r2, %r2\n\t"
	"jz thread_start\n\t"
	"lg %r6, 48(%r15)\n\t"
	"br %r14\n\t" FUNCTION_END
	".size start_thread, .-start_thread\n\t"
	".globl thread_start\n\t.type thread_start,@function\n"
	"thread_start:\n\t" OUTERMOST("%r14")
	"xc 0(8,%r15), 0(%r15)\n\t"
	"xc 152(8,%r15), 152(%r15)\n\t"
	"lg %r1, 160(%r15)\n\t"
	"lg %r2, 168(%r15)\n\t"
	"basr %r14, %r1\n\t"
	"lghi %r2, 0\n\t"
	"svc 1\n\t"
	"j .\n\t" OUTERMOST_END
	".size thread_start, .-thread_start\n");
#endif

/* Signal sets of the kernel are 64 bits; the first is signal 1. */
enum { SIGTERM = 15, SIG_BLOCK = 0, SIGILL = 4, SIGKILL = 9, SIGALRM = 14, SIGUSR1 = 10 };
#define SIGBIT(n) (1UL << ((n)-1))

struct timespec {
	long sec, nsec;
};

#endif
