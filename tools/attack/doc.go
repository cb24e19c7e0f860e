// Attack runs sfsample against programs that are made to be harmed by a sampler,
// and that count themselves what has become of them: results of their system calls,
// time that these took, signals. Each attack is tried in each mode of sfsample. The
// table at the end says held, or broke and how. What a machine lacks is named and
// left out.
//
//	go run ./tools/attack                      # all, 20 runs each
//	go run ./tools/attack -runs 1000 -only seccomp
//	go run ./tools/attack -tool ./sfsample     # another build
//
// The programs are in src; they are built with gcc. A program prints "ready", then
// "result NAME=N ..." when its standard input has ended; all but its counters
// "wrong" and "eintr" are only shown. One that waits for a line prints "installed"
// when it has had it. One that says "lacks" and
// ends with status 77 cannot have here what it takes.
package main
