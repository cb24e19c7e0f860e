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

// TestSearch: processes that take a name while sfsample runs are sampled, one after the other has ended, and the
// run goes on in between. What bears no such name is not sampled.
func TestSearch(t *testing.T) {
	name := fmt.Sprintf("s-%d", os.Getpid())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := tool("--name", name+"*", "-hz", "199", "--max-overhead", "100", "-o", "json=-")
	cmd.Stdout = w
	run := begin(t, cmd)
	w.Close()
	var met sync.Map // process ids in the output
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(r); lines.Scan(); {
			var s struct{ PID int }
			if json.Unmarshal(lines.Bytes(), &s) == nil {
				met.Store(s.PID, true)
			}
		}
	}()
	seen := func(p *proc) bool {
		_, ok := met.Load(p.pid)
		return ok
	}
	for _, suffix := range []string{"a", "b"} {
		other, one := startTarget(t, "obey"), startTarget(t, "obey")
		one.named(t, name+suffix)
		for !seen(one) {
			one.worked(t, 1)
			other.worked(t, 1)
		}
		if seen(other) {
			t.Error("a process of another name is sampled")
		}
		one.send(t, "exit")
		one.status(t)
	}
	run.interrupt(t)
	<-read
	o := run.end(t)
	o.want(t, exitDone, "there is no process of --name "+name, " samples")
	if strings.Contains(o.stderr, "do not add up") {
		t.Error(o.stderr)
	}
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
	run := begin(t, tool("--tree", "-hz", "199", "-p", fmt.Sprint(p.pid)))
	p.worked(t, 20)
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
