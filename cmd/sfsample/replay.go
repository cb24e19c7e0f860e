package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sfsample/output"
	"sfsample/sampler"
	"sfsample/sampler/capture"
	"sfsample/sampler/module"
)

// replay unwinds, names and writes a recording.
func replay(c config, stderr io.Writer) error {
	s := &session{config: c, log: c.messages.logger(stderr), stderr: stderr}
	var outs *output.Outputs
	run, err := s.replay(c.files[0], func(run *capture.Run) (output.Sink, error) {
		var err error
		opt := c.outputOptions()
		opt.Hz, opt.Wall = run.Hz, run.Weight == weightWall
		outs, err = output.Open(c.out.specs, opt)
		return outs, err
	})
	if outs == nil {
		return err
	}
	s.outs = &lastSink{Outputs: outs}
	about := output.Run{Command: run.Command, PIDs: run.PIDs, Host: run.Machine, Start: run.Start}
	if about.Command == "" && len(about.PIDs) == 0 {
		about.Command = "replay of " + filepath.Base(c.files[0])
	}
	outs.Describe(about)
	err = errors.Join(err, s.outs.Close())
	if !c.messages.quiet {
		s.replayed()
	}
	return err
}

// replay unwinds and names a recording for a sink, which open makes for a run like that.
func (s *session) replay(name string, open func(*capture.Run) (output.Sink, error)) (*capture.Run, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("replay: %w (try: a file that --record has written)", err)
	}
	defer f.Close()
	r, err := capture.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("replay %s: %w (try: a file that --record has written)", printable(name), err)
	}
	first, err := r.Next()
	if err != nil {
		return nil, fmt.Errorf("replay %s: %w", printable(name), err)
	}
	run, ok := first.(*capture.Run)
	if !ok {
		return nil, fmt.Errorf("replay %s: it does not begin with the description of its run", printable(name))
	}
	if err := s.config.unwinding.checkOrder(run.Host); err != nil {
		return nil, fmt.Errorf("replay %s: %w", printable(name), err)
	}
	sink, err := open(run)
	if err != nil {
		return nil, err
	}
	files := sampler.NewRecorded(run.Start)
	cache := module.NewCache(0)
	names := s.config.newNames(nil, s.log, s.stderr, true)
	pipe := sampler.NewPipeline(sampler.PipelineConfig{
		Host: run.Host, Start: run.Start, Walk: s.config.unwinding.walk(),
		Sink: sink, Names: names, Log: s.log,
		Scripts: s.config.unwinding.scriptOptions(),
		Open: func(pid int) (sampler.Target, *sampler.Survivor, error) {
			return module.NewSpace(files.Source(pid), cache, module.Options{NoEHFrame: s.config.unwinding.noEHFrame(), Log: s.log}), nil, nil
		},
	})
	s.found = findings{names, pipe, s.say}
	err = sampler.Replay(r, pipe, files)
	if !s.config.messages.quiet {
		const most = 10
		others := files.Others()
		for _, why := range others[:min(len(others), most)] {
			s.say("names: %s", printable(why))
		}
		if more := len(others) - most; more > 0 {
			s.say("names: %d more files are others than were recorded", more)
		}
	}
	if err != nil {
		return run, fmt.Errorf("replay %s: %w", printable(name), explainCut(err))
	}
	return run, nil
}

func explainCut(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the recording was cut; what came before was used")
	}
	return err
}
