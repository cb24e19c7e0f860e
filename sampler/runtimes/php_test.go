package runtimes

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"sfsample/unwind"
)

// TestPHPFrames decodes a stack that was made by hand: a generator that runs, the one that delegates to it, and a circle behind these.
func TestPHPFrames(t *testing.T) {
	b := php82Memory()
	// End the circle: the placeholder is the last.
	for i := range 8 {
		b[0x600+phpPrev+i] = 0
	}
	p := &php{root: 0x1000, phpLayout: phpLayouts[2]}
	mem := Memory{unwind.Region{Addr: 0x1000, Bytes: b}}
	var st Stack
	p.Frames(mem, rubbish(nil), []uint64{0x1000}, &st)
	if want := []Segment{{N: 2}}; st.Short || len(st.Frames) != 2 || !slices.Equal(st.Segments, want) {
		t.Fatalf("%+v", st)
	}
	// The one that runs is about to delegate to another, and then about to be resumed.
	native := binary.NativeEndian
	native.PutUint64(b[0x800+phpGenParent:], 0x1d00)
	native.PutUint64(b[0x500+phpResult:], 0x1800)
	native.PutUint32(b[0x500+phpInfo:], phpTop|phpGen)
	for _, running := range []bool{true, false} {
		if b[0x800+p.genFlags] = 0; running {
			b[0x800+p.genFlags] = phpRunning
		}
		var st Stack
		p.Frames(mem, rubbish(nil), []uint64{0x1000}, &st)
		if want := map[bool]int{true: 2, false: 1}[running]; len(st.Frames) != want || st.Short == running {
			t.Errorf("running %v: %+v", running, st)
		}
	}
	for i := range phpExceptions {
		if roots := p.Roots(rubbish(b), Thread{First: true}); len(roots) != 0 {
			t.Errorf("roots %+v with %d operations in exception_op", roots, i)
		}
		b[p.exceptionOp-phpRoot+i*phpOpBytes+phpOpcode] = phpException
	}
	if roots := p.Roots(rubbish(b), Thread{First: true}); len(roots) != 1 || roots[0].Is != 0x1000 {
		t.Errorf("roots %+v", roots)
	}
	if roots := p.Roots(rubbish(b), Thread{}); len(roots) != 0 {
		t.Errorf("roots of a further thread: %+v", roots)
	}
	f := &st.Frames[0]
	k, ok := p.Key(mem, rubbish(nil), f)
	fn, named := p.Function(offset{b, 0x1000}, f, k)
	if !ok || !named || fn.Name != "ab" || fn.File != "ab" || fn.Line(f.At) != 7 || fn.Line(f.At+1) != 0 || fn.Line(f.At+phpOpBytes) != 0 {
		t.Errorf("%+v %v, function %+v %v", k, ok, fn, named)
	}
	// What was copied names the function, whatever has its place by now; but not its lines.
	copied := Memory{unwind.Region{Addr: 0x1000, Bytes: slices.Clone(b)}}
	copy(b[0xc18:], "xy")
	if fn, named := p.Copied(copied, offset{b, 0x1000}, f, k); !named || fn.Name != "ab" || fn.File != "ab" || fn.Line(f.At) != 7 || fn.Passing {
		t.Errorf("of a copy: %+v, %v", fn, named)
	}
	native.PutUint32(b[0xa00+phpLineno:], 9)
	if fn, named := p.Copied(copied, offset{b, 0x1000}, f, k); !named || fn.Name != "ab" || fn.Line(f.At) != 0 || !fn.Passing {
		t.Errorf("of a copy, with instructions that are another function's: %+v, %v", fn, named)
	}
	native.PutUint32(b[0xa00+phpLineno:], 7)
	if _, named := p.Function(offset{b, 0x1000}, f, k); named {
		t.Error("the name of another function")
	}
	copy(b[0xc18:], "ab")
	b[0xc18]++ // a name that its hash does not prove
	if _, named := p.Function(offset{b, 0x1000}, f, k); named {
		t.Error("a name that is not that of its hash")
	}
}

// offset is memory that begins at an address.
type offset struct {
	b  []byte
	at int64
}

func (o offset) ReadAt(b []byte, addr int64) (int, error) {
	if addr < o.at || addr-o.at > int64(len(o.b)) {
		return 0, fmt.Errorf("nothing at %#x", addr)
	}
	return copy(b, o.b[addr-o.at:]), nil
}

// TestUnknownPHP: what is not known is told and not guessed.
func TestUnknownPHP(t *testing.T) {
	banner := func(v string) []byte { return []byte("x\x00X-Powered-By: PHP/" + v + "\x00") }
	nts := map[string]uint64{"executor_globals": 0x1000, "execute_ex": 0x2000}
	for _, tt := range []struct {
		banner []byte
		syms   map[string]uint64
		size   uint64
		want   string
	}{
		{banner("8.2.36"), nts, 1800, ""},
		{banner("8.4.27"), nts, 1984, ""},
		{banner("8.0.30"), nts, 1800, "PHP of version 8.0.30 is not known, its scripts are not shown (known: 8.1 to 8.5)"},
		{banner("9.2.0"), nts, 1800, "PHP of version 9.2.0 is not known, its scripts are not shown (known: 8.1 to 8.5)"},
		{banner("8.2.36"), nts, 1768, "PHP 8.2.36 has executor_globals of 1768 bytes, its scripts are not shown (known: 1776 and more)"},
		{nil, nts, 1800, "php8.2: this PHP does not tell its version, its scripts are not shown"},
		{banner("8.2.36"), map[string]uint64{"execute_ex": 1, "executor_globals_offset": 2}, 0, "php8.2: PHP with thread safety (ZTS) is not known, its scripts are not shown"},
	} {
		rt, err := newPHP("/usr/bin/php8.2", tt.syms, tt.size, tt.banner)
		if got := fmt.Sprint(err); (err != nil || tt.want != "") && got != tt.want {
			t.Errorf("%q: %v, want %s", tt.banner, err, tt.want)
		}
		if (rt != nil) != (tt.want == "") {
			t.Errorf("%q: runtime %v", tt.banner, rt)
		}
	}
}
