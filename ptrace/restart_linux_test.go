package ptrace

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sfsample/ptrace/procfs"
)

// These tests are experiments: what a stop does to a thread that is blocked in a
// system call. The lists of Revert and of package sampler name no call that
// is not tried here.

// effect is what the program sees of a stop.
type effect uint8

const (
	nothing  effect = iota // the call goes on
	deadline               // the call goes on, and ends when it would have ended
	eintrs                 // EINTR, which Revert takes back
	leaves                 // EINTR, which it leaves
)

// blocking is one way to block.
type blocking struct {
	name string
	nr   uintptr
	args func() [6]uintptr
	want effect
	end  unix.Errno // of a call with a deadline, when that is over
}

// limit is the time limit of the calls that have one for its own sake.
var limit = 2 * time.Second

// These set the limit in the child, and have its calls made behind a filter.
const (
	limitEnv  = "SFSAMPLE_PTRACE_LIMIT"
	filterEnv = "SFSAMPLE_PTRACE_FILTER"
)

// kept holds what the kernel has the addresses of.
var kept []any

func keep[T any](v T) uintptr {
	p := &v
	kept = append(kept, p)
	return uintptr(unsafe.Pointer(p))
}

// must is for the making of what a call waits for: it panics if the machine does
// not allow it.
func must(v uintptr, _ uintptr, errno unix.Errno) uintptr {
	check(errnoError(errno))
	return v
}

func errnoError(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// check panics with a true error.
func check(err error) {
	if err != nil {
		panic(err)
	}
}

func pipe() (r, w uintptr) {
	var fds [2]int
	check(unix.Pipe(fds[:]))
	return uintptr(fds[0]), uintptr(fds[1])
}

// socket is one of a connected pair, which has this time limit for receiving
// and for sending (0: none).
func socket(timeout time.Duration) uintptr {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	check(err)
	limitSocket(fds[0], timeout)
	return uintptr(fds[0])
}

func limitSocket(fd int, timeout time.Duration) {
	tv := unix.NsecToTimeval(int64(timeout))
	for _, o := range []int{unix.SO_RCVTIMEO, unix.SO_SNDTIMEO} {
		check(unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, o, &tv))
	}
}

// full is such a socket to which nothing more can be sent.
func full(timeout time.Duration) uintptr {
	fd := socket(timeout)
	b := make([]byte, 4096)
	for {
		if err := unix.Sendto(int(fd), b, unix.MSG_DONTWAIT, nil); err != nil {
			return fd
		}
	}
}

func listener(timeout time.Duration) uintptr {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	check(err)
	check(unix.Bind(fd, &unix.SockaddrUnix{})) // an address without a name asks for any
	check(unix.Listen(fd, 1))
	limitSocket(fd, timeout)
	return uintptr(fd)
}

func epoll() uintptr {
	fd, err := unix.EpollCreate1(0)
	check(err)
	return uintptr(fd)
}

// locked is a descriptor of a file that another one has locked both ways.
func locked() uintptr {
	fd, err := unix.MemfdCreate("lock", 0)
	check(err)
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR, 0)
	check(err)
	check(unix.Flock(fd, unix.LOCK_EX))
	check(unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}))
	return uintptr(again)
}

// queue is a System V message queue, full or empty.
func queue(fill bool) uintptr {
	id := must(unix.Syscall(unix.SYS_MSGGET, 0, 0o600, 0))
	atEnd = append(atEnd, func() { unix.Syscall(unix.SYS_MSGCTL, id, unix.IPC_RMID, 0) })
	m := make([]byte, 8+512)
	binary.NativeEndian.PutUint64(m, 1)
	for fill {
		const noWait = 0o4000 // IPC_NOWAIT
		_, _, errno := unix.Syscall6(unix.SYS_MSGSND, id, uintptr(unsafe.Pointer(&m[0])), 512, noWait, 0, 0)
		fill = errno == 0
	}
	return id
}

