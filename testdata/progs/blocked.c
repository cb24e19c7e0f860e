/*
 * blocked: threads that are each blocked in one of 17 kinds of system call.
 *
 *     blocked THREADS [MILLISECONDS]
 *
 * THREADS threads (at most 10000) share the kinds evenly. Calls that can have a
 * time limit get MILLISECONDS (default 0: none) and are then repeated. When all
 * are in their calls it prints, for each thread,
 *
 *     thread TID thread_start run deeper... in_KIND
 *
 * (for vfork with start_thread behind that) and
 *
 *     call TID NUMBER
 *
 * then "ready", and waits for SIGTERM. At that it prints for each kind
 *
 *     count KIND CALLS EINTR OTHER
 *
 * with OTHER the number of results that nothing but an intruder can cause, and
 * ends. A kind that the kernel lacks is told by "unavailable KIND".
 *
 * "vfork" is the parent of a vfork: it waits in state D until its child ends,
 * which it never does. Only the first 4 rounds have this kind and wait4, which
 * cost a process each.
 */
#include "thread.h"

enum {
	EINTR = 4, EAGAIN = 11, ETIMEDOUT = 110,
	MAX_THREADS = 10000, STACK = 8192, PROCESS_ROUNDS = 4,
};

enum kind {
	NANOSLEEP, FUTEX, EPOLL, POLL, SELECT, READ, ACCEPT, RECV, SEMOP, SIGTIMEDWAIT,
	MSGRCV, FLOCK, FCNTL, WAIT4, SIGSUSPEND, IO_GETEVENTS, VFORK, KINDS
};

struct thread {
	long tid;
	enum kind kind;
	int depth;
	int fd;          /* what the call waits for */
	word handle;     /* of an aio context */
	word calls, eintr, other;
};

static struct thread threads[MAX_THREADS];
static char stacks[MAX_THREADS][STACK] __attribute__((aligned(16)));
static char child_stacks[2 * PROCESS_ROUNDS][STACK] __attribute__((aligned(16)));
static int children;
static long limit_ms;
volatile int going = 1; /* always set, which the compiler does not know */
static int never;       /* a futex word */
static int semaphore, queue, locked[2];

/* Limits are made anew for each call: some calls write what is left to them. */
INLINE struct timespec *limit(struct timespec *t)
{
	t->sec = limit_ms / 1000;
	t->nsec = limit_ms % 1000 * 1000000;
	return limit_ms ? t : 0;
}

FRAME static long in_nanosleep(struct thread *t)
{
	struct timespec ts = { 1 << 30, 0 };
	(void)t;
	if (limit_ms)
		limit(&ts);
	return sys(clock_nanosleep, 1, 0, &ts, 0);
}

FRAME static long in_futex(struct thread *t)
{
	struct timespec ts;
	(void)t;
	return sys(futex, &never, 128 /* FUTEX_WAIT_PRIVATE */, 0, limit(&ts));
}

FRAME static long in_epoll(struct thread *t)
{
	char events[16];
	return sys(epoll_pwait, t->fd, events, 1, limit_ms ? limit_ms : -1, 0);
}

FRAME static long in_poll(struct thread *t)
{
	struct timespec ts;
	struct { int fd; short events, revents; } p = { t->fd, 1 /* POLLIN */, 0 };
	return sys(ppoll, &p, 1, limit(&ts), 0, 8);
}

FRAME static long in_select(struct thread *t)
{
	struct timespec ts;
	(void)t;
	return sys(pselect6, 0, 0, 0, 0, limit(&ts));
}

FRAME static long in_read(struct thread *t)
{
	char b;
	return sys(read, t->fd, &b, 1);
}

FRAME static long in_accept(struct thread *t)
{
	return sys(accept4, t->fd, 0, 0, 0);
}

