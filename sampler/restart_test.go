package sampler

import (
	"os"
	"runtime"
	"testing"

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

func TestTransparent(t *testing.T) {
	endless, limited := [6]uint64{3: 1<<64 - 1}, [6]uint64{2: 0x1000, 3: 0x1000, 4: 0x1000}
	pid := os.Getpid()
	for _, tt := range []struct {
		name         string
		args         *[6]uint64
		want, revert bool // without and with EINTR taken back
	}{
		{"futex", &limited, true, true},
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
		{"connect", new([6]uint64), false, false},
		{"close", new([6]uint64), false, false},
		{"write", new([6]uint64), false, false},
	} {
		for revert, want := range map[bool]bool{false: tt.want, true: tt.revert} {
			nr := number(runtime.GOARCH, tt.name)
			if got := transparent(runtime.GOARCH, pid, nr, tt.args, revert); got != want {
				t.Errorf("%s%x, EINTR taken back: %v: %v, want %v", tt.name, *tt.args, revert, got, want)
			}
		}
	}
}
