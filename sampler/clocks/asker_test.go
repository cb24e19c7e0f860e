package clocks

import (
	"fmt"
	"math/bits"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/taking"
)

// sight is what an asker sees of a thread: its stack in the kernel, what it ran before and after that was read, and its CPU.
type sight struct {
	stack  string // empty: it has a CPU
	before int
	after  int
	cpu    int
}

// askKernel is a script for an asker of thread 7, which sees one sight after the other.
type askKernel struct {
	*script
	a      *Asker
	sights []sight
	reads  int      // of run counts
	bound  []string // CPUs that it was bound to
	onBind func()
}

const (
	askStat = 11 + iota
	askStack
	askSched
)

func newAsk(t *testing.T, a *actor, sights ...sight) *askKernel {
	k := &askKernel{script: newScript(t, a), a: &Asker{tid: 7}, sights: sights}
	k.a.k, k.a.seizes.alarm = k, new(ptrace.Alarm)
	k.a.files.stat, k.a.files.stack, k.a.files.sched = askStat, askStack, askSched
	k.a.back.Add(5)
	return k
}

func (k *askKernel) Pread(fd int, buf []byte, off int64) (int, unix.Errno) {
	s := k.sights[0]
	switch fd {
	case askSched:
		count := s.before
		if k.reads++; k.reads%2 == 0 {
			count = s.after
		}
		k.files[fd] = fmt.Sprintf("31 99 %d\n", count)
	case askStack:
		k.files[fd] = s.stack
	case askStat:
		k.files[fd] = "7 (a b) R" + strings.Repeat(" 0", statCPU-4) + fmt.Sprintf(" %d 0\n", s.cpu)
		k.reads = 0
		if len(k.sights) > 1 {
			k.sights = k.sights[1:]
		}
	}
	return k.script.Pread(fd, buf, off)
}

func (k *askKernel) Bind(cpus []uint64, slack bool) unix.Errno {
	text := ""
	for i, word := range cpus {
		for ; word != 0; word &= word - 1 {
			text += fmt.Sprint(64*i+bits.TrailingZeros64(word), " ")
		}
	}
	if slack {
		text += "slack "
	}
	k.bound = append(k.bound, strings.TrimSpace(text))
	if k.onBind != nil {
		k.onBind()
	}
	return k.binds
}

const (
	inUser  = "[<0>] irqentry_exit_to_user_mode+0x110/0x1a0\n[<0>] asm_sysvec_apic_timer_interrupt+0x16/0x20\n"
	inWait  = "[<0>] do_epoll_wait+0x548/0x5a0\n[<0>] do_syscall_64+0x71/0x280\n"
	inWrite = "[<0>] do_sendfile+0x1/0x2\n[<0>] do_syscall_64+0x71/0x280\n"
)

