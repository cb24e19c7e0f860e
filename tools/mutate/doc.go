// Command mutate plants faults in packages, one at a time, and tells which ones
// the package's own tests find.
//
//	go run ./tools/mutate [-n 200] [-seed 1] [-j 2] [-v] PACKAGE...
//
// A fault is one changed operator, condition, constant or flag, or one statement
// taken out. The sources are not touched: go test is given the changed file by
// -overlay. A fault that does not compile is not counted. A fault that the
// tests do not find is shown with its place and its change; those that change
// nothing that can be seen are listed in equivalent.txt, each with its reason.
//
// The choice is the same for the same seed and sources. The exit status is 1 if
// less than -want percent of the faults that count were found.
package main
