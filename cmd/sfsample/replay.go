package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"sfsample/output"
	"sfsample/sampler"
	"sfsample/sampler/capture"
	"sfsample/sampler/module"
)

// replay unwinds, names and writes a recording.
func replay(c config, stderr io.Writer) error {
	log := logger(c, stderr)
	f, err := os.Open(c.capture)
	if err != nil {
		return fmt.Errorf("replay: %w (try: a file that --record has written)", err)
	}
	defer f.Close()
	r, err := capture.NewReader(f)
	if err != nil {
		return fmt.Errorf("replay %s: %w (try: a file that --record has written)", printable(c.capture), err)
	}
	first, err := r.Next()
	if err != nil {
		return fmt.Errorf("replay %s: %w", printable(c.capture), err)
	}
	run, ok := first.(*capture.Run)
	if !ok {
		return fmt.Errorf("replay %s: it does not begin with the description of its run", printable(c.capture))
	}
	if err := c.checkOrder(run.Host); err != nil {
		return fmt.Errorf("replay %s: %w", printable(c.capture), err)
	}
	outs, err := output.Open(c.outputs, output.Options{
		Hz: run.Hz, Wall: run.Weight == weightWall, ByThread: c.byThread, Lines: c.lines,
	})
	if err != nil {
		return err
	}
	files := sampler.NewRecorded()
	cache := module.NewCache(0)
	s := &session{config: c, log: log, outs: outs, stderr: stderr}
	s.names = c.newNames(context.Background(), log, stderr, true)
	s.pipe = sampler.NewPipeline(sampler.PipelineConfig{
		Host: run.Host, Start: run.Start, Order: c.order, MaxDepth: c.maxDepth,
		Sink: outs, Names: s.names, Log: log, Verify: c.verify,
		Scripts: c.scripts != scriptsOff, ScriptsOnly: c.scripts == scriptsOnly,
		Open: func(pid int) (sampler.Target, error) {
			return module.NewSpace(files.Source(pid), cache, module.Options{NoEHFrame: c.noEHFrame(), Log: log}), nil
		},
	})
	err = sampler.Replay(r, s.pipe, files)
	if err != nil {
		err = fmt.Errorf("replay %s: %w", printable(c.capture), explainCut(err))
	}
	err = errors.Join(err, outs.Close())
	if !c.quiet {
		s.replayed()
	}
	return err
}

func explainCut(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the recording was cut; what came before was used")
	}
	return err
}
