package sampler

import (
	"fmt"
	"os"
	"slices"

	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
	"sfsample/sampler/module"
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
	t.mapped = mapped{gen: t.space.Generation(), maps: t.space.Mappings(), written: was.written}
	if gen, maps := t.mapped.gen, t.mapped.maps; gen == was.gen && gen != 0 && (sameList(maps, was.maps) || slices.Equal(maps, was.maps)) {
		return // what holds data alone is no news to a Space, but to a walk that goes there
	}
	m := &capture.Maps{PID: t.pid}
	t.mapped.written = map[*module.Module]written{}
	for _, x := range t.mapped.maps {
		region := capture.Region{Mapping: x}
		if mod, _, ok := t.space.Module(x.Start); ok {
			if region.BuildID = mod.BuildID; mod.BuildID == "" && !mod.VDSO() {
				w, known := was.written[mod]
				if !known {
					w = whenWritten(mod)
				}
				t.mapped.written[mod] = w
				region.Size, region.Modified = w.size, w.modified
			}
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

// written tells a file without a build-id from another one of its name; zero: not known.
type written struct{ size, modified int64 }

func whenWritten(m *module.Module) written {
	f, err := m.OpenFile()
	if err != nil {
		return written{}
	}
	defer f.Close()
	return writtenOf(f)
}

func writtenOf(f module.File) written {
	s, ok := f.(interface{ Stat() (os.FileInfo, error) })
	if !ok {
		return written{}
	}
	info, err := s.Stat()
	if err != nil {
		return written{}
	}
	return written{info.Size(), info.ModTime().UnixNano()}
}
