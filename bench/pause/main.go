// Command pause measures what a sample costs the thread that is sampled, as the
// thread itself sees it, and holds sfsample against C loops that do nothing but
// stop it, copy registers and 4 KiB of stack, and let it go (src/loop.c): three
// that hold the thread between two samples, one that is free of it, as sfsample
// is, which seizes and detaches at each sample, on the thread's CPU, and one that
// does so on whichever CPU it finds the thread.
//
//	go run ./bench/pause [-hz 99] [-d 5s] [-rounds 6] [-depth 200] [-cpu N] [-place any|apart|same] [-sfsample FILE]
//
// A thread spins 200 frames deep on one CPU and writes down when it did not run
// (src/spin.c). The samplers take turns, so that what else the machine does meets
// all of them. The time lost for a sample is the sum of the thread's gaps around
// it. "nobody" does the same for moments at which nothing was sampled: what
// the machine's own interrupts take. "sfsample, goes on" is what a sample takes of
// CPU time once sfsample has started (from its second second on), with folded stacks; the loops unwind and write nothing. sfsample is held
// against each loop by the medians of a turn, and by a turn's CPU time: the median of those ratios, and the interval that holds the
// true one with 95 % (from six turns on; else from the lowest to the highest); so is what it tells itself
// that a sample has taken.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// slack is added on both sides of a sample: the tick that wakes a sampler on the
// thread's own CPU comes before its interrupt, and the thread runs a little
// after it was let go.
const slack = 100 * time.Microsecond

func main() {
	hz := flag.Int("hz", 99, "samples a second")
	turn := flag.Duration("d", 5*time.Second, "length of a turn")
	rounds := flag.Int("rounds", 6, "turns of each sampler")
	depth := flag.Int("depth", 200, "frames of the thread")
	cpu := flag.Int("cpu", -1, "CPU of the thread (default: the last one)")
	place := flag.String("place", "any", "where samplers run: on any CPU, apart from the thread, or on the same one")
	tool := flag.String("sfsample", "", "sfsample's binary (default: build it)")
	extra := flag.String("flags", "", "more flags of sfsample")
	flag.Parse()
	b := bench{hz: *hz, turn: *turn, depth: *depth, cpu: *cpu, place: *place, tool: *tool, extra: strings.Fields(*extra)}
	if err := b.run(*rounds); err != nil {
		fmt.Fprintln(os.Stderr, "pause:", err)
		os.Exit(1)
	}
}

type bench struct {
	hz, depth, cpu int
	turn           time.Duration
	place, tool    string
	extra          []string
	dir            string
	spinner        *exec.Cmd
	real           int64 // CLOCK_REALTIME less CLOCK_MONOTONIC
	told           []float64
}

// contender is one sampler with what it cost so far.
type contender struct {
	name string
	run  func() ([]window, time.Duration, error)
	lost []time.Duration // for each sample
	p50  []float64       // of lost, by turn
	cpu  []float64       // for each sample, by turn, nanoseconds
}

// used takes note of a turn's CPU time.
func (c *contender) used(cpu time.Duration, samples int) {
	c.cpu = append(c.cpu, float64(cpu)/float64(max(samples, 1)))
}

// window is when a sample was taken, CLOCK_MONOTONIC in nanoseconds.
type window struct{ from, to int64 }

