/* What all targets have in common: each tells what it has seen itself, in one
   line of counters on standard output:

     ready [PID]                it, or its child, may be attached to
     result calls=N wrong=N ... its end, when standard input ends

   wrong counts all that would not have happened without a sampler. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
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

static inline void die(const char *what)
{
	printf("lacks %s: %s\n", what, strerror(errno)); /* it is not to be had here */
	exit(77);
}

static inline void say(const char *line)
{
	puts(line);
	fflush(stdout);
}

/* run_for lasts for so many seconds, or until standard input ends if they are not told. */
static inline void run_for(const char *seconds)
{
	char line[16];
	if (seconds)
		usleep(atof(seconds) * 1e6);
	else
		while (fgets(line, sizeof line, stdin))
			;
}

/* A kind of target is a turn that is taken over and over, with what it begins with. */
struct kind {
	const char *name;
	void (*turn)(void);
	void (*prepare)(void);
};

static atomic_long calls, wrong, eintr, shorts;
static atomic_int stop;
static pid_t sampled; /* the process to attach to, 0: this one */

/* check counts a result. */
static inline void check(int right)
{
	calls++;
	if (!right)
		wrong++;
}

/* done counts a result of a system call, which is as wanted, or -1. */
static inline int done(long got, long want)
{
	calls++;
	if (got == -1 && errno == EINTR)
		eintr++;
	else if (got != want)
		wrong++;
	return got == want;
}

static inline void *until_end(void *seconds)
{
	run_for(seconds);
	stop = 1;
	return 0;
}

/* drive takes turns of the kind that is named first; seconds may follow. */
static inline int drive(const struct kind *k, int argc, char **argv)
{
	pthread_t t;
	sigset_t all, before;
	while (k->name && (argc < 2 || strcmp(k->name, argv[1])))
		k++;
	if (!k->name)
		return 2;
	if (k->prepare)
		k->prepare();
	if (sampled)
		printf("ready %d\n", sampled);
	else
		puts("ready");
	fflush(stdout);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pthread_create(&t, 0, until_end, argc > 2 ? argv[2] : 0);
	pthread_sigmask(SIG_SETMASK, &before, 0);
	while (!stop)
		k->turn();
	printf("result calls=%ld wrong=%ld eintr=%ld short=%ld\n", calls, wrong, eintr, shorts);
	fflush(stdout);
	if (sampled)
		kill(sampled, SIGKILL);
	_exit(0);
}
