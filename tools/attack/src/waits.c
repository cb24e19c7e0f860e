/* waits [unheard | sandboxed] [SECONDS]: threads that each wait with a time limit, in calls of one kind.
   A wait that ends by its limit returns what that kind returns then; wrong counts all
   else but EINTR, and any that ends before its limit. The median time that each kind takes is told in microseconds, as KIND_us, or
   KIND_jiffies_us where the kernel counts the limit in ticks: to be compared with a run in which nobody samples.

   unheard: waits of 200 ms, while the threads are sent signals that the program ignores. A thread that is traced is woken
   by them: the limit of a socket begins anew, so that there are pauses. wrong counts medians beyond that, too.
   sandboxed: so without a pause, behind a filter that allows everything, in all calls but those of sockets. */
#include "target.h"
#include <ctype.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/seccomp.h>
#include <mqueue.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>

enum { MOST = 1000, TICK_NS = 10000000 /* of the kernel's clock, at most */ };
static int limit_ms = 20;
#define LIMIT_NS (limit_ms * 1000000L)

static struct timespec limit;
static atomic_long lacking;

static struct timespec at(void)
{
	int64_t t = now_ns() + LIMIT_NS;
	return (struct timespec){ t / 1000000000, t % 1000000000 };
}

static void limited(int fd)
{
	struct timeval tv = { 0, limit_ms * 1000 };
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv);
}

static int pair(int full)
{
	int fd[2];
	char b[4096] = "";
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd))
		return -1;
	while (full && send(fd[0], b, sizeof b, MSG_DONTWAIT) > 0)
		;
	limited(fd[0]);
	return fd[0];
}

static int listener(void)
{
	struct sockaddr_un a = { AF_UNIX, "" };
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (bind(fd, (void *)&a, sizeof a.sun_family) || listen(fd, 0))
		return -1;
	limited(fd);
	return fd;
}

/* busy is a socket whose connect(2) has to wait: the listener's queue is full. */
static struct sockaddr_un busy_addr;
static socklen_t busy_len = sizeof busy_addr;
static int busy(void)
{
	int l = listener(), c = socket(AF_UNIX, SOCK_STREAM, 0), fd = socket(AF_UNIX, SOCK_STREAM, 0);
	getsockname(l, (void *)&busy_addr, &busy_len);
	if (connect(c, (void *)&busy_addr, busy_len))
		return -1;
	limited(fd);
	return fd;
}

static int nothing(void) { return 0; }
static int full_pair(void) { return pair(1); }
static int empty_pair(void) { return pair(0); }
static int epoll(void) { return epoll_create1(0); }

static int semaphore(void)
{
	return semget(IPC_PRIVATE, 1, 0600);
}

static aio_context_t context;
static int aio(void) { return syscall(SYS_io_setup, 1, &context); }

static int ring(void)
{
	struct io_uring_params p;
	memset(&p, 0, sizeof p);
	return syscall(SYS_io_uring_setup, 1, &p);
}

static int queue(void)
{
	char name[40];
	struct mq_attr a = { .mq_maxmsg = 1, .mq_msgsize = 8 };
	snprintf(name, sizeof name, "/attack%d", getpid());
	int fd = mq_open(name, O_RDWR | O_CREAT, 0600, &a);
	mq_unlink(name);
	return fd;
}

static uint32_t word;
static struct epoll_event ev;
static char one;

static long c_nanosleep(int fd) { (void)fd; return syscall(SYS_nanosleep, &limit, 0); }
static long c_clock_nanosleep(int fd) { (void)fd; return syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &limit, 0); }
/* kept is syscall(2), and wrong if a register of an argument is another afterwards: the kernel leaves them as they are, and
   compilers know. */