/* A socket with a time limit: an interrupted call is not restarted. */
FRAME static long in_recv(struct thread *t)
{
	char b;
	return sys(recvfrom, t->fd, &b, 1, 0, 0);
}

FRAME static long in_semop(struct thread *t)
{
	struct timespec ts;
	struct { unsigned short num; short op, flags; } op = { 0, -1, 0 };
	(void)t;
	return sys(semtimedop, semaphore, &op, 1, limit(&ts));
}

FRAME static long in_sigtimedwait(struct thread *t)
{
	struct timespec ts;
	word set = SIGBIT(SIGUSR1);
	(void)t;
	return sys(rt_sigtimedwait, &set, 0, limit(&ts), 8);
}

FRAME static long in_msgrcv(struct thread *t)
{
	struct { long type; char text[8]; } m;
	(void)t;
	return sys(msgrcv, queue, &m, 8, 0, 0);
}

FRAME static long in_flock(struct thread *t)
{
	(void)t;
	return sys(flock, locked[1], 2 /* LOCK_EX */);
}

FRAME static long in_fcntl(struct thread *t)
{
	struct { short type, whence; long start, len; int pid; } lock = { 1 /* F_WRLCK */, 0, 0, 0, 0 };
	(void)t;
	return sys(fcntl, locked[1], 38 /* F_OFD_SETLKW */, &lock);
}

FRAME static long in_wait4(struct thread *t)
{
	/* __WALL | __WNOTHREAD: this thread's own child, which never ends */
	(void)t;
	return sys(wait4, -1, 0, 0x60000000, 0);
}

FRAME static long in_sigsuspend(struct thread *t)
{
	word all = ~0UL;
	(void)t;
	return sys(rt_sigsuspend, &all, 8);
}

FRAME static long in_io_getevents(struct thread *t)
{
	struct timespec ts;
	char event[32];
	return sys(io_getevents, t->handle, 1, 1, event, limit(&ts));
}

/* A child process that lives as long as the thread that made it. */
static void child(void *unused)
{
	(void)unused;
	sys(prctl, 1 /* PR_SET_PDEATHSIG */, SIGKILL);
	for (;;)
		wait_for_ever();
}

FRAME static long in_vfork(struct thread *t)
{
	(void)t;
	return start_thread(child_stacks[__atomic_fetch_add(&children, 1, __ATOMIC_SEQ_CST) + 1], child, 0,
			    CLONE_VM | CLONE_VFORK | SIGCHLD);
}

static const struct {
	const char *name;
	long (*call)(struct thread *);
	int nr;
} kinds[KINDS] = {
	[NANOSLEEP] = { "nanosleep", in_nanosleep, SYS_clock_nanosleep },
	[FUTEX] = { "futex", in_futex, SYS_futex },
	[EPOLL] = { "epoll", in_epoll, SYS_epoll_pwait },
	[POLL] = { "poll", in_poll, SYS_ppoll },
	[SELECT] = { "select", in_select, SYS_pselect6 },
	[READ] = { "read", in_read, SYS_read },
	[ACCEPT] = { "accept", in_accept, SYS_accept4 },
	[RECV] = { "recv", in_recv, SYS_recvfrom },
	[SEMOP] = { "semop", in_semop, SYS_semtimedop },
	[SIGTIMEDWAIT] = { "sigtimedwait", in_sigtimedwait, SYS_rt_sigtimedwait },
	[MSGRCV] = { "msgrcv", in_msgrcv, SYS_msgrcv },
	[FLOCK] = { "flock", in_flock, SYS_flock },
	[FCNTL] = { "fcntl", in_fcntl, SYS_fcntl },
	[WAIT4] = { "wait4", in_wait4, SYS_wait4 },
	[SIGSUSPEND] = { "sigsuspend", in_sigsuspend, SYS_rt_sigsuspend },
	[IO_GETEVENTS] = { "io_getevents", in_io_getevents, SYS_io_getevents },
	[VFORK] = { "vfork", in_vfork, SYS_clone },
};

