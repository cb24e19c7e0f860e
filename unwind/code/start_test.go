package code

import (
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"

	"sfsample/regs"
	"sfsample/sframe"
)

// TestStart asks where functions begin in code at 0x10000, behind 256 bytes of int3. What it holds is told as objdump does.
func TestStart(t *testing.T) {
	const at = 0x10000
	tests := []struct {
		name, code string
		pc, want   uint64 // from at on; want: -1: none
	}{
		// push rbx; call; nop; call; pop rbx; ret: at the last byte of the call, and in front of the return
		{"call", "53 e8f9ff0000 90 e8f3ff0000 5b c3", 11, 0},
		{"return", "53 e8fbff0000 5b c3", 7, 0},
		// ret, padding, another function; and one that begins behind a return at once
		{"second", "53 5b c3 cccccccccccccccccccccccccc 53 90 5b c3", 0x11, 0x10},
		{"unaligned", "53 5b c3 55 90 5d c3", 4, 3},
		// push rbx; test eax,eax; je 1f; pop rbx; ret; 1: nop; pop rbx; ret: the jump is of the same function
		{"arm", "53 85c0 7402 5b c3 90 5b c3", 8, 0},
		// test eax,eax; je 1f; ret; 1: xor eax,eax; ret: what the jump leads to may be another function, which begins there
		{"tail", "85c0 7401 c3 31c0 c3", 7, 5},
		// push rbx; call, which does not return; the next one begins behind it: push rbx; pop rbx; ret
		{"noreturn", "53 e8fbff0000 53 90 5b c3", 7, none},
		// push rbp; mov rbp,rsp; lea rdx,[rip+0x20]; jmp rax; 1: pop rbp; ret, and at 0x2b the table that leads there
		{"table", "55 4889e5 488d15 20000000 ffe0 5d c3" + strings.Repeat("cc", 0x2b-15) + "e2ffffff cccccccc", 14, 0},
		// the same, and nothing leads there
		{"no-table", "55 4889e5 488d15 20000000 ffe0 5d c3" + strings.Repeat("cc", 0x2b-15) + "cccccccc cccccccc", 14, none},
		// push rbx; nop; 1: jmp 1b
		{"endless", "53 90 ebfe", 2, none},
	}
	for _, test := range tests {
		b, err := hex.DecodeString(strings.ReplaceAll(test.code, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		code := append([]byte(strings.Repeat("\xcc", 256)), b...)
		code = append(code, strings.Repeat("\xcc", 64)...)
		got, ok := Start(regs.AMD64, at+test.pc, flat{at - 256, code}.read)
		if ok != (test.want != none) || ok && got != at+test.want {
			t.Errorf("%s: %#x, %v, want %#x", test.name, got, ok, at+test.want)
		}
	}
	if got, ok := Start(regs.ARM64, at, flat{at, make([]byte, 64)}.read); ok {
		t.Errorf("arm64: %#x", got)
	}
}

// TestLeads asks what leads from 0x10000 to a place, with nothing known of the places between but others.
func TestLeads(t *testing.T) {
	tests := []struct {
		name, code string
		goal, cfa  int
		others     []uint64
		want       bool
	}{
		// xor eax,eax; jmp 1f; int3 x 3; 1: nop; ret
		{"jump", "31c0 eb03 cccccc 90 c3", 7, 8, nil, false},
		// push rbx; the same; pop rbx; ret
		{"jump-below", "53 31c0 eb03 cccccc 90 5b c3", 8, 16, nil, true},
		// test eax,eax; je 1f; ret; 1: nop; ret
		{"branch", "85c0 7401 c3 90 c3", 5, 8, nil, false},
		{"branch-below", "53 85c0 7402 5b c3 90 5b c3", 7, 16, nil, true},
		// the stack is not left so
		{"level", "53 85c0 7402 5b c3 90 5b c3", 7, 24, nil, false},
		// xor eax,eax; nops to a multiple of 16; ret
		{"padded", "31c0" + strings.Repeat("90", 14) + "c3", 16, 8, nil, false},
		// xor eax,eax; mov ecx,1 three times; nop; ret
		{"straight", "31c0 b901000000 b901000000 b901000000 90 c3", 17, 8, nil, true},
		// push rbx; jmp 1f; another: push rbx; pop rbx; ret; 1: pop rbx; ret, which that does not hold together
		{"another", "53 eb03 53 5b c3 5b c3", 6, 16, []uint64{0x10003}, false},
		// push rbx; jmp 1f; 2: pop rbx; ret; 1: pop rbx; ret: at 2 the stack is below
		{"part", "53 eb02 5b c3 5b c3", 5, 16, []uint64{0x10003}, true},
		// mov eax,60 or 39; syscall; nop; ret: exit and getpid; mov al,60 leaves it open
		{"exit", "b83c000000 0f05 90 c3", 7, 8, nil, false},
		{"getpid", "b827000000 0f05 90 c3", 7, 8, nil, true},
		{"perhaps-exit", "b03c 0f05 90 c3", 4, 8, nil, false},
		// push rbx; call with the stack as it was; push rax; call: as none has it
		{"aligned", "53 e8fbff0000 5b c3", 6, 16, nil, true},
		{"unaligned", "53 50 e8fbff0000 58 5b c3", 7, 24, nil, false},
	}
	for _, test := range tests {
		b, err := hex.DecodeString(strings.ReplaceAll(test.code, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		w := walk{m: machines[regs.AMD64.Name], place: Place{PC: 0x10000}, read: flat{0x10000, append(b, strings.Repeat("\xcc", 32)...)}.read,
			passCalls: true, goal: 0x10000 + uint64(test.goal), in: newFunction(test.others), left: 1000}
		if got := w.in.leads(&w, &sframe.Row{CFA: fromReg(regs.AMD64.SP, int32(test.cfa))}); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// TestLatePush: gcc may end a piece of code with nothing: inc rax 23 times; push rbx; nop; pop rbx; ret is one function at a multiple of
// 16, and may be two elsewhere.
func TestLatePush(t *testing.T) {
	b, _ := hex.DecodeString("c3" + strings.Repeat("48ffc0", 23) + "53905bc3" + strings.Repeat("cc", 32))
	for at, want := range map[uint64]bool{0x10000: true, 0x10001: false} {
		w := walk{m: machines[regs.AMD64.Name], place: Place{PC: at}, read: flat{at - 1, b}.read, passCalls: true, goal: at + 70, in: newFunction(nil), left: 1000}
		if got := w.in.leads(&w, &sframe.Row{CFA: fromReg(regs.AMD64.SP, 16)}); got != want {
			t.Errorf("%#x: %v", at, got)
		}
	}
}

// TestStartHostile: of bytes that are no program an answer comes, in bounded time, for any place.
func TestStartHostile(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 5))
	b := make([]byte, 80<<10)
	for round := range 60 {
		for i := range b {
			b[i] = byte(rnd.Uint32())
			if round%3 > 0 { // prologues, jumps, calls, zeros, a return
				b[i] = []byte{0x55, 0x53, 0x74, 0xeb, 0xe8, 0, 0, 0x90, 0xcc, 0xc3, 0x5b, byte(i)}[rnd.IntN(12)]
			}
		}
		pc := 0x10000 + rnd.Uint64N(uint64(len(b)))
		if got, ok := Start(regs.AMD64, pc, flat{0x10000, b}.read); ok && (got > pc || got < 0x10000) {
			t.Errorf("round %d: the start of %#x is %#x", round, pc, got)
		}
	}
	for _, pc := range []uint64{0, 1, 5, ^uint64(0), ^uint64(0) - 7} {
		if got, ok := Start(regs.AMD64, pc, func(addr uint64, b []byte) int { return len(b) }); ok {
			t.Errorf("zeros everywhere: the start of %#x is %#x", pc, got)
		}
		Start(regs.AMD64, pc, func(addr uint64, b []byte) int {
			for i := range b {
				b[i] = 0xc3
			}
			return len(b)
		})
	}
}

const none = ^uint64(0)
