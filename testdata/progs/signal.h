/* Signal handlers without a C library, for x86-64, arm64 and s390x. */
#ifndef SIGNAL_H
#define SIGNAL_H

#include "thread.h"

enum { SA_SIGINFO = 4, SA_ONSTACK = 0x08000000, SA_RESTORER = 0x04000000 };

struct action {
	void (*handler)(int, void *, void *);
	word flags;
	void (*restorer)(void);
	word mask;
};

/* A handler returns through a trampoline. On x86-64 the program supplies it:
 * the same bytes as in every C library, here without any table, so that they
 * are all there is to know it by. Elsewhere the kernel's vDSO has it. */
#if defined(__x86_64__)
void restorer(void);
__asm__(".text\n\t.globl restorer\n\t.type restorer,@function\n\t"
	"nop\n" /* the caller of the handler is looked up one byte before */
	"restorer:\n\t"
	"movq $15, %rax\n\t"
	"syscall\n\t"
	".size restorer, .-restorer\n");
#define TRAMPOLINE "restorer"
#else
#define TRAMPOLINE "__kernel_rt_sigreturn"
#endif

/* An instruction that does not exist, for a SIGILL in the middle of a function. */
#if defined(__x86_64__)
#define ILLEGAL __asm__ volatile("ud2" : : : "memory")
#elif defined(__aarch64__)
#define ILLEGAL __asm__ volatile(".inst 0" : : : "memory")
#elif defined(__s390x__)
#define ILLEGAL __asm__ volatile(".short 0" : : : "memory")
#endif

static __attribute__((unused)) void handle(int sig, void (*handler)(int, void *, void *), word flags)
{
	struct action a = { handler, flags | SA_SIGINFO, 0, 0 };

#if defined(__x86_64__)
	a.flags |= SA_RESTORER;
	a.restorer = restorer;
#endif
	if (sys(rt_sigaction, sig, &a, 0, 8) < 0)
		die(3);
}

#endif
