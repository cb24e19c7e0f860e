// Functions of which the compiler splits a piece off: built with -O2, gcc puts
// the paths to cold functions elsewhere, as NAME.cold.

#include <stdio.h>
#include <stdlib.h>

__attribute__((cold, noinline)) void complain(const char *what, long n)
{
	fprintf(stderr, "%s %ld\n", what, n);
}

__attribute__((noinline)) long first(long n, char **v)
{
	long sum = 0;
	char *buf[4];
	for (long i = 0; i < n; i++) {
		buf[i & 3] = v[i];
		sum += strtol(buf[i & 3], NULL, 10);
		if (sum < 0) {
			complain("negative", sum);
			complain("at", i);
			sum = labs(sum);
		}
	}
	return sum;
}

__attribute__((noinline)) long second(long n, char **v)
{
	char *p = malloc(n * 8 + 64);
	if (!p) {
		complain("no memory", n);
		complain("for", n * 8);
		return first(n, v) + 2;
	}
	long r = first(n, v) * (p[0] + 1);
	if (r == 4711)
		abort();
	free(p);
	return r;
}

int main(int n, char **v)
{
	long r = second(n - 1, v + 1) + first(n - 1, v + 1);
	printf("%ld\n", r);
	return r == 5;
}
