// waits CASE [N]: threads and processes that are stuck in a known way, and tell it.
// Built by the tests. Before "ready" it prints lines of its own knowledge:
//
//	waits TID WORD ADDRESS TID2   thread TID waits on the lock at ADDRESS, which TID2 holds
//	free TID WORD ADDRESS         thread TID waits for what nobody holds
//	fd TID WORD FD PID            thread TID waits on FD, whose other end PID has
//	stopped TID                   thread TID is stopped
//	ring TID...                   these wait for each other
//
// and ends when standard input does.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define MANY 64
static int self(void) { return syscall(SYS_gettid); }

static void must(int ok, const char *what) {
	if (!ok) {
		perror(what);
		exit(1);
	}
}

// child forks. The child ends with its parent, at the latest.
static int child(void) {
	int parent = getpid(), pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent) // it has ended before that
			_exit(1);
	}
	return pid;
}

static void tell(const char *format, ...) {
	va_list ap;
	va_start(ap, format);
	vprintf(format, ap);
	va_end(ap);
	fflush(stdout);
}

// asleep waits until the kernel says that a thread sleeps: in call number nr.
static void asleep(int tid, long nr) {
	char path[64], line[256], want[32];
	snprintf(path, sizeof path, "/proc/%d/syscall", tid);
	snprintf(want, sizeof want, "%ld ", nr);
	for (;;) {
		FILE *f = fopen(path, "r");
		if (f) {
			int ok = fgets(line, sizeof line, f) && strncmp(line, want, strlen(want)) == 0;
			fclose(f);
			if (ok)
				return;
		}
		usleep(1000);
	}
}

static void end_with_input(void) {
	char c;
	tell("ready\n");
	while (read(0, &c, 1) > 0)
		;
	kill(0 - getpgrp(), SIGKILL);
}

// ring: n threads, each holds one mutex and waits for the next one's.
struct ring {
	pthread_mutex_t m[MANY];
	pthread_barrier_t all;
	volatile int tid[MANY];
	int n;
};

static struct ring *r;

__attribute__((noinline)) static void take_second(pthread_mutex_t *m) {
	pthread_mutex_lock(m);
	__asm__ volatile("");
}

static void *in_ring(void *arg) {
	int i = (intptr_t)arg;
	pthread_mutex_lock(&r->m[i]);
	r->tid[i] = self();
	pthread_barrier_wait(&r->all);
	take_second(&r->m[(i + 1) % r->n]);
	return 0;
}

