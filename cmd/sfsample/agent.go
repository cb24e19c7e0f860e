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

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sfsample/sampler"
	"sfsample/sampler/ledger"
)

// agent samples until SIGINT or SIGTERM, and begins anew with other settings upon SIGHUP. args are those of the command
// line, which c was made of.
func agent(c config, args []string, stderr io.Writer) error {
	end, usual := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer usual()
	context.AfterFunc(end, usual) // the next one has its usual effect
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	defer signal.Stop(reload)
	spool := "" // of all runs, where none is named: what one leaves the next one sends
	defer func() { os.Remove(spool) }()
	var before *config // what it has run with; nil: nothing yet, or that was tried
	for {
		modest(c.pace.hz)
		if spool == "" && c.sending.spool == "" && len(c.sending.receivers) > 0 {
			var err error
			if spool, err = newSpool(); err != nil {
				return err
			}
		}
		a := &agentRun{args: args, spool: spool, begun: time.Now(), every: c.pace.every, end: end, reload: reload}
		s := &session{config: c, log: c.messages.logger(stderr), stderr: stderr, agent: a}
		a.say = s.say
		stop, err := a.listen(c.agent.listen)
		if err == nil {
			_, err = s.sample() // of no command
			stop()
		}
		next := a.next.Load()
		switch {
		case end.Err() != nil || errors.Is(err, sampler.ErrHeld):
			return err
		case next == nil && err != nil && a.ended() == 0 && before != nil: // these could not be begun with
			s.say("%v; back to the settings as they were", err)
			c, before = *before, nil
			continue
		case next == nil:
			return err
		case err != nil:
			s.say("%v", err)
		}
		was := c
		before, c = &was, *next
		s.say("the settings are read anew")
	}
}

// agentRun is what an agent knows of its run, until its settings are read anew.
type agentRun struct {
	args  []string
	spool string // a folder for what could not be sent yet
	say   func(string, ...any)
	begun time.Time
	every time.Duration
	next  atomic.Pointer[config] // to go on with; set before the run's context ends
	// For all runs of the agent: ended by SIGINT and SIGTERM; SIGHUP.
	end    context.Context
	reload <-chan os.Signal

	mu       sync.Mutex
	sends    []*sender
	rounds   int64
	sum      ledger.Account
	last     sampler.Round
	lost     int       // rounds that could not be written
	lastTold time.Time // when a round was told of last
}

// interrupted returns a context that ends when the agent is to end, and when its settings were read anew.
func (a *agentRun) interrupted() (context.Context, func()) {
	ctx, cancel := context.WithCancel(a.end)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-a.reload:
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

// ended is how many rounds have ended.
func (a *agentRun) ended() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rounds
}

// opened takes note of what is sent to.
func (a *agentRun) opened(r *rounds) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sends = r.sends
	r.grace = func() time.Duration {
		if a.next.Load() != nil {
			return nextSend
		}
		return lastSend
	}
}

// told takes note of a round.
func (a *agentRun) told(x *sampler.Round, r *rounds) {
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
		remedy := "give an address of this machine: --listen 127.0.0.1:PORT"
		if errors.Is(err, syscall.EADDRINUSE) {
			remedy = "another agent may run; give another address: --listen 127.0.0.1:PORT"
		}
		return nil, fmt.Errorf("listen on %s: %w (%s)", address, err, remedy)
	}
	mux := http.NewServeMux()
	told := prometheus.NewRegistry()
	told.MustRegister(a, collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux.Handle("GET /metrics", promhttp.HandlerFor(told, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if why := a.ill(time.Now()); why != "" {
			http.Error(w, why, http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	server := &http.Server{Handler: mux, ReadTimeout: 5 * time.Second, WriteTimeout: 5 * time.Second, MaxHeaderBytes: 1 << 14}
	go server.Serve(l)
	return func() {
		server.Close()
		l.Close() // the server has it when it is served, which may not have begun
	}, nil
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

// description is a metric's, of /metrics.
func description(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("sfsample_"+name, help, labels, nil)
}

// What an agent tells of itself; its CPU time, memory and files are told by the collector of processes that client_golang has.
var (
	aboutRounds   = description("rounds_total", "Rounds that have ended.")
	aboutLost     = description("rounds_not_written_total", "Times that not all files of a round could be written.")
	aboutTicks    = description("ticks_total", "Ticks of the clock.")
	aboutThreads  = description("thread_ticks_total", "What became of each tick of each thread.", "class")
	aboutTargets  = description("processes", "Processes that are sampled.")
	aboutSampled  = description("threads", "Threads that are sampled.")
	aboutStride   = description("stride", "Ticks for each that is answered, to keep to the budgets.")
	aboutPause    = description("pause_seconds", "How long threads stood still for a sample, in the last round.", "quantile")
	aboutMessages = description("messages_total", "Messages, by what became of them.", "receiver", "address", "result")
	aboutBytes    = description("message_bytes_total", "Bytes of the messages that were sent.", "receiver", "address")
	aboutRejected = description("profiles_rejected_total", "Profiles of messages that were taken without them.", "receiver", "address")
	aboutRetries  = description("message_retries_total", "Attempts that were in vain.", "receiver", "address")
	aboutWaiting  = description("messages_waiting", "Messages that wait on the disk.", "receiver", "address")
)

// Describe implements prometheus.Collector.
func (a *agentRun) Describe(c chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{aboutRounds, aboutLost, aboutTicks, aboutThreads, aboutTargets, aboutSampled, aboutStride, aboutPause,
		aboutMessages, aboutBytes, aboutRejected, aboutRetries, aboutWaiting} {
		c <- d
	}
}

// Collect implements prometheus.Collector.
func (a *agentRun) Collect(c chan<- prometheus.Metric) {
	a.mu.Lock()
	rounds, lost, sum, last, sends := a.rounds, a.lost, a.sum, a.last, a.sends
	a.mu.Unlock() // a queue may wait for its disk
	counter := func(d *prometheus.Desc, n int64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		c <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter(aboutRounds, rounds)
	counter(aboutLost, int64(lost))
	counter(aboutTicks, sum.Ticks)
	for class, n := range sum.Count {
		counter(aboutThreads, n, ledger.Class(class).String())
	}
	gauge(aboutTargets, float64(last.Processes))
	gauge(aboutSampled, float64(last.Threads))
	gauge(aboutStride, max(last.Stride, 1))
	gauge(aboutPause, last.Pause.P50.Seconds(), "0.5")
	gauge(aboutPause, last.Pause.P99.Seconds(), "0.99")
	for _, s := range sends {
		n := s.queue.Counts()
		counter(aboutMessages, n.Sent, s.kind, s.to, "sent")
		counter(aboutMessages, n.Refused, s.kind, s.to, "refused")
		counter(aboutMessages, n.Dropped, s.kind, s.to, "dropped")
		counter(aboutBytes, n.SentBytes, s.kind, s.to)
		counter(aboutRejected, n.Rejected, s.kind, s.to)
		counter(aboutRetries, n.Retries, s.kind, s.to)
		gauge(aboutWaiting, float64(n.Waiting), s.kind, s.to)
	}
}
