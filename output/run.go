package output

import (
	"fmt"
	"strings"
	"time"
)

// Run is what a picture's title tells of the run. What is not known is left out.
type Run struct {
	Command  string // or the name of the process
	PIDs     []int
	Host     string
	Start    time.Time
	Duration time.Duration
	Samples  int64
	Lost     int64  // thread ticks
	CPUs     int    // 0: not known
	CPU      string // its model
}

// heading is the title of a picture: a short one, and what is known of the run.
func (o Options) heading(r *Run, total int64) (title, details string) {
	title = "Flame graph"
	if r.Command != "" {
		title = clean(r.Command)
		if cut := []rune(title); len(cut) > 100 {
			title = string(cut[:100]) + "..."
		}
	}
	if n := len(r.PIDs); n == 1 {
		title += fmt.Sprintf(" (pid %d)", r.PIDs[0])
	} else if n > 1 {
		title += fmt.Sprintf(" (%d processes)", n)
	}
	parts := []string{string(appendTime(nil, total)) + " of " + o.unit()}
	if r.Duration > 0 {
		parts = append(parts, "in "+string(appendTime(nil, int64(r.Duration))))
	}
	if o.Hz > 0 {
		parts = append(parts, fmt.Sprintf("at %g Hz", o.Hz))
	}
	parts = []string{strings.Join(parts, " ")}
	if r.Samples > 0 {
		samples := Plural(int64(r.Samples), "sample")
		if r.Duration > 0 { // a recording does not tell what was lost
			samples += ", " + Plural(int64(r.Lost), "tick") + " lost"
		}
		parts = append(parts, samples)
	}
	if r.Host != "" {
		parts = append(parts, "host "+clean(r.Host))
	}
	if !r.Start.IsZero() {
		parts = append(parts, r.Start.UTC().Format("2006-01-02 15:04:05 MST"))
	}
	return title, strings.Join(parts, " · ")
}
