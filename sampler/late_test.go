package sampler

import (
	"context"
	"debug/elf"
	"os"
	"testing"

	"sfsample/internal/late"
	"sfsample/internal/testprog"
	"sfsample/sampler/module"
	"sfsample/unwind"
)

// TestNoTimeLeft: what is not read of a file for want of time is told, where a stack is cut and where a name is missing.
func TestNoTimeLeft(t *testing.T) {
	const size = 24 << 20
	path := testprog.Sparse(t, spinnersProg(t), 0,
		testprog.Section{Name: ".dynsym", Type: elf.SHT_DYNSYM, Size: size, Ent: 24, Link: 2},
		testprog.Section{Name: ".dynstr", Type: elf.SHT_STRTAB, Size: size})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	addr := symbolAddr(t, path, "spin_7") + 1
	for what, until := range map[string]*late.Time{"in time": nil, "late": late.New(over)} {
		cache := module.NewCache(0)
		cache.Until = until
		space := module.NewSpace(newFileSource(t, path), cache, module.Options{})
		if err := space.Refresh(); err != nil {
			t.Fatal(err)
		}
		space.Entry(addr) // by the symbols of the file
		n := NewNames(NameOptions{Until: until})
		p := n.process(os.Getpid())
		m, _, _ := space.Module(addr)
		o := n.hold(p, m)
		n.look(o, addr-m.Bias)
		n.look(o, 1) // where there is nothing
		n.release(o)
		want, names := unwind.NoRow.String(), 0
		if until != nil {
			want, names = noTime, 1
		}
		tgt := &target{space: space}
		frames := []unwind.Frame{{PC: addr}}
		if got := tgt.reason(frames, unwind.End{Reason: unwind.NoRow}); got != want {
			t.Errorf("%s: a stack is cut for %q, want %q", what, got, want)
		}
		if got := tgt.reason(frames, unwind.End{Reason: unwind.DepthLimit}); got != unwind.DepthLimit.String() {
			t.Errorf("%s: a deep stack is cut for %q", what, got)
		}
		if got := n.Unread()[path]; got != (Missed{Names: names}) {
			t.Errorf("%s: %+v not read, want %d names", what, got, names)
		}
	}
}
