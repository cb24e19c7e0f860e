//go:build !race

package main

import (
	"strings"
	"testing"
)

// shares is how many faults are planted in each package in every run of the
// tests. The slower a package's tests, the fewer.
var shares = []struct {
	pkg string
	n   int
}{
	{"./regs", 6}, {"./ptrace/procfs", 6}, {"./sampler/capture", 6}, {"./sampler/ledger", 6}, {"./sampler/watch", 4},
}

// TestShare plants a few faults in the packages that were tested by hundreds of
// them, always the same as long as the sources are. One in four may stay: whoever
// adds code without tests sees it here.
func TestShare(t *testing.T) {
	if testing.Short() {
		t.Skip("builds many test programs")
	}
	t.Chdir(root(t))
	for _, s := range shares {
		t.Run(strings.TrimPrefix(s.pkg, "./"), func(t *testing.T) {
			var out strings.Builder
			ok, err := mutate(t.Context(), &out, []string{s.pkg}, s.n, 1, 2, 75, false)
			if err != nil || !ok {
				t.Errorf("%v\n%s", err, out.String())
			}
			t.Log(out.String())
		})
	}
}
