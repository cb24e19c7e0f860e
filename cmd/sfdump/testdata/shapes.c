// Functions of several shapes for tables to describe: leaf, frame, frame pointer,
// realigned stack, cold part, linkage table, outermost. The program says that it
// runs by one byte on its standard output and ends when its standard input does. It
// needs no C library.

static long syscall3(long nr, long a, long b, long c) {
#if defined __x86_64__
	long ret;
	__asm__ volatile("syscall" : "=a"(ret) : "a"(nr), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return ret;
#elif defined __aarch64__
	register long x8 __asm__("x8") = nr, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	return x0;
#else
	register long r1 __asm__("r1") = nr, r2 __asm__("r2") = a, r3 __asm__("r3") = b, r4 __asm__("r4") = c;
	__asm__ volatile("svc 0" : "+r"(r2) : "r"(r1), "r"(r3), "r"(r4) : "memory");
	return r2;
#endif
}

#if defined __x86_64__
enum { READ = 0, WRITE = 1, EXIT = 60 };
#elif defined __aarch64__
enum { READ = 63, WRITE = 64, EXIT = 93 };
#else
enum { READ = 3, WRITE = 4, EXIT = 1 };
#endif

#define NOINLINE __attribute__((noinline, noipa))

NOINLINE long leaf(long a, long b) { return a * b + (a ^ b); }

NOINLINE long keeps(long a, long b, long c, long d) {
	long x = leaf(a, b), y = leaf(c, d);
	return leaf(x, y) + leaf(y, a) + leaf(b, x) + c + d;
}

NOINLINE long dynamic(long n) {
	volatile char *p = __builtin_alloca(n);
	p[0] = 1;
	p[n - 1] = 2;
	return leaf(p[0], p[n - 1]);
}

NOINLINE long aligned(long n) {
	volatile long v[8] __attribute__((aligned(64)));
	for (int i = 0; i < 8; i++)
		v[i] = leaf(n, i);
	return v[n & 7];
}

NOINLINE __attribute__((cold)) long seldom(long n) { return keeps(n, n, n, n) + 1; }

NOINLINE long branches(long n) {
	long r = keeps(n, 1, 2, 3);
	if (__builtin_expect(r == 42, 0))
		return seldom(r) + aligned(r);
	return r + dynamic((n & 31) + 1);
}

NOINLINE long waits(void) {
	char c = 's';
	syscall3(WRITE, 1, (long)&c, 1);
	while (syscall3(READ, 0, (long)&c, 1) > 0)
		;
	return c;
}

__attribute__((used)) void start(void) {
	long r = branches(7) + aligned(3);
	r += waits();
	syscall3(EXIT, 0, r, 0);
	for (;;)
		;
}

#if defined __x86_64__
__asm__(".globl _start\n.type _start,@function\n_start:\n.cfi_startproc\n.cfi_undefined rip\n"
	"xor %ebp,%ebp\nand $-16,%rsp\ncall start\nhlt\n.cfi_endproc\n.size _start,.-_start");
#elif defined __aarch64__
__asm__(".globl _start\n.type _start,@function\n_start:\n.cfi_startproc\n.cfi_undefined x30\n"
	"bl start\nbrk 0\n.cfi_endproc\n.size _start,.-_start");
#else
__asm__(".globl _start\n.type _start,@function\n_start:\n.cfi_startproc\n.cfi_undefined r14\n"
	"aghi %r15,-160\nbrasl %r14,start\n.long 0\n.cfi_endproc\n.size _start,.-_start");
#endif
