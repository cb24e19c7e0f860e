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

// Its piece begins with code that a table of addresses alone leads to.
__attribute__((noinline)) long table(long n, char **v)
{
	static void *const to[] = {&&again, &&odd, &&end};
	long sum = 0;
	goto *to[n & 1];
again:
	sum += strtol(v[n], NULL, 10);
	if (sum == 7)
		goto seven;
	if (sum == 8)
		goto eight;
	if (sum == 9)
		goto nine;
	if (sum == 10)
		goto ten;
	goto *to[n-- & 1 ? 2 : sum & 1];
odd:
	__attribute__((cold));
	complain("odd", n);
	goto *to[n-- > 4 ? 0 : 2];
seven:
	complain("seven", n);
	goto again;
eight:
	complain("eight", n);
	goto *to[sum & 1];
nine:
	complain("nine", n);
	goto again;
ten:
	complain("ten", n);
end:
	return sum;
}

int main(int n, char **v)
{
	long r = second(n - 1, v + 1) + first(n - 1, v + 1) + (n > 20 ? table(n, v) : 0);
	printf("%ld\n", r);
	return r == 5;
}
