package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// binary is a compiled test program of one package.
type binary struct {
	pkg  string // relative to the module, "." for its root
	path string // of the program
	only string // if set, the regular expression of the tests to run
}

// command is the program with its arguments.
func (b binary) command(path string, args []string) []string {
	argv := append([]string{path}, args...)
	if b.only != "" {
		argv = append(argv, "-test.run="+b.only)
	}
	return argv
}

// kind is how the tests are compiled and where they run.
type kind struct {
	dir   string   // of the programs; kinds with the same programs share it
	env   []string // for go
	flags []string // for go test -c
	args  []string // for the programs
	// What this kind of machine cannot find more in than the host's run is left out when all packages are asked for:
	// the packages without, and of those in only all other tests.
	without []string
	only    map[string]string
	place   func(tmp string, bins []binary, args []string, rep *report) error
}

var kinds = map[string]kind{
	"host": {dir: "host", place: runHost, args: []string{"-test.timeout=20m"}},
	// Interpreters, goroutines, DWARF, bounds, libraries that come and go, and what is left to do at the end are the same for every user who may read a process at all.
	"user": {dir: "host", place: runUser, args: []string{"-test.timeout=20m", "-test.skip=^Test(Beam(Random|Truth)|Complete|DebuggersAgree|DumpOfCrowd|DumpSwapped|.*Bombs?|.*Bounded|ExpandMiniDebug|Go(Program.*|Rows)|Goroutine.*|InlinesAgainstLLVM|Java.*|Languages|Lua.*|ManyMappings|Perl(Random|Truth)|PProfTool|RecordedRoom|Ruby.*|SwappedLibraries|V8.*|Watchdog|WorkLeft)$"},
		without: slices.Concat(portable, tools, []string{"cmd/sfdump", "internal/testprog", "live", "sampler/goroutines"})}, // which do the same for every user
	// TestFair and TestDumpTellsOfBounds measure; what a further interpreter is read with is one goroutine's as Python's is; the others are of what one goroutine does, or a browser.
	// And in TestWithheld/run a clock that hangs keeps Go's collector waiting, as it does in these builds alone (ptrace, outside_race.go), so that nobody frees it.
	"race": {dir: "race", flags: []string{"-race"}, place: runHere,
		args:    []string{"-test.timeout=20m", "-test.skip=^Test(Beam.*|Browser|Complete|DebuggersAgree|DumpTellsOfBounds|Fair|GoRows|Goroutine.*|Java.*|Languages|Lua.*|ManyMappings|NoFalseDeadlockJava|OutputFails|PHP.*|Perl(Random|Truth)|ReplayStock|Ruby.*|Search|SwappedLibraries|V8.*)$|^TestWithheld$/^run$|^TestWorkLeft$/_of_six$"},
		without: slices.Concat(single, tools, []string{"cmd/sfdump", "internal/testprog", "tools/attack"}), // which read by other packages, and start the usual build
		only:    map[string]string{"sampler/symbol": "^Test(Concurrent|Debuginfod)$", "sframe": "^TestConcurrent$"}},
	// Without DWARF (-w): the guest has all programs in memory.
	"arm64": {dir: "arm64", env: []string{"GOARCH=arm64", "CGO_ENABLED=0"}, flags: []string{"-ldflags=-w"},
		place: inGuest("arm64"), args: []string{"-test.timeout=20m", sameEverywhere},
		without: slices.Concat(portable, tools, []string{"deliver", "live", "output", "tools/attack"})}, // s390x, which rounds as arm64 does, has these
	"s390x": {dir: "s390x", env: []string{"GOARCH=s390x", "CGO_ENABLED=0"},
		place: inGuest("s390x"), args: []string{"-test.timeout=20m", sameEverywhere + sameKernel},
		without: slices.Concat(portable, tools, []string{"tools/attack"})},
}

