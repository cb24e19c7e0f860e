package unwind

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sfsample/regs"
	"sfsample/sframe"
)

func TestVerify(t *testing.T) {
	a := regs.AMD64
	withFP := sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8), FP: atCFA(-16)}
	s := &space{mapped: [][2]uint64{{textStart, textEnd}}, rows: map[How][]sframe.Entry{
		SFrame: {
			covers(0x401000, 0x401040, spRow(8)),
			covers(0x402000, 0x402040, spRow(16)), // forgets that rbp was saved
			covers(0x403000, 0x403040, spRow(24)), // a word too far: no code there
			covers(0x404000, 0x404040, spRow(8)),  // only here
			covers(0x400000, 0x400040, spRow(8)),  // no end marker
		},
		EHFrame: {
			covers(0x401000, 0x401040, spRow(8)),
			covers(0x402000, 0x402040, withFP),
			covers(0x403000, 0x403040, spRow(16)),
			covers(0x400000, 0x400040, sframe.Row{Outermost: true}),
		},
	}}
	m := words(a, sp, 0x402010, 0xb, 0x403010, 1, 0x404010, 0x400020, 1)
	var got []Difference
	// Eh_frame leads, so that every frame is met.
	end := New(a, s, []How{EHFrame, SFrame}, 0).Verify(set(0x401010, 7, sp, 6, 0xbb), m, func(d Difference) { got = append(got, d) })
	want := []Difference{
		{Frame{PC: 0x402010, SP: sp + 8, Caller: true, How: EHFrame}, 1,
			Answer{How: EHFrame, PC: 0x403010, SP: sp + 24, FP: 0xb, FPKnown: true},
			Answer{How: SFrame, PC: 0x403010, SP: sp + 24, FP: 0xbb, FPKnown: true}},
		{Frame{PC: 0x403010, SP: sp + 24, Caller: true, How: EHFrame}, 2,
			Answer{How: EHFrame, PC: 0x404010, SP: sp + 40, FP: 0xb, FPKnown: true},
			Answer{How: SFrame, PC: 0x400020, SP: sp + 48, FP: 0xb, FPKnown: true}},
		{Frame{PC: 0x400020, SP: sp + 48, Caller: true, How: SFrame}, 4,
			Answer{How: EHFrame, Reason: Outermost},
			Answer{How: SFrame, PC: 1, SP: sp + 56, FP: 0xb, FPKnown: true, Reason: NotCode}},
	}
	if d := cmp.Diff(want, got); d != "" || !end.Complete() {
		t.Errorf("differences (-want +got):\n%s\nend %v", d, end)
	}
}

func TestVerifyAgreement(t *testing.T) {
	s, sets, mems := deepStacks(EHFrame, 50, 1)
	s.rows[SFrame] = s.rows[EHFrame]
	end := New(regs.AMD64, s, []How{SFrame, EHFrame}, 0).Verify(sets[0], mems[0], func(d Difference) {
		t.Errorf("equal tables differ: %+v", d)
	})
	if !end.Complete() {
		t.Errorf("end %v", end.Reason)
	}
}

// TestVerifyConventions: in code that keeps no frame pointer, only the tables
// are compared.
func TestVerifyConventions(t *testing.T) {
	s, sets, mems := deepStacks(EHFrame, 50, 1)
	s.rows[SFrame] = append([]sframe.Entry(nil), s.rows[EHFrame]...)
	wrong := 0
	for i := range s.rows[SFrame] {
		if e := &s.rows[SFrame][i]; e.Start <= sets[0].PC && sets[0].PC < e.End {
			e.Row.CFA.Offset += 8
			wrong++
		}
	}
	var got []Difference
	New(regs.AMD64, s, []How{EHFrame, SFrame, FramePointer}, 0).Verify(sets[0], mems[0], func(d Difference) { got = append(got, d) })
	if len(got) != 1 || wrong != 1 || got[0].A.How != EHFrame || got[0].B.How != SFrame || got[0].Depth != 0 {
		t.Errorf("got %+v, want the wrong row of frame 0", got)
	}
}

