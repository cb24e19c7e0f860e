package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sfsample/deliver"
	"sfsample/sampler"
	"sfsample/sampler/ledger"
)

// agent samples until it is told to end, and begins anew with other settings upon SIGHUP. args are those of the command
// line, which c was made of.
func agent(c config, args []string, stderr io.Writer) error {
	for {
		modest(c.hz)
		a := &agentRun{args: args, begun: time.Now(), every: c.every}
		s := &session{config: c, log: logger(c, stderr), stderr: stderr, agent: a}
		a.say = s.say
		stop, err := a.listen(c.listen)
		if err == nil {
			_, err = s.sample() // of no command
			stop()
		}
		next := a.next.Load()
		if next == nil {
			return err
		}
		if err != nil {
			s.say("%v", err)
		}
		c = *next
		s.say("the settings are read anew")
	}
}

// agentRun is what an agent knows of its run, until its settings are read anew.
type agentRun struct {
	args  []string
	say   func(string, ...any)
	begun time.Time
	every time.Duration
	next  atomic.Pointer[config] // to go on with; set before the run's context ends

	mu       sync.Mutex
	sends    []*sender
	rounds   int64
	sum      ledger.Account
	last     sampler.Round
	lost     int       // rounds that could not be written
	lastTold time.Time // when a round was told of last
}

// interrupted returns a context that ends at SIGINT and SIGTERM, and at SIGHUP if the settings can be read.
func (a *agentRun) interrupted() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	c := make(chan os.Signal, 4)
	signal.Notify(c, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		defer signal.Stop(c)
		for {
			select {
			case <-ctx.Done():
				return
			case sig := <-c:
				if sig != syscall.SIGHUP {
					cancel()
					signal.Reset(syscall.SIGINT, syscall.SIGTERM) // the next one has its usual effect
					return
				}
			}
			next, err := parseArgs(a.args)
			if err != nil {
				a.say("%v; the settings stay as they were", err)
				continue
			}
			a.next.Store(&next)
			cancel()
			return
		}
	}()
	return ctx, cancel
}

// opened takes note of what is sent to.
func (a *agentRun) opened(sends []*sender) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sends = sends
}

// told takes note of a round.
func (a *agentRun) told(x *sampler.Round, r *rounds) {
	limitMemory()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rounds++
	a.sum.Ticks += x.Ticks
	a.sum.Expected += x.Expected
	for c, n := range x.Count {
		a.sum.Count[c] += n
	}
	a.last, a.lost, a.sends, a.lastTold = *x, r.lost, r.sends, time.Now()
}

// listen serves /metrics and /healthz, if an address is given, until stop is called.
func (a *agentRun) listen(address string) (stop func(), err error) {
	if address == "" {
		return func() {}, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return nil, fmt.Errorf("listen on %s: %w (another agent may run; give another address: --listen 127.0.0.1:PORT)", address, err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		a.metrics(w)
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if why := a.ill(time.Now()); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	server := &http.Server{Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, MaxHeaderBytes: 1 << 14}
	go server.Serve(l)
	return func() { server.Close() }, nil
}

// ill says what is wrong, if something is: that rounds come is what an agent is for.
func (a *agentRun) ill(now time.Time) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	since := a.begun
	if a.rounds > 0 {
		since = a.lastTold
	}
	if d := now.Sub(since); d > 3*a.every {
		return fmt.Sprintf("no round has ended for %v, one takes %v", d.Round(time.Second), a.every)
	}
	return ""
}

// metrics writes what there is to tell in Prometheus' text format, version 0.0.4.
func (a *agentRun) metrics(w io.Writer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	head := func(name, kind, help string) {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	}
	one := func(name, kind, help string, value any) {
		head(name, kind, help)
		fmt.Fprintf(w, "%s %v\n", name, value)
	}
	one("sfsample_rounds_total", "counter", "Rounds that have ended.", a.rounds)
	one("sfsample_rounds_not_written_total", "counter", "Times that not all files of a round could be written.", a.lost)
	one("sfsample_ticks_total", "counter", "Ticks of the clock.", a.sum.Ticks)
	head("sfsample_thread_ticks_total", "counter", "What became of each tick of each thread.")
	for c, n := range a.sum.Count {
		fmt.Fprintf(w, "sfsample_thread_ticks_total{class=%q} %d\n", ledger.Class(c).String(), n)
	}
	one("sfsample_processes", "gauge", "Processes that are sampled.", a.last.Processes)
	one("sfsample_threads", "gauge", "Threads that are sampled.", a.last.Threads)
	one("sfsample_stride", "gauge", "Only each such tick is answered, to keep to the budget.", max(a.last.Stride, 1))
	head("sfsample_pause_seconds", "gauge", "How long threads stood still for a sample, in the last round.")
	fmt.Fprintf(w, "sfsample_pause_seconds{quantile=\"0.5\"} %g\n", a.last.Pause.P50.Seconds())
	fmt.Fprintf(w, "sfsample_pause_seconds{quantile=\"0.99\"} %g\n", a.last.Pause.P99.Seconds())
	counts := make([]deliver.Counts, len(a.sends))
	for i, s := range a.sends {
		counts[i] = s.queue.Counts()
	}
	each := func(name, kind, help string, value func(c deliver.Counts) map[string]int64) {
		if len(counts) == 0 {
			return
		}
		head(name, kind, help)
		for i, s := range a.sends {
			for what, n := range value(counts[i]) {
				result := ""
				if what != "" {
					result = fmt.Sprintf(",result=%q", what)
				}
				fmt.Fprintf(w, "%s{receiver=%q%s} %d\n", name, s.kind, result, n)
			}
		}
	}
	each("sfsample_messages_total", "counter", "Messages, by what became of them.", func(c deliver.Counts) map[string]int64 {
		return map[string]int64{"sent": c.Sent, "refused": c.Refused, "dropped": c.Dropped}
	})
	each("sfsample_message_bytes_total", "counter", "Bytes of the messages that were sent.", func(c deliver.Counts) map[string]int64 { return map[string]int64{"": c.SentBytes} })
	each("sfsample_message_retries_total", "counter", "Attempts that were in vain.", func(c deliver.Counts) map[string]int64 { return map[string]int64{"": c.Retries} })
	each("sfsample_messages_waiting", "gauge", "Messages that wait on the disk.", func(c deliver.Counts) map[string]int64 { return map[string]int64{"": c.Waiting} })
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts) == nil {
		one("process_cpu_seconds_total", "counter", "CPU time of the agent itself.", time.Duration(ts.Nano()).Seconds())
	}
	var size, resident int64 // pages, proc_pid_statm(5)
	if b, err := os.ReadFile("/proc/self/statm"); err == nil {
		fmt.Sscan(string(b), &size, &resident)
		one("process_resident_memory_bytes", "gauge", "Memory of the agent itself.", resident*int64(os.Getpagesize()))
	}
}
