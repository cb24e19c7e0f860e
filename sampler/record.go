package sampler

import (
	"fmt"
	"slices"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
)

// recorder writes a recording, if one is wanted, until that fails.
type recorder struct {
	cfg    *PipelineConfig
	failed *failure
	err    error // why nothing more is recorded
}

func (r *recorder) write(x capture.Record) {
	if r.cfg.Record == nil || r.err != nil {
		return
	}
	if err := r.cfg.Record.Write(x); err != nil {
		r.err = err
		r.failed.add(RecordError(err))
	}
}

// RecordError says what failed of a recording, nil if nothing did.
func RecordError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("record: %w (what it holds can be replayed)", err)
}

// sameList tells whether both are of one reading: each makes a list of its own, which nobody changes.
func sameList(a, b []procfs.Mapping) bool {
	return len(a) > 0 && len(a) == len(b) && &a[0] == &b[0]
}

// maps records the mappings of a process if they are not those of the
// last record. tid is a thread that lived a moment ago.
func (r *recorder) maps(t *target, tid int) {
	if r.cfg.Record == nil || t.space == nil {
		return
	}
	was := t.mapped
	t.mapped = mapped{t.space.Generation(), t.space.Mappings()}
	if gen, maps := t.mapped.gen, t.mapped.maps; gen == was.gen && gen != 0 && (sameList(maps, was.maps) || slices.Equal(maps, was.maps)) {
		return // what holds data alone is no news to a Space, but to a walk that goes there
	}
	m := &capture.Maps{PID: t.pid}
	for _, x := range t.mapped.maps {
		region := capture.Region{Mapping: x}
		if mod, _, ok := t.space.Module(x.Start); ok {
			region.BuildID = mod.BuildID
		}
		m.Regions = append(m.Regions, region)
		if x.Path == vdso {
			m.VDSO = make([]byte, min(x.End-x.Start, 1<<20))
			n, err := ptrace.ReadMemory(tid, x.Start, m.VDSO)
			if err != nil { // that thread has exited by now
				n, _ = ptrace.ReadMemory(t.pid, x.Start, m.VDSO)
			}
			m.VDSO = m.VDSO[:n]
		}
	}
	r.write(m)
}
