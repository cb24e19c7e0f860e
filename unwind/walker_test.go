package unwind

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sfsample/regs"
	"sfsample/sframe"
)

const (
	textStart = 0x40_0000
	textEnd   = 0x50_0000
	stackTop  = 0x7ffd_0001_0000
)

// covers is a table entry for a function that one row describes.
func covers(start, end uint64, row sframe.Row) sframe.Entry {
	return sframe.Entry{Start: start, End: end, FuncStart: start, FuncEnd: end, Row: row}
}

// spRow is the row of a frame of size bytes above SP, the return address included.
func spRow(size int32) sframe.Row {
	return sframe.Row{CFA: fromReg(7, size), RA: atCFA(-8)}
}

// call5 is call rel32: five bytes that end where a return address points.
var call5 = []byte{0xe8, 1, 2, 3, 4}

type walkTest struct {
	name  string
	arch  *regs.Arch
	space *space
	order []How
	max   int
	set   *regs.Set
	mem   *Memory
	want  []Frame // SP is compared only where it is not 0
	end   End
}

func (tt *walkTest) run(t *testing.T) {
	w := New(tt.arch, tt.space, tt.order, tt.max)
	var first []Frame
	for round := range 3 { // cold, warm, and after another generation
		got, end := w.Walk(tt.set, tt.mem, make([]Frame, 1, 4))
		got = slices.Clone(got[1:])
		for i := range got {
			if i >= len(tt.want) || tt.want[i].SP == 0 {
				got[i].SP = 0
			}
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Fatalf("round %d: frames (-want +got):\n%s\nend: %v at %#x", round, d, end.Reason, end.Addr)
		}
		if end != tt.end {
			t.Fatalf("round %d: end %+v (%v), want %+v (%v)", round, end, end.Reason, tt.end, tt.end.Reason)
		}
		if round == 0 {
			first = got
		} else if !slices.Equal(first, got) {
			t.Fatalf("round %d differs from the first: %v, %v", round, got, first)
		}
		if round == 1 {
			tt.space.gen++
		}
	}
}

