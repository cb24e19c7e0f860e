package sampler

import "time"

// bareEngine is a coordinator that has nothing to do yet, without a pipeline.
func bareEngine(opt Options) *engine {
	if opt.Hz == 0 {
		opt.Hz = 100
	}
	return newEngine(opt, new(pool), time.Now(), new(outlet))
}
