package sampler

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"unsafe"

	"sfsample/ptrace/procfs"
	"sfsample/sampler/syscalls"
)

// number finds a system call by its name; -1 if the architecture has none.
func number(arch, name string) int64 {
	for nr := range int64(1000) {
		if n, ok := syscalls.Name(arch, nr); ok && n == name {
			return nr
		}
	}
	return -1
}

// TestRestartNames: every name of the lists is that of a call.
func TestRestartNames(t *testing.T) {
	for arch, names := range restarts {
		for name := range names {
			if number(arch, name) < 0 {
				t.Errorf("%s has no system call %s", arch, name)
			}
		}
	}
}

// What calls of TestTransparent wait on.
var (
	futexWord    uint32    = 7
	futexWaiters [9]uint64 // value, address, flags
)

func TestTransparent(t *testing.T) {
	endless, limited := [6]uint64{3: 1<<64 - 1}, [6]uint64{2: 0x1000, 3: 0x1000, 4: 0x1000}
	own, fixed := uint64(uintptr(unsafe.Pointer(new([2]int64)))), uint64(uintptr(unsafe.Pointer(unsafe.StringData("of the program"))))
	word := uint64(uintptr(unsafe.Pointer(&futexWord)))
	futexWaiters = [9]uint64{7, word, 2, 7, word, 2, 6, word, 2}
	waiters := uint64(uintptr(unsafe.Pointer(&futexWaiters)))
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	readOf := func(f *os.File) *[6]uint64 { return &[6]uint64{uint64(f.Fd())} }
	pid := os.Getpid()
	for _, tt := range []struct {
		name         string
		args         *[6]uint64
		want, revert bool // without and with EINTR taken back
	}{
		{"futex", &[6]uint64{word, 0, 7, own}, true, true},
		{"futex", &[6]uint64{word, 0x80 | 9, 7}, true, true},
		{"futex", &[6]uint64{word, 0, 6, own}, false, false}, // would not wait again: the word has changed
		{"futex", &[6]uint64{1: 0x80}, false, false},         // the word cannot be read
		{"futex", &[6]uint64{1: 0x80 | 6}, true, true},       // FUTEX_LOCK_PI
		{"futex_waitv", &[6]uint64{waiters, 2}, true, true},
		{"futex_waitv", &[6]uint64{waiters, 3}, false, false}, // the third has changed
		{"futex", &[6]uint64{1: 0x80 | 11}, false, false},     // FUTEX_WAIT_REQUEUE_PI
		{"nanosleep", &[6]uint64{own}, true, true},
		{"nanosleep", &[6]uint64{own, own}, false, false}, // is told what is left
		{"clock_nanosleep", &[6]uint64{2: own}, true, true},
		{"clock_nanosleep", &[6]uint64{2: own, 3: own}, false, false},
		{"clock_nanosleep", &[6]uint64{1: 1, 2: own, 3: own}, true, true}, // until a certain time
		{"restart_syscall", new([6]uint64), false, false},
		{"ppoll", new([6]uint64), true, true},
		{"ppoll", &[6]uint64{2: own}, true, true},
		{"ppoll", &[6]uint64{2: fixed}, false, false}, // what is left cannot be written
		{"pselect6", &[6]uint64{4: own}, true, true},
		{"pselect6", &[6]uint64{4: fixed}, false, false},
		{"read", readOf(r), true, true},
		{"read", readOf(null), false, false},
		{"epoll_pwait", &endless, false, true},
		{"epoll_pwait", &limited, false, false},
		{"epoll_pwait2", new([6]uint64), false, true},
		{"epoll_pwait2", &limited, false, false},
		{"semtimedop", new([6]uint64), false, true},
		{"semtimedop", &limited, false, false},
		{"rt_sigtimedwait", new([6]uint64), false, true},
		{"rt_sigtimedwait", &limited, false, false},
		{"io_getevents", new([6]uint64), false, true},
		{"io_getevents", &limited, false, false},
		{"io_getevents", &[6]uint64{1: 2}, false, false}, // ends with one
		{"connect", new([6]uint64), false, false},
		{"close", new([6]uint64), false, false},
		{"write", new([6]uint64), false, false},
	} {
		for revert, want := range map[bool]bool{false: tt.want, true: tt.revert} {
			nr := number(runtime.GOARCH, tt.name)
			if got := transparent(procfs.FS{}, runtime.GOARCH, pid, nr, tt.args, revert); got != want {
				t.Errorf("%s%x, EINTR taken back: %v: %v, want %v", tt.name, *tt.args, revert, got, want)
			}
		}
	}
}

