/* procs KIND [SECONDS]: births, waits, ends, other identities and other tracers. */
#include "target.h"
#include <fcntl.h>
#include <grp.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

static atomic_long got;
static void count(int sig) { (void)sig; got++; }

static int ended(int st, int code) { return WIFEXITED(st) && WEXITSTATUS(st) == code; }

/* fork: each child's status comes to its parent, with what it has used */
static void fork_turn(void)
{
	int st;
	struct rusage u;
	pid_t child = fork();
	if (!child)
		_exit(calls & 63);
	int code = calls & 63;
	check(wait4(child, &st, 0, &u) == child && ended(st, code));
	spin(20000);
}

/* vfork: chains of them, each parent suspended */
static void vfork_turn(void)
{
	volatile int depth = 0;
	int st;
	pid_t a = vfork();
	if (!a) {
		pid_t b = vfork();
		if (!b) {
			depth = 2;
			_exit(5);
		}
		int s = 0;
		_exit(waitpid(b, &s, 0) == b && ended(s, 5) && depth == 2 ? 6 : 1);
	}
	check(waitpid(a, &st, 0) == a && ended(st, 6));
	spin(20000);
}

/* sigchld: a signal for each child, as each is waited for before the next */
static void sigchld_begin(void)
{
	struct sigaction sa = { .sa_handler = count, .sa_flags = SA_RESTART };
	sigaction(SIGCHLD, &sa, 0);
}
static void sigchld_turn(void)
{
	long before = got;
	siginfo_t i;
	pid_t child = fork();
	if (!child)
		_exit(3);
	check(waitid(P_PID, child, &i, WEXITED | WNOWAIT) == 0 && i.si_status == 3 && i.si_code == CLD_EXITED);
	check(waitid(P_PID, child, &i, WEXITED) == 0 && i.si_pid == child);
	check(got == before + 1);
}

/* pidfd: poll and waitid on one */
static void pidfd_turn(void)
{
	siginfo_t i;
	pid_t child = fork();
	if (!child) {
		spin(100000);
		_exit(9);
	}
	int fd = syscall(SYS_pidfd_open, child, 0);
	struct pollfd p = { fd, POLLIN, 0 };
	done(poll(&p, 1, -1), 1);
	check(waitid(3 /* P_PIDFD */, fd, &i, WEXITED) == 0 && i.si_status == 9);
	close(fd);
}

/* threads: births and ends; cancel: by pthread_cancel */
static void *brief(void *arg) { got++; return arg; }
static void threads_turn(void)
{
	pthread_t t[8];
	long before = got;
	for (int i = 0; i < 8; i++)
		pthread_create(&t[i], 0, brief, (void *)(intptr_t)i);
	for (int i = 0; i < 8; i++) {
		void *r;
		check(pthread_join(t[i], &r) == 0 && r == (void *)(intptr_t)i);
	}
	check(got == before + 8);
}
static void *endless(void *arg)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0);
	for (;;)
		spin(10000);
	return arg;
}
static void cancel_turn(void)
{
	pthread_t t;
	void *r;
	pthread_create(&t, 0, endless, 0);
	spin(50000);
	pthread_cancel(t);
	check(pthread_join(t, &r) == 0 && r == PTHREAD_CANCELED);
}

/* deep: 10,000 threads that wait, each with 20 KB of stack */
static void *wait_deep(void *arg)
{
	volatile char room[20000];
	for (room[0] = 1; room[0];)
		pause();
	return arg;
}
static void deep_begin(void)
{
	pthread_t t;
	pthread_attr_t a;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 64 << 10);
	for (int i = 0; i < 10000; i++)
		if (pthread_create(&t, &a, wait_deep, 0))
			die("10000 threads");
}
static void deep_turn(void) { spin(100000); calls++; }

/* sharer: a process in the same memory, no thread (CLONE_VM without CLONE_THREAD) */
static char stack[1 << 16] __attribute__((aligned(16)));
static int shares(void *arg) { (void)arg; spin(200000); got++; return 4; }
static void sharer_turn(void)
{
	int st;
	long before = got;
	pid_t child = clone(shares, stack + sizeof stack, CLONE_VM | SIGCHLD, 0);
	check(waitpid(child, &st, 0) == child && ended(st, 4) && got == before + 1);
}

