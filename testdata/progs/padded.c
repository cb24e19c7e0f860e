// A function without a table that never returns, behind zeros, called through memory, as the main part of a program of Free Pascal
// is: main, looper, spin. x86-64.

#include <stdio.h>

extern void looper(void);
void (*part)(void) = looper;

__asm__(
	".text; .balign 16; .skip 16, 0\n"
	"looper: push %rbx; sub $0x1a0, %rsp; xor %ebx, %ebx\n"
	"1: mov $1000000, %edi; call spin; jmp 1b\n"
	".size looper, . - looper; .type looper, @function; .balign 16, 0\n"
	"spin: dec %edi; jnz spin; ret\n"
	".size spin, . - spin; .type spin, @function\n");

int main(void)
{
	puts("ready");
	fflush(stdout);
	part();
	return 0;
}