func TestWalkAMD64(t *testing.T) {
	a := regs.AMD64
	text := [][2]uint64{{textStart, textEnd}}
	start := covers(0x400000, 0x400040, sframe.Row{Outermost: true}) // _start
	leaf := covers(0x401000, 0x401040, spRow(8))
	for _, tt := range []walkTest{
		{
			name: "rows to the outermost frame", order: []How{EHFrame},
			space: &space{mapped: text, rows: map[How][]sframe.Entry{EHFrame: {
				start, leaf, covers(0x402000, 0x402040, spRow(24)),
			}}},
			set: set(0x401010, 7, sp),
			mem: words(a, sp, 0x402010, 1, 2, 0x400020),
			want: []Frame{
				{PC: 0x401010, SP: sp},
				{PC: 0x402010, SP: sp + 8, Caller: true, How: EHFrame},
				{PC: 0x400020, SP: sp + 32, Caller: true, How: EHFrame},
			},
		},
		{
			// call abort as the last instruction: the return address is the first
			// byte of the next function, whose row would be wrong.
			name: "call that ends its function", order: []How{EHFrame},
			space: &space{mapped: text, rows: map[How][]sframe.Entry{EHFrame: {
				start, leaf,
				covers(0x402000, 0x402040, spRow(16)), // ends with the call
				covers(0x402040, 0x402080, spRow(8)),  // would find the 2 below as an address
			}}},
			set: set(0x401010, 7, sp),
			mem: words(a, sp, 0x402040, 2, 0x400020),
			want: []Frame{
				{PC: 0x401010}, {PC: 0x402040, Caller: true, How: EHFrame}, {PC: 0x400020, Caller: true, How: EHFrame},
			},
		},
		{
			name: "methods chosen anew for each frame",
			space: &space{mapped: text,
				rows: map[How][]sframe.Entry{
					SFrame:  {covers(0x401000, 0x401040, spRow(8)), covers(0x404000, 0x404040, spRow(16))},
					EHFrame: {start, covers(0x402000, 0x402040, spRow(16))},
				},
				code: map[uint64][]byte{0x40400b: call5}, // before the return address into the SFrame code
			},
			// sframe leaf, eh_frame, frame pointer (0x403000), sframe, start
			set: set(0x401010, 7, sp, 6, sp+32),
			mem: words(a, sp, 0x402010, 1, 0x403010, 7, 0xb, 0x404010, 9, 0x400020),
			want: []Frame{
				{PC: 0x401010, SP: sp},
				{PC: 0x402010, SP: sp + 8, Caller: true, How: SFrame},
				{PC: 0x403010, SP: sp + 24, Caller: true, How: EHFrame},
				{PC: 0x404010, SP: sp + 48, Caller: true, How: FramePointer},
				{PC: 0x400020, SP: sp + 64, Caller: true, How: SFrame},
			},
		},
		{
			// What CPython puts between two frames of its interpreter: sub $8,%rsp;
			// call *%rcx; add $8,%rsp; ret. rbp is the interpreter's, who keeps no
			// frame pointer: 3 leads nowhere.
			name: "trampoline that only calls and returns", order: []How{EHFrame, FramePointer},
			space: &space{mapped: text,
				rows: map[How][]sframe.Entry{EHFrame: {start, covers(0x401000, 0x401040, spRow(8))}},
				code: map[uint64][]byte{
					0x40300e: {0xff, 0xd1, 0x48, 0x83, 0xc4, 0x18, 0xc3},
					0x40001b: call5,
				},
			},
			set: set(0x401010, 7, sp, 6, 3),
			mem: words(a, sp, 0x403010, 1, 2, 3, 0x400020),
			want: []Frame{
				{PC: 0x401010, SP: sp},
				{PC: 0x403010, SP: sp + 8, Caller: true, How: EHFrame},
				{PC: 0x400020, SP: sp + 40, Caller: true, How: FramePointer},
			},
		},
		{
			name: "trampoline that goes on behind its call", order: []How{EHFrame, FramePointer},
			space: &space{mapped: text,
				rows: map[How][]sframe.Entry{EHFrame: {start, covers(0x401000, 0x401040, spRow(8))}},
				code: map[uint64][]byte{0x40301e: {0xff, 0xd1, 0x48, 0x83, 0xc4, 0x18, 0x90}},
			},
			set: set(0x401010, 7, sp, 6, 3),
			mem: words(a, sp, 0x403020, 1, 2, 3, 0x400020),
			want: []Frame{
				{PC: 0x401010, SP: sp},
				{PC: 0x403020, SP: sp + 8, Caller: true, How: EHFrame},
			},
			end: End{Reason: NoProgress, Addr: 3},
		},
		{
			// The assembler's row is wrong by a word; .eh_frame has it right.
			name: "wrong row gives way to the next method",
			space: &space{mapped: text, rows: map[How][]sframe.Entry{
				SFrame:  {covers(0x401000, 0x401040, spRow(16))},
				EHFrame: {start, leaf},
			}},
			set: set(0x401010, 7, sp, 6, 0),
			mem: words(a, sp, 0x400020, 1),
			want: []Frame{
				{PC: 0x401010}, {PC: 0x400020, Caller: true, How: EHFrame, Fallback: true},
			},
		},
		{
			// The row is wrong, but says that rbp is not this frame's: the record
			// it points at belongs to some caller, and would skip others.
			name: "no frame pointer where a row says that it is another's", order: []How{EHFrame, FramePointer},
			space: &space{mapped: text, code: map[uint64][]byte{0x40200b: call5},
				rows: map[How][]sframe.Entry{EHFrame: {covers(0x401000, 0x401040, spRow(16))}}},
			set:  set(0x401010, 7, sp, 6, sp+16),
			mem:  words(a, sp, 0x403010, 1, sp+64, 0x402010),
			want: []Frame{{PC: 0x401010}},
			end:  End{Reason: NotCode, Addr: 1},
		},
		{
			// The row describes the frame that a longjmp goes to, by the buffer
			// in rdi; the function has no frame that rbp could point to.
			name: "no frame pointer where a row has the CFA elsewhere", order: []How{EHFrame, FramePointer},
			space: &space{mapped: text, code: map[uint64][]byte{0x40200b: call5},
				rows: map[How][]sframe.Entry{EHFrame: {covers(0x401000, 0x401040, sframe.Row{
					CFA: fromReg(5, 0), RA: atCFA(56), FP: atCFA(8),
				})}}},
			set:  set(0x401010, 7, sp, 6, sp+16, 5, sp-0x1000),
			mem:  words(a, sp, 0x403010, 1, sp+64, 0x402010),
			want: []Frame{{PC: 0x401010}},
			end:  End{Reason: NoProgress, Addr: sp - 0x1000},
		},
		{
			// SFrame's row for 0x402000 hides that rbx was saved there, and the
			// caller's CFA is on rbx; .eh_frame first leads through.
			name: "short walk is repeated with eh_frame first",
			space: &space{mapped: text, rows: map[How][]sframe.Entry{
				SFrame: {covers(0x402000, 0x402040, spRow(16))},
				EHFrame: {start, leaf,
					covers(0x402000, 0x402040, sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8),
						Saved: []sframe.SavedRule{regRule(3, atCFA(-16))}}),
					covers(0x403000, 0x403040, sframe.Row{CFA: fromReg(3, 16), RA: atCFA(-8)}),
				},
			}},
			set: set(0x401010, 7, sp, 6, 0, 3, 0),
			mem: words(a, sp, 0x402010, sp+24, 0x403010, 1, 0x400020),
			want: []Frame{
				{PC: 0x401010}, {PC: 0x402010, Caller: true, How: EHFrame},
				{PC: 0x403010, Caller: true, How: EHFrame}, {PC: 0x400020, Caller: true, How: EHFrame},
			},
			end: End{Repeated: true},
		},
		{
			name: "repeated walk that leads one frame further", order: []How{SFrame, EHFrame},
			space: &space{mapped: text, rows: map[How][]sframe.Entry{
				SFrame: {covers(0x402000, 0x402040, spRow(16))},
				EHFrame: {leaf,
					covers(0x402000, 0x402040, sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8),
						Saved: []sframe.SavedRule{regRule(3, atCFA(-16))}}),
					covers(0x403000, 0x403040, sframe.Row{CFA: fromReg(3, 16), RA: atCFA(-8)}),
				},
			}},
			set: set(0x401010, 7, sp, 6, 0, 3, 0),
			mem: words(a, sp, 0x402010, sp+24, 0x403010, 1, 0x400020),
			want: []Frame{
				{PC: 0x401010}, {PC: 0x402010, Caller: true, How: EHFrame},
				{PC: 0x403010, Caller: true, How: EHFrame}, {PC: 0x400020, Caller: true, How: EHFrame},
			},
			end: End{Reason: NoRow, Addr: 0x400020, Repeated: true},
		},
		{
			name: "repeated walk that leads as far", order: []How{SFrame, EHFrame},
			space: &space{mapped: text, rows: map[How][]sframe.Entry{
				SFrame:  {covers(0x402000, 0x402040, spRow(16))},
				EHFrame: {leaf, covers(0x402000, 0x402040, spRow(16))},
			}},
			set: set(0x401010, 7, sp, 6, 0, 3, 0),
			mem: words(a, sp, 0x402010, 1, 0x403010),
			want: []Frame{
				{PC: 0x401010}, {PC: 0x402010, Caller: true, How: EHFrame}, {PC: 0x403010, Caller: true, How: SFrame},
			},
			end: End{Reason: NoRow, Addr: 0x403010},
		},
		{
			// .eh_frame finds zeros, which are no end where the row tells of none.
			name: "wrong row, and a method that finds nothing",
			space: &space{mapped: text, rows: map[How][]sframe.Entry{
				SFrame:  {covers(0x401000, 0x401040, spRow(16))},
				EHFrame: {leaf},
			}},
			set: set(0x401010, 7, sp, 6, 0), mem: words(a, sp, 0, 1),
			want: []Frame{{PC: 0x401010}},
			end:  End{Reason: NotCode, Addr: 1},
		},
		{
			name: "wrong row, and one that ends the stack",
			space: &space{mapped: text, rows: map[How][]sframe.Entry{
				SFrame:  {covers(0x400000, 0x400040, spRow(16))},
				EHFrame: {start},
			}},
			set: set(0x400010, 7, sp, 6, 0), mem: words(a, sp, 0, 1),
			want: []Frame{{PC: 0x400010}},
		},
		{
			// clone behind its system call, in the parent: no row, and the return address on top of the stack.
			name: "function that starts stacks and was called", order: []How{EHFrame, FramePointer},
			space: &space{mapped: text, code: map[uint64][]byte{0x40001b: call5}, entries: [][2]uint64{{0x402000, 0x402040}, {0x400000, 0x400040}}},
			set:   set(0x402010, 7, sp, 6, 3), mem: words(a, sp, 0x400020),
			want: []Frame{{PC: 0x402010}, {PC: 0x400020, SP: sp + 8, Caller: true, How: FramePointer, Fallback: true}},
		},
		{
			name: "function that starts stacks and was called, by tables alone", order: []How{EHFrame},
			space: &space{mapped: text, code: map[uint64][]byte{0x40001b: call5}, entries: [][2]uint64{{0x402000, 0x402040}}},
			set:   set(0x402010, 7, sp, 6, 3), mem: words(a, sp, 0x400020),
			want: []Frame{{PC: 0x402010}},
			end:  End{Reason: NoRow, Addr: 0x402010},
		},
		{
			name: "function that starts stacks and was not called", order: []How{EHFrame, FramePointer},
			space: &space{mapped: text, entries: [][2]uint64{{0x402000, 0x402040}}},
			set:   set(0x402010, 7, sp, 6, 3), mem: words(a, sp, 1),
			want: []Frame{{PC: 0x402010}},
		},
		{
			// pop %rbp; ret: the row is wrong, the bytes around the address are right.
			name: "wrong row at a function's end", order: []How{EHFrame, FramePointer},
			space: &space{mapped: text, code: map[uint64][]byte{0x401010: {0x5d, 0xc3}, 0x40001b: call5}, rows: map[How][]sframe.Entry{EHFrame: {start,
				covers(0x401000, 0x401040, sframe.Row{CFA: fromReg(7, 24), RA: atCFA(-8), FP: atCFA(-16)})}}},
			set: set(0x401010, 7, sp, 6, 3), mem: words(a, sp, 0xb, 0x400020, 1),
			want: []Frame{{PC: 0x401010}, {PC: 0x400020, SP: sp + 16, Caller: true, How: FramePointer, Fallback: true}},
		},
		{
			// rax points at another return address that is known.
			name: "row without a short form", order: []How{EHFrame},
			space: &space{mapped: text, rows: map[How][]sframe.Entry{EHFrame: {start,
				covers(0x401000, 0x401040, sframe.Row{CFA: fromReg(3, 16), RA: atCFA(-8)}), covers(0x402000, 0x402040, spRow(16))}}},
			set: set(0x401010, 7, sp, 3, sp+8, 0, sp), mem: words(a, sp, 0x400020, 9, 0x402010, 1, 0x400020),
			want: []Frame{{PC: 0x401010}, {PC: 0x402010, SP: sp + 24, Caller: true, How: EHFrame}, {PC: 0x400020, SP: sp + 40, Caller: true, How: EHFrame}},
		},
		{
			name: "caller that stays", order: []How{EHFrame},
			space: &space{mapped: text, rows: map[How][]sframe.Entry{EHFrame: {leaf, covers(0x402000, 0x402040, spRow(0))}}},
			set:   set(0x401010, 7, sp), mem: words(a, sp, 0x402010, 1),
			want: []Frame{{PC: 0x401010}, {PC: 0x402010, SP: sp + 8, Caller: true, How: EHFrame}},
			end:  End{Reason: NoProgress, Addr: sp + 8},
		},
		{
			name:  "short walk, whose repetition is no longer",
			space: &space{mapped: text, rows: map[How][]sframe.Entry{SFrame: {leaf}}},
			set:   set(0x401010, 7, sp, 6, 3), mem: words(a, sp, 0x402010, 1),
			want: []Frame{{PC: 0x401010}, {PC: 0x402010, SP: sp + 8, Caller: true, How: SFrame}},
			end:  End{Reason: NoProgress, Addr: 3},
		},
		{
			// .eh_frame leads one frame further, and ends short as well.
			name: "short walk, whose repetition is longer",
			space: &space{mapped: text, rows: map[How][]sframe.Entry{
				SFrame:  {leaf, covers(0x402000, 0x402040, spRow(24))},
				EHFrame: {covers(0x402000, 0x402040, spRow(16))},
			}},
			set: set(0x401010, 7, sp, 6, 3), mem: words(a, sp, 0x402010, 1, 0x403010, 0x404010, 0x405010),
			want: []Frame{{PC: 0x401010}, {PC: 0x402010, SP: sp + 8, Caller: true, How: SFrame}, {PC: 0x404010, SP: sp + 32, Caller: true, How: SFrame}},
			end:  End{Reason: NoProgress, Addr: 3},
		},
		{
			name: "return address outside code", order: []How{EHFrame},
			space: &space{mapped: text, rows: map[How][]sframe.Entry{EHFrame: {leaf}}},
			set:   set(0x401010, 7, sp),
			mem:   words(a, sp, 0x7777_0000),
			want:  []Frame{{PC: 0x401010}},
			end:   End{Reason: NotCode, Addr: 0x7777_0000},
		},
		{
			name: "no rows at all", order: []How{SFrame, EHFrame},
			space: &space{mapped: text}, set: set(0x401010, 7, sp), mem: words(a, sp),
			want: []Frame{{PC: 0x401010}},
			end:  End{Reason: NoRow, Addr: 0x401010},
		},
		{
			name: "damaged table is as good as none",
			space: &space{mapped: text, bad: map[How]error{SFrame: errors.New("bad header")},
				rows: map[How][]sframe.Entry{EHFrame: {start, leaf}}},
			set: set(0x401010, 7, sp), mem: words(a, sp, 0x400020),
			want: []Frame{{PC: 0x401010}, {PC: 0x400020, Caller: true, How: EHFrame}},
		},
		{
			name:  "what a table that cannot be read has is not guessed",
			space: &space{mapped: text, bad: map[How]error{SFrame: fmt.Errorf("%w: input/output error", ErrUnread)}},
			set:   set(0x401010, 7, sp, 6, sp+64), mem: words(a, sp, 0x400020, 0, 0, 0, 0, 0, 0, 0, 0, 0x402010), // a frame pointer's record, further up
			want: []Frame{{PC: 0x401010}},
			end:  End{Reason: NoRow, Addr: 0x401010},
		},
		{
			name: "the other table tells as much as one that cannot be read",
			space: &space{mapped: text, bad: map[How]error{SFrame: fmt.Errorf("%w: input/output error", ErrUnread)},
				rows: map[How][]sframe.Entry{EHFrame: {start, leaf}}},
			set: set(0x401010, 7, sp), mem: words(a, sp, 0x400020),
			want: []Frame{{PC: 0x401010}, {PC: 0x400020, Caller: true, How: EHFrame}},
		},
		{
			// .sframe of version 2 has an ordinary row for _start, which finds
			// argc where a return address would be.
			name: "known entry with nothing plausible beyond", order: []How{SFrame},
			space: &space{mapped: text, entries: [][2]uint64{{0x400000, 0x400040}},
				rows: map[How][]sframe.Entry{SFrame: {covers(0x400000, 0x400040, spRow(8)), leaf}}},
			set:  set(0x401010, 7, sp),
			mem:  words(a, sp, 0x400020, 1, 0x7ffd_0000_2000, 0),
			want: []Frame{{PC: 0x401010}, {PC: 0x400020, Caller: true, How: SFrame}},
		},
		{
			// clone is a wrapper in the parent: its name completes nothing there.
			name: "known entry that has a caller", order: []How{SFrame},
			space: &space{mapped: text, entries: [][2]uint64{{0x402000, 0x402040}},
				rows: map[How][]sframe.Entry{SFrame: {start, leaf, covers(0x402000, 0x402040, spRow(8))}}},
			set: set(0x401010, 7, sp), mem: words(a, sp, 0x402010, 0x400020),
			want: []Frame{{PC: 0x401010}, {PC: 0x402010, Caller: true, How: SFrame}, {PC: 0x400020, Caller: true, How: SFrame}},
		},
		{
			name: "known entry beyond the copy is not complete", order: []How{SFrame},
			space: &space{mapped: text, entries: [][2]uint64{{0x400000, 0x400040}},
				rows: map[How][]sframe.Entry{SFrame: {covers(0x400000, 0x400040, spRow(64))}}},
			set: set(0x400010, 7, sp), mem: words(a, sp, 1),
			want: []Frame{{PC: 0x400010}},
			end:  End{Reason: OutsideCopy, Addr: sp + 56},
		},
		{
			name: "return address 0 where rbp is 0 too", order: []How{EHFrame},
			space: &space{mapped: text, rows: map[How][]sframe.Entry{EHFrame: {leaf}}},
			set:   set(0x401010, 7, sp, 6, 0), mem: words(a, sp, 0),
			want: []Frame{{PC: 0x401010}},
		},
		{
			name: "return address 0 in the middle of nothing", order: []How{EHFrame},
			space: &space{mapped: text, rows: map[How][]sframe.Entry{EHFrame: {leaf}}},
			set:   set(0x401010, 7, sp, 6, 5), mem: words(a, sp, 0),
			want: []Frame{{PC: 0x401010}},
			end:  End{Reason: ZeroReturn},
		},
		{
			name: "depth limit", order: []How{EHFrame}, max: 3,
			space: &space{mapped: text, rows: map[How][]sframe.Entry{EHFrame: {start, leaf}}},
			set:   set(0x401010, 7, sp),
			mem:   words(a, sp, 0x401011, 0x401012, 0x401013, 0x400020),
			want: []Frame{{PC: 0x401010}, {PC: 0x401011, Caller: true, How: EHFrame},
				{PC: 0x401012, Caller: true, How: EHFrame}},
			end: End{Reason: DepthLimit},
		},
		{
			name: "exactly as many frames as allowed", order: []How{EHFrame}, max: 3,
			space: &space{mapped: text, rows: map[How][]sframe.Entry{EHFrame: {start, leaf}}},
			set:   set(0x401010, 7, sp), mem: words(a, sp, 0x401011, 0x400020),
			want: []Frame{{PC: 0x401010}, {PC: 0x401011, Caller: true, How: EHFrame}, {PC: 0x400020, Caller: true, How: EHFrame}},
		},
		{
			// A coroutine that was entered by a bare change of rsp.
			name: "another mapping", order: []How{FramePointer},
			space: &space{mapped: text, stack: [2]uint64{sp - 0x1000, sp + 0x1000}},
			set:   set(0x401010, 7, sp, 6, stackTop), mem: words(a, sp, 1),
			want: []Frame{{PC: 0x401010}},
			end:  End{Reason: StackSwitch, Addr: stackTop + 16},
		},
		{
			// rbp is a plain register here and happens to point at a stale pair
			// of stack words whose second is a code address, behind no call.
			name: "code address that is no return address", order: []How{FramePointer},
			space: &space{mapped: text, code: map[uint64][]byte{0x40200b: {0x90, 0x90, 0x90, 0x90, 0x90}}},
			set:   set(0x401010, 7, sp, 6, sp+8), mem: words(a, sp, 1, sp+64, 0x402010),
			want: []Frame{{PC: 0x401010}},
			end:  End{Reason: NotAfterCall, Addr: 0x402010},
		},
		{
			// A call through a null pointer: nothing is mapped there, and the
			// return address is on top of the stack.
			name:  "jump to nowhere",
			space: &space{mapped: text, rows: map[How][]sframe.Entry{EHFrame: {start}}, code: map[uint64][]byte{0x40001e: {0xff, 0xd0}}},
			set:   set(0, 7, sp), mem: words(a, sp, 0x400020),
			want: []Frame{{PC: 0}, {PC: 0x400020, Caller: true, How: FramePointer}},
		},
	} {
		tt.arch = a
		t.Run(tt.name, tt.run)
	}
}