static long kept(long nr, long a, long b, long c, long d)
{
#ifdef __x86_64__
	register long r1 __asm__("rdi") = a, r2 __asm__("rsi") = b, r3 __asm__("rdx") = c, r4 __asm__("r10") = d;
	register long r5 __asm__("r8") = 0, r6 __asm__("r9") = 8, ret __asm__("rax") = nr;
	__asm__ volatile("syscall" : "+r"(ret), "+r"(r1), "+r"(r2), "+r"(r3), "+r"(r4), "+r"(r5), "+r"(r6) : : "rcx", "r11", "memory");
	if (r1 != a || r2 != b || r3 != c || r4 != d || r5 || r6 != 8) {
		errno = EBADMSG;
		return -1;
	}
	if (ret < 0) {
		errno = -ret;
		return -1;
	}
	return ret;
#else
	return syscall(nr, a, b, c, d, 0, 8);
#endif
}

static long c_poll(int fd) { (void)fd; return kept(SYS_poll, 0, 0, limit_ms, 0); }
static long c_ppoll(int fd) { (void)fd; struct timespec t = limit; return syscall(SYS_ppoll, 0, 0, &t, 0, 0); }
static long c_select(int fd) { (void)fd; struct timeval t = { 0, limit_ms * 1000 }; return syscall(SYS_select, 0, 0, 0, 0, &t); }
static long c_pselect(int fd) { (void)fd; struct timespec t = limit; return syscall(SYS_pselect6, 0, 0, 0, 0, &t, 0); }
static long c_epoll_wait(int fd) { return kept(SYS_epoll_wait, fd, (long)&ev, 1, limit_ms); }
static long c_epoll_pwait(int fd) { return kept(SYS_epoll_pwait, fd, (long)&ev, 1, limit_ms); }
static long c_epoll_pwait2(int fd) { return syscall(SYS_epoll_pwait2, fd, &ev, 1, &limit, 0, 0); }
static long c_futex(int fd) { (void)fd; return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &limit); }
static long c_futex_bitset(int fd)
{
	(void)fd;
	struct timespec t = at();
	return syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, 0, &t, 0, FUTEX_BITSET_MATCH_ANY);
}
static long c_futex_waitv(int fd)
{
	(void)fd;
	struct timespec t = at();
	struct { uint64_t val, addr; uint32_t flags, pad; } w = { 0, (uintptr_t)&word, 2, 0 };
	return syscall(449 /* futex_waitv */, &w, 1, 0, &t, CLOCK_MONOTONIC);
}
static long c_semtimedop(int fd) { struct sembuf b = { 0, -1, 0 }; return syscall(SYS_semtimedop, fd, &b, 1, &limit); }
static long c_sigtimedwait(int fd)
{
	(void)fd;
	uint64_t set = 1 << (SIGUSR1 - 1);
	return syscall(SYS_rt_sigtimedwait, &set, 0, &limit, sizeof set);
}
static long c_recv(int fd) { return recv(fd, &one, 1, 0); }
static long c_recvmsg(int fd)
{
	struct iovec v = { &one, 1 };
	struct msghdr m = { .msg_iov = &v, .msg_iovlen = 1 };
	return recvmsg(fd, &m, 0);
}
static long c_recvmmsg(int fd)
{
	struct iovec v = { &one, 1 };
	struct mmsghdr m = { .msg_hdr = { .msg_iov = &v, .msg_iovlen = 1 } };
	return recvmmsg(fd, &m, 1, 0, 0);
}
static long c_read(int fd) { return read(fd, &one, 1); }
static long c_accept(int fd) { return accept(fd, 0, 0); }
static long c_send(int fd) { return send(fd, &one, 1, 0); }
static long c_write(int fd) { return write(fd, &one, 1); }
static long c_io_getevents(int fd) { (void)fd; struct timespec t = limit; char b[64]; return syscall(SYS_io_getevents, context, 1, 1, b, &t); }
static long c_io_uring(int fd)
{
	struct timespec t = limit;
	struct { uint64_t mask; uint32_t size, pad; uint64_t ts; } a = { 0, 8, 0, (uintptr_t)&t };
	return syscall(SYS_io_uring_enter, fd, 0, 1, IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &a, sizeof a);
}
static long c_mq(int fd)
{
	char b[8];
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_nsec += LIMIT_NS;
	t.tv_sec += t.tv_nsec / 1000000000, t.tv_nsec %= 1000000000;
	return mq_timedreceive(fd, b, sizeof b, 0, &t);
}
static long c_connect(int fd) { return connect(fd, (void *)&busy_addr, busy_len); }

