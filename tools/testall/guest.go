package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	"sfsample/tools/internal/debian"
	"sfsample/tools/internal/guest"
	"sfsample/tools/internal/guest/wire"
)

// guestLimit is the time for all packages in one guest. The aim is ten minutes
// for each; the limit leaves room for a machine that is busy with other things.
const guestLimit = 25 * time.Minute

// inGuest returns a place that boots one virtual machine and runs all programs
// there as root, one after the other, each in its package's folder of a tree
// that has nothing but the testdata folders.
func inGuest(arch string) func(string, []binary, []string, *report) error {
	return func(_ string, bins []binary, args []string, rep *report) error {
		cache, err := debian.Open(os.Getenv("SFSAMPLE_CACHE"))
		if err != nil {
			return err
		}
		module, err := os.Getwd()
		if err != nil {
			return err
		}
		files, err := guest.TestFiles(module)
		if err != nil {
			return err
		}
		m := &guest.Machine{Cache: cache, Arch: arch, Files: files, Libraries: true, MemoryMiB: 2048}
		var jobs []wire.Job
		for i, b := range bins {
			dir, prog := path.Join("src", b.pkg), fmt.Sprintf("test/%d.test", i)
			m.Folders = append(m.Folders, dir)
			files[prog] = b.path
			jobs = append(jobs, wire.Job{Dir: "/" + dir, Argv: b.command("/"+prog, args)})
		}
		ctx, cancel := context.WithTimeout(context.Background(), guestLimit)
		defer cancel()
		return m.Run(ctx, jobs, func(job int, output io.Reader, ended func() error) error {
			return rep.run(bins[job].pkg, output, ended)
		})
	}
}