// TestWalkCaller: the frame that a stack begins with has called, so that its row is that of the byte before.
func TestWalkCaller(t *testing.T) {
	a := regs.AMD64
	s := &space{mapped: [][2]uint64{{textStart, textEnd}}, rows: map[How][]sframe.Entry{EHFrame: {
		covers(0x400000, 0x400040, sframe.Row{Outermost: true}), covers(0x402000, 0x402040, spRow(16)), covers(0x402040, 0x402080, spRow(24))}}}
	set, mem := set(0x402040, 7, sp), words(a, sp, 1, 0x400020, 0x400021)
	got, end := New(a, s, nil, 0).WalkCaller(set, mem, nil)
	want := []Frame{{PC: 0x402040, SP: sp, Caller: true}, {PC: 0x400020, SP: sp + 16, Caller: true, How: EHFrame}}
	if !slices.Equal(got, want) || !end.Complete() {
		t.Errorf("%+v, %v; want %+v", got, end.Reason, want)
	}
	if got, _ := New(a, s, nil, 0).Walk(set, mem, nil); len(got) != 2 || got[1].PC != 0x400021 || got[0].Caller {
		t.Errorf("not as a caller: %+v", got)
	}
	for i, f := range want {
		if f.LookupPC() != f.PC-1 {
			t.Errorf("frame %d is looked up at %#x", i, f.LookupPC())
		}
	}
	if f := (Frame{PC: 0x402040}); f.LookupPC() != 0x402040 {
		t.Errorf("a frame that has not called is looked up at %#x", f.LookupPC())
	}
}

// TestUnusableMethods: a method that the architecture or the space lacks leaves the frame to the next one.
func TestUnusableMethods(t *testing.T) {
	chain := make([]uint64, 60)
	chain[0], chain[20+14] = sp+160, 0x402010
	other := *regs.AMD64
	other.Name = "another"
	for _, tt := range []struct {
		name  string
		arch  *regs.Arch
		order []How
		call  []byte
		set   *regs.Set
		mem   *Memory
		want  How
	}{
		{"no frame pointers", regs.S390X, []How{FramePointer, BackChain}, []byte{0xc0, 0xe5, 0, 0, 0, 1}, set(0x401010, 15, sp, 14, 1), words(regs.S390X, sp, chain...), BackChain},
		{"no back chains", regs.AMD64, []How{BackChain, FramePointer}, call5, set(0x401010, 7, sp, 6, sp), words(regs.AMD64, sp, sp+64, 0x402010), FramePointer},
		{"no back chains, though there are such registers", regs.AMD64, []How{BackChain, FramePointer}, call5, set(0x401010, 7, sp, 6, sp, 14, 0x402010, 15, sp-8), words(regs.AMD64, sp, sp+64, 0x402010), FramePointer},
		{"no follower", regs.AMD64, []How{Code, FramePointer}, call5, set(0x401010, 7, sp, 6, sp), words(regs.AMD64, sp, sp+64, 0x402010), FramePointer},
		{"no conventions", &other, []How{FramePointer, BackChain, EHFrame}, nil, set(0x401010, 7, sp), words(regs.AMD64, sp, 0x402010), EHFrame},
	} {
		s := &space{mapped: [][2]uint64{{textStart, textEnd}}, code: map[uint64][]byte{0x402010 - uint64(len(tt.call)): tt.call}}
		if tt.want == EHFrame {
			s.rows = map[How][]sframe.Entry{EHFrame: {covers(0x401000, 0x401040, spRow(8))}}
		}
		if got, end := New(tt.arch, s, tt.order, 2).Walk(tt.set, tt.mem, nil); len(got) != 2 || got[1].PC != 0x402010 || got[1].How != tt.want {
			t.Errorf("%s: %+v, %v", tt.name, got, end.Reason)
		}
	}
	// A signal frame of which .sframe has no rules is left to the next method, and one of another kind is not.
	for _, tt := range []struct {
		row  sframe.Row
		want How
	}{
		{sframe.Row{Signal: true, CFA: undefinedRule}, EHFrame}, {sframe.Row{Signal: true, CFA: fromReg(7, 8)}, SFrame}, {sframe.Row{CFA: undefinedRule}, SFrame},
	} {
		s := &space{mapped: [][2]uint64{{textStart, textEnd}}, rows: map[How][]sframe.Entry{
			SFrame: {covers(0x401000, 0x401040, tt.row)}, EHFrame: {covers(0x401000, 0x401040, spRow(8))}}}
		if _, how := New(regs.AMD64, s, nil, 0).main.code.firstRow(0x401010, true); how != tt.want {
			t.Errorf("%+v: the row is taken of %v, want %v", tt.row, how, tt.want)
		}
	}
}

// TestZeroRecord: a record of zeros ends a stack where the frame pointer is one by the ABI, and says nothing where it may be none.
func TestZeroRecord(t *testing.T) {
	for a, want := range map[*regs.Arch]Reason{regs.AMD64: ZeroReturn, regs.I386: ZeroReturn, regs.ARM64: Complete} {
		s := &space{mapped: [][2]uint64{{textStart, textEnd}}}
		const sp = 0x7000_0000
		got, end := New(a, s, []How{FramePointer}, 0).Walk(set(0x401010, uint64(a.SP), sp, uint64(a.FP), sp), words(a, sp, 0, 0), nil)
		if len(got) != 1 || end.Reason != want {
			t.Errorf("%s: %d frames, %v; want %v", a.Name, len(got), end.Reason, want)
		}
	}
}

// TestFiberTop: a return address of 0 ends a stack where a table leads to the end of the stack's mapping: there is no room for a caller.
func TestFiberTop(t *testing.T) {
	const sp = 0x7000_0000
	for _, tt := range []struct {
		how   How
		above uint64 // bytes of the mapping above the frame; 0: the mapping is not known
		want  Reason
	}{
		{EHFrame, 8, Complete}, {SFrame, 8, Complete}, {EHFrame, 32, Complete}, {EHFrame, 40, ZeroReturn}, {SFrame, 40, ZeroReturn}, {EHFrame, 0, ZeroReturn}, {FramePointer, 8, ZeroReturn},
	} {
		cfa, row := uint64(sp+8), spRow(8)
		if tt.how == FramePointer {
			cfa = sp + 16
		}
		s := &space{mapped: [][2]uint64{{textStart, textEnd}}, rows: map[How][]sframe.Entry{tt.how: {covers(0x401000, 0x401040, row)}}}
		if tt.above > 0 {
			s.stack = [2]uint64{sp - 0x1000, cfa + tt.above}
		}
		if got, end := New(regs.AMD64, s, []How{tt.how}, 0).Walk(set(0x401010, 7, sp, 6, sp), words(regs.AMD64, sp, 0, 0, 0, 0), nil); len(got) != 1 || end.Reason != tt.want {
			t.Errorf("%v, %d bytes above it: %d frames, %v; want %v", tt.how, tt.above, len(got), end.Reason, tt.want)
		}
	}
}

// TestCalledEntry: a function that starts stacks and has been called, by a return address in its register, is no end of a stack.
func TestCalledEntry(t *testing.T) {
	for _, tt := range []struct {
		arch *regs.Arch
		call []byte
		ra   uint64
		want Reason
	}{
		{regs.ARM64, le(0x94000000), 0x402010, NoRow}, {regs.ARM64, le(0x94000000), 0x402014, Complete}, {regs.ARM64, le(0x94000000), 5, Complete},
		{regs.S390X, []byte{0xc0, 0xe5, 0, 0, 0, 1}, 0x402010, NoRow}, {regs.S390X, []byte{0xc0, 0xe5, 0, 0, 0, 1}, 5, Complete},
	} {
		a := tt.arch
		s := &space{mapped: [][2]uint64{{textStart, textEnd}}, code: map[uint64][]byte{0x402010 - uint64(len(tt.call)): tt.call}, entries: [][2]uint64{{0x401000, 0x401040}}}
		got, end := New(a, s, []How{EHFrame}, 0).Walk(set(0x401010, uint64(a.SP), sp, uint64(a.RA), tt.ra), words(a, sp, 0, 0), nil)
		if len(got) != 1 || end.Reason != tt.want {
			t.Errorf("%s, called from %#x: %+v, %v; want %v", a.Name, tt.ra, got, end.Reason, tt.want)
		}
	}
}

// TestMayKeepFP: which rows leave room for a frame that the frame pointer points to.
func TestMayKeepFP(t *testing.T) {
	saved := atCFA(-16)
	for _, tt := range []struct {
		row  sframe.Row
		want bool
	}{
		{sframe.Row{CFA: fromReg(7, 16), FP: saved}, true}, {sframe.Row{CFA: fromReg(6, 16), FP: saved}, true}, {sframe.Row{CFA: fromReg(6, 16)}, false},
		{sframe.Row{CFA: fromReg(3, 16), FP: saved}, false}, {sframe.Row{CFA: sframe.Rule{Base: sframe.FromExpr, Reg: 7}, FP: saved}, false},
	} {
		if got := mayKeepFP(regs.AMD64, &tt.row); got != tt.want {
			t.Errorf("%+v: %v", tt.row, got)
		}
	}
	for _, f := range []Frame{{PC: 1, SP: 3}, {PC: 3, SP: 2}} {
		if seen([]Frame{f}, 1, 2) {
			t.Errorf("%+v was seen as another", f)
		}
	}
	if !seen([]Frame{{}, {PC: 1, SP: 2}}, 1, 2) {
		t.Error("a frame was not seen")
	}
}

