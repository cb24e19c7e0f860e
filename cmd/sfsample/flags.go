package main

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"sfsample/deliver"
	"sfsample/output"
	"sfsample/ptrace/procfs"
	"sfsample/regs"
	"sfsample/targets"
	"sfsample/unwind"
)

// mode is what the command line asks for.
type mode uint8

const (
	modeSample  mode = iota
	modeDump         // every thread's stack once
	modeReplay       // a capture instead of a live process
	modeDiff         // compare two profiles
	modeHelp         // print help to standard output
	modeVersion      // print the version to standard output
)

// Words of the command line.
const (
	threadsRunning, threadsAll         = "running", "all"
	weightCPU, weightWall              = "cpu", "wall"
	stopAuto, stopNever, stopAlways    = "auto", "never", "always"
	demangleFull, demangleShort, noDem = "full", "short", "off"
	scriptsOn, scriptsOnly, scriptsOff = "on", "only", "off"
)

// Bounds of numbers on the command line.
const (
	maxHz     = 100_000 // a tick each 10 µs; a stop alone takes as long
	maxPID    = 1 << 22 // PID_MAX_LIMIT, include/linux/threads.h
	maxFrames = 1 << 20
)

// config is the command line, checked as far as it can be without looking at
// the machine, with all defaults filled in.
type config struct {
	mode    mode
	who     choice
	command []string // to start; nil: none
	files   []string // to read: a recording to replay, or what to compare, before and after
	topic   string   // of the help, see topics

	pace      pace
	sampling  sampling
	unwinding unwinding
	naming    naming
	out       outputs
	sending   sending
	dumping   dumping
	agent     agentFlags
	top       bool // it is watched while it goes on
	messages  messages
}

// pace is how often samples are taken, for how long, and what that may cost.
type pace struct {
	hz          int           // ticks a second
	duration    time.Duration // 0: until the target ends or Ctrl-C
	every       time.Duration // of a round; 0: the run is one
	maxOverhead float64       // share of the target's time, 0.01 is one percent
	maxCPU      float64       // share of a CPU for this program; 0: no bound
	nice        bool          // never raise our priority
}

// sampling is what is taken at a tick, and how.
type sampling struct {
	threads    string // threadsRunning or threadsAll
	weight     string // weightCPU or weightWall
	stop       string // stopAuto, stopNever or stopAlways
	noRestart  bool   // leave an EINTR that a stop has caused
	kernel     bool   // the kernel's part of the stack too
	waits      bool   // what blocked threads wait for as a frame
	exitStacks bool   // the stack of each thread at its exit
}

// unwinding is how stacks are unwound.
type unwinding struct {
	order    []unwind.How // methods to try, each once
	maxDepth int          // frames
	verify   bool         // compare two methods on each sample
	scripts  string       // scriptsOn, scriptsOnly or scriptsOff
	gil      bool         // stacks of threads that hold their interpreter's lock alone
}

// naming is how frames are named.
type naming struct {
	inlines    bool   // inlined functions as frames
	lines      bool   // file and line in labels
	demangle   string // demangleFull, demangleShort or noDem
	debuginfod bool   // ask the servers of DEBUGINFOD_URLS
}

// outputs are the files that a run makes.
type outputs struct {
	specs  []output.Spec // none twice; at least one, or there are receivers, or browse makes one
	by     output.By     // what they tell apart
	micros bool          // folded counts microseconds, not ticks
	record string        // file for the captures, empty: none
	browse string        // viewer to open the result in: noViewer, a URL; empty: none
}

// sending is what is sent, and to whom.
type sending struct {
	receivers []send
	spool     string // folder of what could not be sent yet; empty: one of the run's own
	service   string // service.name of all; empty: each has its own
	noNames   bool   // addresses and build-ids, where that is enough
}

// dumping is how a dump is shown.
type dumping struct {
	group bool          // equal stacks once
	json  bool          // for programs
	watch time.Duration // again and again, so far apart; 0: once
}

// agentFlags are those of an agent.
type agentFlags struct {
	on     bool   // it runs as one
	listen string // address of its /metrics and /healthz; empty: none
}

// messages are what people are told.
type messages struct{ quiet, verbose bool }

