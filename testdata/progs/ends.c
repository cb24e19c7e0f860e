// ends: three threads that wait, each in a function of its own, and ends of
// every kind, on demand: a character on standard input says which.
//
//   t  a new thread ends in last_words      l  the main thread ends in leave
//   g  exit_group(2) with status 7 in quit  s  a segmentation fault in crash
//   f  fork(2) of a child that works in toil, for 250 ms of CPU time
//   k  forks 100 children, one after the other, that use 2 ms of CPU time each
//   w  works in toil itself, in a thread that is not the leader
//   x  execve(2) of this program by a thread that is not the leader, in become
//
// It prints "ready" when all threads wait, and "done" after t, l, f, k and w.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))

static char **args;
static int wake[2];
static volatile int sink;
static volatile int *volatile nowhere;

NOINLINE static void *last_words(void *arg) {
	syscall(SYS_exit, 0);
	sink++; // no tail call: the function stays on the stack
	return arg;
}

NOINLINE static void quit(void) {
	syscall(SYS_exit_group, 7);
	sink++;
}

NOINLINE static void crash(void) {
	*nowhere = 1;
	sink++;
}

NOINLINE static void become(void) {
	execv(args[0], args);
	exit(1);
}

NOINLINE static void leave(void) {
	syscall(SYS_exit, 0);
	sink++;
}

static volatile long dozer;

NOINLINE static void *doze(void *arg) {
	dozer = syscall(SYS_gettid);
	for (;;)
		pause();
	return arg;
}

static void say(const char *word) {
	puts(word);
	fflush(stdout);
}

// gone waits until thread tid is not there any more.
static void gone(long tid) {
	while (syscall(SYS_tgkill, getpid(), tid, 0) == 0)
		usleep(1000);
}

NOINLINE static void toil(void) {
	while (clock() < CLOCKS_PER_SEC / 4)
		for (int i = 0; i < 1000; i++)
			sink++;
}

static void child(void) {
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		toil();
		_exit(3);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 3)
		exit(1);
	say("done");
}

// brood has children that are gone before a slow observer comes.
static void brood(void) {
	for (int i = 0; i < 100; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			while (clock() < CLOCKS_PER_SEC / 500)
				sink++;
			_exit(0);
		}
		if (pid < 0 || waitpid(pid, 0, 0) != pid)
			exit(1);
	}
	say("done");
}

static void *tell(void *arg) {
	*(long *)arg = syscall(SYS_gettid);
	return last_words(0);
}

static void start(void *(*f)(void *), void *arg) {
	pthread_t t;
	if (pthread_create(&t, 0, f, arg))
		exit(1);
}

static void one_thread(void) {
	volatile long tid = 0;
	start(tell, (void *)&tid);
	while (tid == 0)
		usleep(1000);
	gone(tid);
	say("done");
}

// await_state waits until thread tid is in this state.
static void await_state(long tid, char state) {
	char path[64], now = 0;
	snprintf(path, sizeof path, "/proc/self/task/%ld/stat", tid);
	while (now != state) {
		FILE *f = fopen(path, "r");
		if (!f || fscanf(f, "%*d %*s %c", &now) != 1)
			exit(1);
		fclose(f);
		if (now != state)
			usleep(1000);
	}
}

// The leader stays a zombie until all are gone.
static void leader(void) {
	if (write(wake[1], "", 1) != 1)
		exit(1);
	await_state(getpid(), 'Z');
	say("done");
}

static void *obey(void *arg) {
	char c;
	while (dozer == 0)
		usleep(1000);
	await_state(dozer, 'S');
	await_state(getpid(), 'S');
	say("ready");
	while (read(0, &c, 1) == 1)
		switch (c) {
		case 't': one_thread(); break;
		case 'l': leader(); break;
		case 'f': child(); break;
		case 'k': brood(); break;
		case 'g': quit(); break;
		case 's': crash(); break;
		case 'w': toil(); say("done"); break;
		case 'x': become(); break;
		}
	(void)arg;
	exit(0);
}

NOINLINE static void await(void) {
	char c;
	if (read(wake[0], &c, 1) == 1)
		leave();
}

int main(int argc, char **argv) {
	args = argv;
	if (pipe2(wake, 02000000)) // O_CLOEXEC
		return 1;
	start(doze, 0);
	start(obey, 0);
	await();
	return argc;
}
