package sampler

import (
	"fmt"
	"testing"

	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
	"sfsample/unwind"
)

// stackOf is a stack whose frames lie at the addresses that bits choose: two for
// each frame.
func stackOf(bits uint64, depth int) []unwind.Frame {
	frames := make([]unwind.Frame, depth)
	for i := range frames {
		frames[i] = unwind.Frame{PC: 0x1000 + uint64(i)*0x100 + bits>>i&1*0x10, Caller: i > 0}
	}
	return frames
}

// TestManyStacks remembers more distinct stacks than there is room for: what is
// held stays bounded, frames are shared, and a stack is the same one as long as
// it is remembered.
func TestManyStacks(t *testing.T) {
	p := testPipeline(&tally{})
	tg := &target{met: newMet()}
	const depth = 60
	for i := range uint64(4 * maxHeld / depth) {
		s := tg.intern(p.cfg.Names, frameKeys(nil, stackOf(i, depth)), nil, "")
		if again := tg.intern(p.cfg.Names, frameKeys(nil, stackOf(i, depth)), nil, ""); again != s {
			t.Fatalf("stack %d was remembered as two", i)
		}
		for j, r := range s.frames {
			if want := stackOf(i, depth)[j]; r.pc != want.PC || r.lookup != want.LookupPC() {
				t.Fatalf("stack %d, frame %d: at %#x, looked up at %#x, want %#x and %#x", i, j, r.pc, r.lookup, want.PC, want.LookupPC())
			}
		}
		held := 0
		for _, list := range tg.met.stacks {
			for _, s := range list {
				held += len(s.frames)
			}
		}
		if held > maxHeld {
			t.Fatalf("%d stacks hold %d frames, the bound is %d", i+1, held, maxHeld)
		}
	}
	if len(tg.met.frames) > 2*depth {
		t.Errorf("%d frames are held, there are %d", len(tg.met.frames), 2*depth)
	}
	for i := range uint64(3 * maxFrames) {
		tg.intern(p.cfg.Names, []frameKey{{pc: i << 8}}, nil, "")
		if len(tg.met.frames) > maxFrames+1 {
			t.Fatalf("%d frames are held, the bound is %d", len(tg.met.frames), maxFrames)
		}
	}
}

// TestThin: beyond a round's end as much is remembered as a small program shows.
func TestThin(t *testing.T) {
	p := testPipeline(&tally{})
	few, deep, wide := &target{met: newMet()}, &target{met: newMet()}, &target{met: newMet()}
	p.targets.all[1], p.targets.all[2], p.targets.all[3] = few, deep, wide
	const depth = 60
	kept := few.intern(p.cfg.Names, frameKeys(nil, stackOf(1, depth)), nil, "")
	for i := range uint64(maxHeld/roundPart/depth + 1) {
		deep.intern(p.cfg.Names, frameKeys(nil, stackOf(i, depth)), nil, "")
	}
	for i := range uint64(maxFrames/roundPart + 1) {
		wide.intern(p.cfg.Names, []frameKey{{pc: i << 8}}, nil, "")
	}
	p.targets.thin()
	if few.intern(p.cfg.Names, frameKeys(nil, stackOf(1, depth)), nil, "") != kept {
		t.Error("the only stack is forgotten")
	}
	for _, tg := range []*target{deep, wide} {
		if len(tg.met.stacks)+len(tg.met.frames)+tg.met.held > 0 {
			t.Errorf("%d stacks and %d frames are remembered", len(tg.met.stacks), len(tg.met.frames))
		}
	}
}

// TestPoolKeeps gives back more captures than are kept: what waits is bounded,
// and what is handed out is counted.
func TestPoolKeeps(t *testing.T) {
	p := new(pool)
	for _, size := range []int{minCopy, firstCopy, 3 * firstCopy, newCopy, maxCopy} {
		var out []*capture.Capture
		for {
			c := p.get(size, size/4)
			if c == nil {
				break
			}
			if cap(c.Stack.Bytes) < size || cap(c.Beyond.Bytes) < size/4 {
				t.Fatalf("room for %d and %d bytes, want %d and %d", cap(c.Stack.Bytes), cap(c.Beyond.Bytes), size, size/4)
			}
			out = append(out, c)
		}
		if p.used > poolBytes && len(out) > 1 {
			t.Errorf("%d bytes are handed out, the bound is %d", p.used, poolBytes)
		}
		for _, c := range out {
			p.put(c)
		}
		kept := 0
		for _, c := range p.free {
			kept += held(c)
		}
		if kept > keptBytes || kept != p.kept {
			t.Errorf("%d captures of %d bytes came back, %d bytes are kept, counted as %d; the bound is %d", len(out), size, kept, p.kept, keptBytes)
		}
		if p.used != 0 || p.out != 0 {
			t.Errorf("when all are back, %d captures of %d bytes are out", p.out, p.used)
		}
	}
}

// TestRegionOf: code of no object is told by the file's name, or else by where its mapping begins, so that regions are told apart.
func TestRegionOf(t *testing.T) {
	maps := []procfs.Mapping{{Start: 0x1000, End: 0x3000, Path: "/tmp/jit.cache"}, {Start: 0x5000, End: 0x6000}, {Start: 0x6000, End: 0x7000, Path: "[anon: code]"}}
	for pc, want := range map[uint64]string{0x1000: "jit.cache 0x1000", 0x2fff: "jit.cache 0x1000", 0x3000: " 0x0", 0x5010: "[anon] 0x5000", 0x6010: "[anon] 0x6000"} {
		if name, start := regionOf(maps, pc); fmt.Sprintf("%s %#x", name, start) != want {
			t.Errorf("%#x: %s %#x, want %s", pc, name, start, want)
		}
	}
}
