/* execs SECONDS: a process that becomes itself by execve(2) again and again, in turn from its leader and from another thread, and
   tells how long each took: from the call to the first line of the new main. It prints "ready", waits for a line, and prints a line
   for each figure, as the other loads do, and "done". */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MOST_US = 20000, LATE_US = 10000 };
static const char *const from[] = { "from the leader", "from another thread" };

/* what lives on from one program to the next, in a file in memory */
static struct kept {
	int64_t begun, until, called;
	int64_t n, late;
	struct {
		int64_t n, max, us[MOST_US + 1];
	} took[2];
} *k;
static char fd_text[16];

static int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void *again(void *arg)
{
	k->called = now_ns();
	execl("/proc/self/exe", "execs", "again", fd_text, (char *)0);
	perror("execs: exec");
	_exit(1);
	return arg;
}

static int64_t percentile(int i, double p)
{
	int64_t left = p / 100 * k->took[i].n;
	int us = 0;
	while (us < MOST_US && (left -= k->took[i].us[us]) >= 0)
		us++;
	return us;
}

static void tell(int64_t now)
{
	printf("rate %g\texecs a second\n", k->n * 1e9 / (now - k->begun));
	for (int i = 0; i < 2; i++)
		printf("rate %lld\t%s, p50, µs\nrate %lld\t%s, p99, µs\nrate %lld\t%s, longest, µs\n", (long long)percentile(i, 50), from[i],
		       (long long)percentile(i, 99), from[i], (long long)k->took[i].max, from[i]);
	printf("rate %.6g\tno later than 10 ms, %%\ndone\n", 100.0 * (k->n - k->late) / k->n);
	fflush(stdout);
	getchar(); /* until we are killed */
	_exit(0);
}

int main(int argc, char **argv)
{
	int64_t now = now_ns();
	int first = argc < 3, fd = first ? memfd_create("execs", 0) : atoi(argv[2]);
	if (first && ftruncate(fd, sizeof *k))
		return 1;
	k = mmap(0, sizeof *k, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (argc < 2 || k == MAP_FAILED)
		return 1;
	snprintf(fd_text, sizeof fd_text, "%d", fd);
	if (first) {
		char line[16];
		puts("ready");
		fflush(stdout);
		if (!fgets(line, sizeof line, stdin))
			return 1;
		k->begun = now_ns();
		k->until = k->begun + (int64_t)(atof(argv[1]) * 1e9);
	} else {
		int i = k->n++ % 2;
		int64_t us = (now - k->called) / 1000;
		k->took[i].n++;
		k->took[i].us[us < MOST_US ? us : MOST_US]++;
		k->took[i].max = us > k->took[i].max ? us : k->took[i].max;
		k->late += us > LATE_US;
		if (now > k->until)
			tell(now);
	}
	pthread_t t;
	if (k->n % 2 == 0)
		again(0);
	if (pthread_create(&t, 0, again, 0))
		return 1;
	for (;;)
		pause();
}
