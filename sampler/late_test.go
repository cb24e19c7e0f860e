package sampler

import (
	"bytes"
	"context"
	"debug/elf"
	"os"
	"runtime"
	"testing"
	"time"

	"sfsample/internal/late"
	"sfsample/internal/testprog"
	"sfsample/output"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
	"sfsample/sampler/module"
	"sfsample/sampler/symbol/rootfs"
	"sfsample/unwind"
)

// TestNoTimeLeft: what is not read of a file for want of time is told, where a stack is cut and where a name is missing.
func TestNoTimeLeft(t *testing.T) {
	const size = 24 << 20
	path := testprog.Sparse(t, spinnersProg(t), 0,
		testprog.Section{Name: ".dynsym", Type: elf.SHT_DYNSYM, Size: size, Ent: 24, Link: 2},
		testprog.Section{Name: ".dynstr", Type: elf.SHT_STRTAB, Size: size})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	addr := symbolAddr(t, path, "spin_7") + 1
	for what, until := range map[string]*late.Time{"in time": nil, "late": late.New(over)} {
		cache := module.NewCache(0)
		cache.Until = until
		space := module.NewSpace(newFileSource(t, path), cache, module.Options{})
		if err := space.Refresh(); err != nil {
			t.Fatal(err)
		}
		space.Entry(addr) // by the symbols of the file
		n := NewNames(NameOptions{Until: until})
		p := n.process(os.Getpid())
		m, _, _ := space.Module(addr)
		o := n.hold(p, m)
		n.look(o, addr-m.Bias)
		n.look(o, 1) // where there is nothing
		n.release(o)
		want, names := unwind.NoRow.String(), 0
		if until != nil {
			want, names = noTime, 1
		}
		tgt := &target{space: space}
		frames := []unwind.Frame{{PC: addr}}
		if got := tgt.reason(frames, unwind.End{Reason: unwind.NoRow}); got != want {
			t.Errorf("%s: a stack is cut for %q, want %q", what, got, want)
		}
		if got := tgt.reason(frames, unwind.End{Reason: unwind.DepthLimit}); got != unwind.DepthLimit.String() {
			t.Errorf("%s: a deep stack is cut for %q", what, got)
		}
		if got := n.Unread()[path]; got != (Missed{Names: names}) {
			t.Errorf("%s: %+v not read, want %d names", what, got, names)
		}
	}
}

// slowSource gives a file that does not come until it is told to.
type slowSource struct {
	*fileSource
	opens, reads bool // whether these come
}

type slowFile struct {
	module.File
	s *slowSource
}

func (f slowFile) ReadAt(b []byte, off int64) (int, error) {
	if !f.s.reads && off > 0 { // the header has come before
		return 0, rootfs.ErrSilent
	}
	return f.File.ReadAt(b, off)
}

func (s *slowSource) OpenFile(m procfs.Mapping) (module.File, error) {
	if !s.opens {
		return nil, rootfs.ErrSilent
	}
	f, err := s.fileSource.OpenFile(m)
	return slowFile{f, s}, err
}

// TestSilentFile: a file that does not come is not asked for again for some time, and names when it comes then.
func TestSilentFile(t *testing.T) {
	path := spinnersProg(t)
	addr := symbolAddr(t, path, "spin_7") + 1
	src := &slowSource{fileSource: newFileSource(t, path), opens: true, reads: true}
	space := module.NewSpace(src, module.NewCache(0), module.Options{})
	if err := space.Refresh(); err != nil {
		t.Fatal(err)
	}
	m, _, ok := space.Module(addr)
	if !ok {
		t.Fatal("no module")
	}
	for _, opens := range []bool{false, true} {
		n := NewNames(NameOptions{})
		p := n.process(os.Getpid())
		name := func() string {
			return n.frames(p, &rawFrame{frameKey: frameKey{pc: addr}, lookup: addr, module: m, vaddr: addr - m.Bias})[0].Func
		}
		src.opens, src.reads = opens, false
		if got := name(); got == "spin_7" {
			t.Errorf("opens: %t: named %s by a file that does not come", opens, got)
		}
		src.opens, src.reads = true, true
		if got := name(); got == "spin_7" {
			t.Errorf("opens: %t: named %s by a file that is not to be asked for yet", opens, got)
		}
		p.modules[m].object.again = time.Time{}
		if got := name(); got != "spin_7" {
			t.Errorf("opens: %t: named %q by a file that has come, want spin_7", opens, got)
		}
		n.forget(p)
	}
}

// TestUnwalked: what there is no time left to walk is in the result and in the recording, as such, and nothing is read for it.
func TestUnwalked(t *testing.T) {
	var b bytes.Buffer
	w, err := capture.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	live, again, files := new(swapSink), new(swapSink), NewRecorded(start)
	path := spinnersProg(t)
	pipe := NewPipeline(PipelineConfig{Host: runtime.GOARCH, Start: start, Sink: live, Names: NewNames(NameOptions{Recorded: true}), Record: w, Live: true, Until: late.New(over),
		Scripts: ScriptOptions{On: true}, Wait: func(int, int, int64, uint64, uint64) func([]output.Frame) string {
			t.Error("it is asked what is waited for")
			return nil
		},
		Open: func(int) (Target, *Survivor, error) {
			return module.NewSpace(unreadSource{t, newFileSource(t, path)}, module.NewCache(0), module.Options{}), nil, nil
		}})
	pid := os.Getpid()
	items := make(chan item, 10)
	for _, it := range []item{{opened: pid}, {fork: fork{pid, 1 << 30}},
		{capture: &capture.Capture{PID: pid, TID: pid, Taken: capture.Unstopped, Blocked: true, Stack: capture.Stack{Bytes: make([]byte, 100)}, Weight: capture.Weight{CPU: 1}}, early: &early{pages: -1, maps: []procfs.Mapping{{Start: 1 << 12, End: 2 << 12, Perms: procfs.Exec}}}},
		{credit: &capture.Credit{PID: pid, TID: pid, Weight: capture.Weight{CPU: 2}}}, {end: true}} {
		items <- it
	}
	pipe.consume(items, make(chan struct{}), time.Millisecond)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := capture.NewReader(&b)
	if err != nil {
		t.Fatal(err)
	}
	replay := NewPipeline(PipelineConfig{Host: runtime.GOARCH, Start: start, Sink: again, Names: NewNames(NameOptions{Recorded: true}),
		Open: func(pid int) (Target, *Survivor, error) {
			return module.NewSpace(files.Source(pid), module.NewCache(0), module.Options{}), nil, nil
		}})
	if err := Replay(r, replay, files); err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]struct {
		list  []output.Sample
		stats Unwound
	}{"live": {live.list, pipe.Stats()}, "replayed": {again.list, replay.Stats()}} {
		if got.stats.Stacks != 1 || got.stats.Cut[noTime] != 1 || len(got.list) != 2 || got.list[0].CPU != 1 || got.list[1].CPU != 2 ||
			got.list[0].Stack.End != noTime || got.list[1].Stack.End != noTime {
			t.Errorf("%s: %+v, %+v", what, got.stats, got.list)
		}
	}
}

// unreadSource is one that nobody asks.
type unreadSource struct {
	t *testing.T
	module.Source
}

func (s unreadSource) Maps() ([]procfs.Mapping, error) {
	s.t.Error("the mappings are read")
	return s.Source.Maps()
}
