/* What all targets have in common: each tells what it has seen itself, in one
   line of counters on standard output:

     ready                      it may be attached to
     result calls=N wrong=N ... its end, when standard input ends

   wrong counts all that would not have happened without a sampler. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static inline int64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/* spin works for so long: something to be sampled. */
static void __attribute__((noinline)) spin(int64_t ns)
{
	for (int64_t end = now_ns() + ns; now_ns() < end;)
		;
}

static void die(const char *what)
{
	printf("lacks %s: %s\n", what, strerror(errno)); /* it is not to be had here */
	exit(77);
}

static void say(const char *line)
{
	puts(line);
	fflush(stdout);
}
