package module

import (
	"os"
	"reflect"
	"runtime"
	"testing"

	"sfsample/unwind"
)

// ownSpace is the Space of the test's own process.
func ownSpace(t *testing.T) *Space {
	t.Helper()
	l := NewLive(os.Getpid())
	s := NewSpace(l, NewCache(0), Options{Owner: l.Owner()})
	t.Cleanup(s.Close)
	return s
}

// TestOwnCode finds the test program among the modules of its own process.
func TestOwnCode(t *testing.T) {
	s := ownSpace(t)
	pc := uint64(reflect.ValueOf(TestOwnCode).Pointer())
	if !s.Executable(pc) {
		t.Fatalf("%#x is not executable", pc)
	}
	m, vaddr, ok := s.Module(pc)
	if !ok {
		t.Fatalf("%#x is in no module", pc)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if m.Path != exe || m.Bias+vaddr != pc || m.VDSO() {
		t.Errorf("module %q, bias %#x, address %#x; want %q and a sum of %#x", m.Path, m.Bias, vaddr, exe, pc)
	}
	if data := uint64(reflect.ValueOf(new(int)).Pointer()); s.Executable(data) {
		t.Errorf("heap at %#x is executable", data)
	}
	// Go's entry point, and what begins there.
	entry := m.obj.hdr.entry + m.Bias
	if !s.Entry(entry) || s.Entry(pc) {
		t.Errorf("Entry(%#x) = %v, Entry(%#x) = %v; want true, false", entry, s.Entry(entry), pc, s.Entry(pc))
	}
	var code, want [16]byte
	if n := s.Code(pc, code[:]); n != len(code) {
		t.Errorf("Code(%#x) = %d bytes, want %d", pc, n, len(code))
	}
	if _, err := s.src.ReadAt(want[:], int64(pc)); err != nil || code != want {
		t.Errorf("Code(%#x) = % x, memory has % x (%v)", pc, code, want, err)
	}
}

// TestRefreshKeeps: nothing changes when nothing has changed.
func TestRefreshKeeps(t *testing.T) {
	s := ownSpace(t)
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	pc, _, _, _ := runtime.Caller(0)
	m, _, ok := s.Module(uint64(pc))
	if !ok {
		t.Fatal("no module")
	}
	if changed, err := s.Verify(); changed || err != nil {
		t.Errorf("Verify = %v, %v; want false, nil", changed, err)
	}
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	if again, _, _ := s.Module(uint64(pc)); again != m {
		t.Errorf("another Module after Refresh")
	}
}

// TestVDSORows asks for rows of every address of the vDSO's functions: they
// come from memory, no file has them.
func TestVDSORows(t *testing.T) {
	s := ownSpace(t)
	if err := s.Refresh(); err != nil {
		t.Fatal(err)
	}
	for _, m := range s.Modules() {
		if !m.VDSO() {
			continue
		}
		if m.obj.hdr.ehHdr.size == 0 {
			t.Skip("the vDSO of this kernel has no .eh_frame")
		}
		rows := 0
		for pc := m.Maps[0].Start; pc < m.Maps[0].End; pc++ {
			if _, err := s.Row(pc, unwind.EHFrame); err == nil {
				rows++
			}
		}
		if rows == 0 || !s.VDSO(m.Maps[0].Start) {
			t.Errorf("%d rows in the vDSO", rows)
		}
		return
	}
	t.Skip("no vDSO in this process")
}
