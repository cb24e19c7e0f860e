// stuck KIND [N]: a thread that waits for what does not come, and N more that wait
// in poll. KIND is
//
//   vfork  for the child of a vfork
//   uffd   for a page that userfaultfd(2) is to fill
//   fuse   for a page of a file whose FUSE server does not answer
//
// Prints "ready" once the thread waits, and ends when standard input does. Exit
// status 77: KIND is not to be had here.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void lacks(const char *what) {
	perror(what);
	exit(77);
}

static void must(int ok, const char *what) {
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static volatile long waiter; // thread id

static void *in_vfork(void *arg) {
	waiter = syscall(SYS_gettid);
	if (vfork() == 0) {
		char c;
		while (read(0, &c, 1) > 0)
			;
		_exit(0);
	}
	return arg;
}

static void *in_fault(void *arg) {
	waiter = syscall(SYS_gettid);
	return (void *)(uintptr_t)*(volatile char *)arg;
}

static void *in_poll(void *arg) {
	poll(0, 0, -1);
	return arg;
}

static void start(void *(*f)(void *), void *arg) {
	pthread_t t;
	pthread_attr_t a;
	must(!pthread_attr_init(&a) && !pthread_attr_setstacksize(&a, 256 << 10) && !pthread_create(&t, &a, f, arg), "thread");
}

static void *unfilled(void) {
	size_t page = sysconf(_SC_PAGESIZE);
	int u = syscall(SYS_userfaultfd, O_CLOEXEC);
	struct uffdio_api api = {.api = UFFD_API};
	if (u < 0 || ioctl(u, UFFDIO_API, &api))
		lacks("userfaultfd");
	void *m = mmap(0, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct uffdio_register r = {.range = {(uintptr_t)m, page}, .mode = UFFDIO_REGISTER_MODE_MISSING};
	must(m != MAP_FAILED && !ioctl(u, UFFDIO_REGISTER, &r), "register");
	return m;
}

static int fuse;
static pid_t server;

static void answer(uint64_t id, int error, const void *body, size_t bytes) {
	char b[512];
	struct fuse_out_header h = {sizeof h + bytes, error, id};
	memcpy(b, &h, sizeof h);
	if (bytes)
		memcpy(b + sizeof h, body, bytes);
	must(write(fuse, b, h.len) == h.len || errno == ENOENT, "answer");
}

// serve has one file, node 2 of any name, and answers all but reads of it.
static void serve(void) {
	static char b[1 << 17];
	struct fuse_attr root = {.ino = 1, .mode = S_IFDIR | 0755, .nlink = 2};
	struct fuse_attr file = {.ino = 2, .size = 4096, .mode = S_IFREG | 0444, .nlink = 1};
	for (;;) {
		if (read(fuse, b, sizeof b) < 0) {
			if (errno == ENODEV)
				_exit(0);
			continue;
		}
		struct fuse_in_header *h = (void *)b;
		struct fuse_init_out init = {.major = 7, .minor = 31, .max_write = 4096};
		struct fuse_entry_out entry = {.nodeid = 2, .entry_valid = 1000, .attr_valid = 1000, .attr = file};
		struct fuse_attr_out attr = {.attr_valid = 1000, .attr = h->nodeid == 1 ? root : file};
		struct fuse_open_out open = {.fh = 1};
		switch (h->opcode) {
		case FUSE_INIT:
			answer(h->unique, 0, &init, sizeof init);
			break;
		case FUSE_LOOKUP:
			answer(h->unique, 0, &entry, sizeof entry);
			break;
		case FUSE_GETATTR:
			answer(h->unique, 0, &attr, sizeof attr);
			break;
		case FUSE_OPEN:
			answer(h->unique, 0, &open, sizeof open);
			break;
		case FUSE_READ:
		case FUSE_INTERRUPT:
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
			break;
		default:
			answer(h->unique, -ENOSYS, 0, 0);
		}
	}
}

// unanswered maps the file, in a mount namespace that ends with this process.
static void *unanswered(void) {
	char opt[64];
	if ((fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC)) < 0)
		lacks("/dev/fuse");
	if (unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0))
		lacks("a mount namespace");
	snprintf(opt, sizeof opt, "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
	if (mount("stuck", "/mnt", "fuse", MS_NOSUID | MS_NODEV, opt))
		lacks("mount a FUSE file system");
	server = fork();
	must(server >= 0, "fork");
	if (server == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(0);
		close(1);
		serve();
	}
	close(fuse); // with the server goes the last one, and with it all waiting
	int fd = open("/mnt/file", O_RDONLY);
	must(fd >= 0, "open");
	void *m = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	must(m != MAP_FAILED, "mmap");
	return m;
}

// rest keeps the thread that waits for the server when that is gone.
static void rest(int sig) {
	for (;;)
		pause();
}

// waits tells whether thread tid sleeps, or is gone: where standard input has ended
// already, so has what it waits for.
static int waits(long tid) {
	char path[64], state = 'S';
	snprintf(path, sizeof path, "/proc/self/task/%ld/stat", tid);
	FILE *f = fopen(path, "r");
	if (f) {
		fscanf(f, "%*d (%*[^)]) %c", &state);
		fclose(f);
	}
	return state == 'S' || state == 'D';
}

int main(int argc, char **argv) {
	if (argc < 2)
		return 2;
	void *(*f)(void *) = in_fault;
	void *arg = 0;
	if (strcmp(argv[1], "uffd") == 0)
		arg = unfilled();
	else if (strcmp(argv[1], "fuse") == 0)
		arg = unanswered();
	else
		f = in_vfork;
	for (int n = argc > 2 ? atoi(argv[2]) : 0; n > 0; n--)
		start(in_poll, 0);
	start(f, arg);
	while (!waiter || !waits(waiter))
		sched_yield();
	puts("ready");
	fflush(stdout);
	char c;
	while (read(0, &c, 1) > 0)
		;
	signal(SIGBUS, rest);
	if (server > 0 && !kill(server, SIGKILL))
		waitpid(server, 0, 0);
	_exit(0);
}
