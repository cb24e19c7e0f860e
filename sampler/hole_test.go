package sampler

import (
	"context"
	"testing"
	"time"

	"sfsample/internal/testprog"
)

// TestHole: a stack is whole though much of it was never written, the page of the stack pointer included, or is
// not even mapped yet. What a thread needs is known after a few samples.
func TestHole(t *testing.T) {
	path := threadsProg(t, "hole.c")
	for how, many := range map[string]int{"spin": 20, "wait": 1} {
		for _, where := range []string{"mapped", "below"} {
			t.Run(how+" "+where, func(t *testing.T) {
				p := testprog.Start(t, path, how, where)
				sink := new(byFunction)
				ctx, cancel := context.WithTimeout(context.Background(), testprog.Patience)
				defer cancel()
				ended := make(chan error, 1)
				go func() {
					_, err := Run(ctx, Options{Hz: 199, All: true, PIDs: []int{p.PID}}, 0, testPipeline(sink), nil, nil)
					ended <- err
				}()
				for sink.of("top") < many && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				cancel()
				if err := within(t, ended, "the run does not end"); err != nil {
					t.Error(err)
				}
				if whole := sink.of("top"); whole < many {
					t.Errorf("%d stacks are whole, %d cut", whole, sink.of("stack copy too small"))
				}
			})
		}
	}
}