static void ring(const char *kind, int n, int processes) {
	pthread_mutexattr_t a;
	pthread_barrierattr_t b;
	r = mmap(0, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	must(r != MAP_FAILED, "mmap");
	pthread_mutexattr_init(&a);
	pthread_barrierattr_init(&b);
	if (strstr(kind, "recursive"))
		pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
	if (strstr(kind, "check"))
		pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
	if (strstr(kind, "robust"))
		pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	if (strstr(kind, "pi"))
		pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
#ifdef __GLIBC__
	if (strstr(kind, "adaptive"))
		pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
	if (processes) {
		pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
		pthread_barrierattr_setpshared(&b, PTHREAD_PROCESS_SHARED);
	}
	r->n = n;
	for (int i = 0; i < n; i++)
		must(pthread_mutex_init(&r->m[i], &a) == 0, "mutex");
	pthread_barrier_init(&r->all, &b, n);
	for (int i = 0; i < n; i++) {
		pthread_t t;
		if (!processes)
			pthread_create(&t, 0, in_ring, (void *)(intptr_t)i);
		else if (child() == 0) {
			in_ring((void *)(intptr_t)i);
			_exit(0);
		}
	}
	for (int i = 0; i < n; i++) {
		while (!r->tid[i])
			usleep(1000);
		asleep(r->tid[i], SYS_futex);
	}
	// The barrier sleeps in the same call: wait until the locks are what it is.
	for (int i = 0; i < n; i++)
		for (;;) {
			char path[64], line[256];
			unsigned long a0 = 0;
			snprintf(path, sizeof path, "/proc/%d/syscall", r->tid[i]);
			FILE *f = fopen(path, "r");
			int ok = f && fgets(line, sizeof line, f) && sscanf(line, "%*d %lx", &a0) == 1;
			if (f)
				fclose(f);
			unsigned long m = (unsigned long)&r->m[(i + 1) % n];
			if (ok && a0 >= m && a0 < m + sizeof(pthread_mutex_t))
				break;
			// The kernel refuses the last of a ring of priority-inheriting locks:
			// glibc then sleeps on a word of its stack.
			unsigned long all = (unsigned long)&r->all;
			if (ok && strstr(kind, "pi") && !(a0 >= all && a0 < all + sizeof r->all))
				break;
			usleep(1000);
		}
	tell("ring");
	for (int i = 0; i < n; i++)
		tell(" %d", r->tid[i]);
	tell("\n");
	for (int i = 0; i < n; i++)
		tell("waits %d mutex %#lx %d\n", r->tid[i], (unsigned long)&r->m[(i + 1) % n], r->tid[(i + 1) % n]);
}

// Single waits: a thread goes there, the main thread holds what it wants.
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static sem_t sem;
static volatile int tids[8192], count;
static pthread_t joined;
static int fds[2], efd;
static int word = 7;

static void never(void) {
	for (;;)
		pause();
}

static void handles(int signal) { (void)signal; }

static void here(void) {
	int id = self();
	tids[__sync_fetch_and_add(&count, 1)] = id;
}

static void *wants_mutex(void *a) { here(); pthread_mutex_lock(&mu); return a; }
static void *wants_this(void *m) { here(); pthread_mutex_lock(m); return m; }
static void *wants_timed(void *a) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += 1000;
	here();
	pthread_mutex_timedlock(&mu, &t);
	return a;
}
static void *wants_cond(void *a) { pthread_mutex_lock(&mu); here(); pthread_cond_wait(&cond, &mu); return a; }
static void *wants_write(void *a) { here(); pthread_rwlock_wrlock(&rw); return a; }
static void *wants_read(void *a) { here(); pthread_rwlock_rdlock(&rw); return a; }
static void *wants_sem(void *a) { here(); sem_wait(&sem); return a; }
static void *wants_barrier(void *a) { here(); pthread_barrier_wait(&barrier); return a; }
static void *wants_once(void *a) { here(); pthread_once(&once, never); return a; }
static void *sleeps(void *a) { here(); never(); return a; }
static void *wants_join(void *a) { here(); pthread_join(joined, 0); return a; }
static void *wants_word(void *a) { here(); syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 7, 0, 0, 0); return a; }
static void *reads(void *a) { char c[8]; here(); read(fds[0], c, 8); return a; }
static void *writes(void *a) { static char b[1 << 20]; here(); write(fds[1], b, sizeof b); return a; }
static void *polls(void *a) { struct pollfd p[2] = {{efd, POLLIN, 0}, {fds[0], POLLIN, 0}}; here(); poll(p, 2, -1); return a; }
static void *epolls(void *a) { struct epoll_event e; here(); epoll_wait(efd, &e, 1, -1); return a; }
static void *flocks(void *a) { here(); flock(efd, LOCK_EX); return a; }
static void *fcntls(void *a) { struct flock l = {.l_type = F_WRLCK}; here(); fcntl(efd, F_SETLKW, &l); return a; }
static void *waits4(void *a) { here(); waitpid(*(int *)a, 0, 0); return a; }
static void *semops(void *a) { struct sembuf b = {1, -2, 0}; here(); semop(*(int *)a, &b, 1); return a; }
static void *naps(void *a) { struct timespec t = {5000, 0}; here(); nanosleep(&t, 0); return a; }
static void *sigwaits(void *a) { sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR1); sigaddset(&s, SIGTERM); here(); sigwaitinfo(&s, 0); return a; }
static void *dies_with_mutex(void *a) { here(); pthread_mutex_lock(&mu); return a; }

