package sampler

import "sfsample/sampler/capture"

// item is what travels from the engine to the pipeline, in order. Exactly one
// of its parts is set.
type item struct {
	capture *capture.Capture
	fb      *Feedback // with capture
	credit  *capture.Credit
	spent   *capture.Spent
	gone    int // a process that has ended, or has become another program
}
