/*
 * handler: a stack with signal handlers in it.
 *
 *     handler HOW
 *
 * HOW k: the signal comes in a system call. l: it comes in the middle of a leaf
 * function, by an instruction that does not exist. a: the same, and the handler
 * has a stack of its own. n: as k, and in that handler as l. The innermost
 * handler blocks. It prints its stack, with the trampoline between a handler
 * and what it interrupted, and "ready".
 */
#include "signal.h"

static char alternate[16384] __attribute__((aligned(16)));
volatile int going = 1; /* always set, which the compiler does not know */
static int nested;

FRAME static void block(void)
{
	while (going)
		wait_for_ever();
}

/* A leaf: where the ABI lets it, the return address is in a register only. */
FRAME static void trap_in_leaf(void)
{
	going += 2;
	ILLEGAL;
	going -= 2;
}

FRAME static void before_leaf(void)
{
	volatile char room[40];

	room[0] = 1;
	trap_in_leaf();
	going += room[0];
}

FRAME static void kill_self(void)
{
	long pid = sys(getpid), tid = sys(gettid);

	while (going)
		sys(tgkill, pid, tid, SIGUSR1);
}

FRAME static void on_last(int sig, void *info, void *context)
{
	volatile char room[72];

	(void)sig, (void)info, (void)context;
	text(" " TRAMPOLINE " on_last block");
	text_end();
	text("ready");
	text_end();
	room[0] = 1;
	block();
	going += room[0];
}

FRAME static void on_first(int sig, void *info, void *context)
{
	if (!nested) {
		on_last(sig, info, context);
		going++;
		return;
	}
	text(" " TRAMPOLINE " on_first before_leaf trap_in_leaf");
	before_leaf();
	going++;
}

START;

FRAME int main(int argc, char **argv)
{
	char how = argc > 1 ? argv[1][0] : 'k';
	struct { void *base; int flags; word size; } stack = { alternate, 0, sizeof alternate };

	if (how == 'a' && sys(sigaltstack, &stack, 0) < 0)
		die(3);
	nested = how == 'n';
	handle(SIGUSR1, nested ? on_first : on_last, 0);
	handle(SIGILL, on_last, SA_ONSTACK);
	text("stack _start main");
	if (how == 'k' || how == 'n') {
		text(" kill_self");
		kill_self();
	} else {
		text(" before_leaf trap_in_leaf");
		before_leaf();
	}
	going++;
	die(1);
}
