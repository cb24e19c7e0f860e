// brief US BUSY makes threads one after the other, each of which computes for so many microseconds of CPU time, beside so many that compute all the time.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long most;

__attribute__((noinline)) void *work(void *x)
{
	struct timespec t;
	do {
		for (volatile int i = 0; i < 50000; i++)
			;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	} while (t.tv_sec * 1000000 + t.tv_nsec / 1000 < most);
	return x;
}

static void *busy(void *x)
{
	for (volatile int i = 0;; i++)
		;
	return x;
}

int main(int argc, char **argv)
{
	most = atol(argv[1]);
	for (int i = 0; i < atoi(argv[2]); i++) {
		pthread_t t;
		pthread_create(&t, 0, busy, 0);
	}
	puts("ready");
	fflush(stdout);
	for (;;) {
		pthread_t t;
		if (pthread_create(&t, 0, work, 0) == 0)
			pthread_join(t, 0);
	}
}
