/* ipc KIND [SECONDS]: what one thread sends, another gets, all of it and no more; a wait ends
   by what it waits for. */
#include "target.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <mqueue.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/msg.h>
#include <sched.h>
#include <sys/random.h>
#include <termios.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/mman.h>

static int fd[2], extra;
static pthread_t peer;

static void with_peer(void *(*f)(void *)) { pthread_create(&peer, 0, f, 0); }

/* moved counts a call that is to move all that it is asked for. */
static void moved(long n, long asked)
{
	calls++;
	if (n == -1 && errno == EINTR)
		eintr++;
	else if (n < 0)
		wrong++;
	else if (n < asked)
		shorts++;
}

/* pipe: bytes through a pipe that is always full or empty */
static char block[200000];
static void *drain(void *arg)
{
	static char b[3000];
	for (;;) {
		long n = read(fd[0], b, sizeof b);
		if (n < 0 && errno == EINTR)
			eintr++;
		spin(2000);
	}
	return arg;
}
static void pipe_begin(void) { check(pipe(fd) == 0); with_peer(drain); }
static void pipe_turn(void)
{
	moved(write(fd[1], block, sizeof block), sizeof block);
}
static void socket_begin(void) { check(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0); with_peer(drain); }

/* waitall: recv with MSG_WAITALL gives all */
static void *feed(void *arg)
{
	for (;;) {
		if (send(fd[0], block, 500, 0) < 0 && errno == EINTR)
			eintr++;
		spin(20000);
	}
	return arg;
}
static void waitall_begin(void) { check(socketpair(AF_UNIX, SOCK_STREAM, 0, fd) == 0); with_peer(feed); }
static void waitall_turn(void)
{
	static char b[20000];
	moved(recv(fd[1], b, sizeof b, MSG_WAITALL), sizeof b);
}

/* eventfd: the sum of what was added */
static atomic_long added;
static void *add(void *arg)
{
	for (;;) {
		uint64_t one = 1;
		if (write(fd[0], &one, sizeof one) == sizeof one)
			added++;
		else if (errno == EINTR)
			eintr++;
		spin(10000);
	}
	return arg;
}
static void eventfd_begin(void) { fd[0] = eventfd(0, 0); with_peer(add); }
static long taken;
static void eventfd_turn(void)
{
	uint64_t n;
	if (done(read(fd[0], &n, sizeof n), sizeof n))
		taken += n;
	check(taken <= added + 1 && added <= taken + 1000000);
}

/* epoll, edge-triggered: each edge once */
static void epoll_begin(void)
{
	struct epoll_event e = { .events = EPOLLIN | EPOLLET };
	eventfd_begin();
	extra = epoll_create1(0);
	epoll_ctl(extra, EPOLL_CTL_ADD, fd[0], &e);
}
static void epoll_turn(void)
{
	struct epoll_event e;
	if (done(epoll_wait(extra, &e, 1, -1), 1))
		eventfd_turn();
}

/* condition, priority inheritance and robust mutexes */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static long turn_of, plain;
static void *other(void *arg)
{
	for (;;) {
		pthread_mutex_lock(&mutex);
		while (turn_of != 1)
			pthread_cond_wait(&cond, &mutex);
		turn_of = 0;
		plain++;
		pthread_cond_signal(&cond);
		pthread_mutex_unlock(&mutex);
	}
	return arg;
}
static void cond_begin(void) { with_peer(other); }
static void cond_turn(void)
{
	pthread_mutex_lock(&mutex);
	long before = plain;
	turn_of = 1;
	pthread_cond_signal(&cond);
	while (turn_of == 1)
		check(pthread_cond_wait(&cond, &mutex) == 0);
	check(plain == before + 1);
	pthread_mutex_unlock(&mutex);
}
static atomic_long both;
static void *lock_too(void *arg)
{
	for (;;) {
		if (pthread_mutex_lock(&mutex))
			wrong++;
		plain++;
		spin(3000);
		pthread_mutex_unlock(&mutex);
		both++;
	}
	return arg;
}
static void pi_begin(void)
{
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&mutex, &a);
	for (int i = 0; i < 3; i++)
		with_peer(lock_too);
}
static void pi_turn(void)
{
	check(pthread_mutex_lock(&mutex) == 0);
	long n = both;
	check(plain >= n && plain <= n + 3);
	pthread_mutex_unlock(&mutex);
	spin(3000);
}
static void *die_with_it(void *arg)
{
	pthread_mutex_lock(&mutex);
	spin(20000);
	return arg;
}
static void robust_begin(void)
{
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&mutex, &a);
}
static void robust_turn(void)
{
	pthread_t t;
	pthread_create(&t, 0, die_with_it, 0);
	pthread_join(t, 0);
	int e = pthread_mutex_lock(&mutex);
	check(e == EOWNERDEAD);
	if (e == EOWNERDEAD)
		pthread_mutex_consistent(&mutex);
	pthread_mutex_unlock(&mutex);
}

