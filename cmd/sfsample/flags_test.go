package main

import (
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"sfsample/output"
	"sfsample/unwind"
)

// defaults is the config of "-p 1".
func defaults() config {
	return config{
		who: choice{pids: []int{1}}, pace: pace{hz: 99, maxOverhead: 0.01}, out: outputs{specs: []output.Spec{{Format: "folded", File: "-"}}, by: output.ByProcess},
		sampling: sampling{threads: "running", weight: "cpu", stop: "auto"}, dumping: dumping{group: true},
		unwinding: unwinding{order: []unwind.How{unwind.SFrame, unwind.EHFrame, unwind.Code, unwind.FramePointer, unwind.BackChain}, maxDepth: 512, scripts: "on"},
		naming:    naming{demangle: "full"},
	}
}

var exportAll = cmp.Exporter(func(reflect.Type) bool { return true })

func TestParseArgs(t *testing.T) {
	for _, tc := range []struct {
		args string // separated by blanks
		want func(*config)
	}{
		{"-p 1", func(c *config) {}},
		{"--pid 1", func(c *config) {}},
		{"--pid=1", func(c *config) {}},
		{"-p=1", func(c *config) {}},
		{"-p1", func(c *config) {}},
		{"-p1,2", func(c *config) { c.who.pids = []int{1, 2} }},
		{"help", func(c *config) { *c = config{mode: modeHelp} }},
		{"-p 1,2 -p 3", func(c *config) { c.who.pids = []int{1, 2, 3} }},
		{"-p 1 -p 2 --pid=1", func(c *config) { c.who.pids = []int{1, 2} }},
		{"-t 5,6", func(c *config) { c.who.pids, c.who.tids = nil, []int{5, 6} }},
		{"--name web* --container 0123456789ab --user 0 -o x", func(c *config) {
			c.who.pids, c.who.names, c.who.cgroups, c.who.users = nil, []string{"web*"}, []string{"0123456789ab"}, []uint32{0}
			c.out.specs = []output.Spec{{Format: "folded", File: "x"}}
		}},
		{"-p 1 --every 1m -o pprof=x-%T", func(c *config) {
			c.pace.every, c.out.specs = time.Minute, []output.Spec{{Format: "pprof", File: "x-%T"}}
		}},
		{"-p 1 --tree", func(c *config) { c.who.tree, c.who.children = true, true }},
		{"-p 1 -t 5 --tid 6", func(c *config) { c.who.tids = []int{5, 6} }},

		{"-p 1 -hz 99", func(c *config) {}},
		{"-hz 250 -p 1", func(c *config) { c.pace.hz = 250 }},
		{"-hz=250 -p 1", func(c *config) { c.pace.hz = 250 }},
		{"--hz=250 -p 1", func(c *config) { c.pace.hz = 250 }},
		{"--hz 250 -p 1", func(c *config) { c.pace.hz = 250 }},
		{"-F 250 -p 1", func(c *config) { c.pace.hz = 250 }},
		{"-F250 -p 1", func(c *config) { c.pace.hz = 250 }},
		{"-F=250 -p 1", func(c *config) { c.pace.hz = 250 }},
		{"-hz 99 -p 1 -hz 9999", func(c *config) { c.pace.hz = 9999 }},

		{"-p 1 -d 10s", func(c *config) { c.pace.duration = 10 * time.Second }},
		{"-p 1 -d 10", func(c *config) { c.pace.duration = 10 * time.Second }},
		{"-p 1 -d10", func(c *config) { c.pace.duration = 10 * time.Second }},
		{"-p 1 -d0.5", func(c *config) { c.pace.duration = time.Second / 2 }},
		{"-p 1 -d .5", func(c *config) { c.pace.duration = time.Second / 2 }},
		{"-p 1 --duration=1m30s", func(c *config) { c.pace.duration = 90 * time.Second }},

		{"-p 1 -o x.svg.txt", func(c *config) { c.out.specs = []output.Spec{{Format: "folded", File: "x.svg.txt"}} }},
		{"-p 1 -o pprof=x -o -", func(c *config) {
			c.out.specs = []output.Spec{{Format: "pprof", File: "x"}, {Format: "folded", File: "-"}}
		}},
		{"-p 1 -o-", func(c *config) {}},
		{"-p 1 -o/tmp/x.pb.gz", func(c *config) { c.out.specs = []output.Spec{{Format: "pprof", File: "/tmp/x.pb.gz"}} }},
		{"-p 1 -o ./-hz", func(c *config) { c.out.specs = []output.Spec{{Format: "folded", File: "./-hz"}} }},
		{"-p 1 --output=-hz", func(c *config) { c.out.specs = []output.Spec{{Format: "folded", File: "-hz"}} }},

		{"-p 1 --threads all", func(c *config) { c.sampling.threads, c.sampling.weight = "all", "wall" }},
		{"-p 1 --threads all --weight cpu", func(c *config) { c.sampling.threads = "all" }},
		{"-p 1 --weight=wall", func(c *config) { c.sampling.weight = "wall" }},
		{"-p 1 --unwind sframe", func(c *config) { c.unwinding.order = []unwind.How{unwind.SFrame} }},
		{"-p 1 --unwind backchain,fp,eh_frame", func(c *config) {
			c.unwinding.order = []unwind.How{unwind.BackChain, unwind.FramePointer, unwind.EHFrame}
		}},
		{"-p 1 --stop never", func(c *config) { c.sampling.stop = "never" }},
		{"-p 1 --stop=always --no-restart", func(c *config) { c.sampling.stop, c.sampling.noRestart = "always", true }},
		{"-p 1 --max-depth 5000", func(c *config) { c.unwinding.maxDepth = 5000 }},
		{"-p 1 --max-overhead 5%", func(c *config) { c.pace.maxOverhead = 0.05 }},
		{"-p 1 --max-overhead=0.5", func(c *config) { c.pace.maxOverhead = 0.005 }},
		{"-p 1 --children --kernel --exit-stacks --verify --nice", func(c *config) {
			c.who.children, c.sampling.kernel, c.sampling.exitStacks, c.unwinding.verify, c.pace.nice = true, true, true, true, true
		}},
		{"-p 1 --threads all --waits", func(c *config) {
			c.sampling.threads, c.sampling.weight, c.sampling.waits = threadsAll, weightWall, true
		}},
		{"-p 1 --inlines --lines --demangle short --debuginfod", func(c *config) {
			c.naming.inlines, c.naming.lines, c.naming.demangle, c.naming.debuginfod = true, true, "short", true
		}},
		{"-p 1 --by thread", func(c *config) { c.out.by = output.ByThread }},
		{"-p 1 --by thread --by process", func(c *config) {}},
		{"-p 1 --record f.cap -q", func(c *config) { c.out.record, c.messages.quiet = "f.cap", true }},
		{"-p 1 -v", func(c *config) { c.messages.verbose = true }},
		{"-p 1 -vv", func(c *config) { c.messages.verbose = true }},

		{"-- cmd -hz 3", func(c *config) { c.who.pids, c.command, c.who.children = nil, []string{"cmd", "-hz", "3"}, true }},
		{"-hz 50 -- cmd -- -p 1", func(c *config) {
			c.who.pids, c.command, c.who.children, c.pace.hz = nil, []string{"cmd", "--", "-p", "1"}, true, 50
		}},
		{"--children=false -- cmd", func(c *config) { c.who.pids, c.command = nil, []string{"cmd"} }},
		{"-- dump", func(c *config) { c.who.pids, c.command, c.who.children = nil, []string{"dump"}, true }},

		{"top -p 1", func(c *config) { c.top, c.pace.every, c.out.specs = true, time.Second, nil }},
		{"top -p 1 --threads all --every 5", func(c *config) {
			c.top, c.pace.every, c.out.specs = true, 5*time.Second, nil
			c.sampling.threads, c.sampling.weight, c.sampling.waits = threadsAll, weightWall, true
		}},
		{"top -p 1 --threads all --waits=false", func(c *config) {
			c.top, c.pace.every, c.out.specs, c.sampling.threads, c.sampling.weight = true, time.Second, nil, threadsAll, weightWall
		}},
		{"top -- cmd", func(c *config) {
			c.top, c.pace.every, c.out.specs, c.who.pids, c.command, c.who.children = true, time.Second, nil, nil, []string{"cmd"}, true
		}},

		{"dump -p 1", func(c *config) { c.mode = modeDump }},
		{"-p 1 dump", func(c *config) { c.mode = modeDump }},
		{"--dump -p 1", func(c *config) { c.mode = modeDump }},
		{"dump -t 7 --group=false --kernel", func(c *config) {
			c.mode, c.who.pids, c.who.tids, c.dumping.group, c.sampling.kernel = modeDump, nil, []int{7}, false, true
		}},
		{"dump --name web* --name db --cgroup /a --tree --json --watch 3", func(c *config) {
			c.mode, c.who.pids, c.who.names, c.who.cgroups, c.who.tree = modeDump, nil, []string{"web*", "db"}, []string{"/a"}, true
			c.dumping.json, c.dumping.watch = true, 3*time.Second
		}},
		{"replay f.cap", func(c *config) { c.mode, c.who.pids, c.files = modeReplay, nil, []string{"f.cap"} }},
		{"replay dump -o x.pprof", func(c *config) {
			c.mode, c.who.pids, c.files, c.out.specs = modeReplay, nil, []string{"dump"}, []output.Spec{{Format: "pprof", File: "x.pprof"}}
		}},
		{"replay -", func(c *config) { c.mode, c.who.pids, c.files = modeReplay, nil, []string{"-"} }},

		{"--help", func(c *config) { *c = config{mode: modeHelp} }},
		{"-h", func(c *config) { *c = config{mode: modeHelp} }},
		{"dump --help", func(c *config) { *c = config{mode: modeHelp} }},
		{"--version", func(c *config) { *c = config{mode: modeVersion} }},
	} {
		t.Run(tc.args, func(t *testing.T) {
			want := defaults()
			tc.want(&want)
			got, err := parseArgs(strings.Fields(tc.args))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got, exportAll); d != "" {
				t.Errorf("-want +got:\n%s", d)
			}
		})
	}
}

