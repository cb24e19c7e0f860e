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
  sfsample --name NAME [-d 10s] [-o FILE]                those that are there or come, by name
  sfsample [flags] -- COMMAND [ARGS...]                  start a command and sample it
  sfsample top -p PID                                    watch it live; ? tells the keys
  sfsample dump -p PID                                   what each thread waits for, and its stack
  sfsample agent --config FILE                           profile a machine's services all the time
  sfsample replay FILE                                   write again what --record kept
  sfsample diff BEFORE AFTER -o FILE.html                compare two profiles (-: standard input)

What to sample:
  -p, --pid PID[,PID...]    processes; may be repeated
  -t, --tid TID[,TID...]    only these threads; may be repeated
      --name NAME           processes of this name, with * ? [a-z], now and later; may be repeated
      --cgroup GROUP        those of a control group (path from /, unit, container's id)
      --container ID        the same, for the beginning of a container's id (12 digits or more)
      --user USER           those of a user, by name or number; of several kinds all must be met
      --tree                the descendants of all these too
      --children            follow forks and execs (default with -- COMMAND; --children=false)
      --threads running     threads that run: the CPU profile (default)
      --threads all         blocked threads too: the wall-clock profile
      --waits               with it: what they wait for as a frame, [futex: mutex held by worker-3]
      --exit-stacks         the stack of each thread at its exit
      --kernel              the kernel's part of the stack too (root)

When:
  -F, -hz, --hz 99          ticks a second, 1 to 100000
  -d, --duration 10s        time to sample, 10 is 10s (default: until the target ends or Ctrl-C)
      --every 10s           a result for each such round, in files with %%T, its time, in the names;
                            top: a new picture each so long (default 1s)
      --max-overhead 1%%     lower the rate when samples take more of a target's time (default 1%%)
      --max-cpu 0.5%%        lower the rate when this program takes a larger share of a CPU
      --nice                do not raise the sampler's priority

Agent:
      --config FILE         settings, KEY: VALUE on a line each; the keys are long flags
      --listen 127.0.0.1:6464
                            serve /metrics for Prometheus, and /healthz

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
%s                            or sent: otlp=URL (OpenTelemetry, also by OTEL_EXPORTER_OTLP_…),
                            pyroscope=URL; docs/fleet.md
      --spool DIR           keep what cannot be sent there, and send what is left there of before
      --service NAME        service.name of what is sent (default: OTEL_SERVICE_NAME, or by process)
      --no-names            send addresses and build-ids for receivers that have symbols (otlp)
      --weight cpu          samples weigh the CPU time used (default with --threads running)
      --weight wall         samples weigh a tick each (default with --threads all)
      --by thread           the thread's name is a frame below the process's; state: running, or
                            the call waited in; pid: processes of one name apart; process: none
      --unit ticks          folded counts ticks (default) or us, microseconds
      --inlines             inlined functions are frames
      --lines               file and line in labels
      --demangle full       C++ and Rust names; short: without parameters; off: as in the file
      --scripts on          scripts' frames in the place of their interpreter's (default);
                            only: no native ones in such stacks; off: native ones alone
      --gil                 only stacks of threads that hold Python's global lock
      --debuginfod          ask the servers of DEBUGINFOD_URLS for debug files
      --open                show the result in the browser, until Ctrl-C; --open=URL: that of
                            -o FILE.firefox.json or .speedscope.json in a viewer, {url} is its URL
      --record FILE         keep the captures for sfsample replay
      --dump                the same as the dump command
      --group               dump: show equal stacks once (default; --group=false)
      --json                dump: for programs; docs/dump-json.md tells the fields
      --watch 2s            dump: again and again, and mark what has changed
  -q, --quiet               no progress and no closing line
  -v, --verbose             report modules, methods and rejected tables

  -h, --help                this text; sfsample help man, or help bash, zsh, fish: the manual page,
                            and what completes our flags in these shells
      --version             the version

Standard output carries data only; messages go to standard error. Ctrl-C ends a
run and writes the result.

Exit status: 0 done, 1 failed, 2 wrong usage; after -- COMMAND, unless sampling
has failed, that of the command, if it has ended (128 and the signal's number, if
one has ended it).
`

// help is the whole text of --help.
func help() string {
	var formats strings.Builder
	for _, name := range output.Formats() {
		fmt.Fprintf(&formats, "%28s%-8s %s\n", "", name, strings.Join(output.Endings(name), " "))
	}
	return fmt.Sprintf(helpText, formats.String())
}

// release is what ./release stamps by the linker's -X.
var release string

// version is that of a release, the module's or, in a build from a working tree, the commit.
func version() string {
	version := release
	if info, ok := debug.ReadBuildInfo(); ok && version == "" {
		version = info.Main.Version
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && (version == "" || version == "(devel)") {
				version = s.Value[:min(12, len(s.Value))]
			}
		}
	}
	if version == "" {
		return "(devel)"
	}
	return version
}

// versionText is what --version prints.
func versionText() string {
	return fmt.Sprintf("sfsample %s %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
