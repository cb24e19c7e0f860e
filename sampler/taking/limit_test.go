package taking

import (
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"sfsample/ptrace"
)

// TestLimit reads limits of a wait: from a register, from memory as two words of 8 or 4 bytes, or by way of another word.
func TestLimit(t *testing.T) {
	const at, year = 0x7000, 365 * 86400
	spec := func(s, ns int64) string { return string(words(uint64(s), uint64(ns))) }
	narrow := func(s, ns int32) string {
		return string(binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, uint32(s)), uint32(ns)))
	}
	for _, tt := range []struct {
		name   string
		limit  ptrace.Limit
		memory map[uint64]string
		want   int64
	}{
		{"a register", ptrace.Limit{NS: 5, Word: 8}, map[uint64]string{0: spec(1, 0)}, 5},
		{"none at all", ptrace.Limit{NS: -1e6}, nil, -1e6},
		{"two words", ptrace.Limit{Addr: at, Word: 8}, map[uint64]string{at: spec(2, 3)}, 2e9 + 3},
		{"no nanoseconds", ptrace.Limit{Addr: at, Word: 8}, map[uint64]string{at: spec(2, 0)}, 2e9},
		{"a nanosecond", ptrace.Limit{Addr: at, Word: 8}, map[uint64]string{at: spec(0, 1)}, 1},
		{"the most nanoseconds", ptrace.Limit{Addr: at, Word: 8}, map[uint64]string{at: spec(0, 999_999_999)}, 999_999_999},
		{"too many", ptrace.Limit{Addr: at, Word: 8}, map[uint64]string{at: spec(1, 1e9)}, 0},
		{"too few", ptrace.Limit{Addr: at, Word: 8}, map[uint64]string{at: spec(1, -1)}, 0},
		{"too few seconds", ptrace.Limit{Addr: at, Word: 8}, map[uint64]string{at: spec(-1, 1)}, 0},
		{"a year", ptrace.Limit{Addr: at, Word: 8}, map[uint64]string{at: spec(year, 1)}, year*1e9 + 1},
		{"a second more", ptrace.Limit{Addr: at, Word: 8}, map[uint64]string{at: spec(year+1, 0)}, 0},
		{"narrow words", ptrace.Limit{Addr: at, Word: 4}, map[uint64]string{at: narrow(2, 3)}, 2e9 + 3},
		{"the narrow ones less than 0", ptrace.Limit{Addr: at, Word: 4}, map[uint64]string{at: narrow(-1, 3)}, 0},
		{"the second less than 0", ptrace.Limit{Addr: at, Word: 4}, map[uint64]string{at: narrow(2, -3)}, 0},
		{"one narrow word", ptrace.Limit{Addr: at, Word: 4}, map[uint64]string{at: narrow(2, 3)[:4]}, 0},
		{"nanoseconds with a padding", ptrace.Limit{Addr: at, Word: 8, Padded: true}, map[uint64]string{at: spec(2, 1<<32|3)}, 2e9 + 3},
		{"the most that is none", ptrace.Limit{Addr: at, Word: 8, Padded: true}, map[uint64]string{at: spec(2, 1<<32-1)}, 0},
		{"the highest bit that is none", ptrace.Limit{Addr: at, Word: 8, Padded: true}, map[uint64]string{at: spec(2, 1<<31|3)}, 0},
		{"a ring's", ptrace.Limit{Addr: at, Word: 8, Ring: true}, map[uint64]string{at: string(words(0x7800)), 0x7800: spec(2, 3)}, 2e9 + 3},
		{"a ring's that is none", ptrace.Limit{Addr: at, Word: 8, Ring: true}, map[uint64]string{at: string(words(0)), 0: spec(2, 3)}, 0},
		{"that cannot be read", ptrace.Limit{Addr: at, Word: 8, Ring: true}, map[uint64]string{at: string(words(0x7800))[:7], 0x7800: spec(2, 3)}, 0},
		{"nor what it leads to", ptrace.Limit{Addr: at, Word: 8, Ring: true}, map[uint64]string{at: string(words(0x7800)), 0x7800: spec(2, 3)[:15]}, 0},
	} {
		opened, closed, fd := 0, 0, 0
		pagemap := func() (int, func()) {
			opened++
			return fd, func() { closed++ }
		}
		k := &machine{t: t, words: tt.memory, present: func(uint64) bool { return true }}
		l, b := tt.limit, new(Buffer)
		if got := limit(k, 7, &l, b, pagemap); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
		if want := min(1, l.Addr); opened != int(want) || closed != opened {
			t.Errorf("%s: the pagemap is opened %d times, closed %d", tt.name, opened, closed)
		}
		k.present = func(page uint64) bool { return page != at/pageBytes }
		if got := limit(k, 7, &l, b, pagemap); l.Addr != 0 && got != 0 {
			t.Errorf("%s: %d, and its page is not in memory", tt.name, got)
		}
		if fd = -1; limit(k, 7, &l, b, pagemap) != tt.want {
			t.Errorf("%s: not the same without a pagemap", tt.name)
		}
	}
}

// marked is a mark of a wait that has begun with these registers.
func marked(note string, at place, begun, due int64) *Mark {
	m := &Mark{place: at, begun: begun, Due: due}
	m.n = copy(m.note[:], note)
	return m
}