// TestAskerLook: a thread without a CPU shows at once what it does; one that has a CPU is waited for there, unless that is the CPU of others.
func TestAskerLook(t *testing.T) {
	set := func(cpus ...int) (c CPUs) {
		for _, cpu := range cpus {
			c.Add(cpu)
		}
		return c
	}
	never := []sight{{cpu: 0}, {cpu: 63}, {cpu: 64}, {cpu: 1023}, {stack: inUser}}
	for _, tt := range []struct {
		name   string
		sights []sight
		set    func(k *askKernel)
		want   Answer
		bound  string
		cpu    int32 // that it may be bound to
	}{
		{"preempted", []sight{{stack: inUser}}, nil, Requested, "[]", -1},
		{"in a wait", []sight{{stack: inWait}}, nil, InMidst, "[]", -1},
		{"in a transfer", []sight{{stack: inWrite}}, nil, InMidst, "[]", -1},
		{"its stack is hidden", []sight{{}}, func(k *askKernel) { k.broken[askStack] = unix.EPERM }, NoLook, "[]", -1},
		{"real-time priority, without a CPU", []sight{{stack: inUser}}, func(k *askKernel) { k.a.urgent = true }, Requested, "[]", -1},
		{"has a CPU, then waits for it", []sight{{cpu: 70}, {stack: inUser}}, nil, Requested, `["70"]`, 70},
		{"has a CPU, then is in a wait", []sight{{cpu: 70}, {stack: inWait}}, nil, InMidst, `["70"]`, 70},
		{"has run meanwhile", []sight{{stack: inWait, after: 1, cpu: 3}, {stack: inUser, before: 1, after: 1}}, nil, Requested, `["3"]`, 3},
		{"another CPU each time", never, nil, NotSeen, `["0" "63" "64" "1023"]`, 1023},
		{"the last time", never[1:], nil, Requested, `["63" "64" "1023"]`, 1023},
		{"a CPU beyond all sets", []sight{{cpu: 1024}}, nil, NoLook, "[]", -1},
		{"nobody tells its CPU", []sight{{}}, func(k *askKernel) { k.broken[askStat] = unix.ESRCH }, NoLook, "[]", -1},
		{"real-time priority", []sight{{cpu: 3}, {stack: inUser}}, func(k *askKernel) { k.a.urgent = true }, NotSeen, "[]", -1},
		{"others have its CPU", []sight{{cpu: 70}, {stack: inUser}}, func(k *askKernel) { k.a.Avoid = set(70) }, NotSeen, "[]", -1},
		{"others have its CPU, the first of a word", []sight{{cpu: 64}, {stack: inUser}}, func(k *askKernel) { k.a.Avoid = set(64) }, NotSeen, "[]", -1},
		{"others have other CPUs", []sight{{cpu: 70}, {stack: inUser}}, func(k *askKernel) { k.a.Avoid = set(6, 69, 71, 134) }, Requested, `["70"]`, 70},
		{"it cannot be bound", []sight{{cpu: 3}, {stack: inUser}}, func(k *askKernel) { k.binds = unix.EINVAL }, NoLook, `["3"]`, 3},
		{"it is freed", []sight{{cpu: 3}, {stack: inUser}}, func(k *askKernel) { k.onBind = func() { k.a.freed.Store(true) } }, NoLook, `["3"]`, 3},
		{"it may be bound", []sight{{cpu: 3}, {stack: inUser}}, func(k *askKernel) {
			k.onBind = func() { // Free has to know of it by then
				if got := k.a.cpu.Load(); got != 4 {
					t.Errorf("it is bound, and says that it is on CPU %d", got-1)
				}
			}
		}, Requested, `["3"]`, 3},
	} {
		k := newAsk(t, &actor{tid: 7}, tt.sights...)
		if tt.set != nil {
			tt.set(k)
		}
		if got := k.a.look(); got != tt.want || fmt.Sprintf("%q", k.bound) != tt.bound || k.a.cpu.Load()-1 != tt.cpu {
			t.Errorf("%s: %d, bound to %q, last to %d; want %d, %s, %d", tt.name, got, k.bound, k.a.cpu.Load()-1, tt.want, tt.bound, tt.cpu)
		}
		if len(k.log) > 0 || k.seizes > 0 {
			t.Errorf("%s: a look did %v", tt.name, k.log)
		}
	}
}

// TestAskerOutside: who may be asked is seized and asked, within the time that a seize may take, and nobody else. The asker goes back to its CPUs in any case.
func TestAskerOutside(t *testing.T) {
	for _, tt := range []struct {
		name  string
		does  conduct
		stack string
		set   func(k *askKernel)
		want  Answer
		log   string
		hung  int // seizes in vain
	}{
		{"stops", stops, inUser, nil, Requested, "[interrupt 7]", 0},
		{"in a wait", stops, inWait, nil, InMidst, "[]", 0},
		{"may not be traced", refuses, inUser, nil, NotSeized, "[]", 0},
		{"is gone", vanishes, inUser, nil, NotSeized, "[]", 0},
		{"in an exec", hangs, inUser, nil, NoLook, "[]", 1},
		{"in an exec, and nudged", hangs, inUser, func(k *askKernel) { k.nudges = seizeAtMost / 4 }, NoLook, "[]", 4},
		{"in an exec, and freed", hangs, inUser, func(k *askKernel) { k.nudges = seizeAtMost / 4; k.a.freed.Store(true) }, NoLook, "[]", 1},
	} {
		k := newAsk(t, &actor{tid: 7, does: tt.does}, sight{stack: tt.stack})
		k.alarm, k.step, k.passes = 0, 0, 0
		if tt.set != nil {
			tt.set(k)
		}
		begun := k.now
		if k.a.Outside(); k.a.answer != tt.want || fmt.Sprint(k.log) != tt.log || k.hung != tt.hung || k.alarm != 0 {
			t.Errorf("%s: %d, did %v, %d seizes in vain; want %d, %s, %d; the alarm is set to %d", tt.name, k.a.answer, k.log, k.hung, tt.want, tt.log, tt.hung, k.alarm)
		}
		if took := k.now - begun; took > seizeAtMost {
			t.Errorf("%s: took %d ns", tt.name, took)
		}
		if !slices.Equal(k.bound, []string{"5"}) {
			t.Errorf("%s: bound to %q, want its CPUs in the end", tt.name, k.bound)
		}
	}
}

