/* memory KIND [SECONDS]: memory that changes, that does not come, and of which there is much. */
#include "target.h"
#include <elf.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static char *region;
enum { REGION = 1 << 20, PAGE = 4096 };

static void *map(size_t n)
{
	void *m = mmap(0, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED)
		die("map");
	return m;
}

/* deep spins at the end of a deep stack; nothing above it is touched. */
static volatile int for_ever = 1;
static void __attribute__((noinline)) deep(int n)
{
	volatile char room[1024];
	room[0] = n;
	if (n > 0)
		deep(n - 1);
	while (for_ever) {
		spin(100000);
		calls++;
	}
	room[1] = room[0];
}
static void *go_deep(void *arg) { deep(100); return arg; }

static void on_region(void)
{
	pthread_t t;
	pthread_attr_t a;
	region = map(REGION);
	pthread_attr_init(&a);
	pthread_attr_setstack(&a, region, REGION);
	pthread_create(&t, &a, go_deep, 0);
	while (!calls)
		usleep(100);
}

/* fault: pages in the middle of a stack go, and come only at the end of the turn, if at all */
static int uffd;
static char copy[PAGE] __attribute__((aligned(4096)));
static void uffd_with(uint64_t features, uint64_t mode)
{
	struct uffdio_api api = { .api = UFFD_API, .features = features };
	uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (uffd < 0)
		uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api))
		die("userfaultfd");
	on_region();
	struct uffdio_register r = { .range = { (uintptr_t)region, REGION }, .mode = UFFDIO_REGISTER_MODE_MISSING | mode };
	if (ioctl(uffd, UFFDIO_REGISTER, &r))
		die("UFFDIO_REGISTER");
}
static void uffd_begin(void) { uffd_with(0, 0); }
static void uffd_turn(void)
{
	char *p = region + REGION - 12 * PAGE;
	memcpy(copy, p, PAGE);
	madvise(p, PAGE, MADV_DONTNEED);
	usleep(2000);
	struct uffdio_copy c = { .dst = (uintptr_t)p, .src = (uintptr_t)copy, .len = PAGE };
	check(ioctl(uffd, UFFDIO_COPY, &c) == 0);
	usleep(500);
}
/* marker: such a page is write-protected too, which makes it look as if it were swapped out */
static void marker_begin(void)
{
	uffd_with(1 << 13 /* UFFD_FEATURE_WP_UNPOPULATED, Linux 6.4 */, UFFDIO_REGISTER_MODE_WP);
	char *p = region + REGION - 12 * PAGE;
	madvise(p, PAGE, MADV_DONTNEED);
	struct uffdio_writeprotect w = { .range = { (uintptr_t)p, PAGE }, .mode = UFFDIO_WRITEPROTECT_MODE_WP };
	if (ioctl(uffd, UFFDIO_WRITEPROTECT, &w))
		die("UFFDIO_WRITEPROTECT");
}

/* stands tells whether the thread on the region has stood still for longer than sampling may have it in any case. */
static int stands(void)
{
	long before = calls;
	int64_t begun = now_ns();
	while (calls == before && now_ns() - begun < 5000000000)
		usleep(1000);
	return now_ns() - begun > 1500000000; /* a second, and what a busy machine takes */
}
static void marker_turn(void)
{
	if (stands())
		wrong++;
}

/* race: such a page goes between the look whether it is there and the reading, in which it is left */
static void race_turn(void)
{
	char *p = region + REGION - 12 * PAGE;
	struct uffd_msg m;
	memcpy(copy, p, PAGE);
	madvise(p, PAGE, MADV_DONTNEED);
	spin(10000);
	if (read(uffd, &m, sizeof m) == sizeof m && stands())
		wrong++;
	struct uffdio_copy c = { .dst = (uintptr_t)p, .src = (uintptr_t)copy, .len = PAGE };
	if (ioctl(uffd, UFFDIO_COPY, &c))
		wrong++;
	spin(10000);
}
static void gone_turn(void)
{
	usleep(150000);
	madvise(region + REGION - 12 * PAGE, PAGE, MADV_DONTNEED);
	while (!stop)
		usleep(1000);
}

