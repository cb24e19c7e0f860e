/*
 * seldom: threads that hardly run.
 *
 *     seldom THREADS RUN_US SLEEP_US
 *
 * Each runs in seldom_work for RUN_US microseconds of CPU time, sleeps for SLEEP_US, and
 * so on. It prints "ready" first.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long run_ns, sleep_ns;

__attribute__((noipa)) static void seldom_work(void)
{
	struct timespec a, b;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a);
	do {
		for (volatile int i = 0; i < 2000; i++)
			;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
	} while ((b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec < run_ns);
}

static void *live(void *arg)
{
	struct timespec t = { 0, sleep_ns };
	(void)arg;
	for (;;) {
		nanosleep(&t, 0);
		seldom_work();
	}
}

int main(int argc, char **argv)
{
	pthread_t t;
	if (argc != 4)
		return 2;
	run_ns = atol(argv[2]) * 1000, sleep_ns = atol(argv[3]) * 1000;
	for (int i = atoi(argv[1]); i > 0; i--)
		pthread_create(&t, 0, live, 0);
	puts("ready");
	fflush(stdout);
	pthread_exit(0);
}