func semaphore() uintptr {
	id := must(unix.Syscall(unix.SYS_SEMGET, 0, 1, 0o600))
	atEnd = append(atEnd, func() { unix.Syscall(unix.SYS_SEMCTL, id, 0, unix.IPC_RMID) })
	return id
}

// atEnd is done when standard input ends: System V objects outlive their maker.
var atEnd []func()

func sleeper() uintptr {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childEnv+"=wait")
	in, err := cmd.StdinPipe()
	check(err)
	check(cmd.Start())
	kept = append(kept, in) // its end is the child's
	return uintptr(cmd.Process.Pid)
}

// timespec is limit from now on, by the clock for absolute times.
func timespec(absolute bool) uintptr {
	ts := unix.NsecToTimespec(int64(limit))
	if absolute {
		var now unix.Timespec
		check(unix.ClockGettime(unix.CLOCK_MONOTONIC, &now))
		ts = unix.NsecToTimespec(now.Nano() + int64(limit))
	}
	return keep(ts)
}

// futexWaiter is struct futex_waitv (include/uapi/linux/futex.h).
type futexWaiter struct {
	_     uint64 // the value waited for, 0
	uaddr uint64
	flags uint32
	_     uint32
}

// semWait is a struct sembuf that waits.
type semWait struct {
	_  uint16 // number of the semaphore, 0
	op int16
	_  int16
}

const (
	none    = ^uintptr(0) // -1
	sigBits = 8           // size of a signal set

	// include/uapi/linux/futex.h; FUTEX_WAIT is 0
	futexBitset  = 9
	futexPrivate = 128
)

