package clocks

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/regs"
	"sfsample/sampler/taking"
)

// record is one of a perf event, as the kernel writes a sample (PERF_SAMPLE_IP, _TID and _TIME).
func record(m met) []byte {
	mode, pc := uint16(unix.PERF_RECORD_MISC_USER), m.pc
	if pc == 0 {
		mode, pc = unix.PERF_RECORD_MISC_KERNEL, 0xffffffff81000000
	}
	b := binary.NativeEndian.AppendUint32(nil, unix.PERF_RECORD_SAMPLE)
	b = binary.NativeEndian.AppendUint16(b, mode|1<<14) // PERF_RECORD_MISC_EXACT_IP, say
	b = binary.NativeEndian.AppendUint16(b, 32)
	b = binary.NativeEndian.AppendUint64(b, pc)
	b = binary.NativeEndian.AppendUint32(b, 4711) // the process
	b = binary.NativeEndian.AppendUint32(b, uint32(m.id))
	return binary.NativeEndian.AppendUint64(b, uint64(m.at))
}

// write appends to what the ring holds.
func (w *witness) write(b []byte) {
	head := binary.NativeEndian.Uint64(w.ring[dataHead:])
	half := len(w.ring) / 2
	for i := range b {
		w.ring[half+(int(head)+i)%half] = b[i]
	}
	binary.NativeEndian.PutUint64(w.ring[dataHead:], head+uint64(len(b)))
}

// ringOf is a witness that has its phase, and has noted this.
func ringOf(list ...met) *witness {
	w := &witness{event: 5, ring: make([]byte, 8192)}
	w.set.Store(true)
	for _, m := range list {
		w.write(record(m))
	}
	return w
}

// noteAt are the registers of a stopped thread that is at this instruction.
func noteAt(pc uint64) []byte {
	for n := regs.PrstatusMaxBytes; n > 0; n-- {
		b := make([]byte, n)
		for i := 0; i+8 <= n; i += 8 {
			clear(b)
			binary.NativeEndian.PutUint64(b[i:], pc)
			if ptrace.ProgramCounter(b) == pc {
				return b
			}
		}
	}
	panic("no registers have a program counter")
}

// TestWitnessRead: the last record of a thread counts, wherever in the ring it is, and each is read once.
func TestWitnessRead(t *testing.T) {
	lost := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64([]byte{}, 0), 3)
	lost = append(binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint16(binary.NativeEndian.AppendUint32(nil, unix.PERF_RECORD_LOST), 0), 24), lost...)
	w := ringOf()
	if m, ok := w.read(); ok {
		t.Errorf("an empty ring tells of %+v", m)
	}
	user, kernel := met{100, 0x401000, 7}, met{101, 0, 8}
	for i := range 200 { // around the ring, of which 24 bytes are no divisor
		for _, tt := range []struct {
			records [][]byte
			want    met
			ok      bool
		}{
			{[][]byte{record(user)}, user, true},
			{[][]byte{record(user), record(kernel)}, kernel, true},
			{[][]byte{record(kernel), lost, record(user), lost}, user, true},
			{[][]byte{lost}, met{}, false},
		} {
			w.write(slices.Concat(tt.records...))
			if m, ok := w.read(); ok != tt.ok || m != tt.want {
				t.Fatalf("round %d: %+v %t, want %+v %t", i, m, ok, tt.want, tt.ok)
			}
			if m, ok := w.read(); ok {
				t.Fatalf("round %d: %+v is read twice", i, m)
			}
		}
	}
	for _, size := range []uint16{0, 7, 33, 0xffff} { // of no record: nothing behind it counts
		bad := record(user)
		binary.NativeEndian.PutUint16(bad[6:], size)
		w.write(bad)
		if m, ok := w.read(); ok {
			t.Errorf("size %d: %+v", size, m)
		}
		w.write(record(kernel))
		if m, ok := w.read(); !ok || m != kernel {
			t.Errorf("behind size %d: %+v %t", size, m, ok)
		}
	}
}

// TestWitnessTell: a record counts for the tick at which it was made, and the clock wakes up soon behind the first that there are.
func TestWitnessTell(t *testing.T) {
	const due, interval = 1_000_000, 10_000_000
	for _, tt := range []struct {
		name        string
		at          int64 // of the record, 0: none
		later, want int64 // how long after the tick it wakes up, and will
		told        bool
	}{
		{"long before", due - 10_000, 20_000, 10_300, true}, // the tick is at due - later
		{"soon", due - 5_000, 5_000, 300, true},
		{"just before the tick", due - 20_000 - 2*lead, 20_000, 0, true},
		{"at the tick before", due - 20_000 - 2*lead - 1, 20_000, 20_500, false},
		{"at the wake-up", due + 3_000, 5_000, 5_010, true},
		{"behind it", due + 3_001, 5_000, 5_500, false},
		{"none", 0, 5_000, 5_500, false},
		{"none, again and again", 0, mostLater, mostLater, false},
		{"late, again and again", due + 3_000, mostLater, mostLater, true},
	} {
		w := ringOf()
		w.later = tt.later
		if tt.at != 0 {
			w.write(record(met{tt.at, 9, 7}))
		}
		m, told := w.tell(due, due+3_000, interval)
		if told != tt.told || told && m != (met{tt.at, 9, 7}) || w.later != tt.want {
			t.Errorf("%s: %+v %t, later %d; want %t, %d", tt.name, m, told, w.later, tt.told, tt.want)
		}
	}
	w := ringOf()
	w.later = 5_000
	if w.tell(due, due, 16_000); w.later != 2_000 {
		t.Errorf("where ticks are 16 us apart the clock wakes up %d ns later", w.later)
	}
	for i := range mostSilent {
		if w.set.Load() != (i < mostSilent-1) {
			t.Fatalf("after %d ticks without a record its timer has its phase: %t", i+1, w.set.Load())
		}
		w.tell(due, due, interval)
	}
	if _, told := w.tell(due, due, interval); told {
		t.Error("without its phase it tells")
	}
	if _, told := new(witness).tell(due, due, interval); told {
		t.Error("where there is none it tells")
	}
	// One record, and it is trusted again.
	w = ringOf()
	for range mostSilent - 1 {
		w.tell(due, due, interval)
	}
	w.write(record(met{due, 9, 7}))
	w.tell(due, due, interval)
	if w.tell(due, due, interval); !w.set.Load() {
		t.Error("a record between two ticks without one does not count")
	}
}