// TestWorthRepeating: a walk is repeated with .eh_frame first where .sframe stood before it and led somewhere.
func TestWorthRepeating(t *testing.T) {
	for _, tt := range []struct {
		order []How
		how   How
		want  bool
		first []How
	}{
		{[]How{SFrame, EHFrame, FramePointer}, SFrame, true, []How{EHFrame, SFrame, FramePointer}},
		{[]How{FramePointer, SFrame, EHFrame}, SFrame, true, []How{EHFrame, FramePointer, SFrame}},
		{[]How{SFrame, EHFrame}, EHFrame, false, []How{EHFrame, SFrame}},
		{[]How{EHFrame, SFrame}, SFrame, false, []How{EHFrame, SFrame}},
		{[]How{SFrame, FramePointer}, SFrame, false, []How{EHFrame, SFrame, FramePointer}},
		{[]How{EHFrame, FramePointer}, SFrame, false, []How{EHFrame, FramePointer}},
	} {
		if got := worthRepeating(tt.order, []Frame{{}, {How: tt.how}}); got != tt.want {
			t.Errorf("%v, a frame by %v: %v", tt.order, tt.how, got)
		}
		if got := ehFrameFirst(tt.order); !slices.Equal(got, tt.first) {
			t.Errorf("%v: %v, want %v", tt.order, got, tt.first)
		}
	}
	if worthRepeating([]How{SFrame, EHFrame}, nil) {
		t.Error("no frames")
	}
}

// TestInnermostFramePointer: what the bytes at the innermost pc say while rbp
// is not set up yet, or not any more. The caller is at 0x402010, and its rbp
// is 0xcaca; the function is called with it.
func TestInnermostFramePointer(t *testing.T) {
	a := regs.AMD64
	const fp = sp + 64 // the caller's record
	for _, tt := range []struct {
		name   string
		before []byte
		at     []byte
		rbp    uint64
		stack  []uint64
	}{
		{"push %rbp", nil, []byte{0x55, 0x48, 0x89, 0xe5}, fp, []uint64{0x402010}},
		{"endbr64 before push %rbp", nil, []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5}, fp, []uint64{0x402010}},
		{"mov %rsp,%rbp", []byte{0x55}, []byte{0x48, 0x89, 0xe5}, fp, []uint64{fp, 0x402010}},
		{"mov %rsp,%rbp, other encoding", []byte{0x55}, []byte{0x48, 0x8b, 0xec}, fp, []uint64{fp, 0x402010}},
		{"body", []byte{0x55, 0x48, 0x89, 0xe5}, []byte{0x90}, sp + 8, []uint64{1, fp, 0x402010}},
		{"leave", nil, []byte{0xc9, 0xc3}, sp + 8, []uint64{1, fp, 0x402010}},
		{"pop %rbp before ret", nil, []byte{0x5d, 0xc3}, 0xdead, []uint64{fp, 0x402010}},
		{"ret", []byte{0x5d}, []byte{0xc3}, fp, []uint64{0x402010}},
		{"rep ret", nil, []byte{0xf3, 0xc3}, fp, []uint64{0x402010}},
		{"ret n", nil, []byte{0xc2, 8, 0}, fp, []uint64{0x402010}},
		{"PLT entry", nil, []byte{0xff, 0x25, 1, 2, 3, 4}, fp, []uint64{0x402010}},
		{"PLT entry with endbr64 and bnd", nil, []byte{0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 1, 2, 3, 4}, fp, []uint64{0x402010}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const pc = 0x401020
			s := &space{mapped: [][2]uint64{{textStart, textEnd}}, entries: [][2]uint64{{0x400000, 0x400040}},
				code: map[uint64][]byte{pc - uint64(len(tt.before)): append(slices.Clone(tt.before), tt.at...),
					0x40200b: call5, 0x40001b: call5}}
			stack := append(tt.stack, make([]uint64, 8-len(tt.stack))...)
			stack = append(stack, 0, 0x400020)
			frames, end := New(a, s, []How{FramePointer}, 0).Walk(set(pc, 7, sp, 6, tt.rbp), words(a, sp, stack...), nil)
			var pcs []uint64
			for _, f := range frames {
				pcs = append(pcs, f.PC)
			}
			if want := []uint64{pc, 0x402010, 0x400020}; !slices.Equal(pcs, want) || !end.Complete() {
				t.Errorf("walk %#x (%v at %#x), want %#x", pcs, end.Reason, end.Addr, want)
			}
		})
	}
}

// TestAfterCall: the forms of calls, and what is none.
func TestAfterCall(t *testing.T) {
	for _, tt := range []struct {
		name string
		arch *regs.Arch
		code []byte
		want bool
	}{
		{"amd64/call rel32", regs.AMD64, []byte{0xe8, 0, 0, 0, 0}, true},
		{"amd64/call *%rax", regs.AMD64, []byte{0xff, 0xd0}, true},
		{"amd64/call *%r13", regs.AMD64, []byte{0x41, 0xff, 0xd5}, true},
		{"amd64/call *(%rax)", regs.AMD64, []byte{0xff, 0x10}, true},
		{"amd64/call *8(%rax)", regs.AMD64, []byte{0xff, 0x50, 8}, true},
		{"amd64/call *8(%rsp)", regs.AMD64, []byte{0xff, 0x54, 0x24, 8}, true},
		{"amd64/call *slot(%rip)", regs.AMD64, []byte{0xff, 0x15, 1, 2, 3, 4}, true},
		{"amd64/call *0x100(%rax)", regs.AMD64, []byte{0xff, 0x90, 0, 1, 0, 0}, true},
		{"amd64/call *table(,%rax,8)", regs.AMD64, []byte{0xff, 0x14, 0xc5, 0, 1, 0, 0}, true},
		{"amd64/jmp *%rax", regs.AMD64, []byte{0xff, 0xe0}, false},
		{"amd64/push *8(%rax)", regs.AMD64, []byte{0xff, 0x70, 8}, false},
		{"amd64/call *%r12", regs.AMD64, []byte{0x41, 0xff, 0xd4}, true},
		{"amd64/call *(%rsp)", regs.AMD64, []byte{0xff, 0x14, 0x24}, true},
		{"amd64/call with its SIB byte cut off", regs.AMD64, []byte{0xff, 0x14}, false},
		{"amd64/nops", regs.AMD64, []byte{0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, false},
		{"386/call *%gs:16", regs.I386, []byte{0x65, 0xff, 0x15, 0x10, 0, 0, 0}, true},
		{"arm64/bl", regs.ARM64, []byte{0, 0, 0, 0x94}, true},
		{"arm64/bl backwards", regs.ARM64, []byte{0xff, 0xff, 0xff, 0x97}, true},
		{"arm64/blr x8", regs.ARM64, []byte{0x00, 0x01, 0x3f, 0xd6}, true},
		{"arm64/blr x1", regs.ARM64, []byte{0x20, 0x00, 0x3f, 0xd6}, true},
		{"arm64/no blr", regs.ARM64, []byte{0x01, 0x01, 0x3f, 0xd6}, false},
		{"arm64/cut", regs.ARM64, []byte{0, 0, 0x94}, false},
		{"arm64/blraa x8, x9", regs.ARM64, []byte{0x09, 0x09, 0x3f, 0xd7}, true},
		{"arm64/blraaz x8", regs.ARM64, []byte{0x1f, 0x09, 0x3f, 0xd6}, true},
		{"arm64/b", regs.ARM64, []byte{0, 0, 0, 0x14}, false},
		{"arm64/br x8", regs.ARM64, []byte{0x00, 0x01, 0x1f, 0xd6}, false},
		{"arm64/ret", regs.ARM64, []byte{0xc0, 0x03, 0x5f, 0xd6}, false},
		{"s390x/brasl %r14", regs.S390X, []byte{0xc0, 0xe5, 0, 0, 1, 2}, true},
		{"s390x/bras %r14", regs.S390X, []byte{0xa7, 0xe5, 1, 2}, true},
		{"s390x/bas %r14,0(%r1)", regs.S390X, []byte{0x4d, 0xe0, 0x10, 0}, true},
		{"s390x/bas %r13,0(%r14)", regs.S390X, []byte{0x4d, 0xd0, 0xe0, 0}, false},
		{"s390x/basr %r14,%r1", regs.S390X, []byte{0x0d, 0xe1}, true},
		{"s390x/basr %r13,%r1", regs.S390X, []byte{0x0d, 0xd1}, false},
		{"s390x/lr %r14,%r1", regs.S390X, []byte{0x18, 0xe1}, false},
		{"s390x/brasl %r1", regs.S390X, []byte{0xc0, 0x15, 0, 0, 1, 2}, false},
		{"s390x/br %r14", regs.S390X, []byte{0x07, 0xfe}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := conventions[tt.arch.Name].afterCall(around(tt.code, nil)); got != tt.want {
				t.Errorf("afterCall behind % x = %v, want %v", tt.code, got, tt.want)
			}
		})
	}
}

// frameOf lays words of a signal frame at byte offsets from SP.
func frameOf(a *regs.Arch, size int, at map[int]uint64) *Memory {
	b := make([]byte, size)
	for off, v := range at {
		copy(b[off:], put(a, nil, v))
	}
	m := new(Memory)
	m.Reset(0x7000_0000, b, nil)
	return m
}

