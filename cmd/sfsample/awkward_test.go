package main

import (
	"runtime"
	"slices"
	"strings"
	"testing"
)

// segmentSource goes over to a 32-bit code segment of its own (modify_ldt(2)).
const segmentSource = `
#define _GNU_SOURCE
#include <asm/ldt.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static sigjmp_buf refused;

static void refuse(int sig) { siglongjmp(refused, sig); }

int main(void) {
	struct user_desc d = {.entry_number = 0, .limit = 0xfffff, .seg_32bit = 1,
		.contents = MODIFY_LDT_CONTENTS_CODE, .limit_in_pages = 1};
	unsigned char *loop = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	if (loop == MAP_FAILED)
		return 1;
	loop[0] = 0xeb; // jmp to itself
	loop[1] = 0xfe;
	signal(SIGSEGV, refuse);
	// A kernel without it, or that runs no 32-bit code: as if.
	if (sigsetjmp(refused, 1) || syscall(SYS_modify_ldt, 1, &d, sizeof d))
		for (;;)
			;
	__asm__ volatile("pushq $7; pushq %0; lretq" : : "r"((unsigned long)loop));
}
`

// TestLiveSegment: the instruction pointer of a code segment of the program's own
// is an offset into that: no frame can be told, and that is said.
func TestLiveSegment(t *testing.T) {
	needStock(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("no local descriptor table on " + runtime.GOARCH)
	}
	pid := built(t, "segment.c", segmentSource, "gcc", "-O2", "-o")
	many := 0
	sampleLive(t, pid, nil, func(s *liveSample) bool {
		if len(s.Frames) > 1 && slices.Contains(s.functions(), "main") {
			t.Skip("no 32-bit code segments on this machine")
		}
		if s.Complete || len(s.Frames) != 1 || s.End != "segmented code (cs 0x7)" {
			t.Errorf("complete %t, %d frames, end %q; want one frame, cut by \"segmented code (cs 0x7)\"", s.Complete, len(s.Frames), s.End)
		}
		many++
		return many == 10 || t.Failed()
	})
}

// coroutineSource has a coroutine that calls down, works, and gives way, and a
// scheduler that works in between.
const coroutineSource = `
#include <ucontext.h>

static ucontext_t scheduler, coroutine;
static char stack[1 << 16];
static volatile unsigned sink;

__attribute__((noinline)) static void work(void) {
	for (unsigned i = 0; i < 3000; i++)
		sink += i;
	__asm__ volatile("");
}

__attribute__((noinline)) static void down(int n) {
	if (n > 0)
		down(n - 1);
	else
		for (int i = 0; i < 3; i++) {
			work();
			swapcontext(&coroutine, &scheduler);
		}
	__asm__ volatile("");
}

static void entry(void) {
	for (;;) {
		down(4);
		work();
	}
}

__attribute__((noinline)) static void schedule(void) {
	for (;;) {
		swapcontext(&scheduler, &coroutine);
		work();
	}
}

int main(void) {
	getcontext(&coroutine);
	coroutine.uc_stack.ss_sp = stack;
	coroutine.uc_stack.ss_size = sizeof stack;
	makecontext(&coroutine, entry, 0);
	schedule();
}
`

// TestLiveCoroutine: a stack that a program has made for itself is whole, and so
// is the one that it was entered from, never one with frames of the other.
func TestLiveCoroutine(t *testing.T) {
	needStock(t)
	if runtime.GOARCH != "amd64" {
		t.Skip("how a coroutine begins is not known on " + runtime.GOARCH)
	}
	pid := built(t, "coroutine.c", coroutineSource, "gcc", "-O1", "-g", "-o")
	stacks := map[string]int{}
	all := 0
	sampleLive(t, pid, []string{"-hz", "499"}, func(s *liveSample) bool {
		f := s.functions()
		if f[0] == "work" {
			stacks[strings.Join(f, " ")]++
			if !s.Complete {
				t.Errorf("cut, %s: %q", s.End, f)
			}
		}
		on, from := slices.Contains(f, "entry"), slices.Contains(f, "main")
		if s.Complete && on == from {
			t.Errorf("a stack of both or of neither: %q", f)
		}
		all++
		return all >= 200 && len(stacks) >= 3 || t.Failed()
	})
	for stack := range stacks {
		switch stack, _ := strings.CutSuffix(stack, "__start_context"); { // a stripped libc has no name there
		case stack == "work down down down down down entry ":
		case stack == "work entry ":
		case strings.HasPrefix(stack, "work schedule main ") && strings.HasSuffix(stack, " _start"):
		default:
			t.Errorf("no such stack in the program: %s", stack)
		}
	}
	t.Logf("%d samples, %v", all, stacks)
}
