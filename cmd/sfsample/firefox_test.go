package main

import (
	"debug/elf"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"

	"sfsample/internal/testprog"
)

// TestFirefoxAddresses: addresses of frames lie within the symbols that are given for them, and those begin where the
// program's own symbol table says, from its lowest segment on.
func TestFirefoxAddresses(t *testing.T) {
	program := testprog.Committed(t, runtime.GOARCH, "ehframe", "deep")
	p := testprog.Start(t, program, "s", "20")
	name := filepath.Join(t.TempDir(), "a.firefox.json")
	sfsample(t, "-q", "-d", "1", "-p", strconv.Itoa(p.PID), "-o", name).want(t, exitDone)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var profile struct {
		Libs   []struct{ Path string }
		Shared struct {
			FrameTable struct {
				Address      []int64
				NativeSymbol []*int
			}
			NativeSymbols struct {
				Length         int
				LibIndex, Name []int
				Address        []uint64
			}
			StringArray []string
		}
	}
	if err := json.Unmarshal(text, &profile); err != nil {
		t.Fatal(err)
	}
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	base := uint64(math.MaxUint64)
	for _, s := range f.Progs {
		if s.Type == elf.PT_LOAD {
			base = min(base, s.Vaddr)
		}
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	sizes := map[string]map[uint64]uint64{} // of functions, by name and beginning
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			if sizes[s.Name] == nil {
				sizes[s.Name] = map[uint64]uint64{}
			}
			sizes[s.Name][s.Value-base] = s.Size
		}
	}
	shared := &profile.Shared
	seen := map[string]bool{}
	for i, symbol := range shared.FrameTable.NativeSymbol {
		if symbol == nil || profile.Libs[shared.NativeSymbols.LibIndex[*symbol]].Path != program {
			continue
		}
		fn, start, at := shared.StringArray[shared.NativeSymbols.Name[*symbol]], shared.NativeSymbols.Address[*symbol], shared.FrameTable.Address[i]
		size, ok := sizes[fn][start]
		if !ok || uint64(at) < start || uint64(at) >= start+max(size, 1) && size > 0 {
			t.Errorf("an instruction at %#x in %s from %#x on; the program has %v", at, fn, start, sizes[fn])
		}
		seen[fn] = true
	}
	for _, fn := range p.Stack {
		if len(sizes[fn]) > 0 && !seen[fn] {
			t.Errorf("%s has no address", fn)
		}
	}
	if len(seen) < 3 {
		t.Errorf("only %v have addresses; the stack is %v", seen, p.Stack)
	}
}