// TestSignalFrames walks from a handler through a trampoline that no table
// knows. Offsets are those of the kernel's frames from SP at the trampoline,
// computed from the uapi structures and not from our rows.
func TestSignalFrames(t *testing.T) {
	const tramp = 0x450000
	for _, tt := range []struct {
		name string
		arch *regs.Arch
		code []byte
		skip uint64 // pc's distance from the trampoline's start
		at   map[int]uint64
		want *regs.Set
	}{
		{"amd64/rt_sigreturn", regs.AMD64, []byte{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}, 0,
			map[int]uint64{40: 8, 72: 12, 96: 15, 104: 5, 120: 0xb, 128: 3, 152: 2, 160: sp, 168: 0x401008},
			set(0x401008, 7, sp, 6, 0xb, 8, 8, 12, 12, 15, 15, 5, 5, 3, 3, 2, 2)},
		{"amd64/at the syscall instruction", regs.AMD64, []byte{0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}, 7,
			map[int]uint64{160: sp, 168: 0x401008}, set(0x401008, 7, sp)},
		{"amd64/Go's", regs.AMD64, []byte{0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05}, 0,
			map[int]uint64{160: sp, 168: 0x401008}, set(0x401008, 7, sp)},
		// struct sigframe_ia32 behind its return address: signal number 4 bytes,
		// sigcontext_32: bp at 24, sp at 28, ip at 56.
		{"386/sigreturn", regs.I386, []byte{0x58, 0xb8, 0x77, 0, 0, 0, 0xcd, 0x80}, 0,
			map[int]uint64{4 + 24: 0xb, 4 + 28: 0xffff_d000, 4 + 32: 3, 4 + 56: 0x401008},
			set(0x401008, 4, 0xffff_d000, 5, 0xb, 3, 3)},
		{"386/sigreturn behind the pop", regs.I386, []byte{0x58, 0xb8, 0x77, 0, 0, 0, 0xcd, 0x80}, 1,
			map[int]uint64{24: 0xb, 28: 0xffff_d000, 56: 0x401008}, set(0x401008, 4, 0xffff_d000, 5, 0xb)},
		{"386/sigreturn at the int", regs.I386, []byte{0x58, 0xb8, 0x77, 0, 0, 0, 0xcd, 0x80}, 6,
			map[int]uint64{24: 0xb, 28: 0xffff_d000, 56: 0x401008}, set(0x401008, 4, 0xffff_d000, 5, 0xb)},
		// struct rt_sigframe_ia32: sig 4, two pointers 8, siginfo 128, ucontext 20.
		{"386/rt_sigreturn", regs.I386, []byte{0xb8, 0xad, 0, 0, 0, 0xcd, 0x80}, 0,
			map[int]uint64{160 + 24: 0xb, 160 + 28: 0xffff_d000, 160 + 56: 0x401008},
			set(0x401008, 4, 0xffff_d000, 5, 0xb)},
		{"arm64/rt_sigreturn", regs.ARM64, []byte{0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4}, 0,
			map[int]uint64{312: 0xa0, 312 + 19*8: 0x13, 544: 0xf, 552: 0x401100, 560: sp, 568: 0x401008},
			set(0x401008, 31, sp, 29, 0xf, 30, 0x401100, 0, 0xa0, 19, 0x13)},
		{"arm64/at the svc", regs.ARM64, []byte{0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4}, 4,
			map[int]uint64{560: sp, 568: 0x401008}, set(0x401008, 31, sp)},
		{"s390x/rt_sigreturn", regs.S390X, []byte{0x0a, 0xad}, 0,
			map[int]uint64{344: 0x401008, 352 + 6*8: 6, 440: 0xb, 464: 0x401100, 472: sp,
				552: 0xf0, 552 + 1*8: 0xf1, 552 + 2*8: 0xf2, 552 + 3*8: 0xf3, 552 + 4*8: 0xf4, 552 + 5*8: 0xf5, 552 + 6*8: 0xf6, 552 + 7*8: 0xf7, 552 + 8*8: 0xf8,
				552 + 9*8: 0xf9, 552 + 10*8: 0xfa, 552 + 11*8: 0xfb, 552 + 12*8: 0xfc, 552 + 13*8: 0xfd, 552 + 14*8: 0xfe, 552 + 15*8: 0xff},
			// s390x ELF ABI, DWARF register mapping: f0, f2, f4, f6, f1, f3, f5, f7, f8, f10, f12, f14, f9, f11, f13, f15 are 16 to 31.
			set(0x401008, 15, sp, 11, 0xb, 14, 0x401100, 6, 6, 16, 0xf0, 17, 0xf2, 18, 0xf4, 19, 0xf6, 20, 0xf1, 21, 0xf3, 22, 0xf5, 23, 0xf7,
				24, 0xf8, 25, 0xfa, 26, 0xfc, 27, 0xfe, 28, 0xf9, 29, 0xfb, 30, 0xfd, 31, 0xff)},
		// struct sigframe: save area 160, mask 8, pointer 8, then the registers.
		{"s390x/sigreturn", regs.S390X, []byte{0x0a, 0x77}, 0,
			map[int]uint64{184: 0x401008, 192 + 15*8: sp, 192 + 11*8: 0xb, 192 + 14*8: 0x401100},
			set(0x401008, 15, sp, 11, 0xb, 14, 0x401100)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := tt.arch
			s := &space{mapped: [][2]uint64{{textStart, textEnd}}, code: map[uint64][]byte{tramp: tt.code}}
			w := New(a, s, nil, 2)
			m := frameOf(a, 1024, tt.at)
			frames, _ := w.Walk(set(tramp+tt.skip, uint64(a.SP), 0x7000_0000), m, nil)
			want := []Frame{{PC: tramp + tt.skip, SP: 0x7000_0000}, {PC: 0x401008, SP: tt.want.R[a.SP], How: Signal}}
			if d := cmp.Diff(want, frames); d != "" {
				t.Fatalf("frames (-want +got):\n%s", d)
			}
			for n := range regs.NumRegs {
				v, known := w.main.set.Reg(uint8(n))
				if tt.want.Known&(1<<n) != 0 && (!known || v != tt.want.R[n]) {
					t.Errorf("%s = %#x, known %v; want %#x", a.RegName(uint8(n)), v, known, tt.want.R[n])
				}
			}
			// As a caller: the handler returns to the trampoline's first byte.
			if tt.skip == 0 {
				e := New(a, s, nil, 2).main.code.lookup(tramp, true)
				if e.how != Signal || !e.row.Signal {
					t.Errorf("as a return address the trampoline is %v", e.how)
				}
			}
		})
	}
}

// TestSignalByFrameRecords: frame records do not tell where the signal frame is,
// but the one that the kernel pushes above it does.
func TestSignalByFrameRecords(t *testing.T) {
	a := regs.ARM64
	const tramp, alt = 0x450000, 0x7000_0000
	s := &space{
		mapped: [][2]uint64{{textStart, textEnd}},
		code: map[uint64][]byte{
			tramp:    {0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4},
			0x40300c: {0, 0, 0, 0x94}, // bl
		},
		entries: [][2]uint64{{0x403000, 0x403040}},
	}
	for _, extra := range []int{0, 1024} { // what does not fit in the usual frame
		const at = 32 // of the signal frame
		record := at + arm64SigframeBytes + extra
		mem := frameOf(a, record+16, map[int]uint64{
			0: alt + uint64(record), 8: tramp, // the handler's record
			at + 544: sp, at + 552: 0x404040, at + 560: sp, at + 568: 0x401000,
			record: sp, record + 8: 0x404040,
		})
		mem.Also = []Region{{sp, put(a, nil, 0, 0x403010)}}
		frames, end := New(a, s, []How{FramePointer}, 0).Walk(set(0x402010, 31, alt-16, 29, alt, 30, 0xdead), mem, nil)
		want := []Frame{
			{PC: 0x402010, SP: alt - 16},
			{PC: tramp, SP: alt + at, How: FramePointer},
			{PC: 0x401000, SP: sp, How: Signal},
			{PC: 0x403010, Caller: true, How: FramePointer},
		}
		for i := range frames {
			if i != 0 && i != 2 {
				frames[i].SP, want[i].SP = 0, 0
			}
		}
		if d := cmp.Diff(want, frames); d != "" || !end.Complete() {
			t.Errorf("extra %d: end %v (-want +got):\n%s", extra, end.Reason, d)
		}
		mem.Bytes = mem.Bytes[:record]
		if _, end := New(a, s, []How{FramePointer}, 0).Walk(set(0x402010, 31, alt-16, 29, alt, 30, 0xdead), mem, nil); end.Reason != OutsideCopy {
			t.Errorf("record outside the copy: end %v, want %v", end.Reason, OutsideCopy)
		}
	}
}

// TestSignalInLeaf: a handler interrupted an arm64 leaf, which keeps its return
// address in x30: the interrupted frame's registers are live again.
func TestSignalInLeaf(t *testing.T) {
	a := regs.ARM64
	const tramp = 0x450000
	s := &space{
		mapped: [][2]uint64{{textStart, textEnd}},
		code:   map[uint64][]byte{tramp: {0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4}},
		rows: map[How][]sframe.Entry{SFrame: {
			covers(0x400000, 0x400040, sframe.Row{Outermost: true}),
			covers(0x401000, 0x401040, sframe.Row{CFA: fromReg(31, 0)}),                      // leaf
			covers(0x402000, 0x402040, sframe.Row{CFA: fromReg(31, 16), RA: atCFA(-8)}),      // handler
			covers(0x403000, 0x403040, sframe.Row{CFA: fromReg(31, 32), RA: atCFA(-32 + 8)}), // caller of the leaf
		}},
	}
	mem := frameOf(a, 1024, map[int]uint64{8: tramp, 16 + 544: 0xf, 16 + 552: 0x403010, 16 + 560: sp, 16 + 568: 0x401000})
	mem.Also = []Region{{sp, put(a, nil, 1, 0x400020, 3, 4)}}
	w := New(a, s, []How{SFrame}, 0)
	frames, end := w.Walk(set(0x402010, 31, 0x7000_0000, 30, 0xdead), mem, nil)
	want := []Frame{
		{PC: 0x402010, SP: 0x7000_0000},
		{PC: tramp, SP: 0x7000_0010, How: SFrame}, // returned to, but never called
		{PC: 0x401000, SP: sp, How: Signal},       // the first instruction: pc-1 would be another function
		{PC: 0x403010, SP: sp, Caller: true, How: SFrame},
		{PC: 0x400020, SP: sp + 32, Caller: true, How: SFrame},
	}
	if d := cmp.Diff(want, frames); d != "" || !end.Complete() {
		t.Errorf("frames (-want +got):\n%s\nend %v at %#x", d, end.Reason, end.Addr)
	}
	// The way to the other stack is told, so that it can be copied next time.
	over := []Stack{{Frame: 2, Base: sp, Word: 0x7000_0010 + 560}}
	if d := cmp.Diff(over, w.Stacks()); d != "" {
		t.Errorf("stacks (-want +got):\n%s", d)
	}
	mem.Also = nil
	if _, end = w.Walk(set(0x402010, 31, 0x7000_0000, 30, 0xdead), mem, nil); end.Reason != OutsideCopy || cmp.Diff(over, w.Stacks()) != "" {
		t.Errorf("without a copy of the other stack: end %v, stacks %v; want %v, %v", end.Reason, w.Stacks(), OutsideCopy, over)
	}
}

// TestSignalStack: a signal leads to another stack where the interrupted stack pointer is not above the signal frame, in the same mapping
// and less far than any signal frame is long.
func TestSignalStack(t *testing.T) {
	a := regs.AMD64
	const tramp, alt, end = 0x450000, 0x7000_0000, 0x7080_0000
	for _, tt := range []struct {
		name  string
		sp    uint64
		stack [2]uint64 // mapping; zero: not known
		over  bool
	}{
		{"right above", alt + 512, [2]uint64{}, false},
		{"above the largest frame of arm64", alt + 80<<10, [2]uint64{}, false}, // ZA: 64 KiB
		{"as far as may be", alt + maxSignalFrame, [2]uint64{}, false},
		{"further", alt + maxSignalFrame + 8, [2]uint64{}, true},
		{"below", alt - 8, [2]uint64{}, true},
		{"in the mapping", alt + 512, [2]uint64{alt - 4096, end}, false},
		{"at its end", alt + 512, [2]uint64{alt - 4096, alt + 512}, false},
		{"beyond its end", alt + 520, [2]uint64{alt - 4096, alt + 512}, true},
		{"further in the mapping", alt + maxSignalFrame + 8, [2]uint64{alt - 4096, end}, true},
	} {
		s := &space{mapped: [][2]uint64{{textStart, textEnd}}, code: map[uint64][]byte{tramp: amd64SigreturnCode[0]}, stack: tt.stack}
		w := New(a, s, []How{EHFrame}, 0)
		got, _ := w.Walk(set(tramp, 7, alt), frameOf(a, 512, map[int]uint64{160: tt.sp, 168: 0x401000}), nil)
		want := []Stack{{Frame: 1, Base: tt.sp, Word: alt + 160}}
		if !tt.over {
			want = nil
		}
		if len(got) != 2 || got[1].SP != tt.sp || !slices.Equal(w.Stacks(), want) {
			t.Errorf("%s: %+v, stacks %+v; want %+v", tt.name, got, w.Stacks(), want)
		}
	}
}

// TestSignalLoop: a forged signal frame that leads back to itself.
func TestSignalLoop(t *testing.T) {
	a := regs.AMD64
	const tramp = 0x450000
	s := &space{mapped: [][2]uint64{{textStart, textEnd}},
		code: map[uint64][]byte{tramp: {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}}}
	m := frameOf(a, 1024, map[int]uint64{160: 0x7000_0000, 168: tramp})
	frames, end := New(a, s, nil, 0).Walk(set(tramp, 7, 0x7000_0000), m, nil)
	if len(frames) != 1 || end != (End{Reason: Loop, Addr: tramp}) {
		t.Errorf("%d frames, end %+v; want 1, %v", len(frames), end, Loop)
	}
}

