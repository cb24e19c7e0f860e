// Vm supplies what this machine lacks: compilers for all targets, and virtual
// machines of the other architectures.
//
//	go run ./tools/vm fetch                       download everything
//	go run ./tools/vm cc [-suite S] TOOL ARGS...  a gcc or binutils program, on the current folder
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

	"sfsample/tools/internal/debian"
)

func main() {
	debian.ChrootMain()
	err := run(os.Args[1:])
	var exit *exec.ExitError
	switch {
	case err == nil:
	case errors.As(err, &exit) && exit.Exited():
		os.Exit(exit.ExitCode())
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "usage: vm fetch | cc [-suite SUITE] TOOL ARGS...")
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
