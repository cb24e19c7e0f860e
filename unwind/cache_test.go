package unwind

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sfsample/regs"
	"sfsample/sframe"
)

// TestCacheTable holds the table against a map: all that was put in is found, and nothing else; it is never more than
// half full, and no larger than that needs.
func TestCacheTable(t *testing.T) {
	type key struct {
		pc   uint64
		kind flags
	}
	var c cache
	r := rand.New(rand.NewPCG(1, 2))
	model := map[key]*entry{}
	if c.find(1, 0) != nil {
		t.Error("an entry of an empty cache")
	}
	highest, last := 0, (*entry)(nil)
	for size := minSlots; len(model) < 4*minSlots; {
		k := key{r.Uint64N(1 << 20), flags(r.IntN(2)) * isCaller}
		if model[k] != nil {
			continue
		}
		model[k] = c.insert(entry{pc: k.pc, flags: k.kind | isCode, to: nobody})
		for size < 2*len(model) {
			size *= 2
		}
		if len(c.table) != size || c.count != len(model) {
			t.Fatalf("%d entries, %d counted: a table of %d, want %d", len(model), c.count, len(c.table), size)
		}
		if len(c.chunk) != (chunkSize-len(model)%chunkSize)%chunkSize {
			t.Fatalf("%d entries: room for %d more", len(model), len(c.chunk))
		}
		highest = max(highest, c.slot(k.pc)*minSlots/size)
		last = model[k]
	}
	for k := range model {
		other := key{k.pc, k.kind ^ isCaller}
		if c.find(k.pc, k.kind) != model[k] || c.find(other.pc, other.kind) != model[other] || model[k].pc != k.pc {
			t.Fatalf("%+v: %p and %p, want %p and %p", k, c.find(k.pc, k.kind), c.find(other.pc, other.kind), model[k], model[other])
		}
	}
	if highest < minSlots*9/10 {
		t.Errorf("the highest slot is %d of %d", highest, minSlots)
	}
	c.clear()
	if c.find(last.pc, last.flags&isCaller) != nil || c.count != 0 {
		t.Error("an entry of a cache that was cleared")
	}
}

// TestCacheCaller: the caller that was met last is found without the table, another one with it.
func TestCacheCaller(t *testing.T) {
	var c cache
	add := func(pc uint64, kind flags) *entry { return c.insert(entry{pc: pc, flags: kind, to: nobody}) }
	from, a, b := add(0x1000, 0), add(0x2000, isCaller), add(0x3000, isCaller)
	add(0x4000, 0)
	for _, want := range []*entry{a, a, b, a} {
		if got := c.caller(from, want.pc+1); got != want || from.to != want {
			t.Errorf("the caller at %#x: %+v", want.pc+1, got)
		}
	}
	for _, ra := range []uint64{a.pc, a.pc + 2, 0x4001, 0x5000} {
		if got := c.caller(from, ra); got != nil || from.to != a {
			t.Errorf("a caller at %#x: %+v", ra, got)
		}
	}
	from.to = c.find(0x4000, 0)
	if got := c.caller(from, 0x4001); got != nil {
		t.Errorf("a caller that is none: %+v", got)
	}
	from.to = a
	if c.clear(); c.caller(from, a.pc+1) != a {
		t.Error("the caller that was met last is looked for in the table")
	}
}

// TestCacheRows: one row stands for all that are alike.
func TestCacheRows(t *testing.T) {
	row := func() *sframe.Row {
		return &sframe.Row{CFA: fromReg(7, 48), RA: atCFA(-8), FP: atCFA(-16), Keep: 1, Saved: []sframe.SavedRule{regRule(3, atCFA(-24))}}
	}
	var c cache
	first := row()
	if c.share(first) != first || c.share(row()) != first {
		t.Error("equal rows are not shared")
	}
	for i, change := range []func(*sframe.Row){
		func(r *sframe.Row) { r.CFA.Offset++ },
		func(r *sframe.Row) { r.RA.Offset++ },
		func(r *sframe.Row) { r.FP.Offset++ },
		func(r *sframe.Row) { r.Keep++ },
		func(r *sframe.Row) { r.Saved[0].Reg++ },
		func(r *sframe.Row) { r.Saved[0].Rule.Offset++ },
		func(r *sframe.Row) { r.Saved = nil },
		func(r *sframe.Row) { r.Saved = append(r.Saved, sframe.SavedRule{}) },
		func(r *sframe.Row) { r.Outermost = true },
		func(r *sframe.Row) { r.Signal = true },
		func(r *sframe.Row) { r.Switch = true },
		func(r *sframe.Row) { r.Exprs = [][]byte{{0x30}} },
		func(r *sframe.Row) { r.Saved = slices.Repeat(r.Saved, maxSharedSaved+1) },
	} {
		r := row()
		if change(r); c.share(r) != r {
			t.Errorf("row %d: another stands for it", i)
		}
	}
	eight := row()
	eight.Saved = slices.Repeat(eight.Saved, maxSharedSaved)
	c.share(eight)
	again := *eight
	if c.share(&again) != eight {
		t.Error("rows with as many registers as may be are not shared")
	}
	if a, b, again := c.number(first), c.number(eight), c.number(first); a != 0 || b != 1 || again != 0 || !slices.Equal(c.plain, []*sframe.Row{first, eight}) {
		t.Errorf("numbers %d, %d, %d", a, b, again)
	}
}

// ownsPage is a runtime of the code in one page.
type ownsPage uint64

func (o ownsPage) Owns(pc uint64) bool { return pc>>12 == uint64(o)>>12 }
func (o ownsPage) Caller(*regs.Set, bool, *Memory, *regs.Set) (Reason, uint64) {
	return NoRow, 0
}

