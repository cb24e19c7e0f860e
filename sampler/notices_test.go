package sampler

import (
	"log/slog"
	"strings"
	"testing"
)

// TestNotices: each text is said once, and there is an end to them.
func TestNotices(t *testing.T) {
	var said strings.Builder
	x := notices{log: slog.New(slog.NewTextHandler(&said, nil))}
	for i := range 2 * maxNotices {
		x.warn("thread %d", i%(maxNotices+1))
	}
	if n := strings.Count(said.String(), "\n"); n != maxNotices {
		t.Errorf("%d lines of %d texts, each said twice; want %d", n, maxNotices+1, maxNotices)
	}
}
