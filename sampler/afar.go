package sampler

import (
	"fmt"

	"sfsample/output"
)

// afar counts the stops that were asked for from another CPU than the thread's.
type afar struct {
	stops int64
	pids  map[int]bool // whose threads these were, at most maxAfar
	cpus  map[int]bool

	realTime, away bool // warned of
}

// maxAfar bounds the processes that are told apart.
const maxAfar = 1 << 16

// note counts one, and warns of the first of a kind.
func (a *afar) note(warn func(string, ...any), pid, cpu int, realTime bool) {
	if a.stops++; a.stops == 1 {
		a.pids, a.cpus = map[int]bool{}, map[int]bool{}
	}
	const so = "they are stopped from elsewhere, which favours the ends of system calls; at the end is told how many"
	switch {
	case realTime && !a.realTime:
		a.realTime = true
		warn("threads have real-time priority (of process %d first), so that no clock of ours takes their CPU: "+so, pid)
	case !realTime && !a.away:
		a.away = true
		warn("threads run on a CPU where no clock of ours can be, or gets no time (of process %d on CPU %d first): "+so, pid, cpu)
	}
	if len(a.pids) < maxAfar {
		a.pids[pid] = true
	}
	a.cpus[cpu] = true
}

// total is the line that tells how many there were; "": none.
func (a *afar) total() string {
	if a.stops == 0 {
		return ""
	}
	processes := "1 process"
	if n := len(a.pids); n > 1 {
		processes = fmt.Sprintf("%d processes", n)
	}
	were := " was"
	if a.stops > 1 {
		were = "s were"
	}
	return fmt.Sprintf("%d stop%s asked for from elsewhere, of threads of %s on %s", a.stops, were, processes, output.Plural(int64(len(a.cpus)), "CPU"))
}