// TestFill: what is known of an address. The mapping begins at 0x401000 and ends at 0x402000.
func TestFill(t *testing.T) {
	s := &space{mapped: [][2]uint64{{0x401000, 0x402000}}, code: map[uint64][]byte{0x40100b: call5, 0x401ffb: call5, 0x401100: amd64SigreturnCode[0],
		0x401900: {0x55}, 0x401a00: {0x48, 0x83, 0xc4, 8, 0xc3}}, // push %rbp; add $8,%rsp; ret
		rows: map[How][]sframe.Entry{EHFrame: {covers(0x401000, 0x401040, spRow(8)), covers(0x401040, 0x401080, spRow(8)), covers(0x401200, 0x401240, spRow(8))}}}
	w := New(regs.AMD64, s, []How{EHFrame, FramePointer}, 0)
	w.SetRuntime(ownsPage(0x402000), false)
	frame, entry := amd64Convention.frame, amd64Convention.entry
	for _, tt := range []struct {
		name   string
		pc     uint64
		caller bool
		row    *sframe.Row
		how    How
		flags  flags
		kept   bool
	}{
		{"row", 0x401010, false, &s.rows[EHFrame][0].Row, EHFrame, isCode | isPlain, true},
		{"row like another", 0x401050, false, &s.rows[EHFrame][0].Row, EHFrame, isCode | isPlain, true},
		{"behind a call", 0x401010, true, &s.rows[EHFrame][0].Row, EHFrame, isCaller | isCode | isPlain | afterCall, true},
		{"of the function that ends", 0x401240, true, &s.rows[EHFrame][0].Row, EHFrame, isCaller | isCode | isPlain, true},
		{"no row", 0x401800, false, frame, FramePointer, isCode | isPlain, true},
		{"first byte", 0x401000, true, frame, FramePointer, isCaller | isCode | isPlain, true},
		{"behind the last", 0x402000, true, frame, FramePointer, isCaller | isCode | isPlain | afterCall, true},
		{"beyond it", 0x402001, true, nil, Regs, isCaller, false},
		{"before the first", 0x400fff, true, nil, Regs, isCaller, false},
		{"nowhere", 0x402000, false, entry, FramePointer, 0, false},
		{"trampoline", 0x401100, false, amd64SignalRow, Signal, isCode | isTrampoline, true},
		{"back to a trampoline", 0x401100, true, amd64SignalRow, Signal, isCaller | isCode | isTrampoline, true},
		{"at its call", 0x401107, false, amd64SignalRow, Signal, isCode | isTrampoline, true},
		{"back to its call", 0x401107, true, frame, FramePointer, isCaller | isCode | isPlain, true},
	} {
		before := w.main.code.cache.count
		e := w.main.code.lookup(tt.pc, tt.caller)
		if e.row != tt.row || e.how != tt.how || e.flags != tt.flags || (w.main.code.cache.count > before) != tt.kept || e.to != nobody {
			t.Errorf("%s: row %+v by %v, flags %#x, kept %v; want %+v by %v, %#x, %v", tt.name, e.row, e.how, e.flags, w.main.code.cache.count > before, tt.row, tt.how, tt.flags, tt.kept)
		}
		if w.main.code.isEntry(e) || e.flags != tt.flags|entryKnown {
			t.Errorf("%s: an entry, or other flags: %#x", tt.name, e.flags)
		}
		if again := w.main.code.lookup(tt.pc, tt.caller); tt.kept && again != e {
			t.Errorf("%s: another entry at the second time", tt.name)
		}
	}
	before := w.main.code.lookup(0x401010, false)
	w.SetRuntime(ownsPage(0x401000), false)
	e := w.main.code.lookup(0x401010, false)
	if e.flags != isCode|isOwned || e.row != nil {
		t.Errorf("of a runtime: row %+v, flags %#x", e.row, e.flags)
	}
	if w.main.code.rowOf(e); before.row == nil || e.row != before.row || e.how != before.how || e.flags != isCode|isOwned|rowKnown {
		t.Errorf("of a runtime that does not know: row %+v by %v, flags %#x; want %+v by %v", e.row, e.how, e.flags, before.row, before.how)
	}
	// The methods are asked for an innermost frame, or for one that has called, as for other code.
	for i, tt := range []struct {
		name   string
		pc     uint64
		caller bool
		want   *sframe.Row
		how    How
	}{
		{"at a push", 0x401900, false, entry, FramePointer},
		{"back to a push", 0x401900, true, frame, FramePointer},
		{"at the end of a frame", 0x401a00, false, frame, FramePointer},
		{"back to the end of a frame", 0x401a00, true, &sframe.Row{CFA: fromReg(7, 16), RA: atCFA(-8), Keep: entry.Keep}, FramePointer},
		{"behind the last byte of a function", 0x401240, true, &s.rows[EHFrame][2].Row, EHFrame},
		{"at the first byte behind a function", 0x401240, false, frame, FramePointer},
	} {
		e := w.main.code.lookup(tt.pc, tt.caller)
		w.main.code.lookup(0x401800+uint64(i), false) // other code is looked at between
		if w.main.code.rowOf(e); !cmp.Equal(e.row, tt.want) || e.how != tt.how {
			t.Errorf("of a runtime that does not know, %s: row %+v by %v; want %+v by %v", tt.name, e.row, e.how, tt.want, tt.how)
		}
	}
	if e := New(regs.AMD64, s, []How{EHFrame}, 0).main.code.lookup(0x402000, false); e.row != nil {
		t.Errorf("nowhere, without conventions: %+v", e.row)
	}
}
