// Spins in a function whose table is wrong: it pushes a register and does not say so, as
// glibc's memcpy for i386 does. x86-64.

#include <stdio.h>

volatile int stop;
void wrong(void);

__asm__(
	".type wrong, @function\n"
	"wrong: .cfi_startproc\n"
	"push %rax\n"
	"1: cmpl $0, stop(%rip)\n"
	"je 1b\n"
	"pop %rax\n"
	"ret\n"
	".cfi_endproc\n"
	".size wrong, .-wrong\n");

__attribute__((noinline)) void outer(void)
{
	wrong();
	stop = 0;
}

int main(void)
{
	puts("ready");
	fflush(stdout);
	outer();
	return 0;
}
