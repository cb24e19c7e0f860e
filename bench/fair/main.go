// Fair holds sfsample's shares against those of perf's CPU clock, whose ticks are interrupts of each CPU, and against a program's
// own clocks. perf looks at all CPUs: of one process its timers begin anew each time that a thread gets a CPU, and miss half of the
// ticks of one that sleeps thousands of times a second. Even so it sees too little of such threads, as its interrupt often comes when they
// have just left the CPU (Go's monitor thread: 6.6 % of a server's CPU time by schedstat, 1.5 % of perf's samples). So the samples of each
// thread share the CPU time that the kernel's own account has of it.
//
//	go run ./bench/fair [-d 10s] [-hz 999] [-user] [-doubt 2] [-sfsample FILE] [-only NAMES] [-- ARGUMENTS OF SFSAMPLE]
//
// Each program works without an end, under load where it is a server. perf and sfsample look at it in turns of a fourth
// of -d each. Shares are of CPU time, by the function that the thread's own code was in (as symbol tables have it, for both alike): a sample in
// the kernel counts for the function whose call that is. A program that calls the kernel through libc times its calls itself, while no tool looks
// (src/timed.c, loaded with LD_PRELOAD), which takes up to 2 % of its time ([vdso]). Of such calls sfsample has to agree with either, of all else with perf: of
// redis-server's write perf has had 49 to 61 % from run to run, and its own clocks 58 to 62. To agree is to be within 3 points, or, below 10 %, within a third; functions
// with less than 2 % by both are left out, as are fewer than 0.5 points of difference. "no stack" is CPU time without a sample, and "moved"
// samples that may be of a moment after their tick: 2 % together at most. With -user the programs and sfsample run as nobody.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"sfsample/ptrace/procfs"
)

// turns is how many turns each tool has, in alternation.
const turns = 4

type options struct {
	length   time.Duration
	hz       int
	doubt    float64
	user     bool
	sfsample string
	dir      string
	args     []string
}

// program is what is looked at.
type program struct {
	name string
	args func(o *options, address string) []string
	load func(o *options, address string) []string // nil: none is needed
	libc bool                                      // its first thread makes its calls through libc, and times them
}

func calls(kind string, n int) program {
	return program{name: fmt.Sprint(kind, " ", n), args: func(o *options, _ string) []string {
		return []string{o.file("calls"), kind, strconv.Itoa(n)}
	}}
}

// script is what python3 does: input and output, and work between.
const script = `
import json, os
f = open("/dev/null", "w")
while True:
    for name in os.listdir("/proc/self/fd"):
        data = json.dumps({"name": name, "list": list(range(50))})
        f.write(data)
        f.flush()
        with open("/proc/self/stat") as s:
            s.read()
`

var programs = []program{
	calls("every", 2), calls("every", 5), calls("every", 10), calls("every", 20), calls("every", 50),
	calls("stdio", 6), calls("threads", 3), calls("wander", 10),
	{"redis-server", func(o *options, address string) []string {
		_, port, _ := net.SplitHostPort(address)
		return []string{"redis-server", "--port", port, "--save", "", "--dir", o.dir}
	}, func(o *options, address string) []string {
		_, port, _ := net.SplitHostPort(address)
		return []string{"redis-benchmark", "-p", port, "-l", "-c", "20", "-r", "1000", "-t", "set,get", "-q"}
	}, true},
	{"nginx", func(o *options, address string) []string {
		conf := fmt.Sprintf("daemon off; master_process off; pid %[1]s/pid; error_log %[1]s/errors;\nevents {}\n"+
			"http { access_log off; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;\n"+
			"keepalive_requests 100000000; server { listen %[2]s; location / { return 200 \"%[3]s\\n\"; } } }\n", o.dir, address, strings.Repeat("hello ", 100))
		_ = os.WriteFile(o.file("nginx.conf"), []byte(conf), 0o644) // nginx tells if it is missing
		return []string{"nginx", "-c", o.file("nginx.conf"), "-e", o.file("errors")}
	}, func(_ *options, address string) []string {
		return []string{"ab", "-q", "-k", "-t", "3600", "-n", "5000000", "-c", "20", "http://" + address + "/"}
	}, true},
	{"python3", func(o *options, _ string) []string { return []string{"python3", "-c", script} }, nil, true},
	{"Go server", func(o *options, address string) []string { return []string{o.file("fair"), "-serve", address} },
		func(o *options, address string) []string { return []string{o.file("fair"), "-ask", address} }, false},
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "fair:", err)
		os.Exit(1)
	}
}

