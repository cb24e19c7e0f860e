package main

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

var redisLoad = load{name: "redis", lacks: redisLacks, run: runRedis}

//go:embed preload/errno.c
var errnoSource []byte

// errnoLib is the library that counts how the server's system calls end; empty
// where there is no compiler for it.
var errnoLib string

func redisLacks(o *options) string {
	for _, name := range []string{"redis-server", "redis-benchmark", "redis-cli"} {
		if _, err := exec.LookPath(name); err != nil {
			return "no " + name + " on this machine"
		}
	}
	source := filepath.Join(o.tmp, "errno.c")
	lib := filepath.Join(o.tmp, "errno.so")
	err := os.WriteFile(source, errnoSource, 0o600)
	if err == nil {
		err = exec.Command("gcc", "-O2", "-shared", "-fPIC", "-o", lib, source).Run()
	}
	if err != nil {
		fmt.Printf("redis: how its system calls end is not counted: gcc: %v\n", err)
		return ""
	}
	errnoLib = lib
	return ""
}

// redis is a server under load.
type redis struct {
	cmd    *exec.Cmd
	socket string
	counts string // file of the preloaded library
}

func startRedis(o *options) (*redis, error) {
	dir, err := os.MkdirTemp(o.tmp, "redis-*")
	if err != nil {
		return nil, err
	}
	r := &redis{socket: filepath.Join(dir, "s"), counts: filepath.Join(dir, "counts")}
	r.cmd = exec.Command("redis-server", "--port", "0", "--unixsocket", r.socket, "--save", "", "--dir", dir)
	r.cmd.Env = append(os.Environ(), "LD_PRELOAD="+errnoLib, "ERRNO_COUNTS="+r.counts)
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		if out, err := r.ask("ping"); err == nil && strings.TrimSpace(out) == "PONG" {
			return r, nil
		}
		if time.Now().After(end) {
			r.kill()
			return nil, fmt.Errorf("redis-server does not answer at %s", r.socket)
		}
	}
}

func (r *redis) kill() {
	_ = r.cmd.Process.Kill() // errors say that it has ended
	_ = r.cmd.Wait()
}

func (r *redis) ask(args ...string) (string, error) {
	out, err := exec.Command("redis-cli", append([]string{"-s", r.socket}, args...)...).Output()
	return string(out), err
}

// redisRequests is how many requests of each kind a run makes for each second
// of its duration: an idle CPU serves about 100,000.
const redisRequests = 50_000

