// Endure lets sfsample sample programs that change all the time, for long, and looks at what that takes: its memory, its
// open files and its CPU time must not grow, every tick must be accounted for, and the profile must hold the CPU time that the programs used.
//
//	go run ./tools/endure                                 # half an hour at 999 Hz
//	go run ./tools/endure -d 2m -- --threads all          # with more flags of sfsample
//	go run ./tools/endure -tool ./sfsample                # another build
//
// The programs start and end threads, processes and programs without pause; python3, where there is one, makes functions
// and throws them away, and loads and unloads libraries. A line for each tenth of the time tells what sfsample had at most in
// it; in the first three caches fill. The exit status is 1 if something broke.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	length := flag.Duration("d", 30*time.Minute, "how long")
	hz := flag.Int("hz", 999, "ticks a second")
	tool := flag.String("tool", "", "the `program` to try (default: ./cmd/sfsample, built now)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := endure(ctx, *tool, *length, *hz, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "endure:", err)
		os.Exit(1)
	}
}

func endure(ctx context.Context, tool string, length time.Duration, hz int, flags []string) error {
	if length < time.Second {
		return fmt.Errorf("-d %v: a second at least", length)
	}
	dir, err := os.MkdirTemp("", "endure")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if tool == "" {
		tool = filepath.Join(dir, "sfsample")
		if text, err := exec.Command("go", "build", "-o", tool, "./cmd/sfsample").CombinedOutput(); err != nil {
			return fmt.Errorf("go build ./cmd/sfsample (run this in the module's top folder): %w\n%s", err, text)
		}
	}
	list, err := start(dir)
	defer stop(list)
	if err != nil {
		return err
	}
	found, err := watch(ctx, tool, dir, list, length, hz, flags)
	if err != nil {
		return err
	}
	found.print()
	return found.judge()
}

//go:embed turns.py
var turns []byte

// programs are those to be sampled. The shell's are other programs all the time, with the libraries that these have.
func programs(dir string) [][]string {
	churn := filepath.Join("testdata", "bin", runtime.GOARCH, "none", "churn")
	list := [][]string{
		{churn, "t"},
		{churn, "f"},
		{"sh", "-c", "while :; do ls -l / >/dev/null; sort README.md >/dev/null; awk 1 README.md >/dev/null; done"},
	}
	if python, err := exec.LookPath("python3"); err == nil {
		list = append(list, []string{python, filepath.Join(dir, "turns.py")})
	}
	return list
}

// start starts the programs. Each is the leader of a group of its own.
func start(dir string) (list []*exec.Cmd, err error) {
	if err := os.WriteFile(filepath.Join(dir, "turns.py"), turns, 0o644); err != nil {
		return nil, err
	}
	for _, argv := range programs(dir) {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return list, fmt.Errorf("%w (run this in the module's top folder)", err)
		}
		list = append(list, cmd)
	}
	return list, nil
}

func stop(list []*exec.Cmd) {
	for _, cmd := range list {
		unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		cmd.Wait()
	}
}

// parts is how many the time is cut into.
const parts = 10

// tenth is what sfsample had at most in a part of the time, and its CPU time up to then.
type tenth struct {
	memory int // VmRSS, kilobytes
	files  int
	cpu    time.Duration
}

// finding is what was seen of a run.
type finding struct {
	length time.Duration
	parts  [parts]tenth
	text   string        // what sfsample said
	folded time.Duration // sum of its output
	used   time.Duration // what the programs used, as the kernel says
}

// watch runs sfsample on the programs.
func watch(ctx context.Context, tool, dir string, list []*exec.Cmd, length time.Duration, hz int, flags []string) (*finding, error) {
	var pids []string
	for _, cmd := range list {
		pids = append(pids, strconv.Itoa(cmd.Process.Pid))
	}
	output := filepath.Join(dir, "out.folded")
	args := append([]string{"--children", "--weight", "cpu", "--hz", strconv.Itoa(hz), "-d", length.String(), "--unit", "us", "-o", "folded=" + output}, flags...)
	ctx, cancel := context.WithTimeout(ctx, length+time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, tool, append(args, "-p", strings.Join(pids, ","))...)
	var text bytes.Buffer
	cmd.Stderr = &text
	begun := time.Now()
	before := used(list)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	f := &finding{length: length}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	look := time.NewTicker(min(time.Second, length/(5*parts)))
	defer look.Stop()
	for {
		select {
		case err := <-ended:
			// They ran a little longer than they were sampled.
			f.used = time.Duration(float64(used(list)-before) * min(1, float64(length)/float64(time.Since(begun))))
			f.text = text.String()
			if err != nil {
				return nil, fmt.Errorf("sfsample: %w\n%s", err, f.text)
			}
			f.folded, err = sum(output)
			return f, err
		case <-look.C:
			part := &f.parts[min(int(time.Since(begun)*parts/length), parts-1)]
			memory, files := holds(cmd.Process.Pid)
			part.memory, part.files, part.cpu = max(part.memory, memory), max(part.files, files), cpuTime(cmd.Process.Pid, 2)
		}
	}
}

