package sampler

import (
	"fmt"
	"log/slog"
)

// notices is what a run says of itself while it goes on: each text once.
type notices struct {
	log  *slog.Logger
	said map[string]bool
}

// maxNotices bounds the texts: targets make them.
const maxNotices = 1000

// warn says something, if it was not said before.
func (x *notices) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if len(x.said) >= maxNotices || x.said[text] {
		return
	}
	if x.said == nil {
		x.said = map[string]bool{}
	}
	x.said[text] = true
	x.log.Warn(text)
}