/* protect: the same pages lose and regain their rights, and are unmapped in the end */
static void protect_turn(void)
{
	char *p = region + REGION - 12 * PAGE;
	check(mprotect(p, 4 * PAGE, PROT_NONE) == 0);
	usleep(300);
	check(mprotect(p, 4 * PAGE, PROT_READ | PROT_WRITE) == 0);
	usleep(300);
}
static void unmap_turn(void)
{
	usleep(150000);
	if (region)
		munmap(region + REGION - 12 * PAGE, 8 * PAGE);
	region = 0;
}

/* churn: mappings come and go as fast as can be */
static void churn_turn(void)
{
	char *m = map(4 * PAGE);
	m[PAGE] = 1;
	check(mprotect(m + PAGE, PAGE, PROT_READ | PROT_EXEC) == 0);
	check(munmap(m, 4 * PAGE) == 0);
}

/* many: 20,000 mappings of one file, executable */
static void many_begin(void)
{
	int fd = open("/proc/self/exe", O_RDONLY);
	for (int i = 0; i < 20000; i++)
		if (mmap(0, PAGE, i & 1 ? PROT_READ | PROT_EXEC : PROT_READ, MAP_PRIVATE, fd, 0) == MAP_FAILED)
			die("20000 mappings");
}
static void spin_turn(void) { spin(100000); calls++; }

/* longpaths: 60,000 mappings of a file whose path has 3.8 KB: 230 MB of /proc/PID/maps */
static void longpaths_begin(void)
{
	char top[] = "/tmp/longpaths.XXXXXX", name[251];
	memset(name, 'd', 250);
	name[250] = 0;
	if (!mkdtemp(top) || chdir(top))
		die("a folder in /tmp");
	for (int i = 0; i < 15; i++)
		if (mkdir(name, 0700) || chdir(name))
			die("a deep folder");
	int fd = open("file", O_RDWR | O_CREAT, 0600);
	if (fd < 0 || ftruncate(fd, 2 * PAGE))
		die("a file with a long path");
	for (int i = 0; i < 60000; i++)
		if (mmap(0, PAGE, i & 1 ? PROT_READ | PROT_EXEC : PROT_READ, MAP_SHARED, fd, (i & 1) * PAGE) == MAP_FAILED)
			die("60000 mappings");
	/* the mappings keep their names */
	unlink("file");
	for (int i = 0; i < 15; i++)
		if (chdir("..") || rmdir(name))
			die("the folder's parent");
	if (chdir("/") || rmdir(top))
		die("the root");
}

