package unwind

import (
	"encoding/binary"
	"testing"

	"sfsample/regs"
	"sfsample/sframe"
)

var fuzzArchs = []*regs.Arch{regs.AMD64, regs.I386, regs.ARM64.WithPAC(0x7f << 48), regs.S390X, regs.ARM64BE}

// source deals out the fuzzer's bytes; zeros when they are spent.
type source []byte

func (s *source) byte() byte {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return b
}

func (s *source) u64() uint64 {
	var b [8]byte
	n := copy(b[:], *s)
	*s = (*s)[n:]
	return binary.LittleEndian.Uint64(b[:])
}

// near is a number that is often close to the stack or to the code, else any.
func (s *source) near() uint64 {
	switch k := s.byte(); k >> 6 {
	case 0:
		return fuzzStack + uint64(k&63)*8
	case 1:
		return fuzzText + uint64(k&63)*16
	case 2:
		return uint64(k & 63)
	}
	return s.u64()
}

const (
	fuzzStack = 0x7000_0000
	fuzzText  = 0x40_0000
)

func (s *source) rule() sframe.Rule {
	k := s.byte()
	return sframe.Rule{Base: sframe.Base(k % 6), Reg: s.byte() % 40, Deref: k&0x40 != 0, Offset: int32(int8(s.byte())) * 4}
}

func (s *source) row() sframe.Row {
	k := s.byte()
	r := sframe.Row{CFA: s.rule(), RA: s.rule(), FP: s.rule(), Keep: uint32(s.u64()),
		Outermost: k&31 == 1, Signal: k&31 == 2}
	for range k >> 6 {
		r.Saved = append(r.Saved, sframe.SavedRule{Reg: s.byte() % 40, Rule: s.rule()})
	}
	if k&0x20 != 0 {
		n := min(int(s.byte()), len(*s), 64)
		r.Exprs = [][]byte{(*s)[:n]}
		*s = (*s)[n:]
	}
	return r
}

// FuzzStep: any registers, row and memory. A step either fails and changes
// nothing, or gives a caller that passes the checks which Step promises.
func FuzzStep(f *testing.F) {
	f.Add([]byte{0}, []byte("stack"))
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, make([]byte, 256))
	f.Fuzz(func(t *testing.T, data, stack []byte) {
		s := source(data)
		a := fuzzArchs[s.byte()%byte(len(fuzzArchs))]
		top := s.byte()&1 != 0
		set := regs.Set{PC: s.near(), Known: uint32(s.u64())}
		for n := range set.R {
			set.R[n] = s.near()
		}
		row := s.row()
		m := new(Memory)
		m.Reset(fuzzStack, stack, nil)
		before, old := set, set.R[a.SP]
		err := Step(a, &set, &row, top, m)
		sameShort(t, a, before, &row, top, m)
		if err != nil {
			if r, ok := err.(Reason); !ok || r == Complete || r >= numReasons {
				t.Fatalf("error %v is no reason", err)
			}
			if set != before {
				t.Fatalf("failed with %v and changed the registers", err)
			}
			return
		}
		sp := set.R[a.SP]
		jump := top && row.RA.Base == sframe.FromReg && !row.RA.Deref
		switch {
		case row.Outermost:
			t.Fatal("went beyond the outermost frame")
		case row.Signal, jump:
		case sp < old || sp == old && !top:
			t.Fatalf("stack pointer %#x after %#x", sp, old)
		case sp%uint64(a.WordBytes) != 0:
			t.Fatalf("stack pointer %#x", sp)
		}
		if a.WordBytes == 4 && (sp>>32 != 0 && !row.Signal && !jump || set.PC>>32 != 0 && row.RA.Deref) {
			t.Fatalf("beyond 32 bits: sp %#x, pc %#x", sp, set.PC)
		}
		if set.PC&a.PACMask != 0 {
			t.Fatalf("return address %#x keeps its code", set.PC)
		}
	})
}

