/* limits KIND [SECONDS]: waits with a limit, while signals come that the program ignores by default: nobody hears of them,
   but who traces the thread. wrong counts waits that are over before their limit.

   event: what is waited for comes just behind each signal, when the wait may have been cut short, but not begun again.
   cputime: the limit is CPU time of the process, behind a filter that allows everything.

   Not optimized, each wait begins with the registers of the one before: no time of this program's is in one. */
#pragma GCC optimize("O0")
#include "target.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { MS = 1000000, WAITERS = 8, LIMIT_MS = 100, EACH_MS = 60, BEHIND_US = 200, CPU_MS = 50 };

static struct waiter {
	pthread_t thread;
	int event, ep;
} list[WAITERS];

static void *await(void *arg)
{
	const struct waiter *w = arg;
	for (struct epoll_event e;;) {
		uint64_t v;
		int64_t begun = now_ns();
		int r = epoll_wait(w->ep, &e, 1, LIMIT_MS);
		int64_t took = now_ns() - begun;
		if (r == 1)
			r -= read(w->event, &v, sizeof v) == sizeof v; /* it has come */
		else if (r == 0 && took < LIMIT_MS * MS)
			fprintf(stderr, "epoll_wait: ends after %ld of %d us\n", (long)took / 1000, LIMIT_MS * 1000), r = 1;
		done(r, 0);
	}
	return 0;
}
static void *signals_and_events(void *arg)
{
	for (uint64_t one = 1, n = 0;; n++) {
		const struct waiter *w = &list[n % WAITERS];
		usleep(EACH_MS * 1000 / WAITERS);
		pthread_kill(w->thread, SIGURG);
		spin(n * 7 % BEHIND_US * 1000);
		if (write(w->event, &one, sizeof one) != sizeof one)
			return arg;
	}
}
static void event_begin(void)
{
	struct epoll_event e = { .events = EPOLLIN };
	pthread_t t;
	for (struct waiter *w = list; w < list + WAITERS; w++) {
		w->event = eventfd(0, EFD_NONBLOCK);
		w->ep = epoll_create1(0);
		if (w->event < 0 || w->ep < 0 || epoll_ctl(w->ep, EPOLL_CTL_ADD, w->event, &e))
			die("epoll");
		pthread_create(&w->thread, 0, await, w);
	}
	pthread_create(&t, 0, signals_and_events, 0);
}
static void event_turn(void)
{
	spin(MS); /* something to be sampled */
	usleep(5000);
}

static pthread_t sleeper;
static int64_t used_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}
static void *signals(void *arg)
{
	for (;;) {
		usleep(CPU_MS * 1000);
		pthread_kill(sleeper, SIGURG);
	}
	return arg;
}
static void *burn(void *arg)
{
	for (;;) { /* the wait meets several signals */
		spin(2 * MS);
		usleep(8000);
	}
	return arg;
}
static void cputime_begin(void)
{
	struct sock_filter code[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct sock_fprog prog = { 1, code };
	pthread_t t;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog))
		die("seccomp");
	sleeper = pthread_self();
	pthread_create(&t, 0, burn, 0);
	pthread_create(&t, 0, signals, 0);
}
static void cputime_turn(void)
{
	const struct timespec limit = { 0, CPU_MS * MS };
	int64_t begun = used_ns();
	long r = syscall(SYS_clock_nanosleep, CLOCK_PROCESS_CPUTIME_ID, 0, &limit, 0);
	int64_t took = used_ns() - begun;
	if (r == 0 && took < CPU_MS * MS)
		fprintf(stderr, "clock_nanosleep: ends after %ld of %d us of CPU time\n", (long)took / 1000, CPU_MS * 1000), r = 1;
	done(r, 0);
}

static const struct kind kinds[] = {
	{ "event", event_turn, event_begin },
	{ "cputime", cputime_turn, cputime_begin },
	{ 0, 0, 0 },
};

int main(int argc, char **argv) { return drive(kinds, argc, argv); }
