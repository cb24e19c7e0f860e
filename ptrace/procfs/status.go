package procfs

import (
	"bytes"
	"strings"
)

// Status is what /proc/PID/status (or /proc/PID/task/TID/status) says.
type Status struct {
	Name      string // of the thread, up to 15 bytes (more for kernel threads)
	State     byte   // R S D T t Z X I P
	Tgid      int    // the process that the thread belongs to
	Pid       int    // the thread itself
	PPid      int
	TracerPid int    // 0: not traced
	UID       [4]int // real, effective, saved, file system
	GID       [4]int
	// NSpid is the thread's id in each pid namespace, from the reader's inward.
	NSpid   []int
	Threads int
	CapEff  uint64 // effective capabilities, bit n = capability n
	Caught  uint64 // signals with a handler, bit n = signal n+1
	Seccomp int    // 0 none, 1 strict, 2 filter
	// Switches is how often the thread was put off a CPU, of its own will or not.
	Switches uint64
}

// ParseStatus parses the content of a status file. Lines that it does not know
// are skipped, those of older and newer kernels alike; Tgid, Pid and State must
// be there.
func ParseStatus(b []byte) (Status, error) {
	var s Status
	for line := 1; len(b) > 0; line++ {
		text, rest, _ := bytes.Cut(b, []byte{'\n'})
		b = rest
		key, value, ok := bytes.Cut(text, []byte{':'})
		if !ok {
			continue
		}
		if !s.set(string(key), spaces(value)) {
			return Status{}, syntaxError("status", line, "bad value", text)
		}
	}
	if s.Pid == 0 || s.Tgid == 0 || s.State == 0 {
		return Status{}, syntaxError("status", 1, "no Pid, Tgid or State", nil)
	}
	return s, nil
}

// set takes one line. It returns false if the value is not what the key asks
// for.
func (s *Status) set(key string, v []byte) (ok bool) {
	switch key {
	case "Name":
		s.Name = unescape(v)
		return true
	case "State":
		if len(v) == 0 {
			return false
		}
		s.State = v[0]
		return true
	case "Tgid":
		return ints(v, &s.Tgid)
	case "Pid":
		return ints(v, &s.Pid)
	case "PPid":
		return ints(v, &s.PPid)
	case "TracerPid":
		return ints(v, &s.TracerPid)
	case "Uid":
		return ints(v, &s.UID[0], &s.UID[1], &s.UID[2], &s.UID[3])
	case "Gid":
		return ints(v, &s.GID[0], &s.GID[1], &s.GID[2], &s.GID[3])
	case "NSpid":
		s.NSpid, ok = intList(v)
		return ok
	case "Threads":
		return ints(v, &s.Threads)
	case "Seccomp":
		return ints(v, &s.Seccomp)
	case "voluntary_ctxt_switches", "nonvoluntary_ctxt_switches":
		n, _, ok := decimal(v)
		s.Switches += n
		return ok
	case "SigCgt":
		s.Caught, _, ok = hex(v)
		return ok
	case "CapEff":
		s.CapEff, _, ok = hex(v)
		return ok
	}
	return true
}

// ints reads as many numbers as there are places for.
func ints(v []byte, to ...*int) bool {
	for _, p := range to {
		n, rest, ok := signed(spaces(v))
		if !ok || int64(int(n)) != n {
			return false
		}
		*p, v = int(n), rest
	}
	return true
}

// maxNamespaces bounds a list of ids; the kernel nests pid namespaces 32 deep
// at most (MAX_PID_NS_LEVEL).
const maxNamespaces = 33

func intList(v []byte) ([]int, bool) {
	var list []int
	for v = spaces(v); len(v) > 0; v = spaces(v) {
		n, rest, ok := decimal(v)
		if !ok || n > 1<<31-1 || len(list) == maxNamespaces {
			return nil, false
		}
		list, v = append(list, int(n)), rest
	}
	return list, true
}

// unescape takes back what proc_task_name does to a thread's name in stat and
// status: a newline is "\n", a backslash "\\".
func unescape(b []byte) string {
	return nameEscapes.Replace(string(b))
}

var nameEscapes = strings.NewReplacer(`\\`, `\`, `\n`, "\n")
