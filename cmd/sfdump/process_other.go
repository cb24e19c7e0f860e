//go:build !linux

package main

import "errors"

// process needs a kernel that shows the memory of processes as Linux does.
func (d *dumper) process() error {
	return errors.New("processes can be read on Linux only (try: a file)")
}