/* inherit: whoever traces the parent traces the child as well, which stops at once then */
static int ends(void *arg) { (void)arg; return 7; }
static void inherit_turn(void)
{
	int st = 0;
	pid_t child = clone(ends, stack + sizeof stack, CLONE_PTRACE | SIGCHLD, 0);
	int64_t late = now_ns() + 500000000;
	while (waitpid(child, &st, WNOHANG) == 0)
		if (now_ns() > late)
			break;
	check(ended(st, 7));
}

/* files: threads in turn without CLONE_FILES */
static void *unshares(void *arg)
{
	if (unshare(CLONE_FILES))
		wrong++;
	close(0);
	spin(50000);
	return arg;
}
static void files_turn(void)
{
	pthread_t t;
	pthread_create(&t, 0, unshares, 0);
	pthread_join(t, 0);
	check(fcntl(0, F_GETFD) >= 0);
}

/* exec: a child that calls exec in the leader, and in another thread */
static void *execs(void *arg)
{
	char *argv[] = { "sh", "-c", "exit 12", 0 };
	execv("/bin/sh", argv);
	return arg;
}
static void exec_child(int other)
{
	int st;
	pid_t child = fork();
	if (!child) {
		pthread_t t;
		for (int i = 0; i < 3; i++)
			pthread_create(&t, 0, endless, 0);
		if (other) {
			pthread_create(&t, 0, execs, 0);
			for (;;)
				spin(10000);
		}
		spin(200000);
		execs(0);
		_exit(1);
	}
	check(waitpid(child, &st, 0) == child && ended(st, 12));
}
static void exec_turn(void) { exec_child(0); }
static void execother_turn(void) { exec_child(1); }

/* reexec: the process itself becomes itself, again and again, from a thread that is not the leader */
static void *again(void *arg)
{
	char n[24], w[24];
	char *argv[] = { "procs", "reexec", n, w, 0 };
	snprintf(n, sizeof n, "%ld", (long)calls + 1);
	snprintf(w, sizeof w, "%ld", (long)wrong);
	execv("/proc/self/exe", argv);
	return arg;
}
static int reexec(int argc, char **argv)
{
	static int64_t until;
	char *end = getenv("ATTACK_UNTIL");
	if (argc > 3) {
		calls = atol(argv[2]);
		wrong = atol(argv[3]);
	} else {
		char text[24];
		until = argc > 2 ? now_ns() + (int64_t)(atof(argv[2]) * 1e9) : 0;
		snprintf(text, sizeof text, "%ld", (long)until);
		setenv("ATTACK_UNTIL", text, 1);
		end = text;
		say("ready");
	}
	struct pollfd p = { 0, POLLIN, 0 };
	until = atoll(end);
	if (until ? now_ns() > until : poll(&p, 1, 0) > 0) {
		printf("result calls=%ld wrong=%ld\n", calls, wrong);
		return 0;
	}
	pthread_t t;
	pthread_create(&t, 0, again, 0);
	for (;;)
		spin(100000);
}

/* orphan: PR_SET_PDEATHSIG comes when the thread ends that made the child, not before */
static int fd[2];
static void *mother(void *arg)
{
	*(pid_t *)arg = fork();
	if (!*(pid_t *)arg) {
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (write(fd[1], "x", 1) < 1)
			_exit(1);
		for (;;)
			pause();
	}
	char b;
	if (read(fd[0], &b, 1) != 1)
		wrong++;
	spin(100000);
	if (kill(*(pid_t *)arg, 0) || waitpid(*(pid_t *)arg, 0, WNOHANG))
		wrong++;
	return 0;
}
static void orphan_begin(void) { check(pipe(fd) == 0); }
static void orphan_turn(void)
{
	pthread_t t;
	pid_t child;
	int st;
	pthread_create(&t, 0, mother, &child);
	pthread_join(t, 0);
	check(waitpid(child, &st, 0) == child && WIFSIGNALED(st) && WTERMSIG(st) == SIGTERM);
}

