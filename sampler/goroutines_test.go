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
		r := goReading{out: &GoProcess{Goroutines: []*Goroutine{{GoState: state}, {GoState: &GoState{}}}}, since: []uint64{10, 30}, now: 100}
		if r.waits(); r.out.Goroutines[0].Waits != 0 {
			t.Errorf("%+v has waited for %d", state, r.out.Goroutines[0].Waits)
		}
	}
}
