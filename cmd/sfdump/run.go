package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// Exit status, as the help says.
const (
	exitDone   = 0
	exitFailed = 1
	exitUsage  = 2
)

const usage = `Usage: sfdump [flags] FILE
       sfdump [flags] -p PID

Shows the SFrame table of an ELF file, or of everything that a process has
loaded (read from its memory): header, functions, rows.

      --rows           one line a row, for comparison by machine:
                       func_start fde_size attrs | pc cfa fp ra
      --eh             from .eh_frame instead of .sframe
      --lookup ADDR    the row for an address (hexadecimal), repeatable
      --check          validate every function and row
      --compare        .sframe against .eh_frame at every address
      --json           one JSON object a line
  -p, --pid PID        the modules of a process; addresses are the process's
  -h, --help           this text

Exit status: 0 done; 1 failed, faults found (--check), no row (--lookup), or
rules that differ (--compare); 2 wrong usage.
`

// mode is what to do with the tables.
type mode int

const (
	modeDump mode = iota
	modeRows
	modeLookup
	modeCheck
	modeCompare
	modeHelp
)

// options is the parsed command line.
type options struct {
	mode  mode
	eh    bool
	json  bool
	addrs []uint64
	pid   int
	file  string
}

// parse reads the command line. The error is for people.
func parse(args []string) (options, error) {
	var o options
	var rows, check, compare, help bool
	var lookups []string
	flags := pflag.NewFlagSet("sfdump", pflag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	flags.BoolVar(&rows, "rows", false, "")
	flags.BoolVar(&o.eh, "eh", false, "")
	flags.StringArrayVar(&lookups, "lookup", nil, "")
	flags.BoolVar(&check, "check", false, "")
	flags.BoolVar(&compare, "compare", false, "")
	flags.BoolVar(&o.json, "json", false, "")
	flags.IntVarP(&o.pid, "pid", "p", 0, "")
	flags.BoolVarP(&help, "help", "h", false, "")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if help {
		o.mode = modeHelp
		return o, nil
	}
	chosen := 0
	for _, m := range []struct {
		set  bool
		mode mode
	}{{rows, modeRows}, {len(lookups) > 0, modeLookup}, {check, modeCheck}, {compare, modeCompare}} {
		if m.set {
			o.mode = m.mode
			chosen++
		}
	}
	switch {
	case chosen > 1:
		return o, errors.New("--rows, --lookup, --check and --compare exclude each other")
	case o.eh && o.mode == modeCompare:
		return o, errors.New("--compare looks at .eh_frame anyway (try: without --eh)")
	case flags.Changed("pid") && o.pid <= 0:
		return o, fmt.Errorf("%d is not a process id", o.pid)
	case flags.Changed("pid") && flags.NArg() > 0:
		return o, fmt.Errorf("a process or a file, not both: %q", flags.Arg(0))
	case !flags.Changed("pid") && flags.NArg() != 1:
		return o, fmt.Errorf("one file is needed, or -p PID; got %d arguments", flags.NArg())
	}
	o.file = flags.Arg(0)
	var err error
	o.addrs, err = parseAddrs(lookups)
	return o, err
}

// parseAddrs reads hexadecimal addresses, with or without 0x.
func parseAddrs(list []string) ([]uint64, error) {
	var addrs []uint64
	for _, s := range list {
		addr, err := strconv.ParseUint(strings.TrimPrefix(strings.ToLower(s), "0x"), 16, 64)
		if err != nil {
			return nil, fmt.Errorf("--lookup %q: not a hexadecimal address", s)
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// dumper carries out one run.
type dumper struct {
	options
	out    *bufio.Writer
	errs   io.Writer
	failed bool
}

// run is main with its surroundings as arguments; it returns the exit status.
func run(args []string, stdout, stderr io.Writer) int {
	o, err := parse(args)
	if err != nil {
		fmt.Fprintf(stderr, "sfdump: %v (try: sfdump --help)\n", err)
		return exitUsage
	}
	if o.mode == modeHelp {
		io.WriteString(stdout, usage)
		return exitDone
	}
	d := &dumper{options: o, out: bufio.NewWriter(stdout), errs: stderr}
	if o.pid > 0 {
		err = d.process()
	} else {
		err = d.oneFile()
	}
	if err != nil {
		d.complain(err)
	}
	if err := d.out.Flush(); err != nil {
		fmt.Fprintf(stderr, "sfdump: %v\n", err)
		return exitFailed
	}
	if d.failed {
		return exitFailed
	}
	return exitDone
}

// complain writes a message after what was printed so far, and makes the run
// fail.
func (d *dumper) complain(err error) {
	d.out.Flush()
	fmt.Fprintf(d.errs, "sfdump: %s\n", printable(err.Error()))
	d.failed = true
}

// oneFile treats the file of the command line.
func (d *dumper) oneFile() error {
	obj, err := openFile(d.file)
	if err != nil {
		return err
	}
	defer obj.close()
	if d.mode == modeCompare && len(obj.sframes) == 0 && len(obj.faults) == 0 {
		return d.compare(obj) // .eh_frame alone is worth counting
	}
	if !d.eh && len(obj.sframes) == 0 && len(obj.faults) == 0 {
		return obj.noTable()
	}
	return d.object(obj)
}

// object does what is asked for with one object.
func (d *dumper) object(obj *object) error {
	for _, err := range obj.faults {
		if d.mode == modeCheck {
			d.fault(obj, err)
			continue
		}
		d.complain(fmt.Errorf("%s: %w", obj.path, err))
	}
	switch d.mode {
	case modeLookup:
		return d.lookup(obj)
	case modeCheck:
		return d.check(obj)
	case modeCompare:
		return d.compare(obj)
	case modeRows:
		return d.rows(obj)
	}
	return d.dump(obj)
}
