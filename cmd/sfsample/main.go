// Command sfsample samples the stacks of live Linux processes through ptrace.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"sfsample/output"
)

// Exit status, as the help says.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

func main() {
	if os.Args[0] == launcherName {
		os.Exit(launch(os.Args[1:]))
	}
	// A closed pipe is an error of the output that writes to it, not the end of
	// the others. (Ignoring the signal would be inherited by a command of ours.)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	spareProcs()
	weight := spareMemory()
	status := run(os.Args[1:], os.Stdout, os.Stderr)
	runtime.KeepAlive(weight)
	os.Exit(status)
}

// spareProcs lets two goroutines more run than there are CPUs. The tracing thread
// comes out of each wait without delay then: otherwise it would wait for a turn
// among ours, held by threads that the system may not run for long on a busy
// machine, while a target stands still.
func spareProcs() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + spare)
	}
}

const spare = 2

// checkStdout is an error if the result is to go to standard output and that is
// closed. Go's runtime has put /dev/null in its place then, opened for reading too
// (runtime/fds_unix.go, checkfds); a shell opens it for writing.
func (c *config) checkStdout() error {
	if f := os.Stdout; isTerminal(f) && slices.Contains(c.out.specs, output.Spec{Format: "pprof", File: "-"}) {
		return errors.New("standard output is a terminal, which cannot show the compressed data of pprof (try: -o FILE.pb.gz, or a pipe)")
	}
	if c.top {
		return checkTerminal()
	}
	onto := c.mode == modeDump
	for _, spec := range c.out.specs {
		onto = onto || (c.mode == modeSample || c.mode == modeReplay || c.mode == modeDiff) && spec.File == "-"
	}
	var st unix.Stat_t
	if !onto || unix.Fstat(1, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(1, 3) {
		return nil
	}
	if flags, err := unix.FcntlInt(1, unix.F_GETFL, 0); err != nil || flags&unix.O_ACCMODE != unix.O_RDWR {
		return nil
	}
	return errors.New("standard output is closed, or /dev/null that was opened for reading too (which looks the same), so that there is no place for the result (try: -o FILE, or >/dev/null if none is wanted)")
}

// fewestFiles is how many descriptors a run takes with room to spare; more are used
// where there are more.
const fewestFiles = 64

// checkFiles is an error if so few files may be open that threads could not be told
// from such as have exited. (Go's runtime has raised the limit as far as it may.)
func (c *config) checkFiles() error {
	var lim unix.Rlimit
	if c.mode == modeHelp || c.mode == modeVersion || unix.Getrlimit(unix.RLIMIT_NOFILE, &lim) != nil || lim.Max >= fewestFiles {
		return nil
	}
	return fmt.Errorf("only %d files may be open, of at least %d that are needed (try: ulimit -n 1024)", lim.Max, fewestFiles)
}

// checkProc is an error if there is no /proc, which is where processes are read.
func (c *config) checkProc(folder string) error {
	if c.mode != modeSample && c.mode != modeDump {
		return nil
	}
	if _, err := os.Stat(filepath.Join(folder, "self", "stat")); err != nil {
		return fmt.Errorf("%s is not mounted here, and nothing is known of processes without it (try: mount -t proc proc %[1]s)", folder)
	}
	return nil
}

// run is main with its surroundings as arguments; it returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	c, err := parseArgs(args)
	if err != nil {
		fmt.Fprintf(stderr, "sfsample: %s\n", printable(err.Error()))
		return exitUsage
	}
	if c.mode == modeSample || c.mode == modeDump {
		c.goAhead()
		defer goBack()
	}
	err = errors.Join(c.checkFiles(), c.checkProc("/proc"))
	var page *showing
	if err == nil {
		page, err = c.out.showing()
	}
	defer page.close()
	if err = errors.Join(err, c.checkStdout()); err != nil {
		fmt.Fprintf(stderr, "sfsample: %v\n", err)
		return exitFailed
	}
	status := exitDone
	switch c.mode {
	case modeHelp:
		text := help()
		if c.topic == "man" {
			text = manPage()
		} else if c.topic != "" {
			text = completion(c.topic)
		}
		_, err = io.WriteString(stdout, text)
	case modeVersion:
		_, err = io.WriteString(stdout, versionText())
	case modeSample:
		if c.agent.on {
			err = agent(c, args, stderr)
		} else {
			status, err = sample(c, stderr)
		}
	case modeReplay:
		err = replay(c, stderr)
	case modeDiff:
		err = diff(c, stderr)
	case modeDump:
		err = dump(c, stdout, stderr)
	}
	if goBack(); err == nil && page != nil {
		err = page.show(func(format string, args ...any) { fmt.Fprintf(stderr, "sfsample: "+format+"\n", args...) })
	}
	if err != nil {
		for line := range strings.Lines(err.Error()) { // one for each output that failed
			fmt.Fprintf(stderr, "sfsample: %s\n", printable(strings.TrimSuffix(line, "\n")))
		}
		return exitFailed
	}
	return status
}
