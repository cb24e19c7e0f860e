/*
 * hole: a stack with pages that nobody has ever written, right above the stack
 * pointer and further up: large buffers of which nothing is used.
 *
 *     hole HOW WHERE
 *
 * HOW spin: runs there; wait: is blocked there. WHERE mapped: the stack was once
 * larger; below: its mapping ends above the stack pointer. It prints "ready" first.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FRAME __attribute__((noipa))

static volatile int going = 1;

static FRAME void grow(void)
{
	volatile char deep[512 << 10];
	deep[0] = 1;
}

static FRAME void innermost(int wait)
{
	char unused[64 << 10];
	__asm__ volatile("" : : "r"(unused) : "memory");
	while (going)
		if (wait)
			pause();
}

static FRAME void above(int wait)
{
	char unused[96 << 10];
	__asm__ volatile("" : : "r"(unused) : "memory");
	innermost(wait);
	going++;
}

static FRAME void top(int wait)
{
	above(wait);
	going++;
}

int main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[2], "mapped") == 0)
		grow();
	puts("ready");
	fflush(stdout);
	top(argc > 1 && strcmp(argv[1], "wait") == 0);
	return 0;
}
