package ptrace

import "testing"

// TestTimed32: those of 32-bit programs, also behind socketcall and ipc.
func TestTimed32(t *testing.T) {
	for _, tt := range []struct {
		name string
		nr   int64
		args [6]uint64
		want bool
	}{
		{"poll", i386Poll, [6]uint64{2: 200}, true},
		{"poll for ever", i386Poll, [6]uint64{2: 0xffffffff}, false},
		{"epoll_wait", i386EpollWait, [6]uint64{3: 1}, true},
		{"semtimedop", i386IPC, [6]uint64{ipcSemtimedop, 0, 0, 0, 1}, true},
		{"semtimedop for ever", i386IPC, [6]uint64{ipcSemtimedop, 1, 1, 1, 0, 1}, false},
		{"semop", i386IPC, [6]uint64{ipcSemop, 1, 1, 1, 1, 1}, false},
		{"recv", i386Socketcall, [6]uint64{socketRecv}, true},
		{"send", i386Socketcall, [6]uint64{socketSend}, false},
		{"of a 64-bit program", 232, [6]uint64{1, 1, 1, 1, 1, 1}, false},
	} {
		if got := Timed(tt.nr, &tt.args, true); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}
