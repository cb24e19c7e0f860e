// dumped starve: a thread of real-time priority spins for 4 s on the last CPU that is allowed, where one of usual priority waits, while three
// others spin on the first. In the end it tells for how many milliseconds one of these stood still at most.
//
// dumped ignored: a thread draws 1 MB of random bytes and waits for 15 ms, again and again, and gets a signal that is ignored every 8 ms,
// while another one draws random bytes without end. At SIGTERM it tells how many waits have returned EINTR, how many draws of the first have
// brought less than they were to, and how many of both there were.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum { SPIN = 4000, OTHERS = 3 };

static volatile int over;

static long long ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static pthread_t begin(void *(*run)(void *), void *arg, int cpu) {
	pthread_t t;
	pthread_attr_t a;
	pthread_attr_init(&a);
	if (cpu >= 0) {
		cpu_set_t s;
		CPU_ZERO(&s);
		CPU_SET(cpu, &s);
		pthread_attr_setaffinity_np(&a, sizeof s, &s);
	}
	if (pthread_create(&t, &a, run, arg))
		_exit(1);
	return t;
}

static void ready(void) {
	puts("ready");
	fflush(stdout);
}

static void *urgent(void *arg) {
	struct sched_param p = {50};
	if (sched_setscheduler(0, SCHED_FIFO, &p))
		_exit(1);
	ready();
	for (long long end = ns() + SPIN * 1000000LL; ns() < end;)
		;
	over = 1;
	return arg;
}

static void *usual(void *arg) {
	long long *most = arg, last = ns();
	while (!over) {
		long long now = ns();
		if (now - last > *most)
			*most = now - last;
		last = now;
	}
	return 0;
}

static int starve(void) {
	static long long still[OTHERS + 1], most;
	pthread_t others[OTHERS];
	cpu_set_t s;
	sched_getaffinity(0, sizeof s, &s);
	int first = 0, last = CPU_SETSIZE - 1;
	while (!CPU_ISSET(first, &s))
		first++;
	while (!CPU_ISSET(last, &s))
		last--;
	for (int i = 0; i < OTHERS; i++)
		others[i] = begin(usual, &still[i], first);
	begin(usual, &still[OTHERS], last);
	pthread_join(begin(urgent, 0, last), 0);
	for (int i = 0; i < OTHERS; i++) {
		pthread_join(others[i], 0);
		if (still[i] > most)
			most = still[i];
	}
	printf("%lld\n", most / 1000000);
	return 0;
}

static char some[1 << 20], much[8 << 20];
static volatile long waits, eintr, cut;

static void *draw(void *arg) {
	for (;;)
		getrandom(much, sizeof much, 0);
	return arg;
}

static void *waiter(void *arg) {
	struct epoll_event e;
	for (int ep = epoll_create1(0);; waits++) {
		if (getrandom(some, sizeof some, 0) < (long)sizeof some)
			cut++;
		if (epoll_wait(ep, &e, 1, 15) < 0 && errno == EINTR)
			eintr++;
	}
	return arg;
}

static void end(int sig) { over = sig; }

static int ignored(void) {
	sigset_t term;
	sigemptyset(&term);
	sigaddset(&term, SIGTERM);
	signal(SIGTERM, end);
	pthread_sigmask(SIG_BLOCK, &term, 0); // for the threads
	pthread_t w = begin(waiter, 0, -1);
	begin(draw, 0, -1);
	pthread_sigmask(SIG_UNBLOCK, &term, 0);
	ready();
	while (!over) {
		usleep(8000);
		pthread_kill(w, SIGWINCH);
	}
	printf("%ld %ld %ld\n", eintr, cut, waits);
	return 0;
}

int main(int argc, char **argv) { return argc > 1 && !strcmp(argv[1], "starve") ? starve() : ignored(); }