func run(args []string, w io.Writer) error {
	var o options
	fs := flag.NewFlagSet("fair", flag.ContinueOnError)
	fs.DurationVar(&o.length, "d", 10*time.Second, "how long each tool looks at each program")
	fs.IntVar(&o.hz, "hz", 999, "samples a second")
	fs.Float64Var(&o.doubt, "doubt", 2, "moved samples and ticks without a stack, in per cent at most")
	fs.BoolVar(&o.user, "user", false, "programs and sfsample are nobody's")
	fs.StringVar(&o.sfsample, "sfsample", "", "the program to measure (default: built from this module)")
	only := fs.String("only", "", "names of programs, with commas between (default: all)")
	serveAt := fs.String("serve", "", "be the Go server, at an address")
	askAt := fs.String("ask", "", "be the load of the Go server")
	if err := fs.Parse(args); err != nil {
		return err
	}
	o.args = fs.Args()
	switch {
	case *serveAt != "":
		return serve(*serveAt)
	case *askAt != "":
		return ask(*askAt)
	}
	if err := o.build(); err != nil {
		return err
	}
	defer os.RemoveAll(o.dir)
	bad, missing := 0, 0
	for _, p := range programs {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), p.name) {
			continue
		}
		ok, err := o.hold(p, w)
		if err != nil {
			fmt.Fprintf(w, "%s: not measured: %v\n", p.name, err)
			missing++
		} else if !ok {
			bad++
		}
	}
	if bad+missing > 0 {
		return fmt.Errorf("%d programs have other shares by sfsample than by perf, %d were not measured", bad, missing)
	}
	return nil
}

func (o *options) file(name string) string { return filepath.Join(o.dir, name) }

func (o *options) build() (err error) {
	if o.dir, err = os.MkdirTemp("", "fair-*"); err != nil {
		return err
	}
	if err := os.Chmod(o.dir, 0o777); err != nil { // nobody's nginx and redis-server write there
		return err
	}
	list := [][]string{{"cc", "-O1", "-pthread", "-o", o.file("calls"), "bench/fair/src/calls.c"},
		{"cc", "-O2", "-shared", "-fPIC", "-o", o.file("timed.so"), "bench/fair/src/timed.c"}, {"go", "build", "-o", o.file("fair"), "./bench/fair"}}
	if o.sfsample == "" {
		o.sfsample = o.file("sfsample")
		list = append(list, []string{"go", "build", "-o", o.sfsample, "./cmd/sfsample"})
	}
	for _, args := range list {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s(try: go run ./bench/fair from the folder of go.mod)", strings.Join(args, " "), err, out)
		}
	}
	return nil
}

// command is a command of the user that the programs are.
func (o *options) command(args ...string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	if o.user {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	}
	return cmd
}

func serve(address string) error {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		list := map[string][]int{}
		for i := range 20 {
			list[strconv.Itoa(i)] = append(list[strconv.Itoa(i%7)], i)
		}
		_ = json.NewEncoder(w).Encode(list) // the client has gone
	})
	return http.ListenAndServe(address, nil)
}