// sameEverywhere leaves out what takes long in an emulated machine and does the same on each: command line, search, terminal, browser,
// configuration and sending, what our own limits and rates bound, and further ways to make the same recording.
const sameEverywhere = "-test.skip=^Test(.*Bombs?|.*Bounded|Agent|Bounds|CannotRun|DiffCommand|DisguisedText|ExpandMiniDebug|FirefoxAddresses|GoSwitchBrief|HostileNames|HotSpotLies|LongNames|Manual|ManyMappings|ManyObjects|NamesAreShared|Next|NiceOf.*|" +
	"Open|OpenViewer|OpenWrong|OutputFails|PerfMap|RecordedRoom|ReplayBad|ReplayTitle|Rounds|RoundTroubles|Search.*|Sent.*|Top.*|Usage|Watchdog|WritingEnds)$" +
	"|^TestAccount$/^(slow|too_fast|throttled|(all,_)?over_budget|all,_exec|(all,_)?no_run_counts)$|^TestReplay$/^(always_stopped|exit_stacks)$"

// sameKernel leaves out what the parts of the kernel decide that are one source for all architectures (signals, ends, namespaces, Yama): the
// other guest, whose kernel is of the same suites, sees them.
const sameKernel = "|^Test(CannotSample|ClocksComeAndGo|End|Headless|JobControl|KillIsPrompt|Killed|Listing|OwnRoot|Suspend|TargetOutlives|Yama|Zombie)$"

// portable packages make no system call, and have neither unsafe nor files, a byte order or floating point of one architecture in all that they
// are made of (TestPortable): the language says what they do, whoever runs them where. (Their tests do read files.)
var portable = []string{".", "internal/late", "internal/leb128", "internal/safeelf", "regs", "sampler/ledger", "sampler/syscalls", "sampler/watch",
	"sframe", "sframe/ehframe", "tools/internal/guest/wire", "unwind", "unwind/code"}

// single packages, their tests and what they are made of start no goroutine (TestSingle), and one alone races with nobody.
var single = []string{".", "internal/leb128", "internal/safeelf", "live", "output", "regs", "sampler/ledger", "sampler/syscalls", "sframe/ehframe",
	"tools/internal/guest/wire", "unwind", "unwind/code"}

// tools are what we measure and test with, on a machine with compilers, as root.
var tools = []string{"bench", "bench/counts", "bench/harm", "tools/endure", "tools/fault", "tools/internal/guest", "tools/mutate", "tools/shadow", "tools/testall"}

// compile builds the test program of every package that has tests. Programs
// that an earlier run left in the same folder are taken as they are. Narrowed: the
// caller says which tests to run.
func (k kind) compile(tmp string, patterns []string, narrowed bool) ([]binary, error) {
	pkgs, err := listTested(k.env, patterns)
	if err != nil {
		return nil, err
	}
	whole := slices.Equal(patterns, everything)
	if whole {
		pkgs = slices.DeleteFunc(pkgs, func(p string) bool { return slices.Contains(k.without, p) })
	}
	dir := filepath.Join(tmp, k.dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	bins := make([]binary, len(pkgs))
	errs := make([]error, len(pkgs))
	// Linking is serial, so two at once; each go command compiles in parallel.
	slots := make(chan struct{}, 2)
	var wg sync.WaitGroup
	for i, pkg := range pkgs {
		bins[i] = binary{pkg: pkg, path: filepath.Join(dir, fileName(pkg))}
		if whole && !narrowed {
			bins[i].only = k.only[pkg]
		}
		if _, err := os.Stat(bins[i].path); err == nil {
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			args := append([]string{"test", "-c", "-o", bins[i].path}, k.flags...)
			errs[i] = goCommand(k.env, append(args, "./"+pkg)...)
		})
	}
	wg.Wait()
	return bins, errors.Join(errs...)
}

// fileName is the name of a package's test program. Unlike the last part of the
// path it is unique.
func fileName(pkg string) string {
	if pkg == "." {
		return "root.test"
	}
	return strings.ReplaceAll(pkg, "/", "-") + ".test"
}

// listTested returns the packages that have tests, in the order of go list.
func listTested(env, patterns []string) ([]string, error) {
	const format = `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{"\t"}}{{.Module.Path}}{{end}}`
	cmd := exec.Command("go", append([]string{"list", "-f", format}, patterns...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var pkgs []string
	for line := range strings.Lines(string(out)) {
		path, module, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if path == "" {
			continue
		}
		rel := strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
		if rel == "" {
			rel = "."
		}
		pkgs = append(pkgs, rel)
	}
	return pkgs, nil
}

// goCommand runs go; its output is in the error.
func goCommand(env []string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
