// work KIND N: a program that counts what it does, for as many milliseconds as the line on its standard
// input says, and prints "units COUNT" then.
//
//   threads   N threads compute
//   idle      N threads sleep, and one computes
//   signals   N threads raise a signal that is handled, over and over
//   births    N threads make a thread and join it, over and over
//   forks     N threads make a process and wait for it, over and over
//   execs     the program becomes itself over and over, by its first thread and by another in turn, with N threads that sleep;
//             "longest" is from the call to the new program's main, milliseconds
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static atomic_int begun, stop;
static void (*turn)(void);

// One that counts shares no cache line with another.
struct count { _Alignas(128) long n; };

static void handle(int sig) { (void)sig; }
static void *nothing(void *p) { return p; }

static void compute(void) {
	volatile uint64_t x = 1;
	for (int i = 0; i < 1000; i++)
		x = x * 3 + 1;
}

static void raises(void) { pthread_kill(pthread_self(), SIGUSR1); }

static void bears(void) {
	pthread_t t;
	if (pthread_create(&t, 0, nothing, 0) == 0)
		pthread_join(t, 0);
}

static void forks(void) {
	int status;
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	if (child > 0)
		waitpid(child, &status, 0);
}

static void *sleeps(void *p) {
	for (;;)
		pause();
	return p;
}

static void *works(void *p) {
	struct count *c = p;
	while (!begun)
		usleep(1000);
	while (!stop) {
		turn();
		c->n++;
	}
	return p;
}

// again says what the next program is to know: when to end, when it was called and how long the longest took, in ns; how many there were.
static char again[4][24];
static char *program[] = {"work", "again", again[0], again[1], again[2], again[3], 0, 0};

static long now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *becomes(void *p) {
	sprintf(again[1], "%ld", now());
	execv("/proc/self/exe", program);
	return p;
}

// execs goes on until an end; longest and count are of the programs before.
static void execs(long end, long longest, long count, char *sleepers) {
	pthread_t t;
	sprintf(again[0], "%ld", end);
	sprintf(again[2], "%ld", longest);
	sprintf(again[3], "%ld", count);
	program[6] = sleepers;
	for (int i = atoi(sleepers); i > 0; i--)
		pthread_create(&t, 0, sleeps, 0);
	if (count % 2 && !pthread_create(&t, 0, becomes, 0))
		pthread_join(t, 0);
	else
		becomes(0);
	_exit(1);
}

int main(int argc, char **argv) {
	if (argc == 7) {
		long t = now(), took = t - atol(argv[3]), longest = atol(argv[4]), count = atol(argv[5]) + 1;
		if (took > longest)
			longest = took;
		if (t < atol(argv[2]))
			execs(atol(argv[2]), longest, count, argv[6]);
		printf("units %ld longest %g\n", count, longest / 1e6);
		fflush(stdout);
		pause();
	}
	if (argc != 3)
		return 2;
	const char *kind = argv[1];
	int n = atoi(argv[2]), sleepers = 0;
	turn = compute;
	if (strcmp(kind, "idle") == 0)
		sleepers = n, n = 1;
	else if (strcmp(kind, "signals") == 0)
		turn = raises, signal(SIGUSR1, handle);
	else if (strcmp(kind, "births") == 0)
		turn = bears;
	else if (strcmp(kind, "forks") == 0)
		turn = forks;
	struct count *counts = aligned_alloc(sizeof *counts, n * sizeof *counts);
	pthread_t *threads = calloc(n, sizeof *threads), asleep;
	pthread_attr_t small;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 << 10);
	for (int i = 0; i < sleepers; i++)
		if (pthread_create(&asleep, &small, sleeps, 0))
			return 1;
	for (int i = 0; i < n; i++) {
		counts[i].n = 0;
		if (pthread_create(&threads[i], 0, works, &counts[i]))
			return 1;
	}
	puts("ready");
	fflush(stdout);
	long ms = 0, sum = 0;
	if (scanf("%ld", &ms) != 1)
		return 1;
	if (strcmp(kind, "execs") == 0)
		execs(now() + ms * 1000000, 0, 0, argv[2]);
	begun = 1;
	usleep(ms * 1000);
	stop = 1;
	for (int i = 0; i < n; i++) {
		pthread_join(threads[i], 0);
		sum += counts[i].n;
	}
	printf("units %ld\n", sum);
	fflush(stdout);
	pause(); // what it has used is still to be read
}
