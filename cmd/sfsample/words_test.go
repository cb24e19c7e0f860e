package main

import (
	"os"
	"strings"
	"testing"

	"sfsample/sampler/ledger"
	"sfsample/unwind"
)

// TestWordsAreExplained: every word of the account and every reason for which a stack is cut stands in
// docs/numbers.md, and those that are losses are told as such.
func TestWordsAreExplained(t *testing.T) {
	if _, err := os.Stat("../../docs/numbers.md"); err != nil {
		t.Skip("no sources on this machine")
	}
	text := readFile(t, "../../docs/numbers.md")
	for c := range ledger.NumClasses {
		_, row, ok := strings.Cut(text, "\n| "+c.String()+" |")
		row, _, _ = strings.Cut(row, "\n")
		if !ok || strings.HasSuffix(row, "| yes |") != c.Lost() {
			t.Errorf("%q, a loss: %v, is explained by %q", c, c.Lost(), row)
		}
	}
	for r := unwind.DepthLimit; ; r++ {
		if !strings.Contains(text, "\n| "+r.String()+" |") {
			t.Errorf("the reason %q is not explained", r)
		}
		if r.String() == "unknown reason" {
			break
		}
	}
}
