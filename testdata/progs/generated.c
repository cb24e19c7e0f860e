// Code that is written at run time and spins, called by main through outer:
//
//	generated jump   it keeps frame pointers, and jumps where others call, as
//	                 HotSpot's interpreter does
//	generated lost   it uses the frame pointer for something else, takes of the stack
//	                 and never returns
//	generated left   the same, called by outer_left through via, over what outer_left's
//	                 call of gone_a has left on the stack
//	generated told   as lost, but told of by GDB's interface for JIT compilers
//	                 ("JIT Compilation Interface" in its manual)
//	generated ring   the same, in a list that has no end
//	generated swap MS  two functions in turn at one address, each for MS milliseconds, told of
//	                 by one entry and one image, in which the old is not there any more. The first is
//	                 called by alpha_outer and calls alpha_leaf, the second is called by beta_outer and calls
//	                 beta_leaf; its frame is larger
//	generated turns MS  the same, told of by two entries in turn
//
// x86-64.

#include <elf.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

extern const char jump_start[], jump_end[], lost_start[], lost_end[], left_start[], left_end[], alpha_start[], alpha_end[], beta_start[], beta_end[];

__asm__(
	"jump_start: push %rbp; mov %rsp, %rbp; lea 1f(%rip), %rax; push %rax; jmp 2f\n"
	"nop; nop; nop; nop; nop; nop; nop; nop\n"
	"1: nop; jmp 1b\n"
	"2: push %rbp; mov %rsp, %rbp; 3: jmp 3b\n"
	"jump_end:\n"
	"lost_start: sub $40, %rsp; mov $1, %ebp; 1: jmp 1b\n"
	"lost_end:\n"
	"left_start: sub $4096, %rsp; mov $1, %ebp; 1: jmp 1b\n"
	"left_end:\n"
	"alpha_start: .rept 6; nop; .endr; .rept 5; push %rsi; .endr; call *%rdi; add $40, %rsp; ret\n"
	"alpha_end:\n"
	"beta_start: .rept 11; push %rsi; .endr; call *%rdi; add $88, %rsp; ret\n"
	"beta_end:\n");

struct entry {
	struct entry *next, *prev;
	const void *file;
	uint64_t size;
};

struct {
	uint32_t version, action;
	struct entry *relevant, *first;
} __jit_debug_descriptor = {1, 0, 0, 0};

static struct {
	Elf64_Ehdr e;
	Elf64_Phdr p;
	Elf64_Shdr s[4];
	char names[32];
	struct {
		uint32_t cie_len, cie_id;
		uint8_t version, aug, code, data, ra, cfa[3], regs[2], pad[2];
		uint32_t fde_len, fde_cie;
		uint64_t start, len;
		uint8_t take[2], fill[6];
	} __attribute__((packed)) frame;
} image;

static struct entry entries[2];

__attribute__((noinline)) void __jit_debug_register_code(void) { __asm__ volatile("" ::: "memory"); }

// describe makes the image that of code: its CFA is the stack pointer plus cfa from the start on, but for
// its first instructions, in which nobody is met.
static void describe(const char *code, size_t size, char cfa)
{
	memcpy(image.e.e_ident, ELFMAG "\2\1\1", 7);
	image.e.e_type = ET_EXEC;
	image.e.e_machine = EM_X86_64;
	image.e.e_version = 1;
	image.e.e_phoff = (char *)&image.p - (char *)&image;
	image.e.e_shoff = (char *)&image.s - (char *)&image;
	image.e.e_ehsize = sizeof image.e;
	image.e.e_phentsize = sizeof image.p;
	image.e.e_phnum = 1;
	image.e.e_shentsize = sizeof image.s[0];
	image.e.e_shnum = 4;
	image.e.e_shstrndx = 3;
	image.p = (Elf64_Phdr){PT_LOAD, PF_X, 0, (uint64_t)code, 0, 0, size, 0};
	memcpy(image.names, "\0.text\0.debug_frame\0.shstrtab", 30);
	image.s[1] = (Elf64_Shdr){1, SHT_NOBITS, SHF_EXECINSTR | SHF_ALLOC, (uint64_t)code, 0, size};
	image.s[2] = (Elf64_Shdr){7, SHT_PROGBITS, 0, 0, (char *)&image.frame - (char *)&image, sizeof image.frame};
	image.s[3] = (Elf64_Shdr){20, SHT_STRTAB, 0, 0, (char *)image.names - (char *)&image, sizeof image.names};
	image.frame.cie_len = 16;
	image.frame.cie_id = 0xffffffff;
	image.frame.version = 1;
	image.frame.code = 1;
	image.frame.data = 0x78; // -8
	image.frame.ra = 16;
	memcpy(image.frame.cfa, "\x0c\x07", 2);     // DW_CFA_def_cfa rsp, cfa
	image.frame.cfa[2] = cfa;
	memcpy(image.frame.regs, "\x90\x01", 2);    // DW_CFA_offset RA, 1
	image.frame.fde_len = sizeof image.frame - 24;
	image.frame.start = (uint64_t)code;
	image.frame.len = size;
}

