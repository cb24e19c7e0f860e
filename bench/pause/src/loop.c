// loop MODE PID HZ SECONDS FILE: the least that a sampler must do, HZ times a
// second to process PID of one thread: interrupt, wait, read the registers and
// 4 KiB of stack, continue. MODE is how it waits:
//
//   sleep     in waitpid
//   poll      asking waitpid again and again
//   same-cpu  in waitpid, on the CPU that the process is bound to
//   free      as same-cpu, at real-time priority where that is allowed, and nobody
//             is traced between two samples: it seizes and detaches at each
//
// FILE gets a line a sample, before the interrupt and after the continuation,
// CLOCK_MONOTONIC in nanoseconds. The last line on standard output is the CPU
// time that it used, in microseconds.
#define _GNU_SOURCE
#include <elf.h>
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

int main(int argc, char **argv) {
	if (argc != 6)
		return 2;
	int poll = strcmp(argv[1], "poll") == 0, frees = strcmp(argv[1], "free") == 0;
	pid_t pid = atoi(argv[2]);
	long hz = atol(argv[3]), n = hz * atol(argv[4]);
	uint64_t *log = calloc(2 * (size_t)n, sizeof *log);
	if (frees || strcmp(argv[1], "same-cpu") == 0) {
		cpu_set_t set;
		if (sched_getaffinity(pid, sizeof set, &set) || sched_setaffinity(0, sizeof set, &set))
			return 1;
	}
	if (frees)
		sched_setscheduler(0, SCHED_FIFO, &(struct sched_param){.sched_priority = 1}); // or as it is
	if (!log || (!frees && ptrace(PTRACE_SEIZE, pid, 0, 0))) {
		perror("seize");
		return 1;
	}
	static char regs[512], stack[4096];
	uint64_t start = now();
	for (long i = 0; i < n; i++) {
		uint64_t at = start + (uint64_t)(i + 1) * 1000000000 / hz;
		struct timespec ts = {at / 1000000000, at % 1000000000};
		while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, 0))
			;
		log[2 * i] = now();
		if ((frees && ptrace(PTRACE_SEIZE, pid, 0, 0)) || ptrace(PTRACE_INTERRUPT, pid, 0, 0))
			return 1;
		int status;
		pid_t got;
		while ((got = waitpid(pid, &status, poll ? WNOHANG | __WALL : __WALL)) == 0)
			;
		if (got != pid || !WIFSTOPPED(status))
			return 1;
		struct iovec io = {regs, sizeof regs};
		if (ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &io))
			return 1;
		struct iovec to = {stack, sizeof stack}, from = {(void *)stack_pointer(regs), sizeof stack};
		process_vm_readv(pid, &to, 1, &from, 1, 0);
		if (ptrace(frees ? PTRACE_DETACH : PTRACE_CONT, pid, 0, 0))
			return 1;
		log[2 * i + 1] = now();
	}
	FILE *f = fopen(argv[5], "w");
	if (!f)
		return 1;
	for (long i = 0; i < n; i++)
		fprintf(f, "%llu %llu\n", (unsigned long long)log[2 * i], (unsigned long long)log[2 * i + 1]);
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	printf("%ld\n", (long)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000 + u.ru_utime.tv_usec + u.ru_stime.tv_usec);
	return fclose(f) != 0;
}
