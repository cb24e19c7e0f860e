package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestHurried: files of targets are read for namesGrace after Ctrl-C, and after another end of the run for as long as what was asked
// for may take. What is waited for is told.
func TestHurried(t *testing.T) {
	for name, tt := range map[string]struct {
		naming naming
		most   time.Duration
	}{
		"names": {naming{}, 500 * time.Millisecond}, "lines": {naming{lines: true}, 10 * time.Second}, "inlines": {naming{inlines: true}, 10 * time.Second},
		"servers": {naming{debuginfod: true, lines: true}, 100 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var text bytes.Buffer
				s := session{config: config{naming: tt.naming}, stderr: &text}
				until, giveUp := hurried(t.Context())
				begun := time.Now()
				s.slow(t.Context(), giveUp, false)
				<-until.Until().Done()
				if took := time.Since(begun); took == 0 || took > tt.most || !strings.Contains(text.String(), "the last samples") {
					t.Errorf("files are read for %v, want up to %v; told %q", took, tt.most, text.String())
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		until, giveUp := hurried(ctx)
		defer giveUp()
		interrupt()
		begun := time.Now()
		<-until.Until().Done()
		if took := time.Since(begun); took != namesGrace {
			t.Errorf("after Ctrl-C files are read for %v, want %v", took, namesGrace)
		}
	})
}
