package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Row is what is told of a tool on a target at a rate.
type Row struct {
	Target, Tool string
	Hz           int
	Turns        int
	Lost         Spread  // work, per cent
	CPU          Spread  // CPU time for a unit, per cent more
	TailMS       Spread  // p99 of a server, or the longest gap of the spinning thread; not told: no turns
	ToolCPU      Spread  // per cent of a CPU
	RSS          int64   // bytes
	Bytes        int64   // written in a second
	Stacks       float64 // a second; -1: not told
	Got          float64 // stacks of 100 ticks for which the target ran, by its own CPU time; -1: not told
	Whole, Named float64 // per cent; -1: not told
	Failed       string  `json:",omitempty"`
}

// Spread is the median of turns, with the lowest and the highest.
type Spread struct{ Median, Low, High float64 }

func spread(v []float64) (s Spread) {
	if len(v) == 0 {
		return s
	}
	v = slices.Sorted(slices.Values(v))
	return Spread{(v[(len(v)-1)/2] + v[len(v)/2]) / 2, v[0], v[len(v)-1]}
}

// Report is the outcome of a comparison.
type Report struct {
	When    time.Time
	Machine string
	Length  time.Duration // of a run
	Turns   int
	Missing []string // what the machine lacks
	Rows    []Row
}

func newReport(o *options) *Report {
	var u unix.Utsname
	_ = unix.Uname(&u) // cannot fail
	return &Report{When: time.Now().UTC(), Length: o.length, Turns: o.turns,
		Machine: fmt.Sprintf("%d CPUs, Linux %s, %s", runtime.NumCPU(), unix.ByteSliceToString(u.Release[:]), runtime.GOARCH)}
}

// turn is a run of a target with a tool, beside that alone.
type turn struct {
	alone, with outcome
	got         brought
}

// measure compares all tools on a target.
func (r *Report) measure(o *options, t target, tools []tool) error {
	if what := t.lacks(); what != "" {
		r.Missing = append(r.Missing, t.name+": "+what)
		return nil
	}
	var hired []tool
	for _, x := range tools {
		if what := x.lacks(); what != "" {
			if what := x.name + ": " + what; !slices.Contains(r.Missing, what) {
				r.Missing = append(r.Missing, what)
			}
		} else if x.only == nil || x.only(t.name) {
			hired = append(hired, x)
		}
	}
	for _, hz := range o.rates {
		turns, failed := make([][]turn, len(hired)), make([]error, len(hired))
		for n := range o.turns {
			fmt.Fprintf(os.Stderr, "%s at %d Hz: turn %d of %d\n", t.name, hz, n+1, o.turns)
			alone, _, err := once(o, t, nil, hz)
			if err != nil {
				return err
			}
			for i := range hired {
				k := (i + n) % len(hired)
				if failed[k] != nil {
					continue
				}
				with, got, err := once(o, t, &hired[k], hz)
				if err == nil && got.stacks == 0 && !got.unread && hired[k].name != nobody {
					err = errors.New("it has brought no stack")
				}
				if failed[k] = err; err == nil {
					turns[k] = append(turns[k], turn{alone, with, got})
				}
			}
		}
		for i, x := range hired {
			r.Rows = append(r.Rows, row(t.name, x.name, hz, turns[i], failed[i]))
		}
	}
	return nil
}

// once runs a target, with a tool unless that is nil.
func once(o *options, t target, x *tool, hz int) (w outcome, b brought, err error) {
	p, err := t.start(o)
	if err != nil {
		return w, b, err
	}
	defer p.stop()
	finish := func() (brought, error) { return brought{}, nil }
	if x != nil {
		if finish, err = x.start(o, p.pid, hz); err != nil {
			return w, b, err
		}
	}
	var late atomic.Bool
	end := time.AfterFunc(o.length+standstill, func() {
		late.Store(true)
		_ = unix.Kill(p.pid, unix.SIGKILL) // an error says that it has ended
	})
	w, err = p.work()
	end.Stop()
	if late.Load() {
		err = fmt.Errorf("the target stood still: ended %v after it was to be done", standstill)
	}
	b, err2 := finish()
	return w, b, errors.Join(err, err2)
}

// standstill is for how long a target is waited for that has not done its work in time: a debugger may have left it stopped.
const standstill = 40 * time.Second

// speed is the work done in a second.
func (w outcome) speed() float64 { return w.units / w.took.Seconds() }

// price is the CPU time of a unit.
func (w outcome) price() float64 { return w.cpu.Seconds() / w.units }