// tell registers code.
static void tell(const char *code, size_t size, int ring)
{
	describe(code, size, 48);
	entries[0] = (struct entry){&entries[1], 0, &image, sizeof image};
	entries[1] = (struct entry){ring ? &entries[0] : 0, &entries[0], &image, ~(uint64_t)0};
	__jit_debug_descriptor.first = ring ? &entries[1] : &entries[0];
}

__attribute__((noinline)) int outer(int (*f)(void)) { return f() + 1; }

__attribute__((noipa)) void gone_c(volatile char *p) { p[0] = 1; }
__attribute__((noipa)) void gone_b(volatile char *p) { gone_c(p); p[1] = 2; }
__attribute__((noipa)) void gone_a(void) { volatile char room[2048]; gone_b(room); room[2] = 3; }
__attribute__((noipa)) int via(int (*f)(void)) { return f() + 2; }
__attribute__((noipa)) int outer_left(int (*f)(void)) { gone_a(); return via(f) + 1; }

static volatile int go;
static struct timespec stay;

static void *clock_thread(void *unused)
{
	for (;;) {
		nanosleep(&stay, 0);
		go = 0;
	}
	return unused;
}

typedef void leaf(void);
typedef void made(leaf *, void *decoy);

__attribute__((noipa)) void alpha_leaf(void) { while (go); }
__attribute__((noipa)) void beta_leaf(void) { while (go); }

// What lies in the frames looks like a return address to who has wrong rows.
#define OUTER(f) __attribute__((noipa)) int f##_outer(made *code) \
	{ \
		void *volatile decoys[12]; \
		for (int i = 0; i < 12; i++) \
			decoys[i] = __builtin_return_address(0); \
		code(f##_leaf, decoys[0]); \
		return decoys[1] != 0; \
	}
OUTER(alpha)
OUTER(beta)

// swap never ends. with is how many entries there are.
static void swap(char *code, unsigned with)
{
	pthread_t thread;
	if (pthread_create(&thread, 0, clock_thread, 0))
		exit(1);
	for (unsigned n = 0;; n++) {
		const char *from = n % 2 ? beta_start : alpha_start;
		size_t size = (n % 2 ? beta_end : alpha_end) - from;
		__jit_debug_descriptor.action = 2; // JIT_UNREGISTER_FN
		__jit_debug_descriptor.first = 0;
		__jit_debug_register_code();
		memcpy(code, from, size);
		describe(code, 64, n % 2 ? 96 : 48);
		struct entry *e = &entries[n % with];
		*e = (struct entry){0, 0, &image, sizeof image};
		__jit_debug_descriptor.action = 1; // JIT_REGISTER_FN
		__jit_debug_descriptor.relevant = __jit_debug_descriptor.first = e;
		__jit_debug_register_code();
		go = 1;
		(n % 2 ? beta_outer : alpha_outer)((made *)code);
	}
}

int main(int argc, char **argv)
{
	const char *from = lost_start, *mode = argc > 1 ? argv[1] : "";
	size_t size = lost_end - lost_start;
	if (!strcmp(mode, "jump"))
		from = jump_start, size = jump_end - jump_start;
	if (!strcmp(mode, "left"))
		from = left_start, size = left_end - left_start;
	char *code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (code == MAP_FAILED)
		return 1;
	memcpy(code, from, size);
	if (!strcmp(mode, "told") || !strcmp(mode, "ring"))
		tell(code, size, mode[0] == 'r');
	puts("ready");
	fflush(stdout);
	if (argc > 2) {
		stay.tv_nsec = atol(argv[2]) * 1000000;
		swap(code, mode[0] == 't' ? 2 : 1);
	}
	if (from == left_start)
		return outer_left((int (*)(void))code);
	return outer((int (*)(void))code);
}
