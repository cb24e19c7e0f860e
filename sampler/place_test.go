package sampler

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAvoid: the tracing thread leaves the CPU of a target, and no other, and may
// go back.
func TestAvoid(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before, after unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	if before.Count() < 2 {
		t.Skip("one CPU on this machine")
	}
	// Both CPUs may be busy: the thread can be moved at any moment.
	left := 0
	for range 100 {
		var p place
		p.home()
		own := ownCPU()
		p.avoid(&thread{cpu: own, near: 1})
		if ownCPU() != own {
			left++
		}
	}
	if left < 50 {
		t.Errorf("the CPU was left %d times of 100", left)
	}
	if err := unix.SchedGetaffinity(0, &after); err != nil || after != before {
		t.Errorf("may run on %v afterwards, before on %v (%v)", after, before, err)
	}
}
