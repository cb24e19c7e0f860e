// awkward.c: the frames that unwinders get wrong, one after the other, in one
// thread, for ever (or as many rounds as the first argument says). It prints
// nothing; whoever steps it knows the true stack.
//
// cc -O2 -o awkward awkward.c, with and without tables and frame pointers, at
// every level of optimisation.
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
#define KEEP __asm__ volatile("" ::: "memory")

volatile int sink;

// A leaf: no frame, locals in the red zone.
NOINLINE int leaf(int n)
{
	volatile int a[4] = {n, n + 1, n + 2, n + 3};
	return a[0] + a[3];
}

// Callee-saved registers in use over calls.
NOINLINE int busy(int a, int b, int c, int d, int e, int f)
{
	int s = 0;
	for (int i = 0; i < 2; i++)
		s += leaf(a) * b + leaf(c) * d + leaf(e) * f;
	return s;
}

// Arguments on the stack: pushed and dropped around the call.
NOINLINE int many(int a, int b, int c, int d, int e, int f, int g, int h, int i)
{
	KEEP;
	return leaf(a + b + c + d + e + f) + g + h + i;
}
NOINLINE int calls_many(int n)
{
	int s = many(n, 1, 2, 3, 4, 5, 6, 7, 8);
	KEEP;
	return s + many(s, n, 2, 3, 4, 5, 6, 7, 8);
}

// A tail call: the caller's frame is gone before the callee begins.
NOINLINE int tail_target(int n) { return leaf(n) + 1; }
NOINLINE int tail_call(int n)
{
	if (n > 3)
		return tail_target(n - 1);
	return tail_target(n + leaf(n));
}

// A call that does not return, as the last instruction: the return address is
// the first byte of the next function.
static jmp_buf out;
__attribute__((noreturn)) NOINLINE void jump_out(int n)
{
	sink = leaf(n);
	longjmp(out, 1);
}
NOINLINE int last_call(int n)
{
	if (n)
		jump_out(n);
	return 7;
}
NOINLINE int after_last_call(int n) { return leaf(n) - 1; }
NOINLINE int noreturn_calls(int n)
{
	if (setjmp(out) == 0)
		last_call(n);
	return after_last_call(n);
}

// Frames of unknown size.
NOINLINE int dynamic(int n)
{
	char *p = alloca(n * 16 + 1);
	memset(p, n, n * 16 + 1);
	int s = leaf(p[n]);
	char vla[n + 3];
	vla[n] = s;
	KEEP;
	return leaf(vla[n]) + p[1];
}

// A frame aligned to more than the ABI's 16 bytes.
NOINLINE int aligned(int n)
{
	volatile int a[8] __attribute__((aligned(64)));
	a[n & 7] = n;
	return leaf(a[n & 7]);
}

// Aligned and of unknown size, with arguments on the stack: the frame is found
// through a register of its own (gcc's dynamic realign argument pointer).
NOINLINE int drap(int a, int b, int c, int d, int e, int f, int g, int n)
{
	volatile int v[16] __attribute__((aligned(64)));
	char *p = alloca(n + g);
	p[0] = n;
	v[n & 15] = p[0] + a + b + c + d + e + f;
	KEEP;
	return leaf(v[n & 15]) + leaf(p[0]);
}

NOINLINE int variadic(int n, ...)
{
	va_list ap;
	int s = 0;
	va_start(ap, n);
	for (int i = 0; i < n; i++)
		s += leaf(va_arg(ap, int));
	va_end(ap);
	return s;
}

// A frame larger than a page, probed if so compiled.
NOINLINE int large(int n)
{
	volatile char a[20000];
	a[n * 100] = n;
	return leaf(a[n * 100]);
}

NOINLINE int recursive(int n) { return n ? recursive(n - 1) + leaf(n) : 0; }

// Shrink-wrapped: an early path without a frame, a late one with.
NOINLINE int shrink_wrapped(int n)
{
	if (n < 5)
		return n;
	int a = leaf(n), b = leaf(a), c = leaf(b);
	return a + busy(a, b, c, a, b, c);
}

static int by_value(const void *a, const void *b)
{
	return leaf(*(const int *)a) - leaf(*(const int *)b);
}
NOINLINE void callbacks(int n)
{
	int v[6] = {n, 3, n * 7 % 5, 1, 9, 4};
	qsort(v, 6, sizeof v[0], by_value);
	sink = v[2];
}

