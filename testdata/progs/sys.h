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

/* System calls by number on x86-64, arm64 and s390x. */
#define SYSCALLS(X) \
	X(io_setup, 206, 0, 243) \
	X(io_getevents, 208, 4, 245) \
	X(semget, 64, 190, 393) \
	X(semctl, 66, 191, 394) \
	X(semtimedop, 220, 192, 392) \
	X(msgget, 68, 186, 399) \
	X(msgctl, 71, 187, 402) \
	X(msgrcv, 70, 188, 401) \
	X(clone, 56, 220, 120) \
	X(openat, 257, 56, 288) \
	X(close, 3, 57, 6) \
	X(read, 0, 63, 3) \
	X(write, 1, 64, 4) \
	X(gettid, 186, 178, 236) \
	X(getpid, 39, 172, 20) \
	X(tgkill, 234, 131, 241) \
	X(rt_sigaction, 13, 134, 174) \
	X(rt_sigprocmask, 14, 135, 175) \
	X(rt_sigtimedwait, 128, 137, 177) \
	X(rt_sigsuspend, 130, 133, 179) \
	X(rt_sigreturn, 15, 139, 173) \
	X(sigaltstack, 131, 132, 186) \
	X(clock_nanosleep, 230, 115, 262) \
	X(clock_gettime, 228, 113, 260) \
	X(timer_create, 222, 107, 254) \
	X(timer_settime, 223, 110, 255) \
	X(futex, 202, 98, 238) \
	X(epoll_create1, 291, 20, 327) \
	X(epoll_pwait, 281, 22, 312) \
	X(pselect6, 270, 72, 301) \
	X(ppoll, 271, 73, 302) \
	X(pipe2, 293, 59, 325) \
	X(socket, 41, 198, 359) \
	X(socketpair, 53, 199, 360) \
	X(bind, 49, 200, 361) \
	X(listen, 50, 201, 363) \
	X(accept4, 288, 242, 364) \
	X(recvfrom, 45, 207, 371) \
	X(setsockopt, 54, 208, 366) \
	X(flock, 73, 32, 143) \
	X(fcntl, 72, 25, 55) \
	X(wait4, 61, 260, 114) \
	X(memfd_create, 319, 279, 350) \
	X(prctl, 157, 167, 172) \
	X(sched_yield, 24, 124, 158) \
	X(execve, 59, 221, 11) \
	X(exit, 60, 93, 1) \
	X(exit_group, 231, 94, 248)
#if defined(__x86_64__)
#define X(name, amd64, arm64, s390x) SYS_##name = amd64,
#elif defined(__aarch64__)
#define X(name, amd64, arm64, s390x) SYS_##name = arm64,
#elif defined(__s390x__)
#define X(name, amd64, arm64, s390x) SYS_##name = s390x,
#endif
#ifdef X
enum { SYSCALLS(X) };
#undef X
#else /* 32-bit x86: what deep needs */
enum { SYS_write = 4, SYS_exit_group = 252, SYS_ppoll = 309 };
#endif

#if defined(__x86_64__)
INLINE long sys6(long n, word a, word b, word c, word d, word e, word f)
{
	long r;
	register word r10 __asm__("r10") = d;
	register word r8 __asm__("r8") = e;
	register word r9 __asm__("r9") = f;
	__asm__ volatile("syscall"
			 : "=a"(r)
			 : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return r;
}

#elif defined(__i386__)
/* The sixth argument would go to ebp; no call here has one. */
INLINE long sys6(long n, word a, word b, word c, word d, word e, word f)
{
	long r;
	(void)f;
	__asm__ volatile("int $0x80"
			 : "=a"(r)
			 : "a"(n), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
			 : "memory");
	return r;
}

#elif defined(__aarch64__)
INLINE long sys6(long n, word a, word b, word c, word d, word e, word f)
{
	register word x8 __asm__("x8") = n;
	register word x0 __asm__("x0") = a;
	register word x1 __asm__("x1") = b;
	register word x2 __asm__("x2") = c;
	register word x3 __asm__("x3") = d;
	register word x4 __asm__("x4") = e;
	register word x5 __asm__("x5") = f;
	__asm__ volatile("svc #0"
			 : "+r"(x0)
			 : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
			 : "memory");
	return x0;
}

#elif defined(__s390x__)
INLINE long sys6(long n, word a, word b, word c, word d, word e, word f)
{
	register word r1 __asm__("1") = n;
	register word r2 __asm__("2") = a;
	register word r3 __asm__("3") = b;
	register word r4 __asm__("4") = c;
	register word r5 __asm__("5") = d;
	register word r6 __asm__("6") = e;
	register word r7 __asm__("7") = f;
	__asm__ volatile("svc 0"
			 : "+d"(r2)
			 : "d"(r1), "d"(r3), "d"(r4), "d"(r5), "d"(r6), "d"(r7)
			 : "memory");
	return r2;
}
#endif

/* sys calls the kernel with up to six arguments; the rest are 0. */
#define SYS_ARGS(n, a, b, c, d, e, f, ...) \
	sys6(n, (word)(a), (word)(b), (word)(c), (word)(d), (word)(e), (word)(f))
#define sys(name, ...) SYS_ARGS(SYS_##name, ##__VA_ARGS__, 0, 0, 0, 0, 0, 0, 0)

/* The outermost frame. Its return address is undefined where there are tables
 * to say so; the frame pointer and the back chain start at 0. */
#ifdef __GCC_HAVE_DWARF2_CFI_ASM
#define OUTERMOST(ra) ".cfi_startproc\n\t.cfi_undefined " ra "\n\t"
#define OUTERMOST_END ".cfi_endproc\n\t"
#define FUNCTION ".cfi_startproc\n\t"
#define FUNCTION_END ".cfi_endproc\n\t"
#else
#define FUNCTION
#define FUNCTION_END
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
		sys(exit_group, status);
}

/* wait_for_ever blocks: poll without descriptors and without a time limit,
 * a call that an interrupted kernel restarts by itself. */
INLINE void wait_for_ever(void)
{
	sys(ppoll, 0, 0, 0, 0, 8);
}

/* Text is printed line by line, by one thread at a time. */
static char text_line[4096];
static unsigned text_used;

static void text(const char *s)
{
	while (*s && text_used < sizeof text_line)
		text_line[text_used++] = *s++;
}

static __attribute__((unused)) void text_number(unsigned long n)
{
	char digits[24], *p = digits + sizeof digits;

	*--p = 0;
	do
		*--p = '0' + n % 10;
	while (n /= 10);
	text(p);
}

/* text_end prints the line. */
static __attribute__((unused)) void text_end(void)
{
	unsigned done = 0;

	text("\n");
	while (done < text_used) {
		long n = sys(write, 1, text_line + done, text_used - done);
		if (n <= 0)
			break;
		done += n;
	}
	text_used = 0;
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