// TestCPUs: a set has room for 1024 CPUs, and takes no others.
func TestCPUs(t *testing.T) {
	var c CPUs
	for _, cpu := range []int{-1, 0, 63, 64, 1023, 1024, 1 << 20} {
		c.Add(cpu)
	}
	if want := (CPUs{0: 1 | 1<<63, 1: 1, 15: 1 << 63}); c != want {
		t.Errorf("%x, want %x", c, want)
	}
}

// TestAskerFree: a thread that asks is given its CPUs and its priority back, once, when it has asked for so long.
func TestAskerFree(t *testing.T) {
	var a Asker
	if cpu := a.Free(0); cpu != -1 || a.freed.Load() {
		t.Errorf("nobody asks: CPU %d, freed %t", cpu, a.freed.Load())
	}
	onThread(func() {
		tid := unix.Gettid()
		var all, one, now unix.CPUSet
		attr, err := unix.SchedGetAttr(0, 0)
		if err != nil || unix.SchedGetaffinity(0, &all) != nil {
			t.Error(err)
			return
		}
		cpu := lastCPU(&all)
		one.Set(cpu)
		for _, after := range []time.Duration{time.Millisecond, 0} {
			if err := unix.SchedSetaffinity(0, &one); err != nil {
				t.Error(err)
				return
			}
			before := *attr
			attr.Nice = min(attr.Nice+1, 19) // what it has had before; less would be denied
			a.freed.Store(false)
			a.cpu.Store(int32(cpu) + 1)
			a.was = was{tid: tid, since: ptrace.Now(), cpus: all, attr: attr}
			if got := a.Free(time.Hour); got != -1 || a.freed.Load() || unix.SchedGetaffinity(0, &now) != nil || now != one {
				t.Errorf("freed too early: CPU %d, may be on %d CPUs", got, now.Count())
			}
			if now, err := unix.SchedGetAttr(0, 0); err != nil || now.Nice != before.Nice {
				t.Errorf("its priority was changed too early: %v, %v", now, err)
			}
			a.was.since -= int64(time.Second)
			moves, known := migrations(t)
			if got := a.Free(after); got != cpu || !a.freed.Load() || unix.SchedGetaffinity(0, &now) != nil || now != all {
				t.Errorf("freed after %v: CPU %d, want %d; freed %t, may be on %d CPUs", after, got, cpu, a.freed.Load(), now.Count())
			}
			if later, _ := migrations(t); after > 0 && known && all.Count() > 1 && later == moves {
				t.Error("it stays on a CPU that it may not get")
			}
			if now, err := unix.SchedGetAttr(0, 0); err != nil || now.Nice != attr.Nice {
				t.Errorf("freed after %v: %v, %v; want the priority %d", after, now, err, attr.Nice)
			}
			a.freed.Store(false)
			if got := a.Free(0); got != -1 || a.freed.Load() {
				t.Errorf("freed twice: CPU %d", got)
			}
		}
	})
}

// migrations is how often the calling thread went from CPU to CPU. false: nobody tells (CONFIG_SCHED_DEBUG).
func migrations(t *testing.T) (n int, ok bool) {
	b, err := os.ReadFile("/proc/thread-self/sched")
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "se.nr_migrations" {
			_, err := fmt.Sscan(value, &n)
			return n, err == nil
		}
	}
	return 0, false
}