// TestOver: when a wait that has begun anew is over.
func TestOver(t *testing.T) {
	for _, tt := range []struct {
		name       string
		mark       *Mark
		now, limit int64
		over       bool
		due        int64 // 0: it is not watched
	}{
		{"the first time", new(Mark), 1000, 50, false, 1050},
		{"again", marked("regs", past, 980, 1030), 1000, 50, false, 1030},
		{"just before its end", marked("regs", past, 951, 1001), 1000, 50, false, 1001},
		{"at its end", marked("regs", past, 950, 1000), 1000, 50, true, 0},
		{"behind it", marked("regs", past, 1, 51), 1000, 50, true, 0},
		{"with another limit", marked("regs", past, 950, 1000), 1000, 60, false, 1010},
		{"with other registers", marked("other", past, 950, 1000), 1000, 50, false, 1050},
		{"it was not taken out of it", marked("regs", within, 950, 1000), 1000, 50, false, 1050},
		{"nor has it come to it", marked("regs", before, 950, 1000), 1000, 50, false, 1050},
		{"no limit", marked("regs", past, 1, 51), 1000, 0, false, 0},
		{"for ever", marked("regs", past, 1, 51), 1000, -1, false, 0},
		{"for a nanosecond", new(Mark), 1000, 1, false, 1001},
	} {
		m := tt.mark
		if got := m.over(tt.now, []byte("regs"), tt.limit); got != tt.over || m.Due != tt.due {
			t.Errorf("%s: over %t, due at %d; want %t, %d", tt.name, got, m.Due, tt.over, tt.due)
		}
		if m.Watched() != (tt.due > 0) || m.Waits() || m.Interrupted() {
			t.Errorf("%s: watched %t, waits %t, interrupted %t", tt.name, m.Watched(), m.Waits(), m.Interrupted())
		}
	}
}

// TestPlaces: what is told of a thread by how far it is with its wait.
func TestPlaces(t *testing.T) {
	for _, tt := range []struct {
		m                           *Mark
		watched, waits, interrupted bool
	}{
		{new(Mark), false, false, false},
		{&Mark{place: within}, false, false, false},
		{&Mark{place: past}, false, false, false},
		{marked("r", before, 1, 2), true, false, false},
		{marked("r", within, 1, 2), true, true, false},
		{marked("r", past, 1, 2), false, false, true},
	} {
		if w, i, p := tt.m.Watched(), tt.m.Waits(), tt.m.Interrupted(); w != tt.watched || i != tt.waits || p != tt.interrupted {
			t.Errorf("%d bytes at %d: watched %t, waits %t, interrupted %t", tt.m.n, tt.m.place, w, i, p)
		}
		if tt.m.Leave(); tt.m.Watched() || tt.m.Waits() || tt.m.Interrupted() || tt.m.Due != 0 {
			t.Errorf("left: %+v", tt.m)
		}
	}
}

// TestAgainFor: a stop once more before the wait goes on is the same for us and for a signal without effect.
func TestAgainFor(t *testing.T) {
	const status = "\nSigIgn:\t0000000000000200\nSigCgt:\t0\n" // SIGUSR1
	for _, tt := range []struct {
		name   string
		mark   *Mark
		by     int
		status string
		want   bool
	}{
		{"for us", marked("regs", before, 1, 2), OwnStop, "", true},
		{"a signal that is ignored", marked("regs", before, 1, 2), int(unix.SIGUSR1), status, true},
		{"one that is not", marked("regs", before, 1, 2), int(unix.SIGUSR2), status, false},
		{"nobody knows", marked("regs", before, 1, 2), int(unix.SIGUSR1), "", false},
		{"it stops with its process", marked("regs", before, 1, 2), OtherStop, status, false},
		{"with other registers", marked("other", before, 1, 2), OwnStop, status, false},
		{"it waits already", marked("regs", within, 1, 2), OwnStop, status, false},
		{"no wait", new(Mark), OwnStop, status, false},
		{"a status that is cut", marked("regs", before, 1, 2), int(unix.SIGUSR1), status + fmt.Sprintf("%4096d", 1), false},
	} {
		if got := tt.mark.again(&machine{t: t, status: tt.status}, 7, []byte("regs"), tt.by, new(Buffer)); got != tt.want {
			t.Errorf("%s: %t, want %t", tt.name, got, tt.want)
		}
	}
}

// TestIgnored: which signals have no effect, by the sets of those that are ignored and handled (signal(7)).
func TestIgnored(t *testing.T) {
	const none, ign, cgt = "\nSigIgn:\t0\nSigCgt:\t0\n", "\nSigIgn:\tffffffffffffffff\nSigCgt:\t0\n", "\nSigIgn:\t0\nSigCgt:\tffffffffffffffff\n"
	byDefault := []unix.Signal{unix.SIGCHLD, unix.SIGCONT, unix.SIGURG, unix.SIGWINCH}
	for sig := 1; sig <= 64; sig++ {
		silent := false
		for _, s := range byDefault {
			silent = silent || int(s) == sig
		}
		if a, b, c, d := ignored([]byte(none), sig), ignored([]byte(ign), sig), ignored([]byte(cgt), sig), ignored(nil, sig); a != silent || !b || c || d {
			t.Errorf("signal %d: ignored %t by default, %t if it is to be, %t if it is handled, %t if nobody knows", sig, a, b, c, d)
		}
		one := fmt.Appendf(nil, "\nSigIgn:\t%016x\nSigCgt:\t%016x\n", uint64(1)<<(sig-1), ^uint64(0))
		for other := max(1, sig-1); other <= min(64, sig+1); other++ {
			if ignored(one, other) != (other == sig) {
				t.Errorf("signal %d where %d is ignored: %t", other, sig, other != sig)
			}
		}
	}
}

// TestBehind: where the text behind a key is.
func TestBehind(t *testing.T) {
	for text, want := range map[string]int{"\nab:x": 4, "x\nab:x": 5, "\nab:": 4, "\nab": 3, "": 0, "\n\nab:\nab:": 5, "\nac:\nab:1": 8} {
		if got := behind([]byte(text), "\nab:"); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
