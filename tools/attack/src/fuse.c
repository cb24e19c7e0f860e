/* fuse WHAT [SECONDS]: a program that works, and a FUSE server that answers nothing
   any more. WHAT is what lies there: program, the program's own file; library, a
   file that it has mapped for execution; data, the page behind a stack; stack, pages in
   the middle of it; replace, what comes to lie over the beginning of a library; overlay, a
   library on an overlay above that server; loop, the program's own file on a disk that is a file there; exec, what a
   thread of it is to become by exec.

   A thread spins and counts; calls is how often it came round. Beside an exec that does not end
   another process spins, and is to be sampled, too; stood_us is for how long it has stood still at most. With ATTACK_UID in its
   environment it gives up root for that user once the file system is mounted. */
#include "target.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fuse.h>
#include <linux/loop.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

enum { STACK = 1 << 20, PAGE = 4096 };
static int dev, file, unread, direct; /* unread: no read is ever answered; direct: the kernel keeps nothing of the file */
static struct stat st;
static volatile sig_atomic_t silent;

static void fall_silent(int sig) { (void)sig; silent = 1; }

static void answer(uint64_t id, int error, const void *body, size_t n)
{
	static char b[(1 << 17) + 64];
	struct fuse_out_header h = { sizeof h + n, error, id };
	memcpy(b, &h, sizeof h);
	if (n)
		memcpy(b + sizeof h, body, n);
	if (!silent && write(dev, b, h.len) < 0 && errno != ENOENT)
		_exit(1);
}

/* serve has one file, of any name: the program, and zeros behind it. */
static void serve(void)
{
	static char b[1 << 18], data[1 << 17];
	struct fuse_attr root = { .ino = 1, .mode = S_IFDIR | 0755, .nlink = 2 };
	struct fuse_attr attr = { .ino = 2, .size = st.st_size, .blocks = st.st_blocks, .mode = S_IFREG | 0755, .nlink = 1 };
	for (;;) {
		if (read(dev, b, sizeof b) < 0) {
			if (errno == ENODEV)
				_exit(0);
			continue;
		}
		struct fuse_in_header *h = (void *)b;
		struct fuse_read_in *r = (void *)(h + 1);
		struct fuse_init_out init = { .major = 7, .minor = 31, .max_write = 4096 };
		struct fuse_entry_out entry = { .nodeid = 2, .attr = attr };
		struct fuse_attr_out a = { .attr = h->nodeid == 1 ? root : attr };
		struct fuse_open_out open = { .fh = 1, .open_flags = direct ? FOPEN_DIRECT_IO : 0 };
		switch (h->opcode) {
		case FUSE_INIT:
			answer(h->unique, 0, &init, sizeof init);
			break;
		case FUSE_LOOKUP:
			answer(h->unique, 0, &entry, sizeof entry);
			break;
		case FUSE_GETATTR:
			answer(h->unique, 0, &a, sizeof a);
			break;
		case FUSE_OPEN:
			answer(h->unique, 0, &open, sizeof open);
			break;
		case FUSE_READ: {
			if (unread)
				break;
			/* A short answer ends the file (fuse_short_read, fs/fuse/file.c). */
			off_t left = st.st_size - (off_t)r->offset, n = r->size < sizeof data ? r->size : sizeof data;
			memset(data, 0, sizeof data);
			if (pread(file, data, n, r->offset) < 0 || left < 0)
				left = 0;
			answer(h->unique, 0, data, n < left ? n : left);
			break;
		}
		case FUSE_STATFS: {
			struct fuse_statfs_out f = { .st = { .namelen = 255, .bsize = 4096 } };
			answer(h->unique, 0, &f, sizeof f);
			break;
		}
		case FUSE_INTERRUPT:
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
			break;
		default:
			answer(h->unique, -ENOSYS, 0, 0);
		}
	}
}

static void __attribute__((noinline)) turn(void)
{
	spin(1000000);
	calls++;
}

static volatile int for_ever = 1;
static void *work(void *arg)
{
	while (for_ever)
		turn();
	return arg;
}

/* stack_of makes a stack whose last page is of the file. */
static void *stack_of(int fd)
{
	char *m = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED || mmap(m + STACK - PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED)
		die("map a stack");
	return m;
}