// blockings are the calls that all architectures have.
var blockings = []blocking{
	{"nanosleep", unix.SYS_NANOSLEEP, func() [6]uintptr { return [6]uintptr{timespec(false)} }, deadline, 0},
	{"clock_nanosleep", unix.SYS_CLOCK_NANOSLEEP, func() [6]uintptr {
		return [6]uintptr{unix.CLOCK_MONOTONIC, 0, timespec(false)}
	}, deadline, 0},
	{"clock_nanosleep absolute", unix.SYS_CLOCK_NANOSLEEP, func() [6]uintptr {
		return [6]uintptr{unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, timespec(true)}
	}, deadline, 0},
	{"ppoll with timeout", unix.SYS_PPOLL, func() [6]uintptr { return [6]uintptr{0, 0, timespec(false)} }, deadline, 0},
	{"pselect6 with timeout", unix.SYS_PSELECT6, func() [6]uintptr { return [6]uintptr{0, 0, 0, 0, timespec(false)} }, deadline, 0},
	{"futex with timeout", unix.SYS_FUTEX, func() [6]uintptr {
		return [6]uintptr{keep(uint32(0)), futexPrivate, 0, timespec(false)}
	}, deadline, unix.ETIMEDOUT},
	{"futex bitset", unix.SYS_FUTEX, func() [6]uintptr {
		return [6]uintptr{keep(uint32(0)), futexBitset | futexPrivate, 0, timespec(true), 0, 0xffffffff}
	}, deadline, unix.ETIMEDOUT},
	{"futex_waitv", unix.SYS_FUTEX_WAITV, func() [6]uintptr {
		word := keep(uint32(0))
		return [6]uintptr{keep(futexWaiter{uaddr: uint64(word), flags: 2}), 1, 0, timespec(true), unix.CLOCK_MONOTONIC}
	}, deadline, unix.ETIMEDOUT},

	{"ppoll", unix.SYS_PPOLL, func() [6]uintptr { return [6]uintptr{} }, nothing, 0},
	{"pselect6", unix.SYS_PSELECT6, func() [6]uintptr { return [6]uintptr{} }, nothing, 0},
	{"futex", unix.SYS_FUTEX, func() [6]uintptr {
		return [6]uintptr{keep(uint32(0)), futexPrivate}
	}, nothing, 0},
	{"read of a pipe", unix.SYS_READ, func() [6]uintptr { r, _ := pipe(); return [6]uintptr{r, keep(byte(0)), 1} }, nothing, 0},
	{"readv of a pipe", unix.SYS_READV, func() [6]uintptr {
		r, _ := pipe()
		v := unix.Iovec{Base: new(byte)}
		v.SetLen(1)
		return [6]uintptr{r, keep(v), 1}
	}, nothing, 0},
	{"read of an eventfd", unix.SYS_READ, func() [6]uintptr {
		fd := must(unix.Syscall(unix.SYS_EVENTFD2, 0, 0, 0))
		return [6]uintptr{fd, keep(uint64(0)), 8}
	}, nothing, 0},
	{"recvfrom", unix.SYS_RECVFROM, func() [6]uintptr { return [6]uintptr{socket(0), keep(byte(0)), 1} }, nothing, 0},
	{"accept4", unix.SYS_ACCEPT4, func() [6]uintptr { return [6]uintptr{listener(0)} }, nothing, 0},
	{"rt_sigsuspend", unix.SYS_RT_SIGSUSPEND, func() [6]uintptr { return [6]uintptr{keep(^uint64(0)), sigBits} }, nothing, 0},
	{"msgrcv", unix.SYS_MSGRCV, func() [6]uintptr { return [6]uintptr{queue(false), keep([2]uint64{}), 8} }, nothing, 0},
	{"msgsnd", unix.SYS_MSGSND, func() [6]uintptr { return [6]uintptr{queue(true), keep([2]uint64{1}), 8} }, nothing, 0},
	{"wait4", unix.SYS_WAIT4, func() [6]uintptr { return [6]uintptr{sleeper()} }, nothing, 0},
	{"waitid", unix.SYS_WAITID, func() [6]uintptr { return [6]uintptr{unix.P_PID, sleeper(), 0, unix.WEXITED} }, nothing, 0},
	{"flock", unix.SYS_FLOCK, func() [6]uintptr { return [6]uintptr{locked(), unix.LOCK_EX} }, nothing, 0},
	{"fcntl", unix.SYS_FCNTL, func() [6]uintptr {
		return [6]uintptr{locked(), unix.F_OFD_SETLKW, keep(unix.Flock_t{Type: unix.F_WRLCK})}
	}, nothing, 0},

	{"epoll_pwait", unix.SYS_EPOLL_PWAIT, func() [6]uintptr { return [6]uintptr{epoll(), keep([2]uint64{}), 1, none} }, eintrs, 0},
	{"epoll_pwait2", unix.SYS_EPOLL_PWAIT2, func() [6]uintptr { return [6]uintptr{epoll(), keep([2]uint64{}), 1} }, eintrs, 0},
	{"semtimedop", unix.SYS_SEMTIMEDOP, func() [6]uintptr { return [6]uintptr{semaphore(), keep(semWait{op: -1}), 1} }, eintrs, 0},
	{"rt_sigtimedwait", unix.SYS_RT_SIGTIMEDWAIT, func() [6]uintptr {
		return [6]uintptr{keep(uint64(1) << (unix.SIGUSR1 - 1)), 0, 0, sigBits}
	}, eintrs, 0},
	{"io_getevents", unix.SYS_IO_GETEVENTS, func() [6]uintptr {
		var context uintptr
		must(unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&context)), 0))
		return [6]uintptr{context, 1, 1, keep([4]uint64{})}
	}, eintrs, 0},
	{"io_pgetevents", unix.SYS_IO_PGETEVENTS, func() [6]uintptr {
		var context uintptr
		must(unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&context)), 0))
		return [6]uintptr{context, 1, 1, keep([4]uint64{})}
	}, nothing, 0},
	{"io_uring_enter", unix.SYS_IO_URING_ENTER, func() [6]uintptr {
		fd := must(unix.Syscall(unix.SYS_IO_URING_SETUP, 1, keep([120]byte{}), 0))
		const getEvents = 1 // IORING_ENTER_GETEVENTS
		return [6]uintptr{fd, 0, 1, getEvents}
	}, eintrs, 0},
	{"recvfrom with timeout", unix.SYS_RECVFROM, func() [6]uintptr { return [6]uintptr{socket(time.Hour), keep(byte(0)), 1} }, eintrs, 0},
	{"recvmsg with timeout", unix.SYS_RECVMSG, func() [6]uintptr { return [6]uintptr{socket(time.Hour), message()} }, eintrs, 0},
	{"accept4 with timeout", unix.SYS_ACCEPT4, func() [6]uintptr { return [6]uintptr{listener(time.Hour)} }, eintrs, 0},
	{"sendto with timeout", unix.SYS_SENDTO, func() [6]uintptr { return [6]uintptr{full(time.Hour), keep(byte(0)), 1} }, eintrs, 0},
	{"recvmmsg with timeout", unix.SYS_RECVMMSG, func() [6]uintptr { return [6]uintptr{socket(time.Hour), messages(), 1} }, eintrs, 0},
	{"sendmmsg with timeout", unix.SYS_SENDMMSG, func() [6]uintptr { return [6]uintptr{full(time.Hour), messages(), 1} }, eintrs, 0},
	{"read with timeout", unix.SYS_READ, func() [6]uintptr { return [6]uintptr{socket(time.Hour), keep(byte(0)), 1} }, eintrs, 0},
	{"readv with timeout", unix.SYS_READV, func() [6]uintptr { return [6]uintptr{socket(time.Hour), vector(), 1} }, eintrs, 0},
	{"write with timeout", unix.SYS_WRITE, func() [6]uintptr { return [6]uintptr{full(time.Hour), keep(byte(0)), 1} }, eintrs, 0},
	{"writev with timeout", unix.SYS_WRITEV, func() [6]uintptr { return [6]uintptr{full(time.Hour), vector(), 1} }, eintrs, 0},
	{"connect with timeout", unix.SYS_CONNECT, func() [6]uintptr {
		fd, addr := unanswered()
		return [6]uintptr{fd, keep(*addr), unix.SizeofSockaddrInet4}
	}, eintrs, 0},
	{"sendto with MSG_FASTOPEN", unix.SYS_SENDTO, func() [6]uintptr {
		fd, addr := unanswered()
		return [6]uintptr{fd, keep(byte(0)), 1, unix.MSG_FASTOPEN, keep(*addr), unix.SizeofSockaddrInet4}
	}, leaves, 0},
	{"sendmsg with MSG_FASTOPEN", unix.SYS_SENDMSG, func() [6]uintptr {
		fd, addr := unanswered()
		m := header()
		m.Name, m.Namelen = (*byte)(unsafe.Pointer(addr)), unix.SizeofSockaddrInet4
		return [6]uintptr{fd, keep(m), unix.MSG_FASTOPEN}
	}, leaves, 0},
	{"sendmsg with timeout", unix.SYS_SENDMSG, func() [6]uintptr { return [6]uintptr{full(time.Hour), message()} }, eintrs, 0},
}

