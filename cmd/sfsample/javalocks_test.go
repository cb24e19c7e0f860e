package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sfsample/internal/testprog"
)

// TestJavaLocks: what a dump says of Java's monitors and locks is what the machine itself says (java.lang.management): what each thread waits for, who has
// that, and which threads are deadlocked. No thread is stopped for it.
func TestJavaLocks(t *testing.T) {
	classes := testprog.JavaClasses(t, "stuck/Locks.java")
	for _, java := range testprog.Javas(t) {
		for options, objects := range map[string]bool{"": true, "-Xint -XX:+UseSerialGC": true, "-XX:+UseParallelGC -XX:-UseCompressedOops": true,
			"-XX:+UnlockExperimentalVMOptions -XX:+UseCompactObjectHeaders": true, "-XX:+UseZGC": false} {
			t.Run(testprog.JavaVersion(java)+"/"+options, func(t *testing.T) {
				p := startJavaLocks(t, java, classes, options, "stuck")
				var wrong []string
				for end := time.Now().Add(testprog.Patience); time.Now().Before(end); {
					d := dumpedJSON(t, "-p", strconv.Itoa(p.PID))
					if wrong = disagreeJava(t, &d, p.Lines, objects); len(wrong) == 0 {
						return
					}
				}
				t.Errorf("%s\nthe program said:\n%s\nthe dump:\n%s", strings.Join(wrong, "\n"), strings.Join(p.Lines, "\n"), sfsample(t, "dump", "-p", strconv.Itoa(p.PID)).stdout)
			})
		}
	}
}

// startJavaLocks starts testdata/stuck/Locks.java.
func startJavaLocks(t *testing.T, java, classes, options string, args ...string) *testprog.Proc {
	t.Helper()
	list := append([]string{"-Xmx64m", "-XX:+IgnoreUnrecognizedVMOptions", "-XX:+DisplayVMOutputToStderr", "-cp", classes}, strings.Fields(options)...)
	return startStuck(t, exec.Command(java, slices.Concat(list, []string{"Locks"}, args)...))
}

// disagreeJava compares a dump with the program's lines, see Locks.java. objects: those can be read, as is needed for the rest but owners of monitors, and for some of these.
func disagreeJava(t *testing.T, d *jsonDump, lines []string, objects bool) (wrong []string) {
	t.Helper()
	byName := map[string]*jsonThread{}
	for i := range d.Threads {
		byName[d.Threads[i].Task.Name] = &d.Threads[i]
	}
	dead, found := map[string]bool{}, map[string]bool{}
	monitors := 0
	for _, line := range lines {
		f := strings.Fields(line)
		if f[0] == "dead" {
			for _, name := range f[1:] {
				dead[name] = true
			}
			continue
		}
		name, owner, class := f[1], f[2], f[3]
		th := byName[name]
		if th == nil || th.Call.Wait == nil {
			wrong = append(wrong, fmt.Sprintf("%s: %+v", line, th))
			continue
		}
		w := th.Call.Wait
		monitor := strings.Contains(w.Text, "Java monitor")
		ok := class == "-" || strings.Contains(w.Text, class)
		named := len(w.On) == 1 && w.On[0].How == "holds" && w.On[0].Name == owner && w.Lock != ""
		switch closed := strings.Contains(w.Unknown, "serial, parallel and G1 collectors only"); {
		case !objects && monitor: // from 21 on an owner may be told by objects alone
			ok = named || closed
		case !objects:
			ok = len(w.On) == 0 && (closed || !strings.Contains(w.Text, "park"))
		case owner != "-":
			ok = ok && named && w.Timed == (name == "tries")
		default:
			ok = ok && len(w.On) == 0 && (w.Unknown != "" || class == "-")
		}
		if monitor {
			monitors++
		}
		if !ok || th.Stack.Taken != "no stop" {
			wrong = append(wrong, fmt.Sprintf("%s: %+v, taken by %q", line, *w, th.Stack.Taken))
		}
	}
	for _, c := range d.Cycles {
		for _, tid := range c.TIDs {
			name := d.thread(tid).Task.Name
			if found[name] = true; !dead[name] || !c.Deadlock {
				t.Fatalf("%s is in no deadlock, says the machine:\n%s", name, strings.Join(c.Proof, "\n"))
			}
		}
	}
	if objects && len(found) != len(dead) || len(dead) < 7 || monitors < 4 {
		wrong = append(wrong, fmt.Sprintf("%d of %d threads are deadlocked; %d wait for monitors", len(found), len(dead), monitors))
	}
	return wrong
}

// TestNoFalseDeadlockJava: Java's threads lock hard, never deadlock, and have their garbage collected. SFSAMPLE_TEST_LONG is how many tens of dumps to make.
func TestNoFalseDeadlockJava(t *testing.T) {
	classes := testprog.JavaClasses(t, "stuck/Locks.java")
	for _, java := range testprog.Javas(t) {
		for _, collector := range []string{"Serial", "Parallel", "G1"} {
			t.Run(filepath.Join(testprog.JavaVersion(java), collector), func(t *testing.T) {
				p := startJavaLocks(t, java, classes, "-XX:+Use"+collector+"GC", "hard", "20")
				monitors, locks := 0, 0
				for n := 0; n < 10*long() || (monitors == 0 || locks == 0) && n < 60; n++ {
					d := dumpedJSON(t, "-p", strconv.Itoa(p.PID))
					for _, c := range d.Cycles {
						t.Fatalf("a deadlock that there is not:\n%s", strings.Join(c.Proof, "\n"))
					}
					for _, th := range d.Threads {
						switch w := th.Call.Wait; {
						case w == nil || len(w.On) == 0:
						case strings.Contains(w.Text, "Java monitor"):
							monitors++
						case strings.Contains(w.Text, "java.util.concurrent.locks."):
							locks++
						}
					}
				}
				t.Logf("%d owners of monitors and %d of locks were the same in both looks", monitors, locks)
				if monitors == 0 || locks == 0 {
					t.Errorf("%d owners of monitors were ever told, %d of locks", monitors, locks)
				}
			})
		}
	}
}
