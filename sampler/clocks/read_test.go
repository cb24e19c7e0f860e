package clocks

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
	"sfsample/sampler/capture"
)

func TestNumber(t *testing.T) {
	for _, tt := range []struct {
		text string
		at   int
		v    int64
		next int
	}{
		{"12 34\n", 0, 12, 3},
		{"12 34\n", 1, 2, 3},
		{"12 34\n", 3, 34, 6},
		{"09", 0, 9, 3},
		{"0", 0, 0, 2},
		{"1:2/", 0, 1, 2},
		{"1:2/", 2, 2, 4},
		{"", 0, 0, 0},
		{"7", 1, 0, 0},
		{"7", 9, 0, 0},
		{"-1", 0, 0, 0},
		{" 1", 0, 0, 0},
		{":", 0, 0, 0},
		{"922337203685477579 ", 0, 922337203685477579, 19},
		{"9223372036854775799 ", 0, math.MaxInt64 - 8, 20},
		{"9223372036854775810 ", 0, 0, 0},
		{"99999999999999999999999999", 0, 0, 0},
	} {
		if v, next := number([]byte(tt.text), tt.at); v != tt.v || next != tt.next {
			t.Errorf("%q from %d: %d, next %d; want %d, %d", tt.text, tt.at, v, next, tt.v, tt.next)
		}
	}
}

func TestSchedstat(t *testing.T) {
	for _, tt := range []struct {
		text             string
		run, wait, count int64
		ok               bool
	}{
		{"3103872 996674 3\n", 3103872, 996674, 3, true},
		{"0 0 0\n", 0, 0, 0, true},
		{"1 2 30", 1, 2, 30, true},
		{"1 2\n", 1, 2, 0, false},
		{"1 2", 1, 2, 0, false},
		{"1\n", 1, 0, 0, false},
		{"1", 1, 0, 0, false},
		{"x 2 3", 0, 0, 0, false},
		{"", 0, 0, 0, false},
	} {
		if run, wait, count, ok := schedstat([]byte(tt.text)); ok != tt.ok || ok && (run != tt.run || wait != tt.wait || count != tt.count) {
			t.Errorf("%q: %d, %d, %d, %t", tt.text, run, wait, count, ok)
		}
	}
}

// TestReadCall: what the kernel prints of a thread that is blocked in a call, outside one, and of one that runs.
func TestReadCall(t *testing.T) {
	for _, tt := range []struct {
		text string
		want capture.Call
		ok   bool
	}{
		{"232 0x7 0xab 0x2 0xffffffffffffffff 0x0 0x5 0x7ffe10 0x401000\n",
			capture.Call{NR: 232, Args: [6]uint64{7, 0xab, 2, 1<<64 - 1, 0, 5}, SP: 0x7ffe10, PC: 0x401000}, true},
		{"9 0x0123456789abcdef 0xfedcba9876543210 0x9 0xa 0xf 0x8 0xffffffffffffffff 0x1\n",
			capture.Call{NR: 9, Args: [6]uint64{0x0123456789abcdef, 0xfedcba9876543210, 9, 10, 15, 8}, SP: 1<<64 - 1, PC: 1}, true},
		{"1 0x1 0x2 0x3 0x4 0x5 0x6 0x0 0x1\n", capture.Call{NR: 1, Args: [6]uint64{1, 2, 3, 4, 5, 6}, PC: 1}, true},
		{"1 0x1 0x2 0x3 0x4 0x5 0x6 0x1 0x0\n", capture.Call{NR: 1, Args: [6]uint64{1, 2, 3, 4, 5, 6}, SP: 1}, true},
		{"-1", capture.Call{}, false},
		{"-", capture.Call{}, false},
		{"-1 ", capture.Call{}, false},
		{"0 0x0 0x0 0x0 0x0 0x0 0x0 0x10 0xf\n", capture.Call{SP: 16, PC: 15}, true},
		{"-1 0x7ffe10 0x401000\n", capture.Call{NR: -1, SP: 0x7ffe10, PC: 0x401000}, true},
		{"-1 0x7ffe10 0x401000", capture.Call{NR: -1, SP: 0x7ffe10, PC: 0x401000}, true},
		{"0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n", capture.Call{}, false}, // it has exited
		{"running\n", capture.Call{}, false},
		{"-1 0x7ffe10\n", capture.Call{}, false},
		{"-2 0x7ffe10 0x401000\n", capture.Call{}, false},
		{"232 0x7 0xab 0x2 0x3 0x4 0x5 0x7ffe10\n", capture.Call{}, false},
		{"232 0x7 0xab 0x2 0x3 0x4 0x10000000000000000 0x7ffe10 0x401000\n", capture.Call{}, false},
		{"232 0x7 0xab 0x2 0xg 0x4 0x5 0x7ffe10 0x401000\n", capture.Call{}, false},
		{"232 0x7 0xab 0x2 0x` 0x4 0x5 0x7ffe10 0x401000\n", capture.Call{}, false},
		{"", capture.Call{}, false},
	} {
		got := capture.Call{NR: 9, Args: [6]uint64{9, 9, 9, 9, 9, 9}, SP: 9, PC: 9} // of an earlier one
		if ok := readCall(&got, []byte(tt.text)); ok != tt.ok || ok && got != tt.want {
			t.Errorf("%q: %+v, %t; want %+v, %t", tt.text, got, ok, tt.want, tt.ok)
		}
	}
}

