/* edges KIND [SECONDS]: waits that a stop would end early, or whose arguments it would change. The functions
   find their frames by the frame pointer, as in programs that were not optimized: to show a blocked
   thread takes its registers, and so a stop. */
#pragma GCC optimize("O0")
#include "target.h"
#include <linux/aio_abi.h>
#include <linux/futex.h>
#include <pty.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/personality.h>
#include <sys/syscall.h>
#include <termios.h>

enum { MS = 1000000, LIMIT = 20 * MS };
static const struct timespec fixed = { 0, LIMIT }; /* in memory that cannot be written */

/* lasted counts the result of a wait and how long it took: none ends early but one that is told to. */
static void lasted(long result, int64_t since, int64_t ns)
{
	int64_t took = now_ns() - since;
	if (done(result, 0))
		check(took >= ns);
}

/* few counts a turn that may have ended early: who is about to wait is stopped in any case, and gets what is there. That
   is seldom; who waits is not to be stopped. */
static void few(int early)
{
	static long turns;
	turns++;
	shorts += early;
	check(4 * shorts <= turns + 8);
}

/* ppoll: what is left cannot be written (poll_select_finish, fs/select.c) */
static void ppoll_turn(void)
{
	spin(2 * MS);
	int64_t t = now_ns();
	lasted(syscall(SYS_ppoll, 0, 0, &fixed, 0, 8), t, LIMIT);
}
static void pselect_turn(void)
{
	spin(2 * MS);
	int64_t t = now_ns();
	lasted(syscall(SYS_pselect6, 0, 0, 0, 0, &fixed, 0), t, LIMIT);
}

/* sticky: what is left is not to be written */
static void sticky_begin(void) { personality(personality(0xffffffff) | STICKY_TIMEOUTS); }
static void sticky_turn(void)
{
	struct timespec limit = fixed;
	spin(2 * MS);
	int64_t t = now_ns();
	lasted(syscall(SYS_pselect6, 0, 0, 0, 0, &limit, 0), t, LIMIT);
}

/* left: a sleep tells what is left of it, where its limit stands; leftfixed: or where that cannot be written.
   A process of one thread does so: among others, one may get a filter. Where nobody may look what a thread is in the midst of,
   a stop as it falls asleep has that written; such count as short. */
static struct { atomic_long calls, wrong, shorts; } *told;
static void tell(struct timespec *limit, const struct timespec *left)
{
	told = mmap(0, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	sampled = fork();
	if (sampled)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;) {
		spin(2 * MS);
		int64_t t = now_ns();
		long r = syscall(SYS_nanosleep, limit, left);
		int changed = limit->tv_nsec != LIMIT || (r && limit != left && errno == EFAULT);
		told->wrong += !changed && (r || now_ns() - t < LIMIT);
		told->shorts += changed;
		told->calls++;
		limit->tv_nsec = LIMIT;
	}
}
static struct timespec period = { 0, LIMIT };
static void left_begin(void) { tell(&period, &period); }
static void leftfixed_begin(void) { tell(&period, &fixed); }
static void left_turn(void)
{
	usleep(1000);
	calls = told->calls;
	wrong = told->wrong;
	shorts = told->shorts;
}

/* vtime, vmin: a terminal has a limit, or gives so many bytes at least */
static int tty[2];
static void terminal(int vmin, int vtime)
{
	struct termios a;
	if (openpty(&tty[0], &tty[1], 0, 0, 0) || tcgetattr(tty[1], &a))
		die("a terminal");
	cfmakeraw(&a);
	a.c_cc[VMIN] = vmin;
	a.c_cc[VTIME] = vtime;
	tcsetattr(tty[1], TCSANOW, &a);
}
static void vtime_begin(void) { terminal(0, 1); }
static void vtime_turn(void)
{
	char b[8];
	spin(2 * MS);
	int64_t t = now_ns();
	done(read(tty[1], b, sizeof b), 0);
	t = now_ns() - t;
	check(t >= 90 * MS && t < 2000 * MS);
}
static void *feed(void *arg)
{
	for (;;) {
		usleep(5000);
		if (write(tty[0], "x", 1) != 1)
			return arg;
	}
}
static void vmin_begin(void)
{
	pthread_t t;
	terminal(4, 0);
	pthread_create(&t, 0, feed, 0);
}
static void vmin_turn(void)
{
	char b[4];
	spin(2 * MS);
	long n = read(tty[1], b, sizeof b);
	check(n > 0);
	few(n < (long)sizeof b);
}

