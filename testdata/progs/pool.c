// pool N: N threads that wait, each for a word of its own, which standard input
// gives: a character and the number of the thread, in one line.
//
//   s  spins, in spin, until the next word     b  makes a thread that spins in newborn
//   w  waits on                                e  ends
//   x  replaces this program by exec: the new one spins in became, beside N threads
//      that wait in chain, each made by the one before it
//   q  does so by one that ends at once
//
// It prints "tid T" for each thread in the order of their numbers, "ready" when all
// wait, and "tid T" for each newborn.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

enum { MOST = 20000 };

static char **args;
static int word[MOST][2]; // pipes
static volatile int spinning[MOST];
static volatile unsigned long work;

static void start(void *(*f)(void *), void *arg) {
	pthread_attr_t attr;
	pthread_t t;
	if (pthread_attr_init(&attr) || pthread_attr_setstacksize(&attr, 64 << 10) || pthread_create(&t, &attr, f, arg))
		exit(2);
}

static void tell(void) {
	printf("tid %ld\n", syscall(SYS_gettid));
	fflush(stdout);
}

NOINLINE static void spin(long i) {
	while (spinning[i])
		work++;
	work++; // no tail call
}

NOINLINE static void *newborn(void *arg) {
	tell();
	for (;;)
		work++;
	return arg;
}

NOINLINE static void *chain(void *arg) {
	if ((long)arg > 1)
		start(chain, (char *)arg - 1);
	for (;;)
		pause();
	return arg;
}

NOINLINE static void became(void) {
	for (;;)
		work++;
}

NOINLINE static char await(long i) {
	char c;
	if (read(word[i][0], &c, 1) != 1)
		exit(3);
	return c;
}

static void *obey(void *arg) {
	long i = (long)arg;
	for (;;) {
		switch (await(i)) {
		case 's':
			spin(i);
			break;
		case 'b':
			start(newborn, 0);
			break;
		case 'e':
			return 0;
		case 'x':
			execl("/proc/self/exe", args[0], args[1], "x", (char *)0);
			exit(4);
		case 'q':
			execl("/proc/self/exe", args[0], args[1], "q", (char *)0);
			exit(4);
		}
	}
}

static pthread_barrier_t all;

static void *begin(void *arg) {
	long i = (long)arg;
	static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
	static pthread_cond_t turned = PTHREAD_COND_INITIALIZER;
	static long next;
	pthread_mutex_lock(&turn);
	while (next != i)
		pthread_cond_wait(&turned, &turn);
	tell();
	next++;
	pthread_cond_broadcast(&turned);
	pthread_mutex_unlock(&turn);
	pthread_barrier_wait(&all);
	return obey(arg);
}

int main(int argc, char **argv) {
	args = argv;
	if (argc < 2)
		return 2;
	long n = atol(argv[1]), i;
	if (argc > 2 && *argv[2] == 'q')
		return 0;
	if (argc > 2) {
		start(chain, (void *)n);
		became();
	}
	if (n > MOST || pthread_barrier_init(&all, 0, n + 1))
		return 2;
	for (i = 0; i < n; i++) {
		if (pipe(word[i]))
			return 2;
		start(begin, (void *)i);
	}
	pthread_barrier_wait(&all);
	puts("ready");
	fflush(stdout);
	char c;
	while (scanf(" %c%ld", &c, &i) == 2) {
		if (i < 0 || i >= n)
			return 2;
		spinning[i] = c == 's';
		if (write(word[i][1], &c, 1) != 1)
			return 2;
	}
	return 0;
}