func TestParseArgsErrors(t *testing.T) {
	for _, tc := range []struct {
		args string // separated by blanks; "''" is an empty word
		want string // part of the message
	}{
		{"", "no process given (try: sfsample -p PID"},
		{"-hz 99", "no process given"},
		{"-hz250 -p 1", "unknown flag -hz250 (write -hz 250)"},
		{"-hz2.5 -p 1", "unknown flag -hz2.5 (write -hz 2.5)"},
		{"-Hz 9 -p 1", "unknown flag -Hz (write -hz 9)"},
		{"-HZ=9 -p 1", "unknown flag -HZ=9 (write -hz 9)"},
		{"-p 1 -hz=", "-hz needs a value (try: -hz 99)"},
		{"-p 1 -hz", "-hz needs a value (try: -hz 99)"},
		{"-p 1 --hz=", "--hz needs a value (try: -hz 99)"},
		{"-p 1 -hz -1", "-hz -1: is no rate (a whole number of ticks a second, 1 to 100000: -hz 99)"},
		{"-p 1 -hz 0", "-hz 0: is no rate"},
		{"-p 1 -hz 1.5", "-hz 1.5: is no rate"},
		{"-p 1 -hz 1e9", "-hz 1e9: is no rate"},
		{"-p 1 -hz 1000000000", "-hz 1000000000: is no rate"},
		{"-p 1 -hz 99999999999999999999", "is no rate"},
		{"-p 1 -hz fast", "-hz fast: is no rate"},
		{"-p 1 -hz ''", "-hz needs a value"},
		{"-p 1 -hz -o x", "-hz needs a value, but -o follows (try: -hz 99)"},
		{"-p 1 -hz -- cmd", "-hz needs a value, but -- follows"},
		{"-p 1 -F", "-F needs a value (try: -hz 99)"},
		{"-duration 3 -p 1", "unknown flag -duration (write --duration 3)"},
		{"-duration=3 -p 1", "unknown flag -duration=3 (write --duration 3)"},
		{"-pid 3", "unknown flag -pid (write --pid 3)"},
		{"-kernel -p 1", "unknown flag -kernel (write --kernel)"},
		{"-help", "unknown flag -help (write --help)"},
		{"-dump -p 1", "unknown flag -dump (write --dump)"},
		{"-out x -p 1", "unknown flag -out (write --output x)"},
		{"-oout.svg -p 1", "unknown flag -oout.svg (write -o out.svg)"},
		{"-dfast -p 1", "unknown flag -dfast (write -d fast)"},
		{"-x -p 1", "unknown flag -x (sfsample --help lists them)"},
		{"-é -p 1", "unknown flag -é (sfsample --help lists them)"},
		{"-= -p 1", "unknown flag -= ("},
		{"--= -p 1", "unknown flag --= ("},
		{"--hz250 -p 1", "unknown flag --hz250 (write -hz 250)"},
		{"--Kernel -p 1", "unknown flag --Kernel (write --kernel)"},
		{"--maxdepth 3 -p 1", "unknown flag --maxdepth (write --max-depth 3)"},
		{"--ouput 3 -p 1", "unknown flag --ouput (write --output 3)"},
		{"--nonsense -p 1", "unknown flag --nonsense (sfsample --help lists them)"},
		{"--hexx 3 -p 1", "unknown flag --hexx (sfsample --help lists them)"}, // as far from help as from nothing
		{"---hz 3", "unknown flag ---hz ("},

		{"-p 1 -d 0", "-d 0: is no duration"},
		{"-p 1 -d -5", "is no duration"},
		{"-p 1 -d soon", "is no duration"},
		{"-p 1 -d 10x", "is no duration"},
		{"-p 1 -d 10s5", "is no duration"},
		{"-p 1 -d .", "is no duration"},
		{"-p 1 -d 1e3", "is no duration"},
		{"-p 1 -d 99999999999999", "is no duration"},
		{"-p 1 -d NaN", "is no duration"},

		{"-p 0", `-p 0: "0" is no process or thread id`},
		{"-p -1", "is no process or thread id"},
		{"-p 1,", `-p 1,: "" is no process or thread id`},
		{"-p x", `"x" is no process or thread id`},
		{"-p 4194305", "is no process or thread id"},
		{"-p 99999999999999999999", "is no process or thread id"},
		{"-p", "-p needs a value (try: -p PID[,PID...])"},
		{"-t x", "-t x:"},

		{"help foo", `help knows nothing of "foo" (try: sfsample help, or help man, bash, zsh, fish)`},
		{"sleep 10 -hz 3", "unexpected \"sleep\" (a command follows --: sfsample [flags] -- sleep 10 -hz 3)"},
		{"-p 1 sleep", "a command follows --"},
		{"1234", `unexpected "1234" (a process is given with -p: sfsample -p 1234)`},
		{"dump 1234", `unexpected "1234" (a process is given with -p: sfsample dump -p 1234)`},
		{"--", "no command after --"},
		{"-- ''", "no command after --"},
		{"-p 1 -- cmd", "give one of them"},
		{"dump", "no process given (try: sfsample dump -p PID)"},
		{"--dump", "no process given (try: sfsample dump -p PID)"},
		{"dump -- cmd", "a command cannot be started with dump"},
		{"dump -p 1 -hz 3", "-hz has no meaning with dump"},
		{"dump -p 1 -o x", "-o has no meaning with dump"},
		{"-p 1 --group", "--group has no meaning without dump"},
		{"-p 1 --json", "--json has no meaning without dump"},
		{"--tree", "no process given"},
		{"-p 1 --every 10 -o x.folded", "put %T into the name"},
		{"-p 1 -o x-%T.folded", "try: --every 10s"},
		{"-p 1 --every 0.5", "a round takes at least 1s"},
		{"-p 1 --every 5 --record x", "--record is one file"},
		{"dump -p 1 --every 5", "--every has no meaning with dump"},
		{"-t 1 --name x", "-t is for threads of single processes"},
		{"-p 1 --waits", "--waits is for blocked threads (give --threads all too)"},
		{"--name x --exit-stacks", "--exit-stacks is for processes given with -p"},
		{"--name x -- cmd", "give one of them"},
		{"--tree -- cmd", "give one of them"},
		{"--user nobody-of-this-name", "--user nobody-of-this-name: there is no user"},
		{"replay f --user 0", "--user has no meaning with replay"},
		{"dump -t 1 --tree", "-t is for threads of single processes"},
		{"dump --name [", `name "[": it is no pattern`},
		{"dump --tree", "no process given"},
		{"replay", "replay needs a file"},
		{"replay a b", `unexpected "b"`},
		{"replay f -p 1", "-p has no meaning with replay"},
		{"replay f -- cmd", "a command cannot be started with replay"},

		{"-p 1 -o", "-o needs a value"},
		{"-p 1 -o -hz 99", "-o needs a value, but -hz follows"},
		{"-p 1 -o nonsense=x", `unknown format "nonsense" (formats are folded, pprof`},
		{"-p 1 -o pprof=", "no file name after pprof="},
		{"-p 1 -o x -o pprof=x", "is written to twice"},
		{"-p 1 -o x -o pprof=./x", "is written to twice"},
		{"-p 1 -o a/../x --record x", "--record and -o both write x"},
		{"-p 1 -o - -o pprof=-", "is written to twice"},
		{"-p 1 -o x --record x", "--record and -o both write x"},
		{"-p 1 --threads some", "--threads some: is running or all"},
		{"-p 1 --weight heavy", "is cpu or wall"},
		{"-p 1 --stop maybe", "is auto or never or always"},
		{"-p 1 --unwind dwarf", `"dwarf" is no method (sframe, eh_frame, code, fp or backchain`},
		{"-p 1 --unwind regs", "is no method"},
		{"-p 1 --unwind fp,fp", "fp stands there twice"},
		{"-p 1 --unwind fp,", "is no method"},
		{"-p 1 --max-depth 0", "is no number of frames"},
		{"-p 1 --max-overhead 101", "is no percentage"},
		{"-p 1 --max-overhead nan", "is no percentage"},
		{"-p 1 --kernel=perhaps", "--kernel=perhaps: is a switch (write --kernel or --kernel=false)"},
		{"-p 1 --by user", "is process or pid or thread or state"},
		{"-p 1 -q -v", "contradict"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			args := strings.Fields(tc.args)
			for i := range args {
				if args[i] == "''" {
					args[i] = ""
				}
			}
			c, err := parseArgs(args)
			if err == nil {
				t.Fatalf("no error, but %+v", c)
			}
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got  %s\nwant %s", err, tc.want)
			}
		})
	}
}