// oneByte is an iovec of one byte.
func oneByte() *unix.Iovec {
	v := &unix.Iovec{Base: new(byte)}
	v.SetLen(1)
	kept = append(kept, v)
	return v
}

// header is a msghdr of one byte.
func header() unix.Msghdr {
	m := unix.Msghdr{Iov: oneByte()}
	m.SetIovlen(1)
	return m
}

func vector() uintptr  { return keep(*oneByte()) }
func message() uintptr { return keep(header()) }

// messages is an mmsghdr.
func messages() uintptr {
	return keep(struct {
		unix.Msghdr
		_ uint64
	}{Msghdr: header()})
}

// unanswered is a TCP socket with a time limit, and the address of a listener that answers
// nobody any more, since its queue is full.
func unanswered() (fd uintptr, addr *unix.RawSockaddrInet4) {
	l, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	check(err)
	check(unix.Bind(l, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	check(unix.Listen(l, 0))
	at, err := unix.Getsockname(l)
	check(err)
	for range 4 {
		c, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK, 0)
		check(err)
		unix.Connect(c, at) // it waits for its turn, or is there
	}
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	check(err)
	limitSocket(s, time.Hour)
	port := at.(*unix.SockaddrInet4).Port
	addr = &unix.RawSockaddrInet4{Family: unix.AF_INET, Port: binary.NativeEndian.Uint16([]byte{byte(port >> 8), byte(port)}), Addr: [4]byte{127, 0, 0, 1}}
	return uintptr(s), addr
}

// callMode is the mode of a child that blocks in all calls of an effect, each in
// a thread of its own.
const callMode = "calls "

// block is that child. It tells each call's thread, that all are there, and what
// comes of the calls.
func block(effects string) {
	limit, _ = time.ParseDuration(os.Getenv(limitEnv))
	var mu sync.Mutex
	told := make(chan bool)
	n := 0
	for i := range blockings {
		b := &blockings[i]
		if !strings.ContainsRune(effects, rune('0'+b.want)) {
			continue
		}
		n++
		go func() {
			runtime.LockOSThread()
			args, err := prepare(&mu, b)
			if err == nil && os.Getenv(filterEnv) != "" {
				err = refuseRestarts()
			}
			if err != nil {
				fmt.Printf("cannot %d %v\n", i, err)
				told <- true
				return
			}
			fmt.Printf("thread %d %d %d %d\n", i, unix.Gettid(), args[0], args[1])
			told <- true
			_, _, errno := unix.Syscall6(b.nr, args[0], args[1], args[2], args[3], args[4], args[5])
			fmt.Printf("result %d %d %d\n", i, int(errno), Now())
			// In the same thread: the tracer looks for this call.
			unix.Syscall(unix.SYS_READ, 0, uintptr(unsafe.Pointer(new(byte))), 1)
		}()
	}
	for range n {
		<-told
	}
	fmt.Println("all")
	io.Copy(io.Discard, os.Stdin)
	for _, f := range atEnd {
		f()
	}
	runtime.KeepAlive(kept)
}

// prepare makes what a call waits for.
func prepare(mu *sync.Mutex, b *blocking) (args [6]uintptr, err error) {
	mu.Lock()
	defer mu.Unlock()
	defer func() {
		if r := recover(); r != nil {
			err = r.(error)
		}
	}()
	return b.args(), nil
}

// target is one thread of such a child, seen by its tracer.
type target struct {
	*blocking
	pid, tid int
	args     [2]uint64
	runs     uint64 // run count at the last stop

	returned bool
	errno    unix.Errno
	at       int64 // when it returned
	resumed  int64 // time of the last continuation
}

// targets is such a child.
type targets struct {
	out  *bufio.Reader
	list map[int]*target // by index of blockings
}

// refuseRestarts puts the calling OS thread behind a filter by which
// restart_syscall(2) fails with EPERM, and that knows all other calls.
func refuseRestarts() error {
	code := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // seccomp_data.nr
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_RESTART_SYSCALL, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&prog)), 0, 0)
	runtime.KeepAlive(code)
	return err
}

