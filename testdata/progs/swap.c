/*
 * swap: two libraries in turn at one address.
 *
 *     swap STAY_MS[,SECOND_MS] LOG FIRST SECOND [move [PLACES]]
 *
 * maps FIRST, calls the function at its ELF entry address, which spins for
 * STAY_MS milliseconds, unmaps it, does the same with SECOND (for SECOND_MS), and so on until
 * SIGTERM. With move, both stay mapped: SECOND is moved to where FIRST is, and that aside, and back. With PLACES, FIRST is mapped
 * that often, and they take turns, SECOND's half way round. LOG is mapped and shared: the number of stays so far, and for each
 * which library it was (0 or 1) and when it began and ended, in nanoseconds of
 * CLOCK_MONOTONIC. A library is mapped for the whole of its stay.
 *
 * With -DLIBRARY=alpha (or another name) this is a library: alpha_outer, at the
 * entry address, calls alpha_mid and that alpha_leaf. -DROOM makes their frames
 * larger, at the same addresses. They have .sframe and no .eh_frame.
 */
#ifdef LIBRARY

#define NAME2(lib, f) lib##_##f
#define NAME1(lib, f) NAME2(lib, f)
#define NAME(f) NAME1(LIBRARY, f)
#define FRAME __attribute__((noipa))

__asm__(".cfi_sections .sframe");

/* What lies in the frames looks like return addresses to who has wrong rows. */
#define DECOYS volatile void *decoys[2 + ROOM]; \
	for (int i = 0; i < 2 + ROOM; i++) \
		decoys[i] = __builtin_return_address(0)

static FRAME long NAME(leaf)(volatile int *go)
{
	DECOYS;
	while (*go)
		decoys[0] = (char *)decoys[0];
	return 0;
}

static FRAME long NAME(mid)(volatile int *go)
{
	DECOYS;
	return NAME(leaf)(go) + (long)decoys[1];
}

FRAME long NAME(outer)(volatile int *go)
{
	DECOYS;
	return NAME(mid)(go) + (long)decoys[1];
}

#else

#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define AT ((char *)0x200000000)
#define ASIDE(n) (AT + (1 + (n)) * 0x1000000L)
#define PLACE(n) (AT + (n) * 0x10000000L)
#define MAX_PLACES 64
#define ROOM (1 << 20)
#define PAGE 0x10000L
#define STAYS 100000

struct log {
	volatile unsigned long count;
	struct { unsigned long which, from, to; } stays[STAYS];
};

static volatile int go, over;
static struct timespec stay_time;
static sem_t begun;

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void end(int sig)
{
	(void)sig;
	over = 1;
}

static unsigned long now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000UL + t.tv_nsec;
}

static void *clock_thread(void *unused)
{
	for (;;) {
		while (sem_wait(&begun) != 0)
			;
		nanosleep(&stay_time, NULL);
		go = 0;
	}
	return unused;
}

/*
 * load maps the segments of a library at base and returns its entry address there, or moves them
 * there from another place.
 */
static void *load(int fd, char *base, char *from)
{
	Elf64_Ehdr e;
	Elf64_Phdr p[16];
	check(pread(fd, &e, sizeof e, 0) == sizeof e && e.e_phnum <= 16, "ELF header");
	check(pread(fd, p, e.e_phnum * sizeof *p, e.e_phoff) == (ssize_t)(e.e_phnum * sizeof *p), "program headers");
	for (int i = 0; i < e.e_phnum; i++) {
		if (p[i].p_type != PT_LOAD)
			continue;
		long skew = p[i].p_vaddr % PAGE;
		int prot = (p[i].p_flags & PF_R ? PROT_READ : 0) | (p[i].p_flags & PF_W ? PROT_WRITE : 0) |
			(p[i].p_flags & PF_X ? PROT_EXEC : 0);
		if (from)
			check(mremap(from + p[i].p_vaddr - skew, p[i].p_filesz + skew, p[i].p_filesz + skew,
				     MREMAP_MAYMOVE | MREMAP_FIXED, base + p[i].p_vaddr - skew) != MAP_FAILED, "mremap");
		else
			check(mmap(base + p[i].p_vaddr - skew, p[i].p_filesz + skew, prot, MAP_PRIVATE | MAP_FIXED, fd,
				   p[i].p_offset - skew) != MAP_FAILED, "mmap");
	}
	return base + e.e_entry;
}

static __attribute__((noipa)) long stay(long (*f)(volatile int *), struct log *log, unsigned long which)
{
	unsigned long n = log->count % STAYS;
	log->stays[n].which = which;
	log->stays[n].to = 0;
	log->stays[n].from = now();
	go = 1;
	log->count++;
	sem_post(&begun);
	long r = f(&go);
	log->stays[n].to = now();
	return r + 1;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	int move = argc >= 6 && argc <= 7 && strcmp(argv[5], "move") == 0;
	int places = argc == 7 ? atoi(argv[6]) : 1;
	check(places >= 1 && places <= MAX_PLACES, "places");
	int fd = argc == 5 || move ? open(argv[2], O_RDWR | O_CREAT, 0600) : -1;
	check(fd >= 0 && ftruncate(fd, sizeof(struct log)) == 0, "log");
	struct log *log = mmap(NULL, sizeof *log, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(log != MAP_FAILED, "log");
	long ms[2];
	switch (sscanf(argv[1], "%ld,%ld", &ms[0], &ms[1])) {
	case 1: ms[1] = ms[0];
	}
	int libs[2] = {open(argv[3], O_RDONLY), open(argv[4], O_RDONLY)};
	check(libs[0] >= 0 && libs[1] >= 0, "libraries");
	signal(SIGTERM, end);
	check(sem_init(&begun, 0, 0) == 0, "semaphore");
	void *first[MAX_PLACES];
	for (int n = 0; move && n < places; n++)
		first[n] = load(libs[0], PLACE(n), NULL);
	if (move)
		load(libs[1], ASIDE(1), NULL);
	check(pthread_create(&thread, NULL, clock_thread, NULL) == 0, "thread");
	puts("ready");
	fflush(stdout);
	for (unsigned long n = 0; !over; n++) {
		int which = n % 2;
		stay_time.tv_sec = ms[which] / 1000;
		stay_time.tv_nsec = ms[which] % 1000 * 1000000;
		int place = (n / 2 + which * (places / 2)) % places;
		char *at = PLACE(place);
		if (move && which == 1)
			load(libs[0], ASIDE(0), at);
		void *f = move && which == 0 ? first[place] : load(libs[which], at, move ? ASIDE(1) : NULL);
		stay((long (*)(volatile int *))f, log, which);
		if (!move) {
			munmap(at, ROOM);
		} else if (which == 1) {
			load(libs[1], ASIDE(1), at);
			load(libs[0], at, ASIDE(0));
		}
	}
	puts("done");
	return 0;
}

#endif
