// unfilled: two threads that spin and two that wait in poll, whose stacks end where
// a page begins that userfaultfd(2) never fills, in their own mapping (_within) or
// in the next; a thread that waits
// for such a page; with the argument vfork also one that waits for the child of
// a vfork. Prints "page ADDRESS" and "ready", and ends when standard input does.
// Exit status 77: there is no userfaultfd here.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STACK = 256 << 10 };

static size_t page;
static int uffd;

// reserve maps a stack with the page behind it, and returns the end of the stack.
// within: the stack lies in the mapping that the page lies in.
static char *reserve(int within) {
	char *m = mmap(0, STACK + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uintptr_t end = (uintptr_t)m + STACK;
	struct uffdio_register r = {.range = {end, page}, .mode = UFFDIO_REGISTER_MODE_MISSING};
	struct uffdio_zeropage z = {.range = {end - STACK, STACK}};
	if (within)
		r.range = (struct uffdio_range){end - STACK, STACK + page};
	if (m == MAP_FAILED || ioctl(uffd, UFFDIO_REGISTER, &r))
		exit(1);
	if (within && ioctl(uffd, UFFDIO_ZEROPAGE, &z))
		exit(1);
	return m + STACK;
}

static volatile unsigned long spins;

static void *spin(void *arg) {
	for (;;)
		spins++;
	return arg;
}

static void *spin_within(void *arg) {
	for (;;)
		spins++;
	return arg;
}

static void *await(void *arg) {
	poll(0, 0, -1);
	return arg;
}

static void *await_within(void *arg) {
	poll(0, 0, -1);
	return arg;
}

static void *touch(void *arg) {
	return (void *)(uintptr_t)*(volatile char *)arg;
}

static volatile long vforker;

static void *in_vfork(void *arg) {
	vforker = syscall(SYS_gettid);
	if (vfork() == 0) {
		char c;
		while (read(0, &c, 1) > 0)
			;
		_exit(0);
	}
	return arg;
}

// await_vfork waits until the vfork's parent sleeps: from then on no interrupt
// stops it.
static void await_vfork(void) {
	char path[64], state = 0;
	while (state != 'D') {
		usleep(1000);
		snprintf(path, sizeof path, "/proc/self/task/%ld/stat", vforker);
		FILE *f = vforker ? fopen(path, "r") : 0;
		if (f && fscanf(f, "%*d %*s %c", &state) != 1)
			exit(1);
		if (f)
			fclose(f);
	}
}

static void start(void *(*f)(void *), char *end, void *arg) {
	pthread_t t;
	pthread_attr_t a;
	pthread_attr_init(&a);
	if ((end && pthread_attr_setstack(&a, end - STACK, STACK)) || pthread_create(&t, &a, f, arg))
		exit(1);
}

int main(int argc, char **argv) {
	page = (size_t)sysconf(_SC_PAGESIZE);
	uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = {.api = UFFD_API};
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api))
		return 77;
	start(spin, reserve(0), 0);
	start(await, reserve(0), 0);
	start(spin_within, reserve(1), 0);
	start(await_within, reserve(1), 0);
	char *unfilled = reserve(0);
	start(touch, 0, unfilled);
	if (argc > 1) {
		start(in_vfork, 0, 0);
		await_vfork();
	}
	printf("page %p\n", unfilled);
	puts("ready");
	fflush(stdout);
	char c;
	while (read(0, &c, 1) > 0)
		;
	_exit(0);
}
