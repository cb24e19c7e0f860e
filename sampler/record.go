package sampler

import (
	"fmt"
	"slices"

	"sfsample/ptrace"
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

// maps records the mappings of a process if they are not those of the
// last record. tid is a thread that lived a moment ago.
func (r *recorder) maps(t *target, tid int) {
	if r.cfg.Record == nil || t.space == nil {
		return
	}
	gen, maps := t.space.Generation(), t.space.Mappings()
	if gen == t.mapped.gen && gen != 0 && slices.Equal(maps, t.mapped.maps) {
		return // what holds data alone is no news to a Space, but to a walk that goes there
	}
	t.mapped = mapped{gen, slices.Clone(maps)}
	m := &capture.Maps{PID: t.pid}
	for _, x := range maps {
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