// TestArm64Innermost: entry, the moment before x29 is set, and return.
func TestArm64Innermost(t *testing.T) {
	a := regs.ARM64
	code := func(insns ...uint32) (b []byte) {
		for _, i := range insns {
			b = binary.LittleEndian.AppendUint32(b, i)
		}
		return b
	}
	const push = 0xa9bd7bfd   // stp x29, x30, [sp, #-48]!
	const goPush = 0xf81d0ffe // str x30, [sp, #-48]!
	for _, tt := range []struct {
		name string
		code []byte
		pc   uint64
		x30  uint64
		mem  []uint64
		sp   uint64 // of the caller, from sp
	}{
		{"stp at entry", code(push, arm64MovFP), 0, 0x402010, []uint64{1}, 0},
		{"paciasp at entry", code(arm64PACIASP, push), 0, 0x402010, []uint64{1}, 0},
		{"behind paciasp", code(arm64PACIASP, push), 4, 0x402010, []uint64{1}, 0},
		{"mov x29, sp", code(push, arm64MovFP), 4, 0xdead, []uint64{sp + 64, 0x402010}, 48},
		{"ret", code(0xa8c37bfd, arm64Ret), 4, 0x402010, []uint64{1}, 0},
		{"autiasp before ret", code(arm64AUTIASP, arm64Ret), 0, 0x402010, []uint64{1}, 0},
		{"PLT entry", code(0x90000010, 0xf9400211, 0x91000210, arm64BrX17), 0, 0x402010, []uint64{1}, 0},
		{"PLT entry at br", code(0x90000010, 0xf9400211, 0x91000210, arm64BrX17), 12, 0x402010, []uint64{1}, 0},
		{"retaa", code(arm64RetAA), 0, 0x402010, []uint64{1}, 0},
		{"Go at entry", code(goPush, arm64GoSaveFP, arm64GoSetFP), 0, 0x402010, []uint64{1}, 0},
		{"Go before x29 is saved", code(goPush, arm64GoSaveFP, arm64GoSetFP), 4, 0xdead, []uint64{0x402010}, 48},
		{"Go before x29 is set", code(goPush, arm64GoSaveFP, arm64GoSetFP), 8, 0xdead, []uint64{0x402010}, 48},
		{"Go at the end", code(arm64GoRestore, 0x9100c3ff, arm64Ret), 4, 0x402010, []uint64{1}, 48},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &space{mapped: [][2]uint64{{textStart, textEnd}},
				code: map[uint64][]byte{0x401000: tt.code, 0x40200c: code(0x94000000)}}
			frames, _ := New(a, s, []How{FramePointer}, 2).Walk(
				set(0x401000+tt.pc, 31, sp, 29, sp+64, 30, tt.x30), words(a, sp, tt.mem...), nil)
			want := []Frame{{PC: 0x401000 + tt.pc, SP: sp}, {PC: 0x402010, SP: sp + tt.sp, Caller: true, How: FramePointer}}
			if d := cmp.Diff(want, frames); d != "" {
				t.Errorf("frames (-want +got):\n%s", d)
			}
		})
	}
}

// TestArm64Leaf: a leaf without a frame record, told by x30. The caller's
// record at sp+64 holds 0x403010.
func TestArm64Leaf(t *testing.T) {
	a := regs.ARM64
	bl := func(from, to uint64) []byte {
		return binary.LittleEndian.AppendUint32(nil, 0x94000000|uint32(int64(to-from)/4)&0x3ffffff)
	}
	for _, tt := range []struct {
		name string
		call []byte // the instruction at 0x40200c, before x30
		x30  uint64
		vdso bool // the caller lies in another mapping
		want uint64
	}{
		{"called by bl", bl(0x40200c, 0x404000), 0x402010, false, 0x402010},
		{"call went elsewhere", bl(0x40200c, 0x404100), 0x402010, false, 0x403010},
		{"called by blr from another mapping", []byte{0x00, 0x01, 0x3f, 0xd6}, 0x402010, true, 0x402010},
		{"called by blr", []byte{0x00, 0x01, 0x3f, 0xd6}, 0x402010, false, 0x403010},
		{"x30 as in the record", bl(0x40300c, 0x404000), 0x403010, false, 0x403010},
		{"x30 behind no call", []byte{0, 0, 0, 0}, 0x402010, false, 0x403010},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &space{mapped: [][2]uint64{{textStart, textEnd}},
				code: map[uint64][]byte{0x40200c: tt.call, 0x40300c: bl(0x40300c, 0x402000)}}
			if tt.vdso {
				s.stack, s.also = [2]uint64{0x404000, 0x405000}, [2]uint64{0x402000, 0x403000}
			}
			frames, _ := New(a, s, []How{FramePointer}, 2).Walk(
				set(0x404010, 31, sp, 29, sp, 30, tt.x30), words(a, sp, sp+64, 0x403010), nil)
			if len(frames) != 2 || frames[1].PC != tt.want {
				t.Errorf("frames %+v, want a caller at %#x", frames, tt.want)
			}
		})
	}
}

