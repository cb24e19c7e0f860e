package sampler

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sfsample/internal/testprog"
	"sfsample/output"
	"sfsample/sampler/module"
)

// twins counts stacks by what they are in, and notes which have functions of another program than they are of.
type twins struct {
	mu     sync.Mutex
	names  map[string]string // of the function that a program works in, by the program's
	seen   map[string]int
	all    int
	ends   map[string]int // of cut ones
	wrong  []string
	enough int
	done   context.CancelFunc
}

// Add implements output.Sink.
func (w *twins) Add(s *output.Sample) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all++
	if s.Stack.End != "" {
		if w.ends[s.Stack.End]++; s.Stack.End != noMaps { // these lead elsewhere by another program's mappings
			w.wrong = append(w.wrong, s.Process+": "+s.Stack.End)
		}
	}
	for _, f := range s.Stack.Frames {
		for program, name := range w.names {
			if f.Func == name+"_rest" || f.Func == name && s.Process != program {
				w.wrong = append(w.wrong, s.Process+": "+f.Func)
			}
			if f.Func == name {
				w.seen[name]++
			}
		}
	}
	if w.seen["castor"] >= w.enough && w.seen["pollux"] >= w.enough {
		w.done()
	}
	return nil
}

// Close implements output.Sink.
func (w *twins) Close() error { return nil }

// TestTwins samples a process that is another program by the time that anybody can look at a sample: two that become each other all the time, and have each other's
// functions at the same places.
func TestTwins(t *testing.T) {
	flags := func(more ...string) []string { return append([]string{"-O1", "-no-pie", "-fno-pie"}, more...) }
	castor := testprog.Compile(t, flags("-DTWIN=castor", "-DREST=castor_rest"), "twins.c")
	pollux := testprog.Compile(t, flags("-DTWIN=pollux", "-DREST=pollux_rest", "-DBEHIND"), "twins.c")
	name := func(path string) string { // TASK_COMM_LEN
		base := filepath.Base(path)
		return base[:min(15, len(base))]
	}
	forkAside(t)
	p := testprog.Start(t, castor, pollux)
	ctx, cancel := context.WithTimeout(context.Background(), testprog.Patience)
	defer cancel()
	w := &twins{names: map[string]string{name(castor): "castor", name(pollux): "pollux"}, seen: map[string]int{}, ends: map[string]int{}, enough: 20, done: cancel}
	pipe := testPipeline(w)
	cache := module.NewCache(0)
	pipe.cfg.Open = func(pid int) (Target, *Survivor, error) {
		s := NewSurvivor(pid, nil)
		return module.NewSpace(s, cache, module.Options{Owner: s.Owner()}), s, nil
	}
	begun := time.Now()
	r, err := Run(ctx, Options{PIDs: []int{p.PID}, Hz: 99}, 0, pipe, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t.Logf("%v: %d stacks, %v, cut %v; %v", time.Since(begun), w.all, w.seen, w.ends, &r.Account)
	if len(w.wrong) > 0 {
		t.Errorf("%d frames of another program, or stacks cut by them: %s", len(w.wrong), strings.Join(w.wrong[:min(9, len(w.wrong))], ", "))
	}
	if w.seen["castor"] < w.enough || w.seen["pollux"] < w.enough {
		t.Errorf("%d ticks, and castor was seen in %d, pollux in %d: want %d of each", r.Ticks, w.seen["castor"], w.seen["pollux"], w.enough)
	}
}