/* waitv: futex_waitv is woken, not ended */
static atomic_uint vword;
static void *wake_v(void *arg)
{
	for (;;) {
		vword++;
		syscall(SYS_futex, &vword, FUTEX_WAKE, 1);
		spin(30000);
	}
	return arg;
}
static void waitv_begin(void) { with_peer(wake_v); }
static void waitv_turn(void)
{
	struct { uint64_t val, addr; uint32_t flags, pad; } w = { vword, (uintptr_t)&vword, 2, 0 };
	long r = syscall(449, &w, 1, 0, 0, CLOCK_MONOTONIC);
	calls++;
	if (r == -1 && errno == EINTR)
		eintr++;
	else if (r == -1 && errno != EAGAIN)
		wrong++;
}

/* POSIX and System V queues, semaphores */
static void *put_mq(void *arg)
{
	for (uint64_t i = 0;; i++)
		while (mq_send(fd[0], (char *)&i, sizeof i, 0))
			if (errno == EINTR)
				eintr++;
	return arg;
}
static uint64_t next;
static void mq_begin(void)
{
	char name[40];
	struct mq_attr a = { .mq_maxmsg = 4, .mq_msgsize = 8 };
	snprintf(name, sizeof name, "/attack%d", getpid());
	if ((fd[0] = mq_open(name, O_RDWR | O_CREAT, 0600, &a)) < 0)
		die("mq_open");
	mq_unlink(name);
	with_peer(put_mq);
}
static void mq_turn(void)
{
	uint64_t v;
	if (done(mq_receive(fd[0], (char *)&v, sizeof v, 0), sizeof v))
		check(v == next++);
	spin(5000);
}
struct letter { long type; uint64_t v; };
static void *put_msg(void *arg)
{
	struct letter m = { 1, 0 };
	for (;; m.v++)
		while (msgsnd(extra, &m, sizeof m.v, 0))
			if (errno == EINTR)
				eintr++;
			else
				return arg;
	return arg;
}
static void msg_begin(void)
{
	extra = msgget(IPC_PRIVATE, 0600);
	with_peer(put_msg);
}
static void msg_turn(void)
{
	struct letter m;
	if (done(msgrcv(extra, &m, sizeof m.v, 0, 0), sizeof m.v))
		check(m.v == next++);
	spin(5000);
	if (stop)
		msgctl(extra, IPC_RMID, 0);
}
static void *post(void *arg)
{
	struct sembuf b = { 0, 1, 0 };
	while (!semop(extra, &b, 1))
		spin(20000);
	return arg;
}
static void sem_begin(void)
{
	extra = semget(IPC_PRIVATE, 1, 0600);
	with_peer(post);
}
static void sem_turn(void)
{
	struct sembuf b = { 0, -1, 0 };
	done(semop(extra, &b, 1), 0);
	if (stop)
		semctl(extra, 0, IPC_RMID);
}