// startBlocking starts a child that blocks in the calls of these effects.
func startBlocking(t *testing.T, effects ...effect) *targets {
	t.Helper()
	return startBlockingWith(t, nil, effects...)
}

// startBlockingWith does so with these additions to the child's environment.
func startBlockingWith(t *testing.T, env []string, effects ...effect) *targets {
	t.Helper()
	mode := callMode
	for _, e := range effects {
		mode += string(rune('0' + e))
	}
	// No signals of the Go runtime: they would interrupt the calls. The child ends
	// by itself, and removes what would stay.
	env = append([]string{"GODEBUG=asyncpreemptoff=1", "GOGC=off", limitEnv + "=" + limit.String()}, env...)
	cmd, out := runChild(t, mode, env...)
	ts := &targets{out, map[int]*target{}}
	for line := ""; line != "all"; {
		line = ts.line(t)
		var i int
		c := &target{pid: cmd.Process.Pid}
		if n, _ := fmt.Sscanf(line, "thread %d %d %d %d", &i, &c.tid, &c.args[0], &c.args[1]); n == 4 {
			c.blocking = &blockings[i]
			ts.list[i] = c
		} else if n, _ := fmt.Sscanf(line, "cannot %d", &i); n == 1 {
			t.Logf("%s: not tried: %s", blockings[i].name, line)
		}
	}
	return ts
}

