package sampler

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestRoster lets threads come and go, also with ids that others had before: each is there once, its id leads to the last that had it, and
// processes count their own.
func TestRoster(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		ros := newRoster(nil)
		procs := []*process{{pid: 1}, {pid: 2}}
		var want []*thread
		for range 200 {
			if r.IntN(2) == 0 || len(want) == 0 {
				th := &thread{tid: r.IntN(20), proc: procs[r.IntN(2)]}
				ros.enlist(th)
				if want = append(want, th); !ros.live(th) {
					t.Fatalf("seed %d: a thread that has come is not live", seed)
				}
			} else {
				i := r.IntN(len(want))
				th := want[i]
				ros.strike(th)
				want = slices.Delete(want, i, i+1)
				if ros.has(th) || ros.live(th) {
					t.Fatalf("seed %d: a thread is there that was struck off", seed)
				}
			}
			if !slices.Equal(ros.list, want) {
				t.Fatalf("seed %d: the list is not what came, in its order", seed)
			}
			for _, p := range procs {
				if n := len(ros.of(p)); n != int(p.threads.Load()) {
					t.Fatalf("seed %d: a process counts %d threads of %d", seed, p.threads.Load(), n)
				}
			}
			for i, th := range want {
				later := slices.ContainsFunc(want[i+1:], func(o *thread) bool { return o.tid == th.tid })
				if !ros.has(th) || ros.live(th) && later {
					t.Fatalf("seed %d: there %t, live %t while another has its id", seed, ros.has(th), ros.live(th))
				}
			}
		}
	}
	only := newRoster([]int{7})
	if only.unwanted(7) || !only.unwanted(8) || newRoster(nil).unwanted(8) {
		t.Error("unwanted threads are not those that were not asked for")
	}
}