FRAME static long deeper(struct thread *t, int depth)
{
	long r;
	volatile char room[24];

	room[0] = depth;
	r = depth > 0 ? deeper(t, depth - 1) : kinds[t->kind].call(t);
	return r + (room[0] & 0x80);
}

FRAME static void run(void *arg)
{
	struct thread *t = arg;

	t->tid = sys(gettid);
	if (t->kind == WAIT4)
		start_thread(child_stacks[__atomic_fetch_add(&children, 1, __ATOMIC_SEQ_CST) + 1], child, 0, CLONE_VM | SIGCHLD);
	while (going) {
		long r = deeper(t, t->depth);

		t->calls++;
		if (r == -EINTR)
			t->eintr++;
		else if (r != 0 && r != -ETIMEDOUT && r != -EAGAIN)
			t->other++;
	}
}

INLINE int checked(long r)
{
	if (r < 0)
		die(3);
	return r;
}

/* prepare makes what the thread's call waits for. 0: not available here. */
static int prepare(struct thread *t)
{
	int pair[2];
	struct timespec hour = { 3600, 0 }; /* a timeval has the same form */

	switch (t->kind) {
	case EPOLL:
		t->fd = checked(sys(epoll_create1, 0));
		break;
	case POLL:
	case READ:
		checked(sys(pipe2, pair, 0));
		t->fd = pair[0];
		break;
	case ACCEPT: {
		short family = 1; /* AF_UNIX: an address without a name asks for any */

		t->fd = checked(sys(socket, 1, 1 /* SOCK_STREAM */, 0));
		checked(sys(bind, t->fd, &family, sizeof family));
		checked(sys(listen, t->fd, 1));
		break;
	}
	case RECV:
		checked(sys(socketpair, 1, 1, 0, pair));
		if (limit_ms)
			hour = (struct timespec){ limit_ms / 1000, limit_ms % 1000 * 1000 };
		checked(sys(setsockopt, pair[0], 1 /* SOL_SOCKET */, 20 /* SO_RCVTIMEO */, &hour, sizeof hour));
		t->fd = pair[0];
		break;
	case IO_GETEVENTS:
		return sys(io_setup, 1, &t->handle) == 0;
	case SEMOP:
		return semaphore >= 0;
	case MSGRCV:
		return queue >= 0;
	default:
		break;
	}
	return 1;
}

/* lock_file makes two descriptions of one file; the first has both locks. */
static void lock_file(void)
{
	char path[32] = "/proc/self/fd/";
	unsigned n = 14, fd;
	struct { short type, whence; long start, len; int pid; } lock = { 1, 0, 0, 0, 0 };

	fd = locked[0] = checked(sys(memfd_create, "lock", 0));
	if (fd >= 10)
		path[n++] = '0' + fd / 10 % 10;
	path[n++] = '0' + fd % 10;
	locked[1] = checked(sys(openat, -100 /* AT_FDCWD */, path, 2 /* O_RDWR */, 0));
	checked(sys(flock, locked[0], 2));
	checked(sys(fcntl, locked[0], 38, &lock));
}

static void remove_ipc(void)
{
	if (semaphore >= 0)
		sys(semctl, semaphore, 0, 0 /* IPC_RMID */, 0);
	if (queue >= 0)
		sys(msgctl, queue, 0, 0);
}

static char janitor_stack[STACK] __attribute__((aligned(16)));

/* System V objects outlive their maker, so that a process of its own removes
 * them: the read ends when the last writer, this program, is gone. */
static void janitor(void *pipe)
{
	char b;

	sys(close, ((int *)pipe)[1]);
	/* Whoever reads our output must see its end. */
	sys(close, 1);
	sys(close, 2);
	sys(read, ((int *)pipe)[0], &b, 1);
	remove_ipc();
}

