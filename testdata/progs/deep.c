/*
 * deep: a stack of known functions with frames of four kinds.
 *
 *     deep HOW DEPTH
 *
 * calls DEPTH functions (plain, wide, saver, flex, plain, ...) and then one
 * that never returns: spin (HOW = s), block (b: in a system call) or park (p:
 * spins with values in as many registers as there are, and on arm64 and s390x
 * with the return address elsewhere than in its register).
 *
 * Before that it prints its stack, outermost first, and that it is there:
 *
 *     stack _start main plain wide ... spin
 *     ready
 *
 * With -DPROGRAM this is only main, with -DLIBRARY only the rest.
 */
#include "deep.h"

#ifndef PROGRAM

static char line[65536];
static unsigned used;
volatile word spins;
/* Always set, which the compiler does not know: a function that cannot return
 * need not save the registers that it changes. */
volatile int going = 1;

FRAME void note(const char *name)
{
	while (*name && used < sizeof line - 16)
		line[used++] = *name++;
	line[used++] = ' ';
}

/* flush prints the line and that the next call is the last one. */
FRAME void flush(void)
{
	line[used - 1] = '\n';
	for (const char *s = "ready\n"; *s;)
		line[used++] = *s++;
	if (sys(write, 1, line, used) != (long)used)
		die(1);
}

/* A leaf: no frame at all where the ABI lets it. */
FRAME void spin(void)
{
	while (going)
		spins++;
}

FRAME void block(void)
{
	while (going)
		wait_for_ever();
}

#if defined(__s390x__)
#define CLOBBER_RETURN __asm__ volatile("" : : : "r14", "r11")
#elif defined(__aarch64__)
#define CLOBBER_RETURN __asm__ volatile("" : : : "x30")
#else
#define CLOBBER_RETURN __asm__ volatile("")
#endif

/* A leaf that needs all registers: on s390x the compiler moves r14, r11 and
 * others to floating-point registers instead of the stack. */
FRAME void park(void)
{
	word a = spins, b = a + 1, c = a ^ 2, d = a + 3, e = a ^ 4, f = a + 5;
	word g = a ^ 6, h = a + 7;

	CLOBBER_RETURN;
	while (going) {
		a += b, b ^= c, c += d, d ^= e, e += f, f ^= g, g += h, h ^= a;
		spins = a;
		__asm__ volatile("" : "+r"(b), "+r"(d), "+r"(f), "+r"(h));
	}
}

INLINE int bottom(int how)
{
	switch (how) {
	case 's':
		note("spin");
		flush();
		spin();
		break;
	case 'p':
		note("park");
		flush();
		park();
		break;
	default:
		note("block");
		flush();
		block();
	}
	return 0;
}

static int wide(int depth, int how);
static int saver(int depth, int how);
static int flex(int depth, int how);

FRAME int plain(int depth, int how)
{
	note("plain");
	return (depth > 1 ? wide(depth - 1, how) : bottom(how)) + 1;
}

/* A frame of 600 bytes: offsets that need more than a byte. */
FRAME static int wide(int depth, int how)
{
	volatile char room[600];

	note("wide");
	room[0] = depth;
	return (depth > 1 ? saver(depth - 1, how) : bottom(how)) + room[0];
}

/* Values that live across the call, in callee-saved registers. */
FRAME static int saver(int depth, int how)
{
	word a = spins, b = spins, c = spins, d = spins, e = spins;
	int r;

	note("saver");
	r = depth > 1 ? flex(depth - 1, how) : bottom(how);
	spins = a ^ b ^ c ^ d ^ e;
	return r + 1;
}

/* A frame of a size known at run time only: the CFA is found by the frame
 * pointer, whatever the options say. */
FRAME static int flex(int depth, int how)
{
	volatile char *room = __builtin_alloca(16 + (depth & 7) * 16);

	note("flex");
	room[0] = depth;
	return (depth > 1 ? plain(depth - 1, how) : bottom(how)) + room[0];
}

#endif
#ifndef LIBRARY

START;

FRAME int main(int argc, char **argv)
{
	unsigned depth = argc > 2 ? number(argv[2]) : 4;

	note("stack");
	note("_start");
	note("main");
	die(plain(depth < 1 ? 1 : depth > 8000 ? 8000 : depth, argc > 1 ? argv[1][0] : 'b'));
}

#endif