/* perfmap: a map of names of 64 MB, and one that never ends */
static char path[64];
static void perfmap_begin(void)
{
	snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
	FILE *f = fopen(path, "w");
	if (!f)
		die("a perf map");
	for (int i = 0; i < 1500000; i++)
		fprintf(f, "%x 10 function_number_with_a_long_name_%d\n", 0x100000 + 16 * i, i);
	fclose(f);
	/* code of no file, so that the map is asked */
	region = mmap(0, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}
static void code_turn(void)
{
#ifdef __x86_64__
	static const unsigned char loop[] = { 0xb9, 0x40, 0x42, 0x0f, 0, 0xff, 0xc9, 0x75, 0xfc, 0xc3 }; /* count to 10^6 */
#elif defined __aarch64__
	static const unsigned loop[] = { 0x52800000 | 0xffff << 5, 0x71000400, 0x54ffffe1, 0xd65f03c0 };
#else
	static const unsigned char loop[] = { 0x07, 0xfe };
#endif
	memcpy(region, loop, sizeof loop);
	__builtin___clear_cache(region, region + sizeof loop);
	((void (*)(void))region)();
	calls++;
	if (stop)
		unlink(path);
}
static void fifomap_begin(void)
{
	snprintf(path, sizeof path, "/tmp/perf-%d.map", getpid());
	if (mkfifo(path, 0644))
		die("a fifo");
	region = mmap(0, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* elf: code of a file that calls itself a program: 65,535 program headers; sections that
   expand to much. */
static void run_file(int fd, size_t n)
{
	region = mmap(0, n, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	if (region == MAP_FAILED)
		die("map a program");
}
static void jump_turn(void)
{
	((void (*)(void))(region + PAGE))();
	calls++;
}
static void put_loop(int fd)
{
#ifdef __x86_64__
	static const unsigned char loop[] = { 0xb9, 0x40, 0x42, 0x0f, 0, 0xff, 0xc9, 0x75, 0xfc, 0xc3 };
	pwrite(fd, loop, sizeof loop, PAGE);
#else
	(void)fd;
	die("x86 code");
#endif
}
static int elf_file(int phnum)
{
	int fd = memfd_create("program", 0);
	Elf64_Ehdr h = { .e_ident = { 0x7f, 'E', 'L', 'F', 2, 1, 1 }, .e_type = ET_DYN, .e_machine = EM_X86_64, .e_version = 1,
	                 .e_phoff = 2 * PAGE, .e_ehsize = sizeof h, .e_phentsize = sizeof(Elf64_Phdr), .e_phnum = phnum };
	ftruncate(fd, 2 * PAGE + phnum * sizeof(Elf64_Phdr));
	pwrite(fd, &h, sizeof h, 0);
	for (int i = 0; i < phnum; i++) {
		Elf64_Phdr p = { .p_type = i & 1 ? PT_LOAD : PT_NOTE, .p_flags = PF_R | PF_X, .p_filesz = 1 << 20, .p_memsz = 1 << 20, .p_offset = 0 };
		pwrite(fd, &p, sizeof p, 2 * PAGE + i * sizeof p);
	}
	put_loop(fd);
	return fd;
}
static void phdrs_begin(void) { run_file(elf_file(65000), 2 * PAGE); }

/* bomb: sections that are small and expand to so much, put into the program beside
   this one. */
static void bomb(const char *size, const char *how)
{
	char dir[] = "/tmp/attackXXXXXX", cmd[600];
	if (!mkdtemp(dir))
		die("a folder");
	snprintf(cmd, sizeof cmd, "cd %s && truncate -s %s big && cp /proc/%d/exe prog && %s && rm big*", dir, size, getpid(), how);
	int rc = system(cmd);
	snprintf(cmd, sizeof cmd, "%s/prog", dir);
	if (rc || access(cmd, X_OK)) {
		snprintf(cmd, sizeof cmd, "rm -rf %s", dir);
		system(cmd);
		die("a bomb");
	}
	int in[2];
	if (pipe(in))
		die("pipe");
	sampled = fork();
	if (!sampled) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(in[0], 0);
		close(in[1]);
		close(1);
		execl(cmd, "prog", "spin", NULL);
		_exit(1);
	}
	usleep(50000);
	snprintf(path, sizeof path, "%s", dir);
}
static void xz_begin(void) { bomb("900M", "xz -0 -k big && objcopy --strip-all --add-section .gnu_debugdata=big.xz prog"); }
/* Sections are compressed when they are read: in a call of its own. The flag C is SHF_COMPRESSED. */
static void zlib_begin(void)
{
	bomb("600M", "objcopy --strip-all --add-section .debug_info=big --add-section .debug_line=big --add-section .debug_abbrev=big prog && "
	     "objcopy --compress-debug-sections=zlib prog && [ $(readelf -SW prog | grep -c '\\.debug_.* C ') = 3 ]");
}
static void bomb_turn(void)
{
	usleep(1000);
	check(kill(sampled, 0) == 0);
	if (stop) {
		char cmd[128];
		snprintf(cmd, sizeof cmd, "rm -rf %s", path);
		system(cmd);
	}
}

/* frozen: a process in a control group that is frozen and thawed */
static void write_to(const char *file, const char *text)
{
	char p[160];
	snprintf(p, sizeof p, "%s/%s", path, file);
	int fd = open(p, O_WRONLY);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		wrong++;
	close(fd);
}
static int until[2];
static void frozen_begin(void)
{
	char pid[16];
	const char *roots[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
	int made = -1;
	for (int i = 0; i < 2 && made; i++) {
		snprintf(path, sizeof path, "%s/cgroup.procs", roots[i]);
		if (access(path, W_OK) == 0) {
			snprintf(path, sizeof path, "%s/attack%d", roots[i], getpid());
			made = mkdir(path, 0755);
		}
	}
	if (made)
		die("a control group");
	sampled = fork();
	if (!sampled) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			spin(100000);
	}
	snprintf(pid, sizeof pid, "%d", sampled);
	write_to("cgroup.procs", pid);
	write_to("cgroup.freeze", "1");
	if (wrong) {
		kill(sampled, SIGKILL);
		errno = ENOTSUP;
		die("cgroup.freeze");
	}
}
static void frozen_turn(void)
{
	usleep(150000);
	write_to("cgroup.freeze", "0");
	usleep(3000);
	write_to("cgroup.freeze", "1");
	calls++;
	if (stop) {
		kill(sampled, SIGKILL);
		write_to("cgroup.freeze", "0");
		waitpid(sampled, 0, 0);
		rmdir(path);
		sampled = 0;
	}
}

/* core: a process whose core dump is under way: there is much to write */
static void core_begin(void)
{
	char pattern[64] = "";
	int fd = open("/proc/sys/kernel/core_pattern", O_RDONLY);
	read(fd, pattern, sizeof pattern - 1);
	close(fd);
	if (pattern[0] == '|' || strchr(pattern, '/'))
		die("a core file");
	region = map(256 << 20);
	memset(region, 1, 256 << 20);
	if (pipe(until))
		die("pipe");
	sampled = fork();
	if (!sampled) {
		char dir[] = "/tmp/attackXXXXXX";
		struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
		setrlimit(RLIMIT_CORE, &all);
		if (!mkdtemp(dir) || chdir(dir))
			_exit(1);
		prctl(PR_SET_DUMPABLE, 1);
		write(until[1], dir, sizeof dir);
		spin(50000000);
		abort();
	}
	char dir[32];
	read(until[0], dir, sizeof dir);
	snprintf(path, sizeof path, "%s", dir);
}
static void core_turn(void)
{
	usleep(20000);
	calls++;
	if (stop) {
		char cmd[128];
		int st;
		/* what is sampled does not change what it ends by */
		check(waitpid(sampled, &st, 0) == sampled && WIFSIGNALED(st) && WTERMSIG(st) == SIGABRT);
		snprintf(cmd, sizeof cmd, "rm -rf %s", path);
		system(cmd);
		sampled = 0;
	}
}

/* pivot: the stack pointer is nowhere */
static void pivot_turn(void)
{
#ifdef __x86_64__
	__asm__ volatile("mov %%rsp, %%r12; xor %%esp, %%esp; mov $20000, %%ecx; 1: dec %%ecx; jnz 1b; "
	                 "mov $-8, %%rsp; mov $20000, %%ecx; 1: dec %%ecx; jnz 1b; mov %%r12, %%rsp" ::: "rcx", "r12", "cc", "memory");
#endif
	calls++;
}

static const struct kind list[] = {
	{ "spin", spin_turn, 0 },
	{ "fault", uffd_turn, uffd_begin },
	{ "gone", gone_turn, uffd_begin },
	{ "marker", marker_turn, marker_begin },
	{ "race", race_turn, uffd_begin },
	{ "protect", protect_turn, on_region },
	{ "unmap", unmap_turn, on_region },
	{ "churn", churn_turn, 0 },
	{ "many", spin_turn, many_begin },
	{ "longpaths", spin_turn, longpaths_begin },
	{ "perfmap", code_turn, perfmap_begin },
	{ "fifomap", code_turn, fifomap_begin },
	{ "phdrs", jump_turn, phdrs_begin },
	{ "debugdata", bomb_turn, xz_begin },
	{ "zlib", bomb_turn, zlib_begin },
	{ "frozen", frozen_turn, frozen_begin },
	{ "core", core_turn, core_begin },
	{ "pivot", pivot_turn, 0 },
	{ 0, 0, 0 },
};

int main(int argc, char **argv) { return drive(list, argc, argv); }
