// execs N: N threads that toil and sleep, until one of them, which is not the leader,
// has this program begin anew by exec. It prints "ready" when it first begins, and
// "exec K" when it does so for the K-th time.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static char **args;
static long threads, times;
static volatile unsigned long work;
static volatile int all;

NOINLINE static void toil(void) {
	for (int i = 0; i < 2000; i++)
		work++;
	work++; // no tail call
}

static void *live(void *arg) {
	long i = (long)arg;
	unsigned seed = i * 7919 + times;
	while (!all)
		usleep(100);
	for (int round = 0;; round++) {
		usleep(rand_r(&seed) % 3000);
		toil();
		if (i == times % threads && round == 5) {
			char next[24];
			snprintf(next, sizeof next, "%ld", times + 1);
			execl("/proc/self/exe", args[0], args[1], next, (char *)0);
			_exit(4);
		}
	}
	return 0;
}

int main(int argc, char **argv) {
	if (argc < 2)
		return 2;
	args = argv;
	threads = atol(argv[1]);
	times = argc > 2 ? atol(argv[2]) : 0;
	for (long i = 0; i < threads; i++) {
		pthread_attr_t attr;
		pthread_t t;
		if (pthread_attr_init(&attr) || pthread_attr_setstacksize(&attr, 64 << 10) || pthread_create(&t, &attr, live, (void *)i))
			return 3;
	}
	if (times)
		printf("exec %ld\n", times);
	else
		puts("ready");
	fflush(stdout);
	all = 1;
	for (;;)
		pause();
}
