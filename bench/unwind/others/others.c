// others libdw|libunwind PID ROUNDS: unwinds the main thread of a process, which
// it stops by ptrace meanwhile, ROUNDS times over with everything cached, and
// prints "FRAMES FIRST WARM": frames of the stack, ns of the first walk with all
// that comes before it, ns a frame of the others.
#include <elfutils/libdwfl.h>
#include <libunwind-ptrace.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static Dwfl *dwfl;

static int frame(Dwfl_Frame *f, void *n) {
	Dwarf_Addr pc;
	if (!dwfl_frame_pc(f, &pc, NULL))
		return DWARF_CB_ABORT;
	++*(long *)n;
	return DWARF_CB_OK;
}

static void dw_open(pid_t pid) {
	static const Dwfl_Callbacks callbacks = {
		.find_elf = dwfl_linux_proc_find_elf,
		.find_debuginfo = dwfl_standard_find_debuginfo,
	};
	dwfl = dwfl_begin(&callbacks);
	if (!dwfl || dwfl_linux_proc_report(dwfl, pid) || dwfl_report_end(dwfl, NULL, NULL) ||
	    dwfl_linux_proc_attach(dwfl, pid, true)) {
		fprintf(stderr, "others: libdw: %s\n", dwfl_errmsg(-1));
		exit(1);
	}
}

static long dw_walk(pid_t pid) {
	long n = 0;
	dwfl_getthread_frames(dwfl, pid, frame, &n);
	return n;
}

static unw_addr_space_t space;
static void *process;

static void unw_open(pid_t pid) {
	space = unw_create_addr_space(&_UPT_accessors, 0);
	process = _UPT_create(pid);
	if (!space || !process)
		exit(1);
	unw_set_caching_policy(space, UNW_CACHE_GLOBAL);
	unw_set_cache_size(space, 1024, 0); // 128 rows by default, fewer than the stack needs
}

static long unw_walk(pid_t pid) {
	(void)pid;
	unw_cursor_t c;
	long n = 1;
	if (unw_init_remote(&c, space, process))
		return 0;
	while (unw_step(&c) > 0)
		n++;
	return n;
}

int main(int argc, char **argv) {
	if (argc != 4)
		return 2;
	int dw = !strcmp(argv[1], "libdw");
	pid_t pid = atoi(argv[2]);
	long rounds = atol(argv[3]);
	int status;
	if (ptrace(PTRACE_SEIZE, pid, 0, 0) || ptrace(PTRACE_INTERRUPT, pid, 0, 0) || waitpid(pid, &status, __WALL) != pid) {
		perror("others: stop the process");
		return 1;
	}
	double a = now();
	(dw ? dw_open : unw_open)(pid);
	long frames = (dw ? dw_walk : unw_walk)(pid), total = 0;
	double b = now();
	for (long i = 0; i < rounds; i++)
		total += (dw ? dw_walk : unw_walk)(pid);
	double c = now();
	ptrace(PTRACE_DETACH, pid, 0, 0);
	if (total == 0)
		return 1;
	printf("%ld %.0f %.2f\n", frames, b - a, (c - b) / total);
	return 0;
}
