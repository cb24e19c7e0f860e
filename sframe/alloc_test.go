//go:build !race

package sframe

import (
	"bytes"
	"runtime"
	"testing"
)

// bytesPerRun is what f allocates. It is called once before. (With the race detector a sync.Pool forgets at random.)
func bytesPerRun(f func()) uint64 {
	const runs = 100
	f()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		f()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / runs
}

// TestWindowsReturn: whatever reads a section gives its window back: none is made anew.
func TestWindowsReturn(t *testing.T) {
	section := bigSection(3, 50, 3)
	sorted := section.Bytes()
	section.Flags = 0
	mixed := section.Bytes()
	first := section.Funcs[0].Start
	fresh := func(data []byte) *Section { return openBytes(t, data, section.Addr) }
	s := fresh(sorted)
	f, err := s.Func(first)
	if err != nil {
		t.Fatal(err)
	}
	const most = 3000 // a window has 4096 and more
	for name, run := range map[string]func(){
		"Open":        func() { Open(bytes.NewReader(sorted), section.Addr, uint64(len(sorted))) },
		"Images":      func() { fresh(sorted).Images() },
		"index":       func() { fresh(mixed).searchable(false) },
		"Find":        func() { s.Find(first) },
		"Find, no":    func() { s.Find(1) },
		"Func":        func() { s.Func(first) },
		"Funcs":       func() { s.Funcs()(func(Func, error) bool { return true }) },
		"Funcs, ends": func() { s.Funcs()(func(Func, error) bool { return false }) },
		"Rows":        func() { s.Rows(&f)(func(FuncRow, error) bool { return true }) },
		"Rows, ends":  func() { s.Rows(&f)(func(FuncRow, error) bool { return false }) },
		"Check":       func() { (&checker{s: s, yield: func(error) bool { return true }}).funcRows(&f) },
	} {
		if n := bytesPerRun(run); n > most {
			t.Errorf("%s: %d bytes", name, n)
		}
	}
}
