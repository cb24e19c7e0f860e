package procfs

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestScanners: what each cuts off, and where it stops.
func TestScanners(t *testing.T) {
	number := func(scan func([]byte) (uint64, []byte, bool)) func(string) string {
		return func(s string) string {
			n, rest, ok := scan([]byte(s))
			return fmt.Sprintf("%d %q %v", n, rest, ok)
		}
	}
	dec, hexa, pre := number(decimal), number(hex), number(prefixedHex)
	sign := func(s string) string {
		n, rest, ok := signed([]byte(s))
		return fmt.Sprintf("%d %q %v", n, rest, ok)
	}
	stat := func(s string) string {
		n, rest, ok := statNumber([]byte(s))
		return fmt.Sprintf("%d %q %v", int64(n), rest, ok)
	}
	for _, tt := range []struct {
		scan     func(string) string
		in, want string
	}{
		{dec, "0", `0 "" true`},
		{dec, "0129:", `129 ":" true`},
		{dec, "18446744073709551615 ", `18446744073709551615 " " true`},
		{dec, "18446744073709551616", `0 "18446744073709551616" false`},
		{dec, "20000000000000000000", `0 "20000000000000000000" false`},
		{dec, "", `0 "" false`},
		{dec, "/9", `0 "/9" false`},
		{dec, ":", `0 ":" false`},
		{sign, "-12x", `-12 "x" true`},
		{sign, "12-", `12 "-" true`},
		{sign, "9223372036854775807", `9223372036854775807 "" true`},
		{sign, "-9223372036854775807", `-9223372036854775807 "" true`},
		{sign, "9223372036854775808", `0 "9223372036854775808" false`},
		{sign, "-", `0 "-" false`},
		{sign, "", `0 "" false`},
		{stat, "-1 2", `-1 " 2" true`},
		{stat, "-", `0 "-" false`},
		{stat, "18446744073709551615", `-1 "" true`},
		{stat, "", `0 "" false`},
		{hexa, "00fFaA90:", `16755344 ":" true`}, // 0xffaa90
		{hexa, "ffffffffffffffff ", `18446744073709551615 " " true`},
		{hexa, "10000000000000000", `0 "10000000000000000" false`},
		{hexa, "g", `0 "g" false`},
		{hexa, "", `0 "" false`},
		{pre, "0x1f ", `31 " " true`},
		{pre, "0x", `0 "" false`},
		{pre, "0X1", `0 "0X1" false`},
		{pre, "1x1", `0 "1x1" false`},
		{pre, "0", `0 "0" false`},
		{pre, "", `0 "" false`},
	} {
		if got := tt.scan(tt.in); got != tt.want {
			t.Errorf("%q: %s, want %s", tt.in, got, tt.want)
		}
	}
	for c := range rune(256) {
		want, err := strconv.ParseUint(string(c), 16, 8)
		if got, ok := hexDigit(byte(c)); got != want || ok != (err == nil) {
			t.Errorf("digit %q: %d, %v; want %d, %v", c, got, ok, want, err)
		}
	}
	for _, s := range []string{"", "a", "a b", "ab\tc", "ab\nc", " a"} {
		w, rest := word([]byte(s))
		if i := strings.IndexAny(s+" ", " \t\n"); string(w) != s[:i] || string(rest) != s[i:] {
			t.Errorf("the first word of %q: %q, then %q", s, w, rest)
		}
		if got := spaces([]byte(" \t " + s)); string(got) != strings.TrimLeft(s, " \t") {
			t.Errorf("behind the blanks of %q: %q", s, got)
		}
	}
	if rest, ok := literal([]byte("ab"), 'a'); !ok || string(rest) != "b" {
		t.Errorf("literal: %q, %v", rest, ok)
	}
	for _, s := range []string{"", "b"} {
		if rest, ok := literal([]byte(s), 'a'); ok || string(rest) != s {
			t.Errorf("literal: %q, %v", rest, ok)
		}
	}
}