// line reads one line, and remembers what it says of a call's end.
func (ts *targets) line(t *testing.T) string {
	t.Helper()
	s, err := ts.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the child says no more: %v", err)
	}
	var i, errno int
	var at int64
	if n, _ := fmt.Sscanf(s, "result %d %d %d", &i, &errno, &at); n == 3 {
		c := ts.list[i]
		c.returned, c.errno, c.at = true, unix.Errno(errno), at
	}
	return strings.TrimSuffix(s, "\n")
}

// patience is for what takes long only when it is broken.
const patience = 60 * time.Second

// blocks waits until the thread is in its call, and tells where. false: the
// call has ended. Right behind a stop, a thread that is woken but has not run
// yet would still show the call.
func (c *target) blocks() (procfs.Syscall, bool, error) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Microsecond) {
		s, err := (procfs.FS{}).Task(c.pid, c.tid).Syscall()
		if err != nil {
			return s, false, err
		}
		run, err := (procfs.FS{}).Task(c.pid, c.tid).Schedstat()
		if err != nil {
			return s, false, err
		}
		switch {
		case s.Running || run.Count == c.runs:
		case s.NR == unix.SYS_READ && s.Args[0] == 0:
			return s, false, nil
		case s.NR == int64(c.nr) && s.Args[0] == c.args[0] && s.Args[1] == c.args[1],
			s.NR == unix.SYS_RESTART_SYSCALL:
			return s, true, nil
		}
	}
	return procfs.Syscall{}, false, fmt.Errorf("%s: the thread is nowhere", c.name)
}

// interrupt stops the thread once, with or without Revert.
func (c *target) interrupt(revert, anew bool) (reverted bool, err error) {
	if err := Interrupt(c.tid); err != nil {
		return false, err
	}
	if _, err := waitKind(c.tid, KindInterrupt); err != nil {
		return false, err
	}
	run, err := (procfs.FS{}).Task(c.pid, c.tid).Schedstat()
	if err != nil {
		return false, err
	}
	c.runs = run.Count
	note := make([]byte, 512)
	n, err := ReadRegs(c.tid, NotePrstatus, note)
	if err != nil {
		return false, err
	}
	if revert && Revert(c.tid, note[:n], anew) {
		reverted = true
		if errno := RawSetRegs(c.tid, NotePrstatus, note[:n]); errno != 0 {
			return true, errno
		}
	}
	c.resumed = Now()
	return reverted, Cont(c.tid, 0)
}

// stopTwice stops a blocked thread twice. It reports whether it was blocked at
// all, and whether the call has returned since.
func (c *target) stopTwice(t *testing.T, revert bool) (blocked, returned bool, err error) {
	before, blocked, err := c.blocks()
	if err != nil || !blocked {
		return false, false, err
	}
	for range 2 {
		reverted, err := c.interrupt(revert, false)
		if err != nil {
			return true, false, fmt.Errorf("%s: %w", c.name, err)
		}
		if reverted != (revert && c.want == eintrs) {
			t.Errorf("%s: Revert changed something: %v", c.name, reverted)
		}
		after, still, err := c.blocks()
		if err != nil || !still {
			return true, !still, err
		}
		if after.SP != before.SP || after.PC != before.PC {
			t.Errorf("%s: the thread is in %+v after the stop, was in %+v", c.name, after, before)
		}
	}
	return true, false, nil
}

// TestStopOfBlockedThread stops threads that are blocked, twice each, and holds
// what they see of it against the table.
func TestStopOfBlockedThread(t *testing.T) {
	t.Run("as it is", func(t *testing.T) { stopEndless(t, false) })
	t.Run("taken back", func(t *testing.T) {
		if Reverts {
			stopEndless(t, true)
		}
	})
	t.Run("deadline", stopDeadline)
}

