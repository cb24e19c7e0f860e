package module

import (
	"fmt"
	"io"
	"strings"

	"sfsample/sframe"
	"sfsample/sframe/ehframe"
)

// Tables are the unwind tables of an object, opened for a tool that lists or
// checks them. They are for one goroutine at a time.
type Tables struct {
	SFrame   []*sframe.Section // in the order in which a walk asks them
	EHFrame  *ehframe.Table    // nil: none
	Problems []Problem         // tables that could not be opened
}

// Tables opens the module's tables apart from those that the Space uses. They
// read the memory of the process each time.
func (m *Module) Tables() (*Tables, error) {
	own := *m
	own.access = &access{m.access.src, m.access.opt}
	own.access.opt.Log = silent
	cache := NewCache(1 << 20)
	own.obj = cache.object(objectKey{}, true, func() *object {
		return &object{mem: objectMemory{hdr: m.obj.mem.hdr}}
	})
	own.obj.mem.via = &own
	if err := own.obj.open(); err != nil {
		return nil, fmt.Errorf("read the tables of %s: %w", m.Path, err)
	}
	o := own.obj
	return &Tables{SFrame: append(o.tables.sframes, o.tables.old...), EHFrame: o.tables.eh, Problems: o.problems}, nil
}

// Image returns the module's memory, addressed by link-time address.
func (m *Module) Image() io.ReaderAt { return imageAt{m.access.src, m.Bias} }

// Report is what a Space knows of a module.
type Report struct {
	Path    string
	BuildID string
	// Used: the module was asked for rows or names. Its tables are known only
	// then.
	Used     bool
	SFrame   []SFrameInfo
	EHFrame  bool
	PCLNTab  bool // Go's table of functions
	Problems []Problem
}

// SFrameInfo tells of a .sframe table in use.
type SFrameInfo struct {
	Version uint8
	Funcs   uint32
	Bytes   uint64
}

// String is one line for people, without the problems.
func (r Report) String() string {
	var has []string
	for _, t := range r.SFrame {
		has = append(has, fmt.Sprintf("sframe V%d (%d functions, %d bytes)", t.Version, t.Funcs, t.Bytes))
	}
	if r.EHFrame {
		has = append(has, "eh_frame")
	}
	if r.PCLNTab {
		has = append(has, "pclntab")
	}
	switch {
	case !r.Used:
		has = []string{"not asked for"}
	case len(has) == 0:
		has = []string{"no tables"}
	}
	id := r.BuildID
	if id == "" {
		id = "none"
	}
	return fmt.Sprintf("%q build-id %s: %s", r.Path, id, strings.Join(has, ", "))
}

// Report tells which tables the module has.
func (m *Module) Report() Report {
	o := m.obj
	o.lock(m)
	defer o.unlock()
	r := Report{Path: m.Path, BuildID: m.BuildID, Used: m.asked && o.tables.opened, EHFrame: o.tables.eh != nil, PCLNTab: o.golang.table != nil}
	for _, t := range append(o.tables.sframes[:len(o.tables.sframes):len(o.tables.sframes)], o.tables.old...) {
		info := SFrameInfo{Version: t.Version(), Bytes: t.Size()}
		if images, err := t.Images(); err == nil {
			for _, i := range images {
				info.Funcs += i.Header.NumFDEs
			}
		}
		r.SFrame = append(r.SFrame, info)
	}
	r.Problems = append(r.Problems, o.problems...)
	return r
}
