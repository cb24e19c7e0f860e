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
		stderr = top.notices
	}
	s := &session{config: c, log: logger(c, stderr), stderr: stderr, top: top}
	return s.sample()
}

func (s *session) sample() (status int, err error) {
	c, log := s.config, s.log
	if err := checkPIDs(c.pids); err != nil {
		return 0, err
	}
	if err := checkTIDs(&c); err != nil {
		return 0, err
	}
	if err := checkLife(c.pids); err != nil {
		return 0, err
	}
	checkKernel(&c, log)
	s.config = c
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
	if s.every == 0 && len(s.sends) == 0 {
		outs, err := output.Open(s.outputs, s.outputOptions())
		s.outs = &lastSink{Outputs: outs}
		return err
	}
	r, err := s.openRounds(s.say)
	if err != nil {
		return err
	}
	if s.agent != nil {
		s.agent.opened(r.sends)
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
		if !s.quiet && s.every > 0 && (s.agent == nil || s.verbose) {
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
	config
	log     *slog.Logger
	outs    results
	rec     *recording
	stderr  io.Writer
	names   *sampler.Names
	pipe    *sampler.Pipeline
	result  sampler.Result
	pipeErr error     // an output or the recording failed while sampling
	agent   *agentRun // nil: it is none
	top     *topView  // nil: nobody watches
	command *started
	name    string // of the first process
	execErr chan error
}

// run samples until the end. Its error means that nothing was sampled.
func (s *session) run() error {
	opt := s.options()
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
		opt.PIDs, opt.Command = []int{cmd.process.Pid}, cmd.process.Pid
	}
	if len(s.pids) > 0 {
		s.name = commandLine(s.pids[0])
	}
	interrupted := interruptible
	if s.agent != nil {
		interrupted = s.agent.interrupted
	}
	ctx, stop := interrupted()
	defer stop()
	ready := func() { s.ready(ctx, stop) }
	if s.top == nil {
		opt.Suspend = suspensions(ctx)
	} else {
		opt.Suspend = s.top.suspensions(ctx)
		ready = func() {
			s.ready(ctx, stop)
			s.top.begin(ctx, s.what(), s.stopped, stop)
		}
	}
	if s.searches() {
		if err := s.search(ctx, &opt); err != nil {
			return err
		}
	}
	until, giveUp := hurried(ctx)
	s.names = s.newNames(until, s.log, s.stderr, false)
	if last, ok := s.outs.(*lastSink); ok && s.rec == nil {
		last.gone = stop
	}
	s.pipe = s.livePipeline(s.names, until, s.log, s.outs, s.rec.writer(), func(held bool) { s.slow(ctx, giveUp, held) })
	progress := s.progress()
	if s.agent == nil {
		calm(sampleMonitor)
	}
	result, err := sampler.Run(ctx, opt, s.duration, s.pipe, ready, progress.show)
	progress.clear()
	s.result = result
	if s.top != nil {
		s.top.await(s.why(ctx, err))
	}
	if execErr := s.awaitExec(ctx); execErr != nil {
		return execErr
	}
	if err != nil && s.command != nil && errors.Is(err, unix.EPERM) { // it has other rights than we
		s.say("%v", err)
		s.result.Status, s.result.Ended = s.command.outlive(ctx, s.duration)
		if !s.quiet {
			s.commandEnd(s.say)
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
	set := &targets.Set{Selector: s.selector(), Keep: true}
	if s.agent != nil {
		set.Share = agentLooks
	}
	now, _, _, err := set.Refresh()
	if err != nil {
		return fmt.Errorf("search: %w", err)
	}
	opt.Found = slices.DeleteFunc(numbers(now), func(pid int) bool { return slices.Contains(opt.PIDs, pid) })
	if len(now) == 0 && !s.quiet {
		s.say("there is no process of %s now; those that come are sampled, until -d or Ctrl-C", s.meant())
	}
	joins, came := make(chan []int), make(chan []targets.Process)
	opt.Joins = joins
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
			select {
			case joins <- numbers(list):
			case <-ctx.Done():
			}
		}
	}()
	return nil
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
func patience(c *config) time.Duration {
	switch {
	case c.debuginfod:
		return 100 * time.Second // a server may take 90
	case c.inlines || c.lines:
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
	time.AfterFunc(patience(&s.config), giveUp)
	if s.quiet || ctx.Err() != nil {
		return
	}
	hint := ""
	if s.inlines || s.lines {
		hint = "; Ctrl-C leaves out inlined functions and lines that are not read yet"
	}
	fmt.Fprintf(s.stderr, "%ssfsample: unwinding and naming the last samples%s\n", clearLine(s.stderr), hint)
}

// awaitExec returns why the command could not be run, if it could not.
func (s *session) awaitExec(ctx context.Context) error {
	switch {
	case s.command == nil:
		return nil
	case s.execErr == nil: // it was never let go
		s.command.abandon()
		return nil
	}
	select {
	case err := <-s.execErr:
		return err
	default:
	}
	select {
	case err := <-s.execErr:
		return err
	case <-ctx.Done():
	case <-time.After(time.Second): // it holds the socket in a process of its own
	}
	return nil
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

// execPatience is how much longer than a run an exec may take: on a busy machine, or from a slow disk, one takes seconds.
const execPatience = 5 * time.Second

// ready lets the command begin, and returns when it has, but where its threads are held for the whole run. Nobody traces its exec otherwise: a
// set-user-ID program that an ordinary user traces there runs without its owner's rights (execve(2)).
//
// An exec that reads from a server that does not answer has no end: neither has a run by that.
func (s *session) ready(ctx context.Context, stop func()) {
	if s.command == nil {
		return
	}
	s.execErr = make(chan error, 2)
	begun := make(chan struct{})
	var hangs *time.Timer
	if s.duration > 0 {
		hangs = time.AfterFunc(s.duration+execPatience, func() {
			s.execErr <- s.command.hangs()
			stop()
		})
	}
	go func() {
		defer close(begun)
		s.execErr <- s.command.release()
		if hangs != nil {
			hangs.Stop()
		}
	}()
	if s.exitStacks {
		return
	}
	select {
	case <-begun:
	case <-ctx.Done():
	}
}

// what names what is sampled.
func (s *session) what() string {
	switch {
	case s.command != nil:
		return fmt.Sprintf("pid %d %s", s.command.process.Pid, strings.Join(s.config.command, " "))
	case s.searches():
		return s.meant()
	case len(s.pids) == 1:
		program, args, _ := strings.Cut(s.name, " ")
		return fmt.Sprintf("pid %d %s %s", s.pids[0], filepath.Base(program), args)
	}
	return fmt.Sprintf("%d processes", len(s.pids))
}

// why says why nothing more comes, empty if somebody wanted that, or it is an error.
func (s *session) why(ctx context.Context, err error) string {
	switch {
	case ctx.Err() != nil || err != nil || s.duration > 0 && s.result.Elapsed >= s.duration:
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
	r := output.Run{PIDs: s.pids, Start: time.Now().Add(-s.result.Elapsed), Duration: s.result.Elapsed, Lost: s.result.Lost(), Command: s.name}
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
	name, _ := (procfs.FS{}).Comm(pid, pid)
	return name
}

// finish writes what was sampled and says how it went.
func (s *session) finish() error {
	if last, ok := s.outs.(*lastSink); ok {
		last.Describe(s.about())
	}
	if r, ok := s.outs.(*rounds); ok && errors.Is(s.pipeErr, sampler.ErrHeld) {
		r.grace = 0
	}
	err := errors.Join(s.pipeErr, s.outs.Close(), s.rec.close(s.pipeErr))
	if !s.quiet {
		s.closing()
	}
	return err
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

func (s *session) options() sampler.Options {
	return sampler.Options{
		PIDs: s.pids, TIDs: s.tids, Hz: s.hz,
		All: s.threads == threadsAll, WallWeight: s.weight == weightWall,
		Stop: stopMode(s.stop), NoRestart: s.noRestart, Children: s.children,
		Kernel: s.kernel, ExitStacks: s.exitStacks, Every: s.every, MaxOverhead: s.maxOverhead, MaxCPU: s.maxCPU, Nice: s.nice, Seldom: s.agent != nil, Log: s.log,
		Released: goBack,
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
	progress := func(string) {}
	if !c.quiet {
		clear := clearLine(stderr)
		progress = func(line string) { fmt.Fprintf(stderr, "%ssfsample: %s\n", clear, printable(line)) }
	}
	return sampler.NewNames(sampler.NameOptions{
		Demangle: demangleOf(c.demangle), Inlines: c.inlines, Lines: c.lines,
		Debuginfod: c.debuginfodOf(progress), Log: log, Progress: progress, Until: until, Recorded: recorded,
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
	if c.agent {
		pages = agentPages
	}
	cache := module.NewCache(pages)
	unwinding := until.Part()
	cache.Until = unwinding
	lists := module.NewLists(unwinding, log)
	var wait func(pid, tid int, nr int64, sp, runs uint64) func([]output.Frame) string
	if c.waits {
		wait = stuck.NewGlances(procfs.FS{}).Look
	}
	return sampler.NewPipeline(sampler.PipelineConfig{
		Wait: wait,
		Host: runtime.GOARCH, Start: time.Now(), Order: c.order, MaxDepth: c.maxDepth,
		Sink: sink, Names: names, Record: rec, Log: log, Kernel: c.kernel, Verify: c.verify, Live: true, Slow: slow, Until: unwinding,
		Scripts: c.scripts != scriptsOff, ScriptsOnly: c.scripts == scriptsOnly,
		Open: func(pid int) (sampler.Target, error) {
			src := sampler.NewSurvivor(pid, lists)
			space := module.NewSpace(src, cache, module.Options{Owner: src.Owner(), NoEHFrame: c.noEHFrame(), Log: log})
			return &liveTarget{space, src}, nil
		},
	})
}

// noEHFrame: .eh_frame is not among the methods, so that nothing ranks before a
// .sframe table of version 1.
func (c *config) noEHFrame() bool { return !slices.Contains(c.order, unwind.EHFrame) }

// liveTarget is a Space with its source, which holds files open.
type liveTarget struct {
	*module.Space
	src *sampler.Survivor
}

func (t *liveTarget) Close() {
	t.Space.Close()
	t.src.Close()
}

// debuginfodOf is the cache of debuginfod's client and, if asked for, the
// servers.
func (c *config) debuginfodOf(progress func(string)) *symbol.Debuginfod {
	d := &symbol.Debuginfod{Cache: symbol.DebuginfodCache(os.Getenv), Timeout: 90 * time.Second, Progress: progress}
	if c.debuginfod {
		d.URLs = strings.Fields(os.Getenv("DEBUGINFOD_URLS"))
	}
	return d
}

func (c *config) outputOptions() output.Options {
	return output.Options{Hz: float64(c.hz), Wall: c.weight == weightWall, By: c.by, Lines: c.lines, Micros: c.micros}
}

// logger writes records for people: warnings, and with -v all.
func logger(c config, w io.Writer) *slog.Logger {
	level := slog.LevelWarn
	switch {
	case c.quiet:
		level = slog.LevelError
	case c.verbose:
		level = slog.LevelDebug
	}
	return slog.New(&plainHandler{w: w, level: level, mu: new(sync.Mutex)})
}

// checkPIDs tells ids of threads from those of processes, which would be
// sampled in part only.
func checkPIDs(pids []int) error {
	for _, pid := range pids {
		s, err := (procfs.FS{}).Status(pid)
		switch {
		case err != nil && procfs.Gone(err):
			return fmt.Errorf("attach %d: no such process (try: ps -e)", pid)
		case err != nil:
			return fmt.Errorf("attach %d: %w", pid, err)
		case s.Tgid != pid:
			return fmt.Errorf("attach %d: it is a thread of process %d (try: -p %d, or -p %d -t %d)", pid, s.Tgid, s.Tgid, s.Tgid, pid)
		case pid == os.Getpid():
			return fmt.Errorf("attach %d: this is sfsample itself (try: another process)", pid)
		}
	}
	return nil
}

// checkLife tells processes that run no code of their own any more, or never
// did.
func checkLife(pids []int) error {
	var fs procfs.FS
	for _, pid := range pids {
		s, err := fs.Stat(pid)
		if err != nil {
			continue // gone; attaching will tell
		}
		if s.Flags&procfs.FlagKThread != 0 {
			return fmt.Errorf("attach %d: it is a thread of the kernel, it has no user stack (try: perf)", pid)
		}
		// A leader that has exited before its threads is a zombie too.
		if _, err := fs.LiveTask(pid); s.State == 'Z' && err != nil {
			return fmt.Errorf("attach %d: it has exited, and its parent, process %d, has not reaped it (try: another process)", pid, s.PPID)
		}
	}
	return nil
}

// checkKernel says so if the kernel's part of stacks was asked for, and cannot be read.
func checkKernel(c *config, log *slog.Logger) {
	if !c.kernel {
		return
	}
	if _, err := (procfs.FS{}).Stack(os.Getpid(), os.Getpid()); err != nil { // ours stands for all
		log.Warn(fmt.Sprintf("the kernel's part of stacks cannot be shown: %v (try: as root)", err))
	}
}

// checkTIDs finds the processes of --tid where no --pid names them.
func checkTIDs(c *config) error {
	owners := map[int]bool{}
	for _, tid := range c.tids {
		s, err := (procfs.FS{}).Status(tid)
		if err != nil {
			return fmt.Errorf("attach %d: no such thread (try: ls /proc/PID/task)", tid)
		}
		owners[s.Tgid] = true
		given := len(c.pids) == 0
		for _, pid := range c.pids {
			given = given || pid == s.Tgid
		}
		if !given {
			return fmt.Errorf("attach %d: it is a thread of process %d, which -p does not name (try: -p %d)", tid, s.Tgid, s.Tgid)
		}
	}
	if len(c.pids) == 0 {
		for pid := range owners {
			c.pids = append(c.pids, pid)
		}
	}
	return nil
}

// recording is the file of --record; nil is none.
type recording struct {
	file *os.File
	w    *capture.Writer
}

func openRecord(c config) (*recording, error) {
	if c.record == "" {
		return nil, nil
	}
	f, err := os.OpenFile(c.record, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("record: %w (try: another folder)", err)
	}
	w, err := capture.NewWriter(f)
	if err == nil {
		run := capture.Run{Host: runtime.GOARCH, Start: time.Now(), Hz: float64(c.hz), Weight: c.weight, Command: strings.Join(c.command, " "), PIDs: c.pids}
		run.Machine, _ = os.Hostname()
		if run.Command == "" && len(c.pids) > 0 {
			run.Command = commandLine(c.pids[0])
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
