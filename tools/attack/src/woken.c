/* woken KIND [SECONDS]: a thread that waits for LIMIT_MS at most, and is woken all the time in vain: what it waits for comes, and somebody
   else has it at once. That is done by a thread on the same CPU, which goes before it, so that none comes through. Who is stopped just
   then is in an old wait: it is not to begin anew with all of its limit. KIND_us is the median, to be compared with a run in which
   nobody samples; wrong counts waits that end in any other way, or before their limit. */
#include "target.h"
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

enum { LIMIT_MS = 100, MOST = 1000, NOISE_US = 30 };

static int event, ep, sock[2];
static int us[MOST], n;

static void bind_to_one(void)
{
	cpu_set_t all, one;
	CPU_ZERO(&one);
	sched_getaffinity(0, sizeof all, &all);
	for (int i = 0; i < CPU_SETSIZE; i++)
		if (CPU_ISSET(i, &all)) {
			CPU_SET(i, &one);
			break;
		}
	sched_setaffinity(0, sizeof one, &one);
}

static void *noise(void *arg)
{
	struct sched_param first = { 1 };
	uint64_t v;
	if (sched_setscheduler(0, SCHED_FIFO, &first))
		die("sched_setscheduler");
	while (!stop) {
		struct timespec t = { 0, NOISE_US * 1000 };
		v = 1;
		if (write(event, &v, 8) != 8 || read(event, &v, 8) != 8)
			die("eventfd");
		if (send(sock[0], "x", 1, 0) != 1 || recv(sock[1], &v, 1, 0) != 1)
			die("socket");
		nanosleep(&t, 0);
	}
	return arg;
}

static int by_epoll(void)
{
	struct epoll_event e;
	return epoll_wait(ep, &e, 1, LIMIT_MS);
}

static int by_poll(void)
{
	struct pollfd p = { event, POLLIN, 0 };
	return poll(&p, 1, LIMIT_MS);
}

static int by_recv(void)
{
	char b;
	int r = recv(sock[0], &b, 1, 0);
	return r == -1 && errno == EAGAIN ? 0 : r;
}

static int less(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

int main(int argc, char **argv)
{
	pthread_t t, end;
	const char *kind = argv[1];
	int (*waits)(void) = !strcmp(kind, "epoll") ? by_epoll : !strcmp(kind, "poll") ? by_poll : by_recv;
	struct timeval tv = { 0, LIMIT_MS * 1000 };
	event = eventfd(0, EFD_NONBLOCK);
	ep = epoll_create1(0);
	struct epoll_event e = { .events = EPOLLIN };
	epoll_ctl(ep, EPOLL_CTL_ADD, event, &e);
	socketpair(AF_UNIX, SOCK_STREAM, 0, sock);
	setsockopt(sock[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv);
	bind_to_one();
	pthread_create(&t, 0, noise, 0);
	pthread_create(&end, 0, until_end, argc > 2 ? argv[2] : 0);
	say("ready");
	while (!stop && n < MOST) {
		int64_t begun = now_ns();
		int r = waits();
		int64_t took = now_ns() - begun;
		if (r == 1) /* the other thread stands between its two calls, while nobody has this CPU (--exit-stacks) */
			continue;
		calls++;
		if (r == -1 && errno == EINTR)
			eintr++;
		else if (r || took < (LIMIT_MS - (waits == by_recv ? 10 : 0)) * 1000000L) {
			wrong++;
			fprintf(stderr, "%s: %d after %ld us\n", kind, r, (long)took / 1000);
		}
		us[n++] = took / 1000;
	}
	qsort(us, n, sizeof *us, less);
	printf("result calls=%ld wrong=%ld eintr=%ld %s_us=%d\n", calls, wrong, eintr, kind, n ? us[n / 2] : 0);
	return 0;
}