// TestNumberLimits: the largest value of each field is taken, and the next is not.
func TestNumberLimits(t *testing.T) {
	const stat = " (a) S 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"
	const status = "State:\tS\nTgid:\t1\nPid:\t2\nNSpid:"
	for _, tt := range []struct {
		name   string
		good   string
		bad    string
		parses func(string) error
	}{
		{"pid of stat", "2147483647", "2147483648", func(s string) error { _, err := ParseStat([]byte(s + stat)); return err }},
		{"run time", "9223372036854775807", "9223372036854775808", func(s string) error { _, err := ParseSchedstat([]byte(s + " 1 1")); return err }},
		{"wait time", "9223372036854775807", "9223372036854775808", func(s string) error { _, err := ParseSchedstat([]byte("1 " + s + " 1")); return err }},
		{"run count", "18446744073709551615", "18446744073709551616", func(s string) error { _, err := ParseSchedstat([]byte("1 1 " + s)); return err }},
		{"major", "ffffffff", "100000000", func(s string) error {
			_, err := ParseMaps([]byte("1000-2000 r-xp 00000000 " + s + ":0 0\n"))
			return err
		}},
		{"minor", "ffffffff", "100000000", func(s string) error {
			_, err := ParseMaps([]byte("1000-2000 r-xp 00000000 0:" + s + " 0\n"))
			return err
		}},
		{"id in a namespace", "2147483647", "2147483648", func(s string) error { _, err := ParseStatus([]byte(status + s)); return err }},
		{"namespaces", strings.Repeat("1 ", 33), strings.Repeat("1 ", 34), func(s string) error { _, err := ParseStatus([]byte(status + s)); return err }},
		{"name of a thread's folder", "2147483647", "2147483648", func(s string) error {
			if id, ok := taskID([]byte(s)); !ok || strconv.Itoa(id) != s {
				return fmt.Errorf("%d, %v", id, ok)
			}
			return nil
		}},
	} {
		if err := tt.parses(tt.good); err != nil {
			t.Errorf("%s: %s: %v", tt.name, tt.good, err)
		}
		if err := tt.parses(tt.bad); err == nil {
			t.Errorf("%s: %s was taken", tt.name, tt.bad)
		}
	}
	for _, s := range []string{"", "0", "-1", "1x", "x1", ".", ".."} {
		if id, ok := taskID([]byte(s)); ok {
			t.Errorf("folder %q is thread %d", s, id)
		}
	}
	// 292 years and the next hundredth of a second.
	if d := ticks(922337203685); d != 922337203685*10*time.Millisecond {
		t.Errorf("the longest time: %v", d)
	}
	if d := ticks(922337203686); d != 0 {
		t.Errorf("a longer one: %v", d)
	}
}

// TestAfterComm: the state is the letter behind the last parenthesis.
func TestAfterComm(t *testing.T) {
	for in, want := range map[string]byte{
		"1 (a) A": 'A', "1 (a) z 1": 'z', "(a) S": 'S', "1 () R": 'R', "1 ()) R": 'R',
		"1 (a) @": 0, "1 (a) {": 0, "1 (a)S": 0, "1 (a) ": 0, "1 (a)": 0, "1 (a": 0, "1 a) S": 0, ") ( S": 0, "": 0,
	} {
		if _, got := afterComm([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestKernelStackBound: no more than 256 frames are believed, whatever follows.
func TestKernelStackBound(t *testing.T) {
	line := []byte("[<0>] f+0x1/0x2\n")
	for n, want := range map[int]int{255: 255, 256: 256, 257: 256, 300: 256} {
		text := bytes.Repeat(line, n)
		if n > 256 {
			text = append(text, "nonsense"...)
		}
		got, err := ParseStack(text)
		if len(got) != want || err != nil {
			t.Errorf("%d frames: %d, %v; want %d", n, len(got), err, want)
		}
	}
}

func TestPermsString(t *testing.T) {
	for p, want := range map[Perms]string{
		0: "---p", Read: "r--p", Write: "-w-p", Exec: "--xp", Shared: "---s",
		Read | Write: "rw-p", Read | Exec: "r-xp", Read | Write | Exec | Shared: "rwxs",
	} {
		if got := p.String(); got != want {
			t.Errorf("%#x is %q, want %q", uint8(p), got, want)
		}
	}
}
