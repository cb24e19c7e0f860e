// hog takes a CPU for half a minute, and ends.
#include <stdint.h>
#include <stdio.h>
#include <time.h>

volatile uint64_t sum;

__attribute__((noinline)) static void hog_work(time_t until) {
	struct timespec now;
	do {
		for (uint64_t i = 0; i < 1000000; i++)
			sum += i;
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < until);
}

int main(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	puts("ready");
	fflush(stdout);
	hog_work(now.tv_sec + 30);
	return 0;
}