// each takes the values of a flag that may be given again and again.
type each func(string) error

func (f each) Set(s string) error { return f(s) }
func (f each) String() string     { return "" }
func (f each) Type() string       { return "each" }

// newFlags declares every flag, to be read into c. Back quotes mark the value
// in messages and in the help.
func newFlags(c *config) *pflag.FlagSet {
	fs := pflag.NewFlagSet("sfsample", pflag.ContinueOnError)
	fs.Usage = func() {}
	fs.SortFlags = false
	ids := func(p *[]int) func(string) error {
		return func(s string) error { return parseIDs(s, p) }
	}
	oneOf := func(p *string, words ...string) func(string) error {
		return func(s string) error {
			if !slices.Contains(words, s) {
				return fmt.Errorf("is %s", strings.Join(words, " or "))
			}
			*p = s
			return nil
		}
	}

	fs.VarP(each(ids(&c.who.pids)), "pid", "p", "`PID[,PID...]`")
	fs.VarP(each(ids(&c.who.tids)), "tid", "t", "`TID[,TID...]`")
	fs.StringArrayVar(&c.who.names, "name", nil, "`NAME`")
	fs.StringArrayVar(&c.who.cgroups, "cgroup", nil, "`GROUP`")
	fs.Var(each(func(s string) error {
		if !targets.IsContainerID(s) {
			return errors.New("is no id of a container (its first 12 digits or more, as docker ps shows them)")
		}
		c.who.cgroups = append(c.who.cgroups, s)
		return nil
	}), "container", "`ID`")
	fs.Var(each(func(s string) error {
		id, err := targets.UserID(s)
		c.who.users = append(c.who.users, id)
		return err
	}), "user", "`USER`")
	fs.BoolVar(&c.who.tree, "tree", false, "")
	fs.FuncP("hz", "F", "`99`", func(s string) (err error) { c.pace.hz, err = parseHz(s); return })
	fs.FuncP("duration", "d", "`10s`", func(s string) (err error) { c.pace.duration, err = parseDuration(s); return })
	fs.Func("every", "`10s`", func(s string) (err error) { c.pace.every, err = parseDuration(s); return })
	fs.VarP(each(func(s string) error { return c.addOutput(s) }), "output", "o", "`FILE`")
	fs.StringVar(&c.sending.spool, "spool", "", "`DIR`")
	fs.StringVar(&c.sending.service, "service", "", "`NAME`")
	fs.BoolVar(&c.sending.noNames, "no-names", false, "")
	fs.Func("record", "`FILE`", func(s string) error { c.out.record = s; return nil })
	fs.Func("open", "`URL`", func(s string) error { c.out.browse = s; return parseViewer(s) })
	fs.Lookup("open").NoOptDefVal = noViewer

	fs.Func("threads", "`running|all`", oneOf(&c.sampling.threads, threadsRunning, threadsAll))
	fs.Func("weight", "`cpu|wall`", oneOf(&c.sampling.weight, weightCPU, weightWall))
	fs.Func("unwind", "`sframe,eh_frame,code,fp,backchain`", func(s string) (err error) { c.unwinding.order, err = parseOrder(s); return })
	fs.Func("stop", "`auto|never|always`", oneOf(&c.sampling.stop, stopAuto, stopNever, stopAlways))
	fs.BoolVar(&c.sampling.noRestart, "no-restart", false, "")
	fs.Func("max-depth", "`512`", func(s string) (err error) { c.unwinding.maxDepth, err = parseDepth(s); return })
	fs.BoolVar(&c.who.children, "children", false, "")
	fs.BoolVar(&c.sampling.kernel, "kernel", false, "")
	fs.BoolVar(&c.sampling.waits, "waits", false, "")
	fs.BoolVar(&c.sampling.exitStacks, "exit-stacks", false, "")
	fs.BoolVar(&c.unwinding.verify, "verify", false, "")
	fs.Func("max-overhead", "`1%`", func(s string) (err error) { c.pace.maxOverhead, err = parsePercent(s); return })
	fs.Func("max-cpu", "`0.5%`", func(s string) (err error) { c.pace.maxCPU, err = parsePercent(s); return })
	fs.BoolVar(&c.pace.nice, "nice", false, "")
	fs.String("config", "", "`FILE`") // see configOf
	fs.Func("listen", "`127.0.0.1:6464`", func(s string) error { c.agent.listen = s; return checkListen(s) })

	fs.BoolVar(&c.naming.inlines, "inlines", false, "")
	fs.BoolVar(&c.naming.lines, "lines", false, "")
	fs.Func("demangle", "`full|short|off`", oneOf(&c.naming.demangle, demangleFull, demangleShort, noDem))
	fs.Func("scripts", "`on|only|off`", oneOf(&c.unwinding.scripts, scriptsOn, scriptsOnly, scriptsOff))
	fs.BoolVar(&c.unwinding.gil, "gil", false, "")
	fs.BoolVar(&c.naming.debuginfod, "debuginfod", false, "")

	fs.Func("by", "`process|pid|thread|state`", oneOf((*string)(&c.out.by), string(output.ByProcess), string(output.ByPID), string(output.ByThread), string(output.ByState)))
	unit := "ticks"
	fs.Func("unit", "`ticks|us`", func(s string) error {
		err := oneOf(&unit, "ticks", "us")(s)
		c.out.micros = unit == "us"
		return err
	})
	fs.Bool("dump", false, "")
	fs.BoolVar(&c.dumping.group, "group", true, "")
	fs.BoolVar(&c.dumping.json, "json", false, "")
	fs.Func("watch", "`2s`", func(s string) (err error) { c.dumping.watch, err = parseDuration(s); return })
	fs.BoolVarP(&c.messages.quiet, "quiet", "q", false, "")
	fs.BoolVarP(&c.messages.verbose, "verbose", "v", false, "")
	fs.BoolP("help", "h", false, "")
	fs.Bool("version", false, "")
	return fs
}

