// manyexecs N: begins anew by exec N times, in turn from its leader and from another
// thread. It prints "ready" at first, and "done" when it has; then it waits for its end.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char **args;
static long times;

static void *again(void *arg) {
	char next[24];
	snprintf(next, sizeof next, "%ld", times + 1);
	execl("/proc/self/exe", args[0], args[1], next, (char *)0);
	_exit(4);
}

int main(int argc, char **argv) {
	pthread_t t;
	if (argc < 2)
		return 2;
	args = argv;
	times = argc > 2 ? atol(argv[2]) : 0;
	if (!times) {
		puts("ready");
		fflush(stdout);
	}
	if (times < atol(argv[1])) {
		if (times % 2 == 0)
			again(0);
		if (pthread_create(&t, 0, again, 0))
			return 3;
	} else {
		puts("done");
		fflush(stdout);
	}
	for (;;)
		pause();
}
