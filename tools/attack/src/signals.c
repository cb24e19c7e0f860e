/* signals KIND [SECONDS]: every signal that is sent comes, once, with its value; a wait that
   a handler ends is ended by nothing else; a process that is stopped stays stopped. */
#include "target.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <setjmp.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <ucontext.h>

static atomic_long got, sum;
static int fd[2];

static void count(int sig, siginfo_t *i, void *c)
{
	(void)sig, (void)c;
	got++;
	sum += i->si_value.sival_int;
}

static void handle(int sig, void (*f)(int, siginfo_t *, void *), int flags)
{
	struct sigaction sa = { .sa_sigaction = f, .sa_flags = flags | SA_SIGINFO };
	sigaction(sig, &sa, 0);
}

/* raise: to oneself, synchronous */
static void raise_begin(void) { handle(SIGUSR1, count, 0); }
static void raise_turn(void)
{
	long before = got;
	raise(SIGUSR1);
	check(got == before + 1);
}

/* queue: a child sends numbers, the sum is known */
static void queue_begin(void) { handle(SIGRTMIN, count, SA_RESTART); }
static void queue_turn(void)
{
	int st;
	enum { N = 200 };
	got = sum = 0;
	pid_t me = getpid(), child = fork();
	if (!child) {
		for (int i = 1; i <= N; i++)
			while (sigqueue(me, SIGRTMIN, (union sigval){ .sival_int = i }))
				;
		_exit(0);
	}
	while (got < N)
		spin(10000);
	done(waitpid(child, &st, 0), child);
	check(got == N && sum == N * (N + 1) / 2);
}

/* threads: tgkill to threads that spin */
static void *spinner(void *arg)
{
	for (;;) /* who has ended hears nothing */
		spin(10000);
	return arg;
}
static pthread_t peers[4];
static void start_peers(void *(*f)(void *))
{
	for (int i = 0; i < 4; i++)
		pthread_create(&peers[i], 0, f, 0);
}
static void threads_begin(void) { handle(SIGUSR1, count, SA_RESTART); start_peers(spinner); }
static void threads_turn(void)
{
	static long sent;
	for (int i = 0; i < 4; i++, sent++)
		pthread_kill(peers[i], SIGUSR1);
	for (int64_t end = now_ns() + 5000000000; got < sent && now_ns() < end;)
		spin(10000);
	check(got == sent);
}

/* norestart: each EINTR of a read has its signal, and each signal its EINTR */
static atomic_long interrupted;
static atomic_int reader_tid;
static void *reader(void *arg)
{
	char b;
	reader_tid = gettid();
	while (!stop)
		if (read(fd[0], &b, 1) == -1 && errno == EINTR)
			interrupted++;
	return arg;
}
static void norestart_begin(void)
{
	handle(SIGUSR1, count, 0);
	check(pipe(fd) == 0);
	start_peers(reader);
}
static void norestart_turn(void)
{
	long before = got, was = interrupted;
	usleep(500);
	pthread_kill(peers[0], SIGUSR1);
	for (int64_t end = now_ns() + 1000000000; got == before && now_ns() < end;)
		usleep(50);
	for (int64_t end = now_ns() + 100000000; interrupted == was && now_ns() < end;)
		usleep(50); /* it may not have been reading */
	usleep(500);
	calls++;
	if (interrupted > was + 1)
		wrong++;
}

/* ignored: a signal that nobody handles ends no wait */
static void ignored_begin(void)
{
	signal(SIGUSR1, SIG_IGN);
	norestart_begin();
	signal(SIGUSR1, SIG_IGN);
}
static void ignored_turn(void)
{
	for (int i = 0; i < 4; i++)
		pthread_kill(peers[i], SIGUSR1);
	spin(50000);
	check(interrupted == 0);
}

