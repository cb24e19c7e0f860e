// Harm measures what sfsample costs the programs that it samples: the same load
// runs without it and with it, in turns, and the differences are printed with
// their spread.
//
//	go run ./bench/harm [-pairs 5] [-d 4s] [-hz 99] [-threads running] [-only NAMES] [-sfsample FILE] [-flags FLAGS]
//
// The loads are
//
//	redis      redis-server under redis-benchmark: requests a second, CPU time of the
//	           server for each, error replies, and how its system calls end
//	epoll      a loop woken by a timer 1,000 times a second: wake-ups that came,
//	           EINTR and other errors, short reads and writes
//	spinners   64 threads that count: their speed, and each one's share of it
//	execs      a process that becomes itself by execve(2) again and again, in turn from its
//	           leader and from another thread: how long that takes, and which share of it takes at most 10 ms
//	others     a thread for each CPU computes and is sampled, while another program starts programs and
//	           waits for them: how many, and how often a busy thread changes its CPU
//
// Every other pair begins with sfsample. Rates are compared pair by pair: of the
// differences in per cent the median is printed, the mean with its standard
// error, and the range. Of counts the sums are shown. Two runs of the same thing differ by what else the machine does; more
// pairs (-pairs 20) and a quiet machine make the spread small, and -null runs
// both halves without sfsample to show how large it is.
//
// What the machine lacks is skipped and named. The exit status is 1 if a run
// failed, or a load ended in an error that it had not without sfsample.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// options are the settings of a measurement.
type options struct {
	pairs    int
	duration time.Duration
	hz       int
	threads  string
	sfsample string // the program
	flags    []string
	null     bool
	tmp      string // a folder that is removed at the end
}

// load is one kind of program to be sampled.
type load struct {
	name  string
	lacks func(o *options) string // what the machine has not got, "" if nothing
	// run runs the program once, for o.duration or so. attach is called with
	// its process id when it is ready, and detach before it ends.
	run func(o *options, s *sampler) (result, error)
}

var loads = []load{redisLoad, epollLoad, spinnersLoad, execsLoad, othersLoad}

func main() {
	if os.Args[0] == workloadName {
		workload(os.Args[1:])
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "harm:", err)
		os.Exit(1)
	}
}

func run() error {
	var o options
	var only, flags string
	flag.IntVar(&o.pairs, "pairs", 5, "pairs of runs, without and with sfsample")
	flag.DurationVar(&o.duration, "d", 4*time.Second, "duration of one run")
	flag.IntVar(&o.hz, "hz", 99, "sampling rate")
	flag.StringVar(&o.threads, "threads", "running", "running or all, as sfsample takes it")
	flag.StringVar(&o.sfsample, "sfsample", "", "the program to measure (default: built from this module)")
	flag.BoolVar(&o.null, "null", false, "sample never: shows the spread of equal runs")
	flag.StringVar(&flags, "flags", "", "more flags of sfsample")
	flag.StringVar(&only, "only", "", "loads, with commas between them (default all)")
	flag.Parse()
	o.flags = strings.Fields(flags)
	if flag.NArg() > 0 || o.pairs < 2 || o.duration <= 0 {
		return errors.New("wrong usage (try: go run ./bench/harm -pairs 5 -d 4s; at least 2 pairs)")
	}
	tmp, err := os.MkdirTemp("", "harm-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	o.tmp = tmp
	if o.sfsample == "" {
		o.sfsample = filepath.Join(tmp, "sfsample")
		if out, err := exec.Command("go", "build", "-o", o.sfsample, "sfsample/cmd/sfsample").CombinedOutput(); err != nil {
			return fmt.Errorf("build sfsample: %w\n%s", err, out)
		}
	}
	chosen, err := choose(only)
	if err != nil {
		return err
	}
	harmed := false
	for _, l := range chosen {
		if what := l.lacks(&o); what != "" {
			fmt.Printf("%s: skipped: %s\n\n", l.name, what)
			continue
		}
		bad, err := measure(&o, l)
		if err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
		harmed = harmed || bad
	}
	if harmed {
		return errors.New("a load had errors with sfsample that it had not without")
	}
	return nil
}

// choose returns the loads of these names; none stands for all.
func choose(names string) ([]load, error) {
	if names == "" {
		return loads, nil
	}
	var chosen []load
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(loads, func(l load) bool { return l.name == name })
		if i < 0 {
			return nil, fmt.Errorf("no load %q (redis, epoll, spinners, execs, others)", name)
		}
		chosen = append(chosen, loads[i])
	}
	return chosen, nil
}

// measure runs a load in pairs and prints the comparison. harmed: there were
// errors with sfsample only.
func measure(o *options, l load) (harmed bool, err error) {
	var c comparison
	var closing string
	for i := range o.pairs {
		s := &sampler{o: o}
		if o.null {
			s = nil
		}
		pair, err := runPair(o, l, s, i%2 == 1)
		if err != nil {
			return false, err
		}
		if s != nil {
			closing = s.closing.String()
		}
		c.add(pair[0], pair[1])
	}
	fmt.Printf("%s: %d pairs, %d Hz, --threads %s\n", l.name, o.pairs, o.hz, o.threads)
	harmed = c.print(os.Stdout)
	if closing != "" {
		fmt.Printf("  sfsample, last run:\n%s", indent(closing))
	}
	fmt.Println()
	return harmed, nil
}

// runPair runs a load without and with sfsample; withFirst, in the other order,
// so that a drift of the machine's speed does not look like harm.
func runPair(o *options, l load, s *sampler, withFirst bool) (pair [2]result, err error) {
	order := []int{0, 1}
	if withFirst {
		order = []int{1, 0}
	}
	for _, i := range order {
		var with *sampler
		if i == 1 {
			with = s
		}
		if pair[i], err = l.run(o, with); err != nil {
			return pair, err
		}
	}
	return pair, nil
}

func indent(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("    " + strings.TrimPrefix(line, "sfsample: "))
	}
	return b.String()
}