// FuzzWalk: any program and stack. A walk ends, within its depth, with the
// registers' frame first and a reason; warm it gives the same as cold.
func FuzzWalk(f *testing.F) {
	f.Add([]byte{0}, []byte("stack"))
	f.Add([]byte{3, 0, 0x40, 1, 2, 3, 4, 5, 6, 7, 8, 9}, make([]byte, 512))
	f.Fuzz(func(t *testing.T, data, stack []byte) {
		s := source(data)
		a := fuzzArchs[s.byte()%byte(len(fuzzArchs))]
		flagBits := s.byte()
		set := regs.Set{PC: s.near(), Known: uint32(s.u64())}
		for n := range set.R {
			set.R[n] = s.near()
		}
		sp := &space{mapped: [][2]uint64{{fuzzText, fuzzText + 0x1000}}, rows: map[How][]sframe.Entry{}}
		if flagBits&1 != 0 {
			sp.stack = [2]uint64{fuzzStack &^ 0xfff, fuzzStack + 0x1000}
		}
		if flagBits&2 != 0 {
			sp.entries = [][2]uint64{{fuzzText, fuzzText + 0x40}}
		}
		if flagBits&4 != 0 {
			sp.vdso = [2]uint64{fuzzText + 0x100, fuzzText + 0x200}
		}
		for i := range int(flagBits >> 4) {
			how := []How{SFrame, EHFrame}[i&1]
			at := uint64(fuzzText + i*0x80)
			sp.rows[how] = append(sp.rows[how], covers(at, at+0x100, s.row()))
		}
		sp.code = map[uint64][]byte{fuzzText: s}
		m := new(Memory)
		m.Reset(fuzzStack, stack, nil)
		const depth = 64
		w := New(a, sp, nil, depth)
		frames, end := w.Walk(&set, m, nil)
		if len(frames) == 0 || len(frames) > depth || frames[0].PC != set.PC || frames[0].How != Regs {
			t.Fatalf("frames %+v", frames)
		}
		if end.Reason >= numReasons || end.Reason == Outermost {
			t.Fatalf("end %+v", end)
		}
		for i, fr := range frames[1:] {
			prev := frames[i]
			if fr.How == Regs || fr.How >= numHow || fr.Caller && fr.How == Signal {
				t.Fatalf("frame %d: %+v", i+1, fr)
			}
			if fr.Caller && !sp.Executable(fr.PC-1) && !sp.Executable(fr.PC) {
				t.Fatalf("frame %d is not code: %+v", i+1, fr)
			}
			if fr.Caller && prev.Caller && fr.SP <= prev.SP {
				t.Fatalf("frames %d and %d: stack pointer %#x, then %#x", i, i+1, prev.SP, fr.SP)
			}
		}
		again, end2 := w.Walk(&set, m, nil)
		if end != end2 || len(again) != len(frames) {
			t.Fatalf("warm: %d frames, %+v; cold: %d, %+v", len(again), end2, len(frames), end)
		}
		for i := range frames {
			if frames[i] != again[i] {
				t.Fatalf("frame %d: warm %+v, cold %+v", i, again[i], frames[i])
			}
		}
		// Verify takes the way of the first walk; only a repeated one may differ.
		if v := w.Verify(&set, m, func(Difference) {}); !end.Repeated && v != end {
			t.Fatalf("Verify ends with %+v, Walk with %+v", v, end)
		}
	})
}

// FuzzExpression: any bytes are evaluated or refused within the bounds.
func FuzzExpression(f *testing.F) {
	f.Add([]byte{0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22}, byte(0)) // a PLT's
	f.Add([]byte{0x2f, 0xfd, 0xff}, byte(1))
	f.Fuzz(func(t *testing.T, code []byte, arch byte) {
		a := fuzzArchs[arch%byte(len(fuzzArchs))]
		m := machine{arch: a, set: set(0x401000, uint64(a.SP), sp), code: code}
		v, r := m.run(words(a, sp, 1, 2, 3))
		if r != 0 && v != 0 {
			t.Fatalf("% x: %#x and %v", code, v, r)
		}
		if a.WordBytes == 4 && v>>32 != 0 {
			t.Fatalf("% x: %#x on a 32-bit machine", code, v)
		}
	})
}