static struct call {
	const char *name;
	int (*prepare)(void);
	long (*wait)(int);
	int end; /* errno when the time is over, 0: the call returns 0 */
	enum { KERNEL, CALL, SOCKET } holds; /* who has the limit when the thread is woken; a socket's is told in ticks */
	int n;
	int32_t us[MOST];
} kinds[] = {
	{ "nanosleep", nothing, c_nanosleep, 0, KERNEL, 0, { 0 } },
	{ "clock_nanosleep", nothing, c_clock_nanosleep, 0, KERNEL, 0, { 0 } },
	{ "poll", nothing, c_poll, 0, KERNEL, 0, { 0 } },
	{ "ppoll", nothing, c_ppoll, 0, KERNEL, 0, { 0 } },
	{ "select", nothing, c_select, 0, KERNEL, 0, { 0 } },
	{ "pselect", nothing, c_pselect, 0, KERNEL, 0, { 0 } },
	{ "epoll_wait", epoll, c_epoll_wait, 0, CALL, 0, { 0 } },
	{ "epoll_pwait", epoll, c_epoll_pwait, 0, CALL, 0, { 0 } },
	{ "epoll_pwait2", epoll, c_epoll_pwait2, 0, CALL, 0, { 0 } },
	{ "futex", nothing, c_futex, ETIMEDOUT, KERNEL, 0, { 0 } },
	{ "futex_bitset", nothing, c_futex_bitset, ETIMEDOUT, KERNEL, 0, { 0 } },
	{ "futex_waitv", nothing, c_futex_waitv, ETIMEDOUT, KERNEL, 0, { 0 } },
	{ "semtimedop", semaphore, c_semtimedop, EAGAIN, CALL, 0, { 0 } },
	{ "sigtimedwait", nothing, c_sigtimedwait, EAGAIN, CALL, 0, { 0 } },
	{ "recv", empty_pair, c_recv, EAGAIN, SOCKET, 0, { 0 } },
	{ "recvmsg", empty_pair, c_recvmsg, EAGAIN, SOCKET, 0, { 0 } },
	{ "recvmmsg", empty_pair, c_recvmmsg, EAGAIN, SOCKET, 0, { 0 } },
	{ "read", empty_pair, c_read, EAGAIN, SOCKET, 0, { 0 } },
	{ "accept", listener, c_accept, EAGAIN, SOCKET, 0, { 0 } },
	{ "send", full_pair, c_send, EAGAIN, SOCKET, 0, { 0 } },
	{ "write", full_pair, c_write, EAGAIN, SOCKET, 0, { 0 } },
	{ "io_getevents", aio, c_io_getevents, 0, CALL, 0, { 0 } },
	{ "io_uring_enter", ring, c_io_uring, ETIME, CALL, 0, { 0 } },
	{ "mq_timedreceive", queue, c_mq, ETIMEDOUT, KERNEL, 0, { 0 } },
	{ "connect", busy, c_connect, EAGAIN, SOCKET, 0, { 0 } },
};

enum { KINDS = sizeof kinds / sizeof *kinds };
static atomic_int left;

/* Signals that end no wait of a thread that nobody traces: four by default (sig_kernel_ignore), one since it is
   ignored. They are sent each 40 ms, BURST times, then never for so long that every wait ends. */
enum { PERIOD_MS = 40, BURST = 8 };
static const int unheard[] = { SIGCHLD, SIGWINCH, SIGURG, SIGCONT, SIGUSR2 };
static pthread_t threads[KINDS];
static int signals, sandboxed;

