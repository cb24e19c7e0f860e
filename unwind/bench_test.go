package unwind

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"sfsample/regs"
	"sfsample/sframe"
)

// deepStacks makes a program of functions with one row each and n stacks of
// depth frames that run through it, so that they meet about 10,000 distinct
// addresses. What the rows look like depends on how: as an x86-64 compiler's
// would, with callee-saved registers for EHFrame.
func deepStacks(how How, depth, n int) (*space, []*regs.Set, []*Memory) {
	const (
		functions = 10_000
		text      = 0x40_0000
		size      = 64
		stackTop  = 0x7fff_0000_0000
	)
	r := rand.New(rand.NewPCG(1, 2))
	s := &space{
		mapped: [][2]uint64{{text, text + functions*size}},
		rows:   map[How][]sframe.Entry{},
		stack:  [2]uint64{stackTop - 1<<20, stackTop},
	}
	frameWords := make([]int, functions)
	for i := range functions {
		words := 2 + r.IntN(14)
		frameWords[i] = words
		row := sframe.Row{CFA: fromReg(7, int32(8*words)), RA: atCFA(-8)}
		if how == EHFrame {
			row.Keep = regs.AMD64.CalleeSaved &^ (1 << 6)
			row.FP = atCFA(-16)
			for k, reg := range []uint8{3, 12, 13, 14, 15}[:r.IntN(min(words-1, 6))] {
				row.Saved = append(row.Saved, sframe.SavedRule{Reg: reg, Rule: atCFA(int32(-16 - 8*k))})
			}
		}
		if i == 0 {
			row = sframe.Row{Outermost: true}
		}
		at := uint64(text + i*size)
		s.rows[how] = append(s.rows[how], sframe.Entry{Start: at, End: at + size, Row: row})
	}
	order := r.Perm(functions - 1)
	var sets []*regs.Set
	var mems []*Memory
	for k := range n {
		var stack []uint64
		pc := uint64(0)
		for level := range depth {
			f := 1 + order[(k*depth+level)%len(order)]
			at := uint64(text + f*size + 20)
			if level == 0 {
				pc = at
			} else {
				stack[len(stack)-1] = at
			}
			if how == FramePointer {
				// rbp points at its own slot, the next record two words on.
				stack = append(stack, stackTop-uint64(8*2*(depth-level))+16, 0)
				continue
			}
			for range frameWords[f] {
				stack = append(stack, 0x1111)
			}
		}
		stack[len(stack)-1] = text + 20
		sp := uint64(stackTop - 8*len(stack))
		m := words(regs.AMD64, sp, stack...)
		st := set(pc, 7, sp, 6, sp, 3, 1, 12, 1, 13, 1, 14, 1, 15, 1)
		sets, mems = append(sets, st), append(mems, m)
	}
	if how == FramePointer {
		s.rows = nil
		s.entries = [][2]uint64{{text, text + size}}
		s.code = map[uint64][]byte{}
	}
	return s, sets, mems
}

// told is a space of which the code tells the rows that it has for Code.
type told struct{ *space }

func (s told) Follow(pc uint64, caller bool) (*sframe.Row, error) { return s.Row(pc, Code) }

func (s told) Called(ra, start, pc uint64) (*sframe.Row, error) { return nil, sframe.ErrNoRow }

// BenchmarkWalk walks stacks of 200 frames, warm. Its figure is ns/frame.
func BenchmarkWalk(b *testing.B) {
	for _, how := range []How{SFrame, EHFrame, Code, FramePointer} {
		for _, n := range []int{1, 50} {
			b.Run(fmt.Sprintf("%v/stacks=%d", how, n), func(b *testing.B) {
				const depth = 200
				s, sets, mems := deepStacks(how, depth, n)
				w := New(regs.AMD64, told{s}, []How{how}, 0)
				if how == FramePointer || how == Code {
					c := *w.main.proc.conv // no code bytes to look at here
					c.afterCall = func(*window) bool { return true }
					w.main.proc.conv = &c
				}
				frames, end := w.Walk(sets[0], mems[0], nil)
				if len(frames) != depth+1 || !end.Complete() {
					b.Fatalf("%d frames, %v", len(frames), end)
				}
				for i := range n {
					frames, _ = w.Walk(sets[i], mems[i], frames[:0])
				}
				b.ReportAllocs()
				total := 0
				for i := 0; b.Loop(); i++ {
					frames, _ = w.Walk(sets[i%n], mems[i%n], frames[:0])
					total += len(frames)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(total), "ns/frame")
			})
		}
	}
}

// BenchmarkStep is one step by a row of each kind.
func BenchmarkStep(b *testing.B) {
	saved := []sframe.SavedRule{{Reg: 3, Rule: atCFA(-24)}, {Reg: 12, Rule: atCFA(-32)}}
	for name, row := range map[string]*sframe.Row{
		"sframe":   {CFA: fromReg(7, 40), RA: atCFA(-8)},
		"eh_frame": {CFA: fromReg(7, 40), RA: atCFA(-8), FP: atCFA(-16), Saved: saved, Keep: regs.AMD64.CalleeSaved},
		"fp":       amd64Convention.frame,
		"signal":   amd64SignalRow,
	} {
		b.Run(name, func(b *testing.B) {
			const sp = 0x7fff_0000_0000
			m := words(regs.AMD64, sp, sp+8, 0x401000, 3, 4, 0x401000, 6, 7, 8, 9, 10, 11, 12,
				13, 14, 15, 16, 17, 18, 19, 20, sp+64, 0x401000, 23, 24)
			first := set(0x401234, 7, sp, 6, sp)
			cur := *first
			b.ReportAllocs()
			for b.Loop() {
				cur.PC, cur.Known = first.PC, first.Known
				cur.R[7], cur.R[6] = sp, sp
				if err := Step(regs.AMD64, &cur, row, true, m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
