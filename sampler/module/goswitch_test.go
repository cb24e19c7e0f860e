package module

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"sfsample/regs"
	"sfsample/unwind"
)

// textOf opens a program, and reads its code.
func textOf(t *testing.T, path string) (f *elf.File, section *elf.Section, text []byte) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	section = f.Section(".text")
	if text, err = section.Data(); err != nil {
		t.Fatal(err)
	}
	return f, section, text
}

// TestGoSwitch: who has called a function that goes over to another stack is found below the frame pointer on the stack of a goroutine, and
// not where more than one may have done so, or not all was copied.
func TestGoSwitch(t *testing.T) {
	gron, err := exec.LookPath("gron")
	if err != nil {
		t.Skip("no gron on this machine")
	}
	f, section, text := textOf(t, gron)
	cmd := exec.Command(gron)
	if _, err := cmd.StdinPipe(); err != nil { // it waits
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	s := liveSpace(t, cmd.Process.Pid)
	m, _, ok := s.Module(f.Entry)
	for tries := 0; !ok && tries < 1000; tries++ { // it is still to exec
		runtime.Gosched()
		s.Refresh()
		m, _, ok = s.Module(f.Entry)
	}
	if !ok || m.Bias != 0 {
		t.Skip("gron is none of Go before 1.21 for x86-64")
	}
	// Two callers, found by their code; what they have taken of the stack is what they take before.
	var behind, within uint64 // the switch's own call
	type caller struct {
		ra, start uint64
		size      int
	}
	var callers []caller
	for i := 0; i+5 <= len(text); i++ {
		at := section.Addr + uint64(i)
		if text[i] != 0xe8 {
			continue
		}
		to := at + 5 + uint64(int32(binary.LittleEndian.Uint32(text[i+1:])))
		if behind == 0 && to > section.Addr && to < section.Addr+uint64(len(text))-200 {
			body := text[to-section.Addr:][:100]
			if j := bytes.Index(body, []byte{0x48, 0x8b, 0x3f, 0xff, 0xd7}); j > 0 && bytes.HasPrefix(body, []byte{0x48, 0x8b, 0x7c, 0x24, 0x08}) { // mov rdi,[rsp+8] … mov rdi,[rdi]; call rdi
				within, behind = to, to+uint64(j)+5
			}
		}
		if to != within || within == 0 {
			continue
		}
		// sub rsp,imm8 at the function's beginning
		start := bytes.LastIndex(text[:i], []byte{0xcc, 0xcc})
		if k := bytes.Index(text[start+1:i], []byte{0x48, 0x83, 0xec}); start > 0 && k >= 0 && i-start < 400 {
			callers = append(callers, caller{at + 5, section.Addr + uint64(start) + 2, int(text[start+1+k+3])})
		}
	}
	if within == 0 || len(callers) == 0 {
		t.Skip("gron is none of Go before 1.21 for x86-64")
	}
	const redZone = 128
	g := NewGoSwitch(s, redZone)
	if !g.Owns(behind-1) || g.Owns(within) || g.Owns(behind) || g.Owns(callers[0].ra-1) {
		t.Error("others than the switch are owned, or not that")
	}
	const fp = uint64(0xc000100800)
	checked, named := 0, 0
	for _, c := range callers {
		if c.size < 24 {
			continue
		}
		stack, outer := make([]byte, 2048), []byte(nil) // up to the frame pointer, and from it on
		put := func(below int, w uint64) { binary.LittleEndian.PutUint64(stack[len(stack)-below:], w) }
		walk := func(from int, top bool) (unwind.Reason, uint64, regs.Set) {
			var set, to regs.Set
			set.PC = behind
			set.SetReg(regs.AMD64.FP, fp)
			mem := &unwind.Memory{Region: unwind.Region{Addr: fp - uint64(len(stack)-from), Bytes: slices.Concat(stack[from:], outer)}}
			r, addr := g.Caller(&set, top, mem, &to)
			return r, addr, to
		}
		put(c.size, c.ra)
		r, _, to := walk(0, false)
		if r == unwind.NoRow {
			continue // it has taken more by now than at its beginning
		}
		checked++
		sp, _ := to.Reg(regs.AMD64.SP)
		if own, _ := to.Reg(regs.AMD64.FP); r != 0 || to.PC != c.ra || sp != fp-uint64(c.size)+8 || own != fp {
			t.Errorf("called from %#x with %d bytes: %v, %#x at %#x", c.ra, c.size, r, to.PC, sp)
		}
		if r, _, _ := walk(0, true); r != unwind.NoRow {
			t.Errorf("the innermost frame: %v", r)
		}
		if r, addr, _ := walk(len(stack)-c.size-256, false); r != unwind.OutsideCopy || addr != fp-maxCallerSize {
			t.Errorf("not all is copied: %v at %#x", r, addr)
		}
		if r, _, _ := walk(len(stack), false); r != unwind.OutsideCopy {
			t.Errorf("nothing is copied: %v", r)
		}
		if r, _, to := walk(len(stack)-c.size-redZone, false); r != 0 || to.PC != c.ra {
			t.Errorf("copied from where the goroutine was left: %v, %#x", r, to.PC)
		}
		for _, d := range callers {
			if d.size == c.size || d.size < 16 {
				continue
			}
			old := binary.LittleEndian.Uint64(stack[len(stack)-d.size:])
			put(d.size, d.ra)
			if r, _, _ := walk(0, false); r != unwind.NoRow && d.size < c.size {
				put(c.size, 0)
				if alone, _, _ := walk(0, false); alone == 0 { // else it is no caller with that size
					t.Errorf("two may be it: %v", r)
				}
				put(c.size, c.ra)
			}
			if r, _, to := walk(len(stack)-c.size-redZone, false); d.size < c.size && (r != 0 || to.PC != c.ra) {
				t.Errorf("what was left of another one was taken for it: %v, %#x", r, to.PC)
			}
			put(d.size, old)
		}
		// Who calls that function, and who another.
		outer = make([]byte, 16)
		right, other := false, false
		for i := 0; i+5 <= len(text) && !(right && other); i++ {
			if text[i] != 0xe8 {
				continue
			}
			at := section.Addr + uint64(i) + 5
			to := at + uint64(int32(binary.LittleEndian.Uint32(text[i+1:])))
			binary.LittleEndian.PutUint64(outer[8:], at)
			if to == c.start && !right {
				right = true
				if r, _, to := walk(0, false); r != 0 || to.PC != c.ra {
					t.Errorf("the function's own caller: %v, %#x", r, to.PC)
				}
			} else if to == within && !other {
				other = true
				if r, _, _ := walk(0, false); r != unwind.NoRow {
					t.Errorf("called by who calls another function: %v", r)
				}
				if r, _, to := walk(len(stack)-c.size-redZone, false); r != 0 || to.PC != c.ra {
					t.Errorf("copied from where the goroutine was left: %v, %#x", r, to.PC)
				}
			}
		}
		if right {
			named++
		}
		outer = nil
		put(c.size, 0)
		put(c.size+8, c.ra)
		if r, _, _ := walk(0, false); r != unwind.NoRow {
			t.Errorf("a caller that has taken less: %v", r)
		}
	}
	if checked == 0 || named == 0 {
		t.Errorf("none of %d callers is found", len(callers))
	}
	t.Logf("%d callers, %d of them looked at, %d with their own callers", len(callers), checked, named)
}

// TestLeftAt: where a goroutine's stack was left is told by how far from its end that is, as all ends are multiples of the same.
func TestLeftAt(t *testing.T) {
	const fp = 0xc000_1234_0798
	for _, tt := range []struct{ fp, depth, want uint64 }{
		{fp, 0xc000_1234_1000 - (fp - 0x70), fp - 0x70},
		{fp, 0xc000_1240_0000 - (fp - 0x70), fp - 0x70}, // of a larger stack
		{fp, 0xc000_1234_0800 - (fp - 8), fp - 8},
		{fp, 0xc000_1234_0800 - (fp - maxCallerSize), fp - maxCallerSize},
		{fp, 0xc000_1234_0800 - (fp - maxCallerSize - 8), 0},
		{fp, 0xc000_1234_0800 - fp, 0},
		{fp, 0xc000_1234_0800 - (fp - 0x74), 0},
		{fp, 0, 0},
		{0x7f8, 1<<30 + 0x800 + 8, 0},
	} {
		if got := leftAt(tt.fp, tt.depth); got != tt.want {
			t.Errorf("%#x, %#x from the end: %#x; want %#x", tt.fp, tt.depth, got, tt.want)
		}
	}
}

// TestGoMoved: who has called systemstack is found where a record says that the goroutine's stack was left, if its stack is not any more where the frame pointer leads.
func TestGoMoved(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("x86-64 code")
	}
	_, section, text := textOf(t, "/proc/self/exe")
	s := liveSpace(t, os.Getpid())
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	g := NewGoSwitch(s, 128)
	m, _, ok := s.Module(uint64(reflect.ValueOf(TestGoMoved).Pointer()))
	if !ok {
		t.Fatal("the test's own program is no module")
	}
	var start, behind, ra, other uint64 // systemstack, its own call; behind a call of it, and behind another call
	for i := 0; i+5 <= len(text); i++ {
		if text[i] != 0xe8 {
			continue
		}
		at := section.Addr + uint64(i) + 5 + m.Bias
		to := at + uint64(int32(binary.LittleEndian.Uint32(text[i+1:])))
		switch f := runtime.FuncForPC(uintptr(to)); {
		case f == nil || uint64(f.Entry()) != to:
		case f.Name() == "runtime.systemstack":
			start, ra = to, at
		default:
			other = at
		}
	}
	if start == 0 {
		t.Fatal("nobody calls systemstack")
	}
	if i := bytes.Index(text[start-m.Bias-section.Addr:], []byte{0xff, 0xd7}); i >= 0 { // call rdi
		behind = start + uint64(i) + 2
	}
	if behind == 0 || ra == 0 || other == 0 || !g.Owns(behind-1) {
		t.Fatalf("systemstack at %#x, its call %#x, a call of it %#x, another %#x", start, behind, ra, other)
	}
	const was, is, fp = 0xc000_0000_1000, 0xc000_0000_9000, 0xc000_0000_9800 // where systemstack has its frame, and who calls it
	copyOf := func(addr, ra uint64) unwind.Region {                          // of a stack that was left at addr
		b := make([]byte, 256)
		binary.LittleEndian.PutUint64(b[128:], fp)
		binary.LittleEndian.PutUint64(b[136:], ra)
		return unwind.Region{Addr: addr - 128, Bytes: b}
	}
	for _, tt := range []struct {
		name string
		also []unwind.Region
		want bool
	}{
		{"no copy", nil, false},
		{"left behind a call of it", []unwind.Region{copyOf(is, ra)}, true},
		{"left behind another call", []unwind.Region{copyOf(is, other)}, false},
		{"the frame pointer leads to a call of it, too", []unwind.Region{copyOf(is, ra), copyOf(was, ra)}, false},
		{"the frame pointer leads to another call", []unwind.Region{copyOf(is, ra), copyOf(was, other)}, true},
		{"another stack's copy before", []unwind.Region{copyOf(was, other), copyOf(is, ra)}, true},
		{"too short", []unwind.Region{{Addr: is - 128, Bytes: copyOf(is, ra).Bytes[:143]}}, false},
	} {
		var set, to regs.Set
		set.PC = behind
		set.SetReg(regs.AMD64.FP, was)
		r, _ := g.Caller(&set, false, &unwind.Memory{Also: tt.also}, &to)
		sp, _ := to.Reg(regs.AMD64.SP)
		if own, _ := to.Reg(regs.AMD64.FP); tt.want && (r != 0 || to.PC != ra || sp != is+16 || own != fp) || !tt.want && r != unwind.NoRow {
			t.Errorf("%s: %v, to %#x at %#x with %#x", tt.name, r, to.PC, sp, own)
		}
	}
}