// An indirect function: the resolver runs inside the dynamic linker. musl has
// none, and no coroutines.
static int plain_add(int n) { return leaf(n) + 2; }
#ifdef __GLIBC__
static int (*choose(void))(int) { return plain_add; }
int indirect(int) __attribute__((ifunc("choose")));
#else
#define indirect plain_add
#endif

// Library calls through the PLT; the first round binds them.
NOINLINE void library(int n)
{
	char buf[64];
	snprintf(buf, sizeof buf, "%d %s %g", n, "x", n * 0.5);
	sink = (int)strtol(buf, NULL, 10) + (int)strlen(buf);
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts); // the vDSO
	sink += ts.tv_sec == 0;
	free(malloc(n * 100));
}

// Signals: in a leaf, on the alternate stack, nested, left by siglongjmp.
static sigjmp_buf escape;
static volatile int depth;
static void on_usr1(int sig)
{
	(void)sig;
	sink = leaf(sink & 7);
	if (depth++ < 1)
		raise(SIGUSR2);
}
static void on_usr2(int sig, siginfo_t *info, void *uc)
{
	(void)sig, (void)info, (void)uc;
	sink += recursive(2);
}
static void on_segv(int sig)
{
	(void)sig;
	sink = leaf(1);
	siglongjmp(escape, 1);
}
static void on_trap_leaf(int sig) { sink += sig; }

NOINLINE int faulting_leaf(volatile int *p) { return *p + 1; }

NOINLINE void signals(int n)
{
	depth = 0;
	raise(SIGUSR1);
	syscall(SYS_tgkill, getpid(), (int)syscall(SYS_gettid), SIGWINCH);
	if (sigsetjmp(escape, 1) == 0)
		sink = faulting_leaf((int *)(intptr_t)8);
	sink += n;
}

static void set_handlers(void)
{
	static char alt[64 * 1024];
	stack_t ss = {.ss_sp = alt, .ss_size = sizeof alt};
	sigaltstack(&ss, NULL);
	struct sigaction sa = {.sa_handler = on_usr1};
	sigaction(SIGUSR1, &sa, NULL);
	sa = (struct sigaction){.sa_sigaction = on_usr2, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	sigaction(SIGUSR2, &sa, NULL);
	sa = (struct sigaction){.sa_handler = on_segv, .sa_flags = SA_ONSTACK};
	sigaction(SIGSEGV, &sa, NULL);
	sa = (struct sigaction){.sa_handler = on_trap_leaf, .sa_flags = SA_ONSTACK};
	sigaction(SIGWINCH, &sa, NULL);
}

// Coroutines.
#ifdef __GLIBC__
static ucontext_t main_context, coroutine_context;
static void coroutine(void)
{
	for (;;) {
		sink = recursive(3);
		swapcontext(&coroutine_context, &main_context);
		sink = leaf(2);
	}
}
static void make_coroutine(void)
{
	static char stack[64 * 1024];
	getcontext(&coroutine_context);
	coroutine_context.uc_stack.ss_sp = stack;
	coroutine_context.uc_stack.ss_size = sizeof stack;
	coroutine_context.uc_link = &main_context;
	makecontext(&coroutine_context, coroutine, 0);
}
NOINLINE void switches(void) { swapcontext(&main_context, &coroutine_context); }
#else
static void make_coroutine(void) {}
static void switches(void) {}
#endif

static void *thread(void *arg)
{
	sink = recursive(2);
	return arg;
}
NOINLINE void threads(void)
{
	pthread_t t;
	if (pthread_create(&t, NULL, thread, NULL) == 0)
		pthread_join(t, NULL);
}

// vfork's return address is in a register while the child runs.
NOINLINE void forks(void)
{
	pid_t pid = vfork();
	if (pid == 0)
		_exit(0);
	if (pid > 0)
		waitpid(pid, NULL, 0);
}

NOINLINE int one_round(int n)
{
	int s = leaf(n) + busy(n, 2, 3, 4, 5, 6) + calls_many(n) + tail_call(n);
	s += noreturn_calls(n + 1) + dynamic(n) + aligned(n) + drap(n, 1, 2, 3, 4, 5, 6, n);
	s += variadic(3, n, 2, 3) + large(n) + recursive(n) + shrink_wrapped(n) + indirect(n);
	callbacks(n);
	library(n);
	signals(n);
	switches();
	if (n == 2)
		threads();
	if (n == 3)
		forks();
	return s;
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : -1;
	set_handlers();
	make_coroutine();
	for (long i = 0; i != rounds; i++)
		sink = one_round(i % 11);
	return 0;
}