/* locks of files, between open files */
static void *lock_file(void *arg)
{
	for (;;) {
		if (flock(fd[1], LOCK_EX))
			wrong++;
		plain++;
		spin(10000);
		flock(fd[1], LOCK_UN);
		both++;
	}
	return arg;
}
static void flock_begin(void)
{
	char path[40];
	fd[0] = memfd_create("lock", 0);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd[0]);
	fd[1] = open(path, O_RDWR);
	with_peer(lock_file);
}
static void flock_turn(void)
{
	if (done(flock(fd[0], LOCK_EX), 0)) {
		long n = both;
		check(plain >= n && plain <= n + 1);
		flock(fd[0], LOCK_UN);
	}
	spin(10000);
}

/* fifo: open(2) waits for the other end */
static char path[40];
static void *open_other(void *arg)
{
	for (;;) {
		int f = open(path, O_WRONLY);
		if (f < 0 && errno == EINTR)
			eintr++;
		close(f);
	}
	return arg;
}
static void fifo_begin(void)
{
	snprintf(path, sizeof path, "/tmp/attack%d", getpid());
	check(mkfifo(path, 0600) == 0);
	with_peer(open_other);
}
static void fifo_turn(void)
{
	char b;
	int f = open(path, O_RDONLY);
	calls++;
	if (f < 0 && errno == EINTR)
		eintr++;
	else if (f < 0)
		wrong++;
	else
		done(read(f, &b, 1), 0);
	close(f);
	if (stop)
		unlink(path);
}

/* inotify: each change is told */
static void *touch(void *arg)
{
	for (;;) {
		if (pwrite(fd[1], "x", 1, 0) == 1)
			added++;
		spin(50000);
	}
	return arg;
}
static void inotify_begin(void)
{
	char name[] = "/tmp/attackXXXXXX";
	fd[1] = mkstemp(name);
	fd[0] = inotify_init1(0);
	check(inotify_add_watch(fd[0], name, IN_MODIFY) >= 0);
	unlink(name);
	with_peer(touch);
}
static void inotify_turn(void)
{
	struct inotify_event e[8];
	long n = read(fd[0], e, sizeof e);
	calls++;
	if (n == -1 && errno == EINTR)
		eintr++;
	else if (n < (long)sizeof *e)
		wrong++;
}

/* uring: a wait for a time-out of the ring's own */
static struct io_uring_params params;
static struct io_uring_sqe *sqe;
static unsigned *sq_tail, *sq_array, *cq_head;
static struct io_uring_cqe *cqes;
static void uring_begin(void)
{
	if ((fd[0] = syscall(SYS_io_uring_setup, 4, &params)) < 0)
		die("io_uring");
	char *sq = mmap(0, params.sq_off.array + 64, PROT_READ | PROT_WRITE, MAP_SHARED, fd[0], IORING_OFF_SQ_RING);
	char *cq = mmap(0, params.cq_off.cqes + 8 * sizeof *cqes, PROT_READ | PROT_WRITE, MAP_SHARED, fd[0], IORING_OFF_CQ_RING);
	sqe = mmap(0, 4 * sizeof *sqe, PROT_READ | PROT_WRITE, MAP_SHARED, fd[0], IORING_OFF_SQES);
	sq_tail = (unsigned *)(sq + params.sq_off.tail), sq_array = (unsigned *)(sq + params.sq_off.array);
	cq_head = (unsigned *)(cq + params.cq_off.head), cqes = (void *)(cq + params.cq_off.cqes);
}
static void uring_turn(void)
{
	struct { int64_t s, ns; } t = { 0, 1000000 };
	memset(sqe, 0, sizeof *sqe);
	sqe->opcode = IORING_OP_TIMEOUT, sqe->fd = -1, sqe->addr = (uintptr_t)&t, sqe->len = 1, sqe->user_data = ++next;
	sq_array[*sq_tail & 3] = 0;
	__atomic_store_n(sq_tail, *sq_tail + 1, __ATOMIC_RELEASE);
	int64_t from = now_ns();
	done(syscall(SYS_io_uring_enter, fd[0], 1, 0, 0, 0, 0), 1);
	while (!done(syscall(SYS_io_uring_enter, fd[0], 0, 1, IORING_ENTER_GETEVENTS, 0, 0), 0) && errno == EINTR)
		;
	struct io_uring_cqe *c = &cqes[*cq_head & 7];
	check(c->user_data == next && c->res == -ETIME && now_ns() - from >= 1000000);
	__atomic_store_n(cq_head, *cq_head + 1, __ATOMIC_RELEASE);
	spin(50000);
}

