package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// attack is one kind of target.
type attack struct {
	name   string
	source string   // in src
	args   []string // of the program
	asks   []string // flags of sfsample that it is about
	// signal: the program changes what it is when it reads a line, while it is
	// sampled. A command of sfsample's own does so by itself, half-way through its
	// last argument, in seconds.
	signal bool
	least  time.Duration // what a run takes to show anything
	hz     int           // the rate that it is about, 0: any
	alone  bool          // its times are compared with those of a run that nobody samples
	fails  bool          // sfsample may fail with a reason, in the mode that it is about if there is one: the target may end, or be another's
	heavy  bool          // not in the short form: it takes seconds
	root   bool          // only root can make it
	mounts bool          // root mounts something for it, and the program then becomes another user's by itself
	ctrlC  bool          // a second run is ended by Ctrl-C: what hangs is not to hold it up
	about  string        // the mode that it is about, in which the short form has it too
	// prepares is how long the program may take before it says that it is ready.
	prepares time.Duration
}

// whole tells whether no call of the program may end early, or tell what was left of it, where the one who samples may read stacks in the kernel.
func whole(a *attack) bool { return a.source == "ipc.c" || strings.HasPrefix(a.name, "edges left") }

// mode is one way to use sfsample.
type mode struct {
	name    string
	flags   []string
	dump    bool // dumps in a row rather than one run
	command bool // sfsample starts the program
	eintr   bool // EINTR is what the user has asked for
	user    bool // sfsample and target are an ordinary user's, to whom the kernel opens fewer files of /proc
}

// here tells whether the one who calls can make an attack in a mode: for the user's own modes he has to
// change users, and what only root makes is not an ordinary user's.
func (m *mode) here(a *attack) bool {
	if os.Getuid() != 0 {
		return !m.user && !a.root
	}
	return !m.user || !a.root
}

// blocked tells whether stacks of blocked threads are read in a mode, or of a whole program from its beginning.
func blocked(m *mode) bool { return m.dump || m.command || slices.Contains(m.flags, "all") }

var modes = []mode{
	{name: "sample"},
	{name: "all", flags: []string{"--threads", "all"}},
	{name: "always", flags: []string{"--stop", "always", "--threads", "all"}},
	{name: "no-restart", flags: []string{"--no-restart"}, eintr: true},
	{name: "dump", dump: true},
	{name: "command", command: true},
	{name: "exit-stacks", flags: []string{"--exit-stacks"}},
	{name: "user", user: true},
	{name: "dump user", user: true, dump: true},
}

// inTurn is how many of the modes the short form takes in turn; the others are there for files that
// never come.
const inTurn = 7

// programs are the sources of kinds that need no more than a name.
var programs = []struct{ source, kinds string }{
	{"signals.c", "raise queue threads norestart ignored pending suspend signalfd altstack jump int3 step fault bus illegal timer timerfd itimer restart job ttin mask context"},
	{"procs.c", "fork vfork sigchld pidfd threads cancel sharer files exec execother reexec leader orphan abort kill exitall tracer traceme debugger dumpable identity affinity class fifo strict name namespace rseq"},
	{"ipc.c", "pipe socket waitall eventfd epoll cond pi robust waitv mq msg sem flock fifo inotify uring random burst prompt entropy zero tty fallocate populate"},
	{"memory.c", "fault gone protect unmap churn pivot many perfmap fifomap phdrs debugdata zlib frozen core"},
	{"edges.c", "ppoll pselect sticky left leftfixed vtime vmin events requeue"},
	{"procs.c", "inherit"},
	{"limits.c", "event cputime"},
	{"opens.c", "lease fanotify reads"},
	{"fuse.c", "overlay loop"},
	{"memory.c", "marker race"},
	{"memory.c", "longpaths"},
	{"procs.c", "deep"},
}