func ask(address string) error {
	errs := make(chan error)
	http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = 8
	for range 4 {
		go func() {
			for {
				r, err := http.Get("http://" + address + "/")
				if err != nil {
					errs <- err
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				r.Body.Close()
			}
		}()
	}
	return <-errs
}

// started is a program at work.
type started struct {
	pid   int
	share float64 // of its time in calls, by its own clocks, per cent; 0: not told
	stop  func()
}

// patience is how long a program may take to be ready.
const patience = 20 * time.Second

func (o *options) start(p program) (s started, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return s, err
	}
	address := l.Addr().String()
	l.Close()
	cmd := o.command(p.args(o, address)...)
	if p.libc {
		_ = os.Remove(o.file("timed")) // of another program, if there is one
		cmd.Env = append(os.Environ(), "LD_PRELOAD="+o.file("timed.so"), "FAIR_TIMED="+o.file("timed"))
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return s, err
	}
	if err := cmd.Start(); err != nil {
		return s, fmt.Errorf("%w (try: apt install it)", err)
	}
	ends := []*exec.Cmd{cmd}
	s = started{pid: cmd.Process.Pid, stop: func() {
		for _, c := range ends {
			_ = c.Process.Kill() // it may have ended
			_ = c.Wait()
		}
	}}
	lines := bufio.NewReader(out)
	if strings.HasSuffix(cmd.Path, "/calls") {
		for line := ""; line != "ready\n"; {
			if line, err = lines.ReadString('\n'); err != nil {
				s.stop()
				return s, err
			}
			_, _ = fmt.Sscanf(line, "share %g", &s.share) // other lines tell none
		}
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	if p.load == nil {
		return s, nil
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			c.Close()
			break
		}
		if time.Now().After(end) {
			s.stop()
			return s, errors.New("it does not answer")
		}
	}
	args := p.load(o, address)
	load := exec.Command(args[0], args[1:]...)
	if err := load.Start(); err != nil {
		s.stop()
		return s, err
	}
	ends = append(ends, load)
	return s, nil
}

// shares are how much was seen where, in samples or nanoseconds.
type shares map[string]float64

func (s shares) total() (sum float64) {
	for _, n := range s {
		sum += n
	}
	return sum
}

func (s shares) of(name string) float64 { return 100 * s[name] / max(s.total(), 1e-9) }

// hold compares the two for a program.
func (o *options) hold(p program, w io.Writer) (ok bool, err error) {
	s, err := o.start(p)
	if err != nil {
		return false, err
	}
	defer s.stop()
	symbols := symbols{pid: s.pid}
	perf, ours, own := shares{}, shares{}, shares{}
	var seen, samples, moved int
	var lost float64
	for range turns {
		n, err := o.perf(s.pid, &symbols, perf)
		if err != nil {
			return false, err
		}
		seen += n
		t, err := o.sample(s.pid, &symbols, ours)
		if err != nil {
			return false, err
		}
		samples, moved, lost = samples+t.samples, moved+t.moved, lost+t.lost
		if p.libc {
			if err := o.timed(s.pid, own); err != nil {
				return false, err
			}
		}
	}
	doubt := 100*float64(moved)/float64(max(samples, 1)) + 100*lost/max(lost+ours.total(), 1)
	fmt.Fprintf(w, "%s: %d samples by perf, %d by sfsample; moved or without stack %.2f %%\n", p.name, seen, samples, doubt)
	ok = doubt <= o.doubt && samples > 0 && seen > 0
	names := slices.SortedFunc(maps.Keys(perf), func(a, b string) int { return cmp.Compare(perf[b], perf[a]) })
	for name := range ours {
		if perf[name] == 0 {
			names = append(names, name)
		}
	}
	if p.libc && len(own) < 2 {
		fmt.Fprintf(w, "%s: it has timed no call of its own\n", p.name)
	}
	for _, name := range names {
		theirs, got := perf.of(name), ours.of(name)
		if theirs < 2 && got < 2 {
			continue
		}
		word, mark := "", ""
		good := agree(theirs, got)
		if share, ok := ofCall(own, name); ok {
			good = good || agree(share, got)
			word = fmt.Sprintf("   by its own clocks %.1f", share)
		} else if s.share > 0 && strings.HasSuffix(name, " syscall") {
			word = fmt.Sprintf("   by its own clocks %.1f", s.share)
		}
		ok = ok && good
		if !good {
			mark = "   off"
		}
		fmt.Fprintf(w, "    %-50s %6.1f %6.1f%s%s\n", name, theirs, got, word, mark)
	}
	return ok, nil
}

// agree tells whether two shares, in per cent, are the same as far as samples tell.
func agree(truth, got float64) bool {
	off := math.Abs(truth - got)
	return off <= 0.5 || off <= 3 && (truth >= 10 || off <= truth/3)
}

