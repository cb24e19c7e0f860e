package clocks

import (
	"encoding/binary"
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