// TestUselessOrder: methods that the machine has not are told at the start, with
// what it has.
func TestUselessOrder(t *testing.T) {
	useless, other := "backchain", "fp"
	if runtime.GOARCH == "s390x" {
		useless, other = other, useless
	}
	for _, mode := range []string{"-p 1", "dump -p 1"} {
		_, err := parseArgs(strings.Fields(mode + " --unwind " + useless))
		if err == nil || !strings.Contains(err.Error(), "(try: "+other+")") {
			t.Errorf("%s --unwind %s: %v, want a hint at %s", mode, useless, err, other)
		}
	}
	// A recording may come from another machine.
	c, err := parseArgs(strings.Fields("replay f --unwind " + useless))
	if err != nil {
		t.Errorf("replay --unwind %s: %v", useless, err)
	}
	for host, want := range map[string]bool{"amd64": false, "arm64": false, "s390x": true} {
		c.unwinding.order = []unwind.How{unwind.BackChain}
		if err := c.unwinding.checkOrder(host); (err == nil) != want {
			t.Errorf("back chain on %s: %v", host, err)
		}
	}
}

// TestHelpIsComplete holds the help text against the flags and the formats.
func TestHelpIsComplete(t *testing.T) {
	text := help()
	newFlags(new(config)).VisitAll(func(f *pflag.Flag) {
		want := "--" + f.Name + " "
		if f.Shorthand != "" && !strings.Contains(text, "-"+f.Shorthand+", ") {
			t.Errorf("the help lacks -%s", f.Shorthand)
		}
		if !strings.Contains(text, want) {
			t.Errorf("the help lacks %s", want)
		}
	})
	for _, name := range output.Formats() {
		if !strings.Contains(text, " "+name+" ") {
			t.Errorf("the help lacks the format %s", name)
		}
	}
	for i, line := range strings.Split(text, "\n") {
		if len(line) > 100 || strings.Contains(line, "%!") || strings.ContainsRune(line, '\t') {
			t.Errorf("line %d: %q", i+1, line)
		}
	}
	if v := versionText(); !strings.HasPrefix(v, "sfsample ") || strings.Count(v, "\n") != 1 {
		t.Errorf("the version is %q", v)
	}
}

