/*
 * signals: a program that lives on timer signals and counts them.
 *
 *     signals [PERIOD_MICROSECONDS]
 *
 * A timer sends SIGALRM every PERIOD (default 1000) while the program computes.
 * It prints "ready", and at SIGTERM
 *
 *     count DELIVERED OVERRUNS EXPIRED
 *
 * An expiry while the last signal still waits is an overrun: the kernel counts
 * it with the signal that waits. So DELIVERED + OVERRUNS is EXPIRED, the number
 * of periods that have passed, whoever slows the program down: less means a
 * lost signal, more one that came twice.
 */
#include "signal.h"

static volatile word delivered, overruns, work;
static volatile int ending;

/* siginfo of a timer (sigaction(2)): the number of overruns is at byte 20. */
static void on_timer(int sig, void *info, void *context)
{
	(void)sig, (void)context;
	delivered++;
	overruns += *(int *)((char *)info + 20);
}

static void on_term(int sig, void *info, void *context)
{
	(void)sig, (void)info, (void)context;
	ending = 1;
}

static word now(void)
{
	struct timespec t;

	if (sys(clock_gettime, 1 /* CLOCK_MONOTONIC */, &t) < 0)
		die(3);
	return t.sec * 1000000000UL + t.nsec;
}

START;

FRAME int main(int argc, char **argv)
{
	word period = (argc > 1 ? number(argv[1]) : 1000) * 1000UL, start, end, set = SIGBIT(SIGALRM);
	struct { word value; int signo, notify; char pad[48]; } event = { 0, SIGALRM, 0, { 0 } };
	struct { struct timespec interval, value; } timer = { { 0, 0 }, { 0, 0 } };
	int id;

	handle(SIGALRM, on_timer, 0);
	handle(SIGTERM, on_term, 0);
	if (period == 0 || sys(timer_create, 1, &event, &id) < 0)
		die(3);
	start = now();
	timer.interval = (struct timespec){ period / 1000000000, period % 1000000000 };
	timer.value = (struct timespec){ (start + period) / 1000000000, (start + period) % 1000000000 };
	if (sys(timer_settime, id, 1 /* TIMER_ABSTIME */, &timer, 0) < 0)
		die(3);
	text("ready");
	text_end();
	while (!ending)
		work++;
	/* The counting ends well inside a period: its expiry has been handled,
	 * and the next has not come before the signal was blocked. */
	for (;;) {
		word before = now() - start;

		sys(rt_sigprocmask, SIG_BLOCK, &set, 0, 8);
		end = now() - start;
		if (before % period > period / 4 && before / period == end / period)
			break;
		sys(rt_sigprocmask, 1 /* SIG_UNBLOCK */, &set, 0, 8);
	}
	text("count ");
	text_number(delivered);
	text(" ");
	text_number(overruns);
	text(" ");
	text_number(end / period);
	text_end();
	die(0);
}