/* deep has a hundred frames above work. */
static void __attribute__((noinline)) deep(int n)
{
	volatile char room[1024];
	room[0] = n;
	if (n > 0)
		deep(n - 1);
	else
		work(0);
	room[1] = room[0];
}
static void *work_deep(void *arg) { deep(100); return arg; }

/* forget drops what the middle of the frames holds: to be read again it must come from the file. */
static void forget(int fd, char *stack)
{
	while (!calls)
		usleep(100);
	if (madvise(stack + STACK - 16 * PAGE, 4 * PAGE, MADV_DONTNEED) || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED))
		die("drop pages");
}

/* image makes file a file system that has the program as x. */
static void image(void)
{
	char command[80];
	int to, disk = memfd_create("disk", 0);
	if (disk < 0 || ftruncate(disk, 4 << 20) || mount("attack", "/mnt", "tmpfs", 0, 0))
		die("room for a file system");
	if ((to = open("/mnt/x", O_CREAT | O_WRONLY, 0755)) < 0 || sendfile(to, file, 0, st.st_size) != st.st_size || close(to))
		die("copy the program");
	snprintf(command, sizeof command, "mke2fs -q -F -t ext2 -d /mnt /proc/%d/fd/%d >/dev/null 2>&1", getpid(), disk);
	if (system(command))
		die("mke2fs");
	file = disk;
	fcntl(disk, F_SETFD, FD_CLOEXEC);
	if (fstat(disk, &st))
		die("fstat");
}

/* mount_disk mounts what the server has, as a disk, over it. The disk is no more when nobody has it mounted. */
static void mount_disk(void)
{
	char name[32];
	struct loop_config c = { .info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR };
	int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), loop, n;
	if (control < 0 || (n = open("/mnt/x", O_RDONLY | O_CLOEXEC)) < 0)
		die("/dev/loop-control");
	c.fd = n;
	do { /* another may take the one that is free */
		if ((n = ioctl(control, LOOP_CTL_GET_FREE)) < 0)
			die("a loop device");
		snprintf(name, sizeof name, "/dev/loop%d", n);
		if ((loop = open(name, O_RDONLY | O_CLOEXEC)) < 0)
			die(name);
		n = ioctl(loop, LOOP_CONFIGURE, &c);
	} while (n < 0 && errno == EBUSY && !close(loop));
	if (n < 0 || mount(name, "/mnt", "ext2", MS_RDONLY, 0))
		die("a disk in a file");
}

/* become gives up root for a user, if there is one. */
static void become(const char *user)
{
	uid_t uid = user ? atoi(user) : 0;
	if (user && (setgroups(0, 0) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid)))
		die("another user");
}

/* beginning is where libm begins. */
static void *beginning(void)
{
	Dl_info i;
	void *lib = dlopen("libm.so.6", RTLD_NOW), *f = lib ? dlsym(lib, "cos") : 0;
	if (!f || !dladdr(f, &i))
		die("libm");
	return i.dli_fbase;
}

/* become_it calls exec, which waits for the server. */
static void *become_it(void *arg)
{
	execl("/mnt/x", "x", NULL);
	return arg;
}

/* queued is for how long this process has waited for a CPU. */
static int64_t queued(int fd)
{
	char text[64] = "";
	long run, wait = 0;
	if (pread(fd, text, sizeof text - 1, 0) > 0)
		sscanf(text, "%ld %ld", &run, &wait);
	return wait;
}

