/*
 * churn: births and deaths as fast as they go.
 *
 *     churn t|f|e [COUNT]
 *
 * t: threads, f: processes, e: the program replaces itself by exec. After COUNT
 * of them, or without COUNT at SIGTERM (not with e), it prints "count COUNT"
 * and ends. It prints "ready" when it begins.
 */
#include "signal.h"

enum { SLOTS = 32, STACK = 8192, ESRCH = 3 };

static char stacks[SLOTS][STACK] __attribute__((aligned(16)));
static volatile long tids[SLOTS];
static volatile word work;
static volatile int ending;

static void on_term(int sig, void *info, void *context)
{
	(void)sig, (void)info, (void)context;
	ending = 1;
}

FRAME static void short_life(void *arg)
{
	(void)arg;
	for (int i = 0; i < 2000; i++)
		work++;
}

/* A stack is free when its thread is gone for the kernel too. */
FRAME static void storm_of_threads(word i)
{
	int slot = i % SLOTS;
	long pid = sys(getpid);

	while (tids[slot] && sys(tgkill, pid, tids[slot], 0) != -ESRCH)
		sys(sched_yield);
	tids[slot] = start_thread(stacks[slot] + STACK, short_life, 0, THREAD);
	if (tids[slot] < 0)
		die(3);
}

FRAME static void storm_of_processes(word i)
{
	long pid = start_thread(stacks[i % SLOTS] + STACK, short_life, 0, SIGCHLD);
	int status = 0;

	if (pid < 0)
		die(3);
	while (sys(wait4, pid, &status, 0, 0) != pid)
		;
	if (status != 0)
		die(5);
}

FRAME static void again(char *self, word left)
{
	char digits[24], *p = digits + sizeof digits;
	char *args[] = { self, "E", 0, 0 }, *env[] = { 0 };

	*--p = 0;
	do
		*--p = '0' + left % 10;
	while (left /= 10);
	args[2] = p;
	sys(execve, self, args, env);
	die(4);
}

START;

FRAME int main(int argc, char **argv)
{
	char how = argc > 1 ? argv[1][0] : 't';
	word count = argc > 2 ? number(argv[2]) : 0, i;

	handle(SIGTERM, on_term, 0);
	if (how != 'E') {
		text("ready");
		text_end();
	}
	if ((how == 'e' || how == 'E') && count > 0)
		again(argv[0], count - 1);
	for (i = 0; how != 'E' && !ending && (count == 0 || i < count); i++) {
		if (how == 't')
			storm_of_threads(i);
		else
			storm_of_processes(i);
	}
	text("count ");
	text_number(i);
	text_end();
	die(0);
}
