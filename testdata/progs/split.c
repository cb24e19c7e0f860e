// A function that recurses over segments of the stack: built with -fsplit-stack,
// gcc has each segment allocated apart, and goes on there by __morestack.
// split N stops itself, N calls deep; split N s runs there for ever, from SIGUSR1 on.

#include <signal.h>
#include <stdlib.h>

static volatile unsigned long turns;
static volatile int begun;
static int spins;

static void begin(int sig) { begun = sig; }

__attribute__((noinline)) static void idle(void)
{
	while (!begun)
		turns++;
	turns++; // no tail call
}

__attribute__((noinline)) static void spin(void)
{
	for (;;)
		turns++;
}

__attribute__((noinline)) long down(int n)
{
	volatile char b[2000];
	b[n] = 1;
	if (n == 0 && spins)
		spin();
	else if (n == 0)
		raise(SIGSTOP);
	else
		b[n] = (char)down(n - 1);
	return b[n];
}

int main(int argc, char **argv)
{
	spins = argc > 2;
	if (spins) {
		signal(SIGUSR1, begin);
		idle();
	}
	return (int)down(argc > 1 ? atoi(argv[1]) : 0);
}
