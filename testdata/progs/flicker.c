// flicker: threads whose stacks are other ones, of another depth, at each wake-up.
// Each is 8 to 24 calls of b0 or b1, the inner half of them the complement of the
// outer half: a stack that is put together from two instants shows it. Ends when
// standard input does.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noipa))

enum { THREADS = 2, MIN_BITS = 4, MAX_BITS = 12, LONGEST_NAP = 30000 /* ns */ };

NOINLINE static int b0(uint32_t bits, int n, long ns);
NOINLINE static int b1(uint32_t bits, int n, long ns);

NOINLINE static int next(uint32_t bits, int n, long ns) {
	if (n == 0) {
		struct timespec ts = {0, ns};
		return nanosleep(&ts, 0) + 1;
	}
	return (bits & 1 ? b1(bits >> 1, n - 1, ns) : b0(bits >> 1, n - 1, ns)) + 1;
}

NOINLINE static int b0(uint32_t bits, int n, long ns) { return next(bits, n, ns) + 1; }
NOINLINE static int b1(uint32_t bits, int n, long ns) { return next(bits, n, ns) + 2; }

static void *flicker(void *arg) {
	prctl(PR_SET_TIMERSLACK, 1); // naps are as short as they are to be
	uint64_t x = (uintptr_t)arg * 0x9e3779b97f4a7c15;
	for (;;) {
		x ^= x << 13, x ^= x >> 7, x ^= x << 17; // xorshift64
		int bits = MIN_BITS + (x >> 50) % (MAX_BITS - MIN_BITS + 1);
		uint32_t mask = (1 << bits) - 1;
		next((x & mask) | (~x & mask) << bits, 2 * bits, (long)(x >> 20 & 0xffffff) % LONGEST_NAP + 1);
	}
	return 0;
}

int main(void) {
	for (uintptr_t i = 1; i <= THREADS; i++) {
		pthread_t t;
		if (pthread_create(&t, 0, flicker, (void *)i))
			return 1;
	}
	puts("ready");
	fflush(stdout);
	char c;
	while (read(0, &c, 1) > 0)
		;
	_exit(0);
}