// TestWitnessed: one clock without a witness is enough to be told who has run.
func TestWitnessed(t *testing.T) {
	var one, other Clock
	b := &Bank{clocks: map[int]*Clock{}}
	if b.Witnessed() {
		t.Error("no clock has a witness")
	}
	b.clocks[0], b.clocks[1] = &one, &other
	one.search.witness.set.Store(true)
	if b.Witnessed() {
		t.Error("one clock has none")
	}
	if other.search.witness.set.Store(true); !b.Witnessed() {
		t.Error("both clocks have one")
	}
}

// TestWitnessBegin: the timer begins shortly before a tick, for which the clock waits awake, not where it comes too late for that.
func TestWitnessBegin(t *testing.T) {
	const tick = int64(1e9 + 1e6)
	defer func() { setPeriod = ptrace.RawPeriod }()
	for _, tt := range []struct {
		name  string
		now   int64 // at the beginning
		delay int64 // of the wake-up
		fails unix.Errno
		log   string
		set   bool
	}{
		{"in time", 1e9, 20 * us, 0, fmt.Sprintf("[period 5 10000000 at %d]", tick-lead), true},
		{"it wakes up late", 1e9, 60*us + lead/2, 0, "[]", false},
		{"it is woken before", 1e9, -500 * us, 0, "[]", false},
		{"the tick is near", tick - lead - 60*us + 1, 0, 0, "[]", false},
		{"the kernel does not", 1e9, 20 * us, unix.EINVAL, fmt.Sprintf("[period 5 10000000 at %d]", tick-lead), false},
	} {
		s, _, _ := desk(t, 1)
		s.step, s.passes, s.now = 0, 100, tt.now
		s.delay = func() int64 { return tt.delay }
		setPeriod = func(event int, every int64) unix.Errno {
			s.note("period %d %d at %d", event, every, s.now)
			return tt.fails
		}
		w := witness{event: 5, silent: 3, later: 7}
		w.begin(s, tick, 10_000_000)
		for i := range s.log { // it waits by looks at the clock, which take 100 ns
			var event int
			var every, at int64
			if n, _ := fmt.Sscanf(s.log[i], "period %d %d at %d", &event, &every, &at); n == 3 && at >= tick-lead && at < tick-lead+300 {
				s.log[i] = fmt.Sprintf("period %d %d at %d", event, every, tick-lead)
			}
		}
		if got := fmt.Sprint(s.log); got != tt.log || w.set.Load() != tt.set || tt.set && (w.silent != 0 || w.later != firstLater) {
			t.Errorf("%s: %s, want %s; it has its phase: %t; later %d", tt.name, got, tt.log, w.set.Load(), w.later)
		}
	}
}

// TestWitnessLive: where the kernel tells who had the CPU, a thread that computes all the time is stopped at the instruction at which the tick has met it, without a
// look at anything before.
func TestWitnessLive(t *testing.T) {
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{spinName}, Stderr: os.Stderr}
	pid := testprog.StartCmd(t, cmd).PID
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		t.Fatal(err)
	}
	cpu := 0
	for !cpus.IsSet(cpu) {
		cpu++
	}
	var one unix.CPUSet
	one.Set(cpu)
	board := NewBoard(64, ptrace.Now(), 2e6)
	ids, err := (procfs.FS{}).TaskIDs(pid)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if err := unix.SchedSetaffinity(id, &one); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, id))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		board.Put(Thread{TID: id, PID: pid, Sched: int(f.Fd()), Stat: -1, Debug: -1, Call: -1, Pages: -1})
	}
	bank := NewBank(new(taking.Live), board, Options{Samples: 4})
	defer bank.Close()
	bank.Need(cpu, 0)
	if c := bank.clocks[cpu]; bank.Denied != nil || c.search.witness.ring == nil {
		t.Skip("no real-time priority, or no perf events of CPUs")
	}
	seen, moved := 0, 0
	await(t, "a hundred samples", func() bool {
		for _, m := range bank.Drain() {
			if m.proof.tick.pc != 0 && !m.Gone {
				if seen++; m.Moved {
					moved++
				}
				if m.Stopped.Run <= 0 || m.Asked.Run != m.Stopped.Run || m.At.Wake-m.proof.tick.at > usual {
					t.Errorf("%v", m)
				}
			}
			m.Done()
		}
		return seen >= 100
	})
	if moved > 5 {
		t.Errorf("%d of %d samples are not of the instruction that the tick has met", moved, seen)
	}
}