// TestTimed: a call that begins anew waits for longer if its limit is a span of time.
func TestTimed(t *testing.T) {
	for _, tt := range []struct {
		name string
		args [6]uint64
		want bool
	}{
		{"nanosleep", [6]uint64{}, true},
		{"clock_nanosleep", [6]uint64{}, true},
		{"clock_nanosleep", [6]uint64{1: 1}, false}, // TIMER_ABSTIME
		{"futex", [6]uint64{1: 0x80, 3: 0x1000}, true},
		{"futex", [6]uint64{1: 0x80}, false},            // no limit
		{"futex", [6]uint64{1: 0x89, 3: 0x1000}, false}, // FUTEX_WAIT_BITSET: until a certain time
		{"futex", [6]uint64{1: 0x100, 3: 0x1000}, true}, // FUTEX_CLOCK_REALTIME
		{"poll", [6]uint64{2: 5}, true},
		{"poll", [6]uint64{2: 1<<32 - 1}, false}, // -1
		{"ppoll", [6]uint64{2: 5}, false},
	} {
		if got := timed(tt.name, &tt.args); got != tt.want {
			t.Errorf("%s%x: %v, want %v", tt.name, tt.args, got, tt.want)
		}
	}
}

// TestDrifts: a call that begins anew with what was left of its limit at a stop lasts longer with each.
func TestDrifts(t *testing.T) {
	for _, tt := range []struct {
		name string
		args [6]uint64
		want bool
	}{
		{"pselect6", [6]uint64{4: 0x1000}, true},
		{"pselect6", [6]uint64{}, false}, // no limit
		{"ppoll", [6]uint64{2: 0x1000}, true},
		{"ppoll", [6]uint64{4: 0x1000}, false},
		{"nanosleep", [6]uint64{0x1000, 0x1000, 0x1000, 0x1000, 0x1000}, false}, // keeps the instant of its end
	} {
		if got := drifts(number(runtime.GOARCH, tt.name), &tt.args); got != tt.want {
			t.Errorf("%s%x: %v, want %v", tt.name, tt.args, got, tt.want)
		}
	}
}

// TestMayStop: a thread with a filter is not stopped, nor is one among others in a
// call that a filter of theirs could end.
func TestMayStop(t *testing.T) {
	sleep, suspend := number(runtime.GOARCH, "nanosleep"), number(runtime.GOARCH, "rt_sigsuspend")
	for _, tt := range []struct {
		name                   string
		seccomp, threads       int
		none                   bool // no such thread
		noRestart              bool
		wantSleep, wantEndless bool
	}{
		{"alone", 0, 1, false, false, true, true},
		{"among others", 0, 2, false, false, false, true},
		{"with a filter", 2, 1, false, false, false, false},
		{"with strict filtering", 1, 1, false, false, false, false},
		{"gone", 0, 1, true, false, false, false},
		{"no restart", 0, 1, false, true, false, false},
	} {
		root := t.TempDir()
		if !tt.none {
			text := fmt.Sprintf("Name:\tx\nState:\tS (sleeping)\nTgid:\t7\nPid:\t7\nThreads:\t%d\nSeccomp:\t%d\n", tt.threads, tt.seccomp)
			if err := os.Mkdir(filepath.Join(root, "7"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, "7", "status"), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		o := Options{NoRestart: tt.noRestart}
		var args [6]uint64
		if got := o.mayStop(procfs.FS{Root: root}, 7, 7, sleep, &args); got != tt.wantSleep {
			t.Errorf("%s, in nanosleep: %v, want %v", tt.name, got, tt.wantSleep)
		}
		if got := o.mayStop(procfs.FS{Root: root}, 7, 7, suspend, &args); got != tt.wantEndless {
			t.Errorf("%s, in rt_sigsuspend: %v, want %v", tt.name, got, tt.wantEndless)
		}
	}
}
