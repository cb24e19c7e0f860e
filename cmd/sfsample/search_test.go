package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// searching is a run of sfsample that writes samples as they come.
type searching struct {
	*running
	met  sync.Map // process ids in the output
	read chan struct{}
}

func beginSearch(t testing.TB, args ...string) *searching {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := tool(append([]string{"-hz", "199", "--max-overhead", "100", "-o", "json=-"}, args...)...)
	cmd.Stdout = w
	s := &searching{running: begin(t, cmd), read: make(chan struct{})}
	w.Close()
	go func() {
		defer close(s.read)
		defer r.Close()
		for lines := bufio.NewScanner(r); lines.Scan(); {
			var x struct{ PID int }
			if json.Unmarshal(lines.Bytes(), &x) == nil {
				s.met.Store(x.PID, true)
			}
		}
	}()
	return s
}

// seen tells whether a process is in the output.
func (s *searching) seen(p *proc) bool {
	_, ok := s.met.Load(p.pid)
	return ok
}

// TestSearch: processes that take a name while sfsample runs are sampled, one after the other has ended, and the
// run goes on in between. What bears no such name is not sampled.
func TestSearch(t *testing.T) {
	name := fmt.Sprintf("s-%d", os.Getpid())
	run := beginSearch(t, "--name", name+"*")
	for _, suffix := range []string{"a", "b"} {
		other, one := startTarget(t, "obey"), startTarget(t, "obey")
		one.named(t, name+suffix)
		for !run.seen(one) {
			one.worked(t, 1)
			other.worked(t, 1)
		}
		if run.seen(other) {
			t.Error("a process of another name is sampled")
		}
		one.send(t, "exit")
		one.status(t)
	}
	run.interrupt(t)
	<-run.read
	o := run.end(t)
	o.want(t, exitDone, " samples")
	if strings.Contains(o.stderr, "do not add up") {
		t.Error(o.stderr)
	}
}

// TestSearchNobody: that there is nobody yet is said, and no error.
func TestSearchNobody(t *testing.T) {
	sfsample(t, "--name", "nobody has this name", "-d", "0.1").want(t, exitDone, "there is no process of --name nobody has this name")
}

// named has the target take a name.
func (p *proc) named(t testing.TB, name string) {
	t.Helper()
	p.send(t, "name "+name)
	if got := p.line(t); got != "named" {
		t.Fatalf("the target says %q, want named", got)
	}
}

// TestSearchEnds: a tree that is over ends the run.
func TestSearchEnds(t *testing.T) {
	p := startTarget(t, "obey")
	run := beginSearch(t, "--tree", "-p", fmt.Sprint(p.pid))
	for !run.seen(p) {
		p.worked(t, 1)
	}
	p.send(t, "exit")
	p.status(t)
	run.end(t).want(t, exitDone, " samples")
}

// TestSearchNotPermitted: when none of those that were found may be traced, that is an error at once.
func TestSearchNotPermitted(t *testing.T) {
	var name string
	cmd := tool()
	cmd.Dir = "/"
	if os.Geteuid() == 0 {
		p := startTarget(t, "obey")
		name = fmt.Sprintf("p-%d", os.Getpid())
		p.named(t, name)
		defer p.untouched(t)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody}
	} else {
		comm, err := os.ReadFile("/proc/1/comm")
		if err != nil {
			t.Fatal(err)
		}
		name = strings.TrimSpace(string(comm))
	}
	cmd.Args = append(cmd.Args, "--user", "0", "--name", name)
	begin(t, cmd).end(t).want(t, exitFailed, "attach ", "try: run as root)")
}
