package sampler

import "testing"

// What takes longer than the end of sampling is told, once.
func TestAwaitTellsWhatIsSlow(t *testing.T) {
	p := NewPipeline(PipelineConfig{})
	end, told := make(chan struct{}), 0
	p.cfg.Slow = func(held bool) {
		if told++; held {
			t.Error("a thread is held")
		}
		close(end)
	}
	p.cfg.await(end, false)
	if told != 1 {
		t.Errorf("told %d times, want once", told)
	}
}