static void start_janitor(void)
{
	int pair[2];

	semaphore = sys(semget, 0, 1, 0600);
	queue = sys(msgget, 0, 0600);
	checked(sys(pipe2, pair, 0));
	checked(start_thread(janitor_stack + STACK, janitor, pair, SIGCHLD));
	sys(close, pair[0]);
}

/* blocks tells whether the thread is in its call, by /proc: the line there is
 * "running", or begins with the number of the call. */
static int blocks(struct thread *t)
{
	char path[64], now[64];
	const char *parts[] = { "/proc/self/task/", 0, "/syscall" };
	char digits[24], *p = digits + sizeof digits;
	unsigned n = 0;
	long fd, len;

	*--p = 0;
	for (long tid = t->tid; tid; tid /= 10)
		*--p = '0' + tid % 10;
	parts[1] = p;
	for (int i = 0; i < 3; i++)
		for (const char *s = parts[i]; *s; s++)
			path[n++] = *s;
	path[n] = 0;
	fd = sys(openat, -100, path, 0, 0);
	if (fd < 0)
		die(4);
	len = sys(read, fd, now, sizeof now - 1);
	sys(close, fd);
	if (len <= 0)
		return 0;
	now[len] = 0;
	return now[0] >= '0' && now[0] <= '9' && number(now) == (unsigned)kinds[t->kind].nr;
}

static void tell(struct thread *t)
{
	text("thread ");
	text_number(t->tid);
	text(" thread_start run");
	for (int i = 0; i <= t->depth; i++)
		text(" deeper");
	text(" in_");
	text(kinds[t->kind].name);
	if (t->kind == VFORK)
		text(" start_thread");
	text_end();
	text("call ");
	text_number(t->tid);
	text(" ");
	text_number(kinds[t->kind].nr);
	text_end();
}

static void tell_counts(int n)
{
	for (int k = 0; k < KINDS; k++) {
		word calls = 0, eintr = 0, other = 0;

		for (int i = 0; i < n; i++)
			if (threads[i].kind == (enum kind)k)
				calls += threads[i].calls, eintr += threads[i].eintr, other += threads[i].other;
		text("count ");
		text(kinds[k].name);
		text(" ");
		text_number(calls);
		text(" ");
		text_number(eintr);
		text(" ");
		text_number(other);
		text_end();
	}
}

START;

FRAME int main(int argc, char **argv)
{
	int want = argc > 1 ? number(argv[1]) : KINDS, n = 0, round = 0;
	word all = ~0UL, term = SIGBIT(SIGTERM);
	char missing[KINDS] = { 0 };

	limit_ms = argc > 2 ? number(argv[2]) : 0;
	if (want > MAX_THREADS)
		want = MAX_THREADS;
	sys(rt_sigprocmask, SIG_BLOCK, &all, 0, 8);
	start_janitor();
	lock_file();
	for (; n < want; round++) {
		for (int k = 0; k < KINDS && n < want; k++) {
			struct thread *t = &threads[n];

			if (round >= PROCESS_ROUNDS && (k == WAIT4 || k == VFORK))
				continue;
			t->kind = k;
			t->depth = n % 7;
			if (missing[k] || !prepare(t)) {
				missing[k] = 1;
				continue;
			}
			checked(start_thread(stacks[n] + STACK, run, t, THREAD));
			n++;
		}
	}
	for (int i = 0; i < n; i++)
		while (!threads[i].tid || (!limit_ms && !blocks(&threads[i])))
			sys(sched_yield);
	for (int i = 0; i < n; i++)
		tell(&threads[i]);
	for (int k = 0; k < KINDS; k++)
		if (missing[k]) {
			text("unavailable ");
			text(kinds[k].name);
			text_end();
		}
	text("ready");
	text_end();
	while (sys(rt_sigtimedwait, &term, 0, 0, 8) != SIGTERM)
		;
	tell_counts(n);
	remove_ipc();
	die(0);
}
