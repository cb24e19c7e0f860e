// A function that recurses over segments of the stack: built with -fsplit-stack,
// gcc has each segment allocated apart, and goes on there by __morestack.
// split N stops itself, N calls deep.

#include <signal.h>
#include <stdlib.h>

__attribute__((noinline)) long down(int n)
{
	volatile char b[2000];
	b[n] = 1;
	if (n == 0)
		raise(SIGSTOP);
	else
		b[n] = (char)down(n - 1);
	return b[n];
}

int main(int argc, char **argv)
{
	return (int)down(argc > 1 ? atoi(argv[1]) : 0);
}
