package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/deliver"
	"sfsample/output"
	"sfsample/sampler"
)

// TestRounds: each round has a file of its own that is whole when it is there, in order, with as many samples as its line
// tells; a round that cannot be written is told of, and the next one is written.
func TestRounds(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	p := startTarget(t, "obey")
	cmd := tool("-hz", "199", "--every", "1", "--max-overhead", "100", "--threads", "all", "-o", out+"/x-%T.folded", "-p", fmt.Sprint(p.pid))
	stderr, err := os.Create(filepath.Join(dir, "stderr"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	cmd.Stderr = stderr
	run := begin(t, cmd)
	said := func() string {
		b, err := os.ReadFile(stderr.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	until := func(enough func(files []string) bool) (files []string) {
		for !enough(files) {
			p.worked(t, 2)
			files, _ = filepath.Glob(out + "/x-*.folded")
		}
		return files
	}
	until(func(files []string) bool { return len(files) >= 2 })
	if err := os.Rename(out, dir+"/away"); err != nil { // a round cannot be written
		t.Fatal(err)
	}
	for !strings.Contains(said(), "create its folder first") {
		p.worked(t, 2)
	}
	if err := os.Mkdir(out, 0o755); err != nil {
		t.Fatal(err)
	}
	until(func(files []string) bool { return len(files) >= 1 })
	run.interrupt(t)
	o := run.end(t)
	o.stderr = said()
	o.want(t, exitFailed, "create its folder first", "write rounds: ")
	line := regexp.MustCompile(`round (\S+): .* = (\d+) samples(?: \+ \d+ idle)?(?: \+ (\d+) reused)?(?: \+ (\d+) waiting)?`)
	written := 0
	for _, m := range line.FindAllStringSubmatch(o.stderr, -1) {
		b, err := os.ReadFile(out + "/x-" + m[1] + ".folded")
		if err != nil {
			b, err = os.ReadFile(dir + "/away/x-" + m[1] + ".folded")
		}
		if err != nil {
			continue
		}
		written++
		want, got := 0, 0
		for _, n := range m[2:] {
			k, _ := strconv.Atoi(n)
			want += k
		}
		for l := range strings.Lines(string(b)) {
			n, err := strconv.Atoi(strings.TrimSpace(l[strings.LastIndexByte(l, ' ')+1:]))
			if err != nil {
				t.Errorf("line %q: %v", l, err)
			}
			got += n
		}
		// A wait for a CPU that ends in the next round is shown there, on the stack that the thread has then.
		slack := 0
		if strings.Contains(o.stderr, " waiting for a CPU") {
			waits, _ := strconv.Atoi(m[len(m)-1])
			slack = 2 + want/50 + waits/4
		}
		if d := want - got; d > slack || -d > slack {
			t.Errorf("round %s: its file holds %d ticks, its line tells of %d: %s", m[1], got, want, m[0])
		}
	}
	if written < 3 {
		t.Errorf("%d rounds are written; standard error:\n%s", written, o.stderr)
	}
	if rest, _ := filepath.Glob(dir + "/*/*partial"); len(rest) > 0 {
		t.Errorf("left over: %v", rest)
	}
}

// TestRoundOfTheEnded: a target that ends during a round is the end of a run that has no other, and that round is written whole.
func TestRoundOfTheEnded(t *testing.T) {
	out := t.TempDir()
	p := startTarget(t, "obey")
	run := begin(t, tool("-hz", "199", "--every", "1", "--max-overhead", "100", "--threads", "all", "-o", out+"/x-%T.folded", "-p", fmt.Sprint(p.pid)))
	files := func() (names []string) {
		names, _ = filepath.Glob(out + "/*.folded") // whole ones
		return names
	}
	for len(files()) == 0 {
		p.worked(t, 2)
	}
	p.worked(t, 2)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	o := run.end(t)
	o.want(t, exitDone, "; 0 processes, ")
	told := regexp.MustCompile(`(?m)^sfsample: round (\S+): `).FindAllStringSubmatch(o.stderr, -1)
	if names := files(); len(told) < 2 || len(names) != len(told) {
		t.Errorf("%d rounds are told of, the files are %v; standard error:\n%s", len(told), names, o.stderr)
	}
	for _, m := range told {
		if _, err := os.Stat(out + "/x-" + m[1] + ".folded"); err != nil {
			t.Error(err)
		}
	}
}

// TestRoundTroubles: why rounds are not whole is told once, and when they are again; each counts.
func TestRoundTroubles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "away")
	var said []string
	spool, err := deliver.OpenQueue(filepath.Join(t.TempDir(), "q"), 100) // too small for a message
	if err != nil {
		t.Fatal(err)
	}
	about, err := newResources("", os.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	s := &sender{send: send{kind: sendOTLP}, to: "http://h", resources: about, queue: spool, opt: output.OTLPOptions{Resource: about.of}}
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s.begin(start)
	r := &rounds{specs: []output.Spec{{Format: "folded", File: dir + "/x-%T.folded"}}, sends: []*sender{s},
		say:   func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) },
		about: func(*sampler.Round) output.Run { return output.Run{} }, told: func(string, *sampler.Round) {}}
	round := func(sample bool) {
		t.Helper()
		if err := r.open(start); err != nil {
			r.failed(err)
		}
		if sample {
			s.add(&output.Sample{PID: os.Getpid(), Wall: time.Second, Stack: new(output.Stack)})
		}
		start = start.Add(time.Second)
		if err := r.EndRound(&sampler.Round{End: start, Last: true}); err != nil {
			t.Error(err)
		}
	}
	expect := func(lost int, want ...string) {
		t.Helper()
		if len(said) != len(want) || r.lost != lost {
			t.Fatalf("%d losses, want %d; %q", r.lost, lost, said)
		}
		for i := range want {
			if !strings.Contains(said[i], want[i]) {
				t.Errorf("%q, want %q", said[i], want[i])
			}
		}
		said = nil
	}
	round(false)
	round(false)
	expect(2, "x-20260102T030405.000Z.folded")
	round(true)
	expect(4, "otlp=http://h: a round is lost: spool ")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	round(true)
	expect(5)
	round(false)
	expect(5, "rounds are written whole again")
	round(false)
	expect(5)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	round(false)
	expect(6, "x-20260102T030411.000Z.folded")
}

// TestResourcesOfTheEnded: a process that has ended before its first sample is there is described as it was when it was found.
func TestResourcesOfTheEnded(t *testing.T) {
	r, err := newResources("", func(name string) string {
		return map[string]string{"OTEL_RESOURCE_ATTRIBUTES": "a=,b=c"}[name]
	})
	check(err)
	p := startTarget(t, "obey")
	r.found(p.pid)
	check(unix.Kill(p.pid, unix.SIGKILL))
	p.status(t)
	r.next()
	r.meet(p.pid)
	got := map[string]string{}
	for _, a := range r.of(p.pid, "short") {
		got[a.Key] = a.Text
	}
	if got["process.executable.path"] == "" || got["process.title"] != "short" || got["b"] != "c" {
		t.Errorf("%v", got)
	}
	if _, ok := got["a"]; ok {
		t.Error("an attribute without a value is told")
	}
	r.next()
	r.next()
	if got := len(r.known); got != 0 {
		t.Errorf("%d processes are known that were not met for a round", got)
	}
}
