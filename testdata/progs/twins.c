// twins OTHER: works for about half a millisecond in a function that its name tells, and becomes OTHER, which becomes it, and so on. Two are built from
// this: with -DTWIN=castor -DREST=castor_rest, and with -DTWIN=pollux -DREST=pollux_rest -DBEHIND. What one works in is at the place of the other's rest, which never runs:
// neither program is where the kernel likes. It prints "ready" at first.
#include <stdio.h>
#include <sys/personality.h>
#include <unistd.h>

#define WORK(name) \
	__attribute__((noinline, noclone, used)) int name(int n) { \
		for (volatile int i = 0; i < n; i++) \
			; \
		return n + 1; \
	}

#ifdef BEHIND
WORK(REST)
WORK(TWIN)
#else
WORK(TWIN)
WORK(REST)
#endif

int main(int argc, char **argv) {
	if (argc < 2)
		return 2;
	if (argc == 2) {
		if (personality(ADDR_NO_RANDOMIZE) < 0)
			return 3;
		puts("ready");
		fflush(stdout);
	}
	int n = TWIN(1000000);
	execl(argv[1], argv[1], argv[0], "on", (char *)0);
	return n > 0;
}