// statLine is a line of stat: after the state, the fields from 4 on (proc_pid_stat(5)).
func statLine(name, state string, fields ...string) string {
	return "12 (" + name + ") " + state + " " + strings.Join(fields, " ") + "\n"
}

// TestRealTimeOf: a negative priority, which is field 18 of stat.
func TestRealTimeOf(t *testing.T) {
	for text, want := range map[string]bool{
		"7 (a) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 -2 0 20":  true,
		"7 (a) R 4 5 6 7 8 9 10 11 12 13 14 15 16 17 -101 0 ":  true,
		"7 (a) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 20 -1 20": false,
		"7 (a) S 4 5 6 7 8 9 10 11 12 13 14 15 16 -17 0 -1 20": false,
		"7 (-9 -9) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 0 0":  false,
		"7 (a) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 -":        true,
		"7 (a) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 ":         false,
		"7 (a) S 4 -5": false,
		"-7 (a)":       false,
		"":             false,
	} {
		if realTime([]byte(text)) != want {
			t.Errorf("%q: real time %t", text, !want)
		}
	}
}

func TestStat(t *testing.T) {
	// Field n of the line is n itself, the CPU, field 39, apart.
	fields := func(cpu string) (list []string) {
		for n := 4; n <= 52; n++ {
			list = append(list, fmt.Sprint(n))
		}
		list[39-4] = cpu
		return list
	}
	for _, tt := range []struct {
		name, text string
		state      byte
		cpu        int
		ok         bool
	}{
		{"plain", statLine("cat", "R", fields("3")...), 'R', 3, true},
		{"a name with all in it", statLine(") S (1 2) 3", "D", fields("0")...), 'D', 0, true},
		{"no name", statLine("", "t", fields("7")...), 't', 7, true},
		{"the CPU is the last", statLine("a", "S", fields("5")[:36]...), 'S', 5, true},
		{"without line end", strings.TrimSpace(statLine("a", "S", fields("5")[:36]...)), 'S', 5, true},
		{"many CPUs", statLine("a", "S", fields("1048576")...), 'S', 1 << 20, true},
		{"too many", statLine("a", "S", fields("1048577")...), 0, 0, false},
		{"one field less", statLine("a", "S", fields("5")[:35]...), 0, 0, false},
		{"no number", statLine("a", "S", fields("-1")...), 0, 0, false},
		{"no parenthesis", strings.ReplaceAll(statLine("a", "S", fields("5")...), ")", ""), 0, 0, false},
		{"ends with the name", "12 (a)", 0, 0, false},
		{"ends before the state", "12 (a) ", 0, 0, false},
		{"ends with the state", "12 (a) S", 0, 0, false},
		{"ends behind it", "12 (a) S ", 0, 0, false},
		{"begins with the name's end", ") S " + strings.Join(fields("6"), " "), 'S', 6, true},
		{"a parenthesis at the end", statLine("a", "S", fields("5")...) + ")", 0, 0, false},
		{"nothing", "", 0, 0, false},
	} {
		if state, cpu, ok := stat([]byte(tt.text)); ok != tt.ok || ok && (state != tt.state || cpu != tt.cpu) {
			t.Errorf("%s: state %q, CPU %d, %t; want %q, %d, %t", tt.name, state, cpu, ok, tt.state, tt.cpu, tt.ok)
		}
	}
}