/* pending: so where a call would end with EINTR for good, with a signal on its way at every time */
static void *waiter(void *arg)
{
	struct epoll_event e;
	int ep = epoll_create1(0);
	while (!stop)
		if (epoll_wait(ep, &e, 1, -1) == -1 && errno == EINTR)
			eintr++;
		else
			wrong++;
	return arg;
}
static void pending_begin(void) { start_peers(waiter); }
static void pending_turn(void)
{
	static const int none[] = { SIGCHLD, SIGWINCH, SIGURG, SIGCONT };
	usleep(50);
	pthread_kill(peers[calls % 4], none[calls / 4 % 4]);
	calls++;
}

/* suspend: ping-pong of two threads by sigsuspend */
static void suspend_begin(void)
{
	sigset_t s;
	handle(SIGUSR1, count, 0);
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	sigprocmask(SIG_BLOCK, &s, 0);
}
static void suspend_turn(void)
{
	sigset_t none;
	sigemptyset(&none);
	long before = got;
	int st;
	pid_t me = getpid(), child = fork();
	if (!child) {
		kill(me, SIGUSR1);
		_exit(7);
	}
	while (got == before)
		sigsuspend(&none);
	check(waitpid(child, &st, 0) == child && WIFEXITED(st) && WEXITSTATUS(st) == 7 && got == before + 1);
}

/* signalfd: a queue of real-time signals is read as it was written */
static void signalfd_begin(void)
{
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &s, 0);
	fd[0] = signalfd(-1, &s, 0);
}
static void signalfd_turn(void)
{
	struct signalfd_siginfo i;
	for (int k = 0; k < 20; k++)
		sigqueue(getpid(), SIGRTMIN, (union sigval){ .sival_int = k });
	for (int k = 0; k < 20; k++)
		if (done(read(fd[0], &i, sizeof i), sizeof i))
			check(i.ssi_int == k);
	spin(20000);
}

/* altstack: handlers on a stack of their own, canary below */
static char *alt;
static void deep(int sig, siginfo_t *i, void *c)
{
	char room[4096];
	memset(room, sig, sizeof room);
	count(sig, i, c);
	spin(20000);
	for (unsigned k = 0; k < sizeof room; k++)
		if (room[k] != (char)sig)
			wrong++;
}
static void altstack_begin(void)
{
	alt = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t s = { .ss_sp = alt, .ss_size = 1 << 16 };
	memset(alt, 'x', 1 << 14);
	sigaltstack(&s, 0);
	handle(SIGUSR1, deep, SA_ONSTACK);
}
static void altstack_turn(void)
{
	long before = got;
	raise(SIGUSR1);
	check(got == before + 1);
	for (int i = 0; i < 1 << 14; i++)
		if (alt[i] != 'x')
			wrong++;
}

/* jump: out of a handler */
static sigjmp_buf out;
static void leap(int sig, siginfo_t *i, void *c) { count(sig, i, c); siglongjmp(out, 1); }
static void jump_begin(void) { handle(SIGUSR1, leap, 0); }
static void jump_turn(void)
{
	long before = got;
	if (!sigsetjmp(out, 1)) {
		raise(SIGUSR1);
		wrong++;
	}
	check(got == before + 1);
	spin(10000);
}

/* trap: int3, each is reported once */
static void trap_begin(void) { handle(SIGTRAP, count, 0); }
static void trap_turn(void)
{
	long before = got;
#ifdef __x86_64__
	__asm__ volatile("int3");
#else
	raise(SIGTRAP);
#endif
	check(got == before + 1);
	spin(5000);
}

/* step: with the trap flag set each instruction is reported */
static void step_begin(void) { handle(SIGTRAP, count, 0); }
static void step_turn(void)
{
	long before = got;
#ifdef __x86_64__
	__asm__ volatile("pushfq; orq $0x100,(%%rsp); popfq; nop; nop; nop; nop; nop; nop; nop; nop;"
	                 "pushfq; andq $~0x100,(%%rsp); popfq" ::: "cc", "memory");
	check(got == before + 11);
#else
	die("a trap flag"), (void)before;
#endif
	spin(5000);
}