/* events: two are wanted, one is there */
static aio_context_t aio;
static int ready[2];
static void *kick(void *arg)
{
	for (uint64_t one = 1;;) {
		usleep(10000);
		if (write(ready[1], &one, sizeof one) < 0)
			return arg;
	}
}
static void events_begin(void)
{
	pthread_t t;
	if (syscall(SYS_io_setup, 8, &aio))
		die("io_setup");
	ready[0] = eventfd(1, 0);
	ready[1] = eventfd(0, 0);
	pthread_create(&t, 0, kick, 0);
}
static void events_turn(void)
{
	struct iocb a[2] = {
		{ .aio_lio_opcode = IOCB_CMD_POLL, .aio_fildes = ready[0], .aio_buf = 1 },
		{ .aio_lio_opcode = IOCB_CMD_POLL, .aio_fildes = ready[1], .aio_buf = 1 },
	}, *list[2] = { &a[0], &a[1] };
	struct io_event e[2];
	uint64_t v;
	spin(2 * MS);
	if (syscall(SYS_io_submit, aio, 2, list) != 2)
		die("io_submit");
	long n = syscall(SYS_io_getevents, aio, 2, 2, e, 0);
	check(n > 0);
	few(n == 1);
	for (n = n > 0 ? n : 0; n < 2;) {
		long more = syscall(SYS_io_getevents, aio, 2 - n, 2, e, 0);
		n += more > 0 ? more : 0;
	}
	read(ready[1], &v, sizeof v);
}

/* requeue: a wait that is moved to a priority-inheriting mutex */
static uint32_t word, mutex;
static atomic_int waiting;
static void lock(void)
{
	uint32_t none = 0;
	if (!__atomic_compare_exchange_n(&mutex, &none, syscall(SYS_gettid), 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &mutex, FUTEX_LOCK_PI_PRIVATE, 0, 0);
}
static void unlock(void)
{
	uint32_t me = syscall(SYS_gettid);
	if (!__atomic_compare_exchange_n(&mutex, &me, 0, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		syscall(SYS_futex, &mutex, FUTEX_UNLOCK_PI_PRIVATE);
}
static void *requeuer(void *arg)
{
	for (;;) {
		while (!waiting)
			usleep(200);
		usleep(2000);
		lock();
		uint32_t now = __atomic_add_fetch(&word, 1, __ATOMIC_SEQ_CST);
		syscall(SYS_futex, &word, FUTEX_CMP_REQUEUE_PI_PRIVATE, 1, 0L, &mutex, now);
		usleep(10000);
		waiting = 0;
		unlock();
		while (!waiting)
			usleep(200);
	}
	return arg;
}
static void requeue_begin(void)
{
	pthread_t t;
	pthread_create(&t, 0, requeuer, 0);
}
static void requeue_turn(void)
{
	spin(2 * MS);
	uint32_t now = word;
	waiting = 1;
	long r = syscall(SYS_futex, &word, FUTEX_WAIT_REQUEUE_PI_PRIVATE, now, 0, &mutex, 0);
	check(r == 0 || errno == EAGAIN);
	few(r != 0);
	if (r == 0)
		unlock();
	while (waiting)
		usleep(200);
}

static const struct kind list[] = {
	{ "ppoll", ppoll_turn, 0 },
	{ "pselect", pselect_turn, 0 },
	{ "sticky", sticky_turn, sticky_begin },
	{ "left", left_turn, left_begin },
	{ "leftfixed", left_turn, leftfixed_begin },
	{ "vtime", vtime_turn, vtime_begin },
	{ "vmin", vmin_turn, vmin_begin },
	{ "events", events_turn, events_begin },
	{ "requeue", requeue_turn, requeue_begin },
	{ 0, 0, 0 },
};

int main(int argc, char **argv) { return drive(list, argc, argv); }
