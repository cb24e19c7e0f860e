package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"sfsample/output"
)

// helpText is what --help prints, with the list of formats in the place of %s.
// A test holds it against the flags.
const helpText = `sfsample samples the stacks of live Linux processes through ptrace.

Usage:
  sfsample -p PID[,PID...] [-hz 99] [-d 10s] [-o FILE]   sample live processes
  sfsample [flags] -- COMMAND [ARGS...]                  start a command and sample it
  sfsample dump -p PID                                   what each thread waits for, and its stack
  sfsample replay FILE                                   write again what --record kept

What to sample:
  -p, --pid PID[,PID...]    processes; may be repeated
  -t, --tid TID[,TID...]    only these threads; may be repeated
      --name NAME           dump: processes of this name, with * ? [a-z]; may be repeated
      --cgroup GROUP        dump: those of a control group (path from /, unit, container's id)
      --tree                dump: the descendants of all these too
      --children            follow forks and execs (default with -- COMMAND; --children=false)
      --threads running     threads that run: the CPU profile (default)
      --threads all         blocked threads too: the wall-clock profile
      --exit-stacks         the stack of each thread at its exit
      --kernel              the kernel's part of the stack too (root)

When:
  -F, -hz, --hz 99          ticks a second, 1 to 100000
  -d, --duration 10s        time to sample, 10 is 10s (default: until the target ends or Ctrl-C)
      --max-overhead 1%%     lower the rate when pauses take a larger share of the target's time
      --nice                do not raise the priority of the sampler's tracing thread

How:
      --stop auto           stop only threads that cannot be read otherwise (default)
      --stop never          stop none, show what can be read
      --stop always         stop each thread for each sample, if that does it no harm
      --no-restart          leave an EINTR that a stop has caused, stop no blocked thread
      --unwind sframe,eh_frame,code,fp,backchain
                            methods for each frame, in this order
      --max-depth 512       frames in a stack at most
      --verify              unwind by two methods and report where they differ

Output:
  -o, --output FILE         also FORMAT=FILE; - is standard output (default: folded=-); may be
                            repeated. Formats, and the endings that choose them:
%s      --weight cpu          samples weigh CPU time, in ticks (default with --threads running)
      --weight wall         samples weigh one for each tick (default with --threads all)
      --by thread           the thread's name is a frame below the process's
      --inlines             inlined functions are frames
      --lines               file and line in labels
      --demangle full       C++ and Rust names; short: without parameters; off: as in the file
      --scripts on          Python's frames in the place of its interpreter's (default); only: no
                            native ones in such stacks; off: native ones alone
      --debuginfod          ask the servers of DEBUGINFOD_URLS for debug files
      --record FILE         keep the captures for sfsample replay
      --dump                the same as the dump command
      --group               dump: show equal stacks once (default; --group=false)
      --json                dump: for programs; docs/dump-json.md tells the fields
      --watch 2s            dump: again and again, and mark what has changed
  -q, --quiet               no progress and no closing line
  -v, --verbose             report modules, methods and rejected tables

  -h, --help                this text
      --version             the version

Standard output carries data only; messages go to standard error. Ctrl-C ends a
run and writes the result.

Exit status: 0 done, 1 failed, 2 wrong usage.
`

// help is the whole text of --help.
func help() string {
	var formats strings.Builder
	for _, name := range output.Formats() {
		fmt.Fprintf(&formats, "%28s%-8s %s\n", "", name, strings.Join(output.Endings(name), " "))
	}
	return fmt.Sprintf(helpText, formats.String())
}

// versionText is what --version prints: the module's version or, in a build
// from a working tree, the commit.
func versionText() string {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			version = info.Main.Version
		}
	}
	return fmt.Sprintf("sfsample %s %s %s/%s\n", version, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
