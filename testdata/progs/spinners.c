/*
 * spinners: threads that use all the CPU they can get, each in a function of
 * its own.
 *
 *     spinners THREADS
 *
 * At most 64 threads run spin_0, spin_1, ... It prints "thread TID thread_start
 * run spin_N" for each and "ready". At SIGTERM it prints what the kernel says
 * of each thread's CPU time, and how often its loop went round:
 *
 *     count spin_N TID ROUNDS CPU_NANOSECONDS
 */
#include "thread.h"

enum { MAX_THREADS = 64, STACK = 8192 };

struct thread {
	volatile long tid;
	volatile word rounds;
	char pad[112]; /* a cache line of its own */
};

static struct thread threads[MAX_THREADS];
static char stacks[MAX_THREADS][STACK] __attribute__((aligned(16)));
volatile int going = 1; /* always set, which the compiler does not know */

/* Each function works on its own thread's counter. */
#define SPIN(tens, ones)                                            \
	FRAME static void spin_##tens##ones(struct thread *t)       \
	{                                                           \
		while (going)                                       \
			t->rounds++;                                \
	}
#define TEN(X, tens)                                                \
	X(tens, 0) X(tens, 1) X(tens, 2) X(tens, 3) X(tens, 4)      \
	X(tens, 5) X(tens, 6) X(tens, 7) X(tens, 8) X(tens, 9)
#define ALL(X)                                                      \
	TEN(X, ) TEN(X, 1) TEN(X, 2) TEN(X, 3) TEN(X, 4) TEN(X, 5)  \
	X(6, 0) X(6, 1) X(6, 2) X(6, 3)

ALL(SPIN)

#define ENTRY(tens, ones) spin_##tens##ones,
static void (*const functions[MAX_THREADS])(struct thread *) = { ALL(ENTRY) };

FRAME static void run(void *arg)
{
	struct thread *t = arg;

	t->tid = sys(gettid);
	functions[t - threads](t);
	t->rounds++;
}

/* cpu_time is the CPU time of a thread in nanoseconds. The clock's number is
 * made of the thread's (kernel: CPUCLOCK_PERTHREAD | CPUCLOCK_SCHED). */
static word cpu_time(long tid)
{
	struct timespec t = { 0, 0 };

	if (sys(clock_gettime, (int)((~(unsigned)tid << 3) | 6), &t) < 0)
		die(3);
	return t.sec * 1000000000UL + t.nsec;
}

START;

FRAME int main(int argc, char **argv)
{
	int n = argc > 1 ? number(argv[1]) : 2;
	word all = ~0UL, term = SIGBIT(SIGTERM);

	if (n > MAX_THREADS)
		n = MAX_THREADS;
	sys(rt_sigprocmask, SIG_BLOCK, &all, 0, 8);
	for (int i = 0; i < n; i++)
		if (start_thread(stacks[i] + STACK, run, &threads[i], THREAD) < 0)
			die(3);
	for (int i = 0; i < n; i++) {
		while (!threads[i].rounds)
			sys(sched_yield);
		text("thread ");
		text_number(threads[i].tid);
		text(" thread_start run spin_");
		text_number(i);
		text_end();
	}
	text("ready");
	text_end();
	while (sys(rt_sigtimedwait, &term, 0, 0, 8) != SIGTERM)
		;
	for (int i = 0; i < n; i++) {
		text("count spin_");
		text_number(i);
		text(" ");
		text_number(threads[i].tid);
		text(" ");
		text_number(threads[i].rounds);
		text(" ");
		text_number(cpu_time(threads[i].tid));
		text_end();
	}
	die(0);
}