/* ends: the statuses of processes that somebody samples: killed, aborted, all threads at once. Each
   child is a process of the sampled one, and the sampled one is itself the child of such a parent. */
static void abort_turn(void)
{
	int st;
	pid_t child = fork();
	if (!child) {
		struct rlimit no = { 0, 0 };
		setrlimit(RLIMIT_CORE, &no);
		pthread_t t;
		pthread_create(&t, 0, endless, 0);
		spin(100000);
		abort();
	}
	check(waitpid(child, &st, 0) == child && WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT);
}
static void kill_turn(void)
{
	int st;
	pid_t child = fork();
	if (!child)
		for (;;)
			spin(10000);
	spin(300000);
	kill(child, SIGKILL);
	check(waitpid(child, &st, 0) == child && WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
}
static void exitall_turn(void)
{
	int st;
	pid_t child = fork();
	if (!child) {
		pthread_t t;
		for (int i = 0; i < 4; i++)
			pthread_create(&t, 0, endless, 0);
		spin(100000);
		_exit(21);
	}
	check(waitpid(child, &st, 0) == child && ended(st, 21));
}

/* tracer: the sampled process traces a child of its own, call by call: as many stops as before
   anybody came */
static int traced_calls(void)
{
	int st, stops = 0;
	pid_t child = fork();
	if (!child) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		for (int i = 0; i < 10; i++)
			syscall(SYS_getppid);
		_exit(2);
	}
	check(waitpid(child, &st, 0) == child && WIFSTOPPED(st));
	ptrace(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
	for (;;) {
		ptrace(PTRACE_SYSCALL, child, 0, 0);
		if (waitpid(child, &st, 0) != child || !WIFSTOPPED(st))
			break;
		stops += WSTOPSIG(st) == (SIGTRAP | 0x80);
	}
	check(ended(st, 2));
	return stops;
}
static int stops_alone;
static void tracer_begin(void) { stops_alone = traced_calls(); }
static void tracer_turn(void) { check(traced_calls() == stops_alone); }

/* traceme: the sampled one is traced by its parent already, which sees its own stops alone */
static void traceme_begin(void)
{
	int st;
	sampled = fork();
	if (!sampled) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		for (;;) {
			spin(50000);
			raise(SIGUSR1);
		}
	}
	check(waitpid(sampled, &st, 0) == sampled);
	ptrace(PTRACE_SETOPTIONS, sampled, 0, PTRACE_O_EXITKILL);
	ptrace(PTRACE_CONT, sampled, 0, 0);
}
static void traceme_turn(void)
{
	int st;
	check(waitpid(sampled, &st, 0) == sampled && WIFSTOPPED(st) && WSTOPSIG(st) == SIGUSR1);
	ptrace(PTRACE_CONT, sampled, 0, 0);
}

/* debugger: its parent seizes, stops and detaches it, over and over: a stop is its own, and the
   registers are where they were. That it is refused now and then, since somebody else has it
   just then, is not wrong. */
static void debugger_begin(void)
{
	sampled = fork();
	if (!sampled)
		for (;;)
			spin(50000);
}
static void debugger_turn(void)
{
	int st;
	if (ptrace(PTRACE_SEIZE, sampled, 0, 0)) {
		check(errno == EPERM);
		usleep(50);
		return;
	}
	ptrace(PTRACE_INTERRUPT, sampled, 0, 0);
	check(waitpid(sampled, &st, __WALL) == sampled && WIFSTOPPED(st) && st >> 8 == (SIGTRAP | 128 << 8));
	check(ptrace(PTRACE_DETACH, sampled, 0, 0) == 0);
	usleep(300);
}

