// withheld: a thread that spins, with a page in the midst of its stack that goes and comes again, brought by userfaultfd(2),
// until somebody asks for it while it is away: then it stays away. Prints "ready", and at the end "stood NANOSECONDS": how long the
// thread has stood still after that. With an argument it only tries. Exit status 77: there is no userfaultfd here.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { STACK = 256 << 10 };

static long page;
static char *volatile middle;
static volatile long spins;

static int64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void wait_for(int64_t ns) {
	for (int64_t end = now() + ns; now() < end;)
		;
}

static void *spin(void *arg) {
	volatile char room[4 * page];
	for (int i = 0; i < 4; i++)
		room[i * page] = 1;
	middle = (char *)(((uintptr_t)room + 2 * page) & -page);
	for (;;)
		spins++;
	return arg;
}

int main(int argc, char **argv) {
	page = sysconf(_SC_PAGESIZE);
	int uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	struct uffdio_api api = {.api = UFFD_API};
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api))
		return 77;
	if (argc > 1) // it was only tried
		return argv[1] == 0;
	char *stack = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *copy = malloc(page);
	pthread_t t;
	pthread_attr_t a;
	pthread_attr_init(&a);
	if (stack == MAP_FAILED || pthread_attr_setstack(&a, stack, STACK) || pthread_create(&t, &a, spin, 0))
		return 1;
	while (!spins)
		usleep(100);
	struct uffdio_register r = {.range = {(uintptr_t)stack, STACK}, .mode = UFFDIO_REGISTER_MODE_MISSING};
	if (ioctl(uffd, UFFDIO_REGISTER, &r))
		return 1;
	memcpy(copy, middle, page);
	puts("ready");
	fflush(stdout);
	for (struct uffd_msg m;;) {
		madvise(middle, page, MADV_DONTNEED);
		wait_for(10000);
		if (read(uffd, &m, sizeof m) == sizeof m)
			break;
		struct uffdio_copy c = {.dst = (uintptr_t)middle, .src = (uintptr_t)copy, .len = page};
		if (ioctl(uffd, UFFDIO_COPY, &c))
			return 1;
		wait_for(10000);
	}
	int64_t begun = now();
	for (long before = spins; spins == before;)
		usleep(1000);
	printf("stood %lld\n", (long long)(now() - begun));
	return 0;
}