// timed adds to into for how long a program was in system calls, by their names, and outside of them (""), in nanoseconds, as it tells for one turn in which
// nobody looks.
func (o *options) timed(pid int, into shares) error {
	before, err := o.records()
	if err != nil {
		return err
	}
	ran := runTimes(pid)
	time.Sleep(o.length / turns)
	after, err := o.records()
	if err != nil {
		return err
	}
	for tid, ns := range runTimes(pid) {
		into[""] += ns - ran[tid]
	}
	for name, ns := range after {
		into[name] += ns - before[name]
		into[""] -= ns - before[name]
	}
	return nil
}

// records reads what a program has told of its calls so far, see src/timed.c.
func (o *options) records() (shares, error) {
	const name, all = 24, 32
	b, err := os.ReadFile(o.file("timed"))
	if err != nil {
		return nil, fmt.Errorf("read what the program tells of its calls: %w", err)
	}
	list := shares{}
	for ; len(b) >= all; b = b[all:] { // those of no call have no name
		list[string(bytes.TrimRight(b[:name], "\x00"))] = float64(binary.NativeEndian.Uint64(b[name:all]))
	}
	return list, nil
}

// ofCall is the share of the call whose name a function of libc has. false: it has that of none that was timed.
func ofCall(timed shares, function string) (share float64, ok bool) {
	file, name, _ := strings.Cut(function, " ")
	name = strings.TrimLeft(name, "_")
	return timed.of(name), strings.HasPrefix(file, "libc.") && name != "" && timed[name] > 0
}

// perf has perf look for one turn. n is how many samples it has.
func (o *options) perf(pid int, sym *symbols, into shares) (n int, err error) {
	file := o.file("perf.data")
	seconds := fmt.Sprint((o.length / turns).Seconds())
	before := runTimes(pid)
	out, err := exec.Command("perf", "record", "-q", "-a", "-e", "cpu-clock", "-F", strconv.Itoa(o.hz), "-g", "-o", file, "--", "sleep", seconds).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("perf record: %w\n%s", err, out)
	}
	after := runTimes(pid)
	text, err := exec.Command("perf", "script", "-i", file, "--pid", strconv.Itoa(pid), "-F", "tid,ip,dso").Output()
	if err != nil {
		return 0, fmt.Errorf("perf script: %w", err)
	}
	threads := map[int]shares{}
	// A sample is its thread, its addresses, a line each, innermost first, and an empty line. Addresses outside the kernel are
	// offsets in the file that is told behind them.
	var thread shares // nil: between samples
	found := false
	for line := range bytes.Lines(text) {
		line := string(bytes.TrimSpace(line))
		text, file, _ := strings.Cut(line, " ")
		addr, err := strconv.ParseUint(text, 16, 64)
		switch {
		case line == "":
			if thread != nil && !found {
				thread["[no frame of its own]"]++
			}
			thread = nil
		case thread == nil:
			tid, err := strconv.Atoi(text)
			if err != nil {
				return n, fmt.Errorf("perf script: %q is no thread", line)
			}
			if threads[tid] == nil {
				threads[tid] = shares{}
			}
			thread, found = threads[tid], false
			n++
		case err != nil:
			return n, fmt.Errorf("perf script: %q is no address", line)
		case !found && addr>>63 == 0:
			thread[sym.at(strings.Trim(file, "()"), addr)]++
			found = true
		}
	}
	for tid, seen := range threads {
		each := 1e9 / float64(o.hz) // of a thread that has ended meanwhile
		if t, ok := after[tid]; ok {
			each = (t - before[tid]) / seen.total()
		}
		for name, count := range seen {
			into[name] += count * each
		}
	}
	return n, nil
}

// runTimes are the CPU times of a process's threads in nanoseconds, by schedstat's first number.
func runTimes(pid int) map[int]float64 {
	list := map[int]float64{}
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // none: it has ended
	for _, file := range files {
		tid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		var ns float64
		if text, err := os.ReadFile(file); err == nil {
			if _, err := fmt.Sscan(string(text), &ns); err == nil {
				list[tid] = ns
			}
		}
	}
	return list
}

// told is what a turn of sfsample has told of itself.
type told struct {
	samples, moved int
	lost           float64 // nanoseconds
}