static void *disturb(void *arg)
{
	for (int i = 0; !stop; i++) {
		usleep(PERIOD_MS * 1000);
		if (!sandboxed && i % (2 * BURST) >= BURST)
			continue;
		for (int k = 0; k < KINDS; k++)
			if (threads[k])
				pthread_kill(threads[k], unheard[i % 5]);
	}
	return arg;
}

static void sandbox(void)
{
	struct sock_filter code[] = { BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW) };
	struct sock_fprog prog = { 1, code };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog))
		die("seccomp");
}

static void *work(void *arg)
{
	struct call *k = arg;
	int fd = k->prepare();
	left--;
	if (fd < 0) {
		lacking++;
		return 0;
	}
	while (!stop && k->n < MOST) {
		spin(100000);
		int64_t begun = now_ns();
		long r = k->wait(fd);
		int64_t took = now_ns() - begun;
		calls++;
		if (r == -1 && errno == EINTR) {
			eintr++;
			fprintf(stderr, "%s: EINTR after %ld us\n", k->name, (long)took / 1000);
		} else if (r == -1 && errno == ENOSYS) {
			lacking++;
			break;
		} else if (k->end ? r != -1 || errno != k->end : r != 0) {
			wrong++;
			fprintf(stderr, "%s: %ld, %s\n", k->name, r, strerror(errno));
		} else if (took < LIMIT_NS - (k->holds == SOCKET ? TICK_NS : 0)) {
			wrong++;
			fprintf(stderr, "%s: ends after %ld us\n", k->name, (long)took / 1000);
		}
		k->us[k->n++] = took / 1000;
	}
	if (k->prepare == semaphore)
		semctl(fd, 0, IPC_RMID);
	return 0;
}

static int less(const void *a, const void *b) { return *(const int32_t *)a - *(const int32_t *)b; }

/* most is how long half of the waits may take at most, in microseconds; two fifths more for a busy machine. */
static int most(const struct call *k)
{
	int ms = limit_ms;
	if (k->holds == SOCKET)
		ms += PERIOD_MS * BURST + limit_ms; /* it may have begun before the signals, and begins anew at each */
	return ms * 1400;
}

int main(int argc, char **argv)
{
	pthread_t sender;
	if (argc > 1 && isalpha(*argv[1])) {
		signals = 1;
		limit_ms = 200;
		signal(SIGUSR2, SIG_IGN);
		if (!strcmp(argv[1], "sandboxed")) {
			sandboxed = 1;
			sandbox();
		}
		argc--, argv++;
	}
	limit.tv_nsec = LIMIT_NS;
	for (int i = 0; i < KINDS; i++) {
		if (sandboxed && kinds[i].holds == SOCKET)
			continue;
		left++;
		pthread_create(&threads[i], 0, work, &kinds[i]);
	}
	while (left)
		usleep(100);
	if (signals)
		pthread_create(&sender, 0, disturb, 0);
	say("ready");
	run_for(argc > 1 ? argv[1] : 0);
	stop = 1;
	if (signals)
		pthread_join(sender, 0); /* it sends to threads that have not been joined */
	for (int i = 0; i < KINDS; i++)
		if (threads[i])
			pthread_join(threads[i], 0);
	for (int i = 0; i < KINDS; i++) {
		struct call *k = &kinds[i];
		qsort(k->us, k->n, sizeof *k->us, less);
		if (signals && k->n && k->us[k->n / 2] > most(k)) {
			wrong++;
			fprintf(stderr, "%s: takes %d us\n", k->name, k->us[k->n / 2]);
		}
	}
	printf("result calls=%ld wrong=%ld eintr=%ld lacking=%ld", calls, wrong, eintr, lacking);
	for (int i = 0; i < KINDS; i++)
		if (kinds[i].n)
			printf(" %s%s_us=%d", kinds[i].name, kinds[i].holds == SOCKET ? "_jiffies" : "", kinds[i].us[kinds[i].n / 2]);
	puts("");
	return 0;
}
