// loop MODE PID HZ SECONDS FILE: the least that a sampler must do, HZ times a
// second to process PID of one thread: interrupt, wait, read the registers and
// 4 KiB of stack, continue. MODE is how it waits:
//
//   sleep     in waitpid
//   poll      asking waitpid again and again
//   same-cpu  in waitpid, on the CPU that the process is bound to
//   free      as same-cpu, at real-time priority where that is allowed, and nobody
//             is traced between two samples: it seizes and detaches at each
//   clocks    as free, but nobody tells it where the process runs: a thread on each
//             CPU looks at each tick whether it is there, and reads the process's
//             run time at the request and at the stop, as sfsample does
//
// FILE gets a line a sample, before the interrupt and after the continuation,
// CLOCK_MONOTONIC in nanoseconds. The last line on standard output is the CPU
// time that it used, in microseconds.
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pid_t pid;
static int frees, polls;
static long hz, n;
static uint64_t start, *times;

static uint64_t now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static uint64_t stack_pointer(const void *regs) {
#if defined __x86_64__
	return ((const struct user_regs_struct *)regs)->rsp;
#elif defined __aarch64__
	return ((const struct user_regs_struct *)regs)->sp;
#else
	return ((const uint64_t *)regs)[2 + 15]; // s390x: PSW, then gprs
#endif
}

static void fail(const char *what) {
	perror(what);
	exit(1);
}

static void bind_to(const cpu_set_t *set) {
	if (sched_setaffinity(0, sizeof *set, set))
		fail("sched_setaffinity");
	if (frees)
		sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1}); // or as it is
}

// text reads a file of /proc that is open, from its beginning.
static char *text(int file, char *to, size_t size) {
	ssize_t got = pread(file, to, size - 1, 0);
	if (got < 0)
		fail("pread");
	to[got] = 0;
	return to;
}

// runs_on tells whether the process runs on this CPU, by its stat: state, and 36 fields later the CPU.
static int runs_on(int cpu, int stat) {
	char line[1024], *field = strrchr(text(stat, line, sizeof line), ')') + 2;
	if (*field != 'R')
		return 0;
	for (int i = 3; i < 39; i++)
		field = strchr(field, ' ') + 1;
	return atoi(field) == cpu;
}

// take samples at tick i. stat and schedstat are the process's, or negative.
static void take(long i, uint64_t at, int cpu, int stat, int schedstat) {
	static __thread char regs[512], stack[4096], line[128];
	struct timespec ts = {at / 1000000000, at % 1000000000};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, 0))
		;
	uint64_t begun = now();
	if (stat >= 0 && !runs_on(cpu, stat))
		return;
	if (schedstat >= 0)
		text(schedstat, line, sizeof line);
	if ((frees && ptrace(PTRACE_SEIZE, pid, 0, 0)) || ptrace(PTRACE_INTERRUPT, pid, 0, 0))
		fail("interrupt");
	int status;
	pid_t got;
	while ((got = waitpid(pid, &status, __WALL | (polls ? WNOHANG : 0))) == 0)
		;
	if (got != pid || !WIFSTOPPED(status))
		fail("waitpid");
	if (schedstat >= 0)
		text(schedstat, line, sizeof line);
	struct iovec io = {regs, sizeof regs};
	if (ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &io))
		fail("registers");
	struct iovec to = {stack, sizeof stack}, from = {(void *)stack_pointer(regs), sizeof stack};
	process_vm_readv(pid, &to, 1, &from, 1, 0);
	if (ptrace(frees ? PTRACE_DETACH : PTRACE_CONT, pid, 0, 0))
		fail("continue");
	times[2 * i] = begun;
	times[2 * i + 1] = now();
}

// clock_of is the thread of mode clocks on one CPU. The CPUs' ticks are apart.
static void *clock_of(void *arg) {
	int cpu = (int)(intptr_t)arg, stat, schedstat;
	char path[64];
	cpu_set_t set;
	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	bind_to(&set);
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	stat = open(path, O_RDONLY);
	snprintf(path, sizeof path, "/proc/%d/schedstat", pid);
	schedstat = open(path, O_RDONLY);
	if (stat < 0 || schedstat < 0)
		fail(path);
	for (long i = 0; i < n; i++)
		take(i, start + (uint64_t)(i + 1) * 1000000000 / hz + cpu % 4 * (250000000 / hz), cpu, stat, schedstat);
	return NULL;
}

int main(int argc, char **argv) {
	if (argc != 6)
		return 2;
	int clocks = strcmp(argv[1], "clocks") == 0;
	polls = strcmp(argv[1], "poll") == 0;
	frees = clocks || strcmp(argv[1], "free") == 0;
	pid = atoi(argv[2]);
	hz = atol(argv[3]);
	n = hz * atol(argv[4]);
	if (!(times = calloc(2 * (size_t)n, sizeof *times)))
		fail("calloc");
	cpu_set_t set;
	if (!clocks && (frees || strcmp(argv[1], "same-cpu") == 0)) {
		if (sched_getaffinity(pid, sizeof set, &set))
			fail("sched_getaffinity");
		bind_to(&set);
	}
	if (!frees && ptrace(PTRACE_SEIZE, pid, 0, 0))
		fail("seize");
	start = now();
	if (clocks) {
		pthread_t threads[CPU_SETSIZE];
		int count = 0;
		sched_getaffinity(0, sizeof set, &set);
		for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
			if (CPU_ISSET(cpu, &set) && pthread_create(&threads[count++], NULL, clock_of, (void *)(intptr_t)cpu))
				fail("pthread_create");
		while (count > 0)
			pthread_join(threads[--count], NULL);
	} else {
		for (long i = 0; i < n; i++)
			take(i, start + (uint64_t)(i + 1) * 1000000000 / hz, 0, -1, -1);
	}
	FILE *f = fopen(argv[5], "w");
	if (!f)
		fail(argv[5]);
	for (long i = 0; i < n; i++)
		if (times[2 * i])
			fprintf(f, "%llu %llu\n", (unsigned long long)times[2 * i], (unsigned long long)times[2 * i + 1]);
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	printf("%ld\n", (long)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 + u.ru_utime.tv_usec + u.ru_stime.tv_usec);
	return fclose(f) != 0;
}