/* illegal, divide, fault, bus: what an instruction raises comes once, with its address */
static void *volatile fault_at;
static void skip(int sig, siginfo_t *i, void *c)
{
	got++;
	fault_at = i->si_addr;
	(void)c;
	siglongjmp(out, sig);
}
static char *page;
static void fault_begin(void)
{
	page = mmap(0, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	handle(SIGSEGV, skip, 0);
	handle(SIGBUS, skip, 0);
	handle(SIGILL, skip, 0);
}
static void fault_turn(void)
{
	long before = got;
	if (!sigsetjmp(out, 1))
		*(volatile char *)(page + 5000) = 1;
	check(got == before + 1 && fault_at == page + 5000);
	spin(5000);
}
static void bus_begin(void)
{
	char name[] = "/tmp/attackXXXXXX";
	int f = mkstemp(name);
	unlink(name);
	fault_begin();
	page = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
}
static void illegal_turn(void)
{
	long before = got;
	if (!sigsetjmp(out, 1))
		__builtin_trap();
	check(got == before + 1);
	spin(5000);
}

/* timer: expirations and overruns make the time */
static timer_t timer;
static int64_t begun;
static long expired;
static void timer_begin(void)
{
	sigset_t s;
	struct sigevent e = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN };
	struct itimerspec t = { { 0, 500000 }, { 0, 500000 } };
	sigemptyset(&s);
	sigaddset(&s, SIGRTMIN);
	sigprocmask(SIG_BLOCK, &s, 0);
	timer_create(CLOCK_MONOTONIC, &e, &timer);
	begun = now_ns();
	timer_settime(timer, 0, &t, 0);
}
static void timer_turn(void)
{
	sigset_t s;
	siginfo_t i;
	sigemptyset(&s);
	sigaddset(&s, SIGRTMIN);
	if (!done(sigwaitinfo(&s, &i), SIGRTMIN))
		return;
	expired += 1 + i.si_overrun;
	long passed = (now_ns() - begun) / 500000;
	check(expired <= passed && passed <= expired + 400);
	spin(100000);
}

/* timerfd: the same by a descriptor */
static void timerfd_begin(void)
{
	struct itimerspec t = { { 0, 300000 }, { 0, 300000 } };
	fd[0] = timerfd_create(CLOCK_MONOTONIC, 0);
	begun = now_ns();
	timerfd_settime(fd[0], 0, &t, 0);
}
static void timerfd_turn(void)
{
	uint64_t n;
	if (!done(read(fd[0], &n, sizeof n), sizeof n))
		return;
	expired += n;
	long passed = (now_ns() - begun) / 300000;
	check(expired <= passed && passed <= expired + 700);
	spin(50000);
}

/* itimer: a profile of its own goes on, at its rate of CPU time */
static void itimer_begin(void)
{
	struct itimerval v = { { 0, 4000 }, { 0, 4000 } };
	handle(SIGPROF, count, SA_RESTART);
	setitimer(ITIMER_PROF, &v, 0);
}
static void itimer_turn(void)
{
	struct itimerval v;
	spin(1000000);
	check(getitimer(ITIMER_PROF, &v) == 0 && v.it_interval.tv_usec == 4000);
}

/* restart: a sleep that is stopped and continued ends when it would have ended */
static void restart_turn(void)
{
	struct timespec t = { 0, 20000000 };
	pid_t me = getpid(), child = fork();
	if (!child) {
		usleep(3000);
		kill(me, SIGSTOP);
		usleep(3000);
		kill(me, SIGCONT);
		_exit(0);
	}
	int64_t from = now_ns();
	done(syscall(SYS_nanosleep, &t, 0), 0);
	int64_t took = now_ns() - from;
	check(took >= 20000000 && took < 2000000000);
	while (waitpid(child, 0, 0) != child)
		;
}

/* job, ttin: a child that spins is stopped by its parent: it does nothing until it is continued, and
   each change is told once. Its state may be R meanwhile: a thread in a group stop is woken to be attached
   to, to be stopped again or to be let go (kernel/ptrace.c, ptrace_attach, __ptrace_unlink), waits for a CPU,
   and stops anew before it is back in the program. */
