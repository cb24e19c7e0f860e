/* opens KIND [SECONDS]: a program that runs in a file of its own, which nobody else may open unpunished. */
#include "target.h"
#include <fcntl.h>
#include <link.h>
#include <sys/fanotify.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* work takes no address of anything: it runs wherever it lies. */
static long __attribute__((noinline)) work(long n)
{
	volatile long sum = 0;
	while (n-- > 0)
		sum += n;
	return sum;
}

static int file;
static long (*copy)(long);

/* offset_of finds where work lies in the program's file. */
static int offset_of(struct dl_phdr_info *i, size_t size, void *offset)
{
	uintptr_t at = (uintptr_t)work - i->dlpi_addr;
	for (int n = 0; n < i->dlpi_phnum; n++) {
		const ElfW(Phdr) *p = &i->dlpi_phdr[n];
		if (p->p_type == PT_LOAD && at - p->p_vaddr < p->p_filesz)
			*(uintptr_t *)offset = at - p->p_vaddr + p->p_offset;
	}
	return 1; /* the program is the first */
}

/* own_file maps a copy of the program, which lies beside it. */
static const char *own_file(void)
{
	static char name[4096];
	static char b[1 << 20];
	uintptr_t offset = 0;
	ssize_t n = readlink("/proc/self/exe", name, sizeof name - 32);
	if (n < 0)
		die("exe");
	sprintf(name + n, ".%d", getpid());
	int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC), out = open(name, O_WRONLY | O_CREAT | O_EXCL, 0755);
	if ((n = read(self, b, sizeof b)) <= 0 || write(out, b, n) != n)
		die("a copy of the program");
	close(self);
	close(out);
	file = open(name, O_RDONLY | O_CLOEXEC);
	char *m = mmap(0, n, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
	dl_iterate_phdr(offset_of, &offset);
	if (m == MAP_FAILED || !offset)
		die("map the copy");
	copy = (long (*)(long))(m + offset);
	return name;
}

/* lease: whoever opens the file breaks a lease, and the signal that tells so kills */
static void lease_begin(void)
{
	own_file();
	if (fcntl(file, F_SETLEASE, F_WRLCK))
		die("a lease");
}
static void lease_turn(void)
{
	copy(100000);
	check(fcntl(file, F_GETLEASE) == F_WRLCK);
}

/* fanotify: who opens the file has to wait for a permission that never comes; reads: who reads it */
static void listen_for(uint64_t what)
{
	const char *name = own_file();
	copy(1); /* it is in memory */
	int f = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY);
	if (f < 0 || fanotify_mark(f, FAN_MARK_ADD, what, AT_FDCWD, name))
		die("fanotify");
}
static void fanotify_begin(void) { listen_for(FAN_OPEN_PERM); }
static void reads_begin(void) { listen_for(FAN_ACCESS_PERM); }
static void fanotify_turn(void) { check(copy(100000) > 0); }

static const struct kind list[] = {
	{ "lease", lease_turn, lease_begin },
	{ "fanotify", fanotify_turn, fanotify_begin },
	{ "reads", fanotify_turn, reads_begin },
	{ 0, 0, 0 },
};

int main(int argc, char **argv) { return drive(list, argc, argv); }
