package main

import (
	"fmt"
	"os"
	"strings"
	"sync"

	"sfsample/deliver"
	"sfsample/output"
	"sfsample/ptrace/procfs"
	"sfsample/targets"
)

// resources knows the attributes of processes, by OpenTelemetry's semantic conventions for resources. Processes are
// described while they live: some have ended when their first sample is there.
type resources struct {
	fs     procfs.FS
	common [][2]string  // of all, by OTEL_RESOURCE_ATTRIBUTES, --service, the host
	round  map[int]bool // processes that were met in this round

	mu    sync.Mutex
	known map[int]targets.Description
	fresh map[int]bool // of these, who was found and not met yet
}

// maxFresh bounds the processes that are known and were not met.
const maxFresh = 10000

func newResources(service string, getenv func(string) string) (*resources, error) {
	r := &resources{known: map[int]targets.Description{}, round: map[int]bool{}, fresh: map[int]bool{}}
	if host, err := os.Hostname(); err == nil {
		r.set("host.name", host)
	}
	const name = "OTEL_RESOURCE_ATTRIBUTES"
	pairs, err := deliver.KeyValues(getenv(name))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, kv := range pairs {
		if kv[1] != "" { // which says nothing
			r.set(kv[0], kv[1])
		}
	}
	if s := getenv("OTEL_SERVICE_NAME"); s != "" {
		r.set("service.name", s)
	}
	if service != "" {
		r.set("service.name", service)
	}
	return r, nil
}

func (r *resources) set(key, value string) {
	for i := range r.common {
		if r.common[i][0] == key {
			r.common[i][1] = value
			return
		}
	}
	r.common = append(r.common, [2]string{key, value})
}

// found describes a process that is to be sampled. Any goroutine may call it.
func (r *resources) found(pid int) {
	d, err := targets.Describe(r.fs, pid)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && len(r.fresh) < maxFresh {
		r.known[pid], r.fresh[pid] = d, true
	}
}

// meet takes note of a process that a sample is of.
func (r *resources) meet(pid int) {
	if r.round[pid] {
		return
	}
	r.round[pid] = true
	d, err := targets.Describe(r.fs, pid)
	r.mu.Lock()
	defer r.mu.Unlock()
	if delete(r.fresh, pid); err == nil {
		r.known[pid] = d
	}
}

// next begins another round: processes that were not met in the last one are forgotten, but for those that never were.
func (r *resources) next() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for pid := range r.known {
		if !r.round[pid] && !r.fresh[pid] {
			delete(r.known, pid)
		}
	}
	clear(r.round)
}

// of gives the attributes of a process; comm is its name, for one of which no more is known. What the environment says of
// all goes before what is found.
func (r *resources) of(pid int, comm string) (list []output.Attr) {
	r.mu.Lock()
	d := r.known[pid]
	r.mu.Unlock()
	if d.Name == "" {
		d.Name = comm
	}
	set := map[string]bool{}
	for _, kv := range r.common {
		set[kv[0]] = true
		list = append(list, output.Attr{Key: kv[0], Text: kv[1]})
	}
	add := func(a output.Attr) {
		if !set[a.Key] && (a.Text != "" || a.Number != 0) {
			list = append(list, a)
		}
	}
	add(output.Attr{Key: "service.name", Text: "unknown_service:" + d.Name})
	add(output.Attr{Key: "process.pid", Number: int64(pid)})
	add(output.Attr{Key: "process.executable.name", Text: d.Name})
	add(output.Attr{Key: "process.executable.path", Text: d.Executable})
	add(output.Attr{Key: "process.title", Text: comm})
	add(output.Attr{Key: "container.id", Text: d.Container})
	add(output.Attr{Key: "k8s.pod.uid", Text: d.Pod})
	return list
}

// labels are the attributes as Pyroscope names an application and its labels: NAME{KEY=VALUE,…}. It refuses names with
// other characters than letters, digits and _, and but for an application's than . and - (pkg/og/flameql of Pyroscope 1.6.0).
func (r *resources) labels(pid int, comm string) string {
	service, labels := "", []string{}
	name := func(s, more string) string {
		return strings.Map(func(c rune) rune {
			if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || strings.ContainsRune(more, c) {
				return c
			}
			return '_'
		}, s)
	}
	value := func(s string) string {
		return strings.Map(func(c rune) rune {
			if c <= ' ' || c == 0x7f || strings.ContainsRune(`{}=,"`, c) {
				return '_'
			}
			return c
		}, s)
	}
	for _, a := range r.of(pid, comm) {
		text := a.Text
		if text == "" {
			text = fmt.Sprint(a.Number)
		}
		if a.Key == "service.name" {
			service = name(text, ".-")
			continue
		}
		labels = append(labels, name(a.Key, "")+"="+value(text))
	}
	return service + "{" + strings.Join(labels, ",") + "}"
}
