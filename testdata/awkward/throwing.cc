// throwing.cc: C++ exceptions in flight, through frames with destructors, out
// of callbacks, and rethrown. c++ -O2 -o throwing throwing.cc
#include <cstdlib>
#include <stdexcept>
#include <string>

#define NOINLINE __attribute__((noinline))

volatile int sink;

struct Noted {
	int n;
	explicit Noted(int n) : n(n) { sink += n; }
	NOINLINE ~Noted() { sink -= n; }
};

NOINLINE static int deep(int n)
{
	Noted a(n);
	if (n == 0)
		throw std::runtime_error("bottom");
	return deep(n - 1) + a.n;
}

NOINLINE static int rethrowing(int n)
{
	try {
		return deep(n);
	} catch (const std::exception &e) {
		sink += e.what()[0];
		throw;
	}
}

static int throwing_compare(const void *, const void *) { throw 7; }

NOINLINE static int through_c(int n)
{
	int v[3] = {n, 2, 1};
	try {
		std::qsort(v, 3, sizeof v[0], throwing_compare);
	} catch (int i) {
		return i;
	}
	return 0;
}

int main(int argc, char **argv)
{
	long rounds = argc > 1 ? std::strtol(argv[1], nullptr, 10) : -1;
	for (long i = 0; i != rounds; i++) {
		try {
			sink += rethrowing(i % 5);
		} catch (const std::runtime_error &e) {
			sink += std::string(e.what()).size();
		}
		sink += through_c(i);
	}
}