/* long calls that look for signals on their way, with something to be sampled between them */
static char big[4 << 20];
static void random_turn(void)
{
	spin(3000000);
	moved(getrandom(big, sizeof big, 0), sizeof big);
}
static void burst_turn(void)
{
	spin(200000000);
	moved(getrandom(big, sizeof big, 0), sizeof big);
}
static void prompt_begin(void)
{
	struct sched_param p = { 1 };
	if (sched_setscheduler(0, SCHED_FIFO, &p))
		die("real-time priority");
}
static void prompt_turn(void)
{
	random_turn();
	usleep(5000);
}
static void entropy_begin(void) { fd[0] = open("/dev/urandom", O_WRONLY); }
static void entropy_turn(void)
{
	spin(1000000);
	moved(write(fd[0], big, 1 << 20), 1 << 20);
}
static void zero_begin(void) { fd[0] = open("/dev/zero", O_RDONLY); }
static void zero_turn(void)
{
	spin(1000000);
	moved(read(fd[0], big, sizeof big), sizeof big);
}
static void *reader(void *arg)
{
	static char b[1 << 16];
	while (read(fd[1], b, sizeof b) > 0)
		;
	return arg;
}
static void tty_begin(void)
{
	pthread_t t;
	struct termios raw;
	fd[1] = posix_openpt(O_RDWR | O_NOCTTY);
	if (fd[1] < 0 || grantpt(fd[1]) || unlockpt(fd[1]) || (fd[0] = open(ptsname(fd[1]), O_RDWR | O_NOCTTY)) < 0)
		die("pty");
	tcgetattr(fd[0], &raw);
	cfmakeraw(&raw);
	tcsetattr(fd[0], TCSANOW, &raw);
	pthread_create(&t, 0, reader, 0);
}
static void tty_turn(void) { moved(write(fd[0], big, 1 << 16), 1 << 16); }
static void fallocate_begin(void) { fd[0] = memfd_create("big", 0); }
static void fallocate_turn(void)
{
	done(fallocate(fd[0], 0, 0, 64 << 20), 0);
	done(ftruncate(fd[0], 0), 0);
}
static void populate_turn(void)
{
	char *m = mmap(0, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	done(madvise(m, 64 << 20, 23 /* MADV_POPULATE_WRITE */), 0);
	munmap(m, 64 << 20);
}

static const struct kind list[] = {
	{ "pipe", pipe_turn, pipe_begin },
	{ "socket", pipe_turn, socket_begin },
	{ "waitall", waitall_turn, waitall_begin },
	{ "eventfd", eventfd_turn, eventfd_begin },
	{ "epoll", epoll_turn, epoll_begin },
	{ "cond", cond_turn, cond_begin },
	{ "pi", pi_turn, pi_begin },
	{ "robust", robust_turn, robust_begin },
	{ "waitv", waitv_turn, waitv_begin },
	{ "mq", mq_turn, mq_begin },
	{ "msg", msg_turn, msg_begin },
	{ "sem", sem_turn, sem_begin },
	{ "flock", flock_turn, flock_begin },
	{ "fifo", fifo_turn, fifo_begin },
	{ "inotify", inotify_turn, inotify_begin },
	{ "uring", uring_turn, uring_begin },
	{ "random", random_turn, 0 },
	{ "burst", burst_turn, 0 },
	{ "prompt", prompt_turn, prompt_begin },
	{ "entropy", entropy_turn, entropy_begin },
	{ "zero", zero_turn, zero_begin },
	{ "tty", tty_turn, tty_begin },
	{ "fallocate", fallocate_turn, fallocate_begin },
	{ "populate", populate_turn, 0 },
	{ 0, 0, 0 },
};

int main(int argc, char **argv) { return drive(list, argc, argv); }
