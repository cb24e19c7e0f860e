// spin DEPTH FILE: spins DEPTH frames below main and writes down when it did not
// run. Each gap of more than a microsecond between two readings of the clock
// becomes a pair of words in FILE, which is mapped so that writing makes no
// system call: when it ended (CLOCK_MONOTONIC) and how long it was, in
// nanoseconds. The first two words are how many pairs there are, and
// CLOCK_REALTIME less CLOCK_MONOTONIC.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAIRS = 1 << 20, LEAST = 1000 };

static volatile uint64_t *log_;

static uint64_t now(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void spin(void) {
	uint64_t n = 0, last = now(CLOCK_MONOTONIC);
	while (n < PAIRS) {
		uint64_t t = now(CLOCK_MONOTONIC);
		if (t - last > LEAST) {
			log_[2 + 2 * n] = t;
			log_[3 + 2 * n] = t - last;
			log_[0] = ++n;
		}
		last = t;
	}
}

// The volatile array makes frames of a usual size, and the addition after the
// call keeps it from becoming a jump.
__attribute__((noinline)) static int down(int depth) {
	volatile char local[24];
	local[0] = (char)depth;
	if (depth <= 1)
		spin();
	else
		local[1] = (char)down(depth - 1);
	return local[0] + 1;
}

int main(int argc, char **argv) {
	if (argc != 3)
		return 2;
	size_t bytes = (2 + 2 * (size_t)PAIRS) * sizeof *log_;
	int fd = open(argv[2], O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
		return 1;
	log_ = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
	if (log_ == MAP_FAILED)
		return 1;
	log_[1] = now(CLOCK_REALTIME) - now(CLOCK_MONOTONIC);
	puts("ready");
	fflush(stdout);
	return down(atoi(argv[1])) == 0;
}
