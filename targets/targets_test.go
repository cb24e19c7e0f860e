package targets

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sfsample/internal/testprog"
	"sfsample/ptrace/procfs"
)

func TestMain(m *testing.M) {
	if os.Args[0] == "targets-child" { // says hello, ends when told to
		fmt.Println("ready")
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// world is a /proc of processes: number, parent, start, name, group, flags.
type world struct {
	t    *testing.T
	root string
}

func newWorld(t *testing.T) world { return world{t, t.TempDir()} }

func (w world) add(pid, ppid, start int, comm, exe, group string, flags int) {
	dir := filepath.Join(w.root, fmt.Sprint(pid))
	os.RemoveAll(dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		w.t.Fatal(err)
	}
	stat := fmt.Sprintf("%d (%s) S %d 1 1 0 -1 %d 0 0 0 0 1 1 0 0 20 0 1 0 %d 1 1%s\n", pid, comm, ppid, flags, start, strings.Repeat(" 0", 30))
	for name, text := range map[string]string{"stat": stat, "cgroup": "1:cpu:/old\n0::" + group + "\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := os.Symlink(exe, filepath.Join(dir, "exe")); err != nil {
		w.t.Fatal(err)
	}
}

// owned makes uid the effective user of a process; the others of its ids are 0.
func (w world) owned(pid, uid int) {
	text := fmt.Sprintf("Name:\tx\nState:\tS (sleeping)\nTgid:\t%d\nPid:\t%d\nUid:\t0\t%d\t0\t0\n", pid, pid, uid)
	if err := os.WriteFile(filepath.Join(w.root, fmt.Sprint(pid), "status"), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w world) remove(pid int) { os.RemoveAll(filepath.Join(w.root, fmt.Sprint(pid))) }

func (w world) fs() procfs.FS { return procfs.FS{Root: w.root} }

func pids(list []Process) (ids []int) {
	for _, p := range list {
		ids = append(ids, p.PID)
	}
	return ids
}

const containerID = "0123456789abcdef0123456789abcdef"

func TestFind(t *testing.T) {
	w := newWorld(t)
	w.add(1, 0, 1, "init", "/sbin/init", "/", 0)
	w.add(2, 0, 1, "kthreadd", "none", "/", procfs.FlagKThread)
	w.add(10, 1, 5, "web", "/usr/bin/web-server", "/system.slice/web.service", 0)
	w.add(11, 10, 6, "worker-1", "/usr/bin/web-server", "/system.slice/web.service/pool", 0)
	w.add(12, 11, 7, "sh", "/bin/sh", "/user", 0)
	w.owned(11, 33)
	w.owned(12, 33)
	w.add(13, 1, 8, "worker-1", "/usr/bin/other", "/docker/"+containerID, 0)
	w.add(14, 1, 9, "a) R (b", "/x", "/system.slice/cri-containerd-"+containerID+".scope", 0)
	for _, tt := range []struct {
		name string
		sel  Selector
		want []int
	}{
		{"pid", Selector{PIDs: []int{12, 99}}, []int{12}},
		{"tree", Selector{PIDs: []int{10}, Tree: true}, []int{10, 11, 12}},
		{"tree of all", Selector{PIDs: []int{1}, Tree: true}, []int{1, 10, 11, 12, 13, 14}},
		{"name", Selector{Names: []string{"worker-1"}}, []int{11, 13}},
		{"executable", Selector{Names: []string{"web-server"}}, []int{10, 11}},
		{"pattern", Selector{Names: []string{"w*"}}, []int{10, 11, 13}},
		{"a name that looks like stat", Selector{Names: []string{"a) R (b"}}, []int{14}},
		{"the kernel's are not meant", Selector{Names: []string{"k*"}}, nil},
		{"group", Selector{Cgroups: []string{"/system.slice/web.service"}}, []int{10, 11}},
		{"unit", Selector{Cgroups: []string{"web"}}, []int{10, 11}},
		{"container", Selector{Cgroups: []string{containerID[:12]}}, []int{13, 14}},
		{"short id", Selector{Cgroups: []string{containerID[:11]}}, nil},
		{"a number and a name", Selector{PIDs: []int{1}, Names: []string{"sh"}}, []int{1, 12}},
		{"one of two names", Selector{Names: []string{"sh", "init"}}, []int{1, 12}},
		{"name and group", Selector{Names: []string{"worker-1"}, Cgroups: []string{"web"}}, []int{11}},
		{"user", Selector{Users: []uint32{33}}, []int{11, 12}},
		{"user and name", Selector{Users: []uint32{33, 34}, Names: []string{"sh"}}, []int{12}},
		{"name and its tree", Selector{Names: []string{"web"}, Tree: true}, []int{10, 11, 12}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.sel.Find(w.fs())
			if err != nil || !slices.Equal(pids(got), tt.want) {
				t.Errorf("found %v, %v; want %v", pids(got), err, tt.want)
			}
		})
	}
}

// TestCircle: parents that form a circle, as a /proc read in pieces may show, end.
func TestCircle(t *testing.T) {
	w := newWorld(t)
	w.add(10, 11, 1, "a", "/a", "/", 0)
	w.add(11, 10, 1, "b", "/b", "/", 0)
	s := Selector{PIDs: []int{10}, Tree: true}
	if got, err := s.Find(w.fs()); err != nil || !slices.Equal(pids(got), []int{10, 11}) {
		t.Errorf("found %v, %v", got, err)
	}
}

func TestCheck(t *testing.T) {
	for _, s := range []Selector{{Names: []string{"["}}, {Names: []string{""}}, {Cgroups: []string{""}}} {
		if s.Check() == nil {
			t.Errorf("%+v passes", s)
		}
	}
	if err := (&Selector{Names: []string{"a*[b-c]?"}, Cgroups: []string{"/"}}).Check(); err != nil {
		t.Error(err)
	}
}

// TestComeAndGo: who comes, goes, and comes again under the same number.
func TestComeAndGo(t *testing.T) {
	w := newWorld(t)
	w.add(10, 1, 5, "web", "/web", "/", 0)
	set := Set{Selector: Selector{Names: []string{"web"}, Tree: true}, FS: w.fs()}
	step := func(what string, wantNow, wantCame, wantGone []int) {
		t.Helper()
		now, came, gone, err := set.Refresh()
		if err != nil || !slices.Equal(pids(now), wantNow) || !slices.Equal(pids(came), wantCame) || !slices.Equal(pids(gone), wantGone) {
			t.Errorf("%s: now %v, came %v, gone %v, %v; want %v, %v, %v", what, now, came, gone, err, wantNow, wantCame, wantGone)
		}
	}
	step("first", []int{10}, []int{10}, nil)
	w.add(11, 10, 6, "child", "/child", "/", 0)
	step("a child", []int{10, 11}, []int{11}, nil)
	w.add(11, 1, 9, "other", "/other", "/", 0)
	step("another process has its number", []int{10}, nil, []int{11})
	w.add(11, 10, 9, "child", "/child", "/", 0)
	step("and is its child", []int{10, 11}, []int{11}, nil)
	w.add(11, 10, 12, "child", "/child", "/", 0)
	step("another again", []int{10, 11}, []int{11}, []int{11})
	w.remove(10)
	step("the parent goes", nil, nil, []int{10, 11})
}

// TestKeep: who was found stays until its end, and its descendants with it.
func TestKeep(t *testing.T) {
	w := newWorld(t)
	w.add(10, 1, 5, "web", "/web", "/", 0)
	set := Set{Selector: Selector{Names: []string{"web"}, Tree: true}, FS: w.fs(), Keep: true}
	step := func(what string, want ...int) {
		t.Helper()
		if now, _, _, err := set.Refresh(); err != nil || !slices.Equal(pids(now), want) {
			t.Errorf("%s: %v, %v; want %v", what, pids(now), err, want)
		}
	}
	step("first", 10)
	w.add(10, 1, 5, "renamed", "/other", "/", 0)
	w.add(11, 10, 6, "child", "/child", "/", 0)
	step("another name, and a child", 10, 11)
	w.remove(10)
	w.add(11, 1, 6, "child", "/child", "/", 0)
	w.add(12, 11, 7, "grandchild", "/child", "/", 0)
	step("the parent has ended", 11, 12)
	w.add(11, 1, 9, "stranger", "/child", "/", 0)
	w.add(12, 1, 7, "grandchild", "/child", "/", 0)
	step("a stranger has the child's number", 12)
}

// TestFollow: who comes is sent, and the end of the last one ends it where nobody else can come.
func TestFollow(t *testing.T) {
	w := newWorld(t)
	w.add(10, 1, 5, "web", "/web", "/", 0)
	set := &Set{Selector: Selector{PIDs: []int{10}, Tree: true}, FS: w.fs(), Keep: true}
	if _, _, _, err := set.Refresh(); err != nil {
		t.Fatal(err)
	}
	came := make(chan []Process)
	go set.Follow(t.Context(), came, func(err error) { t.Error(err) })
	w.add(11, 10, 6, "child", "/child", "/", 0)
	if got := <-came; !slices.Equal(pids(got), []int{11}) {
		t.Errorf("%v came, want 11", got)
	}
	w.remove(10)
	w.remove(11)
	if got, open := <-came; open {
		t.Errorf("%v came after the end of all", got)
	}
}

// TestFollowEnds: with a name it goes on when nobody is there, until it is told.
func TestFollowEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := newWorld(t)
	set := &Set{Selector: Selector{Names: []string{"web"}}, FS: w.fs()}
	came := make(chan []Process)
	go set.Follow(ctx, came, func(err error) { t.Error(err) })
	w.add(10, 1, 5, "web", "/web", "/", 0)
	if got := <-came; !slices.Equal(pids(got), []int{10}) {
		t.Errorf("%v came, want 10", got)
	}
	cancel()
	if got, open := <-came; open {
		t.Errorf("%v came after the end", got)
	}
}

// TestGap: looking takes a thousandth of the time, between bounds.
func TestGap(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		time.Microsecond: leastGap, 2 * time.Millisecond: 2 * time.Second, time.Second: mostGap,
	} {
		if got := new(Set).gap(took); got != want {
			t.Errorf("after a look of %v a gap of %v, want %v", took, got, want)
		}
	}
	if got := (&Set{Share: 0.01}).gap(50 * time.Millisecond); got != 5*time.Second {
		t.Errorf("after a look of 50 ms that may take a hundredth of the time a gap of %v", got)
	}
}

