package sampler

import (
	"slices"
	"testing"
	"time"
)

// TestGoWaits: a goroutine has waited since before the next later time that is noted in any.
func TestGoWaits(t *testing.T) {
	for _, tt := range []struct {
		name  string
		since []uint64
		now   uint64
		want  []time.Duration
	}{
		{"none", nil, 100, nil},
		{"one", []uint64{10}, 100, []time.Duration{0}},
		{"equal", []uint64{10, 10}, 100, []time.Duration{0, 0}},
		{"a later one", []uint64{10, 30, 10}, 100, []time.Duration{70, 0, 70}},
		{"the next of several", []uint64{50, 10, 30}, 100, []time.Duration{0, 70, 50}},
		{"some have none", []uint64{0, 10, 0, 30}, 100, []time.Duration{0, 70, 0, 0}},
		{"the clock is not known", []uint64{10, 30}, 0, []time.Duration{0, 0}},
		{"after the reading has begun", []uint64{10, 100}, 100, []time.Duration{0, 0}},
		{"just before", []uint64{10, 99}, 100, []time.Duration{1, 0}},
		{"of another clock", []uint64{1<<64 - 1, 10}, 100, []time.Duration{0, 0}},
	} {
		r := goReading{out: &GoProcess{}, since: tt.since, now: tt.now}
		for range tt.since {
			r.out.Goroutines = append(r.out.Goroutines, &Goroutine{GoState: &GoState{}})
		}
		r.waits()
		var got []time.Duration
		for _, g := range r.out.Goroutines {
			got = append(got, g.Waits)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	for _, state := range []*GoState{{coroutine: true}, {Reason: "coroutine"}} {
		r := goReading{out: &GoProcess{Goroutines: []*Goroutine{
			{ID: 5, Parent: 1, GoState: &GoState{}}, {ID: 6, Parent: 5, GoState: state}, {ID: 1, GoState: &GoState{}}, {ID: 7, GoState: &GoState{}},
		}}, since: []uint64{10, 10, 10, 30}, now: 100}
		r.waits()
		for i, want := range []time.Duration{0, 0, 70, 0} {
			if g := r.out.Goroutines[i]; g.Waits != want {
				t.Errorf("%+v: goroutine %d has waited for %d, want %d", state, g.ID, g.Waits, want)
			}
		}
	}
}