func (b *bench) run(rounds int) error {
	var err error
	if b.dir, err = os.MkdirTemp("", "pause"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if err := b.build(); err != nil {
		return err
	}
	if err := b.startSpinner(); err != nil {
		return err
	}
	defer func() {
		b.spinner.Process.Kill()
		b.spinner.Wait()
	}()
	loop := func(mode string) *contender {
		return &contender{name: "loop, " + mode, run: func() ([]window, time.Duration, error) { return b.loop(mode) }}
	}
	all := []*contender{
		{name: "nobody", run: b.nobody},
		loop("sleep"), loop("poll"), loop("same-cpu"), loop("free"), loop("clocks"),
		{name: "sfsample", run: b.sfsample},
	}
	goesOn := &contender{name: "sfsample, goes on"}
	for round := range rounds {
		for i := range all {
			c := all[(i+round)%len(all)]
			w, cpu, err := c.run()
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			gaps, err := b.gaps()
			if err != nil {
				return err
			}
			turn := lost(w, gaps)
			c.lost = append(c.lost, turn...)
			c.used(cpu, len(w))
			slices.Sort(turn)
			c.p50 = append(c.p50, float64(quantile(turn, 0.5)))
		}
		n, cpu, err := b.goesOn()
		if err != nil {
			return fmt.Errorf("%s: %w", goesOn.name, err)
		}
		goesOn.used(cpu, n)
	}
	b.report(all, goesOn, rounds)
	return nil
}

func (b *bench) build() error {
	for _, name := range []string{"spin", "loop"} {
		cc := exec.Command("cc", "-O2", "-pthread", "-o", filepath.Join(b.dir, name), filepath.Join("bench", "pause", "src", name+".c"))
		cc.Stderr = os.Stderr
		if err := cc.Run(); err != nil {
			return fmt.Errorf("cc %s.c: %w (try: from the folder of go.mod)", name, err)
		}
	}
	if b.tool != "" {
		return nil
	}
	b.tool = filepath.Join(b.dir, "sfsample")
	build := exec.Command("go", "build", "-o", b.tool, "./cmd/sfsample")
	build.Stderr = os.Stderr
	return build.Run()
}

func (b *bench) startSpinner() error {
	b.spinner = exec.Command(filepath.Join(b.dir, "spin"), strconv.Itoa(b.depth), b.path("gaps"))
	out, err := b.spinner.StdoutPipe()
	if err != nil {
		return err
	}
	if err := b.spinner.Start(); err != nil {
		return err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("the spinning program did not start: %w", err)
	}
	var set unix.CPUSet
	if b.cpu < 0 {
		if err := unix.SchedGetaffinity(0, &set); err != nil {
			return err
		}
		for i := range 1024 {
			if set.IsSet(i) {
				b.cpu = i
			}
		}
	}
	set.Zero()
	set.Set(b.cpu)
	if err := unix.SchedSetaffinity(b.spinner.Process.Pid, &set); err != nil {
		return fmt.Errorf("bind the thread to CPU %d: %w", b.cpu, err)
	}
	words, err := b.words()
	if err == nil {
		b.real = int64(words(1))
	}
	return err
}

func (b *bench) path(name string) string { return filepath.Join(b.dir, name) }

// words gives access to the 64-bit words of the spinner's file.
func (b *bench) words() (func(i int) uint64, error) {
	data, err := os.ReadFile(b.path("gaps"))
	if err != nil {
		return nil, err
	}
	return func(i int) uint64 { return binary.NativeEndian.Uint64(data[8*i:]) }, nil
}

// gaps are the times in which the thread did not run.
func (b *bench) gaps() ([]window, error) {
	word, err := b.words()
	if err != nil {
		return nil, err
	}
	list := make([]window, word(0))
	for i := range list {
		end := int64(word(2 + 2*i))
		list[i] = window{end - int64(word(3+2*i)), end}
	}
	return list, nil
}

// lost sums up the gaps around each sample; both lists are in order of time.
func lost(samples, gaps []window) []time.Duration {
	var list []time.Duration
	first := 0
	for _, s := range samples {
		from, to := s.from-int64(slack), s.to+int64(slack)
		for first < len(gaps) && gaps[first].to < from {
			first++
		}
		var sum int64
		for i := first; i < len(gaps) && gaps[i].from < to; i++ {
			sum += gaps[i].to - gaps[i].from
		}
		list = append(list, time.Duration(sum))
	}
	return list
}

func (b *bench) nobody() ([]window, time.Duration, error) {
	var list []window
	interval := time.Second / time.Duration(b.hz)
	for at := monotonic(); len(list) < int(b.turn/interval); at += int64(interval) {
		list = append(list, window{at, at})
	}
	time.Sleep(b.turn)
	return list, 0, nil
}

func monotonic() int64 {
	var ts unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// output runs a sampler where samplers are to run.
func (b *bench) output(cmd *exec.Cmd) (out []byte, err error) {
	err = b.placed(func() error {
		out, err = cmd.Output()
		return err
	})
	return out, err
}

// placed starts a sampler where samplers are to run.
func (b *bench) placed(start func() error) error {
	if b.place == "any" {
		return start()
	}
	var old, set unix.CPUSet
	runtime.LockOSThread() // a child inherits the affinity of the thread that starts it
	defer runtime.UnlockOSThread()
	if err := unix.SchedGetaffinity(0, &old); err != nil {
		return err
	}
	if b.place == "same" {
		set.Set(b.cpu)
	} else {
		set = old
		set.Clear(b.cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind the sampler %s: %w", b.place, err)
	}
	defer unix.SchedSetaffinity(0, &old)
	return start()
}

func (b *bench) loop(mode string) ([]window, time.Duration, error) {
	cmd := exec.Command(b.path("loop"), mode, strconv.Itoa(b.spinner.Process.Pid), strconv.Itoa(b.hz),
		strconv.Itoa(int(b.turn/time.Second)), b.path("loop.log"))
	cmd.Stderr = os.Stderr
	out, err := b.output(cmd)
	if err != nil {
		return nil, 0, err
	}
	used, err := strconv.Atoi(strings.TrimSpace(string(out)))
	if err != nil {
		return nil, 0, err
	}
	data, err := os.ReadFile(b.path("loop.log"))
	if err != nil {
		return nil, 0, err
	}
	var list []window
	for line := range strings.Lines(string(data)) {
		var w window
		if _, err := fmt.Sscan(line, &w.from, &w.to); err != nil {
			return nil, 0, err
		}
		list = append(list, w)
	}
	return list, time.Duration(used) * time.Microsecond, nil
}

// taken is what sfsample tells at the end: the median of what its samples took of the thread's time.
var taken = regexp.MustCompile(`taken p50 ([^,]+),`)

func (b *bench) sfsample() ([]window, time.Duration, error) {
	args := []string{"-p", strconv.Itoa(b.spinner.Process.Pid), "-F", strconv.Itoa(b.hz),
		"-d", b.turn.String(), "-o", "json=" + b.path("samples.json")}
	cmd := exec.Command(b.tool, append(args, b.extra...)...)
	var told bytes.Buffer
	cmd.Stderr = &told
	if _, err := b.output(cmd); err != nil {
		return nil, 0, fmt.Errorf("%w: %s", err, &told)
	}
	m := taken.FindSubmatch(told.Bytes())
	if m == nil {
		return nil, 0, fmt.Errorf("it does not tell what a sample takes: %s", &told)
	}
	took, err := time.ParseDuration(string(m[1]))
	if err != nil {
		return nil, 0, err
	}
	b.told = append(b.told, float64(took))
	data, err := os.ReadFile(b.path("samples.json"))
	if err != nil {
		return nil, 0, err
	}
	var list []window
	for line := range strings.Lines(string(data)) {
		var s struct {
			Time  int64  `json:"time_ns"`
			Delay int64  `json:"delay_ns"`
			Pause int64  `json:"pause_ns"`
			Taken string `json:"taken"`
		}
		if err := json.Unmarshal([]byte(line), &s); err != nil {
			return nil, 0, err
		}
		if s.Taken == "stop" {
			at := s.Time - b.real
			list = append(list, window{at - s.Delay - s.Pause, at})
		}
	}
	return list, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// goesOn is the CPU time that sfsample takes from its first second, or half, on, and how many ticks that were.
func (b *bench) goesOn() (n int, cpu time.Duration, err error) {
	warm := min(time.Second, b.turn/2)
	args := []string{"-q", "-p", strconv.Itoa(b.spinner.Process.Pid), "-F", strconv.Itoa(b.hz), "-d", (b.turn + warm).String(), "-o", "folded=" + b.path("samples.folded")}
	cmd := exec.Command(b.tool, append(args, b.extra...)...)
	cmd.Stderr = os.Stderr
	if err := b.placed(cmd.Start); err != nil {
		return 0, 0, err
	}
	used := func() (t time.Duration) {
		var ts unix.Timespec
		// The clock of a process: MAKE_PROCESS_CPUCLOCK with CPUCLOCK_SCHED, include/linux/posix-timers.h.
		err = errors.Join(err, unix.ClockGettime(int32(^cmd.Process.Pid<<3|2), &ts))
		return time.Duration(ts.Nano())
	}
	time.Sleep(warm)
	cpu, from := -used(), time.Now()
	time.Sleep(b.turn - warm)
	cpu += used()
	n = int(time.Since(from).Seconds() * float64(b.hz))
	return n, cpu, errors.Join(err, cmd.Wait())
}

func (b *bench) report(all []*contender, goesOn *contender, rounds int) {
	fmt.Printf("time lost for a sample, as the thread sees it; %d frames, %d Hz, %d turns of %v each\n", b.depth, b.hz, rounds, b.turn)
	fmt.Printf("%-18s %8s %10s %10s %10s %14s\n", "", "samples", "p50", "p90", "p99", "CPU/sample")
	for _, c := range all {
		slices.Sort(c.lost)
		fmt.Printf("%-18s %8d %10v %10v %10v %14v\n", c.name, len(c.lost), quantile(c.lost, 0.5), quantile(c.lost, 0.9), quantile(c.lost, 0.99), c.perSample())
	}
	fmt.Printf("%-18s %41s %14v\n", goesOn.name, "", goesOn.perSample())
	ours := all[len(all)-1]
	for _, c := range all[1 : len(all)-1] {
		m, low, high := interval(ratios(goesOn.cpu, c.cpu))
		fmt.Printf("CPU/sample, as it goes on: %.2f of the %s (%.2f to %.2f)\n", m, c.name, low, high)
	}
	m, low, high := interval(ratios(b.told, ours.p50))
	fmt.Printf("sfsample tells %.2f of what is lost (%.2f to %.2f)\n", m, low, high)
	for _, c := range all[1 : len(all)-1] {
		m, low, high := interval(ratios(ours.p50, c.p50))
		fmt.Printf("sfsample: %.2f of the %s (%.2f to %.2f)\n", m, c.name, low, high)
	}
}

// perSample is the median of what a sample took of CPU time.
func (c *contender) perSample() time.Duration {
	m, _, _ := interval(slices.Clone(c.cpu))
	return time.Duration(m).Round(100 * time.Nanosecond)
}

// ratios are those of two samplers' turns.
func ratios(a, b []float64) (list []float64) {
	for i := range a {
		list = append(list, a[i]/max(b[i], 1))
	}
	return list
}

// interval is the median of v, and where the true median is with 95 %: between the k-th lowest and the k-th highest, by the binomial distribution.
func interval(v []float64) (median, low, high float64) {
	slices.Sort(v)
	n, k := len(v), 0
	p, sum := math.Pow(0.5, float64(n)), 0.0 // of k lower ones; of at most k
	for sum+p <= 0.025 {
		sum += p
		p *= float64(n-k) / float64(k+1)
		k++
	}
	k = max(k, 1)
	return (v[(n-1)/2] + v[n/2]) / 2, v[k-1], v[n-k]
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)].Round(10)
}