// TestVerifyWithoutTables: where no table has an answer, the conventions are compared, each with the code around the frame that is asked
// about, at the second time too.
func TestVerifyWithoutTables(t *testing.T) {
	chain := make([]uint64, 60)
	chain[0], chain[20+14] = sp+160, 0x403010
	call := map[uint64][]byte{0x40200a: {0xc0, 0xe5, 0, 0, 1, 2}, 0x40300a: {0xc0, 0xe5, 0, 0, 1, 2}}
	for _, tt := range []struct {
		name  string
		arch  *regs.Arch
		order []How
		row   sframe.Row
		code  map[uint64][]byte
		set   *regs.Set
		mem   *Memory
		want  []Answer // of the innermost frame, that differ
	}{
		{"s390x", regs.S390X, []How{Code, BackChain}, *s390xEntry, call, set(0x401010, 15, sp, 14, 0x402010), words(regs.S390X, sp, chain...),
			[]Answer{{How: Code, PC: 0x402010, SP: sp}, {How: BackChain, PC: 0x403010, SP: sp + 160}}},
		{"amd64", regs.AMD64, []How{Code, FramePointer}, spRow(8), map[uint64][]byte{0x401010: {0x55}, 0x40200b: call5}, set(0x401010, 7, sp, 6, 3), words(regs.AMD64, sp, 0x402010, 1), nil},
		{"amd64, wrong", regs.AMD64, []How{Code, FramePointer}, spRow(16), map[uint64][]byte{0x401010: {0x55}, 0x40200b: call5}, set(0x401010, 7, sp, 6, 3), words(regs.AMD64, sp, 0x402010, 0x402010),
			[]Answer{{How: Code, PC: 0x402010, SP: sp + 16, FP: 3, FPKnown: true}, {How: FramePointer, PC: 0x402010, SP: sp + 8, FP: 3, FPKnown: true}}},
	} {
		w := New(tt.arch, &following{space: space{mapped: [][2]uint64{{textStart, textEnd}}, code: tt.code}, row: &tt.row}, tt.order, 0)
		for round := range 2 {
			var got []Answer
			w.Verify(tt.set, tt.mem, func(d Difference) {
				if d.Depth == 0 {
					got = append(got, d.A, d.B)
				}
			})
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("%s, round %d (-want +got):\n%s", tt.name, round, d)
			}
		}
	}
}

// TestVerifyChainEnd: the end of a back chain is an answer.
func TestVerifyChainEnd(t *testing.T) {
	a := regs.S390X
	chain := make([]uint64, 60)
	chain[0], chain[20+14], chain[20+15] = sp+160, 0x402010, 0x403010
	for _, tt := range []struct {
		name string
		row  sframe.Row
		want []Answer // of the caller, that differ
	}{
		{"another end", sframe.Row{Outermost: true}, nil},
		{"a caller", sframe.Row{CFA: fromReg(15, 320), RA: atCFA(-200)}, []Answer{{How: Code, PC: 0x403010, SP: sp + 320}, {How: BackChain, Reason: Outermost}}},
	} {
		s := told{&space{mapped: [][2]uint64{{textStart, textEnd}}, code: map[uint64][]byte{0x40200a: {0xc0, 0xe5, 0, 0, 1, 2}, 0x40300a: {0xc0, 0xe5, 0, 0, 1, 2}},
			rows: map[How][]sframe.Entry{Code: {covers(0x402000, 0x402040, tt.row)}}}}
		var got []Answer
		New(a, s, []How{Code, BackChain}, 0).Verify(set(0x401010, 15, sp, 14, 0xdead), words(a, sp, chain...), func(d Difference) {
			if d.Depth == 1 {
				got = append(got, d.A, d.B)
			}
		})
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, d)
		}
	}
}

// TestAnswer: a return address has to be in code, or right behind it.
func TestAnswer(t *testing.T) {
	a := regs.AMD64
	row := spRow(8)
	for ra, want := range map[uint64]Reason{textStart - 1: NotCode, textStart: 0, textStart + 1: 0, textEnd: 0, textEnd + 1: NotCode, 0: NotCode} {
		w := New(a, &space{mapped: [][2]uint64{{textStart, textEnd}}}, nil, 0)
		w.main.begin(set(0x401010, 7, sp), false)
		if got := w.main.answer(SFrame, &row, true, words(a, sp, ra)); got != (Answer{How: SFrame, PC: ra, SP: sp + 8, Reason: want}) {
			t.Errorf("%#x: %+v, want %v", ra, got, want)
		}
	}
}

// TestDiffers: what makes two answers differ.
func TestDiffers(t *testing.T) {
	a := Answer{PC: 1, SP: 2, FP: 3, FPKnown: true}
	for _, tt := range []struct {
		name string
		b    Answer
		want bool
	}{
		{"nothing", a, false},
		{"return address", Answer{PC: 9, SP: 2, FP: 3, FPKnown: true}, true},
		{"stack pointer", Answer{PC: 1, SP: 9, FP: 3, FPKnown: true}, true},
		{"frame pointer", Answer{PC: 1, SP: 2, FP: 9, FPKnown: true}, true},
		{"frame pointer that one has lost", Answer{PC: 1, SP: 2, FP: 9}, false},
		{"one has none", Answer{Reason: NotCode}, true},
		{"one has none, for a return address that is the same", Answer{PC: 1, SP: 2, FP: 3, FPKnown: true, Reason: NotCode}, true},
	} {
		if a.differs(&tt.b) != tt.want || tt.b.differs(&a) != tt.want {
			t.Errorf("%s: %v", tt.name, !tt.want)
		}
	}
	x, y := Answer{PC: 1, Reason: NotCode}, Answer{PC: 2, Reason: NotCode}
	if x.differs(&y) {
		t.Error("the same reason, for two return addresses")
	}
}
