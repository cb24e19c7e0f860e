package sampler

import "time"

// What children have used that ended before they were seen, and in the last moments of others, is known to their parent
// once it has waited for them (wait_task_zombie, kernel/exit.c).

// children is the CPU time of the children of a process that have ended, and of their own.
type children struct {
	parent int           // of the process itself; 0: not known
	clock  time.Duration // the CPU time of the process when reaped was read: it takes some to wait
	base   time.Duration // reaped when sampling began
	reaped time.Duration // of those it has waited for, as last read
	known  time.Duration // of those that were seen, as much as is accounted for
	told   time.Duration // accounted for as theirs, though nobody was seen
}

// clockTick is the unit in which stat tells of ended children: what was used before sampling began is rounded to it twice.
const clockTick = 10 * time.Millisecond

// unseen is what ended children of p have used and nothing was sent for yet.
func (p *process) unseen() time.Duration {
	c := &p.children
	rest := c.reaped - c.base - c.known - c.told
	if c.base > 0 {
		rest -= 2 * clockTick
	}
	return max(0, rest)
}

// readChildren reads what the ended children of p have used. The leader's file tells it also when it has exited.
func (ac *accounts) readChildren(p *process) {
	c := &p.children
	if now := p.watch.Clock(); now != c.clock || c.reaped == 0 {
		if s, err := proc.Task(p.pid, p.pid).Stat(); err == nil {
			c.clock, c.reaped = now, s.Reaped
		}
	}
}

// endChild accounts for a child that has ended with its parent, which may still have to wait for it. Then all that it has ever used, and what it
// has waited for itself, is in reaped at once, before sampling began too.
func (ac *accounts) endChild(p *process) {
	if parent := ac.roster.procs[p.children.parent]; parent != nil && ac.opt.Follow.Children {
		parent.children.known += p.watch.Clock() + p.children.base + p.children.known + p.children.told
	}
}
