/*
 * What the test programs need of the kernel, without a C library: system
 * calls, an entry point and a few text functions. One header, so that each
 * program is one file and its frames are its own.
 *
 * System call conventions: syscall(2), "Architecture calling conventions".
 */
#ifndef SYS_H
#define SYS_H

/* noipa: the compiler must not inline, clone or look into the function, so
 * that each call makes the frame that the source shows. */
#define FRAME __attribute__((noipa))
#define INLINE static inline __attribute__((always_inline))

typedef unsigned long word;

#if defined(__x86_64__)
enum { SYS_write = 1, SYS_exit_group = 231, SYS_ppoll = 271 };

INLINE long sys5(long n, word a, word b, word c, word d, word e)
{
	long r;
	register word r10 __asm__("r10") = d;
	register word r8 __asm__("r8") = e;
	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return r;
}

#elif defined(__i386__)
enum { SYS_write = 4, SYS_exit_group = 252, SYS_ppoll = 309 };

INLINE long sys5(long n, word a, word b, word c, word d, word e)
{
	long r;
	__asm__ volatile("int $0x80"
			 : "=a"(r)
			 : "a"(n), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
			 : "memory");
	return r;
}

#elif defined(__aarch64__)
enum { SYS_write = 64, SYS_exit_group = 94, SYS_ppoll = 73 };

INLINE long sys5(long n, word a, word b, word c, word d, word e)
{
	register word x8 __asm__("x8") = n;
	register word x0 __asm__("x0") = a;
	register word x1 __asm__("x1") = b;
	register word x2 __asm__("x2") = c;
	register word x3 __asm__("x3") = d;
	register word x4 __asm__("x4") = e;
	__asm__ volatile("svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4)
			 : "memory");
	return x0;
}

#elif defined(__s390x__)
enum { SYS_write = 4, SYS_exit_group = 248, SYS_ppoll = 302 };

INLINE long sys5(long n, word a, word b, word c, word d, word e)
{
	register word r1 __asm__("1") = n;
	register word r2 __asm__("2") = a;
	register word r3 __asm__("3") = b;
	register word r4 __asm__("4") = c;
	register word r5 __asm__("5") = d;
	register word r6 __asm__("6") = e;
	__asm__ volatile("svc 0"
			 : "+d"(r2)
			 : "d"(r1), "d"(r3), "d"(r4), "d"(r5), "d"(r6)
			 : "memory");
	return r2;
}
#endif

/* The outermost frame. Its return address is undefined where there are tables
 * to say so; the frame pointer and the back chain start at 0. */
#ifdef __GCC_HAVE_DWARF2_CFI_ASM
#define OUTERMOST(ra) ".cfi_startproc\n\t.cfi_undefined " ra "\n\t"
#define OUTERMOST_END ".cfi_endproc\n\t"
#else
#define OUTERMOST(ra)
#define OUTERMOST_END
#endif

#if defined(__x86_64__)
#define START                                                    \
	__asm__(".text\n\t.globl _start\n\t.type _start,@function\n" \
		"_start:\n\t" OUTERMOST("rip")                       \
		"xorl %ebp, %ebp\n\t"                                \
		"movq (%rsp), %rdi\n\t"                              \
		"leaq 8(%rsp), %rsi\n\t"                             \
		"andq $-16, %rsp\n\t"                                \
		"call main\n\t"                                      \
		"hlt\n\t" OUTERMOST_END                              \
		".size _start, .-_start\n")
#elif defined(__i386__)
#define START                                                    \
	__asm__(".text\n\t.globl _start\n\t.type _start,@function\n" \
		"_start:\n\t" OUTERMOST("eip")                       \
		"xorl %ebp, %ebp\n\t"                                \
		"movl (%esp), %eax\n\t"                              \
		"leal 4(%esp), %edx\n\t"                             \
		"andl $-16, %esp\n\t"                                \
		"subl $8, %esp\n\t"                                  \
		"pushl %edx\n\t"                                     \
		"pushl %eax\n\t"                                     \
		"call main\n\t"                                      \
		"hlt\n\t" OUTERMOST_END                              \
		".size _start, .-_start\n")
#elif defined(__aarch64__)
#define START                                                    \
	__asm__(".text\n\t.globl _start\n\t.type _start,@function\n" \
		"_start:\n\t" OUTERMOST("x30")                       \
		"mov x29, #0\n\t"                                    \
		"mov x30, #0\n\t"                                    \
		"ldr x0, [sp]\n\t"                                   \
		"add x1, sp, #8\n\t"                                 \
		"bl main\n\t"                                        \
		"brk #0\n\t" OUTERMOST_END                           \
		".size _start, .-_start\n")
#elif defined(__s390x__)
/* The back chain's place is 0(%r15), with -mpacked-stack 152(%r15). */
#define START                                                    \
	__asm__(".text\n\t.globl _start\n\t.type _start,@function\n" \
		"_start:\n\t" OUTERMOST("%r14")                      \
		"lg %r2, 0(%r15)\n\t"                                \
		"la %r3, 8(%r15)\n\t"                                \
		"aghi %r15, -160\n\t"                                \
		"xc 0(8,%r15), 0(%r15)\n\t"                          \
		"xc 152(8,%r15), 152(%r15)\n\t"                      \
		"brasl %r14, main\n\t"                               \
		"j .\n\t" OUTERMOST_END                              \
		".size _start, .-_start\n")
#endif

INLINE __attribute__((noreturn)) void die(int status)
{
	for (;;)
		sys5(SYS_exit_group, status, 0, 0, 0, 0);
}

/* wait_for_ever blocks: poll without descriptors and without a time limit,
 * a call that an interrupted kernel restarts by itself. */
INLINE void wait_for_ever(void)
{
	sys5(SYS_ppoll, 0, 0, 0, 0, 8);
}

/* number reads a decimal number, 0 when there is none. */
INLINE unsigned number(const char *s)
{
	unsigned n = 0;
	while (s && *s >= '0' && *s <= '9')
		n = n * 10 + (*s++ - '0');
	return n;
}

#endif