// Flags that mean nothing in a mode; giving one there is an error.
var meaningless = map[mode][]string{
	modeSample: {"group", "json", "watch"},
	modeDump: {"open", "gil", "max-cpu", "hz", "duration", "every", "output", "spool", "service", "no-names", "record", "threads", "weight", "children", "waits", "exit-stacks", "verify",
		"max-overhead", "by", "unit"},
	modeReplay: {"max-cpu", "pid", "tid", "hz", "duration", "every", "spool", "service", "no-names", "record", "threads", "stop", "no-restart", "children", "kernel",
		"waits", "exit-stacks", "max-overhead", "nice", "dump", "group", "json", "watch", "name", "cgroup", "container", "user", "tree"},
	modeDiff: {"max-cpu", "gil", "pid", "tid", "hz", "duration", "every", "spool", "service", "no-names", "record", "threads", "weight", "stop", "no-restart", "children", "kernel",
		"waits", "exit-stacks", "verify", "max-overhead", "nice", "by", "unit", "dump", "group", "json", "watch", "name", "cgroup", "container", "user", "tree"},
}

// meaninglessTop are the flags that mean nothing for a run that is watched: what it finds is on the screen.
var meaninglessTop = []string{"output", "open", "spool", "service", "no-names", "record", "exit-stacks", "verify", "lines", "by", "unit", "verbose", "dump"}

// parseArgs reads the arguments that follow the program's name. Each error is a
// wrong usage, says what is wrong and how it is written rightly.
func parseArgs(args []string) (c config, err error) {
	c = config{
		pace: pace{hz: 99, maxOverhead: 0.01}, sampling: sampling{threads: threadsRunning, stop: stopAuto}, out: outputs{by: output.ByProcess},
		unwinding: unwinding{order: unwind.DefaultOrder, maxDepth: 512, scripts: scriptsOn}, naming: naming{demangle: demangleFull},
	}
	fs := newFlags(&c)
	var file agentFile
	var split parsedArgs
	defer func() {
		if err != nil {
			err = errors.New(deliver.Discreet(file.place(err, fs, split.flags).Error()))
		}
	}()
	split, err = splitArgs(fs, args)
	if err != nil {
		return config{}, err
	}
	if c.agent.on = split.sub == "agent"; c.agent.on {
		c.pace.hz, c.pace.every = 19, 10*time.Second
	}
	if c.top = split.sub == "top"; c.top {
		c.pace.every = time.Second
	}
	if name, ok := configOf(split.flags); ok && c.agent.on {
		if file, err = readConfig(name, fs); err != nil {
			return config{}, err
		}
	}
	if err := fs.Parse(split.flags); err != nil {
		return config{}, valueError(err)
	}
	for _, name := range []string{"config", "listen"} {
		if fs.Changed(name) && !c.agent.on {
			return config{}, fmt.Errorf("%s is for an agent (try: sfsample agent --config FILE)", spell(name))
		}
	}
	set := func(name string) bool {
		b, _ := fs.GetBool(name)
		return b
	}
	switch {
	case set("help"):
		return config{mode: modeHelp, topic: split.topic}, nil
	case set("version"):
		return config{mode: modeVersion}, nil
	case split.sub == "replay":
		c.mode = modeReplay
	case split.sub == "diff":
		c.mode = modeDiff
	case split.sub == "dump" || set("dump"):
		c.mode = modeDump
	}
	for _, name := range meaningless[c.mode] {
		if fs.Changed(name) {
			return config{}, fmt.Errorf("%s has no meaning %s", spell(name), c.mode)
		}
	}
	for _, name := range meaninglessTop {
		if c.top && fs.Changed(name) {
			return config{}, fmt.Errorf("%s has no meaning with top, which shows what it finds (leave out one of them)", spell(name))
		}
	}
	if c.top && !fs.Changed("waits") {
		c.sampling.waits = c.sampling.threads == threadsAll
	}
	if err := c.takeTarget(split); err != nil {
		return config{}, err
	}
	if err := c.complete(fs); err != nil {
		return config{}, err
	}
	return c, nil
}

// configOf finds the value of --config among flags.
func configOf(flags []string) (name string, ok bool) {
	for _, f := range flags {
		if v, is := strings.CutPrefix(f, "--config="); is {
			name, ok = v, true
		}
	}
	return name, ok
}

// String is the mode's place in a message.
func (m mode) String() string {
	switch m {
	case modeDump:
		return "with dump"
	case modeReplay:
		return "with replay"
	case modeDiff:
		return "with diff, which reads files (leave it out)"
	}
	return "without dump (try: sfsample dump -p PID)"
}

// takeTarget checks what is to be looked at: processes, a command or a capture.
func (c *config) takeTarget(split parsedArgs) error {
	c.command, c.files = split.command, split.files
	sel := c.who.selector()
	given := len(c.who.pids) > 0 || len(c.who.tids) > 0 || sel.Open()
	switch {
	case c.mode == modeReplay && len(c.files) == 0:
		return errors.New("replay needs a file (try: sfsample replay FILE, with a file that --record wrote)")
	case c.mode == modeDiff && len(c.files) < 2:
		return errors.New("diff needs two files (try: sfsample diff BEFORE AFTER -o diff.html; each is a folded file, a profile of pprof, or what --record wrote)")
	case c.mode == modeDiff && c.files[0] == stdin && c.files[1] == stdin:
		return errors.New("diff needs two profiles, and standard input is one (try: sfsample diff before.folded - -o diff.html)")
	case c.mode != modeSample && c.command != nil:
		return fmt.Errorf("a command cannot be started %v", c.mode)
	case len(c.who.tids) > 0 && c.who.searches():
		return errors.New("-t is for threads of single processes (leave out --tree, --name, --cgroup, --container and --user)")
	case c.mode == modeDump && !given:
		return errors.New("no process given (try: sfsample dump -p PID)")
	case c.mode != modeSample:
		return nil
	case c.command != nil && (len(c.command) == 0 || c.command[0] == ""):
		return errors.New("no command after -- (try: sfsample [flags] -- COMMAND [ARGS...])")
	case c.agent.on && (c.command != nil || len(c.who.tids) > 0):
		return errors.New("an agent samples processes that are there or come (try: --name NAME, --cgroup GROUP, --user USER)")
	case c.command != nil && (given || c.who.tree):
		return errors.New("-p, -t, --name and the like are for processes that run, -- starts one (give one of them)")
	case c.sampling.waits && c.sampling.threads != threadsAll:
		return errors.New("--waits is for blocked threads (give --threads all too)")
	case c.sampling.exitStacks && c.who.searches():
		return errors.New("--exit-stacks is for processes given with -p, or a command (leave out --tree, --name, --cgroup, --container and --user)")
	case c.agent.on && !given:
		return errors.New("an agent needs a choice of processes (try: --config FILE with name: NAME in it, or --name, --cgroup, --container, --user)")
	case c.command == nil && !given && c.top:
		return errors.New("no process given (try: sfsample top -p PID, or sfsample top -- COMMAND)")
	case c.command == nil && !given:
		return errors.New("no process given (try: sfsample -p PID, sfsample -- COMMAND, or sfsample --help)")
	}
	return nil
}

// complete fills in the defaults that depend on other flags and checks what
// must agree.
func (c *config) complete(fs *pflag.FlagSet) error {
	if c.messages.quiet && c.messages.verbose {
		return errors.New("-q and -v contradict each other (give one of them)")
	}
	if c.mode != modeReplay {
		if err := c.unwinding.checkOrder(runtime.GOARCH); err != nil {
			return err
		}
	}
	if c.unwinding.gil && c.unwinding.scripts == scriptsOff {
		return errors.New("--gil is of scripts (leave out --scripts off)")
	}
	sel := c.who.selector()
	if err := sel.Check(); err != nil {
		return err
	}
	if !fs.Changed("children") {
		c.who.children = c.command != nil || c.who.tree && c.mode == modeSample
	}
	if c.sampling.weight == "" {
		c.sampling.weight = weightCPU
		if c.sampling.threads == threadsAll {
			c.sampling.weight = weightWall
		}
	}
	if c.agent.on && len(c.out.specs) == 0 && len(c.sending.receivers) == 0 {
		return errors.New("an agent's profiles go somewhere (try: -o otlp=URL, or output: otlp=URL in its file)")
	}
	given := len(c.out.specs) > 0 || len(c.sending.receivers) > 0 || c.out.browse == noViewer
	if !given && c.mode == modeDiff {
		c.out.specs = []output.Spec{{Format: "html", File: "-"}}
	}
	if !given && c.mode != modeDiff && !c.top {
		c.out.specs = []output.Spec{{Format: "folded", File: "-"}}
	}
	if len(c.sending.receivers) > 0 && c.mode == modeReplay {
		return errors.New("what is replayed is not sent (leave out -o otlp= and -o pyroscope=)")
	}
	for _, f := range []string{"spool", "service", "no-names"} {
		if fs.Changed(f) && len(c.sending.receivers) == 0 {
			return fmt.Errorf("--%s is for what is sent (try: -o otlp=URL, -o pyroscope=URL)", f)
		}
	}
	if err := errors.Join(c.checkRounds(), c.checkOpen()); err != nil {
		return err
	}
	for _, o := range c.out.specs {
		if c.out.record != "" && filepath.Clean(o.File) == filepath.Clean(c.out.record) {
			return fmt.Errorf("--record and -o both write %s (give two files)", c.out.record)
		}
	}
	return nil
}

// checkOrder says why the methods of --unwind lead nowhere on a machine of this
// GOARCH, if they do.
func (u *unwinding) checkOrder(host string) error {
	a := regs.ByName(host)
	if a == nil {
		return nil // attaching will tell
	}
	if err := unwind.CheckOrder(a, u.order); err != nil {
		return fmt.Errorf("--unwind: %w", err)
	}
	return nil
}

// valueError is pflag's error for a bad value in our words.
func valueError(err error) error {
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	f, cause := invalid.GetFlag(), errors.Unwrap(err)
	if f.Value.Type() == "bool" {
		return fmt.Errorf("--%s=%s: is a switch (write --%s or --%s=false)", f.Name, invalid.GetValue(), f.Name, f.Name)
	}
	return fmt.Errorf("%s %s: %w", spell(f.Name), invalid.GetValue(), cause)
}