static void go(void *(*f)(void *), void *arg, long nr) {
	pthread_t t;
	pthread_attr_t a;
	int before = count;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 64 << 10);
	must(pthread_create(&t, &a, f, arg) == 0, "pthread_create");
	while (!tids[before])
		sched_yield();
	if (nr >= 0)
		asleep(tids[before], nr);
	joined = t;
}

// hard: threads that lock hard and never deadlock: each takes two or three of eight
// mutexes of all types in ascending order, and sleeps with them now and then, seldom
// for longer than two looks are apart; two processes that send each other a byte to and fro.
static pthread_mutex_t ordered[8];

static void *locks_hard(void *arg) {
	unsigned seed = (intptr_t)arg * 7919 + 1;
	for (;;) {
		int a = rand_r(&seed) % 6, b = a + 1 + rand_r(&seed) % (6 - a), c = b < 7 ? 7 : b;
		pthread_mutex_lock(&ordered[a]);
		pthread_mutex_lock(&ordered[b]);
		if (rand_r(&seed) % 4 == 0 && c > b) {
			pthread_mutex_lock(&ordered[c]);
			usleep(rand_r(&seed) % 16 ? rand_r(&seed) % 30000 : 300000);
			pthread_mutex_unlock(&ordered[c]);
		} else if (rand_r(&seed) % 4 == 0) {
			usleep(rand_r(&seed) % 3000);
		}
		pthread_mutex_unlock(&ordered[b]);
		pthread_mutex_unlock(&ordered[a]);
	}
	return arg;
}

static void hard(int n) {
	for (int i = 0; i < 8; i++) {
		pthread_mutexattr_t a;
		pthread_mutexattr_init(&a);
		pthread_mutexattr_settype(&a, (int[]){PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK}[i % 3]);
		if (i == 3)
			pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
		if (i == 5)
			pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
		must(pthread_mutex_init(&ordered[i], &a) == 0, "mutex");
	}
	int p[2];
	must(socketpair(AF_UNIX, SOCK_STREAM, 0, p) == 0, "socketpair");
	for (int i = 0; i < 2; i++)
		if (child() == 0) {
			char c = 0;
			close(p[!i]);
			if (i)
				write(p[i], &c, 1);
			while (read(p[i], &c, 1) == 1) {
				usleep(c * 40);
				c++;
				write(p[i], &c, 1);
			}
			_exit(0);
		}
	close(p[0]);
	close(p[1]);
	for (int i = 0; i < n; i++) {
		pthread_t t;
		must(pthread_create(&t, 0, locks_hard, (void *)(intptr_t)i) == 0, "pthread_create");
	}
}

#ifdef SYS_poll
#define POLL SYS_poll
#define EPOLL SYS_epoll_wait
#define PAUSE SYS_pause
#else
#define POLL SYS_ppoll
#define EPOLL SYS_epoll_pwait
#define PAUSE SYS_ppoll
#endif
#define SEMOP SYS_semtimedop // glibc's semop(3) since 2.31
#define SLEEP SYS_clock_nanosleep

// tcp_connect makes a connection, p[0], that waits to be accepted by p[1], which listens.
static void tcp_connect(int p[2], int address) {
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(address)};
	socklen_t n = sizeof a;
	p[1] = socket(AF_INET, SOCK_STREAM, 0);
	must(bind(p[1], (void *)&a, n) == 0 && listen(p[1], 1) == 0 && getsockname(p[1], (void *)&a, &n) == 0, "listen");
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	p[0] = socket(AF_INET, SOCK_STREAM, 0);
	must(connect(p[0], (void *)&a, n) == 0, "connect");
}

