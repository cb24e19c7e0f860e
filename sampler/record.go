package sampler

import (
	"fmt"

	"sfsample/ptrace"
	"sfsample/sampler/capture"
)

func (p *Pipeline) record(r capture.Record) {
	if p.cfg.Record == nil || p.recordErr != nil {
		return
	}
	if err := p.cfg.Record.Write(r); err != nil {
		p.recordErr = err
		p.fail(RecordError(err))
	}
}

// RecordError says what failed of a recording, nil if nothing did.
func RecordError(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("record: %w (what it holds can be replayed)", err)
}

// recordMaps records the mappings of a process if they are not those of the
// last record. tid is a thread that lived a moment ago.
func (p *Pipeline) recordMaps(t *target, tid int) {
	if p.cfg.Record == nil || t.space == nil {
		return
	}
	gen := t.space.Generation()
	if gen == t.gen && gen != 0 {
		return
	}
	t.gen = gen
	m := &capture.Maps{PID: t.pid}
	for _, r := range t.space.Mappings() {
		region := capture.Region{Mapping: r}
		if mod, _, ok := t.space.Module(r.Start); ok {
			region.BuildID = mod.BuildID
		}
		m.Regions = append(m.Regions, region)
		if r.Path == vdso {
			m.VDSO = make([]byte, min(r.End-r.Start, 1<<20))
			n, err := ptrace.ReadMemory(tid, r.Start, m.VDSO)
			if err != nil { // that thread has exited by now
				n, _ = ptrace.ReadMemory(t.pid, r.Start, m.VDSO)
			}
			m.VDSO = m.VDSO[:n]
		}
	}
	p.record(m)
}