// FuzzParseArgs requires that what follows "--" is never read, and that an
// accepted command line is a usable config.
func FuzzParseArgs(f *testing.F) {
	for _, s := range []string{"-p 1 -hz 99", "-hz=250 -p1,2 -d10", "-o x -o pprof=y -p 3 --unwind fp", "dump -p 1", "replay x", "-- cmd -hz 3", "-qv --hz250 -Hz"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		args := strings.Split(s, " ")
		c, err := parseArgs(args)
		with, errWith := parseArgs(append(args, "--", "cmd", "-hz", "0", "-p"))
		if errWith == nil && with.mode == modeSample && len(with.command) < 4 {
			t.Errorf("%q with a command: command is %q", args, with.command)
		}
		if err != nil {
			if c.mode != modeSample || c.pace.hz != 0 || strings.Contains(err.Error(), "pflag") {
				t.Errorf("%q: %v with %+v", args, err, c)
			}
			return
		}
		switch c.mode {
		case modeHelp, modeVersion:
			return
		case modeReplay:
			if len(c.files) != 1 || c.files[0] == "" {
				t.Errorf("%q: replay of no file", args)
			}
		default:
			if len(c.who.pids)+len(c.who.tids)+len(c.command) == 0 {
				t.Errorf("%q: nothing to look at", args)
			}
		}
		if c.pace.hz < 1 || c.pace.hz > maxHz || c.pace.duration < 0 || len(c.out.specs)+len(c.sending.receivers) == 0 && c.out.browse != noViewer || len(c.unwinding.order) == 0 || c.unwinding.maxDepth < 1 ||
			!(c.pace.maxOverhead > 0 && c.pace.maxOverhead <= 1) {
			t.Errorf("%q: %+v", args, c)
		}
	})
}