// stopEndless stops threads in calls that do not end by themselves.
func stopEndless(t *testing.T, revert bool) {
	ts := startBlocking(t, nothing, eintrs, leaves)
	returned := map[*target]bool{}
	tried := 0
	traced(t, func() error {
		for _, c := range ts.list {
			if err := Seize(c.tid, 0); err != nil {
				return err
			}
			blocked, has, err := c.stopTwice(t, revert)
			if err != nil {
				return err
			}
			if !blocked {
				t.Logf("%s: not tried, the call returns", c.name)
				continue
			}
			tried++
			if want := c.want == leaves || c.want == eintrs && !revert; has != want {
				t.Errorf("%s has returned: %v, want %v", c.name, has, want)
			}
			returned[c] = has
		}
		return nil
	})
	for c, has := range returned {
		for has && !c.returned {
			ts.line(t)
		}
		if has && c.errno != unix.EINTR {
			t.Errorf("%s has returned %v, want %v", c.name, c.errno, unix.EINTR)
		}
	}
	t.Logf("%d calls tried", tried)
	if tried < len(ts.list)/2 {
		t.Errorf("only %d of %d calls could be tried", tried, len(ts.list))
	}
}

// stopDeadline stops threads in calls with a time limit. A limit that began
// anew at the stop could not be over before a whole one from then on; one that
// did not is, unless the machine is very busy: then more time helps. So once is
// a proof.
func stopDeadline(t *testing.T) {
	proven := map[string]bool{}
	for ; limit <= 16*time.Second; limit *= 2 {
		ts := startBlocking(t, deadline)
		time.Sleep(limit / 2)
		traced(t, func() error {
			for _, c := range ts.list {
				if err := Seize(c.tid, 0); err != nil {
					return err
				}
				if _, _, err := c.stopTwice(t, false); err != nil {
					return err
				}
			}
			return nil
		})
		left := len(ts.list)
		for _, c := range ts.list {
			for !c.returned {
				ts.line(t)
			}
			switch {
			case c.errno == unix.ENOSYS:
				t.Logf("%s: not tried, the kernel lacks it", c.name)
				left--
			case c.errno != c.end:
				t.Errorf("%s has returned %v, want %v", c.name, c.errno, c.end)
			case c.resumed != 0 && c.at < c.resumed+int64(limit):
				proven[c.name] = true
			}
		}
		if len(proven) == left {
			t.Logf("%d calls tried", left)
			return
		}
	}
	t.Errorf("a time limit begins anew at a stop: it was kept for %v only", proven)
}

// TestStopBehindFilter stops threads in calls with a time limit that are behind a
// filter by which restart_syscall fails: the program sees that unless the calls
// begin anew.
func TestStopBehindFilter(t *testing.T) {
	for _, anew := range []bool{false, true} {
		t.Run(fmt.Sprintf("anew=%v", anew), func(t *testing.T) {
			ts := startBlockingWith(t, []string{filterEnv + "=1"}, deadline)
			traced(t, func() error {
				for _, c := range ts.list {
					if err := c.stopBehind(anew); err != nil {
						return err
					}
				}
				return nil
			})
			refused := 0
			for _, c := range ts.list {
				for !c.returned {
					ts.line(t)
				}
				switch {
				case c.errno == unix.EPERM:
					refused++
					if anew {
						t.Errorf("%s has returned %v, want %v", c.name, c.errno, c.end)
					}
				case c.errno != c.end && c.errno != unix.ENOSYS:
					t.Errorf("%s has returned %v, want %v", c.name, c.errno, c.end)
				}
			}
			if !anew && refused < 3 {
				t.Errorf("only %d of %d calls were refused: nothing was tried", refused, len(ts.list))
			}
			t.Logf("%d calls tried, %d refused", len(ts.list), refused)
		})
	}
}

// stopBehind stops a thread twice that is behind a filter.
func (c *target) stopBehind(anew bool) error {
	if err := Seize(c.tid, 0); err != nil {
		return err
	}
	for range 2 {
		if _, blocked, err := c.blocks(); err != nil || !blocked {
			return err
		}
		if _, err := c.interrupt(anew, anew); err != nil {
			return err
		}
	}
	return nil
}
