/*
 * altstack: signal handlers on an alternate stack, called deep.
 *
 *     altstack HOW DEPTH
 *
 * calls DEPTH functions, then a leaf in which an instruction that does not
 * exist raises a signal, whose handler has a stack of its own. HOW s: that
 * handler spins. n: a further signal comes in it, by a system call, whose handler
 * runs on the same stack and spins. b: as n, and that one blocks.
 * It prints its stack, with the trampoline between a handler and what it
 * interrupted, and "ready".
 */
#include "signal.h"

static char alternate[32768] __attribute__((aligned(16)));
volatile int going = 1; /* always set, which the compiler does not know */
static int how;

FRAME static void spin(void)
{
	while (going)
		;
}

FRAME static void block(void)
{
	while (going)
		wait_for_ever();
}

FRAME static void rest(const char *name, void (*f)(void))
{
	text(" rest ");
	text(name);
	text_end();
	text("ready");
	text_end();
	f();
	going++;
}

FRAME static void on_last(int sig, void *info, void *context)
{
	(void)sig, (void)info, (void)context;
	text(" " TRAMPOLINE " on_last");
	if (how == 'b')
		rest("block", block);
	else
		rest("spin", spin);
	going++;
}

FRAME static void kill_self(void)
{
	long pid = sys(getpid), tid = sys(gettid);

	while (going)
		sys(tgkill, pid, tid, SIGUSR1);
}

FRAME static void on_first(int sig, void *info, void *context)
{
	volatile char room[72];

	(void)sig, (void)info, (void)context;
	text(" " TRAMPOLINE " on_first");
	room[0] = 1;
	if (how == 's') {
		rest("spin", spin);
	} else {
		text(" kill_self");
		kill_self();
	}
	going += room[0];
}

/* A leaf: where the ABI lets it, the return address is in a register only. */
FRAME static void trap_in_leaf(void)
{
	going += 2;
	ILLEGAL;
	going -= 2;
}

FRAME static int down(int n)
{
	volatile char room[200];

	text(" down");
	room[0] = n;
	if (n > 1) {
		room[1] = down(n - 1);
	} else {
		text(" trap_in_leaf");
		trap_in_leaf();
	}
	return room[0] + room[1];
}

START;

FRAME int main(int argc, char **argv)
{
	struct { void *base; int flags; word size; } stack = { alternate, 0, sizeof alternate };
	unsigned depth = argc > 2 ? number(argv[2]) : 4;

	how = argc > 1 ? argv[1][0] : 's';
	if (sys(sigaltstack, &stack, 0) < 0)
		die(3);
	handle(SIGILL, on_first, SA_ONSTACK);
	handle(SIGUSR1, on_last, SA_ONSTACK);
	text("stack _start main");
	going += down(depth < 1 ? 1 : depth > 600 ? 600 : depth);
	die(1);
}
