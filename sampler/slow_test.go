package sampler

import "testing"

// What takes longer than the end of sampling is told, once.
func TestAwaitTellsWhatIsSlow(t *testing.T) {
	p := NewPipeline(PipelineConfig{})
	p.queue = make(chan named, 4)
	p.queue <- named{}
	p.queue <- named{}
	end, told := make(chan struct{}), 0
	p.cfg.Slow = func(left int) {
		if told++; left != 2 {
			t.Errorf("%d samples are left, want 2", left)
		}
		close(end)
	}
	p.await(end)
	if told != 1 {
		t.Errorf("told %d times, want once", told)
	}
}