static void tcp_pair(int p[2]) {
	tcp_connect(p, INADDR_LOOPBACK);
	int l = p[1];
	p[1] = accept(l, 0, 0);
	close(l);
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";
	int n = argc > 2 ? atoi(argv[2]) : 2, other, status;
	setpgid(0, 0);
	if (strncmp(what, "ring", 4) == 0) {
		ring(what, n, strstr(what, "shared") != 0);
	} else if (!strcmp(what, "hard")) {
		hard(n);
	} else if (!strcmp(what, "self")) {
		tell("ring %d\nwaits %d mutex %p %d\nready\n", getpid(), getpid(), (void *)&mu, getpid());
		pthread_mutex_lock(&mu);
		pthread_mutex_lock(&mu);
	} else if (!strcmp(what, "crowd")) { // n threads wait for a mutex whose owner reads from a pipe
		must(pipe(fds) == 0, "pipe");
		pthread_mutex_lock(&mu);
		for (int i = 0; i < n; i++)
			go(wants_mutex, 0, -1);
		for (int i = 0; i < n; i++)
			asleep(tids[i], SYS_futex);
		for (int i = 0; i < n; i++)
			tell("waits %d mutex %p %d\n", tids[i], (void *)&mu, getpid());
	} else if (!strcmp(what, "timed")) {
		pthread_mutex_lock(&mu);
		go(wants_timed, 0, SYS_futex);
		tell("waits %d mutex %p %d\n", tids[0], (void *)&mu, getpid());
	} else if (!strcmp(what, "locks")) {
		sem_init(&sem, 0, 0);
		pthread_barrier_init(&barrier, 0, 3);
		go(wants_cond, 0, SYS_futex);
		tell("free %d condition %p\n", tids[0], (void *)&cond);
		go(wants_sem, 0, SYS_futex);
		tell("free %d semaphore %p\n", tids[1], (void *)&sem);
		go(wants_barrier, 0, SYS_futex);
		tell("free %d barrier %p\n", tids[2], (void *)&barrier);
		pthread_rwlock_wrlock(&rw);
		go(wants_write, 0, SYS_futex);
		tell("waits %d read-write %p %d\n", tids[3], (void *)&rw, getpid());
		go(wants_read, 0, SYS_futex);
		tell("waits %d read-write %p %d\n", tids[4], (void *)&rw, getpid());
		go(sleeps, 0, PAUSE);
		go(wants_join, 0, SYS_futex);
		tell("waits %d end 0 %d\n", tids[6], tids[5]);
		go(wants_once, 0, PAUSE);
		go(wants_once, 0, SYS_futex);
		tell("free %d once %p\n", tids[8], (void *)&once);
	} else if (!strcmp(what, "lost")) { // the word changes, and nobody is woken
		go(wants_word, 0, SYS_futex);
		word = 0;
		tell("free %d futex %p\n", tids[0], (void *)&word);
		pthread_mutex_lock(&mu);
		go(wants_mutex, 0, SYS_futex);
		memset(&mu, 0, 12); // as an unlock without its wake-up leaves it
		tell("free %d mutex %p\n", tids[1], (void *)&mu);
	} else if (!strcmp(what, "dead")) {
		go(dies_with_mutex, 0, -1);
		pthread_join(joined, 0);
		go(wants_mutex, 0, SYS_futex);
		tell("free %d mutex %p\n", tids[1], (void *)&mu);
		for (int i = 1; i < n; i++)
			go(wants_mutex, 0, SYS_futex);
	} else if (!strcmp(what, "pipe")) { // a writer to a full pipe whose reader is stopped
		must(pipe(fds) == 0, "pipe");
		if ((other = child()) == 0) {
			close(fds[1]);
			never();
		}
		kill(other, SIGSTOP);
		waitpid(other, &status, WUNTRACED);
		close(fds[0]);
		go(writes, 0, SYS_write);
		tell("fd %d pipe %d %d\n", tids[0], fds[1], other);
	} else if (!strcmp(what, "stopped")) { // the owner of a mutex is in another process, which is stopped
		pthread_mutexattr_t a;
		pthread_mutex_t *m = mmap(0, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		must(m != MAP_FAILED, "mmap");
		pthread_mutexattr_init(&a);
		pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
		must(pthread_mutex_init(m, &a) == 0, "mutex");
		if ((other = child()) == 0) {
			pthread_mutex_lock(m);
			raise(SIGSTOP);
			never();
		}
		waitpid(other, &status, WUNTRACED);
		go(wants_this, m, SYS_futex);
		tell("waits %d mutex %p %d\nstopped %d\n", tids[0], (void *)m, other, other);
	} else if (!strcmp(what, "namespaces")) {
		// Two processes are each number 1 of a pid namespace. Both share the first mutex, which one holds and the other wants;
		// the second, which the holder shares with a process out here, names it alone.
		pthread_mutexattr_t a;
		struct ring *s[2];
		pthread_mutexattr_init(&a);
		pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
		for (int i = 0; i < 2; i++) {
			s[i] = mmap(0, sizeof *s[i], PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
			must(s[i] != MAP_FAILED && pthread_mutex_init(s[i]->m, &a) == 0, "mutex");
		}
		for (int i = 0; i < 2; i++) {
			if (child() == 0) {
				must(unshare(CLONE_NEWPID | (geteuid() ? CLONE_NEWUSER : 0)) == 0, "unshare");
				int pid = fork();
				if (pid == 0) {
					prctl(PR_SET_PDEATHSIG, SIGKILL);
					if (i == 0)
						pthread_mutex_lock(s[1]->m);
					else
						munmap(s[1], sizeof *s[1]);
					pthread_mutex_lock(s[0]->m);
					s[0]->n++;
					never();
				}
				s[0]->tid[i] = pid;
				never();
			}
			while (!s[0]->tid[i] || !s[0]->n)
				usleep(1000);
		}
		asleep(s[0]->tid[1], SYS_futex);
		tell("free %d mutex %p\n", s[0]->tid[1], (void *)s[0]->m);
		go(wants_this, s[1]->m, SYS_futex);
		tell("waits %d mutex %p %d\n", tids[0], (void *)s[1]->m, s[0]->tid[0]);
	} else if (!strcmp(what, "silent")) { // a connection to a process that does not answer
		tcp_pair(fds);
		if ((other = child()) == 0) {
			close(fds[0]);
			never();
		}
		close(fds[1]);
		go(reads, 0, SYS_read);
		tell("fd %d tcp %d %d\n", tids[0], fds[0], other);
	} else if (!strcmp(what, "backlog")) { // a connection that a process which listens on all addresses does not accept
		tcp_connect(fds, INADDR_ANY);
		if ((other = child()) == 0) {
			close(fds[0]);
			never();
		}
		close(fds[1]);
		go(reads, 0, SYS_read);
		tell("fd %d accepted %d %d\n", tids[0], fds[0], other);
	} else if (!strcmp(what, "unix") || !strcmp(what, "tcp")) { // two processes that wait for each other
		if (!strcmp(what, "unix"))
			must(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0, "socketpair");
		else
			tcp_pair(fds);
		int other2, first = child();
		char c;
		if (first == 0) {
			close(fds[1]);
			read(fds[0], &c, 1);
			_exit(0);
		}
		if ((other2 = child()) == 0) {
			close(fds[0]);
			read(fds[1], &c, 1);
			_exit(0);
		}
		close(fds[0]);
		close(fds[1]);
		asleep(first, SYS_read);
		asleep(other2, SYS_read);
		tell("fd %d %s %d %d\nfd %d %s %d %d\n", first, what, fds[0], other2, other2, what, fds[1], first);
		tell("ring %d %d\n", first, other2);
	} else if (!strcmp(what, "handlers")) {
		// Readers of pipes whose writing ends they have themselves: one that the end of its child wakes up, one that may write to it when SIGTERM comes.
		// And two that wait for each other, of which the first has nobody else to be woken up by.
		int *tid = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), p[2][2];
		char c;
		must(tid != MAP_FAILED, "mmap");
		for (int i = 0; i < 3; i++) {
			if ((other = child()) == 0) {
				struct sigaction a = {.sa_handler = handles};
				sigaction(i == 1 ? SIGTERM : SIGCHLD, &a, 0);
				must(pipe(p[0]) == 0 && pipe(p[1]) == 0, "pipe");
				if (i != 1 && (other = child()) == 0) {
					close(p[0][0]);
					close(p[1][1]);
					if (i == 0) {
						close(p[0][1]);
						close(p[1][0]);
						never();
					}
					read(p[1][0], &c, 1);
					_exit(0);
				}
				if (i == 2) {
					tid[3] = other;
					close(p[0][1]);
					close(p[1][0]);
				}
				read(p[0][0], &c, 1);
				_exit(0);
			}
			tid[i] = other;
		}
		while (!*(volatile int *)&tid[3])
			usleep(1000);
		for (int i = 0; i < 4; i++)
			asleep(tid[i], SYS_read);
		tell("fd %d pipe 0 %d\nfd %d pipe 0 %d\n", tid[0], tid[0], tid[1], tid[1]);
		tell("fd %d pipe 0 %d\nfd %d pipe 0 %d\nring %d %d\n", tid[2], tid[3], tid[3], tid[2], tid[2], tid[3]);
	} else if (!strcmp(what, "fds")) {
		must(pipe(fds) == 0, "pipe");
		efd = eventfd(0, 0);
		go(reads, 0, SYS_read);
		tell("fd %d pipe %d %d\n", tids[0], fds[0], getpid());
		go(polls, 0, POLL);
		tell("fd %d eventfd %d 0\n", tids[1], efd);
		efd = epoll_create1(0);
		go(epolls, 0, EPOLL);
		tell("fd %d nothing %d 0\n", tids[2], efd);
		int t = timerfd_create(CLOCK_MONOTONIC, 0);
		struct itimerspec in = {.it_value = {5000, 0}};
		timerfd_settime(t, 0, &in, 0);
		fds[0] = t;
		go(reads, 0, SYS_read);
		tell("fd %d timerfd %d 0\n", tids[3], t);
		go(naps, 0, SLEEP);
		tell("fd %d sleeps 0 0\n", tids[4]);
		go(sigwaits, 0, SYS_rt_sigtimedwait);
		tell("fd %d SIGUSR1 0 0\n", tids[5]);
	} else if (!strcmp(what, "file")) { // flock and fcntl locks that a child holds
		char name[] = "/tmp/sfsample-stuck-XXXXXX";
		struct flock l = {.l_type = F_WRLCK};
		int f = mkstemp(name), ready[2], g;
		char c;
		must(pipe(ready) == 0, "pipe");
		if ((other = child()) == 0) {
			g = open(name, O_RDWR);
			flock(g, LOCK_EX);
			fcntl(g, F_SETLKW, &l);
			write(ready[1], "x", 1);
			never();
		}
		read(ready[0], &c, 1);
		unlink(name);
		efd = f;
		go(flocks, 0, SYS_flock);
		tell("fd %d flock %d %d\n", tids[0], f, other);
		go(fcntls, 0, SYS_fcntl);
		tell("fd %d fcntl %d %d\n", tids[1], f, other);
	} else if (!strcmp(what, "children")) {
		if ((other = child()) == 0)
			never();
		int zombie = child();
		if (zombie == 0)
			_exit(0);
		siginfo_t info;
		waitid(P_PID, zombie, &info, WEXITED | WNOWAIT);
		go(waits4, &other, SYS_wait4);
		tell("fd %d child 0 %d\nzombie %d\n", tids[0], other, zombie);
		int id = semget(IPC_PRIVATE, 2, 0600);
		go(semops, &id, SEMOP);
		tell("fd %d semaphore 1 0\n", tids[1]);
		tell("ready\n");
		char c;
		while (read(0, &c, 1) > 0)
			;
		semctl(id, 0, IPC_RMID);
		kill(other, SIGKILL);
		_exit(0);
	} else if (!strcmp(what, "mixed")) { // main joins a thread that waits for what main holds
		pthread_mutex_lock(&mu);
		go(wants_mutex, 0, SYS_futex);
		tell("ring %d %d\nwaits %d mutex %p %d\nready\n", getpid(), tids[0], tids[0], (void *)&mu, getpid());
		pthread_join(joined, 0);
	} else {
		fprintf(stderr, "unknown case %s\n", what);
		return 2;
	}
	end_with_input();
}
