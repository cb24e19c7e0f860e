// Vm supplies what this machine lacks: compilers for all targets, interpreters of
// other versions, and virtual machines of the other architectures.
//
//	go run ./tools/vm fetch                         download everything
//	go run ./tools/vm cc [-suite S] TOOL ARGS...    a gcc or binutils program, on the current folder
//	go run ./tools/vm toolchains                    the compilers' package versions
//	go run ./tools/vm run [options] ARCH CMD ARGS... a command in a guest
//	go run ./tools/vm exec ARCH PROGRAM ARGS...     for go test -exec
//
// For one package's tests in a guest:
//
//	go build -o /tmp/vm ./tools/vm
//	GOARCH=s390x go test -exec '/tmp/vm exec s390x' ./unwind
//
// Options of run: -f TO=FROM puts the file or folder FROM into the guest (may be
// given again), -dir DIR is the working folder there, -m MIB its memory,
// -cpus N its CPUs, -t DURATION the time limit.
//
// The exit status is 1 if the command failed in the guest, 125 if the guest
// did.
//
// Needs a Debian 12 machine on x86-64; cc needs root. Downloads go to sfsample
// in the user's cache folder, or to $SFSAMPLE_CACHE.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"sfsample/tools/internal/debian"
	"sfsample/tools/internal/guest"
)

func main() {
	debian.ChrootMain()
	err := run(os.Args[1:])
	exit, ended := err.(*exec.ExitError) // of what cc runs; one that is a cause has its text still to be said
	switch {
	case err == nil:
	case errors.Is(err, errCommand):
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(1)
	case ended && exit.Exited():
		os.Exit(exit.ExitCode())
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "usage: vm fetch | toolchains | cc [-suite SUITE] TOOL ARGS... | run [options] ARCH CMD ARGS... | exec ARCH PROGRAM ARGS...")
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(125)
	}
}

var errUsage = errors.New("wrong usage")

func run(args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	cache, err := debian.Open(os.Getenv("SFSAMPLE_CACHE"))
	if err != nil {
		return err
	}
	switch args[0] {
	case "fetch":
		return fetch(cache)
	case "cc":
		return cc(cache, args[1:])
	case "toolchains":
		return toolchains(cache)
	case "run":
		return runGuest(cache, args[1:])
	case "exec":
		return execTest(cache, args[1:])
	}
	return errUsage
}

// fetch downloads everything and prints what it consists of: suites other than
// stable change, and a log should tell with what it was made.
func fetch(cache *debian.Cache) error {
	for _, suite := range []string{debian.SFrame3Suite, debian.SFrame2Suite} {
		dir, err := cache.Toolchain(suite)
		if err != nil {
			return err
		}
		if err := printPackages(dir); err != nil {
			return err
		}
	}
	dirs, err := cache.Interpreters()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if err := printPackages(dir); err != nil {
			return err
		}
	}
	for _, arch := range guest.Archs() {
		m := guest.Machine{Cache: cache, Arch: arch}
		dirs, err := m.Fetch()
		if err != nil {
			return err
		}
		for _, dir := range dirs {
			if err := printPackages(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// toolchains prints the packages whose versions decide what a compiled program
// looks like, one a line after its suite.
func toolchains(cache *debian.Cache) error {
	for _, suite := range []string{debian.SFrame3Suite, debian.SFrame2Suite} {
		dir, err := cache.Toolchain(suite)
		if err != nil {
			return err
		}
		names, err := debian.Packages(dir)
		if err != nil {
			return err
		}
		for _, n := range names {
			if strings.HasPrefix(n, "binutils") || strings.HasPrefix(n, "gcc-1") {
				fmt.Println("package", suite, n)
			}
		}
	}
	return nil
}

func printPackages(dir string) error {
	names, err := debian.Packages(dir)
	if err != nil {
		return err
	}
	fmt.Printf("%s\n", dir)
	for _, n := range names {
		fmt.Printf("\t%s\n", n)
	}
	return nil
}

// cc runs a program of a toolchain in the current folder.
func cc(cache *debian.Cache, args []string) error {
	flags := flag.NewFlagSet("cc", flag.ContinueOnError)
	suite := flags.String("suite", debian.SFrame3Suite, "Debian `suite` of the toolchain")
	if err := flags.Parse(args); err != nil || flags.NArg() == 0 {
		return errUsage
	}
	root, err := cache.Toolchain(*suite)
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	cmd, err := debian.Command(root, dir, flags.Arg(0), flags.Args()[1:]...)
	if err != nil {
		return err
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}
