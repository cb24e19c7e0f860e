package sampler

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestInbox: items are waited for longer once they come steadily, and at once
// less long where that would cost something.
func TestInbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, nudge := make(chan int, 4096), make(chan struct{}, 1)
		b := newInbox(c, nudge, 0)
		got := func(n int) time.Duration {
			t.Helper()
			begin := time.Now()
			for range n {
				c <- 1
			}
			for range n {
				if _, ok := b.next(); !ok {
					t.Fatal("the channel has ended")
				}
			}
			// The item after them comes when the receiver sleeps.
			go func() {
				time.Sleep(time.Millisecond)
				c <- 1
			}()
			b.next()
			return time.Since(begin)
		}
		if d := got(1); d != lookEvery {
			t.Errorf("at first an item waited for %v, want %v", d, lookEvery)
		}
		for range steadyLooks {
			got(1)
		}
		if d := got(1); d != lookSeldom {
			t.Errorf("when items come steadily, one waited for %v, want %v", d, lookSeldom)
		}
		b.hurry()
		if d := got(1); d != lookEvery {
			t.Errorf("after hurry, an item waited for %v, want %v", d, lookEvery)
		}
		for range steadyLooks {
			got(1)
		}
		if d := got(fewItems + 1); d != lookEvery {
			t.Errorf("after many items, one waited for %v, want %v", d, lookEvery)
		}
		for range steadyLooks {
			got(1)
		}
		go func() {
			time.Sleep(2 * time.Millisecond)
			nudge <- struct{}{}
		}()
		if d := got(1); d != 2*time.Millisecond {
			t.Errorf("a nudged item waited for %v, want 2ms", d)
		}
		close(c)
		if _, ok := b.next(); ok {
			t.Error("an item came out of an empty, closed channel")
		}
	})
}

// TestInboxRare: where ticks are rare nobody waits for the next look.
func TestInboxRare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := make(chan int, 1)
		b := newInbox(c, nil, mostLook+1)
		for range 3 {
			begin := time.Now()
			go func() {
				time.Sleep(time.Millisecond)
				c <- 1
			}()
			if b.next(); time.Since(begin) != time.Millisecond {
				t.Errorf("one has waited for %v", time.Since(begin)-time.Millisecond)
			}
		}
	})
}
