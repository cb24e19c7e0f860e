package symbol

import (
	"fmt"
	"reflect"
	"sync"
	"testing"
)

// Goroutines that ask one object get the answers that one alone gets.
func TestConcurrent(t *testing.T) {
	const first, last = 0x280, 0x330
	want := map[uint64][]Frame{}
	alone := openFixture(t, "tiny-arm64-dwarf5.so")
	for addr := uint64(first); addr < last; addr++ {
		want[addr] = alone.Frames(addr)
	}
	o := openFixture(t, "tiny-arm64-dwarf5.so")
	var wg sync.WaitGroup
	errs := make(chan error, 8)
	for g := range 8 {
		wg.Go(func() {
			for i := range uint64(last - first) {
				addr := first + (i*uint64(2*g+1))%(last-first)
				if got := o.Frames(addr); !reflect.DeepEqual(got, want[addr]) {
					errs <- fmt.Errorf("Frames(%#x) = %+v, want %+v", addr, got, want[addr])
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
}