func TestExecStart(t *testing.T) {
	// A line is as SEQ_printf writes it with "%-45s:%14Ld.%06ld" (kernel/sched/debug.c).
	line := func(name string, ms, ns int) string { return fmt.Sprintf("%-45s:%14d.%06d\n", name, ms, ns) }
	for _, tt := range []struct {
		name, text string
		at         int64
		ok         bool
	}{
		{"plain", "cat (12, #threads: 1)\n-----\n" + line("se.exec_start", 81234, 567890) + line("se.vruntime", 5, 1), 81234567890, true},
		{"first", line("se.exec_start", 0, 7), 7, true},
		{"the last byte", "se.exec_start : 1.2", 1000002, true},
		{"the name again", line("se.exec_star", 1, 1) + line("se.exec_start", 2, 3), 2000003, true},
		{"another", line("se.vruntime", 5, 1), 0, false},
		{"no number", "se.exec_start : x", 0, false},
		{"no fraction", "se.exec_start : 5", 0, false},
		{"no fraction behind the point", "se.exec_start : 5.", 0, false},
		{"ends with the name", "x se.exec_start", 0, false},
		{"ends behind it", "se.exec_start:", 0, false},
		{"the name is cut", "se.exec_s", 0, false},
		{"nothing", "", 0, false},
	} {
		if at, ok := execStart([]byte(tt.text)); ok != tt.ok || ok && at != tt.at {
			t.Errorf("%s: %d, %t; want %d, %t", tt.name, at, ok, tt.at, tt.ok)
		}
	}
}

// TestReadDamaged: files that are cut anywhere, or have any byte changed, are read without a panic.
func TestReadDamaged(t *testing.T) {
	var fields []string
	for n := 4; n <= 52; n++ {
		fields = append(fields, "1")
	}
	for _, text := range []string{"31 99 3\n", statLine("a) (b", "S", fields...), "cat (1, #threads: 1)\nse.exec_start   :  81234.567890\nse.vruntime : 5\n",
		"232 0x7 0xab 0x2 0x3 0x4 0x5 0x7ffe10 0x401000\n", "-1 0x7ffe10 0x401000\n"} {
		for i := range text {
			for _, c := range []byte{0, ' ', ')', '9', ':', 's', 0xff} {
				b := []byte(text)
				b[i] = c
				for _, damaged := range [][]byte{b, b[:i]} {
					schedstat(damaged)
					readCall(new(capture.Call), damaged)
					execStart(damaged)
					if _, cpu, ok := stat(damaged); ok && (cpu < 0 || cpu > 1<<20) {
						t.Fatalf("CPU %d in %q", cpu, damaged)
					}
				}
			}
		}
	}
}