/* dumpable, identity: who may trace it changes while it is sampled */
static void dumpable_turn(void)
{
	check(prctl(PR_SET_DUMPABLE, 0) == 0);
	spin(1000000);
	check(prctl(PR_SET_DUMPABLE, 1) == 0);
	spin(1000000);
}
static void identity_turn(void)
{
	if (geteuid() == 0 && calls > 100) {
		check(setgroups(0, 0) == 0 && setresgid(65534, 65534, 65534) == 0 && setresuid(65534, 65534, 65534) == 0);
	} else {
		check(getuid() == geteuid());
	}
	spin(200000);
}

/* affinity, class: it wanders over the CPUs, and changes its scheduling */
static void affinity_turn(void)
{
	cpu_set_t s;
	static int cpu;
	long n = sysconf(_SC_NPROCESSORS_ONLN);
	CPU_ZERO(&s);
	CPU_SET(cpu++ % n, &s);
	check(sched_setaffinity(0, sizeof s, &s) == 0);
	spin(100000);
	check(sched_getcpu() == (cpu - 1) % n);
}
static void class_turn(void)
{
	struct sched_param p = { 0 };
	static int i;
	static const int classes[] = { SCHED_BATCH, SCHED_IDLE, SCHED_OTHER };
	int c = classes[i++ % 3];
	if (c == SCHED_IDLE && geteuid())
		c = SCHED_OTHER; /* the way back takes a right */
	check(sched_setscheduler(0, c, &p) == 0);
	spin(300000);
	check(sched_getscheduler(0) == c);
}
static void fifo_begin(void)
{
	struct sched_param p = { 10 };
	if (sched_setscheduler(0, SCHED_FIFO, &p))
		die("SCHED_FIFO");
}
static void fifo_turn(void)
{
	spin(1000000);
	check(sched_getscheduler(0) == SCHED_FIFO);
	usleep(1000);
}

/* strict: seccomp's first mode knows read, write, exit and sigreturn */
static void strict_begin(void)
{
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0);
	sampled = fork();
	if (!sampled) {
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
		char b = 0;
		for (;;) {
			for (volatile int i = 0; i < 50000; i++)
				;
			if (syscall(SYS_write, fd[1], &b, 1) != 1 || syscall(SYS_read, fd[1], &b, 1) != 1)
				syscall(SYS_exit, 1);
		}
	}
}
static void strict_turn(void)
{
	char b;
	struct pollfd p = { fd[0], POLLIN, 0 };
	if (poll(&p, 1, 1000) != 1) {
		wrong++;
		stop = 1;
		return;
	}
	check(read(fd[0], &b, 1) == 1 && write(fd[0], &b, 1) == 1);
}

/* name: what it calls itself */
static void name_turn(void)
{
	char n[16];
	prctl(PR_SET_NAME, "\x1b[2J\n;\xe2\x80\xae)(");
	prctl(PR_GET_NAME, n);
	check(n[0] == 0x1b);
	spin(200000);
}

/* namespace: children in pid namespaces of their own */
static void namespace_turn(void)
{
	int st;
	pid_t child = syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
	if (!child) {
		spin(500000);
		_exit(getpid());
	}
	if (child < 0)
		die("a pid namespace");
	check(waitpid(child, &st, 0) == child && ended(st, 1));
}

static void namespace_begin(void)
{
	int st;
	pid_t child = syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0);
	if (!child)
		_exit(0);
	if (child < 0)
		die("a pid namespace");
	waitpid(child, &st, 0);
}

/* leader: the first thread has ended, the others work */
static void *rest(void *arg)
{
	pthread_join(*(pthread_t *)arg, 0);
	say("ready");
	int64_t until = now_ns();
	struct pollfd p = { 0, POLLIN, 0 };
	char *s = getenv("ATTACK_SECONDS");
	while (s ? now_ns() < until + atof(s) * 1e9 : poll(&p, 1, 0) == 0) {
		spin(100000);
		calls++;
	}
	printf("result calls=%ld wrong=0\n", calls);
	fflush(stdout);
	_exit(0);
}
static int leader(int argc, char **argv)
{
	static pthread_t me;
	pthread_t t;
	me = pthread_self();
	if (argc > 2)
		setenv("ATTACK_SECONDS", argv[2], 1);
	pthread_create(&t, 0, rest, &me);
	pthread_exit(0);
}

