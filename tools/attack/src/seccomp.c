/* seccomp ACTION SCOPE WHEN [SECONDS]: threads that wait with time limits of 50 µs
   and 1 ms, each in a call of its own, behind filters that know no
   restart_syscall(2).

   ACTION  kill, errno, trap, trace or notify: what the filter does
   SCOPE   one: each thread has a filter of its own, the leader none
           all: one filter for all (SECCOMP_FILTER_FLAG_TSYNC)
   WHEN    before: from the beginning; after: when a line has been read
   SECONDS end by itself */
#include "target.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static atomic_long early, trapped;
static atomic_int filters;
static atomic_long longest;

static void report(void)
{
	printf("result calls=%ld wrong=%ld eintr=%ld early=%ld trapped=%ld longest_us=%ld\n",
	       calls, wrong, eintr, early, trapped, longest / 1000);
	fflush(stdout);
}

static void on_sigsys(int sig) { (void)sig; trapped++; }

/* answer lets nothing pass: whoever asks has been made to. */
static void *answer(void *arg)
{
	int fd = (int)(intptr_t)arg;
	for (;;) {
		struct seccomp_notif q;
		memset(&q, 0, sizeof q);
		if (ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &q))
			continue;
		struct seccomp_notif_resp a = { .id = q.id, .error = -EPERM };
		ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &a);
	}
	return 0;
}

static void install(const char *action, unsigned flags)
{
	unsigned ret;
	if (!strcmp(action, "kill"))
		ret = SECCOMP_RET_KILL_PROCESS;
	else if (!strcmp(action, "errno"))
		ret = SECCOMP_RET_ERRNO | EPERM;
	else if (!strcmp(action, "trap"))
		ret = SECCOMP_RET_TRAP;
	else if (!strcmp(action, "trace"))
		ret = SECCOMP_RET_TRACE;
	else
		ret = SECCOMP_RET_USER_NOTIF, flags |= SECCOMP_FILTER_FLAG_NEW_LISTENER;
	if (flags & SECCOMP_FILTER_FLAG_NEW_LISTENER && flags & SECCOMP_FILTER_FLAG_TSYNC)
		flags |= SECCOMP_FILTER_FLAG_TSYNC_ESRCH; /* the two need it (seccomp(2)) */
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_restart_syscall, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, ret),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = { sizeof code / sizeof *code, code };
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		die("PR_SET_NO_NEW_PRIVS");
	long fd = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &prog);
	if (fd < 0)
		die("seccomp");
	if (flags & SECCOMP_FILTER_FLAG_NEW_LISTENER) {
		pthread_t t;
		pthread_create(&t, 0, answer, (void *)fd);
	}
	filters++;
}

static int epfd;

/* wait waits in one kind of call; it returns whether the answer is right. */
static int wait(int kind, int64_t *limit)
{
	struct timespec short_time = { 0, 50000 };
	uint32_t word = 0;
	struct pollfd none;
	struct epoll_event ev;
	*limit = kind < 2 ? 50000 : 1000000;
	switch (kind) {
	case 0:
		return syscall(SYS_nanosleep, &short_time, 0) == 0;
	case 1:
		return syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &short_time, 0, 0) == -1 && errno == ETIMEDOUT;
	case 2:
		return poll(&none, 0, 1) == 0;
	default:
		return epoll_wait(epfd, &ev, 1, 1) == 0;
	}
}

static const char *action, *scope;
static atomic_int install_now;

static void *worker(void *arg)
{
	int kind = (int)(intptr_t)arg, mine = 0;
	while (!stop) {
		if (install_now && !mine && !strcmp(scope, "one"))
			install(action, 0), mine = 1;
		spin(20000);
		int64_t limit, begun = now_ns();
		int right = wait(kind, &limit);
		int64_t took = now_ns() - begun;
		calls++;
		if (!right && errno == EINTR) {
			eintr++;
		} else if (!right) {
			wrong++;
		} else if (took < limit) {
			early++;
			wrong++;
		}
		if (took > longest)
			longest = took;
	}
	return 0;
}

int main(int argc, char **argv)
{
	char line[16];
	if (argc < 4)
		return 2;
	action = argv[1], scope = argv[2];
	struct sigaction sa = { .sa_handler = on_sigsys };
	sigaction(SIGSYS, &sa, 0);
	epfd = epoll_create1(0);
	int before = !strcmp(argv[3], "before"), all = !strcmp(scope, "all");
	if (before && all)
		install(action, 0);
	install_now = before;
	pthread_t t[4];
	for (intptr_t i = 0; i < 4; i++)
		pthread_create(&t[i], 0, worker, (void *)i);
	while (before && !all && filters < 4)
		usleep(100);
	say("ready");
	if (argc > 4) {
		usleep(atof(argv[4]) * 5e5);
	} else if (!before && !fgets(line, sizeof line, stdin)) {
		return 2;
	}
	if (!before) {
		if (all)
			install(action, SECCOMP_FILTER_FLAG_TSYNC);
		install_now = 1;
		say("installed");
	}
	if (argc > 4)
		usleep(atof(argv[4]) * 5e5);
	else
		while (fgets(line, sizeof line, stdin))
			;
	stop = 1;
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], 0);
	report();
	return 0;
}
