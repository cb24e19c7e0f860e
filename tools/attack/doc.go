// Attack runs sfsample against programs that are made to be harmed by a sampler,
// and that count themselves what has become of them: results of their system calls,
// time that these took, signals. Each attack is tried in each mode of sfsample. The
// table at the end says held, or broke and how. What a machine lacks is named and
// left out.
//
//	go run ./tools/attack                      # all, 20 runs each
//	go run ./tools/attack -short -runs 1       # a few modes each, once: what the test does
//	go run ./tools/attack -runs 1000 -jobs 6 -only seccomp
//	go run ./tools/attack -tool ./sfsample     # another build
//
// The programs are in src; they are built with gcc. A program prints "ready", with the
// ids of those to be sampled if that is not itself, then
// "result NAME=N ..." when its standard input has ended; all but its counters
// "wrong" and "eintr" are only shown. Times, NAME_us, are held against those of a
// twin that nobody samples, if the attack says so; NAME_jiffies_us may be a tick of the kernel's clock shorter. "short" counts transfers of fewer bytes
// than asked for, which the kernel ends at any stop, and which nobody can take back.
// A program that waits for a line prints "installed" when it has had it. One that says
// "lacks" and ends with status 77 cannot have here what it takes.
//
// In the modes "user" and "dump user" sfsample and its targets belong to an ordinary user, which takes root to
// begin with; an ordinary user who calls goes without them, and without attacks that only root can make.
//
// Where something hangs, a second run of each is ended by Ctrl-C, and has to end then, soon and with a result. Times in which something waits for a CPU do not
// count, up to eight times of what is allowed.
//
// sfsample breaks, too, if it takes much memory, or seconds after its run, no stack at all (of a thread that runs, where there is one all the time), less than nine tenths of its ticks, or
// loses more than three quarters of what threads had.
package main
