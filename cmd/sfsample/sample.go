package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/internal/late"
	"sfsample/output"
	"sfsample/ptrace/procfs"
	"sfsample/sampler"
	"sfsample/sampler/capture"
	"sfsample/sampler/module"
	"sfsample/sampler/symbol"
	"sfsample/stuck"
	"sfsample/targets"
	"sfsample/unwind"
)

// sample runs the main job: attach, sample, write. The status is that of the
// command that was sampled, if it has ended.
func sample(c config, stderr io.Writer) (status int, err error) {
	var top *topView
	if c.top {
		top = newTop(&c, stderr)
		stderr = top.display.notices
	}
	s := &session{config: c, log: c.messages.logger(stderr), stderr: stderr, top: top}
	return s.sample()
}

func (s *session) sample() (status int, err error) {
	c := &s.config
	if err := c.who.check(); err != nil {
		return 0, err
	}
	if err := c.who.checkLife(); err != nil {
		return 0, err
	}
	checkKernel(c, s.log)
	if err := s.open(); err != nil {
		return 0, err
	}
	rec, err := openRecord(c)
	if err != nil {
		s.outs.Discard()
		return 0, err
	}
	s.rec = rec
	if err := s.run(); err != nil {
		s.outs.Discard()
		rec.discard()
		return 0, err
	}
	return commandStatus(&s.result), s.finish()
}

// commandStatus is the exit status that passes on how our command ended, as a shell
// tells it: 128 and the signal's number, if one has ended it.
func commandStatus(r *sampler.Result) int {
	switch {
	case !r.Ended:
		return exitDone
	case r.Status.Signaled():
		return 128 + int(r.Status.Signal())
	}
	return r.Status.ExitStatus()
}

// results are the outputs of a run: [lastSink] or [rounds].
type results interface {
	output.Sink
	Discard() // ends a run that has no result in the place of Close
}

// open opens the outputs.
func (s *session) open() error {
	if s.top != nil {
		s.outs = s.top
		return nil
	}
	if s.config.pace.every == 0 && len(s.config.sending.receivers) == 0 {
		outs, err := output.Open(s.config.out.specs, s.config.outputOptions())
		s.outs = &lastSink{Outputs: outs}
		return err
	}
	temporary := ""
	if s.agent != nil {
		temporary = s.agent.spool
	}
	r, err := s.config.openRounds(temporary, s.say)
	if err != nil {
		return err
	}
	if s.agent != nil {
		s.agent.opened(r)
	}
	r.about = func(x *sampler.Round) output.Run {
		about := s.about()
		about.Start, about.Duration = x.Start, x.End.Sub(x.Start)
		return about
	}
	r.told = func(stamp string, x *sampler.Round) {
		if s.agent != nil {
			s.agent.told(x, r)
		}
		if !s.config.messages.quiet && s.config.pace.every > 0 && (s.agent == nil || s.config.messages.verbose) {
			s.say("%s", account(stamp, x))
		}
	}
	s.outs = r
	return nil
}

// errTold is an error that was told when it came: there are no lines of it to tell at the end.
var errTold = errors.New("")

// session is one run of the main job.
type session struct {
	config  config
	log     *slog.Logger
	outs    results
	rec     *recording
	stderr  io.Writer
	found   findings
	result  sampler.Result
	pipeErr error     // an output or the recording failed while sampling
	agent   *agentRun // nil: it is none
	top     *topView  // nil: nobody watches
	command *started
	name    string // of the first process
}

// run samples until the end. Its error means that nothing was sampled.
func (s *session) run() error {
	opt := s.config.options(s.log)
	if s.config.command != nil {
		files := [3]*os.File{os.Stdin, os.Stdout, os.Stderr}
		if s.top != nil {
			files = [3]*os.File{quietFile(os.Stdin, os.O_RDONLY), quietFile(os.Stdout, os.O_WRONLY), quietFile(os.Stderr, os.O_WRONLY)}
		}
		cmd, err := start(s.config.command, files)
		if err != nil {
			return err
		}
		s.command = cmd
		opt.PIDs, opt.Follow.Command = []int{cmd.process.Pid}, cmd.process.Pid
	}
	if len(s.config.who.pids) > 0 {
		s.name = commandLine(s.config.who.pids[0])
	}
	interrupted := interruptible
	if s.agent != nil {
		interrupted = s.agent.interrupted
	}
	ctx, stop := interrupted()
	defer stop()
	ready := func() {
		if s.command != nil {
			s.command.begin(ctx, stop, s.config.pace.duration, s.config.sampling.exitStacks)
		}
		if s.top != nil {
			s.top.begin(ctx, s.what(), s.config.who.stopped, stop)
		}
	}
	if s.top == nil {
		opt.Hooks.Suspend = suspensions(ctx)
	} else {
		opt.Hooks.Suspend = s.top.suspensions(ctx)
	}
	if s.config.who.searches() {
		if err := s.search(ctx, &opt); err != nil {
			return err
		}
	}
	until, giveUp := hurried(ctx)
	names := s.config.newNames(until, s.log, s.stderr, false)
	if last, ok := s.outs.(*lastSink); ok && s.rec == nil {
		last.gone = stop
	}
	pipe := s.config.livePipeline(names, until, s.log, s.outs, s.rec.writer(), func(held bool) { s.slow(ctx, giveUp, held) })
	s.found = findings{names, pipe, s.say}
	progress := s.progress()
	if s.agent == nil {
		calm(sampleMonitor)
	}
	result, err := sampler.Run(ctx, opt, s.config.pace.duration, pipe, ready, progress.show)
	progress.clear()
	s.result = result
	if s.top != nil {
		s.top.await(s.why(ctx, err))
	}
	if execErr := s.command.awaitExec(ctx); execErr != nil {
		return execErr
	}
	if err != nil && s.command != nil && errors.Is(err, unix.EPERM) { // it has other rights than we
		s.say("%v", err)
		s.result.Status, s.result.Ended = s.command.outlive(ctx, s.config.pace.duration)
		if !s.config.messages.quiet {
			s.command.tellEnd(s.say, &s.result, s.config.pace.duration > 0)
		}
		return errTold
	}
	if err != nil && result.Ticks == 0 && result.Elapsed == 0 {
		return err
	}
	s.pipeErr = err
	return nil
}

// agentLooks is the share of a CPU that an agent may take to look for processes.
const agentLooks = 0.0003

// search finds the processes that are meant, and goes on with that in the background until ctx is done.
func (s *session) search(ctx context.Context, opt *sampler.Options) error {
	set := &targets.Set{Selector: s.config.who.selector(), Keep: true}
	if s.agent != nil {
		set.Share, opt.Follow.Patient = agentLooks, true
	}
	now, _, _, err := set.Refresh()
	if err != nil {
		return fmt.Errorf("search: %w", err)
	}
	s.describe(numbers(now))
	opt.Follow.Found = slices.DeleteFunc(numbers(now), func(pid int) bool { return slices.Contains(opt.PIDs, pid) })
	if len(now) == 0 && !s.config.messages.quiet {
		s.say("there is no process of %s now; those that come are sampled, until -d or Ctrl-C", s.config.who.meant())
	}
	joins, came := make(chan []int), make(chan []targets.Process)
	opt.Follow.Joins, opt.Follow.Again = joins, set.Again
	told := ""
	go set.Follow(ctx, came, func(err error) {
		if err.Error() != told { // each is told once, until there is another
			told = err.Error()
			s.log.Warn("search for processes", "err", err)
		}
	})
	go func() {
		defer close(joins)
		for list := range came {
			s.describe(numbers(list))
			select {
			case joins <- numbers(list):
			case <-ctx.Done():
			}
		}
	}()
	return nil
}

// describe has processes that are to be sampled described, while they live.
func (s *session) describe(pids []int) {
	r, ok := s.outs.(*rounds)
	if !ok {
		return
	}
	for _, x := range r.sends {
		for _, pid := range pids {
			x.resources.found(pid)
		}
	}
}

// numbers are the ids of processes.
func numbers(list []targets.Process) []int {
	ids := make([]int, len(list))
	for i, p := range list {
		ids[i] = p.PID
	}
	return ids
}

// namesGrace is how long files of targets are read on after Ctrl-C, so that
// the result is there within a second.
const namesGrace = 600 * time.Millisecond

// hurried returns how long files are read: until namesGrace after ctx, or until giveUp is called.
func hurried(ctx context.Context) (until *late.Time, giveUp func()) {
	read, giveUp := context.WithCancel(context.Background())
	context.AfterFunc(ctx, func() { time.AfterFunc(namesGrace, giveUp) })
	return late.New(read), giveUp
}

// patience is how long files are read after a run that nobody has interrupted, beyond the half second after which [session.slow]
// is called: what was asked for besides names may take longer.
func (n *naming) patience() time.Duration {
	switch {
	case n.debuginfod:
		return 100 * time.Second // a server may take 90
	case n.inlines || n.lines:
		return 10 * time.Second
	}
	return 400 * time.Millisecond
}

// slow says what is waited for after the end of sampling, and that it need not
// be. It is not waited for longer than patience, and not at all while a thread is held.
func (s *session) slow(ctx context.Context, giveUp func(), held bool) {
	if held {
		giveUp()
		return
	}
	time.AfterFunc(s.config.naming.patience(), giveUp)
	if s.config.messages.quiet || ctx.Err() != nil {
		return
	}
	hint := ""
	if s.config.naming.inlines || s.config.naming.lines {
		hint = "; Ctrl-C leaves out inlined functions and lines that are not read yet"
	}
	fmt.Fprintf(s.stderr, "%ssfsample: unwinding and naming the last samples%s\n", clearLine(s.stderr), hint)
}

// lastSink ends the run when no output is left, as when the only one is a pipe
// whose reader has gone.
type lastSink struct {
	*output.Outputs
	gone func() // nil: something else is written too
}

// Add implements output.Sink.
func (l *lastSink) Add(s *output.Sample) error {
	err := l.Outputs.Add(s)
	if err != nil && l.gone != nil && l.Failed() {
		l.gone()
	}
	return err
}

// what names what is sampled.
func (s *session) what() string {
	switch {
	case s.command != nil:
		return fmt.Sprintf("pid %d %s", s.command.process.Pid, strings.Join(s.config.command, " "))
	case s.config.who.searches():
		return s.config.who.meant()
	case len(s.config.who.pids) == 1:
		program, args, _ := strings.Cut(s.name, " ")
		return fmt.Sprintf("pid %d %s %s", s.config.who.pids[0], filepath.Base(program), args)
	}
	return fmt.Sprintf("%d processes", len(s.config.who.pids))
}

// why says why nothing more comes, empty if somebody wanted that, or it is an error.
func (s *session) why(ctx context.Context, err error) string {
	switch {
	case ctx.Err() != nil || err != nil || s.config.pace.duration > 0 && s.result.Elapsed >= s.config.pace.duration:
		return ""
	case s.result.Status.Signaled():
		return fmt.Sprintf("%s was ended by %s", s.command.name, unix.SignalName(s.result.Status.Signal()))
	case s.command != nil && s.result.Ended:
		return fmt.Sprintf("%s has ended with status %d", s.command.name, s.result.Status.ExitStatus())
	}
	return "everything that was sampled has ended"
}

// about is what titles tell of the run.
func (s *session) about() output.Run {
	r := output.Run{PIDs: s.config.who.pids, Start: time.Now().Add(-s.result.Elapsed), Duration: s.result.Elapsed, Lost: s.result.Lost(), Command: s.name}
	r.Host, _ = os.Hostname()
	r.CPUs, r.CPU = runtime.NumCPU(), cpuModel()
	if s.command != nil {
		r.Command, r.PIDs = strings.Join(s.config.command, " "), []int{s.command.process.Pid}
	}
	return r
}

// cpuModel is what /proc/cpuinfo calls the CPU, empty if it does not tell.
func cpuModel() string {
	b, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// commandLine is the command line of a process, or its name, for a title.
func commandLine(pid int) string {
	if words, err := (procfs.FS{}).Cmdline(pid); err == nil && len(words) > 0 {
		return strings.Join(words, " ")
	}
	name, _ := (procfs.FS{}).Task(pid, pid).Comm()
	return name
}

// finish writes what was sampled and says how it went.
func (s *session) finish() error {
	if last, ok := s.outs.(*lastSink); ok {
		last.Describe(s.about())
	}
	if r, ok := s.outs.(*rounds); ok && errors.Is(s.pipeErr, sampler.ErrHeld) {
		r.grace = func() time.Duration { return 0 }
	}
	err, recorded := errors.Join(s.pipeErr, s.outs.Close()), s.rec.close(s.pipeErr)
	if !s.config.messages.quiet {
		s.closing(s.rec != nil && s.pipeErr == nil && recorded == nil)
	}
	return errors.Join(err, recorded)
}

// interruptible returns a context that ends at the first SIGINT, SIGTERM or
// SIGHUP. A second one ends the program at once; the kernel then lets go of
// every tracee.
func interruptible() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	c := make(chan os.Signal, 2)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		if _, ok := <-c; !ok {
			return
		}
		cancel()
		signal.Stop(c) // the next one has its usual effect
		signal.Reset(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		select {
		case sig := <-c: // it came before that
			_ = syscall.Kill(os.Getpid(), sig.(syscall.Signal)) // ourselves: it cannot fail
		default:
		}
	}()
	return ctx, cancel
}

// suspensions returns what stops this program, on job control's signals: to be called when no
// target is held. Where a shell without job control ignores them, so do we.
func suspensions(ctx context.Context) <-chan func() {
	c, out := make(chan os.Signal, 1), make(chan func())
	for _, sig := range []os.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU} {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
	stop := func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		// A signal of this very thread stops all before the call returns. It cannot fail on ourselves.
		_ = unix.Tgkill(os.Getpid(), syscall.Gettid(), syscall.SIGSTOP)
	}
	go func() {
		defer signal.Stop(c)
		for {
			select {
			case <-ctx.Done():
				return
			case <-c:
			}
			select {
			case <-ctx.Done():
				return
			case out <- stop:
			}
		}
	}()
	return out
}

// options are the settings of a run or a dump; log takes what is told meanwhile.
func (c *config) options(log *slog.Logger) sampler.Options {
	return sampler.Options{
		PIDs: c.who.pids, TIDs: c.who.tids, Hz: c.pace.hz,
		All: c.sampling.threads == threadsAll, WallWeight: c.sampling.weight == weightWall,
		Stop: stopMode(c.sampling.stop), NoRestart: c.sampling.noRestart, Follow: sampler.Follow{Children: c.who.children},
		Kernel: c.sampling.kernel, ExitStacks: c.sampling.exitStacks, Every: c.pace.every, Log: log,
		Budget: sampler.Budget{MaxOverhead: c.pace.maxOverhead, MaxCPU: c.pace.maxCPU, Nice: c.pace.nice, Seldom: c.agent.on},
		Hooks:  sampler.Hooks{Released: goBack},
	}
}

func stopMode(s string) sampler.StopMode {
	switch s {
	case stopNever:
		return sampler.StopNever
	case stopAlways:
		return sampler.StopAlways
	}
	return sampler.StopAuto
}

func demangleOf(s string) symbol.Demangle {
	switch s {
	case demangleShort:
		return symbol.Short
	case noDem:
		return symbol.Off
	}
	return symbol.Full
}

// newNames makes what names frames. recorded: those of processes that are gone.
// until ends what takes long.
func (c *config) newNames(until *late.Time, log *slog.Logger, stderr io.Writer, recorded bool) *sampler.Names {
	n, progress := &c.naming, func(string) {}
	if !c.messages.quiet {
		clear := clearLine(stderr)
		progress = func(line string) { fmt.Fprintf(stderr, "%ssfsample: %s\n", clear, printable(line)) }
	}
	return sampler.NewNames(sampler.NameOptions{
		Demangle: demangleOf(n.demangle), Inlines: n.inlines, Lines: n.lines,
		Debuginfod: n.debuginfodOf(progress), Log: log, Progress: progress, Until: until, Recorded: recorded,
	})
}

// clearLine is what clears the line of progress, if w is a terminal.
func clearLine(w io.Writer) string {
	if f, ok := w.(*os.File); ok && isTerminal(f) {
		return "\r\x1b[K"
	}
	return ""
}

// agentPages bounds what an agent holds of its targets' files, in bytes; a run holds module.DefaultCacheBytes.
const agentPages = 4 << 20

// livePipeline unwinds what is captured of processes that live. Their files are read within until.
func (c *config) livePipeline(names *sampler.Names, until *late.Time, log *slog.Logger, sink output.Sink, rec *capture.Writer, slow func(held bool)) *sampler.Pipeline {
	pages := 0
	if c.agent.on {
		pages = agentPages
	}
	cache := module.NewCache(pages)
	part := until.Part()
	cache.Until = part
	lists := module.NewLists(part, log)
	var wait func(pid, tid int, nr int64, sp, runs uint64) func([]output.Frame) string
	if c.sampling.waits {
		wait = stuck.NewGlances(procfs.FS{}).Look
	}
	return sampler.NewPipeline(sampler.PipelineConfig{
		Wait: wait,
		Host: runtime.GOARCH, Start: time.Now(), Walk: c.unwinding.walk(),
		Sink: sink, Names: names, Record: rec, Log: log, Kernel: c.sampling.kernel, Live: true, Slow: slow, Until: part,
		Scripts: c.unwinding.scriptOptions(),
		Open: func(pid int) (sampler.Target, *sampler.Survivor, error) {
			src := sampler.NewSurvivor(pid, lists)
			return module.NewSpace(src, cache, module.Options{Owner: src.Owner(), NoEHFrame: c.unwinding.noEHFrame(), Log: log}), src, nil
		},
	})
}

// scriptOptions are what is shown of scripts.
func (u *unwinding) scriptOptions() sampler.ScriptOptions {
	return sampler.ScriptOptions{On: u.scripts != scriptsOff, Only: u.scripts == scriptsOnly, Locked: u.gil}
}

// walk is how stacks are followed.
func (u *unwinding) walk() sampler.Walk {
	return sampler.Walk{Order: u.order, MaxDepth: u.maxDepth, Verify: u.verify}
}

// noEHFrame: .eh_frame is not among the methods, so that nothing ranks before a
// .sframe table of version 1.
func (u *unwinding) noEHFrame() bool { return !slices.Contains(u.order, unwind.EHFrame) }

// debuginfodOf is the cache of debuginfod's client and, if asked for, the
// servers.
func (n *naming) debuginfodOf(progress func(string)) *symbol.Debuginfod {
	d := &symbol.Debuginfod{Cache: symbol.DebuginfodCache(os.Getenv), Timeout: 90 * time.Second, Progress: progress}
	if n.debuginfod {
		d.URLs = strings.Fields(os.Getenv("DEBUGINFOD_URLS"))
	}
	return d
}

func (c *config) outputOptions() output.Options {
	return output.Options{Hz: float64(c.pace.hz), Wall: c.sampling.weight == weightWall, By: c.out.by, Lines: c.naming.lines, Micros: c.out.micros}
}

// logger writes records for people: warnings, and with -v all.
func (m messages) logger(w io.Writer) *slog.Logger {
	level := slog.LevelWarn
	switch {
	case m.quiet:
		level = slog.LevelError
	case m.verbose:
		level = slog.LevelDebug
	}
	return slog.New(&plainHandler{w: w, level: level, mu: new(sync.Mutex)})
}

// checkKernel says so if the kernel's part of stacks was asked for, and cannot be read.
func checkKernel(c *config, log *slog.Logger) {
	if !c.sampling.kernel {
		return
	}
	if _, err := (procfs.FS{}).Task(os.Getpid(), os.Getpid()).Stack(); err != nil { // ours stands for all
		log.Warn(fmt.Sprintf("the kernel's part of stacks cannot be shown: %v (try: as root, with CAP_SYS_ADMIN)", err))
	}
}

// recording is the file of --record; nil is none.
type recording struct {
	file *os.File
	w    *capture.Writer
}

func openRecord(c *config) (*recording, error) {
	if c.out.record == "" {
		return nil, nil
	}
	f, err := os.OpenFile(c.out.record, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("record: %w (try: another folder)", err)
	}
	w, err := capture.NewWriter(f)
	if err == nil {
		run := capture.Run{Host: runtime.GOARCH, Start: time.Now(), Hz: float64(c.pace.hz), Weight: c.sampling.weight, Command: strings.Join(c.command, " "), PIDs: c.who.pids}
		run.Machine, _ = os.Hostname()
		if run.Command == "" && len(c.who.pids) > 0 {
			run.Command = commandLine(c.who.pids[0])
		}
		err = w.Write(&run)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("record: %w (try: another folder)", err)
	}
	return &recording{f, w}, nil
}

func (r *recording) writer() *capture.Writer {
	if r == nil {
		return nil
	}
	return r.w
}

// close ends the recording. An error that told holds already is not told again.
func (r *recording) close(told error) error {
	if r == nil {
		return nil
	}
	err := r.w.Close()
	if err != nil && errors.Is(told, err) {
		err = nil
	}
	return sampler.RecordError(errors.Join(err, r.file.Close()))
}

// discard ends a recording of nothing.
func (r *recording) discard() {
	if r != nil {
		r.file.Close()
	}
}