// details are what some of those need besides.
var details = map[string]attack{
	"signals pending":  {about: "exit-stacks"},
	"procs dumpable":   {fails: true},
	"procs identity":   {fails: true},
	"procs traceme":    {fails: true, about: "all"}, // it sleeps nearly all the time
	"memory core":      {fails: true},
	"procs fifo":       {root: true},
	"procs namespace":  {root: true},
	"procs inherit":    {least: 800 * time.Millisecond},
	"procs reexec":     {least: time.Second, about: "dump user"}, // one in ten dumps meets an exec
	"edges vtime":      {least: 300 * time.Millisecond},
	"limits event":     {least: 2500 * time.Millisecond, about: "exit-stacks"},
	"limits cputime":   {least: 2500 * time.Millisecond, about: "exit-stacks"},
	"memory gone":      {least: 300 * time.Millisecond}, // it goes while it is sampled
	"memory unmap":     {least: 300 * time.Millisecond},
	"memory marker":    {about: "dump"},
	"ipc random":       {about: "dump"},
	"ipc burst":        {least: 1200 * time.Millisecond, about: "sample"},
	"ipc prompt":       {root: true},
	"memory race":      {least: time.Second, fails: true},
	"memory many":      {heavy: true},
	"memory longpaths": {heavy: true, ctrlC: true, prepares: 20 * time.Second},
	"procs deep":       {heavy: true, ctrlC: true, prepares: 20 * time.Second},
	"memory perfmap":   {heavy: true},
	"memory debugdata": {heavy: true, prepares: 20 * time.Second},
	"memory zlib":      {heavy: true, prepares: 2 * time.Minute, asks: []string{"--inlines", "--lines"}},
	"memory frozen":    {least: time.Second, root: true, ctrlC: true}, // it is thawed for 3 ms of each 150
	"opens lease":      {root: true},
	"opens fanotify":   {root: true},
	"opens reads":      {root: true},
	"fuse overlay":     {mounts: true},
	"fuse loop":        {mounts: true, ctrlC: true, about: "dump"},
}

// attacks lists all kinds.
func attacks() (list []attack) {
	for _, action := range []string{"kill", "errno", "trap", "trace", "notify"} {
		for _, scope := range []string{"one", "all"} {
			for _, when := range []string{"before", "after"} {
				list = append(list, attack{
					name: "seccomp " + action + " " + scope + " " + when, source: "seccomp.c",
					args: []string{action, scope, when}, signal: when == "after",
				})
			}
		}
	}
	for _, what := range []string{"program", "library", "data", "stack", "replace", "exec"} {
		a := attack{name: "fuse " + what, source: "fuse.c", args: []string{what}, mounts: true, ctrlC: true}
		if what == "replace" { // before Linux 6.11 it breaks in some runs of ten: see module.Live
			a.least, a.heavy = 500*time.Millisecond, true
		}
		if what == "exec" { // with --exit-stacks nobody can be held who cannot be seized
			a.least, a.fails, a.about = 300*time.Millisecond, true, "exit-stacks"
		}
		list = append(list, a)
	}
	for _, hz := range []int{99, 999} {
		list = append(list, attack{name: fmt.Sprint("waits ", hz), source: "waits.c", least: 1500 * time.Millisecond, hz: hz, alone: true})
	}
	for _, kind := range []string{"unheard", "sandboxed"} {
		list = append(list, attack{name: "signals " + kind, source: "waits.c", args: []string{kind}, least: 2500 * time.Millisecond, about: "exit-stacks"})
	}
	for _, kind := range strings.Fields("epoll poll recv") {
		list = append(list, attack{name: "woken " + kind, source: "woken.c", args: []string{kind}, least: 2500 * time.Millisecond, root: true, alone: true, about: "sample"})
	}
	for _, p := range programs {
		for _, kind := range strings.Fields(p.kinds) {
			name := strings.TrimSuffix(p.source, ".c") + " " + kind
			a := details[name]
			a.name, a.source, a.args = name, p.source, []string{kind}
			list = append(list, a)
		}
	}
	return list
}

// short tells whether the short form, which is a test, has attack number i in mode
// number k: each is in one mode, those of a family in all in turn, and in the one that it is about; sandboxes, by
// which sampling has killed, in two, and silent file servers in an ordinary user's besides.
func short(a *attack, i, k int) bool {
	return !a.heavy && (k == i%inTurn || modes[k].name == a.about || a.source == "seccomp.c" && k == (i+1+i/inTurn)%inTurn || a.source == "fuse.c" && modes[k].user)
}