// used is the CPU time of the programs, and of their children that they have waited for.
func used(list []*exec.Cmd) (sum time.Duration) {
	for _, cmd := range list {
		sum += cpuTime(cmd.Process.Pid, 4)
	}
	return sum
}

// cpuTime adds up the first of a process's times: utime, stime, cutime, cstime.
func cpuTime(pid, times int) (sum time.Duration) {
	const tick = time.Second / 100 // USER_HZ: proc_pid_stat(5)
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	for i, field := range strings.Fields(rest) {
		if n, err := strconv.ParseInt(field, 10, 64); err == nil && i >= 11 && i < 11+times {
			sum += time.Duration(n) * tick
		}
	}
	return sum
}

// holds is how much memory a process has, in kilobytes, and how many open files. 0, 0: it has ended.
func holds(pid int) (memory, files int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			memory, _ = strconv.Atoi(strings.Fields(rest)[0])
		}
	}
	open, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return memory, len(open)
}

// sum adds up a folded file.
func sum(file string) (total time.Duration, err error) {
	text, err := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		us, err := strconv.ParseInt(line[strings.LastIndexByte(line, ' ')+1:], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s: line %q: %w", file, line, err)
		}
		total += time.Duration(us) * time.Microsecond
	}
	return total, err
}

func (f *finding) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "up to\tmemory\tfiles\tCPU\t")
	for i, part := range f.parts {
		fmt.Fprintf(w, "%v\t%.1f MB\t%d\t%.1f %%\t\n", f.length*time.Duration(i+1)/parts, float64(part.memory)/1024, part.files,
			100*float64(f.cpu(i))/float64(f.length/parts))
	}
	w.Flush()
	fmt.Print(f.text)
	fmt.Printf("profile %v, kernel %v of CPU time\n", f.folded.Round(time.Millisecond), f.used)
}

// cpu is what sfsample took in a tenth.
func (f *finding) cpu(i int) time.Duration {
	if i == 0 {
		return f.parts[0].cpu
	}
	return f.parts[i].cpu - f.parts[i-1].cpu
}

// What may grow from the fourth tenth to the last: the memory by the noise of a garbage collector, the files by those of the threads
// that happen to live, the CPU time by a half.
const (
	moreMemory = 8 << 10 // kilobytes
	moreFiles  = 64
	warm       = 3 // the first of the tenths that count
)

var account = regexp.MustCompile(`(?m)ticks.*?, (\d+) thread ticks = (.*?);`)

// judge says what broke.
func (f *finding) judge() error { return errors.Join(f.grows(), f.counts()) }

// grows says what sfsample has more and more of.
func (f *finding) grows() (err error) {
	then, now := f.parts[warm], f.parts[parts-1]
	if now.memory > then.memory+moreMemory {
		err = fmt.Errorf("memory grows from %d to %d kB", then.memory, now.memory)
	}
	if now.files > then.files+moreFiles {
		err = errors.Join(err, fmt.Errorf("open files grow from %d to %d", then.files, now.files))
	}
	if a, b := f.cpu(warm), f.cpu(parts-1); b > a+a/2 {
		err = errors.Join(err, fmt.Errorf("CPU time grows from %v to %v a tenth", a, b))
	}
	return err
}

// counts says what is wrong with the account and the profile.
func (f *finding) counts() (err error) {
	if f.parts[parts-1] == (tenth{}) {
		err = errors.New("sfsample has ended early")
	}
	if d := (f.folded - f.used).Abs(); d > f.used/100+time.Second/5 {
		err = errors.Join(err, fmt.Errorf("the profile holds %v of CPU time, the programs used %v", f.folded, f.used))
	}
	m := account.FindStringSubmatch(f.text)
	if m == nil {
		return errors.Join(err, errors.New("sfsample tells no account"))
	}
	var sum int64
	for class := range strings.SplitSeq(m[2], " + ") {
		number, _, _ := strings.Cut(class, " ")
		n, bad := strconv.ParseInt(number, 10, 64)
		err = errors.Join(err, bad)
		sum += n
	}
	if m[1] != strconv.FormatInt(sum, 10) {
		err = errors.Join(err, fmt.Errorf("%s thread ticks, and %d in its classes", m[1], sum))
	}
	return err
}
