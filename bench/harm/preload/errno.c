// Counts how system calls end that a program makes through libc: loaded with
// LD_PRELOAD, it writes a line for each function to the file that
// ERRNO_COUNTS names when the program exits.
//
//   gcc -O2 -shared -fPIC -o errno.so errno.c
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

struct count {
	const char *name;
	long calls, eintr, eagain, other, cut;
};

static struct count reads = {"read"}, writes = {"write"}, waits = {"epoll_wait"}, accepts = {"accept4"};

// note counts one end. cut: a result that is less than was asked for; for a
// read from a socket that is normal.
static void note(struct count *c, long result, long asked)
{
	int e = errno;
	__atomic_fetch_add(&c->calls, 1, __ATOMIC_RELAXED);
	if (result >= 0) {
		if (result < asked)
			__atomic_fetch_add(&c->cut, 1, __ATOMIC_RELAXED);
		return;
	}
	long *n = e == EINTR ? &c->eintr : e == EAGAIN ? &c->eagain : &c->other;
	__atomic_fetch_add(n, 1, __ATOMIC_RELAXED);
	errno = e;
}

#define NEXT(f) \
	static __typeof__(f) *next; \
	if (!next) \
		next = (__typeof__(f) *)dlsym(RTLD_NEXT, #f)

ssize_t read(int fd, void *p, size_t n)
{
	NEXT(read);
	ssize_t r = next(fd, p, n);
	note(&reads, r, 0);
	return r;
}

ssize_t write(int fd, const void *p, size_t n)
{
	NEXT(write);
	ssize_t r = next(fd, p, n);
	note(&writes, r, n);
	return r;
}

int epoll_wait(int fd, struct epoll_event *ev, int n, int ms)
{
	NEXT(epoll_wait);
	int r = next(fd, ev, n, ms);
	note(&waits, r, 0);
	return r;
}

int accept4(int fd, struct sockaddr *a, socklen_t *n, int flags)
{
	NEXT(accept4);
	int r = next(fd, a, n, flags);
	note(&accepts, r, 0);
	return r;
}

__attribute__((destructor)) static void report(void)
{
	const char *name = getenv("ERRNO_COUNTS");
	FILE *f = name ? fopen(name, "w") : NULL;
	if (!f)
		return;
	struct count *all[] = {&reads, &writes, &waits, &accepts};
	for (int i = 0; i < 4; i++)
		fprintf(f, "%s %ld %ld %ld %ld %ld\n", all[i]->name, all[i]->calls, all[i]->eintr, all[i]->eagain,
			all[i]->other, all[i]->cut);
	fclose(f);
}
