/*
 * mixed: one stack through three objects that are unwound in three ways.
 *
 * The program (-DPROGRAM) has SFrame, its first library (-DFIRST) frame pointers
 * only (on s390x the back chain), its second (-DSECOND) .eh_frame; the second
 * calls back into the program, which blocks. Prints its stack and "ready".
 */
#include "sys.h"

typedef int callback(int);
int first_outer(callback *back, int n);
int second_outer(callback *back, int n);

#if defined(FIRST)

FRAME static int first_inner(callback *back, int n)
{
	volatile char room[100];

	room[0] = n;
	return second_outer(back, n + 1) + room[0];
}

FRAME int first_outer(callback *back, int n)
{
	volatile char room[40];

	room[0] = n;
	return first_inner(back, n + 1) + room[0];
}

#elif defined(SECOND)

/* The frame is found by the frame pointer, which a caller without tables has
 * set up or left alone: what a walk knows of that register matters here. */
FRAME static int second_inner(callback *back, int n)
{
	volatile char *room = __builtin_alloca(16 + n * 16);

	room[0] = n;
	return back(n + 1) + room[0];
}

FRAME int second_outer(callback *back, int n)
{
	volatile char room[60];

	room[0] = n;
	return second_inner(back, n + 1) + room[0];
}

#else

volatile int going = 1; /* always set, which the compiler does not know */

FRAME static void block(void)
{
	while (going)
		wait_for_ever();
}

FRAME static int back(int n)
{
	volatile char room[24];

	room[0] = n;
	text("stack _start main through first_outer first_inner second_outer second_inner back block");
	text_end();
	text("ready");
	text_end();
	block();
	return room[0];
}

/* As second_inner: the row of this caller needs the frame pointer. */
FRAME static int through(int n)
{
	volatile char *room = __builtin_alloca(16 + n * 16);

	room[0] = n;
	return first_outer(back, n + 1) + room[0];
}

START;

FRAME int main(int argc, char **argv)
{
	(void)argv;
	die(through(argc));
}

#endif