var movedLine = regexp.MustCompile(`(?m)^sfsample: moved: (\d+) samples`)

// sample has sfsample look for one turn.
func (o *options) sample(pid int, sym *symbols, into shares) (t told, err error) {
	args := append([]string{o.sfsample, "-v", "-p", strconv.Itoa(pid), "-hz", strconv.Itoa(o.hz), "-d", (o.length / turns).String(), "--max-overhead", "100", "-o", "json=-"}, o.args...)
	cmd := o.command(args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return t, fmt.Errorf("sfsample: %w\n%s", err, stderr.String())
	}
	if m := movedLine.FindSubmatch(stderr.Bytes()); m != nil {
		t.moved, _ = strconv.Atoi(string(m[1]))
	}
	for line := range bytes.Lines(out) {
		var s struct {
			State, Taken string
			CPU          float64 `json:"cpu_ns"`
			Frames       []struct{ PC string }
		}
		if err := json.Unmarshal(line, &s); err != nil {
			return t, fmt.Errorf("read sfsample's lines: %w", err)
		}
		if s.CPU == 0 {
			continue
		}
		pc := ""
		for _, f := range s.Frames {
			if pc = f.PC; pc != "" {
				break
			}
		}
		addr, err := strconv.ParseUint(strings.TrimPrefix(pc, "0x"), 16, 64)
		if err != nil || addr == 0 {
			t.lost += s.CPU
			continue
		}
		t.samples++
		into[sym.name(addr)] += s.CPU
	}
	return t, nil
}

// symbols tells what functions the addresses of a process belong to.
type symbols struct {
	pid   int
	maps  []procfs.Mapping
	files map[string][]elf.Symbol // by address; of those without symbols: nil
	progs map[string][]*elf.Prog
}

// name is the function at an address, behind its module: the last symbol that begins there or before.
func (s *symbols) name(addr uint64) string {
	if name := s.find(addr); name != "" {
		return name
	}
	s.maps, _ = procfs.FS{}.Maps(s.pid, nil) // it has mapped more; without, the address is nowhere
	return cmp.Or(s.find(addr), "[nowhere]")
}

func (s *symbols) find(addr uint64) string {
	for _, m := range s.maps {
		if addr >= m.Start && addr < m.End {
			return s.at(m.Path, addr-m.Start+m.Offset)
		}
	}
	return ""
}

// at is the function at an offset in a file.
func (s *symbols) at(path string, offset uint64) string {
	if !strings.HasPrefix(path, "/") {
		return cmp.Or(path, "[no file]")
	}
	module, list, vaddr := filepath.Base(path), s.read(path), uint64(0)
	for _, p := range s.progs[path] {
		if p.Type == elf.PT_LOAD && offset >= p.Off && offset < p.Off+p.Filesz {
			vaddr = offset - p.Off + p.Vaddr
		}
	}
	i, found := slices.BinarySearchFunc(list, vaddr, func(sym elf.Symbol, v uint64) int { return cmp.Compare(sym.Value, v) })
	if !found {
		i--
	}
	if i < 0 {
		return module
	}
	return module + " " + list[i].Name
}

func (s *symbols) read(path string) []elf.Symbol {
	if list, ok := s.files[path]; ok {
		return list
	}
	if s.files == nil {
		s.files, s.progs = map[string][]elf.Symbol{}, map[string][]*elf.Prog{}
	}
	s.files[path] = nil
	f, err := elf.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	list, _ := f.Symbols()
	more, _ := f.DynamicSymbols()
	list = slices.DeleteFunc(append(list, more...), func(y elf.Symbol) bool {
		return elf.ST_TYPE(y.Info) != elf.STT_FUNC && elf.ST_TYPE(y.Info) != elf.STT_GNU_IFUNC || y.Section == elf.SHN_UNDEF
	})
	slices.SortStableFunc(list, func(a, b elf.Symbol) int {
		return cmp.Or(cmp.Compare(a.Value, b.Value), cmp.Compare(a.Name, b.Name))
	})
	list = slices.CompactFunc(list, func(a, b elf.Symbol) bool { return a.Value == b.Value })
	s.files[path], s.progs[path] = list, f.Progs
	return list
}
