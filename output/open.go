package output

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Outputs are several sinks, each with its file, fed from one stream. One that
// fails is left out from then on, the others go on.
type Outputs struct {
	list    []*sinkFile
	opts    Options
	samples int64
	weight  time.Duration // of them all
}

type sinkFile struct {
	format format
	file   *file
	sink   Sink
	failed bool
	strict bool // what cannot be written to its file is given up
}

// whole is a Sink that writes nothing before Close, which is write to its own
// writer; write may be called again, with another.
type whole interface {
	Sink
	write(w io.Writer) error
}

// Open opens the files of specs, at least one, and makes a sink for each. That
// a file can be written is found out here, before there is anything to lose.
func Open(specs []Spec, o Options) (*Outputs, error) {
	if err := distinct(specs); err != nil {
		return nil, err
	}
	outs := &Outputs{opts: o}
	for _, spec := range specs {
		format, ok := formatByName(spec.Format)
		if !ok {
			outs.Discard()
			return nil, fmt.Errorf("output %s: unknown format %q", spec.File, spec.Format)
		}
		f, err := openFile(spec.File, format.stream)
		if err != nil {
			outs.Discard()
			return nil, err
		}
		outs.list = append(outs.list, &sinkFile{format: format, file: f, sink: format.new(f, o)})
	}
	return outs, nil
}

// distinct is an error if two of specs are the same file, by name or, where it
// exists, by itself. Devices (/dev/null) may serve several.
func distinct(specs []Spec) error {
	names := make([]string, len(specs))
	infos := make([]os.FileInfo, len(specs))
	for i, s := range specs {
		if s.File == stdoutName {
			names[i] = s.File
			infos[i], _ = os.Stdout.Stat()
		} else {
			if abs, err := filepath.Abs(s.File); err == nil {
				names[i] = abs
			}
			infos[i], _ = os.Stat(s.File)
		}
		if infos[i] != nil && !infos[i].Mode().IsRegular() && s.File != stdoutName {
			continue
		}
		for j := range i {
			same := names[i] == names[j] ||
				infos[i] != nil && infos[j] != nil && infos[i].Mode().IsRegular() && os.SameFile(infos[i], infos[j])
			if same {
				return fmt.Errorf("output %s is the same as %s (give each output a file of its own)", s.File, specs[j].File)
			}
		}
	}
	return nil
}

// Strict has what cannot be written to its file given up, not saved elsewhere: where outputs come again and again,
// all that can be filled would be.
func (o *Outputs) Strict() {
	for _, out := range o.list {
		out.strict = true
	}
}

// Add feeds s to every sink that has not failed. The error is of those that
// fail now, each told once.
func (o *Outputs) Add(s *Sample) error {
	if s.Taken != "none" && s.Taken != "reused" { // time without a sample, or more of one's
		o.samples++
	}
	o.weight += o.opts.weight(s)
	var errs []error
	for _, out := range o.list {
		if out.failed {
			continue
		}
		if err := out.sink.Add(s); err != nil {
			errs = append(errs, out.fail(err))
		}
	}
	return errors.Join(errs...)
}

// Close writes what is left and ends each file. Its error is of those that
// fail now.
func (o *Outputs) Close() error {
	var errs []error
	for _, out := range o.list {
		if out.failed {
			continue
		}
		err := out.sink.Close()
		if err == nil {
			err = out.file.commit()
		}
		if err != nil {
			errs = append(errs, out.fail(err))
		}
	}
	return errors.Join(errs...)
}

// Wrote tells of each file that was written what is in it. Call it after Close.
func (o *Outputs) Wrote() []string {
	var list []string
	for _, out := range o.list {
		if !out.failed && out.file.name != stdoutName {
			list = append(list, fmt.Sprintf("%s (%s, %s of %s)", out.file.name, Plural(int64(o.samples), "sample"), appendTime(nil, int64(o.weight)), o.opts.unit()))
		}
	}
	return list
}

// Notes says what readers of the outputs should know, each with its file. Call
// it after Close.
func (o *Outputs) Notes() []string {
	var list []string
	for _, out := range o.list {
		n, ok := out.sink.(interface{ Notes() []string })
		if out.failed || !ok {
			continue
		}
		for _, note := range n.Notes() {
			list = append(list, fmt.Sprintf("%s: %s", out.file.title(), note))
		}
	}
	return list
}

// Describe tells the pictures of the run. Call it before Close.
func (o *Outputs) Describe(r Run) {
	r.Samples = o.samples
	for _, out := range o.list {
		if d, ok := out.sink.(interface{ describe(Run) }); ok {
			d.describe(r)
		}
	}
}

// Failed tells whether no output is left that could be written.
func (o *Outputs) Failed() bool {
	for _, out := range o.list {
		if !out.failed {
			return false
		}
	}
	return true
}

// Discard ends a run that has no result in the place of Close: files that stood
// there before stay as they were.
func (o *Outputs) Discard() {
	for _, out := range o.list {
		if !out.failed {
			out.file.discard(false)
			out.failed = true
		}
	}
}

// fail gives up an output, but not what it holds: a stream's complete beginning
// stays under the name of its partial file, and a whole is written elsewhere.
func (s *sinkFile) fail(err error) error {
	s.failed = true
	fate := "what could be written is not whole"
	if s.file.partial != "" {
		fate = "nothing of it is kept"
	}
	if kept := s.file.discard(s.format.stream); kept != "" {
		fate = "its beginning is kept as " + kept
	}
	if w, ok := s.sink.(whole); ok && !s.strict && !errors.Is(err, syscall.EPIPE) {
		saved, saveErr := rescue(w.write, s.format.endings[0])
		fate = "the result is saved as " + saved
		if saveErr != nil {
			fate = fmt.Sprintf("and no room to save it elsewhere: %v; free some space, or set TMPDIR", saveErr)
		}
	}
	return s.file.writeError(err, fate)
}