// parseIDs adds the process or thread ids of a list, with commas or blanks between
// them as pidof(8) and pgrep(1) print them, to ids.
func parseIDs(s string, ids *[]int) error {
	for _, word := range strings.Split(strings.Join(strings.Fields(s), ","), ",") {
		id, err := strconv.Atoi(word)
		if err != nil || id < 1 || id > maxPID {
			if known := named(word); known != "" {
				return fmt.Errorf("%q is no process or thread id, but a name (try: -p %s)", word, known)
			}
			return fmt.Errorf("%q is no process or thread id (a number from 1 to %d, or several with commas between them)", word, maxPID)
		}
		if !slices.Contains(*ids, id) {
			*ids = append(*ids, id)
		}
	}
	return nil
}

// named lists the processes of a name, for -p; empty if there is none.
func named(name string) string {
	sel := targets.Selector{Names: []string{name}}
	found, err := sel.Find(procfs.FS{})
	if err != nil || sel.Check() != nil {
		return ""
	}
	var ids []int
	for _, p := range found {
		if p.PID != os.Getpid() {
			ids = append(ids, p.PID)
		}
	}
	return joinInts(ids)
}

func parseHz(s string) (int, error) {
	hz, err := strconv.Atoi(s)
	if err != nil || hz < 1 || hz > maxHz {
		return 0, fmt.Errorf("is no rate (a whole number of ticks a second, 1 to %d: -hz 99)", maxHz)
	}
	return hz, nil
}

// parseDuration reads a Go duration or a number of seconds.
func parseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if strings.Trim(s, "0123456789.") == "" {
		d, err = time.ParseDuration(s + "s")
	}
	if err != nil || d <= 0 {
		return 0, errors.New("is no duration (seconds, or a number with a unit, more than 0: 10, 1m30s)")
	}
	return d, nil
}

// checkListen is an error if s is no address to listen on. Every address of the machine is to be said.
func checkListen(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil || port == "" {
		return errors.New("is no address (HOST:PORT, as in 127.0.0.1:6464 or [::1]:6464)")
	}
	if _, err := net.LookupPort("tcp", port); err != nil || strings.ContainsAny(port[:1], "+-") {
		return fmt.Errorf("%q is no port (0 to 65535, or the name of a service)", port)
	}
	if host == "" {
		return fmt.Errorf("has no host (try: 127.0.0.1:%[1]s, or 0.0.0.0:%[1]s for every address of the machine)", port)
	}
	return nil
}

func parseDepth(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > maxFrames {
		return 0, fmt.Errorf("is no number of frames (1 to %d)", maxFrames)
	}
	return n, nil
}

// parsePercent reads "1%" or "1" as 0.01.
func parsePercent(s string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSuffix(s, "%"), 64)
	if err != nil || math.IsNaN(v) || v <= 0 || v > 100 {
		return 0, errors.New("is no percentage (more than 0, at most 100, as in 0.5%)")
	}
	return v / 100, nil
}

// parseOrder reads the methods of --unwind.
func parseOrder(s string) ([]unwind.How, error) {
	methods := unwind.DefaultOrder
	var order []unwind.How
	for _, word := range strings.Split(s, ",") {
		i := slices.IndexFunc(methods, func(h unwind.How) bool { return h.String() == word })
		if i < 0 {
			return nil, fmt.Errorf("%q is no method (sframe, eh_frame, code, fp or backchain, with commas between them)", word)
		}
		if slices.Contains(order, methods[i]) {
			return nil, fmt.Errorf("%s stands there twice", word)
		}
		order = append(order, methods[i])
	}
	return order, nil
}

func (c *config) addOutput(s string) error {
	if x, ok := parseSend(s); ok {
		if _, err := x.receiver(); err != nil {
			return err
		}
		if slices.Contains(c.sending.receivers, x) {
			return errors.New("is sent to twice (give it once)")
		}
		c.sending.receivers = append(c.sending.receivers, x)
		return nil
	}
	spec, err := output.ParseSpec(s)
	if err != nil {
		return err
	}
	for _, o := range c.out.specs {
		if filepath.Clean(o.File) == filepath.Clean(spec.File) {
			return fmt.Errorf("is written to twice (give each output a file of its own)")
		}
	}
	c.out.specs = append(c.out.specs, spec)
	return nil
}
