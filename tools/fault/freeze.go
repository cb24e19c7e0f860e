package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// freezer is a cgroup hierarchy that can freeze programs (cgroups(7): freezer; Documentation/admin-guide/cgroup-v2.rst: cgroup.freeze).
type freezer struct {
	dir                string // the group that this process is in
	file, freeze, thaw string // of a group; what is written to it
}

// freezers are those of this machine in which groups can be made.
var freezers = sync.OnceValue(func() (list []freezer) {
	own, err := os.ReadFile("/proc/self/cgroup")
	mounts, err2 := os.Open("/proc/self/mountinfo")
	if err != nil || err2 != nil {
		return nil
	}
	defer mounts.Close()
	for s := bufio.NewScanner(mounts); s.Scan(); {
		// ID PARENT MAJ:MIN ROOT POINT OPTIONS … - TYPE SOURCE SUPER-OPTIONS: proc_pid_mountinfo(5)
		head, tail, _ := strings.Cut(s.Text(), " - ")
		h, t := strings.Fields(head), strings.Fields(tail)
		if len(h) < 5 || len(t) < 3 {
			continue
		}
		var f freezer
		var group string
		switch {
		case t[0] == "cgroup2":
			f, group = freezer{"", "cgroup.freeze", "1", "0"}, "0::"
		case t[0] == "cgroup" && strings.Contains(","+t[2]+",", ",freezer,"):
			f, group = freezer{"", "freezer.state", "FROZEN", "THAWED"}, ":freezer:"
		default:
			continue
		}
		for line := range strings.Lines(string(own)) {
			if i := strings.Index(line, group); i >= 0 {
				f.dir = filepath.Join(h[4], strings.TrimPrefix(strings.TrimSpace(line[i+len(group):]), h[3]))
			}
		}
		if name, err := f.group(); err == nil {
			_ = os.Remove(name) // a group that nobody is in
			list = append(list, f)
		}
	}
	return list
})

// group makes a group that can be frozen.
func (f freezer) group() (string, error) {
	name, err := os.MkdirTemp(f.dir, "fault-*")
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(name, f.file)); err != nil {
		return "", errors.Join(err, os.Remove(name))
	}
	return name, nil
}

// hold freezes a process for a moment when a part of the run is over, and puts it back where it was.
func (f freezer) hold(pid int, part float64) error {
	name, err := f.group()
	if err != nil {
		return err
	}
	write := func(dir, file, text string) error {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0); err != nil {
			return fmt.Errorf("freeze process %d: %w", pid, err)
		}
		return nil
	}
	err = write(name, "cgroup.procs", strconv.Itoa(pid))
	time.Sleep(time.Duration(part * float64(length)))
	if err != nil {
		return errors.Join(err, os.Remove(name))
	}
	err = write(name, f.file, f.freeze)
	time.Sleep(hold)
	return errors.Join(err, write(name, f.file, f.thaw), write(f.dir, "cgroup.procs", strconv.Itoa(pid)), os.Remove(name))
}
