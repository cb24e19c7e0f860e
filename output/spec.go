package output

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// format is one of the writers.
type format struct {
	name    string
	endings []string // of file names, with their dots
	new     func(io.Writer, Options) Sink
	// stream: complete samples are written as they come, and what there is of
	// an unfinished file is of use.
	stream bool
}

var formats = []format{
	{"folded", []string{".folded", ".txt"}, func(w io.Writer, o Options) Sink { return NewFolded(w, o) }, false},
	{"pprof", []string{".pb.gz", ".pprof", ".pb"}, func(w io.Writer, o Options) Sink { return NewPProf(w, o) }, false},
	{"svg", []string{".svg"}, func(w io.Writer, o Options) Sink { return NewSVG(w, o) }, false},
	{"html", []string{".html", ".htm"}, func(w io.Writer, o Options) Sink { return NewHTML(w, o) }, false},
	{"firefox", []string{".firefox.json"}, func(w io.Writer, o Options) Sink { return NewFirefox(w, o) }, false},
	{"speedscope", []string{".speedscope.json", ".speedscope"}, func(w io.Writer, o Options) Sink { return NewSpeedscope(w, o) }, false},
	{"perf", []string{".perf"}, func(w io.Writer, o Options) Sink { return NewPerf(w, o) }, true},
	{"json", []string{".jsonl", ".json"}, func(w io.Writer, o Options) Sink { return NewJSON(w, o) }, true},
	{"dump", []string{".dump"}, func(w io.Writer, o Options) Sink { return NewDump(w, o) }, true},
}

// Formats returns the names of all formats, for messages.
func Formats() []string {
	var names []string
	for _, f := range formats {
		names = append(names, f.name)
	}
	return names
}

// Endings returns the endings of file names that choose the format name.
func Endings(name string) []string {
	f, _ := formatByName(name)
	return f.endings
}

func formatByName(name string) (format, bool) {
	for _, f := range formats {
		if f.name == name {
			return f, true
		}
	}
	return format{}, false
}

// Spec names one output: a format and a file, "-" for standard output.
type Spec struct{ Format, File string }

// String is the form that ParseSpec reads.
func (s Spec) String() string { return s.Format + "=" + s.File }

// ParseSpec reads "FILE" or "FORMAT=FILE". Without a format the file's ending
// decides: a name without any gets folded, and an ending that is not known, or
// the mere name of a format, is an error. A word before a first '=' that
// is no format is an error, unless it holds a '/': a file whose name has a '='
// in it can be written as "./a=b".
func ParseSpec(s string) (Spec, error) {
	name, file, ok := strings.Cut(s, "=")
	if !ok || strings.Contains(name, "/") {
		if s == "" {
			return Spec{}, fmt.Errorf("no file name (try: FILE, FORMAT=FILE, or - for standard output)")
		}
		format, err := formatByEnding(s)
		return Spec{format, s}, err
	}
	if _, ok := formatByName(name); !ok {
		return Spec{}, fmt.Errorf("unknown format %q (formats are %s; a file of this name is written ./%s)",
			clean(name), strings.Join(Formats(), ", "), clean(s))
	}
	if file == "" {
		return Spec{}, fmt.Errorf("no file name after %s= (try: %s=- for standard output)", name, name)
	}
	return Spec{name, file}, nil
}

func formatByEnding(file string) (string, error) {
	if _, isFormat := formatByName(file); !isFormat && !strings.Contains(filepath.Base(file), ".") {
		return "folded", nil
	}
	var known []string
	for _, f := range formats {
		for _, e := range f.endings {
			if strings.HasSuffix(file, e) {
				return f.name, nil
			}
		}
		known = append(known, f.endings...)
	}
	return "", fmt.Errorf("the ending of %q tells no format (endings are %s; or write FORMAT=FILE, as folded=%[1]s)",
		clean(file), strings.Join(known, " "))
}
