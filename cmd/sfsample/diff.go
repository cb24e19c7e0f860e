package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"sfsample/output"
	"sfsample/sampler/capture"
)

// diff writes a page that compares two profiles.
func diff(c config, stderr io.Writer) error {
	if len(c.out.specs) > 1 {
		return errors.New("diff writes one page (give one -o)")
	}
	if c.out.specs[0].File == "-" && isTerminal(os.Stdout) {
		return errors.New("diff writes a page for a browser (try: -o diff.html)")
	}
	outs, page, err := output.OpenDiff(c.out.specs[0], sideTitle(c.files[0]), sideTitle(c.files[1]))
	if err != nil {
		return err
	}
	for i, which := range []int{output.Before, output.After} {
		if err := c.readSide(c.files[i], page, which, stderr); err != nil {
			outs.Discard()
			return err
		}
	}
	if err := outs.Close(); err != nil {
		return err
	}
	if name := c.out.specs[0].File; name != stdin {
		fmt.Fprintf(stderr, "sfsample: wrote %s\n", printable(name))
	}
	return nil
}

// stdin is the name of standard input as a side of a comparison.
const stdin = "-"

func sideTitle(name string) string {
	if name == stdin {
		return "standard input"
	}
	return filepath.Base(name)
}

// readSide reads one side of a comparison. A recording that was cut is used as far as it goes.
func (c *config) readSide(name string, page *output.Diff, which int, stderr io.Writer) error {
	if name == stdin {
		if err := page.Read(os.Stdin, which); err != nil {
			return fmt.Errorf("diff %s: %w (try: a folded file or a profile of pprof)", sideTitle(name), err)
		}
		return nil
	}
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("diff: %w (try: a folded file, a profile of pprof, or what --record wrote)", err)
	}
	defer f.Close()
	magic := make([]byte, len(capture.Magic))
	if n, _ := f.ReadAt(magic, 0); n == len(magic) && bytes.Equal(magic, []byte(capture.Magic)) {
		s := &session{config: *c, log: c.messages.logger(stderr), stderr: stderr}
		_, err := s.replay(name, func(run *capture.Run) (output.Sink, error) {
			return page.Side(which, run.Weight == weightWall), nil
		})
		return err
	}
	if err := page.Read(f, which); err != nil {
		return fmt.Errorf("diff %s: %w (try: a folded file, a profile of pprof, or what --record wrote)", printable(name), err)
	}
	return nil
}