// TestAskerLive asks a real thread, which waits: it is seized by the thread that asks, and stops. That one is as it was then, and has no file open.
func TestAskerLive(t *testing.T) {
	defer func() { hasten = hastenThread }()
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{targetName}, Stderr: os.Stderr}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	pid := testprog.StartCmd(t, cmd).PID
	await(t, "a thread that waits", func() bool {
		st, err := (procfs.FS{}).Task(pid, pid).Stat()
		return err == nil && st.State == 'S'
	})
	want := Requested
	if _, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/stack", pid, pid)); err != nil { // it needs CAP_SYS_ADMIN
		want = NoLook
	}
	for _, nice := range []bool{true, false} {
		onThread(func() {
			alarm, err := ptrace.NewAlarm()
			if err != nil {
				t.Error(err)
				return
			}
			defer alarm.Close()
			var before, after unix.CPUSet
			unix.SchedGetaffinity(0, &before)
			attr, _ := unix.SchedGetAttr(0, 0)
			k, tid := new(taking.Live), unix.Gettid()
			var a Asker
			hastened := int64(0)
			hasten = func(n bool) error {
				if n != nice || a.was.tid != tid || a.was.since == 0 || a.was.cpus != before || a.was.attr == nil || a.was.attr.Nice != attr.Nice {
					t.Errorf("nice %t, want %t; who asks is thread %d, since %d", n, nice, a.was.tid, a.was.since)
				}
				hastened = ptrace.Now()
				return hastenThread(n)
			}
			answer := a.Ask(pid, pid, alarm, nice)
			for range 1000 {
				if answer != NotSeen { // it has a CPU for a moment
					break
				}
				answer = a.Ask(pid, pid, alarm, nice)
			}
			if answer == NotSeized {
				if errno := k.Seize(pid); errno != unix.EPERM {
					t.Errorf("it cannot be seized, then: %v", errno)
				}
				want = NotSeized
			}
			if answer != want || answer != a.answer {
				t.Errorf("answered %d, want %d", answer, want)
			}
			if answer == Requested {
				if st, err := (procfs.FS{}).Status(pid); err != nil || st.TracerPid != tid {
					t.Errorf("traced by %d, want %d: %v", st.TracerPid, tid, err)
				}
				who, status, errno := k.Wait(pid, true)
				for errno == unix.EINTR {
					who, status, errno = k.Wait(pid, true)
				}
				if who != pid || status != interrupted || errno != 0 {
					t.Errorf("thread %d reports %#x: %v", who, status, errno)
				}
				k.Detach(pid, 0)
			}
			if hastened == 0 || a.was.since < hastened || a.was.tid != 0 || a.urgent {
				t.Errorf("hastened at %d, since %d of thread %d, urgent %t", hastened, a.was.since, a.was.tid, a.urgent)
			}
			if now, err := unix.SchedGetAttr(0, 0); err != nil || now.Policy != attr.Policy || now.Nice != attr.Nice {
				t.Errorf("it has %+v, and had %+v", now, attr)
			}
			if unix.SchedGetaffinity(0, &after) != nil || before != after || fmt.Sprint(a.back) != fmt.Sprint(before) {
				t.Errorf("it may be on %d CPUs, and might on %d", after.Count(), before.Count())
			}
			for name, fd := range map[string]int{"stat": a.files.stat, "stack": a.files.stack, "schedstat": a.files.sched} {
				var st unix.Stat_t
				if err := unix.Fstat(fd, &st); err != unix.EBADF {
					t.Errorf("file %d, %s, is still open: %v", fd, name, err)
				}
			}
			var none Asker
			if got := none.Ask(pid, 1<<30, alarm, nice); got != NoLook || none.was.tid != 0 {
				t.Errorf("a thread that does not exist: %d, asked by %d", got, none.was.tid)
			}
		})
	}
}

// TestAskerUrgent: a thread with real-time priority is not waited for on its CPU.
func TestAskerUrgent(t *testing.T) {
	for name, attr := range map[string]unix.SchedAttr{
		"usual":    {Policy: unix.SCHED_NORMAL},
		"FIFO":     {Policy: unix.SCHED_FIFO, Priority: 1},
		"deadline": {Policy: unix.SCHED_DEADLINE, Runtime: 1e6, Deadline: 1e8, Period: 1e8},
	} {
		tids, done := make(chan int), make(chan struct{})
		ended := ptrace.OnThread(func() {
			attr.Size = unix.SizeofSchedAttr
			if unix.SchedSetAttr(0, &attr, 0) != nil { // that is denied
				close(tids)
				return
			}
			tids <- unix.Gettid()
			<-done
		})
		if tid := <-tids; tid != 0 {
			var a Asker
			onThread(func() { a.Ask(os.Getpid(), tid, nil, true) })
			if want := name != "usual"; a.urgent != want {
				t.Errorf("%s: urgent %t", name, a.urgent)
			}
		}
		close(done)
		<-ended
	}
}