#if defined __x86_64__ && defined __has_include
#if __has_include(<sys/rseq.h>)
#include <sys/rseq.h>
#define HAVE_RSEQ
/* rseq: counters of each CPU, added to in restartable sequences; their sum is the number of
   sequences that came through. */
static long slots[1024][8];
static atomic_long commits;
static int add_one(void)
{
	struct rseq *rs = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
	long *base = &slots[0][0];
	__asm__ goto(
	    ".pushsection __rseq_cs, \"aw\"\n\t.balign 32\n3: .long 0, 0\n\t.quad 1f, 2f - 1f, 4f\n\t.popsection\n\t"
	    "leaq 3b(%%rip), %%rax\n\tmovq %%rax, %c2(%0)\n"
	    "1:\n\tmovl %c3(%0), %%ecx\n\tshlq $6, %%rcx\n\tmovq (%1,%%rcx), %%rax\n\tincq %%rax\n\t"
	    "pause; pause; pause; pause\n\tmovq %%rax, (%1,%%rcx)\n2:\n\t"
	    ".pushsection __rseq_fail, \"ax\"\n\t.long 0x53053053\n4:\n\tjmp %l[lost]\n\t.popsection"
	    :: "r"(rs), "r"(base), "i"(offsetof(struct rseq, rseq_cs)), "i"(offsetof(struct rseq, cpu_id))
	    : "rax", "rcx", "memory", "cc" : lost);
	return 1;
lost:
	return 0;
}
static void *adder(void *arg)
{
	while (!stop)
		for (int i = 0; i < 1000; i++)
			commits += add_one();
	got--;
	return arg;
}
static void rseq_begin(void)
{
	pthread_t t;
	if (!__rseq_size)
		die("rseq");
	got = 3;
	for (int i = 0; i < 3; i++)
		pthread_create(&t, 0, adder, 0);
}
static void rseq_turn(void)
{
	long sum = 0;
	usleep(5000);
	calls++;
	if (!stop)
		return;
	while (got)
		usleep(100);
	for (int i = 0; i < 1024; i++)
		sum += slots[i][0];
	check(sum == commits);
}
#endif
#endif

static const struct kind list[] = {
	{ "fork", fork_turn, 0 },
	{ "vfork", vfork_turn, 0 },
	{ "sigchld", sigchld_turn, sigchld_begin },
	{ "pidfd", pidfd_turn, 0 },
	{ "threads", threads_turn, 0 },
	{ "cancel", cancel_turn, 0 },
	{ "inherit", inherit_turn, 0 },
	{ "sharer", sharer_turn, 0 },
	{ "deep", deep_turn, deep_begin },
	{ "files", files_turn, 0 },
	{ "exec", exec_turn, 0 },
	{ "execother", execother_turn, 0 },
	{ "orphan", orphan_turn, orphan_begin },
	{ "abort", abort_turn, 0 },
	{ "kill", kill_turn, 0 },
	{ "exitall", exitall_turn, 0 },
	{ "tracer", tracer_turn, tracer_begin },
	{ "traceme", traceme_turn, traceme_begin },
	{ "debugger", debugger_turn, debugger_begin },
	{ "dumpable", dumpable_turn, 0 },
	{ "identity", identity_turn, 0 },
	{ "affinity", affinity_turn, 0 },
	{ "class", class_turn, 0 },
	{ "fifo", fifo_turn, fifo_begin },
	{ "strict", strict_turn, strict_begin },
	{ "name", name_turn, 0 },
	{ "namespace", namespace_turn, namespace_begin },
#ifdef HAVE_RSEQ
	{ "rseq", rseq_turn, rseq_begin },
#endif
	{ 0, 0, 0 },
};

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "reexec"))
		return reexec(argc, argv);
	if (argc > 1 && !strcmp(argv[1], "leader"))
		return leader(argc, argv);
	return drive(list, argc, argv);
}