func row(target, tool string, hz int, turns []turn, failed error) Row {
	r := Row{Target: target, Tool: tool, Hz: hz, Turns: len(turns), Got: -1, Whole: -1, Named: -1}
	if failed != nil {
		r.Failed, _, _ = strings.Cut(failed.Error(), "\n")
	}
	if len(turns) == 0 {
		return r
	}
	var lost, cpu, tail, tools []float64
	var took, ran time.Duration
	var sum brought
	for _, t := range turns {
		lost = append(lost, 100*(1-t.with.speed()/t.alone.speed()))
		cpu = append(cpu, 100*(t.with.price()/t.alone.price()-1))
		if t.with.tail > 0 {
			tail = append(tail, t.with.tail.Seconds()*1e3)
		}
		tools = append(tools, 100*t.got.cpu.Seconds()/t.with.took.Seconds())
		took += t.with.took
		ran += t.with.cpu
		sum.rss = max(sum.rss, t.got.rss)
		sum.bytes += t.got.bytes
		sum.unread = sum.unread || t.got.unread
		sum.stacks += t.got.stacks
		sum.whole += t.got.whole
		sum.frames += t.got.frames
		sum.named += t.got.named
	}
	r.Lost, r.CPU, r.TailMS, r.ToolCPU = spread(lost), spread(cpu), spread(tail), spread(tools)
	r.RSS, r.Bytes, r.Stacks = sum.rss, int64(float64(sum.bytes)/took.Seconds()), float64(sum.stacks)/took.Seconds()
	if sum.unread {
		r.Stacks = -1
	} else if sum.stacks > 0 && ran > 0 {
		r.Got = 100 * float64(sum.stacks) / (ran.Seconds() * float64(hz))
	}
	if sum.whole >= 0 && sum.stacks > 0 {
		r.Whole = 100 * float64(sum.whole) / float64(sum.stacks)
	}
	if sum.frames > 0 {
		r.Named = 100 * float64(sum.named) / float64(sum.frames)
	}
	return r
}

// markdown writes the tables.
func (r *Report) markdown(w io.Writer) {
	fmt.Fprintf(w, "%s, %s; %d turns of %v\n", r.When.Format("2006-01-02"), r.Machine, r.Turns, r.Length)
	last := ""
	for _, x := range r.Rows {
		if x.Target != last {
			fmt.Fprintf(w, "\n**%s**\n\n| tool | Hz | work lost %% | CPU time more %% | p99 or longest gap, ms | tool: CPU %% | MB | written/s | stacks/s | of ticks %% | whole %% | named %% |\n", x.Target)
			fmt.Fprintln(w, "|---|---|---|---|---|---|---|---|---|---|---|---|")
			last = x.Target
		}
		if x.Turns == 0 {
			fmt.Fprintf(w, "| %s | %d | %s |\n", x.Tool, x.Hz, x.Failed)
			continue
		}
		fmt.Fprintf(w, "| %s | %d | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", x.Tool, x.Hz, x.Lost, x.CPU, told(x.TailMS != Spread{}, x.TailMS),
			told(x.ToolCPU.Median > 0, x.ToolCPU), told(x.RSS > 0, x.RSS>>20), told(x.Bytes > 0, bytesOf(x.Bytes)),
			told(x.Stacks > 0, fmt.Sprintf("%.0f", x.Stacks)), told(x.Got >= 0, fmt.Sprintf("%.0f", x.Got)), told(x.Whole >= 0, fmt.Sprintf("%.1f", x.Whole)), told(x.Named >= 0, fmt.Sprintf("%.1f", x.Named)))
	}
	for _, x := range r.Rows {
		if x.Turns > 0 && x.Failed != "" {
			fmt.Fprintf(w, "\n%s, %s at %d Hz: failed after turn %d: %s\n", x.Target, x.Tool, x.Hz, x.Turns, x.Failed)
		}
	}
	for _, m := range r.Missing {
		fmt.Fprintf(w, "\nleft out: %s\n", m)
	}
}

func told(is bool, what any) string {
	if !is {
		return ""
	}
	return fmt.Sprint(what)
}

func (s Spread) String() string { return fmt.Sprintf("%.1f (%.1f to %.1f)", s.Median, s.Low, s.High) }

func bytesOf(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

// write writes the files of a report.
func (r *Report) write(name string) error {
	var md strings.Builder
	r.markdown(&md)
	data, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(name+".md", []byte(md.String()), 0o644),
		os.WriteFile(name+".json", append(data, '\n'), 0o644),
		os.WriteFile(name+".svg", []byte(r.together()), 0o644),
		os.WriteFile(name+"-targets.svg", []byte(r.picture()), 0o644))
}