func runRedis(o *options, s *sampler) (result, error) {
	r, err := startRedis(o)
	if err != nil {
		return nil, err
	}
	defer r.kill()
	if err := s.attach(r.cmd.Process.Pid); err != nil {
		return nil, err
	}
	n := int(redisRequests * o.duration.Seconds())
	// What sfsample does once, reading tables and names, is not what is measured.
	warm := n / 4
	if _, err := r.load(warm); err != nil {
		return nil, err
	}
	before, err := cpuTime(r.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	rates, err := r.load(n)
	if err != nil {
		return nil, err
	}
	after, err := cpuTime(r.cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	res := result{
		{"SET requests a second", rates["SET"], false},
		{"GET requests a second", rates["GET"], false},
		{"CPU time for each, µs", 1e6 * (after - before).Seconds() / float64(2*n), false},
	}
	wrong, err := r.wrong(warm + n)
	if err != nil {
		return nil, err
	}
	res = append(res, figure{"requests not answered, or wrong", wrong, true})
	if err := s.detach(); err != nil {
		return nil, err
	}
	if errnoLib == "" {
		return res, nil
	}
	c, err := r.end()
	if err != nil {
		return nil, err
	}
	return append(res,
		figure{"its system calls", c.calls, false},
		figure{"EINTR", c.eintr, true},
		figure{"other errors but EAGAIN", c.other, true},
		figure{"short writes", c.cut, true}), nil
}

// redisKeys is how many keys there are.
const redisKeys = 1000

// load makes n requests of each kind and returns how many were served a second.
func (r *redis) load(n int) (map[string]float64, error) {
	out, err := exec.Command("redis-benchmark", "-s", r.socket, "-n", strconv.Itoa(n), "-c", "20", "-r", strconv.Itoa(redisKeys),
		"-t", "set,get", "--csv").Output()
	if err != nil {
		return nil, fmt.Errorf("redis-benchmark: %w", err)
	}
	return parseBenchmark(string(out))
}

// wrong asks the server how many requests it has not served as it should have,
// of n of each kind, and whether it holds what was written.
func (r *redis) wrong(n int) (wrong float64, err error) {
	info, err := r.ask("info", "all")
	if err != nil {
		return 0, fmt.Errorf("redis-cli: %w", err)
	}
	field := func(text, key string) float64 {
		_, rest, _ := strings.Cut(text, key)
		end := strings.IndexFunc(rest, func(c rune) bool { return c < '0' || c > '9' })
		v, err := strconv.ParseFloat(rest[:max(end, 0)], 64)
		if err != nil {
			return float64(n) // not told: none was served
		}
		return v
	}
	wrong = field(info, "total_error_replies:") + field(info, "unexpected_error_replies:") + field(info, "rejected_connections:")
	for _, cmd := range []string{"set", "get"} {
		_, stat, _ := strings.Cut(info, "cmdstat_"+cmd+":")
		stat, _, _ = strings.Cut(stat, "\n")
		wrong += max(0, float64(n)-field(stat, "calls=")) + field(stat, "failed_calls=") + field(stat, "rejected_calls=")
	}
	size, err := r.ask("dbsize")
	if err != nil {
		return 0, fmt.Errorf("redis-cli: %w", err)
	}
	// Keys are drawn at random. One that n requests have left out is likely if they are few: it has a chance of
	// (1-1/redisKeys)^n, 1 in 10^13 at 30 for each.
	if keys, err := strconv.Atoi(strings.TrimSpace(size)); err != nil || keys > redisKeys || keys < redisKeys && n >= 30*redisKeys {
		wrong++
	}
	return wrong, nil
}

// end lets the server exit by itself, so that its counts are written.
func (r *redis) end() (errnoCounts, error) {
	if _, err := r.ask("shutdown", "nosave"); err != nil {
		return errnoCounts{}, fmt.Errorf("redis-cli: %w", err)
	}
	if err := r.cmd.Wait(); err != nil {
		return errnoCounts{}, fmt.Errorf("redis-server: %w", err)
	}
	text, err := os.ReadFile(r.counts)
	if err != nil {
		return errnoCounts{}, err
	}
	return parseErrnoCounts(string(text))
}

// errnoCounts are the counts of preload/errno.c, over all functions. EAGAIN is
// part of the game.
type errnoCounts struct{ calls, eintr, other, cut float64 }

func parseErrnoCounts(text string) (c errnoCounts, err error) {
	for line := range strings.Lines(text) {
		var name string
		var calls, eintr, eagain, other, cut float64
		if _, err := fmt.Sscan(line, &name, &calls, &eintr, &eagain, &other, &cut); err != nil {
			return c, fmt.Errorf("counts of errors: line %q: %w", line, err)
		}
		c.calls += calls
		c.eintr += eintr
		c.other += other
		c.cut += cut
	}
	if c.calls == 0 {
		return c, fmt.Errorf("counts of errors: none in %q", text)
	}
	return c, nil
}

// parseBenchmark reads redis-benchmark --csv: requests a second by test.
func parseBenchmark(csv string) (map[string]float64, error) {
	rates := map[string]float64{}
	for line := range strings.Lines(csv) {
		words := strings.Split(strings.TrimSpace(line), ",")
		if len(words) < 2 || words[0] == `"test"` {
			continue
		}
		v, err := strconv.ParseFloat(strings.Trim(words[1], `"`), 64)
		if err != nil {
			return nil, fmt.Errorf("redis-benchmark: line %q: %w", line, err)
		}
		rates[strings.Trim(words[0], `"`)] = v
	}
	if rates["SET"] == 0 || rates["GET"] == 0 {
		return nil, fmt.Errorf("redis-benchmark: no rates in %q", csv)
	}
	return rates, nil
}