func TestUserID(t *testing.T) {
	words := map[string]uint32{"0": 0, "65534": 65534}
	if _, err := os.Stat("/etc/passwd"); err == nil {
		words["root"] = 0
	}
	for word, want := range words {
		if id, err := UserID(word); err != nil || id != want {
			t.Errorf("user %s is %d, %v; want %d", word, id, err, want)
		}
	}
	for _, word := range []string{"", "-1", "4294967296", "nobody-of-this-name"} {
		if id, err := UserID(word); err == nil {
			t.Errorf("user %q is %d", word, id)
		}
	}
}

// TestLive: real children come and go.
func TestLive(t *testing.T) {
	set := Set{Selector: Selector{PIDs: []int{os.Getpid()}, Tree: true}}
	if _, _, _, err := set.Refresh(); err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{"targets-child"}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	child := testprog.StartCmd(t, cmd)
	// This process itself is left out, and with it its tree: the child's own counts.
	set.Selector.PIDs = append(set.Selector.PIDs, cmd.Process.Pid)
	_, came, _, err := set.Refresh()
	if err != nil || !slices.Equal(pids(came), []int{cmd.Process.Pid}) {
		t.Errorf("came %v, %v; want %d", came, err, cmd.Process.Pid)
	}
	in.Close()
	child.Rest(t)
	_, _, gone, err := set.Refresh()
	if err != nil || !slices.Equal(gone, came) {
		t.Errorf("gone %v, %v; want %v", gone, err, came)
	}
}

// TestAgain: who could not be sampled comes again with the next looks, a few times; who was given by number is not another process that has the number later.
func TestAgain(t *testing.T) {
	w := newWorld(t)
	w.add(10, 1, 5, "web", "/usr/bin/web", "/", 0)
	w.add(20, 1, 6, "given", "/usr/bin/given", "/", 0)
	s := &Set{Selector: Selector{Names: []string{"web"}, PIDs: []int{20}}, FS: w.fs(), Keep: true}
	look := func() string {
		t.Helper()
		_, came, _, err := s.Refresh()
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(came)
	}
	if got := look(); got != "[{10 5} {20 6}]" {
		t.Errorf("at first %s come", got)
	}
	for i := range maxTries + 2 {
		s.Again(10)
		want := "[{10 5}]"
		if i >= maxTries {
			want = "[]"
		}
		if got := look(); got != want {
			t.Errorf("after %d failures %s come, want %s", i+1, got, want)
		}
	}
	w.remove(20)
	look()
	w.add(20, 1, 9, "other", "/usr/bin/other", "/", 0)
	if got := look(); got != "[]" {
		t.Errorf("%s come, with a number that was given for another process", got)
	}
}
