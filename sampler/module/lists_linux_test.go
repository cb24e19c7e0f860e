package module

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sfsample/internal/late"
	"sfsample/ptrace/procfs"
)

// TestLists: lists of mappings have bounds, each and together; one that is refused is not read again for some time, and told once.
func TestLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var log bytes.Buffer
		lists := NewLists(late.New(ctx), slog.New(slog.NewTextHandler(&log, nil)))
		reads := 0
		read := func(l *listing, size int) error {
			_, err := l.read(func(more func(text, list int) error) ([]procfs.Mapping, error) {
				reads++
				for n := 0; n < size; n += 1 << 20 {
					if err := more(n, n); err != nil {
						return nil, err
					}
				}
				return nil, more(size, size)
			})
			return err
		}
		var all [maxLists / maxList]listing
		for i := range all {
			all[i].of = lists
			if err := read(&all[i], maxList); err != nil {
				t.Errorf("list %d: %v", i, err)
			}
		}
		one, long, again := listing{of: lists}, listing{of: lists}, &all[0]
		if err := read(again, maxList); err != nil {
			t.Errorf("a list in its own place: %v", err)
		}
		if err := read(&one, 1); !errors.Is(err, errNoRoom) || !Refused(err) {
			t.Errorf("one more: %v, want %v", err, errNoRoom)
		}
		again.close()
		if err := read(&long, maxList+1); !errors.Is(err, procfs.ErrTooLong) || !Refused(err) {
			t.Errorf("a long list: %v, want %v", err, procfs.ErrTooLong)
		}
		before := reads
		if err := read(&one, 1); err == nil || reads != before {
			t.Errorf("asked again at once: %v", err)
		}
		time.Sleep(firstRest)
		if err := read(&one, 1); err != nil {
			t.Errorf("when there is room: %v", err)
		}
		begun := time.Now()
		for before = reads; reads < before+4; time.Sleep(firstRest / 4) {
			_ = read(&long, maxList+1)
		}
		if took := time.Since(begun); took < (2+4+8)*firstRest {
			t.Errorf("a list that is refused was read four times more in %v", took)
		}
		if n := strings.Count(log.String(), "\n"); n != 1 || !strings.Contains(log.String(), "not read") {
			t.Errorf("told %d times: %s", n, log.String())
		}
		cancel()
		if err := read(&one, 1); !errors.Is(err, late.ErrNoTime) || !Refused(err) {
			t.Errorf("when time is up: %v, want %v", err, late.ErrNoTime)
		}
		for i := range all {
			all[i].close()
		}
		if one.close(); lists.used.Load() != 0 {
			t.Errorf("in the end %d bytes are counted", lists.used.Load())
		}
	})
}
