package ehframe_test

import (
	"cmp"
	"debug/elf"
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"sfsample/regs"
	"sfsample/sframe"
	"sfsample/sframe/ehframe"
)

var fuzzArchs = []*regs.Arch{regs.AMD64, regs.I386, regs.ARM64, regs.ARM64BE, regs.S390X}

// FuzzEhFrame reads arbitrary bytes as a section and checks that the answers fit
// each other: rows cover their function without gaps; a lookup gives a row or an
// error, never both, and the row that the enumeration has; the same by an index
// of our own and by a header made from the enumeration.
func FuzzEhFrame(f *testing.F) {
	files, err := filepath.Glob("testdata/cfi/*.elf")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		e, err := elf.Open(name)
		if err != nil {
			f.Fatal(err)
		}
		arch, err := regs.ByELF(e.Machine, e.Class, e.Data)
		if err != nil {
			f.Fatal(err)
		}
		sec, debug := e.Section(".eh_frame"), false
		if sec == nil {
			sec, debug = e.Section(".debug_frame"), true
		}
		b, err := sec.Data()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, byte(slices.Index(fuzzArchs, arch)), debug)
		e.Close()
	}
	f.Fuzz(func(t *testing.T, section []byte, arch byte, debug bool) {
		if len(section) == 0 || len(section) > 1<<16 {
			return
		}
		a := fuzzArchs[int(arch)%len(fuzzArchs)]
		b := &builder{arch: a, b: section, debug: debug}
		own := b.open(t)
		funcs := checkFuncs(t, own)
		hdr := fuzzHeader(a, funcs)
		img := image{frameAddr: section, hdrAddr: hdr}
		s := b.sections()
		s.HdrAddr, s.HdrSize = hdrAddr, uint64(len(hdr))
		byHdr := open(t, img, a, s)
		for _, fn := range funcs[:min(len(funcs), 100)] {
			for _, pc := range append(probes(fn), fn.Start+(fn.End-fn.Start)/2) {
				checkLookup(t, own, byHdr, pc)
			}
		}
	})
}

// checkFuncs checks what Funcs gives, and returns what an index would hold.
func checkFuncs(t *testing.T, tab *ehframe.Table) []ehframe.Func {
	var out []ehframe.Func
	for fn, err := range tab.Funcs() {
		if err != nil && !damaged(err) {
			t.Fatalf("read error from memory that is all there: %v", err)
		}
		if err != nil && len(fn.Entries) > 0 {
			t.Fatalf("rows and an error: %+v, %v", fn, err)
		}
		if fn.Start == 0 || fn.End <= fn.Start {
			continue
		}
		out = append(out, fn)
		at := fn.Start
		for _, e := range fn.Entries {
			if e.Start != at || e.End <= at || e.FuncStart != fn.Start || e.FuncEnd != fn.End {
				t.Fatalf("row %#x-%#x of %#x-%#x does not begin at %#x", e.Start, e.End, fn.Start, fn.End, at)
			}
			checkRow(t, &e.Row)
			at = e.End
		}
		if err == nil && at != fn.End && fn.End-fn.Start < 1<<32 {
			t.Fatalf("rows of %#x-%#x end at %#x", fn.Start, fn.End, at)
		}
	}
	return out
}

// checkRow checks that what a row refers to is there.
func checkRow(t *testing.T, row *sframe.Row) {
	rules := []sframe.Rule{row.CFA, row.RA, row.FP}
	for i, s := range row.Saved {
		if s.Reg >= regs.NumRegs || row.Keep&(1<<s.Reg) != 0 || i > 0 && s.Reg <= row.Saved[i-1].Reg {
			t.Fatalf("saved registers are out of order, or kept as well: %+v", row)
		}
		rules = append(rules, s.Rule)
	}
	for _, r := range rules {
		if r.Base == sframe.FromExpr && (r.Offset < 0 || int(r.Offset) >= len(row.Exprs)) {
			t.Fatalf("rule refers to expression %d of %d", r.Offset, len(row.Exprs))
		}
	}
	if row.CFA.Base == sframe.FromCFA || row.CFA.Base == sframe.Same || row.Outermost && row.RA != (sframe.Rule{}) {
		t.Fatalf("rules that mean nothing: %+v", row)
	}
}

// fuzzHeader is a header with the functions that an index of our own would hold,
// absolute and with words of 8 bytes.
func fuzzHeader(a *regs.Arch, funcs []ehframe.Func) []byte {
	funcs = slices.Clone(funcs)
	slices.SortFunc(funcs, func(a, b ehframe.Func) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.SecOff, b.SecOff))
	})
	h := &builder{arch: a, b: []byte{1, 0x04, 0x04, 0x04}}
	h.word(frameAddr, 8)
	h.word(uint64(len(funcs)), 8)
	for _, fn := range funcs {
		h.word(fn.Start, 8)
		h.word(frameAddr+fn.SecOff, 8)
	}
	return h.b
}

func checkLookup(t *testing.T, own, byHdr *ehframe.Table, pc uint64) {
	for range 2 { // cold and warm
		row, err := own.Row(pc)
		e, findErr := own.Find(pc)
		if (row == nil) == (err == nil) || (err == nil) != (findErr == nil) {
			t.Fatalf("%#x: Row %v, %v; Find %+v, %v", pc, row, err, e, findErr)
		}
		if err == nil && (!reflect.DeepEqual(*row, e.Row) || pc < e.Start || pc >= e.End) {
			t.Fatalf("%#x: Row %+v; Find %+v", pc, row, e)
		}
		got, hdrErr := byHdr.Find(pc)
		switch {
		case errors.Is(hdrErr, sframe.ErrNoRow) && damaged(err): // the index tells that entries are missing
		case (hdrErr == nil) != (err == nil), !reflect.DeepEqual(got, e):
			t.Fatalf("%#x: by header %+v, %v; by own index %+v, %v", pc, got, hdrErr, e, err)
		}
	}
}

// FuzzHeader reads arbitrary bytes as an .eh_frame_hdr over a sound section: an
// answer must be the section's, or there is none.
func FuzzHeader(f *testing.F) {
	b := &builder{arch: regs.AMD64}
	cie := b.cie(1, "", nil, cfaSP8...)
	for i := range uint64(8) {
		b.fde(cie, b.abs(0x5000+0x1000*i, 0x20), nil, cfaOffset(byte(8*i))...)
	}
	b.word(0, 4)
	for _, enc := range []byte{0x00, 0x03, 0x0c, 0x1b, 0x3b} {
		f.Add(header(b, enc))
	}
	own := b.open(f)
	f.Fuzz(func(t *testing.T, hdr []byte) {
		s := ehframe.Sections{HdrAddr: hdrAddr, HdrSize: uint64(len(hdr)), FrameAddr: frameAddr, FrameSize: uint64(len(b.b))}
		if len(hdr) == 0 {
			return
		}
		tab := open(t, image{hdrAddr: hdr, frameAddr: b.b}, b.arch, s)
		for i := range uint64(8) {
			pc := 0x5010 + 0x1000*i
			got, err := tab.Find(pc)
			want, _ := own.Find(pc)
			if err == nil && !reflect.DeepEqual(got, want) {
				t.Fatalf("%#x: %+v, section has %+v", pc, got, want)
			}
		}
	})
}