// TestInLeaf: x30 is the return address of a function without a frame record. The function at 0x404000 is called by the instruction
// before 0x402010, or as each case says; the caller's record at the stack pointer holds 0x403010.
func TestInLeaf(t *testing.T) {
	const pac, signed = 0x7f << 48, 0x2a << 48
	const blr, nop = 0xd63f0100, 0xd503201f
	bl := func(at, to uint64) uint32 { return 0x94000000 | uint32(int64(to-at)/4)&0x3ffffff }
	a := regs.ARM64.WithPAC(pac)
	for _, tt := range []struct {
		name    string
		code    map[uint64]uint32 // among nops
		pc, x30 uint64
		record  []uint64
		set     *regs.Set    // nil: all is known
		maps    [2][2]uint64 // mappings that are known
		mapped  [2]uint64    // code; zero: all
		want    bool
	}{
		{name: "bl", code: map[uint64]uint32{0x40200c: bl(0x40200c, 0x404000)}, want: true},
		{name: "bl of the first instruction", code: map[uint64]uint32{0x40200c: bl(0x40200c, 0x404010)}, want: true},
		{name: "bl behind it", code: map[uint64]uint32{0x40200c: bl(0x40200c, 0x404014)}},
		{name: "bl as far below as may be", code: map[uint64]uint32{0x40200c: bl(0x40200c, 0x404010-leafReach+4)}, want: true},
		{name: "bl too far below", code: map[uint64]uint32{0x40200c: bl(0x40200c, 0x404010-leafReach)}},
		{name: "signed", code: map[uint64]uint32{0x40200c: bl(0x40200c, 0x404000)}, x30: 0x402010 | signed, want: true},
		{name: "as in the record", code: map[uint64]uint32{0x40200c: bl(0x40200c, 0x404000)}, record: []uint64{0, 0x402010}},
		{name: "as in the record, signed", code: map[uint64]uint32{0x40200c: bl(0x40200c, 0x404000)}, x30: 0x402010 | signed, record: []uint64{0, 0x402010 | signed>>1}},
		{name: "no record", code: map[uint64]uint32{0x40200c: bl(0x40200c, 0x404000)}, record: []uint64{0}},
		{name: "x30 unknown", code: map[uint64]uint32{0x40200c: bl(0x40200c, 0x404000)}, set: set(0x404010, 31, sp, 29, sp)},
		{name: "x29 unknown", code: map[uint64]uint32{0x40200c: bl(0x40200c, 0x404000)}, set: set(0x404010, 31, sp, 30, 0x402010)},
		{name: "blr", code: map[uint64]uint32{0x40200c: blr}},
		{name: "blr of another mapping", code: map[uint64]uint32{0x40200c: blr}, maps: [2][2]uint64{{0x404000, 0x405000}, {0x402000, 0x403000}}, want: true},
		{name: "blr of the same mapping", code: map[uint64]uint32{0x40200c: blr}, maps: [2][2]uint64{{0x402000, 0x405000}}},
		{name: "blr of a mapping that is not known", code: map[uint64]uint32{0x40200c: blr}, maps: [2][2]uint64{{0x404000, 0x405000}}},
		{name: "blr to a mapping that is not known", code: map[uint64]uint32{0x40200c: blr}, maps: [2][2]uint64{{0x402000, 0x403000}}},
		{name: "no call from another mapping", maps: [2][2]uint64{{0x404000, 0x405000}, {0x402000, 0x403000}}},
		{name: "blr that ends another mapping", code: map[uint64]uint32{0x403ffc: blr}, x30: 0x404000,
			maps: [2][2]uint64{{0x404000, 0x405000}, {0x402000, 0x404000}}, want: true},
		// Calls from above: what pc's own function has called stands there as well.
		{name: "near, one function", code: map[uint64]uint32{0x404d00: bl(0x404d00, 0x404000)}, x30: 0x404d04, want: true},
		{name: "near, a return between", code: map[uint64]uint32{0x404ff8: bl(0x404ff8, 0x404000), 0x404008: arm64Ret}, x30: 0x404ffc},
		{name: "not so near, a return between", code: map[uint64]uint32{0x404ffc: bl(0x404ffc, 0x404000), 0x404008: arm64Ret}, x30: 0x405000, want: true},
		{name: "near, a return behind", code: map[uint64]uint32{0x404ff8: bl(0x404ff8, 0x404000), 0x404010: arm64Ret}, x30: 0x404ffc, want: true},
		{name: "near, as much code as may be", code: map[uint64]uint32{0x404d00: bl(0x404d00, 0x404010-maxLeaf)}, x30: 0x404d04, want: true},
		{name: "near, more code", code: map[uint64]uint32{0x404d00: bl(0x404d00, 0x404010-maxLeaf-4)}, x30: 0x404d04},
		{name: "near, code that cannot be read", code: map[uint64]uint32{0x404ff8: bl(0x404ff8, 0x404000)}, x30: 0x404ffc, mapped: [2]uint64{0x404008, 0x405000}},
	} {
		if tt.x30 == 0 {
			tt.x30 = 0x402010
		}
		if tt.record == nil {
			tt.record = []uint64{0, 0x403010}
		}
		if tt.set == nil {
			tt.set = set(0x404010, 31, sp, 29, sp, 30, tt.x30)
		}
		if tt.mapped[0] == 0 {
			tt.mapped = [2]uint64{textStart, textEnd}
		}
		text := bytes.Repeat(le(nop), 0x3000/4)
		for at, insn := range tt.code {
			copy(text[at-0x402000:], le(insn))
		}
		w := New(a, &space{mapped: [][2]uint64{tt.mapped}, code: map[uint64][]byte{0x402000: text}, stack: tt.maps[0], also: tt.maps[1]}, []How{FramePointer}, 0)
		w.main.code.lookup(tt.x30&^pac, true)
		w.main.code.window = window{} // as it is if that was known before
		if got := w.main.code.inLeaf(tt.set, words(a, sp, tt.record...)); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestFindSignalSP: a signal frame is found below the record that the kernel has pushed above it, by the registers that both hold.
func TestFindSignalSP(t *testing.T) {
	a := regs.ARM64
	const at, x29, x30 = 0x7000_0000, 0x1111, 0x2222
	saved := func(frame int, m map[int]uint64) map[int]uint64 { // x29 and x30 of the signal frame
		m[frame+544], m[frame+552] = x29, x30
		return m
	}
	for _, tt := range []struct {
		name   string
		record int // of x29 and x30, from the start of the copy
		frame  []int
		size   int // of the copy; 0: all
		want   int // -1: none
		set    *regs.Set
		reason Reason
	}{
		{name: "of the usual size", record: arm64SigframeBytes + 64, frame: []int{64}, want: 64},
		{name: "record at half of 16 bytes", record: arm64SigframeBytes + 72, frame: []int{64}, want: 64},
		{name: "smaller", record: arm64SigframeBytes + 48, frame: []int{64}, want: -1},
		{name: "as large as may be", record: maxSigframe + 64, frame: []int{64}, want: 64},
		{name: "larger", record: maxSigframe + 80, frame: []int{64}, want: -1},
		{name: "the nearest of two", record: arm64SigframeBytes + 2048, frame: []int{64, 1024}, want: 1024},
		{name: "none", record: arm64SigframeBytes + 64, want: -1},
		{name: "no record", record: arm64SigframeBytes + 64, frame: []int{64}, size: arm64SigframeBytes + 72, want: -1, reason: OutsideCopy},
		{name: "known", record: arm64SigframeBytes + 64, frame: []int{64}, want: 16, set: set(0, 31, at+16, 29, at+arm64SigframeBytes+64)},
		{name: "no frame pointer", record: arm64SigframeBytes + 64, frame: []int{64}, want: -1, set: set(0)},
	} {
		m := map[int]uint64{tt.record: x29, tt.record + 8: x30}
		for _, f := range tt.frame {
			saved(f, m)
		}
		mem := frameOf(a, tt.record+16, m)
		if tt.size > 0 {
			mem.Bytes = mem.Bytes[:tt.size]
		}
		if tt.set == nil {
			tt.set = set(0, 29, at+uint64(tt.record))
		}
		fault, r := findSignalSP(a, tt.set, mem)
		sp, known := tt.set.Reg(a.SP)
		if r != tt.reason || known != (tt.want >= 0) || known && sp != at+uint64(tt.want) || r != 0 && fault != at+uint64(tt.record) {
			t.Errorf("%s: %#x, %v, %v at %#x; want %#x, %v", tt.name, sp, known, r, fault, at+tt.want, tt.reason)
		}
	}
}

func TestWalkS390X(t *testing.T) {
	a := regs.S390X
	text := [][2]uint64{{textStart, textEnd}}
	brasl := []byte{0xc0, 0xe5, 0, 0, 1, 2}
	calls := map[uint64][]byte{0x40200a: brasl, 0x40300a: brasl, 0x40400a: brasl}
	stmg := []byte{0xeb, 0xbf, 0xf0, 0x58, 0x00, 0x24} // stmg %r11,%r15,88(%r15)
	aghi := []byte{0xa7, 0xfb, 0xff, 0x60}             // aghi %r15,-160
	lgr := []byte{0xb9, 0x04, 0x00, 0x1f}              // lgr %r1,%r15
	lay := []byte{0xe3, 0xf0, 0xff, 0x60, 0xff, 0x71}  // lay %r15,-160(%r15)
	withCode := func(at uint64, code ...[]byte) map[uint64][]byte {
		m := map[uint64][]byte{at: bytes.Join(code, nil)}
		for k, v := range calls {
			m[k] = v
		}
		return m
	}
	direct := withCode(0x40300a, brasl)
	direct[0x40200a] = []byte{0xc0, 0xe5, 0xff, 0xff, 0xf7, 0xfb} // brasl %r14,0x401000
	// chain makes frames of 160 bytes: the word at each is the next one's
	// address, and its r14 is stored in the caller's save area, at 112.
	chain := func(ras ...uint64) []uint64 {
		w := make([]uint64, 20*(len(ras)+1))
		for i, ra := range ras {
			w[20*i] = sp + uint64(160*(i+1))
			w[20*(i+1)+14] = ra
		}
		return w
	}
	for _, tt := range []walkTest{
		{
			name: "back chain to its clean end", order: []How{BackChain},
			space: &space{mapped: text, code: calls},
			set:   set(0x401010, 15, sp, 14, 0xdead), mem: words(a, sp, chain(0x402010, 0x403010)...),
			want: []Frame{
				{PC: 0x401010, SP: sp},
				{PC: 0x402010, SP: sp + 160, Caller: true, How: BackChain},
				{PC: 0x403010, SP: sp + 320, Caller: true, How: BackChain},
			},
		},
		{
			// stmg; lgr; lay: r15 is the caller's until lay has run, and the chain
			// word at it would skip the caller.
			name: "prologue at its first instruction", order: []How{BackChain},
			space: &space{mapped: text, code: withCode(0x401000, stmg, lgr, lay)},
			set:   set(0x401000, 15, sp, 14, 0x402010), mem: words(a, sp, chain(0x403010)...),
			want: []Frame{{PC: 0x401000}, {PC: 0x402010, SP: sp, Caller: true, How: BackChain},
				{PC: 0x403010, SP: sp + 160, Caller: true, How: BackChain}},
		},
		{
			name: "prologue behind the store", order: []How{BackChain},
			space: &space{mapped: text, code: withCode(0x401000, stmg, lgr, lay)},
			set:   set(0x401006, 15, sp, 14, 0x402010), mem: words(a, sp, chain(0x403010)...),
			want: []Frame{{PC: 0x401006}, {PC: 0x402010, SP: sp, Caller: true, How: BackChain},
				{PC: 0x403010, SP: sp + 160, Caller: true, How: BackChain}},
		},
		{
			name: "prologue right before r15 is lowered", order: []How{BackChain},
			space: &space{mapped: text, code: withCode(0x401000, stmg, lgr, lay)},
			set:   set(0x40100a, 15, sp, 14, 0x402010), mem: words(a, sp, chain(0x403010)...),
			want: []Frame{{PC: 0x40100a}, {PC: 0x402010, SP: sp, Caller: true, How: BackChain},
				{PC: 0x403010, SP: sp + 160, Caller: true, How: BackChain}},
		},
		{
			// alloca lowers r15 as well, but no store of r14 stands before it.
			name: "lowering that is no prologue", order: []How{BackChain},
			space: &space{mapped: text, code: withCode(0x401000, []byte{0xe3, 0x10, 0xf0, 0, 0, 0x04}, aghi)},
			set:   set(0x401000, 15, sp, 14, 0xdead), mem: words(a, sp, chain(0x402010)...),
			want: []Frame{{PC: 0x401000}, {PC: 0x402010, Caller: true, How: BackChain}},
		},
		{
			name: "packed stack", order: []How{BackChain},
			space: &space{mapped: text, code: calls},
			set:   set(0x401010, 15, sp, 14, 0xdead),
			mem: func() *Memory {
				w := make([]uint64, 60)
				w[19], w[20+17] = sp+160, 0x402010
				return words(a, sp, w...)
			}(),
			want: []Frame{{PC: 0x401010}, {PC: 0x402010, SP: sp + 160, Caller: true, How: BackChain}},
		},
		{
			// clock_gettime in the vDSO: its wrapper keeps the return address 160
			// bytes above SP and 0 in the chain.
			name: "vDSO wrapper", order: []How{BackChain},
			space: &space{mapped: text, code: calls, vdso: [2]uint64{0x401000, 0x402000}},
			set:   set(0x401010, 15, sp, 14, 0xdead),
			mem: func() *Memory {
				w := make([]uint64, 21+20+20)
				w[20] = 0x402010       // the wrapper's return address
				w[19] = 5              // where another layout has its chain
				w[21] = sp + 168 + 160 // chain of its caller
				w[21+20+14] = 0x403010 // and its r14
				return words(a, sp, w...)
			}(),
			want: []Frame{{PC: 0x401010}, {PC: 0x402010, SP: sp + 168, Caller: true, How: BackChain},
				{PC: 0x403010, SP: sp + 328, Caller: true, How: BackChain}},
		},
		{
			// The chain cannot restore r11, on which a row in the caller stands:
			// the chain goes on where the row fails, and the frame says so.
			name: "row needs r11 after a chain",
			space: &space{mapped: text, code: calls, rows: map[How][]sframe.Entry{
				SFrame: {covers(0x402000, 0x402040, sframe.Row{CFA: fromReg(11, 160), RA: atCFA(-48)})},
			}},
			set: set(0x401010, 15, sp, 11, sp, 14, 0xdead), mem: words(a, sp, chain(0x402010, 0x403010)...),
			want: []Frame{{PC: 0x401010}, {PC: 0x402010, Caller: true, How: BackChain},
				{PC: 0x403010, Caller: true, How: BackChain, Fallback: true}},
		},
		{
			// The caller has a caller, as its row says, and keeps no chain: the 0 in
			// the place of its link is no end.
			name: "row needs r11 where the chain stops",
			space: &space{mapped: text, code: calls, rows: map[How][]sframe.Entry{
				SFrame: {covers(0x402000, 0x402040, sframe.Row{CFA: fromReg(11, 160), RA: atCFA(-48)})},
			}},
			set: set(0x401010, 15, sp, 11, sp, 14, 0xdead), mem: words(a, sp, chain(0x402010)...),
			want: []Frame{{PC: 0x401010}, {PC: 0x402010, Caller: true, How: BackChain}},
			end:  End{Reason: UnknownRegister, Addr: 0x402010},
		},
		{
			// A leaf stands on its caller's frame: r14 holds the way there.
			name: "leaf without a frame", order: []How{BackChain},
			space: &space{mapped: text, code: direct},
			set:   set(0x401010, 15, sp, 14, 0x402010), mem: words(a, sp, chain(0x403010)...),
			want: []Frame{{PC: 0x401010}, {PC: 0x402010, SP: sp, Caller: true, How: BackChain},
				{PC: 0x403010, SP: sp + 160, Caller: true, How: BackChain}},
		},
		{
			// Caller and leaf are neighbours, as a function and one that it has
			// called are: nothing up to pc ends a function.
			name: "leaf near its caller", order: []How{BackChain},
			space: &space{mapped: text, code: map[uint64][]byte{
				0x401000: {0x07, 0x8e, 0xa7, 0x0b, 0, 1, 0x07, 0x07}, // ber %r14; aghi %r0,1; nopr %r7
				0x40110a: {0xc0, 0xe5, 0xff, 0xff, 0xff, 0x7b},       // brasl %r14,0x401000
				0x40300a: brasl,
			}},
			set: set(0x401008, 15, sp, 14, 0x401110), mem: words(a, sp, chain(0x403010)...),
			want: []Frame{{PC: 0x401008}, {PC: 0x401110, SP: sp, Caller: true, How: BackChain},
				{PC: 0x403010, SP: sp + 160, Caller: true, How: BackChain}},
		},
		{
			// Whatever the tables and r14 say of it.
			name: "restart_syscall of the vDSO",
			space: &space{mapped: text, code: map[uint64][]byte{0x401000: {0x0a, 0x07}, 0x40200a: brasl}, rows: map[How][]sframe.Entry{
				EHFrame: {covers(0x401000, 0x401002, sframe.Row{CFA: fromReg(15, 160)})},
			}},
			set: set(0x401000, 15, sp, 14, 0x402010), mem: words(a, sp, chain(0x403010)...),
			want: []Frame{{PC: 0x401000}},
			end:  End{Reason: NoRow, Addr: 0x401000},
		},
		{
			name: "neighbour that was called", order: []How{BackChain},
			space: &space{mapped: text, code: map[uint64][]byte{
				0x401000: {0x07, 0xfe, 0xa7, 0x0b, 0, 1, 0x07, 0x07}, // br %r14; aghi %r0,1; nopr %r7
				0x40110a: {0xc0, 0xe5, 0xff, 0xff, 0xff, 0x7b},       // brasl %r14,0x401000
				0x40300a: brasl,
			}},
			set: set(0x401008, 15, sp, 14, 0x401110), mem: words(a, sp, chain(0x403010)...),
			want: []Frame{{PC: 0x401008}, {PC: 0x403010, SP: sp + 160, Caller: true, How: BackChain}},
		},
		{
			// The same call, but the function has a frame now, and r14 is stored.
			name: "frame right behind its prologue", order: []How{BackChain},
			space: &space{mapped: text, code: direct},
			set:   set(0x401010, 15, sp, 14, 0x402010), mem: words(a, sp, chain(0x402010, 0x403010)...),
			want: []Frame{{PC: 0x401010}, {PC: 0x402010, SP: sp + 160, Caller: true, How: BackChain},
				{PC: 0x403010, SP: sp + 320, Caller: true, How: BackChain}},
		},
		{
			// Without r14 nothing tells whether the chain is this frame's.
			name: "r14 unknown", order: []How{BackChain},
			space: &space{mapped: text, code: calls},
			set:   set(0x401010, 15, sp), mem: words(a, sp, chain(0x402010, 0x403010)...),
			want: []Frame{{PC: 0x401010}},
			end:  End{Reason: UnknownRegister, Addr: 0x401010},
		},
		{
			// A row says that r14 was not stored, and r14 is not known: the chain
			// is the caller's, and would leave it out.
			name: "row needs r14, which is unknown",
			space: &space{mapped: text, code: calls, rows: map[How][]sframe.Entry{
				EHFrame: {covers(0x401000, 0x401040, sframe.Row{CFA: fromReg(15, 160)})},
			}},
			set: set(0x401010, 15, sp), mem: words(a, sp, chain(0x402010, 0x403010)...),
			want: []Frame{{PC: 0x401010}},
			end:  End{Reason: UnknownRegister, Addr: 0x401010},
		},
		{
			// Code without chains, on a stack that was never written: no end.
			name: "no chain", order: []How{BackChain},
			space: &space{mapped: text, code: calls},
			set:   set(0x401010, 15, sp, 14, 0xdead), mem: words(a, sp, make([]uint64, 40)...),
			want: []Frame{{PC: 0x401010}},
			end:  End{Reason: NoRow, Addr: 0x401010},
		},
		{
			name: "no chain in a function that starts stacks", order: []How{BackChain},
			space: &space{mapped: text, code: calls, entries: [][2]uint64{{0x401000, 0x401040}}},
			set:   set(0x401010, 15, sp, 14, 0xdead), mem: words(a, sp, make([]uint64, 40)...),
			want: []Frame{{PC: 0x401010}},
		},
		{
			// The word at the caller's stack pointer is its own address.
			name: "chain that leads to itself", order: []How{BackChain},
			space: &space{mapped: text, code: calls},
			set:   set(0x401010, 15, sp, 14, 0xdead),
			mem: func() *Memory {
				w := make([]uint64, 80)
				w[0], w[20+14], w[20] = sp+160, 0x402010, sp+160
				return words(a, sp, w...)
			}(),
			want: []Frame{{PC: 0x401010}, {PC: 0x402010, SP: sp + 160, Caller: true, How: BackChain}},
			end:  End{Reason: NoProgress, Addr: sp + 160},
		},
		{
			name: "chain that leads to itself at once", order: []How{BackChain},
			space: &space{mapped: text, code: calls},
			set:   set(0x401010, 15, sp, 14, 0xdead),
			mem: func() *Memory {
				w := make([]uint64, 40)
				w[0], w[14] = sp, 0x402010
				return words(a, sp, w...)
			}(),
			want: []Frame{{PC: 0x401010}},
			end:  End{Reason: NoProgress, Addr: sp},
		},
		{
			// Where one layout has led, the other is not tried.
			name: "layout that is not the program's", order: []How{BackChain},
			space: &space{mapped: text, code: calls},
			set:   set(0x401010, 15, sp, 14, 0xdead),
			mem: func() *Memory {
				w := make([]uint64, 100)
				w[0], w[20+14] = sp+160, 0x402010        // a link
				w[20], w[40+14] = sp+320, 0x405010       // one that leads behind no call
				w[20+19], w[40+20+17] = sp+480, 0x403010 // a packed one
				return words(a, sp, w...)
			}(),
			want: []Frame{{PC: 0x401010}, {PC: 0x402010, SP: sp + 160, Caller: true, How: BackChain}},
			end:  End{Reason: NotAfterCall, Addr: 0x405010},
		},
		{
			name: "link outside the copy", order: []How{BackChain},
			space: &space{mapped: text, code: calls},
			set:   set(0x401010, 15, sp, 14, 0xdead),
			mem: func() *Memory { // of another layout it is there
				w := make([]uint64, 60)
				w[18], w[19+17] = sp+160, 0x402010
				return words(a, sp+8, w...)
			}(),
			want: []Frame{{PC: 0x401010}},
			end:  End{Reason: OutsideCopy, Addr: sp},
		},
		{
			// The row has the return address in r14, so that the chain is the caller's.
			name: "row of a leaf needs r11, which is unknown",
			space: &space{mapped: text, code: calls, rows: map[How][]sframe.Entry{
				EHFrame: {covers(0x401000, 0x401040, sframe.Row{CFA: fromReg(11, 160)})},
			}},
			set: set(0x401010, 15, sp, 14, 0xdead), mem: words(a, sp, chain(0x402010, 0x403010)...),
			want: []Frame{{PC: 0x401010}},
			end:  End{Reason: UnknownRegister, Addr: 0x401010},
		},
		{
			name: "chain leads to no call", order: []How{BackChain},
			space: &space{mapped: text, code: calls},
			set:   set(0x401010, 15, sp, 14, 0xdead), mem: words(a, sp, chain(0x405010)...),
			want: []Frame{{PC: 0x401010}},
			end:  End{Reason: NotAfterCall, Addr: 0x405010},
		},
	} {
		tt.arch = a
		t.Run(tt.name, tt.run)
	}
}

func TestCheckOrder(t *testing.T) {
	for _, tt := range []struct {
		arch  *regs.Arch
		order []How
		want  string
	}{
		{regs.AMD64, DefaultOrder, ""},
		{regs.S390X, DefaultOrder, ""},
		{regs.AMD64, []How{SFrame}, ""},
		{regs.ARM64, []How{EHFrame}, ""},
		{regs.S390X, []How{Code}, ""},
		{regs.I386, []How{BackChain, FramePointer}, ""},
		{regs.AMD64, []How{numHow}, `"unknown" is no unwind method (try: sframe, eh_frame, code, fp, backchain)`},
		{regs.S390X, []How{FramePointer}, "there is no frame pointer convention on s390x (try: backchain)"},
		{regs.S390X, []How{BackChain, FramePointer}, ""},
		{regs.AMD64, []How{BackChain}, "back chains exist on s390x only, not on amd64 (try: fp)"},
		{regs.ARM64, []How{FramePointer}, ""},
		{regs.AMD64, []How{SFrame, Signal}, `"signal" is no unwind method (try: sframe, eh_frame, code, fp, backchain)`},
		{regs.AMD64, nil, "no unwind method given (try: sframe,eh_frame,code,fp,backchain)"},
	} {
		got := ""
		if err := CheckOrder(tt.arch, tt.order); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("CheckOrder(%s, %v): %q, want %q", tt.arch.Name, tt.order, got, tt.want)
		}
	}
}

// TestCache: answers are asked for once, not at all when warm, and anew when
// the mappings changed; addresses outside code are asked for each time.
func TestCache(t *testing.T) {
	a := regs.AMD64
	s := &space{mapped: [][2]uint64{{textStart, textEnd}}, rows: map[How][]sframe.Entry{
		EHFrame: {covers(0x400000, 0x400040, sframe.Row{Outermost: true}), covers(0x401000, 0x401040, spRow(8))}}}
	w := New(a, s, []How{EHFrame}, 0)
	walk := func() (int, Reason) {
		before := s.asked
		_, end := w.Walk(set(0x401010, 7, sp), words(a, sp, 0x400020), nil)
		return s.asked - before, end.Reason
	}
	if n, end := walk(); n != 2 || end != Complete {
		t.Errorf("cold: %d questions, %v; want 2, complete", n, end)
	}
	if n, _ := walk(); n != 0 {
		t.Errorf("warm: %d questions, want 0", n)
	}
	s.gen++
	s.rows[EHFrame][1].Row = spRow(16) // other code at the same address
	if n, end := walk(); n == 0 || end != OutsideCopy {
		t.Errorf("after a change: %d questions, %v; want some, %v", n, end, OutsideCopy)
	}
	if n, _ := walk(); n != 0 {
		t.Errorf("warm after a change: %d questions, want 0", n)
	}
	s.rows[EHFrame][1].Row = spRow(8)
	s.gen++
	s.mapped = [][2]uint64{{0x401000, 0x402000}}
	if _, end := walk(); end != NotCode {
		t.Errorf("caller unmapped: %v, want %v", end, NotCode)
	}
	s.mapped = [][2]uint64{{textStart, textEnd}} // mapped while the generation stands
	if _, end := walk(); end != Complete {
		t.Errorf("caller mapped again: %v, want complete", end)
	}
}

func TestCacheIsBounded(t *testing.T) {
	s := &space{mapped: [][2]uint64{{0, 1 << 40}}, rows: map[How][]sframe.Entry{
		EHFrame: {covers(0, 1<<40, spRow(8))}}}
	w := New(regs.AMD64, s, []How{EHFrame}, 0)
	mem := words(regs.AMD64, sp, 0)
	for pc := uint64(0x1000); pc < 0x1000+3*maxEntries; pc++ {
		w.Walk(set(pc, 7, sp), mem, nil)
		if w.main.code.cache.count > maxEntries+w.main.maxDepth {
			t.Fatalf("%d entries", w.main.code.cache.count)
		}
	}
}

func TestNoAllocation(t *testing.T) {
	for _, how := range []How{SFrame, EHFrame, FramePointer} {
		t.Run(how.String(), func(t *testing.T) {
			s, sets, mems := deepStacks(how, 200, 2)
			w := New(regs.AMD64, s, []How{how}, 0)
			frames, _ := w.Walk(sets[0], mems[0], nil)
			if n := testing.AllocsPerRun(10, func() { frames, _ = w.Walk(sets[0], mems[0], frames[:0]) }); n != 0 {
				t.Errorf("%v allocations a walk, want 0", n)
			}
		})
	}
}

// TestUnread: a table that cannot be read at one walk is asked again at the next.
func TestUnread(t *testing.T) {
	a, sp := regs.AMD64, uint64(0x7ffd_0000_1000)
	s := &space{mapped: [][2]uint64{{0x400000, 0x403000}}, bad: map[How]error{SFrame: ErrUnread}}
	w := New(a, s, nil, 0)
	mem := words(a, sp, 0x400020, 0, 0, 0, 0, 0, 0, 0, 0, 0x402010)
	for _, want := range []int{1, 2} {
		frames, end := w.Walk(set(0x401010, 7, sp, 6, sp+64), mem, nil)
		if len(frames) != want {
			t.Errorf("%d frames, %v; want %d", len(frames), end, want)
		}
		s.bad = nil
		s.rows = map[How][]sframe.Entry{SFrame: {covers(0x400000, 0x400040, sframe.Row{Outermost: true}), covers(0x401000, 0x401040, spRow(8))}}
	}
}
