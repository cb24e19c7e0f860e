package clocks

import (
	"encoding/binary"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
)

// TestKeeperTakesBack: at which stops a wait that has ended with EINTR goes on.
func TestKeeperTakesBack(t *testing.T) {
	const offRAX, offOrigRAX = 80, 120 // struct user_regs_struct, arch/x86/include/asm/user_64.h
	own := ptrace.Status{TID: 7, Kind: ptrace.KindInterrupt, Raw: interrupted}
	group := ptrace.Status{TID: 7, Kind: ptrace.KindGroupStop, Raw: groupStop}
	signal := func(sig unix.Signal) ptrace.Status {
		return ptrace.Status{TID: 7, Kind: ptrace.KindSignal, Raw: uint32(sig)<<8 | 0x7f, Signal: sig}
	}
	for _, tt := range []struct {
		name      string
		stops     []ptrace.Status
		noRestart bool
		want      string
	}{
		{"a stop that nobody wants", []ptrace.Status{own}, false, "write 7, cont 7 0"},
		{"registers are not to be written", []ptrace.Status{own}, true, "cont 7 0"},
		{"a signal that is ignored", []ptrace.Status{signal(unix.SIGCHLD)}, false, "write 7, cont 7 17"},
		{"the same, registers are not to be written", []ptrace.Status{signal(unix.SIGCHLD)}, true, "cont 7 17"},
		{"one that is handled", []ptrace.Status{signal(unix.SIGUSR1)}, false, "cont 7 10"},
		{"SIGCONT", []ptrace.Status{signal(unix.SIGCONT)}, false, "write 7, cont 7 18"},
		{"the process was stopped and goes on", []ptrace.Status{group, own, signal(unix.SIGCONT)}, false, "listen 7, cont 7 0, cont 7 18"},
		{"the same twice", []ptrace.Status{group, own, signal(unix.SIGCONT), group, group, own, signal(unix.SIGCONT)}, false,
			"listen 7, cont 7 0, cont 7 18, listen 7, listen 7, cont 7 0, cont 7 18"},
		{"after it", []ptrace.Status{group, own, signal(unix.SIGCONT), own, signal(unix.SIGCONT)}, false,
			"listen 7, cont 7 0, cont 7 18, write 7, cont 7 0, write 7, cont 7 18"},
		{"another thread had the SIGCONT", []ptrace.Status{group, own, own, signal(unix.SIGCHLD)}, false,
			"listen 7, cont 7 0, write 7, cont 7 0, write 7, cont 7 17"},
	} {
		k := keepDesk(t)
		k.b.NoRestart = tt.noRestart
		k.registers = make([]byte, 216)
		call, result := int64(unix.SYS_READ), -int64(unix.EINTR)
		binary.LittleEndian.PutUint64(k.registers[offOrigRAX:], uint64(call))
		binary.LittleEndian.PutUint64(k.registers[offRAX:], uint64(result))
		k.status = "Name:\tx\nThreads:\t2\nSigIgn:\t0\nSigCgt:\t200\nSeccomp:\t0\n"
		for _, s := range tt.stops {
			k.report(s)
		}
		if got := k.did(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		k.report(ptrace.Status{TID: 7, Kind: ptrace.KindGone})
		if n := len(k.p.waits.marks) + len(k.p.stopped); n != 0 {
			t.Errorf("%s: %d things are known of a thread that has ended", tt.name, n)
		}
	}
}

// TestKeeperWatches: a thread whose wait begins anew stops when it has left the call, where nothing is known of it any more, and is asked to
// stop when the limit is over. A stop at a call has put off what was asked for before.
func TestKeeperWatches(t *testing.T) {
	const offRAX, offR10, offOrigRAX, limit = 80, 56, 120, 100_000 * us
	own := ptrace.Status{TID: 7, Kind: ptrace.KindInterrupt, Raw: interrupted}
	call := ptrace.Status{TID: 7, Kind: ptrace.KindSyscall, Raw: uint32(unix.SIGTRAP|0x80)<<8 | 0x7f}
	for _, tt := range []struct {
		name   string
		do     func(k *kept, result func(int64))
		want   string
		result int64 // that was written last
	}{
		{"its limit is over", func(k *kept, result func(int64)) {
			k.report(own)
			k.report(call)
			k.now += limit - 1
			k.p.waits.turn(k)
			k.note("over")
			k.now++
			k.p.waits.turn(k)
			k.p.waits.turn(k)
			result(-int64(unix.EINTR))
			k.report(call)
			k.report(own)
		}, "write 7, cont 7 256, cont 7 256, over, interrupt 7, interrupt 7, cont 7 0, write 7, cont 7 0", 0},
		{"it has left", func(k *kept, result func(int64)) {
			k.report(own)
			k.report(call)
			result(1)
			k.report(call)
			k.now += 2 * limit
			k.p.waits.turn(k)
			result(-int64(unix.EINTR))
			k.report(own)
		}, "write 7, cont 7 256, cont 7 256, cont 7 0, write 7, cont 7 256", -514},
		{"it is not in the call yet", func(k *kept, result func(int64)) {
			k.report(own)
			k.now += limit
			k.p.waits.turn(k)
			k.report(call)
			k.now += keeperTick
			k.p.waits.turn(k)
		}, "write 7, cont 7 256, cont 7 256, interrupt 7", -514},
		{"it is sampled", func(k *kept, result func(int64)) {
			k.report(own)
			k.report(call)
			result(-int64(unix.EINTR))
			k.ask(0, k.now)
			k.report(call)
			k.report(own)
			k.report(call)
			k.now += limit
			k.p.waits.turn(k)
		}, "write 7, cont 7 256, cont 7 256, signal 999, interrupt 7, interrupt 7, cont 7 0, write 7, write 7, cont 7 256, cont 7 256, interrupt 7", -514},
		{"a sample is put off", func(k *kept, result func(int64)) {
			k.report(own)
			k.ask(0, k.now)
			k.report(call)
		}, "write 7, cont 7 256, signal 999, interrupt 7, cont 7 256, interrupt 7", -514},
		{"the run ends", func(k *kept, result func(int64)) {
			k.report(own)
			k.report(call)
			result(-int64(unix.EINTR))
			k.p.phase.Store(leaves)
			k.report(call)
			k.report(own)
		}, "write 7, cont 7 256, cont 7 256, interrupt 7, cont 7 0, write 7, detach 7 0", -514},
		{"the run ends where its call begins", func(k *kept, result func(int64)) {
			k.report(own)
			k.p.phase.Store(leaves)
			k.report(call)
			result(-int64(unix.EINTR))
			k.report(own)
		}, "write 7, cont 7 256, interrupt 7, cont 7 0, write 7, detach 7 0", -514},
	} {
		k := keepDesk(t)
		k.step = 0
		k.registers = make([]byte, 216)
		result := func(v int64) { binary.LittleEndian.PutUint64(k.registers[offRAX:], uint64(v)) }
		binary.LittleEndian.PutUint64(k.registers[offOrigRAX:], unix.SYS_EPOLL_WAIT)
		binary.LittleEndian.PutUint64(k.registers[offR10:], uint64(limit/1e6))
		result(-int64(unix.EINTR))
		k.status = "Name:\tx\nThreads:\t2\nSigIgn:\t0\nSigCgt:\t200\nSeccomp:\t0\n"
		tt.do(k, result)
		if got := k.did(); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if got := int64(binary.LittleEndian.Uint64(k.written[offRAX:])); got != tt.result {
			t.Errorf("%s: result %d, want %d", tt.name, got, tt.result)
		}
	}
}

// inMemory is a script in which a thread's memory has a time limit, and its pagemap is a real file.
type inMemory struct {
	*script
	pages int // the pagemap that was read
	limit int64
}

func (k *inMemory) Pread(fd int, buf []byte, off int64) (int, unix.Errno) {
	k.pages = fd
	for i := range buf {
		buf[i] = 0xff
	}
	return len(buf), 0
}

func (k *inMemory) Memory(tid int, addr uint64, buf []byte) int {
	if addr == 0x7000 {
		binary.LittleEndian.PutUint64(buf, uint64(k.limit/1e9))
		binary.LittleEndian.PutUint64(buf[8:], uint64(k.limit%1e9))
		return 16
	}
	return 0
}

// TestKeeperLimit: the limit of a wait that begins anew is read from memory, and the pagemap closed that tells whether it is there.
func TestKeeperLimit(t *testing.T) {
	const offR10, offRAX, offOrigRAX = 56, 80, 120
	runtime.LockOSThread() // of which there is a pagemap
	defer runtime.UnlockOSThread()
	tid := unix.Gettid()
	k := keepDesk(t)
	k.step, k.passes = 0, 0
	k.actors[7].tid = tid
	k.actors[tid] = k.actors[7]
	k.registers = make([]byte, 216)
	result := -int64(unix.EINTR)
	binary.LittleEndian.PutUint64(k.registers[offOrigRAX:], unix.SYS_EPOLL_PWAIT2)
	binary.LittleEndian.PutUint64(k.registers[offRAX:], uint64(result))
	binary.LittleEndian.PutUint64(k.registers[offR10:], 0x7000)
	k.status = "Name:\tx\nThreads:\t2\nSigIgn:\t0\nSigCgt:\t200\nSeccomp:\t0\n"
	kernel := &inMemory{script: k.script, pages: -1, limit: 3e9 + 7}
	k.p.k = kernel
	k.report(ptrace.Status{TID: tid, Kind: ptrace.KindInterrupt, Raw: interrupted})
	if m := k.p.waits.marks[tid]; m == nil || m.Due != k.now+3e9+7 || k.p.waits.due != m.Due {
		t.Errorf("its wait is over at %d, want %d: %+v", k.p.waits.due, k.now+3e9+7, m)
	}
	var st unix.Stat_t
	if err := unix.Fstat(kernel.pages, &st); kernel.pages < 0 || err != unix.EBADF {
		t.Errorf("pagemap %d is still open: %v", kernel.pages, err)
	}
}