// TestCallOf reads stacks as kernels of the three architectures show them.
func TestCallOf(t *testing.T) {
	for stack, want := range map[string]inCall{
		"":               elsewhere,
		"[<0>] 0xffff\n": unharmed,
		"[<0>] irqentry_exit_to_user_mode+0x110/0x1a0\n[<0>] asm_sysvec_apic_timer_interrupt+0x16/0x20\n":                                                                       unharmed,
		"[<0>] exit_to_user_mode_loop+0x51/0xe0\n[<0>] do_syscall_64+0x23b/0x280\n[<0>] entry_SYSCALL_64_after_hwframe+0x76/0x7e\n":                                             unharmed,
		"[<0>] do_notify_resume+0x1/0x2\n[<0>] el0_interrupt+0x1/0x2\n":                                                                                                         unharmed,
		"[<0>] exit_to_user_mode_prepare.isra.0+0x1/0x2\n":                                                                                                                      unharmed,
		"[<0>] do_signal_stop+0x1/0x2\n[<0>] exit_to_user_mode_loop+0x51/0xe0\n[<0>] do_syscall_64+0x1/0x2\n":                                                                   unharmed,
		"[<0>] filp_flush+0x1/0x2\n[<0>] exit_to_user_mode_loop+0x51/0xe0\n[<0>] do_syscall_64+0x1/0x2\n":                                                                       transfer,
		"[<0>] do_epoll_wait+0x1/0x2\n[<0>] exit_to_user_mode_loop+0x51/0xe0\n":                                                                                                 waiting,
		"[<0>] vfs_read+0x23a/0x360\n[<0>] ksys_read+0x66/0xe0\n[<0>] do_syscall_64+0x71/0x280\n":                                                                               unharmed,
		"[<0>] generic_perform_write+0x1/0x2\n[<0>] invoke_syscall+0x1/0x2\n[<0>] el0_svc+0x4/0x8":                                                                              unharmed,
		"[<0>] get_random_bytes_user+0xbc/0x140\n[<0>] vfs_read+0x23a/0x360\n[<0>] ksys_read+0x66/0xe0\n[<0>] do_syscall_64+0x71/0x280\n":                                       transfer,
		"[<0>] write_pool_user.part.0+0xbc/0x140\n[<0>] vfs_write+0x23a/0x360\n":                                                                                                transfer,
		"[<0>] pipe_write+0x1/0x2\n[<0>] splice_direct_to_actor+0x1/0x2\n[<0>] do_sendfile+0x1/0x2\n[<0>] __do_syscall+0x1/0x2\n":                                               transfer,
		"[<0>] splice_direct_to_actor+0x1/0x2\n[<0>] sock_write_iter+0x1/0x2\n":                                                                                                 transfer,
		"[<0>] file_tty_write.isra.0+0x1/0x2\n[<0>] vfs_write+0x23a/0x360\n":                                                                                                    waiting,
		"[<0>] do_epoll_wait+0x548/0x5a0\n[<0>] __x64_sys_epoll_wait+0x5a/0x120\n[<0>] do_syscall_64+0x71/0x280\n[<0>] entry_SYSCALL_64_after_hwframe+0x76/0x7e\n":              waiting,
		"[<0>] schedule_hrtimeout_range_clock+0x9c/0x130\n[<0>] ep_poll+0x1a8/0x3a0\n[<0>] do_epoll_wait+0x90/0xd0\n[<0>] __arm64_sys_epoll_pwait+0x80/0xf0\n[<0>] el0_svc+0x4": waiting,
		"[<0>] btrfs_ioctl_send+0x1/0x2\n[<0>] __x64_sys_ioctl+0x97/0xe0\n[<0>] do_syscall_64+0x71/0x280\n":                                                                     transfer,
		"[<0>] bpf_check+0x1/0x2\n[<0>] __sys_bpf+0x97/0xe0\n":                                                                                                                  transfer,
		"[<0>] __ia32_compat_sys_ioctl+0x97/0xe0\n":                                                                                                                             transfer,
		"[<0>] __arm64_sys_ioctl+0x97/0xe0\n":                                                                                                                                   transfer,
		"[<0>] __s390x_sys_ioctl+0x97/0xe0\n":                                                                                                                                   transfer,
		"[<0>] x_sys_ioctl+0x97/0xe0\n":                                                                                                                                         unharmed,
		"[<0>] __x64_sys_ioctls+0x97/0xe0\n":                                                                                                                                    unharmed,
		"[<0>] __x64_sys_+0x97/0xe0\n":                                                                                                                                          unharmed,
		"[<0>] pipe_write+0x1/0x2\n[<0>] elf_core_dump+0x1/0x2\n[<0>] vfs_coredump+0x1/0x2\n":                                                                                   transfer,
		"[<0>] do_epoll_wait_not+0x548/0x5a0\n":                                                                                                                                 unharmed,
		"do_epoll_wait+0x548/0x5a0\n":                                                                                                                                           waiting,  // without an address
		"[<0>] do_epoll_wait":                                                                                                                                                   unharmed, // cut off
	} {
		if got := callOf([]byte(stack)); got != want {
			t.Errorf("%q: %d, want %d", stack, got, want)
		}
		for n := range stack { // a part of it does no harm
			callOf([]byte(stack[:n]))
		}
	}
}

// TestReadOwn reads this machine's files of this very thread, and compares with the readers of procfs.
func TestReadOwn(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var one, before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	cpu := lastCPU(&before)
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	defer unix.SchedSetaffinity(0, &before)
	pid, tid := os.Getpid(), unix.Gettid()
	dir := fmt.Sprintf("/proc/%d/task/%d/", pid, tid)
	read := func(name string) []byte {
		b, err := os.ReadFile(dir + name)
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	state, at, ok := stat(read("stat"))
	if !ok || state != 'R' || at != cpu {
		t.Errorf("stat: state %q, CPU %d, %t; want R and %d, to which the thread is bound", state, at, ok, cpu)
	}
	if b := read("schedstat"); b != nil {
		from, err := (procfs.FS{}).Task(pid, tid).Schedstat()
		if err != nil {
			t.Fatal(err)
		}
		run, wait, count, ok := schedstat(read("schedstat"))
		to, err := (procfs.FS{}).Task(pid, tid).Schedstat()
		if err != nil || !ok || count < int64(from.Count) || count > int64(to.Count) || run < int64(from.Run) || run > int64(to.Run) || wait < int64(from.Wait) || wait > int64(to.Wait) {
			t.Errorf("schedstat: run %d, wait %d, %t; want between %+v and %+v", run, wait, ok, from, to)
		}
	}
	if b := read("sched"); b != nil { // CONFIG_SCHED_DEBUG
		at, ok := execStart(b)
		later, ok2 := execStart(read("sched"))
		if !ok || !ok2 || at <= 0 || later < at {
			t.Errorf("sched: %d, %t, then %d, %t", at, ok, later, ok2)
		}
	}
}

// lastCPU is the highest in a set.
func lastCPU(set *unix.CPUSet) (cpu int) {
	for i := range 1024 {
		if set.IsSet(i) {
			cpu = i
		}
	}
	return cpu
}
