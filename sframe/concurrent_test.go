package sframe

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"
)

// TestConcurrent: goroutines that share a section get right answers while the
// cache grows and, the table not being sorted, an index is built. The race
// detector watches.
func TestConcurrent(t *testing.T) {
	section := bigSection(3, 2000, 10)
	section.Funcs[20], section.Funcs[1500] = section.Funcs[1500], section.Funcs[20]
	data := section.Bytes()
	s, err := Open(bytes.NewReader(data), section.Addr, uint64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range uint64(4) {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(g, 8))
			for range 5000 {
				f := &section.Funcs[rnd.IntN(len(section.Funcs))]
				j := rnd.IntN(len(f.Rows))
				row, err := s.Row(f.Start + uint64(f.Rows[j].Off))
				if err != nil || int64(row.CFA.Offset) != f.Rows[j].Words[0] {
					t.Errorf("function %#x, row %d: got %v, %v", f.Start, j, row, err)
					return
				}
			}
		})
	}
	wg.Wait()
}