static int stop_by;
static atomic_long *spins;
static char state_of(pid_t pid)
{
	char path[40], b[512], *p;
	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	int f = open(path, O_RDONLY);
	ssize_t n = read(f, b, sizeof b - 1);
	close(f);
	b[n > 0 ? n : 0] = 0;
	p = strrchr(b, ')');
	return p ? p[2] : 0;
}
static void child_spins(int own_group)
{
	spins = mmap(0, sizeof *spins, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	sampled = fork();
	if (own_group)
		setpgid(sampled, 0); /* of the child or, there, of itself: who comes first */
	if (!sampled) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			spin(100);
			++*spins;
		}
	}
}
static void job_begin(void) { stop_by = SIGSTOP; child_spins(0); }
/* The group must not be orphaned (kernel/signal.c, get_signal): its parent is in another. */
static void ttin_begin(void) { stop_by = SIGTTIN; child_spins(1); }
static void job_turn(void)
{
	int st;
	usleep(500);
	kill(sampled, stop_by);
	check(waitpid(sampled, &st, WUNTRACED) == sampled && WIFSTOPPED(st) && WSTOPSIG(st) == stop_by);
	long before = *spins;
	for (int i = 0; i < 10; i++) {
		char s = state_of(sampled);
		check(s == 'T' || s == 't' || s == 'R');
		usleep(200);
	}
	check(*spins == before);
	check(waitpid(sampled, &st, WUNTRACED | WNOHANG) == 0);
	kill(sampled, SIGCONT);
	check(waitpid(sampled, &st, WCONTINUED) == sampled && WIFCONTINUED(st));
}

/* mask: what is blocked stays so */
static void mask_turn(void)
{
	sigset_t s, now;
	sigemptyset(&s);
	sigaddset(&s, SIGUSR2);
	sigprocmask(SIG_SETMASK, &s, 0);
	spin(20000);
	sigprocmask(SIG_SETMASK, 0, &now);
	check(sigismember(&now, SIGUSR2) == 1 && sigismember(&now, SIGTRAP) == 0);
}

/* context: swapcontext between stacks */
static ucontext_t here, there;
static void other_stack(void)
{
	for (;;) {
		spin(10000);
		got++;
		swapcontext(&there, &here);
	}
}
static void context_begin(void)
{
	getcontext(&there);
	there.uc_stack.ss_sp = malloc(1 << 16);
	there.uc_stack.ss_size = 1 << 16;
	makecontext(&there, other_stack, 0);
}
static void context_turn(void)
{
	long before = got;
	swapcontext(&here, &there);
	check(got == before + 1);
}

static const struct kind list[] = {
	{ "raise", raise_turn, raise_begin },
	{ "queue", queue_turn, queue_begin },
	{ "threads", threads_turn, threads_begin },
	{ "norestart", norestart_turn, norestart_begin },
	{ "ignored", ignored_turn, ignored_begin },
	{ "pending", pending_turn, pending_begin },
	{ "suspend", suspend_turn, suspend_begin },
	{ "signalfd", signalfd_turn, signalfd_begin },
	{ "altstack", altstack_turn, altstack_begin },
	{ "jump", jump_turn, jump_begin },
	{ "int3", trap_turn, trap_begin },
	{ "step", step_turn, step_begin },
	{ "fault", fault_turn, fault_begin },
	{ "bus", fault_turn, bus_begin },
	{ "illegal", illegal_turn, fault_begin },
	{ "timer", timer_turn, timer_begin },
	{ "timerfd", timerfd_turn, timerfd_begin },
	{ "itimer", itimer_turn, itimer_begin },
	{ "restart", restart_turn, 0 },
	{ "job", job_turn, job_begin },
	{ "ttin", job_turn, ttin_begin },
	{ "mask", mask_turn, 0 },
	{ "context", context_turn, context_begin },
	{ 0, 0, 0 },
};

int main(int argc, char **argv) { return drive(list, argc, argv); }
