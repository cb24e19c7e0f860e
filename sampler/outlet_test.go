package sampler

import (
	"slices"
	"testing"
)

// TestOutlet: what is sent comes out once and in its order, however full the queue is, and nobody waits for it; only what cannot wait
// makes the pipeline look.
func TestOutlet(t *testing.T) {
	const all = 100
	queue, nudge := make(chan item, 3), make(chan struct{}, 1)
	o := outlet{queue: queue, nudge: nudge}
	var got []int
	take := func(n int) {
		for range min(n, len(queue)) {
			it := <-queue
			got = append(got, it.left.tid+it.gone)
		}
	}
	for i := range all {
		if o.send(item{left: left{tid: i}}); len(nudge) > 0 {
			t.Fatal("the pipeline is to look at once for what can wait")
		}
		if i%10 == 9 {
			take(i % 4)
		}
	}
	if o.empty() || o.behind() {
		t.Errorf("empty %t, behind %t, with %d in the backlog", o.empty(), o.behind(), len(o.backlog))
	}
	for range 2 { // there is room for one nudge
		if o.send(item{gone: all + len(nudge)}); len(nudge) != 1 {
			t.Fatal("the pipeline is not to look at once for what cannot wait")
		}
	}
	for i := 0; !o.empty(); i++ {
		if i > all {
			t.Fatal("the backlog is not sent when there is room")
		}
		take(2)
		o.flush()
	}
	take(3)
	want := make([]int, all+2)
	for i := range want {
		want[i] = i
	}
	if !slices.Equal(got, want) {
		t.Errorf("sent 0 to %d, got %v", all+1, got)
	}
	for range maxBacklog + 1 {
		if o.behind() {
			t.Fatal("behind with less than what may wait")
		}
		o.backlog = append(o.backlog, item{})
	}
	if !o.behind() {
		t.Error("not behind with more than what may wait")
	}
}

// TestOutletEnds: at the end all that has waited comes out, and the end after it.
func TestOutletEnds(t *testing.T) {
	queue := make(chan item, 1)
	o := outlet{queue: queue, nudge: make(chan struct{}, 1)}
	for i := range 5 {
		o.send(item{left: left{tid: i}})
	}
	go func() {
		o.rest()
		o.end()
	}()
	for i := range 5 {
		if it := <-queue; it.left.tid != i || it.end {
			t.Errorf("%+v, want thread %d", it, i)
		}
	}
	if it := <-queue; !it.end {
		t.Errorf("%+v, want the end", it)
	}
}
