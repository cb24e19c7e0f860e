package sampler

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/output"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
	"sfsample/sampler/module"
)

// replayed is what a recording of these records becomes.
func replayed(t *testing.T, start time.Time, records ...capture.Record) []output.Sample {
	t.Helper()
	list, _, err := replay(t, start, records...)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// reread ends a recording, and reads it from its beginning.
func reread(t *testing.T, w *capture.Writer, b *bytes.Buffer) *capture.Reader {
	t.Helper()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := capture.NewReader(b)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// replay replays a recording of these records.
func replay(t *testing.T, start time.Time, records ...capture.Record) ([]output.Sample, *Recorded, error) {
	t.Helper()
	var b bytes.Buffer
	w, err := capture.NewWriter(&b)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range records {
		if err := w.Write(rec); err != nil {
			t.Fatal(err)
		}
	}
	r := reread(t, w, &b)
	sink, files := new(swapSink), NewRecorded(start)
	pipe := NewPipeline(PipelineConfig{Host: "amd64", Start: start, Sink: sink, Names: NewNames(NameOptions{Recorded: true}),
		Open: func(pid int) (Target, *Survivor, error) {
			return module.NewSpace(files.Source(pid), module.NewCache(0), module.Options{}), nil, nil
		}})
	err = Replay(r, pipe, files)
	return sink.list, files, err
}

// TestRecordedRoom: what is kept of the processes of a recording is bounded, and what is replaced or has ended is not counted.
func TestRecordedRoom(t *testing.T) {
	was := maxRecorded
	t.Cleanup(func() { maxRecorded = was })
	maxRecorded = 8 << 20
	mib := make([]byte, 1<<20)
	regions := make([]capture.Region, 4000)
	for i := range regions {
		regions[i].Mapping = procfs.Mapping{Start: uint64(i) << 12, End: uint64(i+1) << 12}
	}
	for name, tt := range map[string]struct {
		record func(i int) []capture.Record
		full   bool
	}{
		"memory": {func(i int) []capture.Record {
			return []capture.Record{&capture.Memory{PID: 1, Addr: uint64(i), Bytes: mib}}
		}, true},
		"memory again":   {func(i int) []capture.Record { return []capture.Record{&capture.Memory{PID: 1, Addr: 1, Bytes: mib}} }, false},
		"memory of many": {func(i int) []capture.Record { return []capture.Record{&capture.Memory{PID: i, Addr: 1, Bytes: mib}} }, true},
		"vDSOs":          {func(i int) []capture.Record { return []capture.Record{&capture.Maps{PID: i, VDSO: mib}} }, true},
		"mappings":       {func(i int) []capture.Record { return []capture.Record{&capture.Maps{PID: i, Regions: regions}} }, true},
		"mappings again": {func(i int) []capture.Record {
			return []capture.Record{&capture.Maps{PID: 1, Regions: regions, VDSO: mib}}
		}, false},
		"those that ended": {func(i int) []capture.Record {
			return []capture.Record{&capture.Maps{PID: i, VDSO: mib}, &capture.Memory{PID: i, Bytes: mib}, &capture.Gone{PID: i}}
		}, false},
		"threads": {func(i int) (list []capture.Record) {
			for tid := range 500 {
				list = append(list, &capture.Name{PID: 0, TID: 500*i + tid + 1})
			}
			return list
		}, true},
		"processes": {func(i int) (list []capture.Record) {
			for pid := range 60 {
				list = append(list, &capture.Credit{PID: 60*i + pid, TID: 1})
			}
			return list
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			var records []capture.Record
			for i := range 30 {
				records = append(records, tt.record(i)...)
			}
			_, files, err := replay(t, time.Now(), records...)
			if (err != nil) != tt.full || tt.full && !strings.Contains(err.Error(), "more than 8 MB at one time") {
				t.Errorf("%v, want an end: %v", err, tt.full)
			}
			if name == "those that ended" && (files.total != 0 || len(files.kept) > 0) {
				t.Errorf("%d bytes of %d processes are kept", files.total, len(files.kept))
			}
		})
	}
}

// TestCreditWithoutCapture: the time of a thread whose capture a recording has lost
// stays in the result.
func TestCreditWithoutCapture(t *testing.T) {
	credit := &capture.Credit{PID: 1, TID: 2, Weight: capture.Weight{Wall: 5 * time.Millisecond}}
	var wall time.Duration
	for _, s := range replayed(t, time.Now(), credit, credit, credit) {
		if names := names(s.Stack); len(names) != 1 || names[0] != "[no stack]" {
			t.Errorf("frames %v", names)
		}
		wall += s.Wall
	}
	if wall != 15*time.Millisecond {
		t.Errorf("%v in the result, want the 15 ms that were credited", wall)
	}
}

// TestSpentInOrder: the samples of a thread are in the order of time, and CPU time that no sample stands for has the time of the last that does, as readers of the outputs
// want them in order.
func TestSpentInOrder(t *testing.T) {
	start := time.Now()
	list := replayed(t, start, &capture.Credit{PID: 1, TID: 2, At: 3 * time.Second}, &capture.Credit{PID: 1, TID: 2, At: 2 * time.Second}, &capture.Credit{PID: 1, TID: 3, At: 2 * time.Second},
		&capture.Name{PID: 1, TID: 3, Name: "a"}, &capture.Spent{PID: 1, TID: 3, Weight: capture.Weight{CPU: time.Second}}, &capture.Spent{PID: 1, Weight: capture.Weight{CPU: time.Second}})
	for i, want := range []time.Duration{3 * time.Second, 3 * time.Second, 2 * time.Second} {
		if got := list[i].Time.Sub(start); got != want {
			t.Errorf("sample %d is %v after the start, want %v: those of a thread are in order", i, got, want)
		}
	}
	if last := list[len(list)-1]; last.Taken != "none" || !last.Time.Equal(start.Add(3*time.Second)) {
		t.Errorf("the last is taken by %q, %v after the start; want none and 3s", last.Taken, last.Time.Sub(start))
	}
	if a, b := list[len(list)-2], list[len(list)-1]; a.TID != 3 || a.Thread != "a" || a.Taken != "none" || b.TID != 0 || b.Thread != "[no thread known]" {
		t.Errorf("CPU time of thread 3 and of none is of %d %q and of %d %q", a.TID, a.Thread, b.TID, b.Thread)
	}
}

// TestRecordedNamesake: two processes, in different containers perhaps, have files of
// one name, of which this machine has the second one.
func TestRecordedNamesake(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	here := filepath.Join(t.TempDir(), "lib")
	if err := os.WriteFile(here, withBuildID(t, self, "\x12\x34"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := NewRecorded(time.Now())
	for pid, id := range map[int]string{1: "abcd", 2: "1234"} {
		files.set(&capture.Maps{PID: pid, Regions: []capture.Region{{BuildID: id,
			Mapping: procfs.Mapping{Start: 0x1000, End: 0x2000, Perms: procfs.Read, Inode: 7, Path: here}}}})
	}
	b := make([]byte, 4)
	if _, err := files.Source(1).ReadAt(b, 0x1000); err == nil {
		t.Error("a file of another build-id was used")
	}
	if _, err := files.Source(2).ReadAt(b, 0x1000); err != nil || string(b) != elf.ELFMAG {
		t.Errorf("the right file: %q, %v", b, err)
	}
}

// withBuildID is an ELF file of headers and a build-id only, of the machine of a
// program.
func withBuildID(t *testing.T, program, id string) []byte {
	t.Helper()
	f, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o := f.ByteOrder
	var b bytes.Buffer
	put := func(v ...any) {
		for _, x := range v {
			if err := binary.Write(&b, o, x); err != nil {
				t.Fatal(err)
			}
		}
	}
	head := elf.Header64{Type: uint16(elf.ET_DYN), Machine: uint16(f.Machine), Version: 1, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 2}
	copy(head.Ident[:], []byte{0x7f, 'E', 'L', 'F', byte(f.Class), byte(f.Data), 1})
	const at = 64 + 2*56
	put(&head,
		&elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Filesz: 0x1000, Memsz: 0x1000},
		&elf.Prog64{Type: uint32(elf.PT_NOTE), Flags: uint32(elf.PF_R), Off: at, Vaddr: at, Filesz: 20, Memsz: 20},
		uint32(4), uint32(len(id)), uint32(3), []byte("GNU\x00"), []byte(id), make([]byte, 0x1000))
	return b.Bytes()
}

// TestRecordedRebuilt: a file without a build-id is used if it is as it was, and told if it is not.
func TestRecordedRebuilt(t *testing.T) {
	here := filepath.Join(t.TempDir(), "prog")
	if err := os.WriteFile(here, []byte("four"), 0o600); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(here)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		size, later int64
		inode       uint64
		began       time.Duration // after the file was changed
		used        bool
	}{
		"the same":           {4, 0, 7, -1, true},
		"another size":       {5, 0, 7, 1, false},
		"another time":       {4, 1, 7, 1, false},
		"of before, moved":   {0, 0, 7, 1, false},
		"of before":          {0, 0, info.Sys().(*syscall.Stat_t).Ino, 0, true},
		"of before, changed": {0, 0, info.Sys().(*syscall.Stat_t).Ino, -1, false},
	} {
		r := capture.Region{Size: tt.size, Mapping: procfs.Mapping{Start: 0x1000, End: 0x2000, Perms: procfs.Read | procfs.Exec, Inode: tt.inode, Path: here}}
		if tt.size > 0 {
			r.Modified = info.ModTime().UnixNano() + tt.later
		}
		st := info.Sys().(*syscall.Stat_t)
		r.Dev = procfs.Dev{Major: unix.Major(uint64(st.Dev)), Minor: unix.Minor(uint64(st.Dev))}
		files := NewRecorded(info.ModTime().Add(tt.began))
		files.set(&capture.Maps{PID: 1, Regions: []capture.Region{r}})
		for range 2 {
			_, err := files.Source(1).ReadAt(make([]byte, 4), 0x1000)
			others := files.Others()
			if (err == nil) != tt.used || (len(others) == 0) != tt.used || len(others) > 1 || len(others) == 1 && !strings.Contains(others[0], "(try: ") {
				t.Errorf("%s: %v, told: %q", name, err, others)
			}
		}
	}
}