/* An innocent spins, and notes what it was kept from that by something else than others on its CPU. */
static volatile int64_t *stood;
static pid_t innocent(void)
{
	stood = mmap(0, sizeof *stood, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (stood == MAP_FAILED)
		die("shared memory");
	pid_t parent = getpid(), pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int fd = open("/proc/self/schedstat", O_RDONLY);
	while (getppid() == parent) {
		int64_t begun = now_ns(), before = queued(fd);
		spin(1000000);
		int64_t more = now_ns() - begun - 1000000 - (queued(fd) - before);
		if (more > *stood)
			*stood = more;
	}
	_exit(0);
}

enum { LONG = 150000000 }; /* an innocent process is not to stand still for as long, in nanoseconds */

static void finish(pid_t server)
{
	printf("result calls=%ld wrong=%d stood_us=%ld\n", calls, stood && *stood > LONG, (long)(stood ? *stood / 1000 : 0));
	fflush(stdout);
	kill(server, SIGKILL);
	_exit(0);
}

int main(int argc, char **argv)
{
	char opt[80], id[16], *user = getenv("ATTACK_UID");
	pid_t server;
	if (argc < 2)
		return 2;
	if (!strcmp(argv[1], "worker")) { /* WHAT SERVER [SECONDS] */
		server = atoi(argv[3]);
	} else {
		if ((dev = open("/dev/fuse", O_RDWR | O_CLOEXEC)) < 0)
			die("/dev/fuse");
		file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
		if (file < 0 || fstat(file, &st))
			die("exe");
		if (!strcmp(argv[1], "stack"))
			st.st_size += STACK;
		/* The server stays outside: at its end it would wait for what it serves before it lets go of it (do_exit, kernel/exit.c). */
		int outside = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
		if (outside < 0 || unshare(CLONE_NEWNS) || mount(0, "/", 0, MS_REC | MS_PRIVATE, 0))
			die("a mount namespace");
		if ((direct = !strcmp(argv[1], "loop")))
			image();
		snprintf(opt, sizeof opt, "fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other", dev);
		if (mount("attack", "/mnt", "fuse", MS_NODEV, opt))
			die("mount a FUSE file system");
		struct sigaction sa = { .sa_handler = fall_silent, .sa_flags = SA_RESTART };
		sigaction(SIGUSR1, &sa, 0);
		server = fork();
		if (server == 0) {
			if (setns(outside, CLONE_NEWNS))
				_exit(1);
			become(user);
			prctl(PR_SET_PDEATHSIG, SIGKILL); /* another user's is forgotten (prctl(2)) */
			close(0);
			close(1);
			unread = !strcmp(argv[1], "exec");
			serve();
		}
		/* An overlay takes two layers, and hides the first one's mount here. */
		if (!strcmp(argv[1], "overlay") && mount("overlay", "/mnt", "overlay", MS_RDONLY, "lowerdir=/mnt:/etc"))
			die("mount an overlay");
		if (direct)
			mount_disk();
		become(user);
		snprintf(id, sizeof id, "%d", server);
		const char *self = strcmp(argv[1], "program") && !direct ? "/proc/self/exe" : "/mnt/x";
		execl(self, "fuse", "worker", argv[1], id, argv[2], NULL);
		die("exec");
	}
	const char *what = argv[2];
	int fd = -1;
	int on_disk = !strcmp(what, "loop");
	if (strcmp(what, "program") && (fd = open("/mnt/x", O_RDONLY)) < 0)
		die("/mnt/x");
	pthread_attr_t a;
	pthread_attr_init(&a);
	if ((!strcmp(what, "library") || !strcmp(what, "overlay")) && mmap(0, 1 << 14, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED)
		die("map");
	if (!strcmp(what, "data"))
		pthread_attr_setstack(&a, stack_of(fd), STACK - PAGE);
	char *region = strcmp(what, "stack") ? 0 : mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	if (region == MAP_FAILED)
		die("map a stack of the file");
	if (region)
		pthread_attr_setstack(&a, region, STACK);
	if ((!strcmp(what, "program") || on_disk) && mlockall(MCL_CURRENT))
		die("mlockall");
	if (on_disk && posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED)) /* what is not mapped */
		die("drop pages");
	int execs = !strcmp(what, "exec");
	pid_t other = execs ? innocent() : 0;
	pthread_t t;
	pthread_create(&t, &a, region ? work_deep : work, 0);
	if (region)
		forget(fd, region);
	if (execs)
		pthread_create(&t, &a, become_it, 0);
	else
		kill(server, SIGUSR1);
	usleep(20000);
	char *library = strcmp(what, "replace") ? 0 : beginning();
	if (other)
		printf("ready %d %d\n", getpid(), other);
	else
		puts("ready");
	fflush(stdout);
	if (library) {
		usleep(150000); /* by then sfsample knows what is there */
		if (mmap(library, PAGE, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED)
			die("replace");
	}
	if (argc > 4) {
		usleep(atof(argv[4]) * 1e6);
	} else {
		char line[16];
		while (fgets(line, sizeof line, stdin))
			;
	}
	finish(server);
}
