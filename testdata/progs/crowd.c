/*
 * crowd: much that a process can have of what is cheap to make.
 *
 *     crowd threads N
 *     crowd mappings N FILES PROCESSES
 *
 * N threads that wait, each with 400 frames and 30 KB of stack, beside 15 that spin; or N mappings of FILES files in turn, below the working directory, each of whose
 * paths has 3.8 KB, in each of so many processes. The first process spins in crowd_work. It prints "pid P" for each and then "ready".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

__attribute__((noipa)) static void crowd_work(void)
{
	for (volatile unsigned long n = 0;; n++)
		;
}

__attribute__((noipa)) static long wait_deep(long depth)
{
	volatile long room[6] = { 1 };
	if (depth)
		return wait_deep(depth - 1) + room[0];
	while (room[0])
		pause();
	return 0;
}

static void *wait_thread(void *arg) { return (void *)wait_deep((long)arg); }

static void *spin_thread(void *arg)
{
	crowd_work();
	return arg;
}

static void threads(int n)
{
	pthread_attr_t attr;
	pthread_t t;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 64 << 10);
	for (int i = 0; i < n; i++)
		if (pthread_create(&t, &attr, wait_thread, (void *)400))
			fail("pthread_create");
	for (int i = 0; i < 15; i++)
		if (pthread_create(&t, &attr, spin_thread, 0))
			fail("pthread_create");
}

static void mappings(int n, int files, int processes)
{
	char name[251];
	memset(name, 'd', sizeof name - 1);
	name[sizeof name - 1] = 0;
	for (int i = 0; i < 15; i++)
		if (mkdir(name, 0755) || chdir(name))
			fail("mkdir");
	for (int i = 0; i < n; i++) { // no two that follow each other can be joined
		char file[32];
		snprintf(file, sizeof file, "%d", i % files);
		int fd = open(file, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0 || (i < files && ftruncate(fd, 8192)))
			fail(file);
		if (mmap(0, 4096, PROT_READ | (i & 1 ? PROT_EXEC : 0), MAP_SHARED, fd, (i & 1) * 4096) == MAP_FAILED)
			fail("mmap");
		close(fd);
	}
	pid_t first = getpid();
	for (int i = 1; i < processes; i++) {
		pid_t pid = fork();
		if (pid < 0)
			fail("fork");
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			while (getppid() == first)
				pause();
			_exit(0);
		}
		printf("pid %d\n", pid);
	}
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "threads"))
		threads(atoi(argv[2]));
	else if (argc == 5 && !strcmp(argv[1], "mappings"))
		mappings(atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
	else
		return 2;
	printf("ready\n");
	fflush(stdout);
	crowd_work();
}
