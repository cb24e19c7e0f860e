package sampler

import (
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/testprog"
	"sfsample/ptrace"
	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
	"sfsample/sampler/taking"
)

// TestDumpLetsGo: who is copied for a dump is nobody's tracee any more when its stack is unwound, and is stopped then if it was so before.
func TestDumpLetsGo(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		cmd := targetCmd("nothing") // waits for its input
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		p := testprog.StartCmd(t, cmd)
		if stopped {
			p.Signal(t, syscall.SIGSTOP)
			if err := unix.Waitid(unix.P_PID, p.PID, nil, unix.WSTOPPED|unix.WNOWAIT, nil); err != nil {
				t.Fatal(err)
			}
		}
		th := &ThreadDump{PID: p.PID, TID: p.PID, NR: -1, fb: new(Feedback)}
		d := &dumper{opt: Options{PIDs: []int{p.PID}}, pipe: testPipeline(new(byFunction)), threads: []*ThreadDump{th},
			pages: map[int]procfs.Pagemap{p.PID: proc.OpenPagemap(p.PID)}, kernels: map[int]*wary{p.PID: new(wary)}, bufs: make([]taking.Buffer, 1)}
		<-ptrace.OnThread(func() {
			var alarm *ptrace.Alarm
			if alarm, err = ptrace.NewAlarm(); err != nil {
				return
			}
			defer alarm.Close()
			if !d.stopSome(alarm, p.PID, d.threads) || len(d.taken) != 1 || th.stack != nil {
				t.Errorf("stopped %t: %d captures wait to be unwound, want 1; unwound: %t", stopped, len(d.taken), th.stack != nil)
			}
			if s, serr := proc.Status(p.PID); serr != nil || s.TracerPid != 0 {
				t.Errorf("stopped %t: traced by %d (%v) when its stack is to be unwound", stopped, s.TracerPid, serr)
			}
			d.unwind(d.taken)
		})
		if err != nil {
			t.Fatal(err)
		}
		if th.Taken != capture.Stopped.String() || th.stack == nil || len(th.stack.frames) == 0 {
			t.Errorf("stopped %t: no stack (%s)", stopped, th.Taken)
		}
		state := byte(0)
		for end := time.Now().Add(testprog.Patience); (state == 'T') != stopped && time.Now().Before(end); { // it goes back to its stop
			st, err := proc.TaskStat(p.PID, p.PID)
			if err != nil {
				t.Fatal(err)
			}
			state = st.State
		}
		if (state == 'T') != stopped {
			t.Errorf("stopped %t: left in state %c", stopped, state)
		}
		d.pages[p.PID].Close()
		d.pipe.targets.closeAll()
		p.Kill()
	}
}

// TestWaryPread: while a thread may be stopped, entries of pagemap are read like memory, and not once a page has not come.
func TestWaryPread(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("12345678entries!"); err != nil {
		t.Fatal(err)
	}
	var b [8]byte
	for _, k := range []*wary{{}, {holds: true}} {
		if n, errno := k.Pread(int(f.Fd()), b[:], 8); errno != 0 || string(b[:n]) != "entries!" {
			t.Errorf("holds %t: %q, %v", k.holds, b[:n], errno)
		}
		if n, errno := k.Pread(-1, b[:], 8); errno == 0 || n != 0 {
			t.Errorf("holds %t: %d bytes of no file, %v", k.holds, n, errno)
		}
	}
}
