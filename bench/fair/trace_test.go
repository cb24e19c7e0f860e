package main

import (
	"math"
	"testing"
)

// TestTraced: what a thread did on a CPU between two events is what the first has begun, a call or the program's own code; while another has the CPU it does
// nothing. Before its first event is what that ends. Events of others are left out.
func TestTraced(t *testing.T) {
	const text = `    3    99.999999000:     sched:sched_switch: prev_comm=c prev_pid=3 prev_prio=120 prev_state=R ==> next_comm=x next_pid=6 next_prio=120
    6    99.999999200:   raw_syscalls:sys_exit: NR 0 = 5
    6    99.999999300:     sched:sched_switch: prev_comm=x prev_pid=6 prev_prio=120 prev_state=R ==> next_comm=y next_pid=5 next_prio=120
    5    99.999999900:     sched:sched_switch: prev_comm=y prev_pid=5 prev_prio=120 prev_state=R ==> next_comm=z next_pid=7 next_prio=120
    7   100.000000100:  raw_syscalls:sys_enter: NR 1 (8, 7f35c0003b70, 5, 0, 2, 100)
    7   100.000000400:   raw_syscalls:sys_exit: NR 1 = 5
    9   100.000000450:  raw_syscalls:sys_enter: NR 0 (0, 0, 0, 0, 0, 0)
    7   100.000001400:  raw_syscalls:sys_enter: NR 232 (5, 7f35c0000000, 2710, 64, 0, 0)
    7   100.000001500:     sched:sched_switch: prev_comm=some one prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=next_pid=7 next_pid=9 next_prio=120
    9   100.000009500:     sched:sched_switch: prev_comm=b prev_pid=9 prev_prio=120 prev_state=R ==> next_comm=some one next_pid=7 next_prio=120
    7   100.000009700:   raw_syscalls:sys_exit: NR 232 = 1
    7   100.000010000:     sched:sched_switch: prev_comm=some one prev_pid=7 prev_prio=120 prev_state=R ==> next_comm=c next_pid=8 next_prio=120
    8   100.000011000:  raw_syscalls:sys_enter: NR 4000 (0, 0, 0, 0, 0, 0)
    8   100.000011250:     sched:sched_switch: prev_comm=c prev_pid=8 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120
`
	into := shares{}
	traced([]byte(text), "amd64", map[int]float64{5: 0, 6: 0, 7: 0, 8: 0}, into)
	want := shares{"read": 200e-9, "write": 300e-9, "": 100e-9 + 600e-9 + 200e-9 + 1000e-9 + 300e-9 + 1000e-9 + 250e-9, "epoll_wait": 100e-9 + 200e-9}
	if len(into) != len(want) {
		t.Errorf("got %v", into)
	}
	for name, s := range want {
		if math.Abs(into[name]-s) > 20e-9 { // the times have not so many digits
			t.Errorf("%q: %.0f ns, want %.0f", name, into[name]*1e9, s*1e9)
		}
	}
	for function, call := range map[string]string{"libc.so.6 __write": "write", "libc.so.6 epoll_wait": "epoll_wait", "libc.so.6 __libc_read": "", "libc.so.6 open": "", "libc.so.6": "", "redis-server processCommand": "", "redis-server write": ""} {
		if share, ok := ofCall(into, function); ok != (call != "") || ok && share != into.of(call) {
			t.Errorf("%s: %.1f, %t", function, share, ok)
		}
	}
}
