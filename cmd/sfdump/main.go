// Command sfdump shows what the decoders of sfsample see in a file or in a live
// process: SFrame and .eh_frame tables, their rows, their faults, and where
// they differ.
package main

import "os"

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }
